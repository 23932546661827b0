//! Connections that the application has closed and that are not over: what they have to deliver is still on its way, or
//! their peer has not closed its side.

use std::collections::HashMap;

use millstream_packet::Instant;

/// Which connections are orphans. Every operation takes constant time; memory is taken for orphans alone.
#[derive(Default)]
pub(crate) struct Orphans {
    /// Their slots, in no order.
    slots: Vec<u32>,
    of: HashMap<u32, Orphan>,
    held_bytes: usize,
}

/// What is known of one.
#[derive(Clone, Copy)]
pub(crate) struct Orphan {
    /// Its place among the slots.
    at: u32,
    /// When it was closed.
    pub since: Instant,
    /// Memory that it held when that was asked last.
    pub held_bytes: usize,
}

impl Orphans {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Memory that all of them held when they were asked last: what is acknowledged meanwhile counts still.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The connection in `slot` is closed at `since`.
    pub fn insert(&mut self, slot: u32, since: Instant, held_bytes: usize) {
        let at = self.slots.len() as u32;
        if self.of.insert(slot, Orphan { at, since, held_bytes }).is_none() {
            self.slots.push(slot);
            self.held_bytes += held_bytes;
        }
    }

    pub fn get(&self, slot: u32) -> Option<Orphan> {
        self.of.get(&slot).copied()
    }

    /// One of them, for a number drawn.
    pub fn pick(&self, drawn: u64) -> Option<u32> {
        let len = self.slots.len() as u64;
        (len != 0).then(|| self.slots[(drawn % len) as usize])
    }

    /// It holds so much now.
    pub fn set_held(&mut self, slot: u32, held_bytes: usize) {
        if let Some(orphan) = self.of.get_mut(&slot) {
            self.held_bytes = self.held_bytes - orphan.held_bytes + held_bytes;
            orphan.held_bytes = held_bytes;
        }
    }

    /// It is over; whether it was an orphan.
    pub fn remove(&mut self, slot: u32) -> bool {
        let Some(orphan) = self.of.remove(&slot) else { return false };
        self.held_bytes -= orphan.held_bytes;
        self.slots.swap_remove(orphan.at as usize);
        if let Some(moved) = self.slots.get(orphan.at as usize)
            && let Some(moved) = self.of.get_mut(moved)
        {
            moved.at = orphan.at;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_found_and_measured_whatever_goes() {
        let mut orphans = Orphans::default();
        for slot in 0..100 {
            orphans.insert(slot, Instant::from_nanos(slot.into()), slot as usize);
        }
        for slot in (0..100).filter(|slot| slot % 3 != 0) {
            assert!(orphans.remove(slot));
            assert!(!orphans.remove(slot));
        }
        orphans.set_held(3, 1000);
        assert_eq!(orphans.len(), 34);
        assert_eq!(orphans.held_bytes(), (0..34).map(|n| 3 * n).sum::<usize>() - 3 + 1000);
        let mut picked: Vec<u32> = (0..34).filter_map(|drawn| orphans.pick(drawn)).collect();
        picked.sort_unstable();
        assert_eq!(picked, (0..34).map(|n| 3 * n).collect::<Vec<_>>());
        for slot in picked {
            assert_eq!(orphans.get(slot).map(|orphan| orphan.since.as_nanos()), Some(slot.into()));
            orphans.remove(slot);
        }
        assert_eq!((orphans.len(), orphans.held_bytes(), orphans.pick(7)), (0, 0, None));
    }
}
