//! The time that a write sent from its own memory may still wait for ACKs.

use std::time::Duration;

use crate::tuning::{ZERO_COPY_LOOK_NS, ZERO_COPY_WAIT_KIB};

/// Grows with all that is taken from the writer's memory, and shrinks with each look while nothing
/// can be sent, whatever it finds: a longer write waits longer, but none for long, even if others
/// send all the while, the peer acknowledges byte by byte, or the clock stands still.
pub(in crate::engine) struct AckWait {
    left_ns: u64,
    most_ns: u64,
}

impl AckWait {
    /// None until something is taken, and never more than `most`.
    pub fn new(most: Duration) -> Self {
        Self { left_ns: 0, most_ns: nanoseconds(most) }
    }

    /// So many bytes more were taken.
    pub fn reserved(&mut self, bytes: usize) {
        let kib = (bytes as u64 >> 10).min(ZERO_COPY_WAIT_KIB);
        let more = u128::from(self.most_ns) * u128::from(kib) / u128::from(ZERO_COPY_WAIT_KIB);
        self.left_ns = self.left_ns.saturating_add(more as u64).min(self.most_ns);
    }

    /// Subtracts the time of a look while nothing could be sent; returns true if there may be
    /// another.
    pub fn waited(&mut self, time: Duration) -> bool {
        self.left_ns = self.left_ns.saturating_sub(nanoseconds(time).max(ZERO_COPY_LOOK_NS));
        self.left_ns != 0
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(64);

    #[test]
    fn who_writes_more_waits_longer_but_not_for_long_at_once() {
        let mut ack_wait = AckWait::new(MOST);
        assert!(!ack_wait.waited(Duration::ZERO), "before anything was taken");
        ack_wait.reserved((ZERO_COPY_WAIT_KIB << 10) as usize / 64);
        assert!(ack_wait.waited(MOST / 64 - Duration::from_nanos(1)));
        assert!(!ack_wait.waited(Duration::from_nanos(1)));
        ack_wait.reserved(1 << 30);
        assert!(ack_wait.waited(MOST - Duration::from_nanos(ZERO_COPY_LOOK_NS)));
        assert!(!ack_wait.waited(Duration::ZERO));
    }

    #[test]
    fn it_ends_where_the_clock_stands_still() {
        let mut ack_wait = AckWait::new(MOST);
        ack_wait.reserved(usize::MAX);
        let looks = (0..).take_while(|_| ack_wait.waited(Duration::ZERO)).count() as u64;
        assert_eq!(looks, nanoseconds(MOST).div_ceil(ZERO_COPY_LOOK_NS) - 1);
    }

    #[test]
    fn where_no_wait_is_of_use_there_is_none() {
        let mut ack_wait = AckWait::new(Duration::ZERO);
        ack_wait.reserved(1 << 20);
        assert!(!ack_wait.waited(Duration::ZERO));
    }
}
