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
//!
//! The thread finds its magazine through a small table indexed by the pool's number; the table has
//! no destructor, so that looking in it is a plain load. A thread's end empties the magazines into
//! their depots.

mod release;

use crate::arena::{Arena, Stock, What};
use crate::desc::{Entry, KIND_MASK};
use crate::limits::MAGAZINE_LIMIT;
pub(crate) use release::{
    Releasing, release, release_run, release_shared_frame, release_sole_frame,
};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A stock of free descriptors of one kind.
///
/// `count` and `exchanges` are written by the thread alone and read by whoever asks for statistics; `items` are the
/// thread's alone.
pub(crate) struct Magazine {
    count: AtomicU32,
    limit: u32,
    exchanges: AtomicU64,
    #[cfg(feature = "clogs")]
    what: What,
    items: UnsafeCell<[Option<Entry>; MAGAZINE_LIMIT]>,
}

impl Magazine {
    fn new(stock: &Stock) -> Self {
        let half = stock.depot.half();
        debug_assert!(half != 0 && 2 * half <= MAGAZINE_LIMIT);
        let items = UnsafeCell::new([None; MAGAZINE_LIMIT]);
        let (count, exchanges) = (AtomicU32::new(0), AtomicU64::new(0));
        Self {
            count,
            limit: 2 * half as u32,
            exchanges,
            #[cfg(feature = "clogs")]
            what: stock.what,
            items,
        }
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    /// Times that it went to the depot.
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

    /// The thread's own items, in its hands for a moment.
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
    fn is_full(&self) -> bool {
        self.count() >= self.limit as usize
    }

    #[inline]
    fn pop(&self) -> Option<Entry> {
        let count = self.count().checked_sub(1)?;
        self.set_count(count);
        let entry = self.items()[count % MAGAZINE_LIMIT];
        #[cfg(feature = "clogs")]
        let entry = entry.inspect(|&entry| crate::clogs::leaves_home(entry, self.what));
        entry
    }

    #[inline]
    fn push(&self, entry: Entry) -> bool {
        let count = self.count();
        if count >= self.limit as usize {
            return false;
        }
        #[cfg(feature = "clogs")]
        crate::clogs::comes_home(entry, self.what);
        self.items()[count % MAGAZINE_LIMIT] = Some(entry);
        self.set_count(count + 1);
        true
    }

    /// Takes up to half a magazine from the stock; false if there was nothing. The magazine is
    /// empty.
    #[cold]
    #[inline(never)]
    fn refill(&self, arena: &Arena, stock: &Stock) -> bool {
        self.exchanged();
        let count = stock.depot.take(self.items());
        self.set_count(count);
        arena.after_take(stock, count == 0);
        count != 0
    }

    /// Gives the lower half, which has lain longest and is coldest, to the stock.
    #[cold]
    #[inline(never)]
    fn give_half(&self, stock: &Stock) {
        self.exchanged();
        let (half, count, items) = (self.limit as usize / 2, self.count(), self.items());
        stock.depot.put(&items[..half]);
        items.copy_within(half..count, 0);
        self.set_count(count - half);
    }

    fn give_all(&self, stock: &Stock) {
        stock.depot.put(&self.items()[..self.count()]);
        self.set_count(0);
    }
}

/// One thread's magazines for one pool.
pub(crate) struct Cache {
    pub(crate) frames: Magazine,
    pub(crate) views: Magazine,
    pub(crate) blocks: Magazine,
    arena: Arc<Arena>,
}

impl Cache {
    fn give_all(&self) {
        self.frames.give_all(&self.arena.frames);
        self.views.give_all(&self.arena.views);
        self.blocks.give_all(&self.arena.blocks);
    }
}

struct Slot {
    /// The pool's tag (kind bits clear), or `NO_POOL`.
    tag: Cell<u32>,
    /// With a tag, a cache of this thread that is alive.
    cache: Cell<NonNull<Cache>>,
}

const SLOTS: usize = 8;
const NO_POOL: u32 = u32::MAX;

/// The running thread's caches. Made from boxes, and boxes again only in `retire`: meanwhile the
/// pool's books point to them too.
struct Caches(RefCell<Vec<NonNull<Cache>>>);

thread_local! {
    static TABLE: [Slot; SLOTS] = const {
        [const { Slot { tag: Cell::new(NO_POOL), cache: Cell::new(NonNull::dangling()) } }; SLOTS]
    };
    static CACHES: Caches = const { Caches(RefCell::new(Vec::new())) };
}

impl Drop for Caches {
    fn drop(&mut self) {
        for cache in self.0.get_mut().drain(..) {
            retire(cache);
        }
    }
}

/// Empties a cache, which is on no list of this thread any more, takes it off its pool's books,
/// and frees it.
fn retire(at: NonNull<Cache>) {
    // SAFETY: alive until the end of this function.
    let cache = unsafe { at.as_ref() };
    forget_slot(cache.arena.tag);
    cache.give_all();
    cache.arena.cache_left(at.as_ptr());
    // SAFETY: made from a box; neither table, list nor books refer to it.
    drop(unsafe { Box::from_raw(at.as_ptr()) });
}

fn slot_index(tag: u32) -> usize {
    (tag >> KIND_MASK.count_ones()) as usize % SLOTS
}

fn forget_slot(tag: u32) {
    TABLE.with(|table| {
        let slot = &table[slot_index(tag)];
        if slot.tag.get() == tag {
            slot.tag.set(NO_POOL);
        }
    });
}

/// The running thread's cache for the pool with this tag, if the table has it.
///
/// The reference is good until the thread retires the cache, which no code that holds one does.
#[inline]
fn cached<'a>(tag: u32) -> Option<&'a Cache> {
    TABLE.with(|table| {
        let slot = &table[slot_index(tag)];
        // SAFETY: with a tag, the cache is alive.
        (slot.tag.get() == tag).then(|| unsafe { slot.cache.get().as_ref() })
    })
}

/// Finds or makes the running thread's cache; none when the pool is closed, or the thread ends.
#[cold]
#[inline(never)]
fn find<'a>(arena: &Arc<Arena>) -> Option<&'a Cache> {
    let find = |caches: &Caches| {
        let mut caches = caches.0.try_borrow_mut().ok()?;
        // SAFETY: what is on the list is alive.
        let tag = |cache: &NonNull<Cache>| unsafe { cache.as_ref() }.arena.tag;
        let cache = match caches.iter().find(|cache| tag(cache) == arena.tag) {
            Some(&cache) => cache,
            None => {
                // A good moment to let go of pools that are no more.
                for i in (0..caches.len()).rev() {
                    // SAFETY: as above.
                    if unsafe { caches[i].as_ref() }.arena.is_closed() {
                        retire(caches.swap_remove(i));
                    }
                }
                let cache = make(arena)?;
                caches.push(cache);
                cache
            }
        };
        TABLE.with(|table| {
            let slot = &table[slot_index(arena.tag)];
            slot.cache.set(cache);
            slot.tag.set(arena.tag);
        });
        // SAFETY: as above.
        Some(unsafe { cache.as_ref() })
    };
    CACHES.try_with(find).ok().flatten()
}

/// A cache on the pool's books; none when the pool is closed.
fn make(arena: &Arc<Arena>) -> Option<NonNull<Cache>> {
    let cache = Box::into_raw(Box::new(Cache {
        frames: Magazine::new(&arena.frames),
        views: Magazine::new(&arena.views),
        blocks: Magazine::new(&arena.blocks),
        arena: Arc::clone(arena),
    }));
    if !arena.cache_joined(cache) {
        // SAFETY: made from a box just now, and nobody else has heard of it.
        drop(unsafe { Box::from_raw(cache) });
        return None;
    }
    NonNull::new(cache)
}

/// Empties the running thread's magazines for this pool, if it has any.
pub(crate) fn leave(arena: &Arena) {
    let cache = CACHES.try_with(|caches| {
        let mut caches = caches.0.try_borrow_mut().ok()?;
        // SAFETY: what is on the list is alive.
        let tag = |cache: &NonNull<Cache>| unsafe { cache.as_ref() }.arena.tag;
        let at = caches.iter().position(|cache| tag(cache) == arena.tag)?;
        Some(caches.swap_remove(at))
    });
    if let Ok(Some(cache)) = cache {
        retire(cache);
    }
}

impl What {
    #[inline]
    fn of(self, cache: &Cache) -> &Magazine {
        match self {
            What::Frame => &cache.frames,
            What::View => &cache.views,
            What::Block => &cache.blocks,
        }
    }

    fn stock(self, arena: &Arena) -> &Stock {
        match self {
            What::Frame => &arena.frames,
            What::View => &arena.views,
            What::Block => &arena.blocks,
        }
    }
}

#[inline(always)]
fn take(arena: &Arc<Arena>, what: What) -> Option<Entry> {
    match cached(arena.tag).and_then(|cache| what.of(cache).pop()) {
        Some(entry) => Some(entry),
        None => take_slow(arena, what),
    }
}

#[cold]
#[inline(never)]
fn take_slow(arena: &Arc<Arena>, what: What) -> Option<Entry> {
    let stock = what.stock(arena);
    let Some(cache) = find(arena) else { return arena.take_one(stock) };
    let magazine = what.of(cache);
    if magazine.count() == 0 && !magazine.refill(arena, stock) {
        return None;
    }
    magazine.pop()
}

/// A free frame of the pool. Its contents and all fields but the tag and the count are stale.
#[inline]
pub(crate) fn take_frame(arena: &Arc<Arena>) -> Option<Entry> {
    take(arena, What::Frame)
}

/// For who takes many descriptors of one kind: where they lie is looked up once.
pub(crate) struct Taking<'a> {
    arena: &'a Arc<Arena>,
    what: What,
    magazine: Option<&'a Magazine>,
}

impl<'a> Taking<'a> {
    #[inline]
    pub(crate) fn of(arena: &'a Arc<Arena>, what: What) -> Self {
        Self { arena, what, magazine: cached(arena.tag).map(|cache| what.of(cache)) }
    }

    /// A free one.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Entry> {
        match self.magazine.and_then(Magazine::pop) {
            Some(entry) => Some(entry),
            None => self.take_slowly(),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_slowly(&mut self) -> Option<Entry> {
        let taken = take_slow(self.arena, self.what);
        // That may have made a cache.
        *self = Self::of(self.arena, self.what);
        taken
    }
}

/// True if `take_frame` would find nothing.
#[inline]
pub(crate) fn is_dry(arena: &Arena) -> bool {
    cached(arena.tag).is_none_or(|cache| cache.frames.count() == 0) && arena.frames.depot.len() == 0
}

/// Free frames in the running thread's magazine.
#[inline]
pub(crate) fn own_frames(arena: &Arena) -> usize {
    cached(arena.tag).map_or(0, |cache| cache.frames.count())
}

/// A free view descriptor of the pool.
#[inline]
pub(crate) fn take_view(arena: &Arc<Arena>) -> Option<Entry> {
    take(arena, What::View)
}

/// A free block of the pool, as `take_frame`.
#[inline]
pub(crate) fn take_block(arena: &Arc<Arena>) -> Option<Entry> {
    // Without any, asking is no exhaustion.
    if arena.blocks.limit == 0 { None } else { take(arena, What::Block) }
}
