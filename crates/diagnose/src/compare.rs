//! Whether two sets of runs differ, and which difference could have been seen.

use serde::{Deserialize, Serialize};

use crate::stats::{Bootstrap, Interval, RUNS_FOR_A_CLAIM, Rng, median, ranks};

/// Chance of a change being reported where there is none.
pub const P_CHANGE: f64 = 0.05;

/// Exchanges of the runs of both sets.
const EXCHANGES: usize = 4_999;

/// What the comparison of a set with another says.
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
    /// The smallest change, as a share, that so many runs with this noise show four times out of five.
    pub least_seen: f64,
    /// Runs of each set.
    pub runs: (usize, usize),
    /// What that means.
    pub change: Change,
}

/// Compares `second` with `first`. `None` when a set has fewer than [`RUNS_FOR_A_CLAIM`] finite values, a value below
/// zero, or a median of zero: then nothing can be told.
pub fn compare(first: &[f64], second: &[f64], seed: u64) -> Option<Comparison> {
    let finite = |values: &[f64]| values.iter().copied().filter(|v| v.is_finite()).collect();
    let (first, second): (Vec<f64>, Vec<f64>) = (finite(first), finite(second));
    if first.len().min(second.len()) < RUNS_FOR_A_CLAIM
        || first.iter().chain(&second).any(|&value| value < 0.0)
    {
        return None;
    }
    let medians = (median(&first)?, median(&second)?);
    if medians.0 <= 0.0 || medians.1 <= 0.0 {
        return None;
    }
    let ratio = medians.1 / medians.0;
    let bootstrap = Bootstrap { resamples: 2_000, seed, ..Bootstrap::default() };
    let Interval { low, high } = bootstrap.ratio_of_medians(&second, &first)?;
    let p = chance(&first, &second, seed);
    Some(Comparison {
        medians,
        ratio,
        interval: (low, high),
        p,
        least_seen: least_seen(&first, &second, seed),
        runs: (first.len(), second.len()),
        change: if p < P_CHANGE { Change::Changed } else { Change::NotShown },
    })
}

/// Distance of the medians on a logarithmic scale.
fn distance(a: &mut [f64], b: &mut [f64]) -> f64 {
    let middle = |values: &mut [f64]| {
        values.sort_by(f64::total_cmp);
        let half = values.len() / 2;
        if values.len().is_multiple_of(2) {
            (values[half - 1] + values[half]) / 2.0
        } else {
            values[half]
        }
    };
    let (a, b) = (middle(a), middle(b));
    if a > 0.0 && b > 0.0 { (b / a).ln().abs() } else { (b - a).abs() }
}

/// Permutation test of the sum of ranks (Wilcoxon, Mann and Whitney): the runs dealt anew into two sets of the same sizes.
/// The chance of ranks as far apart as these.
pub fn chance(first: &[f64], second: &[f64], seed: u64) -> f64 {
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let mut ranks = ranks(&all);
    let expected = (all.len() - 1) as f64 / 2.0 * first.len() as f64;
    let from_expected = |ranks: &[f64]| (ranks[..first.len()].iter().sum::<f64>() - expected).abs();
    let seen = from_expected(&ranks);
    let mut rng = Rng::new(seed);
    let as_far = (0..EXCHANGES).filter(|_| {
        rng.shuffle(&mut ranks);
        from_expected(&ranks) >= seen - 1e-9
    });
    (as_far.count() + 1) as f64 / (EXCHANGES + 1) as f64
}

/// The change that would be seen four times out of five: 1.96 + 0.84 standard errors of the logarithm of the ratio, found by
/// drawing both sets from the noise of both.
pub fn least_seen(first: &[f64], second: &[f64], seed: u64) -> f64 {
    const POWER: f64 = 1.96 + 0.84;
    let noise = |values: &[f64]| -> Vec<f64> {
        let middle = median(values).unwrap_or(0.0);
        values.iter().filter(|v| **v > 0.0 && middle > 0.0).map(|v| v / middle).collect()
    };
    let pool: Vec<f64> = noise(first).into_iter().chain(noise(second)).collect();
    if pool.is_empty() {
        return f64::INFINITY;
    }
    let mut rng = Rng::new(seed);
    let mut drawn = |count: usize| (0..count).map(|_| pool[rng.below(pool.len())]).collect();
    let squares = (0..1_000).map(|_| {
        let (mut a, mut b): (Vec<f64>, Vec<f64>) = (drawn(first.len()), drawn(second.len()));
        distance(&mut a, &mut b).powi(2)
    });
    let error = (squares.sum::<f64>() / 1_000.0).sqrt();
    (POWER * error).exp() - 1.0
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

    /// Results of a recording, of each workload.
    fn recorded() -> [Vec<f64>; 2] {
        ["tcp_rr ", "tcp_stream "].map(|workload| {
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
            let changed = (0..200).filter(|&seed| {
                let (a, b) = drawn(&recording, 10, &mut rng);
                chance(&a, &b, seed) < P_CHANGE
            });
            let changed = changed.count();
            // As above: 10 are expected.
            assert!(changed <= 20, "{changed} of 200");
        }
    }

    #[test]
    fn five_percent_in_recorded_noise_are_found_or_said_to_be_invisible() {
        let mut rng = Rng::new(4);
        for recording in recorded() {
            let (mut visible, mut found, mut invisible) = (0, 0, 0);
            for seed in 0..8 {
                let (a, b) = drawn(&recording, 20, &mut rng);
                // Before the second set is there: from the first alone.
                if least_seen(&a, &a, seed) > 0.05 {
                    invisible += 1;
                    continue;
                }
                visible += 1;
                let b: Vec<f64> = b.iter().map(|value| value * 0.95).collect();
                found += u32::from(chance(&a, &b, seed) < P_CHANGE);
            }
            assert_eq!(visible + invisible, 8);
            // Four times out of five, less three standard errors of so few.
            let least = 0.8 * f64::from(visible) - 3.0 * (0.16 * f64::from(visible)).sqrt();
            assert!(f64::from(found) >= least, "{found} of {visible} that could be seen");
        }
    }

    #[test]
    fn a_change_that_can_be_seen_is_seen_and_one_that_cannot_is_said_beforehand() {
        let mut rng = Rng::new(2);
        let one = |seed| least_seen(&set(&mut rng, 20, 50.0), &set(&mut rng, 20, 50.0), seed);
        let several: Vec<f64> = (0..20).map(one).collect();
        let least = median(&several).unwrap();
        // Of normal noise of 3 %: 2.8 times 0.03 times the root of 1/20 + 1/20 is 0.027.
        assert!((0.02..0.04).contains(&least), "{least}");
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
}
