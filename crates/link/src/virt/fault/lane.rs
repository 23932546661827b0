//! One direction of a fault wrapper: what happens to each packet, and those still on their way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use millstream_packet::{Checksum, Instant, Packet, PacketBatch, Pool};

use super::dice::Dice;
use super::{Burst, FaultStats, Faults};
use crate::iov::compact;
use crate::limits::FAULT_QUEUE_PACKETS;
use crate::offload::{SegmentChecksum, Segmenter, complete_checksum};
use crate::{DropCause, LinkStats, Medium};

/// A packet on its way, ordered by when it comes out and then by when it went in.
struct Held {
    release: Instant,
    order: u64,
    packet: Packet,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        (self.release, self.order) == (other.release, other.order)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.release, self.order).cmp(&(other.release, other.order))
    }
}

/// A packet that waits its turn at the rate limit, or is passing it: when it is through, and the
/// memory it holds.
struct Waiting {
    through: Instant,
    held_bytes: usize,
}

pub(super) struct Lane {
    faults: Faults,
    medium: Medium,
    loss: Dice,
    burst: Dice,
    duplicate: Dice,
    corrupt: Dice,
    reorder: Dice,
    jitter: Dice,
    in_burst: bool,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// When the rate limit has let everything through that it took.
    busy_until: Instant,
    /// Packets that were not chosen for reordering come out in order.
    last_release: Instant,
    order: u64,
    held: BinaryHeap<Reverse<Held>>,
    pub stats: FaultStats,
    pub drops: LinkStats,
}

impl Lane {
    pub fn new(faults: Faults, medium: Medium, seed: u64, direction: u64) -> Self {
        let dice = |purpose: u64| Dice::new(seed, direction * 16 + purpose);
        Self {
            faults,
            medium,
            loss: dice(0),
            burst: dice(1),
            duplicate: dice(2),
            corrupt: dice(3),
            reorder: dice(4),
            jitter: dice(5),
            in_burst: false,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            busy_until: Instant::ZERO,
            last_release: Instant::ZERO,
            order: 0,
            held: BinaryHeap::new(),
            stats: FaultStats::default(),
            drops: LinkStats::default(),
        }
    }

    /// Takes `packet` in at `now`. Super-segments are cut first, so that faults meet packets as a
    /// wire carries them. It never has to be dropped for want of places, but is to be left where it
    /// is while there is [none](Self::is_full): the segments of one, and copies, may go beyond.
    pub fn enter(&mut self, now: Instant, packet: Packet, pool: &Pool) {
        let keeps_whole = self.faults.whole_super_segments && self.faults.corrupt <= 0.0;
        if packet.meta().segmentation.is_none() || keeps_whole {
            return self.enter_one(now, packet, pool);
        }
        let Ok(mut cutting) = Segmenter::new(packet, self.medium, SegmentChecksum::Partial) else {
            return self.drops.count_drop(DropCause::BadOffload);
        };
        loop {
            match cutting.next(pool) {
                Ok(Some(segment)) => self.enter_one(now, segment, pool),
                Ok(None) => return,
                Err(error) => return self.drops.count_drops(error.cause(), cutting.remaining()),
            }
        }
    }

    /// Takes in what waits, from the front and while there are places. It came by another link: the
    /// sender's own sum of the payload does not pass a wire.
    pub fn enter_all(&mut self, now: Instant, waiting: &mut PacketBatch, pool: &Pool) {
        while !self.is_full() {
            let Some(mut packet) = waiting.pop() else { return };
            packet.meta_mut().payload_sum = None;
            self.enter(now, packet, pool);
        }
    }

    fn enter_one(&mut self, now: Instant, mut packet: Packet, pool: &Pool) {
        self.stats.entered += 1;
        // Every purpose draws for every packet that gets as far, whether or not another fault
        // strikes.
        let is_lost = self.loss.hits(self.faults.loss);
        let is_burst_lost = self.faults.burst.is_some_and(|burst| self.burst_strikes(burst));
        let is_copied = self.duplicate.hits(self.faults.duplicate);
        let is_damaged = self.corrupt.hits(self.faults.corrupt);
        let bit = self.corrupt.next();
        let Some(through) = self.pass_rate(now, &packet) else {
            return self.drops.count_drop(DropCause::FaultQueue);
        };
        let (release, is_overtaken) = self.release_at(through);
        if is_lost {
            return self.drops.count_drop(DropCause::FaultLoss);
        }
        if is_burst_lost {
            return self.drops.count_drop(DropCause::FaultBurst);
        }
        if is_damaged {
            match damage(&mut packet, self.medium, bit, pool) {
                Ok(()) => self.stats.corrupted += 1,
                Err(cause) => return self.drops.count_drop(cause),
            }
        }
        let copy = if is_copied { compact(&packet, pool) } else { None };
        self.stats.reordered += u64::from(is_overtaken);
        self.hold(release, packet);
        if let Some(copy) = copy {
            self.stats.duplicated += 1;
            self.hold(release, copy);
        }
    }

    /// Gilbert's and Elliott's two-state chain: moves one step and says whether the packet is lost.
    fn burst_strikes(&mut self, burst: Burst) -> bool {
        let change = if self.in_burst { burst.leave } else { burst.enter };
        self.in_burst ^= self.burst.hits(change);
        let loss = if self.in_burst { burst.loss_inside } else { burst.loss_outside };
        self.burst.hits(loss)
    }

    /// When `packet` is through the rate limit; `None` when its queue is full.
    fn pass_rate(&mut self, now: Instant, packet: &Packet) -> Option<Instant> {
        let rate = match self.faults.rate_bits_per_s {
            Some(rate) if rate > 0 => rate,
            _ => return Some(now),
        };
        while let Some(front) = self.waiting.front() {
            if front.through > now {
                break;
            }
            self.waiting_bytes -= front.held_bytes;
            self.waiting.pop_front();
        }
        let held_bytes = packet.held_bytes();
        let is_full = self.waiting_bytes.saturating_add(held_bytes) > self.faults.queue_bytes
            || self.waiting.len() >= self.faults.queue_packets;
        if is_full && !self.waiting.is_empty() {
            return None;
        }
        let nanos = (packet.len() as u128 * 8 * 1_000_000_000).div_ceil(u128::from(rate));
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let through = self.busy_until.max(now) + time;
        self.busy_until = through;
        self.waiting_bytes += held_bytes;
        self.waiting.push_back(Waiting { through, held_bytes });
        Some(through)
    }

    /// When a packet that is through the rate limit comes out: after delay and jitter, in order,
    /// unless it is chosen to be overtaken, which is told, too.
    fn release_at(&mut self, through: Instant) -> (Instant, bool) {
        let Faults { delay, jitter, reorder, .. } = self.faults;
        let jitter_ns = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
        let extra = Duration::from_nanos(self.jitter.below(jitter_ns));
        let release = (through + delay + extra).max(self.last_release);
        if let Some(reorder) = reorder
            && self.reorder.hits(reorder.probability)
        {
            return (release + reorder.delay, true);
        }
        self.last_release = release;
        (release, false)
    }

    fn hold(&mut self, release: Instant, packet: Packet) {
        self.order += 1;
        self.held.push(Reverse(Held { release, order: self.order, packet }));
    }

    /// Moves what is due at `now` into `out`, as far as there is room; returns how many.
    pub fn leave(&mut self, now: Instant, out: &mut PacketBatch) -> usize {
        let (mut count, late_after) = (0, self.faults.late_after);
        while !out.is_full() && self.next_release().is_some_and(|release| release <= now) {
            let Some(Reverse(held)) = self.held.pop() else { break };
            self.stats.left += 1;
            self.stats.late += u64::from(now.saturating_duration_since(held.release) > late_after);
            count += 1;
            // There is room.
            let _ = out.push(held.packet);
        }
        count
    }

    /// Drops what is on its way; how many packets.
    pub fn clear(&mut self) -> usize {
        self.held.drain().count()
    }

    /// When the next packet is due.
    pub fn next_release(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse(held)| held.release)
    }

    /// True while no more packets are to be taken in.
    pub fn is_full(&self) -> bool {
        self.held.len() >= FAULT_QUEUE_PACKETS
    }

    /// Packets on their way.
    pub fn held_packets(&self) -> usize {
        self.held.len()
    }
}

/// Flips one bit after the link header, chosen by `bit`. The checksum is completed first, or the
/// other side's offload would hide the damage; what was verified is so no longer. Frames shared
/// with others are copied, not written.
fn damage(packet: &mut Packet, medium: Medium, bit: u64, pool: &Pool) -> Result<(), DropCause> {
    complete_checksum(packet, pool).map_err(|error| error.cause())?;
    packet.meta_mut().checksum = Checksum::Unverified;
    let start = medium.header_len();
    let Some(len) = packet.len().checked_sub(start).filter(|&len| len > 0) else { return Ok(()) };
    let at = start + ((u128::from(bit) * (len as u128)) >> 64) as usize;
    let mut byte = [0];
    packet.copy_to(at, &mut byte);
    byte[0] ^= 1 << (bit & 7);
    packet.write_at(pool, at, &byte).map_err(|_| DropCause::PoolExhausted)
}
