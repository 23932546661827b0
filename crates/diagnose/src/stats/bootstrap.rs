//! Percentile bootstrap intervals (Efron and Tibshirani, 1993), seeded.

use super::Rng;
use super::quantile::quantile_sorted;
use super::resampled::ResampledMedian;

/// An interval that holds the true value with the stated confidence, as far as the runs are
/// independent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Settings of the resampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// Resamples taken.
    pub resamples: usize,
    /// Share of resamples inside the interval, 0 to 1.
    pub confidence: f64,
    /// Seed; the same one gives the same interval.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 10_000, confidence: 0.95, seed: 0x006d_696c_6c73 }
    }
}

impl Bootstrap {
    /// Returns the interval of the median; `None` for fewer than two values: one run says nothing
    /// about the distance of two.
    pub fn median(&self, values: &[f64]) -> Option<Interval> {
        if values.len() < 2 {
            return None;
        }
        let (medians, mut rng) = (ResampledMedian::of(values), Rng::new(self.seed));
        self.ends((0..self.resamples).map(|_| medians.draw(&mut rng)).collect())
    }

    /// Returns the interval of the difference mean(`of`) - mean(`less`), both sides resampled on
    /// their own; `None` for fewer than two values of a side.
    pub fn difference_of_means(&self, of: &[f64], less: &[f64]) -> Option<Interval> {
        self.of_means(of, less, |of, less| of - less)
    }

    /// Returns the interval of the ratio mean(`above`) / mean(`below`), likewise; `None`, too, when
    /// `below` has a negative value or a mean of zero. A resample of zeros alone has an infinite
    /// ratio.
    pub fn ratio_of_means(&self, above: &[f64], below: &[f64]) -> Option<Interval> {
        let is_base = below.iter().all(|&value| value >= 0.0) && mean_of(below) > 0.0;
        is_base.then(|| self.of_means(above, below, |above, below| above / below)).flatten()
    }

    fn of_means(
        &self,
        one: &[f64],
        other: &[f64],
        statistic: impl Fn(f64, f64) -> f64,
    ) -> Option<Interval> {
        if one.len().min(other.len()) < 2 {
            return None;
        }
        let mut rng = Rng::new(self.seed);
        let mut mean = |values: &[f64]| {
            let drawn = (0..values.len()).map(|_| values[rng.below(values.len())]);
            drawn.sum::<f64>() / values.len() as f64
        };
        self.ends((0..self.resamples).map(|_| statistic(mean(one), mean(other))).collect())
    }

    /// Returns the interval of the ratio median(`above`) / median(`below`), both sides resampled on
    /// their own; `None` when a side has fewer than two values, or when `below` has a negative one
    /// or a median of zero.
    ///
    /// Where some values of `below` are zero, a resample of them may have that median: then the
    /// ratio has no upper limit, and with zero above, too, it may be anything.
    pub fn ratio_of_medians(&self, above: &[f64], below: &[f64]) -> Option<Interval> {
        if above.len() < 2 || below.len() < 2 || below.iter().any(|&value| value < 0.0) {
            return None;
        }
        let (upper, lower) = (ResampledMedian::of(above), ResampledMedian::of(below));
        let is_base = lower.of_sample() > 0.0;
        if !is_base {
            return None;
        }
        let mut rng = Rng::new(self.seed);
        let drawn = (0..self.resamples).map(|_| upper.draw(&mut rng) / lower.draw(&mut rng));
        let drawn: Vec<f64> = drawn.collect();
        let with = |anything: f64| {
            let one = |&ratio: &f64| if ratio.is_nan() { anything } else { ratio };
            drawn.iter().map(one).collect::<Vec<f64>>()
        };
        let least = self.ends(with(0.0))?;
        if drawn.iter().all(|ratio| !ratio.is_nan()) {
            return Some(least);
        }
        let most = self.ends(with(f64::INFINITY))?;
        Some(Interval { high: most.high, ..least })
    }

    /// Returns the interval of a statistic of rounds, each drawn with all it has; `None` for fewer
    /// than two rounds.
    pub fn interval_of_rounds(
        &self,
        rounds: &[Vec<f64>],
        statistic: impl Fn(&[Vec<f64>]) -> f64,
    ) -> Option<Interval> {
        if rounds.len() < 2 {
            return None;
        }
        let mut rng = Rng::new(self.seed);
        let mut resample = rounds.to_vec();
        let drawn = (0..self.resamples).map(|_| {
            for place in &mut resample {
                place.clone_from(&rounds[rng.below(rounds.len())]);
            }
            statistic(&resample)
        });
        self.ends(drawn.collect())
    }

    fn ends(&self, mut drawn: Vec<f64>) -> Option<Interval> {
        drawn.retain(|value| !value.is_nan());
        drawn.sort_by(f64::total_cmp);
        let tail = (1.0 - self.confidence.clamp(0.0, 1.0)) / 2.0;
        Some(Interval {
            low: quantile_sorted(&drawn, tail)?,
            high: quantile_sorted(&drawn, 1.0 - tail)?,
        })
    }
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chance that the median of a resample of 5 distinct values is at most the k-th smallest:
    /// at least 3 of 5 draws fall among the k smallest.
    fn at_most(k: u32) -> f64 {
        let p = f64::from(k) / 5.0;
        let choose = [1.0, 5.0, 10.0, 10.0, 5.0, 1.0];
        (3..=5).map(|n: i32| choose[n as usize] * p.powi(n) * (1.0 - p).powi(5 - n)).sum()
    }

    #[test]
    fn the_interval_of_five_values_is_the_exact_one() {
        // P(median <= smallest) = 0.058 > 2.5 %: the exact interval at 95 % is the whole range, and
        // at 80 % it lies between the second and the fourth (0.058 < 10 % < 0.317).
        assert!((at_most(1) - 0.057_92).abs() < 1e-9 && (at_most(2) - 0.317_44).abs() < 1e-9);
        let values = [10.0, 30.0, 20.0, 50.0, 40.0];
        let interval =
            |confidence| Bootstrap { confidence, ..Bootstrap::default() }.median(&values).unwrap();
        assert_eq!(interval(0.95), Interval { low: 10.0, high: 50.0 });
        assert_eq!(interval(0.80), Interval { low: 20.0, high: 40.0 });
    }

    #[test]
    fn equal_input_gives_equal_output() {
        let values: Vec<f64> = (0..15).map(|n| f64::from(n * n)).collect();
        let bootstrap = Bootstrap::default();
        assert_eq!(bootstrap.median(&values), bootstrap.median(&values));
        let other = Bootstrap { seed: 1, resamples: 500, ..bootstrap };
        assert!(other.median(&values).is_some());
    }

    #[test]
    fn a_ratio_without_spread_is_exact() {
        let ratio = Bootstrap::default().ratio_of_medians(&[4.0; 5], &[8.0; 5]);
        assert_eq!(ratio, Some(Interval { low: 0.5, high: 0.5 }));
    }

    #[test]
    fn a_ratio_covers_the_true_one_about_as_often_as_it_says() {
        // Two exponential-like samples of 15 with true ratio 1, 300 times; percentile intervals of
        // medians are somewhat generous at this size.
        let mut rng = Rng::new(42);
        let mut sample = || -> Vec<f64> {
            (0..15)
                .map(|_| 1.0 - ((rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64).ln_1p() * 0.2)
                .collect()
        };
        let bootstrap = Bootstrap { resamples: 400, ..Bootstrap::default() };
        let covered = (0..300).filter(|_| {
            let interval = bootstrap.ratio_of_medians(&sample(), &sample()).unwrap();
            interval.low <= 1.0 && 1.0 <= interval.high
        });
        let covered = covered.count();
        assert!((276..=300).contains(&covered), "{covered} of 300");
    }

    #[test]
    fn a_ratio_of_means_is_of_the_sums() {
        let interval = Bootstrap::default().ratio_of_means(&[1.0, 3.0], &[4.0, 4.0]);
        assert_eq!(interval, Some(Interval { low: 0.25, high: 0.75 }));
        assert_eq!(Bootstrap::default().ratio_of_means(&[1.0, 3.0], &[0.0, 0.0]), None);
    }

    #[test]
    fn too_little_gives_no_interval() {
        let bootstrap = Bootstrap::default();
        assert_eq!(bootstrap.median(&[1.0]), None);
        assert_eq!(bootstrap.median(&[]), None);
        assert_eq!(bootstrap.ratio_of_medians(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(bootstrap.ratio_of_medians(&[1.0, 2.0], &[0.0, 0.0]), None);
        assert_eq!(bootstrap.ratio_of_medians(&[1.0, 2.0], &[-1.0, 9.0]), None);
    }

    #[test]
    fn a_base_that_is_zero_at_times_leaves_the_ratio_open_above() {
        let bootstrap = Bootstrap::default();
        // The median of five draws is one of the three zeros of seven in a third of all resamples.
        let below = [0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0];
        let ratio = bootstrap.ratio_of_medians(&[3.0; 7], &below);
        assert_eq!(ratio, Some(Interval { low: 1.5, high: f64::INFINITY }));
        let nothing = bootstrap.ratio_of_medians(&[0.0; 7], &below);
        assert_eq!(nothing, Some(Interval { low: 0.0, high: f64::INFINITY }));
        // One zero of nine hardly ever is the median.
        let below = [0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0];
        let ratio = bootstrap.ratio_of_medians(&[3.0; 9], &below);
        assert_eq!(ratio, Some(Interval { low: 1.5, high: 1.5 }));
    }
}
