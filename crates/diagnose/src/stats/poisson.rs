//! An upper bound for how often a rare event comes.

/// Returns the mean of the Poisson distribution of which as few as `seen` come in 5 % of all cases:
/// 3.0 for none.
pub fn poisson_bound(seen: f64) -> f64 {
    // Wilson and Hilferty's cube for the quantile of chi squared with 2(n + 1) degrees of freedom,
    // exact for none.
    if seen == 0.0 {
        return -(0.05f64.ln());
    }
    let n = seen + 1.0;
    n * (1.0 - 1.0 / (9.0 * n) + 1.644_853_6 / (3.0 * n.sqrt())).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_half_the_quantile_of_chi_squared() {
        for (seen, exact) in [(0.0, 2.9957), (1.0, 4.7439), (5.0, 10.5130), (100.0, 118.0789)] {
            assert!((poisson_bound(seen) / exact - 1.0f64).abs() < 0.005, "{seen}");
        }
    }
}
