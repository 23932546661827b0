//! Numbers that nobody can foresee who does not know the key.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// A keyed function (SipHash-2-4) of a counter: who has seen any number of its values cannot tell
/// the others, unlike those of a generator whose state shows in its output.
pub(crate) struct Random {
    key: (u64, u64),
    drawn: u64,
}

impl Random {
    pub fn new(key: (u64, u64)) -> Self {
        Self { key, drawn: 0 }
    }

    pub fn next(&mut self) -> u64 {
        self.drawn += 1;
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write_u64(self.drawn);
        hasher.finish()
    }

    /// One of the numbers below `end`, which is not 0; for an `end` far below 2^64, all are as
    /// likely.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns true if one more may join the `len` of `limit` that there are: up to half of it
    /// always, beyond that by chance, the less likely the fewer places are left. So nobody sees if
    /// another took a place: that changes the chance by one in `limit / 2`, while a fixed last
    /// place would tell it for certain.
    pub fn has_room(&mut self, len: usize, limit: usize) -> bool {
        let chances = (limit - limit / 2) as u64;
        let left = limit.saturating_sub(len) as u64;
        left > 0 && (left >= chances || self.below(chances) < left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_ends_by_chance_between_half_of_the_limit_and_the_whole() {
        let mut random = Random::new((1, 2));
        for limit in 1..200 {
            assert!((0..=limit / 2).all(|len| random.has_room(len, limit)));
            assert!((limit..2 * limit).all(|len| !random.has_room(len, limit)));
        }
        let share = |random: &mut Random, len| {
            (0..4000).filter(|_| random.has_room(len, 1024)).count() as f64 / 4000.0
        };
        let three_quarters = share(&mut random, 768);
        assert!((0.46..0.54).contains(&three_quarters), "{three_quarters}");
        // the last place is not what tells
        assert!(share(&mut random, 1023) < 0.01);
    }

    #[test]
    fn each_key_has_its_numbers_and_they_are_spread() {
        let draw = |key| {
            let mut random = Random::new(key);
            (0..4000).map(|_| random.below(64)).collect::<Vec<_>>()
        };
        let some = draw((1, 2));
        assert_eq!(some, draw((1, 2)));
        assert!(some != draw((1, 3)) && some != draw((2, 2)));
        for value in 0..64 {
            let count = some.iter().filter(|&&other| other == value).count();
            assert!((30..100).contains(&count), "{value}: {count} times");
        }
    }
}
