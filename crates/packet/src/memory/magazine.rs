//! Magazines: each thread's own stock of free descriptors.
//!
//! Taking and giving back touch only the running thread's magazine. An empty one takes half a
//! magazine from the depot, a full one gives half of itself: after either it is half full, so no
//! burst shorter than half a magazine can make it go to the depot twice.
//!
//! ```text
//!   thread A             depot              thread B
//!   ┌ magazine ┐  half ┌────────┐  half   ┌ magazine ┐
//!   │ take ◄───┼◄──────┤ arrays │◄────────┼◄── give  │
//!   └──────────┘       └────────┘         └──────────┘
//! ```

use super::desc::Entry;
#[cfg(feature = "clogs")]
use super::desc::Item;
use super::stock::Stock;
use crate::limits::MAGAZINE_LIMIT;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Places ahead at which a descriptor is brought into the cache before it is taken.
const AHEAD: usize = 16;

/// A stock of free descriptors of one kind.
///
/// `count` and `exchanges` are written by the thread alone and read for statistics by any; `items`
/// are the thread's alone.
pub(crate) struct Magazine {
    count: AtomicU32,
    limit: u32,
    exchanges: AtomicU64,
    #[cfg(feature = "clogs")]
    item: Item,
    items: UnsafeCell<[Option<Entry>; MAGAZINE_LIMIT]>,
}

impl Magazine {
    pub(crate) fn new(stock: &Stock) -> Self {
        let half = stock.depot.half();
        debug_assert!(half != 0 && 2 * half <= MAGAZINE_LIMIT);
        let items = UnsafeCell::new([None; MAGAZINE_LIMIT]);
        let (count, exchanges) = (AtomicU32::new(0), AtomicU64::new(0));
        Self {
            count,
            limit: 2 * half as u32,
            exchanges,
            #[cfg(feature = "clogs")]
            item: stock.item,
            items,
        }
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    /// Returns the number of times that it went to the depot.
    pub(crate) fn exchanges(&self) -> u64 {
        self.exchanges.load(Ordering::Relaxed)
    }

    /// Counts an exchange. Written by the thread alone, so without an atomic addition.
    fn exchanged(&self) {
        self.exchanges.store(self.exchanges() + 1, Ordering::Relaxed);
    }

    #[inline]
    fn set_count(&self, count: usize) {
        self.count.store(count as u32, Ordering::Relaxed);
    }

    /// Returns the thread's own items, in its hands for a moment.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "the cell is reached by one thread, one call at a time"
    )]
    fn items(&self) -> &mut [Option<Entry>; MAGAZINE_LIMIT] {
        // SAFETY: only the thread that owns the magazine calls this, and no borrow outlives the
        // call of one of the methods here, none of which calls another while it has one.
        unsafe { &mut *self.items.get() }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.count() >= self.limit as usize
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<Entry> {
        let count = self.count().checked_sub(1)?;
        self.set_count(count);
        let entry = self.items()[count % MAGAZINE_LIMIT];
        #[cfg(feature = "clogs")]
        let entry = entry.inspect(|&entry| super::desc::heap::leaves_home(entry, self.item));
        entry
    }

    /// Takes one as [`pop`](Self::pop) does, for a caller that takes many. Asks early for the one
    /// that comes [`AHEAD`] places later: another core may have read it last, and its line is on
    /// the way then before it is written.
    #[inline(always)]
    pub(crate) fn pop_ahead(&self) -> Option<Entry> {
        if let Some(ahead) = self.count().checked_sub(1 + AHEAD) {
            self.items()[ahead % MAGAZINE_LIMIT].inspect(|entry| entry.prefetch_to_write());
        }
        self.pop()
    }

    #[inline]
    pub(crate) fn push(&self, entry: Entry) -> bool {
        let count = self.count();
        if count >= self.limit as usize {
            return false;
        }
        #[cfg(feature = "clogs")]
        super::desc::heap::comes_home(entry, self.item);
        self.items()[count % MAGAZINE_LIMIT] = Some(entry);
        self.set_count(count + 1);
        true
    }

    /// Takes up to half a magazine from the stock; false if there was nothing. The magazine is
    /// empty.
    #[cold]
    #[inline(never)]
    pub(crate) fn refill(&self, stock: &Stock) -> bool {
        self.exchanged();
        let count = stock.depot.take(self.items());
        self.set_count(count);
        count != 0
    }

    /// Gives the lower half, which has lain longest and is coldest, to the stock.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_half(&self, stock: &Stock) {
        self.exchanged();
        let (half, count, items) = (self.limit as usize / 2, self.count(), self.items());
        stock.depot.put(&items[..half]);
        items.copy_within(half..count, 0);
        self.set_count(count - half);
    }

    pub(crate) fn give_all(&self, stock: &Stock) {
        stock.depot.put(&self.items()[..self.count()]);
        self.set_count(0);
    }
}

/// One thread's magazines for one pool, which the pool's books point to.
pub(crate) struct Magazines {
    pub(crate) frames: Magazine,
    pub(crate) views: Magazine,
    pub(crate) blocks: Magazine,
}
