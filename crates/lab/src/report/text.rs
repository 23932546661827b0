//! The summary for a terminal.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table as Grid};

use super::model::{Case, Model, Table};
use super::units::{self, Scale};
use super::verdict;
use crate::stats::Summary;

/// All parts, ending in a new line.
pub(super) fn render(model: &Model<'_>) -> String {
    let mut out = String::new();
    let experiment = model.experiment;
    let mut head = format!("{}  {}", experiment.name, experiment.started_at);
    if experiment.finished_at.is_none() {
        head.push_str("  (unfinished)");
    }
    out.push_str(&format!("{head}\n"));
    if !experiment.question.is_empty() {
        out.push_str(&format!("{}\n", experiment.question));
    }
    for (workload, held) in model.held.iter().filter(|(_, held)| !held.is_empty()) {
        let held: Vec<String> = held.iter().map(|(name, level)| format!("{name}={level}")).collect();
        out.push_str(&format!("{workload} everywhere with {}\n", held.join(" ")));
    }
    for case in &model.cases {
        out.push_str(&format!("\n{}\n{}\n", case.label, grid(case)));
    }
    out.push_str(&invalid(model));
    out.push_str(&format!("\n{}\n", verdict::sentence(model)));
    out.push_str("Medians of runs with 95 % bootstrap intervals; ratios are of medians, against the first row.\n");
    out
}

/// `22.9 to 23.4`, or a dash.
pub(super) fn interval_text(summary: &Summary, scale: &Scale) -> String {
    summary.interval.map_or_else(
        || "–".into(),
        |interval| format!("{} to {}", scale.number(interval.low), scale.number(interval.high)),
    )
}

fn grid(case: &Case<'_>) -> Grid {
    let mut grid = Grid::new();
    grid.load_preset(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    grid.set_header(["", "stack", "median", "", "95 % interval", "n", "ratio (95 %)"]);
    for table in case.tables.iter().filter(|table| table.metric.headline) {
        rows(&mut grid, case, table);
    }
    for column in [2, 4, 5] {
        if let Some(column) = grid.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    grid
}

fn rows(grid: &mut Grid, case: &Case<'_>, table: &Table) {
    let Table { metric, scale, cells } = table;
    for (at, (row, cell)) in case.rows.iter().zip(cells).enumerate() {
        let label = if at == 0 { metric.label.clone() } else { String::new() };
        let Some(summary) = &cell.summary else {
            grid.add_row([label, row.label.clone(), "–".into(), String::new(), "–".into(), "0".into(), String::new()]);
            continue;
        };
        let ratio = cell.comparison.as_ref().map_or_else(String::new, |comparison| {
            let judged = verdict::judgement(comparison, metric.better);
            format!("{}  {judged}", verdict::ratio_with_interval(comparison))
        });
        grid.add_row([
            label,
            row.label.clone(),
            scale.number(summary.median),
            scale.unit.clone(),
            interval_text(summary, scale),
            summary.n.to_string(),
            ratio,
        ]);
    }
}

fn invalid(model: &Model<'_>) -> String {
    let mut out = String::new();
    for run in model.invalid() {
        let (case, stack) = model.labels_of(run);
        let reasons = if run.validity.reasons.is_empty() { "no reason given".into() } else { run.validity.reasons.join("; ") };
        out.push_str(&format!("run {} ({case}, {stack}, block {}): {reasons}\n", run.order, run.block));
    }
    if out.is_empty() { out } else { format!("\nRuns that do not count:\n{out}") }
}

/// `30 runs in 3 min 20 s`.
pub(super) fn extent(model: &Model<'_>) -> String {
    let seconds: f64 = model.runs.iter().map(|run| run.duration_s).sum();
    let runs = match (model.runs.len(), model.experiment.planned_runs as usize) {
        (made, planned) if made < planned => format!("{made} of {planned} runs"),
        (made, _) => format!("{made} runs"),
    };
    format!("{runs} in {}", units::duration(seconds))
}
