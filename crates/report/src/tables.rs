//! Tables of any probe, drawn by what their columns say of themselves.

use std::collections::BTreeSet;

use millstream_diagnose::stats::median;
use millstream_diagnose::units::significant;
use millstream_record::{Column, Key, Kind, RunRecord, Table, Tables};

use super::frame::{self, Cell, Grid};
use super::model::Model;

/// Rows of a side: the first ones.
const ROWS: usize = 16;
/// Name of the row for all others together, and for the most that one of them has.
const ALL: [&str; 2] = ["all", "most"];

/// Returns the tables that the runs keep, as medians over them. What grows with time is by second;
/// of time that is a share. A last row is of all others together, where they do one thing.
pub fn medians(runs: &[&RunRecord]) -> Tables {
    medians_of(runs, |_| true, keys)
}

fn medians_of(
    runs: &[&RunRecord],
    is_wanted: fn(&Column) -> bool,
    keys: fn(&[&RunRecord], &str) -> Vec<String>,
) -> Tables {
    let forms: BTreeSet<&String> = runs.iter().flat_map(|run| run.probes.tables.keys()).collect();
    let of_name = |name: &String| {
        let form = runs.iter().find_map(|run| run.probes.tables.get(name))?;
        let columns: Vec<Column> =
            form.columns.iter().filter(|one| is_wanted(one)).cloned().collect();
        let row = |key: String, of: &dyn Fn(&Table, &Column) -> Option<f64>| {
            let value =
                |column| over(runs, name, column, &|table| of(table, column)).unwrap_or(0.0);
            (key, columns.iter().map(value).collect())
        };
        let of_key = |key: String| {
            row(key.clone(), &|table: &Table, column: &Column| table.value(&key, &column.name))
        };
        let mut rows: Vec<_> = keys(runs, name).into_iter().map(of_key).collect();
        if rows.len() != 1 && !matches!(form.key, Key::Attached | Key::Connection | Key::Resource) {
            let all = ALL[usize::from(!form.adds_up())].to_owned();
            rows.push(row(all, &|table, column| Some(table.all_of(column))));
        }
        Some((name.clone(), Table { key: form.key, columns, rows }))
    };
    forms.into_iter().filter_map(of_name).collect()
}

/// Returns the drawings of the tables of several sides, each a name and its [`medians`]: a drawing
/// for each probe. Columns without anything in them are left out. `heading` is of the sides; without one the side has
/// no column.
pub fn grids(label: &str, heading: &str, sides: &[(Cell, &Tables)]) -> Vec<Grid> {
    let names: BTreeSet<&String> = sides.iter().flat_map(|(_, tables)| tables.keys()).collect();
    let of_name = |name: &String| {
        let own = || sides.iter().filter_map(|(side, tables)| Some((side, tables.get(name)?)));
        let (_, form) = own().next()?;
        let is_of_something = |column: &&Column| {
            let mut values = own().filter_map(|(_, table)| table.column(&column.name)).flatten();
            values.any(|(_, value)| value != 0.0)
        };
        let columns: Vec<&Column> = form.columns.iter().filter(is_of_something).collect();
        let rows = own().flat_map(|(side, table)| {
            let skipped = table.rows.len().saturating_sub(1);
            let (most, last) = table.rows.split_at(skipped);
            most.iter().take(ROWS).chain(last).map(|(key, _)| {
                let cell = |column: &&Column| {
                    let value = table.value(key, &column.name);
                    value.map_or_else(|| "–".into(), |value| of_rate(column, value)).into()
                };
                let named = [side.clone(), key.as_str().into()];
                named
                    .into_iter()
                    .skip(usize::from(heading.is_empty()))
                    .chain(columns.iter().map(cell))
                    .collect::<Vec<_>>()
            })
        });
        let heads = [heading, form.key.heading()].into_iter().skip(usize::from(heading.is_empty()));
        let grid = Grid::new(format!("{name}: {label}"), heads);
        let grid = grid.columns(columns.iter().map(|one| head(one))).rows(rows);
        (!columns.is_empty()).then_some(grid)
    };
    names.into_iter().filter_map(of_name).collect()
}

/// Returns the trouble of [`medians`] as words, each with its table; empty where all is well.
pub fn trouble(tables: &Tables) -> String {
    let of_table = |(name, table): (&String, &Table)| {
        let troubles = table.columns.iter().enumerate();
        let said = troubles.filter_map(|(at, column)| {
            let (_, all) = table.rows.last()?;
            let rate = *all.get(at)?;
            let is_told = column.kind == Kind::Trouble && rate > 0.0;
            is_told.then(|| format!("{name} {} {}", column.name, of_rate(column, rate)))
        });
        said.collect::<Vec<_>>()
    };
    tables.iter().flat_map(of_table).collect::<Vec<_>>().join(", ")
}

/// Returns the trouble that the machine counted: a line for each case and stack.
pub(super) fn lines(model: &Model<'_>) -> Vec<String> {
    let of_trouble = |column: &Column| column.kind == Kind::Trouble;
    model.lines_of(|row| trouble(&medians_of(&row.group.valid, of_trouble, |_, _| vec![])))
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

/// The median over runs, in a second where the column grows with time.
fn over(
    runs: &[&RunRecord],
    name: &str,
    column: &Column,
    of: &dyn Fn(&Table) -> Option<f64>,
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

pub(super) fn of_rate(column: &Column, value: f64) -> String {
    match (is_share(column), column.grows()) {
        (true, _) => format!("{:.1} %", value * 100.0),
        (false, true) => format!("{}/s", significant(value)),
        (false, false) => significant(value),
    }
}

pub(super) fn head(column: &Column) -> frame::Column {
    let name = match is_share(column) || column.unit.is_empty() {
        true => column.name.to_string(),
        false => format!("{} [{}]", column.name, column.unit),
    };
    frame::Column::new(&format!(">{name}")).with_help(column.help.as_ref())
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

    /// Trouble that comes on another CPU in each run is none of the median of either CPU.
    #[test]
    fn medians_are_by_second_with_a_row_for_all() {
        let columns = vec![
            Column::new("dropped", "packets", Kind::Trouble, "Dropped."),
            Column::new("busy", "ms", Kind::Counter, ""),
        ];
        let run = |dropped: [f64; 2]| {
            let mut run = RunRecord::new("x");
            run.probes.times_s = vec![0.0, 2.0];
            let rows = dropped.iter().zip(["0", "1"]).map(|(n, cpu)| (cpu.into(), vec![*n, 500.0]));
            let table = Table { key: Key::Cpu, columns: columns.clone(), rows: rows.collect() };
            run.probes.tables.insert("softnet".into(), table);
            run
        };
        let runs = [run([8.0, 0.0]), run([0.0, 8.0]), run([8.0, 8.0])];
        let found = medians(&runs.iter().collect::<Vec<_>>());
        let rows = [("0", 4.0), ("1", 4.0), ("all", 4.0)].map(|(key, n)| (key.to_owned(), n));
        let of = |(key, values): &(String, Vec<f64>)| (key.clone(), values[0]);
        assert_eq!(found["softnet"].rows.iter().map(of).collect::<Vec<_>>(), rows);
        assert_eq!(found["softnet"].rows[2].1[1], 0.5);
        assert_eq!(trouble(&found), "softnet dropped 4.00/s");
        let side = [(Cell::from("kernel"), &found)];
        assert_eq!(grids("a case", "stack", &side).len(), 1);
        assert_eq!(trouble(&medians(&[&RunRecord::new("bare")])), "");
    }
}
