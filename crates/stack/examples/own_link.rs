//! A link of one's own is one file: it implements [`Link`], and an engine takes it as any other.
//!
//! ```text
//! cargo run --example own_link
//! ```
//! IP packets pass through a pair of Unix sockets, one in each datagram. Two engines, each in a
//! thread, exchange a message over them.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::thread;

use millstream::link::{Capabilities, Link, LinkError, LinkStats, Medium};
use millstream::local::{Stack, TcpListener, TcpStream};
use millstream::packet::{BATCH_LIMIT, Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream::wire::ethernet::MacAddr;
use millstream::{Engine, EngineConfig};

const MTU: usize = 1500;

/// One end of the pair.
struct UnixLink {
    socket: UnixDatagram,
    capabilities: Capabilities,
    stats: LinkStats,
}

impl UnixLink {
    fn new(socket: UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let capabilities = Capabilities::plain(Medium::Ip, MTU, MacAddr::ZERO);
        Ok(Self { socket, capabilities, stats: LinkStats::default() })
    }
}

impl Link for UnixLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        _now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let mut bytes = [0; MTU];
        for count in 0..BATCH_LIMIT {
            let Ok(len) = self.socket.recv(&mut bytes) else { return Ok(count) };
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += len as u64;
            // Without a frame it is lost, as on any wire, and sent again.
            let Ok(packet) = Packet::from_slice(pool, 0, &bytes[..len]) else { return Ok(count) };
            drop(batch.push(packet));
        }
        Ok(BATCH_LIMIT)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let (mut count, mut bytes) = (0, [0; MTU]);
        while let Some(packet) = batch.pop() {
            let len = packet.copy_to(0, &mut bytes);
            match self.socket.send(&bytes[..len]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    drop(batch.push_front(packet));
                    break;
                }
                _ => {
                    self.stats.tx_packets += 1;
                    self.stats.tx_bytes += len as u64;
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        "unix"
    }
}

fn stack(socket: UnixDatagram, address: &str) -> Result<Stack, Box<dyn std::error::Error>> {
    let mut engine = Engine::new(EngineConfig::new(Pool::new(PoolConfig::default())?))?;
    let link = engine.add_link(Box::new(UnixLink::new(socket)?))?;
    engine.add_address(link, address.parse()?)?;
    Ok(Stack::new(engine))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (near, far) = UnixDatagram::pair()?;
    let (listening, is_listening) = std::sync::mpsc::channel();
    let server = thread::spawn(move || -> io::Result<()> {
        let stack =
            stack(far, "10.0.0.2/24").map_err(|error| io::Error::other(error.to_string()))?;
        let listener = TcpListener::bind(&stack, "10.0.0.2:7", 1)?;
        let _ = listening.send(());
        let (mut stream, _) = listener.accept()?;
        let mut bytes = [0; 1024];
        while let Ok(len @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..len])?;
        }
        Ok(())
    });
    is_listening.recv()?;
    let stack = stack(near, "10.0.0.1/24")?;
    let mut stream = TcpStream::connect(&stack, "10.0.0.2:7")?;
    stream.write_all(b"over a link of one's own")?;
    let mut answer = [0; 24];
    stream.read_exact(&mut answer)?;
    println!("{}", String::from_utf8_lossy(&answer));
    drop(stream);
    stack.shutdown();
    server.join().expect("the server's thread")?;
    Ok(())
}
