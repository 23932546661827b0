//! The levels of a factor against the first of them, all else being equal: what a setting changes
//! on one stack.

use millstream_diagnose::groups::compare;
use millstream_diagnose::stats::{Bootstrap, Comparison, RUNS_FOR_A_CLAIM};

use super::model::{Case, Model, Row, Table};
use super::verdict::{judgement, ratio_with_interval};

/// One line for each level of a factor but the first, each case it is in, and each row:
/// `tcp_stream, offload=off against on, millstream: throughput 0.62 (0.58 to 0.66) worse, CPU per
/// GB 1.31 (1.20 to 1.40) worse`.
pub(super) fn lines(model: &Model<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for case in &model.cases {
        for factor in case.factors.keys() {
            let Some(base) = first_level(model, case, factor) else { continue };
            for row in &case.rows {
                let Some(other) = base.rows.iter().find(|one| one.label == row.label) else {
                    continue;
                };
                lines.extend(line(model, factor, (case, row), (base, other)));
            }
        }
    }
    lines
}

/// The case with the first level of this factor and every other level alike; `None` where that is
/// the case itself.
fn first_level<'m, 'a>(
    model: &'m Model<'a>,
    case: &Case<'a>,
    factor: &str,
) -> Option<&'m Case<'a>> {
    let others = |one: &Case<'_>| {
        let mut factors = one.factors.clone();
        factors.remove(factor);
        (one.workload.clone(), factors)
    };
    // Cases stand in the order of their levels.
    let first = model.cases.iter().find(|one| others(one) == others(case))?;
    (first.factors.get(factor) != case.factors.get(factor)).then_some(first)
}

/// Compares a case of one row with the case of the first level of its factor. `None` for that
/// level itself, where there are several rows or factors, and where there is no ratio.
pub(super) fn comparison(model: &Model<'_>, case: &Case<'_>, table: &Table) -> Option<Comparison> {
    let ([row], 1) = (&case.rows[..], case.factors.len()) else { return None };
    let base = first_level(model, case, case.factors.keys().next()?)?;
    let other = base.rows.iter().find(|one| one.label == row.label)?;
    compare(&row.group, &other.group, &table.metric.key, &bootstrap(model))
}

fn bootstrap(model: &Model<'_>) -> Bootstrap {
    Bootstrap { seed: model.experiment.seed, ..Bootstrap::default() }
}

fn line(
    model: &Model<'_>,
    factor: &str,
    (case, row): (&Case<'_>, &Row<'_>),
    (base, other): (&Case<'_>, &Row<'_>),
) -> Option<String> {
    let (mut told, mut compared) = (Vec::new(), false);
    for table in case.tables.iter().filter(|table| table.metric.headline) {
        let metric = &table.metric;
        let Some(one) = compare(&row.group, &other.group, &metric.key, &bootstrap(model)) else {
            continue;
        };
        compared = true;
        if one.is_supported() {
            let (ratio, judged) = (ratio_with_interval(&one), judgement(&one, metric.better));
            told.push(format!("{} {ratio} {judged}", metric.label));
        }
    }
    let told = match told.is_empty() {
        true => format!("fewer than {RUNS_FOR_A_CLAIM} runs a side, no ratio is told"),
        false => told.join(", "),
    };
    let mut rest = case.factors.clone();
    let level = rest.remove(factor)?;
    let rest = millstream_record::configuration_label(&case.workload, &rest);
    let first = base.factors.get(factor)?;
    compared.then(|| format!("{rest}, {factor}={level} against {first}, {}: {told}", row.label))
}
