//! Compares two sets of runs: if they differ, and which difference could have been seen.

use serde::{Deserialize, Serialize};

use crate::stats::{RUNS_FOR_A_CLAIM, Rng, median, normal, ranks};

/// Chance of a change being reported where there is none.
pub const P_CHANGE: f64 = 0.05;

/// Most exchanges of the runs of both sets.
const EXCHANGES: usize = 4_999;
/// Exchanges with ranks as far apart, after which their share says enough.
const ENOUGH: usize = 50;
/// Runs of each set from which the sum of ranks is taken as normal.
const RUNS_FOR_NORMAL: usize = 10;
/// Chance by the normal distribution below which values with many equal ones are not dealt.
const FAR_APART: f64 = 0.001;
/// Standard errors of the 95 % interval.
const Z_95: f64 = 1.959_964;
/// Standard errors that are seen four times out of five: [`Z_95`] and the 80 % point.
const Z_SEEN: f64 = Z_95 + 0.841_621;

/// The conclusion of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// They differ.
    Changed,
    /// No difference was shown.
    NotShown,
    /// Too few runs, or values that have no ratio.
    CannotTell,
}

/// Two sets, the second as a ratio to the first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Medians of the first and of the second set.
    pub medians: (f64, f64),
    /// Second median divided by the first.
    pub ratio: f64,
    /// 95 % interval of the ratio.
    pub interval: (f64, f64),
    /// Chance of ranks as far apart where the runs could as well be of one set.
    pub p: f64,
    /// The smallest change, as a share, that so many runs with this noise show four times out of
    /// five.
    pub least_seen: f64,
    /// Runs of each set.
    pub runs: (usize, usize),
    /// The conclusion.
    pub change: Change,
}

/// Two sets whose values have no ratio, the second less the first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Medians of the first and of the second set.
    pub medians: (f64, f64),
    /// Second median less the first.
    pub difference: f64,
    /// 95 % interval of the difference.
    pub interval: (f64, f64),
    /// Chance of ranks as far apart where the runs could as well be of one set.
    pub p: f64,
    /// The smallest difference that so many runs with this noise show four times out of five.
    pub least_seen: f64,
    /// Runs of each set.
    pub runs: (usize, usize),
    /// The conclusion.
    pub change: Change,
}

/// Compares `second` with `first` by their difference, whatever their signs: where [`compare`] has
/// no ratio. `None` when a set has fewer than [`RUNS_FOR_A_CLAIM`] finite values.
pub fn differ(first: &[f64], second: &[f64], seed: u64) -> Option<Difference> {
    let (first, second) = (finite(first), finite(second));
    if first.len().min(second.len()) < RUNS_FOR_A_CLAIM {
        return None;
    }
    let medians = (median(&first)?, median(&second)?);
    let difference = medians.1 - medians.0;
    let error = median_error(&first, |low, high| high - low)
        .hypot(median_error(&second, |low, high| high - low));
    let interval = (difference - Z_95 * error, difference + Z_95 * error);
    let p = chance(&first, &second, seed);
    // Numbers near the largest possible ones have no difference that can be written.
    (interval.0.is_finite() && interval.1.is_finite()).then_some(Difference {
        medians,
        difference,
        interval,
        p,
        least_seen: Z_SEEN * error,
        runs: (first.len(), second.len()),
        change: if p < P_CHANGE { Change::Changed } else { Change::NotShown },
    })
}

fn finite(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| value.is_finite()).collect()
}

/// Compares `second` with `first`. `None` when a set has fewer than [`RUNS_FOR_A_CLAIM`] finite
/// values, a value below zero, a median of zero, or zeros so near the median that the ratio could
/// be anything: [`differ`] compares such sets.
pub fn compare(first: &[f64], second: &[f64], seed: u64) -> Option<Comparison> {
    let (first, second) = (finite(first), finite(second));
    if first.len().min(second.len()) < RUNS_FOR_A_CLAIM
        || first.iter().chain(&second).any(|&value| value < 0.0)
    {
        return None;
    }
    let medians = (median(&first)?, median(&second)?);
    if medians.0 <= 0.0 || medians.1 <= 0.0 {
        return None;
    }
    let (ratio, error) = (medians.1 / medians.0, ratio_error(&first, &second));
    let interval = (ratio * (-Z_95 * error).exp(), ratio * (Z_95 * error).exp());
    if ratio <= 0.0
        || ![ratio, interval.1, (Z_SEEN * error).exp()].iter().all(|one| one.is_finite())
    {
        return None;
    }
    let p = chance(&first, &second, seed);
    Some(Comparison {
        medians,
        ratio,
        interval,
        p,
        least_seen: least_seen(&first, &second),
        runs: (first.len(), second.len()),
        change: if p < P_CHANGE { Change::Changed } else { Change::NotShown },
    })
}

/// Tests the sum of ranks (Wilcoxon, Mann and Whitney). Returns the chance of ranks as far apart as
/// these where the runs could as well be of one set.
///
/// From `RUNS_FOR_NORMAL` runs of each set on, it is taken from the normal distribution with the
/// correction for equal values. For fewer, and where more than an eighth of all values is one and
/// the same, the runs are dealt anew into two sets of the same sizes until `ENOUGH` deals were as
/// far apart (Besag and Clifford, 1991), `EXCHANGES` times at most: a value that did not change
/// costs some hundred deals. Sets of like size so far apart that the normal distribution errs to
/// the safe side are not dealt.
pub fn chance(first: &[f64], second: &[f64], seed: u64) -> f64 {
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let ranks = ranks(&all);
    let fewer = first.len().min(second.len());
    let (most_equal, ties) = equal(&ranks);
    if fewer >= RUNS_FOR_NORMAL {
        if most_equal * 8 <= all.len() {
            return by_normal(&ranks, first.len(), (1, ties));
        }
        // The sum goes in steps of so many ranks at most. It is skewed where one set is much the
        // larger.
        let p = by_normal(&ranks, first.len(), (most_equal, ties));
        if p < FAR_APART && all.len() <= 3 * fewer {
            return p;
        }
    }
    by_exchange(ranks, first.len(), seed)
}

/// Returns the number of values of the largest group of equal ones, and the sum of `t³ - t` over
/// each `t` equal ones.
fn equal(ranks: &[f64]) -> (usize, f64) {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let groups = sorted.chunk_by(|a, b| a == b).map(<[f64]>::len);
    let cubes = groups.clone().map(|t| (t as f64).powi(3) - t as f64);
    (groups.clone().max().unwrap_or(0), cubes.sum())
}

/// Returns the chance by the normal distribution, with half a step of the sum taken off (Lehmann,
/// Nonparametrics, 1975).
fn by_normal(ranks: &[f64], first: usize, (step, ties): (usize, f64)) -> f64 {
    let (n, m, all) = (first as f64, (ranks.len() - first) as f64, ranks.len() as f64);
    let expected = (all - 1.0) / 2.0 * n;
    let apart = (ranks[..first].iter().sum::<f64>() - expected).abs();
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let apart = (apart - step as f64 / 2.0).max(0.0);
    (2.0 * normal::above(apart / variance.sqrt())).min(1.0)
}

fn by_exchange(mut ranks: Vec<f64>, first: usize, seed: u64) -> f64 {
    let expected = (ranks.len() - 1) as f64 / 2.0;
    // The smaller set says as much as the other, and is dealt sooner.
    let second = ranks.len() - first;
    if second < first {
        ranks.rotate_left(first);
    }
    let dealt = first.min(second);
    let apart = |ranks: &[f64]| (ranks.iter().sum::<f64>() - expected * dealt as f64).abs();
    let seen = apart(&ranks[..dealt]);
    let (mut rng, mut as_far) = (Rng::new(seed), 0);
    for exchange in 1..=EXCHANGES {
        for place in 0..dealt {
            let other = place + rng.below(ranks.len() - place);
            ranks.swap(place, other);
        }
        as_far += usize::from(apart(&ranks[..dealt]) >= seen - 1e-9);
        if as_far == ENOUGH {
            return ENOUGH as f64 / exchange as f64;
        }
    }
    (as_far + 1) as f64 / (EXCHANGES + 1) as f64
}

/// Returns the change, as a share, that so many runs with this noise show four times out of five.
/// Infinite where the values near the median reach zero: such noise has no ratio.
pub fn least_seen(first: &[f64], second: &[f64]) -> f64 {
    (Z_SEEN * ratio_error(first, second)).exp() - 1.0
}

/// Returns the standard error of the logarithm of the ratio of both medians (Price and Bonett,
/// 2002).
fn ratio_error(first: &[f64], second: &[f64]) -> f64 {
    let logarithm = |low: f64, high: f64| {
        if low > 0.0 { (high / low).ln() } else { f64::INFINITY }
    };
    median_error(first, logarithm).hypot(median_error(second, logarithm))
}

/// Returns the standard error of the median, or of its logarithm, by the distance (`apart`) of two
/// order statistics that have the median between them with a known chance, whatever the
/// distribution.
fn median_error(values: &[f64], apart: impl Fn(f64, f64) -> f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let runs = sorted.len() as f64;
    let at = (f64::midpoint(runs, 1.0) - runs.sqrt()).round().max(1.0) as usize;
    let (Some(&low), Some(&high)) = (sorted.get(at - 1), sorted.get(sorted.len().wrapping_sub(at)))
    else {
        return f64::INFINITY;
    };
    if low == high {
        return 0.0;
    }
    // Binomial: fewer than `at` of all values below the median.
    let mut term = 0.5f64.powf(runs);
    let mut tail = term;
    for below in 1..at {
        term *= (runs - below as f64 + 1.0) / below as f64;
        tail += term;
    }
    if tail <= 0.0 {
        // More than 1,000 runs: the root of n on either side is two standard deviations.
        tail = normal::above(2.0);
    }
    apart(low, high) / (2.0 * normal::exceeded_with(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rng: &mut Rng, runs: usize, middle: f64) -> Vec<f64> {
        let mut normal =
            || (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos();
        (0..runs).map(|_| middle * (1.0 + 0.03 * normal())).collect()
    }

    #[test]
    fn two_sets_of_one_build_differ_no_more_often_than_stated() {
        let mut rng = Rng::new(1);
        let changed = (0..200).filter(|&seed| {
            let (a, b) = (set(&mut rng, 12, 50.0), set(&mut rng, 12, 50.0));
            compare(&a, &b, seed).unwrap().change == Change::Changed
        });
        let changed = changed.count();
        // 5 % of 200 is 10; more than 20 has a chance of 1 in 500.
        assert!(changed <= 20, "{changed} of 200");
    }

    /// Results of a recording, of each workload: from the noisiest to the quietest.
    fn recorded() -> [Vec<f64>; 3] {
        ["tcp_rr ", "tcp_stream ", "cpu_us "].map(|workload| {
            let lines = include_str!("noise.txt").lines();
            let values = lines.filter_map(|line| line.strip_prefix(workload)?.parse().ok());
            values.collect()
        })
    }

    /// Two sets of so many runs, drawn from one recording without putting any back.
    fn drawn(from: &[f64], runs: usize, rng: &mut Rng) -> (Vec<f64>, Vec<f64>) {
        let mut all = from.to_vec();
        rng.shuffle(&mut all);
        (all[..runs].to_vec(), all[runs..2 * runs].to_vec())
    }

    #[test]
    fn two_sets_of_recorded_noise_differ_no_more_often_than_stated() {
        let mut rng = Rng::new(3);
        for recording in recorded() {
            assert!(recording.len() >= 60, "{}", recording.len());
            // Both ways of finding the chance: by exchange of 8 runs, by the normal distribution of
            // 20.
            for runs in [8, 20] {
                let changed = (0..1_000).filter(|&seed| {
                    let (a, b) = drawn(&recording, runs, &mut rng);
                    chance(&a, &b, seed) < P_CHANGE
                });
                let changed = changed.count();
                // 50 are expected; the standard error is 7, of draws from one recording somewhat
                // less. Hardly any would be a test that finds nothing.
                assert!((25..=70).contains(&changed), "{changed} of 1,000");
            }
        }
    }

    #[test]
    fn five_percent_in_recorded_noise_are_found_or_said_to_be_invisible() {
        let mut rng = Rng::new(4);
        let mut seen = vec![];
        for recording in recorded() {
            let (mut visible, mut found) = (0, 0);
            for seed in 0..40 {
                let (a, b) = drawn(&recording, 20, &mut rng);
                // Before the second set is there: from the first alone.
                if least_seen(&a, &a) > 0.05 {
                    continue;
                }
                visible += 1;
                let b: Vec<f64> = b.iter().map(|value| value * 0.95).collect();
                found += u32::from(chance(&a, &b, seed) < P_CHANGE);
            }
            // Four times out of five, less three standard errors of so few.
            let least = 0.8 * f64::from(visible) - 3.0 * (0.16 * f64::from(visible)).sqrt();
            assert!(f64::from(found) >= least, "{found} of {visible} that could be seen");
            seen.push((visible, found));
        }
        // In the noisiest it is never to be seen, in the quietest mostly, and there it is found.
        assert_eq!(seen[0].0, 0, "{seen:?}");
        assert!(seen[2].0 >= 30 && seen[2].1 >= 24, "{seen:?}");
    }

    #[test]
    fn a_change_that_can_be_seen_is_seen_and_one_that_cannot_is_said_beforehand() {
        let mut rng = Rng::new(2);
        let mut one = || least_seen(&set(&mut rng, 20, 50.0), &set(&mut rng, 20, 50.0));
        let several: Vec<f64> = (0..100).map(|_| one()).collect();
        let least = median(&several).unwrap();
        // For normal noise of 3 %: 2.8 times 1.25 (of the median) times 0.03 times the root of
        // 1/20 + 1/20 is 0.033.
        assert!((0.025..0.04).contains(&least), "{least}");
        let mut seen = |change: f64| {
            let found = (0..50).filter(|&seed| {
                let (a, b) = (set(&mut rng, 20, 50.0), set(&mut rng, 20, 50.0 * change));
                compare(&a, &b, seed).unwrap().change == Change::Changed
            });
            found.count()
        };
        assert!(seen(1.0 + 1.5 * least) >= 45, "well above it");
        assert!(seen(1.0 + 0.2 * least) <= 15, "well below it");
    }

    #[test]
    fn counters_that_are_mostly_zero_have_the_chance_of_the_hypergeometric_distribution() {
        for runs in [6usize, 10, 20, 80] {
            let zero = vec![0.0; runs];
            for other in 1..=runs {
                // So many of the second set are not zero, and none of the first.
                let second: Vec<f64> =
                    (0..runs).map(|at| f64::from(u8::from(at < other))).collect();
                let one = |at: usize| (runs - at) as f64 / (2 * runs - at) as f64;
                let exact = 2.0 * (0..other).map(one).product::<f64>();
                let found = chance(&zero, &second, 5);
                // Three standard errors: of 50 deals as far apart, or of what all deals give.
                let error = 3.0 * (exact * 0.15).max((exact / EXCHANGES as f64).sqrt());
                assert!(found >= exact.min(1.0) - error, "{runs}, {other}: {found} for {exact}");
                assert!(found <= exact + error + FAR_APART, "{runs}, {other}: {found} for {exact}");
            }
        }
        assert!((chance(&[0.0; 20], &[0.0; 20], 1) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_ratio_is_the_second_to_the_first_with_its_interval() {
        let found = compare(&[10.0, 10.0, 10.0, 10.0], &[12.0, 12.0, 12.0, 12.0], 1).unwrap();
        assert!((found.ratio - 1.2).abs() < 1e-12 && found.interval == (found.ratio, found.ratio));
        assert_eq!((found.medians, found.runs), ((10.0, 12.0), (4, 4)));
        assert_eq!(found.change, Change::Changed, "p {}", found.p);
    }

    #[test]
    fn too_few_runs_and_values_without_a_ratio_tell_nothing() {
        assert_eq!(compare(&[1.0; 3], &[2.0; 9], 1), None);
        assert_eq!(compare(&[0.0; 9], &[2.0; 9], 1), None);
        assert_eq!(compare(&[1.0; 9], &[-2.0; 9], 1), None);
        assert_eq!(compare(&[1.0, f64::NAN, 1.0, 1.0], &[2.0; 9], 1), None);
    }

    #[test]
    fn values_without_a_ratio_have_a_difference() {
        let found = differ(&[5.0; 6], &[0.0; 6], 1).unwrap();
        assert_eq!((found.difference, found.interval), (-5.0, (-5.0, -5.0)));
        assert_eq!((found.change, found.least_seen), (Change::Changed, 0.0));
        assert_eq!(differ(&[0.0; 6], &[5.0; 6], 1).unwrap().difference, 5.0);
        assert_eq!(differ(&[-3.0; 6], &[-4.0; 6], 1).unwrap().difference, -1.0);
        let same = differ(&[0.0; 6], &[0.0; 6], 1).unwrap();
        assert_eq!((same.difference, same.change), (0.0, Change::NotShown));
        assert_eq!(differ(&[0.0; 3], &[1.0; 6], 1), None);
        // For a thousandth of normal noise the interval is as wide as that of a ratio near 1.
        let mut rng = Rng::new(7);
        let (a, b) = (set(&mut rng, 20, 50.0), set(&mut rng, 20, 50.0));
        let (by_ratio, by_difference) = (compare(&a, &b, 1).unwrap(), differ(&a, &b, 1).unwrap());
        let share = by_difference.least_seen / 50.0 / by_ratio.least_seen;
        assert!((0.8..1.25).contains(&share), "{share}");
        // A ratio that overflows is none.
        assert_eq!(compare(&[1e-300; 6], &[1e300; 6], 1), None);
        assert_eq!(differ(&[-f64::MAX; 6], &[f64::MAX; 6], 1), None);
    }
}
