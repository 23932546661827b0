//! The functions that have a larger share of the time with many threads than with few.
//!
//! The rise of each is measured in its standard error. How often chance alone gives the largest
//! rise of *all* functions is found by exchanging the runs between both sides (the single-step
//! max-T of Westfall and Young, 1993): four runs a side can show a rise, however many functions
//! were looked at.

use crate::separate::{EXCHANGES, P_SHOWN};
use crate::stats::Rng;

/// Returns true for each function whose rise is shown. `shares` has for each the share in each run,
/// `is_many` is true for runs with many threads, and `resolution` is the share that one sample is
/// of a run.
pub(super) fn risen(
    shares: &[Vec<f64>],
    is_many: &[bool],
    resolution: f64,
    seed: u64,
) -> Vec<bool> {
    let own: Vec<f64> = shares.iter().map(|of| rise(of, is_many, resolution)).collect();
    let mut as_large = vec![0; own.len()];
    let (mut exchanged, mut rng) = (is_many.to_vec(), Rng::new(seed));
    for _ in 0..EXCHANGES {
        rng.shuffle(&mut exchanged);
        let rises = shares.iter().map(|of| rise(of, &exchanged, resolution));
        let largest = rises.fold(f64::NEG_INFINITY, f64::max);
        for (count, own) in as_large.iter_mut().zip(&own) {
            // Sums of the same numbers in another order differ in their last digits.
            *count += usize::from(largest >= own - 1e-9);
        }
    }
    let p = |count: usize| (count + 1) as f64 / (EXCHANGES + 1) as f64;
    as_large.into_iter().map(|count| p(count) < P_SHOWN).collect()
}

/// Returns the number of standard errors by which the mean is higher with many threads. One sample
/// more or less is no difference, which keeps a share that is the same in all runs from having no
/// error at all.
fn rise(shares: &[f64], is_many: &[bool], resolution: f64) -> f64 {
    let side = |many: bool| {
        let those = || shares.iter().zip(is_many).filter(|one| *one.1 == many).map(|one| *one.0);
        let n = those().count() as f64;
        let mean = those().sum::<f64>() / n;
        let variance = those().map(|share| (share - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, variance / n)
    };
    let ((few, few_error), (many, many_error)) = (side(false), side(true));
    (many - few) / ((few_error + many_error).sqrt() + resolution)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: [bool; 8] = [false, false, false, false, true, true, true, true];

    #[test]
    fn a_rise_is_shown_by_four_runs_a_side_among_many_others() {
        let mut rng = Rng::new(1);
        let mut noise = |high: f64| -> Vec<f64> {
            let one = |is_many: &bool| if *is_many { high } else { 0.1 };
            FOUR.iter().map(|is_many| one(is_many) + 0.01 * rng.unit()).collect()
        };
        let mut shares: Vec<Vec<f64>> = (0..30).map(|_| noise(0.1)).collect();
        shares.push(noise(0.2));
        // One that falls has not risen.
        shares.push(noise(0.05));
        let found = risen(&shares, &FOUR, 0.001, 1);
        let shown: Vec<usize> = (0..found.len()).filter(|at| found[*at]).collect();
        assert_eq!(shown, [30]);
    }

    #[test]
    fn less_than_a_sample_is_no_rise() {
        let shares = [vec![0.1, 0.1, 0.1, 0.1, 0.1001, 0.1001, 0.1001, 0.1001]];
        assert!(rise(&shares[0], &FOUR, 0.001) < 0.2);
        let none = [vec![0.0; 8], vec![0.3; 8]];
        assert_eq!(risen(&none, &FOUR, 0.001, 1), [false, false]);
    }
}
