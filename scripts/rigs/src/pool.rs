// pool IP:PORT SIZE: 8 threads share a pool of SIZE connections; a thread takes one, asks, gives it back
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

struct Pool { free: Mutex<Vec<TcpStream>>, back: Condvar }

impl Pool {
    #[inline(never)]
    fn take(&self) -> TcpStream {
        let mut free = self.free.lock().unwrap();
        loop {
            if let Some(s) = free.pop() { return s; }
            free = self.back.wait(free).unwrap();
        }
    }
    fn give(&self, s: TcpStream) { self.free.lock().unwrap().push(s); self.back.notify_one(); }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let size: usize = args[2].parse().unwrap();
    let free = (0..size).map(|_| TcpStream::connect(&args[1]).unwrap()).collect();
    let pool = Arc::new(Pool { free: Mutex::new(free), back: Condvar::new() });
    let start = Instant::now();
    let hands: Vec<_> = (0..8).map(|_| {
        let pool = pool.clone();
        std::thread::spawn(move || {
            let (mut n, mut b) = (0u64, [0u8; 256]);
            while start.elapsed() < Duration::from_millis(1200) {
                let mut s = pool.take();
                s.write_all(b"stock 7\n").unwrap();
                while !matches!(s.read(&mut b), Ok(k) if k == 0 || b[k - 1] == b'\n') {}
                pool.give(s);
                n += 1;
            }
            n
        })
    }).collect();
    let n: u64 = hands.into_iter().map(|h| h.join().unwrap()).sum();
    println!("rate={:.1}", n as f64 / start.elapsed().as_secs_f64());
}
