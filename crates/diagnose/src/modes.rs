//! The groups that the results of equal runs form.
//!
//! Results are split in two where that leaves the least spread within the parts, on a logarithmic
//! scale where all are above zero. The split stands when results without groups are split that well
//! in at most one of a hundred cases (uniform and exponential ones are drawn, the hardest to tell
//! from groups), when each part is large enough, and when neighbouring parts differ by enough to
//! matter. Where it does not stand, a split in three is tried in the same way; where it does, a
//! split of either part.
//!
//! The criterion is that of the optimal one-dimensional k-means (Wang and Song, 2011); the test by
//! simulation takes the place of a table that depends on n.

use serde::{Deserialize, Serialize};

use crate::stats::{Rng, median};

/// Most groups that are looked for.
pub const MODES_MOST: usize = 3;

/// A group has at least this share of the runs.
pub const SHARE_LEAST: f64 = 0.15;

/// Chance of a split where there are no groups.
pub const P_SPLIT: f64 = 0.01;

/// Draws of results without groups; the least p is one in so many and one.
const DRAWS: usize = 999;

/// Options of the search for groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Neighbouring groups whose medians differ by a smaller share are one: 0.03 is 3 %.
    pub least_difference: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { least_difference: 0.03, seed: 0x006d_6f64_6573 }
    }
}

/// One group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Median of its results.
    pub median: f64,
    /// Least and greatest of them.
    pub range: (f64, f64),
    /// Places of its runs in the input, ascending.
    pub members: Vec<usize>,
}

impl Mode {
    /// Returns its share of `runs` runs, 0 to 1.
    pub fn share(&self, runs: usize) -> f64 {
        self.members.len() as f64 / runs.max(1) as f64
    }
}

/// Returns the groups of `values`, lowest first: one to [`MODES_MOST`], none without values.
///
/// Values that are not finite belong to no group. Fewer than eight values are one group: that few
/// prove no more.
pub fn modes(values: &[f64], options: &Options) -> Vec<Mode> {
    let mut order: Vec<usize> = (0..values.len()).filter(|&at| values[at].is_finite()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    if order.is_empty() {
        return vec![];
    }
    let is_ratio = values[order[0]] > 0.0;
    let scaled: Vec<f64> =
        order.iter().map(|&at| if is_ratio { values[at].ln() } else { values[at] }).collect();
    let least = ((SHARE_LEAST * order.len() as f64).ceil() as usize).max(MEMBERS_LEAST);
    let stands = |begin: usize, end: usize, parts: usize| {
        let found = split(&scaled[begin..end], parts, least)?;
        let mut bounds = vec![begin];
        bounds.extend(found.cuts[..parts - 1].iter().map(|cut| begin + cut));
        bounds.push(end);
        let middle = |part: &[usize]| {
            median(&order[part[0]..part[1]].iter().map(|&at| values[at]).collect::<Vec<_>>())
        };
        let middles: Vec<f64> = bounds.windows(2).filter_map(middle).collect();
        let is_apart = middles.windows(2).all(|pair| {
            let scale = pair[0].abs().max(pair[1].abs());
            scale > 0.0 && (pair[1] - pair[0]) / scale >= options.least_difference
        });
        let is_real = is_apart && !is_chance(end - begin, parts, least, found.left, options.seed);
        is_real.then(|| (found.left, bounds[1..bounds.len() - 1].to_vec()))
    };
    let all = order.len();
    let mut ends = match stands(0, all, 2) {
        Some((_, cut)) => {
            let lower = stands(0, cut[0], 2);
            let upper = stands(cut[0], all, 2);
            // At most three: the better of two further splits.
            let further = [lower, upper].into_iter().flatten();
            let better = further.min_by(|a, b| a.0.total_cmp(&b.0));
            [cut, better.map_or(vec![], |(_, cut)| cut)].concat()
        }
        None => stands(0, all, MODES_MOST).map_or(vec![], |(_, cuts)| cuts),
    };
    ends.push(all);
    ends.sort_unstable();
    let mut begin = 0;
    let group = |end: usize| {
        let mut members = order[begin..end].to_vec();
        let range = (values[members[0]], values[members[members.len() - 1]]);
        let results: Vec<f64> = members.iter().map(|&at| values[at]).collect();
        members.sort_unstable();
        begin = end;
        Mode { median: median(&results).unwrap_or(range.0), range, members }
    };
    ends.into_iter().map(group).collect()
}

/// Fewest values that are split.
const VALUES_LEAST: usize = 8;

/// Fewest members of a group.
const MEMBERS_LEAST: usize = 3;

/// The best split of ascending values.
struct Split {
    /// Spread that is left within the parts, as a share of the whole.
    left: f64,
    /// Places where the second and the third part begin. The third is valid only where three parts
    /// were asked for.
    cuts: [usize; 2],
}

/// Returns the best split of ascending `values` in `parts` (2 or 3), each with at least `least` of
/// them.
fn split(values: &[f64], parts: usize, least: usize) -> Option<Split> {
    let n = values.len();
    if n < VALUES_LEAST || n < parts * least {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let whole: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if whole <= 0.0 {
        return None;
    }
    let mut sums = Vec::with_capacity(n + 1);
    sums.push(0.0);
    values.iter().fold(0.0, |sum, value| {
        sums.push(sum + value - mean);
        sum + value - mean
    });
    // The spread between parts: for each the square of its sum about the mean of all, divided by
    // its size.
    let of = |begin: usize, end: usize| (sums[end] - sums[begin]).powi(2) / (end - begin) as f64;
    let mut best = (f64::NEG_INFINITY, [0; 2]);
    for first in least..=n - (parts - 1) * least {
        if parts == 2 {
            let between = of(0, first) + of(first, n);
            best = if between > best.0 { (between, [first, n]) } else { best };
            continue;
        }
        for second in first + least..=n - least {
            let between = of(0, first) + of(first, second) + of(second, n);
            best = if between > best.0 { (between, [first, second]) } else { best };
        }
    }
    Some(Split { left: (1.0 - best.0 / whole).max(0.0), cuts: best.1 })
}

/// Returns true if `n` values without groups leave as little as `left` in more than [`P_SPLIT`] of
/// all cases.
fn is_chance(n: usize, parts: usize, least: usize, left: f64, seed: u64) -> bool {
    // More values than this make chance no smaller, and a split in three takes time with the square
    // of them.
    let (n, least) = (n.min(VALUES_DRAWN), least.min(VALUES_DRAWN / 8));
    let most = (P_SPLIT * (DRAWS + 1) as f64) as usize - 1;
    let families: [fn(f64) -> f64; 2] = [|unit| unit, |unit| -(1.0 - unit).ln()];
    families.into_iter().any(|family| {
        let mut rng = Rng::new(seed);
        let mut drawn = vec![0.0; n];
        let as_good = (0..DRAWS).filter(|_| {
            drawn.iter_mut().for_each(|value| *value = family(rng.unit()));
            drawn.sort_by(f64::total_cmp);
            split(&drawn, parts, least).is_some_and(|by_chance| by_chance.left <= left)
        });
        as_good.take(most + 1).count() > most
    })
}

/// Values drawn at most.
const VALUES_DRAWN: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(rng: &mut Rng) -> f64 {
        (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
    }

    fn sizes(values: &[f64]) -> Vec<usize> {
        modes(values, &Options::default()).iter().map(|mode| mode.members.len()).collect()
    }

    #[test]
    fn two_and_three_groups_are_found_with_their_runs() {
        let mut rng = Rng::new(1);
        // As iperf's runs on eight CPUs: 870 and 1360 Mb/s.
        let values: Vec<f64> = (0..24)
            .map(|run| if run % 3 == 0 { 870.0 } else { 1360.0 } * (1.0 + 0.02 * normal(&mut rng)))
            .collect();
        let found = modes(&values, &Options::default());
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].members, (0..24).step_by(3).collect::<Vec<_>>());
        assert!((found[0].share(24) - 1.0 / 3.0).abs() < 1e-12);
        assert!((850.0..890.0).contains(&found[0].median) && found[0].range.1 < found[1].range.0);
        let three: Vec<f64> = (0..30)
            .map(|run| [10.0, 20.0, 40.0][run % 3] * (1.0 + 0.03 * normal(&mut rng)))
            .collect();
        assert_eq!(sizes(&three), [10, 10, 10]);
    }

    #[test]
    fn results_without_groups_are_split_no_more_often_than_stated() {
        let mut rng = Rng::new(2);
        type Draw = fn(&mut Rng) -> f64;
        let families: [(&str, Draw); 4] = [
            ("normal", |rng| 100.0 + 10.0 * normal(rng)),
            ("uniform", |rng| 50.0 + 100.0 * rng.unit()),
            ("lognormal", |rng| (0.5 * normal(rng)).exp()),
            ("with outliers", |rng| if rng.unit() < 0.02 { 300.0 } else { 100.0 + normal(rng) }),
        ];
        for (name, draw) in families {
            for n in [10, 20, 40] {
                let split = (0..200).filter(|_| {
                    let values: Vec<f64> = (0..n).map(|_| draw(&mut rng)).collect();
                    sizes(&values).len() > 1
                });
                let split = split.count();
                // 1 % of 200 is 2; more than 7 has a chance of 1 in 1,000.
                assert!(split <= 7, "{name}, {n} values: {split} of 200");
            }
        }
    }

    #[test]
    fn groups_that_differ_by_little_are_one() {
        let values: Vec<f64> = (0..20).map(|run| if run < 10 { 100.0 } else { 102.0 }).collect();
        assert_eq!(sizes(&values), [20]);
        let finer = Options { least_difference: 0.01, ..Options::default() };
        assert_eq!(modes(&values, &finer).len(), 2);
    }

    #[test]
    fn few_or_equal_values_are_one_group_and_what_is_no_number_is_in_none() {
        assert!(modes(&[f64::NAN], &Options::default()).is_empty());
        assert_eq!(sizes(&[1.0, 9.0, 1.0, 9.0, 1.0, 9.0, 9.0]), [7]);
        assert_eq!(sizes(&[5.0; 30]), [30]);
        let mut values = vec![1.0; 10];
        values.extend([9.0; 10]);
        values.push(f64::INFINITY);
        assert_eq!(sizes(&values), [10, 10]);
        let negative: Vec<f64> = values.iter().map(|value| value - 5.0).collect();
        assert_eq!(sizes(&negative), [10, 10]);
    }
}
