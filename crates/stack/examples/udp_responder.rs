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
use std::time::Duration;

use millstream::net::{Placement, Stack, UdpSocket};
use support::{Interrupted, Options, announce, fail, parsed};

/// Between two looks whether the links are well.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

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
    let stacks: Vec<Stack> = responders.iter().map(|(stack, _)| stack.clone()).collect();
    std::thread::spawn(move || watch_links(&stacks));
    let ends: Vec<Stack> = responders.iter().map(|(stack, _)| stack.clone()).collect();
    let interrupted = Interrupted::watch(move || ends.iter().for_each(Stack::shutdown));
    let threads: Vec<_> = responders
        .into_iter()
        .map(|(_stack, socket)| {
            let interrupted = interrupted.clone();
            std::thread::spawn(move || respond(&socket, &interrupted))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a responder has panicked"))??;
    }
    Ok(())
}

/// Ends the program when a link has failed, of which who waits for datagrams is not told.
fn watch_links(stacks: &[Stack]) {
    while stacks.iter().all(|stack| match stack.links() {
        Ok(links) => links.iter().all(|link| match &link.error {
            Some(error) => fail(&error.to_string()),
            None => true,
        }),
        // The engine has ended.
        Err(_) => false,
    }) {
        std::thread::sleep(LOOK_PAUSE);
    }
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
