//! The application's side of a connection: reads and writes through rings.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_packet::{COALESCE_LIMIT_BYTES, FRAME_SIZE_BYTES, Packet};
use millstream_tcp::FourTuple;

use super::mailbox::Mailbox;
use super::metered::{Giver, Taker};
use super::shared::{
    CLOSE, CONNECTED, CUT_READ, CUT_WRITE, FRAMES, LOOK_AGAIN, ORDERLY_END, OVER, READ_END,
    READ_SHUT, SHUTDOWN_WRITE, STARVED, Shared, UNREAD, WRITE_END,
};
use super::side::{Side, Tried};
use super::socket::{Ends, Parts, Reader, RingSocket, until};
use super::sockets::Sockets;
use super::stream::{PACKET_BYTES, RX_RING_BYTES, StreamParts, TX_RING_BYTES};
use super::waiter::deadline;
use crate::door::driver::{SocketDriver, TcpDriver};
use crate::{Engine, Error, SocketId};

/// The most bytes of several slices that are written as one packet: a head and a body that are
/// small leave in one segment.
const GATHERED_BYTES: usize = 16_384;

/// See the module text.
pub struct TcpEnds {
    addresses: FourTuple,
    tx: Side<Giver<Packet>>,
    rx: Side<Reading>,
    /// Bytes that were read, from the beginning of the stream.
    read: AtomicU64,
}

impl From<StreamParts> for Parts<TcpEnds> {
    fn from(parts: StreamParts) -> Self {
        let StreamParts { id, shared, tx, rx, addresses } = parts;
        let (tx, rx) = (Side::new(tx), Side::new(Reading { ring: rx, current: None }));
        (id, shared, TcpEnds { addresses, tx, rx, read: AtomicU64::new(0) })
    }
}

impl Ends for TcpEnds {
    fn open(
        sockets: &mut Sockets,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error>,
    ) -> Result<Parts<Self>, Error> {
        let id = open(&mut sockets.engine)?;
        Ok(sockets.streams.attach(&mut sockets.engine, id)?.into())
    }

    fn close(socket: &mut RingSocket<Self>) {
        let has_begun = socket.ends.rx.with(|rx| rx.current.is_some());
        socket.wish(if has_begun { CLOSE | UNREAD } else { CLOSE });
    }

    fn is_readable(&self, shared: &Shared) -> bool {
        self.rx.with(|rx| rx.is_ready()) || shared.has(READ_END | READ_SHUT | CUT_READ)
    }

    fn is_writable(&self, shared: &Shared) -> bool {
        let takes = shared.has(CONNECTED) && !shared.has(STARVED);
        shared.has(WRITE_END | CUT_WRITE) || takes && self.tx.with(|tx| tx.has_room())
    }
}

struct Reading {
    ring: Taker<Packet>,
    /// Taken from the ring and not read to its end.
    current: Option<Packet>,
}

impl Reader for Reading {
    #[inline]
    fn is_ready(&self) -> bool {
        self.current.is_some() || !self.ring.is_empty()
    }

    /// Then `current` has it.
    #[inline]
    fn has_some(&mut self) -> bool {
        if self.current.is_none() {
            self.current = self.ring.pop();
        }
        self.current.is_some()
    }

    #[inline]
    fn is_half_empty(&self) -> bool {
        self.ring.is_half_empty()
    }
}

impl Reading {
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

impl RingSocket<TcpEnds> {
    /// Waits for data, then runs `take`, for which [`Reading::current`] has it. Returns the default
    /// value at the orderly end.
    #[inline]
    fn read_by<R: Default>(
        &self,
        take: impl FnMut(&mut Reading) -> io::Result<R>,
    ) -> io::Result<R> {
        self.receive(&self.ends.rx, READ_END | READ_SHUT, take, || Some(self.end()))
    }

    /// Returns the result of a read when no more data comes: the orderly end, or an error.
    #[cold]
    fn end<R: Default>(&self) -> io::Result<R> {
        if self.shared.has(ORDERLY_END) {
            return Ok(R::default());
        }
        self.shared.take_error().map_or_else(|| Ok(R::default()), |error| Err(error.into()))
    }

    fn count_read(&self, bytes: usize) {
        self.ends.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Puts something in, as soon as there is room.
    #[inline]
    fn send<R>(
        &self,
        put: impl FnMut(&mut Giver<Packet>) -> Tried<io::Result<R>>,
    ) -> io::Result<R> {
        let (shared, tx) = (&self.shared, &self.ends.tx);
        let has_room = |tx: &Giver<Packet>| tx.has_room() && self.takes();
        let is_ready = |tx: &Giver<Packet>| has_room(tx) || shared.has(WRITE_END | CUT_WRITE);
        tx.run(&shared.writer, || until(self.base.timeouts.to_write()), is_ready, put)
    }

    /// Returns the error of a write when the connection takes no more.
    #[cold]
    fn refusal(&self) -> Error {
        self.shared.take_error().unwrap_or(Error::BrokenPipe)
    }

    /// Returns true if the tx side takes another packet now; fails where it will take none any
    /// more.
    fn has_room(&self, tx: &Giver<Packet>) -> Result<bool, Error> {
        match self.shared.has(WRITE_END) {
            true => Err(self.refusal()),
            false => Ok(tx.has_room_or_stalls(&self.shared.tx_stalled) && self.takes()),
        }
    }

    /// Returns true if the connection is established and no write waits for frames.
    fn takes(&self) -> bool {
        let shared = &self.shared;
        shared.has(CONNECTED) && !shared.has(STARVED)
    }

    /// Hands a packet to the engine, or gives it back where there is no room.
    fn put(&self, tx: &mut Giver<Packet>, packet: Packet) -> Result<(), (Packet, Error)> {
        let was_empty = tx.push(packet).map_err(|packet| (packet, Error::WouldBlock))?;
        if was_empty {
            self.nudge();
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
            if (*written - begin) as u64 >= TX_RING_BYTES && self.ends.tx.is_wanted() {
                return Tried::GivesWay;
            }
            if self.shared.has(WRITE_END) {
                if *written != 0 {
                    break;
                }
                return Tried::Done(Err(self.refusal().into()));
            }
            let has_room = tx.has_room_or_stalls(&self.shared.tx_stalled);
            let packet = match has_room && self.shared.has(CONNECTED) {
                true => self.copy_of(chunk, bulk, !tx.has_some()),
                false => None,
            };
            let Some(packet) = packet else {
                if *written == 0 {
                    return self.blocked(CUT_WRITE);
                }
                if !self.shared.has(CUT_WRITE) {
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

    /// Aborts when the engine is done with the call that this is part of, or with its turn; not
    /// closed before, as by a drop.
    pub fn abort_later(self: Arc<Self>) {
        let (id, stack) = (self.base.id, self.base.stack.clone());
        stack.handle.mailbox.post(move |all| {
            all.streams.abort(&mut all.engine, id);
            drop(self);
        });
    }

    /// Returns a copy of `chunk`. If there are frames for less only, and a little is of use, it
    /// copies a half, a quarter, or one frame of its start. A little is of no use while something
    /// is left to be sent: more frames will come, which the engine is asked for.
    #[inline]
    fn copy_of(&self, mut chunk: &[u8], bulk: usize, little_is_of_use: bool) -> Option<Packet> {
        loop {
            match Packet::bulk_from_slice(&self.mailbox().pool, chunk, bulk) {
                Ok(packet) => return Some(packet),
                Err(_) if chunk.len() <= FRAME_SIZE_BYTES || !little_is_of_use => break,
                Err(_) => chunk = &chunk[..chunk.len() / 2],
            }
        }
        self.shared.state.fetch_or(STARVED, Ordering::AcqRel);
        self.wish(FRAMES);
        None
    }
}

impl TcpDriver for RingSocket<TcpEnds> {
    fn wait_connected(&self, timeout: Option<Duration>) -> io::Result<()> {
        let done = || self.shared.has(CONNECTED | READ_END);
        if !self.shared.reader.wait(deadline(timeout), done) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.shared.take_error().map_or(Ok(()), |error| Err(error.into()))
    }

    fn is_connected(&self) -> bool {
        self.shared.has(CONNECTED) && !self.shared.has(OVER)
    }

    fn readable_bytes(&self) -> io::Result<usize> {
        let id = self.base.id;
        let received = self.ask(move |engine| engine.tcp(id).received_bytes())?;
        Ok(received.saturating_sub(self.ends.read.load(Ordering::Relaxed)) as usize)
    }

    fn addresses(&self) -> io::Result<FourTuple> {
        Ok(self.ends.addresses)
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.read_by(|rx| Ok(rx.copy_to(buffer, &self.ends.rx)))?;
        self.count_read(read);
        Ok(read)
    }

    fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_by(|rx| Ok(rx.peek(buffer)))
    }

    fn read_packet(&self, max: usize) -> io::Result<Option<Packet>> {
        let packet = self.read_by(|rx| Ok(rx.take_packet(max, self.mailbox())?))?;
        self.count_read(packet.as_ref().map_or(0, Packet::len));
        Ok(packet)
    }

    fn write(&self, data: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        let bulk = self.bulk_bytes();
        match self.send(|tx| self.write_some(tx, data, bulk, &mut written)) {
            // The next call is told.
            Err(_) if written != 0 => Ok(written),
            result => result.map(|()| written),
        }
    }

    /// Writes the first of `slices`, and with it those behind as far as one packet holds them.
    fn write_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut slices = slices.iter().filter(|slice| !slice.is_empty()).peekable();
        let Some(first) = slices.next() else { return Ok(0) };
        let fits = |len: usize, next: &IoSlice<'_>| len + next.len() <= GATHERED_BYTES;
        if slices.peek().is_none_or(|next| !fits(first.len(), next)) {
            return self.write(first);
        }
        self.send(|tx| {
            match self.has_room(tx) {
                Ok(true) => {}
                Ok(false) => return self.blocked(CUT_WRITE),
                Err(error) => return Tried::Done(Err(error.into())),
            }
            let pool = &self.mailbox().pool;
            let Some(mut packet) = self.copy_of(first, 0, false) else { return Tried::Blocked };
            // Where frames end, the first are a write of their own.
            while let Some(next) = slices.next_if(|next| fits(packet.len(), next)) {
                if packet.extend_from_slice(pool, next).is_err() {
                    break;
                }
            }
            let len = packet.len();
            Tried::Done(
                self.put(tx, packet).map_or_else(|(_, error)| Err(error.into()), |()| Ok(len)),
            )
        })
    }

    fn write_packet(&self, packet: Packet) -> io::Result<()> {
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

    fn try_write_packet(&self, packet: Packet) -> Result<(), (Packet, Error)> {
        self.ends.tx.with(|tx| match self.has_room(tx) {
            Ok(true) => self.put(tx, packet),
            Ok(false) => {
                let cut = self.shared.take_cut(CUT_WRITE);
                Err((packet, cut.unwrap_or(Error::WouldBlock)))
            }
            Err(error) => Err((packet, error)),
        })
    }

    fn bulk_bytes(&self) -> usize {
        self.shared.bulk_bytes.load(Ordering::Relaxed)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let ends = match how {
            Shutdown::Read => READ_SHUT,
            Shutdown::Write => WRITE_END,
            Shutdown::Both => READ_SHUT | WRITE_END,
        };
        self.shared.state.fetch_or(ends, Ordering::AcqRel);
        let mut wishes = 0;
        if how != Shutdown::Write {
            wishes |= LOOK_AGAIN;
        }
        if how != Shutdown::Read {
            // A call that is about to put something in has done so; the next finds that the side
            // has ended. So the FIN follows all that was taken.
            self.ends.tx.with(|_| ());
            wishes |= SHUTDOWN_WRITE;
        }
        self.wish(wishes);
        Ok(())
    }

    fn urgent(&self) -> io::Result<Option<u64>> {
        let id = self.base.id;
        let mark = self.ask(move |engine| engine.tcp(id).urgent_end())?;
        let read = self.ends.read.load(Ordering::Relaxed);
        Ok(mark.filter(|&end| end > read).map(|end| end - read))
    }

    fn write_urgent(&self, data: &[u8]) -> io::Result<usize> {
        if self.shared.has(WRITE_END) {
            return Err(self.refusal().into());
        }
        let (id, data) = (self.base.id, data.to_vec());
        // The engine puts it behind what the ring has: what other threads write meanwhile comes
        // before it or after.
        let write = move |all: &mut Sockets| all.streams.write_urgent(&mut all.engine, id, &data);
        Ok(self.mailbox().ask(write)??)
    }

    fn abort(self: Arc<Self>) {
        let (id, stack) = (self.base.id, self.base.stack.clone());
        let abort = move |all: &mut Sockets| all.streams.abort(&mut all.engine, id);
        if let Err(Error::EngineThread) = stack.handle.mailbox.ask(abort) {
            self.abort_later();
        }
        // Where the engine is gone, so is the connection.
    }
}
