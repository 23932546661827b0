//! Packets that wait for a neighbour's link-layer address.

use millstream_packet::Packet;

use super::NeighborTable;

const END: u32 = u32::MAX;

/// A first-in first-out list of waiting packets; its links are in a [`PendingStore`].
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    /// Packets in the list.
    pub(super) packets: u32,
    /// Memory they hold, in bytes.
    pub(super) bytes: usize,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: END, tail: END, packets: 0, bytes: 0 };
}

struct Slot {
    packet: Option<Packet>,
    /// The entry in whose list it is.
    owner: u32,
    /// The next of that list, or of the free slots.
    next: u32,
    /// Neighbours in the order of arrival over all lists.
    older: u32,
    newer: u32,
}

/// Room for the waiting packets of all entries of a table. Allocated once, at its limit.
///
/// A packet is in its owner's list and in the order of arrival over all owners; the oldest of all
/// is therefore always the first of its list.
pub(super) struct PendingStore {
    slots: Box<[Slot]>,
    free: u32,
    oldest: u32,
    newest: u32,
    packets: usize,
    bytes: usize,
    limit_bytes: usize,
}

impl PendingStore {
    pub(super) fn new(limit_packets: usize, limit_bytes: usize) -> Self {
        let slot = |i| {
            let next = if i + 1 == limit_packets { END } else { i as u32 + 1 };
            Slot { packet: None, owner: END, next, older: END, newer: END }
        };
        Self {
            slots: (0..limit_packets).map(slot).collect(),
            free: if limit_packets == 0 { END } else { 0 },
            oldest: END,
            newest: END,
            packets: 0,
            bytes: 0,
            limit_bytes,
        }
    }

    /// Returns the number of packets kept, over all lists.
    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    /// Returns the memory they hold, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if one more packet that holds so much memory fits.
    pub(super) fn has_room(&self, held: usize) -> bool {
        self.free != END && self.limit_bytes - self.bytes >= held
    }

    /// Returns the memory that they may hold, in bytes.
    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Returns true if a list of so many packets, which with one more would hold so many bytes,
    /// has no more than is left for all (dynamic thresholds: Choudhury and Hahne, 1998).
    pub(super) fn leaves_as_much(&self, packets: usize, bytes: usize) -> bool {
        packets < self.slots.len() - self.packets && bytes <= self.limit_bytes - self.bytes
    }

    /// Returns the owner of the list with the packet that waits longest.
    pub(super) fn oldest_owner(&self) -> Option<u32> {
        self.slots.get(self.oldest as usize).map(|slot| slot.owner)
    }

    /// Adds a packet to an owner's list, or gives it back when there is no room.
    pub(super) fn push(
        &mut self,
        owner: u32,
        list: &mut List,
        packet: Packet,
    ) -> Result<(), Packet> {
        let held = packet.held_bytes();
        if !self.has_room(held) {
            return Err(packet);
        }
        let at = self.free;
        let slot = &mut self.slots[at as usize];
        self.free = slot.next;
        *slot = Slot { packet: Some(packet), owner, next: END, older: self.newest, newer: END };
        match self.newest {
            END => self.oldest = at,
            newest => self.slots[newest as usize].newer = at,
        }
        self.newest = at;
        match list.tail {
            END => list.head = at,
            tail => self.slots[tail as usize].next = at,
        }
        list.tail = at;
        list.packets += 1;
        list.bytes += held;
        self.packets += 1;
        self.bytes += held;
        Ok(())
    }

    /// Returns the oldest packet of a list.
    pub(super) fn first(&self, list: &List) -> Option<&Packet> {
        self.slots.get(list.head as usize)?.packet.as_ref()
    }

    /// Takes the oldest packet of a list.
    pub(super) fn pop(&mut self, list: &mut List) -> Option<Packet> {
        if list.head == END {
            return None;
        }
        let at = list.head;
        let slot = &mut self.slots[at as usize];
        let packet = slot.packet.take()?;
        let (older, newer) = (slot.older, slot.newer);
        list.head = core::mem::replace(&mut slot.next, self.free);
        self.free = at;
        if list.head == END {
            list.tail = END;
        }
        match older {
            END => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            END => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        let held = packet.held_bytes();
        list.packets -= 1;
        list.bytes -= held;
        self.packets -= 1;
        self.bytes -= held;
        Some(packet)
    }
}

impl NeighborTable {
    /// Returns the memory that the waiting packets hold, in bytes.
    #[inline]
    pub fn pending_bytes(&self) -> usize {
        self.pending.bytes()
    }

    /// Limits the bytes that waiting packets hold together from now on; they never hold more than
    /// [`NeighborConfig::pending_bytes`](super::NeighborConfig::pending_bytes). The oldest beyond
    /// that are dropped; returns the number of these.
    #[inline]
    pub fn limit_pending(&mut self, bytes: usize) -> u64 {
        self.pending.limit_bytes = bytes.min(self.config.pending_bytes);
        let mut dropped = 0;
        while self.pending.bytes > self.pending.limit_bytes
            && let Some(owner) = self.pending.oldest_owner()
        {
            drop(self.pop_pending(owner));
            dropped += 1;
        }
        self.stats.pending_dropped += dropped;
        dropped
    }
}
