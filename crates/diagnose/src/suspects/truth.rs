//! Checks suspects against recorded runs of causes that were made on purpose, and of the same loads
//! without them.
//!
//! `scripts/truth --keep crates/diagnose/truth` on a quiet machine records them: a file for each
//! case, with its results and the features that causes read. No run is made here, so that the
//! answer does not depend on the machine.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use super::{Results, Timed, suspects};
use crate::causes::{Kind, built_in};
use crate::separate::Feature;

/// A cause that is true of any load that nothing else limits.
const NATURAL: &str = "full-cpu";

/// Share that a cause may take of any load: locks of a virtual machine's scheduler, datagrams that
/// a sender without pause loses.
const MINOR: f64 = 0.2;

/// Share of the recorded cases that are named in the first place.
const RIGHT_LEAST: f64 = 0.9;

#[derive(Deserialize)]
struct Recorded {
    case: String,
    /// The question that the cause answers: why no run is faster, or why every second one is.
    #[serde(default = "limits_all")]
    kind: Kind,
    /// Causes one of which is right; none of a load without a cause.
    expected: Vec<String>,
    /// Causes that count neither as right nor as wrong: what follows from placement, which the
    /// scheduler decides; of loads without a cause also what limits any load over their path.
    natural: Vec<String>,
    results: Vec<f64>,
    /// The result of the run whose time was looked at.
    #[serde(default)]
    of_budget: Option<f64>,
    features: BTreeMap<String, Vec<Option<f64>>>,
}

fn limits_all() -> Kind {
    Kind::Limits
}

fn recorded() -> Vec<Recorded> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/truth");
    let listed = fs::read_dir(folder).expect("the recorded cases");
    let mut paths: Vec<_> = listed.map(|one| one.unwrap().path()).collect();
    paths.sort();
    let read = |path| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    paths.iter().map(read).collect()
}

/// Returns the causes that limit these runs, or that make them differ, in order, with their ranks.
fn named(recorded: &Recorded) -> Vec<(String, f64)> {
    let feature = |(name, values): (&String, &Vec<Option<f64>>)| Feature {
        name: name.clone(),
        distance: 0,
        values: values.clone(),
    };
    let features: Vec<Feature> = recorded.features.iter().map(feature).collect();
    let Recorded { results, of_budget, .. } = recorded;
    let has = |name: &str| name.starts_with("time_");
    let timed = of_budget.map(|result| Timed { result, has });
    let results = Results { values: results, higher_is_better: true, timed };
    let shown = suspects(results, &features, None, &built_in(), 1);
    let counts = |fit: &&super::Fit| {
        let id = &fit.cause.id;
        let is_natural =
            (id == NATURAL || recorded.natural.contains(id)) && !recorded.expected.contains(id);
        fit.cause.kind == recorded.kind && !is_natural
    };
    let fits = shown.fits.iter().filter(counts);
    fits.map(|fit| (fit.cause.id.clone(), fit.rank.value())).collect()
}

/// Returns the line that says what is named of one, and whether that is right.
fn judged(one: &Recorded) -> (bool, String) {
    let found = named(one);
    let first = found.first().map_or("none", |(id, _)| id.as_str());
    let is_right = match one.expected.is_empty() {
        true => found.iter().all(|(_, rank)| *rank < MINOR),
        false => one.expected.iter().any(|id| id == first),
    };
    (is_right, format!("{} ({}): {found:.2?}\n", one.case, one.expected.join(" or ")))
}

#[test]
fn causes_that_were_made_are_named_first_and_none_is_named_without() {
    let all = recorded();
    let (made, without): (Vec<_>, Vec<_>) = all.iter().partition(|one| !one.expected.is_empty());
    let wrong = |of: &[&Recorded]| -> Vec<String> {
        let lines = of.iter().map(|one| judged(one)).filter(|(is_right, _)| !is_right);
        lines.map(|(_, line)| line).collect()
    };
    let (missed, named) = (wrong(&made), wrong(&without));
    let right = made.len() - missed.len();
    assert!(made.len() >= 25 && without.len() >= 10, "{} and {}", made.len(), without.len());
    assert!(right as f64 >= RIGHT_LEAST * made.len() as f64, "{right} named first\n{missed:?}");
    assert!(named.is_empty(), "named without a cause\n{named:?}");
}
