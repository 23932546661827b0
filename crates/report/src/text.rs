//! The summary for a terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table as Grid, TableComponent};
use millstream_diagnose::stats::{RUNS_FOR_A_CLAIM, Summary};
use millstream_diagnose::units::{self, Scale};
use millstream_foreign::shown;

use super::model::{Case, Model, Table};
use super::sections::SECTIONS;
use super::verdict;

/// All parts, ending in a new line.
pub(super) fn render(model: &Model<'_>) -> String {
    let mut out = String::new();
    let experiment = model.experiment;
    let mut head = format!("{}  {}", shown(&experiment.id), experiment.started_at);
    if experiment.finished_at.is_none() {
        let (runs, planned) = (model.runs.len(), experiment.planned_runs);
        head.push_str(&format!("  (unfinished: {runs} of {planned} runs)"));
    }
    out.push_str(&format!("{head}\n"));
    if !experiment.question.is_empty() {
        out.push_str(&format!("{}\n", shown(&experiment.question)));
    }
    for (workload, held) in model.held.iter().filter(|(_, held)| !held.is_empty()) {
        let held: Vec<String> =
            held.iter().map(|(name, level)| shown(format!("{name}={level}"))).collect();
        out.push_str(&format!("{workload} everywhere with {}\n", held.join(" ")));
    }
    out.push_str(&notes(model));
    if !model.cases.is_empty() {
        out.push_str(&format!("\n{}\n", trimmed(&grid(model).to_string())));
    }
    for section in &SECTIONS {
        out.push_str(&listed(section.heading, section.for_text(model)));
    }
    out.push_str(&super::soak::text(model));
    out.push_str(&invalid(model));
    out.push_str(&differences(model));
    out.push_str(&format!("\n{}\n", verdict::sentence(model)));
    out.push_str("Medians of runs with 95 % bootstrap intervals; ratios of medians, against the first stack, or\n");
    out.push_str(&format!(
        "where there is one stack the first level; both of {RUNS_FOR_A_CLAIM} runs a side at least.\n"
    ));
    out.push_str("CPU is that of the whole machine, both ends.\n");
    out
}

/// Lines under a heading; nothing without lines.
fn listed(heading: &str, lines: Vec<String>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines: String = lines.iter().map(|line| format!("  {}\n", shown(line))).collect();
    format!("\n{heading}:\n{lines}")
}

/// `22.9 to 23.4`, or a dash.
pub(super) fn interval_text(summary: &Summary, scale: &Scale) -> String {
    summary.interval.map_or_else(
        || "–".into(),
        |interval| format!("{} to {}", scale.number(interval.low), scale.number(interval.high)),
    )
}

fn grid(model: &Model<'_>) -> Grid {
    let mut grid = Grid::new();
    grid.load_preset(NOTHING)
        .set_style(TableComponent::HeaderLines, '─')
        .set_style(TableComponent::MiddleHeaderIntersections, '─')
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["", "", "median", "", "95 % interval", "n", "ratio (95 %)", ""]);
    for case in &model.cases {
        grid.add_row([shown(&case.label)]);
        for table in case.tables.iter().filter(|table| table.metric.headline) {
            rows(&mut grid, model, case, table);
        }
    }
    for column in [2, 4, 5] {
        if let Some(column) = grid.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    // The unit belongs to the number before it.
    if let Some(column) = grid.column_mut(2) {
        column.set_padding((1, 0));
    }
    grid
}

/// Lines without the blanks at their ends.
fn trimmed(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn rows(grid: &mut Grid, model: &Model<'_>, case: &Case<'_>, table: &Table) {
    let Table { metric, scale, .. } = table;
    let name = metric.label.strip_suffix(", whole machine").unwrap_or(&metric.label);
    for (at, (row, cell)) in case.rows.iter().zip(case.cells(table)).enumerate() {
        let label = if at == 0 { format!("  {name}") } else { String::new() };
        let Some(summary) = &cell.summary else {
            grid.add_row([
                label,
                shown(&row.label),
                "–".into(),
                String::new(),
                "–".into(),
                "0".into(),
            ]);
            continue;
        };
        let comparison = cell.comparison.or_else(|| super::levels::comparison(model, case, table));
        let comparison = comparison.as_ref();
        grid.add_row([
            label,
            shown(&row.label),
            scale.number(summary.median),
            scale.unit.clone(),
            interval_text(summary, scale),
            summary.n.to_string(),
            comparison.map_or_else(String::new, verdict::ratio_with_interval),
            comparison.map_or("", |one| verdict::judgement(one, metric.better)).into(),
        ]);
    }
}

/// Returns the remarks to keep in mind while reading the numbers: fall-backs, a busy machine.
fn notes(model: &Model<'_>) -> String {
    let mut out = String::new();
    for (note, runs) in model.notes() {
        let of = if runs > 0 {
            format!(" ({runs} of {} runs)", model.runs.len())
        } else {
            String::new()
        };
        out.push_str(&format!("  ! {}{of}\n", shown(note)));
    }
    if out.is_empty() { out } else { format!("\nTo keep in mind:\n{out}") }
}

fn invalid(model: &Model<'_>) -> String {
    let mut out = String::new();
    for run in model.invalid() {
        let place = model.place_of(run);
        let (case, stack) =
            place.map_or(("", ""), |(case, row)| (case.label.as_str(), row.label.as_str()));
        let reasons = if run.validity.reasons.is_empty() {
            "no reason given".into()
        } else {
            run.validity.reasons.join("; ")
        };
        let line = format!("run {} ({case}, {stack}, block {}): {reasons}", run.order, run.block);
        out.push_str(&format!("{}\n", shown(line)));
    }
    if out.is_empty() { out } else { format!("\nRuns that do not count:\n{out}") }
}

/// Returns the settings that are not the same on all sides. The others are on the page alone.
fn differences(model: &Model<'_>) -> String {
    let mut out = String::new();
    for difference in &model.experiment.differences {
        let values: Vec<&String> = difference.by_stack.values().collect();
        if values.windows(2).all(|pair| pair[0] == pair[1]) && values.len() > 1 {
            continue;
        }
        let sides: Vec<String> =
            difference.by_stack.iter().map(|(stack, how)| format!("{stack}: {how}")).collect();
        let line = format!("  {} – {}", difference.what, sides.join("; "));
        out.push_str(&format!("{}\n", shown(line)));
    }
    if out.is_empty() { out } else { format!("\nWhat differs between the sides:\n{out}") }
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
