//! The memory that the receiving direction may hold by its owner's limit.

use crate::limits::BUFFER_MIN_BYTES;

/// The owner's limit for the receiving direction, in bytes of memory, and a mark: data were dropped
/// by that, and the owner was not told yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryLimit(u32);

const REFUSED: u32 = 1 << 31;

impl MemoryLimit {
    /// No limit but the connection's own.
    pub(super) const NONE: MemoryLimit = MemoryLimit(REFUSED - 1);

    fn of(bytes: usize) -> MemoryLimit {
        let most = MemoryLimit::NONE.0 - 1;
        MemoryLimit(u32::try_from(bytes).unwrap_or(most).min(most))
    }

    /// Memory that the window may be offered for by that.
    #[inline(always)]
    pub(super) fn window_bytes(self) -> usize {
        ((self.0 & !REFUSED) as usize).max(BUFFER_MIN_BYTES)
    }

    /// Sets the most memory that may be held from now on; `None`: there is no limit.
    pub(crate) fn set(&mut self, most_bytes: Option<usize>) {
        *self = most_bytes.map_or(MemoryLimit::NONE, MemoryLimit::of);
    }

    /// Returns whether there is one.
    #[inline(always)]
    pub(crate) fn is_set(self) -> bool {
        self != MemoryLimit::NONE
    }

    /// Returns the most that may be held by that.
    #[inline]
    pub(super) fn most(self) -> usize {
        if self.is_set() { (self.0 & !REFUSED) as usize } else { usize::MAX }
    }

    /// Data were dropped; if by this limit, it is to be told.
    pub(super) fn note_refused(&mut self) {
        if self.is_set() {
            self.0 |= REFUSED;
        }
    }

    /// Returns whether data were dropped by this limit since this was last asked.
    pub(crate) fn take_refused(&mut self) -> bool {
        let was_refused = self.0 & REFUSED != 0;
        self.0 &= !REFUSED;
        was_refused
    }
}
