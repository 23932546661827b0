//! When a device that had no room is asked again.
//!
//! Where the kernel copies what we send, nobody tells that a device has room: poll(2) takes the
//! socket for writable while less than half of its ring is used, and a call that sends nothing
//! costs as much as one that does.

use std::time::Duration;

use millstream_packet::Instant;

use crate::limits;

/// The time for which the device is left alone: while calls send nothing twice as long each time,
/// so about as long as it was without room.
#[derive(Debug, Default)]
pub(super) struct Rest {
    end: Option<Instant>,
    pause: Duration,
    /// The kernel goes on by itself and tells when half of the ring is free.
    is_until_half: bool,
}

impl Rest {
    /// After calls that left something in the ring, `has_moved` if they sent something; more than
    /// half of the ring, `is_over_half`.
    pub fn begin(&mut self, now: Instant, has_moved: bool, is_over_half: bool) {
        self.pause = match has_moved {
            true => limits::XDP_REST,
            false => (self.pause * 2).clamp(limits::XDP_REST, limits::XDP_REST_LIMIT),
        };
        let pause = if is_over_half { limits::XDP_REST_LIMIT } else { self.pause };
        self.end = Some(now + pause);
        self.is_until_half = is_over_half;
    }

    /// Returns whether it is not over; more than half of the ring is used, `is_over_half`.
    pub fn lasts(&self, now: Instant, is_over_half: bool) -> bool {
        self.end.is_some_and(|end| end > now) && (is_over_half || !self.is_until_half)
    }

    /// When it is over at the latest; `None` without one.
    pub fn end(&self) -> Option<Instant> {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_stays_without_room_is_asked_ever_less_often_down_to_the_limit() {
        let (mut rest, mut now, mut calls) = (Rest::default(), Instant::ZERO, 0);
        while now < Instant::ZERO + Duration::from_secs(1) {
            assert!(!rest.lasts(now, false));
            rest.begin(now, false, false);
            assert!(rest.lasts(now, false));
            now = rest.end().unwrap();
            calls += 1;
        }
        assert_eq!(calls, 8 + 99, "50 µs to 6.4 ms, then 10 ms each");
        rest.begin(now, true, false);
        assert_eq!(rest.end(), Some(now + limits::XDP_REST), "what moves is followed soon");
    }

    #[test]
    fn while_the_kernel_tells_of_room_it_is_waited_for() {
        let (mut rest, now) = (Rest::default(), Instant::ZERO);
        rest.begin(now, true, true);
        assert_eq!(rest.end(), Some(now + limits::XDP_REST_LIMIT));
        assert!(rest.lasts(now, true) && !rest.lasts(now, false));
    }
}
