//! Which lines are whose: nodes of two lines, and blocks of 1, 2, 4 or 8 lines for values outside.
//!
//! A line that was a node's stays a node's, so that its header, and the version in it, are never
//! anything else.

use super::NODE_LINES;
use super::line::BLOCK_LIMIT;

/// Sizes of blocks.
const SIZES: usize = BLOCK_LIMIT.ilog2() as usize + 1;

/// Free nodes and blocks by their first line, and the lines that were never used.
pub(super) struct Space {
    nodes: Vec<u32>,
    blocks: [Vec<u32>; SIZES],
    fresh: usize,
    end: usize,
}

impl Space {
    /// Returns a space in which everything from line `fresh` to `end` is free.
    pub fn new(fresh: usize, end: usize) -> Self {
        Self { nodes: Vec::new(), blocks: [const { Vec::new() }; SIZES], fresh, end }
    }

    /// Returns the first line that was never used.
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// Sets the number of lines.
    pub fn resized(&mut self, end: usize) {
        self.end = end;
    }

    fn carve(&mut self, lines: usize) -> Option<u32> {
        let first = self.fresh;
        self.fresh = first.checked_add(lines).filter(|&fresh| fresh <= self.end)?;
        Some(first as u32)
    }

    /// Takes a node, all of whose slots lead to nothing. Returns its first line, an even one: nodes
    /// are numbered by pairs of lines.
    pub fn take_node(&mut self) -> Option<u32> {
        if let Some(node) = self.nodes.pop() {
            return Some(node);
        }
        let odd = !self.fresh.is_multiple_of(NODE_LINES) && self.fresh < self.end;
        if odd && let Some(line) = self.carve(1) {
            self.give_block(line, 1);
        }
        self.carve(NODE_LINES)
    }

    /// Gives a node back.
    pub fn give_node(&mut self, first: u32) {
        self.nodes.push(first);
    }

    /// Takes a block of `lines`, a power of two: one of just this size, else a fresh one, else the
    /// half of a larger one. Returns its first line.
    pub fn take_block(&mut self, lines: usize) -> Option<u32> {
        let size = lines.ilog2() as usize;
        if let Some(block) = self.blocks[size].pop() {
            return Some(block);
        }
        if let Some(block) = self.carve(lines) {
            return Some(block);
        }
        if lines == BLOCK_LIMIT {
            return None;
        }
        let whole = self.take_block(2 * lines)?;
        self.blocks[size].push(whole + lines as u32);
        Some(whole)
    }

    /// Gives a block back.
    pub fn give_block(&mut self, first: u32, lines: usize) {
        self.blocks[lines.ilog2() as usize].push(first);
    }

    /// Returns the number of lines of free nodes and blocks, and of those never used.
    #[cfg(test)]
    pub fn free_lines(&self) -> usize {
        let blocks = self.blocks.iter().enumerate().map(|(size, list)| list.len() << size);
        self.nodes.len() * NODE_LINES + blocks.sum::<usize>() + self.end - self.fresh
    }

    /// Returns the memory that the lists take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let blocks = self.blocks.iter().map(Vec::capacity).sum::<usize>();
        (self.nodes.capacity() + blocks) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_never_overlap_and_larger_ones_are_halved() {
        let mut space = Space::new(10, 21);
        let big = space.take_block(8).expect("fresh");
        assert_eq!((big, space.take_node(), space.fresh()), (10, Some(18), 20));
        assert_eq!((space.take_block(2), space.take_node()), (None, None));
        space.give_block(big, 8);
        assert_eq!(space.take_block(1), Some(20));
        // Nothing fresh is left: the large block is halved.
        assert_eq!(space.take_block(2), Some(10));
        assert_eq!(space.take_block(4), Some(14));
        assert_eq!(space.take_block(1), Some(12));
        // The lines of a former node are no block, nor the other way round.
        space.give_node(18);
        assert_eq!((space.take_block(2), space.take_block(1)), (None, Some(13)));
        assert_eq!((space.take_node(), space.free_lines()), (Some(18), 0));
        space.resized(24);
        // A node begins with an even line; the odd one before it is a block.
        assert_eq!((space.take_node(), space.take_block(1)), (Some(22), Some(21)));
    }
}
