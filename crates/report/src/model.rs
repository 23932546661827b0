//! The numbers of a report, computed once for all its forms.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use millstream_diagnose::groups::{Apart, Group, groups};
use millstream_diagnose::stats::{Bootstrap, Comparison, Summary, median};
use millstream_diagnose::units::Scale;
use millstream_record::{ExperimentRecord, RunRecord, configuration_label};

use super::metric::{self, Metric};

/// An experiment by cases.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) experiment: &'a ExperimentRecord,
    pub(super) runs: &'a [RunRecord],
    /// Ids of those that the numbers have in them.
    counted: HashSet<&'a str>,
    /// Case and row of each run, by its id.
    places: HashMap<&'a str, (usize, usize)>,
    pub(super) cases: Vec<Case<'a>>,
    /// Factors that had one level in all runs of a workload: workload, then factor and level.
    pub(super) held: Vec<(String, Vec<(String, String)>)>,
}

/// One workload at one level of every factor: what the stacks are compared in.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) workload: String,
    /// Workload and the factors that vary.
    pub(super) label: String,
    /// The factors that vary, with the case's levels.
    pub(super) factors: Factors,
    /// The stacks, the base first.
    pub(super) rows: Vec<Row<'a>>,
    pub(super) tables: Vec<Table>,
    bootstrap: Bootstrap,
    /// True when the other rows are compared with the first.
    has_base: bool,
}

/// The runs of a case on one stack.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// The stack, with factors that only it has.
    pub(super) label: String,
    /// Place of the stack in the design, below [`COLOURS`]: chooses colour and shape.
    pub(super) place: usize,
    pub(super) group: Group<'a>,
}

/// One result of a case.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) metric: Metric,
    pub(super) scale: Scale,
    /// The median of each row.
    pub(super) medians: Vec<Option<f64>>,
    /// A cell per row, made when it is asked for: of most results text asks for no interval, which
    /// take nearly all of the time.
    cells: OnceLock<Vec<Cell>>,
}

#[derive(Debug)]
pub(super) struct Cell {
    pub(super) summary: Option<Summary>,
    /// Against the first row; `None` for that row itself.
    pub(super) comparison: Option<Comparison>,
}

/// Stacks that have a colour and a shape of their own; more begin again.
const COLOURS: usize = 4;

/// Factors whose levels are compared with each other, like stacks: who is at the other end.
const AMONG_ROWS: &[&str] = &["peer", "rival"];

/// Factor and level.
pub(super) type Factors = BTreeMap<String, String>;

impl<'a> Model<'a> {
    pub(super) fn new(experiment: &'a ExperimentRecord, runs: &'a [RunRecord]) -> Self {
        let mut groups = groups(runs, &experiment.workloads, &experiment.stacks);
        if let Some(apart) = Apart::among(runs).filter(|_| experiment.steady_cpus) {
            apart.set_aside(&mut groups);
        }
        let mut workloads: Vec<String> = Vec::new();
        for group in &groups {
            if !workloads.contains(&group.key.workload) {
                workloads.push(group.key.workload.clone());
            }
        }
        let mut stacks = experiment.stacks.clone();
        for group in &groups {
            if !stacks.contains(&group.key.stack) {
                stacks.push(group.key.stack.clone());
            }
        }
        let bootstrap = Bootstrap { seed: experiment.seed, ..Bootstrap::default() };
        let counted =
            groups.iter().flat_map(|group| &group.valid).map(|run| run.id.as_str()).collect();
        let (cases, held, places) = (Vec::new(), Vec::new(), HashMap::new());
        let mut model = Self { experiment, runs, counted, places, cases, held };
        for workload in workloads {
            let own: Vec<_> =
                groups.iter().filter(|group| group.key.workload == workload).cloned().collect();
            let design = Design::of(&own);
            model.held.push((workload.clone(), design.held(&own)));
            model.cases.extend(design.cases(
                workload,
                own,
                &stacks,
                &experiment.factors,
                &bootstrap,
            ));
        }
        let rows = |(at, case): (usize, &Case<'a>)| {
            let of_row = |(row, one): (usize, &Row<'a>)| {
                one.group.all().map(|run| (run.id.as_str(), (at, row))).collect::<Vec<_>>()
            };
            case.rows.iter().enumerate().flat_map(of_row).collect::<Vec<_>>()
        };
        model.places = model.cases.iter().enumerate().flat_map(rows).collect();
        model
    }

    /// Returns each stack of each case.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Case<'a>, &Row<'a>)> {
        self.cases.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row)))
    }

    /// Returns a line for each stack of each case of which `said` has something to say, after its
    /// name and how many runs of it count.
    pub(super) fn lines_of(&self, said: impl Fn(&Row<'a>) -> String) -> Vec<String> {
        let line = |(case, row): (&Case<'a>, &Row<'a>)| {
            let runs = match row.group.valid.len() {
                1 => "1 run".to_owned(),
                count => format!("{count} runs"),
            };
            let said = said(row);
            let line = || format!("{}, {} ({runs}): {said}", case.label, row.label);
            (!said.is_empty()).then(line)
        };
        self.rows().filter_map(line).collect()
    }

    /// Makes the cells of all results, by as many threads as there are CPUs.
    pub(super) fn make_cells(&self) {
        let all = self.cases.iter().flat_map(|case| case.tables.iter().map(move |one| (case, one)));
        let all: Vec<(&Case<'_>, &Table)> = all.collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((case, table)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                case.cells(table);
            }
        };
        thread::scope(|scope| {
            let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            (1..cpus.min(all.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
    }

    pub(super) fn valid_runs(&self) -> usize {
        self.runs.iter().filter(|run| run.validity.valid).count()
    }

    pub(super) fn invalid(&self) -> impl Iterator<Item = &'a RunRecord> {
        self.runs.iter().filter(|run| !run.validity.valid)
    }

    /// Runs that are set aside, as their CPUs were apart.
    pub(super) fn apart(&self) -> impl Iterator<Item = &'a RunRecord> {
        let rows = self.cases.iter().flat_map(|case| &case.rows);
        rows.flat_map(|row| &row.group.apart).copied()
    }

    /// Returns true when the numbers of the report include the run.
    pub(super) fn counts(&self, run: &RunRecord) -> bool {
        self.counted.contains(run.id.as_str())
    }

    /// Remarks of the experiment, then those of its runs, each once with the number of its runs
    /// (0: of the whole experiment).
    pub(super) fn notes(&self) -> Vec<(String, usize)> {
        let mut by_run: BTreeMap<&str, usize> = BTreeMap::new();
        for run in self.runs {
            for note in run.notes.iter().map(String::as_str).collect::<BTreeSet<_>>() {
                *by_run.entry(note).or_default() += 1;
            }
        }
        let own = self.experiment.notes.iter().map(|note| (note.clone(), 0));
        own.chain(by_run.into_iter().map(|(note, runs)| (note.to_owned(), runs))).collect()
    }

    /// The case, and its row, that a run belongs to.
    pub(super) fn place_of(&self, run: &RunRecord) -> Option<(&Case<'a>, &Row<'a>)> {
        let (case, row) = *self.places.get(run.id.as_str())?;
        Some((&self.cases[case], &self.cases[case].rows[row]))
    }
}

/// The factors of a workload that make a case. The others only tell the rows of a stack apart.
struct Design {
    /// Factors that every run has and that vary.
    varying: BTreeSet<String>,
    /// Factors that every run has.
    common: BTreeSet<String>,
}

impl Design {
    fn of(groups: &[Group<'_>]) -> Self {
        let mut levels: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
        for group in groups {
            for (name, level) in &group.key.factors {
                let entry = levels.entry(name).or_default();
                entry.0 += 1;
                entry.1.insert(level);
            }
        }
        let everywhere = levels.iter().filter(|(name, (count, seen))| {
            *count == groups.len() && (seen.len() == 1 || !AMONG_ROWS.contains(name))
        });
        let common = everywhere.clone().map(|(name, _)| (*name).to_owned()).collect();
        let varying =
            everywhere.filter(|(_, (_, seen))| seen.len() > 1).map(|(name, _)| (*name).to_owned());
        Self { varying: varying.collect(), common }
    }

    fn held(&self, groups: &[Group<'_>]) -> Vec<(String, String)> {
        let Some(first) = groups.first() else { return Vec::new() };
        let held = first
            .key
            .factors
            .iter()
            .filter(|(name, _)| self.common.contains(*name) && !self.varying.contains(*name));
        held.map(|(name, level)| (name.clone(), level.clone())).collect()
    }

    fn only(names: &BTreeSet<String>, factors: &Factors, inside: bool) -> Factors {
        let kept = factors.iter().filter(|(name, _)| names.contains(*name) == inside);
        kept.map(|(name, level)| (name.clone(), level.clone())).collect()
    }

    fn cases<'a>(
        &self,
        workload: String,
        groups: Vec<Group<'a>>,
        stacks: &[String],
        levels: &BTreeMap<String, Vec<String>>,
        bootstrap: &Bootstrap,
    ) -> Vec<Case<'a>> {
        let mut by_factors: BTreeMap<Vec<Level>, (Factors, Vec<Row<'a>>)> = BTreeMap::new();
        for group in groups {
            let shared = Self::only(&self.varying, &group.key.factors, true);
            let own = Self::only(&self.common, &group.key.factors, false);
            let place =
                stacks.iter().position(|stack| *stack == group.key.stack).unwrap_or(stacks.len());
            let row = Row { label: configuration_label(&group.key.stack, &own), place, group };
            let at = order(&shared, levels);
            by_factors.entry(at).or_insert_with(|| (shared, Vec::new())).1.push(row);
        }
        let cases = by_factors.into_values().map(|(factors, mut rows)| {
            rows.sort_by_cached_key(|row| {
                let own = Self::only(&self.common, &row.group.key.factors, false);
                (row.place, order(&own, levels), row.label.clone())
            });
            rows.iter_mut().for_each(|row| row.place %= COLOURS);
            let tables = tables(&rows);
            let first = rows.first().map(|row| &row.group.key.stack);
            Case {
                bootstrap: *bootstrap,
                has_base: stacks.first().is_none_or(|stack| first == Some(stack)),
                label: configuration_label(&workload, &factors),
                workload: workload.clone(),
                factors,
                rows,
                tables,
            }
        });
        cases.collect()
    }
}

/// Place of a combination of levels among others of the same factors.
fn order(factors: &Factors, listed: &BTreeMap<String, Vec<String>>) -> Vec<Level> {
    factors.iter().map(|(name, level)| Level::of(level, listed.get(name))).collect()
}

/// Levels sort as the design lists them, others as numbers where they are numbers: 64 before 128.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Listed(usize),
    Number(u64, String),
    Text(String),
}

impl Level {
    fn of(level: &str, listed: Option<&Vec<String>>) -> Self {
        if let Some(place) = listed.and_then(|listed| listed.iter().position(|one| one == level)) {
            return Self::Listed(place);
        }
        match level.parse::<f64>() {
            // The bits of non-negative floats sort as they do.
            Ok(number) if number >= 0.0 => Self::Number(number.to_bits(), level.to_owned()),
            _ => Self::Text(level.to_owned()),
        }
    }
}

fn tables(rows: &[Row<'_>]) -> Vec<Table> {
    let runs = rows.iter().flat_map(|row| row.group.all());
    let tables = metric::of_runs(runs).into_iter().map(|metric| {
        let medians: Vec<Option<f64>> =
            rows.iter().map(|row| median(&row.group.values(&metric.key))).collect();
        let largest = medians.iter().flatten().copied().fold(0.0, f64::max);
        Table { scale: Scale::of(&metric.key, largest), metric, medians, cells: OnceLock::new() }
    });
    tables.collect()
}

impl Case<'_> {
    /// Summaries and comparisons of a result, a cell per row.
    pub(super) fn cells<'c>(&'c self, table: &'c Table) -> &'c [Cell] {
        table.cells.get_or_init(|| {
            let values = self.rows.iter().map(|row| row.group.values(&table.metric.key));
            let values: Vec<Vec<f64>> = values.collect();
            let base = values.first().filter(|_| self.has_base);
            let cell = |(at, row): (usize, &Vec<f64>)| Cell {
                summary: Summary::of(row, &self.bootstrap),
                comparison: base
                    .filter(|_| at > 0)
                    .and_then(|base| Comparison::of(row, base, &self.bootstrap)),
            };
            values.iter().enumerate().map(cell).collect()
        })
    }

    /// Returns true when a row is compared with the base in this result.
    pub(super) fn compares(&self, table: &Table) -> bool {
        match &table.medians[..] {
            [Some(base), others @ ..] if self.has_base && *base > 0.0 => {
                others.iter().any(Option::is_some)
            }
            _ => false,
        }
    }
}
