//! The clock in coarse units, for what is kept in few bytes.

use core::time::Duration;

use millstream_packet::Instant;

/// The clock in units of 1.07 s, without a division; it does not wrap.
#[inline]
pub(crate) fn seconds(now: Instant) -> u32 {
    (now.as_nanos() >> 30) as u32
}

/// A tick is so many doublings of a nanosecond.
const TICK_SHIFT: u32 = 20;

/// The clock in ticks of 1.05 ms, which wraps after 52 days.
#[inline]
pub(crate) fn ticks(now: Instant) -> u32 {
    (now.as_nanos() >> TICK_SHIFT) as u32
}

/// Time from tick `then` to `now`.
pub(crate) fn since_tick(now: Instant, then: u32) -> Duration {
    Duration::from_nanos(u64::from(ticks(now).wrapping_sub(then)) << TICK_SHIFT)
}
