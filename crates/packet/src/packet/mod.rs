//! A packet: an owned chain of frames.

mod alloc;
mod batch;
mod chain;
mod slices;

pub use batch::{DrainFront, Filling, PacketBatch};
pub use chain::PullUp;
pub(crate) use chain::RingBuilder;
pub use slices::{Reader, Slices};

use crate::limits::{
    BLOCK_ROOM_BYTES, BULK_BYTES, DESCRIPTOR_SIZE_BYTES, FRAME_SIZE_BYTES, PACKET_LIMIT_BYTES,
    PULL_UP_HEADROOM_BYTES,
};
use crate::memory;
use crate::memory::{Entry, FRAME_UNITS, more_units};
use crate::memory::{Exhausted, Pool};
use crate::meta::Meta;
use std::fmt;

/// An owned chain of at least one frame, block, or view of one, with its bytes and its [`Meta`].
///
/// As large as a pointer. Dropping it gives the frames to the running thread's magazine, whichever
/// thread allocated them. Payload is never linearised: readers get slices.
///
/// ```text
///   Packet ──► last descriptor ─next─► first ─next─► … ─next─► last
///              (totals, meta)
/// ```
///
/// ```
/// use millstream_packet::{Packet, Pool, PoolConfig};
///
/// let pool = Pool::new(PoolConfig::fixed(64))?;
/// let mut packet = Packet::from_slice(&pool, 64, b"payload").expect("a frame");
/// packet.prepend(4).expect("headroom").copy_from_slice(b"head");
/// assert_eq!((packet.head(), packet.len()), (&b"headpayload"[..], 11));
/// packet.trim_front(4);
/// assert_eq!(packet.head(), b"payload");
/// # Ok::<(), millstream_packet::PoolError>(())
/// ```
pub struct Packet(Entry);

impl Packet {
    /// Owns the ring that ends with `last`, whose totals are set.
    #[inline]
    pub(crate) fn from_ring(last: Entry) -> Self {
        Self(last)
    }

    /// Gives the ring up to the caller.
    #[inline]
    pub(crate) fn into_ring(self) -> Entry {
        let last = self.0;
        std::mem::forget(self);
        last
    }

    #[inline]
    pub(crate) fn last(&self) -> Entry {
        self.0
    }

    #[inline]
    pub(crate) fn first(&self) -> Entry {
        self.0.next()
    }

    /// Makes `last` the end of the ring, with the totals given and the metadata kept. The ring's
    /// `next`s are the caller's to set.
    pub(crate) fn move_root(&mut self, last: Entry, total_len: usize, units: u32) {
        if last != self.0 {
            last.set_meta(self.0.meta());
            self.0 = last;
        }
        last.set_totals(total_len, units);
    }

    /// Returns one frame with `bytes` copied behind `headroom` (at most a frame's), or as many
    /// frames as that takes.
    ///
    /// # Errors
    /// When the pool has not enough frames, or the bytes exceed 4 GiB.
    pub fn from_slice(pool: &Pool, headroom: usize, bytes: &[u8]) -> Result<Self, Exhausted> {
        let mut packet = pool.alloc_chain(headroom, bytes.len()).ok_or(Exhausted)?;
        packet.fill(bytes);
        let spare = packet.commit(bytes.len());
        debug_assert!(spare.is_none());
        Ok(packet)
    }

    /// Returns a copy of `bytes` in [blocks](Pool::alloc_block) of `each` bytes; in frames what is
    /// left of them, less than [`BULK_BYTES`], or finds no block. All in frames where no block
    /// holds `each`.
    ///
    /// # Errors
    /// When the pool has not enough frames, or the bytes exceed 4 GiB.
    pub fn bulk_from_slice(pool: &Pool, bytes: &[u8], each: usize) -> Result<Self, Exhausted> {
        if bytes.len() > PACKET_LIMIT_BYTES {
            return Err(Exhausted);
        }
        let fits = (BULK_BYTES..=BLOCK_ROOM_BYTES).contains(&each);
        let (mut rest, mut all) = (bytes, None::<Self>);
        while fits && rest.len() >= BULK_BYTES {
            let Some(mut block) = pool.alloc_block(0) else { break };
            let (now, later) = rest.split_at(rest.len().min(each));
            block.append(now.len()).ok_or(Exhausted)?.copy_from_slice(now);
            rest = later;
            all = Some(join(all, block));
        }
        match all {
            Some(all) if rest.is_empty() => Ok(all),
            all => Ok(join(all, Self::from_slice(pool, 0, rest)?)),
        }
    }

    /// Copies into the spare room, which must be large enough; does not count the bytes.
    fn fill(&mut self, mut bytes: &[u8]) {
        for room in self.spare_slices() {
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            if bytes.is_empty() {
                return;
            }
        }
    }

    /// Returns the number of bytes of data.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.total_len()
    }

    /// Returns true without a byte of data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of descriptors in the chain, views included. Linear in them.
    pub fn frame_count(&self) -> usize {
        self.entries().count()
    }

    /// Returns the number of bytes of memory that this packet is charged for.
    ///
    /// A frame of its own counts 2,048 + 64, a block 65,536 + 64. A [`view`](Self::view) counts 64:
    /// the packet that it was taken from is charged for the frame. A part that
    /// [`split_off`](Self::split_off) cuts out of the middle of a frame may outlive the rest, so it
    /// counts as if it held the frame alone: 2,048 (65,536) + 2 × 64 at most for each cut.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.0.held_units() as usize * DESCRIPTOR_SIZE_BYTES
    }

    /// Returns what a queue counts whose packets may outlive those that they are views of:
    /// [`held_bytes`](Self::held_bytes), and no less than the bytes of data.
    #[inline]
    pub fn held_alone_bytes(&self) -> usize {
        self.held_bytes().max(self.len())
    }

    /// Returns the facts known about the packet.
    #[inline]
    pub fn meta(&self) -> &Meta {
        // SAFETY: the descriptor is this packet's; the borrow is the packet's.
        unsafe { &*self.0.meta_ptr() }
    }

    /// Returns the same, to be written.
    #[inline]
    pub fn meta_mut(&mut self) -> &mut Meta {
        // SAFETY: as above, borrowed mutably.
        unsafe { &mut *self.0.meta_ptr() }
    }

    /// Returns the bytes in the first frame: all of a packet of one frame.
    #[inline]
    pub fn head(&self) -> &[u8] {
        // SAFETY: the entry is this packet's; the borrow is the packet's.
        unsafe { self.first().bytes() }
    }

    /// Returns the bytes of a packet of one frame of its own; `None` of any other.
    #[inline]
    pub fn sole(&self) -> Option<&[u8]> {
        let entry = self.0;
        // SAFETY: the entry is this packet's; the borrow is the packet's.
        (entry.next() == entry && entry.is_frame()).then(|| unsafe { entry.own_bytes() })
    }

    /// Returns the same, to be written; `None` also if others refer to that frame.
    #[inline]
    pub fn sole_mut(&mut self) -> Option<&mut [u8]> {
        let entry = self.0;
        let is_own = entry.next() == entry && entry.is_frame() && entry.refs().is_sole();
        // SAFETY: a frame of its own, which nobody else reads or writes; the borrow is the
        // packet's.
        is_own.then(|| unsafe { entry.own_frame_mut(entry.offset(), entry.len()) })
    }

    /// Returns the bytes in the first frame, to be written; `None` if others refer to that frame
    /// ([`make_head_mut`](Self::make_head_mut) copies it then).
    #[inline]
    pub fn head_mut(&mut self) -> Option<&mut [u8]> {
        let first = self.first();
        // SAFETY: unique, so nobody else reads or writes the frame; the borrow is the packet's.
        first.is_unique().then(|| unsafe { first.frame_mut(first.offset(), first.len()) })
    }

    /// Returns the bytes in the first frame, to be written; copies just that frame if others refer
    /// to it. Where a block has more than a frame's bytes, it copies as many as a frame has room
    /// for, which are the first frame then.
    ///
    /// # Errors
    /// When the copy finds no free frame, or the packet would hold more memory than one may: 128
    /// GiB.
    pub fn make_head_mut(&mut self, pool: &Pool) -> Result<&mut [u8], Exhausted> {
        let first = self.own(pool, None)?;
        // SAFETY: unique now; the borrow is the packet's.
        Ok(unsafe { first.frame_mut(first.offset(), first.len()) })
    }

    /// Makes the entry after `before` (or the first) unique, copying its bytes if it is shared: the
    /// first of them alone where they do not fit a frame.
    fn own(&mut self, pool: &Pool, before: Option<Entry>) -> Result<Entry, Exhausted> {
        let before = before.unwrap_or(self.0);
        let shared = before.next();
        if shared.is_unique() {
            return Ok(shared);
        }
        if shared.len() > FRAME_SIZE_BYTES {
            return self.own_front(pool, before);
        }
        let units = self.0.held_units() - shared.units();
        let units = more_units(units, FRAME_UNITS).ok_or(Exhausted)?;
        let copy = pool.take_frame().ok_or(Exhausted)?;
        let offset = shared.offset().min(FRAME_SIZE_BYTES - shared.len());
        copy.reset_frame(offset);
        copy.set_range(offset, shared.len());
        // SAFETY: the copy is fresh; the shared bytes are held by this packet until released.
        unsafe { copy.frame_mut(offset, shared.len()).copy_from_slice(shared.bytes()) };
        let total = self.len();
        if shared == self.0 {
            copy.set_next(if before == shared { copy } else { shared.next() });
            before.set_next(copy);
            self.move_root(copy, total, units);
        } else {
            copy.set_next(shared.next());
            before.set_next(copy);
            self.0.set_totals(total, units);
        }
        memory::release(shared);
        Ok(copy)
    }

    /// Copies the front of the entry after `before`, which has more than a frame's bytes, into a
    /// frame before it.
    fn own_front(&mut self, pool: &Pool, before: Entry) -> Result<Entry, Exhausted> {
        let units = more_units(self.0.held_units(), FRAME_UNITS).ok_or(Exhausted)?;
        let (copy, shared) = (pool.take_frame().ok_or(Exhausted)?, before.next());
        let offset = shared.offset().min(PULL_UP_HEADROOM_BYTES);
        let len = FRAME_SIZE_BYTES - offset;
        copy.reset_frame(offset);
        copy.set_range(offset, len);
        // SAFETY: the copy is fresh; the shared bytes are held by this packet.
        unsafe { copy.frame_mut(offset, len).copy_from_slice(&shared.bytes()[..len]) };
        shared.set_range(shared.offset() + len, shared.len() - len);
        copy.set_next(shared);
        before.set_next(copy);
        self.0.set_totals(self.len(), units);
        Ok(copy)
    }

    /// Writes `bytes` over those at `offset`, copying the frames concerned if they are shared.
    ///
    /// # Errors
    /// When a copy finds no free frame; bytes before may have been written.
    ///
    /// # Panics
    /// If the range is not inside the packet.
    pub fn write_at(
        &mut self,
        pool: &Pool,
        offset: usize,
        mut bytes: &[u8],
    ) -> Result<(), Exhausted> {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len()));
        let (mut before, mut skip) = (self.0, offset);
        while !bytes.is_empty() {
            let len = before.next().len();
            if skip >= len {
                skip -= len;
                before = before.next();
                continue;
            }
            let entry = self.own(pool, Some(before))?;
            // The copy of a block may have less than was asked for.
            let n = bytes.len().min(entry.len().saturating_sub(skip));
            if n == 0 {
                (before, skip) = (entry, skip - entry.len());
                continue;
            }
            // SAFETY: unique; inside its data.
            let to = unsafe { entry.frame_mut(entry.offset() + skip, n) };
            to.copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            (before, skip) = (entry, 0);
        }
        Ok(())
    }

    /// Returns the number of free bytes before the data that [`prepend`](Self::prepend) can take.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.first().headroom()
    }

    /// Puts `n` bytes, whose contents are stale, before the data; `None` without that headroom.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        let first = self.first();
        if first == self.0 && first.is_frame() {
            return first.prepend_own(n);
        }
        self.prepend_first(n)
    }

    /// The same where there is more than a frame of its own.
    #[inline(never)]
    fn prepend_first(&mut self, n: usize) -> Option<&mut [u8]> {
        let first = self.first();
        if n > first.headroom() || n > PACKET_LIMIT_BYTES - self.len() {
            return None;
        }
        first.set_range(first.offset() - n, first.len() + n);
        self.0.set_totals(self.0.total_len() + n, self.0.held_units());
        // SAFETY: headroom is room that this entry may write.
        Some(unsafe { first.frame_mut(first.offset(), n) })
    }

    /// Returns the number of free bytes after the data, in the last frame.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.0.tailroom()
    }

    /// Puts `n` bytes, whose contents are stale, after the data; `None` without that tailroom.
    #[inline]
    pub fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        let last = self.0;
        if n > last.tailroom() || n > PACKET_LIMIT_BYTES - self.len() {
            return None;
        }
        last.set_totals(last.total_len() + n, last.held_units());
        // SAFETY: there is room.
        Some(unsafe { last.extend(n) })
    }

    /// Copies `bytes` to the end, into the last frame's room and further frames. All or nothing.
    ///
    /// # Errors
    /// When the pool has not enough frames, or the packet would exceed 4 GiB or hold 128 GiB of
    /// memory.
    pub fn extend_from_slice(&mut self, pool: &Pool, bytes: &[u8]) -> Result<(), Exhausted> {
        let (here, rest) = bytes.split_at(bytes.len().min(self.tailroom()));
        if bytes.len() > PACKET_LIMIT_BYTES - self.len() {
            return Err(Exhausted);
        }
        let more = match rest {
            [] => None,
            rest => Some(Self::from_slice(pool, 0, rest)?),
        };
        if more.as_ref().is_some_and(|more| self.joined(more).is_none()) {
            return Err(Exhausted);
        }
        if let Some(room) = self.append(here.len()) {
            room.copy_from_slice(here);
        }
        if let Some(more) = more {
            self.concat(more);
        }
        Ok(())
    }

    /// Returns the room behind the data, frame by frame, for a read that scatters; then
    /// [`commit`](Self::commit) says how much was filled. Room that others may see is left out.
    pub fn spare_slices(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let last = self.0;
        let mut next = Some(self.spare_from());
        std::iter::from_fn(move || {
            loop {
                let entry = next?;
                next = (entry != last).then(|| entry.next());
                let room = entry.tailroom();
                if room != 0 {
                    let end = entry.offset() + entry.len();
                    // SAFETY: tailroom may be written; each entry's is handed out once, for the
                    // mutable borrow of the packet.
                    return Some(unsafe { entry.frame_mut(end, room) });
                }
            }
        })
    }

    /// Returns the last entry with data, or the first one: where the spare room begins.
    fn spare_from(&self) -> Entry {
        self.entries().filter(|entry| entry.len() != 0).last().unwrap_or_else(|| self.first())
    }

    /// Counts `n` bytes of the [`spare_slices`](Self::spare_slices) as data, and returns the
    /// frames that stayed empty behind them as a packet of their own.
    ///
    /// # Panics
    /// If the room is less than `n`, or the packet would exceed 4 GiB; it is as it was then.
    pub fn commit(&mut self, n: usize) -> Option<Packet> {
        let root = self.0;
        assert!(n <= PACKET_LIMIT_BYTES - root.total_len(), "packet over its limit");
        let total = root.total_len() + n;
        let (first, mut rest) = (self.spare_from(), n);
        let (mut entry, first_len) = (first, first.len());
        loop {
            let take = rest.min(entry.tailroom());
            entry.set_range(entry.offset(), entry.len() + take);
            rest -= take;
            if rest == 0 || entry == root {
                break;
            }
            entry = entry.next();
        }
        if rest != 0 {
            self.uncommit(first, first_len);
        }
        if entry == root {
            root.set_totals(total, root.held_units());
            return None;
        }
        let units = self.entries_after(entry).map(Entry::units).sum();
        let held = root.held_units();
        let spare_first = entry.next();
        entry.set_next(self.first());
        root.set_next(spare_first);
        self.move_root(entry, total, held - units);
        root.set_totals(0, units);
        root.set_meta(Meta::default());
        Some(Self(root))
    }

    /// Takes the bytes back that [`commit`](Self::commit) has counted from `first` on, which had
    /// `first_len`; nothing behind it had any.
    #[cold]
    #[inline(never)]
    fn uncommit(&mut self, first: Entry, first_len: usize) -> ! {
        let (mut entry, mut len) = (first, first_len);
        loop {
            entry.set_range(entry.offset(), len);
            if entry == self.0 {
                panic!("more committed than there was room for");
            }
            (entry, len) = (entry.next(), 0);
        }
    }

    /// Makes an empty packet of this one again, all its frames spare, data to start behind
    /// `headroom` bytes (at most a frame's): so that frames left over by [`commit`](Self::commit)
    /// serve another time.
    ///
    /// Frames that others refer to, and views, keep their place without room.
    pub fn clear(&mut self, headroom: usize) {
        let first = self.first();
        for entry in self.entries() {
            let start = match entry.is_unique() {
                true if entry == first => headroom.min(first.size()),
                true => 0,
                false => entry.offset(),
            };
            entry.set_range(start, 0);
        }
        self.0.set_totals(0, self.0.held_units());
        self.0.set_meta(Meta::default());
    }

    /// Returns the data, frame by frame, without copying.
    #[inline]
    pub fn slices(&self) -> Slices<'_> {
        Slices::new(self.first(), self.0)
    }

    /// Returns true if others refer to any of the frames: those cannot be written.
    pub fn is_shared(&self) -> bool {
        self.entries().any(|entry| !entry.is_unique())
    }

    /// Returns the descriptors from the first to the last.
    #[inline]
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + use<> {
        self.entries_after(self.0)
    }

    /// Returns the descriptors behind `before` up to the last.
    #[inline]
    pub(crate) fn entries_after(&self, before: Entry) -> impl Iterator<Item = Entry> + use<> {
        let last = self.0;
        let mut next = Some(before.next());
        std::iter::from_fn(move || {
            let entry = next?;
            next = (entry != last).then(|| entry.next());
            Some(entry)
        })
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        let last = self.0;
        if last.next() != last || !memory::release_sole_frame(last) {
            release_ring(last);
        }
    }
}

#[inline(never)]
fn release_ring(last: Entry) {
    if memory::release_shared_frame(last) {
        return;
    }
    let mut entry = last.next();
    while entry != last {
        let next = entry.next();
        memory::release(entry);
        entry = next;
    }
    memory::release(last);
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("len", &self.len())
            .field("frames", &self.frame_count())
            .field("held_bytes", &self.held_bytes())
            .field("meta", self.meta())
            .finish()
    }
}

const _: () = assert!(size_of::<Option<Packet>>() == size_of::<usize>());

/// Returns `packet` behind the one before it, if any: together they are the bytes of one slice.
fn join(before: Option<Packet>, packet: Packet) -> Packet {
    match before {
        Some(mut before) => {
            before.concat(packet);
            before
        }
        None => packet,
    }
}
