//! TCP in the style of `std::net`, through rings.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant as StdInstant};

use millstream_packet::{COALESCE_LIMIT_BYTES, Packet};
use millstream_tcp::Config;

use super::metered::{Giver, Taker};
use super::patience::Patience;
use super::shared::{
    CLOSE, CONNECTED, LOOK_AGAIN, ORDERLY_END, READ_END, READ_SHUT, SHUTDOWN_WRITE, Shared, UNREAD,
    WRITE_END,
};
use super::waiter::deadline;
use super::worker::{PACKET_BYTES, RX_RING_BYTES, StreamParts};
use super::{Door, Handle, Stack};
use crate::error::nonzero;
use crate::{Error, SocketId, WakeStats};

/// A TCP connection. One thread may read while another writes; of several that read, or that write, one does while the others
/// wait for it. Dropping it, and all that [`TcpStream::try_clone`] made of it, closes it in order. What ended it, if not in
/// order, is told by the first call that meets it, and after that reads say the end and writes `BrokenPipe`.
pub struct TcpStream {
    pub(super) inner: Arc<Inner>,
}

/// What all clones of a stream are.
pub(super) struct Inner {
    pub(super) handle: Arc<Handle>,
    pub(super) id: SocketId,
    shared: Arc<Shared>,
    local: SocketAddr,
    remote: SocketAddr,
    pub(super) tx: Mutex<Giver<Packet>>,
    rx: Mutex<Reading>,
    /// Bytes that were read, from the beginning of the stream.
    pub(super) read: AtomicU64,
    patience: Patience,
}

struct Reading {
    ring: Taker<Packet>,
    /// Taken from the ring and not read to its end.
    current: Option<Packet>,
}

impl TcpStream {
    pub(super) fn new(handle: &Arc<Handle>, parts: StreamParts) -> Self {
        let StreamParts { id, shared, tx, rx, local, remote } = parts;
        let inner = Inner {
            handle: Arc::clone(handle),
            id,
            shared,
            local,
            remote,
            tx: Mutex::new(tx),
            rx: Mutex::new(Reading { ring: rx, current: None }),
            read: AtomicU64::new(0),
            patience: Patience::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Another handle of the same connection, as a duplicated file descriptor is one: what either reads, writes, ends or sets
    /// is that of both.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { inner: Arc::clone(&self.inner) })
    }

    /// Opens a connection and waits until it stands.
    pub fn connect(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        let stream = Self::open(stack, addr, None)?;
        stream.wait_connected(None)?;
        Ok(stream)
    }

    /// Opens a connection with a configuration and waits until it stands.
    pub fn connect_with(stack: &Stack, addr: SocketAddr, config: &Config) -> io::Result<Self> {
        let stream = Self::connect_start(stack, addr, config)?;
        stream.wait_connected(None)?;
        Ok(stream)
    }

    /// Opens a connection and waits until it stands, `timeout` at most, which is not zero.
    pub fn connect_timeout(stack: &Stack, addr: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let timeout = nonzero(Some(timeout))?;
        let stream = Self::open(stack, addr, None)?;
        stream.wait_connected(deadline(timeout))?;
        Ok(stream)
    }

    /// Begins to open a connection; it is writable once it stands.
    pub fn connect_start(stack: &Stack, addr: SocketAddr, config: &Config) -> io::Result<Self> {
        Self::open(stack, addr, Some(config.clone()))
    }

    fn open(stack: &Stack, addr: SocketAddr, config: Option<Config>) -> io::Result<Self> {
        let parts = stack.handle.door.ask(move |worker| {
            let config = config.unwrap_or_else(|| worker.engine.tcp_config().clone());
            let id = worker.engine.tcp_connect_with(addr, None, &config)?;
            worker.attach(id)
        })??;
        Ok(Self::new(&stack.handle, parts))
    }

    fn wait_connected(&self, deadline: Option<StdInstant>) -> io::Result<()> {
        let done = || self.inner.shared.has(CONNECTED) || self.inner.shared.has(READ_END);
        if !self.inner.shared.reader.wait(deadline, done) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.inner.shared.take_error() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// The way to the engine.
    pub(super) fn door(&self) -> &Door {
        &self.inner.handle.door
    }

    /// Why the connection ended, if not in order and no other call has told yet.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.inner.shared.take_error().map(io::Error::from))
    }

    /// Waits until the ring has a packet. `None` is the orderly end.
    fn next_packet(&self, rx: &mut Reading) -> io::Result<Option<Packet>> {
        let mut wait = self.inner.patience.to_read(&self.inner.shared.reader);
        loop {
            if let Some(packet) = rx.ring.pop() {
                return Ok(Some(packet));
            }
            if self.inner.shared.has(READ_END | READ_SHUT) {
                // What was put before the end was announced.
                if let Some(packet) = rx.ring.pop() {
                    return Ok(Some(packet));
                }
                if self.inner.shared.has(ORDERLY_END) {
                    return Ok(None);
                }
                return match self.inner.shared.take_error() {
                    Some(error) => Err(error.into()),
                    None => Ok(None),
                };
            }
            wait.until(|| !rx.ring.is_empty() || self.inner.shared.has(READ_END | READ_SHUT))?;
        }
    }

    /// So much was read: tells the engine of room, if it waits for some.
    fn taken(&self, bytes: usize) {
        self.inner.read.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.inner.shared.rx_stalled.load(Ordering::SeqCst)
            && self.inner.shared.rx_stalled.swap(false, Ordering::SeqCst)
        {
            self.door().nudge(&self.door().streams, self.inner.id.slot());
        }
    }

    /// The next received packet as it came, cut to `max` bytes; `None` is the orderly end.
    pub fn read_packet(&self, max: usize) -> io::Result<Option<Packet>> {
        let mut rx = lock(&self.inner.rx);
        let packet = match rx.current.take() {
            Some(packet) => Some(packet),
            None => self.next_packet(&mut rx)?,
        };
        let Some(mut packet) = packet else { return Ok(None) };
        if packet.len() > max {
            let pool = &self.door().pool;
            rx.current = packet.split_off(max, pool).ok();
        }
        self.taken(packet.len());
        Ok(Some(packet))
    }

    /// Copies what comes next into `buffer` and leaves it to be read: as much as has come and fits. It waits as a read does
    /// while nothing has come, and says 0 at the orderly end. Called again, it shows the same bytes and what came behind them,
    /// up to 2 MiB, of bytes or of memory held: the rest stays in the connection, where it counts against the receive window.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut rx = lock(&self.inner.rx);
        let next = match rx.current.take() {
            Some(packet) => Some(packet),
            None => self.next_packet(&mut rx)?,
        };
        let Some(mut next) = next else { return Ok(0) };
        // Views hold next to nothing of their own, so both count.
        let holds = |next: &Packet| next.len().max(next.held_bytes()) as u64;
        while next.len() < buffer.len() && holds(&next) < RX_RING_BYTES {
            let Some(more) = rx.ring.pop() else { break };
            join(&mut next, more);
        }
        let len = next.copy_to(0, buffer);
        rx.current = Some(next);
        // What left the ring may be what the engine waits for.
        self.taken(0);
        Ok(len)
    }

    /// Waits until the tx side takes another packet.
    fn wait_room(&self, tx: &Giver<Packet>) -> io::Result<()> {
        let mut wait = self.inner.patience.to_write(&self.inner.shared.writer);
        while !self.has_room(tx)? {
            wait.until(|| tx.has_room() || self.inner.shared.has(WRITE_END))?;
        }
        Ok(())
    }

    /// Whether the tx side takes another packet now; an error where it will take none any more.
    fn has_room(&self, tx: &Giver<Packet>) -> Result<bool, Error> {
        if self.inner.shared.has(WRITE_END) {
            return Err(self.inner.shared.take_error().unwrap_or(Error::BrokenPipe));
        }
        Ok(tx.has_room())
    }

    /// Hands a packet to the engine, or gives it back where there is no room.
    fn put(&self, tx: &mut Giver<Packet>, packet: Packet) -> Result<(), (Packet, Error)> {
        let was_empty = tx.push(packet).map_err(|packet| (packet, Error::WouldBlock))?;
        if was_empty {
            let door = self.door();
            door.nudge(&door.streams, self.inner.id.slot());
        }
        Ok(())
    }

    /// Sends a packet's bytes without copying them; waits for room unless the stream is non-blocking. With
    /// an error the packet is lost; [`TcpStream::try_write_packet`] gives it back. It must come from [`Stack::pool`]'s
    /// pool or another that outlives the engine.
    pub fn write_packet(&self, packet: Packet) -> io::Result<()> {
        let mut tx = lock(&self.inner.tx);
        self.wait_room(&tx)?;
        Ok(self.put(&mut tx, packet).map_err(|(_, error)| error)?)
    }

    /// As [`TcpStream::write_packet`] without waiting, also not for another thread's write; gives the packet back when it
    /// is not taken.
    pub fn try_write_packet(&self, packet: Packet) -> Result<(), (Packet, Error)> {
        let mut tx = match self.inner.tx.try_lock() {
            Ok(tx) => tx,
            Err(TryLockError::Poisoned(tx)) => tx.into_inner(),
            Err(TryLockError::WouldBlock) => return Err((packet, Error::WouldBlock)),
        };
        match self.has_room(&tx) {
            Ok(true) => self.put(&mut tx, packet),
            Ok(false) => Err((packet, Error::WouldBlock)),
            Err(error) => Err((packet, error)),
        }
    }

    /// Bytes that a block of a packet holds best ([`crate::Engine::tcp_bulk_bytes`]), as the engine found when it last took
    /// something to be sent; 0 where frames are as good, and until then.
    pub fn bulk_bytes(&self) -> usize {
        self.inner.shared.bulk_bytes.load(Ordering::Relaxed)
    }

    /// Ends one direction or both, for calls that wait now, too. Writes fail with `BrokenPipe` from then on; reads say the end
    /// once all that has come is read. Ending the reading side alone does nothing on the wire.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let ends = match how {
            Shutdown::Read => READ_SHUT,
            Shutdown::Write => WRITE_END,
            Shutdown::Both => READ_SHUT | WRITE_END,
        };
        self.inner.shared.state.fetch_or(ends, Ordering::AcqRel);
        if how != Shutdown::Write {
            self.inner.wish(LOOK_AGAIN);
        }
        if how != Shutdown::Read {
            self.end_writing();
        }
        Ok(())
    }

    /// Has the FIN follow what calls put into the ring that are under way. One that waits for room is woken first; the next
    /// to take the lock finds that the side has ended.
    fn end_writing(&self) {
        if let Err(TryLockError::WouldBlock) = self.inner.tx.try_lock() {
            self.inner.wish(LOOK_AGAIN);
            drop(lock(&self.inner.tx));
        }
        self.inner.wish(SHUTDOWN_WRITE);
    }

    /// Whether reads and writes return at once when they would block.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.inner.patience.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long a read waits at most; then it fails with `WouldBlock`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.patience.read.set(timeout)
    }

    /// How long a read waits at most.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.patience.read.get())
    }

    /// How long a write waits at most; then it fails with `WouldBlock`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.patience.write.set(timeout)
    }

    /// How long a write waits at most.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.patience.write.get())
    }

    /// How often the engine told this stream's readers and writers of news, and woke them.
    pub fn wakes(&self) -> WakeStats {
        let mut both = self.inner.shared.reader.stats();
        both += self.inner.shared.writer.stats();
        both
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.inner.remote)
    }

    /// Its own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.inner.local)
    }

    /// Its name in the engine.
    pub fn id(&self) -> SocketId {
        self.inner.id
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

/// Puts `more` behind: few bytes in the room that is there, so that many of them hold no frame each.
fn join(packet: &mut Packet, more: Packet) {
    let is_small = more.len() <= COALESCE_LIMIT_BYTES;
    match if is_small { packet.append(more.len()) } else { None } {
        Some(room) => {
            more.copy_to(0, room);
            packet.meta_mut().payload_sum = None;
        }
        None => packet.concat(more),
    }
}

/// Both sides' locks guard plain data, which is whole even if a holder panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut rx = lock(&self.inner.rx);
        if rx.current.is_none() {
            rx.current = self.next_packet(&mut rx)?;
        }
        let mut read = 0;
        while read < buffer.len() {
            let Some(packet) = &mut rx.current else { break };
            let len = packet.copy_to(0, &mut buffer[read..]);
            read += len;
            if len == packet.len() {
                rx.current = None;
                if read < buffer.len() {
                    rx.current = rx.ring.pop();
                }
            } else {
                packet.trim_front(len);
            }
        }
        self.taken(read);
        Ok(read)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut tx = lock(&self.inner.tx);
        let mut written = 0;
        let bulk = self.bulk_bytes();
        for chunk in data.chunks(if bulk == 0 { PACKET_BYTES } else { bulk }) {
            match self.wait_room(&tx) {
                Ok(()) => {}
                Err(_) if written != 0 => break,
                Err(error) => return Err(error),
            }
            match Packet::bulk_from_slice(&self.door().pool, chunk, bulk) {
                Ok(packet) => self.put(&mut tx, packet).map_err(|(_, error)| error)?,
                Err(_) if written != 0 => break,
                Err(_) => return Err(Error::Exhausted.into()),
            }
            written += chunk.len();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Inner {
    fn wish(&self, bit: u8) {
        self.shared.wishes.fetch_or(bit, Ordering::AcqRel);
        let door = &self.handle.door;
        door.nudge(&door.streams, self.id.slot());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let has_begun = lock(&self.rx).current.is_some();
        self.wish(if has_begun { CLOSE | UNREAD } else { CLOSE });
    }
}
