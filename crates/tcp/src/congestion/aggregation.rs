//! The excess over the estimate that comes with a burst of ACKs, which a window must allow for
//! beside what the path holds: draft-ietf-ccwg-bbr-06, section 5.5.9, and what Linux added to
//! version 1.

use millstream_packet::Instant;

/// The largest excess of the last rounds.
#[derive(Debug, Default)]
pub struct Aggregation {
    since: Instant,
    delivered: u64,
    /// The excess of the span of rounds before, and of this.
    most: [u64; 2],
    rounds: u8,
}

impl Aggregation {
    /// Counts what is delivered from `now` on.
    pub fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// The same, and what was delivered before does not count.
    pub fn begin_anew(&mut self, now: Instant) {
        self.since = now;
        self.delivered = 0;
    }

    /// A round begins. The maximum is kept for one to two spans of so many rounds.
    pub fn round_begins(&mut self, span: u8) {
        self.rounds += 1;
        if self.rounds >= span {
            self.rounds = 0;
            self.most = [self.most[1], 0];
        }
    }

    /// `newly` bytes were delivered; `bytes_per_s` is the estimate, and `limit` what one excess may
    /// be at most.
    pub fn on_delivery(&mut self, now: Instant, newly: u64, bytes_per_s: u64, limit: u64) {
        let interval = now.saturating_duration_since(self.since).as_nanos();
        let expected = u128::from(bytes_per_s) * interval / 1_000_000_000;
        let mut expected = u64::try_from(expected).unwrap_or(u64::MAX);
        if self.delivered <= expected {
            self.begin_anew(now);
            expected = 0;
        }
        self.delivered += newly;
        let excess = self.delivered.saturating_sub(expected).min(limit);
        self.most[1] = self.most[1].max(excess);
    }

    /// Returns the largest excess: bytes beyond the estimate.
    pub fn most(&self) -> u64 {
        self.most[0].max(self.most[1])
    }
}
