//! Tables of any probe, drawn by what their columns say of themselves.

use std::collections::BTreeSet;

use millstream_diagnose::stats::median;
use millstream_diagnose::units::significant;
use millstream_record::{Column, Kind, RunRecord, Table};
use serde::Serialize;

use super::model::{Case, Model};

/// Rows of a stack: the first ones.
const ROWS: usize = 16;

/// A table of all stacks of a case, medians over runs.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Drawn {
    name: String,
    /// Heading of the keys.
    heading: &'static str,
    /// Name with the unit, and help.
    columns: Vec<(String, String)>,
    /// Place of the stack, its label, key of the row, and a cell for each column.
    rows: Vec<(usize, String, String, Vec<String>)>,
}

/// Returns all tables of a case; columns without anything in them are left out.
pub(super) fn drawn(case: &Case<'_>, runs: &[Vec<&RunRecord>]) -> Vec<Drawn> {
    let all = || runs.iter().flatten().flat_map(|run| &run.probes.tables);
    let names: BTreeSet<&String> = all().map(|(name, _)| name).collect();
    let of_name = |name: &String| {
        let (_, form) = all().find(|(one, _)| *one == name)?;
        let is_of_something = |column: &&Column| {
            let mut tables = all().filter(|(one, _)| *one == name).map(|(_, table)| table);
            tables.any(|table| table.all_of(column) != 0.0)
        };
        let columns: Vec<&Column> = form.columns.iter().filter(is_of_something).collect();
        let rows = case.rows.iter().zip(runs).flat_map(|(stack, runs)| {
            let row = |key: String| {
                let cells = columns.iter().map(|column| cell(runs, name, &key, column)).collect();
                (stack.place, stack.label.clone(), key, cells)
            };
            keys(runs, name).into_iter().take(ROWS).map(row).collect::<Vec<_>>()
        });
        Some(Drawn {
            name: name.clone(),
            heading: form.key.heading(),
            rows: rows.collect(),
            columns: columns.iter().map(|one| (heading(one), one.help.to_string())).collect(),
        })
    };
    names.into_iter().filter_map(of_name).filter(|one| !one.columns.is_empty()).collect()
}

/// Returns the trouble that the machine counted: a line for each case, stack and table.
pub(super) fn lines(model: &Model<'_>) -> Vec<String> {
    let rows = model.cases.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row)));
    let line = |(case, row): (&Case<'_>, &super::model::Row<'_>)| {
        let runs = &row.group.valid;
        let tables = runs.first()?.probes.tables.iter();
        let troubles = tables.flat_map(|(name, table)| {
            let troubles = table.columns.iter().filter(|column| column.kind == Kind::Trouble);
            troubles.filter_map(move |column| {
                let rate = over(runs, name, column, |table| Some(table.all_of(column)))?;
                let said = || format!("{name} {} {}", column.name, of_rate(column, rate));
                (rate > 0.0).then(said)
            })
        });
        let troubles: Vec<String> = troubles.collect();
        let said = || format!("{}, {}: {}", case.label, row.label, troubles.join(", "));
        (!troubles.is_empty()).then(said)
    };
    rows.filter_map(line).collect()
}

/// The keys of the rows, in the order of the first run that has them.
fn keys(runs: &[&RunRecord], name: &str) -> Vec<String> {
    let tables = runs.iter().filter_map(|run| run.probes.tables.get(name));
    let mut keys = Vec::new();
    for (key, _) in tables.flat_map(|table| &table.rows) {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}

fn cell(runs: &[&RunRecord], name: &str, key: &str, column: &Column) -> String {
    let value = over(runs, name, column, |table| table.value(key, &column.name));
    value.map_or_else(|| "–".into(), |value| of_rate(column, value))
}

/// The median over runs, in a second where the column grows with time.
fn over(
    runs: &[&RunRecord],
    name: &str,
    column: &Column,
    of: impl Fn(&Table) -> Option<f64>,
) -> Option<f64> {
    let one = |run: &&RunRecord| {
        let value = of(run.probes.tables.get(name)?)?;
        if !column.grows() {
            return Some(value);
        }
        Some(value * column.seconds().unwrap_or(1.0) / run.probes.length_s()?)
    };
    median(&runs.iter().filter_map(one).collect::<Vec<_>>())
}

fn is_share(column: &Column) -> bool {
    column.kind == Kind::Share || (column.grows() && column.seconds().is_some())
}

fn of_rate(column: &Column, value: f64) -> String {
    match (is_share(column), column.grows()) {
        (true, _) => format!("{:.1} %", value * 100.0),
        (false, true) => format!("{}/s", significant(value)),
        (false, false) => significant(value),
    }
}

fn heading(column: &Column) -> String {
    match is_share(column) || column.unit.is_empty() {
        true => column.name.to_string(),
        false => format!("{} [{}]", column.name, column.unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_drawn_by_its_kind() {
        let cell = |unit, kind, value| of_rate(&Column::new("x", unit, kind, ""), value);
        assert_eq!(cell("packets", Kind::Trouble, 12.0), "12.0/s");
        assert_eq!(cell("us", Kind::Counter, 0.2), "20.0 %");
        assert_eq!(cell("", Kind::Share, 0.2), "20.0 %");
        assert_eq!(cell("MHz", Kind::Level, 2000.0), "2,000");
    }
}
