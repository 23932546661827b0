//! A queue of packets that keeps their boundaries: datagrams, packets that wait for a neighbour.

use crate::memory::Entry;
use crate::memory::QueueStats;
use crate::packet::Packet;
use crate::queue::limit::{Full, Gauge};
use std::fmt;

/// Packets in order, bounded in memory held; no heap.
///
/// The packets are linked through their own descriptors: each one's last points to the first of
/// the next packet, and a mark tells where a packet ends.
///
/// ```text
///   first ─► … ─► last* ─► first ─► last* ─► first = last*      (* marked; totals, meta)
///     ▲ front                                          ▲ end
/// ```
pub struct PacketQueue {
    /// The first descriptor of the first packet, and the last of the last.
    ends: Option<(Entry, Entry)>,
    packets: usize,
    bytes: usize,
    gauge: Gauge,
}

// SAFETY: owns its descriptors as a packet does.
unsafe impl Send for PacketQueue {}

impl PacketQueue {
    /// Returns an empty queue. It takes nothing that would have it hold more memory than
    /// `limit_bytes` ([`Packet::held_bytes`]), but one packet of any size while it is empty.
    pub const fn new(limit_bytes: usize) -> Self {
        Self { ends: None, packets: 0, bytes: 0, gauge: Gauge::new(limit_bytes) }
    }

    /// Sets another limit. Packets inside stay, also if they are over it.
    pub fn set_limit(&mut self, bytes: usize) {
        self.gauge.limit_bytes = bytes;
    }

    /// Returns the limit.
    pub fn limit(&self) -> usize {
        self.gauge.limit_bytes
    }

    /// Returns the number of packets inside.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Returns true without a packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Returns the number of bytes of data inside.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of bytes of memory held by what is inside.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.gauge.held
    }

    /// Returns the most memory held since the start, in bytes.
    pub fn high_water(&self) -> usize {
        self.gauge.high_water
    }

    /// Returns the number of insertions refused since the start.
    pub fn refused(&self) -> u64 {
        self.gauge.refused()
    }

    /// Returns the figures of the queue, to be shown or summed up.
    pub fn stats(&self) -> QueueStats {
        self.gauge.stats(self.bytes, 0)
    }

    /// Puts a packet at the end. Constant time.
    ///
    /// # Errors
    /// Gives it back when it would exceed the limit.
    #[inline]
    pub fn push_back(&mut self, packet: Packet) -> Result<(), Full> {
        if !self.gauge.has_room(packet.held_bytes()) || !self.can_count(&packet) {
            self.gauge.refuse();
            return Err(Full(packet));
        }
        let (first, last, held) = self.admit(packet);
        self.ends = match self.ends {
            None => Some((first, last)),
            Some((front, end)) => {
                end.set_next(first);
                Some((front, last))
            }
        };
        self.gauge.add(held);
        Ok(())
    }

    /// Puts a packet before the first: what was taken and not used. Never refused, since it was
    /// inside before; constant time.
    ///
    /// # Panics
    /// If bytes, or memory held, no longer fit a `usize`, which they can where that has 32 bits:
    /// the packet is dropped.
    pub fn push_front(&mut self, packet: Packet) {
        assert!(self.can_count(&packet), "more in a queue than can be counted");
        let (first, last, held) = self.admit(packet);
        self.ends = match self.ends {
            None => Some((first, last)),
            Some((front, end)) => {
                last.set_next(front);
                Some((first, end))
            }
        };
        self.gauge.add(held);
    }

    /// Returns true if its bytes and its memory can be added to those inside.
    #[inline]
    fn can_count(&self, packet: &Packet) -> bool {
        self.bytes.checked_add(packet.len()).is_some() && self.gauge.can_count(packet.held_bytes())
    }

    fn admit(&mut self, packet: Packet) -> (Entry, Entry, usize) {
        let held = packet.held_bytes();
        self.packets += 1;
        self.bytes += packet.len();
        let last = packet.into_ring();
        last.set_queued(true);
        (last.next(), last, held)
    }

    /// Takes the first packet. Linear in its frames.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        let (first, end) = self.ends?;
        let mut last = first;
        while !last.is_queued() {
            last = last.next();
        }
        self.ends = (last != end).then(|| (last.next(), end));
        last.set_queued(false);
        last.set_next(first);
        let packet = Packet::from_ring(last);
        self.packets -= 1;
        self.bytes -= packet.len();
        self.gauge.sub(packet.held_bytes());
        Some(packet)
    }

    /// Returns the number of bytes of data in the first packet.
    pub fn front_len(&self) -> Option<usize> {
        let mut last = self.ends?.0;
        while !last.is_queued() {
            last = last.next();
        }
        Some(last.total_len())
    }

    /// Takes all packets; those that the iterator does not come to stay.
    pub fn drain(&mut self) -> impl Iterator<Item = Packet> {
        std::iter::from_fn(|| self.pop())
    }

    /// Drops all packets.
    pub fn clear(&mut self) {
        self.drain().for_each(drop);
    }
}

impl Drop for PacketQueue {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for PacketQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ends: _, packets, bytes, gauge } = self;
        f.debug_struct("PacketQueue")
            .field("packets", packets)
            .field("bytes", bytes)
            .field("gauge", gauge)
            .finish_non_exhaustive()
    }
}
