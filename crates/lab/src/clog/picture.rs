//! The historical pictures, in characters.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use millstream_diagnose::stats::median;

use millstream_diagnose::units::Scale;
use millstream_record::RunRecord;

/// Key of the interrupts that CPUs sent each other.
pub(super) const CROSS_CALLS: &str = "cross_calls_per_s";
/// Functions that are listed.
const FUNCTIONS: usize = 8;
/// Characters of the longest bar.
const WIDTH: usize = 30;

/// Returns true when a run is of this variant and level.
pub(super) fn is_of(run: &RunRecord, clogged: bool, level: u64) -> bool {
    run.factors["variant"] == super::variant(clogged) && run.factors["level"] == level.to_string()
}

/// A result of the runs of one variant and level.
pub(super) fn results(runs: &[RunRecord], clogged: bool, level: u64, key: &str) -> Vec<f64> {
    runs.iter().filter(|run| is_of(run, clogged, level)).filter_map(|run| run.result(key)).collect()
}

/// The median of those.
pub(super) fn middle(runs: &[RunRecord], clogged: bool, level: u64, key: &str) -> f64 {
    median(&results(runs, clogged, level, key)).unwrap_or(f64::NAN)
}

/// Returns the times that the CPU clock met each innermost function in these runs.
pub(super) fn functions<'a>(
    runs: impl IntoIterator<Item = &'a RunRecord>,
) -> BTreeMap<String, u64> {
    let profiles = runs.into_iter().filter_map(|run| run.probes.kernel.as_ref());
    let mut counts = BTreeMap::new();
    for one in profiles.flat_map(|one| &one.profile) {
        // The first entry is the process.
        let innermost = one.stack[1..].last().map_or("[no stack]", String::as_str);
        *counts.entry(innermost.to_owned()).or_default() += one.count();
    }
    counts
}

/// The share of each innermost function among the samples of the runs of one variant and level;
/// empty without samples.
pub(super) fn shares(runs: &[RunRecord], clogged: bool, level: u64) -> BTreeMap<String, f64> {
    let counts = functions(runs.iter().filter(|run| is_of(run, clogged, level)));
    let all: u64 = counts.values().sum();
    counts.into_iter().map(|(name, count)| (name, count as f64 / all as f64)).collect()
}

/// The functions with most in any of `columns`, which stand under `head`.
pub(super) fn by_function(
    head: &[&str],
    columns: &[BTreeMap<String, f64>],
    text: impl Fn(f64) -> String,
) -> String {
    if columns.iter().any(BTreeMap::is_empty) {
        return "not measured: the CPU clock's samples need root, or CAP_BPF and CAP_PERFMON\n"
            .to_owned();
    }
    let of = |column: &BTreeMap<String, f64>, name: &str| column.get(name).copied().unwrap_or(0.0);
    let most = |name: &str| columns.iter().map(|column| of(column, name)).fold(0.0, f64::max);
    let names: BTreeSet<&String> = columns.iter().flat_map(BTreeMap::keys).collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort_by(|a, b| most(b).total_cmp(&most(a)));
    let row = |name: &&String| {
        let cells = columns.iter().map(|column| text(of(column, name)));
        cells.chain([(*name).clone()]).collect()
    };
    let head: Vec<&str> = head.iter().copied().chain(["function"]).collect();
    table(&head, names.iter().take(FUNCTIONS).map(row).collect())
}

/// Levels of the runs, ascending.
pub(super) fn levels(runs: &[RunRecord]) -> Vec<u64> {
    let mut all: Vec<u64> =
        runs.iter().filter_map(|run| run.factors["level"].parse().ok()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A number with its unit.
pub(super) fn with_unit(key: &str, value: f64) -> String {
    Scale::of(key, value).with_unit(value)
}

/// Bytes as people name buffers: `64 KiB`, `16 MiB`.
pub(super) fn binary(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

/// A bar; `most` is the value of the longest one.
pub(super) fn bar(value: f64, most: f64) -> String {
    let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * (WIDTH * 8) as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8).wrapping_sub(1)));
    bar
}

/// Rows under a head: numbers to the right but for the last column.
pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.to_vec());
    for row in rows {
        table.add_row(row);
    }
    let last = head.len() - 1;
    for column in table.column_iter_mut().take(last) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.to_string();
    let trimmed = lines.lines().map(|line| format!("{}\n", line.trim_end()));
    trimmed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(1.0, 1.0).chars().count(), WIDTH);
        assert_eq!(bar(0.5, 1.0).chars().count(), WIDTH / 2);
        assert_eq!(bar(0.0, 1.0), "");
        assert_eq!(bar(1.0, 0.0), "");
        assert_eq!(bar(1.0 / (WIDTH * 8) as f64, 1.0), "▏");
    }

    #[test]
    fn buffers_are_named_in_binary() {
        let names = [512, 65_536, 16 << 20].map(binary);
        assert_eq!(names, ["512 B", "64 KiB", "16 MiB"]);
    }
}
