//! Giving back: descriptors go into the running thread's magazines, frames when the last holder is
//! gone.

use super::{Cache, cached, find};
use crate::memory::arena::Arena;
use crate::memory::desc::{Entry, FRAME_UNITS, Item, KIND_MASK};

/// Gives up an owned descriptor: the frame goes home when nobody else refers to it.
#[inline]
pub(crate) fn release(entry: Entry) {
    if entry.is_frame() {
        release_frame(entry);
    } else {
        release_other(entry);
    }
}

/// Gives up a frame in the plainest case, that nobody else refers to it and the magazine has room;
/// otherwise false, and nothing is done.
#[inline]
pub(crate) fn release_sole_frame(entry: Entry) -> bool {
    // The table has no tag of a view or block, so this tells frames too.
    let Some(cache) = cached(entry.tag()) else { return false };
    // With one owner there is nobody to race with: no atomic exchange.
    entry.refs().is_sole() && cache.frames.push(entry)
}

#[inline]
fn release_frame(frame: Entry) {
    if release_sole_frame(frame) {
        return;
    }
    if frame.refs().release() {
        give(frame, frame.tag(), Item::Frame);
    }
}

/// Gives up a view or a block.
#[inline(never)]
fn release_other(entry: Entry) {
    let owner = entry.frame();
    if owner.refs().release() {
        if owner.is_frame() && release_with_frame(entry, owner) {
            return;
        }
        let item = if owner.is_in_block() { Item::Block } else { Item::Frame };
        give(owner, owner.tag() & !KIND_MASK, item);
    }
    if owner != entry {
        give(entry, entry.tag() & !KIND_MASK, Item::View);
    }
}

/// Gives back a view and its frame, to which nobody else refers, where they are of one pool and the
/// magazines have room; else nothing is done.
#[inline(always)]
fn release_with_frame(view: Entry, frame: Entry) -> bool {
    let Some(cache) = cached(frame.tag()) else { return false };
    let is_one_pools = view.tag() & !KIND_MASK == frame.tag();
    let has_room = is_one_pools && !cache.frames.is_full() && !cache.views.is_full();
    has_room && cache.frames.push(frame) && cache.views.push(view)
}

/// For who gives up many descriptors of one pool: where they go is looked up once.
pub(crate) struct Releasing<'a> {
    /// The pool's tag, without a kind.
    tag: u32,
    cache: Option<&'a Cache>,
}

impl Releasing<'_> {
    /// For descriptors of the pool that `first` is of; others are given up, too.
    // Where the table is reached from many places, its own reaching is not inlined: two calls more
    // for one packet.
    #[inline(never)]
    pub(crate) fn like(first: Entry) -> Self {
        let tag = first.tag() & !KIND_MASK;
        Self { tag, cache: cached(tag) }
    }

    /// Releases an entry as [`release`] does. Returns the units that it [counts](Entry::units).
    #[inline(always)]
    pub(crate) fn release(&mut self, entry: Entry) -> u32 {
        match self.cache.and_then(|cache| release_sole_view(cache, self.tag, entry)) {
            Some(units) => units,
            None => self.release_other(entry),
        }
    }

    /// Gives up a frame as [`release_sole_frame`] does, into the magazine that is known. Returns
    /// false, with nothing done, where that is not possible.
    #[inline(always)]
    pub(crate) fn release_sole_frame(&self, entry: Entry) -> bool {
        let is_plain = entry.tag() == self.tag && entry.refs().is_sole();
        is_plain && self.cache.is_some_and(|cache| cache.frames.push(entry))
    }

    /// Looks for the magazines again: a call that gave something up by another way may have made
    /// some, and retired others.
    pub(crate) fn look_again(&mut self) {
        self.cache = cached(self.tag);
    }

    #[inline(never)]
    fn release_other(&mut self, entry: Entry) -> u32 {
        // A frame that was handed over as a packet, and that has been sent, may go into the cache.
        if self.release_sole_frame(entry) {
            return FRAME_UNITS;
        }
        let units = entry.units();
        release(entry);
        self.look_again();
        units
    }
}

/// Gives up the descriptors from `first` to `last`, which follow each other.
pub(crate) fn release_run(first: Entry, last: Entry) {
    let (mut entry, mut releasing) = (first, Releasing::like(first));
    loop {
        let next = entry.next();
        releasing.release(entry);
        if entry == last {
            return;
        }
        entry = next;
    }
}

/// Gives back a view of a frame and that frame, to which nobody else refers, where both are of the
/// pool with this `tag` and its `cache` has room: what the view counted. Otherwise nothing is done.
#[inline(always)]
fn release_sole_view(cache: &Cache, tag: u32, view: Entry) -> Option<u32> {
    // Only a view of a frame, no block, has an owner that is a frame.
    let units = view.frame_view_units(tag)?;
    let frame = view.owner();
    let is_home = frame.tag() == tag
        && frame.refs().is_sole()
        && !cache.frames.is_full()
        && cache.views.push(view)
        && cache.frames.push(frame);
    is_home.then_some(units)
}

/// Gives up a packet of one frame to which others refer; false, and nothing is done, where it is
/// none.
#[inline]
pub(crate) fn release_shared_frame(entry: Entry) -> bool {
    if entry.next() != entry || !entry.is_frame() || entry.refs().is_sole() {
        return false;
    }
    if entry.refs().release() {
        give(entry, entry.tag(), Item::Frame);
    }
    true
}

#[inline]
fn give(entry: Entry, tag: u32, item: Item) {
    if !cached(tag).is_some_and(|cache| item.of(cache).push(entry)) {
        give_slow(entry, tag, item);
    }
}

#[cold]
#[inline(never)]
fn give_slow(entry: Entry, tag: u32, item: Item) {
    // SAFETY: the entry is owned and not at home yet.
    let arena = unsafe { Arena::of(entry) };
    debug_assert_eq!(arena.tag, tag);
    let Some(cache) = find(&arena) else { return arena.give_one(item.stock(&arena), entry) };
    let magazine = item.of(cache);
    if !magazine.push(entry) {
        magazine.give_half(item.stock(&arena));
        magazine.push(entry);
    }
}
