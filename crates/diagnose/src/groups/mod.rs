//! Runs by configuration, those that are set aside, and the comparison of stacks.

mod excluded;

use std::collections::BTreeMap;

use crate::stats::{Bootstrap, Comparison, Summary};

pub use excluded::{Apart, CPUS_APART_TIMES, RUNS_KEPT};

use millstream_record::{RunRecord, configuration_label};

/// The workload, factors and stack that the runs of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Workload.
    pub workload: String,
    /// Levels of the factors; `stack` and `workload` are none of them, even if the run lists them.
    pub factors: BTreeMap<String, String>,
    /// Stack.
    pub stack: String,
}

impl Key {
    /// Returns that of a run.
    pub fn of(run: &RunRecord) -> Self {
        let mut factors = run.factors.clone();
        factors.retain(|name, _| name != "stack" && name != "workload");
        Self { workload: run.workload.clone(), factors, stack: run.stack.clone() }
    }

    /// Workload and factors: what is compared between stacks.
    pub fn configuration(&self) -> String {
        configuration_label(&self.workload, &self.factors)
    }
}

/// Runs of one configuration on one stack.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The key of each.
    pub key: Key,
    /// The runs that count, in the order of execution.
    pub valid: Vec<&'a RunRecord>,
    /// The runs that are set aside, as their CPUs were apart ([`Apart::set_aside`]).
    pub apart: Vec<&'a RunRecord>,
    /// The runs that do not.
    pub invalid: Vec<&'a RunRecord>,
}

/// One value with the run it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The run.
    pub run: &'a RunRecord,
    /// True if it counts.
    pub counts: bool,
    /// Its value.
    pub value: f64,
}

/// Runs by configuration and stack: workloads in the order of `workloads`, then by factors, then
/// stacks in the order of `stacks`; names that are not in a list come behind, by name.
pub fn groups<'a>(
    runs: &'a [RunRecord],
    workloads: &[String],
    stacks: &[String],
) -> Vec<Group<'a>> {
    let mut by_key: BTreeMap<Key, Group<'a>> = BTreeMap::new();
    for run in runs {
        let key = Key::of(run);
        let group = by_key.entry(key.clone()).or_insert_with(|| Group {
            key,
            valid: vec![],
            apart: vec![],
            invalid: vec![],
        });
        if run.validity.valid { group.valid.push(run) } else { group.invalid.push(run) }
    }
    let place =
        |list: &[String], name: &str| list.iter().position(|one| one == name).unwrap_or(list.len());
    let mut groups: Vec<_> = by_key.into_values().collect();
    groups.sort_by_key(|group| {
        let Key { workload, factors, stack } = &group.key;
        let (workload_place, stack_place) = (place(workloads, workload), place(stacks, stack));
        (workload_place, workload.clone(), factors.clone(), stack_place, stack.clone())
    });
    for group in &mut groups {
        group.valid.sort_by_key(|run| run.order);
        group.invalid.sort_by_key(|run| run.order);
    }
    groups
}

impl<'a> Group<'a> {
    /// Values of a result in the valid runs.
    pub fn values(&self, result: &str) -> Vec<f64> {
        self.valid.iter().filter_map(|run| run.result(result)).collect()
    }

    /// All of them, those that count first.
    pub fn all(&self) -> impl Iterator<Item = &'a RunRecord> {
        self.valid.iter().chain(&self.apart).chain(&self.invalid).copied()
    }

    /// Returns whether the run is one of those that count.
    pub fn counts(&self, run: &RunRecord) -> bool {
        self.valid.iter().any(|one| one.id == run.id)
    }

    /// Every value of a result, of runs that do not count too.
    pub fn samples(&self, result: &str) -> Vec<Sample<'a>> {
        let sample = |(at, run): (usize, &'a RunRecord)| {
            let counts = at < self.valid.len();
            run.result(result).map(|value| Sample { run, counts, value })
        };
        let mut samples: Vec<_> = self.all().enumerate().filter_map(sample).collect();
        samples.sort_by_key(|sample| sample.run.order);
        samples
    }

    /// Summary of a result; `None` when no valid run has it.
    pub fn summary(&self, result: &str, bootstrap: &Bootstrap) -> Option<Summary> {
        Summary::of(&self.values(result), bootstrap)
    }
}

/// The ratio of a result between a group and its base; `None` when either has no valid value or the
/// base's median is not positive. The interval has no upper end where the base was zero too often.
pub fn compare(
    other: &Group<'_>,
    base: &Group<'_>,
    result: &str,
    bootstrap: &Bootstrap,
) -> Option<Comparison> {
    Comparison::of(&other.values(result), &base.values(result), bootstrap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    fn run(workload: &str, stack: &str, order: u32, value: f64) -> RunRecord {
        let mut run = RunRecord::new(format!("r{order}"));
        run.workload = workload.into();
        run.stack = stack.into();
        run.order = order;
        run.results.insert("x_bytes".into(), value);
        run
    }

    fn runs() -> Vec<RunRecord> {
        let mut runs = vec![
            run("tcp_stream", "millstream", 3, 6.0),
            run("tcp_stream", "kernel", 1, 2.0),
            run("tcp_stream", "kernel", 0, 4.0),
            run("tcp_stream", "kernel", 2, 3.0),
            run("tcp_rr", "kernel", 4, 1.0),
            run("tcp_stream", "kernel", 5, 1000.0),
        ];
        runs[5].validity.reject("test");
        runs
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn groups_follow_the_order_of_the_design() {
        let runs = runs();
        let groups =
            groups(&runs, &names(&["tcp_stream", "tcp_rr"]), &names(&["kernel", "millstream"]));
        let keys: Vec<_> =
            groups.iter().map(|g| (g.key.workload.as_str(), g.key.stack.as_str())).collect();
        assert_eq!(
            keys,
            [("tcp_stream", "kernel"), ("tcp_stream", "millstream"), ("tcp_rr", "kernel")]
        );
        assert_eq!(groups[0].valid.iter().map(|run| run.order).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn invalid_runs_are_drawn_but_not_summarised() {
        let runs = runs();
        let groups = groups(&runs, &[], &[]);
        let stream = groups
            .iter()
            .find(|g| g.key.workload == "tcp_stream" && g.key.stack == "kernel")
            .unwrap();
        let summary = stream.summary("x_bytes", &Bootstrap::default()).unwrap();
        assert_eq!((summary.n, summary.median, summary.max, summary.mad), (3, 3.0, 4.0, 1.0));
        assert_eq!(stream.samples("x_bytes").len(), 4);
        assert!(stream.summary("y_bytes", &Bootstrap::default()).is_none());
    }

    #[test]
    fn a_ratio_is_of_medians_and_needs_runs_enough_for_an_interval() {
        let runs = runs();
        let groups = groups(&runs, &[], &[]);
        let find = |stack| {
            groups.iter().find(|g| g.key.workload == "tcp_stream" && g.key.stack == stack).unwrap()
        };
        let comparison =
            compare(find("millstream"), find("kernel"), "x_bytes", &Bootstrap::default()).unwrap();
        assert_eq!((comparison.ratio, comparison.interval), (2.0, None));
        assert!(!comparison.differs());
        let few = Comparison::of(&[9.0; 3], &[1.0; 30], &Bootstrap::default()).unwrap();
        assert_eq!((few.interval, few.n), (None, 3), "thirty runs of the base are no help");
        let enough = Comparison::of(&[9.0; 4], &[1.0; 4], &Bootstrap::default()).unwrap();
        assert_eq!(enough.interval, Some(Interval { low: 9.0, high: 9.0 }));
        let summary = find("kernel").summary("x_bytes", &Bootstrap::default()).unwrap();
        assert_eq!((summary.n, summary.interval), (3, None));
        let clear =
            Comparison { ratio: 2.0, interval: Some(Interval { low: 1.9, high: 2.1 }), n: 4 };
        assert!(clear.differs());
        assert!(!Comparison { n: 3, ..clear }.differs(), "three runs claim nothing");
    }
}
