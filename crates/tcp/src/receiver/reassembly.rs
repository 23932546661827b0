//! Data that arrived ahead of what is missing.

mod range;

use millstream_packet::{ByteQueue, Packet, Pool};
use millstream_wire::tcp::SackBlocks;

use crate::limits::REASSEMBLY_RANGES;
use crate::ordered::OrderedMap;
use range::Range;

/// Fate of a segment that was offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inserted {
    /// Bytes taken.
    pub(crate) bytes: u64,
    /// The first part that was there already (for D-SACK).
    pub(crate) duplicate: Option<(u64, u64)>,
    /// Something was dropped for want of memory or ranges.
    pub(crate) dropped: bool,
}

/// Ranges for which memory is kept while nothing is out of order.
const SPARE_RANGES: usize = 16;

/// Ranges remembered in the order in which they grew: as many as may grow before one of the ACKs
/// for them leaves.
const RECENT: usize = 16;

/// Disjoint ranges of bytes with gaps between them, limited in number and in memory held.
///
/// Finding a place is logarithmic in the number of ranges; each range that a segment bridges
/// disappears. A range of few bytes holds no frame, and none holds much more than its bytes need:
/// see [`Range`].
pub(crate) struct Reassembly {
    ranges: OrderedMap<Range>,
    bytes: u64,
    /// Frames and blocks; what stands around them comes on top ([`held_bytes`](Self::held_bytes)).
    held: usize,
    /// Offsets inside ranges, the most recently grown first (RFC 2018 section 4).
    recent: [u64; RECENT],
    /// So many of them grew and were not reported since.
    untold: usize,
}

impl Reassembly {
    /// Bytes of memory of one range, frames aside.
    pub(crate) const RANGE_BYTES: usize = OrderedMap::<Range>::NODE_BYTES;

    /// Bytes of memory of as many ranges as there is room for with the first one.
    pub(crate) const FIRST_RANGES_BYTES: usize =
        OrderedMap::<Range>::STEP_NODES * Self::RANGE_BYTES;

    pub(crate) fn new(seed: u32) -> Self {
        let ranges = OrderedMap::new(seed);
        Reassembly { ranges, bytes: 0, held: 0, recent: [0; RECENT], untold: 0 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory, that of the ranges themselves among them.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_with(self.ranges.capacity())
    }

    /// The same with room for so many ranges.
    fn held_with(&self, capacity: usize) -> usize {
        self.held + capacity * Self::RANGE_BYTES
    }

    /// Offset after the last byte held.
    pub(crate) fn highest(&self) -> u64 {
        self.ranges.last().map_or(0, |(start, range)| start + range.len() as u64)
    }

    pub(crate) fn ranges(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Where the first range begins.
    #[cfg(test)]
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.ranges.ceiling(0).map(|(start, _)| start)
    }

    /// Holds memory for few ranges.
    pub(crate) fn is_small(&self) -> bool {
        self.ranges.capacity() <= SPARE_RANGES
    }

    fn containing(&self, offset: u64) -> Option<(u64, u64)> {
        let (start, range) = self.ranges.floor(offset)?;
        let end = start + range.len() as u64;
        (end > offset).then_some((start, end))
    }

    fn next_start(&self, offset: u64) -> Option<u64> {
        self.ranges.ceiling(offset).map(|(start, _)| start)
    }

    /// Offers `packet`, whose first byte is at `start`; memory held may grow up to `memory_bytes`.
    /// Data that are there already are kept, the packet is cut to fit the gaps.
    pub(crate) fn insert(
        &mut self,
        start: u64,
        packet: Packet,
        memory_bytes: usize,
        pool: &Pool,
    ) -> Inserted {
        let mut outcome = Inserted::default();
        let end = start + packet.len() as u64;
        let (mut at, mut rest) = (start, Some(packet));
        while at < end {
            let Some(mut piece) = rest.take() else { break };
            if let Some((from, to)) = self.containing(at) {
                let known = to.min(end);
                outcome.duplicate.get_or_insert((at, known));
                debug_assert!(from <= at);
                piece.trim_front((known - at) as usize);
                at = known;
                rest = Some(piece);
                continue;
            }
            let gap_end = self.next_start(at).map_or(end, |next| next.min(end));
            if gap_end < end {
                match piece.split_off((gap_end - at) as usize, pool) {
                    Ok(later) => rest = Some(later),
                    Err(_) => {
                        piece.truncate((gap_end - at) as usize);
                        outcome.dropped = true;
                    }
                }
            }
            if !self.put(at, piece, memory_bytes, pool) {
                outcome.dropped = true;
                break;
            }
            outcome.bytes += gap_end - at;
            at = gap_end;
        }
        if outcome.bytes > 0 || outcome.duplicate.is_some() {
            self.remember(start.max(outcome.duplicate.map_or(start, |_| start)), end);
        }
        outcome
    }

    /// Adds a piece that overlaps nothing, joining it with its neighbours. False, and nothing has
    /// changed, where memory, ranges or frames do not allow it.
    fn put(&mut self, at: u64, piece: Packet, memory_bytes: usize, pool: &Pool) -> bool {
        let (len, end) = (piece.len() as u64, at + piece.len() as u64);
        let room = memory_bytes.saturating_sub(self.held_bytes());
        let below =
            self.ranges.floor_mut(at).filter(|(start, range)| start + range.len() as u64 == at);
        let key = match below {
            Some((key, range)) => {
                let before = range.held_bytes();
                if !range.grow(piece, room, pool) {
                    return false;
                }
                self.held = self.held + range.held_bytes() - before;
                key
            }
            None => {
                let is_one_more = self.ranges.ceiling(end).is_none_or(|(start, _)| start != end);
                if is_one_more && self.ranges.len() >= REASSEMBLY_RANGES {
                    return false;
                }
                let with_it = self.held_with(self.ranges.capacity_with_one_more());
                let Some(room) = memory_bytes.checked_sub(with_it) else { return false };
                let Some(range) = Range::of(piece, room, pool) else { return false };
                self.held += range.held_bytes();
                self.ranges.insert(at, range);
                at
            }
        };
        self.bytes += len;
        self.join_above(key, end, pool);
        true
    }

    /// The range at `key` has grown up to `end`: one that begins there is joined to it, where there
    /// is a frame if that takes one; else they stay two, side by side.
    fn join_above(&mut self, key: u64, end: u64, pool: &Pool) {
        let Some(mut above) = self.ranges.remove(end) else { return };
        let Some((_, range)) = self.ranges.floor_mut(key) else { return };
        let before = range.held_bytes() + above.held_bytes();
        if range.join(&mut above, pool) {
            self.held = self.held + range.held_bytes() - before;
        } else {
            self.ranges.insert(end, above);
        }
    }

    fn remember(&mut self, start: u64, end: u64) {
        let Some((from, to)) = self.containing(end - 1).or_else(|| self.containing(start)) else {
            return;
        };
        let inside = |offset: u64| (from..to).contains(&offset);
        let place = self.recent.iter().position(|&offset| inside(offset));
        let place = place.unwrap_or(RECENT - 1);
        self.recent.copy_within(0..place, 1);
        self.recent[0] = from;
        self.untold += usize::from(place >= self.untold && self.untold < RECENT);
    }

    /// Moves the range that begins at or below `nxt`, if any, to the end of `queue`, without what
    /// lies below `nxt`: that came twice, and the first such piece is put into `duplicate`. How
    /// many bytes that were. A range for which there is no frame is dropped: it comes again.
    pub(crate) fn take_ready(
        &mut self,
        nxt: u64,
        duplicate: &mut Option<(u64, u64)>,
        pool: &Pool,
        mut take: impl FnMut(Ready<'_>, &Pool) -> usize,
    ) -> Option<u64> {
        loop {
            let (start, range) = self.ranges.first()?;
            if start > nxt {
                return None;
            }
            let held = range.held_bytes();
            let mut range = self.ranges.remove(start)?;
            self.held -= held;
            self.bytes -= range.len() as u64;
            let known = (nxt - start).min(range.len() as u64);
            if known > 0 {
                duplicate.get_or_insert((start, start + known));
            }
            let taken = match range.ready_behind(known as usize) {
                Some(ready) => take(ready, pool),
                None => continue,
            };
            if taken > 0 {
                return Some(taken as u64);
            }
        }
    }

    /// Drops the highest range, to make room for what the application can read sooner (RFC 2018
    /// section 8).
    pub(crate) fn drop_highest(&mut self) -> bool {
        let Some((start, range)) = self.ranges.last() else { return false };
        self.held -= range.held_bytes();
        self.bytes -= range.len() as u64;
        self.ranges.remove(start).is_some()
    }

    /// Drops the highest ranges until no more than `keep_bytes` of memory are held, and gives that
    /// back. What was reported by SACK may be dropped (RFC 2018 section 8): the peer keeps it until
    /// it is acknowledged.
    pub(crate) fn prune(&mut self, keep_bytes: usize) {
        let kept = |reassembly: &Self| reassembly.held_with(reassembly.ranges.len());
        while kept(self) > keep_bytes && self.drop_highest() {}
        self.ranges.shrink();
    }

    /// SACK blocks, the range that grew last first (RFC 2018 section 4), after a duplicate to be
    /// reported first (RFC 2883 section 4). Where more grew since the last report than there is
    /// room for, those that grew first come first, as in the ACK that was due then; true: another
    /// report is due for the others. `wire` turns an offset into a sequence number.
    pub(crate) fn blocks(
        &mut self,
        limit: usize,
        blocks: &mut SackBlocks,
        wire: impl Fn(u64) -> millstream_wire::tcp::SeqNumber,
    ) -> bool {
        let room = limit.saturating_sub(blocks.len());
        if self.untold > room {
            self.forget_merged();
        }
        let put_off = self.untold.saturating_sub(room);
        let mut seen = [0u64; 4];
        let mut count = 0;
        for &offset in &self.recent[put_off..] {
            let Some((from, to)) = self.containing(offset) else { continue };
            if blocks.len() >= limit || seen[..count].contains(&from) {
                continue;
            }
            seen[count] = from;
            count += 1;
            let _ = blocks.push(wire(from), wire(to));
        }
        self.untold = put_off;
        put_off > 0 && count > 0
    }

    /// A range that was not reported yet and has been joined to another needs no report.
    fn forget_merged(&mut self) {
        let mut kept = 0;
        for index in 0..self.untold {
            if let Some((from, _)) = self.containing(self.recent[index])
                && !self.recent[..kept].contains(&from)
            {
                self.recent[kept] = from;
                kept += 1;
            }
        }
        self.recent.copy_within(self.untold.., kept);
        self.untold = kept;
    }
}

/// Result of [`Reassembly::take_ready`]: bytes, or a queue of them.
pub(crate) enum Ready<'a> {
    Bytes(&'a [u8]),
    Queue(&'a mut ByteQueue),
}
