//! Writing in bulk: into blocks that carry one segment each, as large as the link takes them.
//!
//! ```text
//!   │ block 0: `whole` bytes    │ block 1: `whole` bytes, and a few more │ block 2 …
//!   └── one segment, one view ──┴── one, though it began in the middle ──┘
//! ```
//! A block begins where a segment may, a whole number of the link's packets behind what was sent;
//! so the sender that cuts where blocks begin ([`ByteQueue::up_to_block`]) has one contiguous,
//! aligned piece of memory in each.

use super::{ByteQueue, Entries};
use crate::limits::{BLOCK_HELD_BYTES, BLOCK_ROOM_BYTES, BULK_BYTES, FRAME_HELD_BYTES};
use crate::memory::Entry;
use crate::memory::Pool;

/// The cuts at which written bytes are going to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Cuts {
    /// Bytes of payload in one packet on the wire; 0 counts as 1.
    pub segment: usize,
    /// Bytes at the end of the queue that were not sent yet: segments are cut from where they
    /// begin.
    pub unsent: usize,
}

impl Cuts {
    /// Returns the number of bytes missing to a whole number of segments when `written` more are
    /// there.
    fn seam(&self, written: usize) -> usize {
        // The sum of the two might not fit.
        let segment = self.segment.max(1);
        let (missing, written) = (segment - self.unsent % segment, written % segment);
        match missing.checked_sub(written) {
            Some(all) if all == segment => 0,
            Some(missing) => missing,
            None => segment - (written - missing),
        }
    }
}

impl ByteQueue {
    /// Remembers, for writers, the bytes of the largest segments, with which blocks are to be
    /// filled; 0 where the link takes none large enough.
    #[inline]
    pub fn set_whole(&mut self, bytes: usize) {
        let fits = (BULK_BYTES..=BLOCK_ROOM_BYTES).contains(&bytes);
        self.whole = if fits { bytes as u16 } else { 0 };
    }

    /// Returns the bytes of a whole block, as [`set_whole`](Self::set_whole) has set them.
    #[inline]
    pub fn whole(&self) -> usize {
        usize::from(self.whole)
    }

    /// Returns true if a write of `len` bytes had better be one of
    /// [`write_bulk`](Self::write_bulk).
    #[inline]
    pub fn is_bulk(&self, len: usize) -> bool {
        self.whole != 0 && (len >= BULK_BYTES || self.entries.last.is_some_and(Entry::is_in_block))
    }

    /// Writes as [`write`](Self::write) does, into blocks of [`whole`](Self::whole) bytes each
    /// while there is enough for one ([`BULK_BYTES`]), or the last one is full; into frames where
    /// the pool has no block, or the queue's limit is below four of them. A block counts whole from
    /// its first byte on; the last one of a write may hold little, until the next write goes on in
    /// it.
    pub fn write_bulk(&mut self, pool: &Pool, bytes: &[u8], cuts: &Cuts) -> usize {
        if self.whole == 0 {
            return self.write(pool, bytes);
        }
        let mut rest = bytes;
        self.extend_bulk(pool, bytes.len(), cuts, false, |entries, last, n| {
            let (now, later) = rest.split_at(n);
            entries.fill_up(last, now);
            rest = later;
        })
    }

    /// Reserves, as [`write_bulk`](Self::write_bulk) writes them, places for `len` bytes that
    /// [`fill`](Self::fill) gives later: until then the places hold old bytes, which nobody may be
    /// shown. They begin with a block where all before was sent, so that each segment has its own.
    /// Returns their number; 0 where [`whole`](Self::whole) is 0.
    pub fn reserve_bulk(&mut self, pool: &Pool, len: usize, cuts: &Cuts) -> usize {
        if self.whole == 0 {
            return 0;
        }
        let afresh = cuts.unsent == 0;
        self.extend_bulk(pool, len, cuts, afresh, |entries, last, n| {
            entries.grow_behind(last, n);
        })
    }

    /// Writes the last bytes of the queue, which were [reserved](Self::reserve_bulk).
    ///
    /// # Panics
    /// When there are fewer, or somebody was given a view of them.
    pub fn fill(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len(), "more than was reserved");
        let (start, mut done) = (self.len() - bytes.len(), 0);
        let filled = self.entries.walk(start, bytes.len(), |entry, from, len| {
            let from = entry.offset() + from;
            assert!(entry.may_write_from(from), "a view of what was not filled");
            // SAFETY: nobody else refers to these bytes, and the queue, which owns the entry, is
            // borrowed.
            unsafe { entry.frame_mut(from, len) }.copy_from_slice(&bytes[done..done + len]);
            done += len;
            Ok(())
        });
        debug_assert!(filled.is_ok() && done == bytes.len());
    }

    /// Grows by `len` bytes in the places described at [`write_bulk`](Self::write_bulk), each piece
    /// of which `put` adds; `afresh`, not in the room that is left at the end.
    fn extend_bulk(
        &mut self,
        pool: &Pool,
        len: usize,
        cuts: &Cuts,
        mut afresh: bool,
        mut put: impl FnMut(&mut Entries, Entry, usize),
    ) -> usize {
        self.entries.framed.end();
        let mut left = len;
        let mut blocks = self.entries.gauge.limit_bytes >= 4 * BLOCK_HELD_BYTES;
        while left != 0 {
            let seam = cuts.seam(len - left);
            let follows = blocks && self.entries.block_follows(left);
            if let Some(last) = self.entries.last.filter(|_| !afresh) {
                let room = self.room_in(last, seam, follows).min(left);
                if room != 0 {
                    put(&mut self.entries, last, room);
                    left -= room;
                    continue;
                }
            }
            if follows && seam == 0 {
                if !self.entries.gauge.admit(BLOCK_HELD_BYTES) {
                    break;
                }
                if let Some(block) = pool.alloc_block(0) {
                    self.entries.link_counted(block);
                    afresh = false;
                } else {
                    blocks = false;
                }
                continue;
            }
            if !self.entries.gauge.admit(FRAME_HELD_BYTES) {
                break;
            }
            let Some(frame) = pool.alloc(0) else { break };
            self.entries.link_counted(frame);
            afresh = false;
        }
        len - left
    }

    /// Returns the number of bytes that go into the room of `last`: up to where a segment ends,
    /// when a block `follows`.
    fn room_in(&self, last: Entry, seam: usize, follows: bool) -> usize {
        let (end, room) = (last.offset() + last.len(), last.tailroom());
        match last.is_in_block() {
            true if end < self.whole() => room.min(self.whole() - end),
            false if !follows => room,
            _ => room.min(seam),
        }
    }

    /// Returns how many of `len` bytes from `offset` lie before the block that would be cut at
    /// their end; `len` where none is, or that block begins before, or the queue does not end with
    /// one, as a stream in bulk does. Linear in the frames, constant in blocks.
    pub fn up_to_block(&self, offset: usize, len: usize) -> usize {
        let Some(last) = self.entries.last.filter(|last| last.is_in_block()) else { return len };
        let (mut entry, mut start) = match self.entries.nearest(offset) {
            Some((_, entry, start)) => (entry, start),
            None => (last.next(), 0),
        };
        let end = offset.saturating_add(len).min(self.entries.len);
        while start < end {
            let next = start + entry.len();
            if next > end {
                let is_cut = entry.is_in_block() && start > offset;
                return if is_cut { start - offset } else { len };
            }
            if entry == last {
                break;
            }
            (entry, start) = (entry.next(), next);
        }
        len
    }
}

impl Entries {
    /// Returns true if `left` bytes are enough for a block, or go on where one ended.
    fn block_follows(&self, left: usize) -> bool {
        left >= BULK_BYTES || self.last.is_some_and(Entry::is_in_block)
    }

    /// Returns true if the limit allows a frame with some of `left` bytes; a refusal is counted.
    #[inline]
    #[cfg_attr(not(feature = "clogs"), expect(unused_variables))]
    fn admits_frame(&mut self, left: usize) -> bool {
        #[cfg(feature = "clogs")]
        if self.counts_payload() {
            let most = crate::limits::FRAME_SIZE_BYTES;
            return left.min(most) <= self.gauge.limit_bytes.saturating_sub(self.len);
        }
        self.gauge.admit(FRAME_HELD_BYTES)
    }

    /// Copies bytes into fresh frames at the end, as far as limit and pool allow. How many.
    #[inline(never)]
    pub(super) fn write_frames(&mut self, pool: &Pool, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && self.admits_frame(bytes.len() - done) {
            let Some(packet) = pool.alloc(0) else { break };
            let last = packet.last();
            self.link_counted(packet);
            done += self.fill_up(last, &bytes[done..]);
        }
        done
    }

    /// Copies as many of the bytes behind those of `last` as there is room for. How many.
    #[inline]
    pub(super) fn fill_up(&mut self, last: Entry, bytes: &[u8]) -> usize {
        let len = bytes.len().min(last.tailroom());
        self.grow_behind(last, len).copy_from_slice(&bytes[..len]);
        len
    }

    /// Adds `len` bytes to `last`, in its room, and returns them, which are still to be written.
    #[inline]
    pub(super) fn grow_behind(&mut self, last: Entry, len: usize) -> &mut [u8] {
        self.len += len;
        // SAFETY: there is room.
        unsafe { last.extend(len) }
    }
}
