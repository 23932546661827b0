//! Each thread's magazines for each pool, and taking from them and giving back.
//!
//! The thread finds its magazine through a small table indexed by the pool's number; the table has
//! no destructor, so that looking in it is a plain load. A thread's end empties the magazines into
//! their depots.

mod release;

use super::arena::Arena;
use super::desc::{Entry, Item, KIND_MASK};
use super::magazine::{Magazine, Magazines};
use super::stock::Stock;
pub(crate) use release::{
    Releasing, release, release_run, release_shared_frame, release_sole_frame,
};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// One thread's magazines, and the arena that they are of.
pub(crate) struct Cache {
    magazines: Magazines,
    arena: Arc<Arena>,
}

impl Deref for Cache {
    type Target = Magazines;

    #[inline]
    fn deref(&self) -> &Magazines {
        &self.magazines
    }
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
    cache.arena.cache_left(&cache.magazines);
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

/// Returns the running thread's cache for the pool with this tag, if the table has it.
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

/// Makes a cache on the pool's books; none when the pool is closed.
fn make(arena: &Arc<Arena>) -> Option<NonNull<Cache>> {
    let cache = Box::into_raw(Box::new(Cache {
        magazines: Magazines {
            frames: Magazine::new(&arena.frames),
            views: Magazine::new(&arena.views),
            blocks: Magazine::new(&arena.blocks),
        },
        arena: Arc::clone(arena),
    }));
    // SAFETY: made from a box just now; only a place is formed.
    if !arena.cache_joined(unsafe { &raw const (*cache).magazines }) {
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

impl Item {
    #[inline]
    fn of(self, cache: &Cache) -> &Magazine {
        match self {
            Item::Frame => &cache.frames,
            Item::View => &cache.views,
            Item::Block => &cache.blocks,
        }
    }

    fn stock(self, arena: &Arena) -> &Stock {
        match self {
            Item::Frame => &arena.frames,
            Item::View => &arena.views,
            Item::Block => &arena.blocks,
        }
    }
}

#[inline(always)]
fn take(arena: &Arc<Arena>, item: Item) -> Option<Entry> {
    match cached(arena.tag).and_then(|cache| item.of(cache).pop()) {
        Some(entry) => Some(entry),
        None => take_slow(arena, item),
    }
}

#[cold]
#[inline(never)]
fn take_slow(arena: &Arc<Arena>, item: Item) -> Option<Entry> {
    let stock = item.stock(arena);
    let Some(cache) = find(arena) else { return arena.take_one(stock) };
    let magazine = item.of(cache);
    if magazine.count() == 0 {
        let found = magazine.refill(stock);
        arena.after_take(stock, !found);
        if !found {
            return None;
        }
    }
    magazine.pop()
}

/// Takes a free frame of the pool. Its contents and all fields but the tag and the count are stale.
#[inline]
pub(crate) fn take_frame(arena: &Arc<Arena>) -> Option<Entry> {
    take(arena, Item::Frame)
}

/// For who takes many descriptors of one kind: where they lie is looked up once.
pub(crate) struct Taking<'a> {
    arena: &'a Arc<Arena>,
    item: Item,
    magazine: Option<&'a Magazine>,
}

impl<'a> Taking<'a> {
    #[inline]
    pub(crate) fn of(arena: &'a Arc<Arena>, item: Item) -> Self {
        Self { arena, item, magazine: cached(arena.tag).map(|cache| item.of(cache)) }
    }

    /// Takes a free one.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Entry> {
        match self.magazine.and_then(Magazine::pop_ahead) {
            Some(entry) => Some(entry),
            None => self.take_slowly(),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_slowly(&mut self) -> Option<Entry> {
        let taken = take_slow(self.arena, self.item);
        // The call may have made a cache.
        *self = Self::of(self.arena, self.item);
        taken
    }
}

/// Returns true if `take_frame` would find nothing.
#[inline]
pub(crate) fn is_dry(arena: &Arena) -> bool {
    cached(arena.tag).is_none_or(|cache| cache.frames.count() == 0) && arena.frames.depot.len() == 0
}

/// Returns the number of free frames in the running thread's magazine.
#[inline]
pub(crate) fn own_frames(arena: &Arena) -> usize {
    cached(arena.tag).map_or(0, |cache| cache.frames.count())
}

/// Takes a free view descriptor of the pool.
#[inline]
pub(crate) fn take_view(arena: &Arc<Arena>) -> Option<Entry> {
    take(arena, Item::View)
}

/// Takes a free block of the pool, as `take_frame`.
#[inline]
pub(crate) fn take_block(arena: &Arc<Arena>) -> Option<Entry> {
    // Without any, asking is no exhaustion.
    if arena.blocks.limit == 0 { None } else { take(arena, Item::Block) }
}

/// Takes a free frame of the arena of a packet that is out.
pub(crate) fn frame_beside(entry: Entry) -> Option<Entry> {
    // SAFETY: the entry is owned and out.
    take_frame(&unsafe { Arena::of(entry) })
}
