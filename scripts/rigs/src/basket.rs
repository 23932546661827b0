// basket PORT ROUNDS: UDP, one thread; prices a basket by its own code and answers
use std::net::UdpSocket;

#[inline(never)]
fn price_basket(n: u32, rounds: u32) -> f64 {
    let mut sum = n as f64;
    for i in 1..=rounds * 1000 {
        sum = (sum * 1.000001 + (i % 97) as f64).sqrt() * 3.0;
    }
    sum
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds: u32 = args[2].parse().unwrap();
    let socket = UdpSocket::bind(format!("127.0.0.1:{}", args[1])).unwrap();
    println!("ready");
    let mut b = [0u8; 256];
    loop {
        let (k, from) = socket.recv_from(&mut b).unwrap();
        let price = price_basket(u32::from_le_bytes(b[..4].try_into().unwrap()), rounds);
        b[4..12].copy_from_slice(&price.to_le_bytes());
        let _ = socket.send_to(&b[..k.max(12)], from);
    }
}
