//! A link over a UNIX datagram socket: a frame in each datagram. libkrun and gvproxy speak it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use millstream_packet::{Instant, Packet, PacketBatch, Pool};

use super::UnixConfig;
use crate::iov::Expectation;
use crate::limits::{LINK_HEADER_BYTES, RECEIVE_HEADROOM_BYTES};
use crate::offload::Segmenter;
use crate::offload::software_offload::Outgoing;
use crate::{Capabilities, DropCause, Link, LinkError, LinkStats};

/// A link over a UNIX datagram socket: a frame in each datagram.
///
/// ```
/// use std::os::unix::net::UnixDatagram;
///
/// use millstream_link::{DatagramLink, Link, UnixConfig};
/// use millstream_packet::{Instant, PacketBatch, Pool, PoolConfig};
///
/// // The other one is the socket of libkrun, or of gvproxy.
/// let (ours, theirs) = UnixDatagram::pair()?;
/// let mut link = DatagramLink::new(ours, &UnixConfig::default())?;
/// theirs.send(&[0xff; 60])?;
/// let (pool, mut batch) = (Pool::new(PoolConfig::fixed(64))?, PacketBatch::new());
/// // An engine does this.
/// assert_eq!(link.receive(Instant::ZERO, &pool, &mut batch)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DatagramLink {
    socket: UnixDatagram,
    capabilities: Capabilities,
    /// A frame in one piece, and a byte that tells of a longer one.
    room: Box<[u8]>,
    expected: Expectation,
    cutting: Option<Segmenter>,
    /// A frame that the socket had no room for.
    waiting: Option<Packet>,
    stats: LinkStats,
}

impl DatagramLink {
    /// Takes a socket that is connected to the other side. A side that wants to be greeted first
    /// (libkrun's peer gets `VFKT`) has been.
    ///
    /// # Errors
    /// When the MTU is out of range, or the system refuses.
    pub fn new(socket: UnixDatagram, config: &UnixConfig) -> Result<Self, LinkError> {
        let refused = |e| LinkError::from_io("use a UNIX datagram socket without blocking", e);
        socket.set_nonblocking(true).map_err(refused)?;
        let capabilities = config.capabilities()?;
        let room = vec![0; capabilities.mtu + LINK_HEADER_BYTES + 1].into_boxed_slice();
        Ok(Self {
            socket,
            capabilities,
            room,
            expected: Expectation::new(),
            cutting: None,
            waiting: None,
            stats: LinkStats::default(),
        })
    }

    /// Receives a frame, which may have to be dropped; `None` where there is none.
    fn receive_one(&mut self, now: Instant, pool: &Pool) -> io::Result<Option<Packet>> {
        self.stats.rx_syscalls += 1;
        let len = self.socket.recv(&mut self.room)?;
        let cause = if len == self.room.len() {
            DropCause::TooLong
        } else if len <= self.capabilities.medium.header_len() {
            DropCause::TooShort
        } else {
            DropCause::PoolExhausted
        };
        let packet = match cause {
            DropCause::PoolExhausted => {
                Packet::from_slice(pool, RECEIVE_HEADROOM_BYTES, &self.room[..len]).ok()
            }
            _ => None,
        };
        match packet {
            Some(mut packet) => {
                packet.meta_mut().arrival = now;
                self.stats.count_received(len, false);
                Ok(Some(packet))
            }
            None => {
                self.stats.count_drop(cause);
                Ok(None)
            }
        }
    }

    /// Sends a frame, or drops one that the other side does not take.
    fn send(&mut self, packet: &Packet) -> io::Result<()> {
        self.stats.tx_syscalls += 1;
        let sent = match packet.sole() {
            Some(bytes) => self.socket.send(bytes),
            None => {
                let len = packet.copy_to(0, &mut self.room);
                self.socket.send(&self.room[..len])
            }
        };
        match sent {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                self.stats.count_drop(DropCause::TooLong);
                Ok(())
            }
            sent => sent.map(|_| ()),
        }
    }
}

/// Returns whether the socket has nothing, or no room, for now.
fn is_passing(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENOBUFS)
}

fn broken(error: io::Error) -> LinkError {
    LinkError::from_io("use the UNIX datagram socket", error)
}

/// The socket's own descriptor, for an option that this crate has no call for.
impl AsFd for DatagramLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link for DatagramLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        if self.waiting.is_some() {
            self.transmit(now, pool, &mut PacketBatch::new())?;
        }
        let limit = batch.room().min(self.expected.limit());
        let (mut count, mut is_empty) = (0, false);
        while count < limit && !is_empty {
            if pool.is_dry() {
                self.stats.rx_starved += 1;
                break;
            }
            match self.receive_one(now, pool) {
                Ok(Some(packet)) => {
                    // There is room.
                    let _ = batch.push(packet);
                    count += 1;
                }
                Ok(None) => {}
                Err(error) if count > 0 || is_passing(&error) => is_empty = true,
                Err(error) => return Err(broken(error)),
            }
        }
        self.expected.learn(count, is_empty);
        Ok(count)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let before = batch.len();
        loop {
            let Self { waiting, cutting, capabilities, stats, .. } = self;
            let mut outgoing =
                Outgoing { batch, cutting, capabilities, as_it_is: false, pool, stats };
            let Some(packet) = waiting.take().or_else(|| outgoing.next()) else { break };
            match self.send(&packet) {
                Ok(()) => {}
                Err(error) if is_passing(&error) => {
                    self.stats.tx_full += 1;
                    self.waiting = Some(packet);
                    break;
                }
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(before - batch.len())
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn wants_write(&self) -> bool {
        self.waiting.is_some()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.expected.sleep();
        true
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        "unix-datagram"
    }
}
