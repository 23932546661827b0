// sidecar PATH ROUNDS: UNIX socket, a thread per connection; ranks offers by its own code
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

#[inline(never)]
fn rank_offers(seed: u64, rounds: u64) -> u64 {
    let mut best = seed;
    for i in 0..rounds * 1000 {
        let mut x = best ^ i;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        best = best.wrapping_add(x % 1009);
    }
    best
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds: u64 = args[2].parse().unwrap();
    let _ = std::fs::remove_file(&args[1]);
    let listener = UnixListener::bind(&args[1]).unwrap();
    println!("ready");
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let mut q = [0u8; 8];
            while stream.read_exact(&mut q).is_ok() {
                let rank = rank_offers(u64::from_le_bytes(q), rounds);
                if stream.write_all(&rank.to_le_bytes()).is_err() { break; }
            }
        });
    }
}
