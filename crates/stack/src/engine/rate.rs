//! A limit on how often something is done.

use millstream_packet::Instant;

/// A token bucket: `per_s` a second, `burst` at once after quiet.
pub(crate) struct RateLimit {
    interval_ns: u64,
    burst_ns: u64,
    /// When the bucket would be full again.
    full_at: u64,
}

impl RateLimit {
    pub fn new(per_s: u32, burst: u32) -> Self {
        let interval_ns = 1_000_000_000 / u64::from(per_s.max(1));
        Self { interval_ns, burst_ns: interval_ns * u64::from(burst.max(1)), full_at: 0 }
    }

    /// Takes a token; false when there is none.
    pub fn allow(&mut self, now: Instant) -> bool {
        let next = self.full_at.max(now.as_nanos()) + self.interval_ns;
        if next > now.as_nanos() + self.burst_ns {
            return false;
        }
        self.full_at = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_a_burst_through_and_then_the_rate() {
        let mut limit = RateLimit::new(1000, 5);
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        assert_eq!((0..100).filter(|_| limit.allow(at(50))).count(), 5);
        assert_eq!((51..151).filter(|&ms| limit.allow(at(ms))).count(), 100);
        assert_eq!((0..100).filter(|_| limit.allow(at(1000))).count(), 5);
    }
}
