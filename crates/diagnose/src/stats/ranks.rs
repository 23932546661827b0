//! Ranks, and how far two orders agree.

/// Returns the rank of each value, 0 the lowest; equal values share the mean of their ranks.
///
/// Values that are no number rank as `f64::total_cmp` orders them; callers leave them out.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let same = |&&at: &&usize| values[at] == values[order[first]];
        let count = order[first..].iter().take_while(same).count().max(1);
        let shared = first as f64 + (count - 1) as f64 / 2.0;
        order[first..first + count].iter().for_each(|&at| ranks[at] = shared);
        first += count;
    }
    ranks
}

/// Returns Pearson's correlation, -1 to 1; of ranks it is Spearman's. 0 where one side does not
/// vary.
///
/// # Panics
///
/// When the sides are not equally long.
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "one value of either for each run");
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut both, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (x - mean_a, y - mean_b);
        both += x * y;
        of_a += x * x;
        of_b += y * y;
    }
    let scale = (of_a * of_b).sqrt();
    if scale > 0.0 { (both / scale).clamp(-1.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [2.5, 0.0, 2.5, 1.0]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    #[test]
    fn correlation_of_ranks_is_that_of_the_textbook() {
        // IQ and hours of television of ten people, the usual example: rho = -29/165.
        let iq = [106.0, 100.0, 86.0, 101.0, 99.0, 103.0, 97.0, 113.0, 112.0, 110.0];
        let hours = [7.0, 27.0, 2.0, 50.0, 28.0, 29.0, 20.0, 12.0, 6.0, 17.0];
        let rho = correlation(&ranks(&iq), &ranks(&hours));
        assert!((rho + 29.0 / 165.0).abs() < 1e-12, "{rho}");
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }
}
