//! Connections that the application has closed and that are not over: they still have data to
//! deliver, or their peer has not closed its side.

use std::collections::HashMap;
use std::time::Duration;

use millstream_packet::Instant;

use crate::tuning::{MOVING_SECONDS, STILL};

/// Which connections are orphans. Every operation takes constant time; memory is taken for orphans
/// alone.
#[derive(Default)]
pub(crate) struct Orphans {
    /// Their slots, in no order.
    slots: Vec<u32>,
    of: HashMap<u32, Orphan>,
    held_bytes: usize,
}

/// The record of one orphan.
#[derive(Clone, Copy)]
pub(crate) struct Orphan {
    /// Its place among the slots.
    at: u32,
    /// When it was closed.
    pub since: Instant,
    /// Memory that it held at the last look.
    held_bytes: usize,
    /// When its pace was last looked at, and how far its peer had acknowledged then.
    seen: Instant,
    acked: u32,
    /// Time in which all that it held would have been delivered at that pace; nothing while that is
    /// not known.
    pub takes: Duration,
}

/// Returns the time in which an orphan is to deliver what it holds, where there are so many of a
/// `limit`, or so many bytes. Up to the limit it is [`MOVING_SECONDS`]; beyond, the less the more
/// there are, and at twice the limit none, so that somebody gives way however they move.
pub(crate) fn patience(count: usize, limit: usize) -> Duration {
    let left = limit.saturating_mul(2).saturating_sub(count).min(limit);
    Duration::from_millis((1000 * MOVING_SECONDS) as u64 * left as u64 / limit.max(1) as u64)
}

impl Orphans {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the memory that all of them held when they were last looked at: data acknowledged
    /// meanwhile counts still.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The connection in `slot` is closed at `since`; its peer has acknowledged up to `acked`, an
    /// offset that wraps.
    pub fn insert(&mut self, slot: u32, since: Instant, held_bytes: usize, acked: u32) {
        let at = self.slots.len() as u32;
        let orphan = Orphan { at, since, held_bytes, seen: since, acked, takes: Duration::ZERO };
        if self.of.insert(slot, orphan).is_none() {
            self.slots.push(slot);
            self.held_bytes += held_bytes;
        }
    }

    pub fn get(&self, slot: u32) -> Option<Orphan> {
        self.of.get(&slot).copied()
    }

    /// Returns one of them, chosen by a drawn number.
    pub fn pick(&self, drawn: u64) -> Option<u32> {
        let len = self.slots.len() as u64;
        (len != 0).then(|| self.slots[(drawn % len) as usize])
    }

    /// Updates and returns the record of one that holds `held_bytes` now and whose peer has
    /// acknowledged up to `acked`. Its pace is that since the last look, over [`STILL`] at least.
    pub fn look(
        &mut self,
        slot: u32,
        held_bytes: usize,
        acked: u32,
        now: Instant,
    ) -> Option<Orphan> {
        let orphan = self.of.get_mut(&slot)?;
        self.held_bytes = self.held_bytes - orphan.held_bytes + held_bytes;
        orphan.held_bytes = held_bytes;
        let time = now.saturating_duration_since(orphan.seen);
        if time >= STILL {
            let passed = acked.wrapping_sub(orphan.acked).max(1);
            let ms = (time.as_millis() as u64).saturating_mul(held_bytes as u64);
            orphan.takes = Duration::from_millis(ms / u64::from(passed));
            (orphan.seen, orphan.acked) = (now, acked);
        }
        Some(*orphan)
    }

    /// Removes a connection that is over; returns true if it was an orphan.
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
            orphans.insert(slot, Instant::from_nanos(slot.into()), slot as usize, 0);
        }
        for slot in (0..100).filter(|slot| slot % 3 != 0) {
            assert!(orphans.remove(slot));
            assert!(!orphans.remove(slot));
        }
        orphans.look(3, 1000, 0, Instant::from_nanos(3));
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

    #[test]
    fn the_pace_is_that_since_the_last_look() {
        let mut orphans = Orphans::default();
        orphans.insert(7, Instant::from_nanos(0), 0, u32::MAX);
        let mut takes = |held, acked: u32, ms: u64| {
            let now = Instant::from_nanos(ms * 1_000_000);
            orphans.look(7, held, acked, now).map(|orphan| orphan.takes.as_secs())
        };
        assert_eq!(takes(3000, u32::MAX, 999), Some(0), "not known yet");
        // ten bytes in ten seconds, whenever it is asked
        assert_eq!(takes(3000, 9, 10_000), Some(3000));
        assert_eq!(takes(3000, 5000, 10_500), Some(3000));
        assert_eq!(takes(3000, 3009, 11_000), Some(1));
        assert_eq!(takes(3000, 3009, 13_000), Some(6000), "nothing");
        assert_eq!(takes(0, 3009, 15_000), Some(0));
    }

    #[test]
    fn patience_ends_at_twice_the_limit() {
        let seconds = [0, 8, 12, 16, 99].map(|count| patience(count, 8).as_secs());
        assert_eq!(seconds, [32, 32, 16, 0, 0]);
        assert_eq!(patience(1, 0), Duration::ZERO);
    }
}
