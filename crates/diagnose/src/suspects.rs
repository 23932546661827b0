//! The causes of the catalogue that fit a set of runs, in their order.
//!
//! A cause that fits has a *share*: how much of the time, of the work or of the packets it takes,
//! from 0 to 1, by an expression of its file. The part that another fitting cause explains by
//! itself is taken off: a reader that waits for its CPU leaves a closed window behind, and the
//! window is then no cause of its own. The rest is weighed by its proof ([`Proof`]): losses that
//! the kernel counted go before those that samples show, and these before mere circumstances. The
//! product is the rank.
//!
//! Some causes say where the time goes and not why, as the programs' own code. A cause that says
//! why has the rank of such a one, if it takes a sixth at least.
//!
//! A cause that limits the slowest runs and not the fastest is why they differ, too: it fits the
//! runs of the slowest group by themselves, it does not fit those of the fastest, and a feature
//! that it reads is shown to go with the groups. It is listed among those that separate, with what
//! it takes more of the slowest.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::causes::{Cause, Kind, Look, Proof, Scene};
use crate::modes::{Mode, Options, modes};
use crate::scaling::Scaling;
use crate::separate::{Feature, Finding, Outcome, Separation, separate};
use crate::verdict::thirds;

/// The results that are to be explained, one of each run.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    /// The result of each run.
    pub values: &'a [f64],
    /// True where the highest results are the best, false where they are times.
    pub higher_is_better: bool,
    /// The run whose time was looked at: its features stand for that run's group.
    pub timed: Option<Timed>,
}

/// A run of which more was measured than of the others.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Its result.
    pub result: f64,
    /// Returns true for the name of a feature that it alone has.
    pub has: fn(&str) -> bool,
}

/// The groups of a set of runs, and the causes that fit it.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Groups of the results, the lowest first.
    pub modes: Vec<Mode>,
    /// The runs that causes are to explain: the groups, or, where there are none and a feature goes
    /// with the results all the same, the lowest and the highest third of the runs.
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
    /// The sentence that speaks for it.
    pub evidence: String,
    /// The sentence that speaks against it.
    pub counter: Option<String>,
    /// Its rank, by which the causes are ordered.
    pub rank: Rank,
}

/// The rank of a cause that fits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// Share that it takes, from 0 to 1.
    pub share: f64,
    /// Proof of the share.
    pub proof: Proof,
    /// Causes that fit, too, and of which this one is a consequence, with what each of them
    /// explains of the share.
    pub follows_from: Vec<(String, f64)>,
    /// The cause that fits, too, and of which this one says why, with its rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_of: Option<(String, f64)>,
}

impl Rank {
    /// Returns the rank, from 0 to 1.
    pub fn value(&self) -> f64 {
        self.why_of.as_ref().map_or(0.0, |(_, value)| *value).max(self.own_value())
    }

    /// Returns the part of the share that other causes leave, weighed by its proof: from 0 to 1.
    fn own_value(&self) -> f64 {
        self.left() * self.proof.strength()
    }

    /// Returns the part of the share that other causes leave.
    fn left(&self) -> f64 {
        let explained: f64 = self.follows_from.iter().map(|(_, share)| share).sum();
        (self.share - explained).max(0.0)
    }
}

/// Judges the causes of `catalogue` by the `features` of runs with these `results`, and by runs of
/// other numbers of threads.
///
/// # Panics
///
/// When a feature has another number of runs than the results.
pub fn suspects(
    results: Results<'_>,
    features: &[Feature],
    by_threads: Option<&Scaling>,
    catalogue: &[Cause],
    seed: u64,
) -> Shown {
    let Results { values: results, higher_is_better, timed } = results;
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
    let mut slowest_first = contrast.clone();
    if !higher_is_better {
        slowest_first.reverse();
    }
    let scene = Scene::new(features, &slowest_first, &separation);
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
                    ..Rank::default()
                };
                shown.fits.push(Fit { cause: cause.clone(), evidence, counter, rank });
            }
            Look::NotMeasured(missing) => shown.not_judged.push((cause.id.clone(), missing)),
            Look::DoesNotFit => {}
            Look::Broken(why) => shown.broken.push((cause.id.clone(), why)),
        }
    }
    weigh(&mut shown.fits);
    if let [slowest, .., fastest] = slowest_first.as_slice() {
        let apart = |group: &Mode, result: f64| (group.median / result).ln().abs();
        let of = |group: &Mode, other: &Mode| {
            let is_of_other =
                |timed: &Timed| apart(other, timed.result) < apart(group, timed.result);
            let mut told = of_runs(features, group);
            if let Some(timed) = timed.filter(is_of_other) {
                told.retain(|one| !(timed.has)(&one.name));
            }
            Scene::new(&told, &[], &Separation::default())
        };
        let mut more = only_slowest(
            [of(slowest, fastest), of(fastest, slowest)],
            catalogue,
            &shown.separation,
        );
        weigh(&mut more);
        shown.fits.extend(more);
    }
    let order = |fit: &Fit| (fit.rank.value(), fit.rank.own_value());
    shown.fits.sort_by(|a, b| order(b).partial_cmp(&order(a)).unwrap_or(Ordering::Equal));
    shown
}

/// Share from which on a cause that says why has the rank of the one that says where.
const WHY_LEAST: f64 = 1.0 / 6.0;

/// Share that a cause takes more of the slowest runs than of the fastest, below which it is not
/// listed as why they differ.
const MORE_LEAST: f64 = 0.1;

/// Returns the features of a group's runs.
fn of_runs(features: &[Feature], group: &Mode) -> Vec<Feature> {
    let of_group = |feature: &Feature| {
        let values = group.members.iter().map(|&run| feature.values[run]).collect();
        Feature { values, ..feature.clone() }
    };
    features.iter().map(of_group).collect()
}

/// Returns the causes that limit the slowest runs and not the fastest.
fn only_slowest(
    [slowest, fastest]: [Scene; 2],
    catalogue: &[Cause],
    separation: &Separation,
) -> Vec<Fit> {
    let shown = separation.findings.iter().filter(|one| one.is_shown());
    let shown: Vec<&String> =
        shown.flat_map(|one| std::iter::once(&one.feature).chain(&one.members)).collect();
    let limits = catalogue.iter().filter(|cause| cause.kind == Kind::Limits);
    let fit = |cause: &Cause| -> Option<Fit> {
        let reads_what_is_shown = shown.iter().any(|feature| cause.reads(feature));
        let Look::Fits { evidence, counter } = slowest.look(cause) else { return None };
        if !reads_what_is_shown || fastest.look(cause) != Look::DoesNotFit {
            return None;
        }
        let more = slowest.share(cause, None) - fastest.share(cause, None);
        let rank = Rank { share: more, proof: cause.proof, ..Rank::default() };
        let evidence = format!("Of the slowest runs, and not of the fastest: {evidence}");
        let cause = Cause { kind: Kind::Separates, ..cause.clone() };
        (more >= MORE_LEAST).then_some(Fit { cause, evidence, counter, rank })
    };
    limits.filter_map(fit).collect()
}

/// Notes with each cause of which others that it follows from, by the shares that these have
/// themselves, and of which it says why.
fn weigh(fits: &mut [Fit]) {
    let all = fits.to_vec();
    for fit in fits {
        let (id, share) = (&fit.cause.id, fit.rank.share);
        let explains =
            |one: &&Fit| one.cause.explains.contains(id) || one.cause.says_why.contains(id);
        let deeper = all.iter().filter(explains);
        fit.rank.follows_from =
            deeper.map(|one| (one.cause.id.clone(), one.rank.share.min(share))).collect();
        if fit.rank.left() >= WHY_LEAST {
            let wholes = all.iter().filter(|one| fit.cause.says_why.contains(&one.cause.id));
            let wholes = wholes.map(|one| (one.cause.id.clone(), one.rank.value()));
            fit.rank.why_of = wholes.max_by(|a, b| a.1.total_cmp(&b.1));
        }
    }
}

/// Returns the strength with which the features of a cause that separates go with the groups, which
/// stands for its share of the difference.
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
        let results = Results { values: &results, higher_is_better: true, timed: None };
        let shown = suspects(results, &features, None, catalogue, 1);
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
        // A cause that does not fit explains nothing. A cause that two others explain keeps
        // nothing.
        let absent = Cause {
            when: "a.median > 0.9".into(),
            ..cause("absent", "1", "explains = [\"window\"]")
        };
        assert_eq!(names(&[window.clone(), absent]), of(&[("window", 0.8)]));
        let more = |id| cause(id, "0.6", "proof = \"counted\"\nexplains = [\"window\"]");
        let found = names(&[window, more("b"), more("c")]);
        assert_eq!(found, of(&[("b", 0.6), ("c", 0.6), ("window", 0.0)]));
    }

    #[test]
    fn what_says_why_has_the_rank_of_what_says_where() {
        let place = cause("where", "a.median", "proof = \"timed\"");
        let other = cause("other", "0.6", "proof = \"counted\"");
        let why = |share, more: &str| {
            let more = format!("proof = \"sampled\"\nsays_why = [\"where\"]\n{more}");
            cause("why", share, &more)
        };
        let all = |why| names(&[place.clone(), other.clone(), why]);
        let found = all(why("0.24", ""));
        assert_eq!(found, of(&[("why", 0.8), ("other", 0.6), ("where", 0.56)]));
        // It takes too little, or nothing that another cause leaves.
        let found = all(why("0.16", ""));
        assert_eq!(found, of(&[("where", 0.64), ("other", 0.6), ("why", 0.12)]));
        let deeper = Cause { explains: vec!["why".into()], ..other.clone() };
        let found = names(&[place.clone(), deeper, why("0.24", "")]);
        assert_eq!(found, of(&[("other", 0.6), ("where", 0.56), ("why", 0.0)]));
        assert_eq!(names(&[other.clone(), why("0.24", "")])[1], ("why".to_owned(), 0.18));
    }

    /// Runs of two speeds; `a` is `slow` in the slower ones and `fast` in the others.
    fn of_groups(slow: f64, fast: f64, higher_is_better: bool) -> Vec<(Kind, f64)> {
        let is_low = |run: usize| run.is_multiple_of(3);
        let result = |run: usize| if is_low(run) { 100.0 } else { 300.0 } + run as f64 / 10.0;
        let results: Vec<f64> = (0..24).map(result).collect();
        let value = |run: usize| Some(if is_low(run) == higher_is_better { slow } else { fast });
        let features =
            [Feature { name: "a".into(), distance: 0, values: (0..24).map(value).collect() }];
        let results = Results { values: &results, higher_is_better, timed: None };
        let cause = cause("buffer", "a.median", "proof = \"counted\"");
        let shown = suspects(results, &features, None, &[cause], 1);
        assert_eq!(shown.modes.len(), 2);
        shown.fits.iter().map(|fit| (fit.cause.kind, fit.rank.value())).collect()
    }

    #[test]
    fn what_limits_the_slowest_runs_alone_is_why_they_differ() {
        // Two thirds of the runs have the median.
        assert_eq!(of_groups(0.9, 0.0, true), [(Kind::Separates, 0.9)]);
        assert_eq!(of_groups(0.9, 0.0, false), [(Kind::Limits, 0.9), (Kind::Separates, 0.9)]);
        // It limits the fastest, too, or those alone, or it takes hardly more of the slowest.
        assert_eq!(of_groups(0.9, 0.5, true), [(Kind::Limits, 0.5)]);
        assert_eq!(of_groups(0.0, 0.9, true), [(Kind::Limits, 0.9)]);
        assert_eq!(of_groups(0.15, 0.08, true), []);
    }

    #[test]
    fn the_time_of_one_run_is_told_of_its_own_group_alone() {
        let results: Vec<f64> = (0..24).map(|run| if run < 12 { 1.0 } else { 2.0 }).collect();
        let feature = |name: &str, of: fn(usize) -> f64| Feature {
            name: name.into(),
            distance: 0,
            values: (0..24).map(|run| Some(of(run))).collect(),
        };
        let held = feature("a", |run| if run < 12 { 0.9 } else { 0.0 });
        let features = [held, feature("time_peer_share", |_| 0.1)];
        let mut cause = cause("x", "a.median", "");
        cause.when = "a.median > 0.1 and median('time_peer_share', 1) > 0.3".into();
        let has = |name: &str| name == "time_peer_share";
        let kinds = |result| -> Vec<Kind> {
            let timed = Some(Timed { result, has });
            let results = Results { values: &results, higher_is_better: true, timed };
            let fits = suspects(results, &features, None, &[cause.clone()], 1).fits;
            fits.iter().map(|fit| fit.cause.kind).collect()
        };
        assert_eq!(kinds(0.9), [], "a slow run waits for nobody");
        assert_eq!(kinds(2.1), [Kind::Separates], "that was a fast one");
    }

    #[test]
    fn a_feature_that_is_not_shown_to_go_with_the_groups_explains_none() {
        let results: Vec<f64> = (0..24).map(|run| if run < 12 { 1.0 } else { 2.0 }).collect();
        // Seven of twelve against five: the medians differ, and chance makes that often enough.
        let value = |run: usize| Some(if run < 7 || (12..17).contains(&run) { 0.4 } else { 0.05 });
        let values = (0..24).map(value).collect();
        let features = [Feature { name: "a".into(), distance: 0, values }];
        let results = Results { values: &results, higher_is_better: true, timed: None };
        let shown = suspects(results, &features, None, &[cause("x", "a.median", "")], 1);
        assert!(shown.fits.iter().all(|fit| fit.cause.kind == Kind::Limits), "{:?}", shown.fits);
    }
}
