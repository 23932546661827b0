//! CLOGS. Historical faults, on purpose, for the laboratory (`millstream clog`). Compiled under the feature `clogs` alone.
//!
//! A pool that is made with [`Pool::clogged`] marks its frames. Who comes upon a mark does what was done then: correct to
//! the byte, and slow. An engine over such a pool is clogged; one over another pool is not, though in the same process.
//!
//! | mark | what it does | what the stack does without |
//! |---|---|---|
//! | [`Clogs::pull_up`] | a read joins all that is queued in one fresh mapping, copies from it and unmaps it | copies from the frames |
//! | [`Clogs::put_back_walk`] | a read takes the whole chain, and walks it to its end to put the rest back; the limit counts payload, and nothing is coalesced | drops what was read; the limit counts memory held |
//! | [`Clogs::heap_per_packet`] | each frame's bytes are allocated and freed with it | frames of an arena, in each thread's magazine |
//!
//! [`counts`] tells how much of each the calling thread did.

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::cell::Cell;

use crate::arena::{Arena, What};
use crate::byte_queue::ByteQueue;
use crate::desc::Entry;
use crate::limits::{DESCRIPTOR_SIZE_BYTES, FRAME_SIZE_BYTES};
use crate::meta::Meta;
use crate::packet::Packet;
use crate::pool::{Pool, PoolConfig, PoolError};

/// Bits of a tag, above the pool's number. A tag's frames and views all have those of their pool.
pub(crate) const HEAP: u32 = 1 << 31;
const PULL_UP: u32 = 1 << 30;
const WALK: u32 = 1 << 29;
pub(crate) const MARKS: u32 = HEAP | PULL_UP | WALK;

/// Which faults are switched on. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clogs {
    /// See the module.
    pub pull_up: bool,
    /// See the module.
    pub put_back_walk: bool,
    /// See the module. Such a pool tells of no [`extents`](Pool::extents): links whose device needs them refuse it.
    pub heap_per_packet: bool,
}

impl Clogs {
    fn marks(self) -> u32 {
        let Self { pull_up, put_back_walk, heap_per_packet } = self;
        let mark = |on, bit| if on { bit } else { 0 };
        mark(pull_up, PULL_UP) | mark(put_back_walk, WALK) | mark(heap_per_packet, HEAP)
    }
}

/// What the calling thread did of it, since it began.
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

/// What the calling thread did.
pub fn counts() -> Counts {
    COUNTS.get()
}

fn count(change: impl FnOnce(&mut Counts)) {
    // A thread that is ending frees frames, and counts no more.
    let _ = COUNTS.try_with(|cell| {
        let mut counts = cell.get();
        change(&mut counts);
        cell.set(counts);
    });
}

impl Pool {
    /// As [`Pool::new`], with faults switched on for its frames.
    ///
    /// # Errors
    /// As there.
    pub fn clogged(config: PoolConfig, clogs: Clogs) -> Result<Self, PoolError> {
        Ok(Self { arena: Arena::marked(config.check()?, clogs.marks())? })
    }
}

// heap_per_packet: the frame's place in the arena holds the address of the block that holds its bytes, while it is out.

const BLOCK: Layout = match Layout::from_size_align(FRAME_SIZE_BYTES, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("a frame has a layout"),
};

fn is_of_heap(frame: Entry) -> bool {
    frame.tag() & HEAP != 0 && !frame.is_in_block()
}

/// Where the bytes of a frame or block are that is out: `frame` is its own descriptor, `place` its place in the arena.
#[inline]
pub(crate) fn base(frame: Entry, place: *mut u8) -> *mut u8 {
    if !is_of_heap(frame) {
        return place;
    }
    // SAFETY: a frame that is out has had the address written there by `leaves_home`, aligned as frames are, and nobody
    // writes there until it is home again: all its bytes are reached through this function.
    unsafe { place.cast::<*mut u8>().read() }
}

/// A descriptor is taken from its magazine or depot. Where there is no memory the program ends, as with any allocation.
#[inline]
pub(crate) fn leaves_home(entry: Entry, what: What) {
    if what != What::Frame || !is_of_heap(entry) {
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

/// It is put into one of them: nobody refers to its bytes any more.
#[inline]
pub(crate) fn comes_home(entry: Entry, what: What) {
    if what == What::Frame && is_of_heap(entry) {
        // SAFETY: allocated in `leaves_home` by the same allocator and layout, once for each time that the frame is out.
        unsafe { System.dealloc(base(entry, entry.place()), BLOCK) };
    }
}

impl ByteQueue {
    fn is_marked(&self, mark: u32) -> bool {
        self.last.is_some_and(|last| last.tag() & mark != 0)
    }

    /// Whether its limit counts what was sent, not the memory that this holds.
    pub(crate) fn counts_payload(&self) -> bool {
        self.is_marked(WALK)
    }

    /// Reads as a fault has it; `None` where none is switched on.
    #[inline]
    pub(crate) fn read_clogged(&mut self, out: &mut [u8]) -> Option<usize> {
        if self.is_marked(PULL_UP) {
            return self.read_pulled_up(out);
        }
        self.is_marked(WALK).then(|| self.read_and_put_back(out))
    }

    /// Joins all that is queued in one fresh mapping and reads from there; `None`, and nothing is read, when the system
    /// gives no memory.
    fn read_pulled_up(&mut self, out: &mut [u8]) -> Option<usize> {
        let mut whole = mapped::Mapped::new(self.len())?;
        let (mut done, bytes) = (0, whole.bytes_mut());
        for slice in self.slices() {
            bytes[done..done + slice.len()].copy_from_slice(slice);
            done += slice.len();
        }
        let read = out.len().min(done);
        out[..read].copy_from_slice(&bytes[..read]);
        count(|counts| {
            counts.mappings += 1;
            counts.joined_bytes += done as u64;
        });
        self.discard(read);
        Some(read)
    }

    /// Takes the whole chain off the queue, reads from its front, and puts the rest back.
    fn read_and_put_back(&mut self, out: &mut [u8]) -> usize {
        let Some(last) = self.last.take() else { return 0 };
        let (len, held) = (self.len(), self.gauge.held);
        last.set_totals(len, (held / DESCRIPTOR_SIZE_BYTES) as u32);
        last.set_meta(Meta::default());
        let mut chain = Packet::from_ring(last);
        self.cursors.clear();
        self.framed.clear();
        self.took(len, held);
        let read = chain.copy_to(0, out);
        chain.trim_front(read);
        if !chain.is_empty() {
            count(|counts| counts.links_walked += walk(&chain));
            self.put_back(chain);
        }
        read
    }
}

/// Follows a chain from its first descriptor to its last, as who knows the first alone has to. How many links that were.
#[inline(never)]
fn walk(chain: &Packet) -> u64 {
    let first = chain.first();
    let (mut end, mut links) = (first, 0);
    while end.next() != first {
        end = end.next();
        links += 1;
    }
    links
}

/// Memory of its own for each use.
mod mapped {
    use std::ptr::NonNull;
    use std::slice;

    pub(super) struct Mapped {
        at: NonNull<u8>,
        len: usize,
    }

    impl Mapped {
        /// `len` bytes, at least one, all zero; `None` when the system gives none.
        #[cfg(not(miri))]
        pub(super) fn new(len: usize) -> Option<Self> {
            let len = len.max(1);
            let (access, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new anonymous mapping at an address of the system's choice.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
            if at == libc::MAP_FAILED {
                return None;
            }
            let mapped = Self { at: NonNull::new(at.cast())?, len };
            // Pages of the usual size, as there were then.
            // SAFETY: the range is this mapping; the advice changes no contents.
            unsafe { libc::madvise(at, len, libc::MADV_NOHUGEPAGE) };
            Some(mapped)
        }

        #[cfg(miri)]
        pub(super) fn new(len: usize) -> Option<Self> {
            let len = len.max(1);
            let memory = Box::leak(vec![0; len].into_boxed_slice());
            Some(Self { at: NonNull::from(memory).cast(), len })
        }

        pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
            // SAFETY: the mapping is this value's alone, and zeroed by the system.
            unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
        }
    }

    impl Drop for Mapped {
        #[cfg(not(miri))]
        fn drop(&mut self) {
            // SAFETY: mapped in `new`, and no slice of it outlives this value.
            unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
        }

        #[cfg(miri)]
        fn drop(&mut self) {
            let all = std::ptr::slice_from_raw_parts_mut(self.at.as_ptr(), self.len);
            // SAFETY: leaked in `new` from a box of this length.
            drop(unsafe { Box::from_raw(all) });
        }
    }
}
