//! How much memory the receiving direction may hold by its owner's limit.

use super::Receiver;
use crate::limits::BUFFER_MIN_BYTES;

/// What the owner has for the receiving direction, in bytes of memory, and a mark: data were dropped by that, and the
/// owner was not told yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryLimit(u32);

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
}

impl Receiver {
    /// Most memory that may be held from now on by the owner's limit; `None`: there is none.
    pub(crate) fn set_memory_limit(&mut self, most_bytes: Option<usize>) {
        self.memory_limit = most_bytes.map_or(MemoryLimit::NONE, MemoryLimit::of);
    }

    /// Whether there is one.
    #[inline(always)]
    pub(crate) fn is_memory_limited(&self) -> bool {
        self.memory_limit != MemoryLimit::NONE
    }

    /// Most that may be held by that.
    #[inline]
    pub(super) fn memory_most(&self) -> usize {
        match self.is_memory_limited() {
            true => (self.memory_limit.0 & !REFUSED) as usize,
            false => usize::MAX,
        }
    }

    /// Data were dropped; if by the owner's limit, it is to be told.
    pub(super) fn note_refused(&mut self) {
        if self.is_memory_limited() {
            self.memory_limit.0 |= REFUSED;
        }
    }

    /// Whether data were dropped by the owner's limit since this was last asked.
    pub(crate) fn take_refused(&mut self) -> bool {
        let was_refused = self.memory_limit.0 & REFUSED != 0;
        self.memory_limit.0 &= !REFUSED;
        was_refused
    }

    /// Memory that the queue stands for: what it holds, and no less than its bytes. A view of what another queue holds (a
    /// pair's ends share frames) is charged for next to nothing, and outlives it.
    #[inline(always)]
    pub(super) fn queue_held_bytes(&self) -> usize {
        self.queue.held_bytes().max(self.queue.len())
    }

    /// Memory held by what waits to be read, or is out of order.
    #[inline(always)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.queue_held_bytes() + self.early_held_bytes()
    }

    /// Memory held by what is out of order.
    #[inline(always)]
    pub(crate) fn early_held_bytes(&self) -> usize {
        self.reassembly.as_ref().map_or(0, |reassembly| reassembly.held_bytes())
    }

    /// Memory that the window is offered for at most.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Sets it, for good.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit_bytes = bytes;
        self.queue.set_limit(2 * bytes);
    }

    /// Drops what is out of order, the farthest first, until it holds no more than `keep_bytes`; how many bytes of
    /// memory that gave back.
    pub(crate) fn prune_early(&mut self, keep_bytes: usize) -> usize {
        self.spare = None;
        let held = self.early_held_bytes();
        if let Some(reassembly) = self.reassembly.as_mut() {
            reassembly.prune(keep_bytes);
            if reassembly.is_empty() {
                self.reassembly = None;
            }
        }
        held.saturating_sub(self.early_held_bytes())
    }
}
