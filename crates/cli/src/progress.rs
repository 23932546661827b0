//! Progress of an experiment: a bar with the time left on a terminal, one line per run elsewhere.
//! It writes to the standard error alone.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use millstream_foreign::shown;
use millstream_plan::{PlannedRun, Workload};
use millstream_record::{RunRecord, keys};

use crate::output::say;

/// Seconds that set-up and taking down add to a run, until runs have been timed.
const SET_UP_S: f64 = 0.5;

/// See the module's text.
pub struct Progress {
    bar: ProgressBar,
    pace: Arc<Mutex<Pace>>,
    total: usize,
    done: usize,
}

/// The time that runs have taken so far.
struct Pace {
    /// The time of a run before one has ended; `None` where nobody knows it.
    expected_s: Option<f64>,
    finished: u32,
    finished_s: f64,
    left: usize,
    run_began: Instant,
}

impl Pace {
    fn run_s(&self) -> Option<f64> {
        match self.finished {
            0 => self.expected_s,
            finished => Some(self.finished_s / f64::from(finished)),
        }
    }

    fn left_s(&self) -> Option<f64> {
        let run_s = self.run_s()?;
        let current = (run_s - self.run_began.elapsed().as_secs_f64()).max(0.0);
        Some(if self.left == 0 { 0.0 } else { current + run_s * (self.left - 1) as f64 })
    }

    /// Returns the number of runs, and how long they take where that is known.
    fn of_runs(&self, total: usize) -> String {
        let time = self.run_s().map(|run_s| format!(", about {}", minutes(run_s * total as f64)));
        format!("{total} runs{}", time.unwrap_or_default())
    }
}

impl Progress {
    /// Returns the progress of runs that measure and warm up for `seconds` each; 0 where nobody
    /// knows how long they take.
    pub fn new(seconds: f64) -> Self {
        let pace = Pace {
            expected_s: (seconds > 0.0).then_some(seconds + SET_UP_S),
            finished: 0,
            finished_s: 0.0,
            left: 0,
            run_began: Instant::now(),
        };
        Self { bar: ProgressBar::hidden(), pace: Arc::new(Mutex::new(pace)), total: 0, done: 0 }
    }

    /// Shows that the experiment begins.
    pub fn begin(&mut self, id: &str, total: usize) {
        self.total = total;
        if let Ok(mut pace) = self.pace.lock() {
            pace.left = total;
            say(format_args!("{id}: {}", pace.of_runs(total)));
        }
        let pace = self.pace.clone();
        let left = move |_: &ProgressState, to: &mut dyn std::fmt::Write| {
            let left_s = pace.lock().ok().and_then(|pace| pace.left_s());
            let left = left_s.map(|left_s| format!("{} left · ", minutes(left_s)));
            let _ = to.write_str(&left.unwrap_or_default());
        };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} · {left}{msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("left", left);
        self.bar = ProgressBar::new(total as u64).with_style(style);
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    /// Shows that a run begins.
    pub fn run_begins(&mut self, run: &PlannedRun) {
        if let Ok(mut pace) = self.pace.lock() {
            pace.run_began = Instant::now();
        }
        let configuration = &run.configuration;
        let levels: Vec<&str> = configuration.named.values().map(String::as_str).collect();
        let workload = configuration.workload.name();
        let message = format!("{} {workload} {}", configuration.stack, levels.join(" "));
        self.bar.set_message(shown(message));
    }

    /// Shows that a run has ended.
    pub fn run_ended(&mut self, run: &RunRecord) {
        self.done += 1;
        // One that was made again is one more than was planned.
        self.total = self.total.max(self.done);
        if let Ok(mut pace) = self.pace.lock() {
            pace.left = self.total - self.done;
            pace.finished += 1;
            pace.finished_s += run.duration_s;
        }
        if !run.validity.valid {
            let why = run.validity.reasons.join("; ");
            let line = shown(format!("invalid: {} {}: {why}", run.stack, run.configuration()));
            self.bar.suspend(|| say(line));
        } else if self.bar.is_hidden() {
            let (done, total) = (self.done, self.total);
            let (what, result) = (run.configuration(), headline(run));
            say(format_args!("{done}/{total} {} {what}: {result}", run.stack));
        }
        self.bar.inc(1);
    }

    /// Removes the bar, when the experiment is over.
    pub fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the main result of a run.
fn headline(run: &RunRecord) -> String {
    let is_of_packets =
        Workload::of(&run.workload).is_some_and(|workload| workload.result() == keys::PACKETS);
    if let Some(rate) = run.result(keys::PACKETS).filter(|_| is_of_packets) {
        return format!("{:.1} k datagrams/s", rate / 1e3);
    }
    if let Some(bits) = run.result(keys::THROUGHPUT) {
        return format!("{:.2} Gb/s", bits / 1e9);
    }
    if let Some(rate) = run.result(keys::TRANSACTIONS) {
        return format!("{rate:.0} transactions/s");
    }
    // An outside command has one result, whatever it is called.
    run.results
        .iter()
        .next()
        .map_or("no result".to_owned(), |(key, value)| format!("{key} {value}"))
}

/// Returns text such as `2:05 min`.
fn minutes(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    format!("{}:{:02} min", whole / 60, whole % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_runs_that_were_timed() {
        let mut pace = Pace {
            expected_s: Some(5.0),
            finished: 0,
            finished_s: 0.0,
            left: 3,
            run_began: Instant::now() + Duration::from_secs(3600),
        };
        assert_eq!(pace.left_s(), Some(15.0));
        (pace.finished, pace.finished_s, pace.left) = (1, 7.0, 2);
        assert_eq!(pace.left_s(), Some(14.0));
        pace.left = 0;
        assert_eq!(pace.left_s(), Some(0.0));
    }

    #[test]
    fn no_time_is_said_before_one_is_known() {
        let said = |seconds| Progress::new(seconds).pace.lock().unwrap().of_runs(20);
        assert_eq!(said(0.0), "20 runs");
        assert_eq!(said(2.5), "20 runs, about 1:00 min");
        let command = Progress::new(0.0);
        let mut pace = command.pace.lock().unwrap();
        assert_eq!(pace.left_s(), None);
        (pace.finished, pace.finished_s, pace.left) = (1, 7.0, 2);
        assert_eq!(pace.run_s(), Some(7.0));
    }

    #[test]
    fn there_may_be_more_runs_than_were_planned() {
        let mut progress = Progress::new(1.0);
        progress.begin("x", 1);
        for _ in 0..2 {
            progress.run_ended(&RunRecord::new("x"));
        }
        assert_eq!((progress.done, progress.total), (2, 2));
    }

    #[test]
    fn time_is_written_in_minutes() {
        assert_eq!(minutes(125.4), "2:05 min");
        assert_eq!(minutes(-1.0), "0:00 min");
    }
}
