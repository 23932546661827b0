//! The answer in words.

use super::metric::Better;
use super::model::{Case, Model, Table};
use super::units::ratio;
use crate::stats::Comparison;

/// How a comparison reads, given which way is better.
pub(super) fn judgement(comparison: &Comparison, better: Better) -> &'static str {
    if comparison.interval.is_none() {
        return "too few runs";
    }
    if !comparison.differs() {
        return "no difference shown";
    }
    match (better, comparison.ratio > 1.0) {
        (Better::Neither, true) => "higher",
        (Better::Neither, false) => "lower",
        (Better::Higher, true) | (Better::Lower, false) => "better",
        _ => "worse",
    }
}

/// `0.62 (0.58 to 0.66)`.
pub(super) fn ratio_with_interval(comparison: &Comparison) -> String {
    match comparison.interval {
        Some(interval) => {
            format!(
                "{} ({} to {})",
                ratio(comparison.ratio),
                ratio(interval.low),
                ratio(interval.high)
            )
        }
        None => ratio(comparison.ratio),
    }
}

/// Name of a stack in a sentence.
fn spoken(stack: &str) -> String {
    match stack {
        "kernel" => "the kernel".into(),
        "millstream" => "Millstream".into(),
        other => other.into(),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The answer over all cases: the leading result of each workload, and what is missing.
pub(super) fn sentence(model: &Model<'_>) -> String {
    let mut sentences = lead(model);
    if sentences.is_empty() {
        sentences = model.cases.iter().flat_map(of_case).collect();
    }
    if model.valid_runs() == 0 {
        sentences.push("No valid run: nothing can be said.".into());
    }
    sentences.extend(gaps(model));
    sentences.join(" ")
}

/// What was not made or does not count.
fn gaps(model: &Model<'_>) -> Vec<String> {
    let mut gaps = Vec::new();
    let (made, planned) = (model.runs.len(), model.experiment.planned_runs as usize);
    let invalid = made - model.valid_runs();
    match invalid {
        0 => {}
        1 => gaps.push(format!("1 of {made} runs did not count.")),
        _ => gaps.push(format!("{invalid} of {made} runs did not count.")),
    }
    if made < planned {
        gaps.push(format!("Only {made} of {planned} planned runs were made."));
    }
    gaps
}

/// `Against the kernel, Millstream had 0.41 to 0.62 times the throughput in tcp_stream and …`: a
/// sentence per stack that is compared.
fn lead(model: &Model<'_>) -> Vec<String> {
    // Compared row → (base, workload → ratios of its leading result).
    let mut found: Vec<(String, String, Vec<Lead>)> = Vec::new();
    for case in &model.cases {
        let Some(table) = case.tables.iter().find(|table| table.metric.headline) else { continue };
        for (row, cell) in case.rows.iter().zip(&table.cells) {
            let Some(comparison) = cell.comparison else { continue };
            let (stack, base) = (row.label.clone(), case.rows[0].label.clone());
            let place = found.iter().position(|(one, other, _)| *one == stack && *other == base);
            let place = place.unwrap_or_else(|| {
                found.push((stack, base, Vec::new()));
                found.len() - 1
            });
            let leads = &mut found[place].2;
            match leads.iter_mut().find(|lead| lead.workload == case.workload) {
                Some(lead) => lead.ratios.push(comparison.ratio),
                None => leads.push(Lead {
                    workload: case.workload.clone(),
                    what: what(table),
                    ratios: vec![comparison.ratio],
                }),
            }
        }
    }
    let sentences = found.into_iter().map(|(stack, base, leads)| {
        let clauses: Vec<String> = leads.iter().map(Lead::clause).collect();
        format!("Against {}, {} had {}.", spoken(&base), spoken(&stack), listed(&clauses))
    });
    sentences.collect()
}

/// The ratios of the leading result of a workload over its cases.
struct Lead {
    workload: String,
    what: String,
    ratios: Vec<f64>,
}

impl Lead {
    fn clause(&self) -> String {
        let low = self.ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = (ratio(low), ratio(high));
        let range = if low == high { low } else { format!("{low} to {high}") };
        format!("{range} times the {} in {}", self.what, self.workload)
    }
}

/// The sentences of one case: one per row that is compared, else one per row with its median.
pub(super) fn of_case(case: &Case<'_>) -> Vec<String> {
    let headlines: Vec<&Table> = case.tables.iter().filter(|table| table.metric.headline).collect();
    let mut sentences = Vec::new();
    for (at, row) in case.rows.iter().enumerate().skip(1) {
        let clauses = headlines.iter().filter_map(|table| {
            let comparison = table.cells[at].comparison.as_ref()?;
            let doubt = if comparison.differs() { "" } else { " (no difference shown)" };
            Some(format!("{} times the {}{doubt}", ratio(comparison.ratio), what(table)))
        });
        let clauses: Vec<String> = clauses.collect();
        if !clauses.is_empty() {
            let (who, base) = (capitalised(&spoken(&row.label)), spoken(&case.rows[0].label));
            sentences.push(format!("{who} had {} of {base}.", listed(&clauses)));
        }
    }
    if sentences.is_empty()
        && let Some(table) = headlines.first()
    {
        for (row, cell) in case.rows.iter().zip(&table.cells) {
            let Some(summary) = cell.summary else { continue };
            let (who, median) =
                (capitalised(&spoken(&row.label)), table.scale.with_unit(summary.median));
            sentences.push(format!(
                "{who} had {median} {} in {} (median).",
                what(table),
                case.label
            ));
        }
    }
    sentences
}

/// The measure in a sentence: without the remark behind the comma, percentiles in front.
fn what(table: &Table) -> String {
    let label = &table.metric.label;
    match label.split_once(", ") {
        Some(("latency", which)) => format!("{which} latency"),
        Some((first, _)) => first.to_owned(),
        None => label.clone(),
    }
}

/// `a, b and c`.
fn listed(clauses: &[String]) -> String {
    match clauses {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}
