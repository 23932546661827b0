//! When the next data may leave, if data leaves at a rate.

use core::time::Duration;

use millstream_packet::Instant;

use crate::timers::Deadline;

/// A wake-up that is later than this is not made up for in full: more than a tick of 250 Hz, by
/// which a busy machine wakes threads.
const MOST_LATE: Duration = Duration::from_millis(5);

/// The earliest time of the next segment with data. Packed, as are its neighbours
/// [`Timers`](crate::timers::Timers) and [`Congestion`](crate::congestion::Congestion): what each
/// would be filled up with makes an idle connection longer than a kibibyte.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed)]
pub(crate) struct Pacer {
    next: Instant,
    /// Something waits for that moment.
    is_holding: bool,
    /// It did, and the wake-up may have come late.
    is_released: bool,
}

impl Pacer {
    /// The moment for which something waits.
    #[inline]
    pub(crate) fn deadline(&self) -> Deadline {
        if self.is_holding { Deadline::at(self.next) } else { Deadline::NONE }
    }

    /// Earliest time of the next segment with data.
    #[cfg(test)]
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Releases what was held back, if it is time. True while there is to be waited.
    #[inline]
    pub(crate) fn end_hold(&mut self, now: Instant) -> bool {
        let early = { self.next } > now;
        if self.is_holding && !early {
            self.is_holding = false;
            self.is_released = true;
        }
        early
    }

    /// Something is to be sent: whether it must wait, for the [`deadline`](Self::deadline).
    #[inline]
    pub(crate) fn hold(&mut self, now: Instant) -> bool {
        self.is_holding = self.end_hold(now);
        self.is_holding
    }

    /// Data sent now has its time until `took` later. Time that a late wake-up cost is given back:
    /// else a machine that wakes late sends slower than it was told. Where it waited for that
    /// wake-up, all of it at once, or a sender whose thread gets the CPU every 4 ms would have a
    /// quarter of the rate; else up to half of the time of what was sent, as Linux does, whose
    /// timers need no thread.
    pub(crate) fn put_off(&mut self, now: Instant, took: Duration) {
        let late = now.saturating_duration_since(self.next);
        self.next = match self.is_released && late <= MOST_LATE {
            true => self.next + took,
            false => self.next.max(now) + (took - late.min(took / 2)),
        };
        self.is_released &= { self.next } <= now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Instant {
        Instant::ZERO + ms * MS
    }

    #[test]
    fn what_comes_too_early_waits_and_is_a_deadline() {
        let mut pacer = Pacer::default();
        assert!(!pacer.hold(at(10)) && pacer.deadline() == Deadline::NONE);
        pacer.put_off(at(10), 2 * MS);
        // it was not waited for: half of the time of what was sent counts as passed
        assert_eq!(pacer.next(), at(11));
        assert!(pacer.hold(at(10)));
        assert_eq!(pacer.deadline().get(), Some(at(11)));
        assert!(!pacer.hold(at(11)) && pacer.deadline() == Deadline::NONE);
    }

    #[test]
    fn a_late_wake_up_is_made_up_for_unless_it_was_very_late() {
        let mut pacer = Pacer::default();
        pacer.put_off(at(0), 2 * MS);
        assert!(pacer.hold(at(0)) && !pacer.end_hold(at(5)));
        // due at 2, woken at 5
        pacer.put_off(at(5), MS);
        assert_eq!(pacer.next(), at(3));
        assert!(!pacer.hold(at(5)));
        let mut pacer = Pacer::default();
        pacer.put_off(at(0), 2 * MS);
        assert!(pacer.hold(at(0)) && !pacer.end_hold(at(20)));
        pacer.put_off(at(20), 2 * MS);
        assert_eq!(pacer.next(), at(21));
    }
}
