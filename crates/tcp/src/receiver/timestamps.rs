//! Which of the peer's timestamps is echoed, and which is old (RFC 7323 section 4.3 and 5).

use millstream_packet::Instant;

use crate::ticks::seconds;
use crate::tuning::TIMESTAMP_AGE_LIMIT_S;

/// The timestamp that is echoed (RFC 7323: TS.Recent), and when it came, in [`seconds`].
pub(crate) struct TsRecent {
    value: u32,
    at: u32,
}

impl TsRecent {
    pub(super) fn new(now: Instant) -> TsRecent {
        TsRecent { value: 0, at: seconds(now) }
    }

    /// Returns the timestamp that is echoed.
    #[inline(always)]
    pub(crate) fn value(&self) -> u32 {
        self.value
    }

    /// Takes the timestamp of the peer's SYN, or one that takes the place of what was remembered.
    #[inline(always)]
    pub(crate) fn set(&mut self, now: Instant, value: u32) {
        *self = TsRecent { value, at: seconds(now) };
    }

    /// Returns by how many ticks of the peer's clock `value` is older than what is echoed;
    /// negative: newer.
    #[inline(always)]
    pub(crate) fn behind(&self, value: u32) -> i32 {
        self.value.wrapping_sub(value) as i32
    }

    /// RFC 7323 5.5: after 24 days the peer's clock may have wrapped, and what is remembered says
    /// nothing.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        u64::from(seconds(now).saturating_sub(self.at)) << 30
            > TIMESTAMP_AGE_LIMIT_S * 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::tests::receiver;
    use super::*;

    #[test]
    fn what_is_echoed_comes_from_segments_that_begin_at_or_before_the_last_ack() {
        let (mut rcv, now) = (receiver(), Instant::ZERO);
        rcv.remember_timestamp(now, 100, 1);
        assert_eq!(rcv.ts_recent.value(), 100);
        rcv.remember_timestamp(now, 120, 2);
        assert_eq!(rcv.ts_recent.value(), 100, "it lies behind what was acknowledged");
        rcv.remember_timestamp(now, 90, 1);
        assert_eq!(rcv.ts_recent.value(), 100, "it is older");
        rcv.take_placed(50);
        rcv.remember_timestamp(now, 120, 51);
        assert_eq!(rcv.ts_recent.value(), 100, "what came is not acknowledged yet");
        rcv.on_ack_sent();
        rcv.remember_timestamp(now, 120, 51);
        assert_eq!(rcv.ts_recent.value(), 120);
    }

    #[test]
    fn a_clock_that_wraps_is_newer_and_after_24_days_nothing_is_old() {
        let (mut rcv, now) = (receiver(), Instant::ZERO);
        rcv.ts_recent.set(now, u32::MAX - 5);
        assert_eq!((rcv.ts_recent.behind(4), rcv.ts_recent.behind(u32::MAX - 15)), (-10, 10));
        let late = now + Duration::from_secs(TIMESTAMP_AGE_LIMIT_S - 5);
        rcv.remember_timestamp(late, u32::MAX - 15, 1);
        assert_eq!(rcv.ts_recent.value(), u32::MAX - 5);
        let later = now + Duration::from_secs(TIMESTAMP_AGE_LIMIT_S + 5);
        rcv.remember_timestamp(later, u32::MAX - 15, 1);
        assert_eq!(rcv.ts_recent.value(), u32::MAX - 15);
    }
}
