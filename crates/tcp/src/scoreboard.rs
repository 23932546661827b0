//! The sender's knowledge of the bytes between `una` and `nxt`.
//!
//! First transmissions are kept in order of sequence, which is order of time too: one record for
//! each (super-)segment, taken off at the front as ACKs arrive. As long as nothing is lost or
//! reordered that is all. Exceptions — bytes selectively acknowledged, lost, sent again — are kept
//! aside in ordered sets, made when first needed. A byte between `una` and `nxt` is in exactly one
//! of these conditions:
//!
//! ```text
//!   in flight (in no set) --SACK--> sacked
//!        |   ^                        ^
//!      judged lost                  SACK
//!        v                            |
//!       lost ------sent again----> resent (in flight again, with its time) --judged lost--> lost
//! ```
//!
//! Offsets count bytes from the initial sequence number, in 64 bits: nothing here wraps.

mod delivery;
mod exceptions;

use core::time::Duration;
use std::collections::VecDeque;

use millstream_packet::Instant;

use crate::ordered::OrderedMap;
use crate::ranges::RangeSet;
use crate::tuning::{SCOREBOARD_RANGES, SCOREBOARD_RANGES_MIN};
#[cfg(test)]
pub(crate) use delivery::Transmission;
pub(crate) use delivery::{Delivery, Judged};
use exceptions::{Exceptions, Resent};

/// One transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    start: u64,
    end: u64,
    at: Instant,
}

/// First transmissions of one moment.
#[derive(Clone, Copy, Debug)]
struct Flight {
    start: u64,
    end: u64,
    at: Instant,
    /// Segments that it was sent in.
    segments: u32,
}

/// Records and ranges for which memory is kept while nothing is outstanding.
const SPARE_LIMIT: usize = 256;

/// See the module.
pub(crate) struct Scoreboard {
    sent: VecDeque<Flight>,
    /// Segments in `sent`.
    segments: u32,
    exceptions: Option<Box<Exceptions>>,
    /// The same, empty, kept for the next time: a path that reorders needs it again and again.
    spare: Option<Box<Exceptions>>,
    /// Bytes that duplicate ACKs without SACK stand for (RFC 5681 3.2).
    duplicate_bytes: u64,
    seed: u32,
}

impl Scoreboard {
    /// Nothing sent yet.
    pub(crate) fn new(seed: u32) -> Self {
        Scoreboard {
            sent: VecDeque::new(),
            segments: 0,
            exceptions: None,
            spare: None,
            duplicate_bytes: 0,
            seed,
        }
    }

    fn exceptions(&mut self) -> &mut Exceptions {
        let Self { seed, spare, exceptions, .. } = self;
        let seed = *seed;
        exceptions.get_or_insert_with(|| {
            if let Some(mut spare) = spare.take() {
                (spare.judged, spare.reports) = (0, 0);
                return spare;
            }
            Box::new(Exceptions {
                sacked: RangeSet::new(seed, SCOREBOARD_RANGES),
                lost: RangeSet::new(seed ^ 0x5555_5555, usize::MAX),
                resent: OrderedMap::new(seed ^ 0x3333_3333),
                resent_order: VecDeque::new(),
                reports: 0,
                judged: 0,
                again: RangeSet::new(seed ^ 0x0f0f_0f0f, usize::MAX),
                scratch: Vec::new(),
            })
        })
    }

    /// `[start, end)` is sent for the first time, in so many segments.
    // Not inlined, so that the record is made in its place and not in two steps.
    #[inline(never)]
    pub(crate) fn on_send(&mut self, start: u64, end: u64, segments: u32, now: Instant) {
        self.segments += segments;
        if let Some(last) = self.sent.back_mut()
            && last.at == now
        {
            debug_assert_eq!(last.end, start);
            last.end = end;
            last.segments += segments;
            return;
        }
        self.sent.push_back(Flight { start, end, at: now, segments });
    }

    /// `[start, end)`, lost, is sent again.
    pub(crate) fn on_resend(&mut self, start: u64, end: u64, now: Instant) {
        let board = self.exceptions();
        board.lost.remove(start, end, |_, _| ());
        board.take_resent(start, end, |_, _, _| ());
        board.again.insert(start, end, |_, _| ());
        board.resent.insert(start, Resent { end, at: now });
        // RFC 8985 6.2: what was sent at one moment is in the order of its ends
        let order = &mut board.resent_order;
        let later = order.iter().rev().take_while(|r| r.at == now && r.end > end).count();
        order.insert(order.len() - later, Sent { start, end, at: now });
    }

    /// Nothing is known to be lost, sent again, or delivered out of order.
    #[inline]
    pub(crate) fn is_in_order(&self) -> bool {
        self.exceptions.is_none() && self.duplicate_bytes == 0
    }

    /// Bytes believed to be in the network (RFC 6675 section 4: pipe).
    #[inline]
    pub(crate) fn pipe(&self, una: u64, nxt: u64) -> u64 {
        let outstanding = nxt - una;
        match &self.exceptions {
            None => outstanding.saturating_sub(self.duplicate_bytes),
            Some(b) => {
                outstanding.saturating_sub(b.sacked.bytes() + b.lost.bytes() + self.duplicate_bytes)
            }
        }
    }

    /// Bytes selectively acknowledged.
    pub(crate) fn sacked_bytes(&self) -> u64 {
        self.exceptions.as_ref().map_or(0, |b| b.sacked.bytes())
    }

    /// Bytes judged lost and not sent again.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.exceptions.as_ref().map_or(0, |b| b.lost.bytes())
    }

    /// Something was judged lost and has not arrived since, whether it was sent again or not.
    pub(crate) fn awaits_lost(&self) -> bool {
        self.exceptions.as_ref().is_some_and(|b| !b.lost.is_empty() || !b.resent.is_empty())
    }

    /// Something sent again is in flight.
    #[inline]
    pub(crate) fn has_resent(&self) -> bool {
        self.exceptions.as_ref().is_some_and(|b| !b.resent.is_empty())
    }

    /// Bytes that were sent again and are in flight.
    pub(crate) fn resent_bytes(&self) -> u64 {
        let Some(resent) = self.exceptions.as_ref().map(|board| &board.resent) else { return 0 };
        let after = |end: u64| resent.ceiling(end).map(|(start, range)| (start, range.end));
        std::iter::successors(after(0), |(_, end)| after(*end))
            .map(|(start, end)| end - start)
            .sum()
    }

    /// Number of disjoint ranges selectively acknowledged.
    #[cfg(test)]
    pub(crate) fn sacked_ranges(&self) -> usize {
        self.exceptions.as_ref().map_or(0, |b| b.sacked.len())
    }

    /// Segments selectively acknowledged (RFC 8985: RACK.segs_sacked), as far as one can tell: what
    /// an ACK adds in one piece is a segment at least.
    pub(crate) fn sacked_segments(&self) -> u32 {
        self.exceptions.as_ref().map_or(0, |b| b.reports.max(b.sacked.len() as u32))
    }

    /// The whole of `[start, end)` was selectively acknowledged before.
    pub(crate) fn is_sacked(&self, start: u64, end: u64) -> bool {
        self.exceptions
            .as_ref()
            .and_then(|b| b.sacked.containing(start))
            .is_some_and(|(_, to)| to >= end)
    }

    /// The lowest range to be sent again.
    #[inline]
    pub(crate) fn next_lost(&self) -> Option<(u64, u64)> {
        self.exceptions.as_ref()?.lost.first()
    }

    /// A duplicate ACK without SACK: one segment has left the network.
    pub(crate) fn on_duplicate(&mut self, mss: u64) {
        self.duplicate_bytes += mss;
    }

    /// Bytes that duplicates stand for now.
    pub(crate) fn duplicate_bytes(&self) -> u64 {
        self.duplicate_bytes
    }

    /// New data was acknowledged without SACK: `acked` bytes, some of which the duplicates stood
    /// for.
    pub(crate) fn take_off_duplicates(&mut self, acked: u64) {
        self.duplicate_bytes = self.duplicate_bytes.saturating_sub(acked);
    }

    /// Recovery without SACK ended.
    pub(crate) fn forget_duplicates(&mut self) {
        self.duplicate_bytes = 0;
    }

    fn sent_at(&self, offset: u64) -> Option<Instant> {
        let index = self.sent.partition_point(|record| record.end <= offset);
        self.sent.get(index).map(|record| record.at)
    }

    /// Everything below `ack` has arrived; `una` is where that stood before.
    pub(crate) fn on_cumulative(&mut self, una: u64, ack: u64, delivery: &mut Delivery) {
        if self.exceptions.is_some() {
            self.on_cumulative_with_exceptions(una, ack, delivery);
        } else {
            delivery.bytes += ack - una;
        }
        if let Some(at) = self.take_sent(ack)
            && self.exceptions.is_none()
        {
            delivery.note(at, ack, false);
        }
        if let Some(board) = &self.exceptions
            && board.sacked.is_empty()
            && board.lost.is_empty()
            && board.resent.is_empty()
            && board.again.is_empty()
        {
            self.set_aside();
        }
    }

    /// The same of `acked` bytes, where nothing is exceptional.
    #[inline(always)]
    pub(crate) fn on_cumulative_in_order(&mut self, acked: u64, ack: u64, delivery: &mut Delivery) {
        delivery.bytes = acked;
        if let Some(at) = self.take_sent(ack) {
            delivery.note(at, ack, false);
        }
    }

    /// Nothing is exceptional any more. What there is memory for is kept for the next time, unless
    /// it is much and nothing is outstanding; of one that is quiet for long it goes, too
    /// ([`release`](Self::release)).
    fn set_aside(&mut self) {
        let Some(mut board) = self.exceptions.take() else { return };
        if self.sent.is_empty() && board.capacity() > SPARE_LIMIT {
            return;
        }
        board.resent_order.clear();
        self.spare = Some(board);
    }

    /// Takes what was sent below `ack` off the front; when the last of it was.
    #[inline]
    fn take_sent(&mut self, ack: u64) -> Option<Instant> {
        let mut last = None;
        while let Some(front) = self.sent.front_mut() {
            if front.end <= ack {
                last = Some(front.at);
                self.segments -= front.segments;
                self.sent.pop_front();
                continue;
            }
            if front.start < ack {
                front.start = ack;
                last = Some(front.at);
            }
            break;
        }
        last
    }

    fn on_cumulative_with_exceptions(&mut self, una: u64, ack: u64, delivery: &mut Delivery) {
        let Some(board) = self.exceptions.as_mut() else { return };
        let mut parts = board.take_scratch();
        board
            .sacked
            .gaps(una, ack, |start, end| parts.push(Sent { start, end, at: Instant::ZERO }));
        // how many of the segments reported lay there is not known: what is left is as many as it
        // has pieces, at least
        board.sacked.remove_below(ack, |_, _| board.reports = 0);
        board.judged = board.judged.max(ack);
        while board.resent_order.front().is_some_and(|r| r.end <= ack) {
            board.resent_order.pop_front();
        }
        self.deliver(parts, delivery);
        if let Some(board) = self.exceptions.as_mut() {
            board.again.remove_below(ack, |_, _| ());
        }
    }

    /// At most as many ranges are kept as selective acknowledgements of what is outstanding can
    /// name: for each segment one, and as many again where they have become smaller since, to
    /// `mss`. What single bytes would make beyond that is treated as not reported.
    fn limit_ranges(&mut self, outstanding: u64, mss: u64) {
        let segments = (self.segments as usize).max((outstanding / mss.max(1)) as usize);
        let most = (2 * segments + SCOREBOARD_RANGES_MIN).min(SCOREBOARD_RANGES);
        self.exceptions().sacked.set_limit(most);
    }

    /// End of the highest selectively acknowledged; zero where nothing is.
    pub(crate) fn highest_sacked(&self) -> u64 {
        self.exceptions.as_ref().and_then(|b| b.sacked.highest()).unwrap_or(0)
    }

    /// Takes the ranges that an ACK reports of what lies below `nxt`, in segments of `mss` (RFC
    /// 2018 section 5, RFC 2883 section 5). Returns the bytes of a D-SACK. `own_ack` is the
    /// segment's own acknowledgement, `ack` the highest until now: one that was overtaken names
    /// ranges that have been acknowledged since, not duplicates.
    pub(crate) fn take_sack(
        &mut self,
        ranges: &[(i64, i64)],
        (own_ack, ack): (i64, u64),
        ((una, nxt), mss): ((u64, u64), u64),
        delivery: &mut Delivery,
    ) -> u64 {
        let mut dsack_bytes = 0;
        for (index, &(start, end)) in ranges.iter().enumerate() {
            if start >= end || end > nxt as i64 {
                continue;
            }
            let inside_second =
                || ranges.get(1).is_some_and(|&(from, to)| from <= start && end <= to);
            if index == 0 && (start < own_ack || inside_second()) {
                // RFC 2883 section 4: the first block, below the ACK or inside the second, is a
                // duplicate
                dsack_bytes = (end - start) as u64;
                continue;
            }
            if start < ack as i64 {
                continue;
            }
            self.limit_ranges(nxt - una, mss);
            self.on_sack(start as u64, end as u64, delivery);
        }
        dsack_bytes
    }

    /// The peer holds `[start, end)`, above `una`.
    pub(crate) fn on_sack(&mut self, start: u64, end: u64, delivery: &mut Delivery) {
        let board = self.exceptions();
        let mut parts = board.take_scratch();
        board
            .sacked
            .insert(start, end, |start, end| parts.push(Sent { start, end, at: Instant::ZERO }));
        board.reports = board.reports.saturating_add(parts.len() as u32);
        let before = delivery.bytes;
        self.deliver(parts, delivery);
        delivery.sacked_bytes += delivery.bytes - before;
    }

    /// Takes delivered ranges out of `lost` and `resent`, and notes their times.
    fn deliver(&mut self, parts: Vec<Sent>, delivery: &mut Delivery) {
        let fack = delivery.fack;
        for &Sent { start, end, .. } in &parts {
            let Some(board) = self.exceptions.as_mut() else { return };
            delivery.bytes += end - start;
            let once = board.sent_once(start, end);
            board.take_resent(start, end, |_, to, at| delivery.note(at, to, true));
            board.lost.remove(start, end, |from, to| delivery.spurious_bytes += to - from);
            let Some((from, to)) = once else { continue };
            if let Some(at) = self.sent_at(to - 1) {
                delivery.note(at, to, false);
            }
            if end <= fack {
                delivery.note_late(from, fack);
            }
        }
        if let Some(board) = self.exceptions.as_mut() {
            board.scratch = parts;
        }
    }

    /// Judges `[start, end)` lost, except what has arrived. Returns the bytes that were not judged
    /// so before.
    pub(crate) fn mark_lost(&mut self, start: u64, end: u64) -> u64 {
        self.exceptions().mark_lost(start, end)
    }

    /// The retransmission timer expired: all that has not arrived is lost (RFC 6675 5.1).
    pub(crate) fn mark_all_lost(&mut self, una: u64, nxt: u64) -> u64 {
        self.duplicate_bytes = 0;
        let board = self.exceptions();
        board.judged = nxt;
        board.resent_order.clear();
        board.mark_lost(una, nxt)
    }

    /// Returns whether the receiver took back what it had acknowledged selectively, as it may (RFC
    /// 2018 section 8): it has acknowledged everything before that, up to `una`, and not that.
    #[inline]
    pub(crate) fn has_peer_reneged(&self, una: u64, nxt: u64) -> bool {
        una < nxt && self.is_sacked(una, una + 1)
    }

    /// Bytes judged lost are in flight after all: the time-out was spurious.
    pub(crate) fn forget_lost(&mut self) {
        if let Some(board) = self.exceptions.as_mut() {
            board.lost.clear();
            // what is lost all the same is judged anew
            board.judged = 0;
        }
    }

    /// The peer took back what it had acknowledged selectively (RFC 2018 section 8).
    pub(crate) fn forget_sacked(&mut self) {
        if let Some(board) = self.exceptions.as_mut() {
            board.sacked.clear();
        }
    }

    /// When the lowest byte outstanding was first sent; what is outstanding was sent then or later.
    pub(crate) fn oldest_at(&self) -> Option<Instant> {
        self.sent.front().map(|record| record.at)
    }

    /// RACK (RFC 8985 6.2 step 5): what was sent before the last delivered transmission, by more
    /// than the reordering window, is lost.
    pub(crate) fn detect_lost(
        &mut self,
        newest: (Instant, u64),
        wait: Duration,
        now: Instant,
    ) -> Judged {
        if self.exceptions.is_none() {
            // what arrived of what was sent again may be all that was exceptional, and what was
            // sent before it is missing
            match self.sent.front() {
                Some(first) if (first.at, first.start) < newest => self.exceptions(),
                _ => return Judged::default(),
            };
        }
        let Some(board) = self.exceptions.as_mut() else { return Judged::default() };
        let mut newly = 0;
        let mut last_at: Option<Instant> = None;
        let mut again: Option<Instant> = None;
        let mut index = self.sent.partition_point(|record| record.end <= board.judged);
        while let Some(record) = self.sent.get(index) {
            let end = if record.at == newest.0 { record.end.min(newest.1) } else { record.end };
            let start = record.start.max(board.judged);
            if record.at > newest.0 || start >= end {
                break;
            }
            let due = record.at + wait;
            if due > now {
                if !board.sacked.covers(start, end) {
                    again = Some(due);
                    break;
                }
            } else {
                newly += board.mark_original_lost(start, end);
                last_at = last_at.max(Some(record.at));
            }
            board.judged = end;
            index += usize::from(end == record.end);
        }
        while let Some(record) = board.resent_order.front().copied() {
            // of several segments sent as one, those that end below the newest
            let end = if record.at == newest.0 { record.end.min(newest.1) } else { record.end };
            if record.at > newest.0 || record.start >= end {
                break;
            }
            let due = record.at + wait;
            if due > now {
                again = Some(again.map_or(due, |seen| seen.min(due)));
                break;
            }
            board.resent_order.pop_front();
            if end < record.end {
                board.resent_order.push_front(Sent { start: end, ..record });
            }
            newly += board.mark_resent_lost(Sent { end, ..record });
            last_at = last_at.max(Some(record.at));
        }
        Judged { bytes: newly, sent_at: last_at, again }
    }

    /// Gives back memory that an idle connection does not need, if there is much of it. Called for
    /// each ACK of all that was sent, so it looks at nothing that lies elsewhere.
    #[inline]
    pub(crate) fn shrink_idle(&mut self) {
        if self.sent.capacity() > SPARE_LIMIT {
            self.release();
        }
    }

    /// Gives back what can be made again, when nothing is outstanding.
    pub(crate) fn release(&mut self) {
        if self.sent.is_empty() {
            debug_assert_eq!(self.segments, 0);
            self.sent = VecDeque::new();
            self.exceptions = None;
            self.spare = None;
        }
    }
}

#[cfg(test)]
#[path = "tests/scoreboard.rs"]
mod tests;
