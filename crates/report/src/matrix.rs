//! Many cases at once: a table of ratios with a line for each case, and how many of them hold.
//!
//! Factors with levels that are no numbers (a congestion control) make tables of their own, numeric
//! ones (loss, round trip) are the first columns.

use millstream_diagnose::stats::{Comparison, RUNS_FOR_A_CLAIM, median};
use millstream_diagnose::units::{Scale, ratio};
use millstream_record::configuration_label;
use serde::Serialize;

use super::metric::{Better, Metric};
use super::model::{Case, Model, Table};

/// A ratio of medians holds when it is no more than this share away from the base on the worse
/// side.
const WITHIN: f64 = 0.95;

/// One result over all cases that differ in numeric factors only.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    /// The workload and the factors that are not numbers, which all cases have in common.
    pub(super) heading: String,
    /// The result.
    pub(super) metric: String,
    /// Heads of the columns.
    pub(super) head: Vec<String>,
    /// A line for each case, as long as `head`.
    pub(super) lines: Vec<Vec<Entry>>,
    /// For each compared row, the number of its cases, and of those in which it is no worse than
    /// the base.
    pub(super) counts: Vec<Count>,
}

/// A place in the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Entry {
    pub(super) text: String,
    /// Worse than the base by more than [`WITHIN`] allows.
    pub(super) short: bool,
}

/// One compared row over the cases of a matrix.
#[derive(Debug, Serialize)]
pub(super) struct Count {
    pub(super) row: String,
    pub(super) cases: usize,
    pub(super) held: usize,
    /// The median of the ratios, or the sums of both sides where ratios mean nothing.
    pub(super) overall: String,
    /// The worst case, and where it is; empty when all are alike.
    pub(super) worst: String,
}

/// The matrices of all workloads and results that are shown first.
pub(super) fn of(model: &Model<'_>) -> Vec<Matrix> {
    let mut families: Vec<(String, Vec<&Case<'_>>)> = Vec::new();
    for case in model.cases.iter().filter(|case| case.rows.len() > 1) {
        let heading = heading(case);
        match families.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, cases)) => cases.push(case),
            None => families.push((heading, vec![case])),
        }
    }
    let large = families.iter().filter(|(_, cases)| cases.len() > 1);
    large.flat_map(|(heading, cases)| of_family(heading, cases)).collect()
}

fn is_number(level: &str) -> bool {
    level.parse::<f64>().is_ok()
}

fn heading(case: &Case<'_>) -> String {
    let mut words = case.factors.clone();
    words.retain(|_, level| !is_number(level));
    configuration_label(&case.workload, &words)
}

fn of_family(heading: &str, cases: &[&Case<'_>]) -> Vec<Matrix> {
    let mut metrics: Vec<&Metric> = Vec::new();
    for table in cases.iter().flat_map(|case| &case.tables) {
        if table.metric.headline && metrics.iter().all(|known| known.key != table.metric.key) {
            metrics.push(&table.metric);
        }
    }
    metrics.into_iter().filter_map(|metric| Family::new(cases, metric)?.matrix(heading)).collect()
}

/// The cases of a matrix, their rows and one result.
struct Family<'m, 'a> {
    cases: &'m [&'m Case<'a>],
    metric: &'m Metric,
    /// The scale of the largest median of all.
    scale: Scale,
    /// Numeric factors: the first columns.
    factors: Vec<&'m str>,
    /// The row that the others are compared with.
    base: &'m str,
    others: Vec<&'m str>,
}

impl<'m, 'a> Family<'m, 'a> {
    fn new(cases: &'m [&'m Case<'a>], metric: &'m Metric) -> Option<Self> {
        let base = cases
            .iter()
            .find(|case| case.tables.iter().any(|table| case.compares(table)))?
            .rows
            .first()?;
        let mut others: Vec<&str> = Vec::new();
        for row in cases.iter().flat_map(|case| &case.rows) {
            if row.label != base.label && !others.contains(&row.label.as_str()) {
                others.push(&row.label);
            }
        }
        let mut factors: Vec<&str> = Vec::new();
        for (name, level) in cases.iter().flat_map(|case| &case.factors) {
            if is_number(level) && !factors.contains(&name.as_str()) {
                factors.push(name);
            }
        }
        let mut family = Self {
            cases,
            metric,
            scale: Scale::of(&metric.key, 0.0),
            factors,
            base: &base.label,
            others,
        };
        let rows = || std::iter::once(family.base).chain(family.others.iter().copied());
        let medians =
            cases.iter().flat_map(|case| rows().filter_map(|row| family.median(case, row)));
        family.scale = Scale::of(&metric.key, medians.fold(0.0, f64::max));
        Some(family)
    }

    fn matrix(&self, heading: &str) -> Option<Matrix> {
        let unit = if self.scale.unit.is_empty() {
            String::new()
        } else {
            format!(", {}", self.scale.unit)
        };
        let mut head: Vec<String> = self.factors.iter().map(|&name| name.to_owned()).collect();
        head.push(format!("{}{unit}", self.base));
        head.extend(self.others.iter().map(|&row| row.to_owned()));
        head.push("n".to_owned());
        let lines: Vec<Vec<Entry>> = self.cases.iter().map(|case| self.line(case)).collect();
        let counts: Vec<Count> = self.others.iter().filter_map(|row| self.count(row)).collect();
        if counts.is_empty() {
            return None;
        }
        let metric = self.metric.label.clone();
        Some(Matrix { heading: heading.to_owned(), metric, head, lines, counts })
    }

    fn line(&self, case: &Case<'_>) -> Vec<Entry> {
        let plain = |text: String| Entry { text, short: false };
        let level = |name: &&str| plain(case.factors.get(*name).cloned().unwrap_or_default());
        let mut line: Vec<Entry> = self.factors.iter().map(level).collect();
        line.push(plain(self.base_text(case)));
        line.extend(self.others.iter().map(|row| self.entry(case, row)));
        let runs = case.rows.iter().map(|row| row.group.values(&self.metric.key).len());
        line.push(plain(runs.min().unwrap_or(0).to_string()));
        line
    }

    fn base_text(&self, case: &Case<'_>) -> String {
        let Some((table, at)) = self.place(case, self.base) else { return "–".to_owned() };
        let Some(summary) = case.cells(table)[at].summary else { return "–".to_owned() };
        let number = |value| self.scale.number(value);
        match summary.interval {
            Some(interval) if self.by_ratio() => format!(
                "{} ({} to {})",
                number(summary.median),
                number(interval.low),
                number(interval.high)
            ),
            _ => number(summary.median),
        }
    }

    fn entry(&self, case: &Case<'_>, row: &str) -> Entry {
        let text = match self.place(case, row).map(|(table, at)| &case.cells(table)[at]) {
            Some(cell) if self.by_ratio() => {
                cell.comparison.as_ref().map(super::verdict::ratio_with_interval)
            }
            Some(cell) => cell.summary.map(|summary| self.scale.number(summary.median)),
            None => None,
        };
        Entry {
            text: text.unwrap_or_else(|| "–".to_owned()),
            short: self.holds(case, row) == Some(false),
        }
    }

    /// Shares in percent may be zero on either side: they are shown as they are, and compared so.
    fn by_ratio(&self) -> bool {
        self.scale.unit != "%" && self.metric.better != Better::Neither
    }

    /// Table and place of a row in a case.
    fn place<'c>(&self, case: &'c Case<'a>, row: &str) -> Option<(&'c Table, usize)> {
        let table = case.tables.iter().find(|table| table.metric.key == self.metric.key)?;
        Some((table, case.rows.iter().position(|one| one.label == row)?))
    }

    fn median(&self, case: &Case<'a>, row: &str) -> Option<f64> {
        let (table, at) = self.place(case, row)?;
        table.medians[at]
    }

    fn ratio(&self, case: &Case<'a>, row: &str) -> Option<f64> {
        let (table, at) = self.place(case, row)?;
        Some(case.cells(table)[at].comparison.filter(Comparison::is_supported)?.ratio)
    }

    /// Returns true when the row is no worse than the base; `None` when there is nothing to
    /// compare.
    fn holds(&self, case: &Case<'a>, row: &str) -> Option<bool> {
        if !self.by_ratio() {
            let runs = |row: &str| {
                let row = case.rows.iter().find(|one| one.label == row);
                row.map_or(0, |row| row.group.values(&self.metric.key).len())
            };
            if runs(row).min(runs(self.base)) < RUNS_FOR_A_CLAIM {
                return None;
            }
            let (own, base) = (self.median(case, row)?, self.median(case, self.base)?);
            return Some(match self.metric.better {
                Better::Higher => own >= base,
                Better::Lower => own <= base,
                Better::Neither => true,
            });
        }
        let ratio = self.ratio(case, row)?;
        Some(if self.metric.better == Better::Lower {
            ratio * WITHIN <= 1.0
        } else {
            ratio >= WITHIN
        })
    }

    fn count(&self, row: &str) -> Option<Count> {
        let judged: Vec<bool> =
            self.cases.iter().filter_map(|case| self.holds(case, row)).collect();
        if judged.is_empty() {
            // Both sides are there, but of too few runs.
            let both = |case: &&&Case<'_>| {
                self.median(case, row).is_some() && self.median(case, self.base).is_some()
            };
            return (self.cases.iter().filter(both).count() > 0).then(|| Count {
                row: row.to_owned(),
                cases: 0,
                held: 0,
                overall: format!("fewer than {RUNS_FOR_A_CLAIM} runs a side"),
                worst: String::new(),
            });
        }
        let (overall, worst) = if self.by_ratio() { self.ratios(row)? } else { self.sums(row) };
        Some(Count {
            row: row.to_owned(),
            cases: judged.len(),
            held: judged.iter().filter(|held| **held).count(),
            overall,
            worst,
        })
    }

    fn ratios(&self, row: &str) -> Option<(String, String)> {
        let all: Vec<(f64, &Case<'_>)> =
            self.cases.iter().filter_map(|case| Some((self.ratio(case, row)?, *case))).collect();
        let values: Vec<f64> = all.iter().map(|(ratio, _)| *ratio).collect();
        let badness = |ratio: f64| if self.metric.better == Better::Lower { -ratio } else { ratio };
        let (worst, case) = all.iter().min_by(|a, b| badness(a.0).total_cmp(&badness(b.0)))?;
        let place: Vec<String> = self
            .factors
            .iter()
            .filter_map(|name| Some(format!("{name}={}", case.factors.get(*name)?)))
            .collect();
        Some((ratio(median(&values)?), format!("{} at {}", ratio(*worst), place.join(" "))))
    }

    fn sums(&self, row: &str) -> (String, String) {
        let both = self
            .cases
            .iter()
            .filter_map(|case| Some((self.median(case, row)?, self.median(case, self.base)?)));
        let (own, base) = both.fold((0.0, 0.0), |sums, pair| (sums.0 + pair.0, sums.1 + pair.1));
        let unit = &self.scale.unit;
        let number = |value| self.scale.number(value);
        (format!("{} {unit} summed, base {} {unit}", number(own), number(base)), String::new())
    }
}

/// Markdown: what all matrices come to, then each with every case; empty when there is none.
pub(super) fn markdown(matrices: &[Matrix]) -> String {
    if matrices.is_empty() {
        return String::new();
    }
    let mut out = String::from("## In short\n\n");
    let head = ["", "result", "row", "cases", "held", "overall", "worst"].map(str::to_owned);
    let lines = matrices.iter().flat_map(|matrix| {
        matrix.counts.iter().map(|count| {
            let cells = [
                matrix.heading.clone(),
                matrix.metric.clone(),
                count.row.clone(),
                count.cases.to_string(),
                count.held.to_string(),
                count.overall.clone(),
                count.worst.clone(),
            ];
            cells.to_vec()
        })
    });
    out.push_str(&table(&head, lines));
    for matrix in matrices {
        out.push_str(&format!("\n## {}: {}\n\n", matrix.heading, matrix.metric));
        let lines = matrix.lines.iter().map(|line| line.iter().map(Entry::marked).collect());
        out.push_str(&table(&matrix.head, lines));
    }
    out
}

impl Entry {
    /// Bold where it falls short.
    fn marked(&self) -> String {
        if self.short { format!("**{}**", self.text) } else { self.text.clone() }
    }
}

fn table(head: &[String], lines: impl Iterator<Item = Vec<String>>) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut out = row(head);
    out.push_str(&format!("|{}\n", "---|".repeat(head.len())));
    lines.for_each(|line| out.push_str(&row(&line)));
    out
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use millstream_record::{RunRecord, keys};

    /// A made-up sweep: Millstream has `share` of the kernel's throughput at each loss.
    fn runs(shares: &[(&str, f64)]) -> Vec<RunRecord> {
        let mut runs = Vec::new();
        for (loss, share) in shares {
            for (stack, rate) in [("kernel", 1e8), ("millstream", 1e8 * share)] {
                for block in 0..4 {
                    let mut run = RunRecord::new(format!("r{}", runs.len()));
                    run.workload = "tcp_stream".into();
                    run.stack = stack.into();
                    run.block = block;
                    run.order = runs.len() as u32;
                    run.factors.insert("loss_percent".into(), (*loss).into());
                    run.factors.insert("congestion".into(), "cubic".into());
                    run.results.insert(keys::THROUGHPUT.into(), rate + f64::from(block));
                    let vain = if stack == "kernel" { 0.0 } else { 1.0 - share };
                    run.results.insert(keys::SPURIOUS.into(), vain.max(0.0));
                    runs.push(run);
                }
            }
        }
        runs
    }

    #[test]
    fn cases_that_fall_short_are_marked_and_counted() {
        let (experiment, _) = fixture::experiment();
        let runs = runs(&[("0", 1.0), ("1", 0.96), ("3", 0.5)]);
        let matrices = of(&Model::new(&experiment, &runs));
        assert_eq!(matrices.len(), 2, "throughput, and what was sent again in vain");
        let throughput = &matrices[0];
        assert_eq!(throughput.head, ["loss_percent", "kernel, Mbit/s", "millstream", "n"]);
        let short: Vec<bool> = throughput.lines.iter().map(|line| line[2].short).collect();
        assert_eq!(short, [false, false, true]);
        let count = &throughput.counts[0];
        assert_eq!((count.cases, count.held), (3, 2));
        assert_eq!(
            (count.overall.as_str(), count.worst.as_str()),
            ("0.96", "0.50 at loss_percent=3")
        );
        let vain = &matrices[1];
        let marks: Vec<bool> = vain.lines.iter().map(|line| line[2].short).collect();
        assert_eq!(marks, [false, true, true], "any more than the base's is too much");
    }

    #[test]
    fn the_markdown_has_a_line_for_each_case() {
        let (experiment, _) = fixture::experiment();
        let runs = runs(&[("0", 1.0), ("3", 0.5)]);
        let text = markdown(&of(&Model::new(&experiment, &runs)));
        assert!(text.contains("## tcp_stream: throughput\n"), "{text}");
        assert!(text.contains("| 3 | 100 (100 to 100) | **0.50 (0.50 to 0.50)** | 4 |"), "{text}");
    }

    #[test]
    fn of_too_few_runs_no_case_holds_or_falls_short() {
        let (experiment, _) = fixture::experiment();
        let mut runs = runs(&[("0", 1.0), ("3", 0.5)]);
        runs.retain(|run| run.block < 3);
        let matrices = of(&Model::new(&experiment, &runs));
        for matrix in &matrices {
            let count = &matrix.counts[0];
            assert_eq!((count.cases, count.held), (0, 0));
            assert_eq!(count.overall, "fewer than 4 runs a side");
            assert!(matrix.lines.iter().flatten().all(|entry| !entry.short));
        }
        let text = markdown(&matrices);
        assert!(text.contains("| 3 | 100 | – | 3 |") && !text.contains("**"), "{text}");
    }

    #[test]
    fn one_case_is_no_matrix() {
        let (experiment, _) = fixture::experiment();
        let runs = runs(&[("0", 1.0)]);
        assert!(of(&Model::new(&experiment, &runs)).is_empty());
        assert_eq!(markdown(&[]), "");
    }
}
