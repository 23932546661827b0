//! Where a packet was: one packet in N has its times taken at each point of its way
//! (docs/trace.md).
//!
//! The times do not travel with the packet: on its way it is joined with others, cropped and
//! copied. They stand in a table of the engine. The payload of a segment keeps its place in the
//! stream, so a sampled segment is followed by the byte at its end: it is at a point when its
//! connection has come as far ([`Progress`]). A datagram is followed by its number in its socket's
//! queue.
//!
//! While nothing is sampled a batch costs one comparison. Else memory is taken once, when sampling
//! begins: for
//! [`FOLLOWED`] packets under way, and for [`KEPT`] that have come to an end. The longest under way gives its place to
//! a new one.

mod arrived;
mod record;
mod residence;
mod sent;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use millstream_link::Medium;
use millstream_packet::{Instant, Packet, PacketBatch};
use millstream_tcp::{Progress, State};

use crate::clock::Clock;
use crate::engine::events::Observed;
use crate::engine::random::Random;
use crate::socket::SocketId;
use arrived::Arrived;
pub use record::{Direction, PacketTrace, TraceEnd, TracePoint};
#[cfg(test)]
pub(in crate::engine) use residence::FLOWS;
pub(in crate::engine) use residence::{Flow, LEASE};
use residence::{Flows, Residence};

/// Packets that are followed at once.
pub(in crate::engine) const FOLLOWED: usize = 64;
/// Ended traces that are kept for requests.
pub(in crate::engine) const KEPT: usize = 1024;

/// See the module text.
#[derive(Default)]
pub(in crate::engine) struct PacketTraces {
    /// Slots, modulo 64, of the sockets that something is followed of.
    slots: u64,
    /// Something that is followed waits for a link.
    awaits_link: bool,
    /// The end of sampling that was asked for by the control socket; `None` while nothing is
    /// sampled, or if the engine's own application asked for it.
    pub until: Option<Instant>,
    /// Traces that had ended when sampling began: numbers go on.
    ended_before: u64,
    tracer: Option<Box<Tracer>>,
}

/// State that exists while packets are sampled.
pub(in crate::engine) struct Tracer {
    clock: Clock,
    /// One packet in how many is sampled.
    every: u32,
    random: Random,
    /// Packets up to and with the next one that is sampled: of those received, and of those sent.
    until: [u32; 2],
    /// The sampled packet of the batch that is carried up, until it has reached its connection or
    /// its socket.
    arrived: Option<Arrived>,
    followed: Vec<PacketTrace>,
    /// Oldest first.
    kept: VecDeque<PacketTrace>,
    /// Number of traces that have ended.
    ended: u64,
    displaced: u64,
    /// Times of all sampled packets.
    pub residence: Residence,
    /// Times of single flows.
    flows: Flows,
}

impl PacketTraces {
    /// Samples one packet in `every` from now on; 0 samples none. Earlier samples are forgotten.
    pub fn set(&mut self, every: u32, clock: Clock, seed: (u64, u64)) {
        let ended = self.ended();
        let tracer = || Tracer { ended, ..Tracer::new(every, clock, Random::new(seed)) };
        *self = Self {
            slots: 0,
            awaits_link: false,
            until: None,
            ended_before: ended,
            tracer: (every != 0).then(|| Box::new(tracer())),
        };
    }

    /// One packet in how many is sampled; 0: none.
    pub fn every(&self) -> u32 {
        self.tracer.as_ref().map_or(0, |tracer| tracer.every)
    }

    /// Returns the number of traces that have ended.
    pub fn ended(&self) -> u64 {
        self.tracer.as_ref().map_or(self.ended_before, |tracer| tracer.ended)
    }

    /// Returns true while packets are sampled.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.tracer.is_some()
    }

    /// Returns the state that exists while packets are sampled.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_deref()
    }

    /// Returns true if a packet of the socket in this slot may be followed.
    #[inline]
    pub fn follows(&self, slot: u32) -> bool {
        self.slots & Self::bit(slot) != 0
    }

    fn bit(slot: u32) -> u64 {
        1 << (slot % u64::BITS)
    }

    /// Counts the sampled packets of a flow for a request. Returns false if the most flows are
    /// counted already, or nothing is sampled.
    pub fn ask_for_flow(&mut self, id: SocketId, now: Instant) -> bool {
        self.tracer.as_mut().is_some_and(|tracer| tracer.flows.ask(id, now))
    }

    /// Returns the counts of a flow that somebody has asked for.
    pub fn flow(&self, id: SocketId) -> Option<&Flow> {
        self.tracer()?.flows.get(id)
    }

    /// Forgets flows that nobody has asked for of late.
    pub fn end_leases(&mut self, now: Instant) {
        if let Some(tracer) = &mut self.tracer {
            tracer.flows.end_leases(now);
        }
    }

    /// Follows a packet of a socket from now on.
    fn follow(&mut self, trace: PacketTrace) {
        let (Some(tracer), Some(socket)) = (&mut self.tracer, trace.socket) else { return };
        self.slots |= Self::bit(socket.slot());
        tracer.follow(trace);
    }

    /// Advances the traces of a socket that stands so.
    pub fn progress(&mut self, socket: SocketId, standing: &Standing) {
        let Some(tracer) = &mut self.tracer else { return };
        let now = tracer.clock.now();
        tracer.change(|trace| {
            if trace.socket != Some(socket) {
                return None;
            }
            trace.take_progress(standing, now)
        });
        self.find_slots();
    }

    /// Finds the slots that something is followed of, and if any waits for a link, after a trace
    /// has ended.
    fn find_slots(&mut self) {
        let waits = |tracer: &Tracer| tracer.followed.iter().any(|trace| trace.queued.is_some());
        self.awaits_link = self.tracer().is_some_and(waits);
        let followed = self.tracer.iter().flat_map(|tracer| &tracer.followed);
        let bits = followed.filter_map(|trace| trace.socket).map(|id| Self::bit(id.slot()));
        self.slots = bits.fold(0, |all, bit| all | bit);
    }
}

impl Tracer {
    fn new(every: u32, clock: Clock, random: Random) -> Self {
        let mut tracer = Self {
            clock,
            every,
            random,
            until: [0; 2],
            arrived: None,
            followed: Vec::with_capacity(FOLLOWED),
            kept: VecDeque::with_capacity(KEPT),
            ended: 0,
            displaced: 0,
            residence: Residence::default(),
            flows: Flows::default(),
        };
        tracer.until = [tracer.skip(), tracer.skip()];
        tracer
    }

    /// Draws the packets up to and with the next sampled one: one in `every` on average, and not
    /// always the same place of a batch (RFC 3176, 3: random skip).
    fn skip(&mut self) -> u32 {
        let most = u64::from(self.every) * 2 - 1;
        (self.random.below(most) + 1).min(u64::from(u32::MAX)) as u32
    }

    /// Returns which of `count` packets that come together is sampled, if one is: one at most.
    fn choose(&mut self, way: Direction, count: usize) -> Option<usize> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let left = &mut self.until[way as usize];
        if *left > count {
            *left -= count;
            return None;
        }
        let at = *left as usize - 1;
        self.until[way as usize] = self.skip();
        Some(at)
    }

    fn received(&mut self, batch: &PacketBatch, medium: Medium) {
        let Some(at) = self.choose(Direction::In, batch.len()) else { return };
        // One that a link was to put elsewhere is in this batch instead.
        if self.arrived.is_none() {
            let packet = batch.iter().nth(at);
            let now = self.clock.now();
            self.arrived = packet.map(|packet| Arrived::read(packet, packet.len(), medium, now));
        }
    }

    fn placed(&mut self, head: &Packet, len: usize, medium: Medium) {
        if self.choose(Direction::In, 1).is_some() && self.arrived.is_none() {
            self.arrived = Some(Arrived::read(head, len, medium, self.clock.now()));
        }
    }

    /// Returns the number of traces that ended because others needed their places.
    pub fn displaced(&self) -> u64 {
        self.displaced
    }

    /// Returns the traces that have ended, from this number on.
    pub fn kept_from(&self, number: u64) -> impl Iterator<Item = &PacketTrace> {
        let first = self.ended - self.kept.len() as u64 + 1;
        let skip = number.saturating_sub(first).min(self.kept.len() as u64);
        self.kept.range(skip as usize..)
    }

    fn follow(&mut self, trace: PacketTrace) {
        if self.followed.len() == FOLLOWED {
            let mut oldest = self.followed.remove(0);
            oldest.end = TraceEnd::Displaced;
            self.displaced += 1;
            self.end(oldest);
        }
        self.followed.push(trace);
    }

    /// Changes what is followed; a trace that `change` gives an end to is followed no more.
    fn change(&mut self, mut change: impl FnMut(&mut PacketTrace) -> Option<TraceEnd>) {
        let mut at = 0;
        while let Some(trace) = self.followed.get_mut(at) {
            match change(trace) {
                None => at += 1,
                Some(end) => {
                    let ended = PacketTrace { end, ..self.followed.remove(at) };
                    self.end(ended);
                }
            }
        }
    }

    /// Counts and keeps a trace that has come to its end.
    fn end(&mut self, mut trace: PacketTrace) {
        self.ended += 1;
        trace.number = self.ended;
        self.residence.add(&trace);
        self.flows.add(&trace);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(trace);
    }
}

/// The progress of a socket.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Standing {
    pub progress: Progress,
    /// The application may read what it has received.
    pub is_read: bool,
    /// Written data may still be sent and acknowledged.
    pub sends: bool,
}

impl From<Observed<'_>> for Standing {
    fn from(socket: Observed<'_>) -> Self {
        let Observed { conn, is_read, .. } = socket;
        Self { progress: conn.progress(), is_read, sends: !matches!(conn.state(), State::Closed) }
    }
}

impl Standing {
    /// Returns the standing of a socket that has read `read` datagrams. A datagram is read by its
    /// number; sent ones are not followed by it.
    fn of_datagrams(read: u64) -> Self {
        let progress = Progress { read, ..Progress::default() };
        Self { progress, is_read: true, sends: true }
    }
}

impl PacketTrace {
    /// Advances the trace as its socket stands; returns how the trace ends by that, if it does.
    fn take_progress(&mut self, standing: &Standing, now: Instant) -> Option<TraceEnd> {
        let Standing { progress, is_read, sends } = *standing;
        let Progress { received, read, sent, acknowledged, .. } = progress;
        if self.is_sent_datagram() {
            return None;
        }
        let (goes_on, points) = match self.direction() {
            Direction::In => {
                (is_read, [(TracePoint::Readable, received), (TracePoint::Read, read)])
            }
            Direction::Out => {
                (sends, [(TracePoint::Sent, sent), (TracePoint::Acknowledged, acknowledged)])
            }
        };
        if !goes_on {
            return Some(TraceEnd::Closed);
        }
        for (point, come) in points {
            if come >= self.position {
                self.reach(point, now);
            }
        }
        self.has(points[1].0).then_some(TraceEnd::Complete)
    }
}
