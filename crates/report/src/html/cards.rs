//! The section "over time": a card per run, by case and stack.

use millstream_diagnose::units::Scale;
use millstream_record::RunRecord;
use serde::Serialize;

use super::super::detail::spread;
use super::super::model::{Case, Row};
use super::activity;
use super::room::Detailed;

#[derive(Serialize)]
pub(super) struct CaseCards {
    label: String,
    what: String,
    sides: Vec<SideCards>,
}

#[derive(Serialize)]
struct SideCards {
    label: String,
    place: usize,
    cards: Vec<Card>,
    /// Runs that are not drawn for want of room.
    left_out: usize,
}

#[derive(Serialize)]
struct Card {
    order: u32,
    block: u32,
    value: String,
    counts: bool,
    svg: String,
}

/// Cards of all runs of these cases, or of as many per stack as there is room for so many steps.
pub(super) fn of(cases: &[Case<'_>], detailed: &Detailed<'_>, steps: usize) -> Vec<CaseCards> {
    let sides = cases.iter().flat_map(|case| &case.rows);
    let sides: Vec<Vec<&RunRecord>> = sides.map(|row| detailed.among(row.group.all())).collect();
    let runs = || sides.iter().flatten();
    let weight: usize = runs().map(|run| activity::weight(run)).sum();
    let mean = (weight / runs().count().max(1)).max(1);
    let each =
        if weight <= steps { usize::MAX } else { (steps / mean / sides.len().max(1)).max(1) };
    // With very many sides even one card each is too much: the first ones are drawn.
    let mut room = (steps / mean).max(sides.len().min(40));
    let mut sides = sides.iter();
    let cases = cases.iter().map(|case| {
        let own: Vec<&Vec<&RunRecord>> = sides.by_ref().take(case.rows.len()).collect();
        let runs = || own.iter().copied().flatten().copied();
        let largest = runs().map(activity::largest).fold(0.0, f64::max);
        let what =
            runs().find_map(activity::outcome_key).map_or(String::new(), |key| key.to_owned());
        let rows = case.rows.iter().zip(&own);
        let sides = rows.map(|(row, runs)| side((case, row), runs, largest, each, &mut room));
        CaseCards { sides: sides.collect(), label: case.label.clone(), what }
    });
    cases.collect()
}

fn side(
    (case, row): (&Case<'_>, &Row<'_>),
    runs: &[&RunRecord],
    largest: f64,
    each: usize,
    room: &mut usize,
) -> SideCards {
    let mut drawn = representative(runs, each.min(*room));
    *room = room.saturating_sub(if each == usize::MAX { 0 } else { drawn.len() });
    drawn.sort_by_key(|run| run.order);
    let cards: Vec<Card> = drawn.into_iter().map(|run| card(run, row, case, largest)).collect();
    SideCards {
        label: row.label.clone(),
        place: row.place,
        left_out: row.group.all().count() - cards.len(),
        cards,
    }
}

/// Returns at most `count` runs: spread evenly over the sorted outcome, so that slow and fast ones
/// are among them.
fn representative<'a>(runs: &[&'a RunRecord], count: usize) -> Vec<&'a RunRecord> {
    if runs.len() <= count {
        return runs.to_vec();
    }
    let outcome = |run: &&RunRecord| {
        let key = activity::outcome_key(run);
        key.and_then(|key| run.result(key)).unwrap_or(f64::NEG_INFINITY)
    };
    let mut sorted: Vec<(f64, &RunRecord)> = runs.iter().map(|run| (outcome(run), *run)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    spread(&sorted, count).into_iter().map(|(_, run)| run).collect()
}

fn card(run: &RunRecord, row: &Row<'_>, case: &Case<'_>, largest: f64) -> Card {
    let table = case.tables.iter().find(|table| table.metric.headline);
    let value = table.and_then(|table| Some(table.scale.with_unit(run.result(&table.metric.key)?)));
    let fallback = || {
        let (key, value) = run.results.iter().next()?;
        Some(Scale::of(key, *value).with_unit(*value))
    };
    Card {
        order: run.order,
        block: run.block,
        value: value.or_else(fallback).unwrap_or_default(),
        counts: row.group.counts(run),
        svg: activity::plot(run, largest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn representatives_include_the_ends() {
        let runs: Vec<RunRecord> = (0..20u32)
            .map(|order| {
                let mut run = RunRecord::new(order.to_string());
                run.results.insert("throughput_bits_per_s".into(), f64::from((order * 7) % 20));
                run.intervals.series.insert("throughput_bits_per_s".into(), vec![1.0]);
                run
            })
            .collect();
        let all: Vec<&RunRecord> = runs.iter().collect();
        let values = |count| -> Vec<f64> {
            representative(&all, count)
                .iter()
                .map(|run| run.results["throughput_bits_per_s"])
                .collect()
        };
        assert_eq!(values(3), [0.0, 9.0, 19.0]);
        assert_eq!((values(1).len(), values(0).len(), values(50).len()), (1, 0, 20));
    }
}
