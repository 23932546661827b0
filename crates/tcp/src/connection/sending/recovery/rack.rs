//! RACK (RFC 8985 section 6): loss by time.

use core::time::Duration;

use millstream_packet::Instant;

use super::{Acked, Recovery};
use crate::rtt::RttEstimator;
use crate::scoreboard::Scoreboard;
use crate::tuning::DUPLICATE_THRESHOLD;

/// Time-outs for which a wider reordering window lasts (RFC 8985 6.2 step 4), and most quarters of
/// a round trip that it has.
const WIDE_FOR: u8 = 16;
const WIDEST: u8 = 16;

/// Knowledge of the segment that arrived last, and how much later than that others may come.
/// Packed as [`Pacer`](crate::pacer::Pacer) is.
#[derive(Clone, Debug)]
#[repr(Rust, packed(4))]
pub(super) struct Rack {
    /// RFC 8985: RACK.xmit_ts and RACK.end_seq. The end is zero before the first.
    pub(super) newest: (Instant, u64),
    /// RACK.rtt.
    pub(super) rtt_ns: u64,
    /// `nxt` when a D-SACK last widened the reordering window.
    dsack_round: u64,
    is_reordering_seen: bool,
    /// RACK.reo_wnd_mult and its persistence.
    multiplier: u8,
    persist: u8,
}

impl Rack {
    pub(super) fn new() -> Rack {
        Rack {
            newest: (Instant::ZERO, 0),
            rtt_ns: 0,
            dsack_round: 0,
            is_reordering_seen: false,
            multiplier: 1,
            persist: 0,
        }
    }

    /// RFC 8985 6.2 step 2: what was sent at that time, up to that offset, arrived after so long.
    #[inline(always)]
    fn advance(&mut self, newest: (Instant, u64), rtt_ns: u64) {
        self.rtt_ns = rtt_ns;
        self.newest = self.newest.max(newest);
    }

    /// Something arrived later than what was sent after it: from now on it is waited for.
    pub(super) fn note_reordering(&mut self) {
        self.is_reordering_seen = true;
    }

    /// RFC 8985 6.2 step 4: something was sent again in vain. The window is wider, once a round
    /// trip.
    pub(super) fn widen(&mut self, una: u64, nxt: u64) {
        if una >= self.dsack_round {
            self.dsack_round = nxt;
            self.multiplier = self.multiplier.saturating_add(1).min(WIDEST);
            self.persist = WIDE_FOR;
        }
    }

    /// RFC 8985 6.2 step 4: after 16 time-outs without a D-SACK the reordering window is as at
    /// first. The RFC counts fast recoveries too; with them more was sent again in vain on a path
    /// of 1 ms that delays by 1 ms.
    pub(super) fn wear(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    /// RFC 8985 6.2 step 4: how long to wait for what may only be late.
    fn reordering_window(&self, min_rtt: Duration, srtt: Duration) -> Duration {
        (min_rtt / 4 * u32::from(self.multiplier)).min(srtt)
    }
}

impl Recovery {
    /// RFC 8985 6.2 step 2, for an ACK that delivered something.
    #[inline(always)]
    pub(super) fn on_delivered(&mut self, now: Instant, ack: &Acked) {
        let Some(newest) = ack.delivery.rack else { return };
        let rtt_ns = now.as_nanos().saturating_sub(newest.0.as_nanos());
        self.rack.advance(newest, rtt_ns);
    }

    /// Returns how long to wait for what may only be late: not at all while recovering, or with as
    /// much reported as a loss would be, where nothing came in another order yet.
    pub(super) fn reordering_window(
        &self,
        board: &Scoreboard,
        mss: u64,
        rtt: &RttEstimator,
    ) -> Duration {
        let is_much = || {
            let most = mss * u64::from(DUPLICATE_THRESHOLD - 1);
            board.sacked_segments() >= DUPLICATE_THRESHOLD || board.sacked_bytes() > most
        };
        if !self.rack.is_reordering_seen && (!self.is_open() || is_much()) {
            return Duration::ZERO;
        }
        self.rack.reordering_window(rtt.min_rtt().unwrap_or_default(), rtt.srtt())
    }

    /// When the newest was sent that has arrived.
    pub(crate) fn newest_delivered_at(&self) -> Instant {
        self.rack.newest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_reordering_window_lasts_for_sixteen_time_outs() {
        let mut rack = Rack::new();
        for round in 0..4 {
            rack.widen(round * 10, round * 10 + 10);
            rack.widen(round * 10 + 5, round * 10 + 15);
        }
        assert_eq!(rack.multiplier, 5, "once a round trip");
        for _ in 0..15 {
            rack.wear();
        }
        assert_eq!(rack.multiplier, 5);
        rack.wear();
        assert_eq!(rack.multiplier, 1);
    }

    #[test]
    fn the_reordering_window_is_quarters_of_the_least_round_trip_within_a_smoothed_one() {
        let (mut rack, ms) = (Rack::new(), Duration::from_millis);
        assert_eq!(rack.reordering_window(ms(40), ms(50)), ms(10));
        for round in 0..20 {
            rack.widen(round, round + 1);
        }
        assert_eq!(rack.multiplier, WIDEST);
        assert_eq!(rack.reordering_window(ms(40), ms(50)), ms(50));
        assert_eq!(rack.reordering_window(Duration::ZERO, ms(50)), Duration::ZERO);
    }

    #[test]
    fn what_was_sent_before_the_newest_that_arrived_does_not_take_its_place() {
        let (mut rack, at) = (Rack::new(), Instant::from_nanos);
        rack.advance((at(20), 300), 5);
        rack.advance((at(10), 400), 7);
        assert_eq!((rack.newest, rack.rtt_ns), ((at(20), 300), 7));
        rack.advance((at(20), 500), 6);
        assert_eq!({ rack.newest }, (at(20), 500));
    }
}
