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
///
/// Counting slows down what is counted. In every second window each call takes longer by a known
/// time more, and the rate that there would be without any counting follows from both: a thread
/// that calls all the time has as many fewer calls, one that waits for something else has as many
/// as before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemCalls {
    /// The windows without and with the longer calls.
    pub(super) kinds: [Windows; 2],
    /// CPU time of the thread that opens and closes the windows; `None` where it cannot be had.
    pub keeper_cpu: Option<Duration>,
    /// The part of the time that counting takes by which the calls were fewer, 0 to 1; `None` as
    /// long as it is not known.
    slowed: Option<f64>,
}

/// Windows in which counting takes the same time for each call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Windows {
    /// Windows that are over.
    count: u64,
    /// Time of all of them.
    open: Duration,
    /// Calls that began in them, by CPU, CPU n at place n.
    by_cpu: Vec<u64>,
    /// Time by which a call takes longer, in nanoseconds, measured when the programs were loaded.
    call_ns: f64,
    /// Sums of the windows' rates (calls in a second on all CPUs), of their squares, and of their
    /// products with the calls.
    rates: f64,
    squares: f64,
    weighted: f64,
    /// Calls and weighted calls of the last windows, of which each counts [`FADES`] times as much
    /// as the one behind it: a load begins, and changes.
    recent: [f64; 2],
}

const FADES: f64 = 0.6;

impl Windows {
    fn add(&mut self, open: Duration, calls: &[u64]) {
        let all: u64 = calls.iter().sum();
        let rate = all as f64 / open.as_secs_f64().max(1e-9);
        self.count += 1;
        self.open += open;
        self.by_cpu.resize(self.by_cpu.len().max(calls.len()), 0);
        self.by_cpu.iter_mut().zip(calls).for_each(|(sum, one)| *sum += one);
        self.rates += rate;
        self.squares += rate * rate;
        self.weighted += all as f64 * rate;
        let fresh = [all as f64, all as f64 * rate];
        self.recent.iter_mut().zip(fresh).for_each(|(sum, one)| *sum = FADES * *sum + one);
    }

    fn since(&self, before: &Self) -> Self {
        let earlier = |cpu: usize| before.by_cpu.get(cpu).copied().unwrap_or(0);
        let by_cpu = self.by_cpu.iter().enumerate();
        Self {
            count: self.count.saturating_sub(before.count),
            open: self.open.saturating_sub(before.open),
            by_cpu: by_cpu.map(|(cpu, now)| now.saturating_sub(earlier(cpu))).collect(),
            call_ns: self.call_ns,
            rates: self.rates - before.rates,
            squares: self.squares - before.squares,
            weighted: self.weighted - before.weighted,
            recent: self.recent,
        }
    }

    fn calls(&self) -> f64 {
        self.by_cpu.iter().sum::<u64>() as f64
    }

    /// Returns the part of the time of one CPU that counting takes at a rate of calls.
    fn taken(&self, rate: f64) -> f64 {
        rate * self.call_ns / 1e9
    }

    /// Returns the rate while there are calls; `None` without one.
    fn busy_rate(&self) -> Option<f64> {
        let calls = self.calls();
        (calls > 0.0).then(|| self.weighted / calls)
    }

    /// Returns the rate while there are calls, of the last windows; `None` without a call.
    fn recent_rate(&self) -> Option<f64> {
        let [calls, weighted] = self.recent;
        (calls > 0.0).then(|| weighted / calls)
    }

    /// Returns the factor by which there are more calls without counting.
    fn more(&self, slowed: f64) -> f64 {
        let taken = self.busy_rate().map_or(0.0, |rate| self.taken(rate));
        1.0 / (1.0 - slowed * taken).max(0.1)
    }
}

impl SystemCalls {
    /// Returns the counts before the first window, with what a call takes longer in either kind.
    #[cfg_attr(not(target_pointer_width = "64"), allow(dead_code))]
    pub(super) fn new(call_ns: [f64; 2]) -> Self {
        let kinds = call_ns.map(|call_ns| Windows { call_ns, ..Windows::default() });
        Self { kinds, keeper_cpu: Some(Duration::ZERO), slowed: None }
    }

    /// Adds a window with its calls by CPU.
    #[cfg_attr(not(target_pointer_width = "64"), allow(dead_code))]
    pub(super) fn add(&mut self, is_longer: bool, open: Duration, calls: &[u64]) {
        self.kinds[usize::from(is_longer)].add(open, calls);
        let [short, long] = &self.kinds;
        if let Some((a, b)) = short.recent_rate().zip(long.recent_rate()) {
            // a = true rate * (1 - slowed * taken by a), and so for b.
            let apart = a * long.taken(b) - b * short.taken(a);
            let slowed = if apart > 0.0 { (a - b) / apart } else { 0.0 };
            self.slowed = Some(slowed.clamp(0.0, 1.0));
        }
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
        let [short, long] = &self.kinds;
        Self {
            kinds: [short.since(&before.kinds[0]), long.since(&before.kinds[1])],
            keeper_cpu: self
                .keeper_cpu
                .zip(before.keeper_cpu)
                .map(|(now, then)| now.saturating_sub(then)),
            slowed: self.slowed,
        }
    }

    /// Returns the number of windows.
    pub fn windows(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// Returns the time of all windows together.
    pub fn open(&self) -> Duration {
        self.kinds.iter().map(|kind| kind.open).sum()
    }

    /// Returns the calls that were counted.
    pub fn counted(&self) -> u64 {
        self.kinds.iter().flat_map(|kind| &kind.by_cpu).sum()
    }

    /// Returns the calls in a second on a CPU, as there would be without counting; `None` without a
    /// window.
    pub fn per_s(&self, cpu: u32) -> Option<f64> {
        let slowed = self.slowed.unwrap_or(0.0);
        let of = |kind: &Windows| Some(*kind.by_cpu.get(cpu as usize)? as f64 * kind.more(slowed));
        let mut calls = self.kinds.iter().filter_map(of).peekable();
        calls.peek()?;
        Some(calls.sum::<f64>() / self.open().as_secs_f64().max(1e-9))
    }

    /// Returns two standard errors of the rate over all CPUs, as a share of it, by how the windows
    /// differ. `None` with fewer than two windows, or without a call.
    pub fn error(&self) -> Option<f64> {
        let slowed = self.slowed.unwrap_or(0.0);
        let sum = |of: &dyn Fn(&Windows, f64) -> f64| -> f64 {
            self.kinds.iter().map(|kind| of(kind, kind.more(slowed))).sum()
        };
        let n = self.windows() as f64;
        let mean = sum(&|kind, more| kind.rates * more) / n;
        if n < 2.0 || mean <= 0.0 {
            return None;
        }
        let squares = sum(&|kind, more| kind.squares * more * more);
        let variance = (squares - n * mean * mean).max(0.0) / (n - 1.0);
        Some(2.0 * (variance / n).sqrt() / mean)
    }

    /// Returns the share by which the rate may be too low as long as nobody knows how the load
    /// answers to counting: what counting takes of the time of the CPU with most calls.
    pub fn low_by(&self) -> f64 {
        if self.slowed.is_some() {
            return 0.0;
        }
        let of = |kind: &Windows| {
            let most = kind.by_cpu.iter().copied().max().unwrap_or(0) as f64;
            kind.taken(most / kind.open.as_secs_f64().max(1e-9))
        };
        // Beyond that the cost of a call was measured wrong.
        self.kinds.iter().map(of).fold(0.0, f64::max).min(0.9)
    }

    /// Returns the CPU time that the counting took, the slower calls included.
    pub fn cost(&self) -> Option<Duration> {
        let of = |kind: &Windows| kind.calls() * kind.call_ns / 1e9;
        Some(self.keeper_cpu? + Duration::from_secs_f64(self.kinds.iter().map(of).sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: u64 = 4_000_000;

    fn window(all: &mut SystemCalls, is_longer: bool, calls: &[u64]) {
        all.add(is_longer, Duration::from_nanos(PARTS), calls);
    }

    #[test]
    fn rates_are_of_the_time_in_windows_and_their_error_of_how_these_differ() {
        let mut all = SystemCalls::new([200.0, 400.0]);
        assert_eq!((all.per_s(0), all.error()), (None, None));
        window(&mut all, false, &[1000, 0]);
        let before = all.clone();
        // 100,000 and 140,000 calls in a second, on the second CPU a quarter of them.
        window(&mut all, false, &[300, 100]);
        window(&mut all, false, &[420, 140]);
        let risen = all.since(&before);
        assert_eq!((risen.windows(), risen.open()), (2, Duration::from_millis(8)));
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
    fn counting_that_slows_down_a_thread_is_taken_out_again_and_one_that_does_not_is_not() {
        // Calls of 177 ns, one behind the other; counting makes them 126 and 276 ns longer.
        let call_ns = [126.0, 276.0];
        let mut busy = SystemCalls::new(call_ns);
        let calls = |ns: f64| [(PARTS as f64 / ns) as u64, 0];
        // Before the load began there were hardly any, and it began within a window.
        window(&mut busy, false, &[3, 0]);
        window(&mut busy, true, &[2, 0]);
        window(&mut busy, false, &[6000, 0]);
        window(&mut busy, true, &calls(177.0 + call_ns[1]));
        let before = busy.clone();
        for _ in 0..6 {
            window(&mut busy, false, &calls(177.0 + call_ns[0]));
            window(&mut busy, true, &calls(177.0 + call_ns[1]));
        }
        let of_load = busy.since(&before);
        let rate = of_load.per_s(0).unwrap() / (1e9 / 177.0);
        assert!((rate - 1.0).abs() < 0.02, "{rate}");
        // On two CPUs beside each other, each is slowed down by its own calls alone.
        let mut both = SystemCalls::new(call_ns);
        for is_longer in [false, true] {
            let [calls, _] = calls(177.0 + call_ns[usize::from(is_longer)]);
            window(&mut both, is_longer, &[calls, calls]);
        }
        let rate = both.per_s(1).unwrap() / (1e9 / 177.0);
        assert!((rate - 1.0).abs() < 0.01, "{rate}");
        // A load that comes from outside, of which the CPU has time left.
        let mut paced = SystemCalls::new(call_ns);
        for is_longer in [false, true] {
            window(&mut paced, is_longer, &[4000, 0]);
        }
        assert_eq!((paced.per_s(0), paced.low_by()), (Some(1e6), 0.0));
    }

    #[test]
    fn equal_windows_have_no_error_and_costs_are_the_keepers_and_the_calls() {
        let mut all = SystemCalls::new([100.0, 200.0]);
        for is_longer in [false, true].into_iter().cycle().take(50) {
            window(&mut all, is_longer, &[40]);
        }
        assert!(all.error().unwrap() < 1e-2, "{all:?}");
        all.keeper_cpu = Some(Duration::from_millis(3));
        assert_eq!(all.cost(), Some(Duration::from_micros(3300)));
        let mut absurd = SystemCalls::new([1e9; 2]);
        window(&mut absurd, false, &[40]);
        assert_eq!(absurd.low_by(), 0.9);
    }
}
