//! Answers every UDP datagram with its own contents, in the sender's port and address; the engine has a
//! thread of its own.
//!
//! ```text
//! cargo run --release --example udp_responder -- --tap ms0 --address 10.70.0.2/24 \
//!     --host-address 10.70.0.1/24
//! echo hello | nc -u -w1 10.70.0.2 7008
//! ```

mod support;

use std::io;
use std::net::{Ipv6Addr, SocketAddr};

use millstream::net::{Placement, Stack, UdpSocket};
use support::{Interrupted, Options, announce, fail, parsed};

fn run(options: Options, port: u16, cpu: Option<usize>) -> io::Result<()> {
    let placement = Placement { cpu, ..Placement::default() };
    let stack = Stack::spawn(placement, move || Ok(options.engine()))?;
    let socket = UdpSocket::bind(&stack, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))?;
    announce(&format!("on port {port}, UDP"));
    let mut bytes = vec![0; 65_536];
    let end = stack.clone();
    let interrupted = Interrupted::watch(move || end.shutdown());
    loop {
        let served = socket
            .recv_from(&mut bytes)
            .and_then(|(len, from)| socket.send_to(&bytes[..len], from));
        match served {
            // The engine has ended, and the device with it.
            Err(_) if interrupted.is_set() => return Ok(()),
            served => served?,
        };
    }
}

fn main() {
    let (mut port, mut cpu) = (7008, None);
    let options = Options::parse("udp_responder [--port N] [--cpu N]", |option, value| {
        match option {
            "--port" => port = parsed(option, &value()),
            "--cpu" => cpu = Some(parsed(option, &value())),
            _ => return false,
        }
        true
    });
    if let Err(error) = run(options, port, cpu) {
        fail(&error.to_string());
    }
}
