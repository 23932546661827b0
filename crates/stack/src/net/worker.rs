//! The engine's side: takes up the work that applications have left, turns the engine, and hands
//! its news over.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use millstream_packet::ring::{Consumer, Producer, spsc};

use super::Door;
use super::datagrams::Datagrams;
use super::reachable::{Reach, Sweep};
use super::shared::{CONNECTED, OVER, READ_END, Shared, TAKEN, WRITE_END};
use super::starved::Starved;
use super::stream::{RING_PACKETS, RingLimits, Stream, StreamParts};
use super::waiter::take_woke;
use crate::engine::tcp::ending::Lingering;
use crate::tuning::{GOODBYE, LINGER_LOOK};
use crate::{Engine, Error, Readiness, SocketId, SocketKind, Undelivered};

/// The engine's end of a listener.
pub(super) struct Listening {
    pub(super) id: SocketId,
    pub(super) shared: Arc<Shared>,
    accepted: Producer<StreamParts>,
    pub(super) reach: Reach,
}

/// The body of the engine's thread.
pub struct Worker {
    pub engine: Engine,
    pub door: Arc<Door>,
    pub(super) streams: Vec<Option<Stream>>,
    pub(super) listeners: Vec<Option<Listening>>,
    pub(super) datagrams: Vec<Option<Datagrams>>,
    pub(super) sweep: Sweep,
    pub(super) starved: Starved,
    pub(super) ring_limits: RingLimits,
    /// Data that closed streams could not hand to their connections.
    pub(super) refused: Undelivered,
    /// Streams whose applications have left something to do, by slot.
    pub(super) due_streams: VecDeque<u32>,
    /// UDP sockets that have something to send, by slot, each once.
    pub(super) due_datagrams: VecDeque<u32>,
    /// Slots taken out of the ready sets; empty between uses.
    slots: Vec<u32>,
}

impl Worker {
    pub fn new(engine: Engine) -> Self {
        let door = Arc::new(Door::new(&engine));
        let (streams, listeners, datagrams, sweep) = Default::default();
        let (starved, due_streams, due_datagrams, slots) = Default::default();
        Self {
            engine,
            door,
            streams,
            listeners,
            datagrams,
            sweep,
            starved,
            ring_limits: RingLimits::default(),
            refused: Undelivered::default(),
            due_streams,
            due_datagrams,
            slots,
        }
    }

    /// Runs until told to stop. Returns the data that was not delivered then.
    pub fn run(mut self) -> Undelivered {
        while !self.door.stop.load(Ordering::SeqCst) {
            if self.step(None).is_err() {
                break;
            }
        }
        self.finish()
    }

    /// Does the application's work, a turn, and the sockets' news; then sleeps if there was
    /// nothing, or before that where it is better ([`Engine::run_once`]).
    fn step(&mut self, max_sleep: Option<Duration>) -> io::Result<()> {
        self.engine.refresh_time();
        let pressure = self.engine.inspect().memory_use().pressure;
        self.ring_limits.share(self.engine.inspect().open_connections(), pressure);
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
        } else if !rested {
            // Who was woken may wait for this very core, and polling would keep it from that.
            if take_woke() {
                self.engine.make_way();
            }
            self.engine.idle_unless(turn, max_sleep, || door.is_busy())?;
        }
        Ok(())
    }

    /// Takes up the work that the application's threads have left; returns true if there was any.
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

    /// Makes the ring of a listener. Connections in it have left the engine's list, but still count
    /// as waiting.
    pub fn attach_listener(
        &mut self,
        id: SocketId,
    ) -> Result<(Arc<Shared>, Consumer<StreamParts>), Error> {
        let places = accepted_places(self.engine.listener(id).stats()?.backlog);
        self.engine.listener(id).shares(places)?;
        let (accepted, consumer) = spsc(places);
        let shared = Arc::new(Shared::default());
        let listening =
            Listening { id, shared: Arc::clone(&shared), accepted, reach: Reach::default() };
        place(&mut self.listeners, id.slot(), listening);
        self.look_at_new(id);
        Ok((shared, consumer))
    }

    /// Hands finished connections over.
    pub(super) fn serve_listener(&mut self, slot: u32) {
        loop {
            let Some(Some(listening)) = self.listeners.get_mut(slot as usize) else { return };
            if listening.accepted.len() >= listening.accepted.capacity() {
                // The application looks here again when it has taken one.
                listening.shared.rx_stalled.store(true, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                if listening.accepted.len() >= listening.accepted.capacity() {
                    return;
                }
            }
            let Ok((id, _)) = self.engine.listener(listening.id).accept() else {
                return listening.reach.end(&listening.shared);
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
        self.engine.listener(id).close();
        while let Some(parts) = accepted.pop() {
            self.abort(parts.id);
        }
        if let Some(place) = self.listeners.get_mut(id.slot() as usize)
            && place.as_ref().is_some_and(|listening| listening.id == id)
        {
            *place = None;
        }
    }

    /// Closes everything, tells all waiting threads, and lets written data leave. Connections that
    /// are not at their end then are reset.
    fn finish(&mut self) -> Undelivered {
        let before = self.engine.inspect().undelivered().and(self.refused);
        for call in self.door.take_calls() {
            call(self);
        }
        for slot in 0..self.streams.len() as u32 {
            if let Some(Some(stream)) = self.streams.get_mut(slot as usize) {
                if !stream.shared.has(TAKEN) {
                    let id = stream.id;
                    self.abort(id);
                    continue;
                }
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
                self.engine.listener(listening.id).close();
            }
        }
        self.tell_end();
        self.see_through();
        for slot in 0..self.streams.len() as u32 {
            self.let_go(slot);
        }
        self.engine.flush();
        self.engine.sockets().reset_all();
        self.engine.inspect().undelivered().and(self.refused).since(before)
    }

    /// Waits for delivery for as long as the application allows or peers take data, then for a
    /// moment for the rest.
    fn see_through(&mut self) {
        let mut lingering = Lingering::begin(self.engine.refresh_time());
        let mut goodbye = None;
        loop {
            let now = self.engine.now();
            let left = self.to_deliver();
            let wait = if !left.is_none() && self.engine.inspect().has_links() {
                lingering.wait(now, left, self.door.linger())
            } else {
                let until = *goodbye.get_or_insert(now + GOODBYE);
                (now < until).then(|| until.saturating_duration_since(now).min(LINGER_LOOK))
            };
            let Some(wait) = wait else { return };
            let look = now + wait;
            // Each look costs more the more streams there are.
            while self.engine.now() < look {
                let has_datagrams = self.send_last_datagrams();
                let is_left =
                    self.engine.inspect().has_waiting() || self.engine.inspect().has_unfinished();
                if !has_datagrams && !is_left {
                    return;
                }
                let left = look.saturating_duration_since(self.engine.now());
                let sleep = if has_datagrams { Duration::ZERO } else { left };
                if self.engine.run_once(Some(sleep)).is_err() {
                    return;
                }
                self.deliver();
            }
        }
    }

    /// Returns the data that streams and connections have still to deliver. Data in rings counts by
    /// the memory that it holds.
    fn to_deliver(&self) -> Undelivered {
        let (mut left, _) = self.engine.inspect().to_deliver();
        for stream in self.streams.iter().flatten().filter(|stream| stream.has_unwritten()) {
            left.add(stream.unwritten_bytes());
        }
        left
    }

    /// Wakes all calls, so that none waits for an engine that is gone.
    fn tell_end(&mut self) {
        self.streams.iter_mut().flatten().for_each(Stream::end_with_engine);
        for listening in self.listeners.iter().flatten() {
            listening.shared.set_error(Error::EngineGone);
            listening.shared.set_state(READ_END | OVER);
        }
        for socket in self.datagrams.iter().flatten() {
            socket.shared.set_error(Error::EngineGone);
            socket.shared.set_state(READ_END | WRITE_END | OVER);
        }
    }
}

impl Drop for Worker {
    /// Ends the sockets, also if a call that it ran has panicked.
    fn drop(&mut self) {
        self.tell_end();
        self.door.ended.store(true, Ordering::SeqCst);
        // Calls that came in meanwhile are answered by their being dropped.
        drop(self.door.take_calls());
    }
}

/// Returns how many connections may lie in the ring of a listener with this backlog: half of it,
/// and one at least.
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
