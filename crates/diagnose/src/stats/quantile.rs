//! Order statistics.

/// Returns the quantile `p` (0 to 1) of the finite values, linear between neighbours: type 7 of
/// Hyndman and Fan (1996), the default of R and NumPy. `None` without a finite value.
pub fn quantile(values: &[f64], p: f64) -> Option<f64> {
    quantiles(values, [p]).map(|[value]| value)
}

/// Returns several quantiles at once; `None` without a finite value.
pub fn quantiles<const N: usize>(values: &[f64], p: [f64; N]) -> Option<[f64; N]> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| p.map(|p| quantile_sorted(&sorted, p).unwrap_or(f64::NAN)))
}

/// Returns the same of values in ascending order, which may end in infinite ones.
pub(super) fn quantile_sorted(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = p.clamp(0.0, 1.0) * last as f64;
    let below = (at.floor() as usize).min(last);
    let above = (below + 1).min(last);
    // Exact at the ends, so that equal neighbours give their own value.
    let (low, high, share) = (sorted[below], sorted[above], at - below as f64);
    Some(if low == high || share == 0.0 { low } else { low + (high - low) * share })
}

/// Returns the median of the finite values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the median absolute deviation from the median, not scaled.
pub fn mad(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let distances: Vec<f64> =
        values.iter().filter(|v| v.is_finite()).map(|value| (value - middle).abs()).collect();
    median(&distances)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_r() {
        // quantile(c(1, 3, 4, 8, 15), c(.1, .25, .5, .9)) in R, type 7.
        let values = [15.0, 1.0, 8.0, 3.0, 4.0];
        for (p, expected) in
            [(0.0, 1.0), (0.1, 1.8), (0.25, 3.0), (0.5, 4.0), (0.9, 12.2), (1.0, 15.0)]
        {
            assert!((quantile(&values, p).unwrap() - expected).abs() < 1e-12, "{p}");
        }
    }

    #[test]
    fn median_and_deviation_of_the_textbook() {
        // Example of the median absolute deviation: 1, 1, 2, 2, 4, 6, 9 has median 2 and MAD 1.
        let values = [1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0];
        assert_eq!((median(&values), mad(&values)), (Some(2.0), Some(1.0)));
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
    }

    #[test]
    fn what_is_no_number_does_not_count() {
        assert_eq!(median(&[f64::NAN, 3.0, f64::INFINITY]), Some(3.0));
        assert_eq!(median(&[]), None);
        assert_eq!(mad(&[f64::NAN]), None);
    }
}
