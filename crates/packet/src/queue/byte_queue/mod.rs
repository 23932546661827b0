//! A queue of bytes: a TCP stream's data, before it is sent or after it came.

mod bulk;
#[cfg(feature = "clogs")]
mod clogs;
mod cursors;
mod entries;
mod framed;
mod front;
mod look;
mod survey;

pub use bulk::Cuts;
pub use survey::Piece;

use crate::limits::{COALESCE_LIMIT_BYTES, FRAME_SIZE_BYTES};
use crate::memory::Entry;
use crate::memory::Pool;
use crate::memory::QueueStats;
use crate::packet::Packet;
use crate::packet::Slices;
use crate::queue::limit::Full;
use entries::Entries;
use std::fmt;

/// Bytes in order, in the frames they came in; bounded in memory held.
///
/// Append, put back and concatenate take constant time, however much is queued; `take`, `discard`
/// and `read` are linear in what they take. Small segments are copied into the last frame's free
/// room, so that a flood of them does not hold a frame each. Parts of one frame that follow each
/// other are charged for it once, as long as the frame's own descriptor is not among them or is the
/// last of them; if it is before them, twice.
pub struct ByteQueue {
    pub(crate) entries: Entries,
    /// Bytes that were copied into a last frame's room instead of holding a frame.
    coalesced: u64,
    /// Bytes of the largest segments, when blocks are to be filled with them.
    whole: u16,
}

impl ByteQueue {
    /// Returns an empty queue. It takes nothing that would have it hold more memory than
    /// `limit_bytes` ([`Packet::held_bytes`]), but one packet of any size while it is empty.
    pub const fn new(limit_bytes: usize) -> Self {
        Self { entries: Entries::new(limit_bytes), coalesced: 0, whole: 0 }
    }

    /// Sets another limit. Bytes inside stay, also if they are over it.
    pub fn set_limit(&mut self, bytes: usize) {
        self.entries.gauge.limit_bytes = bytes;
    }

    /// Returns the limit.
    pub fn limit(&self) -> usize {
        self.entries.gauge.limit_bytes
    }

    /// Returns the number of bytes of data inside.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len
    }

    /// Returns true without a byte of data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.len == 0
    }

    /// Returns the number of bytes of memory held by what is inside.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        #[cfg(feature = "clogs")]
        if self.entries.counts_payload() {
            return self.entries.len;
        }
        self.entries.gauge.held
    }

    /// Returns the most memory held since the start, in bytes.
    pub fn high_water(&self) -> usize {
        self.entries.gauge.high_water
    }

    /// Returns the number of bytes copied into free room instead of holding a frame of their own,
    /// since the start.
    pub fn coalesced_bytes(&self) -> u64 {
        self.coalesced
    }

    /// Returns the number of insertions refused since the start.
    pub fn refused(&self) -> u64 {
        self.entries.gauge.refused()
    }

    /// Returns the figures of the queue, to be shown or summed up.
    pub fn stats(&self) -> QueueStats {
        self.entries.gauge.stats(self.entries.len, self.coalesced)
    }

    /// Puts a packet's bytes at the end; its metadata goes. Constant time: at most
    /// [`COALESCE_LIMIT_BYTES`] are copied (a frame's room at the limit of the queue).
    ///
    /// # Errors
    /// Gives the packet back when it would exceed the limit.
    #[inline]
    pub fn append(&mut self, packet: Packet) -> Result<(), Full> {
        let held = packet.held_bytes();
        let fits = self.entries.has_room_of(&packet) && self.entries.can_count(&packet);
        if self.entries.last.is_none() && fits && !packet.is_empty() {
            // Nothing to go behind.
            self.entries.framed.end();
            self.entries.len = packet.len();
            self.entries.last = Some(packet.into_ring());
            self.entries.gauge.add(held);
            return Ok(());
        }
        self.append_checked(packet, fits)
    }

    fn append_checked(&mut self, packet: Packet, fits: bool) -> Result<(), Full> {
        let len = packet.len();
        if len == 0 {
            return Ok(());
        }
        self.entries.framed.end();
        let small = len <= COALESCE_LIMIT_BYTES || !fits && len <= FRAME_SIZE_BYTES;
        if small && self.coalesce(&packet) {
            return Ok(());
        }
        if !fits {
            self.entries.gauge.refuse();
            return Err(Full(packet));
        }
        self.entries.link_counted(packet);
        Ok(())
    }

    /// Copies the whole packet into the last entry's room, if it fits.
    fn coalesce(&mut self, packet: &Packet) -> bool {
        #[cfg(feature = "clogs")]
        if self.entries.counts_payload() {
            return false;
        }
        let Some(last) = self.entries.last else { return false };
        let len = packet.len();
        if len > last.tailroom() {
            return false;
        }
        packet.copy_to(0, self.entries.grow_behind(last, len));
        self.coalesced += len as u64;
        true
    }

    /// Returns the number of bytes that [`write`](Self::write) puts into the free room behind the
    /// last ones, before it takes a frame.
    pub fn room_behind(&self) -> usize {
        self.entries.last.map_or(0, Entry::tailroom)
    }

    /// Copies all of a packet's bytes, at most a frame's, into the free room behind the last ones:
    /// no more memory is held by that. False, and nothing has changed, when they do not fit there,
    /// or are more.
    pub fn take_in(&mut self, packet: &Packet) -> bool {
        let fits = packet.len() <= FRAME_SIZE_BYTES && self.coalesce(packet);
        if fits {
            self.entries.framed.end();
        }
        fits
    }

    /// Copies at most a frame's bytes before the first: into the free room in front of it, else to
    /// the end of a fresh frame, so that more may go before them. Not bounded by the limit. False,
    /// and nothing has changed, when there is no frame, or they are more.
    pub fn write_front(&mut self, pool: &Pool, bytes: &[u8]) -> bool {
        let len = bytes.len();
        if let Some(first) =
            self.entries.last.map(Entry::next).filter(|first| first.headroom() >= len)
        {
            let at = first.offset() - len;
            // SAFETY: headroom may be written.
            unsafe { first.frame_mut(at, len) }.copy_from_slice(bytes);
            first.set_range(at, first.len() + len);
            self.entries.framed.end();
            self.entries.cursors.clear();
            self.entries.len += len;
            self.entries.front = self.entries.front.wrapping_sub(len as u64);
            return true;
        }
        let Some(free) = FRAME_SIZE_BYTES.checked_sub(len) else { return false };
        let Some(mut packet) = pool.alloc(free) else { return false };
        let Some(room) = packet.append(len) else { return false };
        room.copy_from_slice(bytes);
        self.put_back(packet);
        true
    }

    /// Copies bytes to the end: into the last frame's room, then into fresh frames, as far as
    /// limit and pool allow.
    pub fn write(&mut self, pool: &Pool, bytes: &[u8]) -> usize {
        self.entries.framed.end();
        let mut done = self.entries.last.map_or(0, |last| self.entries.fill_up(last, bytes));
        if done < bytes.len() {
            done += self.entries.write_frames(pool, &bytes[done..]);
        }
        done
    }

    /// Puts a packet's bytes before the first: what was taken and not used. Never refused, since
    /// it was inside before; constant time.
    ///
    /// # Panics
    /// If bytes, or memory held, no longer fit a `usize`, which they can where that has 32 bits:
    /// the packet is dropped.
    pub fn put_back(&mut self, packet: Packet) {
        let (len, held) = (packet.len(), packet.held_bytes());
        if len == 0 {
            return;
        }
        assert!(self.entries.can_count(&packet), "more in a queue than can be counted");
        self.entries.framed.end();
        self.entries.put_ring_back(packet.into_ring(), len, held);
    }

    /// Moves everything in `other` to the end. Never refused: the memory is held already;
    /// constant time.
    ///
    /// # Panics
    /// As [`put_back`](Self::put_back); both queues are as they were.
    pub fn concat(&mut self, other: &mut ByteQueue) {
        let (ours, theirs) = (&self.entries, &other.entries);
        let can_count = ours.len.checked_add(theirs.len).is_some();
        assert!(can_count && ours.gauge.can_count(theirs.gauge.held), "more than can be counted");
        let Some((ring, len, held)) = other.entries.take_all() else { return };
        self.entries.framed.end();
        self.entries.len += len;
        self.entries.gauge.add(held);
        self.entries.link_ring(ring);
    }

    /// Returns the data, frame by frame, from the front.
    pub fn slices(&self) -> Slices<'_> {
        self.entries.last.map_or(Slices::none(), |last| Slices::new(last.next(), last))
    }
}

impl fmt::Debug for ByteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteQueue")
            .field("len", &self.entries.len)
            .field("coalesced", &self.coalesced)
            .field("gauge", &self.entries.gauge)
            .finish_non_exhaustive()
    }
}
