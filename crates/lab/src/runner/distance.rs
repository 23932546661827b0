//! The distance of the CPUs of the two hosts: before a run, inside it (where the probes could look)
//! and after it.
//!
//! The host of a virtual machine moves its CPUs among its own. Two that shared a cache may be in
//! different ones a second later, and whatever passes between them, packets above all, then takes a
//! multiple of its time.

use std::thread;
use std::time::{Duration, Instant};

use millstream_diagnose::groups::CPUS_APART_TIMES;
use millstream_distance::cpu_distance;
use millstream_record::error::Error;
use millstream_record::{RunRecord, keys};

use super::Interrupt;
use super::again::{Again, CPUS_APART};
use crate::limits;

/// Two CPUs.
pub(super) type Cpus = (usize, usize);

/// The distances that an experiment has seen between its CPUs.
#[derive(Debug)]
pub(super) struct Distances {
    nearest: Option<Duration>,
    /// Number of runs that may still be done again, or wait in vain. On a machine whose CPUs are
    /// never near, an experiment must not take a multiple of its time.
    patience: u32,
}

impl Distances {
    /// Returns the distances of an experiment of so many runs.
    pub(super) fn new(runs: usize) -> Self {
        let patience = (runs as u32 / limits::CPUS_APART_RUNS_PART).max(limits::RUN_REPEATS);
        Self { nearest: None, patience }
    }

    /// Measures; the reason where that cannot be done.
    fn look(&mut self, (one, other): Cpus) -> Result<Duration, String> {
        let distance = cpu_distance(one, other)
            .map_err(|error| format!("CPU {one} to CPU {other}: {error}"))?;
        self.saw(distance);
        Ok(distance)
    }

    fn saw(&mut self, distance: Duration) {
        self.nearest = Some(self.nearest.map_or(distance, |nearest| nearest.min(distance)));
    }

    /// Returns true when they are too far apart to be compared with the nearest distance that was
    /// seen.
    fn apart(&self, distance: Duration) -> bool {
        self.nearest.is_some_and(|nearest| distance > nearest.mul_f64(CPUS_APART_TIMES))
    }

    /// The farthest of around the run and inside its window.
    fn farthest(&mut self, around: Duration, record: &RunRecord) -> Duration {
        let inside = record.probes.distances_ns(record.window).map(Duration::from_nanos);
        inside.fold(around, |farthest, distance| {
            self.saw(distance);
            farthest.max(distance)
        })
    }

    /// Takes one of those that may be done again.
    fn spend(&mut self) -> bool {
        let left = self.patience > 0;
        self.patience = self.patience.saturating_sub(1);
        left
    }

    /// Measures until they are near, for as long as is allowed.
    fn wait(
        &mut self,
        cpus: Cpus,
        interrupt: &Interrupt,
    ) -> Result<Result<Duration, String>, Error> {
        let deadline = Instant::now() + Duration::from_millis(limits::CPUS_NEAR_TIMEOUT_MS);
        loop {
            let seen = self.look(cpus);
            let apart = seen.as_ref().is_ok_and(|&distance| self.apart(distance));
            if !apart || self.patience == 0 {
                return Ok(seen);
            }
            if Instant::now() >= deadline {
                self.spend();
                return Ok(seen);
            }
            interrupt.check()?;
            thread::sleep(Duration::from_millis(limits::CPUS_LOOK_MS));
        }
    }
}

/// The distance around one run.
pub(super) struct Around<'a> {
    distances: &'a mut Distances,
    cpus: Cpus,
    steady: bool,
    before: Result<Duration, String>,
}

impl<'a> Around<'a> {
    /// Measures before the run; `steady` waits for the CPUs to be near.
    pub(super) fn begin(
        distances: &'a mut Distances,
        cpus: Cpus,
        steady: bool,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let before = if steady { distances.wait(cpus, interrupt)? } else { distances.look(cpus) };
        Ok(Self { distances, cpus, steady, before })
    }

    /// Measures after the run, puts the distances into the record, and returns the reason to make
    /// the run again. A run that failed is not made again: wherever its CPUs were, its failure is
    /// what there is to tell.
    pub(super) fn end(self, record: &mut RunRecord) -> Option<Again> {
        let Self { distances, cpus, steady, before } = self;
        let after = distances.look(cpus);
        let text = |distance: Duration| distance.as_nanos().to_string();
        record.environment.record("cpus.distance_before_ns", before.clone().map(text));
        record.environment.record("cpus.distance_after_ns", after.clone().map(text));
        let (Ok(before), Ok(after)) = (before, after) else { return None };
        let farthest = distances.farthest(before.max(after), record);
        record.results.insert(keys::CPU_DISTANCE.to_owned(), farthest.as_nanos() as f64);
        if !steady || !record.validity.valid || !distances.apart(farthest) {
            return None;
        }
        let again = distances.spend().then_some(Again::CpusApart);
        if again.is_none() {
            record.notes.push(CPUS_APART.to_owned());
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::Window;

    const fn ns(ns: u64) -> Duration {
        Duration::from_nanos(ns)
    }

    /// As if CPUs 0 and 1 had been together a moment ago; false where they are not to be measured.
    fn were_together(distances: &mut Distances) -> bool {
        let seen = distances.look((0, 1));
        distances.saw(ns(1));
        seen.is_ok()
    }

    #[test]
    fn far_is_what_is_far_beside_the_nearest_seen() {
        let mut seen = Distances::new(12);
        assert!(!seen.apart(ns(500)));
        seen.saw(ns(500));
        assert!(!seen.apart(ns(500)));
        seen.saw(ns(110));
        seen.saw(ns(480));
        assert!(!seen.apart(ns(300)));
        assert!(seen.apart(ns(480)));
    }

    #[test]
    fn what_was_seen_inside_the_window_counts_too() {
        let mut distances = Distances::new(12);
        distances.saw(ns(500));
        let window = Window { start_s: 0.15, end_s: 0.4 };
        let mut record = RunRecord { window, ..RunRecord::default() };
        record.probes.times_s = vec![0.0, 0.1, 0.2, 0.3, 0.4];
        record.probes.cpu_distance_ns = Some(vec![Some(900), Some(110), None, Some(490)]);
        assert_eq!(distances.farthest(ns(120), &record), ns(490));
        assert!(distances.apart(ns(490)), "the nearest was seen inside");
        assert_eq!(distances.farthest(ns(600), &RunRecord::default()), ns(600));
    }

    #[test]
    fn both_ends_of_a_run_are_recorded_and_the_farther_counts() {
        let mut distances = Distances::new(12);
        distances.saw(ns(1));
        let around = |distances, steady, before| {
            let mut record = RunRecord::default();
            // A CPU and itself have no distance: what is absent is said, and asks for nothing.
            let around = Around { distances, cpus: (0, 0), steady, before };
            let again = around.end(&mut record);
            (again, record)
        };
        let (again, record) = around(&mut distances, true, Ok(ns(900)));
        assert_eq!(again, None);
        assert_eq!(record.environment.get("cpus.distance_before_ns"), Some("900"));
        assert!(record.environment.absent["cpus.distance_after_ns"].contains("two CPUs"));
        assert!(!record.results.contains_key(keys::CPU_DISTANCE));
    }

    #[test]
    fn a_run_that_failed_is_not_done_again_for_its_cpus() {
        let mut distances = Distances::new(12);
        if !were_together(&mut distances) {
            return;
        }
        let mut record = RunRecord::default();
        record.validity.reject("worker: killed");
        let around =
            Around { distances: &mut distances, cpus: (0, 1), steady: true, before: Ok(ns(900)) };
        assert_eq!(around.end(&mut record), None);
        assert_eq!(record.notes, [""; 0]);
    }

    /// Where this machine has two CPUs that a process may use.
    #[test]
    fn a_steady_experiment_waits_and_asks_for_another_run_and_one_that_is_not_records() {
        let mut distances = Distances::new(12);
        if distances.look((0, 1)).is_err() {
            return;
        }
        for steady in [false, true] {
            let mut record = RunRecord::default();
            let interrupt = Interrupt::default();
            let around = Around::begin(&mut distances, (0, 1), steady, &interrupt).unwrap();
            // As if they had been together a moment ago.
            around.distances.saw(ns(1));
            let again = around.end(&mut record);
            if let Some(&farthest) = record.results.get(keys::CPU_DISTANCE) {
                assert!(farthest >= 1.0);
                assert_eq!(again.is_some(), steady && farthest > CPUS_APART_TIMES, "{farthest}");
            }
        }
    }

    #[test]
    fn a_quarter_of_the_runs_may_be_done_again_and_then_one_is_kept_with_a_note() {
        let mut distances = Distances::new(16);
        assert!((0..4).all(|_| distances.spend()) && !distances.spend());
        if !were_together(&mut distances) {
            return;
        }
        let mut record = RunRecord::default();
        let around =
            Around { distances: &mut distances, cpus: (0, 1), steady: true, before: Ok(ns(900)) };
        assert_eq!(around.end(&mut record), None);
        // Unless the CPUs cannot be measured now.
        if record.results.contains_key(keys::CPU_DISTANCE) {
            assert_eq!(record.notes, [CPUS_APART]);
        }
    }

    #[test]
    fn an_interrupt_ends_the_waiting() {
        let mut distances = Distances::new(12);
        if !were_together(&mut distances) {
            return;
        }
        let interrupt = Interrupt::default();
        interrupt.raise();
        // It may also find that they cannot be measured now.
        if let Ok(seen) = distances.wait((0, 1), &interrupt) {
            assert!(seen.is_err());
        }
    }
}
