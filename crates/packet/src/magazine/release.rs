//! Giving back: descriptors go into the running thread's magazines, frames when the last holder is gone.

use super::{Cache, cached, find};
use crate::arena::{Arena, What};
use crate::desc::{Entry, KIND_MASK};

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
        give(frame, frame.tag(), What::Frame);
    }
}

/// Gives up a view or a block.
#[inline(never)]
fn release_other(entry: Entry) {
    let owner = entry.frame();
    if takes_owed(owner) || owner.refs().release() {
        if owner.is_frame() && release_with_frame(entry, owner) {
            return;
        }
        let what = if owner.is_in_block() { What::Block } else { What::Frame };
        give(owner, owner.tag() & !KIND_MASK, what);
    }
    if owner != entry {
        give(entry, entry.tag() & !KIND_MASK, What::View);
    }
}

/// Gives back a view and its frame, to which nobody else refers, where they are of one pool and the magazines have room; else
/// nothing is done.
#[inline(always)]
fn release_with_frame(view: Entry, frame: Entry) -> bool {
    let Some(cache) = cached(frame.tag()) else { return false };
    let is_one_pools = view.tag() & !KIND_MASK == frame.tag();
    let has_room = is_one_pools && !cache.frames.is_full() && !cache.views.is_full();
    cache.owed.note_home(frame);
    has_room && cache.frames.push(frame) && cache.views.push(view)
}

/// Whether this was a share of a frame whose only other one the thread owes. If it was not the next, no share is owed
/// any more.
#[inline]
fn takes_owed(frame: Entry) -> bool {
    let Some(cache) = cached(frame.tag()) else { return false };
    let is_taken = cache.owed.taking().take(frame);
    if !is_taken && !cache.owed.is_empty() {
        give_up_owed(cache);
    }
    is_taken
}

/// Gives up all shares that the thread owes.
#[cold]
#[inline(never)]
pub(super) fn give_up_owed(cache: &Cache) {
    while let Some(frame) = cache.owed.pop() {
        if frame.refs().release() {
            give(frame, frame.tag(), What::Frame);
        }
    }
}

/// Gives up what the running thread owes frames of this pool, if it does.
pub(crate) fn settle(arena: &Arena) {
    if let Some(cache) = cached(arena.tag).filter(|cache| !cache.owed.is_empty()) {
        give_up_owed(cache);
    }
}

/// Gives up the descriptors from `first` to `last`, which follow each other.
pub(crate) fn release_run(first: Entry, last: Entry) {
    let mut entry = first;
    loop {
        let tag = entry.tag() & !KIND_MASK;
        let other = match cached(tag) {
            Some(cache) => take_home(cache, tag, entry, last),
            None => Some(entry),
        };
        let Some(other) = other else { return };
        let next = other.next();
        // That may make a cache, and retire others.
        release(other);
        if other == last {
            return;
        }
        entry = next;
    }
}

/// Gives back views from `first` to `last`, and their frames: those to which nobody else refers, or only the thread itself,
/// where both are of the pool with this `tag` and its `cache` has room. The first that is no such view.
#[inline(always)]
fn take_home(cache: &Cache, tag: u32, first: Entry, last: Entry) -> Option<Entry> {
    let (frames, views) = (&cache.frames, &cache.views);
    let mut places = frames.free().iter_mut().zip(views.free());
    let (mut entry, mut count, mut owed) = (first, 0, cache.owed.taking());
    let other = loop {
        let frame = entry.frame();
        let is_one_pools = frame != entry && entry.tag() & !KIND_MASK == tag && frame.tag() == tag;
        if !is_one_pools {
            break Some(entry);
        }
        let Some((to_frame, to_view)) = places.next() else { break Some(entry) };
        if frame.refs().is_sole() {
            cache.owed.note_home(frame);
        } else if !owed.take(frame) {
            break Some(entry);
        }
        let next = entry.next();
        (*to_frame, *to_view) = (Some(frame), Some(entry));
        count += 1;
        if entry == last {
            break None;
        }
        entry = next;
    };
    frames.set_count(frames.count() + count);
    views.set_count(views.count() + count);
    other
}

/// Gives up a packet of one frame to which others refer; false, and nothing is done, where it is none.
#[inline]
pub(crate) fn release_shared_frame(entry: Entry) -> bool {
    if entry.next() != entry || !entry.is_frame() || entry.refs().is_sole() {
        return false;
    }
    // The table has no tag of a view or block.
    if !cached(entry.tag()).is_some_and(|cache| cache.owed.put(entry)) {
        release_share(entry);
    }
    true
}

/// Gives up a share of a frame that is not owed, and those that are, if any: others wait for them.
#[inline(never)]
fn release_share(frame: Entry) {
    if frame.refs().release() {
        give(frame, frame.tag(), What::Frame);
    }
    if let Some(cache) = cached(frame.tag()).filter(|cache| !cache.owed.is_empty()) {
        give_up_owed(cache);
    }
}

#[inline]
fn give(entry: Entry, tag: u32, what: What) {
    if !cached(tag).is_some_and(|cache| what.of(cache).push(entry)) {
        give_slow(entry, tag, what);
    }
}

#[cold]
#[inline(never)]
fn give_slow(entry: Entry, tag: u32, what: What) {
    // SAFETY: the entry is owned and not at home yet.
    let arena = unsafe { Arena::of(entry) };
    debug_assert_eq!(arena.tag, tag);
    let Some(cache) = find(&arena) else { return arena.give_one(what.stock(&arena), entry) };
    let magazine = what.of(cache);
    if !magazine.push(entry) {
        magazine.give_half(what.stock(&arena));
        magazine.push(entry);
    }
}
