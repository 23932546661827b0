//! Round-trip time and retransmission time-out (RFC 6298).

use core::time::Duration;
use millstream_packet::Instant;

use crate::tuning::{INITIAL_RTO_MS, MAX_RTO_MS, RTO_AFTER_LOST_SYN_MS, TUNE_RATE_BYTES_PER_S};

/// Window over which the least round trip is remembered, as Linux does for RACK.
const MIN_RTT_WINDOW_NS: u64 = 300_000_000_000;

/// Smoothed round trip, its variation, and the time-out that follows from them. Times in
/// nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    srtt_ns: u64,
    rttvar_ns: u64,
    min_rtt_ns: u64,
    min_rtt_at: Instant,
    latest_ns: u64,
    rto_ns: u64,
    min_rto_ms: u32,
    /// Time-outs in a row, and how often the time-out is doubled by them.
    backoff: u8,
    doublings: u8,
    /// Data sent again had arrived before, and no round trip was measured since: the time-out may
    /// be too short.
    in_vain: bool,
}

impl RttEstimator {
    /// No sample yet: the time-out is one second (RFC 6298 2.1).
    pub(crate) fn new(min_rto_ms: u32) -> Self {
        RttEstimator {
            srtt_ns: 0,
            rttvar_ns: 0,
            min_rtt_ns: u64::MAX,
            min_rtt_at: Instant::ZERO,
            latest_ns: 0,
            rto_ns: u64::from(INITIAL_RTO_MS) * 1_000_000,
            min_rto_ms: min_rto_ms.max(1),
            backoff: 0,
            doublings: 0,
            in_vain: false,
        }
    }

    /// Takes one measurement. `samples_per_rtt` is how many are expected in a round trip: with one
    /// for every ACK the gains are divided so that the history spans as long as with one a round
    /// (RFC 7323 appendix G).
    #[inline]
    pub(crate) fn sample(&mut self, now: Instant, rtt: Duration, samples_per_rtt: u32) {
        self.sample_ns(now, rtt.as_nanos() as u64, samples_per_rtt);
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) fn sample_ns(&mut self, now: Instant, rtt_ns: u64, samples_per_rtt: u32) {
        let rtt_ns = rtt_ns.max(1);
        self.latest_ns = rtt_ns;
        let age_ns = now.as_nanos().saturating_sub(self.min_rtt_at.as_nanos());
        if rtt_ns <= self.min_rtt_ns || age_ns > MIN_RTT_WINDOW_NS {
            self.min_rtt_ns = rtt_ns;
            self.min_rtt_at = now;
        }
        if self.srtt_ns == 0 {
            // RFC 6298 2.2
            self.srtt_ns = rtt_ns;
            self.rttvar_ns = rtt_ns / 2;
        } else {
            // RFC 6298 2.3, with the gains of RFC 7323 appendix G; with one sample a round trip no
            // division is needed
            match u64::from(samples_per_rtt.clamp(1, 64)) {
                1 => self.smooth(rtt_ns, 4, 8),
                divisor => self.smooth(rtt_ns, 4 * divisor, 8 * divisor),
            }
        }
        self.set_rto();
    }

    #[inline(always)]
    fn smooth(&mut self, rtt_ns: u64, var_weight: u64, srtt_weight: u64) {
        let error = self.srtt_ns.abs_diff(rtt_ns);
        self.rttvar_ns = self.rttvar_ns - self.rttvar_ns / var_weight + error / var_weight;
        self.srtt_ns = (self.srtt_ns - self.srtt_ns / srtt_weight + rtt_ns / srtt_weight).max(1);
    }

    #[inline]
    fn set_rto(&mut self) {
        // RFC 6298 section 5: the computation ends the back-off
        (self.doublings, self.in_vain) = (0, false);
        // RFC 6298 2.3 to 2.5. The variation, not the sum, is bounded below, as hosts in use do it:
        // the time-out then stays above the round trip by the full minimum.
        let variation = (4 * self.rttvar_ns).max(u64::from(self.min_rto_ms) * 1_000_000);
        self.rto_ns = (self.srtt_ns + variation).min(u64::from(MAX_RTO_MS) * 1_000_000);
    }

    /// The time-out now, back-off included (RFC 6298 5.5).
    pub(crate) fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto_ns())
    }

    /// The time-out now in nanoseconds.
    #[inline]
    pub(crate) fn rto_ns(&self) -> u64 {
        let shifted = self.rto_ns.saturating_mul(1 << self.doublings.min(16));
        shifted.min(u64::from(MAX_RTO_MS) * 1_000_000)
    }

    /// The time-out without back-off in nanoseconds.
    #[inline]
    pub(crate) fn base_rto_ns(&self) -> u64 {
        self.rto_ns
    }

    /// Smoothed round trip in nanoseconds; zero before the first sample.
    #[inline]
    pub(crate) fn srtt_ns(&self) -> u64 {
        self.srtt_ns
    }

    /// Returns the bytes that a path as fast as tuning looks ahead for carries in a round trip, and
    /// an `allowance` beyond; no limit before a round trip was measured.
    #[inline]
    pub(crate) fn carried_bytes_and(&self, allowance: usize) -> usize {
        const BYTES_PER_MS: u64 = TUNE_RATE_BYTES_PER_S / 1000;
        self.min_rtt_ns().map_or(usize::MAX, |ns| {
            let carried = BYTES_PER_MS.saturating_mul(ns) / 1_000_000;
            allowance.saturating_add(carried as usize)
        })
    }

    /// The time-out without back-off.
    pub(crate) fn base_rto(&self) -> Duration {
        Duration::from_nanos(self.rto_ns)
    }

    /// Doubles the time-out (RFC 6298 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
        self.doublings = self.doublings.saturating_add(1);
    }

    /// Something new was acknowledged: no time-outs in a row any more, and no back-off. But where
    /// the peer says that things were sent again in vain, it lasts until a round trip is measured,
    /// which what was sent again does not do (Karn): else a time-out that is shorter than the path
    /// takes would expire for all that is sent (RFC 6298 section 5, last paragraph).
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.backoff = 0;
        if !self.in_vain {
            self.doublings = 0;
        }
    }

    /// Data sent again had arrived before.
    pub(crate) fn sent_in_vain(&mut self) {
        self.in_vain = true;
    }

    /// Ends the back-off: what it was for is over.
    pub(crate) fn reset_backoff(&mut self) {
        (self.backoff, self.doublings) = (0, 0);
    }

    /// Returns whether the time-out is doubled.
    #[inline]
    pub(crate) fn is_backed_off(&self) -> bool {
        self.doublings > 0
    }

    /// Time-outs in a row so far.
    pub(crate) fn backoff(&self) -> u8 {
        self.backoff
    }

    /// The SYN was lost: three seconds until the first measurement (RFC 6298 5.7).
    pub(crate) fn syn_was_lost(&mut self) {
        self.reset_backoff();
        if self.srtt_ns == 0 {
            self.rto_ns = u64::from(RTO_AFTER_LOST_SYN_MS) * 1_000_000;
        }
    }

    /// Smoothed round trip; zero before the first sample.
    pub(crate) fn srtt(&self) -> Duration {
        Duration::from_nanos(self.srtt_ns)
    }

    /// Mean deviation of the round trip.
    pub(crate) fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar_ns)
    }

    /// Least round trip of the last minutes; none before the first sample.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        (self.min_rtt_ns != u64::MAX).then(|| Duration::from_nanos(self.min_rtt_ns))
    }

    /// Least round trip of the last minutes in nanoseconds; none before the first sample.
    #[inline]
    pub(crate) fn min_rtt_ns(&self) -> Option<u64> {
        (self.min_rtt_ns != u64::MAX).then_some(self.min_rtt_ns)
    }

    /// The last sample; zero before the first.
    pub(crate) fn latest(&self) -> Duration {
        Duration::from_nanos(self.latest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn starts_at_one_second_and_follows_the_first_sample() {
        let mut rtt = RttEstimator::new(200);
        assert_eq!(rtt.rto(), 1000 * MS);
        rtt.sample(Instant::ZERO, 100 * MS, 1);
        assert_eq!(rtt.srtt(), 100 * MS);
        assert_eq!(rtt.rttvar(), 50 * MS);
        assert_eq!(rtt.rto(), 300 * MS);
    }

    #[test]
    fn backs_off_up_to_the_bound_and_recovers() {
        let mut rtt = RttEstimator::new(200);
        rtt.sample(Instant::ZERO, 10 * MS, 1);
        let base = rtt.rto();
        rtt.back_off();
        assert_eq!(rtt.rto(), base * 2);
        for _ in 0..40 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), Duration::from_millis(u64::from(MAX_RTO_MS)));
        rtt.reset_backoff();
        assert_eq!(rtt.rto(), base);
    }

    #[test]
    fn a_steady_path_settles_at_the_floor_above_the_round_trip() {
        let mut rtt = RttEstimator::new(200);
        for _ in 0..500 {
            rtt.sample(Instant::ZERO, 20 * MS, 1);
        }
        assert!(rtt.rto() >= 219 * MS && rtt.rto() <= 222 * MS, "{:?}", rtt.rto());
    }

    #[test]
    fn many_samples_in_a_round_trip_weigh_less() {
        let (mut one, mut many) = (RttEstimator::new(200), RttEstimator::new(200));
        for rtt in [&mut one, &mut many] {
            rtt.sample(Instant::ZERO, 100 * MS, 1);
        }
        one.sample(Instant::ZERO, 200 * MS, 1);
        many.sample(Instant::ZERO, 200 * MS, 32);
        assert!(one.srtt() > many.srtt());
    }

    #[test]
    fn the_least_round_trip_is_forgotten_after_minutes() {
        let mut rtt = RttEstimator::new(200);
        rtt.sample(Instant::ZERO, 10 * MS, 1);
        rtt.sample(Instant::ZERO + Duration::from_secs(1), 30 * MS, 1);
        assert_eq!(rtt.min_rtt(), Some(10 * MS));
        rtt.sample(Instant::ZERO + Duration::from_secs(400), 30 * MS, 1);
        assert_eq!(rtt.min_rtt(), Some(30 * MS));
    }
}
