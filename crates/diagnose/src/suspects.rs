//! Which causes of the catalogue fit a set of runs, and in which order.
//!
//! A cause that fits has a *share*: how much of the time, of the work or of the packets it takes, from 0 to 1, by an expression
//! of its file. What another cause that fits explains by itself is taken off: a reader that waits for its CPU leaves a closed
//! window behind, and the window is then no cause of its own. What remains is weighed by how it is known ([`Proof`]): what the
//! kernel counted as lost goes before what samples show, and that before what was merely there. That product is the rank.

use serde::{Deserialize, Serialize};

use crate::causes::{Cause, Kind, Look, Proof, Scene};
use crate::modes::{Mode, Options, modes};
use crate::scaling::Scaling;
use crate::separate::{Feature, Finding, Outcome, Separation, separate};
use crate::verdict::thirds;

/// What a set of runs shows.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Groups of the results, the lowest first.
    pub modes: Vec<Mode>,
    /// What causes are to explain: the groups, or, where there are none and a feature goes with the results all the same, the
    /// lowest and the highest third of the runs.
    pub contrast: Vec<Mode>,
    /// Features by how well they go with the groups; with one group, with the results.
    pub separation: Separation,
    /// Causes that fit, by descending rank.
    pub fits: Vec<Fit>,
    /// Causes of which nothing can be said, with the features that were not measured.
    pub not_judged: Vec<(String, Vec<String>)>,
    /// Causes whose files cannot be used, and why.
    pub broken: Vec<(String, String)>,
}

/// A cause that fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The cause.
    pub cause: Cause,
    /// What speaks for it.
    pub evidence: String,
    /// What speaks against it.
    pub counter: Option<String>,
    /// By what it is ordered.
    pub rank: Rank,
}

/// By what causes that fit are ordered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// How much it takes, from 0 to 1.
    pub share: f64,
    /// How that is known.
    pub proof: Proof,
    /// Causes that fit, too, and of which this one is a consequence, with what each of them explains of the share.
    pub follows_from: Vec<(String, f64)>,
}

impl Rank {
    /// What the others leave of the share, weighed by how it is known: from 0 to 1.
    pub fn value(&self) -> f64 {
        let explained: f64 = self.follows_from.iter().map(|(_, share)| share).sum();
        (self.share - explained).max(0.0) * self.proof.strength()
    }
}

/// What `features` of runs with these `results` show by the causes of `catalogue`, beside what runs of other numbers of
/// threads show.
///
/// # Panics
///
/// When a feature has another number of runs than the results.
pub fn suspects(
    results: &[f64],
    features: &[Feature],
    by_threads: Option<&Scaling>,
    catalogue: &[Cause],
    seed: u64,
) -> Shown {
    let groups = modes(results, &Options { seed, ..Options::default() });
    let group_of = |run: usize| groups.iter().position(|mode| mode.members.contains(&run));
    let outcome: Vec<f64> = match groups.len() {
        0 | 1 => results.to_vec(),
        _ => (0..results.len()).map(|run| group_of(run).unwrap_or(0) as f64).collect(),
    };
    let blocks = vec![0; results.len()];
    let separation = separate(Outcome { values: &outcome, blocks: &blocks }, features, seed);
    let is_shown = separation.findings.iter().any(Finding::is_shown);
    let contrast = match groups.len() {
        0 | 1 if is_shown => thirds(results),
        _ => groups.clone(),
    };
    let scene = Scene::new(features, &contrast, &separation);
    let scene = match by_threads {
        Some(scaling) => scene.with_threads(scaling),
        None => scene,
    };
    let mut shown = Shown { modes: groups, contrast, separation, ..Shown::default() };
    for cause in catalogue {
        match scene.look(cause) {
            Look::Fits { evidence, counter } => {
                let rank = Rank {
                    share: scene.share(cause, strength(cause, &shown.separation)),
                    proof: cause.proof,
                    follows_from: vec![],
                };
                shown.fits.push(Fit { cause: cause.clone(), evidence, counter, rank });
            }
            Look::NotMeasured(missing) => shown.not_judged.push((cause.id.clone(), missing)),
            Look::DoesNotFit => {}
            Look::Broken(why) => shown.broken.push((cause.id.clone(), why)),
        }
    }
    take_off_consequences(&mut shown.fits);
    shown.fits.sort_by(|a, b| b.rank.value().total_cmp(&a.rank.value()));
    shown
}

/// Notes with each cause of which others that it follows from, by the shares that these have themselves.
fn take_off_consequences(fits: &mut [Fit]) {
    let deeper: Vec<(String, f64, Vec<String>)> = fits
        .iter()
        .map(|fit| (fit.cause.id.clone(), fit.rank.share, fit.cause.explains.clone()))
        .collect();
    for fit in fits {
        let follows = deeper.iter().filter(|(.., explains)| explains.contains(&fit.cause.id));
        let share = fit.rank.share;
        fit.rank.follows_from = follows.map(|(id, of, _)| (id.clone(), of.min(share))).collect();
    }
}

/// How well the features of a cause that separates go with the groups: it takes so much of the difference.
fn strength(cause: &Cause, separation: &Separation) -> Option<f64> {
    let of = |need: &String| {
        let names = |one: &&Finding| one.feature == *need || one.members.contains(need);
        separation.findings.iter().find(names).map_or(0.0, |one| one.strength.abs())
    };
    (cause.kind == Kind::Separates).then(|| cause.needs.iter().map(of).fold(0.0, f64::max))
}

#[cfg(test)]
mod truth;

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(id: &str, share: &str, more: &str) -> Cause {
        let text = format!(
            "id = \"{id}\"\ntitle = \"x\"\nkind = \"limits\"\nneeds = [\"a\"]\nwhen = \"a.median > 0.1\"\n\
             share = \"{share}\"\nevidence = \"x\"\nremedy = \"x\"\nsource = \"x\"\n{more}"
        );
        Cause::parse(id, &text).unwrap()
    }

    fn names(catalogue: &[Cause]) -> Vec<(String, f64)> {
        let values = vec![Some(0.8); 10];
        let features = [Feature { name: "a".into(), distance: 0, values }];
        let results: Vec<f64> = (0..10).map(|run| 100.0 + f64::from(run)).collect();
        let shown = suspects(&results, &features, None, catalogue, 1);
        let round = |fit: &Fit| (fit.rank.value() * 1000.0).round() / 1000.0;
        shown.fits.iter().map(|fit| (fit.cause.id.clone(), round(fit))).collect()
    }

    fn of(list: &[(&str, f64)]) -> Vec<(String, f64)> {
        list.iter().map(|(id, rank)| ((*id).to_owned(), *rank)).collect()
    }

    #[test]
    fn what_was_counted_goes_before_what_was_merely_there() {
        let counted = cause("counted", "a.median / 2", "proof = \"counted\"");
        let sampled = cause("sampled", "a.median / 2", "proof = \"sampled\"");
        let there = cause("there", "a.median", "");
        let found = names(&[there, sampled, counted]);
        assert_eq!(found, of(&[("counted", 0.4), ("sampled", 0.3), ("there", 0.28)]));
    }

    #[test]
    fn what_follows_from_another_cause_counts_by_what_that_leaves() {
        let window = cause("window", "a.median", "proof = \"counted\"");
        let quota = cause("quota", "0.7", "proof = \"counted\"\nexplains = [\"window\"]");
        assert_eq!(names(&[window.clone(), quota]), of(&[("quota", 0.7), ("window", 0.1)]));
        // One that does not fit explains nothing, and nothing is left of what is explained more than once.
        let absent = Cause {
            when: "a.median > 0.9".into(),
            ..cause("absent", "1", "explains = [\"window\"]")
        };
        assert_eq!(names(&[window.clone(), absent]), of(&[("window", 0.8)]));
        let more = |id| cause(id, "0.6", "proof = \"counted\"\nexplains = [\"window\"]");
        let found = names(&[window, more("b"), more("c")]);
        assert_eq!(found, of(&[("b", 0.6), ("c", 0.6), ("window", 0.0)]));
    }
}
