//! The observed runs as drawings: one run of each group over time by CPU, the histograms of the
//! lowest and of the highest group, the cost of observation, and the far end's host, where that is
//! another.

use std::collections::BTreeMap;

use millstream_diagnose::cost::costs;
use millstream_diagnose::histogram::{self, Buckets};
use millstream_diagnose::modes::Mode;
use millstream_diagnose::sets::histograms_of;
use millstream_diagnose::stats::median;
use millstream_record::{Probes, RunRecord, Table};
use millstream_report::per_cpu;
use serde::{Deserialize, Serialize};

/// Steps of a run over time at most; of a longer one several are one.
const STEPS: usize = 120;
/// CPUs of a host that are kept: the busiest.
const CPUS: usize = 64;
/// Histograms that are kept: those that differ most.
const HISTOGRAMS: usize = 8;

/// The observed runs over time, their histograms, and the cost of observation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The run nearest the median of each group, the lowest first; of its far host, too.
    pub heat: Vec<Heat>,
    /// Histograms of both ends of the groups, those that differ most first.
    pub histograms: Vec<TwoHistograms>,
    /// The probes and programs with the percent of one CPU that each took in the median of the
    /// runs; the most first.
    pub costs: Vec<(String, f64)>,
    /// CPUs of this machine.
    pub cpus: usize,
}

/// Utilisation of each CPU over a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heat {
    /// The run.
    pub run: String,
    /// Place of its group.
    pub group: usize,
    /// True for the host of the far end.
    pub is_far: bool,
    /// Beginning and end, in seconds after the start of the run.
    pub span_s: (f64, f64),
    /// For each CPU its number, and the share of each step in which it worked.
    pub busy: Vec<(u32, Vec<f64>)>,
    /// The whole run by CPU, as mpstat(1) has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Table>,
}

/// A histogram by powers of two in both groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TwoHistograms {
    /// The quantity that is counted, and its unit.
    pub name: String,
    /// Buckets of the lowest group: the least value of each, and the number of values in it.
    pub lowest: Vec<(u64, u64)>,
    /// Buckets of the highest group.
    pub highest: Vec<(u64, u64)>,
}

impl Seen {
    /// Returns the drawings' data of `runs`, which have these `results`. `groups` have their
    /// members by place in `runs`.
    pub(super) fn of(runs: &[&RunRecord], results: &[f64], groups: &[Mode]) -> Self {
        let mut heat = Vec::new();
        for (group, mode) in groups.iter().enumerate() {
            let apart = |at: &&usize| (results[**at] - mode.median).abs();
            let nearest = mode.members.iter().min_by(|a, b| apart(a).total_cmp(&apart(b)));
            let Some(run) = nearest.and_then(|&at| runs.get(at)) else { continue };
            heat.extend(Heat::of(run, group, &run.probes, false));
            let far = run.far_probes.as_deref();
            heat.extend(far.and_then(|probes| Heat::of(run, group, probes, true)));
        }
        let histograms = match groups {
            [lowest, .., highest] => two_histograms(runs, lowest, highest),
            _ => Vec::new(),
        };
        let of_cpu = |run: &&RunRecord| run.probes.cpu.as_ref().map(|cpu| cpu.cpus.len());
        let cpus = runs.iter().find_map(of_cpu).unwrap_or(1);
        Self { heat, histograms, costs: median_costs(runs), cpus }
    }
}

impl Heat {
    fn of(run: &RunRecord, group: usize, probes: &Probes, is_far: bool) -> Option<Self> {
        let (times, cpu) = (&probes.times_s, probes.cpu.as_ref()?);
        let steps = times.len().checked_sub(1).filter(|steps| *steps > 0)?;
        let each = steps.div_ceil(STEPS);
        let mut busy: Vec<(u32, Vec<f64>)> = (cpu.cpus.iter())
            .map(|one| {
                let shares = (0..steps).step_by(each).map(|from| {
                    let to = (from + each).min(steps);
                    let worked: f64 = (from..to).map(|step| one.busy_s(step)).sum();
                    (worked / (times[to] - times[from]).max(1e-9)).clamp(0.0, 1.0)
                });
                (one.cpu, shares.collect())
            })
            .collect();
        let all = |one: &(u32, Vec<f64>)| one.1.iter().sum::<f64>();
        busy.sort_by(|a, b| all(b).total_cmp(&all(a)));
        busy.truncate(CPUS);
        busy.sort_by_key(|(cpu, _)| *cpu);
        let span_s = (times[0], times[steps]);
        Some(Self { run: run.id.clone(), group, is_far, span_s, busy, cpus: per_cpu(probes) })
    }
}

fn two_histograms(runs: &[&RunRecord], lowest: &Mode, highest: &Mode) -> Vec<TwoHistograms> {
    let of = |mode: &Mode| -> BTreeMap<String, Vec<(u64, u64)>> {
        histograms_of(mode.members.iter().filter_map(|&at| runs.get(at).copied()))
    };
    let (low, mut high) = (of(lowest), of(highest));
    let both = low.into_iter().filter_map(|(name, lowest)| {
        let highest = high.remove(&name)?;
        Some(TwoHistograms { name, lowest, highest })
    });
    let mut all: Vec<TwoHistograms> = both.collect();
    let apart = |one: &TwoHistograms| histogram::moved(&one.lowest, &one.highest);
    all.sort_by(|a, b| apart(b).total_cmp(&apart(a)));
    all.truncate(HISTOGRAMS);
    all
}

fn median_costs(runs: &[&RunRecord]) -> Vec<(String, f64)> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for cost in runs.iter().flat_map(|run| costs(&run.probes, &[])) {
        let what = if cost.is_program { " (program in the kernel)" } else { "" };
        all.entry(cost.name + what).or_default().push(cost.percent);
    }
    let middle = all.into_iter().filter_map(|(name, percents)| Some((name, median(&percents)?)));
    let mut costs: Vec<(String, f64)> = middle.collect();
    costs.sort_by(|a, b| b.1.total_cmp(&a.1));
    costs
}

/// The share of the values of a histogram in each bucket of either, by its least value.
pub(super) fn shares_of(both: &TwoHistograms) -> Vec<(u64, f64, f64)> {
    let all = |of: &Buckets| of.iter().map(|(_, count)| count).sum::<u64>().max(1) as f64;
    let (low, high) = (all(&both.lowest), all(&both.highest));
    let mut shares: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for &(least, count) in &both.lowest {
        shares.entry(least).or_default().0 += count as f64 / low;
    }
    for &(least, count) in &both.highest {
        shares.entry(least).or_default().1 += count as f64 / high;
    }
    shares.into_iter().map(|(least, (one, other))| (least, one, other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::{CpuActivity, CpuSeries, HistogramRecord, KernelActivity};

    fn probes(busy: f64) -> Probes {
        let cpu = |cpu, usr_s| CpuSeries { cpu, usr_s, ..CpuSeries::default() };
        let cpus = vec![cpu(0, vec![busy, busy]), cpu(1, vec![0.0, 0.5])];
        Probes {
            times_s: vec![1.0, 2.0, 3.0],
            cpu: Some(CpuActivity { resolution_s: 0.01, cpus }),
            probe_cpu_s: [("cpu".to_owned(), 0.02), ("hosts".to_owned(), 0.04)].into(),
            ..Probes::default()
        }
    }

    /// Two groups of three runs with 10 and with 50, of which those with the far host's probes say
    /// so.
    fn seen() -> Seen {
        let results = [10.0, 11.0, 12.0, 50.0, 51.0, 52.0];
        let runs: Vec<RunRecord> = (results.iter().enumerate())
            .map(|(at, _)| {
                let mut run = RunRecord::new(format!("r{at}"));
                run.probes = probes(if at < 3 { 1.0 } else { 0.25 });
                run.far_probes = Some(Box::new(probes(0.75)));
                let histogram = |what: &str, least| HistogramRecord {
                    what: what.to_owned(),
                    buckets_ns: vec![(least, 10)],
                    ..HistogramRecord::default()
                };
                let delay = if at < 3 { 1 << 14 } else { 1 << 10 };
                let histograms =
                    vec![histogram("lock_wait", 64), histogram("scheduling_delay", delay)];
                run.probes.kernel =
                    Some(KernelActivity { histograms, ..KernelActivity::default() });
                run
            })
            .collect();
        let mode = |members: [usize; 3]| Mode {
            median: results[members[1]],
            range: (results[members[0]], results[members[2]]),
            members: members.to_vec(),
        };
        let runs: Vec<&RunRecord> = runs.iter().collect();
        Seen::of(&runs, &results, &[mode([0, 1, 2]), mode([3, 4, 5])])
    }

    #[test]
    fn a_run_of_each_group_is_kept_over_time_with_its_far_host() {
        let seen = seen();
        let kept: Vec<(&str, usize, bool)> =
            seen.heat.iter().map(|one| (one.run.as_str(), one.group, one.is_far)).collect();
        assert_eq!(kept, [("r1", 0, false), ("r1", 0, true), ("r4", 1, false), ("r4", 1, true)]);
        assert_eq!(seen.heat[0].busy, [(0, vec![1.0, 1.0]), (1, vec![0.0, 0.5])]);
        assert_eq!((seen.heat[3].busy[0].1[0], seen.heat[3].span_s), (0.75, (1.0, 3.0)));
    }

    #[test]
    fn the_histogram_that_differs_most_comes_first_and_costs_are_of_the_median_run() {
        let seen = seen();
        let names: Vec<&str> = seen.histograms.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["kernel.scheduling_delay_ns", "kernel.lock_wait_ns"]);
        assert_eq!(seen.histograms[0].lowest, [(1 << 14, 30)]);
        assert_eq!(seen.costs, [("hosts".to_owned(), 2.0), ("cpu".to_owned(), 1.0)]);
        assert_eq!(seen.cpus, 2);
    }
}
