//! One device, several engines: each has a queue of the device and its share of the flows.
//!
//! The device spreads what it receives over its queues as it can: a packet socket by our own
//! program, a TAP by where a flow's packets last came from, AF_XDP by the hardware. What comes to
//! the wrong queue is handed over, so that every flow is served by exactly one engine whatever the
//! device does, and stays in order as long as the device keeps it on one queue.
//!
//! ```text
//!   queue 0 ──▶ engine 0 ──┐ ring of packets (SPSC) ┌──▶ engine 1 ◀── queue 1
//!               bell 0 ◀───┼────────────────────────┼───▶ bell 1
//!                          └◀──── and back ◀────────┘
//! ```
//!
//! There is a ring from each engine to each other one, so no lock. Who hands over rings the other's
//! bell, and only when it sleeps (see the doorbell module). News of neighbours are copied to all.

#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use millstream_packet::ring::{Consumer, Producer, spsc};
use millstream_packet::{BATCH_LIMIT, Instant, Packet, PacketBatch, Pool};

use crate::flow::{Place, Share, Spread};
use crate::iov::compact;
use crate::sys::{EventFd, WaitSet};
use crate::virt::doorbell::{Doorbell, FRAMES, Sleeper};
use crate::{DropCause, Link, LinkError, LinkStats, Placed, forward_link, limits};

/// Bytes of a packet that show where it belongs: of all headers an ICMP error's over IPv6 are the
/// longest, those that it quotes included.
const FLOW_BYTES: usize = 128;

/// A queue of a device that several engines share; see the module text.
///
/// The ports that its engine opens must be its own: [`Link::share`] says which, and the stack goes
/// by it. A port from [`limits::SHARED_PORTS_FIRST`] on is heard by its owner alone, a listener
/// below it by every engine that has one.
#[derive(Debug)]
pub struct Shared<L> {
    inner: L,
    share: Share,
    spread: Spread,
    /// From each other engine; whose turn is first moves on.
    inbox: Vec<Consumer<Packet>>,
    turn: usize,
    /// They were asked first when one packet was asked for last.
    others_first: bool,
    /// To each engine; `None` in this one's own place.
    outbox: Vec<Option<Outbox>>,
    bell: Arc<Doorbell<EventFd>>,
    sleeper: Sleeper,
    wait: WaitSet,
    handed: Handed,
    stats: LinkStats,
}

/// The packets that the queue received for others.
#[derive(Debug, Default)]
struct Handed {
    packets: u64,
    bytes: u64,
    super_segments: u64,
}

/// The way to another engine.
#[derive(Debug)]
struct Outbox {
    ring: Producer<Packet>,
    bell: Arc<Doorbell<EventFd>>,
}

impl<L: Link> Shared<L> {
    /// Gives each of a device's queues its share, in their order.
    ///
    /// # Errors
    /// When there are no queues or more than [`limits::SHARES`], or no more file descriptors.
    pub fn over(queues: Vec<L>) -> Result<Vec<Self>, LinkError> {
        let spread = Spread::new(queues.len());
        Self::spread(queues, spread)
    }

    /// The same for queues that the device fills by `spread`, or tries to.
    pub(crate) fn spread(queues: Vec<L>, spread: Spread) -> Result<Vec<Self>, LinkError> {
        let count = queues.len();
        if count == 0 {
            return Err(LinkError::Invalid("a device without queues cannot be shared".into()));
        }
        let system = |error| LinkError::from_io("share a device", error);
        let mut bells = Vec::new();
        for _ in 0..count {
            bells.push(Arc::new(Doorbell::new(EventFd::new().map_err(system)?)));
        }
        let mut all = Vec::new();
        for (index, inner) in queues.into_iter().enumerate() {
            let bell = Arc::clone(&bells[index]);
            let wait = WaitSet::new(bell.event().as_raw_fd(), inner.wait_fd()).map_err(system)?;
            all.push(Self {
                inner,
                share: Share::new(index, count)?,
                spread,
                inbox: Vec::new(),
                turn: 0,
                others_first: false,
                outbox: Vec::new(),
                bell,
                sleeper: Sleeper::default(),
                wait,
                handed: Handed::default(),
                stats: LinkStats::default(),
            });
        }
        for from in 0..count {
            for (to, bell) in bells.iter().enumerate() {
                let outbox = (from != to).then(|| {
                    let (ring, other) = spsc(limits::HAND_OVER_PACKETS);
                    all[to].inbox.push(other);
                    Outbox { ring, bell: Arc::clone(bell) }
                });
                all[from].outbox.push(outbox);
            }
        }
        Ok(all)
    }

    /// The queue itself.
    pub fn get_ref(&self) -> &L {
        &self.inner
    }

    /// At most `limit` packets that the others have handed over, for which there is room.
    fn take_over(&mut self, limit: usize, now: Instant, batch: &mut PacketBatch) -> usize {
        let Self { inbox, turn, stats, .. } = self;
        let mut left = limit;
        let mut count = 0;
        for i in 0..inbox.len() {
            let at = (*turn + i) % inbox.len();
            let taken = inbox[at].pop_bulk(left, |mut packet| {
                packet.meta_mut().arrival = now;
                stats.rx_packets += 1;
                stats.rx_bytes += packet.len() as u64;
                stats.rx_super_segments += u64::from(packet.meta().segmentation.is_some());
                // There is room.
                let _ = batch.push(packet);
            });
            left -= taken;
            count += taken;
        }
        *turn = (*turn + 1) % inbox.len().max(1);
        count
    }

    /// The next packet that another has handed over.
    fn take_one(&mut self, now: Instant) -> Option<Packet> {
        if self.inbox.iter().all(Consumer::is_empty) {
            return None;
        }
        let mut one = PacketBatch::new();
        self.take_over(1, now, &mut one);
        one.pop()
    }

    /// A packet of the queue's, if it belongs here; others get theirs.
    fn keep_own(
        &mut self,
        placed: Placed,
        pool: &Pool,
        head_len: usize,
        memory: &mut [u8],
    ) -> Option<Placed> {
        let mut first = [0; FLOW_BYTES];
        let head = placed.head.head();
        let (before, behind) = first.split_at_mut(head.len().min(FLOW_BYTES));
        before.copy_from_slice(&head[..before.len()]);
        let more = placed.bytes.min(behind.len());
        behind[..more].copy_from_slice(&memory[..more]);
        let len = before.len() + more;
        let place = self.spread.place(&first[..len], self.inner.capabilities().medium);
        if place == Place::One(self.share.index()) {
            return Some(placed);
        }
        let Some(packet) = placed.into_packet(pool, memory) else {
            self.stats.count_drop(DropCause::PoolExhausted);
            return None;
        };
        match place {
            Place::One(index) => {
                self.hand_over(index, packet);
                None
            }
            Place::Each => {
                self.copy_to_others(&packet, pool);
                Some(Placed::lay_out(packet, pool, head_len, memory))
            }
        }
    }

    /// Takes out of `batch`, behind its first `kept` packets, what belongs to others; returns how
    /// many are left behind those.
    fn sort(&mut self, kept: usize, pool: &Pool, batch: &mut PacketBatch) -> usize {
        let Self { inner, spread, share, .. } = self;
        let (medium, spread, own) = (inner.capabilities().medium, *spread, share.index());
        let place = |packet: &Packet| spread.place(packet.head(), medium);
        if batch.iter().skip(kept).all(|packet| place(packet) == Place::One(own)) {
            return batch.len() - kept;
        }
        let mut left = 0;
        for i in 0..batch.len() {
            let Some(packet) = batch.pop() else { break };
            if i >= kept {
                match place(&packet) {
                    Place::One(index) if index != own => {
                        self.hand_over(index, packet);
                        continue;
                    }
                    Place::One(_) => {}
                    Place::Each => self.copy_to_others(&packet, pool),
                }
                left += 1;
            }
            // It came from there.
            let _ = batch.push(packet);
        }
        left
    }

    /// Gives a received packet to the engine that it belongs to.
    fn hand_over(&mut self, index: usize, packet: Packet) {
        let Self { handed, stats, .. } = self;
        handed.packets += 1;
        handed.bytes += packet.len() as u64;
        handed.super_segments += u64::from(packet.meta().segmentation.is_some());
        let Some(Some(outbox)) = self.outbox.get_mut(index) else { return };
        stats.rx_handed_over += u64::from(outbox.put(packet, stats));
    }

    /// Gives every other engine a copy.
    fn copy_to_others(&mut self, packet: &Packet, pool: &Pool) {
        let Self { outbox, stats, .. } = self;
        for outbox in outbox.iter_mut().flatten() {
            match compact(packet, pool) {
                Some(copy) => {
                    outbox.put(copy, stats);
                }
                None => stats.count_drop(DropCause::PoolExhausted),
            }
        }
    }
}

impl Outbox {
    /// Puts a packet in and wakes who sleeps for it; false when it was dropped.
    fn put(&mut self, packet: Packet, stats: &mut LinkStats) -> bool {
        if self.ring.is_closed() {
            stats.count_drop(DropCause::Closed);
            return false;
        }
        let Ok(was_empty) = self.ring.push(packet) else {
            stats.count_drop(DropCause::HandOver);
            return false;
        };
        // The ring fences when it publishes. One that was not empty has yet to be looked at.
        stats.wakeups += u64::from(was_empty && self.bell.notify(FRAMES));
        true
    }
}

impl<L: Link> Link for Shared<L> {
    forward_link!(
        self => self.inner;
        capabilities, transmit, borrows, transmit_from, places, next_deadline, is_down, refresh, notes, details,
        name
    );

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.sleeper.wake(&self.bell);
        let before = batch.len();
        // Half of the room: neither they nor the queue can crowd the other out.
        let taken = self.take_over(batch.room().div_ceil(2), now, batch);
        let result = self.inner.receive(now, pool, batch);
        // Whatever the result: no other engine's packet may stay.
        let own = match batch.len() - before - taken {
            0 => 0,
            _ => self.sort(before + taken, pool, batch),
        };
        match result {
            // It comes again next time.
            Err(error) if taken + own == 0 => Err(error),
            _ => Ok(taken + own),
        }
    }

    /// Packets that others have handed over take turns with those of the queue.
    fn receive_into(
        &mut self,
        now: Instant,
        pool: &Pool,
        head_len: usize,
        memory: &mut [u8],
    ) -> Result<Option<Placed>, LinkError> {
        self.sleeper.wake(&self.bell);
        self.others_first = !self.others_first;
        if self.others_first
            && let Some(packet) = self.take_one(now)
        {
            return Ok(Some(Placed::lay_out(packet, pool, head_len, memory)));
        }
        for _ in 0..BATCH_LIMIT {
            let Some(placed) = self.inner.receive_into(now, pool, head_len, memory)? else { break };
            if let Some(placed) = self.keep_own(placed, pool, head_len, memory) {
                return Ok(Some(placed));
            }
        }
        Ok(self.take_one(now).map(|packet| Placed::lay_out(packet, pool, head_len, memory)))
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.wait.as_raw_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        self.sleeper.announce(&self.bell, FRAMES);
        let is_quiet = self.inbox.iter().all(Consumer::is_empty)
            && self.inner.prepare_sleep()
            && self.wait.follow(self.inner.wait_fd()).is_ok()
            && self.wait.want_write(self.inner.wants_write()).is_ok();
        if !is_quiet {
            self.sleeper.wake(&self.bell);
        }
        is_quiet
    }

    fn share(&self) -> Share {
        self.share
    }

    fn stats(&self) -> LinkStats {
        let mut stats = self.inner.stats();
        let Self { handed, stats: own, .. } = self;
        // The queue's own packets include those that were handed over.
        stats.rx_packets = stats.rx_packets - handed.packets + own.rx_packets;
        stats.rx_bytes = stats.rx_bytes - handed.bytes + own.rx_bytes;
        stats.rx_super_segments =
            stats.rx_super_segments - handed.super_segments + own.rx_super_segments;
        stats.rx_handed_over += own.rx_handed_over;
        stats.wakeups += own.wakeups;
        for (all, own) in stats.drops.iter_mut().zip(own.drops) {
            *all += own;
        }
        stats
    }
}
