//! The descriptor of a frame or a view: one cache line, laid out by the uses of its fields.
//!
//! ```text
//! byte  0        8                16      20     22    24         28         32             64
//!       next     frame: refs,     tag     offset len   total_len  held_units meta
//!                 shared range
//!                view: owner
//!       └──────────── every descriptor ────────────┘   └──── valid in a packet's last one ────┘
//! ```
//!
//! Each field has its writers and readers:
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `next`, `offset`, `len`, `total_len`, `held_units`, `meta` | the packet or queue that owns the descriptor | the same |
//! | `frame.shared_from`, `shared_to` | the owner of the frame's own descriptor | the same |
//! | `frame.refs` | whoever holds the frame's descriptor or a view of it, atomically | the same |
//! | `owner`, `tag` | the arena when it carves; `owner` and the tag's kind: who makes the view | the owner |
//! | the frame's bytes | the owner of its descriptor: outside the shared range, or anywhere while `refs` is 1; a view: only while `refs` is 1 | all that hold it, within their range |
//!
//! A packet is a ring of descriptors through `next`; the packet points to the last one, whose
//! `next` is the first. So first and last are both at hand with one pointer, and two rings are
//! joined by exchanging two `next`s.
//!
//! Descriptor number *i* of a chunk belongs to the frame number *i*: the address of one follows
//! from that of the other by arithmetic, without a load.
//!
//! A block is a frame of another size, in chunks of its own; which of the two it is stands in the
//! tag of its descriptor and of every view of it. All that this page says of frames holds for
//! blocks too.

#[cfg(feature = "clogs")]
pub(crate) mod heap;
mod own;

use super::refs::Refs;
use crate::limits::{
    BLOCK_HELD_BYTES, BLOCK_ROOM_BYTES, BLOCK_SIZE_BYTES, CHUNK_SIZE_BYTES, DESCRIPTOR_SIZE_BYTES,
    FRAME_HELD_BYTES, FRAME_SIZE_BYTES,
};
use crate::meta::Meta;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::slice;

#[repr(C, align(64))]
pub(crate) struct Descriptor {
    next: *mut Descriptor,
    link: Link,
    tag: u32,
    offset: u16,
    len: u16,
    total_len: u32,
    held_units: u32,
    meta: Meta,
}

#[repr(C)]
union Link {
    owner: *mut Descriptor,
    frame: ManuallyDrop<FrameLink>,
}

#[repr(C)]
struct FrameLink {
    refs: Refs,
    shared_from: u16,
    shared_to: u16,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR_SIZE_BYTES);
#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(std::mem::offset_of!(Descriptor, meta) == 32);
const _: () = assert!(FRAME_SIZE_BYTES / DESCRIPTOR_SIZE_BYTES == 32);
const _: () = assert!(FRAME_HELD_BYTES.is_multiple_of(DESCRIPTOR_SIZE_BYTES));
const _: () = assert!(BLOCK_HELD_BYTES.is_multiple_of(DESCRIPTOR_SIZE_BYTES));
const _: () = assert!(BLOCK_ROOM_BYTES <= u16::MAX as usize);

/// A frame's place in its chunk is its descriptor's, shifted by so many bits; and a block's.
const FRAME_SHIFT: u32 = (FRAME_SIZE_BYTES / DESCRIPTOR_SIZE_BYTES).trailing_zeros();
const BLOCK_SHIFT: u32 = (BLOCK_SIZE_BYTES / DESCRIPTOR_SIZE_BYTES).trailing_zeros();

/// Held memory is counted in descriptors' sizes.
pub(crate) const FRAME_UNITS: u32 = (FRAME_HELD_BYTES / DESCRIPTOR_SIZE_BYTES) as u32;
pub(crate) const BLOCK_UNITS: u32 = (BLOCK_HELD_BYTES / DESCRIPTOR_SIZE_BYTES) as u32;
pub(crate) const VIEW_UNITS: u32 = 1;

/// Marks the end of a packet in a queue; no packet holds so many units.
pub(crate) const QUEUED: u32 = 1 << 31;

/// Most units that one packet holds: the mark stays free, and the bytes that they stand for fit a
/// `usize`.
pub(crate) const UNITS_LIMIT: u32 = {
    let addressable = usize::MAX / DESCRIPTOR_SIZE_BYTES;
    if addressable < QUEUED as usize { addressable as u32 } else { QUEUED - 1 }
};

/// Returns the units with so many more; `None` beyond what a packet may hold.
#[inline]
pub(crate) fn more_units(held: u32, more: u32) -> Option<u32> {
    // Either is below 2^31, so nothing wraps.
    held.checked_add(more).filter(|&units| units <= UNITS_LIMIT)
}

/// Panics for a caller that has computed a place outside the frame: to go on would be to touch
/// bytes of others.
#[cold]
#[inline(never)]
fn outside_frame() -> ! {
    panic!("bytes outside their frame");
}

/// The kind of a descriptor; the low bits of its tag, with [`IN_BLOCK`], the pool's number being
/// the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A frame (or block) of its own.
    Frame = 0,
    /// A reference to bytes of a frame that another packet is charged for.
    View = 1,
    /// The same, cut off from the rest of its frame and charged as if it held the frame alone.
    Part = 2,
}

/// The bit of a tag that says that the bytes are in a block.
pub(crate) const IN_BLOCK: u32 = 4;

/// The bits of a tag that say whose the memory is: none of them with a frame or a block of its own.
const VIEW_MASK: u32 = 3;

pub(crate) const KIND_MASK: u32 = VIEW_MASK | IN_BLOCK;

/// The kind of a stock; its bit of [`Arena::growth_wanted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Item {
    Frame = 1,
    View = 2,
    Block = 4,
}

/// A descriptor in the hands of its owner (a packet, a queue, a magazine).
///
/// The methods trust that: the one who calls owns the descriptor, or (for `refs`, `bytes`) a view
/// of its frame. Only `from_raw` makes one, and is unsafe for this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Entry(NonNull<Descriptor>);

// SAFETY: an entry is a pointer; its owner moves as a whole, and views of its frame on other
// threads touch only the atomic count and bytes that nobody writes.
unsafe impl Send for Entry {}

impl Entry {
    /// # Safety
    /// The pointer is to a descriptor in a chunk, its provenance is the whole extent, and the
    /// caller owns the descriptor.
    pub(crate) unsafe fn from_raw(at: NonNull<Descriptor>) -> Self {
        Self(at)
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> *mut Descriptor {
        self.0.as_ptr()
    }

    /// Writes a descriptor for the first time: free, referred to once.
    pub(crate) fn carve(self, tag: u32) {
        let frame = FrameLink { refs: Refs::new(), shared_from: 0, shared_to: 0 };
        let fresh = Descriptor {
            next: self.as_ptr(),
            link: Link { frame: ManuallyDrop::new(frame) },
            tag,
            offset: 0,
            len: 0,
            total_len: 0,
            held_units: 0,
            meta: Meta::default(),
        };
        // SAFETY: owned by the caller, who carves it out of the chunk.
        unsafe { self.as_ptr().write(fresh) };
    }

    /// Makes a frame an empty packet of its own.
    #[inline]
    pub(crate) fn reset_frame(self, headroom: usize) {
        self.reset(headroom.min(FRAME_SIZE_BYTES), 0, FRAME_UNITS);
    }

    /// Makes a frame a packet of its own, with `len` bytes behind `headroom` ones, still to be
    /// written.
    #[inline]
    pub(crate) fn reset_filled(self, headroom: usize, len: usize) {
        self.require_inside(headroom, len);
        self.reset(headroom, len, FRAME_UNITS);
    }

    /// Does the same with a block.
    #[inline]
    pub(crate) fn reset_block(self, headroom: usize) {
        self.reset(headroom.min(BLOCK_ROOM_BYTES), 0, BLOCK_UNITS);
    }

    #[inline]
    fn reset(self, headroom: usize, len: usize, units: u32) {
        debug_assert!(self.is_owner() && units == self.units());
        let at = self.as_ptr();
        // SAFETY: owned; field by field, since a reference to the whole would claim `refs` too.
        unsafe {
            (*at).next = at;
            (*at).offset = headroom as u16;
            (*at).len = len as u16;
            (*at).total_len = len as u32;
            (*at).held_units = units;
            (*at).meta = Meta::default();
        }
    }

    /// Makes a view descriptor refer to `len` bytes from `offset` of `frame`, and counts it there.
    /// `of` is the entry that the bytes are taken from.
    pub(crate) fn reset_view(self, kind: Kind, of: Entry, offset: usize, len: usize) {
        debug_assert!(kind != Kind::Frame);
        of.require_inside(offset, len);
        of.share(offset, len);
        let at = self.as_ptr();
        let owner = of.frame();
        let kind = kind as u32 | of.tag() & IN_BLOCK;
        // SAFETY: owned; field by field as above.
        unsafe {
            (*at).next = at;
            (*at).link = Link { owner: owner.as_ptr() };
            (*at).tag = ((*at).tag & !KIND_MASK) | kind;
            (*at).offset = offset as u16;
            (*at).len = len as u16;
        }
    }

    #[inline]
    pub(crate) fn next(self) -> Entry {
        // SAFETY: owned, and always part of a ring or list of owned descriptors.
        unsafe { Entry(NonNull::new_unchecked((*self.as_ptr()).next)) }
    }

    #[inline]
    pub(crate) fn set_next(self, next: Entry) {
        // SAFETY: owned.
        unsafe { (*self.as_ptr()).next = next.as_ptr() };
    }

    #[inline]
    pub(crate) fn tag(self) -> u32 {
        // SAFETY: owned.
        unsafe { (*self.as_ptr()).tag }
    }

    /// Returns true for a frame of its own: no view, and no block.
    #[inline]
    pub(crate) fn is_frame(self) -> bool {
        self.tag() & KIND_MASK == Kind::Frame as u32
    }

    /// Returns true for a frame or a block of its own: no view.
    #[inline]
    pub(crate) fn is_owner(self) -> bool {
        self.tag() & VIEW_MASK == Kind::Frame as u32
    }

    /// Returns true if its bytes are in a block, its own or another's.
    #[inline]
    pub(crate) fn is_in_block(self) -> bool {
        self.tag() & IN_BLOCK != 0
    }

    /// Returns the [units](Self::units) of a view of bytes in a frame, of the pool with this `tag`
    /// (without a kind); `None` for any other entry.
    #[inline]
    pub(crate) fn frame_view_units(self, tag: u32) -> Option<u32> {
        match self.tag() ^ tag {
            1 => Some(VIEW_UNITS),
            2 => Some(FRAME_UNITS + VIEW_UNITS),
            _ => None,
        }
    }

    /// Returns the number of bytes of the frame or block.
    #[inline]
    pub(crate) fn size(self) -> usize {
        if self.is_in_block() { BLOCK_ROOM_BYTES } else { FRAME_SIZE_BYTES }
    }

    /// Returns what this entry counts in a packet's memory held.
    #[inline]
    pub(crate) fn units(self) -> u32 {
        let tag = self.tag();
        let whole = if tag & IN_BLOCK == 0 { FRAME_UNITS } else { BLOCK_UNITS };
        match tag & VIEW_MASK {
            0 => whole,
            1 => VIEW_UNITS,
            _ => whole + VIEW_UNITS,
        }
    }

    /// Charges a [part](Kind::Part) of a frame as a [view](Kind::View), or a view as a part, where
    /// `behind`, which follows in a queue, is of the same frame: the frame is charged once then, to
    /// the last of them as `to` is a view. Returns the units by which this changed.
    #[inline]
    pub(crate) fn charge_beside(self, behind: Entry, to: Kind) -> u32 {
        let kind = self.tag() & VIEW_MASK;
        if kind == Kind::Frame as u32 || kind == to as u32 || self.owner() != behind.frame() {
            return 0;
        }
        let before = self.units();
        // SAFETY: owned.
        unsafe { (*self.as_ptr()).tag = (self.tag() & !VIEW_MASK) | to as u32 };
        before.abs_diff(self.units())
    }

    /// Returns the descriptor of the frame that the bytes are in: itself, or a view's owner.
    #[inline]
    pub(crate) fn frame(self) -> Entry {
        if self.is_owner() { self } else { self.owner() }
    }

    /// Returns the descriptor of the frame that a view refers to.
    #[inline]
    pub(crate) fn owner(self) -> Entry {
        debug_assert!(!self.is_owner());
        // SAFETY: owned, and a view: its owner is counted, so it is not free.
        unsafe { Entry(NonNull::new_unchecked((*self.as_ptr()).link.owner)) }
    }

    /// Returns the count of references to a frame; `self` is a frame's descriptor.
    #[inline]
    pub(crate) fn refs<'a>(self) -> &'a Refs {
        debug_assert!(self.is_owner());
        // SAFETY: a frame's descriptor holds a count for as long as the pool exists, and nobody
        // reaches it but through this.
        unsafe { &*(&raw const (*self.as_ptr()).link.frame).cast::<Refs>() }
    }

    /// Returns true while nobody else refers to the frame: all of it may be written.
    #[inline]
    pub(crate) fn is_unique(self) -> bool {
        self.frame().refs().is_sole()
    }

    /// Counts one more reference to the frame, for bytes of this entry.
    #[inline]
    fn share(self, offset: usize, len: usize) {
        let first = self.frame().refs().share();
        if self.is_owner() {
            let (from, to) = (offset as u16, (offset + len) as u16);
            // SAFETY: the owner of the frame's descriptor is the only one to touch its range.
            unsafe {
                let range = (&raw mut (*self.as_ptr()).link.frame).cast::<FrameLink>();
                (*range).shared_from = if first { from } else { from.min((*range).shared_from) };
                (*range).shared_to = if first { to } else { to.max((*range).shared_to) };
            }
        }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        // SAFETY: owned.
        unsafe { usize::from((*self.as_ptr()).len) }
    }

    #[inline]
    pub(crate) fn offset(self) -> usize {
        // SAFETY: owned.
        unsafe { usize::from((*self.as_ptr()).offset) }
    }

    #[inline]
    pub(crate) fn set_range(self, offset: usize, len: usize) {
        self.require_inside(offset, len);
        // SAFETY: owned.
        unsafe {
            (*self.as_ptr()).offset = offset as u16;
            (*self.as_ptr()).len = len as u16;
        }
    }

    /// Panics unless the `len` bytes from `offset` are inside the frame. Each range of bytes that
    /// is kept or handed out goes through here, so that no arithmetic of a caller reaches beyond a
    /// frame, in a release build either.
    #[inline(always)]
    fn require_inside(self, offset: usize, len: usize) {
        let size = self.size();
        if offset > size || len > size - offset {
            outside_frame();
        }
    }

    /// Returns the first byte of the frame.
    #[inline]
    fn base(self) -> *mut u8 {
        #[cfg(feature = "clogs")]
        return heap::base(self.frame(), self.place());
        #[cfg(not(feature = "clogs"))]
        self.place()
    }

    /// Returns its place in the arena.
    #[inline]
    pub(crate) fn place(self) -> *mut u8 {
        let shift = if self.is_in_block() { BLOCK_SHIFT } else { FRAME_SHIFT };
        self.frame().as_ptr().cast::<u8>().map_addr(|at| {
            let inside = at & (CHUNK_SIZE_BYTES - 1);
            at - inside + (inside << shift)
        })
    }

    /// Returns the start of this entry's chunk, where its arena is named.
    pub(crate) fn chunk(self) -> *mut u8 {
        self.as_ptr().cast::<u8>().map_addr(|at| at & !(CHUNK_SIZE_BYTES - 1))
    }

    /// Has the first bytes of this entry brought into the cache, where the processor can be asked
    /// to.
    #[inline]
    pub(crate) fn prefetch(self) {
        let base = if self.is_frame() { self.own_base() } else { self.base() };
        prefetch(base.wrapping_add(self.offset()));
    }

    /// Asks the processor, where it can be asked, to bring the descriptor into this core's cache
    /// and to take it out of those of others.
    #[inline(always)]
    pub(crate) fn prefetch_to_write(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint, which touches nothing. (The intrinsic asks to read, where the compiler is
        // not told of a processor that has the instruction; others take it for none.)
        unsafe {
            let at = self.as_ptr();
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
    }

    /// Returns the bytes of this entry. The caller bounds `'a` by its hold on the entry.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: `set_range` and `reset_view` keep offset + len inside the frame; nobody writes
        // within a range that is held.
        unsafe { slice::from_raw_parts(self.base().add(self.offset()), self.len()) }
    }

    /// Returns the bytes `from..from + len` of the frame, to be written.
    ///
    /// # Safety
    /// The caller may write them: the entry is unique, or they are its room. It bounds `'a`.
    #[inline]
    pub(crate) unsafe fn frame_mut<'a>(self, from: usize, len: usize) -> &'a mut [u8] {
        self.require_inside(from, len);
        // SAFETY: inside the frame; exclusive by the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.base().add(from), len) }
    }

    /// Puts `n` bytes, still to be written, behind the data, and returns them.
    ///
    /// # Safety
    /// There is [tailroom](Self::tailroom) for them. The caller bounds `'a` by its hold on the
    /// entry.
    #[inline(always)]
    pub(crate) unsafe fn extend<'a>(self, n: usize) -> &'a mut [u8] {
        let len = self.len();
        // SAFETY: by the caller's promise; what is inside the frame makes a range inside it.
        unsafe {
            let room = self.frame_mut(self.offset() + len, n);
            (*self.as_ptr()).len = (len + n) as u16;
            room
        }
    }

    /// Moves this entry's bytes within their frame. The entry must be unique.
    pub(crate) fn slide(self, to: usize) {
        debug_assert!(self.is_unique());
        self.require_inside(to, self.len());
        // SAFETY: unique, and both ranges are inside the frame.
        unsafe { ptr::copy(self.base().add(self.offset()), self.base().add(to), self.len()) };
        self.set_range(to, self.len());
    }

    /// Returns the number of free bytes before the data that may be written.
    #[inline]
    pub(crate) fn headroom(self) -> usize {
        let offset = self.offset();
        if self.is_unique() || (self.is_owner() && offset <= self.shared().0) { offset } else { 0 }
    }

    /// Returns the number of free bytes after the data that may be written.
    #[inline]
    pub(crate) fn tailroom(self) -> usize {
        let end = self.offset() + self.len();
        if self.is_unique() || (self.is_owner() && end >= self.shared().1) {
            self.size() - end
        } else {
            0
        }
    }

    /// Returns true if all bytes of the frame from `at` on may be written: nobody else refers to
    /// them.
    #[inline]
    pub(crate) fn may_write_from(self, at: usize) -> bool {
        self.is_unique() || self.is_owner() && at >= self.shared().1
    }

    /// Returns the range of bytes that views were given of.
    fn shared(self) -> (usize, usize) {
        // SAFETY: a frame's descriptor in its owner's hands.
        unsafe {
            let range = (&raw const (*self.as_ptr()).link.frame).cast::<FrameLink>();
            (usize::from((*range).shared_from), usize::from((*range).shared_to))
        }
    }

    #[inline]
    pub(crate) fn total_len(self) -> usize {
        // SAFETY: owned.
        unsafe { (*self.as_ptr()).total_len as usize }
    }

    #[inline]
    pub(crate) fn held_units(self) -> u32 {
        // SAFETY: owned.
        unsafe { (*self.as_ptr()).held_units }
    }

    /// Returns true where it has the mark of a packet's last descriptor in a queue of packets,
    /// which is set nowhere else.
    #[inline]
    pub(crate) fn is_queued(self) -> bool {
        self.held_units() & QUEUED != 0
    }

    #[inline]
    pub(crate) fn set_queued(self, queued: bool) {
        let units = self.held_units() & !QUEUED;
        // SAFETY: owned.
        unsafe { (*self.as_ptr()).held_units = if queued { units | QUEUED } else { units } };
    }

    #[inline]
    pub(crate) fn set_totals(self, total_len: usize, held_units: u32) {
        debug_assert!(total_len <= u32::MAX as usize && held_units <= UNITS_LIMIT);
        // SAFETY: owned.
        unsafe {
            (*self.as_ptr()).total_len = total_len as u32;
            (*self.as_ptr()).held_units = held_units;
        }
    }

    #[inline]
    pub(crate) fn meta_ptr(self) -> *mut Meta {
        // SAFETY: owned; only a place is formed.
        unsafe { &raw mut (*self.as_ptr()).meta }
    }

    #[inline]
    pub(crate) fn meta(self) -> Meta {
        // SAFETY: owned.
        unsafe { *self.meta_ptr() }
    }

    #[inline]
    pub(crate) fn set_meta(self, meta: Meta) {
        // SAFETY: owned.
        unsafe { *self.meta_ptr() = meta };
    }
}

/// Has four lines from `at` on brought into the cache, where the processor can be asked to.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for line in 0..4 {
            // SAFETY: a hint, which touches nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64 * line).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
