// nagle server ADDR | nagle client ADDR NODELAY(0|1): header and body in two writes, then the reply
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn main() {
    let a: Vec<String> = std::env::args().collect();
    if a[1] == "server" {
        let l = TcpListener::bind(&a[2]).unwrap();
        println!("ready");
        for s in l.incoming() {
            let mut s = s.unwrap();
            std::thread::spawn(move || {
                let (mut head, mut body) = ([0u8; 4], [0u8; 200]);
                loop {
                    if s.read_exact(&mut head).is_err() { return; }
                    let n = u32::from_be_bytes(head) as usize;
                    if s.read_exact(&mut body[..n]).is_err() { return; }
                    if s.write_all(&body[..16]).is_err() { return; }
                }
            });
        }
        return;
    }
    let mut s = TcpStream::connect(&a[2]).unwrap();
    s.set_nodelay(a[3] == "1").unwrap();
    let (start, mut n, mut reply) = (Instant::now(), 0u64, [0u8; 16]);
    while start.elapsed() < Duration::from_millis(1300) {
        s.write_all(&100u32.to_be_bytes()).unwrap();
        s.write_all(&[7u8; 100]).unwrap();
        s.read_exact(&mut reply).unwrap();
        n += 1;
    }
    println!("rate={:.1}", n as f64 / start.elapsed().as_secs_f64());
}
