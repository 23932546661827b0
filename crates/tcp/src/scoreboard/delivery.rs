//! The word of an ACK about data that was sent: delivered, or judged lost.

use millstream_packet::Instant;

/// Data that one ACK delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes delivered that were not before, cumulatively or selectively.
    pub(crate) bytes: u64,
    /// The part of these that was acknowledged selectively.
    pub(crate) sacked_bytes: u64,
    /// The last transmission among those delivered: its time and end, and whether it was sent
    /// again.
    pub(crate) newest: Option<Transmission>,
    /// The same without what was sent again after `answers`: time and end.
    pub(crate) rack: Option<(Instant, u64)>,
    /// Data sent again later than this was not answered by this ACK: it answers the original (RFC
    /// 8985 6.2 step 2).
    pub(crate) answers: Instant,
    /// Time of the last transmission delivered that was sent only once (Karn).
    pub(crate) sent_once_at: Option<Instant>,
    /// End of the highest selectively acknowledged before this ACK (RFC 8985 6.2 step 3:
    /// RACK.fack); zero: nothing was.
    pub(crate) fack: u64,
    /// The lowest offset delivered that was sent once, although something above it had been
    /// delivered before.
    pub(crate) reordered: Option<u64>,
    /// How far that lay below the highest delivered before, the most of it.
    pub(crate) reordered_by: u64,
    /// Bytes delivered that had been judged lost and were not sent again yet.
    pub(crate) spurious_bytes: u64,
    /// Something delivered had been sent again: what comes with it may have arrived long before.
    pub(crate) any_resent: bool,
}

/// Result of loss detection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    /// Bytes newly judged lost.
    pub(crate) bytes: u64,
    /// When the last of what was looked at was sent.
    pub(crate) sent_at: Option<Instant>,
    /// When to look again.
    pub(crate) again: Option<Instant>,
}

/// When and what was sent, for RACK's order (RFC 8985 6.2: time, then end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transmission {
    pub(crate) at: Instant,
    pub(crate) end: u64,
    pub(crate) resent: bool,
}

impl Delivery {
    /// When the last of what was sent only once left, if the ACK comes straight from its arrival.
    /// An ACK that fills a gap also delivers what arrived while the gap was open, where the report
    /// of that was lost (Karn; as Linux).
    pub(crate) fn timed(&self) -> Option<Instant> {
        self.sent_once_at.filter(|_| !self.any_resent)
    }

    /// A stretch from `from` on was sent once and came after one that ends at `fack`.
    pub(super) fn note_late(&mut self, from: u64, fack: u64) {
        self.reordered = Some(self.reordered.map_or(from, |seen| seen.min(from)));
        self.reordered_by = self.reordered_by.max(fack - from);
    }

    /// A stretch sent at `at` that ends at `end` was delivered.
    #[inline(always)]
    pub(super) fn note(&mut self, at: Instant, end: u64, resent: bool) {
        self.any_resent |= resent;
        if self.newest.is_none_or(|n| (n.at, n.end) < (at, end)) {
            self.newest = Some(Transmission { at, end, resent });
        }
        if !resent || at <= self.answers {
            self.rack = self.rack.max(Some((at, end)));
        }
        if !resent && self.sent_once_at.is_none_or(|seen| seen < at) {
            self.sent_once_at = Some(at);
        }
    }
}
