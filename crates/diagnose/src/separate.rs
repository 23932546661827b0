//! The features of runs that go with their results.
//!
//! A feature is one number of each run: a CPU's share of soft interrupts, how often both ends ran
//! on one CPU, bytes for each system call. The strength of a feature is the correlation of its
//! ranks with the ranks of what it is to explain (Spearman; where that is two groups it is the
//! rank-biserial correlation but for ties). How often chance alone gives any of the features
//! that are no stronger that strength is found by exchanging what is to be explained within blocks
//! of runs (the step-down max-T of Westfall and Young, 1993): a p that counts in that many features
//! were looked at.
//!
//! Features that say the same are shown once, as a family. Counters that grow with the result
//! (bytes, packets) must be given per byte or per packet: otherwise each of them explains it.

use serde::{Deserialize, Serialize};

use crate::stats::{Rng, correlation, median, ranks};

/// Exchanges of all runs; the least p is one in so many and one.
pub const EXCHANGES: usize = 4_999;

/// Features whose ranks correlate by this much are one family.
pub const FAMILY_CORRELATION: f64 = 0.9;

/// A feature is shown to go with the result under this p.
pub const P_SHOWN: f64 = 0.05;

/// One number of each run.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Its name: `cpu0.softirq_share`.
    pub name: String,
    /// Distance to a cause, by which a family's representative is chosen: a placement (0) before a
    /// rate (9).
    pub distance: u8,
    /// A value for each run; `None` where it was not measured.
    pub values: Vec<Option<f64>>,
}

/// The outcome to be explained: for each run its group (as a number) or its result, and the block
/// in which it ran.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Group or result of each run.
    pub values: &'a [f64],
    /// Block of each run; only runs of one block are exchanged with each other.
    pub blocks: &'a [usize],
}

/// A family of features that goes with the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The feature that stands for its family.
    pub feature: String,
    /// Correlation of ranks, -1 to 1: above 0 the feature grows with the result.
    pub strength: f64,
    /// Chance of any feature being as strong where none has to do with the result.
    pub p: f64,
    /// Its median in each group of runs with equal outcome, by ascending outcome; at the lowest and
    /// the highest third where there are more than three of them.
    pub medians: Vec<f64>,
    /// The other features of its family, the strongest first.
    pub members: Vec<String>,
}

impl Finding {
    /// Returns true if it is shown to go with the result.
    pub fn is_shown(&self) -> bool {
        self.p < P_SHOWN
    }
}

/// The findings, and the features that could not be looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Separation {
    /// Families by descending strength.
    pub findings: Vec<Finding>,
    /// Features without a value in some run, and in how many.
    pub incomplete: Vec<(String, usize)>,
    /// Features that were looked at and vary: what p was corrected for.
    pub looked_at: usize,
}

/// Ranks `features` by how well they go with `outcome`.
///
/// # Panics
///
/// When a feature or the blocks have another number of runs than the outcome.
pub fn separate(outcome: Outcome<'_>, features: &[Feature], seed: u64) -> Separation {
    separate_by(outcome, features, (seed, EXCHANGES))
}

/// Does the same by a seed and a number of exchanges; with fewer of them p is as right, and
/// coarser.
fn separate_by(outcome: Outcome<'_>, features: &[Feature], draws: (u64, usize)) -> Separation {
    let runs = outcome.values.len();
    assert_eq!(outcome.blocks.len(), runs, "a block for each run");
    let mut separation = Separation::default();
    let mut usable: Vec<Usable<'_>> = Vec::new();
    let target = ranks(outcome.values);
    for feature in features {
        assert_eq!(feature.values.len(), runs, "{}: a value for each run", feature.name);
        let values: Vec<f64> =
            feature.values.iter().filter_map(|v| v.filter(|v| v.is_finite())).collect();
        if values.len() < runs {
            separation.incomplete.push((feature.name.clone(), runs - values.len()));
        } else if values.iter().any(|value| *value != values[0]) {
            let unit = standardised(&ranks(&values));
            let strength = correlation(&unit, &target);
            usable.push(Usable { feature, values, unit, strength, p: 1.0 });
        }
    }
    separation.looked_at = usable.len();
    usable.sort_by(|a, b| b.strength.abs().total_cmp(&a.strength.abs()));
    let all = chances(outcome, &target, &usable, draws);
    usable.iter_mut().zip(all).for_each(|(one, p)| one.p = p);
    // Rounded, so that features of equal strength are chosen between by how near they are to a
    // cause.
    let rank =
        |one: &Usable<'_>| ((one.strength.abs() * 50.0).round() as i64, one.feature.distance);
    usable.sort_by(|a, b| {
        let ((a_strength, a_distance), (b_strength, b_distance)) = (rank(a), rank(b));
        b_strength
            .cmp(&a_strength)
            .then(a_distance.cmp(&b_distance))
            .then(b.strength.abs().total_cmp(&a.strength.abs()))
            .then_with(|| a.feature.name.cmp(&b.feature.name))
    });
    while !usable.is_empty() {
        let head = usable.remove(0);
        let is_same = |other: &Usable<'_>| dot(&head.unit, &other.unit).abs() >= FAMILY_CORRELATION;
        let (family, others): (Vec<_>, Vec<_>) = usable.into_iter().partition(is_same);
        usable = others;
        separation.findings.push(Finding {
            feature: head.feature.name.clone(),
            strength: head.strength,
            p: head.p,
            medians: medians_by_outcome(outcome.values, &head.values),
            members: family.into_iter().map(|one| one.feature.name.clone()).collect(),
        });
    }
    separation
}

/// A feature that every run has, and that varies.
struct Usable<'a> {
    feature: &'a Feature,
    values: Vec<f64>,
    /// Its ranks with mean 0 and length 1, so that a product of two is their correlation.
    unit: Vec<f64>,
    strength: f64,
    p: f64,
}

fn standardised(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let length = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>().sqrt();
    values.iter().map(|value| if length > 0.0 { (value - mean) / length } else { 0.0 }).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Returns for each feature, the strongest first, the chance that it or any weaker one is as
/// strong; none is less than that of a stronger one.
fn chances(
    outcome: Outcome<'_>,
    target: &[f64],
    usable: &[Usable<'_>],
    (seed, exchanges): (u64, usize),
) -> Vec<f64> {
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut order: Vec<usize> = (0..target.len()).collect();
    order.sort_by_key(|&run| outcome.blocks[run]);
    for run in order {
        match blocks.last_mut() {
            Some(block) if outcome.blocks[block[0]] == outcome.blocks[run] => block.push(run),
            _ => blocks.push(vec![run]),
        }
    }
    let mut exchanged = standardised(target);
    let mut rng = Rng::new(seed);
    let mut as_strong = vec![1; usable.len()];
    for _ in 0..exchanges {
        for block in &blocks {
            for last in (1..block.len()).rev() {
                exchanged.swap(block[last], block[rng.below(last + 1)]);
            }
        }
        let mut strongest = 0.0_f64;
        for (one, count) in usable.iter().zip(&mut as_strong).rev() {
            strongest = strongest.max(dot(&one.unit, &exchanged).abs());
            *count += u32::from(strongest >= one.strength.abs() - 1e-12);
        }
    }
    let mut least = 0.0_f64;
    let p = as_strong.into_iter().map(|count| {
        least = least.max(f64::from(count) / (exchanges + 1) as f64);
        least
    });
    p.collect()
}

fn medians_by_outcome(outcome: &[f64], values: &[f64]) -> Vec<f64> {
    let mut levels: Vec<f64> = outcome.to_vec();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let of = |is_in: &dyn Fn(f64) -> bool| {
        let those = outcome.iter().zip(values).filter(|(at, _)| is_in(**at)).map(|(_, v)| *v);
        median(&those.collect::<Vec<_>>())
    };
    if levels.len() <= 3 {
        return levels.iter().filter_map(|&level| of(&|at| at == level)).collect();
    }
    let mut sorted = outcome.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[sorted.len() / 3], sorted[sorted.len() - 1 - sorted.len() / 3]);
    [of(&|at| at <= low), of(&|at| at >= high)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(rng: &mut Rng, name: &str, runs: usize) -> Feature {
        let values = (0..runs).map(|_| Some(rng.unit())).collect();
        Feature { name: name.into(), distance: 5, values }
    }

    #[test]
    fn the_feature_that_tells_the_groups_apart_comes_first_with_its_family() {
        let mut rng = Rng::new(1);
        let groups: Vec<f64> = (0..20).map(|run| f64::from(u8::from(run % 3 == 0))).collect();
        let blocks = vec![0; 20];
        let mut features: Vec<Feature> =
            (0..200).map(|n| noise(&mut rng, &format!("noise{n}"), 20)).collect();
        let mut with = |name: &str, distance, scale: f64| {
            let value = |group: &f64| Some(scale * group + 0.1 * rng.unit());
            let values = groups.iter().map(value).collect();
            features.push(Feature { name: name.into(), distance, values });
        };
        with("context_switches", 7, -5.0);
        with("same_cpu_share", 0, 1.0);
        features.push(Feature {
            name: "half".into(),
            distance: 1,
            values: groups.iter().map(|&g| (g > 0.0).then_some(g)).collect(),
        });
        features.push(Feature { name: "fixed".into(), distance: 1, values: vec![Some(3.0); 20] });
        let found = separate(Outcome { values: &groups, blocks: &blocks }, &features, 7);
        let first = &found.findings[0];
        assert_eq!(first.feature, "same_cpu_share");
        assert!(first.strength > 0.8 && first.p < 0.01 && first.is_shown(), "{first:?}");
        assert!(first.medians[0] < 0.1 && first.medians[1] > 1.0);
        let second = found.findings.iter().find(|one| one.feature == "context_switches");
        // Within groups both are noise, so that their ranks agree as far as the groups go.
        assert!(
            second.is_some_and(|one| one.strength < -0.8) || first.members == ["context_switches"]
        );
        assert_eq!(found.incomplete, [("half".to_string(), 13)]);
        assert_eq!(found.looked_at, 202);
        assert!(found.findings.iter().filter(|one| one.is_shown()).count() <= 3);
    }

    #[test]
    fn features_that_say_the_same_are_one_family_named_by_the_nearest_to_a_cause() {
        let result: Vec<f64> = (0..15).map(f64::from).collect();
        let blocks = vec![0; 15];
        let copy = |name: &str, distance, sign: f64| Feature {
            name: name.into(),
            distance,
            values: result.iter().map(|value| Some(sign * value)).collect(),
        };
        let features = [copy("idle", 6, -1.0), copy("irq_on_app_cpu", 1, 1.0), copy("csw", 6, 2.0)];
        let found = separate(Outcome { values: &result, blocks: &blocks }, &features, 1);
        assert_eq!(found.findings.len(), 1);
        assert_eq!(found.findings[0].feature, "irq_on_app_cpu");
        assert_eq!(found.findings[0].members, ["csw", "idle"]);
        assert_eq!(found.findings[0].medians, [2.5, 11.5]);
    }

    #[test]
    fn noise_is_shown_no_more_often_than_stated() {
        let mut rng = Rng::new(3);
        let shown = (0..100).filter(|&seed| {
            let result: Vec<f64> = (0..16).map(|_| rng.unit()).collect();
            let blocks: Vec<usize> = (0..16).map(|run| run / 4).collect();
            let features: Vec<Feature> =
                (0..30).map(|n| noise(&mut rng, &format!("{n}"), 16)).collect();
            let outcome = Outcome { values: &result, blocks: &blocks };
            separate_by(outcome, &features, (seed, 199)).findings[0].is_shown()
        });
        let shown = shown.count();
        // 5 % of 100; more than 12 has a chance of 1 in 1,000.
        assert!(shown <= 12, "{shown} of 100");
    }

    #[test]
    fn features_that_are_stronger_are_no_chance_of_a_weaker_one() {
        let mut rng = Rng::new(5);
        let result: Vec<f64> = (0..16).map(|_| rng.unit()).collect();
        let mut with = |name: &str, blur: f64| {
            let value = |value: &f64| Some(value + blur * rng.unit());
            Feature { name: name.into(), distance: 5, values: result.iter().map(value).collect() }
        };
        let strong: Vec<Feature> = (0..30).map(|n| with(&format!("strong{n}"), 0.4)).collect();
        let weak = [with("weak", 1.5), with("noise", 30.0)];
        let blocks = vec![0; 16];
        let p = |features: &[Feature]| {
            let found = separate(Outcome { values: &result, blocks: &blocks }, features, 1);
            found.findings.iter().find(|one| one.feature == "weak").expect("the weak one").p
        };
        let alone = p(&weak);
        assert!(alone > 0.01, "{alone}");
        assert_eq!(p(&[&weak[..], &strong].concat()), alone);
    }

    #[test]
    fn what_differs_between_blocks_alone_explains_nothing() {
        // Each block is faster than the one before it, and so is a counter: drift, not a cause.
        let blocks: Vec<usize> = (0..24).map(|run| run / 6).collect();
        let mut rng = Rng::new(4);
        let mut drift = || blocks.iter().map(|&b| b as f64 + 0.1 * rng.unit()).collect::<Vec<_>>();
        let (result, counter) = (drift(), drift());
        let values = counter.into_iter().map(Some).collect();
        let features = [Feature { name: "temperature".into(), distance: 3, values }];
        let found = separate(Outcome { values: &result, blocks: &blocks }, &features, 1);
        assert!(found.findings[0].strength > 0.9 && !found.findings[0].is_shown());
    }
}
