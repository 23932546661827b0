//! The clock as an engine reads it: every turn and every call, several times in one exchange of a
//! few bytes.

use millstream_link::sys::Counter;
use millstream_packet::Instant;

use super::Clock;

/// Nanoseconds for which the counter is used after a look at the system's clock.
const GOOD_NS: u64 = 1_000_000;

/// Nanoseconds between the two looks by which the counter's rate is measured.
const RATE_NS: std::ops::RangeInclusive<u64> = GOOD_NS..=1_000_000_000;

/// Most ticks that an uninterrupted look takes: some hundreds of nanoseconds.
const LOOK_TICKS: u64 = 1000;

/// Most by which two measured rates differ, as a part of them.
const RATE_PART: u64 = 1000;

/// A clock that looks at the system's once a millisecond and goes by the processor's counter
/// between, where there is one.
///
/// It agrees with the [`Clock`] that it was made from within a microsecond. It may go back by as
/// much when it looks.
#[derive(Debug)]
pub(crate) struct CountedClock {
    clock: Clock,
    counter: Option<Counter>,
    /// The time of the last look that counts, and where the counter stood.
    base_ns: u64,
    base_ticks: u64,
    /// Nanoseconds of a tick, in parts of 2^32; 0 while it is not known.
    rate: u64,
    /// Ticks after the base for which the counter is gone by; 0 for none.
    good_ticks: u64,
}

impl CountedClock {
    /// The clock, read through the machine's counter if it has one.
    pub fn new(clock: Clock) -> Self {
        let counter = Counter::of_machine();
        Self { clock, counter, base_ns: 0, base_ticks: 0, rate: 0, good_ticks: 0 }
    }

    /// Nanoseconds since the clock's zero.
    #[inline]
    pub fn now(&mut self) -> Instant {
        if let Some(counter) = self.counter
            && let Some(ns) = self.at(counter.read())
        {
            return Instant::from_nanos(ns);
        }
        self.look()
    }

    /// The time when the counter stands at `ticks`, if it can be told by that.
    #[inline]
    fn at(&self, ticks: u64) -> Option<u64> {
        let passed = ticks.wrapping_sub(self.base_ticks);
        (passed < self.good_ticks).then(|| self.base_ns + ((passed * self.rate) >> 32))
    }

    /// The system's clock; what the counter says is set right by it.
    #[cold]
    #[inline(never)]
    fn look(&mut self) -> Instant {
        let Some(counter) = self.counter else { return self.clock.now() };
        let before = counter.read();
        let now = self.clock.now();
        self.compare(before, now.as_nanos(), counter.read());
        now
    }

    /// Takes note that it was `ns` when the counter stood between `before` and `after`.
    fn compare(&mut self, before: u64, ns: u64, after: u64) {
        self.good_ticks = 0;
        let width = after.wrapping_sub(before);
        if width > LOOK_TICKS {
            // something came between
            return;
        }
        let ticks = before.wrapping_add(width / 2);
        let (passed, passed_ns) =
            (ticks.wrapping_sub(self.base_ticks), ns.saturating_sub(self.base_ns));
        if RATE_NS.contains(&passed_ns) && self.base_ns != 0 {
            self.take_rate((passed_ns << 32) / passed.max(1));
        } else if self.rate == 0 && self.base_ns != 0 && passed_ns < GOOD_NS {
            // too early to tell
            return;
        }
        (self.base_ns, self.base_ticks) = (ns, ticks);
        self.good_ticks = (GOOD_NS << 32).checked_div(self.rate).unwrap_or(0);
    }

    /// Takes a measured rate, unless it is another than before: then neither may be right, as one
    /// interval had a sleep of the machine in it.
    fn take_rate(&mut self, rate: u64) {
        let is_other = self.rate != 0 && self.rate.abs_diff(rate) > self.rate / RATE_PART;
        self.rate = if is_other { 0 } else { rate };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock whose counter makes two ticks a nanosecond, seen at `ns`.
    fn compare(clock: &mut CountedClock, ns: u64) {
        clock.compare(2 * ns + 1_000_000, ns, 2 * ns + 1_000_100);
    }

    fn fresh() -> CountedClock {
        CountedClock { counter: None, ..CountedClock::new(Clock::new()) }
    }

    #[test]
    fn it_goes_by_the_counter_for_a_millisecond_once_its_rate_is_known() {
        let mut clock = fresh();
        compare(&mut clock, 5_000);
        assert_eq!(clock.at(2 * 6_000 + 1_000_050), None, "no rate yet");
        compare(&mut clock, 500_000);
        assert_eq!(clock.good_ticks, 0, "too short to tell");
        compare(&mut clock, 1_005_000);
        for passed in [0, 1, 700, 999_999] {
            assert_eq!(clock.at(2 * (1_005_000 + passed) + 1_000_050), Some(1_005_000 + passed));
        }
        assert_eq!(clock.at(2 * 2_005_000 + 1_000_050), None, "time to look");
        assert_eq!(clock.at(2 * 1_004_000 + 1_000_050), None, "the counter went back");
    }

    #[test]
    fn a_look_that_was_interrupted_does_not_count() {
        let mut clock = fresh();
        compare(&mut clock, 5_000);
        compare(&mut clock, 2_005_000);
        clock.compare(2 * 3_005_000, 3_005_000, 2 * 3_005_000 + LOOK_TICKS + 1);
        assert_eq!((clock.good_ticks, clock.base_ns), (0, 2_005_000));
        compare(&mut clock, 3_006_000);
        assert_eq!(clock.at(2 * 3_006_500 + 1_000_050), Some(3_006_500));
    }

    #[test]
    fn a_rate_that_is_not_the_one_before_is_measured_again() {
        let mut clock = fresh();
        compare(&mut clock, 5_000);
        compare(&mut clock, 2_005_000);
        // The machine slept, and the counter went on.
        clock.compare(90_000_000, 4_005_000, 90_000_100);
        assert_eq!((clock.rate, clock.good_ticks), (0, 0));
        clock.compare(90_000_000 + 4_000_000, 6_005_000, 90_000_100 + 4_000_000);
        assert_eq!(clock.at(94_000_050 + 2_000), Some(6_006_000));
        // A long pause tells nothing about the rate, which is kept.
        clock.compare(1 << 40, 9_000_000_000, (1 << 40) + 100);
        assert_eq!(clock.at((1 << 40) + 50 + 2_000), Some(9_000_001_000));
    }

    #[test]
    fn it_agrees_with_the_clock_that_it_was_made_from() {
        let clock = Clock::new();
        let mut counted = CountedClock::new(clock);
        while clock.now() < Instant::from_millis(20) {
            let before = clock.now().as_nanos();
            let ns = counted.now().as_nanos();
            let after = clock.now().as_nanos();
            assert!(ns + 5_000 >= before && ns <= after + 5_000, "{before} {ns} {after}");
        }
    }
}
