//! The rate at which unknown neighbours are asked for (RFC 6583 section 6.3).
//!
//! Somebody who scans a network through a router has it ask for hosts that are not there, once
//! each. A host that is there is asked for again by the sender that wants to reach it, since a
//! first packet that is lost is mostly sent again. So a neighbour that could not be asked for is
//! remembered by a hash, and has an allowance of its own the next time. Known neighbours are not
//! limited: they are not asked for here.

use core::time::Duration;

use millstream_packet::Instant;

use crate::limits::UNASKED;

/// See the module text.
pub(super) struct Asking {
    first: Allowance,
    again: Allowance,
    /// By upper bits of a hash: lower bits of the last one that was refused there; 0 where none
    /// was.
    refused: Box<[u16]>,
}

impl Asking {
    /// Returns allowances for so many a second, and so many at once.
    pub fn new(per_s: u32, at_once: u32) -> Self {
        let allowance = Allowance::new(per_s, at_once);
        Self { first: allowance, again: allowance, refused: vec![0; UNASKED].into() }
    }

    /// Returns whether the unknown neighbour with this hash, which strangers cannot tell, is asked
    /// for now.
    pub fn allow(&mut self, now: Instant, hash: u64) -> bool {
        let place = &mut self.refused[(hash >> 32) as usize % UNASKED];
        let mark = hash as u16 | 1;
        let is_again = *place == mark;
        let allowed = is_again && self.again.take(now) || self.first.take(now);
        match allowed {
            true if is_again => *place = 0,
            true => {}
            false => *place = mark,
        }
        allowed
    }
}

/// A token bucket.
#[derive(Clone, Copy)]
struct Allowance {
    left: u32,
    at_once: u32,
    /// Time in which one more is earned.
    each: Duration,
    /// Up to when all were earned.
    earned: Instant,
}

impl Allowance {
    fn new(per_s: u32, at_once: u32) -> Self {
        let each = Duration::from_secs(1) / per_s.max(1);
        Self { left: at_once, at_once, each, earned: Instant::ZERO }
    }

    fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.earned);
        let more = since.as_nanos() / self.each.as_nanos().max(1);
        if more >= u128::from(self.at_once - self.left) {
            (self.left, self.earned) = (self.at_once, now);
        } else {
            self.left += more as u32;
            self.earned += self.each * more as u32;
        }
        let has_one = self.left > 0;
        self.left -= u32::from(has_one);
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_earned_evenly_and_kept_up_to_a_limit() {
        let mut allowance = Allowance::new(100, 5);
        let ms = Instant::from_millis;
        let taken =
            |allowance: &mut Allowance, at| (0..9).filter(|_| allowance.take(ms(at))).count();
        assert_eq!(taken(&mut allowance, 1000), 5);
        assert_eq!(taken(&mut allowance, 1009), 0);
        assert_eq!(taken(&mut allowance, 1010), 1);
        assert_eq!(taken(&mut allowance, 1045), 3);
        assert_eq!(taken(&mut allowance, 1049), 0);
        assert_eq!(taken(&mut allowance, 1050), 1);
        assert_eq!(taken(&mut allowance, 9000), 5);
    }

    #[test]
    fn who_was_refused_has_an_allowance_of_its_own() {
        let mut asking = Asking::new(1, 2);
        let now = Instant::from_millis(5000);
        let hash = |number: u64| number << 32 | number << 3;
        assert_eq!([1, 2, 3, 4].map(|it| asking.allow(now, hash(it))), [true, true, false, false]);
        assert_eq!(
            [5, 3, 3, 4, 4].map(|it| asking.allow(now, hash(it))),
            [false, true, false, true, false]
        );
    }
}
