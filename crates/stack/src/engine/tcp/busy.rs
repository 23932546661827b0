//! Connections that moved of late: those that fall quiet give back what only a busy one needs.

use std::collections::VecDeque;

use millstream_packet::Instant;

use crate::tuning::{QUIET_AFTER, QUIET_SWEEP, QUIET_SWEEP_PAUSE};

/// See the module text.
pub(in crate::engine) struct Busy {
    /// Slots of connections that moved and have not been found quiet since, each once.
    list: VecDeque<u32>,
    /// By slot: it stands in that list, whoever has it now.
    listed: Vec<bool>,
    /// When that list is gone through next.
    due: Option<Instant>,
}

impl Busy {
    /// Nobody has moved, of so many slots.
    pub fn new(slots: usize) -> Self {
        Self { list: VecDeque::new(), listed: Vec::with_capacity(slots), due: None }
    }

    /// Returns how many stand in the list, some of which may have fallen quiet.
    #[inline]
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// When [`sweep`](Self::sweep) is due.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The connection in `slot` moved: it is looked at again when it may have fallen quiet.
    #[inline]
    pub fn note(&mut self, slot: u32, now: Instant) {
        if self.listed.get(slot as usize) != Some(&true) {
            self.add(slot, now);
        }
    }

    #[inline(never)]
    fn add(&mut self, slot: u32, now: Instant) {
        let at = slot as usize;
        if self.listed.len() <= at {
            self.listed.resize(at + 1, false);
        }
        self.listed[at] = true;
        self.list.push_back(slot);
        self.due.get_or_insert(now + QUIET_AFTER);
    }

    /// Looks at a bounded number of them. `still_moves` says who stays; it takes back what the
    /// others do not need.
    pub fn sweep(&mut self, now: Instant, mut still_moves: impl FnMut(u32) -> bool) {
        let count = self.list.len().min(QUIET_SWEEP);
        let rest = self.list.len() - count;
        for _ in 0..count {
            let Some(slot) = self.list.pop_front() else { break };
            let stays = still_moves(slot);
            self.listed[slot as usize] = stays;
            if stays {
                self.list.push_back(slot);
            }
        }
        if self.list.is_empty() {
            self.list.shrink_to(QUIET_SWEEP);
        }
        let pause = if rest == 0 { QUIET_AFTER } else { QUIET_SWEEP_PAUSE };
        self.due = (!self.list.is_empty()).then_some(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_looked_at_once_a_sweep_until_it_is_quiet() {
        let now = Instant::ZERO;
        let mut busy = Busy::new(8);
        for slot in [3, 5, 3, 3] {
            busy.note(slot, now);
        }
        assert_eq!((busy.count(), busy.due()), (2, Some(now + QUIET_AFTER)));
        let mut looked = Vec::new();
        busy.sweep(now, |slot| {
            looked.push(slot);
            slot == 5
        });
        assert_eq!((looked, busy.count()), (vec![3, 5], 1));
        // A connection that moves again stands in the list again.
        busy.note(3, now);
        assert_eq!(busy.count(), 2);
        busy.sweep(now, |_| false);
        assert_eq!((busy.count(), busy.due()), (0, None));
    }

    #[test]
    fn a_sweep_is_bounded_and_the_next_comes_sooner() {
        let now = Instant::ZERO;
        let mut busy = Busy::new(8);
        (0..QUIET_SWEEP as u32 + 2).for_each(|slot| busy.note(slot, now));
        let mut looked = 0;
        busy.sweep(now, |_| {
            looked += 1;
            false
        });
        assert_eq!((looked, busy.count()), (QUIET_SWEEP, 2));
        assert_eq!(busy.due(), Some(now + QUIET_SWEEP_PAUSE));
    }
}
