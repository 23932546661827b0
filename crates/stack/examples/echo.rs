//! Answers every TCP stream and every UDP datagram with its own bytes.
//!
//! ```text
//! cargo run --release --example echo -- --tap ms0 --address 10.70.0.2/24 --host-address 10.70.0.1/24
//! nc 10.70.0.2 7007
//! ```
//! One thread serves all connections: the application runs in the engine's thread. Received packets
//! are sent back without copying their bytes. With `--engines 2` two engines in two threads share
//! the device, each with its own part of the connections; `--packet eth0` or `--xdp eth0` takes the
//! place of `--tap`. A connection over which nothing goes for ten minutes is closed, and datagrams
//! from ports of services are not answered.

mod support;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv6Addr, Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use millstream::local::{Stack, TcpListener, TcpStream, UdpSocket};
use millstream::packet::Packet;
use millstream::{Error, SocketId};
use support::{
    ECHO_PORT, Interrupted, LAST_MOMENT, Options, StatsLine, Sweep, announce, may_echo, parsed,
};

const READ_BYTES: usize = 65_536;
/// A connection may be silent for so long.
const SILENCE: Duration = Duration::from_secs(600);

/// A connection, and what it could not take back yet.
struct Client {
    stream: TcpStream,
    waiting: Option<Packet>,
    ended: bool,
    /// When it was last served.
    served: Instant,
}

impl Client {
    /// Sends back what has arrived; false when the connection is over.
    fn serve(&mut self) -> bool {
        self.served = Instant::now();
        loop {
            if let Some(packet) = self.waiting.take() {
                match self.stream.try_write_packet(packet) {
                    Ok(()) => {}
                    Err((packet, Error::WouldBlock)) => {
                        self.waiting = Some(packet);
                        return true;
                    }
                    Err(_) => return false,
                }
            }
            if self.ended {
                return false;
            }
            match self.stream.read_packet(READ_BYTES) {
                Ok(Some(packet)) => self.waiting = Some(packet),
                Ok(None) => {
                    self.ended = true;
                    let _ = self.stream.shutdown(Shutdown::Write);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }
}

fn answer_datagrams(socket: &UdpSocket, port: u16) {
    let (mut bytes, mut list) = ([0; 65_536], Vec::new());
    while socket.recv_many(&mut bytes, &mut list).is_ok() {
        let mut rest = &bytes[..];
        for datagram in &list {
            let (data, behind) = rest.split_at(datagram.len);
            if may_echo(datagram.from, port) {
                let _ = socket.send_to(data, datagram.from);
            }
            rest = behind;
        }
    }
}

fn run(stack: &Stack, port: u16, stats: &mut StatsLine) -> io::Result<()> {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    let listener = TcpListener::bind(stack, any, 1024)?;
    let port = listener.local_addr()?.port();
    let datagrams = UdpSocket::bind(stack, SocketAddr::new(any.ip(), port))?;
    listener.set_nonblocking(true)?;
    datagrams.set_nonblocking(true)?;
    announce(&format!("on port {port}, TCP and UDP"));
    let mut clients: HashMap<SocketId, Client> = HashMap::new();
    let mut events = Vec::new();
    let interrupted = Interrupted::of(stack);
    let mut sweep = Sweep::new();
    while !interrupted.is_set() {
        events.clear();
        stack.wait(stats.patience_with(clients.len()), &mut events)?;
        stats.tick(stack)?;
        if let Some(now) = sweep.due() {
            clients.retain(|_, client| now.saturating_duration_since(client.served) < SILENCE);
        }
        for event in &events {
            if event.id == listener.id() {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let mut client =
                        Client { stream, waiting: None, ended: false, served: Instant::now() };
                    if client.serve() {
                        clients.insert(client.stream.id(), client);
                    }
                }
            } else if event.id == datagrams.id() {
                answer_datagrams(&datagrams, port);
            } else if clients.get_mut(&event.id).is_some_and(|client| !client.serve()) {
                clients.remove(&event.id);
            }
        }
    }
    drop((clients, listener));
    stack.shutdown_within(LAST_MOMENT);
    Ok(())
}

fn main() {
    let mut port = ECHO_PORT;
    let own = "  --port N               of TCP and UDP [default: 7007]";
    let options = Options::parse(include_str!("echo.rs"), own, |option, value| {
        let known = option == "--port";
        if known {
            port = parsed(option, &value());
        }
        known
    });
    options.serve(|stack, stats| run(stack, port, stats));
}
