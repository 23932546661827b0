//! The receiving direction: what arrived, in order and ahead, what was acknowledged, and the window
//! that the peer is offered.

mod memory;
mod reassembly;
mod store;
mod timestamps;
mod tune;
mod window;

use millstream_packet::{Instant, Packet, Piece, Pool};
use millstream_wire::tcp::{SackBlocks, SeqNumber};

use crate::stream::StreamQueue;
use crate::ticks::ticks;
use crate::tuning::RECEIVED_MSS_START_BYTES;
use memory::MemoryLimit;
use reassembly::Reassembly;
use timestamps::TsRecent;
use tune::{AutoTune, Density};
use window::Bursts;

/// Sequence space, window and queues of the receiving direction. Offsets count from the peer's
/// initial sequence number: its SYN is at 0, its data begins at 1.
///
/// ```text
///   read            nxt                                  edge
///    |    queue      |  missing  [ reassembly ]           |
///    +---------------+------------------------------------+
///                    ^ acknowledged up to here: `acked`, once that was sent
/// ```
pub(crate) struct Receiver {
    irs: SeqNumber,
    nxt: u64,
    /// Right edge of the window that was offered; never moves left.
    edge: u64,
    /// `nxt` in the last ACK sent (RFC 7323: Last.ACK.sent).
    acked: u64,
    /// Offset of the peer's FIN, once it was seen; [`NO_FIN`] before.
    fin: u64,
    queue: StreamQueue,
    reassembly: Option<Box<Reassembly>>,
    /// The same, empty, kept for the next time.
    spare: Option<Box<Reassembly>>,
    /// Memory that the window is offered for.
    limit_bytes: usize,
    /// The range that arrived twice and is to be reported; empty: none.
    dsack: (u64, u64),
    tune: AutoTune,
    density: Density,
    /// The peer's timestamps.
    pub(crate) ts_recent: TsRecent,
    /// The owner's limit of memory.
    pub(crate) memory_limit: MemoryLimit,
    /// Largest segment payload seen: what "full-sized" means for the ACK policy.
    mss_estimate: u32,
    /// When data and when an acceptable ACK came last, in [`ticks`].
    data_at: u32,
    ack_at: u32,
    bursts: Bursts,
    /// Shift of our window field (RFC 7323: Rcv.Wind.Shift).
    shift: u8,
    /// Busy connections of this host, as the power of two at or above.
    sharers: u8,
    /// Nobody reads any more.
    pub(crate) is_shut: bool,
}

/// No FIN was seen: as if it came at the end of all sequence space.
const NO_FIN: u64 = u64::MAX;

impl Receiver {
    /// Nothing received. Memory is `limit_bytes` now, and never more than twice `most_bytes`.
    pub(crate) fn new(
        most_bytes: usize,
        limit_bytes: usize,
        mss_bytes: u32,
        now: Instant,
    ) -> Receiver {
        Receiver {
            irs: SeqNumber(0),
            nxt: 0,
            edge: 0,
            acked: 0,
            fin: NO_FIN,
            // The machine decides what is taken; the queue's own limit is a last line.
            queue: StreamQueue::new(2 * most_bytes),
            reassembly: None,
            spare: None,
            limit_bytes,
            dsack: (0, 0),
            tune: AutoTune::new(now),
            density: Density::new(),
            ts_recent: TsRecent::new(now),
            memory_limit: MemoryLimit::NONE,
            mss_estimate: mss_bytes,
            data_at: ticks(now),
            ack_at: ticks(now),
            bursts: Bursts::default(),
            shift: 0,
            sharers: 0,
            is_shut: false,
        }
    }

    /// The peer's SYN came: its data begins behind it, in segments of `mss_bytes` at most as far as
    /// is known. Our window field will have this `shift`.
    pub(crate) fn on_peer_syn(&mut self, irs: SeqNumber, shift: u8) {
        (self.irs, self.nxt, self.acked, self.shift) = (irs, 1, 1, shift);
    }

    /// RFC 7323 4.3: takes the timestamp of a segment that begins at `start`, if that is at or
    /// before the last ACK sent.
    #[inline(always)]
    pub(crate) fn remember_timestamp(&mut self, now: Instant, value: u32, start: u64) {
        if start <= self.acked
            && (self.ts_recent.behind(value) <= 0 || self.ts_recent.is_stale(now))
        {
            self.ts_recent.set(now, value);
        }
    }

    /// Memory that the queue stands for: what it holds, and no less than its bytes. A view of what
    /// another queue holds (a pair's ends share frames) is charged for next to nothing, and
    /// outlives it.
    #[inline(always)]
    pub(super) fn queue_held_bytes(&self) -> usize {
        self.queue.held_bytes().max(self.queue.len())
    }

    /// Memory held by what waits to be read, or is out of order.
    #[inline(always)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.queue_held_bytes() + self.early_held_bytes()
    }

    /// Memory held by what is out of order.
    #[inline(always)]
    pub(crate) fn early_held_bytes(&self) -> usize {
        self.reassembly.as_ref().map_or(0, |reassembly| reassembly.held_bytes())
    }

    /// Memory that the window is offered for at most.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Sets it, for good. All of it is offered, until reads show that less is enough.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit_bytes = bytes;
        self.tune.allow(bytes);
        self.queue.set_limit(2 * bytes);
    }

    /// Drops what is out of order, the farthest first, until it holds no more than `keep_bytes`;
    /// how many bytes of memory that gave back.
    pub(crate) fn prune_early(&mut self, keep_bytes: usize) -> usize {
        self.spare = None;
        let held = self.early_held_bytes();
        if let Some(reassembly) = self.reassembly.as_mut() {
            reassembly.prune(keep_bytes);
            if reassembly.is_empty() {
                self.reassembly = None;
            }
        }
        held.saturating_sub(self.early_held_bytes())
    }

    /// Returns the end of what was offered.
    #[cfg(test)]
    pub(crate) fn edge(&self) -> u64 {
        self.edge
    }

    /// Offset of the next byte that is expected (RFC 9293: RCV.NXT).
    #[inline(always)]
    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Returns the bytes that the peer may still send before it hears of more.
    #[inline(always)]
    pub(crate) fn window_bytes(&self) -> u64 {
        self.edge.saturating_sub(self.nxt)
    }

    /// An offset as it stands on the wire.
    #[inline(always)]
    pub(crate) fn seq(&self, offset: u64) -> SeqNumber {
        SeqNumber(self.irs.0.wrapping_add(offset as u32))
    }

    /// The sequence number that is expected next.
    #[inline(always)]
    pub(crate) fn next_seq(&self) -> SeqNumber {
        self.seq(self.nxt)
    }

    /// The offset that a sequence number near [`nxt`](Self::nxt) stands for; negative when it lies
    /// before the peer's first.
    #[inline(always)]
    pub(crate) fn offset_of(&self, seq: SeqNumber) -> i64 {
        let distance = seq.0.wrapping_sub(self.next_seq().0) as i32;
        self.nxt as i64 + i64::from(distance)
    }

    /// Returns whether a segment from `start` to `end` is acceptable by its place (RFC 9293
    /// 3.10.7.4 table 6).
    pub(crate) fn is_acceptable(&self, start: i64, end: i64) -> bool {
        let nxt = self.nxt as i64;
        let edge = self.edge.max(self.nxt) as i64;
        // RFC 9293 3.10.7.4: a window of zero takes no data, but the acknowledgement and the window
        // that come with it count, and so does a FIN
        if start == nxt {
            return true;
        }
        let inside = |offset: i64| nxt <= offset && offset < edge;
        let reaches_in = || inside(end - 1) || edge > nxt && start < nxt && end > edge;
        inside(start) || end > start && reaches_in()
    }

    /// Where data that may be taken ends: at the edge of the window, or at a FIN that was seen.
    #[inline]
    pub(crate) fn data_edge(&self) -> u64 {
        self.fin.min(self.edge)
    }

    /// An ACK of all that came was sent.
    #[inline(always)]
    pub(crate) fn on_ack_sent(&mut self) {
        self.acked = self.nxt;
    }

    /// The peer's FIN was seen, whether or not all before it is here.
    #[inline(always)]
    pub(crate) fn has_seen_fin(&self) -> bool {
        self.fin != NO_FIN
    }

    /// Returns true where all data lies in order, is for a reader, and nothing else is to be told.
    pub(crate) fn has_only_data(&self) -> bool {
        self.is_in_order() && !self.has_dsack() && !self.has_seen_fin() && !self.is_shut
    }

    /// The peer's FIN has come, and everything before it.
    pub(crate) fn has_ended(&self) -> bool {
        self.nxt > self.fin
    }

    /// A FIN stands at offset `at`, in the window or before it. True: the peer is to hear at once
    /// of how far it got. A FIN before data that are here already contradicts them: it is not
    /// taken, or the stream would pass it by.
    pub(crate) fn note_fin(&mut self, at: i64) -> bool {
        let highest = self.reassembly.as_ref().map_or(0, |r| r.highest());
        let is_new = at >= self.nxt.max(highest) as i64 && !self.has_seen_fin();
        let fits = at <= self.edge as i64;
        if is_new && fits {
            self.fin = at as u64;
        }
        // ahead of something missing, for that a duplicate ACK goes, as for data; or again: our ACK
        // was lost
        is_new && fits || at < self.nxt.max(highest) as i64
    }

    /// Takes the FIN if everything before it is here (RFC 9293 3.10.7.4, eighth). Whether it was
    /// taken.
    pub(crate) fn take_fin(&mut self) -> bool {
        let is_next = self.fin == self.nxt;
        if is_next {
            self.nxt += 1;
            self.edge = self.edge.max(self.nxt);
            self.reassembly = None;
        }
        is_next
    }

    /// Bytes of the peer's stream that arrived in order.
    pub(crate) fn bytes_received(&self) -> u64 {
        (self.nxt - u64::from(self.has_ended())).saturating_sub(1)
    }

    /// Bytes of the peer's stream that were read, or discarded.
    pub(crate) fn read_offset(&self) -> u64 {
        self.bytes_received() - self.queue.len() as u64
    }

    /// Returns the queue of data that waits to be read.
    #[inline(always)]
    pub(crate) fn queue(&self) -> &StreamQueue {
        &self.queue
    }

    /// As [`StreamQueue::survey`].
    pub(crate) fn survey_queue(
        &mut self,
        by: u64,
        from: Option<u64>,
        most: usize,
        see: impl FnMut(Piece),
    ) -> Option<u64> {
        self.queue.survey(by, from, most, see)
    }

    /// Copies bytes that wait to be read into `out`: how many.
    #[inline]
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        self.queue.read(out)
    }

    /// Takes at most `max` of them out as a packet; none: frames are wanting.
    pub(crate) fn read_packet(&mut self, max: usize, pool: &Pool) -> Option<Packet> {
        self.queue.take(self.queue.len().min(max), pool)
    }

    /// Drops what waits to be read: how many bytes that were.
    pub(crate) fn discard_unread(&mut self) -> usize {
        let all = self.queue.len();
        self.queue.discard(all);
        all
    }

    /// Returns whether a reader waits for what comes next: nothing lies before it that was not
    /// read.
    #[inline(always)]
    pub(crate) fn is_all_read(&self) -> bool {
        self.queue.is_empty() && !self.is_shut
    }

    /// Nothing is out of order.
    #[inline(always)]
    pub(crate) fn is_in_order(&self) -> bool {
        self.reassembly.is_none()
    }

    /// Returns the data out of order: bytes, and ranges.
    pub(crate) fn early(&self) -> (u64, usize) {
        self.reassembly.as_ref().map_or((0, 0), |r| (r.bytes(), r.ranges()))
    }

    /// The connection has ended: what is out of order will not be joined.
    pub(crate) fn drop_early(&mut self) {
        self.reassembly = None;
    }

    /// Gives back the memory that only a busy connection needs. True: nothing is held.
    pub(crate) fn release(&mut self) -> bool {
        self.queue.release();
        self.spare = None;
        self.queue.is_empty() && self.is_in_order()
    }

    /// `range` arrived twice, which the next ACK reports (RFC 2883 section 4).
    pub(crate) fn set_dsack(&mut self, range: (u64, u64)) {
        self.dsack = range;
    }

    /// Something that arrived twice is still to be reported.
    #[inline(always)]
    pub(crate) fn has_dsack(&self) -> bool {
        self.dsack.0 != self.dsack.1
    }

    /// Returns the range that arrived twice, once.
    pub(crate) fn take_dsack(&mut self) -> Option<(u64, u64)> {
        let range = std::mem::take(&mut self.dsack);
        (range.0 != range.1).then_some(range)
    }

    /// Puts the ranges that are out of order into `blocks`, no more than `limit` in all. True:
    /// there are more to tell of.
    pub(crate) fn put_sack(&mut self, limit: usize, blocks: &mut SackBlocks) -> bool {
        let irs = self.irs.0;
        let wire = |offset: u64| SeqNumber(irs.wrapping_add(offset as u32));
        self.reassembly.as_mut().is_some_and(|r| r.blocks(limit, blocks, wire))
    }

    /// Payload of the largest segments that came, in bytes.
    #[inline(always)]
    pub(crate) fn mss_estimate(&self) -> u32 {
        self.mss_estimate
    }

    /// Sets what is supposed of it until data come: `mss` is the size of our own segments.
    pub(crate) fn suppose_mss(&mut self, mss: u32) {
        self.mss_estimate = mss.min(RECEIVED_MSS_START_BYTES);
    }

    /// Data of `len` bytes came in segments of `size`, which tells how large the peer's are. Small
    /// segments, merged or not, do not say that the peer cannot send larger ones.
    #[inline]
    pub(crate) fn note_segment_size(&mut self, len: usize, size: usize) {
        let estimate = self.mss_estimate as usize;
        let tells = len >= estimate && size >= RECEIVED_MSS_START_BYTES as usize;
        if size >= estimate || tells {
            self.mss_estimate = size as u32;
        }
    }

    /// An acceptable ACK came.
    #[inline(always)]
    pub(crate) fn note_ack(&mut self, now: Instant) {
        self.ack_at = ticks(now);
    }

    /// Data came with the ACK that was [noted](Self::note_ack).
    #[inline(always)]
    pub(crate) fn note_data(&mut self) {
        self.data_at = self.ack_at;
    }

    /// The peer was heard last at that moment, before the connection was made.
    pub(crate) fn was_heard(&mut self, at: Instant) {
        (self.data_at, self.ack_at) = (ticks(at), ticks(at));
    }

    /// When data and when an acceptable ACK came last, in [`ticks`].
    pub(crate) fn heard_at(&self) -> (u32, u32) {
        (self.data_at, self.ack_at)
    }

    /// Invariants that hold between calls.
    #[inline(always)]
    pub(crate) fn check(&self) {
        debug_assert!(
            self.nxt <= self.edge + 2,
            "FIN and SYN aside, nothing beyond the window is taken"
        );
    }

    /// Checks that what is acknowledged, in order and ahead fits together.
    #[cfg(test)]
    pub(crate) fn check_order(&self) {
        assert!(self.acked <= self.nxt, "acknowledged what did not arrive");
        if let Some(reassembly) = self.reassembly.as_ref() {
            assert!(!reassembly.is_empty(), "an empty set is kept");
            let lowest = reassembly.lowest();
            assert!(lowest.is_some_and(|start| start > self.nxt), "in order, and not delivered");
            assert!(
                reassembly.bytes() <= self.edge - self.nxt,
                "more out of order than the window"
            );
        }
    }

    /// Bytes of memory of one range that is out of order, frames aside.
    #[cfg(test)]
    pub(crate) const RANGE_BYTES: usize = Reassembly::RANGE_BYTES;

    /// Memory for what is out of order is kept for the next time.
    #[cfg(test)]
    pub(crate) fn has_spare(&self) -> bool {
        self.spare.is_some()
    }
}

#[cfg(test)]
mod tests {
    use millstream_packet::PoolConfig;

    use super::*;
    use crate::config::Config;

    /// One that has a peer, which has sent nothing but its SYN, with a window of 65,535 bytes.
    pub(super) fn receiver() -> Receiver {
        let mut rcv = Receiver::new(1 << 20, 1 << 17, 1000, Instant::ZERO);
        rcv.on_peer_syn(SeqNumber(u32::MAX), 0);
        rcv.offer_syn_window();
        rcv
    }

    fn pool() -> Pool {
        Pool::new(PoolConfig::default()).expect("memory")
    }

    fn packet(pool: &Pool, len: usize) -> Packet {
        Packet::from_slice(pool, 0, &vec![7; len]).expect("a frame")
    }

    #[test]
    fn a_segment_is_acceptable_if_a_part_of_it_lies_in_the_window() {
        let mut rcv = receiver();
        let edge = rcv.edge() as i64;
        assert_eq!((rcv.offset_of(SeqNumber(0)), rcv.offset_of(SeqNumber(u32::MAX))), (1, 0));
        for (start, end, expected) in [
            (1, 1, true),
            (0, 0, false),
            (edge - 1, edge - 1, true),
            (edge, edge, false),
            (0, 1, false),
            (0, 2, true),
            (edge - 1, edge + 9, true),
            (edge, edge + 1, false),
            (-5, edge + 5, true),
        ] {
            assert_eq!(rcv.is_acceptable(start, end), expected, "{start} to {end}");
        }
        rcv.take_placed(edge as usize - 1);
        // a window of zero: what comes with a segment counts, its data do not
        assert!(rcv.is_acceptable(edge, edge) && rcv.is_acceptable(edge, edge + 1));
        assert!(!rcv.is_acceptable(edge - 1, edge + 1));
    }

    #[test]
    fn the_fin_is_taken_after_all_before_it_and_only_where_nothing_lies_behind_it() {
        let pool = pool();
        let (mut rcv, config) = (receiver(), Config::default());
        rcv.keep_early(11, packet(&pool, 10), &config, 1, &pool);
        assert!(rcv.note_fin(15) && !rcv.has_seen_fin(), "it contradicts what is here");
        assert!(rcv.note_fin(21) && rcv.has_seen_fin());
        assert!(!rcv.note_fin(30), "there is one already");
        assert!(!rcv.take_fin());
        assert_eq!(rcv.data_edge(), 21);
        assert!(rcv.take_next(packet(&pool, 10), &config, &pool).is_stored);
        assert_eq!(rcv.join(&pool), None);
        assert!(rcv.take_fin() && rcv.has_ended());
        assert_eq!((rcv.nxt(), rcv.bytes_received(), rcv.read_offset()), (22, 20, 0));
        assert!(rcv.note_fin(21), "it came again: our ACK was lost");
        assert_eq!((rcv.discard_unread(), rcv.read_offset()), (20, 20));
    }

    #[test]
    fn what_arrived_twice_is_reported_once() {
        let pool = pool();
        let (mut rcv, config) = (receiver(), Config::default());
        assert_eq!(rcv.keep_early(11, packet(&pool, 10), &config, 1, &pool).duplicate, None);
        let kept = rcv.keep_early(16, packet(&pool, 10), &config, 1, &pool);
        assert_eq!((kept.duplicate, kept.gained, rcv.early()), (Some((16, 21)), 5, (15, 1)));
        // what fills the gap reaches into it
        rcv.take_next(packet(&pool, 12), &config, &pool);
        let twice = rcv.join(&pool);
        assert_eq!((twice, rcv.nxt(), rcv.is_in_order()), (Some((11, 13)), 26, true));
        rcv.set_dsack((11, 13));
        assert_eq!((rcv.has_dsack(), rcv.take_dsack()), (true, twice));
        assert_eq!((rcv.has_dsack(), rcv.take_dsack()), (false, None));
    }

    #[test]
    fn what_is_out_of_order_gives_way_where_the_owner_has_little() {
        let pool = pool();
        let (mut rcv, config) = (receiver(), Config::default());
        rcv.keep_early(5001, packet(&pool, 1000), &config, 1, &pool);
        let held = rcv.held_bytes();
        rcv.memory_limit.set(Some(held));
        let kept = rcv.keep_early(9001, packet(&pool, 1000), &config, 1, &pool);
        assert!(
            kept.is_dropped && rcv.memory_limit.take_refused() && !rcv.memory_limit.take_refused()
        );
        let stored = rcv.take_next(packet(&pool, 1000), &config, &pool);
        assert_eq!((stored.is_stored, stored.dropped), (true, 1));
        assert_eq!((rcv.join(&pool), rcv.early()), (None, (0, 0)));
        assert!(rcv.held_bytes() <= held);
        let held = rcv.held_bytes();
        rcv.memory_limit.set(Some(held));
        while rcv.take_next(packet(&pool, 1000), &config, &pool).is_stored {}
        assert!(rcv.memory_limit.take_refused() && rcv.held_bytes() <= held);
    }
}
