//! Medians of resamples, drawn without drawing the resamples.

use super::Rng;
use super::quantile::quantile_sorted;

/// Draws what the median of a resample of a sample would be, at a cost that does not grow with the
/// sample.
///
/// A resample of n values is n independent places in the sorted sample, and a place is the whole
/// part of n times a number from the unit interval. So its k-th smallest value stands at the whole
/// part of n times the k-th smallest of n such numbers, which has the beta distribution with the
/// parameters k and n + 1 - k (David and Nagaraja, Order Statistics, 2003, 2.1).
pub(super) struct ResampledMedian {
    sorted: Vec<f64>,
}

impl ResampledMedian {
    /// Prepares draws from `values`, of which there must be one at least.
    pub(super) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self { sorted }
    }

    /// Returns the median of the sample itself.
    pub(super) fn of_sample(&self) -> f64 {
        quantile_sorted(&self.sorted, 0.5).unwrap_or(f64::NAN)
    }

    /// Returns the median of one resample.
    pub(super) fn draw(&self, rng: &mut Rng) -> f64 {
        let n = self.sorted.len();
        let rank = n.div_ceil(2);
        let place = beta(rng, rank, n + 1 - rank);
        let lower = self.at(place);
        if n % 2 == 1 {
            return lower;
        }
        // The other middle one: the least of n - rank numbers that are spread evenly above the
        // first.
        let share = 1.0 - (1.0 - rng.unit()).powf(1.0 / (n - rank) as f64);
        let upper = self.at(place + (1.0 - place) * share);
        quantile_sorted(&[lower, upper], 0.5).unwrap_or(f64::NAN)
    }

    fn at(&self, place: f64) -> f64 {
        let n = self.sorted.len();
        self.sorted[((place * n as f64) as usize).min(n - 1)]
    }
}

/// Returns the share that one gamma-distributed number has of itself and another.
fn beta(rng: &mut Rng, a: usize, b: usize) -> f64 {
    let (a, b) = (gamma(rng, a as f64), gamma(rng, b as f64));
    a / (a + b)
}

/// Returns a number of the gamma distribution of this shape, 1 at least (Marsaglia and Tsang,
/// 2000).
fn gamma(rng: &mut Rng, shape: f64) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - rng.unit()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            return d * v;
        }
    }
}

/// Returns a number of the standard normal distribution (the polar method of Marsaglia and Bray,
/// 1964).
fn normal(rng: &mut Rng) -> f64 {
    loop {
        let (x, y) = (2.0 * rng.unit() - 1.0, 2.0 * rng.unit() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * square.ln() / square).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Returns the share of each median among all resamples of `n` values 0, 1, 2 and so on: every
    /// resample is made.
    fn exactly(n: usize) -> BTreeMap<u64, f64> {
        let all = n.pow(n as u32);
        let mut shares = BTreeMap::new();
        for number in 0..all {
            let mut resample: Vec<f64> =
                (0..n).map(|at| (number / n.pow(at as u32) % n) as f64).collect();
            resample.sort_by(f64::total_cmp);
            let median = quantile_sorted(&resample, 0.5).unwrap();
            *shares.entry((median * 2.0) as u64).or_default() += 1.0 / all as f64;
        }
        shares
    }

    #[test]
    fn medians_come_as_often_as_of_all_resamples() {
        const DRAWS: u32 = 40_000;
        for n in [2, 3, 4, 5] {
            let values: Vec<f64> = (0..n).rev().map(|value| value as f64).collect();
            let (medians, mut rng) = (ResampledMedian::of(&values), Rng::new(n as u64));
            let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
            for _ in 0..DRAWS {
                *seen.entry((medians.draw(&mut rng) * 2.0) as u64).or_default() += 1;
            }
            let expected = exactly(n);
            assert!(seen.keys().all(|median| expected.contains_key(median)), "{n}: {seen:?}");
            for (median, share) in expected {
                let found = f64::from(seen.get(&median).copied().unwrap_or(0)) / f64::from(DRAWS);
                // Five standard deviations of a share of so many draws.
                let margin = 5.0 * (share * (1.0 - share) / f64::from(DRAWS)).sqrt();
                assert!((found - share).abs() <= margin, "{n}, {median}/2: {found}, not {share}");
            }
        }
    }

    #[test]
    fn of_many_values_it_is_spread_as_theory_says() {
        // For n even values on the unit interval the median of a resample has the standard
        // deviation 1 / (2 sqrt n).
        for n in [10_000_usize, 10_001] {
            let values: Vec<f64> = (0..n).map(|value| value as f64 / n as f64).collect();
            let (medians, mut rng) = (ResampledMedian::of(&values), Rng::new(1));
            let drawn: Vec<f64> = (0..20_000).map(|_| medians.draw(&mut rng)).collect();
            let mean = drawn.iter().sum::<f64>() / 20_000.0;
            let spread = drawn.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / 20_000.0;
            assert!((mean - 0.5).abs() < 2e-4, "{mean}");
            assert!((spread.sqrt() / 0.005 - 1.0).abs() < 0.03, "{}", spread.sqrt());
        }
    }
}
