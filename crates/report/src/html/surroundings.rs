//! The surroundings of the runs as tables: facts, changes, settings by stack, probes, remarks.

use std::collections::{BTreeMap, BTreeSet};

use millstream_diagnose::units;

use super::super::model::Model;
use super::room::Detailed;

/// Values of a setting that are listed.
const VALUES: usize = 8;

/// The facts of the environment by subject, the part before the first dot.
pub(super) fn facts(model: &Model<'_>) -> Vec<(String, Vec<(String, String)>)> {
    let mut groups: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for (name, value) in &model.experiment.environment.facts {
        let (group, rest) = name.split_once('.').unwrap_or(("other", name));
        groups.entry(group).or_default().push((rest.to_owned(), value.clone()));
    }
    groups.into_iter().map(|(group, facts)| (group.to_owned(), facts)).collect()
}

/// Facts that changed from the start of the experiment to some run: name, at the start, then,
/// number of runs.
pub(super) fn changed(
    model: &Model<'_>,
    detailed: &Detailed<'_>,
) -> Vec<(String, String, String, usize)> {
    let start = &model.experiment.environment;
    let mut changes: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let runs = model.runs.iter().filter(|run| detailed.has(run));
    for run in runs.filter(|run| !run.environment.facts.is_empty()) {
        // What only one of the two recorded says nothing about a change.
        for (name, before, now) in start.changes(&run.environment) {
            if let (Some(before), Some(now)) = (before, now) {
                *changes.entry((name.into(), before.into(), now.into())).or_default() += 1;
            }
        }
    }
    // Facts that change by themselves (load, free memory) have many values: one line is enough.
    let mut seen = BTreeMap::new();
    for ((name, before, now), runs) in changes {
        let entry = seen.entry(name.clone()).or_insert((name, before, now, 0));
        entry.3 += runs;
    }
    seen.into_values().collect()
}

/// Cost and absence of probes over all runs.
pub(super) fn probes(
    model: &Model<'_>,
    detailed: &Detailed<'_>,
) -> (String, Vec<(String, String, usize)>) {
    let costs: Vec<f64> = model
        .runs
        .iter()
        .filter_map(|run| {
            let times = &run.probes.times_s;
            let length = times.last()? - times.first()?;
            (length > 0.0).then(|| run.probes.own_cpu_s / length)
        })
        .collect();
    let median = millstream_diagnose::stats::median(&costs);
    let cost = median.map_or_else(
        || "not measured".into(),
        |cost| {
            format!(
                "{} % of one CPU (median over {} runs)",
                units::significant(cost * 100.0),
                costs.len()
            )
        },
    );
    let mut absent: BTreeMap<(String, String), usize> = BTreeMap::new();
    for run in model.runs.iter().filter(|run| detailed.has(run)) {
        for (probe, reason) in &run.probes.absent {
            *absent.entry((probe.clone(), reason.clone())).or_default() += 1;
        }
    }
    (cost, absent.into_iter().map(|((probe, reason), runs)| (probe, reason, runs)).collect())
}

/// The first values, and how many more there are.
fn joined(values: &BTreeSet<&str>) -> String {
    let mut text = values.iter().take(VALUES).copied().collect::<Vec<_>>().join(", ");
    if values.len() > VALUES {
        text.push_str(&format!(" and {} more", values.len() - VALUES));
    }
    text
}

/// Settings that runs recorded for themselves and that are not the same on all stacks: the name,
/// and the values per stack in the order of `stacks`.
pub(super) fn applied(model: &Model<'_>, detailed: &Detailed<'_>) -> Vec<(String, Vec<String>)> {
    let stacks: Vec<String> = super::stacks(model).into_iter().map(|(_, stack)| stack).collect();
    let mut values: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for run in model.runs.iter().filter(|run| detailed.has(run)) {
        let own = run.environment.facts.iter();
        for (name, value) in
            own.filter(|(name, _)| model.experiment.environment.get(name).is_none())
        {
            values.entry(name).or_default().entry(&run.stack).or_default().insert(value);
        }
    }
    let rows = values.into_iter().filter_map(|(name, by_stack)| {
        let of = |stack: &String| by_stack.get(stack.as_str());
        let same = stacks.windows(2).all(|pair| of(&pair[0]) == of(&pair[1]));
        let cells = stacks.iter().map(|stack| of(stack).map_or_else(|| "–".into(), joined));
        (!same).then(|| (name.to_owned(), cells.collect()))
    });
    rows.collect()
}
