//! The rings that an AF_XDP socket shares with the kernel.
//!
//! ```text
//!              producer          consumer          entries
//!   fill       written by us     by the kernel     addresses of frames to receive into
//!   rx         by the kernel     by us             received packets
//!   tx         by us             by the kernel     packets to send
//!   completion by the kernel     by us             addresses of frames sent
//! ```
//!
//! Each index counts on for ever; the entry is found by its low bits. Whoever writes an index does
//! so after the entries (release), and reads the other's before them (acquire).

use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::LinkError;

/// One mapped ring of entries `T`, of which this side writes one index.
pub(super) struct Ring<T> {
    map: NonNull<u8>,
    map_len: usize,
    layout: libc::xdp_ring_offset,
    size: u32,
    /// Our index as the kernel will see it at the next [`publish`](Self::publish).
    own: u32,
    /// The kernel's index when last looked at.
    theirs: u32,
    /// We are the producer.
    produces: bool,
    entries: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value; what is shared with the kernel is accessed through
// atomics, or owned by one side at a time.
unsafe impl<T> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `fd` at `page_offset`, of `size` entries (a power of two).
    pub fn map(
        fd: RawFd,
        layout: libc::xdp_ring_offset,
        page_offset: u64,
        size: u32,
        produces: bool,
    ) -> Result<Self, LinkError> {
        let map_len = layout.desc as usize + size as usize * size_of::<T>();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let offset = page_offset.cast_signed();
        // The offsets have more than 32 bits, whatever an address has.
        // SAFETY: a new mapping at an address of the system's choice.
        let at = unsafe { libc::mmap64(std::ptr::null_mut(), map_len, access, flags, fd, offset) };
        match NonNull::new(at.cast()) {
            Some(map) if at != libc::MAP_FAILED => Ok(Self {
                map,
                map_len,
                layout,
                size,
                own: 0,
                theirs: 0,
                produces,
                entries: PhantomData,
            }),
            _ => Err(LinkError::last("map a ring of an AF_XDP socket")),
        }
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel's layout puts an aligned index or flag word there, inside the mapping.
        unsafe { self.map.add(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = self.layout.desc as usize + (index & (self.size - 1)) as usize * size_of::<T>();
        // SAFETY: the index is below the size: inside the mapping.
        unsafe { self.map.add(at).cast().as_ptr() }
    }

    fn look(&mut self) {
        let offset = if self.produces { self.layout.consumer } else { self.layout.producer };
        self.theirs = self.word(offset).load(Ordering::Acquire);
    }

    /// Entries that the producer may still put in, at least `wanted` if there are; looks at the
    /// kernel's index only when it must.
    pub fn room(&mut self, wanted: u32) -> u32 {
        // An index that the kernel cannot have written leaves no room.
        let room = |ring: &Self| ring.size.saturating_sub(ring.own.wrapping_sub(ring.theirs));
        if room(self) < wanted {
            self.look();
        }
        room(self)
    }

    /// Puts one entry in; the caller knows of room.
    pub fn push(&mut self, value: T) {
        debug_assert!(self.produces && self.own.wrapping_sub(self.theirs) < self.size);
        // SAFETY: between the two indices of a producer the entry is ours.
        unsafe { self.entry(self.own).write(value) };
        self.own = self.own.wrapping_add(1);
    }

    /// The entry `ahead` places behind the next one to be taken out, if the kernel has put it in.
    #[inline]
    pub fn peek(&mut self, ahead: u32) -> Option<T> {
        debug_assert!(!self.produces);
        if self.own == self.theirs {
            self.look();
        }
        if ahead >= self.theirs.wrapping_sub(self.own) {
            return None;
        }
        // SAFETY: between the two indices of a consumer the entry is ours, written by the kernel.
        Some(unsafe { self.entry(self.own.wrapping_add(ahead)).read() })
    }

    /// Takes one entry out.
    pub fn pop(&mut self) -> Option<T> {
        debug_assert!(!self.produces);
        if self.own == self.theirs {
            self.look();
            if self.own == self.theirs {
                return None;
            }
        }
        // SAFETY: between the two indices of a consumer the entry is ours, written by the kernel.
        let value = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(value)
    }

    /// Lets the kernel see what was put in or taken out.
    pub fn publish(&self) {
        let offset = if self.produces { self.layout.producer } else { self.layout.consumer };
        self.word(offset).store(self.own, Ordering::Release);
    }

    /// True while one side has entries of the other to take.
    pub fn is_pending(&mut self) -> bool {
        self.look();
        self.own != self.theirs
    }

    /// Entries of ours that the kernel has yet to take.
    pub fn pending(&mut self) -> u32 {
        debug_assert!(self.produces);
        self.look();
        self.own.wrapping_sub(self.theirs).min(self.size)
    }

    /// The entries of ours that the kernel has yet to take. It takes none meanwhile: nobody calls
    /// it.
    pub fn untaken(&mut self) -> impl Iterator<Item = T> {
        let (count, first) = (self.pending(), self.theirs);
        // SAFETY: both sides only read an entry between the two indices of a producer, which was
        // written there.
        (0..count).map(move |ahead| unsafe { self.entry(first.wrapping_add(ahead)).read() })
    }

    /// True when more than half of it waits for the kernel: until then it takes the ring for
    /// writable.
    pub fn is_over_half(&mut self) -> bool {
        self.pending() > self.size / 2
    }

    /// True when the kernel wants to be called before it goes on.
    pub fn needs_wakeup(&self) -> bool {
        self.word(self.layout.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and nobody refers to it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_len) };
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;

    const ENTRIES: u32 = 8;
    const FIRST: u32 = u32::MAX - 20;

    /// Both sides of one ring, over memory of nobody else; the consumer's does not own it. Their
    /// indices go round after some entries.
    fn both_sides() -> (Ring<u64>, ManuallyDrop<Ring<u64>>) {
        let layout = libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 };
        let map_len = layout.desc as usize + ENTRIES as usize * size_of::<u64>();
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), map_len, access, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let map = NonNull::new(at.cast()).expect("memory");
        let side = |produces| Ring {
            map,
            map_len,
            layout,
            size: ENTRIES,
            own: FIRST,
            theirs: FIRST,
            produces,
            entries: PhantomData,
        };
        let both = (side(true), ManuallyDrop::new(side(false)));
        for offset in [layout.producer, layout.consumer] {
            both.0.word(offset).store(FIRST, Ordering::Relaxed);
        }
        both
    }

    #[test]
    fn entries_go_round_in_order_and_are_seen_when_published() {
        let (mut ours, mut theirs) = both_sides();
        let (mut put, mut taken) = (0, 0);
        for round in 0..20 {
            let room = ours.room(ENTRIES);
            assert_eq!(u64::from(room), u64::from(ENTRIES) - (put - taken));
            for _ in 0..room.min(1 + round % 7) {
                ours.push(put);
                put += 1;
            }
            assert_eq!(theirs.pop(), None, "not published");
            ours.publish();
            assert!(ours.is_pending() && ours.pending() > 0);
            assert!(ours.untaken().eq(taken..put));
            for _ in 0..1 + round % 5 {
                let peeked = theirs.peek(0);
                assert_eq!(theirs.peek(1), (put - taken > 1).then_some(taken + 1));
                assert_eq!(theirs.peek(ENTRIES), None);
                let Some(entry) = theirs.pop() else { break };
                assert_eq!((entry, peeked), (taken, Some(taken)));
                taken += 1;
            }
            theirs.publish();
            while let Some(entry) = theirs.pop() {
                assert_eq!(entry, taken);
                taken += 1;
            }
            theirs.publish();
            assert!(!ours.is_pending() && ours.pending() == 0 && !ours.needs_wakeup());
        }
        assert!(put == taken && put > 16);
    }

    #[test]
    fn an_index_that_nobody_can_have_written_gives_no_room() {
        let (mut ours, mut theirs) = both_sides();
        for wrong in [FIRST.wrapping_add(1), FIRST.wrapping_add(ENTRIES), FIRST ^ 1 << 31] {
            ours.word(ours.layout.consumer).store(wrong, Ordering::Release);
            ours.look();
            assert_eq!(ours.room(ENTRIES), 0, "{wrong}");
            assert!(ours.pending() <= ENTRIES && ours.untaken().count() <= ENTRIES as usize);
            theirs.word(theirs.layout.producer).store(wrong, Ordering::Release);
            // The entries that are there are read again and again; nothing outside is.
            theirs.theirs = wrong;
            assert!((0..100).all(|ahead| theirs.peek(ahead).is_none_or(|entry| entry == 0)));
        }
    }

    #[test]
    fn two_threads_pass_entries() {
        const COUNT: u64 = if cfg!(miri) { 60 } else { 20_000 };
        let (mut ours, mut theirs) = both_sides();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut taken = 0;
                while taken < COUNT {
                    match theirs.pop() {
                        Some(entry) => {
                            assert_eq!(entry, taken);
                            taken += 1;
                            theirs.publish();
                        }
                        None => std::thread::yield_now(),
                    }
                }
            });
            for entry in 0..COUNT {
                while ours.room(1) == 0 {
                    std::thread::yield_now();
                }
                ours.push(entry);
                ours.publish();
            }
        });
        assert!(!ours.is_pending());
    }
}
