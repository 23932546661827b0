//! System calls, of which a part of the time is counted.

use std::time::Duration;

/// Duration of a window; twice that where calls are timed, too.
pub(super) const PART: Duration = Duration::from_millis(4);
/// Interval that has one window, at a random place in it.
pub(super) const SLOT: Duration = Duration::from_millis(500);

/// System calls that began in windows of some milliseconds, from the start of the programs on.
///
/// A kernel that counts every system call is slower by a fifth where there are 300,000 in a second,
/// so they are counted in windows, one at a random place of each half second. Rates, errors and
/// costs are those of [`Self::since`], between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemCalls {
    /// Windows that are over.
    pub windows: u64,
    /// Their durations, summed.
    pub open: Duration,
    /// Calls that began in them, by CPU, CPU n at place n.
    pub by_cpu: Vec<u64>,
    /// Time by which a call takes longer in a window, in nanoseconds, measured when the programs
    /// were loaded.
    pub call_ns: f64,
    /// CPU time of the thread that opens and closes the windows; `None` where it cannot be had.
    pub keeper_cpu: Option<Duration>,
    /// Sums of the windows' rates (calls in a second on all CPUs) and of their squares.
    rates: f64,
    squares: f64,
}

impl SystemCalls {
    /// Returns the counts before the first window; `by_cpu` has the calls that were counted to
    /// measure the cost of counting.
    #[cfg_attr(not(target_pointer_width = "64"), allow(dead_code))]
    pub(super) fn new(call_ns: f64, by_cpu: Vec<u64>) -> Self {
        Self { call_ns, by_cpu, keeper_cpu: Some(Duration::ZERO), ..Self::default() }
    }

    /// Adds a window. `by_cpu` has all calls so far.
    #[cfg_attr(not(target_pointer_width = "64"), allow(dead_code))]
    pub(super) fn add(&mut self, open: Duration, by_cpu: Vec<u64>) {
        let risen = by_cpu.iter().sum::<u64>().saturating_sub(self.by_cpu.iter().sum());
        let rate = risen as f64 / open.as_secs_f64().max(1e-9);
        self.windows += 1;
        self.open += open;
        self.by_cpu = by_cpu;
        self.rates += rate;
        self.squares += rate * rate;
    }

    /// Describes the way in which they are counted.
    pub fn how() -> String {
        let (ms, slot) = (PART.as_millis(), SLOT.as_secs_f64());
        format!(
            "counted in a window of {ms} ms in each {slot} s (twice that with histograms), and scaled; '-' where an interval had no window"
        )
    }

    /// Returns the windows that ended after `before`.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |cpu: usize| before.by_cpu.get(cpu).copied().unwrap_or(0);
        let by_cpu = self.by_cpu.iter().enumerate();
        Self {
            windows: self.windows.saturating_sub(before.windows),
            open: self.open.saturating_sub(before.open),
            by_cpu: by_cpu.map(|(cpu, now)| now.saturating_sub(earlier(cpu))).collect(),
            call_ns: self.call_ns,
            keeper_cpu: self
                .keeper_cpu
                .zip(before.keeper_cpu)
                .map(|(now, then)| now.saturating_sub(then)),
            rates: self.rates - before.rates,
            squares: self.squares - before.squares,
        }
    }

    /// Returns the calls in a second on a CPU; `None` without a window.
    pub fn per_s(&self, cpu: u32) -> Option<f64> {
        let counted = self.by_cpu.get(cpu as usize)?;
        (!self.open.is_zero()).then(|| *counted as f64 / self.open.as_secs_f64())
    }

    /// Returns two standard errors of the rate over all CPUs, as a share of it, by how the windows
    /// differ. `None` with fewer than two windows, or without a call.
    pub fn error(&self) -> Option<f64> {
        let n = self.windows as f64;
        if self.windows < 2 || self.rates <= 0.0 {
            return None;
        }
        let mean = self.rates / n;
        let variance = (self.squares - n * mean * mean).max(0.0) / (n - 1.0);
        Some(2.0 * (variance / n).sqrt() / mean)
    }

    /// Returns the share by which the rate of the CPU with most calls may be too low: what counting
    /// takes of its time in a window. Where that CPU has idle time it is less.
    pub fn low_by(&self) -> f64 {
        let most = self.by_cpu.iter().copied().max().unwrap_or(0) as f64;
        let taken = most * self.call_ns / 1e9 / self.open.as_secs_f64().max(1e-9);
        // Beyond that the cost of a call was measured wrong.
        taken.clamp(0.0, 0.9)
    }

    /// Returns the CPU time that the counting took, the slower calls included.
    pub fn cost(&self) -> Option<Duration> {
        let calls = self.by_cpu.iter().sum::<u64>() as f64;
        Some(self.keeper_cpu? + Duration::from_secs_f64(calls * self.call_ns / 1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_in_windows_and_their_error_of_how_these_differ() {
        let mut all = SystemCalls::new(200.0, vec![]);
        assert_eq!((all.per_s(0), all.error()), (None, None));
        all.add(Duration::from_millis(4), vec![1000, 0]);
        let before = all.clone();
        // 100,000 and 140,000 calls in a second, on the second CPU a quarter of them.
        all.add(Duration::from_millis(4), vec![1300, 100]);
        all.add(Duration::from_millis(4), vec![1720, 240]);
        let risen = all.since(&before);
        assert_eq!((risen.windows, risen.open), (2, Duration::from_millis(8)));
        assert_eq!((risen.per_s(0), risen.per_s(1)), (Some(90_000.0), Some(30_000.0)));
        assert_eq!(risen.per_s(2), None);
        // The two differ by 40,000: a standard error of 20,000 to a mean of 120,000.
        assert!((risen.error().unwrap() - 1.0 / 3.0).abs() < 1e-9, "{risen:?}");
        assert_eq!(all.since(&all).error(), None);
        assert!((risen.low_by() - 0.018).abs() < 1e-9, "90,000 calls of 200 ns");
        let unknown = SystemCalls { keeper_cpu: None, ..risen };
        assert_eq!(unknown.cost(), None, "nobody knows what the keeper took");
    }

    #[test]
    fn equal_windows_have_no_error_and_costs_are_the_keepers_and_the_calls() {
        let mut all = SystemCalls::new(100.0, vec![]);
        let mut count = 0;
        for _ in 0..50 {
            count += 40;
            all.add(Duration::from_millis(4), vec![count]);
        }
        assert!(all.error().unwrap() < 1e-6);
        all.keeper_cpu = Some(Duration::from_millis(3));
        assert_eq!(all.cost(), Some(Duration::from_micros(3200)));
        let absurd = SystemCalls { call_ns: 1e9, ..all };
        assert_eq!(absurd.low_by(), 0.9);
    }
}
