//! Reading the counters on time.

use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use super::protocol::Sample;
use crate::limits;
use crate::workload::{Counts, Progress, monotonic_ns};

/// The counters of all ends at one moment.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    at_ns: u64,
    counts: Vec<Counts>,
    /// Payload bytes of each end and receiving connection; at the edges of the window only.
    received_by: Vec<Vec<u64>>,
}

impl Moment {
    /// Returns the counters of one end.
    pub(super) fn of(&self, end: usize) -> Sample {
        Sample { at_ns: self.at_ns, counts: self.counts[end] }
    }
}

/// Returns the payload bytes that each receiving connection of an end received between two moments.
pub(super) fn received_between(first: &Moment, last: &Moment, end: usize) -> Vec<u64> {
    let of = |moment: &Moment| moment.received_by.get(end).cloned().unwrap_or_default();
    of(last).into_iter().zip(of(first)).map(|(after, before)| after - before).collect()
}

/// A window's worth of readings.
pub(super) struct Taken {
    pub(super) samples: Vec<Moment>,
    pub(super) cpu_s: f64,
}

/// Reads at the beginning, at every interval and at the end of the window. The time of a reading
/// is when it was really taken; of those that a process which stood still has missed, one is
/// taken. What `check` refuses, looked at as often, ends it early.
pub(super) fn sample(
    ends: &[Arc<Progress>],
    begin_ns: u64,
    end_ns: u64,
    check: impl Fn() -> Result<(), String>,
) -> Result<Taken, String> {
    let step_ns = limits::INTERVAL_MS * 1_000_000;
    let mut samples = Vec::with_capacity(((end_ns - begin_ns) / step_ns) as usize + 2);
    let mut due = begin_ns;
    let mut cpu_begin = Duration::ZERO;
    while let Some(before) = due.checked_sub(step_ns).filter(|&before| before > monotonic_ns()) {
        check()?;
        sleep_until(before.min(monotonic_ns() + step_ns));
    }
    loop {
        sleep_until(due);
        check()?;
        let counts = ends.iter().map(|progress| progress.counts()).collect();
        let at_edge = due == begin_ns || due >= end_ns;
        let received_by = match at_edge {
            true => ends.iter().map(|progress| progress.received_by()).collect(),
            false => Vec::new(),
        };
        samples.push(Moment { at_ns: monotonic_ns(), counts, received_by });
        if due == begin_ns {
            cpu_begin = process_cpu();
        }
        if due >= end_ns {
            break;
        }
        due = next_due(begin_ns, end_ns, monotonic_ns());
    }
    Ok(Taken { samples, cpu_s: process_cpu().saturating_sub(cpu_begin).as_secs_f64() })
}

/// When the next reading is due, now that one was taken: at the next whole interval, and never in
/// the past but for the end. A last step shorter than half an interval joins the one before it.
fn next_due(begin_ns: u64, end_ns: u64, now_ns: u64) -> u64 {
    let step_ns = limits::INTERVAL_MS * 1_000_000;
    let due = begin_ns + (now_ns.saturating_sub(begin_ns) / step_ns + 1) * step_ns;
    if due + step_ns / 2 > end_ns { end_ns } else { due }
}

/// Sleeps until this moment of CLOCK_MONOTONIC.
pub fn sleep_until(at_ns: u64) {
    let until = Duration::from_nanos(at_ns).into();
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    while monotonic_ns() < at_ns {
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &until);
    }
}

/// CPU time of this process.
fn process_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_both_its_edges() {
        let ends = [Arc::new(Progress::default()), Arc::new(Progress::default())];
        let begin = monotonic_ns() + 1_000_000;
        let taken = sample(&ends, begin, begin + 230_000_000, || Ok(())).unwrap();
        assert_eq!(taken.samples.len(), 3, "begin, 100 ms, and the end 130 ms later");
        assert!(taken.samples[0].at_ns >= begin);
        assert!(taken.samples[2].of(1).at_ns >= begin + 230_000_000);
        assert!(taken.cpu_s >= 0.0);
    }

    #[test]
    fn what_fails_before_or_inside_the_window_ends_it() {
        let ends = [Arc::new(Progress::default())];
        let hours = 3_600_000_000_000;
        for begin in [monotonic_ns(), monotonic_ns() + hours] {
            let left = std::cell::Cell::new(2);
            let check = || match left.replace(left.get() - 1) {
                0 => Err("it broke".to_owned()),
                _ => Ok(()),
            };
            assert_eq!(sample(&ends, begin, begin + hours, check).err().unwrap(), "it broke");
        }
    }

    #[test]
    fn who_stood_still_takes_one_reading_and_goes_on_at_whole_intervals() {
        let ms = |ms: u64| ms * 1_000_000;
        let due = |now| next_due(ms(1000), ms(1430), now);
        assert_eq!(due(ms(1000) + 1), ms(1100));
        assert_eq!(due(ms(1199)), ms(1200));
        assert_eq!(due(ms(1200)), ms(1300), "the one due now was the one taken");
        assert_eq!(due(ms(1301)), ms(1430), "a last step of 30 ms joins the one before");
        assert_eq!(due(ms(2800)), ms(1430), "the end is always read");
        assert_eq!(due(ms(900)), ms(1100));
        // Woken 1.5 s late, the whole window is two readings: its beginning and its end.
        let ends = [Arc::new(Progress::default())];
        let end = monotonic_ns() - ms(50);
        let taken = sample(&ends, end - ms(1500), end, || Ok(())).unwrap();
        assert_eq!(taken.samples.len(), 2);
    }

    #[test]
    fn the_past_needs_no_sleep() {
        sleep_until(0);
    }
}
