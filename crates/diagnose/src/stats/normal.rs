//! The standard normal distribution.

/// Returns the chance of a value of at least `z`, to 12 digits.
pub fn above(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - above(-z);
    }
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    if z < 3.0 {
        // Series of the part below (Abramowitz and Stegun, 26.2.11).
        let (mut term, mut sum) = (z, z);
        for odd in (3..120).step_by(2) {
            term *= z * z / f64::from(odd);
            sum += term;
        }
        return 0.5 - density * sum;
    }
    // Laplace's continued fraction (26.2.14), from its far end.
    let tail = (1..=60).rev().fold(z, |below, step| z + f64::from(step) / below);
    density / tail
}

/// Returns the value that is exceeded with this chance, from 1e-12 to 1 - 1e-12.
pub fn exceeded_with(chance: f64) -> f64 {
    let (mut low, mut high) = (-7.1, 7.1);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if above(middle) > chance { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_tables() {
        let table = [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457),
            (1.959_963_984_540_054, 0.025),
            (3.290_526_731_491_926, 0.000_5),
            (6.0, 9.865_876_450_377e-10),
        ];
        for (z, chance) in table {
            assert!((above(z) / chance - 1.0).abs() < 1e-9, "{z}: {}", above(z));
            assert!((exceeded_with(chance) - z).abs() < 1e-9, "{chance}");
            assert!((above(-z) + chance - 1.0).abs() < 1e-12);
        }
        // Where one way of computing it follows the other.
        assert!((above(3.0 - 1e-9) / above(3.0) - 1.0).abs() < 1e-8);
    }
}
