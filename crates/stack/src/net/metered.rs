//! A ring between two threads that is bounded in the memory that its content holds, not in items alone.
//!
//! The taker tells what it took by a counter of its own; the giver compares that with what it gave. An item may be
//! larger than the room that is left: then the bound is passed by that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_packet::Packet;
use millstream_packet::ring::{Consumer, Producer, spsc};

/// What keeps memory from others while it lies in a ring.
pub trait Held {
    /// How much, in bytes.
    fn held_bytes(&self) -> usize;
}

impl Held for Packet {
    fn held_bytes(&self) -> usize {
        Self::held_bytes(self)
    }
}

impl<T> Held for (Packet, T) {
    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }
}

/// A ring of `items` items that hold `limit_bytes`.
pub fn metered<T: Held>(items: usize, limit_bytes: u64) -> (Giver<T>, Taker<T>) {
    let (producer, consumer) = spsc(items);
    let taken = Arc::new(AtomicU64::new(0));
    let giver = Giver { ring: producer, given: 0, taken: Arc::clone(&taken), limit_bytes };
    (giver, Taker { ring: consumer, so_far: 0, taken })
}

/// Where items go in.
pub struct Giver<T> {
    ring: Producer<T>,
    given: u64,
    taken: Arc<AtomicU64>,
    limit_bytes: u64,
}

impl<T: Held> Giver<T> {
    /// Whether another item may be put in; if not, `stalled` is set. Either who takes sees that after it has made room,
    /// or the room is seen here.
    pub fn has_room_or_stalls(&self, stalled: &AtomicBool) -> bool {
        if self.has_room() {
            return true;
        }
        stalled.store(true, Ordering::SeqCst);
        self.has_room()
    }

    /// Whether another item may be put in. What was taken is a sequentially consistent load.
    pub fn has_room(&self) -> bool {
        let inside = self.given.wrapping_sub(self.taken.load(Ordering::SeqCst));
        self.ring.len() < self.ring.capacity() && inside < self.limit_bytes
    }

    /// Puts an item in; whether the ring was empty. Without a place it comes back; memory is not asked for here.
    pub fn push(&mut self, item: T) -> Result<bool, T> {
        let held = item.held_bytes() as u64;
        let was_empty = self.ring.push(item)?;
        self.given = self.given.wrapping_add(held);
        Ok(was_empty)
    }
}

/// Where items come out.
pub struct Taker<T> {
    ring: Consumer<T>,
    so_far: u64,
    taken: Arc<AtomicU64>,
}

impl<T: Held> Taker<T> {
    /// The oldest item.
    pub fn pop(&mut self) -> Option<T> {
        let item = self.ring.pop()?;
        self.so_far = self.so_far.wrapping_add(item.held_bytes() as u64);
        self.taken.store(self.so_far, Ordering::SeqCst);
        Some(item)
    }

    /// Whether nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
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
            let (mut giver, mut taker) = metered(items, limit_bytes);
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
}
