//! Memory for extents: mapped from the system, or of the program's allocator.

use crate::limits::CHUNK_SIZE_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::{self, NonNull};

/// The memory that backs a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMemory {
    /// A memory map of ordinary pages.
    SmallPages,
    /// A memory map, of huge pages if the system makes them by itself when asked.
    TransparentHugePages,
    /// A memory map of huge pages that the administrator has set aside (hugetlbfs); if there are
    /// not enough, as [`TransparentHugePages`](Self::TransparentHugePages).
    HugeTlb,
    /// Memory of the program's allocator: the pool makes no map, and keeps what it has grown by.
    /// For a simulation, or a machine with little memory.
    Allocator,
}

/// Zeroed memory, aligned to [`CHUNK_SIZE_BYTES`], given back when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// It is of the program's allocator.
    is_allocated: bool,
}

// SAFETY: a mapping is plain memory; who may touch what is decided by the arena.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods only tell where it is.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Returns the number of bytes of memory that the machine has.
pub(crate) fn machine_bytes() -> usize {
    // Miri does not know; others may not tell.
    // SAFETY: only asks.
    let ask = |name| unsafe { libc::sysconf(name) };
    if cfg!(miri) {
        return 0;
    }
    match (ask(libc::_SC_PHYS_PAGES), ask(libc::_SC_PAGESIZE)) {
        (pages @ 1.., size @ 1..) => (pages as usize).saturating_mul(size as usize),
        _ => 0,
    }
}

impl Mapping {
    /// Maps or allocates `len` bytes, a multiple of [`CHUNK_SIZE_BYTES`].
    ///
    /// `prefault` has the system provide every page now, so that the data path never faults.
    pub(crate) fn new(len: usize, memory: PoolMemory, prefault: bool) -> io::Result<Self> {
        debug_assert!(len != 0 && len.is_multiple_of(CHUNK_SIZE_BYTES));
        let mapping = match memory {
            // Miri has no maps.
            _ if cfg!(miri) => Self::allocated(len),
            PoolMemory::Allocator => Self::allocated(len),
            PoolMemory::HugeTlb => Self::hugetlb(len).or_else(|_| Self::transparent(len)),
            PoolMemory::TransparentHugePages => Self::transparent(len),
            PoolMemory::SmallPages => Self::aligned(len),
        }?;
        if prefault {
            mapping.provide(0, len);
        }
        Ok(mapping)
    }

    fn hugetlb(len: usize) -> io::Result<Self> {
        // Reserved: what there is not enough of is refused here, and not when it is touched.
        let flags = libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        Ok(Self { base: map(len, flags)?, len, is_allocated: false })
    }

    fn transparent(len: usize) -> io::Result<Self> {
        let mapping = Self::aligned(len)?;
        // A system without huge pages refuses; small ones do as well.
        // SAFETY: the range is this mapping; the advice changes no contents.
        unsafe { libc::madvise(mapping.base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Ok(mapping)
    }

    fn aligned(len: usize) -> io::Result<Self> {
        let whole = len.checked_add(CHUNK_SIZE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = map(whole, libc::MAP_NORESERVE)?;
        let before = start.as_ptr().align_offset(CHUNK_SIZE_BYTES);
        // SAFETY: `before` is at most CHUNK_SIZE_BYTES, so `base..base + len` is inside the
        // `whole` bytes just mapped; what is unmapped around it is never used.
        unsafe {
            let base = start.add(before);
            if before != 0 {
                libc::munmap(start.as_ptr().cast(), before);
            }
            let after = CHUNK_SIZE_BYTES - before;
            if after != 0 {
                libc::munmap(base.add(len).as_ptr().cast(), after);
            }
            Ok(Self { base, len, is_allocated: false })
        }
    }

    fn allocated(len: usize) -> io::Result<Self> {
        // SAFETY: `len` is not zero.
        let at = unsafe { alloc_zeroed(layout(len)?) };
        let base = NonNull::new(at).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, is_allocated: true })
    }

    /// Gives the pages of a part back to the system; they read as zero when used again. False if
    /// the system would not have them. (Miri would, as far as a pool sees.)
    pub(crate) fn release(&self, offset: usize, len: usize) -> bool {
        self.advise(offset, len, libc::MADV_DONTNEED)
    }

    /// Has the system provide the pages of a part now.
    pub(crate) fn provide(&self, offset: usize, len: usize) {
        // A kernel before 5.14 refuses: then pages come as they are touched.
        self.advise(offset, len, libc::MADV_POPULATE_WRITE);
    }

    fn advise(&self, offset: usize, len: usize, advice: i32) -> bool {
        assert!(offset <= self.len && len <= self.len - offset);
        if self.is_allocated {
            return cfg!(miri);
        }
        // SAFETY: inside this mapping; the caller has it to itself and does not need what is in the
        // part, if the advice is to drop it.
        unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, advice) == 0 }
    }
}

fn layout(len: usize) -> io::Result<Layout> {
    Layout::from_size_align(len, CHUNK_SIZE_BYTES).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

fn map(len: usize, flags: i32) -> io::Result<NonNull<u8>> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the system's choice.
    let at = unsafe {
        libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let base = self.base.as_ptr();
        match layout(self.len) {
            // SAFETY: the arena drops its mappings only when every frame in them is at home; this
            // one is of the allocator, by the same layout.
            Ok(layout) if self.is_allocated => unsafe { dealloc(base, layout) },
            // SAFETY: as above; this one was mapped.
            _ => drop(unsafe { libc::munmap(base.cast(), self.len) }),
        }
    }
}
