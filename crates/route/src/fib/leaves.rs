//! Which parts of the array of values are whose: blocks of 1 to 32 values.

use super::GROUP;

/// Free blocks by their size, and what was never used.
pub(super) struct Leaves {
    /// By size; none of size 0.
    free: [Vec<u32>; GROUP + 1],
    /// Where what was never used begins and ends.
    fresh: u32,
    end: u32,
}

impl Leaves {
    /// Everything from `fresh` to `end` is free.
    pub fn new(fresh: u32, end: u32) -> Self {
        Self { free: [const { Vec::new() }; GROUP + 1], fresh, end }
    }

    /// Values that were never used.
    pub fn fresh(&self) -> u32 {
        self.end - self.fresh
    }

    /// There are more values now.
    pub fn grown(&mut self, end: u32) {
        self.end = end;
    }

    /// A block of `values`: one of just this size, else a fresh one, else a part of a larger one.
    pub fn take(&mut self, values: usize) -> Option<u32> {
        if let Some(block) = self.free[values].pop() {
            return Some(block);
        }
        if self.fresh() as usize >= values {
            self.fresh += values as u32;
            return Some(self.fresh - values as u32);
        }
        let size = (values + 1..=GROUP).find(|&size| !self.free[size].is_empty())?;
        let block = self.free[size].pop()?;
        self.free[size - values].push(block + values as u32);
        Some(block)
    }

    /// A block is free again.
    pub fn give_back(&mut self, block: u32, values: usize) {
        self.free[values].push(block);
    }

    /// Values in free blocks and of those never used.
    #[cfg(test)]
    pub fn free_values(&self) -> u32 {
        let blocks = self.free.iter().enumerate().map(|(size, list)| size * list.len());
        blocks.sum::<usize>() as u32 + self.fresh()
    }

    /// Memory that the lists take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.free.iter().map(|list| list.capacity() * size_of::<u32>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_never_overlap_and_larger_ones_are_cut() {
        let mut leaves = Leaves::new(10, 50);
        let big = leaves.take(32).expect("fresh");
        assert_eq!((big, leaves.fresh()), (10, 8));
        assert_eq!(leaves.take(9), None);
        leaves.give_back(big, 32);
        // The rest of the fresh ones are too few: the large block is cut.
        assert_eq!(leaves.take(9), Some(10));
        assert_eq!(leaves.take(23), Some(19));
        assert_eq!(leaves.take(8), Some(42));
        assert_eq!(leaves.take(1), None);
        leaves.grown(51);
        assert_eq!(leaves.take(1), Some(50));
    }
}
