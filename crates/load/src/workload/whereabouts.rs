//! The CPU on which a thread that does traffic runs, as the thread itself says.
//!
//! A run of a second has a handful of samples from /proc, too few to tell whether two ends that
//! move shared a CPU. A data thread asks for its CPU at each call instead, which costs nanoseconds,
//! and keeps when it changed. Both ends use CLOCK_MONOTONIC, so that the runner can lay them side
//! by side.

use std::collections::BTreeMap;

use nix::sched::sched_getcpu;
use serde::{Deserialize, Serialize};

use super::monotonic_ns;

/// Changes that are kept; what came later is not known.
const CHANGES_LIMIT: usize = 16_384;

/// The CPUs that a thread came to, each with its moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// Moment (CLOCK_MONOTONIC, nanoseconds) and CPU, ascending.
    changes: Vec<(u64, u32)>,
    /// The moment until which that is known.
    until_ns: u64,
}

/// Keeps the whereabouts of the calling thread.
pub(super) struct Tracker {
    last: Option<u32>,
    kept: Whereabouts,
}

impl Tracker {
    pub(super) fn new() -> Self {
        let changes = Vec::with_capacity(CHANGES_LIMIT);
        Self { last: None, kept: Whereabouts { changes, until_ns: u64::MAX } }
    }

    /// Asks for the thread's CPU. Must be called where the thread has just run. The clock is read
    /// at a change only.
    pub(super) fn look(&mut self) {
        let Ok(cpu) = sched_getcpu() else { return };
        let cpu = cpu as u32;
        if self.last != Some(cpu) {
            self.note(monotonic_ns(), cpu);
        }
    }

    fn note(&mut self, at_ns: u64, cpu: u32) {
        self.last = Some(cpu);
        match self.kept.changes.len() < CHANGES_LIMIT {
            true => self.kept.changes.push((at_ns, cpu)),
            false => self.kept.until_ns = self.kept.until_ns.min(at_ns),
        }
    }

    pub(super) fn finish(mut self) -> Whereabouts {
        self.kept.until_ns = self.kept.until_ns.min(monotonic_ns());
        self.kept.changes.shrink_to_fit();
        self.kept
    }
}

impl Whereabouts {
    /// The CPU at a moment.
    #[cfg(test)]
    fn at(&self, at_ns: u64) -> Option<u32> {
        let after = self.changes.partition_point(|(from, _)| *from <= at_ns);
        after.checked_sub(1).map(|last| self.changes[last].1)
    }

    /// Nanoseconds on each CPU between two moments.
    pub fn on_cpus(&self, begin_ns: u64, end_ns: u64) -> BTreeMap<u32, u64> {
        let mut on = BTreeMap::new();
        for (from, to, cpu) in self.stretches(begin_ns, end_ns) {
            *on.entry(cpu).or_default() += to - from;
        }
        on
    }

    /// Changes of CPU between two moments.
    pub fn moves(&self, begin_ns: u64, end_ns: u64) -> u64 {
        let inside = self.changes.iter().skip(1).filter(|(at, _)| (begin_ns..end_ns).contains(at));
        inside.count() as u64
    }

    fn stretches(&self, begin_ns: u64, end_ns: u64) -> Vec<(u64, u64, u32)> {
        let next = self.changes.iter().skip(1).map(|(at, _)| *at).chain([self.until_ns]);
        let whole = self.changes.iter().zip(next).map(|(&(from, cpu), to)| (from, to, cpu));
        let cut = whole
            .map(|(from, to, cpu)| (from.max(begin_ns), to.min(self.until_ns).min(end_ns), cpu));
        cut.filter(|(from, to, _)| from < to).collect()
    }

    /// Share of the time between two moments in which this thread and another were on one CPU.
    /// `None` where less than half of that time is known of both.
    pub fn same_share(&self, other: &Self, begin_ns: u64, end_ns: u64) -> Option<f64> {
        let (mut known, mut same) = (0, 0);
        for (from, to, cpu) in self.stretches(begin_ns, end_ns) {
            for (other_from, other_to, other_cpu) in other.stretches(from, to) {
                let length = other_to - other_from;
                known += length;
                same += if cpu == other_cpu { length } else { 0 };
            }
        }
        (2 * known >= end_ns.saturating_sub(begin_ns) && known > 0)
            .then(|| same as f64 / known as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(changes: &[(u64, u32)], until_ns: u64) -> Whereabouts {
        Whereabouts { changes: changes.to_vec(), until_ns }
    }

    #[test]
    fn two_that_move_together_share_a_cpu_though_each_is_on_both() {
        let near = of(&[(0, 0), (50, 1)], 100);
        let together = of(&[(5, 0), (50, 1)], 100);
        let apart = of(&[(0, 1), (60, 0)], 100);
        assert_eq!(near.same_share(&together, 10, 100), Some(1.0));
        // From 50 to 60 both are on CPU 1.
        assert_eq!(near.same_share(&apart, 0, 100), Some(0.1));
        assert_eq!(near.on_cpus(10, 100), [(0, 40), (1, 50)].into());
        assert_eq!((near.moves(0, 100), near.moves(51, 100)), (1, 0));
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let near = of(&[(0, 0)], 100);
        assert_eq!(near.same_share(&of(&[(60, 0)], 100), 0, 100), None);
        assert_eq!(near.same_share(&of(&[(0, 0)], 40), 0, 100), None);
        assert_eq!(near.same_share(&of(&[], 0), 0, 100), None);
        assert_eq!(near.same_share(&of(&[(40, 0)], 100), 0, 100), Some(1.0));
    }

    #[test]
    fn a_thread_knows_where_it_is_and_keeps_so_many_changes() {
        let mut tracker = Tracker::new();
        let begin = monotonic_ns();
        tracker.look();
        assert!(tracker.kept.at(monotonic_ns()).is_some());
        for at in 0..2 * CHANGES_LIMIT as u64 {
            tracker.note(begin + 1_000_000_000 + at, (at % 2) as u32);
        }
        let kept = tracker.finish();
        assert_eq!(kept.changes.len(), CHANGES_LIMIT);
        assert!(kept.until_ns <= begin + 1_000_000_000 + CHANGES_LIMIT as u64);
    }
}
