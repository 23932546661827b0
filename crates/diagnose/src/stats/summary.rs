//! A result of several runs in one line, and two such beside each other.

use super::{Bootstrap, Interval, RUNS_FOR_A_CLAIM, mad, median, quantiles};

/// Summary of one result over the valid runs of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Runs that have the result.
    pub n: usize,
    /// Median.
    pub median: f64,
    /// Interval of the median; `None` for fewer than [`RUNS_FOR_A_CLAIM`].
    pub interval: Option<Interval>,
    /// Median absolute deviation.
    pub mad: f64,
    /// Smallest.
    pub min: f64,
    /// Quartiles.
    pub quartiles: (f64, f64),
    /// Largest.
    pub max: f64,
}

/// Ratio of the medians of one result between two groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// median(other) / median(base).
    pub ratio: f64,
    /// Its interval; `None` when a side has fewer than [`RUNS_FOR_A_CLAIM`].
    pub interval: Option<Interval>,
    /// Runs of the side that has fewer.
    pub n: usize,
}

impl Summary {
    /// Sums up the values of valid runs; `None` without any.
    pub fn of(values: &[f64], bootstrap: &Bootstrap) -> Option<Self> {
        let [min, low, median, high, max] = quantiles(values, [0.0, 0.25, 0.5, 0.75, 1.0])?;
        let is_enough = values.len() >= RUNS_FOR_A_CLAIM;
        Some(Self {
            n: values.len(),
            median,
            interval: is_enough.then(|| bootstrap.median(values)).flatten(),
            mad: mad(values)?,
            min,
            quartiles: (low, high),
            max,
        })
    }
}

impl Comparison {
    /// Compares two sides by their values, the base below. `None` when either has no value or the
    /// base's median is not positive. The interval has no upper end where the base was zero too
    /// often.
    pub fn of(above: &[f64], below: &[f64], bootstrap: &Bootstrap) -> Option<Self> {
        let base_median = median(below).filter(|&value| value > 0.0)?;
        let ratio = median(above)? / base_median;
        let n = above.len().min(below.len());
        let is_enough = n >= RUNS_FOR_A_CLAIM;
        let interval = is_enough.then(|| bootstrap.ratio_of_medians(above, below)).flatten();
        Some(Self { ratio, interval, n })
    }

    /// Returns whether there are runs enough for a claim.
    pub fn is_supported(&self) -> bool {
        self.n >= RUNS_FOR_A_CLAIM && self.interval.is_some()
    }

    /// Returns whether the interval excludes 1, and there are runs enough to say so.
    pub fn differs(&self) -> bool {
        self.is_supported()
            && self.interval.is_some_and(|Interval { low, high }| high < 1.0 || low > 1.0)
    }
}
