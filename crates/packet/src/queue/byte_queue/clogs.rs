//! CLOGS. Reads as faults have them: all joined first, or the whole chain taken and the rest put
//! back.

use super::{ByteQueue, Entries};
use crate::limits::DESCRIPTOR_SIZE_BYTES;
use crate::memory::heap::{PULL_UP, PULL_UP_BEHIND_SMALL, WALK, count};
use crate::meta::Meta;
use crate::packet::Packet;

/// Bytes that the first block has at least, where a read with `PULL_UP_BEHIND_SMALL` joins nothing.
const SMALL_BYTES: usize = 64;

impl ByteQueue {
    /// Reads as a fault has it; `None` where none is switched on.
    #[inline]
    pub(crate) fn read_clogged(&mut self, out: &mut [u8]) -> Option<usize> {
        let is_small = || self.slices().next().is_some_and(|first| first.len() < SMALL_BYTES);
        if self.entries.is_marked(PULL_UP)
            || self.entries.is_marked(PULL_UP_BEHIND_SMALL) && is_small()
        {
            return self.read_pulled_up(out);
        }
        self.entries.is_marked(WALK).then(|| self.read_and_put_back(out))
    }

    /// Joins all that is queued in one fresh mapping and reads from there; `None`, and nothing is
    /// read, when the system gives no memory.
    #[inline(never)]
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
        let survey = self.entries.cursors.take_survey();
        let Some((last, len, held)) = self.entries.take_all() else { return 0 };
        last.set_totals(len, (held / DESCRIPTOR_SIZE_BYTES) as u32);
        last.set_meta(Meta::default());
        let mut chain = Packet::from_ring(last);
        let read = chain.copy_to(0, out);
        chain.trim_front(read);
        if !chain.is_empty() {
            count(|counts| counts.links_walked += walk(&chain));
            self.put_back(chain);
            self.entries.cursors.put_survey(survey, self.entries.front);
        }
        read
    }
}

impl Entries {
    fn is_marked(&self, mark: u32) -> bool {
        self.last.is_some_and(|last| last.tag() & mark != 0)
    }

    /// Returns true if its limit counts what was sent, not the memory that this holds.
    pub(crate) fn counts_payload(&self) -> bool {
        self.is_marked(WALK)
    }
}

/// Follows a chain from its first descriptor to its last, as who knows the first alone has to. How
/// many links that were.
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
        /// Returns `len` bytes, at least one, all zero; `None` when the system gives none.
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
