//! The common part of the two kinds of queues: a limit in memory held.

use crate::memory::QueueStats;
use crate::packet::Packet;
use std::fmt;

/// Memory held, against the limit, both as [`Packet::held_bytes`] counts: not bytes of payload.
#[derive(Debug)]
pub(crate) struct Gauge {
    /// The queue takes nothing that would have it hold more than this. An empty queue takes one
    /// packet of any size: a limit below one packet must not stop all.
    pub(crate) limit_bytes: usize,
    pub(crate) held: usize,
    pub(crate) high_water: usize,
    refused: u64,
}

impl Gauge {
    pub(crate) const fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, held: 0, high_water: 0, refused: 0 }
    }

    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.held == 0 || bytes <= self.limit_bytes.saturating_sub(self.held)
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
        let rooms = self.limit_bytes.saturating_sub(self.held) / bytes;
        if self.held == 0 { rooms.max(1) } else { rooms }
    }

    /// Returns true if so many bytes more can be counted.
    #[inline]
    pub(crate) fn can_count(&self, bytes: usize) -> bool {
        self.held.checked_add(bytes).is_some()
    }

    /// Counts `bytes` in.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.held += bytes;
        self.high_water = self.high_water.max(self.held);
    }

    #[inline]
    pub(crate) fn sub(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    pub(crate) fn refuse(&mut self) {
        self.refused += 1;
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
            limit_bytes: self.limit_bytes,
            refused: self.refused,
            coalesced_bytes,
        }
    }
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
