//! A ring between two threads that is bounded in the memory that its content holds, not in items
//! alone.
//!
//! Each end tells by a counter of its own what went through its hands, and compares it with the
//! other's. An item may be larger than the room that is left: then the bound is passed by that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_packet::Packet;
use millstream_packet::ring::{Consumer, Producer, spsc};

/// An item that holds memory while it lies in a ring.
pub trait Held {
    /// Returns the memory it holds, in bytes.
    fn held_bytes(&self) -> usize;
}

impl Held for Packet {
    fn held_bytes(&self) -> usize {
        self.held_alone_bytes()
    }
}

impl<T> Held for (Packet, T) {
    fn held_bytes(&self) -> usize {
        self.0.held_alone_bytes()
    }
}

/// Memory that the content of a ring holds at most, or that of each of several. It may change at
/// any time: what is inside stays.
#[derive(Clone)]
pub struct Limit(Arc<AtomicU64>);

impl Limit {
    pub fn of(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    pub fn set(&self, bytes: u64) {
        if self.bytes() != bytes {
            self.0.store(bytes, Ordering::Relaxed);
        }
    }

    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A ring of `items` items that hold as much as `limit` says.
pub fn metered<T: Held>(items: usize, limit: Limit) -> (Giver<T>, Taker<T>) {
    let (producer, consumer) = spsc(items);
    let (given, taken) = (Counter::default(), Counter::default());
    let theirs = (Arc::clone(&given.told), Arc::clone(&taken.told));
    let giver = Giver { ring: producer, given, taken: theirs.1, limit: limit.clone() };
    (giver, Taker { ring: consumer, taken, given: theirs.0, limit })
}

/// Bytes that went through one end, and what it told the other of them.
#[derive(Default)]
struct Counter {
    bytes: u64,
    told: Arc<Told>,
}

/// A byte counter that one end writes, on cache lines of its own (in pairs, as prefetched).
#[derive(Default)]
#[repr(align(128))]
struct Told(AtomicU64);

impl Counter {
    fn add(&mut self, bytes: usize, order: Ordering) {
        self.bytes = self.bytes.wrapping_add(bytes as u64);
        self.told.0.store(self.bytes, order);
    }
}

/// Where items go in.
pub struct Giver<T> {
    ring: Producer<T>,
    given: Counter,
    taken: Arc<Told>,
    limit: Limit,
}

impl<T: Held> Giver<T> {
    /// Returns true if another item fits; otherwise sets `stalled`. Either the taker sees `stalled`
    /// after it has made room, or this call sees the room.
    pub fn has_room_or_stalls(&self, stalled: &AtomicBool) -> bool {
        if self.has_room() {
            return true;
        }
        stalled.store(true, Ordering::SeqCst);
        self.has_room()
    }

    /// Returns true if another item fits. The taken bytes are read by a sequentially consistent
    /// load, and the ring after them: each item counted as taken has left its place.
    pub fn has_room(&self) -> bool {
        let inside = self.given.bytes.wrapping_sub(self.taken.0.load(Ordering::SeqCst));
        inside < self.limit.bytes() && self.ring.len() < self.ring.capacity()
    }

    /// Bytes of memory that it may hold; one at least.
    pub fn limit_bytes(&self) -> usize {
        usize::try_from(self.limit.bytes()).unwrap_or(usize::MAX).max(1)
    }

    /// Returns true if the ring has an item.
    pub fn has_some(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Puts an item in; returns true if the ring was empty. Gives the item back when the ring has
    /// no place; the memory limit is not checked here.
    pub fn push(&mut self, item: T) -> Result<bool, T> {
        let held = item.held_bytes();
        let was_empty = self.ring.push(item)?;
        // Told too late, the ring seems emptier than it is, which wakes the giver early.
        self.given.add(held, Ordering::Relaxed);
        Ok(was_empty)
    }
}

/// Where items come out.
pub struct Taker<T> {
    ring: Consumer<T>,
    taken: Counter,
    given: Arc<Told>,
    limit: Limit,
}

impl<T: Held> Taker<T> {
    /// The oldest item.
    pub fn pop(&mut self) -> Option<T> {
        let item = self.ring.pop()?;
        self.taken.add(item.held_bytes(), Ordering::SeqCst);
        Some(item)
    }

    /// Returns true while at most half of the limit is inside, in items and in memory. Only then is
    /// a waiting giver woken: if it were woken for the room of each item, the CPU would switch to
    /// it for one item at a time.
    pub fn is_half_empty(&self) -> bool {
        // Bytes that were taken before they were told to be given count as a negative number
        // inside.
        let inside = self.given.0.load(Ordering::Relaxed).wrapping_sub(self.taken.bytes) as i64;
        2 * self.ring.len() <= self.ring.capacity() && 2 * inside <= self.limit.bytes() as i64
    }

    /// Returns true if the ring has no item.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Memory that what is inside holds, in bytes.
    pub fn inside_bytes(&self) -> u64 {
        let inside = self.given.0.load(Ordering::Relaxed).wrapping_sub(self.taken.bytes) as i64;
        inside.max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_packet::{Pool, PoolConfig};

    #[test]
    fn room_is_counted_in_items_and_in_memory() {
        let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
        let one = || Packet::from_slice(&pool, 0, &[7]).expect("a frame");
        let each = one().held_bytes() as u64;
        for (items, limit_bytes, want) in
            [(4, 100 * each, 4), (64, 3 * each, 3), (64, 3 * each + 1, 4)]
        {
            let (mut giver, mut taker) = metered(items, Limit::of(limit_bytes));
            let mut fill = || {
                let mut count = 0;
                while giver.has_room() {
                    assert_eq!(giver.push(one()).expect("room"), count == 0);
                    count += 1;
                }
                count
            };
            assert_eq!(fill(), want);
            assert_eq!(std::iter::from_fn(|| taker.pop()).count(), want);
            assert!(taker.is_empty());
            assert_eq!(fill(), want, "all of the room is there again");
        }
    }

    #[test]
    fn a_limit_that_changes_holds_at_once() {
        let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
        let one = || Packet::from_slice(&pool, 0, &[7]).expect("a frame");
        let each = one().held_bytes() as u64;
        let limit = Limit::of(8 * each);
        let (mut giver, mut taker) = metered(64, limit.clone());
        (0..4).for_each(|_| assert!(giver.push(one()).is_ok()));
        assert!(giver.has_room() && taker.is_half_empty());
        limit.set(4 * each);
        assert!(!giver.has_room() && !taker.is_half_empty());
        (0..2).for_each(|_| assert!(taker.pop().is_some()));
        assert!(giver.has_room() && taker.is_half_empty());
        limit.set(8 * each);
        (0..6).for_each(|_| assert!(giver.has_room() && giver.push(one()).is_ok()));
        assert!(!giver.has_room());
    }

    #[test]
    fn half_empty_is_said_of_items_and_of_memory() {
        let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
        let one = || Packet::from_slice(&pool, 0, &[7]).expect("a frame");
        let each = one().held_bytes() as u64;
        for (items, limit_bytes) in [(8, 1000 * each), (64, 8 * each)] {
            let (mut giver, mut taker) = metered(items, Limit::of(limit_bytes));
            assert!(taker.is_half_empty());
            for _ in 0..8 {
                assert!(giver.push(one()).is_ok());
            }
            assert!(!giver.has_room());
            let mut said = Vec::new();
            while taker.pop().is_some() {
                said.push(taker.is_half_empty());
            }
            assert_eq!(said, [false, false, false, true, true, true, true, true]);
        }
    }
}
