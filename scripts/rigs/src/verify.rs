// verify PATH PASSES: two connections; each reply is checked PASSES times in the client's own code
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

#[inline(never)]
fn verify_records(block: &[u8], passes: u32) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for _ in 0..passes {
        for &x in block {
            a = (a + x as u32) % 65521;
            b = (b + a) % 65521;
        }
    }
    b << 16 | a
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let passes: u32 = args[2].parse().unwrap();
    let start = Instant::now();
    let hands: Vec<_> = (0..2)
        .map(|_| {
            let path = args[1].clone();
            std::thread::spawn(move || {
                let mut s = UnixStream::connect(path).unwrap();
                let mut block = [0u8; 4096];
                let (mut n, mut sum) = (0u64, 0u32);
                while start.elapsed() < Duration::from_millis(1200) {
                    s.write_all(b"get next").unwrap();
                    s.read_exact(&mut block).unwrap();
                    sum ^= verify_records(&block, passes);
                    n += 1;
                }
                std::hint::black_box(sum);
                n
            })
        })
        .collect();
    let n: u64 = hands.into_iter().map(|h| h.join().unwrap()).sum();
    println!("rate={:.1}", n as f64 / start.elapsed().as_secs_f64());
}
