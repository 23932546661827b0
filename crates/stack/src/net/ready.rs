//! A set of small numbers that many threads add to and one thread empties, without a lock.
//!
//! ```text
//! top      1 word                     bit i: word i of `middle` is not zero
//! middle   64 words                   bit i: word i of `bottom` is not zero
//! bottom   64 * 64 words              bit i: number i is in the set
//! ```
//! Adding sets the bit from the bottom up; emptying clears from the top down. A number added while
//! the set is emptied is found now or next time: its upper bits are set after its lower ones, and
//! cleared before them.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module text. Holds numbers below [`ReadySet::LIMIT`].
pub struct ReadySet {
    top: AtomicU64,
    middle: Box<[AtomicU64]>,
    bottom: Box<[AtomicU64]>,
}

impl ReadySet {
    /// Numbers from here on are not taken.
    pub const LIMIT: usize = 64 * 64 * 64;

    /// An empty set for numbers below `limit` (at most [`ReadySet::LIMIT`]).
    pub fn new(limit: usize) -> Self {
        let bottom = limit.clamp(1, Self::LIMIT).div_ceil(64);
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { top: AtomicU64::new(0), middle: words(bottom.div_ceil(64)), bottom: words(bottom) }
    }

    /// Adds `number`; true when it was not in the set. Numbers beyond the limit are ignored.
    pub fn add(&self, number: u32) -> bool {
        let number = number as usize;
        let Some(word) = self.bottom.get(number / 64) else { return false };
        let bit = 1 << (number % 64);
        // AcqRel: what the caller wrote before is seen by whoever takes the number.
        if word.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return false;
        }
        let (above, bit) = (number / 64, 1_u64 << (number / 64 % 64));
        self.middle[above / 64].fetch_or(bit, Ordering::AcqRel);
        self.top.fetch_or(1 << (above / 64), Ordering::SeqCst);
        true
    }

    /// Returns true if the set has no number. False may be stale; true means that nothing was added
    /// before this call, in the single order of all sequentially consistent operations.
    pub fn is_empty(&self) -> bool {
        self.top.load(Ordering::SeqCst) == 0
    }

    /// Takes every number out and hands it to `take`.
    pub fn drain(&self, mut take: impl FnMut(u32)) {
        if self.is_empty() {
            return;
        }
        for middle in bits(self.top.swap(0, Ordering::AcqRel)) {
            for bottom in bits(self.middle[middle].swap(0, Ordering::AcqRel)) {
                let word = middle * 64 + bottom;
                for bit in bits(self.bottom[word].swap(0, Ordering::AcqRel)) {
                    take((word * 64 + bit) as u32);
                }
            }
        }
    }
}

fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            bit
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn takes_each_number_once_in_order() {
        let set = ReadySet::new(100_000);
        let numbers = [0, 1, 63, 64, 4095, 4096, 99_999];
        for number in numbers {
            assert!(set.add(number));
            assert!(!set.add(number));
        }
        assert!(!set.add(5_000_000));
        let mut taken = Vec::new();
        set.drain(|number| taken.push(number));
        assert_eq!(taken, numbers);
        assert!(set.is_empty());
    }

    #[test]
    fn nothing_added_is_lost() {
        let set = Arc::new(ReadySet::new(8192));
        let adders: Vec<_> = (0..2)
            .map(|part| {
                let set = Arc::clone(&set);
                std::thread::spawn(move || {
                    for number in (part..8192).step_by(2) {
                        assert!(set.add(number));
                    }
                })
            })
            .collect();
        let mut taken = BTreeSet::new();
        while taken.len() < 8192 {
            set.drain(|number| assert!(taken.insert(number)));
        }
        for adder in adders {
            adder.join().expect("adder");
        }
        // An upper bit may have come after its number was taken.
        set.drain(|number| panic!("{number} was taken before"));
        assert!(set.is_empty());
    }
}
