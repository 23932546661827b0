//! Sweeps of a numeric factor, in sentences: the knee, what comes after it, and what it costs.

use std::collections::{BTreeMap, BTreeSet};

use millstream_diagnose::groups::{Group, compare};
use millstream_diagnose::stats::{
    Bootstrap, Comparison, Interval, Lowest, RUNS_FOR_A_CLAIM, Sweep,
};
use millstream_diagnose::units::{Scale, significant};
use millstream_record::keys;

use super::model::{Case, Model};

/// A factor is a sweep from this many numeric levels on.
const LEVELS_LEAST: usize = 4;

/// The cases of a sweep, which differ in nothing but the level of one factor.
struct Swept<'m, 'a> {
    /// The label that all of them have in common, and the factor.
    name: String,
    /// Cases of numeric levels, with their level.
    numbered: Vec<(f64, &'m Case<'a>)>,
    /// Cases of levels that are no number, as `auto`, with their level. They are compared with the
    /// best of the others.
    named: Vec<(&'m str, &'m Case<'a>)>,
}

/// One sentence for each swept factor, workload and stack.
pub(super) fn sentences(model: &Model<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for swept in swept(model) {
        let rows = swept.numbered.iter().flat_map(|(_, case)| &case.rows);
        let stacks: BTreeSet<&str> = rows.map(|row| row.label.as_str()).collect();
        for stack in stacks {
            all.extend(of_stack(&swept, stack, model.experiment.seed));
        }
    }
    all
}

/// Factors with many numeric levels.
fn swept<'m, 'a>(model: &'m Model<'a>) -> Vec<Swept<'m, 'a>> {
    let mut families: BTreeMap<(&str, String), Swept<'m, 'a>> = BTreeMap::new();
    for case in &model.cases {
        let Some(row) = case.rows.first() else { continue };
        for (name, level) in &row.group.key.factors {
            if !case.label.contains(name.as_str()) {
                continue;
            }
            let rest = case.label.replace(&format!(" {name}={level}"), "");
            let swept = families.entry((name, rest.clone())).or_insert_with(|| Swept {
                name: format!("{rest} by {name}"),
                numbered: Vec::new(),
                named: Vec::new(),
            });
            match level.parse::<f64>() {
                Ok(number) => swept.numbered.push((number, case)),
                Err(_) => swept.named.push((level, case)),
            }
        }
    }
    let mut large: Vec<_> = families.into_values().collect();
    large.retain(|swept| swept.numbered.len() >= LEVELS_LEAST);
    large.iter_mut().for_each(|swept| swept.numbered.sort_by(|a, b| a.0.total_cmp(&b.0)));
    large
}

/// Level and median of a result.
fn points(cases: &[(f64, &Case<'_>)], stack: &str, key: &str) -> Vec<(f64, f64)> {
    let median = |case: &Case<'_>| {
        let table = case.tables.iter().find(|table| table.metric.key == key)?;
        let at = case.rows.iter().position(|row| row.label == stack)?;
        *table.medians.get(at)?
    };
    cases.iter().filter_map(|&(level, case)| Some((level, median(case)?))).collect()
}

/// The value of each level, of the rounds (blocks of an experiment) in which all of them have one.
fn rounds(cases: &[(f64, &Case<'_>)], stack: &str, key: &str) -> Vec<Vec<f64>> {
    let mut by_round: BTreeMap<(&str, u32), Vec<f64>> = BTreeMap::new();
    for (at, (_, case)) in cases.iter().enumerate() {
        let Some(row) = case.rows.iter().find(|row| row.label == stack) else { continue };
        for run in &row.group.valid {
            let round = by_round.entry((&run.experiment_id, run.block)).or_default();
            // A round in which a level before this one has no value is not whole.
            if let (Some(value), true) = (run.result(key), round.len() == at) {
                round.push(value);
            }
        }
    }
    by_round.into_values().filter(|round| round.len() == cases.len()).collect()
}

/// Returns a clause that says whether one of the levels from the knee on is shown to be below the
/// others. It is the lowest of whole rounds, which need not be the lowest of all runs.
fn below(rounds: &[Vec<f64>], levels: &[f64], seed: u64) -> String {
    if levels.len() < 2 {
        return "the knee is the last level, none comes after it".to_owned();
    }
    let Some(lowest) = Lowest::of(rounds, seed) else {
        return format!(
            "fewer than {RUNS_FOR_A_CLAIM} whole rounds do not show whether a level is below the others"
        );
    };
    let interval =
        format!("{} to {}", significant(lowest.interval.low), significant(lowest.interval.high));
    let chance = format!(
        "p = {}; least share of {} rounds {} ({interval})",
        significant(lowest.p),
        lowest.rounds,
        significant(lowest.share),
    );
    match lowest.is_shown() {
        true => {
            let level = levels.get(lowest.level).map_or_else(String::new, |&one| significant(one));
            format!("{level} is shown to be below the others ({chance})")
        }
        false => format!("no level is shown to be below the others ({chance})"),
    }
}

/// A stack's runs of a case.
fn runs_of<'m, 'a>(case: &'m Case<'a>, stack: &str) -> Option<&'m Group<'a>> {
    case.rows.iter().find(|row| row.label == stack).map(|row| &row.group)
}

/// Returns a clause for each level that is no number: its result as a share of the best numeric
/// level's.
fn beside(swept: &Swept<'_, '_>, best: &Case<'_>, stack: &str, key: &str, seed: u64) -> String {
    let bootstrap = Bootstrap { seed, ..Bootstrap::default() };
    let mut text = String::new();
    for (level, case) in &swept.named {
        let of_best = runs_of(case, stack)
            .zip(runs_of(best, stack))
            .and_then(|(named, best)| compare(named, best, key, &bootstrap));
        let Some(Comparison { ratio, interval, .. }) = of_best else { continue };
        match interval {
            Some(Interval { low, high }) => text.push_str(&format!(
                "; {level} has {} of the best ({} to {})",
                significant(ratio),
                significant(low),
                significant(high)
            )),
            None => text.push_str(&format!("; of {level} there are too few runs")),
        }
    }
    text
}

fn of_stack(swept: &Swept<'_, '_>, stack: &str, seed: u64) -> Option<String> {
    let Swept { name, numbered: cases, .. } = swept;
    let counts = |key: &str| {
        let runs = cases.iter().filter_map(|(_, case)| runs_of(case, stack));
        runs.map(|group| group.values(key).len()).filter(|n| *n > 0).min()
    };
    let key = [keys::THROUGHPUT, keys::TRANSACTIONS]
        .into_iter()
        .find(|key| !points(cases, stack, key).is_empty())?;
    let sweep = Sweep::of(&points(cases, stack, key))?;
    if counts(key).is_some_and(|n| n < RUNS_FOR_A_CLAIM) {
        return Some(format!(
            "{name}, {stack}: fewer than {RUNS_FOR_A_CLAIM} runs of a level, no best one and no knee is told."
        ));
    }
    let scale = Scale::of(key, sweep.best.0);
    let mut text = format!(
        "{name}, {stack}: best {} at {}, knee at {}, from there on never below {} of the best (at {})",
        scale.with_unit(sweep.best.0),
        significant(sweep.best.1),
        significant(sweep.knee),
        significant(sweep.lowest_after.0),
        significant(sweep.lowest_after.1),
    );
    let from_knee: Vec<_> =
        cases.iter().filter(|(level, _)| *level >= sweep.knee).copied().collect();
    let rounds = rounds(&from_knee, stack, key);
    let levels: Vec<f64> = from_knee.iter().map(|(level, _)| *level).collect();
    text.push_str(&format!("; {}", below(&rounds, &levels, seed)));
    if let Some((_, best)) = cases.iter().find(|(level, _)| *level == sweep.best.1) {
        text.push_str(&beside(swept, best, stack, key, seed));
    }
    let calls = points(cases, stack, keys::XCAL_PER_GB);
    let knee = calls.iter().find(|(level, _)| *level == sweep.knee);
    if let (Some((_, first)), Some((_, last))) = (knee, calls.last()) {
        text.push_str(&format!(
            "; cross-calls per GB {} at the knee, {} at the end",
            significant(*first),
            significant(*last)
        ));
    }
    text.push('.');
    Some(text)
}
