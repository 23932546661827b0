//! The entries of a byte queue, in a ring: bytes and memory of all that are in it, and the places
//! in it that are remembered. Whatever is linked is counted here, and whatever leaves is forgotten.

use super::cursors::Cursors;
use super::framed::Framed;
use crate::limits::{DESCRIPTOR_SIZE_BYTES, FRAME_HELD_BYTES};
use crate::memory::{Entry, Kind};
use crate::packet::Packet;
use crate::queue::limit::Gauge;

/// ```text
///   last ─next─► first ─next─► … ─next─► last        (a ring, as in a packet)
///                  ▲ front                 ▲ end
/// ```
pub(crate) struct Entries {
    pub(crate) last: Option<Entry>,
    /// Bytes of data in all of them.
    pub(crate) len: usize,
    pub(crate) gauge: Gauge,
    /// Position in the stream of the first byte inside. Wraps; put backs go behind the start.
    pub(crate) front: u64,
    pub(crate) cursors: Cursors,
    pub(crate) framed: Framed,
}

// SAFETY: owns its ring as a packet does; the cursors point into it.
unsafe impl Send for Entries {}

impl Entries {
    pub(crate) const fn new(limit_bytes: usize) -> Self {
        Self {
            last: None,
            len: 0,
            gauge: Gauge::new(limit_bytes),
            front: 0,
            cursors: Cursors::new(),
            framed: Framed::new(),
        }
    }

    /// Returns the remembered place nearest before or at `offset`: which, its entry and offset.
    #[inline]
    pub(crate) fn nearest(&self, offset: usize) -> Option<(usize, Entry, usize)> {
        self.cursors.nearest(self.front, offset)
    }

    /// Forgets an entry, which leaves.
    #[inline]
    pub(crate) fn forget(&mut self, entry: Entry) {
        self.cursors.forget(entry);
        self.framed.forget(entry);
    }

    /// Takes `n` bytes off the first entry, which has more.
    #[inline]
    pub(crate) fn trim_front(&mut self, first: Entry, n: usize) {
        first.set_range(first.offset() + n, first.len() - n);
        self.cursors.trim(first, n);
        self.framed.trim(first);
    }

    /// Puts `new` in the place of the entry behind `before`.
    #[inline]
    pub(crate) fn replace_behind(&mut self, before: Entry, old: Entry, new: Entry) {
        if before != old {
            new.set_next(old.next());
            before.set_next(new);
        }
        if Some(old) == self.last {
            self.last = Some(new);
        }
        self.cursors.forget(old);
    }

    /// Puts a ring before the first; its memory and its bytes are counted here.
    pub(crate) fn put_ring_back(&mut self, ring: Entry, len: usize, held: usize) {
        self.len += len;
        self.front = self.front.wrapping_sub(len as u64);
        self.gauge.add(held);
        let Some(last) = self.last else {
            self.last = Some(ring);
            return;
        };
        let first = last.next();
        last.set_next(ring.next());
        ring.set_next(first);
        self.charge_once(ring, first);
    }

    /// Takes all out: the ring, its bytes and its memory.
    pub(crate) fn take_all(&mut self) -> Option<(Entry, usize, usize)> {
        let last = self.last.take()?;
        let (len, held) = (self.len, self.gauge.held);
        self.cursors.clear();
        self.framed.clear();
        self.took(len, held);
        Some((last, len, held))
    }

    /// Returns true if the limit allows a packet.
    #[inline]
    pub(crate) fn has_room_of(&self, packet: &Packet) -> bool {
        #[cfg(feature = "clogs")]
        if self.counts_payload() {
            return packet.len() <= self.gauge.limit_bytes.saturating_sub(self.len);
        }
        self.gauge.has_room(packet.held_bytes())
    }

    /// Returns true if its bytes and its memory can be added to those inside.
    #[inline]
    pub(crate) fn can_count(&self, packet: &Packet) -> bool {
        self.len.checked_add(packet.len()).is_some() && self.gauge.can_count(packet.held_bytes())
    }

    /// Puts a ring at the end; its bytes and its memory are counted by the caller, but for a frame
    /// that it shares with the end of this queue.
    #[inline]
    pub(crate) fn link_ring(&mut self, new_last: Entry) {
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

    /// Puts a packet for which there is room at the end.
    #[inline]
    pub(crate) fn link_counted(&mut self, packet: Packet) {
        let held = packet.held_bytes();
        self.len += packet.len();
        self.link_ring(packet.into_ring());
        self.gauge.add(held);
    }

    /// Takes the entries up to `end` out of the ring.
    #[inline]
    pub(crate) fn unlink_up_to(&mut self, end: Entry, last: Entry) {
        match end == last {
            true => self.last = None,
            false => last.set_next(end.next()),
        }
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
}

impl Drop for Entries {
    fn drop(&mut self) {
        if let Some(last) = self.last.take() {
            drop(Packet::from_ring(last));
        }
    }
}
