//! The common part of the two kinds of queues: limits in memory held, and their edges.

use crate::limits::FRAME_HELD_BYTES;
use crate::memory::QueueStats;
use crate::packet::Packet;
use std::fmt;

/// When a queue is full, and when it is drained enough to be filled again: in bytes of memory
/// held ([`Packet::held_bytes`]), not of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Once full, the queue counts as drained when it holds no more than this.
    pub low_bytes: usize,
    /// The queue takes nothing that would have it hold more than this. An empty queue takes one
    /// packet of any size: a limit below one packet must not stop all.
    pub high_bytes: usize,
}

impl QueueLimits {
    /// Returns limits with this high mark, and the low mark at half of it.
    pub const fn new(high_bytes: usize) -> Self {
        Self { low_bytes: high_bytes / 2, high_bytes }
    }
}

/// Memory held, against the limits; says each edge once.
#[derive(Debug)]
pub(crate) struct Gauge {
    pub(crate) limits: QueueLimits,
    pub(crate) held: usize,
    pub(crate) high_water: usize,
    /// Rises with each insertion: a witness of room is good while it stands.
    epoch: u64,
    /// Crossed the high mark, and not been down to the low mark since.
    full: bool,
    /// Came down to the low mark, and nobody has asked since.
    drained: bool,
    refused: u64,
}

impl Gauge {
    pub(crate) const fn new(limits: QueueLimits) -> Self {
        Self { limits, held: 0, high_water: 0, epoch: 0, full: false, drained: false, refused: 0 }
    }

    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.held == 0 || bytes <= self.limits.high_bytes.saturating_sub(self.held)
    }

    /// Returns true if `bytes` more may be held; a refusal is counted.
    #[inline]
    pub(crate) fn admit(&mut self, bytes: usize) -> bool {
        let fits = self.has_room(bytes);
        if !fits {
            self.refuse();
        }
        fits
    }

    /// Returns how many insertions of `bytes` each there is room for.
    #[inline]
    pub(crate) fn rooms(&self, bytes: usize) -> usize {
        let rooms = self.limits.high_bytes.saturating_sub(self.held) / bytes;
        if self.held == 0 { rooms.max(1) } else { rooms }
    }

    pub(crate) fn room(&self, bytes: usize) -> Option<Room> {
        self.has_room(bytes).then_some(Room { bytes, epoch: self.epoch })
    }

    #[inline]
    pub(crate) fn admits(&self, room: &Room, bytes: usize) -> bool {
        (room.epoch == self.epoch && bytes <= room.bytes) || self.has_room(bytes)
    }

    /// Returns true if so many bytes more can be counted.
    #[inline]
    pub(crate) fn can_count(&self, bytes: usize) -> bool {
        self.held.checked_add(bytes).is_some()
    }

    /// Counts `bytes` in. True when this leaves no room for another frame, and it was not so
    /// before.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        self.held += bytes;
        self.epoch += 1;
        self.high_water = self.high_water.max(self.held);
        if self.full || self.held.saturating_add(FRAME_HELD_BYTES) <= self.limits.high_bytes {
            return false;
        }
        self.full = true;
        self.drained = false;
        true
    }

    #[inline]
    pub(crate) fn sub(&mut self, bytes: usize) {
        self.held -= bytes;
        if self.full && self.held <= self.limits.low_bytes {
            self.full = false;
            self.drained = true;
        }
    }

    pub(crate) fn refuse(&mut self) {
        self.refused += 1;
        // A refused writer waits for the low mark, whatever the size that did not fit.
        self.full = true;
        self.drained = false;
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the gauge of one queue with `bytes` of data.
    pub(crate) fn stats(&self, bytes: usize, coalesced_bytes: u64) -> QueueStats {
        QueueStats {
            queues: 1,
            bytes,
            held_bytes: self.held,
            high_water_bytes: self.high_water,
            limit_bytes: self.limits.high_bytes,
            refused: self.refused,
            coalesced_bytes,
        }
    }

    pub(crate) fn take_drained(&mut self) -> bool {
        std::mem::take(&mut self.drained)
    }

    pub(crate) fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
        self.epoch += 1;
        self.sub(0);
    }
}

/// A witness that a queue had room for this many bytes of memory: ask for it before expensive
/// work, then hand it in with the result. It is good until something else is put in.
#[derive(Debug)]
#[must_use]
pub struct Room {
    pub(crate) bytes: usize,
    epoch: u64,
}

/// The edges that an insertion crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The queue was empty before: whoever takes from it has to be told.
    pub was_empty: bool,
    /// The queue has become full with this: whoever puts into it should pause, until the queue
    /// has drained to its low mark.
    pub crossed_high: bool,
}

/// The queue is at its limit; the packet comes back.
pub struct Full(pub Packet);

impl fmt::Debug for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Full").field(&self.0).finish()
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue is full: {} bytes refused", self.0.held_bytes())
    }
}

impl std::error::Error for Full {}
