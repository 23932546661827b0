//! Stocks: the free descriptors of one kind, which rest in a depot.

use super::depot::Depot;
use super::desc::{Entry, Item};
use super::stats::StockStats;
use crate::limits::{
    BLOCK_HALF_LIMIT, CHUNK_BLOCKS, CHUNK_FRAMES, CHUNK_SIZE_BYTES, CHUNK_VIEWS, FRAME_SIZE_BYTES,
    MAGAZINE_LIMIT, MAGAZINE_SHARE,
};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Free descriptors of one kind, and counts about them.
pub(crate) struct Stock {
    pub(crate) item: Item,
    pub(crate) depot: Depot<Entry>,
    /// Carved so far.
    pub(crate) total: AtomicUsize,
    /// Times that somebody came and nothing was there.
    pub(crate) exhausted: AtomicU64,
    /// Fewest in the depot, and most out of it, after somebody took some.
    pub(crate) low: AtomicUsize,
    pub(crate) high_out: AtomicUsize,
    /// More are wanted when fewer are in the depot, or than half of all.
    wish_below: usize,
    pub(crate) limit: usize,
    /// Everything is out of the depot for a moment, to see what can be given back.
    pub(crate) shrinking: AtomicBool,
    /// Slots in a chunk that descriptors come from.
    pub(crate) slots: Range<usize>,
}

impl Stock {
    pub(crate) fn new(item: Item, limit: usize, step: usize) -> Self {
        let (most, slots) = match item {
            Item::Frame => {
                let all = CHUNK_SIZE_BYTES / FRAME_SIZE_BYTES;
                (MAGAZINE_LIMIT / 2, all - CHUNK_FRAMES..all)
            }
            Item::View => (MAGAZINE_LIMIT / 2, 1..1 + CHUNK_VIEWS),
            Item::Block => (BLOCK_HALF_LIMIT, 1..1 + CHUNK_BLOCKS),
        };
        let half = (limit / MAGAZINE_SHARE).clamp(1, most);
        Self {
            item,
            depot: Depot::new(limit, half),
            total: AtomicUsize::new(0),
            exhausted: AtomicU64::new(0),
            low: AtomicUsize::new(usize::MAX),
            high_out: AtomicUsize::new(0),
            wish_below: step / 4,
            limit,
            shrinking: AtomicBool::new(false),
            slots,
        }
    }

    /// Returns true far below the number at which the wish to grow arises.
    pub(crate) fn is_nearly_dry(&self) -> bool {
        self.depot.len() < self.wish_below(self.total.load(Ordering::Relaxed)) / 2
    }

    /// Returns the number in the depot below which more than `total` are wanted.
    fn wish_below(&self, total: usize) -> usize {
        self.wish_below.min(total / 2).max(1)
    }

    /// Returns the counts, by a few relaxed loads.
    pub(crate) fn stats(&self) -> StockStats {
        StockStats {
            total: self.total.load(Ordering::Relaxed),
            depot: self.depot.len(),
            high_out: self.high_out.load(Ordering::Relaxed),
            exhausted: self.exhausted.load(Ordering::Relaxed),
        }
    }

    /// Books an exchange with the depot: exhaustion, and the marks. True when so few are left that
    /// more are wanted.
    pub(crate) fn has_run_low(&self, empty: bool) -> bool {
        if empty {
            self.exhausted.fetch_add(1, Ordering::Relaxed);
        }
        if self.shrinking.load(Ordering::Relaxed) {
            return false;
        }
        let (left, total) = (self.depot.len(), self.total.load(Ordering::Relaxed));
        if left < self.low.load(Ordering::Relaxed) {
            self.low.fetch_min(left, Ordering::Relaxed);
        }
        let out = total.saturating_sub(left);
        if out > self.high_out.load(Ordering::Relaxed) {
            self.high_out.fetch_max(out, Ordering::Relaxed);
        }
        left < self.wish_below(total) && total < self.limit
    }

    pub(crate) fn all_home(&self) -> bool {
        self.depot.len() == self.total.load(Ordering::Acquire)
    }
}
