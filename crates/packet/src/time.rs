//! Time as an argument.

use std::fmt;
use std::ops::{Add, AddAssign};
use std::time::Duration;

/// A moment on the caller's clock, in nanoseconds since that clock's start.
///
/// Nothing in this crate or the protocol crates above reads a clock: moments are handed in.
/// Arithmetic saturates.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// The last moment that can be written.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the moment `nanos` after the start of the clock.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the moment `micros` after the start of the clock, saturating.
    #[inline]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Returns the moment `millis` after the start of the clock, saturating.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns the nanoseconds since the start of the clock.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`, or `None` if `earlier` is later.
    #[inline]
    pub fn checked_duration_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    #[inline]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    #[inline]
    fn add(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let t = Instant::from_millis(5);
        assert_eq!(t + Duration::from_micros(1), Instant::from_nanos(5_001_000));
        assert_eq!(t.checked_duration_since(Instant::from_millis(6)), None);
        assert_eq!(t.saturating_duration_since(Instant::from_millis(6)), Duration::ZERO);
        assert_eq!(t.saturating_duration_since(Instant::ZERO), Duration::from_millis(5));
        assert_eq!(Instant::MAX + Duration::MAX, Instant::MAX);
        assert_eq!(format!("{t:?}"), "0.005000000s");
    }
}
