//! The engine's ends of a stream: carries packets between its rings and its connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_packet::{FRAME_HELD_BYTES, Packet};

use super::metered::{Giver, Limit, Taker, metered};
use super::reachable::Reach;
use super::shared::{
    CLOSE, CONNECTED, FRAMES, LOOK_AGAIN, ORDERLY_END, OVER, READ_END, SHUTDOWN_WRITE, Shared,
    UNREAD, WRITE_END,
};
use super::worker::{Worker, place};
use crate::stats::MemoryPressure;
use crate::tuning::STREAMS_TURN;
use crate::{Engine, Error, Readiness, SocketId};

/// Packets that a ring holds.
pub const RING_PACKETS: usize = 64;

/// Bytes of one packet that goes through a ring.
pub const PACKET_BYTES: usize = 65_536;

/// Bytes of memory that packets in the tx ring may hold, plus one packet; a write waits beyond.
/// More would have left the second-level cache when it is sent: what the connection keeps and what
/// is under way go through it too.
pub const TX_RING_BYTES: u64 = 512 << 10;

/// The same for the rx ring: the engine leaves the rest in the connection, where it counts against
/// the receive window.
pub const RX_RING_BYTES: u64 = 2 << 20;

/// The limit of all tx rings together, as far as each has at least [`TX_RING_LEAST_BYTES`]: with
/// many streams, data in the rings leaves the cache, and lies in fresh memory that the system
/// clears first.
const TX_RINGS_BYTES: u64 = 8 << 20;
/// See [`TX_RINGS_BYTES`].
const TX_RING_LEAST_BYTES: u64 = 256 << 10;

/// The limit of either ring while memory is short. While it is critical: [`CRITICAL_RING_BYTES`].
const PRESSED_RING_BYTES: u64 = 16 << 10;
/// See [`PRESSED_RING_BYTES`].
const CRITICAL_RING_BYTES: u64 = 2 * FRAME_HELD_BYTES as u64;

/// The application's ends of a stream.
pub struct StreamParts {
    pub id: SocketId,
    pub shared: Arc<Shared>,
    pub tx: Giver<Packet>,
    pub rx: Taker<Packet>,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// The engine's ends of a stream.
pub(super) struct Stream {
    pub(super) id: SocketId,
    pub(super) shared: Arc<Shared>,
    tx: Taker<Packet>,
    rx: Giver<Packet>,
    /// Taken from the ring, not yet by the connection.
    pending: Option<Packet>,
    /// The application ended its writing side; the connection is told when the ring is empty.
    pub(super) ending: bool,
    pub(super) closing: bool,
    /// Bytes of what was thrown away, as the connection did not take them any more.
    refused_bytes: u64,
    /// Why it ended has been said.
    has_failed: bool,
    /// It is in the line of those that wait for frames.
    pub(super) is_starved: bool,
    /// It is in the line of those whose application has left something to do.
    is_due: bool,
    pub(super) reach: Reach,
}

/// The memory limits of the rings of each stream.
pub(super) struct RingLimits {
    tx: Limit,
    rx: Limit,
}

impl Default for RingLimits {
    fn default() -> Self {
        Self { tx: Limit::of(TX_RING_BYTES), rx: Limit::of(RX_RING_BYTES) }
    }
}

impl RingLimits {
    /// Divides the limit of all tx rings among `streams` streams; all rings get less while memory
    /// is short. Data without room in a ring stays with the application, or in the connection,
    /// whose window it closes.
    pub fn share(&self, streams: usize, pressure: MemoryPressure) {
        let (tx, rx) = match pressure {
            MemoryPressure::None => {
                let share = TX_RINGS_BYTES / streams.max(1) as u64;
                (share.clamp(TX_RING_LEAST_BYTES, TX_RING_BYTES), RX_RING_BYTES)
            }
            MemoryPressure::Pressure => (PRESSED_RING_BYTES, PRESSED_RING_BYTES),
            MemoryPressure::Critical => (CRITICAL_RING_BYTES, CRITICAL_RING_BYTES),
        };
        self.tx.set(tx);
        self.rx.set(rx);
    }
}

impl Worker {
    /// Makes rings for a connection.
    pub fn attach(&mut self, id: SocketId) -> Result<StreamParts, Error> {
        let tuple = self.engine.tcp(id).addresses()?;
        let (tx, tx_taken) = metered(RING_PACKETS, self.ring_limits.tx.clone());
        let (rx_put, rx) = metered(RING_PACKETS, self.ring_limits.rx.clone());
        let shared = Arc::new(Shared::default());
        let stream = Stream {
            id,
            shared: Arc::clone(&shared),
            tx: tx_taken,
            rx: rx_put,
            pending: None,
            ending: false,
            closing: false,
            refused_bytes: 0,
            has_failed: false,
            is_starved: false,
            is_due: false,
            reach: Reach::default(),
        };
        place(&mut self.streams, id.slot(), stream);
        let (local, remote) = (tuple.local, tuple.remote);
        Ok(StreamParts { id, shared, tx, rx, local, remote })
    }

    /// The application has left something to do: the stream stands in line for that.
    pub(super) fn note_stream(&mut self, slot: u32) {
        let Some(Some(stream)) = self.streams.get_mut(slot as usize) else { return };
        if !std::mem::replace(&mut stream.is_due, true) {
            self.due_streams.push_back(slot);
        }
    }

    /// Serves those in line, as many as a turn may; whether there were any.
    pub(super) fn serve_due_streams(&mut self) -> bool {
        let count = self.due_streams.len().min(STREAMS_TURN);
        for _ in 0..count {
            let Some(slot) = self.due_streams.pop_front() else { break };
            if let Some(Some(stream)) = self.streams.get_mut(slot as usize) {
                stream.is_due = false;
            }
            self.serve_stream(slot, Readiness { readable: true, writable: true, closed: false });
        }
        count != 0
    }

    /// Carries packets between a connection and its rings, and takes up the application's wishes.
    pub(super) fn serve_stream(&mut self, slot: u32, readiness: Readiness) {
        let Some(Some(stream)) = self.streams.get_mut(slot as usize) else { return };
        let engine = &mut self.engine;
        let wishes = stream.shared.wishes.swap(0, Ordering::AcqRel);
        let leaves_unread = wishes & CLOSE != 0 && stream.leaves_unread(wishes, engine);
        stream.ending |= wishes & SHUTDOWN_WRITE != 0 || wishes & CLOSE != 0 && !leaves_unread;
        stream.closing |= wishes & CLOSE != 0;
        if wishes & LOOK_AGAIN != 0 {
            stream.shared.readable();
        }
        if wishes & SHUTDOWN_WRITE != 0 {
            stream.shared.writable();
        }
        if wishes & FRAMES != 0 && !std::mem::replace(&mut stream.is_starved, true) {
            self.starved.add(stream.id);
        }
        if !stream.shared.has(CONNECTED) {
            match engine.tcp(stream.id).connected() {
                Ok(false) if !stream.closing => return,
                Ok(_) => stream.shared.set_state(CONNECTED),
                Err(error) => {
                    // told by that
                    let _ = engine.tcp(stream.id).take_error();
                    stream.fail(error);
                }
            }
        }
        if readiness.writable || readiness.closed || stream.ending || stream.closing {
            stream.carry_out(engine);
        }
        if leaves_unread {
            // RFC 9293 3.6.1: the peer learns of that, behind what was written before.
            engine.flush();
            engine.tcp(stream.id).abort();
            return self.let_go(slot);
        }
        // What comes when nobody will read it stays in the connection.
        if (readiness.readable || readiness.closed) && !stream.closing {
            stream.carry_in(engine);
        }
        if readiness.closed {
            stream.note_end(engine);
        }
        if stream.closing && stream.has_unwritten() {
            engine.tcp(stream.id).orphan();
        } else if stream.closing {
            engine.tcp(stream.id).close();
            self.let_go(slot);
        }
    }

    /// A stream's place is free. What it could not hand to its connection counts as not delivered,
    /// with what that had left.
    pub(super) fn let_go(&mut self, slot: u32) {
        let Some(mut stream) = self.streams.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        let bytes = stream.throw_away();
        if bytes != 0 {
            // The connection counts by itself, if it had anything left.
            let is_counted = self.engine.tcp(stream.id).undelivered().is_some();
            self.refused.bytes += bytes;
            self.refused.connections += u64::from(!is_counted);
        }
    }
}

impl Stream {
    /// From the ring into the connection, as far as it takes it.
    pub(super) fn carry_out(&mut self, engine: &mut Engine) {
        let mut any = false;
        while let Some(packet) = self.pending.take().or_else(|| self.tx.pop()) {
            match engine.tcp(self.id).write_packet(packet) {
                Ok(()) => any = true,
                Err((packet, Error::WouldBlock)) => {
                    self.pending = Some(packet);
                    break;
                }
                Err((packet, error)) => {
                    self.pending = Some(packet);
                    self.refuse(error);
                    break;
                }
            }
        }
        if any {
            let bulk = engine.tcp(self.id).bulk_bytes().unwrap_or(0);
            self.shared.bulk_bytes.store(bulk, Ordering::Relaxed);
            if self.tx.is_half_empty() {
                self.shared.has_room();
            }
        }
        if self.ending && !self.has_unwritten() {
            let _ = engine.tcp(self.id).shutdown_write();
        }
    }

    /// Returns true if the application closes without having read all data, wherever that lies.
    fn leaves_unread(&self, wishes: u8, engine: &mut Engine) -> bool {
        wishes & UNREAD != 0
            || self.rx.has_some()
            || matches!(engine.tcp(self.id).peek(&mut [0]), Ok(1..))
    }

    /// Returns true while written data has not reached the connection.
    pub(super) fn has_unwritten(&self) -> bool {
        self.pending.is_some() || !self.tx.is_empty()
    }

    /// Hands received data to the reader, unless the application has closed.
    pub(super) fn hand_over(&mut self, engine: &mut Engine) {
        if !self.closing {
            self.carry_in(engine);
        }
    }

    /// From the connection into the ring, as far as it has room.
    fn carry_in(&mut self, engine: &mut Engine) {
        if self.shared.has(READ_END) {
            return;
        }
        let mut any = false;
        loop {
            if !self.rx.has_room_or_stalls(&self.shared.rx_stalled) {
                break;
            }
            match engine.tcp(self.id).read_packet(PACKET_BYTES) {
                Ok(Some(packet)) => {
                    any = true;
                    if self.rx.push(packet).is_err() {
                        break;
                    }
                }
                Err(Error::WouldBlock) => {
                    self.reach.end(&self.shared);
                    break;
                }
                Ok(None) => {
                    let is_orderly = engine.tcp(self.id).has_peer_ended();
                    self.shared.set_state(READ_END | if is_orderly { ORDERLY_END } else { 0 });
                    break;
                }
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        if any {
            self.shared.readable();
        }
    }

    /// The connection is over, maybe with an error that neither a read nor a write has met.
    fn note_end(&mut self, engine: &mut Engine) {
        if let Ok(Some(error)) = engine.tcp(self.id).take_error() {
            self.refuse(error);
        }
        self.shared.set_state(OVER);
    }

    /// Nothing more is taken. What came before can still be read.
    fn refuse(&mut self, error: Error) {
        self.throw_away();
        if !std::mem::replace(&mut self.has_failed, true) {
            self.shared.set_passing_error(error);
        }
        self.shared.set_state(WRITE_END);
    }

    /// Discards written data that has not reached the connection. Returns the bytes discarded so
    /// far.
    pub(super) fn throw_away(&mut self) -> u64 {
        while let Some(packet) = self.pending.take().or_else(|| self.tx.pop()) {
            self.refused_bytes += packet.len() as u64;
        }
        self.refused_bytes
    }

    /// Returns the memory, in bytes, of written data that has not reached the connection.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        self.tx.inside_bytes() + self.pending.as_ref().map_or(0, Packet::len) as u64
    }

    /// The engine ends, which is told as what ends a connection is: once, unless the stream has
    /// ended before.
    pub(super) fn end_with_engine(&mut self) {
        if !self.has_failed && !self.shared.has(READ_END) {
            self.shared.set_passing_error(Error::EngineGone);
        }
        self.has_failed = true;
        self.shared.set_state(READ_END | WRITE_END | OVER);
    }

    /// The connection is over: nothing more in either direction.
    pub(super) fn fail(&mut self, error: Error) {
        self.refuse(error);
        self.shared.set_state(READ_END | OVER);
    }
}

/// The stream that `id` names, if its place is not another's by now.
pub(super) fn by_id(streams: &mut [Option<Stream>], id: SocketId) -> Option<&mut Stream> {
    let stream = streams.get_mut(id.slot() as usize)?.as_mut();
    stream.filter(|stream| stream.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_less_where_memory_is_short() {
        let limits = RingLimits::default();
        let (tx, _taker) = metered::<Packet>(RING_PACKETS, limits.tx.clone());
        let (rx, _reader) = metered::<Packet>(RING_PACKETS, limits.rx.clone());
        let steps = [
            (MemoryPressure::None, 1, [512, 2048]),
            (MemoryPressure::Pressure, 1, [16, 16]),
            (MemoryPressure::Critical, 1, [4, 4]),
            (MemoryPressure::None, 1500, [256, 2048]),
        ];
        for (pressure, streams, kib) in steps {
            limits.share(streams, pressure);
            assert_eq!([&tx, &rx].map(|ring| ring.limit_bytes() / 1024), kib, "{pressure:?}");
        }
    }
}
