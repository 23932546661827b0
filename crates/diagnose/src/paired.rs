//! Two things that were run in turns: pairs of results, one of each, of one machine or of several.
//!
//! A pair is taken within a moment, so that what drifts is in both. Interval and p come from one
//! test: the interval has the changes that it does not reject, and excludes none exactly where p is
//! below the level.

use crate::compare::{Comparison, Difference, Found, P_CHANGE, logarithms};
use crate::stats::{correlation, median, normal, ranks, student};

/// Chance below which a drift is told.
const P_DRIFT: f64 = 0.05;
/// A mean as small as this, as a share of the largest change, is the rounding of no change.
const ROUNDING: f64 = 1e-12;
/// Most pairs that are made up to say what they will show.
const PAIRS_MADE_UP: usize = 50;
/// Fewest machines whose differences show how much machines differ.
pub const MACHINES_LEAST: usize = 3;
/// Fewest pairs of one machine: of fewer no order of signs is rarer than 5 %.
pub const PAIRS_LEAST: usize = 6;

/// Compares the second of each pair with the first, at a level (0.05), for each machine its pairs.
/// `None` where a result is not above zero, where one machine has fewer than [`PAIRS_LEAST`], and
/// for two machines. [`differ`] compares pairs without a ratio.
pub fn paired(machines: &[Vec<(f64, f64)>], level: f64) -> Option<Comparison> {
    let (first, second) = sides(machines);
    let changes: Option<Vec<_>> = machines.iter().map(|one| ratios(one)).collect();
    test(&changes?, level)?.as_ratio(&first, &second)
}

/// Compares the second of each pair with the first by their difference, whatever their signs: where
/// [`paired`] has no ratio.
pub fn differ(machines: &[Vec<(f64, f64)>], level: f64) -> Option<Difference> {
    let (first, second) = sides(machines);
    let changes: Option<Vec<_>> = machines.iter().map(|one| differences(one)).collect();
    test(&changes?, level)?.as_difference(&first, &second)
}

/// Tests the changes of each machine that has pairs.
fn test(machines: &[Vec<f64>], level: f64) -> Option<Found> {
    let machines: Vec<&[f64]> =
        machines.iter().filter(|one| !one.is_empty()).map(Vec::as_slice).collect();
    match machines.as_slice() {
        [one] if one.len() >= PAIRS_LEAST => by_signed_ranks(one, level),
        several if several.len() >= MACHINES_LEAST => by_machines(several, level),
        _ => None,
    }
}

/// Returns the results of both things, of all machines.
fn sides(machines: &[Vec<(f64, f64)>]) -> (Vec<f64>, Vec<f64>) {
    machines.iter().flatten().copied().unzip()
}

/// Returns the smallest change, as a share, that `pairs` pairs would show four times out of five:
/// the noise is that of the first ones. The same test is made of changes that are spread as normal
/// ones are.
pub fn least_seen(first: &[(f64, f64)], pairs: usize) -> Option<f64> {
    let changes = ratios(first).filter(|changes| changes.len() > 1)?;
    // The interval of many pairs narrows by the root of their number.
    let made_up = pairs.min(PAIRS_MADE_UP);
    let spread = deviation(&changes) * (made_up as f64 / pairs as f64).sqrt();
    // Their places are those of Blom (1958).
    let place = |at: usize| (at as f64 + 0.625) / (made_up as f64 + 0.25);
    let normal = (0..made_up).map(|at| spread * normal::exceeded_with(place(at)));
    let found = by_signed_ranks(&normal.collect::<Vec<_>>(), P_CHANGE)?;
    Some(found.least_seen.exp() - 1.0)
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
fn ratios(pairs: &[(f64, f64)]) -> Option<Vec<f64>> {
    let ratio = |&(a, b): &(f64, f64)| (a > 0.0 && b > 0.0).then_some(b / a);
    let ratios: Option<Vec<f64>> = pairs.iter().map(ratio).collect();
    logarithms(&ratios?).filter(|all| all.iter().all(|one| one.is_finite()))
}

/// Returns the difference of each pair.
fn differences(pairs: &[(f64, f64)]) -> Option<Vec<f64>> {
    let difference = |&(a, b): &(f64, f64)| Some(b - a).filter(|change| change.is_finite());
    pairs.iter().map(difference).collect()
}

fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|one| (one - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Returns the size below which a mean of such changes is none.
fn rounding<'a>(changes: impl IntoIterator<Item = &'a f64>) -> f64 {
    ROUNDING * changes.into_iter().fold(0.0, |most: f64, one| most.max(one.abs()))
}

/// Tests signed ranks (Wilcoxon, 1945), with the interval that belongs to it (Tukey, 1949): the sum
/// of the ranks of what rose is the number of means of two changes that are above zero. Means that
/// are zero count for either side, so that equal values make it no bolder.
fn by_signed_ranks(changes: &[f64], level: f64) -> Option<Found> {
    let each = changes.iter().enumerate();
    let mut means: Vec<f64> = each
        .flat_map(|(at, one)| changes[at..].iter().map(move |other| f64::midpoint(*one, *other)))
        .collect();
    let rounding = rounding(changes);
    for mean in means.iter_mut().filter(|mean| mean.abs() <= rounding) {
        *mean = 0.0;
    }
    means.sort_unstable_by(f64::total_cmp);
    let below = chances_of_sums(changes.len());
    let both = |count: usize| (2.0 * below[count.min(below.len() - 1)]).min(1.0);
    let fell = means.iter().filter(|mean| **mean <= 0.0).count();
    let rose = means.iter().filter(|mean| **mean >= 0.0).count();
    // So many means at either end are outside.
    let outside = (0..means.len()).take_while(|&count| both(count) < level).count();
    let at = outside.checked_sub(1)?;
    let interval = (means[at], means[means.len() - 1 - at]);
    Found::new(median(&means)?, interval, both(fell.min(rose)), level)
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
fn by_machines(machines: &[&[f64]], level: f64) -> Option<Found> {
    let means: Vec<f64> =
        machines.iter().map(|one| one.iter().sum::<f64>() / one.len() as f64).collect();
    let mean = means.iter().sum::<f64>() / means.len() as f64;
    let mean = if mean.abs() <= rounding(machines.iter().copied().flatten()) { 0.0 } else { mean };
    let error = deviation(&means) / (means.len() as f64).sqrt();
    let degrees = means.len() - 1;
    let wide = error * student::exceeded_with(level, degrees);
    let p = match (mean == 0.0, error == 0.0) {
        (true, _) => 1.0,
        (false, true) => 0.0,
        (false, false) => student::beyond(mean / error, degrees),
    };
    Found::new(mean, (mean - wide, mean + wide), p, level)
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
    fn few_pairs_and_few_machines_find_what_they_say() {
        let mut rng = Rng::new(6);
        for (machines, each) in [(1, 6), (1, 10), (3, 10), (4, 10)] {
            let mut of = |ratio: f64| -> Vec<Vec<(f64, f64)>> {
                let one = |_| {
                    let own = if machines > 1 { noise(&mut rng, 0.04) } else { 1.0 };
                    pairs(&mut rng, each, ratio * own)
                };
                (0..machines).map(one).collect()
            };
            let said: Vec<f64> =
                (0..200).map(|_| paired(&of(1.0), 0.05).unwrap().least_seen).collect();
            let said = median(&said).unwrap();
            let found = (0..200).filter(|_| paired(&of(1.0 - said), 0.05).unwrap().p < 0.05);
            let found = found.count();
            assert!(found >= 130, "{found} of 200 at {said}, {machines} machines, {each} pairs");
        }
        // Said beforehand.
        let said = (0..200).filter_map(|_| least_seen(&pairs(&mut rng, 5, 1.0), 6));
        let said = median(&said.collect::<Vec<_>>()).unwrap();
        let six =
            (0..200).filter(|_| paired(&[pairs(&mut rng, 6, 1.0 - said)], 0.05).unwrap().p < 0.05);
        let six = six.count();
        assert!(six >= 130, "{six} of 200 at {said}");
        assert!(least_seen(&pairs(&mut rng, 5, 1.0), 1_000).unwrap() < said / 5.0);
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
                let Some(found) = paired(&machines, level) else { continue };
                let Comparison { interval: (low, high), p, ratio, .. } = found;
                assert_eq!(p < level, low > 1.0 || high < 1.0, "{machines:?}: {low} {high} {p}");
                assert!(low <= ratio && ratio <= high);
            }
        }
    }

    #[test]
    fn pairs_without_a_ratio_have_a_difference() {
        let gone = vec![(5.0, 0.0); 10];
        let found = differ(std::slice::from_ref(&gone), 0.05).unwrap();
        assert_eq!((found.difference, found.interval, found.runs), (-5.0, (-5.0, -5.0), (10, 10)));
        assert!(found.p < 0.05 && found.least_seen == 0.0, "{found:?}");
        assert_eq!(differ(&[gone.clone(), gone.clone(), gone], 0.05).unwrap().difference, -5.0);
        let none = differ(&[vec![(0.0, 0.0); 10]], 0.05).unwrap();
        assert_eq!((none.difference, none.p), (0.0, 1.0));
        assert_eq!(differ(&[vec![(0.0, 1.0); 5]], 0.05), None);
        // A small change has a difference as a ratio has one.
        let mut rng = Rng::new(7);
        let of = [pairs(&mut rng, 10, 0.95)];
        let (by_ratio, by_difference) = (paired(&of, 0.05).unwrap(), differ(&of, 0.05).unwrap());
        let share = by_difference.least_seen / by_difference.medians.0 / by_ratio.least_seen;
        assert!((0.8..1.25).contains(&share), "{share}");
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
