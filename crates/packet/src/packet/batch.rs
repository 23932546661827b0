//! Batches: what passes from stage to stage.

use super::Packet;
use crate::limits::BATCH_LIMIT;
use crate::memory::Releasing;
use std::fmt;

/// Up to [`BATCH_LIMIT`] packets, first in, first out, in place: no heap.
///
/// ```
/// use millstream_packet::{Packet, PacketBatch, Pool, PoolConfig};
///
/// let pool = Pool::new(PoolConfig::fixed(64))?;
/// let mut batch = PacketBatch::new();
/// batch.push(Packet::from_slice(&pool, 0, b"one").expect("a frame")).expect("room for 64");
/// assert_eq!(batch.pop().expect("a packet").head(), b"one");
/// # Ok::<(), millstream_packet::PoolError>(())
/// ```
pub struct PacketBatch {
    slots: [Option<Packet>; BATCH_LIMIT],
    first: usize,
    len: usize,
}

const _: () = assert!(BATCH_LIMIT.is_power_of_two());

/// Distance, in packets, at which packets that will be looked into are brought into the cache. The
/// wait for a frame that the kernel has filled is longer than the work on one small packet; and
/// frames begin at multiples of their size, so that few of their first bytes fit the first-level
/// cache (24 of 48 KiB).
const AHEAD: usize = 8;

/// From so many packets on two batches are exchanged whole, rather than packet by packet.
const SWAP_LEAST: usize = 16;

impl PacketBatch {
    /// Returns an empty batch.
    pub const fn new() -> Self {
        Self { slots: [const { None }; BATCH_LIMIT], first: 0, len: 0 }
    }

    #[inline]
    fn slot(&self, i: usize) -> usize {
        (self.first + i) % BATCH_LIMIT
    }

    /// Puts a packet at the end.
    ///
    /// # Errors
    /// Gives it back when the batch is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.is_full() {
            return Err(packet);
        }
        let before = self.slots[self.slot(self.len)].replace(packet);
        // Nothing to be dropped, unless a guard was leaked before.
        std::mem::forget(before);
        self.len += 1;
        Ok(())
    }

    /// Puts a packet at the front: what was taken and could not be used.
    ///
    /// # Errors
    /// Gives it back when the batch is full.
    #[inline]
    pub fn push_front(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.is_full() {
            return Err(packet);
        }
        self.first = (self.first + BATCH_LIMIT - 1) % BATCH_LIMIT;
        self.slots[self.first] = Some(packet);
        self.len += 1;
        Ok(())
    }

    /// Takes the packet at the front.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        self.len = self.len.checked_sub(1)?;
        let packet = self.slots[self.first % BATCH_LIMIT].take();
        self.first = (self.first + 1) % BATCH_LIMIT;
        packet
    }

    /// Returns the packet at the front.
    #[inline]
    pub fn front(&self) -> Option<&Packet> {
        if self.len == 0 { None } else { self.slots[self.first % BATCH_LIMIT].as_ref() }
    }

    /// Returns the packet at the end.
    #[inline]
    pub fn back(&self) -> Option<&Packet> {
        let last = self.len.checked_sub(1)?;
        self.slots[self.slot(last)].as_ref()
    }

    /// Returns the packet at place `i` from the front.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&Packet> {
        if i < self.len { self.slots[self.slot(i)].as_ref() } else { None }
    }

    /// Returns the packet at place `i` from the front, to be changed.
    #[inline]
    pub fn get_mut(&mut self, i: usize) -> Option<&mut Packet> {
        if i >= self.len {
            return None;
        }
        let at = self.slot(i);
        self.slots[at].as_mut()
    }

    /// Takes the first `n` packets, or all; those that the iterator does not come to stay.
    #[inline]
    pub fn drain_front(&mut self, n: usize) -> DrainFront<'_> {
        // Empty until it is dropped: where it is leaked, what is inside is leaked with it.
        let len = std::mem::take(&mut self.len);
        DrainFront { left: n.min(len), first: self.first, taken: 0, len, batch: self }
    }

    /// Returns a guard that puts many packets at the end. They are inside when it is dropped.
    #[inline]
    pub fn filling(&mut self) -> Filling<'_> {
        Filling { first: self.first, len: self.len, batch: self }
    }

    /// Has the first bytes of the first packets but one brought into the cache: for a caller that
    /// will look into each by [`pop_ahead`](Self::pop_ahead), which does so with those behind them.
    #[inline]
    pub fn look_ahead(&self) {
        (1..AHEAD.min(self.len)).for_each(|i| self.prefetch(i));
    }

    /// Takes the packet at the front, and has the first bytes of one some places behind it brought
    /// into the cache.
    #[inline]
    pub fn pop_ahead(&mut self) -> Option<Packet> {
        let packet = self.pop()?;
        self.prefetch(AHEAD - 1);
        Some(packet)
    }

    /// Returns the packets from the front, for a caller that looks into each: those some places
    /// behind are brought into the cache.
    #[inline]
    pub fn iter_ahead(&self) -> impl Iterator<Item = &Packet> {
        self.look_ahead();
        (0..self.len).map_while(|i| {
            self.prefetch(i + AHEAD);
            self.slots[self.slot(i)].as_ref()
        })
    }

    /// Has the first bytes of the packet at place `i`, if there is one, brought into the cache.
    #[inline]
    fn prefetch(&self, i: usize) {
        // A place outside the batch has no packet.
        if let Some(packet) = &self.slots[self.slot(i)] {
            packet.first().prefetch();
        }
    }

    /// Moves packets from the front of `other` to the end, as far as there is room.
    pub fn append(&mut self, other: &mut PacketBatch) {
        // All places change hands at once, also those that are empty.
        if self.is_empty() && other.len() >= SWAP_LEAST {
            return std::mem::swap(self, other);
        }
        if other.len() == 1 && !self.is_full() {
            // There is room.
            other.pop().into_iter().for_each(|packet| drop(self.push(packet)));
            return;
        }
        let room = self.room();
        let mut filling = self.filling();
        for packet in other.drain_front(room) {
            // There is room.
            let _ = filling.push(packet);
        }
    }

    /// Returns the number of packets inside.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of packets that it would take yet.
    #[inline]
    pub fn room(&self) -> usize {
        BATCH_LIMIT - self.len
    }

    /// Returns true without a packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true without room.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == BATCH_LIMIT
    }

    /// Returns the packets from the front.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> {
        (0..self.len).filter_map(|i| self.slots[self.slot(i)].as_ref())
    }

    /// Returns the packets from the front, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Packet> {
        let (first, len) = (self.first, self.len);
        let (front, back) = self.slots.split_at_mut(first);
        back.iter_mut().chain(front).take(len).filter_map(Option::as_mut)
    }

    /// Takes all packets from the front; those that the iterator does not come to stay.
    pub fn drain(&mut self) -> impl Iterator<Item = Packet> {
        std::iter::from_fn(|| self.pop())
    }

    /// Drops all packets.
    pub fn clear(&mut self) {
        let Some(first) = self.front() else { return };
        let mut releasing = Releasing::like(first.0);
        for packet in self.drain_front(BATCH_LIMIT) {
            let last = packet.0;
            if last.next() == last && releasing.release_sole_frame(last) {
                std::mem::forget(packet);
            } else {
                drop(packet);
                releasing.look_again();
            }
        }
    }
}

/// See [`PacketBatch::filling`].
pub struct Filling<'a> {
    batch: &'a mut PacketBatch,
    first: usize,
    len: usize,
}

impl core::fmt::Debug for Filling<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Filling").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Filling<'_> {
    /// Does as [`PacketBatch::push`].
    ///
    /// # Errors
    /// Gives the packet back when the batch is full.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.len == BATCH_LIMIT {
            return Err(packet);
        }
        let at = (self.first + self.len) % BATCH_LIMIT;
        // Nothing to be dropped.
        std::mem::forget(self.batch.slots[at].replace(packet));
        self.len += 1;
        Ok(())
    }
}

impl Filling<'_> {
    /// Does as [`push`](Self::push), for a caller that knows that there is room.
    #[inline(always)]
    pub(crate) fn put(&mut self, packet: Packet) {
        assert!(self.len < BATCH_LIMIT);
        let at = (self.first + self.len) % BATCH_LIMIT;
        // Nothing to be dropped.
        std::mem::forget(self.batch.slots[at].replace(packet));
        self.len += 1;
    }
}

impl Drop for Filling<'_> {
    #[inline]
    fn drop(&mut self) {
        self.batch.len = self.len;
    }
}

/// See [`PacketBatch::drain_front`].
pub struct DrainFront<'a> {
    batch: &'a mut PacketBatch,
    first: usize,
    taken: usize,
    left: usize,
    /// Packets inside before.
    len: usize,
}

impl core::fmt::Debug for DrainFront<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DrainFront").field("left", &self.left).finish_non_exhaustive()
    }
}

impl DrainFront<'_> {
    /// Takes the next packet, if it is as asked for; any other stays, and so do those behind it.
    #[inline(always)]
    pub fn next_if(&mut self, is_wanted: impl FnOnce(&Packet) -> bool) -> Option<Packet> {
        let slot = &mut self.batch.slots[(self.first + self.taken) % BATCH_LIMIT];
        if self.left == 0 || !slot.as_ref().is_some_and(is_wanted) {
            return None;
        }
        self.left -= 1;
        self.taken += 1;
        slot.take()
    }
}

impl Iterator for DrainFront<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        self.left = self.left.checked_sub(1)?;
        let at = (self.first + self.taken) % BATCH_LIMIT;
        self.taken += 1;
        self.batch.slots[at].take()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl Drop for DrainFront<'_> {
    #[inline]
    fn drop(&mut self) {
        self.batch.first = self.batch.slot(self.taken);
        self.batch.len = self.len - self.taken;
    }
}

impl Default for PacketBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl Extend<Packet> for PacketBatch {
    /// Puts packets at the end. Those for which there is no room are dropped.
    fn extend<I: IntoIterator<Item = Packet>>(&mut self, packets: I) {
        for packet in packets {
            drop(self.push(packet));
        }
    }
}

impl fmt::Debug for PacketBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::{Pool, PoolConfig};

    #[test]
    fn keeps_order_at_both_ends_and_gives_back_when_full() {
        let pool = Pool::new(PoolConfig::fixed(100)).unwrap();
        let packet = |n: u8| Packet::from_slice(&pool, 0, &[n]).unwrap();
        let mut batch = PacketBatch::new();
        for n in 10..BATCH_LIMIT as u8 {
            batch.push(packet(n)).unwrap();
        }
        for n in (0..10).rev() {
            batch.push_front(packet(n)).unwrap();
        }
        assert_eq!(batch.push(packet(99)).unwrap_err().head(), [99]);
        assert_eq!(batch.push_front(packet(98)).unwrap_err().head(), [98]);
        batch.iter_mut().for_each(|p| p.head_mut().unwrap()[0] += 1);
        let expected: Vec<u8> = (1..=BATCH_LIMIT as u8).collect();
        assert_eq!(batch.iter().map(|p| p.head()[0]).collect::<Vec<_>>(), expected);
        assert_eq!(batch.back().unwrap().head(), [64]);
        assert!(batch.get_mut(64).is_none() && batch.get(64).is_none());
        let ahead: Vec<u8> = batch.iter_ahead().map(|p| p.head()[0]).collect();
        assert_eq!((ahead, batch.get(63).unwrap().head()), (expected.clone(), &[64][..]));
        assert_eq!(batch.get_mut(9).unwrap().sole(), Some(&[10][..]));
        batch.drain_front(3).for_each(drop);
        assert_eq!((batch.len(), batch.front().unwrap().head()), (BATCH_LIMIT - 3, &[4][..]));
        for n in (1..4).rev() {
            batch.push_front(packet(n)).unwrap();
        }
        let mut other = PacketBatch::new();
        assert!(other.back().is_none());
        other.filling().push(packet(0)).unwrap();
        assert_eq!(batch.filling().push(packet(99)).unwrap_err().head(), [99]);
        other.append(&mut batch);
        assert_eq!((other.len(), batch.len()), (BATCH_LIMIT, 1));
        assert_eq!(batch.drain().map(|p| p.head()[0]).collect::<Vec<_>>(), [64]);
        batch.drain_front(9).for_each(drop);
        let first: Vec<u8> = other.drain_front(5).take(2).map(|p| p.head()[0]).collect();
        assert_eq!((first, other.len(), other.front().unwrap().head()), (vec![0, 1], 62, &[2][..]));
        assert_eq!(other.drain_front(99).take(60).count(), 60);
        assert_eq!((other.len(), other.back().unwrap().head()), (2, &[63][..]));
        other.drain_front(99).for_each(drop);
        assert!(other.is_empty());
        assert_eq!(pool.stats().used_frames, 0);
    }

    #[test]
    fn a_batch_of_all_kinds_is_given_up_at_once() {
        let (pool, other) = (PoolConfig::fixed(1000), PoolConfig::fixed(100));
        let (pool, other) = (Pool::new(pool).unwrap(), Pool::new(other).unwrap());
        let mut batch = PacketBatch::new();
        for _ in 0..8 {
            assert_eq!(pool.alloc_bulk(0, 3, &mut batch), 3);
            let chain = pool.alloc_chain(0, 5000).unwrap();
            let shared = Packet::from_slice(&pool, 0, b"shared").unwrap();
            let view = shared.view(&pool, 0, 6).unwrap();
            let all = [chain, shared, view, other.alloc(0).unwrap()];
            all.into_iter().for_each(|packet| batch.push(packet).unwrap());
        }
        let kept = batch.pop().unwrap();
        batch.clear();
        assert!(batch.is_empty());
        drop(kept);
        assert_eq!((pool.stats().used_frames, other.stats().used_frames), (0, 0));
        assert_eq!(pool.stats().free_views, pool.stats().views);
        assert_eq!(other.alloc_bulk(0, 200, &mut batch), BATCH_LIMIT);
    }
}
