//! Seeded chance: the same seed gives the same faults.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): not
/// for secrets.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// A generator for the `stream`th purpose under `seed`. Streams are independent, so that
    /// switching one fault on does not move the others.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(mixed.next())
    }

    /// 64 uniform bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True with `probability` (0 to 1). One draw, whatever the probability.
    pub fn hits(&mut self, probability: f64) -> bool {
        // 53 bits, which a double holds exactly.
        let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        uniform < probability
    }

    /// Uniform below `end`; 0 when `end` is 0. The bias is under `end` / 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut dice = Dice::new(seed, stream);
            [dice.next(), dice.next(), dice.next()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn chances_come_out_as_asked() {
        let mut dice = Dice::new(7, 0);
        let hits = (0..100_000).filter(|_| dice.hits(0.03)).count();
        // Six standard deviations (54) around 3000.
        assert!((2676..3324).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !dice.hits(0.0)));
        assert!((0..1000).all(|_| dice.hits(1.0)));
        assert!((0..10_000).all(|_| dice.below(10) < 10));
        assert_eq!(dice.below(0), 0);
    }
}
