//! The engine's side: carries packets between rings and connections, turn by turn.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_packet::Packet;
use millstream_packet::ring::{Consumer, Producer, spsc};

use super::Door;
use super::datagrams::Datagrams;
use super::metered::{Giver, Limit, Taker, metered};
use super::shared::{
    CLOSE, CONNECTED, FRAMES, LOOK_AGAIN, ORDERLY_END, READ_END, SHUTDOWN_WRITE, Shared, UNREAD,
    WRITE_END,
};
use super::starved::Starved;
use super::waiter::take_woke;
use super::ways::{Way, Ways};
use crate::limits::STREAMS_TURN;
use crate::{Engine, Error, Readiness, SocketId, SocketKind};

/// Packets that a ring holds.
pub const RING_PACKETS: usize = 64;

/// Bytes of one packet that goes through a ring.
pub const PACKET_BYTES: usize = 65_536;

/// Memory held by what lies in the tx ring at most, in bytes, and one packet more; a write waits beyond. More would be
/// cold when it is sent: what the connection keeps and what is under way go through the same second-level cache.
pub const TX_RING_BYTES: u64 = 512 << 10;

/// That of all tx rings together, as far as none has less than [`TX_RING_LEAST_BYTES`]: what many have in theirs is
/// cold, and memory that the system clears first.
const TX_RINGS_BYTES: u64 = 8 << 20;
/// See [`TX_RINGS_BYTES`].
const TX_RING_LEAST_BYTES: u64 = 256 << 10;

/// The same for the rx ring: the engine leaves the rest in the connection, where it counts against the receive
/// window.
pub const RX_RING_BYTES: u64 = 2 << 20;

/// How long the engine sees connections through after it was told to stop.
const LINGER: Duration = Duration::from_millis(500);

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
    ending: bool,
    closing: bool,
    /// Why it ended has been said.
    has_failed: bool,
    /// It is in the line of those that wait for frames.
    pub(super) is_starved: bool,
    /// It is in the line of those whose application has left something to do.
    is_due: bool,
    pub(super) way: Way,
}

/// The engine's end of a listener.
pub(super) struct Listening {
    pub(super) id: SocketId,
    pub(super) shared: Arc<Shared>,
    accepted: Producer<StreamParts>,
    pub(super) way: Way,
}

/// The body of the engine's thread.
pub struct Worker {
    pub engine: Engine,
    pub door: Arc<Door>,
    pub(super) streams: Vec<Option<Stream>>,
    pub(super) listeners: Vec<Option<Listening>>,
    pub(super) datagrams: Vec<Option<Datagrams>>,
    pub(super) ways: Ways,
    pub(super) starved: Starved,
    /// What a tx ring has of all streams'.
    tx_limit: Limit,
    rx_limit: Limit,
    /// Streams whose applications have left something to do, by slot.
    due_streams: VecDeque<u32>,
    /// UDP sockets that have something to send, by slot, each once.
    pub(super) due_datagrams: VecDeque<u32>,
    /// Slots taken out of the ready sets; empty between uses.
    slots: Vec<u32>,
}

impl Worker {
    pub fn new(engine: Engine) -> Self {
        let door = Arc::new(Door::new(&engine));
        let (streams, listeners, datagrams, ways) = Default::default();
        let (starved, due_streams, due_datagrams, slots) = Default::default();
        Self {
            engine,
            door,
            streams,
            listeners,
            datagrams,
            ways,
            starved,
            tx_limit: Limit::of(TX_RING_BYTES),
            rx_limit: Limit::of(RX_RING_BYTES),
            due_streams,
            due_datagrams,
            slots,
        }
    }

    /// Runs until told to stop.
    pub fn run(mut self) {
        while !self.door.stop.load(Ordering::SeqCst) {
            if self.step(None).is_err() {
                break;
            }
        }
        self.finish();
    }

    /// The application's work, a turn, the sockets' news; then sleep if there was nothing, or before
    /// it where that is better ([`Engine::run_once`]).
    fn step(&mut self, max_sleep: Option<Duration>) -> io::Result<()> {
        self.engine.refresh_time();
        let share = TX_RINGS_BYTES / self.engine.open_connections().max(1) as u64;
        self.tx_limit.set(share.clamp(TX_RING_LEAST_BYTES, TX_RING_BYTES));
        let mut busy = self.application() | self.look_at_ways() | self.tell_starved();
        let max_sleep = [max_sleep, self.starved.rest()].into_iter().flatten().min();
        let door = Arc::clone(&self.door);
        let mut rested = false;
        if !busy && let Some(quiet) = self.engine.sleeps_before_turn() {
            self.engine.idle_unless(quiet, max_sleep, || door.is_busy())?;
            busy = self.application();
            rested = true;
        }
        let turn = self.engine.turn(self.engine.now());
        busy |= self.deliver();
        busy |= self.engine.flush_if_due();
        // What was sent has made room.
        busy |= self.deliver();
        if busy || turn.progress {
            self.engine.worked();
            if !busy && self.engine.waits_for_more() {
                // Whoever shares this core may have what came before meanwhile.
                std::thread::yield_now();
            }
        } else if !rested {
            // Who was woken may wait for this very core, and polling would keep it from that.
            if take_woke() {
                self.engine.make_way();
            }
            self.engine.idle_unless(turn, max_sleep, || door.is_busy())?;
        }
        Ok(())
    }

    /// Takes up what the application's threads have left; whether there was anything.
    fn application(&mut self) -> bool {
        let calls = self.door.take_calls();
        let mut busy = !calls.is_empty();
        for call in calls {
            call(self);
        }
        let door = Arc::clone(&self.door);
        let mut slots = std::mem::take(&mut self.slots);
        door.streams.drain(|slot| slots.push(slot));
        for slot in slots.drain(..) {
            self.note_stream(slot);
        }
        busy |= self.serve_due_streams();
        door.datagrams.drain(|slot| slots.push(slot));
        busy |= !slots.is_empty();
        for slot in slots.drain(..) {
            self.note_datagrams(slot);
        }
        busy |= self.send_due_datagrams();
        door.listeners.drain(|slot| slots.push(slot));
        for slot in slots.drain(..) {
            self.serve_listener(slot);
        }
        self.slots = slots;
        busy
    }

    fn note_stream(&mut self, slot: u32) {
        let Some(Some(stream)) = self.streams.get_mut(slot as usize) else { return };
        if !std::mem::replace(&mut stream.is_due, true) {
            self.due_streams.push_back(slot);
        }
    }

    /// Serves those in line, as many as a turn may; whether there were any.
    fn serve_due_streams(&mut self) -> bool {
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

    /// Hands the sockets' news to the application's threads.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        while let Some((id, readiness)) = self.engine.next_event() {
            any = true;
            match id.kind() {
                SocketKind::Tcp => self.serve_stream(id.slot(), readiness),
                SocketKind::Listener => self.serve_listener(id.slot()),
                SocketKind::Udp => self.hand_over_datagrams(id.slot()),
                SocketKind::Icmp => {}
            }
        }
        any
    }

    /// Makes rings for a connection.
    pub fn attach(&mut self, id: SocketId) -> Result<StreamParts, Error> {
        let tuple = self.engine.tcp_addresses(id)?;
        let (tx, tx_taken) = metered(RING_PACKETS, self.tx_limit.clone());
        let (rx_put, rx) = metered(RING_PACKETS, self.rx_limit.clone());
        let shared = Arc::new(Shared::default());
        let stream = Stream {
            id,
            shared: Arc::clone(&shared),
            tx: tx_taken,
            rx: rx_put,
            pending: None,
            ending: false,
            closing: false,
            has_failed: false,
            is_starved: false,
            is_due: false,
            way: Way::default(),
        };
        place(&mut self.streams, id.slot(), stream);
        let (local, remote) = (tuple.local, tuple.remote);
        Ok(StreamParts { id, shared, tx, rx, local, remote })
    }

    /// Makes the ring of a listener. Connections in it have left the engine's list, and wait all the same.
    pub fn attach_listener(
        &mut self,
        id: SocketId,
    ) -> Result<(Arc<Shared>, Consumer<StreamParts>), Error> {
        let places = accepted_places(self.engine.tcp_listener_stats(id)?.backlog);
        self.engine.tcp_listener_shares(id, places)?;
        let (accepted, consumer) = spsc(places);
        let shared = Arc::new(Shared::default());
        let listening =
            Listening { id, shared: Arc::clone(&shared), accepted, way: Way::default() };
        place(&mut self.listeners, id.slot(), listening);
        self.look_at_new(id);
        Ok((shared, consumer))
    }

    /// Carries packets between a connection and its rings, and takes up the application's wishes.
    fn serve_stream(&mut self, slot: u32, readiness: Readiness) {
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
            match engine.tcp_connected(stream.id) {
                Ok(false) if !stream.closing => return,
                Ok(_) => stream.shared.set_state(CONNECTED),
                Err(error) => {
                    // told by that
                    let _ = engine.tcp_take_error(stream.id);
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
            engine.tcp_abort(stream.id);
            self.streams[slot as usize] = None;
            return;
        }
        // What comes when nobody will read it stays in the connection.
        if (readiness.readable || readiness.closed) && !stream.closing {
            stream.carry_in(engine);
        }
        if readiness.closed {
            stream.note_end(engine);
        }
        if stream.closing && stream.has_unwritten() {
            engine.tcp_orphan(stream.id);
        } else if stream.closing {
            engine.tcp_close(stream.id);
            self.streams[slot as usize] = None;
        }
    }

    /// Hands finished connections over.
    pub(super) fn serve_listener(&mut self, slot: u32) {
        loop {
            let Some(Some(listening)) = self.listeners.get_mut(slot as usize) else { return };
            if listening.accepted.len() >= listening.accepted.capacity() {
                // The application looks here again when it has taken one.
                listening.shared.rx_stalled.store(true, Ordering::SeqCst);
                if listening.accepted.len() >= listening.accepted.capacity() {
                    return;
                }
            }
            let Ok((id, _)) = self.engine.tcp_accept(listening.id) else {
                return listening.way.end(&listening.shared);
            };
            let shared = Arc::clone(&listening.shared);
            let Ok(parts) = self.attach(id) else { continue };
            parts.shared.set_state(CONNECTED);
            self.look_at_new(id);
            if let Some(Some(listening)) = self.listeners.get_mut(slot as usize) {
                let _ = listening.accepted.push(parts);
            }
            shared.readable();
            self.serve_stream(
                id.slot(),
                Readiness { readable: true, writable: false, closed: false },
            );
        }
    }

    /// Ends a listener, and with it the connections that nobody took out of its ring.
    pub(super) fn close_listener(&mut self, id: SocketId, mut accepted: Consumer<StreamParts>) {
        self.engine.tcp_close_listener(id);
        while let Some(parts) = accepted.pop() {
            self.abort(parts.id);
        }
        if let Some(place) = self.listeners.get_mut(id.slot() as usize)
            && place.as_ref().is_some_and(|listening| listening.id == id)
        {
            *place = None;
        }
    }

    /// Closes everything, tells all who wait, and lets what is left leave for a moment. Connections that are not at
    /// their end then are reset.
    fn finish(&mut self) {
        for call in self.door.take_calls() {
            call(self);
        }
        for slot in 0..self.streams.len() as u32 {
            if let Some(Some(stream)) = self.streams.get_mut(slot as usize) {
                // Whose rings can still be read.
                (stream.ending, stream.closing) = (true, true);
                stream.end_with_engine();
                self.serve_stream(
                    slot,
                    Readiness { readable: false, writable: true, closed: false },
                );
            }
        }
        for slot in 0..self.listeners.len() {
            if let Some(Some(listening)) = self.listeners.get(slot) {
                self.engine.tcp_close_listener(listening.id);
            }
        }
        self.tell_end();
        let until = self.engine.refresh_time() + LINGER;
        loop {
            let has_datagrams = self.send_last_datagrams();
            let is_left =
                has_datagrams || self.engine.has_waiting() || self.engine.has_unfinished();
            if !is_left || self.engine.now() >= until {
                break;
            }
            let left = until.saturating_duration_since(self.engine.now());
            let sleep = if has_datagrams { Duration::ZERO } else { left };
            if self.engine.run_once(Some(sleep)).is_err() {
                break;
            }
            self.deliver();
        }
        self.engine.flush();
        self.engine.reset_left();
    }

    /// No call waits for an engine that is gone.
    fn tell_end(&mut self) {
        self.streams.iter_mut().flatten().for_each(Stream::end_with_engine);
        for listening in self.listeners.iter().flatten() {
            listening.shared.set_error(Error::EngineGone);
            listening.shared.set_state(READ_END);
        }
        for socket in self.datagrams.iter().flatten() {
            socket.shared.set_error(Error::EngineGone);
            socket.shared.set_state(READ_END | WRITE_END);
        }
    }
}

impl Drop for Worker {
    /// Also where a call that it ran has panicked.
    fn drop(&mut self) {
        self.tell_end();
        self.door.ended.store(true, Ordering::SeqCst);
        // Calls that came in meanwhile are answered by their being dropped.
        drop(self.door.take_calls());
    }
}

impl Stream {
    /// From the ring into the connection, as far as it takes it.
    pub(super) fn carry_out(&mut self, engine: &mut Engine) {
        let mut any = false;
        while let Some(packet) = self.pending.take().or_else(|| self.tx.pop()) {
            match engine.tcp_write_packet(self.id, packet) {
                Ok(()) => any = true,
                Err((packet, Error::WouldBlock)) => {
                    self.pending = Some(packet);
                    break;
                }
                Err((packet, error)) => {
                    drop(packet);
                    self.refuse(error);
                    break;
                }
            }
        }
        if any {
            let bulk = engine.tcp_bulk_bytes(self.id).unwrap_or(0);
            self.shared.bulk_bytes.store(bulk, Ordering::Relaxed);
            if self.tx.is_half_empty() {
                self.shared.writable();
            }
        }
        if self.ending && !self.has_unwritten() {
            let _ = engine.tcp_shutdown_write(self.id);
        }
    }

    /// Whether the application that lets go has left something unread, wherever it lies.
    fn leaves_unread(&self, wishes: u8, engine: &mut Engine) -> bool {
        wishes & UNREAD != 0
            || self.rx.has_some()
            || matches!(engine.tcp_peek(self.id, &mut [0]), Ok(1..))
    }

    /// Something that was written is not the connection's yet.
    pub(super) fn has_unwritten(&self) -> bool {
        self.pending.is_some() || !self.tx.is_empty()
    }

    /// What has come goes to who reads, unless nobody will.
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
            match engine.tcp_read_packet(self.id, PACKET_BYTES) {
                Ok(Some(packet)) => {
                    any = true;
                    if self.rx.push(packet).is_err() {
                        break;
                    }
                }
                Err(Error::WouldBlock) => {
                    self.way.end(&self.shared);
                    break;
                }
                Ok(None) => {
                    let is_orderly = engine.tcp_has_peer_ended(self.id);
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
        if let Ok(Some(error)) = engine.tcp_take_error(self.id) {
            self.refuse(error);
        }
    }

    /// Nothing more is taken. What came before can still be read.
    fn refuse(&mut self, error: Error) {
        self.pending = None;
        while self.tx.pop().is_some() {}
        if !std::mem::replace(&mut self.has_failed, true) {
            self.shared.set_passing_error(error);
        }
        self.shared.set_state(WRITE_END);
    }

    /// The engine ends, which is told as what ends a connection is: once, unless the stream has ended before.
    fn end_with_engine(&mut self) {
        if !self.has_failed && !self.shared.has(READ_END) {
            self.shared.set_passing_error(Error::EngineGone);
        }
        self.has_failed = true;
        self.shared.set_state(READ_END | WRITE_END);
    }

    /// The connection is over: nothing more in either direction.
    pub(super) fn fail(&mut self, error: Error) {
        self.refuse(error);
        self.shared.set_state(READ_END);
    }
}

/// The stream that `id` names, if its place is not another's by now.
pub(super) fn by_id(streams: &mut [Option<Stream>], id: SocketId) -> Option<&mut Stream> {
    let stream = streams.get_mut(id.slot() as usize)?.as_mut();
    stream.filter(|stream| stream.id == id)
}

/// Connections that may lie in the ring of a listener with this backlog: half of it, and one at least.
fn accepted_places(backlog: usize) -> usize {
    let places = (backlog / 2).clamp(1, RING_PACKETS);
    // A ring has a power of two.
    1 << places.ilog2()
}

pub(super) fn place<T>(list: &mut Vec<Option<T>>, slot: u32, value: T) {
    let slot = slot as usize;
    if list.len() <= slot {
        list.resize_with(slot + 1, || None);
    }
    list[slot] = Some(value);
}
