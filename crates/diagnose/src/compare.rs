//! Compares two sets of runs: if they differ, and which difference could have been seen.
//!
//! Interval and p come from one test, that of the sum of ranks (Wilcoxon, Mann and Whitney), with
//! the shift and the interval that belong to it (Hodges and Lehmann, 1963): the sum is the number
//! of differences of a value of the second set and one of the first that are above zero. The
//! interval excludes no change exactly where p is below the level. Differences that are zero count
//! for either side, so that equal values make it no bolder.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::{RUNS_FOR_A_CLAIM, median, normal, ranks};

/// Chance of a change being reported where there is none.
pub const P_CHANGE: f64 = 0.05;

/// Most runs of both sets of which the chances are counted out; of more they are as good as normal.
const RUNS_COUNTED: usize = 50;
/// Most steps in which chances of sets with equal values are counted out.
const STEPS_COUNTED: usize = 300_000;
/// Standard errors beyond which a change is, four times out of five, that is so many from zero.
const Z_POWER: f64 = 0.841_621;
/// Steps of logarithms: a smaller difference is the rounding of a ratio of 1.
const STEP: f64 = 1e-12;

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
    /// The second as a ratio to the first: the median of all ratios of two runs, one of each.
    pub ratio: f64,
    /// Interval of the ratio at the level of the comparison: 95 % for [`P_CHANGE`].
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
    /// The second less the first: the median of all differences of two runs, one of each.
    pub difference: f64,
    /// Interval of the difference at the level of the comparison: 95 % for [`P_CHANGE`].
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
/// no ratio. `None` when a set has fewer than [`RUNS_FOR_A_CLAIM`] finite values, and where so few
/// can show nothing at this `level`.
pub fn differ(first: &[f64], second: &[f64], level: f64) -> Option<Difference> {
    let (first, second) = (finite(first), finite(second));
    by_ranks(&first, &second, level)?.as_difference(&first, &second)
}

fn finite(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| value.is_finite()).collect()
}

/// Compares `second` with `first`. `None` when a set has fewer than [`RUNS_FOR_A_CLAIM`] finite
/// values or one that is not above zero, and where so few can show nothing at this `level`:
/// [`differ`] compares sets without a ratio.
pub fn compare(first: &[f64], second: &[f64], level: f64) -> Option<Comparison> {
    let (first, second) = (finite(first), finite(second));
    by_ranks(&logarithms(&first)?, &logarithms(&second)?, level)?.as_ratio(&first, &second)
}

/// Returns the logarithms of values; `None` where one is not above zero.
pub(crate) fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    let logarithm = |value: &f64| (*value > 0.0).then(|| (value.ln() / STEP).round() * STEP);
    values.iter().map(logarithm).collect()
}

/// Returns the change, as a share, that two sets with this noise show four times out of five.
pub fn least_seen(first: &[f64], second: &[f64]) -> Option<f64> {
    compare(first, second, P_CHANGE).map(|found| found.least_seen)
}

/// The answer of a test of a shift, which finds interval and p.
pub(crate) struct Found {
    shift: f64,
    interval: (f64, f64),
    p: f64,
    /// The smallest shift that is seen four times out of five.
    pub(crate) least_seen: f64,
    change: Change,
}

impl Found {
    /// Returns the answer of a test at a level. Half of the interval is so many standard errors; a
    /// shift that is seen four times out of five has some more of them. `None` for numbers near the
    /// largest possible ones, which have no difference that can be written.
    pub(crate) fn new(shift: f64, interval: (f64, f64), p: f64, level: f64) -> Option<Self> {
        let z = normal::exceeded_with(level / 2.0);
        let least_seen = (interval.1 - interval.0) / (2.0 * z) * (z + Z_POWER);
        let is_known = [interval.0, interval.1, least_seen].iter().all(|one| one.is_finite());
        let change = if p < level { Change::Changed } else { Change::NotShown };
        is_known.then_some(Self { shift, interval, p, least_seen, change })
    }

    /// Returns a shift of logarithms as a ratio of two sets.
    pub(crate) fn as_ratio(&self, first: &[f64], second: &[f64]) -> Option<Comparison> {
        let interval = (self.interval.0.exp(), self.interval.1.exp());
        let least_seen = self.least_seen.exp() - 1.0;
        let is_ratio = interval.0 > 0.0 && interval.1.is_finite() && least_seen.is_finite();
        is_ratio.then_some(Comparison {
            medians: (median(first)?, median(second)?),
            ratio: self.shift.exp(),
            interval,
            p: self.p,
            least_seen,
            runs: (first.len(), second.len()),
            change: self.change,
        })
    }

    /// Returns it as a difference of two sets.
    pub(crate) fn as_difference(&self, first: &[f64], second: &[f64]) -> Option<Difference> {
        Some(Difference {
            medians: (median(first)?, median(second)?),
            difference: self.shift,
            interval: self.interval,
            p: self.p,
            least_seen: self.least_seen,
            runs: (first.len(), second.len()),
            change: self.change,
        })
    }
}

fn by_ranks(first: &[f64], second: &[f64], level: f64) -> Option<Found> {
    if first.len().min(second.len()) < RUNS_FOR_A_CLAIM {
        return None;
    }
    let shifts = second.iter().flat_map(|b| first.iter().map(move |a| b - a));
    let mut shifts: Vec<f64> = shifts.collect();
    shifts.sort_unstable_by(f64::total_cmp);
    let both = both_tails(first.len(), second.len());
    // So many shifts at either end are outside.
    let (mut outside, mut not) = (0, shifts.len() / 2 + 1);
    while outside < not {
        let middle = usize::midpoint(outside, not);
        if both(middle) < level { outside = middle + 1 } else { not = middle }
    }
    let at = outside.checked_sub(1)?;
    let interval = (shifts[at], shifts[shifts.len() - 1 - at]);
    let fell = shifts.iter().filter(|shift| **shift <= 0.0).count();
    let rose = shifts.iter().filter(|shift| **shift >= 0.0).count();
    Found::new(median(&shifts)?, interval, both(fell.min(rose)), level)
}

/// Returns the chance that, of so many differences of two sets of which none are equal, at most so
/// many are on one side of zero, whichever.
fn both_tails(first: usize, second: usize) -> impl Fn(usize) -> f64 {
    let (all, runs) = (first * second, first + second);
    let mut below = vec![];
    if runs <= RUNS_COUNTED {
        // Ways to have each number, of which the product of (1 - x^(second + i)) / (1 - x^i) is the
        // generating function.
        below = vec![0.0; all + 1];
        below[0] = 1.0;
        for one in 1..=first {
            (second + one..=all).rev().for_each(|at| below[at] -= below[at - second - one]);
            (one..=all).for_each(|at| below[at] += below[at - one]);
        }
        (1..=all).for_each(|at| below[at] += below[at - 1]);
    }
    let deviation = (all as f64 * (runs + 1) as f64 / 12.0).sqrt();
    move |count| {
        let one = match below.last() {
            Some(ways) => below[count] / ways,
            None => normal::above((all as f64 / 2.0 - count as f64 - 0.5) / deviation),
        };
        (2.0 * one).min(1.0)
    }
}

/// Returns true if so many values of both sets are the same that these differ otherwise than by a
/// shift: a counter that is mostly zero.
pub fn are_mostly_equal(first: &[f64], second: &[f64]) -> bool {
    let same = first.iter().map(|a| second.iter().filter(|b| *b == a).count());
    same.sum::<usize>() * 8 > first.len() * second.len()
}

/// Returns the chance of ranks as far apart as these where the runs could as well be of one set,
/// for values of which many are equal: those share the mean of their ranks.
pub fn chance(first: &[f64], second: &[f64]) -> f64 {
    let groups = groups(first, second);
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let (runs, of_first) = (all.len() as f64, first.len() as f64);
    let expected = of_first * (runs - 1.0) / 2.0;
    let apart = (ranks(&all)[..first.len()].iter().sum::<f64>() - expected).abs();
    if let Some(sums) = sums(&groups, first.len()) {
        let is_as_far = |sum: f64| (sum - expected).abs() >= apart - 1e-9;
        let as_far = sums.iter().filter(|(sum, _)| is_as_far(**sum as f64 / 2.0));
        return as_far.map(|(_, chance)| chance).sum::<f64>().min(1.0);
    }
    // Half a step of the sum is taken off (Lehmann, Nonparametrics, 1975).
    let ties: f64 = groups.iter().map(|(size, _)| (*size as f64).powi(3) - *size as f64).sum();
    let spread = of_first * (runs - of_first) / 12.0;
    let variance = spread * (runs + 1.0 - ties / (runs * (runs - 1.0)));
    (2.0 * normal::above((apart - 0.5).max(0.0) / variance.sqrt())).min(1.0)
}

/// Returns, of the values of both sets together, how many are of each, and twice their rank.
fn groups(first: &[f64], second: &[f64]) -> Vec<(usize, usize)> {
    let mut all: Vec<f64> = first.iter().chain(second).copied().collect();
    all.sort_unstable_by(f64::total_cmp);
    let mut before = 0;
    let group = |group: &[f64]| {
        before += group.len();
        (group.len(), 2 * before - group.len() - 1)
    };
    all.chunk_by(|a, b| a == b).map(group).collect()
}

/// Returns the chance of each sum of twice the ranks of `taken` runs; `None` where that takes too
/// many steps.
fn sums(groups: &[(usize, usize)], taken: usize) -> Option<BTreeMap<usize, f64>> {
    let runs: usize = groups.iter().map(|(size, _)| size).sum();
    let (mut steps, mut states) = (0, 1);
    for (size, _) in groups {
        let of_one = states * (size.min(&taken) + 1);
        (steps, states) = (steps + of_one, of_one.min(taken * taken * runs));
    }
    if steps > STEPS_COUNTED {
        return None;
    }
    // By how many are taken, and their sum.
    let mut chances = BTreeMap::from([((0, 0), 1.0)]);
    let mut left = runs;
    for &(size, rank) in groups {
        left -= size;
        let mut next = BTreeMap::new();
        for ((had, sum), chance) in chances {
            let mut ways = chance;
            for more in 0..=size.min(taken - had) {
                if more > 0 {
                    ways *= (size + 1 - more) as f64 / more as f64;
                }
                if had + more + left >= taken {
                    *next.entry((had + more, sum + more * rank)).or_insert(0.0) += ways;
                }
            }
        }
        chances = next;
    }
    let all: f64 = chances.values().sum();
    Some(chances.into_iter().map(|((_, sum), ways)| (sum, ways / all)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Rng;

    fn set(rng: &mut Rng, runs: usize, middle: f64) -> Vec<f64> {
        let mut normal =
            || (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos();
        (0..runs).map(|_| middle * (1.0 + 0.03 * normal())).collect()
    }

    #[test]
    fn two_sets_of_one_build_differ_no_more_often_than_stated() {
        let mut rng = Rng::new(1);
        let changed = (0..200).filter(|_| {
            let (a, b) = (set(&mut rng, 12, 50.0), set(&mut rng, 12, 50.0));
            compare(&a, &b, P_CHANGE).unwrap().change == Change::Changed
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
        let mut rng = Rng::new(5);
        for recording in recorded() {
            assert!(recording.len() >= 60, "{}", recording.len());
            // Both ways of finding the chance: counted out, and by the normal distribution.
            for runs in [8, 28] {
                let changed = (0..1_000).filter(|_| {
                    let (a, b) = drawn(&recording, runs, &mut rng);
                    compare(&a, &b, P_CHANGE).unwrap().p < P_CHANGE
                });
                let changed = changed.count();
                // 50 are expected; the standard error is 7, of draws from one recording somewhat
                // less. Hardly any would be a test that finds nothing.
                assert!((25..=70).contains(&changed), "{changed} of 1,000, {runs} runs");
            }
        }
    }

    #[test]
    fn five_percent_in_recorded_noise_are_found_or_said_to_be_invisible() {
        let mut rng = Rng::new(4);
        let mut seen = vec![];
        for recording in recorded() {
            let (mut visible, mut found) = (0, 0);
            for _ in 0..40 {
                let (a, b) = drawn(&recording, 20, &mut rng);
                // Before the second set is there: from the first alone.
                if least_seen(&a, &a).unwrap() > 0.05 {
                    continue;
                }
                visible += 1;
                let b: Vec<f64> = b.iter().map(|value| value * 0.95).collect();
                found += u32::from(compare(&a, &b, P_CHANGE).unwrap().p < P_CHANGE);
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
        let mut one = || least_seen(&set(&mut rng, 20, 50.0), &set(&mut rng, 20, 50.0)).unwrap();
        let several: Vec<f64> = (0..100).map(|_| one()).collect();
        let least = median(&several).unwrap();
        // For normal noise of 3 %: 2.8 times 1.02 (of the sum of ranks) times 0.03 times the root
        // of 1/20 + 1/20 is 0.027.
        assert!((0.022..0.033).contains(&least), "{least}");
        let mut seen = |change: f64| {
            let found = (0..50).filter(|_| {
                let (a, b) = (set(&mut rng, 20, 50.0), set(&mut rng, 20, 50.0 * change));
                compare(&a, &b, P_CHANGE).unwrap().change == Change::Changed
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
                let found = chance(&zero, &second);
                let is_it = (found / exact.min(1.0) - 1.0).abs() < 1e-9;
                assert!(is_it, "{runs}, {other}: {found} for {exact}");
                let is_shift = 8 * (runs - other) <= runs;
                assert_eq!(are_mostly_equal(&zero, &second), !is_shift);
            }
        }
        assert!((chance(&[0.0; 20], &[0.0; 20]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn chances_that_are_counted_out_and_normal_ones_meet() {
        let mut rng = Rng::new(8);
        for runs in [16, 20, 60] {
            for _ in 0..100 {
                // An eighth and more of all values are zero.
                let mut one = |most: usize| -> Vec<f64> {
                    (0..runs).map(|_| (rng.below(most) as f64 - 6.0).max(0.0)).collect()
                };
                let (a, b) = (one(40), one(60));
                let all: Vec<f64> = a.iter().chain(&b).copied().collect();
                let (sums, ranks) = (sums(&groups(&a, &b), a.len()), ranks(&all));
                assert_eq!(sums.is_some(), runs == 16, "{runs}");
                // The normal distribution without a correction for equal values, roughly.
                let (n, sum) = (runs as f64, ranks[..runs].iter().sum::<f64>());
                let z = ((sum - n * (n - 0.5)).abs() - 0.5).max(0.0)
                    / (n * n * (2.0 * n + 1.0) / 12.0).sqrt();
                let (found, normal) = (chance(&a, &b), (2.0 * normal::above(z)).min(1.0));
                assert!((found - normal).abs() < 0.03, "{found} {normal}");
            }
        }
    }

    /// Tables of Mann and Whitney (1947): at most 2 of 16 differences of 4 and 4 runs, and so on.
    #[test]
    fn chances_of_counts_are_those_of_the_tables() {
        for (sizes, count, chance) in
            [((4, 4), 0, 1.0 / 70.0), ((5, 4), 2, 4.0 / 126.0), ((8, 8), 13, 0.025)]
        {
            let both = both_tails(sizes.0, sizes.1);
            assert!((both(count) / 2.0 - chance).abs() < 0.001, "{sizes:?}: {}", both(count) / 2.0);
        }
        // Of more runs the normal distribution takes over.
        let z = (312.5 - 200.5) / (625.0 * 51.0 / 12.0f64).sqrt();
        assert!((both_tails(25, 25)(200) / (2.0 * normal::above(z)) - 1.0).abs() < 0.05);
        let z = (325.0 - 210.5) / (650.0 * 52.0 / 12.0f64).sqrt();
        assert!((both_tails(25, 26)(210) / (2.0 * normal::above(z)) - 1.0).abs() < 1e-9);
    }

    /// Whole numbers, of which many are equal, of few runs and of many.
    #[test]
    fn interval_and_p_never_contradict_each_other() {
        let mut rng = Rng::new(9);
        let (mut told, mut differing) = (0, 0);
        for _ in 0..4_000 {
            let wide = 1 + rng.below(40);
            let shift = rng.below(wide + 1);
            let mut one = |from: usize| -> Vec<f64> {
                let runs = [3 + rng.below(6), 4 + rng.below(30)][rng.below(2)];
                (0..runs).map(|_| (from + rng.below(wide)) as f64).collect()
            };
            let (a, b) = (one(50), one(50 + shift));
            for level in [0.05, 0.01, 0.05 / 30.0] {
                if let Some(Comparison { interval: (low, high), p, ratio, change, .. }) =
                    compare(&a, &b, level)
                {
                    assert_eq!(p < level, low > 1.0 || high < 1.0, "{a:?} {b:?}: {low} {high} {p}");
                    assert!(low <= ratio && ratio <= high);
                    (told, differing) =
                        (told + 1, differing + u32::from(change == Change::Changed));
                }
                let (a, b): (Vec<f64>, Vec<f64>) =
                    (a.iter().map(|a| a - 60.0).collect(), b.iter().map(|b| b - 60.0).collect());
                if let Some(Difference { interval: (low, high), p, difference, .. }) =
                    differ(&a, &b, level)
                {
                    assert_eq!(p < level, low > 0.0 || high < 0.0, "{a:?} {b:?}: {low} {high} {p}");
                    assert!(low <= difference && difference <= high);
                }
            }
        }
        assert!(told > 8_000 && (1_000..told - 1_000).contains(&differing), "{told} {differing}");
    }

    #[test]
    fn the_interval_has_the_truth_as_often_as_is_stated() {
        let mut rng = Rng::new(10);
        for runs in [5, 12, 30] {
            let missed = (0..400).filter(|_| {
                let (a, b) = (set(&mut rng, runs, 50.0), set(&mut rng, runs, 47.5));
                let (low, high) = compare(&a, &b, P_CHANGE).unwrap().interval;
                !(low..=high).contains(&0.95)
            });
            // 20 of 400 are expected at most; more than 34 has a chance of 1 in 1,000.
            let missed = missed.count();
            assert!((5..=34).contains(&missed), "{missed} intervals of {runs} runs without it");
        }
    }

    #[test]
    fn the_ratio_is_the_second_to_the_first_with_its_interval() {
        let found =
            compare(&[10.0, 10.0, 10.0, 10.0], &[12.0, 12.0, 12.0, 12.0], P_CHANGE).unwrap();
        assert!((found.ratio - 1.2).abs() < 1e-9 && found.interval == (found.ratio, found.ratio));
        assert_eq!((found.medians, found.runs), ((10.0, 12.0), (4, 4)));
        assert_eq!(found.change, Change::Changed, "p {}", found.p);
    }

    #[test]
    fn too_few_runs_and_values_without_a_ratio_tell_nothing() {
        assert_eq!(compare(&[1.0; 3], &[2.0; 9], P_CHANGE), None);
        assert_eq!(compare(&[0.0; 9], &[2.0; 9], P_CHANGE), None);
        assert_eq!(compare(&[1.0; 9], &[-2.0; 9], P_CHANGE), None);
        // Two sets of four are never rarer than 2 in 70.
        assert_eq!(compare(&[1.0; 4], &[2.0; 4], 0.02), None);
        assert_eq!(compare(&[1.0, f64::NAN, 1.0, 1.0], &[2.0; 9], P_CHANGE), None);
    }

    #[test]
    fn values_without_a_ratio_have_a_difference() {
        let found = differ(&[5.0; 6], &[0.0; 6], P_CHANGE).unwrap();
        assert_eq!((found.difference, found.interval), (-5.0, (-5.0, -5.0)));
        assert_eq!((found.change, found.least_seen), (Change::Changed, 0.0));
        assert_eq!(differ(&[0.0; 6], &[5.0; 6], P_CHANGE).unwrap().difference, 5.0);
        assert_eq!(differ(&[-3.0; 6], &[-4.0; 6], P_CHANGE).unwrap().difference, -1.0);
        let same = differ(&[0.0; 6], &[0.0; 6], P_CHANGE).unwrap();
        assert_eq!((same.difference, same.change), (0.0, Change::NotShown));
        assert_eq!(differ(&[0.0; 3], &[1.0; 6], P_CHANGE), None);
        // For a thousandth of normal noise the interval is as wide as that of a ratio near 1.
        let mut rng = Rng::new(7);
        let (a, b) = (set(&mut rng, 20, 50.0), set(&mut rng, 20, 50.0));
        let (by_ratio, by_difference) =
            (compare(&a, &b, P_CHANGE).unwrap(), differ(&a, &b, P_CHANGE).unwrap());
        let share = by_difference.least_seen / 50.0 / by_ratio.least_seen;
        assert!((0.8..1.25).contains(&share), "{share}");
        // A ratio that overflows is none.
        assert_eq!(compare(&[1e-300; 6], &[1e300; 6], P_CHANGE), None);
        assert_eq!(differ(&[-f64::MAX; 6], &[f64::MAX; 6], P_CHANGE), None);
    }
}
