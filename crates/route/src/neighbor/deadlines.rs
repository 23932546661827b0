//! At most one deadline for each slot of a table: a binary heap that knows where each slot is.

use millstream_packet::Instant;

const ABSENT: u32 = u32::MAX;

/// Deadlines by slot. Setting, moving and clearing take logarithmic time and no more memory than
/// one place per slot, however often they happen.
#[derive(Default)]
pub(super) struct Deadlines {
    /// A heap with the earliest in front.
    heap: Vec<(Instant, u32)>,
    /// Where in the heap a slot is, or [`ABSENT`].
    place: Vec<u32>,
}

impl Deadlines {
    /// Returns the earliest deadline.
    pub(super) fn first(&self) -> Option<Instant> {
        self.heap.first().map(|&(at, _)| at)
    }

    /// Returns the deadline of a slot.
    pub(super) fn get(&self, slot: u32) -> Option<Instant> {
        match self.place.get(slot as usize) {
            Some(&place) if place != ABSENT => Some(self.heap[place as usize].0),
            _ => None,
        }
    }

    /// Sets or moves the deadline of a slot.
    pub(super) fn set(&mut self, slot: u32, at: Instant) {
        if self.place.len() <= slot as usize {
            self.place.resize(slot as usize + 1, ABSENT);
        }
        let place = match self.place[slot as usize] {
            ABSENT => {
                self.heap.push((at, slot));
                self.heap.len() - 1
            }
            place => {
                self.heap[place as usize].0 = at;
                place as usize
            }
        };
        self.place[slot as usize] = place as u32;
        self.settle(place);
    }

    /// Forgets the deadline of a slot, if it has one.
    pub(super) fn clear(&mut self, slot: u32) {
        let Some(place) = self.place.get_mut(slot as usize) else { return };
        let at = core::mem::replace(place, ABSENT);
        if at == ABSENT {
            return;
        }
        self.heap.swap_remove(at as usize);
        if let Some(&(_, moved)) = self.heap.get(at as usize) {
            self.place[moved as usize] = at;
            self.settle(at as usize);
        }
    }

    /// Takes out one slot whose deadline is not after `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let &(at, slot) = self.heap.first()?;
        (at <= now).then(|| {
            self.clear(slot);
            slot
        })
    }

    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let children = 2 * at + 1..(2 * at + 3).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { return };
            if self.heap[at] <= self.heap[least] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a].1 as usize] = a as u32;
        self.place[self.heap[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_map_searched_for_its_least(
            ops in prop::collection::vec((0_u8..4, 0_u32..12, 0_u64..50), 0..200),
        ) {
            let mut deadlines = Deadlines::default();
            let mut model = std::collections::BTreeMap::new();
            for (op, slot, at) in ops {
                let at = Instant::from_nanos(at);
                match op {
                    0 | 1 => {
                        deadlines.set(slot, at);
                        model.insert(slot, at);
                    }
                    2 => {
                        deadlines.clear(slot);
                        model.remove(&slot);
                    }
                    _ => {
                        let due = deadlines.pop_due(at);
                        let least = model.iter().map(|(s, t)| (*t, *s)).min();
                        prop_assert_eq!(due.is_some(), least.is_some_and(|(t, _)| t <= at));
                        if let Some(slot) = due {
                            prop_assert_eq!(model.remove(&slot), least.map(|(t, _)| t));
                        }
                    }
                }
                prop_assert_eq!(deadlines.first(), model.values().min().copied());
                prop_assert_eq!(deadlines.get(slot), model.get(&slot).copied());
                prop_assert_eq!(deadlines.heap.len(), model.len());
            }
        }
    }
}
