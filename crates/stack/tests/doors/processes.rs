//! Programs started, and the process stopped, while engines run: docs/not-supported.md says what
//! holds.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use millstream::link::{PairConfig, pair};
use millstream::net::{Stack, TcpListener, TcpStream};

use crate::common;

const BYTES: usize = 8 << 20;

/// Two stacks, each with its thread.
fn stacks() -> [Stack; 2] {
    let pool = common::pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    [(near, 1, common::NEAR), (far, 2, common::FAR)].map(|(end, seed, addresses)| {
        let config = common::config(&pool, seed);
        Stack::spawn(move || Ok(common::engine(config, end, &addresses))).expect("a stack")
    })
}

/// Moves [`BYTES`] from one stack to the other, and back, while `meanwhile` is called after each
/// part of it.
fn transfer(mut meanwhile: impl FnMut()) {
    let [near, far] = stacks();
    let address: SocketAddr = "10.9.0.2:7".parse().expect("an address");
    let listener = TcpListener::bind(&far, address, 4).expect("bind");
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut buffer = vec![0; 65_536];
        loop {
            match stream.read(&mut buffer).expect("read") {
                0 => return,
                n => stream.write_all(&buffer[..n]).expect("write"),
            }
        }
    });
    let mut stream = TcpStream::connect(&near, address).expect("connect");
    let data: Vec<u8> = (0..65_536u32).map(|n| (n * 7 % 251) as u8).collect();
    let mut answer = vec![0; data.len()];
    for part in 0..BYTES / data.len() {
        stream.write_all(&data).expect("write");
        if part % 16 == 0 {
            meanwhile();
        }
        stream.read_exact(&mut answer).expect("read");
        assert!(answer == data, "part {part} came back changed");
    }
    drop(stream);
    echo.join().expect("the echo");
}

#[test]
fn a_program_that_is_started_has_nothing_of_an_engine() {
    transfer(|| {
        let mut list = Command::new("ls");
        let shown = list.args(["-l", "/proc/self/fd"]).output().expect("ls");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains(" 1 -> "), "{shown}");
        for descriptor in ["eventfd", "eventpoll", "io_uring", "/dev/net/tun"] {
            assert!(!shown.contains(descriptor), "{shown}");
        }
    });
}

/// All threads stand still for a while, in whatever they do; who waits goes on waiting.
#[test]
fn a_process_that_is_stopped_goes_on() {
    transfer(|| {
        let own = std::process::id();
        let script = format!("kill -STOP {own}; sleep 0.05; kill -CONT {own}");
        let mut child = Command::new("sh");
        let child = child.args(["-c", &script]).stdin(Stdio::null()).status().expect("sh");
        assert!(child.success());
    });
}
