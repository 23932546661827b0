//! Runs whose CPUs the host kept apart, beside those in which they were near: whether they count or
//! are set aside.

use millstream_diagnose::groups::Apart;
use millstream_diagnose::stats::{Bootstrap, Comparison, RUNS_FOR_A_CLAIM, median};
use millstream_record::RunRecord;

use super::model::{Case, Model, Row};
use super::verdict::ratio_with_interval;

/// One line for each case and stack that has runs of both kinds: `tcp_stream, millstream: 61.5
/// Gbit/s with CPUs 101 to 132 ns apart (22 runs); 16.3 Gbit/s with 458 to 526 ns apart (6 runs);
/// 0.27 (0.25 to 0.29) of it`.
pub(super) fn lines(model: &Model<'_>) -> Vec<String> {
    let Some(apart) = Apart::among(model.runs) else { return Vec::new() };
    let bootstrap = Bootstrap { seed: model.experiment.seed, ..Bootstrap::default() };
    model.rows().filter_map(|(case, row)| line(case, row, apart, &bootstrap)).collect()
}

fn line(case: &Case<'_>, row: &Row<'_>, apart: Apart, bootstrap: &Bootstrap) -> Option<String> {
    let runs = row.group.all().filter(|run| run.validity.valid);
    let runs = runs.filter_map(|run| Some((Apart::distance_ns(run)?, run)));
    let (apart, near): (Vec<_>, Vec<_>) = runs.partition(|(_, run)| apart.has(run));
    let table = case.tables.iter().find(|table| table.metric.headline)?;
    let values = |runs: &[(f64, &RunRecord)]| -> Vec<f64> {
        runs.iter().filter_map(|(_, run)| run.result(&table.metric.key)).collect()
    };
    let (of_near, of_apart) = (values(&near), values(&apart));
    let ratio = Comparison::of(&of_apart, &of_near, bootstrap);
    let ratio = match ratio.filter(Comparison::is_supported) {
        Some(ratio) => format!("{} of it", ratio_with_interval(&ratio)),
        None => format!("no ratio of fewer than {RUNS_FOR_A_CLAIM} runs a side"),
    };
    Some(format!(
        "{}, {}: {} with CPUs {}; {} with {}; {ratio}",
        case.label,
        row.label,
        table.scale.with_unit(median(&of_near)?),
        range(&near),
        table.scale.with_unit(median(&of_apart)?),
        range(&apart),
    ))
}

/// `101 to 132 ns apart (22 runs)`, or `640 ns apart (1 run)`.
fn range(runs: &[(f64, &RunRecord)]) -> String {
    let distances = || runs.iter().map(|(distance, _)| *distance);
    let least = distances().fold(f64::INFINITY, f64::min);
    let most = distances().fold(0.0, f64::max);
    let count = if runs.len() == 1 { "1 run".into() } else { format!("{} runs", runs.len()) };
    let (least, most) = (format!("{least:.0}"), format!("{most:.0}"));
    let span = if least == most { most } else { format!("{least} to {most}") };
    format!("{span} ns apart ({count})")
}
