//! Histograms by powers of two: their quantiles, and how far two sets of them lie from each other.
//!
//! A value is known to a factor of two only, so a distance is told in powers of two: 1 is twice as
//! much.

use serde::{Deserialize, Serialize};

use crate::stats::{Bootstrap, Interval, RUNS_FOR_A_CLAIM, Rng};

/// Deals of all runs into two sets anew.
const DEALS: usize = 1_999;
/// Deals as far apart, after which their share says enough (Besag and Clifford, 1991).
const ENOUGH: usize = 50;
/// Draws of an interval.
const RESAMPLES: usize = 1_000;
/// Quantiles that are compared.
pub const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// A histogram by powers of two: least value of a bucket, and how many values lay in it. Buckets
/// are in order, those with nothing may be missing.
pub type Buckets = [(u64, u64)];

/// Distance of the second of two sets of histograms from the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    /// Powers of two by which the second set's values are larger in the mean: 1 is twice as much,
    /// below zero is less.
    pub powers: f64,
    /// Its 95 % interval, by the bootstrap over runs.
    pub interval: (f64, f64),
    /// Powers of two by which values have to be moved in the mean to make one histogram the other
    /// (the earth mover's distance): more than `powers` where some became larger and some smaller.
    pub moved: f64,
    /// Chance of having to move as much where the runs could as well be of one set.
    pub p: f64,
    /// For each of [`QUANTILES`] the least value of the bucket where it lies in either set.
    pub quantiles: Vec<(u64, u64)>,
    /// Runs of each set that have values.
    pub runs: (usize, usize),
}

/// Returns the least value of the bucket where the quantile `q` lies; `None` of an empty histogram.
pub fn quantile(histogram: &Buckets, q: f64) -> Option<u64> {
    let all: u64 = histogram.iter().map(|(_, count)| count).sum();
    let wanted = (all as f64 * q).ceil().max(1.0) as u64;
    let mut seen = 0;
    let reaches = |&&(_, count): &&(u64, u64)| {
        seen += count;
        seen >= wanted
    };
    histogram.iter().find(reaches).map(|(least, _)| *least)
}

/// Returns the number of powers of two by which the values of one histogram have to be moved in the
/// mean to make it the other (the earth mover's distance); 0 where one is empty.
pub fn moved(one: &Buckets, other: &Buckets) -> f64 {
    shares(one).zip(shares(other)).map_or(0.0, |(one, other)| distance(&one, &other))
}

/// Compares two sets of histograms, one for each run; every run counts the same, however many
/// values it has. `None` where fewer than [`RUNS_FOR_A_CLAIM`] runs of a set have values. The same
/// `seed` gives the same answer.
pub fn shift<H: AsRef<Buckets>>(first: &[H], second: &[H], seed: u64) -> Option<Shift> {
    let shares =
        |set: &[H]| -> Vec<Shares> { set.iter().filter_map(|one| shares(one.as_ref())).collect() };
    let (one, two) = (shares(first), shares(second));
    if one.len().min(two.len()) < RUNS_FOR_A_CLAIM {
        return None;
    }
    let mean = |set: &[Shares]| set.iter().map(mean_power).sum::<f64>() / set.len() as f64;
    let powers = mean(&two) - mean(&one);
    let (low, high) = interval(&one, &two, seed)?;
    let quantiles = QUANTILES.iter().filter_map(|&q| Some((pooled(&one, q)?, pooled(&two, q)?)));
    Some(Shift {
        powers,
        interval: (low, high),
        moved: distance(&sum(&one), &sum(&two)),
        p: chance(&one, &two, seed),
        quantiles: quantiles.collect(),
        runs: (one.len(), two.len()),
    })
}

/// Places of powers of two: 0, 1, 2 to 3, and so on.
const PLACES: usize = 65;

/// The share of the values at each place.
type Shares = [f64; PLACES];

/// Returns the place of a bucket by its least value.
fn place(least: u64) -> usize {
    (u64::BITS - least.leading_zeros()) as usize
}

fn shares(histogram: &Buckets) -> Option<Shares> {
    let all: u64 = histogram.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return None;
    }
    let mut shares = [0.0; PLACES];
    for &(least, count) in histogram {
        shares[place(least)] += count as f64 / all as f64;
    }
    Some(shares)
}

/// Returns the mean of all runs.
fn sum(set: &[Shares]) -> Shares {
    let mut sum = [0.0; PLACES];
    for one in set {
        sum.iter_mut().zip(one).for_each(|(sum, share)| *sum += share / set.len() as f64);
    }
    sum
}

fn mean_power(shares: &Shares) -> f64 {
    shares.iter().enumerate().map(|(place, share)| place as f64 * share).sum()
}

/// Returns the area between both distribution functions.
fn distance(one: &Shares, two: &Shares) -> f64 {
    let mut apart = 0.0f64;
    let steps = one.iter().zip(two).map(|(one, two)| {
        apart += two - one;
        apart.abs()
    });
    steps.sum()
}

/// Returns the least value of the bucket where the quantile of the mean of all runs lies.
fn pooled(set: &[Shares], q: f64) -> Option<u64> {
    let mut seen = 0.0;
    let at = sum(set).iter().position(|share| {
        seen += share;
        // Shares of 1 over n do not add up to 1 exactly.
        seen >= q - 1e-9
    })?;
    Some(if at == 0 { 0 } else { 1 << (at - 1) })
}

/// Returns the interval of the difference of the mean powers, each set drawn on its own.
fn interval(one: &[Shares], two: &[Shares], seed: u64) -> Option<(f64, f64)> {
    let means = |set: &[Shares]| set.iter().map(mean_power).collect::<Vec<f64>>();
    let bootstrap = Bootstrap { resamples: RESAMPLES, seed, ..Bootstrap::default() };
    let Interval { low, high } = bootstrap.difference_of_means(&means(two), &means(one))?;
    Some((low, high))
}

/// Deals the runs of both sets anew, and looks how often they lie as far apart.
fn chance(one: &[Shares], two: &[Shares], seed: u64) -> f64 {
    let mut all: Vec<&Shares> = one.iter().chain(two).collect();
    let runs = all.len();
    let total: Shares = sum(&all.iter().map(|one| **one).collect::<Vec<_>>());
    let apart = |dealt: &[&Shares]| {
        // The other set is what is left: its mean follows from that of all.
        let (mine, rest) = (dealt.len() as f64, (runs - dealt.len()) as f64);
        let (mut first, mut second) = ([0.0; PLACES], [0.0; PLACES]);
        for place in 0..PLACES {
            let dealt_sum: f64 = dealt.iter().map(|shares| shares[place]).sum();
            first[place] = dealt_sum / mine;
            second[place] = (total[place] * (mine + rest) - dealt_sum) / rest;
        }
        distance(&first, &second)
    };
    let seen = apart(&all[..one.len()]);
    let (mut rng, mut as_far) = (Rng::new(seed), 0);
    for deal in 1..=DEALS {
        for at in 0..one.len() {
            let other = at + rng.below(all.len() - at);
            all.swap(at, other);
        }
        as_far += usize::from(apart(&all[..one.len()]) >= seen - 1e-9);
        if as_far == ENOUGH {
            return ENOUGH as f64 / deal as f64;
        }
    }
    (as_far + 1) as f64 / (DEALS + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Histograms of so many values each, around a power of two, with the noise of `rng`.
    fn set(rng: &mut Rng, runs: usize, middle: u32, values: u64) -> Vec<Vec<(u64, u64)>> {
        let one = |rng: &mut Rng| {
            let lower = 200 + rng.below(100) as u64;
            let upper = 200 + rng.below(100) as u64;
            let (low, high) = (values * lower / 1_000, values * upper / 1_000);
            vec![
                (1 << (middle - 1), low),
                (1 << middle, values - low - high),
                (1 << (middle + 1), high),
            ]
        };
        (0..runs).map(|_| one(rng)).collect()
    }

    #[test]
    fn quantiles_are_buckets() {
        let histogram = [(0, 1), (4, 2), (1024, 1)];
        assert_eq!(
            [0.0, 0.25, 0.5, 0.75, 0.76, 1.0].map(|q| quantile(&histogram, q)),
            [Some(0), Some(0), Some(4), Some(4), Some(1024), Some(1024)]
        );
        assert!((moved(&histogram, &[(4, 1)]) - (3.0 + 8.0) / 4.0).abs() < 1e-9);
        assert_eq!((quantile(&[], 0.5), quantile(&[(4, 0)], 0.5)), (None, None));
    }

    #[test]
    fn twice_as_much_is_one_power_however_many_values_a_run_has() {
        let mut rng = Rng::new(1);
        let (mut one, two) = (set(&mut rng, 8, 10, 1_000), set(&mut rng, 8, 11, 50));
        one[0] = one[0].iter().map(|(least, count)| (*least, count * 1_000)).collect();
        let found = shift(&one, &two, 1).unwrap();
        assert!((found.powers - 1.0).abs() < 0.1 && (found.moved - found.powers).abs() < 1e-9);
        assert!(found.interval.0 < found.powers && found.powers < found.interval.1);
        assert!(found.interval.0 > 0.8 && found.p < 0.01, "{found:?}");
        assert_eq!((found.quantiles[0], found.runs), ((1024, 2048), (8, 8)));
    }

    /// The mean stays, and half of the values lie on either side of where they all lay: the mean
    /// alone would not tell.
    #[test]
    fn what_became_wider_is_seen_by_what_has_to_be_moved() {
        let narrow = vec![vec![(1 << 10, 100)]; 8];
        let wide = vec![vec![(1 << 8, 50), (1 << 12, 50)]; 8];
        let found = shift(&narrow, &wide, 1).unwrap();
        assert!(found.powers.abs() < 1e-9 && (found.moved - 2.0).abs() < 1e-9, "{found:?}");
        assert!(found.p < 0.01);
    }

    #[test]
    fn sets_of_one_kind_differ_no_more_often_than_stated_and_intervals_hold_zero() {
        let mut rng = Rng::new(7);
        let (mut named, mut held) = (0, 0);
        for seed in 0..100 {
            let (one, two) = (set(&mut rng, 6, 10, 1_000), set(&mut rng, 6, 10, 1_000));
            let found = shift(&one, &two, seed).unwrap();
            named += usize::from(found.p < 0.05);
            held += usize::from(found.interval.0 <= 0.0 && 0.0 <= found.interval.1);
        }
        // 5 are expected; more than 13 has a chance of 1 in 2,000.
        assert!(named <= 13, "{named} of 100");
        // Percentile intervals of six runs are somewhat narrow.
        assert!(held >= 83, "{held} of 100");
    }

    #[test]
    fn too_few_runs_with_values_tell_nothing() {
        let full: &Buckets = &[(1, 5)];
        let empty: &Buckets = &[(1, 0)];
        assert_eq!(shift(&[full; 3], &[full; 9], 1), None);
        assert_eq!(shift(&[full, full, full, empty], &[full; 9], 1), None);
        let same = shift(&[full; 4], &[full; 4], 1).unwrap();
        assert!((same.p - 1.0).abs() < 1e-9 && same.interval == (0.0, 0.0), "{same:?}");
    }
}
