//! Looking into a [`ByteQueue`] at any place, with nothing taken from it: copies and views.

use super::{ByteQueue, Entries};
use crate::limits::{FRAME_SIZE_BYTES, PACKET_LIMIT_BYTES};
use crate::memory::Entry;
use crate::memory::{Exhausted, Pool};
use crate::packet::Packet;
use crate::packet::RingBuilder;
use crate::queue::byte_queue::cursors::Walked;
use crate::sum;

/// A walk that goes on within this many bytes of a remembered place takes that place with it.
const NEAR_BYTES: usize = 4 * FRAME_SIZE_BYTES;

impl ByteQueue {
    /// Copies bytes from `offset` on into `out`, as far as there are any; nothing is dropped.
    /// Returns how many.
    pub fn peek(&self, offset: usize, out: &mut [u8]) -> usize {
        let n = out.len().min(self.entries.len.saturating_sub(offset));
        let mut done = 0;
        let walked = self.entries.walk(offset, n, |entry, from, len| {
            // SAFETY: the entry is the queue's.
            out[done..done + len].copy_from_slice(unsafe { &entry.bytes()[from..from + len] });
            done += len;
            Ok(())
        });
        walked.map_or(0, |_| n)
    }

    /// Returns references to `len` bytes from `offset` (as many as there are), which stay. Finding
    /// the place takes constant time at the front, and where one of the last few `view`s or
    /// `copy_packet`s ended: new data and several holes can be sent in turns.
    ///
    /// # Errors
    /// When not enough views are free.
    pub fn view(&mut self, pool: &Pool, offset: usize, len: usize) -> Result<Packet, Exhausted> {
        let len = len.min(self.entries.len.saturating_sub(offset)).min(PACKET_LIMIT_BYTES);
        let mut builder = RingBuilder::new();
        let walked = self
            .entries
            .walk(offset, len, |entry, from, len| builder.push_view(pool, entry, from, len))?;
        self.entries.cursors.keep(walked);
        builder.finish().or_else(|| pool.alloc(0)).ok_or(Exhausted)
    }

    /// Returns a copy of `len` bytes from `offset` (as many as there are) in fresh frames behind
    /// `headroom` (at most a frame's), its partial checksum in
    /// [`Meta::payload_sum`](crate::Meta::payload_sum): one pass over the bytes. Finds its place as
    /// [`view`](Self::view) does.
    ///
    /// # Errors
    /// When not enough frames are free.
    pub fn copy_packet(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        let len = len.min(self.entries.len.saturating_sub(offset)).min(PACKET_LIMIT_BYTES);
        if headroom.saturating_add(len) <= FRAME_SIZE_BYTES {
            return self.entries.copy_frame(pool, headroom, offset, len);
        }
        let mut packet = pool.alloc_chain(headroom, len).ok_or(Exhausted)?;
        let mut total = 0;
        let mut done = 0;
        let mut slices = packet.spare_slices();
        let mut to: &mut [u8] = &mut [];
        let walked = self.entries.walk(offset, len, |entry, from, len| {
            // SAFETY: the entry is the queue's.
            let mut bytes = unsafe { &entry.bytes()[from..from + len] };
            while !bytes.is_empty() {
                if to.is_empty() {
                    to = slices.next().ok_or(Exhausted)?;
                }
                let n = bytes.len().min(to.len());
                let (now, later) = std::mem::take(&mut to).split_at_mut(n);
                let part = sum::copy_and_sum(&bytes[..n], now);
                total = sum::combine(total, part, done % 2 == 1);
                (bytes, to) = (&bytes[n..], later);
                done += n;
            }
            Ok(())
        })?;
        drop(slices);
        self.entries.cursors.keep(walked);
        packet.commit(len);
        packet.meta_mut().payload_sum = Some(total as u16);
        Ok(packet)
    }
}

impl Entries {
    /// Copies as [`copy_packet`](Self::copy_packet) does, into one frame.
    fn copy_frame(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        let mut packet = pool.alloc(headroom).ok_or(Exhausted)?;
        let room = packet.append(len).ok_or(Exhausted)?;
        let mut total = 0;
        let mut done = 0;
        let walked = self.walk(offset, len, |entry, from, len| {
            // SAFETY: the entry is the queue's.
            let bytes = unsafe { &entry.bytes()[from..from + len] };
            let part = sum::copy_and_sum(bytes, &mut room[done..done + len]);
            total = if done == 0 { part } else { sum::combine(total, part, done % 2 == 1) };
            done += len;
            Ok(())
        })?;
        self.cursors.keep(walked);
        packet.meta_mut().payload_sum = Some(total as u16);
        Ok(packet)
    }

    /// Calls `f` with (entry, from, len) for each piece of `len` bytes from `offset`, all of which
    /// are inside. Returns where that ended.
    pub(super) fn walk(
        &self,
        offset: usize,
        len: usize,
        mut f: impl FnMut(Entry, usize, usize) -> Result<(), Exhausted>,
    ) -> Result<Option<Walked>, Exhausted> {
        let (Some(last), 1..) = (self.last, len) else { return Ok(None) };
        let (mut used, mut entry, mut skip) = match self.nearest(offset) {
            Some((used, entry, at)) => (Some(used), entry, offset - at),
            None => (None, last.next(), offset),
        };
        let mut left = len;
        loop {
            let here = entry.len().saturating_sub(skip).min(left);
            if here != 0 {
                f(entry, skip, here)?;
                left -= here;
            }
            if left == 0 {
                let start = offset + len - (skip + here);
                return Ok(Some(Walked { used, entry, at: self.front.wrapping_add(start as u64) }));
            }
            if left == len && skip > entry.len() + NEAR_BYTES {
                // Far from where it started: another reader's place, which it shall keep.
                used = None;
            }
            skip = skip.saturating_sub(entry.len());
            entry = entry.next();
        }
    }
}
