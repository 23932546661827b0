//! Two things that were run in turns: pairs of results, one of each, of one machine or of several.
//!
//! A pair is taken within a moment, so that what drifts is in both. Interval and p come from one
//! test: the interval has the changes that it does not reject, and excludes none exactly where p is
//! below the level.

use crate::stats::{correlation, median, normal, ranks, student};

/// Standard errors that are seen four times out of five, where p has to be below 5 %.
const Z_SEEN: f64 = 1.959_964 + 0.841_621;
/// Chance below which a drift is told.
const P_DRIFT: f64 = 0.05;
/// A logarithm as small as this is the rounding of a ratio of 1.
const ROUNDING: f64 = 1e-12;
/// Fewest machines whose differences show how much machines differ.
pub const MACHINES_LEAST: usize = 3;
/// Fewest pairs of one machine: of fewer no order of signs is rarer than 5 %.
pub const PAIRS_LEAST: usize = 6;

/// The second of two things as a ratio to the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// The ratio.
    pub ratio: f64,
    /// Its interval.
    pub interval: (f64, f64),
    /// Chance of a ratio as far from 1 where they do not differ.
    pub p: f64,
    /// The smallest change, as a share, that so many pairs show four times out of five.
    pub least_seen: f64,
    /// Pairs of all machines.
    pub pairs: usize,
    /// Machines.
    pub machines: usize,
}

/// Compares the second of each pair with the first, at a level (0.05), for each machine its pairs.
/// `None` where a result is not above zero, where one machine has fewer than [`PAIRS_LEAST`], and
/// for two machines.
pub fn paired(machines: &[Vec<(f64, f64)>], level: f64) -> Option<Paired> {
    let machines: Vec<Vec<f64>> = machines
        .iter()
        .filter(|one| !one.is_empty())
        .map(|one| changes(one))
        .collect::<Option<_>>()?;
    let pairs = machines.iter().map(Vec::len).sum();
    let (change, interval, p, error) = match machines.as_slice() {
        [one] if pairs >= PAIRS_LEAST => by_signed_ranks(one, level)?,
        several if several.len() >= MACHINES_LEAST => by_machines(several, level)?,
        _ => return None,
    };
    Some(Paired {
        ratio: change.exp(),
        interval: (interval.0.exp(), interval.1.exp()),
        p,
        least_seen: (Z_SEEN * error).exp() - 1.0,
        pairs,
        machines: machines.len(),
    })
}

/// Returns the smallest change, as a share, that `pairs` pairs would show four times out of five:
/// the noise is that of the first ones.
pub fn least_seen(first: &[(f64, f64)], pairs: usize) -> Option<f64> {
    let changes = changes(first)?;
    (changes.len() > 1).then(|| (Z_SEEN * deviation(&changes) / (pairs as f64).sqrt()).exp() - 1.0)
}

/// Returns the change, as a share, of both from the first pair to the last, where that is shown.
pub fn drift(pairs: &[(f64, f64)]) -> Option<f64> {
    let levels: Vec<f64> = pairs.iter().map(|(a, b)| f64::midpoint(a.ln(), b.ln())).collect();
    if levels.len() < PAIRS_LEAST || levels.iter().any(|level| !level.is_finite()) {
        return None;
    }
    let order: Vec<f64> = (0..levels.len()).map(|at| at as f64).collect();
    let rising = correlation(&order, &ranks(&levels));
    let z = rising.abs() * (levels.len() as f64 - 1.0).sqrt();
    if 2.0 * normal::above(z) >= P_DRIFT {
        return None;
    }
    // The median of all slopes (Theil, 1950; Sen, 1968).
    let slopes = (0..levels.len()).flat_map(|one| {
        let levels = &levels;
        (one + 1..levels.len())
            .map(move |other| (levels[other] - levels[one]) / (other - one) as f64)
    });
    let slope = median(&slopes.collect::<Vec<_>>())?;
    Some((slope * (levels.len() as f64 - 1.0)).exp() - 1.0)
}

/// Returns the logarithm of the ratio of each pair.
fn changes(pairs: &[(f64, f64)]) -> Option<Vec<f64>> {
    let change = |&(a, b): &(f64, f64)| (a > 0.0 && b > 0.0).then(|| (b / a).ln());
    let changes: Option<Vec<f64>> = pairs.iter().map(change).collect();
    changes.filter(|all| all.iter().all(|one| one.is_finite()))
}

fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|one| (one - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// The middle, its interval, p, and the standard error.
type Found = (f64, (f64, f64), f64, f64);

/// Tests signed ranks (Wilcoxon, 1945), with the interval that belongs to it (Tukey, 1949): the sum
/// of the ranks of what rose is the number of means of two changes that are above zero. Means that
/// are zero count for either side, so that equal values make it no bolder.
fn by_signed_ranks(changes: &[f64], level: f64) -> Option<Found> {
    let each = changes.iter().enumerate();
    let mut means: Vec<f64> = each
        .flat_map(|(at, one)| changes[at..].iter().map(move |other| f64::midpoint(*one, *other)))
        .collect();
    for mean in means.iter_mut().filter(|mean| mean.abs() < ROUNDING) {
        *mean = 0.0;
    }
    means.sort_unstable_by(f64::total_cmp);
    let below = chances_of_sums(changes.len());
    let both = |count: usize| (2.0 * below[count.min(below.len() - 1)]).min(1.0);
    let fell = means.iter().filter(|mean| **mean <= 0.0).count();
    let rose = means.iter().filter(|mean| **mean >= 0.0).count();
    // So many means at either end are outside.
    let outside = (0..means.len()).take_while(|&count| both(count) <= level).count();
    let at = outside.checked_sub(1)?;
    let interval = (means[at], means[means.len() - 1 - at]);
    let error = deviation(changes) / (changes.len() as f64).sqrt();
    Some((median(&means)?, interval, both(fell.min(rose)), error))
}

/// Returns for each number the chance that a sum of some of the ranks 1 to `count`, each in it or
/// not, is at most that.
fn chances_of_sums(count: usize) -> Vec<f64> {
    let mut chances = vec![0.0; count * (count + 1) / 2 + 1];
    chances[0] = 1.0;
    for rank in 1..=count {
        for sum in (0..chances.len()).rev() {
            let without = if sum >= rank { chances[sum - rank] } else { 0.0 };
            chances[sum] = (chances[sum] + without) / 2.0;
        }
    }
    let mut below = 0.0;
    chances
        .iter()
        .map(|chance| {
            below += chance;
            below
        })
        .collect()
}

/// Tests the means of the machines (Student, 1908): that they differ is noise, too.
fn by_machines(machines: &[Vec<f64>], level: f64) -> Option<Found> {
    let means: Vec<f64> =
        machines.iter().map(|one| one.iter().sum::<f64>() / one.len() as f64).collect();
    let mean = means.iter().sum::<f64>() / means.len() as f64;
    let error = deviation(&means) / (means.len() as f64).sqrt();
    let degrees = means.len() - 1;
    let wide = error * student::exceeded_with(level, degrees);
    let p = match (mean.abs() < ROUNDING, error == 0.0) {
        (true, _) => 1.0,
        (false, true) => 0.0,
        (false, false) => student::beyond(mean / error, degrees),
    };
    Some((mean, (mean - wide, mean + wide), p, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Rng;

    fn noise(rng: &mut Rng, share: f64) -> f64 {
        let angle = (std::f64::consts::TAU * rng.unit()).cos();
        (share * (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * angle).exp()
    }

    /// Pairs whose second is `ratio` times the first, with noise of 3 % and a machine that becomes
    /// quicker by a tenth meanwhile. The first comes first in half of them.
    fn pairs(rng: &mut Rng, count: usize, ratio: f64) -> Vec<(f64, f64)> {
        let mut first: Vec<bool> = (0..count).map(|at| at % 2 == 0).collect();
        rng.shuffle(&mut first);
        let level = |at: f64| 100.0 * (1.0 + 0.1 * at / (2 * count) as f64);
        let one = |(at, is_first): (usize, &bool)| {
            let (early, late) = (level(2.0 * at as f64), level(2.0 * at as f64 + 1.0));
            let (a, b) = if *is_first { (early, late) } else { (late, early) };
            (a * noise(rng, 0.03), b * ratio * noise(rng, 0.03))
        };
        first.iter().enumerate().map(one).collect()
    }

    #[test]
    fn of_equal_things_that_drift_as_few_differ_as_is_stated_and_the_interval_has_the_truth() {
        let mut rng = Rng::new(1);
        let (mut alarms, mut missed, mut drifts) = (0, 0, 0);
        for _ in 0..400 {
            let found = paired(&[pairs(&mut rng, 10, 1.0)], 0.05).unwrap();
            alarms += usize::from(found.p <= 0.05);
            let of = pairs(&mut rng, 10, 0.95);
            let found = paired(std::slice::from_ref(&of), 0.05).unwrap();
            missed += usize::from(!(found.interval.0..=found.interval.1).contains(&0.95));
            drifts += usize::from(drift(&of).is_some());
        }
        // 19.5 of 400 are expected; more than 34 has a chance of 1 in 1,000.
        assert!((6..=34).contains(&alarms), "{alarms} alarms");
        assert!((6..=34).contains(&missed), "{missed} intervals without the truth");
        assert!(drifts > 240, "{drifts} of 400 drifts found");
    }

    #[test]
    fn five_percent_are_found_and_what_is_found_is_said_beforehand() {
        let mut rng = Rng::new(2);
        let found = |ratio: f64, rng: &mut Rng| {
            (0..200).filter(|_| paired(&[pairs(rng, 10, ratio)], 0.05).unwrap().p <= 0.05).count()
        };
        assert!(found(0.95, &mut rng) >= 160, "eight of ten");
        let said: Vec<f64> =
            (0..200).filter_map(|_| least_seen(&pairs(&mut rng, 5, 1.0), 10)).collect();
        let said = median(&said).unwrap();
        let of_it = found(1.0 - said, &mut rng);
        assert!((130..=185).contains(&of_it), "{of_it} of 200 at {said}");
    }

    #[test]
    fn that_machines_differ_is_noise_of_its_own() {
        let mut rng = Rng::new(3);
        let (mut alarms, mut pooled) = (0, 0);
        for _ in 0..400 {
            let machines: Vec<_> = (0..4)
                .map(|_| {
                    let own = noise(&mut rng, 0.04);
                    pairs(&mut rng, 10, own)
                })
                .collect();
            alarms += usize::from(paired(&machines, 0.05).unwrap().p <= 0.05);
            pooled += usize::from(paired(&[machines.concat()], 0.05).unwrap().p <= 0.05);
        }
        assert!((6..=34).contains(&alarms), "{alarms} alarms");
        assert!(pooled > 100, "as one machine {pooled}");
    }

    /// Whole numbers, of which many are equal.
    #[test]
    fn interval_and_p_never_contradict_each_other() {
        let mut rng = Rng::new(4);
        for case in 0..3_000 {
            let wide = 1 + rng.below(40);
            let count = PAIRS_LEAST + rng.below(12);
            let shift = rng.below(wide + 1);
            let mut machine = || -> Vec<(f64, f64)> {
                let one = |_| (50 + rng.below(wide), 50 + shift + rng.below(wide));
                (0..count).map(one).map(|(a, b)| (a as f64, b as f64)).collect()
            };
            let machines = match case % 3 {
                0 => vec![machine(), machine(), machine()],
                _ => vec![machine()],
            };
            for level in [0.05, 0.01] {
                let Some(Paired { interval: (low, high), p, ratio, .. }) = paired(&machines, level)
                else {
                    continue;
                };
                assert_eq!(p <= level, low > 1.0 || high < 1.0, "{machines:?}: {low} {high} {p}");
                assert!(low <= ratio && ratio <= high);
            }
        }
    }

    #[test]
    fn too_few_pairs_two_machines_and_figures_without_a_ratio_tell_nothing() {
        let mut rng = Rng::new(5);
        let of = pairs(&mut rng, 6, 1.0);
        assert!(paired(std::slice::from_ref(&of), 0.05).is_some());
        assert_eq!(paired(&[of[..5].to_vec()], 0.05), None);
        assert_eq!(paired(&[of.clone(), of.clone()], 0.05), None);
        assert_eq!(paired(&[[of.clone(), vec![(1.0, 0.0)]].concat()], 0.05), None);
        assert_eq!(paired(&[vec![(7.0, 7.0); 10]], 0.05).unwrap().p, 1.0);
        assert_eq!(drift(&of[..5]), None);
    }
}
