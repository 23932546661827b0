//! TCP in the style of `std::net`, through rings.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as StdInstant};

use millstream_packet::{COALESCE_LIMIT_BYTES, FRAME_SIZE_BYTES, Packet};
use millstream_tcp::Config;

use super::mailbox::Mailbox;
use super::metered::{Giver, Taker};
use super::shared::{
    CLOSE, CONNECTED, CUT_READ, CUT_WRITE, FRAMES, LOOK_AGAIN, ORDERLY_END, READ_END, READ_SHUT,
    SHUTDOWN_WRITE, STARVED, Shared, TAKEN, UNREAD, WRITE_END,
};
use super::side::{Side, Tried};
use super::sockets::Sockets;
use super::stack::{Handle, Stack};
use super::stream::{PACKET_BYTES, RX_RING_BYTES, StreamParts, TX_RING_BYTES};
use super::timeouts::Timeouts;
use super::waiter::deadline;
use crate::error::nonzero;
use crate::{Error, SocketId, WakeStats};

/// A TCP connection. One thread may read while another writes, and several may do either: each
/// waits by itself and no longer than it may, whatever the others wait for. The bytes of one write
/// lie together, unless it has to wait for room or has more than 512 KiB: between its parts those
/// of other writes may come, as with the kernel's sockets. Dropping the stream, and all that
/// [`TcpStream::try_clone`] made of it, closes it in order. If it does not end in order, the next
/// call reports the error; after that reads return the end and writes fail with `BrokenPipe`. The
/// end of the engine counts as such an error ([`Stack::shutdown`]).
///
/// Where links have failed, or were removed, and none leads to the peer any more, a read that has
/// to wait and a write each fail once with [`NetworkDown`](io::ErrorKind::NetworkDown), also one
/// that waits already. The connection does not end by that: it goes on when a link leads there
/// again, or times out.
pub struct TcpStream {
    pub(super) inner: Arc<Inner>,
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpStream").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

/// State that all clones of a stream share.
pub(super) struct Inner {
    pub(super) handle: Arc<Handle>,
    pub(super) id: SocketId,
    shared: Arc<Shared>,
    local: SocketAddr,
    remote: SocketAddr,
    pub(super) tx: Side<Giver<Packet>>,
    rx: Side<Reading>,
    /// Bytes that were read, from the beginning of the stream.
    pub(super) read: AtomicU64,
    timeouts: Timeouts,
}

struct Reading {
    ring: Taker<Packet>,
    /// Taken from the ring and not read to its end.
    current: Option<Packet>,
}

impl Reading {
    /// Returns true if data has come; then `current` has it.
    #[inline]
    fn has_some(&mut self) -> bool {
        if self.current.is_none() {
            self.current = self.ring.pop();
        }
        self.current.is_some()
    }

    /// Returns true if a read would find data.
    fn is_ready(&self) -> bool {
        self.current.is_some() || !self.ring.is_empty()
    }

    /// Takes the packet in `current`, cut to `max` bytes.
    fn take_packet(&mut self, max: usize, mailbox: &Mailbox) -> Result<Option<Packet>, Error> {
        let Some(mut packet) = self.current.take() else { return Ok(None) };
        if packet.len() > max {
            match packet.split_off(max, &mailbox.pool) {
                Ok(rest) => self.current = Some(rest),
                Err(_) => {
                    self.current = Some(packet);
                    return Err(mailbox.exhausted());
                }
            }
        }
        Ok(Some(packet))
    }

    /// Copies data to `buffer` and leaves it to be read: as much as fits, and as the limit of the
    /// ring allows.
    fn peek(&mut self, buffer: &mut [u8]) -> usize {
        let Some(mut next) = self.current.take() else { return 0 };
        while next.len() < buffer.len() && (next.held_alone_bytes() as u64) < RX_RING_BYTES {
            let Some(more) = self.ring.pop() else { break };
            join(&mut next, more);
        }
        let len = next.copy_to(0, buffer);
        self.current = Some(next);
        len
    }

    /// Copies data to `buffer`: as much as fits, or one packet of it if other threads want to read.
    fn copy_to(&mut self, buffer: &mut [u8], side: &Side<Self>) -> usize {
        let mut read = 0;
        while read < buffer.len() {
            let Some(packet) = &mut self.current else { break };
            let len = packet.copy_to(0, &mut buffer[read..]);
            read += len;
            if len < packet.len() {
                packet.trim_front(len);
                break;
            }
            self.current = None;
            if read < buffer.len() && !side.is_wanted() {
                self.current = self.ring.pop();
            }
        }
        read
    }
}

impl TcpStream {
    pub(super) fn new(handle: &Arc<Handle>, parts: StreamParts) -> Self {
        let StreamParts { id, shared, tx, rx, local, remote } = parts;
        shared.set_state(TAKEN);
        let inner = Inner {
            handle: Arc::clone(handle),
            id,
            shared,
            local,
            remote,
            tx: Side::new(tx),
            rx: Side::new(Reading { ring: rx, current: None }),
            read: AtomicU64::new(0),
            timeouts: Timeouts::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns another handle of the same connection, like a duplicated file descriptor: reads,
    /// writes, ends and settings of either hold for both.
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
        let parts = stack.handle.mailbox.ask(move |sockets| {
            let Sockets { engine, streams, .. } = sockets;
            let config = config.unwrap_or_else(|| engine.inspect().tcp_config().clone());
            let id = engine.sockets().tcp_connect_with(addr, None, &config)?;
            streams.attach(engine, id)
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
    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.inner.handle.mailbox
    }

    /// Takes the reason why the connection ended, if it was not in order and no other call has
    /// reported it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.inner.shared.take_error().map(io::Error::from))
    }

    /// Waits for data, then runs `take`, for which [`Reading::current`] has it. Returns the default
    /// value at the orderly end.
    #[inline]
    fn receive<R: Default>(
        &self,
        mut take: impl FnMut(&mut Reading) -> io::Result<R>,
    ) -> io::Result<R> {
        let Inner { shared, timeouts, rx, .. } = &*self.inner;
        let is_ready = |rx: &Reading| rx.is_ready() || shared.has(READ_END | READ_SHUT | CUT_READ);
        let (taken, is_half_empty) = rx.run(
            &shared.reader,
            || timeouts.to_read(),
            is_ready,
            |rx| {
                if !rx.has_some() {
                    let state = shared.state.load(Ordering::Acquire);
                    if state & (READ_END | READ_SHUT | CUT_READ) == 0 {
                        return Tried::Blocked;
                    }
                    // What was put before that was announced.
                    if !rx.has_some() {
                        return match state & (READ_END | READ_SHUT) {
                            0 => self.blocked(CUT_READ),
                            _ => Tried::Done(self.end().map(|end| (end, false))),
                        };
                    }
                }
                Tried::Done(take(rx).map(|taken| (taken, rx.ring.is_half_empty())))
            },
        )?;
        if is_half_empty && shared.takes_stall() {
            self.mailbox().nudge(&self.mailbox().streams, self.inner.id.slot());
        }
        Ok(taken)
    }

    /// Fails once with `NetworkDown` if no link leads to the peer; otherwise the call has to wait.
    #[cold]
    fn blocked<R>(&self, side: u32) -> Tried<io::Result<R>> {
        Tried::of(self.inner.shared.take_cut(side).map(|error| Err(error.into())))
    }

    /// Returns the result of a read when no more data comes: the orderly end, or an error.
    #[cold]
    fn end<R: Default>(&self) -> io::Result<R> {
        if self.inner.shared.has(ORDERLY_END) {
            return Ok(R::default());
        }
        self.inner.shared.take_error().map_or_else(|| Ok(R::default()), |error| Err(error.into()))
    }

    fn count_read(&self, bytes: usize) {
        self.inner.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the next received packet as it came, cut to `max` bytes; `None` is the orderly end.
    pub fn read_packet(&self, max: usize) -> io::Result<Option<Packet>> {
        let packet = self.receive(|rx| Ok(rx.take_packet(max, self.mailbox())?))?;
        self.count_read(packet.as_ref().map_or(0, Packet::len));
        Ok(packet)
    }

    /// Copies the next bytes into `buffer` and leaves them to be read: as much as has come and
    /// fits. It waits as a read does while nothing has come, and returns 0 at the orderly end.
    /// Called again, it shows the same bytes and those that came behind them, up to 2 MiB, of bytes
    /// or of memory held: the rest stays in the connection, where it counts against the receive
    /// window.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.receive(|rx| Ok(rx.peek(buffer)))
    }

    /// Puts something in, as soon as there is room.
    #[inline]
    fn send<R>(
        &self,
        put: impl FnMut(&mut Giver<Packet>) -> Tried<io::Result<R>>,
    ) -> io::Result<R> {
        let Inner { shared, timeouts, tx, .. } = &*self.inner;
        let has_room = |tx: &Giver<Packet>| tx.has_room() && self.takes();
        let is_ready = |tx: &Giver<Packet>| has_room(tx) || shared.has(WRITE_END | CUT_WRITE);
        tx.run(&shared.writer, || timeouts.to_write(), is_ready, put)
    }

    /// Returns the error of a write when the connection takes no more.
    #[cold]
    pub(super) fn refusal(&self) -> Error {
        self.inner.shared.take_error().unwrap_or(Error::BrokenPipe)
    }

    /// Returns true if the tx side takes another packet now; fails where it will take none any
    /// more.
    fn has_room(&self, tx: &Giver<Packet>) -> Result<bool, Error> {
        match self.inner.shared.has(WRITE_END) {
            true => Err(self.refusal()),
            false => Ok(tx.has_room_or_stalls(&self.inner.shared.tx_stalled) && self.takes()),
        }
    }

    /// Returns true if the connection is established and no write waits for frames.
    fn takes(&self) -> bool {
        let shared = &self.inner.shared;
        shared.has(CONNECTED) && !shared.has(STARVED)
    }

    /// Hands a packet to the engine, or gives it back where there is no room.
    fn put(&self, tx: &mut Giver<Packet>, packet: Packet) -> Result<(), (Packet, Error)> {
        let was_empty = tx.push(packet).map_err(|packet| (packet, Error::WouldBlock))?;
        if was_empty {
            let mailbox = self.mailbox();
            mailbox.nudge(&mailbox.streams, self.inner.id.slot());
        }
        Ok(())
    }

    /// Goes on with a write that has `written` so many bytes, as far as there is room; if others
    /// wait, until it has filled a ring.
    fn write_some(
        &self,
        tx: &mut Giver<Packet>,
        data: &[u8],
        bulk: usize,
        written: &mut usize,
    ) -> Tried<io::Result<()>> {
        let begin = *written;
        let size = if bulk == 0 { PACKET_BYTES } else { bulk }.min(tx.limit_bytes());
        while let Some(chunk) = data[*written..].chunks(size).next() {
            if (*written - begin) as u64 >= TX_RING_BYTES && self.inner.tx.is_wanted() {
                return Tried::GivesWay;
            }
            if self.inner.shared.has(WRITE_END) {
                if *written != 0 {
                    break;
                }
                return Tried::Done(Err(self.refusal().into()));
            }
            let has_room = tx.has_room_or_stalls(&self.inner.shared.tx_stalled);
            if !has_room || !self.inner.shared.has(CONNECTED) {
                if *written == 0 {
                    return self.blocked(CUT_WRITE);
                }
                if !self.inner.shared.has(CUT_WRITE) {
                    return Tried::Blocked;
                }
                // The next call is told.
                break;
            }
            let Some(packet) = self.copy_of(chunk, bulk, !tx.has_some()) else {
                self.inner.shared.state.fetch_or(STARVED, Ordering::AcqRel);
                self.inner.wish(FRAMES);
                if *written == 0 {
                    return self.blocked(CUT_WRITE);
                }
                if !self.inner.shared.has(CUT_WRITE) {
                    return Tried::Blocked;
                }
                // The next call is told.
                break;
            };
            let len = packet.len();
            if let Err((_, error)) = self.put(tx, packet) {
                return Tried::Done(Err(error.into()));
            }
            *written += len;
        }
        Tried::Done(Ok(()))
    }

    /// Returns a copy of `chunk`. If there are frames for less only, and a little is of use, it
    /// copies a half, a quarter, or one frame of its start. A little is of no use while something
    /// is left to be sent: more frames will come.
    #[inline]
    fn copy_of(&self, mut chunk: &[u8], bulk: usize, little_is_of_use: bool) -> Option<Packet> {
        loop {
            match Packet::bulk_from_slice(&self.mailbox().pool, chunk, bulk) {
                Ok(packet) => return Some(packet),
                Err(_) if chunk.len() <= FRAME_SIZE_BYTES || !little_is_of_use => return None,
                Err(_) => chunk = &chunk[..chunk.len() / 2],
            }
        }
    }

    /// Sends a packet's bytes without copying them. It waits for room, and while a write waits for
    /// frames, unless the stream is non-blocking. On an error the packet is lost;
    /// [`TcpStream::try_write_packet`] gives it back. The packet must come from [`Stack::pool`]'s
    /// pool or another that outlives the engine.
    pub fn write_packet(&self, packet: Packet) -> io::Result<()> {
        let mut packet = Some(packet);
        self.send(|tx| match (self.has_room(tx), &mut packet) {
            (Ok(false), _) => self.blocked(CUT_WRITE),
            (Err(error), _) => Tried::Done(Err(error.into())),
            (Ok(true), packet) => {
                let put = packet.take().map_or(Ok(()), |packet| self.put(tx, packet));
                Tried::Done(put.map_err(|(_, error)| error.into()))
            }
        })
    }

    /// As [`TcpStream::write_packet`] without waiting; gives the packet back when it is not taken.
    pub fn try_write_packet(&self, packet: Packet) -> Result<(), (Packet, Error)> {
        self.inner.tx.with(|tx| match self.has_room(tx) {
            Ok(true) => self.put(tx, packet),
            Ok(false) => {
                let cut = self.inner.shared.take_cut(CUT_WRITE);
                Err((packet, cut.unwrap_or(Error::WouldBlock)))
            }
            Err(error) => Err((packet, error)),
        })
    }

    /// Returns the bytes that a block of a packet holds best
    /// ([`TcpHandle::bulk_bytes`](crate::TcpHandle::bulk_bytes)), as the engine found when it last
    /// took data to send; 0 where frames are as good, and until then.
    pub fn bulk_bytes(&self) -> usize {
        self.inner.shared.bulk_bytes.load(Ordering::Relaxed)
    }

    /// Ends one direction or both, also for calls that wait now. Writes fail with `BrokenPipe` from
    /// then on; reads return the end once all received data is read. Ending the reading side alone
    /// does nothing on the wire.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let ends = match how {
            Shutdown::Read => READ_SHUT,
            Shutdown::Write => WRITE_END,
            Shutdown::Both => READ_SHUT | WRITE_END,
        };
        self.inner.shared.state.fetch_or(ends, Ordering::AcqRel);
        let mut wishes = 0;
        if how != Shutdown::Write {
            wishes |= LOOK_AGAIN;
        }
        if how != Shutdown::Read {
            // Who is about to put something in has done so; the next to come finds that the side
            // has ended. So the FIN follows all that was taken.
            self.inner.tx.with(|_| ());
            wishes |= SHUTDOWN_WRITE;
        }
        self.inner.wish(wishes);
        Ok(())
    }

    /// Makes reads and writes return at once, with `WouldBlock`, instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.inner.timeouts.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Sets the longest time that a read waits before it fails with `WouldBlock`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.timeouts.read.set(timeout)
    }

    /// Returns the longest time that a read waits.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.timeouts.read.get())
    }

    /// Sets the longest time that a write waits before it fails with `WouldBlock`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.timeouts.write.set(timeout)
    }

    /// Returns the longest time that a write waits.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.timeouts.write.get())
    }

    /// Returns how often the engine told this stream's readers and writers of news, and how often
    /// it woke them.
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

/// Appends `more`: copies few bytes into the room that is there, so that they do not hold a frame
/// each.
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

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let inner = &self.inner;
        let read = self.receive(|rx| Ok(rx.copy_to(buffer, &inner.rx)))?;
        self.count_read(read);
        Ok(read)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        let bulk = self.bulk_bytes();
        match self.send(|tx| self.write_some(tx, data, bulk, &mut written)) {
            // The next call is told.
            Err(_) if written != 0 => Ok(written),
            result => result.map(|()| written),
        }
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
        let mailbox = &self.handle.mailbox;
        mailbox.nudge(&mailbox.streams, self.id.slot());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let has_begun = self.rx.with(|rx| rx.current.is_some());
        self.wish(if has_begun { CLOSE | UNREAD } else { CLOSE });
    }
}
