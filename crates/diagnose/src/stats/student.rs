//! Student's t distribution, of whole degrees of freedom.

use std::f64::consts::PI;

/// Returns the chance of a value as far from zero as `t` (Abramowitz and Stegun, 26.7.3, 26.7.4).
pub fn beyond(t: f64, degrees: usize) -> f64 {
    let angle = (t.abs() / (degrees as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = degrees % 2 == 1;
    let (mut term, mut sum) = if is_odd { (cosine, 0.0) } else { (1.0, 0.0) };
    let first = if is_odd { 3 } else { 2 };
    for step in (first..=degrees).step_by(2) {
        sum += term;
        let (over, under) = ((step - 1) as f64, step as f64);
        term *= cosine * cosine * over / under;
    }
    let within = if is_odd { 2.0 / PI * (angle + sine * sum) } else { sine * sum };
    (1.0 - within).clamp(0.0, 1.0)
}

/// Returns the distance from zero beyond which values have this chance.
pub fn exceeded_with(chance: f64, degrees: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if beyond(middle, degrees) > chance { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_tables() {
        for (degrees, t) in
            [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (30, 2.04227)]
        {
            assert!((beyond(t, degrees) - 0.05).abs() < 1e-5, "{degrees}: {}", beyond(t, degrees));
            assert!((exceeded_with(0.05, degrees) - t).abs() < 1e-4, "{degrees}");
        }
        assert_eq!(beyond(0.0, 5), 1.0);
    }
}
