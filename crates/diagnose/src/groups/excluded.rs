//! Runs in which the host kept the CPUs apart, beside enough others: they say what the host did,
//! not what was asked.

use millstream_record::{RunRecord, keys};

use super::Group;

/// Two CPUs are apart from so many times the least distance on that the experiment has seen.
/// Siblings of a core and cores that share a cache differ by less, those of different caches and
/// sockets by more.
pub const CPUS_APART_TIMES: f64 = 3.5;

/// Runs are set aside only where every group keeps so many.
pub const RUNS_KEPT: usize = 3;

/// The limit that tells runs whose CPUs were apart from those in which they were near.
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    /// Beyond this a run's CPUs were apart.
    above_ns: f64,
}

impl Apart {
    /// Returns the limit by the smallest distance of the CPUs in a valid run of these; `None` where
    /// none was measured.
    pub fn among(runs: &[RunRecord]) -> Option<Self> {
        let valid = runs.iter().filter(|run| run.validity.valid);
        let nearest = valid.filter_map(Self::distance_ns).min_by(f64::total_cmp)?;
        Some(Self { above_ns: nearest * CPUS_APART_TIMES })
    }

    /// The longest that a cache line took from one of the run's CPUs to the other and back, if that
    /// was measured.
    pub fn distance_ns(run: &RunRecord) -> Option<f64> {
        run.result(keys::CPU_DISTANCE)
    }

    /// Returns whether the run's CPUs were apart.
    pub fn has(&self, run: &RunRecord) -> bool {
        Self::distance_ns(run).is_some_and(|distance| distance > self.above_ns)
    }

    /// Sets the runs aside whose CPUs were apart: of all groups or of none, so that what is
    /// compared was measured alike. None, where a group would keep fewer than [`RUNS_KEPT`].
    pub fn set_aside(&self, groups: &mut [Group<'_>]) {
        let near = |run: &&RunRecord| !self.has(run);
        let keeps_enough = |group: &Group<'_>| {
            let kept = group.valid.iter().copied().filter(near).count();
            kept == group.valid.len() || kept >= RUNS_KEPT
        };
        if groups.iter().all(keeps_enough) {
            for group in groups {
                let valid = std::mem::take(&mut group.valid);
                (group.valid, group.apart) = valid.into_iter().partition(near);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::groups;
    use super::*;

    /// Runs of two stacks: how many are near, how many apart. The first of all is apart.
    fn runs(of: [(usize, usize); 2]) -> Vec<RunRecord> {
        let mut all = Vec::new();
        for (stack, (near, apart)) in ["kernel", "millstream"].into_iter().zip(of) {
            for at in 0..apart + near {
                let mut run = RunRecord::new(format!("{stack}-{at}"));
                run.stack = stack.into();
                run.results
                    .insert(keys::CPU_DISTANCE.into(), if at < apart { 487.0 } else { 120.0 });
                all.push(run);
            }
        }
        all
    }

    /// Returns, for each stack, the numbers of runs that count and of runs that are set aside.
    fn aside(of: [(usize, usize); 2]) -> Vec<(usize, usize)> {
        let runs = runs(of);
        let mut groups = groups(&runs, &[], &[]);
        Apart::among(&runs).unwrap().set_aside(&mut groups);
        let counted = groups.iter().map(|group| (group.valid.len(), group.apart.len()));
        let counted: Vec<_> = counted.collect();
        assert_eq!(groups.iter().flat_map(Group::all).count(), runs.len());
        counted
    }

    #[test]
    fn those_apart_are_set_aside_where_every_group_keeps_enough() {
        assert_eq!(aside([(3, 5), (4, 0)]), [(3, 5), (4, 0)]);
        assert_eq!(aside([(2, 0), (3, 1)]), [(2, 0), (3, 1)], "two that are near lose nothing");
    }

    #[test]
    fn none_is_set_aside_where_one_group_would_keep_too_few() {
        assert_eq!(aside([(2, 5), (8, 1)]), [(7, 0), (9, 0)]);
        assert_eq!(
            aside([(0, 6), (0, 6)]),
            [(6, 0), (6, 0)],
            "all alike: the nearest is what there is"
        );
    }

    #[test]
    fn without_a_distance_nothing_is_apart() {
        let runs = [RunRecord::new("a")];
        assert!(Apart::among(&runs).is_none());
        assert!(!Apart { above_ns: 1.0 }.has(&runs[0]));
    }
}
