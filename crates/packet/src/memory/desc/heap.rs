//! CLOGS. The marks that faults leave in a tag, a frame's bytes on the heap, and counts of all that
//! was done.

use super::{Entry, Item};
use crate::limits::FRAME_SIZE_BYTES;
use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::cell::Cell;

/// Bits of a tag, above the pool's number. A tag's frames and views all have those of their pool.
pub(crate) const HEAP: u32 = 1 << 31;
pub(crate) const PULL_UP: u32 = 1 << 30;
pub(crate) const WALK: u32 = 1 << 29;
pub(crate) const PULL_UP_BEHIND_SMALL: u32 = 1 << 28;
pub(crate) const MARKS: u32 = HEAP | PULL_UP | WALK | PULL_UP_BEHIND_SMALL;

/// Counts of the calling thread's faulty work, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Mappings made, and unmapped again, to join what was queued.
    pub mappings: u64,
    /// Bytes copied into them.
    pub joined_bytes: u64,
    /// Links of chains followed to find their ends.
    pub links_walked: u64,
    /// Frames allocated, each freed later by some thread.
    pub allocations: u64,
}

thread_local! {
    static COUNTS: Cell<Counts> = const {
        Cell::new(Counts { mappings: 0, joined_bytes: 0, links_walked: 0, allocations: 0 })
    };
}

/// Returns the counts of the calling thread.
pub fn counts() -> Counts {
    COUNTS.get()
}

pub(crate) fn count(change: impl FnOnce(&mut Counts)) {
    // A thread that is ending frees frames, and counts no more.
    let _ = COUNTS.try_with(|cell| {
        let mut counts = cell.get();
        change(&mut counts);
        cell.set(counts);
    });
}

// heap_per_packet: the frame's place in the arena holds the address of the block that holds its
// bytes, while it is out.

const BLOCK: Layout = match Layout::from_size_align(FRAME_SIZE_BYTES, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("a frame has a layout"),
};

fn is_of_heap(frame: Entry) -> bool {
    frame.tag() & HEAP != 0 && !frame.is_in_block()
}

/// Returns the place of the bytes of a frame or block that is out: `frame` is its own descriptor,
/// `place` its place in the arena.
#[inline]
pub(crate) fn base(frame: Entry, place: *mut u8) -> *mut u8 {
    if !is_of_heap(frame) {
        return place;
    }
    // SAFETY: a frame that is out has had the address written there by `leaves_home`, aligned as
    // frames are, and nobody writes there until it is home again: all its bytes are reached through
    // this function.
    unsafe { place.cast::<*mut u8>().read() }
}

/// Gives a descriptor that is taken from its magazine or depot memory for its bytes. Where there is
/// none the program ends, as with any allocation.
#[inline]
pub(crate) fn leaves_home(entry: Entry, item: Item) {
    if item != Item::Frame || !is_of_heap(entry) {
        return;
    }
    // SAFETY: the size is not zero.
    let block = unsafe { System.alloc(BLOCK) };
    if block.is_null() {
        handle_alloc_error(BLOCK);
    }
    // SAFETY: the caller owns the frame, and so its place in the arena.
    unsafe { entry.place().cast::<*mut u8>().write(block) };
    count(|counts| counts.allocations += 1);
}

/// Frees the bytes of a descriptor that is put into one of them: nobody refers to them any more.
#[inline]
pub(crate) fn comes_home(entry: Entry, item: Item) {
    if item == Item::Frame && is_of_heap(entry) {
        // SAFETY: allocated in `leaves_home` by the same allocator and layout, once for each time
        // that the frame is out.
        unsafe { System.dealloc(base(entry, entry.place()), BLOCK) };
    }
}
