//! Answers every UDP datagram with its own contents, in the sender's port and address; the engine
//! has a thread of its own, or each of several (`--engines`). A datagram from the port of a
//! service gets no answer: the service might answer, too.
//!
//! ```text
//! cargo run --release --example udp_responder -- --tap ms0 --address 10.70.0.2/24 \
//!     --host-address 10.70.0.1/24
//! echo hello | nc -u -w1 10.70.0.2 7008
//! ```

mod support;

use std::io::{self, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use millstream::net::{Stack, StackBuilder, UdpSocket};
use support::{
    Interrupted, Options, RESPONDER_PORT, announce, fail, may_echo, parsed, show_counters,
};

fn run(options: Options, port: u16, cpu: Option<usize>) -> io::Result<()> {
    let has_stats = options.stats;
    let mut responders = Vec::new();
    for (index, engine) in options.engines().into_iter().enumerate() {
        // Engines side by side: the first on the CPU named, the next on the next.
        let builder = StackBuilder::new().cpu(cpu.map(|cpu| cpu + index));
        let stack = builder.spawn(move || Ok(engine()))?;
        let socket = UdpSocket::bind(&stack, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))?;
        responders.push((stack, socket));
    }
    announce(&format!("on port {port}, UDP"));
    let ends: Vec<Stack> = responders.iter().map(|(stack, _)| stack.clone()).collect();
    if has_stats {
        let stacks = ends.clone();
        std::thread::spawn(move || show_stats(&stacks));
    }
    let interrupted = Interrupted::watch(move || {
        for stack in &ends {
            stack.shutdown();
        }
    });
    let threads: Vec<_> = responders
        .into_iter()
        .map(|(stack, socket)| {
            let interrupted = interrupted.clone();
            std::thread::spawn(move || match respond(&stack, &socket, &interrupted) {
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

/// Prints the counters of the engines every second until they end.
fn show_stats(stacks: &[Stack]) {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let mut shown =
            stacks.iter().map(|stack| stack.with_engine(|engine| show_counters(engine)));
        if shown.any(|shown| shown.is_err()) {
            return;
        }
    }
}

/// Why the link is not used any more, if that is so.
fn link_error(stack: &Stack) -> Option<String> {
    let links = stack.links().unwrap_or_default();
    links.iter().find_map(|link| Some(link.error.as_ref()?.to_string()))
}

fn respond(stack: &Stack, socket: &UdpSocket, interrupted: &Interrupted) -> io::Result<()> {
    let mut bytes = vec![0; 65_536];
    let port = socket.local_addr()?.port();
    loop {
        let answered = socket.recv_from(&mut bytes).and_then(|(len, from)| {
            let answer = &bytes[..len];
            if !may_echo(from, port) {
                return Ok(0);
            }
            // What is told first may be of the answer before.
            socket.send_to(answer, from).or_else(|_| socket.send_to(answer, from))
        });
        match answered {
            Ok(_) => {}
            // The engine has ended, and the device with it.
            Err(_) if interrupted.is_set() => return Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(error),
            Err(error) if link_error(stack).is_some() => return Err(error),
            // This answer or one before could not be sent: its request came from port 0, or from
            // where no route leads. The next requests have nothing to do with it.
            Err(_) => {}
        }
    }
}

fn main() {
    let (mut port, mut cpu) = (RESPONDER_PORT, None);
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

#[cfg(test)]
mod tests {
    use millstream::link::{Link, PairConfig, pair};
    use millstream::packet::{Pool, PoolConfig};
    use millstream::{Engine, EngineConfig};

    use super::*;

    fn stack(pool: &Pool, link: impl Link + 'static, addresses: &'static [&str]) -> Stack {
        let pool = pool.clone();
        let build = move || {
            let mut engine = Engine::new(EngineConfig::new(pool)).expect("an engine");
            let link = engine.add_link(Box::new(link)).expect("a link");
            for address in addresses {
                engine.add_address(link, address.parse().expect("a prefix")).expect("an address");
            }
            Ok(engine)
        };
        Stack::spawn(build).expect("a stack")
    }

    #[test]
    fn a_datagram_that_cannot_be_answered_keeps_nobody_from_an_answer() {
        let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
        let (near, far) = pair(PairConfig::default()).expect("a pair");
        // The responder has no route to the second one.
        let near = stack(&pool, near, &["10.9.0.1/24", "192.0.2.7/24"]);
        let far = stack(&pool, far, &["10.9.0.2/24"]);
        let to: SocketAddr = "10.9.0.2:7008".parse().expect("an address");
        let socket = UdpSocket::bind(&far, to).expect("bind");
        std::thread::spawn(move || respond(&far, &socket, &Interrupted::default()));
        for (from, has_answer) in [
            ("192.0.2.7:5000", false),
            // Whoever answers there would be answered for ever.
            ("10.9.0.1:7", false),
            ("10.9.0.1:7007", false),
            ("10.9.0.1:7008", false),
            ("10.9.0.1:5000", true),
        ] {
            let client = UdpSocket::bind(&near, from).expect("bind");
            let patience = Duration::from_millis(if has_answer { 10_000 } else { 50 });
            client.set_read_timeout(Some(patience)).expect("a timeout");
            client.send_to(b"hello", to).expect("send");
            let answer = client.recv_from(&mut [0; 10]);
            assert_eq!(answer.ok(), has_answer.then_some((5, to)), "{from}");
        }
    }
}
