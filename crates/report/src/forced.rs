//! A cause that was forced away and let back in: whether it is proved. The wake-up of idle CPUs is
//! the one that can be forced as yet (`idle_latency_us`).

use millstream_diagnose::groups::compare;
use millstream_diagnose::stats::{Bootstrap, RUNS_FOR_A_CLAIM};
use millstream_record::{RunRecord, keys};

use super::metric::Better;
use super::model::{Case, Model, Row, Table};
use super::verdict::ratio_with_interval;

const FACTOR: &str = "idle_latency_us";
/// The level that lets CPUs sleep as ever.
const OFF: &str = "auto";

/// One sentence for each case with the cause forced away, and each stack.
pub(super) fn sentences(model: &Model<'_>) -> Vec<String> {
    let bootstrap = Bootstrap { seed: model.experiment.seed, ..Bootstrap::default() };
    let mut all = Vec::new();
    for on in &model.cases {
        let Some(level) = on.factors.get(FACTOR).filter(|level| *level != OFF) else { continue };
        let Some(off) = model.cases.iter().find(|off| is_off(off, on)) else { continue };
        for row in &on.rows {
            let Some(base) = off.rows.iter().find(|base| base.label == row.label) else { continue };
            let said = judged(on, row, base, level, &bootstrap);
            all.extend(said.map(|said| format!("{}, {}: {said}.", on.label, row.label)));
        }
    }
    all
}

/// Returns true when the cases differ in nothing but the cause.
fn is_off(off: &Case<'_>, on: &Case<'_>) -> bool {
    let mut expected = on.factors.clone();
    expected.insert(FACTOR.to_owned(), OFF.to_owned());
    off.workload == on.workload && off.factors == expected
}

/// Returns the table that is compared: of latency, else of transactions, else of throughput, as
/// waiting is felt in this order.
fn leading<'c>(case: &'c Case<'_>) -> Option<&'c Table> {
    [keys::LATENCY_P50, keys::TRANSACTIONS, keys::THROUGHPUT]
        .into_iter()
        .find_map(|key| case.tables.iter().find(|table| table.metric.key == key))
}

fn judged(
    case: &Case<'_>,
    on: &Row<'_>,
    off: &Row<'_>,
    level: &str,
    bootstrap: &Bootstrap,
) -> Option<String> {
    let metric = &leading(case)?.metric;
    let comparison = compare(&on.group, &off.group, &metric.key, bootstrap)?;
    let what = format!("{} {} of that with {OFF}", metric.label, ratio_with_interval(&comparison));
    let is_better = (comparison.ratio < 1.0) == (metric.better == Better::Lower);
    let verdict = match unsound(&on.group.valid, &off.group.valid, level) {
        Some(reason) => format!("nothing is proved, {reason}"),
        None if !comparison.is_supported() => {
            format!("nothing is proved, fewer than {RUNS_FOR_A_CLAIM} runs a side")
        }
        None if !comparison.differs() => "not proved, no difference is shown".to_owned(),
        None if !is_better => "refuted: it is worse where idle CPUs wake up at once".to_owned(),
        None => proved(metric.better, comparison.ratio),
    };
    Some(format!("{what}: {verdict}"))
}

fn proved(better: Better, ratio: f64) -> String {
    match better {
        Better::Lower => {
            format!("proved, the wake-up of idle CPUs is {:.0} % of it", 100.0 * (1.0 - ratio))
        }
        _ => "proved, the wake-up of idle CPUs is what holds it back".to_owned(),
    }
}

/// Returns the reason why the two sides do not differ in the cause as they should; `None` when they
/// do.
fn unsound(on: &[&RunRecord], off: &[&RunRecord], level: &str) -> Option<String> {
    let held = |run: &&&RunRecord| in_force(run, level);
    let (refused, others) = (on.len() - on.iter().filter(held).count(), off.iter().filter(held));
    let others = others.count();
    if refused > 0 {
        return Some(format!("the request was not in force in {refused} of {} runs", on.len()));
    }
    (others > 0).then(|| {
        format!(
            "with {OFF} another program's request was in force in {others} of {} runs",
            off.len()
        )
    })
}

/// Returns true when CPUs were kept to an idle latency of `level` microseconds or less in the run.
fn in_force(run: &RunRecord, level: &str) -> bool {
    let us = |text: &str| text.parse::<f64>().ok();
    let in_force = run.environment.get("idle_latency.in_force_us").and_then(us);
    in_force.zip(us(level)).is_some_and(|(in_force, level)| in_force <= level)
}
