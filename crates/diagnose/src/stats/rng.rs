//! A small generator whose sequence is part of the results: it must not change with a dependency.

/// xoshiro256** of Blackman and Vigna (2018), seeded through SplitMix64. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Returns the sequence of `seed`; every seed is good, 0 too.
    pub fn new(seed: u64) -> Self {
        let mut next = seed;
        let state = std::array::from_fn(|_| {
            // SplitMix64 (Steele, Lea and Flood, 2014).
            next = next.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = next;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= t;
        *s3 = s3.rotate_left(45);
        result
    }

    /// Returns a number below `limit`, each equally likely (Lemire's method). `limit` must not be
    /// 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        assert!(limit > 0, "nothing is below 0");
        loop {
            let product = u128::from(self.next_u64()) * u128::from(limit);
            let low = product as u64;
            if low >= limit || low >= limit.wrapping_neg() % limit {
                return (product >> 64) as usize;
            }
        }
    }

    /// Returns a number from 0 up to and without 1, each multiple of 2^-53 equally likely.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Puts the items in random order, every order equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_published_code() {
        // SplitMix64 with seed 1234567 gives 6457827717110365317, 3203168211198807973, ...
        // (the reference vector of its authors), which seed the state here.
        let rng = Rng::new(1_234_567);
        assert_eq!(rng.state[..2], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        // xoshiro256** from the state 1, 2, 3, 4 gives 11520, 0, 1509978240, 1215971899390074240.
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let first: [u64; 4] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(first, [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn numbers_below_a_limit_are_spread_evenly() {
        let mut rng = Rng::new(0);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[rng.below(7)] += 1;
        }
        assert!(seen.iter().all(|&n| (9_600..10_400).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn shuffling_keeps_the_items_and_reaches_every_order() {
        let mut rng = Rng::new(3);
        let mut orders = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut items = [1, 2, 3];
            rng.shuffle(&mut items);
            orders.insert(items);
        }
        assert_eq!(orders.len(), 6);
    }
}
