//! Exceptions among the bytes in flight: selectively acknowledged, lost, sent again.

use std::collections::VecDeque;

use millstream_packet::Instant;

use super::Sent;
use crate::ordered::OrderedMap;
use crate::ranges::RangeSet;

/// A range in flight again.
#[derive(Clone, Copy)]
pub(super) struct Resent {
    pub(super) end: u64,
    pub(super) at: Instant,
}

pub(super) struct Exceptions {
    pub(super) sacked: RangeSet,
    pub(super) lost: RangeSet,
    pub(super) resent: OrderedMap<Resent>,
    /// Retransmissions in order of time; entries whose range was delivered or lost since are
    /// skipped.
    pub(super) resent_order: VecDeque<Sent>,
    /// Pieces that ACKs have added to `sacked` since it was empty, or since some of it was
    /// acknowledged.
    pub(super) reports: u32,
    /// First transmissions below this offset were judged by RACK already.
    pub(super) judged: u64,
    /// Bytes that were ever sent again: when they arrive, nobody knows which of the transmissions
    /// that is (Karn).
    pub(super) again: RangeSet,
    /// Ranges being worked on; kept so that nothing is allocated each time.
    pub(super) scratch: Vec<Sent>,
}

impl Exceptions {
    /// Ranges that there is memory for.
    pub(super) fn capacity(&self) -> usize {
        let Self { sacked, lost, resent, resent_order, reports: _, judged: _, again, scratch } =
            self;
        let sets = sacked.capacity() + lost.capacity() + resent.capacity() + again.capacity();
        sets + resent_order.capacity() + scratch.capacity()
    }

    pub(super) fn take_resent(
        &mut self,
        start: u64,
        end: u64,
        mut f: impl FnMut(u64, u64, Instant),
    ) {
        if self.resent.is_empty() {
            return;
        }
        let mut at = start;
        while at < end {
            let inside = self.resent.floor(at).filter(|(_, r)| r.end > at).map(|(s, r)| (s, *r));
            let found = inside.or_else(|| self.resent.ceiling(at).map(|(s, r)| (s, *r)));
            let Some((from, range)) = found.filter(|(from, _)| *from < end) else { return };
            self.resent.remove(from);
            if from < start {
                self.resent.insert(from, Resent { end: start, at: range.at });
            }
            if range.end > end {
                self.resent.insert(end, range);
            }
            f(from.max(start), range.end.min(end), range.at);
            at = range.end;
        }
    }

    /// The lowest offset of `[start, end)` that was sent only once, and the end of the highest.
    pub(super) fn sent_once(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let low = self.again.containing(start).map_or(start, |(_, to)| to);
        if low >= end {
            return None;
        }
        let high = self.again.containing(end - 1).map_or(end, |(from, _)| from);
        Some((low, high))
    }

    pub(super) fn take_scratch(&mut self) -> Vec<Sent> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch
    }

    /// The first transmission of `[start, end)` is lost; what was sent again since is in flight
    /// still.
    pub(super) fn mark_original_lost(&mut self, start: u64, end: u64) -> u64 {
        let mut again = self.take_scratch();
        self.take_resent(start, end, |start, end, at| again.push(Sent { start, end, at }));
        let mut newly = self.mark_lost(start, end);
        for part in &again {
            self.lost.remove(part.start, part.end, |from, to| newly -= to - from);
            self.resent.insert(part.start, Resent { end: part.end, at: part.at });
        }
        self.scratch = again;
        newly
    }

    /// The retransmission `record` is lost, where nothing was sent after it or arrived.
    pub(super) fn mark_resent_lost(&mut self, record: Sent) -> u64 {
        let mut parts = self.take_scratch();
        self.take_resent(record.start, record.end, |start, end, at| {
            parts.push(Sent { start, end, at })
        });
        let mut newly = 0;
        for part in &parts {
            if part.at == record.at {
                newly += self.mark_lost(part.start, part.end);
            } else {
                self.resent.insert(part.start, Resent { end: part.end, at: part.at });
            }
        }
        self.scratch = parts;
        newly
    }

    pub(super) fn mark_lost(&mut self, start: u64, end: u64) -> u64 {
        let mut gaps = std::mem::replace(&mut self.sacked, RangeSet::new(1, 0));
        let mut newly = 0;
        gaps.gaps(start, end, |from, to| {
            self.lost.insert(from, to, |a, b| newly += b - a);
            self.take_resent(from, to, |_, _, _| ());
        });
        std::mem::swap(&mut self.sacked, &mut gaps);
        newly
    }
}
