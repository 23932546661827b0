//! Answers every UDP datagram with its own contents, in the sender's port and address; the engine has a
//! thread of its own, or each of several (`--engines`).
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
    let mut responders = Vec::new();
    for (index, engine) in options.engines().into_iter().enumerate() {
        // Engines side by side: the first on the CPU named, the next on the next.
        let placement = Placement { cpu: cpu.map(|cpu| cpu + index), ..Placement::default() };
        let stack = Stack::spawn(placement, move || Ok(engine()))?;
        let socket = UdpSocket::bind(&stack, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))?;
        responders.push((stack, socket));
    }
    announce(&format!("on port {port}, UDP"));
    let ends: Vec<Stack> = responders.iter().map(|(stack, _)| stack.clone()).collect();
    let interrupted = Interrupted::watch(move || ends.iter().for_each(Stack::shutdown));
    let threads: Vec<_> = responders
        .into_iter()
        .map(|(stack, socket)| {
            let interrupted = interrupted.clone();
            std::thread::spawn(move || match respond(&socket, &interrupted) {
                Ok(()) => {}
                // Of one engine is of all: they share the device.
                Err(error) => fail(&link_error(&stack).unwrap_or_else(|| error.to_string())),
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a responder has panicked"))?;
    }
    Ok(())
}

/// Why the link is not used any more, if that is so.
fn link_error(stack: &Stack) -> Option<String> {
    let links = stack.links().unwrap_or_default();
    links.iter().find_map(|link| Some(link.error.as_ref()?.to_string()))
}

fn respond(socket: &UdpSocket, interrupted: &Interrupted) -> io::Result<()> {
    let mut bytes = vec![0; 65_536];
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
    let own = "  --port N               of UDP [default: 7008]
  --cpu N                of the first engine's thread; the next one's is the next";
    let options = Options::parse(include_str!("udp_responder.rs"), own, |option, value| {
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
