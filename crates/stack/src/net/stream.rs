//! The engine's ends of a stream: carries packets between its rings and its connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_packet::{FRAME_HELD_BYTES, Packet};
use millstream_tcp::FourTuple;

use super::metered::{Giver, Limit, Taker, metered};
use super::reach::Reach;
use super::shared::{
    CLOSE, CONNECTED, FRAMES, LOOK_AGAIN, ORDERLY_END, OVER, READ_END, SHUTDOWN_WRITE, STARVED,
    Shared, TAKEN, UNREAD, WRITE_END,
};
use super::slots::Slots;
use super::starved::Starved;
use crate::stats::{MemoryPressure, Undelivered};
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
/// The limit of all tx rings together, as far as each has room for a packet. A thousand streams to
/// a slow link would else hold as many times [`TX_RING_LEAST_BYTES`].
const TX_RINGS_MOST_BYTES: u64 = 32 << 20;

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
    pub addresses: FourTuple,
}

/// The engine's ends of a stream.
pub struct Stream {
    id: SocketId,
    shared: Arc<Shared>,
    tx: Taker<Packet>,
    rx: Giver<Packet>,
    /// Taken from the ring, not yet by the connection.
    pending: Option<Packet>,
    /// The application ended its writing side; the connection is told when the ring is empty.
    ending: bool,
    closing: bool,
    /// Bytes of what was thrown away, as the connection did not take them any more.
    refused_bytes: u64,
    /// Why it ended has been said.
    has_failed: bool,
    /// It is in the line of those that wait for frames.
    is_starved: bool,
    reach: Reach,
}

/// The streams of an engine, by slot.
#[derive(Default)]
pub struct Streams {
    pub list: Slots<Stream>,
    pub starved: Starved,
    limits: RingLimits,
    /// Data that closed streams could not hand to their connections.
    pub refused: Undelivered,
}

/// The memory limits of the rings of each stream.
struct RingLimits {
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
    fn share(&self, streams: usize, pressure: MemoryPressure) {
        let (tx, rx) = match pressure {
            MemoryPressure::None => {
                let of = |all: u64| all / streams.max(1) as u64;
                let least = TX_RING_LEAST_BYTES.min(of(TX_RINGS_MOST_BYTES));
                let share = of(TX_RINGS_BYTES).max(least);
                (share.clamp(PACKET_BYTES as u64, TX_RING_BYTES), RX_RING_BYTES)
            }
            MemoryPressure::Pressure => (PRESSED_RING_BYTES, PRESSED_RING_BYTES),
            MemoryPressure::Critical => (CRITICAL_RING_BYTES, CRITICAL_RING_BYTES),
        };
        self.tx.set(tx);
        self.rx.set(rx);
    }
}

impl Streams {
    /// Makes rings for a connection.
    pub fn attach(&mut self, engine: &mut Engine, id: SocketId) -> Result<StreamParts, Error> {
        let addresses = engine.tcp(id).addresses()?;
        let (tx, tx_taken) = metered(RING_PACKETS, self.limits.tx.clone());
        let (rx_put, rx) = metered(RING_PACKETS, self.limits.rx.clone());
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
            reach: Reach::default(),
        };
        self.list.put(id.slot(), stream);
        Ok(StreamParts { id, shared, tx, rx, addresses })
    }

    /// Divides the memory of all rings among the connections that are open.
    pub fn share_memory(&self, engine: &Engine) {
        let inspect = engine.inspect();
        self.limits.share(inspect.open_connections(), inspect.memory_use().pressure);
    }

    /// Serves those in line, as many as a turn may; whether there were any.
    pub fn serve_due(&mut self, engine: &mut Engine) -> bool {
        let count = self.list.due().min(STREAMS_TURN);
        for _ in 0..count {
            let Some(slot) = self.list.next_due() else { break };
            let readiness = Readiness { readable: true, writable: true, closed: false };
            self.serve(engine, slot, readiness);
        }
        count != 0
    }

    /// Carries packets between a connection and its rings, and takes up the application's wishes.
    pub fn serve(&mut self, engine: &mut Engine, slot: u32, readiness: Readiness) {
        let Some(stream) = self.list.get(slot) else { return };
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
            return self.let_go(engine, slot);
        }
        // Bytes that nobody will read stay in the connection.
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
            self.let_go(engine, slot);
        }
    }

    /// A stream's place is free. What it could not hand to its connection counts as not delivered,
    /// with what that had left.
    fn let_go(&mut self, engine: &mut Engine, slot: u32) {
        let Some(mut stream) = self.list.take(slot) else { return };
        let bytes = stream.throw_away();
        if bytes != 0 {
            // The connection counts by itself, if it had anything left.
            let is_counted = engine.tcp(stream.id).undelivered().is_some();
            self.refused.bytes += bytes;
            self.refused.connections += u64::from(!is_counted);
        }
    }

    /// Writes what waits in the ring, as far as the connection takes it.
    pub fn write_left(&mut self, engine: &mut Engine, id: SocketId) {
        if let Some(stream) = by_id(&mut self.list, id) {
            stream.carry_out(engine);
        }
    }

    /// Writes urgent data behind all that waits in the ring.
    pub fn write_urgent(
        &mut self,
        engine: &mut Engine,
        id: SocketId,
        data: &[u8],
    ) -> Result<usize, Error> {
        let stream = by_id(&mut self.list, id).ok_or(Error::NoSuchSocket)?;
        stream.carry_out(engine);
        if stream.has_unwritten() {
            return Err(Error::WouldBlock);
        }
        engine.tcp(id).write_urgent(data)
    }

    /// Aborts the connection; nothing that waits in the ring is sent.
    pub fn abort(&mut self, engine: &mut Engine, id: SocketId) {
        let Some(stream) = by_id(&mut self.list, id) else { return };
        stream.fail(Error::ConnectionAborted);
        self.list.take(id.slot());
        engine.tcp(id).abort();
    }

    /// Tells the stream in this slot if it has lost its reach, or that it has one again.
    pub fn look_at(&mut self, engine: &mut Engine, slot: u32) {
        let Some(stream) = self.list.get(slot) else { return };
        let (id, is_cut) = (stream.id, !engine.inspect().is_reachable(stream.id));
        if is_cut && !stream.shared.has(CONNECTED) {
            // As a connect does that is begun now.
            stream.fail(Error::NetworkDown);
            self.list.take(slot);
            engine.tcp(id).abort();
        } else if stream.reach.note(is_cut, &stream.shared) && !stream.closing {
            stream.carry_in(engine);
        }
    }

    /// Has some that found no frame try again once there are frames; whether any does.
    pub fn tell_starved(&mut self, engine: &Engine) -> bool {
        let Self { starved, list, .. } = self;
        starved.trim(list.len(), |id| by_id(list, id).is_some());
        if engine.pool().is_dry() {
            return false;
        }
        let mut any = false;
        for id in starved.take_due(engine.now()) {
            any = true;
            let Some(stream) = by_id(list, id) else { continue };
            stream.is_starved = false;
            stream.shared.state.fetch_and(!STARVED, Ordering::AcqRel);
            stream.shared.writable();
        }
        any
    }

    /// Returns the data in rings, counted by the memory that it holds.
    pub fn unwritten(&self) -> Undelivered {
        let mut all = Undelivered::default();
        for stream in self.list.iter().filter(|stream| stream.has_unwritten()) {
            all.add(stream.unwritten_bytes());
        }
        all
    }

    /// As the engine ends: ends the writing side of all streams, of which the rings can still be
    /// read, and resets those that nobody accepted.
    pub fn close(&mut self, engine: &mut Engine) {
        for slot in 0..self.list.len() as u32 {
            let Some(stream) = self.list.get(slot) else { continue };
            if !stream.shared.has(TAKEN) {
                let id = stream.id;
                self.abort(engine, id);
                continue;
            }
            // A close would reset it where not all data was read, and lose what was written.
            stream.ending = true;
            stream.closing |= !stream.shared.has(CONNECTED);
            stream.end_with_engine();
            let readiness = Readiness { readable: false, writable: true, closed: false };
            self.serve(engine, slot, readiness);
        }
    }

    /// The engine is over: wakes all calls, so that none waits for it.
    pub fn tell_end(&mut self) {
        self.list.iter_mut().for_each(Stream::end_with_engine);
    }

    /// Lets go of all.
    pub fn clear(&mut self, engine: &mut Engine) {
        (0..self.list.len() as u32).for_each(|slot| self.let_go(engine, slot));
    }
}

impl Stream {
    /// From the ring into the connection, as far as it takes it.
    fn carry_out(&mut self, engine: &mut Engine) {
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
    fn has_unwritten(&self) -> bool {
        self.pending.is_some() || !self.tx.is_empty()
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
    fn throw_away(&mut self) -> u64 {
        while let Some(packet) = self.pending.take().or_else(|| self.tx.pop()) {
            self.refused_bytes += packet.len() as u64;
        }
        self.refused_bytes
    }

    /// Returns the memory, in bytes, of written data that has not reached the connection.
    fn unwritten_bytes(&self) -> u64 {
        self.tx.inside_bytes() + self.pending.as_ref().map_or(0, Packet::len) as u64
    }

    /// The engine ends, which is told as what ends a connection is: once, unless the stream has
    /// ended before.
    fn end_with_engine(&mut self) {
        if !self.has_failed && !self.shared.has(READ_END) {
            self.shared.set_passing_error(Error::EngineGone);
        }
        self.has_failed = true;
        self.shared.set_state(READ_END | WRITE_END | OVER);
    }

    /// The connection is over: nothing more in either direction.
    fn fail(&mut self, error: Error) {
        self.refuse(error);
        self.shared.set_state(READ_END | OVER);
    }
}

/// The stream that `id` names, if its place is not another's by now.
fn by_id(streams: &mut Slots<Stream>, id: SocketId) -> Option<&mut Stream> {
    streams.get(id.slot()).filter(|stream| stream.id == id)
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
            (MemoryPressure::None, 128, [256, 2048]),
            (MemoryPressure::None, 256, [128, 2048]),
            (MemoryPressure::None, 1500, [64, 2048]),
        ];
        for (pressure, streams, kib) in steps {
            limits.share(streams, pressure);
            assert_eq!([&tx, &rx].map(|ring| ring.limit_bytes() / 1024), kib, "{pressure:?}");
        }
    }
}
