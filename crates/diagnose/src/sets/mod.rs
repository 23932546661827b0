//! Two sets of runs beside each other: each configuration that both have, by its result and by
//! everything else that was measured of it. Pure functions over records.
//!
//! The result of a configuration is tested at [`P_CHANGE`] divided by the number of configurations
//! (Bonferroni). The other results, the features of a configuration and what Millstream's engines
//! counted are looked at together: of those that are called changed no more than [`P_CHANGE`] are
//! expected to be so by chance (Benjamini and Hochberg, 1995). So are the histograms, among
//! themselves.

mod engine;
mod histograms;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::compare::{
    Change, Comparison, Difference, P_CHANGE, are_mostly_equal, chance, compare, differ,
};
use crate::paired::{self, paired};
use crate::stats::median;

pub use histograms::HistogramRow;
pub use histograms::histograms_of;

use crate::features::features;
use millstream_plan::Workload;
use millstream_record::error::Error;
use millstream_record::{FORMAT_VERSION, RunRecord, StackRecord, configuration_label, keys};

/// Fewest runs of each set of which a difference is told.
const RUNS_LEAST: usize = 4;

/// The comparison of two sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetComparison {
    /// [`FORMAT_VERSION`] of the program that wrote it.
    pub format: u32,
    /// Ids of the experiments of the first and of the second set.
    pub sets: (Vec<String>, Vec<String>),
    /// Each configuration that both have.
    pub cases: Vec<Case>,
    /// Configurations that one of them has, and which of the two.
    pub only_in: Vec<(String, u8)>,
}

/// A configuration in both sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Workload, stack and levels.
    pub configuration: String,
    /// Runs of each set that count.
    pub runs: (usize, usize),
    /// Runs of each set that do not.
    pub left_out: (usize, usize),
    /// The result that is looked at first; `None` where too few runs have it.
    pub result: Option<Row>,
    /// The number of other values that were compared.
    pub looked_at: usize,
    /// The other values, the least likely by chance first.
    pub others: Vec<Row>,
    /// The histograms that both have, likewise.
    #[serde(default)]
    pub histograms: Vec<HistogramRow>,
}

/// One value in both sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its key, with the unit at the end.
    pub name: String,
    /// Medians of both sets.
    pub medians: (f64, f64),
    /// The second as a ratio to the first with its interval, and the smallest change that would
    /// have been seen; `None` where a value is zero or below.
    pub comparison: Option<Comparison>,
    /// The change as a difference, where there is no ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Chance of ranks as far apart where nothing differs.
    pub p: f64,
    /// The chance, corrected for the number of values that are compared.
    pub p_corrected: f64,
    /// True when it is shown to differ.
    pub changed: bool,
}

impl Row {
    /// Returns the row of a result of which each pair is of two runs in turns.
    pub fn of_pairs(name: &str, pairs: &[(f64, f64)]) -> Option<Self> {
        let machine = [pairs.to_vec()];
        let comparison = paired(&machine, P_CHANGE);
        let differ = || paired::differ(&machine, P_CHANGE);
        let difference = if comparison.is_some() { None } else { differ() };
        let of_ratio = comparison.map(|found| (found.medians, found.p, found.change));
        let of_difference = difference.map(|found| (found.medians, found.p, found.change));
        let (medians, p, change) = of_ratio.or(of_difference)?;
        let (name, changed) = (name.to_owned(), change == Change::Changed);
        Some(Self { name, medians, comparison, difference, p, p_corrected: p, changed })
    }
}

/// Compares `second` with `first`; the same `seed` gives the same answer.
pub fn compare_sets(first: &[RunRecord], second: &[RunRecord], seed: u64) -> SetComparison {
    let (left, right) = (by_configuration(first), by_configuration(second));
    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let both = names.iter().filter(|name| left.contains_key(**name) && right.contains_key(**name));
    let configurations = both.clone().count();
    let cases = both.map(|name| case(name, (&left[*name], &right[*name]), configurations, seed));
    let only_in = names.iter().filter_map(|name| {
        match (left.contains_key(*name), right.contains_key(*name)) {
            (true, false) => Some(((*name).clone(), 1)),
            (false, true) => Some(((*name).clone(), 2)),
            _ => None,
        }
    });
    SetComparison {
        format: FORMAT_VERSION,
        sets: (experiments(first), experiments(second)),
        cases: cases.collect(),
        only_in: only_in.collect(),
    }
}

/// Returns the one configuration of both sets, and the profile of each.
///
/// # Errors
///
/// `Refused` where the runs are of several configurations, or a set has no profile.
pub fn profiles(
    first: &[RunRecord],
    second: &[RunRecord],
) -> Result<(String, [Vec<StackRecord>; 2]), Error> {
    let configurations: BTreeSet<String> =
        by_configuration(first).into_keys().chain(by_configuration(second).into_keys()).collect();
    if configurations.len() > 1 {
        let all: Vec<String> = configurations.into_iter().collect();
        let why = "a flame graph is of one configuration (--only); there are:";
        return Err(Error::Refused(format!("{why} {}", all.join("; "))));
    }
    let profile = |runs: &[RunRecord]| {
        StackRecord::merged(
            runs.iter()
                .filter(|run| run.validity.valid)
                .filter_map(|run| run.probes.kernel.as_ref()),
        )
    };
    let (before, after) = (profile(first), profile(second));
    for (which, profile) in [("first", &before), ("second", &after)] {
        if profile.is_empty() {
            let why = "no run that counts has a profile (`run --profile`, `investigate`)";
            return Err(Error::Refused(format!("the {which} set: {why}")));
        }
    }
    let title = configurations.into_iter().next().unwrap_or_default();
    Ok((title, [before, after]))
}

fn experiments(runs: &[RunRecord]) -> Vec<String> {
    let ids: BTreeSet<&String> = runs.iter().map(|run| &run.experiment_id).collect();
    ids.into_iter().cloned().collect()
}

fn by_configuration(runs: &[RunRecord]) -> BTreeMap<String, Vec<&RunRecord>> {
    let mut found: BTreeMap<String, Vec<&RunRecord>> = BTreeMap::new();
    for run in runs {
        let name = configuration_label(&run.workload, &run.factors);
        found.entry(format!("{name}, {}", run.stack)).or_default().push(run);
    }
    found
}

fn case(
    name: &str,
    (first, second): (&[&RunRecord], &[&RunRecord]),
    configurations: usize,
    seed: u64,
) -> Case {
    let valid = |runs: &[&RunRecord]| -> Vec<RunRecord> {
        runs.iter().filter(|run| run.validity.valid).map(|run| (*run).clone()).collect()
    };
    let sets = (valid(first), valid(second));
    let main = main_result(&sets.0);
    let mut values = values(&sets.0, &sets.1);
    let level = P_CHANGE / configurations as f64;
    let result = values.remove(&main).and_then(|pair| row(&main, &pair, level, true));
    let result = result.map(|mut row| {
        row.p_corrected = (row.p * configurations as f64).min(1.0);
        row.changed = row.p < level;
        row
    });
    let rows = values.iter().filter_map(|(name, pair)| row(name, pair, P_CHANGE, false));
    let mut others: Vec<Row> = rows.collect();
    others.sort_by(|a, b| a.p.total_cmp(&b.p));
    let corrected = step_up(others.iter().map(|row| row.p));
    for (row, p) in others.iter_mut().zip(corrected) {
        (row.p_corrected, row.changed) = (p, p < P_CHANGE);
    }
    let of = |all: &[&RunRecord], counted: &[RunRecord]| (counted.len(), all.len() - counted.len());
    let (one, two) = (of(first, &sets.0), of(second, &sets.1));
    Case {
        configuration: name.to_owned(),
        runs: (one.0, two.0),
        left_out: (one.1, two.1),
        result,
        looked_at: others.len(),
        others,
        histograms: histograms::compare(&sets.0, &sets.1, seed),
    }
}

/// Benjamini and Hochberg's procedure, of chances that are sorted, the smallest first. The
/// corrected one is the least of p times their number over the rank, taken over this one and all
/// behind it.
fn step_up(chances: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut corrected: Vec<f64> = chances.collect();
    let (count, mut least) = (corrected.len() as f64, 1.0f64);
    for (place, p) in corrected.iter_mut().enumerate().rev() {
        least = least.min(*p * count / (place + 1) as f64);
        *p = least;
    }
    corrected
}

/// Returns the key of the main result: that of the workload, or of a command its first result.
fn main_result(runs: &[RunRecord]) -> String {
    let Some(run) = runs.first() else { return keys::THROUGHPUT.to_owned() };
    match Workload::of(&run.workload) {
        Some(workload) => workload.result().to_owned(),
        None => run.results.keys().next().cloned().unwrap_or_default(),
    }
}

type Pair = (Vec<f64>, Vec<f64>);

/// Every result and feature that both sets have, in each run where it was measured.
fn values(first: &[RunRecord], second: &[RunRecord]) -> BTreeMap<String, Pair> {
    let mut all: BTreeMap<String, Pair> = BTreeMap::new();
    let of_run = |run: &RunRecord| {
        let results = run.results.clone().into_iter();
        results.chain(engine::values(run)).collect::<Vec<(String, f64)>>()
    };
    for (key, value) in first.iter().flat_map(of_run) {
        all.entry(key).or_default().0.push(value);
    }
    for (key, value) in second.iter().flat_map(of_run) {
        all.entry(key).or_default().1.push(value);
    }
    let runs: Vec<&RunRecord> = first.iter().chain(second).collect();
    for feature in features(&runs) {
        let (one, two) = feature.values.split_at(first.len());
        let known = |values: &[Option<f64>]| values.iter().flatten().copied().collect();
        // A result and a feature may be one and the same.
        all.entry(feature.name).or_insert((known(one), known(two)));
    }
    all
}

/// Returns the row of a value. One beside the result that is mostly the same, as a counter that is
/// mostly zero, differs otherwise than by a shift: it has a chance alone.
fn row(name: &str, (first, second): &Pair, level: f64, is_result: bool) -> Option<Row> {
    let finite = |values: &[f64]| -> Vec<f64> {
        values.iter().copied().filter(|value| value.is_finite()).collect()
    };
    let (first, second) = (finite(first), finite(second));
    if first.len().min(second.len()) < RUNS_LEAST {
        return None;
    }
    let by_shift = is_result || !are_mostly_equal(&first, &second);
    let comparison = by_shift.then(|| compare(&first, &second, level)).flatten();
    let differ = || differ(&first, &second, level);
    let difference = if comparison.is_some() || !by_shift { None } else { differ() };
    let known = comparison.map(|found| found.p).or_else(|| difference.map(|found| found.p));
    let p = known.unwrap_or_else(|| chance(&first, &second));
    let medians = (median(&first)?, median(&second)?);
    let (name, p_corrected, changed) = (name.to_owned(), p, false);
    Some(Row { name, medians, comparison, difference, p, p_corrected, changed })
}

impl SetComparison {
    /// Returns the comparison as text: the results, then everything else that differs.
    pub fn text(&self) -> String {
        let mut text = format!("{} against {}\n", self.sets.1.join(", "), self.sets.0.join(", "));
        for case in &self.cases {
            let _ = writeln!(
                text,
                "\n{}: {} and {} runs",
                case.configuration, case.runs.0, case.runs.1
            );
            if case.left_out != (0, 0) {
                let (one, two) = case.left_out;
                let _ = writeln!(text, "  {one} and {two} runs do not count");
            }
            match &case.result {
                Some(row) => text.push_str(&said(row, true)),
                None => {
                    let _ = writeln!(
                        text,
                        "  cannot tell: the result needs {RUNS_LEAST} runs of each set at least"
                    );
                }
            }
            let changed: Vec<&Row> = case.others.iter().filter(|row| row.changed).collect();
            let _ = writeln!(
                text,
                "  of {} other values {} differ{}",
                case.looked_at,
                changed.len(),
                if changed.is_empty() { "" } else { ":" }
            );
            changed.iter().for_each(|row| text.push_str(&said(row, false)));
            let unchanged = case.others.iter().filter(|row| !row.changed);
            let seen = unchanged.filter_map(|row| Some(row.comparison.as_ref()?.least_seen));
            if let Some(seen) = median(&seen.collect::<Vec<f64>>()) {
                let seen = seen * 100.0;
                let _ = writeln!(
                    text,
                    "  of half of the rest a change of {seen:.1} % would be seen likewise"
                );
            }
            text.push_str(&histograms::text(&case.histograms));
        }
        for (name, set) in &self.only_in {
            let which = if *set == 1 { "first" } else { "second" };
            let _ = writeln!(text, "\n{name}: in the {which} set alone");
        }
        if self.cases.is_empty() {
            text.push_str("\nNo configuration is in both sets.\n");
        }
        text
    }
}

fn said(row: &Row, is_result: bool) -> String {
    let (one, two) = row.medians;
    let mut line = format!("  {}: {} → {}", row.name, short(one), short(two));
    if let Some(found) = &row.comparison {
        let Comparison { ratio, interval: (low, high), .. } = *found;
        let _ = write!(line, ", ratio {ratio:.3} (95 %: {low:.3} to {high:.3})");
    }
    if let Some(found) = &row.difference {
        let [by, low, high] = [found.difference, found.interval.0, found.interval.1].map(short);
        let _ = write!(line, ", difference {by} (95 %: {low} to {high})");
    }
    let _ = write!(line, ", p {:.4}", row.p_corrected);
    if is_result {
        line.push_str(match row.changed {
            true => ": changed",
            false => ": no change is shown",
        });
        if row.comparison.is_none() && row.difference.is_none() {
            line.push_str("; so few runs show none");
        }
        if let Some(found) = &row.comparison {
            let seen = found.least_seen * 100.0;
            let _ = write!(line, "; a change of {seen:.1} % would be seen four times out of five");
        }
    }
    line + "\n"
}

fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 || (v < 1e-3 && v > 0.0) => format!("{value:.3e}"),
        v if v >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs with a result around a middle, and values that do not go with the set.
    fn set(middle: f64, count: usize, others: usize, shift: u64) -> Vec<RunRecord> {
        let noise =
            |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1 << 24) as f64;
        let one = |at: usize| {
            let mut run = RunRecord::new(format!("r{at}"));
            run.workload = "tcp_stream".into();
            run.stack = "kernel".into();
            let own = shift * 1_000 + at as u64;
            run.results.insert(keys::THROUGHPUT.into(), middle * (1.0 + 0.02 * noise(own)));
            for other in 0..others {
                let value = noise(own * 7_919 + other as u64 * 104_729);
                run.results.insert(format!("value{other}_per_s"), value);
            }
            run
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn the_result_that_changed_is_named_and_the_rest_is_not() {
        let found = compare_sets(&set(100.0, 20, 5, 1), &set(95.0, 20, 5, 2), 1);
        let [case] = found.cases.as_slice() else { panic!("{found:?}") };
        let result = case.result.as_ref().unwrap();
        assert!(result.changed && (result.comparison.unwrap().ratio - 0.95).abs() < 0.02);
        assert_eq!((case.looked_at, case.runs), (5, (20, 20)));
        assert_eq!(case.others.iter().filter(|row| row.changed).count(), 0);
        assert!(found.text().contains(": changed"));
        let again = compare_sets(&set(100.0, 8, 4, 3), &set(100.0, 8, 4, 4), 1);
        assert!(again.text().contains("no change is shown"));
    }

    #[test]
    fn of_many_values_some_are_below_five_percent_by_chance_and_are_not_named() {
        let named = |chances: Vec<f64>| {
            step_up(chances.into_iter()).into_iter().filter(|p| *p < P_CHANGE).count()
        };
        // 100 values without a change: five of them are below 5 %.
        assert_eq!(named((1..=100).map(|at| f64::from(at) / 100.0).collect()), 0);
        // Each of the six smallest is below 5 % of its place.
        let mut some = vec![0.0002; 6];
        some.extend((1..=94).map(|at| f64::from(at) / 94.0));
        assert_eq!(named(some), 6);
        assert_eq!(named(vec![0.04]), 1);
    }

    #[test]
    fn a_counter_that_changed_is_found_among_many_though_it_was_zero() {
        let (mut first, mut second) = (set(100.0, 8, 9, 1), set(100.0, 8, 9, 2));
        for (set, drops) in [(&mut first, 0.0), (&mut second, 7.0)] {
            for run in set {
                run.results.insert("drops_per_s".into(), drops);
            }
        }
        let found = compare_sets(&first, &second, 1);
        let changed: Vec<&Row> = found.cases[0].others.iter().filter(|row| row.changed).collect();
        assert_eq!(changed.len(), 1);
        assert_eq!((changed[0].name.as_str(), changed[0].medians), ("drops_per_s", (0.0, 7.0)));
        assert!(changed[0].comparison.is_none());
    }

    #[test]
    fn profiles_of_two_sets_are_one_flame_graph() {
        use millstream_record::{KernelActivity, StackRecord};
        let profiled = |seed, function: &str| {
            let mut runs = set(100.0, 4, 0, seed);
            let stack = ["iperf3".to_owned(), function.to_owned()].to_vec();
            let profile = vec![StackRecord { stack, by_cpu: vec![3, 4] }];
            for run in &mut runs {
                let kernel =
                    KernelActivity { profile: profile.clone(), ..KernelActivity::default() };
                run.probes.kernel = Some(kernel);
            }
            runs
        };
        let (one, two) = (profiled(1, "copy_[k]"), profiled(2, "sum_[k]"));
        let (_, [before, after]) = profiles(&one, &two).unwrap();
        assert_eq!((before[0].count(), after[0].count()), (28, 28));
        assert_eq!(after[0].stack.last().map(String::as_str), Some("sum_[k]"));
        let refused =
            |one: &[RunRecord], two: &[RunRecord]| profiles(one, two).unwrap_err().to_string();
        assert!(refused(&one, &set(100.0, 4, 0, 3)).contains("the second set: no run"));
        let mut other = two.clone();
        other[0].stack = "millstream".into();
        assert!(refused(&one, &other).contains("tcp_stream, millstream"));
    }

    #[test]
    fn what_an_engine_counted_is_compared() {
        use millstream_record::EngineRecord;
        let counted = |seed, drops| {
            let mut runs = set(100.0, 8, 0, seed);
            for run in &mut runs {
                run.probes.times_s = vec![0.0, 2.0];
                let counters = [("dropped".to_owned(), drops)].into();
                let engine =
                    EngineRecord { role: "near".into(), counters, ..EngineRecord::default() };
                run.probes.engines.push(engine);
            }
            runs
        };
        let found = compare_sets(&counted(1, 10), &counted(2, 30), 1);
        let row = &found.cases[0].others[0];
        assert_eq!((row.name.as_str(), row.medians), ("near.engine.dropped_per_s", (5.0, 15.0)));
        assert!(row.changed && (row.comparison.unwrap().ratio - 3.0).abs() < 1e-9);
    }

    #[test]
    fn runs_that_are_too_few_for_so_many_configurations_are_said() {
        let of = |middle: f64, stack: &str| {
            let mut runs = set(middle, 4, 0, 1);
            runs.iter_mut().for_each(|run| run.stack = stack.into());
            runs
        };
        let both = |middle| [of(middle, "kernel"), of(middle, "millstream")].concat();
        let text = compare_sets(&of(9.0, "kernel"), &of(99.0, "kernel"), 1).text();
        assert!(text.contains(": changed"), "{text}");
        let text = compare_sets(&both(9.0), &both(99.0), 1).text();
        assert!(text.contains("no change is shown; so few runs show none"), "{text}");
    }

    #[test]
    fn few_runs_and_other_configurations_are_said() {
        let mut other = set(100.0, 9, 1, 2);
        other.iter_mut().for_each(|run| run.stack = "millstream".into());
        other.extend(set(100.0, 3, 1, 3));
        let found = compare_sets(&set(100.0, 9, 1, 1), &other, 1);
        assert!(found.cases[0].result.is_none() && found.text().contains("cannot tell"));
        assert_eq!(found.only_in, [("tcp_stream, millstream".to_owned(), 2)]);
        assert!(compare_sets(&[], &other, 1).text().contains("No configuration"));
    }
}
