//! The section "over time": a card per run, by case and stack.

use millstream_diagnose::units::Scale;
use millstream_record::RunRecord;

use super::super::detail::spread;
use super::super::frame::{Part, of_place};
use super::super::model::{Case, Row};
use super::super::room::{Detailed, Scope};
use super::svg::figure;
use super::{activity, results};

const LEAD: &str = "Each card is a run: its outcome per interval, then how far apart the hosts' CPUs were where that was looked \
                    at, and what every CPU did. The shaded stretch is the measured window.";

/// Returns a card for each run of the cases that are shown.
pub(in super::super) fn parts<'a>(scope: Scope<'a>) -> Vec<Part<'a>> {
    let kinds =
        activity::KINDS.iter().map(|kind| format!("<span><i class=\"k-{kind}\"></i>{kind}</span>"));
    let kinds: String = kinds.collect();
    let legend =
        format!("<p class=\"legend\">{kinds}<span><i class=\"idle\"></i>idle</span></p>\n");
    let head =
        [Part::Styled("lead", format!("{LEAD} {}", scope.detailed.said)), Part::Markup(legend)];
    let cases = of(results::shown(scope), scope.detailed, scope.room.steps);
    let folded = |(at, (label, parts))| Part::Folded(label, at == 0, parts);
    head.into_iter().chain(cases.into_iter().enumerate().map(folded)).collect()
}

/// Cards of all runs of these cases, or of as many per stack as there is room for so many steps.
fn of<'a>(
    cases: &[Case<'_>],
    detailed: &Detailed<'_>,
    steps: usize,
) -> Vec<(String, Vec<Part<'a>>)> {
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
        let rows = case.rows.iter().zip(&own);
        let sides = rows.flat_map(|(row, runs)| side((case, row), runs, largest, each, &mut room));
        (case.label.clone(), sides.collect())
    });
    cases.collect()
}

fn side<'a>(
    (case, row): (&Case<'_>, &Row<'_>),
    runs: &[&RunRecord],
    largest: f64,
    each: usize,
    room: &mut usize,
) -> Vec<Part<'a>> {
    let mut drawn = representative(runs, each.min(*room));
    *room = room.saturating_sub(if each == usize::MAX { 0 } else { drawn.len() });
    drawn.sort_by_key(|run| run.order);
    let mut parts = vec![Part::Heading(of_place(row.place), row.label.clone())];
    let left_out = row.group.all().count() - drawn.len();
    if left_out > 0 {
        let said = "more runs are not drawn; these are spread from the slowest to the fastest";
        parts.push(Part::Styled("dim", format!("{left_out} {said}")));
    }
    let cards: String = drawn.into_iter().map(|run| card(run, row, case, largest)).collect();
    parts.push(Part::Markup(format!("<div class=\"cards\">\n{cards}</div>\n")));
    parts
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

fn card(run: &RunRecord, row: &Row<'_>, case: &Case<'_>, largest: f64) -> String {
    let table = case.tables.iter().find(|table| table.metric.headline);
    let value = table.and_then(|table| Some(table.scale.with_unit(run.result(&table.metric.key)?)));
    let fallback = || {
        let (key, value) = run.results.iter().next()?;
        Some(Scale::of(key, *value).with_unit(*value))
    };
    let value = value.or_else(fallback).unwrap_or_default();
    let (class, counted) = match row.group.counts(run) {
        true => ("card", ""),
        false => ("card invalid", " · does not count"),
    };
    let said = format!("run {} · block {}{counted}", run.order, run.block);
    figure(class, &value, &said, &activity::plot(run, largest), "")
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
