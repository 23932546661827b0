//! Chains: trim, split, join, view, pull up. None of them copies payload.

use super::Packet;
use crate::limits::{PACKET_LIMIT_BYTES, PULL_UP_HEADROOM_BYTES, PULL_UP_LIMIT_BYTES};
use crate::memory;
use crate::memory::{BLOCK_UNITS, Entry, FRAME_UNITS, Kind, VIEW_UNITS, more_units};
use crate::memory::{Exhausted, Pool, frame_beside};
use crate::meta::Meta;
use std::fmt;

/// Why bytes could not be made contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullUp {
    /// The packet has fewer bytes.
    TooShort,
    /// More than headers: over [`PULL_UP_LIMIT_BYTES`].
    TooLong,
    /// The first frame is shared and no other was free.
    Exhausted,
}

impl fmt::Display for PullUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "the packet is shorter than the header",
            Self::TooLong => "only headers are made contiguous",
            Self::Exhausted => "the packet pool is exhausted",
        })
    }
}

impl std::error::Error for PullUp {}

impl Packet {
    /// Puts the frames of `other` behind these, in constant time. This packet's metadata stays,
    /// but for `payload_sum`, which no longer holds.
    ///
    /// # Panics
    /// If the whole exceeds 4 GiB of bytes ([`PACKET_LIMIT_BYTES`]), or 128 GiB of memory held,
    /// which no pool has but packets of several may; this packet is as it was then, and `other`
    /// dropped.
    #[inline]
    pub fn concat(&mut self, other: Packet) {
        let (total, units) = self.joined(&other).expect("packet over its limit");
        let (last, new_last) = (self.last(), other.into_ring());
        let first = last.next();
        last.set_next(new_last.next());
        new_last.set_next(first);
        self.move_root(new_last, total, units);
        // Not written where it is so already: the next one to join would wait for a narrow store
        // before it can read the whole.
        if self.meta().payload_sum.is_some() {
            self.meta_mut().payload_sum = None;
        }
    }

    /// Returns the bytes and units of this packet and `other` in one; `None` beyond what a packet
    /// may have.
    #[inline]
    pub(crate) fn joined(&self, other: &Packet) -> Option<(usize, u32)> {
        let units = more_units(self.last().held_units(), other.last().held_units())?;
        (other.len() <= PACKET_LIMIT_BYTES - self.len()).then(|| (self.len() + other.len(), units))
    }

    /// Drops `n` bytes from the front (all if there are fewer), with the frames that held nothing
    /// else. Linear in what it drops. `payload_sum` no longer holds and is cleared.
    pub fn trim_front(&mut self, n: usize) {
        let last = self.last();
        let mut n = n.min(self.len());
        let (total, mut units) = (self.len() - n, last.held_units());
        loop {
            let first = last.next();
            let len = first.len();
            if n < len || first == last {
                first.set_range(first.offset() + n, len - n);
                break;
            }
            if n == 0 {
                break;
            }
            n -= len;
            units -= first.units();
            last.set_next(first.next());
            memory::release(first);
        }
        last.set_totals(total, units);
        self.meta_mut().payload_sum = None;
    }

    /// Keeps the bytes from `from` to `to` alone: [`truncate`](Self::truncate) and
    /// [`trim_front`](Self::trim_front) in one.
    #[inline]
    pub fn crop(&mut self, from: usize, to: usize) {
        let last = self.last();
        let (len, total) = (last.len(), last.total_len());
        if last != last.next() || from > to || to > len {
            self.truncate(to);
            return self.trim_front(from);
        }
        debug_assert_eq!(len, total);
        last.set_range(last.offset() + from, to - from);
        last.set_totals(to - from, last.held_units());
        self.meta_mut().payload_sum = None;
    }

    /// Drops the bytes behind the first `len`, with the frames that held nothing else. Linear in
    /// the frames. `payload_sum` no longer holds and is cleared.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        let (entry, keep) = self.locate(len);
        entry.set_range(entry.offset(), keep);
        if let Some(rest) = self.cut_after(entry, len) {
            drop(rest);
        }
        self.meta_mut().payload_sum = None;
    }

    /// Returns the entry in which the first `at` bytes end, and how many of them are in it. It is
    /// the first such entry: `at` bytes that end with a frame are wholly in that frame.
    fn locate(&self, at: usize) -> (Entry, usize) {
        let mut left = at;
        for entry in self.entries() {
            if left <= entry.len() {
                return (entry, left);
            }
            left -= entry.len();
        }
        (self.last(), self.last().len())
    }

    /// Ends this packet with `entry`, now `len` bytes in all; what was behind becomes a packet,
    /// with the same metadata but for `payload_sum`. Totals of the rest are by what is left of
    /// the old ones.
    fn cut_after(&mut self, entry: Entry, len: usize) -> Option<Packet> {
        let root = self.last();
        let (total, held) = (root.total_len(), root.held_units());
        root.set_totals(len, held);
        if entry == root {
            return None;
        }
        let mut units = 0;
        let mut bytes = 0;
        for rest in self.entries_after(entry) {
            units += rest.units();
            bytes += rest.len();
        }
        debug_assert!(bytes <= total);
        let rest_first = entry.next();
        entry.set_next(self.first());
        root.set_next(rest_first);
        self.move_root(entry, len, held - units);
        root.set_totals(bytes, units);
        let mut rest = Packet::from_ring(root);
        rest.meta_mut().payload_sum = None;
        Some(rest)
    }

    /// Cuts the packet in two: this one keeps the first `at` bytes (all, if there are fewer), the
    /// other is returned. A frame across the cut is shared, not copied. Both keep the metadata but
    /// for `payload_sum`. Linear in the frames.
    ///
    /// # Errors
    /// When no view (or, at either end, no empty frame) is free, or both would hold more memory
    /// than a packet may; the packet is as it was.
    pub fn split_off(&mut self, at: usize, pool: &Pool) -> Result<Packet, Exhausted> {
        let at = at.min(self.len());
        let mut meta = *self.meta();
        meta.payload_sum = None;
        if at == 0 || at == self.len() {
            let mut other = pool.alloc(0).ok_or(Exhausted)?;
            if at == 0 {
                std::mem::swap(self, &mut other);
            }
            *self.meta_mut() = meta;
            *other.meta_mut() = meta;
            return Ok(other);
        }
        let (entry, keep) = self.locate(at);
        let (offset, len) = (entry.offset(), entry.len());
        let part = if keep == len {
            None
        } else {
            // The packets behind are joined to this part.
            let most = BLOCK_UNITS + VIEW_UNITS;
            more_units(self.last().held_units(), most).ok_or(Exhausted)?;
            let view = pool.take_view().ok_or(Exhausted)?;
            view.reset_view(Kind::Part, entry, offset + keep, len - keep);
            view.set_totals(len - keep, view.units());
            view.set_meta(meta);
            entry.set_range(offset, keep);
            Some(Packet::from_ring(view))
        };
        let rest = self.cut_after(entry, at);
        self.meta_mut().payload_sum = None;
        let mut other = match (part, rest) {
            (Some(mut part), Some(rest)) => {
                part.concat(rest);
                part
            }
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => unreachable!("bytes behind `at` are in this entry or a later one"),
        };
        *other.meta_mut() = meta;
        Ok(other)
    }

    /// Returns references to `len` bytes from `offset` (as many as there are), without copying: one
    /// view for each frame. The frames can be written by neither until one of the two is dropped.
    ///
    /// # Errors
    /// When not enough views are free.
    pub fn view(&self, pool: &Pool, offset: usize, len: usize) -> Result<Packet, Exhausted> {
        let mut builder = RingBuilder::new();
        let end = self.len().min(offset.saturating_add(len));
        let mut at = 0;
        for entry in self.entries() {
            if at >= end {
                break;
            }
            let from = offset.saturating_sub(at).min(entry.len());
            let to = entry.len().min(end - at);
            if from < to {
                builder.push_view(pool, entry, from, to - from)?;
            }
            at += entry.len();
        }
        builder.finish().or_else(|| pool.alloc(0)).ok_or(Exhausted)
    }

    /// Makes the first `n` bytes contiguous, moving no more than these, and returns them.
    ///
    /// # Errors
    /// When there are fewer bytes, when `n` is more than headers need, or when the first frame is
    /// shared and no frame is free to take its place.
    pub fn pull_up(&mut self, n: usize) -> Result<&[u8], PullUp> {
        if n > self.first().len() {
            self.pull_up_slow(n)?;
        }
        Ok(&self.head()[..n])
    }

    #[cold]
    fn pull_up_slow(&mut self, n: usize) -> Result<(), PullUp> {
        if n > PULL_UP_LIMIT_BYTES {
            return Err(PullUp::TooLong);
        }
        if n > self.len() {
            return Err(PullUp::TooShort);
        }
        let mut bytes = [0; PULL_UP_LIMIT_BYTES];
        self.copy_to(0, &mut bytes[..n]);
        let (first, total) = (self.first(), self.len());
        if first.is_unique() {
            let have = first.len();
            let size = first.size();
            if first.offset() + n > size {
                first.slide(size - n);
            }
            // The bytes that are to follow leave the frames behind.
            let last = self.last();
            first.set_range(first.offset(), 0);
            self.trim_entries_after(first, n - have);
            first.set_range(first.offset(), n);
            // SAFETY: unique, inside the frame.
            unsafe { first.frame_mut(first.offset(), n) }.copy_from_slice(&bytes[..n]);
            debug_assert!(self.last() == last);
        } else {
            more_units(self.last().held_units(), FRAME_UNITS).ok_or(PullUp::Exhausted)?;
            let fresh = frame_beside(first).ok_or(PullUp::Exhausted)?;
            fresh.reset_frame(PULL_UP_HEADROOM_BYTES);
            fresh.set_range(PULL_UP_HEADROOM_BYTES, n);
            // SAFETY: fresh, inside the frame.
            unsafe { fresh.frame_mut(PULL_UP_HEADROOM_BYTES, n) }.copy_from_slice(&bytes[..n]);
            self.trim_front(n);
            let last = self.last();
            fresh.set_next(last.next());
            last.set_next(fresh);
            last.set_totals(total, last.held_units() + FRAME_UNITS);
        }
        Ok(())
    }

    /// Drops `n` bytes behind `first`, which stays; the length of the packet is not changed.
    fn trim_entries_after(&mut self, first: Entry, mut n: usize) {
        let last = self.last();
        loop {
            let entry = first.next();
            let len = entry.len();
            if n < len || entry == last {
                entry.set_range(entry.offset() + n, len - n);
                return;
            }
            n -= len;
            first.set_next(entry.next());
            last.set_totals(last.total_len(), last.held_units() - entry.units());
            memory::release(entry);
        }
    }
}

/// Collects descriptors into a packet; what it has collected goes home if it is dropped before.
pub(crate) struct RingBuilder {
    last: Option<Entry>,
    len: usize,
    units: u32,
}

impl RingBuilder {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { last: None, len: 0, units: 0 }
    }

    /// Adds a view of `len` bytes from `from` of the entry's data.
    #[inline]
    pub(crate) fn push_view(
        &mut self,
        pool: &Pool,
        of: Entry,
        from: usize,
        len: usize,
    ) -> Result<(), Exhausted> {
        let view = pool.take_view().ok_or(Exhausted)?;
        view.reset_view(Kind::View, of, of.offset() + from, len);
        self.push(view, VIEW_UNITS);
        self.len += len;
        Ok(())
    }

    /// Adds an entry that is a ring of its own.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry, units: u32) {
        if let Some(last) = self.last {
            entry.set_next(last.next());
            last.set_next(entry);
        }
        self.last = Some(entry);
        self.units += units;
    }

    /// Returns the packet; none when nothing was added.
    #[inline]
    pub(crate) fn finish(mut self) -> Option<Packet> {
        let last = self.last.take()?;
        last.set_totals(self.len, self.units);
        last.set_meta(Meta::default());
        Some(Packet::from_ring(last))
    }
}

impl Drop for RingBuilder {
    #[inline]
    fn drop(&mut self) {
        if let Some(last) = self.last.take() {
            drop(Packet::from_ring(last));
        }
    }
}
