//! A queue of bytes: a TCP stream's data, before it is sent or after it came.

mod bulk;
#[cfg(feature = "clogs")]
mod clogs;
mod cursors;
mod framed;
mod front;
mod look;
mod survey;

pub use bulk::Cuts;
pub use survey::Piece;

use crate::limits::{
    COALESCE_LIMIT_BYTES, DESCRIPTOR_SIZE_BYTES, FRAME_HELD_BYTES, FRAME_SIZE_BYTES,
};
use crate::memory::Pool;
use crate::memory::QueueStats;
use crate::memory::{Entry, Kind};
use crate::packet::Packet;
use crate::packet::Slices;
use crate::queue::limit::{Appended, Full, Gauge, QueueLimits, Room};
use cursors::Cursors;
use framed::Framed;
use std::fmt;

/// Bytes in order, in the frames they came in; bounded in memory held.
///
/// Append, put back and concatenate take constant time, however much is queued; `take`, `discard`
/// and `read` are linear in what they take. Small segments are copied into the last frame's free
/// room, so that a flood of them does not hold a frame each. Parts of one frame that follow each
/// other are charged for it once, as long as the frame's own descriptor is not among them or is the
/// last of them; if it is before them, twice.
///
/// ```text
///   last ─next─► first ─next─► … ─next─► last        (a ring, as in a packet)
///                  ▲ front                 ▲ end
/// ```
pub struct ByteQueue {
    pub(crate) last: Option<Entry>,
    len: usize,
    pub(crate) gauge: Gauge,
    /// Bytes that were copied into a last frame's room instead of holding a frame.
    coalesced: u64,
    /// Position in the stream of the first byte inside. Wraps; put backs go behind the start.
    pub(crate) front: u64,
    pub(crate) cursors: Cursors,
    pub(crate) framed: Framed,
    /// Bytes of the largest segments, when blocks are to be filled with them.
    whole: u16,
}

// SAFETY: owns its ring as a packet does; the cursors point into it.
unsafe impl Send for ByteQueue {}

/// The outcome of a write: bytes written, and if the queue was empty before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes taken over; fewer than given when the limit or the pool was reached.
    pub bytes: usize,
    /// The queue was empty before, and is not now.
    pub was_empty: bool,
}

impl ByteQueue {
    /// Returns an empty queue.
    pub const fn new(limits: QueueLimits) -> Self {
        Self {
            last: None,
            len: 0,
            gauge: Gauge::new(limits),
            coalesced: 0,
            front: 0,
            cursors: Cursors::new(),
            framed: Framed::new(),
            whole: 0,
        }
    }

    /// Sets other limits. Bytes inside stay, also if they are over the limits.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.gauge.set_limits(limits);
    }

    /// Returns the limits.
    pub fn limits(&self) -> QueueLimits {
        self.gauge.limits
    }

    /// Returns the number of bytes of data inside.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true without a byte of data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes of memory held by what is inside.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        #[cfg(feature = "clogs")]
        if self.counts_payload() {
            return self.len;
        }
        self.gauge.held
    }

    /// Returns the most memory held since the start, in bytes.
    pub fn high_water(&self) -> usize {
        self.gauge.high_water
    }

    /// Returns the number of bytes copied into free room instead of holding a frame of their own,
    /// since the start.
    pub fn coalesced_bytes(&self) -> u64 {
        self.coalesced
    }

    /// Returns the number of insertions refused since the start.
    pub fn refused(&self) -> u64 {
        self.gauge.refused()
    }

    /// Returns the figures of the queue, to be shown or summed up.
    pub fn stats(&self) -> QueueStats {
        self.gauge.stats(self.len, self.coalesced)
    }

    /// Returns true once after the queue was full and has come down to its low mark.
    pub fn take_drained(&mut self) -> bool {
        self.gauge.take_drained()
    }

    /// Returns a witness of room for a packet that holds `bytes` of memory; none at the limit.
    pub fn room(&self, bytes: usize) -> Option<Room> {
        self.gauge.room(bytes)
    }

    /// Puts a packet's bytes at the end; its metadata goes. Constant time: at most
    /// [`COALESCE_LIMIT_BYTES`] are copied (a frame's room at the limit of the queue).
    ///
    /// # Errors
    /// Gives the packet back when it would exceed the limit.
    #[inline]
    pub fn append(&mut self, packet: Packet) -> Result<Appended, Full> {
        let held = packet.held_bytes();
        let fits = self.has_room_of(&packet) && self.can_count(&packet);
        if self.last.is_none() && fits && !packet.is_empty() {
            // Nothing to go behind.
            self.framed.end();
            self.len = packet.len();
            self.last = Some(packet.into_ring());
            return Ok(Appended { was_empty: true, crossed_high: self.gauge.add(held) });
        }
        self.append_checked(packet, fits)
    }

    /// Returns true if the limit allows a packet.
    #[inline]
    fn has_room_of(&self, packet: &Packet) -> bool {
        #[cfg(feature = "clogs")]
        if self.counts_payload() {
            return packet.len() <= self.gauge.limits.high_bytes.saturating_sub(self.len);
        }
        self.gauge.has_room(packet.held_bytes())
    }

    /// Returns true if its bytes and its memory can be added to those inside.
    #[inline]
    fn can_count(&self, packet: &Packet) -> bool {
        self.len.checked_add(packet.len()).is_some() && self.gauge.can_count(packet.held_bytes())
    }

    /// Appends as [`append`](Self::append) does, with a witness: the packet is accepted for certain
    /// if nothing was put in since [`room`](Self::room) and it holds no more than asked for.
    ///
    /// # Errors
    /// As [`append`](Self::append), otherwise.
    #[inline]
    pub fn append_with(&mut self, room: Room, packet: Packet) -> Result<Appended, Full> {
        let fits = self.gauge.admits(&room, packet.held_bytes()) && self.can_count(&packet);
        self.append_checked(packet, fits)
    }

    fn append_checked(&mut self, packet: Packet, fits: bool) -> Result<Appended, Full> {
        let was_empty = self.is_empty();
        let len = packet.len();
        if len == 0 {
            return Ok(Appended { was_empty: false, crossed_high: false });
        }
        self.framed.end();
        let small = len <= COALESCE_LIMIT_BYTES || !fits && len <= FRAME_SIZE_BYTES;
        if small && self.coalesce(&packet) {
            return Ok(Appended { was_empty, crossed_high: self.gauge.add(0) });
        }
        if !fits {
            self.gauge.refuse();
            return Err(Full(packet));
        }
        let held = packet.held_bytes();
        self.link_behind(packet);
        Ok(Appended { was_empty, crossed_high: self.gauge.add(held) })
    }

    /// Copies the whole packet into the last entry's room, if it fits.
    fn coalesce(&mut self, packet: &Packet) -> bool {
        #[cfg(feature = "clogs")]
        if self.counts_payload() {
            return false;
        }
        let Some(last) = self.last else { return false };
        let len = packet.len();
        if len > last.tailroom() {
            return false;
        }
        let end = last.offset() + last.len();
        // SAFETY: tailroom may be written.
        packet.copy_to(0, unsafe { last.frame_mut(end, len) });
        last.set_range(last.offset(), last.len() + len);
        self.len += len;
        self.coalesced += len as u64;
        true
    }

    /// Returns the number of bytes that [`write`](Self::write) puts into the free room behind the
    /// last ones, before it takes a frame.
    pub fn room_behind(&self) -> usize {
        self.last.map_or(0, Entry::tailroom)
    }

    /// Copies all of a packet's bytes, at most a frame's, into the free room behind the last ones:
    /// no more memory is held by that. False, and nothing has changed, when they do not fit there,
    /// or are more.
    pub fn take_in(&mut self, packet: &Packet) -> bool {
        let fits = packet.len() <= FRAME_SIZE_BYTES && self.coalesce(packet);
        if fits {
            self.framed.end();
            self.gauge.add(0);
        }
        fits
    }

    /// Copies at most a frame's bytes before the first: into the free room in front of it, else to
    /// the end of a fresh frame, so that more may go before them. Not bounded by the limit. False,
    /// and nothing has changed, when there is no frame, or they are more.
    pub fn write_front(&mut self, pool: &Pool, bytes: &[u8]) -> bool {
        let len = bytes.len();
        if let Some(first) = self.last.map(Entry::next).filter(|first| first.headroom() >= len) {
            let at = first.offset() - len;
            // SAFETY: headroom may be written.
            unsafe { first.frame_mut(at, len) }.copy_from_slice(bytes);
            first.set_range(at, first.len() + len);
            self.framed.end();
            self.cursors.clear();
            self.len += len;
            self.front = self.front.wrapping_sub(len as u64);
            return true;
        }
        let Some(free) = FRAME_SIZE_BYTES.checked_sub(len) else { return false };
        let Some(mut packet) = pool.alloc(free) else { return false };
        let Some(room) = packet.append(len) else { return false };
        room.copy_from_slice(bytes);
        self.put_back(packet);
        true
    }

    fn link_behind(&mut self, packet: Packet) {
        self.len += packet.len();
        let new_last = packet.into_ring();
        self.link_ring(new_last);
    }

    /// Puts a ring at the end; its bytes and its memory are counted by the caller, but for a frame
    /// that it shares with the end of this queue.
    #[inline]
    fn link_ring(&mut self, new_last: Entry) {
        if let Some(last) = self.last {
            let (first, behind) = (last.next(), new_last.next());
            last.set_next(behind);
            new_last.set_next(first);
            self.charge_once(last, behind);
        }
        self.last = Some(new_last);
    }

    /// Charges a frame once that an entry and the one behind it share, when they have come
    /// together.
    #[inline]
    fn charge_once(&mut self, entry: Entry, behind: Entry) {
        let units = entry.charge_beside(behind, Kind::View);
        if units != 0 {
            self.gauge.sub(units as usize * DESCRIPTOR_SIZE_BYTES);
        }
    }

    /// Copies bytes to the end: into the last frame's room, then into fresh frames, as far as
    /// limit and pool allow.
    pub fn write(&mut self, pool: &Pool, bytes: &[u8]) -> Written {
        let was_empty = self.is_empty();
        self.framed.end();
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = self.last.map_or(0, Entry::tailroom);
            if let (Some(last), 1..) = (self.last, room) {
                let (now, later) = rest.split_at(rest.len().min(room));
                self.copy_behind(last, now);
                rest = later;
                continue;
            }
            if !self.gauge.has_room(FRAME_HELD_BYTES) {
                self.gauge.refuse();
                break;
            }
            let Some(packet) = pool.alloc(0) else { break };
            self.link_behind(packet);
            self.gauge.add(FRAME_HELD_BYTES);
        }
        let bytes = bytes.len() - rest.len();
        Written { bytes, was_empty: was_empty && bytes != 0 }
    }

    /// Returns true if `bytes` more of memory may be held; a refusal is counted.
    #[inline]
    pub(crate) fn has_room_for(&mut self, bytes: usize) -> bool {
        let fits = self.gauge.has_room(bytes);
        if !fits {
            self.gauge.refuse();
        }
        fits
    }

    /// Returns how many insertions of `bytes` of memory each there is room for.
    #[inline]
    pub(crate) fn rooms_for(&self, bytes: usize) -> usize {
        self.gauge.rooms(bytes)
    }

    /// Puts a packet for which there is room at the end.
    #[inline]
    pub(crate) fn link_counted(&mut self, packet: Packet) {
        let held = packet.held_bytes();
        self.link_behind(packet);
        self.gauge.add(held);
    }

    /// Puts a frame with `len` bytes, for which there is room, at the end.
    #[inline]
    pub(crate) fn link_frame(&mut self, frame: Entry, len: usize) {
        self.link_entry(frame);
        self.len += len;
        self.gauge.add(FRAME_HELD_BYTES);
    }

    /// Puts an entry at the end; its bytes and its memory are counted by the caller.
    #[inline]
    pub(crate) fn link_entry(&mut self, entry: Entry) {
        if let Some(last) = self.last {
            entry.set_next(last.next());
            last.set_next(entry);
        }
        self.last = Some(entry);
    }

    /// Counts bytes by which the last entry has grown.
    #[inline]
    pub(crate) fn grew(&mut self, bytes: usize) {
        self.len += bytes;
    }

    /// Counts more memory as held by the data inside.
    #[inline]
    pub(crate) fn hold(&mut self, bytes: usize) {
        self.gauge.add(bytes);
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
        assert!(self.can_count(&packet), "more in a queue than can be counted");
        self.framed.end();
        let packet_last = packet.into_ring();
        self.len += len;
        self.front = self.front.wrapping_sub(len as u64);
        self.gauge.add(held);
        match self.last {
            None => self.last = Some(packet_last),
            Some(last) => {
                let first = last.next();
                last.set_next(packet_last.next());
                packet_last.set_next(first);
                self.charge_once(packet_last, first);
            }
        }
    }

    /// Moves everything in `other` to the end. Never refused: the memory is held already;
    /// constant time.
    ///
    /// # Panics
    /// As [`put_back`](Self::put_back); both queues are as they were.
    pub fn concat(&mut self, other: &mut ByteQueue) {
        let can_count = self.len.checked_add(other.len).is_some();
        assert!(can_count && self.gauge.can_count(other.gauge.held), "more than can be counted");
        let Some(new_last) = other.last.take() else { return };
        let (len, held) = (other.len, other.gauge.held);
        other.front = other.front.wrapping_add(len as u64);
        other.len = 0;
        other.cursors.clear();
        other.framed.clear();
        self.framed.end();
        other.gauge.sub(held);
        self.len += len;
        self.gauge.add(held);
        self.link_ring(new_last);
    }

    /// Returns the data, frame by frame, from the front.
    pub fn slices(&self) -> Slices<'_> {
        self.last.map_or(Slices::none(), |last| Slices::new(last.next(), last))
    }
}

impl Drop for ByteQueue {
    fn drop(&mut self) {
        if let Some(last) = self.last.take() {
            drop(Packet::from_ring(last));
        }
    }
}

impl fmt::Debug for ByteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { last: _, len, gauge, coalesced, front: _, cursors: _, framed: _, whole: _ } =
            self;
        f.debug_struct("ByteQueue")
            .field("len", len)
            .field("coalesced", coalesced)
            .field("gauge", gauge)
            .finish_non_exhaustive()
    }
}
