//! Tables of small stand-ins for whole connections: those not open yet, and those that only wait
//! for old segments to be gone.

use std::mem::size_of;

use millstream_packet::Instant;

use crate::demux::{FlowTable, PackedKey};
use crate::slab::{SLOT_OVERHEAD_BYTES, Slab};
use crate::timer::Wheel;

const NIL: u32 = u32::MAX;

/// A stand-in with its two ends. Entries are linked in order of their coming.
pub(crate) struct Mini<T> {
    pub key: PackedKey,
    hash: u32,
    older: u32,
    newer: u32,
    pub value: T,
}

/// Stand-ins found by their ends, with one timer each. Holds at most the number it was made for;
/// every operation but [`MiniTable::iter`] takes constant time.
pub(crate) struct MiniTable<T> {
    slots: Slab<Mini<T>>,
    flows: FlowTable,
    pub wheel: Wheel,
    oldest: u32,
    newest: u32,
}

impl<T> MiniTable<T> {
    /// An empty table for `limit` entries.
    pub fn new(limit: usize, now: Instant) -> Self {
        Self {
            slots: Slab::new(limit),
            flows: FlowTable::new(limit),
            wheel: Wheel::with_capacity(now, limit),
            oldest: NIL,
            newest: NIL,
        }
    }

    /// Memory that an entry takes, all tables included.
    pub const fn entry_bytes() -> usize {
        size_of::<Mini<T>>() + SLOT_OVERHEAD_BYTES + FlowTable::ENTRY_BYTES + Wheel::TIMER_BYTES
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// Entries that it holds at most.
    pub fn limit(&self) -> usize {
        self.slots.limit()
    }

    /// The entry between these ends.
    pub fn find(&self, hash: u32, key: &PackedKey) -> Option<u32> {
        let slots = &self.slots;
        self.flows.find(hash, |slot| slots.get(slot).is_some_and(|mini| mini.key == *key))
    }

    /// Adds an entry, as the newest, between ends that no other has; none when there is no room.
    pub fn insert(&mut self, hash: u32, key: PackedKey, value: T) -> Option<u32> {
        let mini = Mini { key, hash, older: self.newest, newer: NIL, value };
        let slot = self.slots.insert(mini).ok()?;
        if self.flows.insert(hash, slot).is_err() {
            self.slots.remove(slot);
            return None;
        }
        match self.slots.get_mut(self.newest) {
            Some(before) => before.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        Some(slot)
    }

    /// Numbers that entries have: all below this.
    pub fn slots(&self) -> usize {
        self.slots.slots()
    }

    /// Times that a slot was used before.
    pub fn generation(&self, slot: u32) -> u32 {
        self.slots.generation(slot)
    }

    pub fn get(&self, slot: u32) -> Option<&Mini<T>> {
        self.slots.get(slot)
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Mini<T>> {
        self.slots.get_mut(slot)
    }

    /// Takes an entry out, with its timer.
    pub fn remove(&mut self, slot: u32) -> Option<Mini<T>> {
        let mini = self.slots.remove(slot)?;
        self.flows.remove(mini.hash, slot);
        self.wheel.cancel(slot);
        match self.slots.get_mut(mini.older) {
            Some(older) => older.newer = mini.newer,
            None => self.oldest = mini.newer,
        }
        match self.slots.get_mut(mini.newer) {
            Some(newer) => newer.older = mini.older,
            None => self.newest = mini.older,
        }
        Some(mini)
    }

    /// The entry that came first.
    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Mini<T>)> {
        self.slots.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demux::FlowKey;

    fn key(port: u16) -> PackedKey {
        PackedKey::new(&FlowKey {
            local: "10.0.0.1:80".parse().expect("an address"),
            remote: std::net::SocketAddr::from(([10, 0, 0, 2], port)),
        })
    }

    #[test]
    fn keeps_order_whatever_is_removed() {
        let mut table = MiniTable::new(8, Instant::ZERO);
        let slots: Vec<u32> =
            (0..8).map(|i| table.insert(i, key(i as u16), i).expect("room")).collect();
        assert_eq!(table.insert(9, key(9), 9), None);
        for i in [3, 0, 7] {
            assert_eq!(table.remove(slots[i]).map(|mini| mini.value), Some(i as u32));
            assert_eq!(table.find(i as u32, &key(i as u16)), None);
        }
        assert!(table.insert(10, key(10), 10).is_some());
        let mut order = Vec::new();
        while let Some(slot) = table.oldest() {
            order.extend(table.remove(slot).map(|mini| mini.value));
        }
        assert_eq!(order, [1, 2, 4, 5, 6, 10]);
        assert_eq!((table.len(), table.wheel.armed()), (0, 0));
    }
}
