//! Frames of their own, as most entries are: what needs no look whose the memory is.

use super::{Entry, FRAME_SHIFT, FRAME_UNITS, FrameLink, KIND_MASK, Kind, Link, outside_frame};
use crate::limits::{CHUNK_SIZE_BYTES, FRAME_SIZE_BYTES};
use std::slice;

impl Entry {
    /// Returns the first byte of a [frame](Self::is_frame) of its own.
    #[inline]
    pub(super) fn own_base(self) -> *mut u8 {
        #[cfg(feature = "clogs")]
        return super::heap::base(self, self.own_place());
        #[cfg(not(feature = "clogs"))]
        self.own_place()
    }

    /// Returns its place in the arena.
    #[inline]
    fn own_place(self) -> *mut u8 {
        debug_assert!(self.is_frame());
        self.as_ptr().cast::<u8>().map_addr(|at| {
            let inside = at & (CHUNK_SIZE_BYTES - 1);
            at - inside + (inside << FRAME_SHIFT)
        })
    }

    /// Returns the [`bytes`](Self::bytes) of a frame of its own.
    #[inline]
    pub(crate) unsafe fn own_bytes<'a>(self) -> &'a [u8] {
        // SAFETY: as there.
        unsafe { slice::from_raw_parts(self.own_base().add(self.offset()), self.len()) }
    }

    /// Does as [`frame_mut`](Self::frame_mut) for a frame of its own.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn own_frame_mut<'a>(self, from: usize, len: usize) -> &'a mut [u8] {
        if from > FRAME_SIZE_BYTES || len > FRAME_SIZE_BYTES - from {
            outside_frame();
        }
        // SAFETY: inside the frame; exclusive by the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.own_base().add(from), len) }
    }

    /// Puts `n` bytes before the data of a frame that is a packet of its own, if it has them free.
    #[inline(always)]
    pub(crate) fn prepend_own<'a>(self, n: usize) -> Option<&'a mut [u8]> {
        debug_assert!(self.is_frame());
        let (offset, len) = (self.offset(), self.len());
        let is_free = n <= offset && (self.refs().is_sole() || offset <= self.shared().0);
        if !is_free {
            return None;
        }
        self.set_totals(len + n, FRAME_UNITS);
        let at = self.as_ptr();
        // SAFETY: owned, and the range ends where it did; headroom is room that this entry may
        // write, and the caller bounds `'a` by its hold on it.
        unsafe {
            (*at).offset = (offset - n) as u16;
            (*at).len = (len + n) as u16;
            Some(self.own_frame_mut(offset - n, n))
        }
    }

    /// Makes a view descriptor a [part](Kind::Part) of all bytes of `frame`, a frame of its own
    /// with `len` bytes that nobody else refers to, and counts it there.
    #[inline]
    pub(crate) fn reset_view_of_frame(self, frame: Entry, len: usize) {
        debug_assert!(frame.is_frame() && frame.len() == len);
        let offset = frame.offset();
        frame.refs().share_sole();
        let at = self.as_ptr();
        // SAFETY: both are owned, and so is the frame's range; field by field as above.
        unsafe {
            let range = (&raw mut (*frame.as_ptr()).link.frame).cast::<FrameLink>();
            (*range).shared_from = offset as u16;
            (*range).shared_to = (offset + len) as u16;
            (*at).next = at;
            (*at).link = Link { owner: frame.as_ptr() };
            (*at).tag = ((*at).tag & !KIND_MASK) | Kind::Part as u32;
            (*at).offset = offset as u16;
            (*at).len = len as u16;
        }
    }
}
