//! The layout of a line: 128 slots and what they lead to, in one line of the cache.
//!
//! ```text
//! word 0     header: version 24 | apart | moved | values before slot 64: 7 | where they are: 31
//! words 1, 2 a bit for each slot whose value differs from that of the slot before it
//! words 3–7  the values: 20 of 16 bits (IPv4), or 10 of 32 (IPv6)
//! ```
//!
//! More values than that lie in a block outside. A slot's value is found by counting bits up to its
//! own. A line of zeros says that its values are in word 0 of all, which is zero: nothing.

use super::NOTHING;
use super::sync::{AtomicU64, Ordering};
use crate::key::Key;

/// Slots of a line.
pub(super) const SLOTS: usize = 128;
/// Words of a line.
pub(super) const WORDS: usize = 8;
/// The first of them that has values.
const FIRST_VALUE: usize = 3;
/// Lines that the values of a line take at most.
pub(super) const BLOCK_LIMIT: usize = SLOTS * 32 / (64 * WORDS);
const BASE_BITS: u32 = 31;
/// Lines that there can be.
pub(super) const LINES_LIMIT: usize = (1 << BASE_BITS) / WORDS;
const BEFORE_BITS: u32 = 7;
/// The line is read in another place while it is written.
const MOVED: u64 = 1 << (BASE_BITS + BEFORE_BITS);
/// Its values have 32 bits, and lie outside, though those of the family have 16.
const APART: u64 = MOVED << 1;
const VERSION_AT: u32 = BASE_BITS + BEFORE_BITS + 2;

/// A line's words.
pub(super) type Line = [AtomicU64; WORDS];

/// A line's first word, which alone says how the others are to be read. It changes before any of
/// them does, and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header(u64);

impl Header {
    #[inline(always)]
    pub fn read(line: &Line, order: Ordering) -> Self {
        Self(line[0].load(order))
    }

    pub fn write(self, line: &Line, order: Ordering) {
        line[0].store(self.0, order);
    }

    /// Returns the same with the version after `old`'s.
    pub fn after(self, old: Self) -> Self {
        let version = (old.0 >> VERSION_AT).wrapping_add(1);
        Self(self.0 & ((1 << VERSION_AT) - 1) | version << VERSION_AT)
    }

    /// Returns the header of a line that is read in place `at` while it is written.
    pub fn moved(at: usize) -> Self {
        Self(MOVED | (at * WORDS) as u64)
    }

    /// Returns the word where the values begin, or the line that is to be read instead.
    #[inline(always)]
    fn base(self) -> usize {
        self.0 as usize & ((1 << BASE_BITS) - 1)
    }

    /// Returns the number of values of the slots of the half before: those of the first half if
    /// `half` is 1.
    #[inline(always)]
    fn before(self, half: usize) -> u32 {
        (self.0 >> BASE_BITS) as u32 & (half as u32).wrapping_neg() & ((1 << BEFORE_BITS) - 1)
    }

    /// Returns the block of values outside that the line in place `at` has, and its number of
    /// lines.
    pub fn block<K: Key>(self, line: &Line, at: usize) -> Option<(u32, usize)> {
        let bits = [1, 2].map(|half| line[half].load(Ordering::Relaxed).count_ones() as usize);
        let is_outside = self.base() != 0 && self.base() != at * WORDS + FIRST_VALUE;
        let shift = if self.0 & APART == 0 { shift::<K>() } else { WIDE };
        is_outside
            .then(|| ((self.base() / WORDS) as u32, block_lines(1 + bits[0] + bits[1], shift)))
    }
}

/// Bits of a value, as a power of two.
const WIDE: u32 = 5;

#[inline(always)]
const fn shift<K: Key>() -> u32 {
    if K::BITS > 32 { WIDE } else { 4 }
}

/// A line as a reader met it.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    line: &'a Line,
    header: Header,
}

impl<'a> Seen<'a> {
    /// Reads the header of the line in place `at`, if there is one.
    #[inline(always)]
    pub fn read(words: &'a [Line], at: usize) -> Option<Self> {
        let line = words.get(at)?;
        Some(Self { line, header: Header::read(line, Ordering::Acquire) })
    }

    /// Returns the value of a slot: right if the line [is still](Self::is_still) as it was met
    /// behind it. `None` if it cannot be.
    #[inline(always)]
    pub fn value<K: Key>(&self, words: &[Line], slot: usize) -> Option<u32> {
        let Self { line, header } = *self;
        if header.0 & (MOVED | APART) == 0 {
            value(words, line, header, slot, shift::<K>())
        } else {
            value_elsewhere::<K>(words, line, header, slot)
        }
    }

    /// Returns true if the line has not changed since it was met: all that was read of it, and of
    /// what it leads to, was right then. The caller fences before.
    #[inline(always)]
    pub fn is_still(&self) -> bool {
        Header::read(self.line, Ordering::Relaxed) == self.header
    }
}

#[cold]
#[inline(never)]
fn value_elsewhere<'a, K: Key>(
    words: &'a [Line],
    mut of: &'a Line,
    mut header: Header,
    slot: usize,
) -> Option<u32> {
    if header.0 & MOVED != 0 {
        of = words.get(header.base() / WORDS)?;
        header = Header::read(of, Ordering::Relaxed);
    }
    value(words, of, header, slot, if header.0 & APART == 0 { shift::<K>() } else { WIDE })
}

#[inline(always)]
fn value(words: &[Line], line: &Line, header: Header, slot: usize, shift: u32) -> Option<u32> {
    let half = slot / 64 % 2;
    let upto = line[1 + half].load(Ordering::Relaxed) << (!slot % 64);
    let bit = (header.before(half) + upto.count_ones()) << shift;
    let word = words.as_flattened().get(header.base() + bit as usize / 64)?;
    let value = (word.load(Ordering::Relaxed) >> (bit % 64)) as u32;
    Some(if shift == WIDE { value } else { extended(value) })
}

/// Returns a value of 16 bits as one of 32.
#[inline(always)]
fn extended(value: u32) -> u32 {
    i32::from(value as i16) as u32
}

/// Returns the number of lines that so many values take outside: 1, 2, 4 or 8.
fn block_lines(values: usize, shift: u32) -> usize {
    (values << shift).div_ceil(64 * WORDS).next_power_of_two()
}

/// The contents that are to be written into a line.
pub(super) struct Contents {
    bits: [u64; 2],
    values: [u32; SLOTS],
    len: usize,
    shift: u32,
    is_apart: bool,
}

impl Contents {
    /// Returns the contents of a line whose slots have these values.
    pub fn new<K: Key>(slots: &[u32; SLOTS]) -> Self {
        let (mut bits, mut values, mut len) = ([0; 2], [slots[0]; SLOTS], 1);
        for slot in 1..SLOTS {
            if slots[slot] != slots[slot - 1] {
                bits[slot / 64] |= 1 << (slot % 64);
                values[len] = slots[slot];
                len += 1;
            }
        }
        let is_large = |value: &u32| extended(*value) != *value;
        let is_apart = shift::<K>() != WIDE && values[..len].iter().any(is_large);
        let shift = if is_apart { WIDE } else { shift::<K>() };
        Self { bits, values, len, shift, is_apart }
    }

    /// Returns the number of lines that its values take outside; 0 where they fit the line.
    pub fn outside(&self) -> usize {
        let is_inside = self.len << self.shift <= 64 * (WORDS - FIRST_VALUE);
        if is_inside && !self.is_apart { 0 } else { block_lines(self.len, self.shift) }
    }

    /// Returns its values, as words.
    fn words(&self) -> [u64; SLOTS / 2] {
        let mut words = [0; SLOTS / 2];
        for (at, &value) in self.values[..self.len].iter().enumerate() {
            let bit = at << self.shift;
            let value = if self.shift == WIDE { value } else { value & 0xffff };
            words[bit / 64] |= u64::from(value) << (bit % 64);
        }
        words
    }

    /// Writes its values into the block that begins with line `block`, if they lie outside.
    pub fn write_block(&self, words: &[Line], block: u32) {
        let block = &words[block as usize..][..self.outside()];
        for (to, word) in block.as_flattened().iter().zip(self.words()) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// Returns the header of the line in place `at`, whose values are there or in this `block`.
    pub fn header(&self, at: usize, block: u32) -> Header {
        let base = match self.outside() {
            0 => at * WORDS + FIRST_VALUE,
            _ => block as usize * WORDS,
        };
        let apart = if self.is_apart { APART } else { 0 };
        Header(u64::from(self.bits[0].count_ones()) << BASE_BITS | apart | base as u64)
    }

    /// Writes all words of a line but its header.
    pub fn write(&self, line: &Line) {
        let values = if self.outside() == 0 { self.words() } else { [0; SLOTS / 2] };
        for (to, word) in line[1..].iter().zip(self.bits.into_iter().chain(values)) {
            to.store(word, Ordering::Relaxed);
        }
    }
}

/// Returns the values of all slots of a line, for the one who writes it.
pub(super) fn values<K: Key>(words: &[Line], at: usize) -> [u32; SLOTS] {
    match Seen::read(words, at) {
        // Most lines of a new table are as they were made.
        None | Some(Seen { header: Header(0), .. }) => [NOTHING; SLOTS],
        Some(seen) => core::array::from_fn(|slot| seen.value::<K>(words, slot).unwrap_or(NOTHING)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ASIDE;
    use super::*;

    #[test]
    fn a_line_that_is_being_written_is_read_in_the_other_place() {
        let words: Vec<Line> = (0..12).map(|_| Line::default()).collect();
        for runs in [1_u32, 3, 20, 40, 128] {
            // Routes of numbers that 16 bits hold, and that they do not; and nodes.
            for first in [1, 40_000, !5_u32] {
                let slot_value = |slot: usize| first.wrapping_add(slot as u32 * runs / 128);
                let slots = core::array::from_fn(slot_value);
                let contents = Contents::new::<u32>(&slots);
                contents.write_block(&words, 4);
                contents.write(&words[ASIDE]);
                contents.header(ASIDE, 4).write(&words[ASIDE], Ordering::Relaxed);
                Header::moved(ASIDE).write(&words[2], Ordering::Relaxed);
                words[2][1..].iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
                assert_eq!(values::<u32>(&words, 2), slots, "{runs} from {first}");
                contents.write(&words[2]);
                contents.header(2, 4).write(&words[2], Ordering::Relaxed);
                assert_eq!(values::<u32>(&words, 2), slots, "{runs} from {first}");
            }
        }
    }
}
