//! Seeded damage: loss, bursts, delay, jitter, reordering, duplication, corruption, and a rate
//! limit, in each direction of any link.
//!
//! Given the same seed and the same calls with the same times, the same packets meet the same fate.
//! Each kind of fault draws from a generator of its own, so that switching one on leaves the others
//! where they were.
//!
//! A packet passes the rate limit (or is dropped because its queue is full), then may be lost,
//! damaged, copied, and delayed. A lost packet has used its share of the rate, as on a wire.
//!
//! When the inner link fails, what came by it before still comes out in its time, and the error is
//! told after that. Packets on their way out then, or sent meanwhile, are dropped and counted
//! ([`DropCause::Closed`]).

mod dice;
mod lane;

#[cfg(test)]
mod failed_tests;
#[cfg(test)]
mod tests;

use std::os::fd::RawFd;
use std::time::Duration;

use millstream_packet::{Instant, PacketBatch, Pool};

use crate::{DropCause, Link, LinkError, LinkStats, Placed, forward_link};
use lane::Lane;

/// Losses that come in bursts: Gilbert's and Elliott's chain of two states, stepped once per
/// packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Chance that a burst starts.
    pub enter: f64,
    /// Chance that it ends; its mean length is 1 / `leave` packets.
    pub leave: f64,
    /// Chance of loss during a burst.
    pub loss_inside: f64,
    /// Chance of loss otherwise.
    pub loss_outside: f64,
}

/// Packets that are overtaken by later ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Chance that a packet is held back.
    pub probability: f64,
    /// For how long, beside its ordinary delay.
    pub delay: Duration,
}

/// The faults of packets in one direction. The default is none. Chances are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Chance that a packet is lost.
    pub loss: f64,
    /// Losses in bursts, beside those.
    pub burst: Option<Burst>,
    /// Chance that a packet arrives twice.
    pub duplicate: f64,
    /// Chance that one bit after the link header is flipped.
    pub corrupt: f64,
    /// Packets held back beyond their delay.
    pub reorder: Option<Reorder>,
    /// Time every packet takes.
    pub delay: Duration,
    /// Uniformly up to this much is added to the delay of each packet; alone it does not reorder.
    pub jitter: Duration,
    /// Bits per second that pass, link header included; `None` or 0: no limit.
    pub rate_bits_per_s: Option<u64>,
    /// Memory held by the packets that wait for the rate limit, in bytes; one packet always fits.
    pub queue_bytes: usize,
    /// Packets that wait for the rate limit at most, whatever memory they hold; one always fits.
    pub queue_packets: usize,
    /// A packet that comes out later than this after its time counts in [`FaultStats::late`]; it
    /// changes no packet's fate.
    pub late_after: Duration,
    /// Treat a super-segment as one packet. Otherwise (and always when `corrupt` is set) it is cut
    /// first, so that chances are those of packets on a wire.
    pub whole_super_segments: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            loss: 0.0,
            burst: None,
            duplicate: 0.0,
            corrupt: 0.0,
            reorder: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate_bits_per_s: None,
            queue_bytes: 1 << 20,
            queue_packets: usize::MAX,
            late_after: Duration::from_millis(1),
            whole_super_segments: false,
        }
    }
}

impl Faults {
    /// True when nothing ever happens to a packet.
    fn is_nothing(&self) -> bool {
        let Self {
            loss, burst, duplicate, corrupt, reorder, delay, jitter, rate_bits_per_s, ..
        } = *self;
        loss <= 0.0
            && burst.is_none()
            && duplicate <= 0.0
            && corrupt <= 0.0
            && reorder.is_none_or(|reorder| reorder.probability <= 0.0)
            && delay.is_zero()
            && jitter.is_zero()
            && rate_bits_per_s.unwrap_or(0) == 0
    }
}

/// The faults of both directions, and the seed of all chance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultConfig {
    /// Same seed, same faults.
    pub seed: u64,
    /// The faults of packets on the way out.
    pub transmit: Faults,
    /// The faults of packets on the way in.
    pub receive: Faults,
}

/// The counters of one direction of a [`Fault`]. Drops are in [`LinkStats::drops`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Packets that came in, segments of super-segments counted singly.
    pub entered: u64,
    /// Packets that went out, copies included.
    pub left: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets lost in bursts (or outside one, at the burst model's own rate).
    pub burst_lost: u64,
    /// Packets dropped because the rate limit's queue was full.
    pub queue_dropped: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Packets held back for others to overtake.
    pub reordered: u64,
    /// Packets that went out later than [`Faults::late_after`] after their time: nobody was there
    /// to pass them on, so that they met more delay than was configured.
    pub late: u64,
}

/// A link whose packets meet faults.
///
/// ```
/// use std::time::Duration;
///
/// use millstream_link::{Fault, FaultConfig, Faults, PairConfig, pair};
///
/// let path = Faults { loss: 0.01, delay: Duration::from_millis(20), ..Faults::default() };
/// let config = FaultConfig { seed: 7, transmit: path, receive: path };
/// let (near, far) = pair(PairConfig::default())?;
/// let near = Fault::new(near, config);
/// # drop((near, far));
/// # Ok::<(), millstream_link::LinkError>(())
/// ```
pub struct Fault<L> {
    inner: L,
    transmit: Option<Lane>,
    receive: Option<Lane>,
    /// Due packets on the way out that the inner link has not taken yet.
    out: PacketBatch,
    /// Packets that came by the inner link and find no place on the way in. While there is any,
    /// that way is full.
    waiting: PacketBatch,
    /// When packets were last asked for.
    asked: Instant,
    /// Why the inner link has failed, until nothing is on its way in any more and it is told.
    failed: Option<LinkError>,
    /// Packets that were to leave by it then, or since.
    closed: usize,
}

impl<L: std::fmt::Debug> std::fmt::Debug for Fault<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fault").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<L: Link> Fault<L> {
    /// Wraps `inner`. A direction without faults costs nothing.
    pub fn new(inner: L, config: FaultConfig) -> Self {
        let FaultConfig { seed, transmit, receive } = config;
        let medium = inner.capabilities().medium;
        let lane = |faults: Faults, direction| {
            (!faults.is_nothing()).then(|| Lane::new(faults, medium, seed, direction))
        };
        Self {
            transmit: lane(transmit, 0),
            receive: lane(receive, 1),
            inner,
            out: PacketBatch::new(),
            waiting: PacketBatch::new(),
            asked: Instant::ZERO,
            failed: None,
            closed: 0,
        }
    }

    /// Returns what was done to packets on the way out and on the way in.
    pub fn fault_stats(&self) -> (FaultStats, FaultStats) {
        let of = |lane: &Option<Lane>| match lane {
            None => FaultStats::default(),
            Some(lane) => FaultStats {
                lost: lane.drops.dropped(DropCause::FaultLoss),
                burst_lost: lane.drops.dropped(DropCause::FaultBurst),
                queue_dropped: lane.drops.dropped(DropCause::FaultQueue),
                ..lane.stats
            },
        };
        (of(&self.transmit), of(&self.receive))
    }

    /// Packets on their way, out and in.
    pub fn held_packets(&self) -> (usize, usize) {
        let of = |lane: &Option<Lane>| lane.as_ref().map_or(0, Lane::held_packets);
        (of(&self.transmit) + self.out.len(), of(&self.receive) + self.waiting.len())
    }

    /// The wrapped link.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// True while the way in is full: what the inner link has waits there, and is no reason to be
    /// awake. There is a place once what is on its way has come out.
    fn takes_nothing(&self) -> bool {
        self.receive.as_ref().is_some_and(Lane::is_full)
    }

    /// Hands what is due on the way out to the inner link, until it takes no more.
    fn flush(&mut self, now: Instant, pool: &Pool) {
        let Some(lane) = &mut self.transmit else { return };
        loop {
            lane.leave(now, &mut self.out);
            if self.out.is_empty() {
                return;
            }
            if let Err(error) = self.inner.transmit(now, pool, &mut self.out) {
                return self.fail(error);
            }
            if !self.out.is_empty() {
                return;
            }
        }
    }

    /// Takes packets in on the way out, or hands them on where nothing happens there.
    fn send(&mut self, now: Instant, pool: &Pool, batch: &mut PacketBatch) {
        let Some(lane) = &mut self.transmit else {
            if let Err(error) = self.inner.transmit(now, pool, batch) {
                self.fail(error);
            }
            return;
        };
        // A packet that the inner link refuses holds up the caller, as without the wrapper.
        while self.out.is_empty() && !lane.is_full() {
            let Some(packet) = batch.pop() else { break };
            lane.enter(now, packet, pool);
        }
        self.flush(now, pool);
    }

    /// The inner link is broken for good: it is asked for nothing more, and what is on its way
    /// there is lost.
    #[cold]
    fn fail(&mut self, error: LinkError) {
        if let Some(lane) = &mut self.transmit {
            // These packets were due, and the inner link had not taken them.
            lane.stats.left -= self.out.len() as u64;
            self.closed += self.out.len() + lane.clear();
            self.out.clear();
        }
        self.failed = Some(error);
    }

    /// Tells that the inner link has failed, once nothing is on its way in any more: who is told
    /// does not ask again.
    fn tell(&mut self) -> Result<(), LinkError> {
        if self.failed.is_some()
            && self.held_packets().1 == 0
            && let Some(error) = self.failed.take()
        {
            return Err(error);
        }
        Ok(())
    }

    /// Keeps the error of a call of the inner link, and returns the rest of its result, before
    /// which no fault stands.
    fn told<T: Default>(&mut self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        result.or_else(|error| {
            self.fail(error);
            self.tell().map(|()| T::default())
        })
    }

    /// Drops what is to be sent by a link that has failed.
    #[cold]
    fn lose(&mut self, batch: &mut PacketBatch) {
        self.closed += batch.len();
        batch.clear();
    }
}

impl<L: Link> Link for Fault<L> {
    forward_link!(
        self => self.inner;
        capabilities, share, is_down, refresh, notes, details, name
    );

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.flush(now, pool);
        let Some(lane) = &mut self.receive else {
            self.tell()?;
            let received = self.inner.receive(now, pool, batch);
            return self.told(received);
        };
        self.asked = now;
        let mut count = lane.leave(now, batch);
        lane.enter_all(now, &mut self.waiting, pool);
        if !batch.is_full() && !lane.is_full() {
            let received = match self.failed {
                None => self.inner.receive(now, pool, &mut self.waiting),
                Some(_) => Ok(0),
            };
            lane.enter_all(now, &mut self.waiting, pool);
            count += lane.leave(now, batch);
            lane.enter_all(now, &mut self.waiting, pool);
            if let Err(error) = received {
                self.fail(error);
            }
        }
        if count == 0 {
            self.tell()?;
        }
        Ok(count)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        let is_of_use = !self.takes_nothing() || self.inner.wants_write();
        // The descriptor of a link that has failed may be readable for ever.
        self.inner.wait_fd().filter(|_| is_of_use && self.failed.is_none())
    }

    fn wants_write(&self) -> bool {
        self.failed.is_none() && self.inner.wants_write()
    }

    fn prepare_sleep(&mut self) -> bool {
        if self.failed.is_some() {
            return self.held_packets().1 != 0;
        }
        self.inner.prepare_sleep() || self.takes_nothing()
    }

    fn places(&self) -> bool {
        self.receive.is_none() && self.inner.places()
    }

    fn receive_into(
        &mut self,
        now: Instant,
        pool: &Pool,
        head_len: usize,
        memory: &mut [u8],
    ) -> Result<Option<Placed>, LinkError> {
        self.flush(now, pool);
        if self.receive.is_some() {
            return Ok(None);
        }
        self.tell()?;
        let placed = self.inner.receive_into(now, pool, head_len, memory);
        self.told(placed)
    }

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let before = batch.len();
        self.flush(now, pool);
        if self.failed.is_none() {
            self.send(now, pool, batch);
        }
        if self.failed.is_some() {
            self.tell()?;
            self.lose(batch);
        }
        Ok(before - batch.len())
    }

    fn next_deadline(&self) -> Option<Instant> {
        // A packet that is due but blocked waits for the inner link's room, not for time.
        let transmit = if self.out.is_empty() {
            self.transmit.as_ref().and_then(Lane::next_release)
        } else {
            None
        };
        let receive = self.receive.as_ref().and_then(Lane::next_release);
        if self.failed.is_some() {
            // With nothing on its way in any more the error is due.
            return Some(receive.unwrap_or(self.asked));
        }
        let inner = self.inner.next_deadline();
        // A packet that was due in there at the last look waits for a place here.
        let inner = inner.filter(|&due| due > self.asked || !self.takes_nothing());
        [transmit, receive, inner].into_iter().flatten().min()
    }

    fn stats(&self) -> LinkStats {
        let mut stats = self.inner.stats();
        for lane in [&self.transmit, &self.receive].into_iter().flatten() {
            for (total, drops) in stats.drops.iter_mut().zip(lane.drops.drops) {
                *total += drops;
            }
        }
        stats.count_drops(DropCause::Closed, self.closed);
        stats
    }
}
