//! Words that many threads read while one writes them, on huge pages.

use super::mapping::{Mapping, PoolMemory};
use crate::limits::CHUNK_SIZE_BYTES;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of one line of the cache.
type Line = [AtomicU64; 8];

#[derive(Default)]
#[repr(C, align(64))]
struct Aligned(Line);

/// Fewer lines than these are allocated as usual: a huge page would be larger.
const MAPPED_FROM_LINES: usize = CHUNK_SIZE_BYTES / size_of::<Line>() / 2;

/// Words by lines of the cache, zero at first: on huge pages where there are many and the system
/// has those.
pub struct Words {
    first: NonNull<Line>,
    lines: usize,
    /// One of both has them.
    _allocated: Vec<Aligned>,
    _mapped: Option<Mapping>,
}

// SAFETY: a pointer to the words of this value, which are atomic and go where it goes.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Returns so many lines, all zero.
    ///
    /// # Panics
    /// When the system gives no memory.
    pub fn zeroed(lines: usize) -> Self {
        if lines < MAPPED_FROM_LINES {
            let of: Vec<_> = (0..lines).map(|_| Aligned::default()).collect();
            return Self {
                first: NonNull::from(&*of).cast(),
                lines,
                _allocated: of,
                _mapped: None,
            };
        }
        let bytes = lines.checked_mul(size_of::<Line>());
        let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(CHUNK_SIZE_BYTES));
        let mapping =
            bytes.map(|bytes| Mapping::new(bytes, PoolMemory::TransparentHugePages, false));
        let mapping = mapping.expect("words of no more than all memory");
        let mapping = mapping.expect("memory for words");
        let first = mapping.base().cast();
        Self { first, lines, _allocated: Vec::new(), _mapped: Some(mapping) }
    }

    /// Makes them so many: the first keep their values, those beyond are zero.
    pub fn resize(&mut self, lines: usize) {
        let other = Self::zeroed(lines);
        for (to, from) in other.as_flattened().iter().zip(self.as_flattened()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        *self = other;
    }
}

impl Deref for Words {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        // SAFETY: so many lines are there, without padding in between, aligned, and zeroed at
        // first; all reach their words as atomic ones, and the borrow is of their memory.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.lines) }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").field("lines", &self.lines).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_values_when_there_are_more_or_fewer() {
        let mut words = Words::zeroed(3);
        words[2][7].store(5, Ordering::Relaxed);
        for count in [2 * MAPPED_FROM_LINES, 3 * MAPPED_FROM_LINES + 1, 3] {
            words.resize(count);
            assert_eq!((words.len(), words.as_ptr().addr() % 64), (count, 0));
            assert_eq!(words[2][7].load(Ordering::Relaxed), 5);
            let mut rest = words[3..].as_flattened().iter();
            assert!(rest.all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }
}
