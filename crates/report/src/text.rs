//! Words of a report: results, runs that do not count, the end of the text.

use millstream_diagnose::stats::{RUNS_FOR_A_CLAIM, Summary};
use millstream_diagnose::units::{self, Scale};
use millstream_record::{RunRecord, keys};

use super::frame::{Cell, Grid, Part, Row};
use super::model::{Case, Model, Table};
use super::verdict;

/// Returns workloads with the factors that had one level in all their runs.
pub(super) fn held<'m>(model: &'m Model<'_>) -> impl Iterator<Item = (&'m str, Vec<String>)> {
    let held = model.held.iter().filter(|(_, held)| !held.is_empty());
    held.map(|(workload, held)| {
        let levels = held.iter().map(|(name, level)| format!("{name}={level}"));
        (workload.as_str(), levels.collect())
    })
}

/// Returns the answer, and how the numbers are to be read.
pub(super) fn end<'a>(model: &Model<'_>) -> Vec<Part<'a>> {
    vec![Part::InText(format!(
        "{}\nMedians of runs with 95 % bootstrap intervals; ratios of medians, against the first stack, or\n\
         where there is one stack the first level; both of {RUNS_FOR_A_CLAIM} runs a side at least.\n\
         CPU is that of the whole machine, both ends, where no worker is named.",
        verdict::sentence(model)
    ))]
}

/// `22.9 to 23.4`, or a dash.
pub(super) fn interval_text(summary: &Summary, scale: &Scale) -> String {
    summary.interval.map_or_else(
        || "–".into(),
        |interval| format!("{} to {}", scale.number(interval.low), scale.number(interval.high)),
    )
}

/// Returns the results that come first, and the CPU time of each end, of all cases.
pub(super) fn results(model: &Model<'_>) -> Grid {
    let heads = ["", "", ">median", ">95 % interval", ">n", "ratio (95 %)", ""];
    let mut grid = Grid::new("", heads);
    for case in &model.cases {
        grid = grid.rows([[case.label.clone()]]);
        let is_told = |key: &str| [keys::NEAR_CPU_PER_KB, keys::FAR_CPU_PER_KB].contains(&key);
        let told = case.tables.iter();
        let told = told.filter(|one| one.metric.headline || is_told(&one.metric.key));
        for table in told {
            let rows = rows(model, case, table).into_iter().enumerate();
            grid = grid.rows(rows.map(|(at, mut cells)| {
                let name = table.metric.label.as_str();
                let name = name.strip_suffix(", whole machine").unwrap_or(name);
                cells[0] = if at == 0 { format!("  {name}").into() } else { "".into() };
                cells.drain(SPREAD);
                cells
            }));
        }
    }
    grid
}

/// Returns the results of a case with their spread: all, or those that come first.
pub(super) fn numbers(model: &Model<'_>, case: &Case<'_>, is_full: bool) -> Grid {
    let heads = [
        "result",
        "stack",
        ">median",
        ">95 % interval",
        ">n",
        ">MAD",
        ">range",
        ">ratio (95 %)",
        "",
    ];
    let mut grid = Grid::new(format!("{}: medians over runs that count", case.label), heads);
    for table in case.tables.iter().filter(|table| is_full || table.metric.headline) {
        let class = if table.metric.headline { "head" } else { "" };
        grid = grid.rows(rows(model, case, table).into_iter().map(|cells| Row { class, cells }));
    }
    grid
}

/// Cells of MAD and range, which a text has no room for.
const SPREAD: std::ops::Range<usize> = 5..7;

/// Returns a row of a result for each stack.
fn rows(model: &Model<'_>, case: &Case<'_>, table: &Table) -> Vec<Vec<Cell>> {
    let Table { metric, scale, .. } = table;
    let row = |(row, cell): (&super::model::Row<'_>, &super::model::Cell)| {
        let names = [metric.label.as_str().into(), Cell::of_stack(row.place, &row.label)];
        let Some(summary) = &cell.summary else {
            let nothing = ["–", "–", "0", "–", "–", "", ""].map(Cell::from);
            return names.into_iter().chain(nothing).collect();
        };
        let number = |value| scale.number(value);
        let comparison = cell.comparison.or_else(|| super::levels::comparison(model, case, table));
        let comparison = comparison.as_ref();
        let numbers = [
            interval_text(summary, scale),
            summary.n.to_string(),
            number(summary.mad),
            format!("{} to {}", number(summary.min), number(summary.max)),
            comparison.map_or_else(String::new, verdict::ratio_with_interval),
            comparison.map_or("", |one| verdict::judgement(one, metric.better)).to_owned(),
        ];
        let median = Cell::from(scale.with_unit(summary.median)).with_class("b");
        names.into_iter().chain([median]).chain(numbers.map(Cell::from)).collect()
    };
    case.rows.iter().zip(case.cells(table)).map(row).collect()
}

/// Returns the runs that do not count, with their reasons, for a text: a page has them among all
/// runs.
pub(super) fn invalid<'a>(model: &Model<'_>) -> Vec<Part<'a>> {
    let line = |run: &RunRecord| {
        let place = model.place_of(run);
        let (case, stack) =
            place.map_or(("", ""), |(case, row)| (case.label.as_str(), row.label.as_str()));
        let reasons = reasons(run);
        Part::InText(format!("run {} ({case}, {stack}, block {}): {reasons}", run.order, run.block))
    };
    model.invalid().map(line).collect()
}

/// Returns the reasons why a run does not count.
pub(super) fn reasons(run: &RunRecord) -> String {
    match (run.validity.valid, &run.validity.reasons[..]) {
        (true, _) => "its CPUs were apart".to_owned(),
        (false, []) => "no reason given".to_owned(),
        (false, reasons) => reasons.join("; "),
    }
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
