//! Taking from the front: packets, copies, or nothing but the room.

use super::{ByteQueue, Entries};
use crate::limits::{
    DESCRIPTOR_SIZE_BYTES, FRAME_HELD_BYTES, FRAME_SIZE_BYTES, PACKET_LIMIT_BYTES,
};
use crate::memory::Pool;
use crate::memory::{self, Releasing};
use crate::memory::{BLOCK_UNITS, Entry, Kind, UNITS_LIMIT, VIEW_UNITS};
use crate::meta::Meta;
use crate::packet::Packet;
use crate::sum;

impl ByteQueue {
    /// Takes `n` bytes from the front, or as many as there are: `None` from an empty queue. The
    /// frame across the cut is shared by a view (copied when no view is free); fewer bytes come
    /// when neither is to be had, or they hold more memory than a packet may.
    pub fn take(&mut self, n: usize, pool: &Pool) -> Option<Packet> {
        let n = n.min(self.entries.len).min(PACKET_LIMIT_BYTES);
        let last = self.entries.last.filter(|_| n != 0)?;
        let (mut bytes, mut units) = (0, 0);
        // Only a queue of several pools' packets holds more than one packet may.
        let most = UNITS_LIMIT - 2 * (BLOCK_UNITS + VIEW_UNITS);
        // The whole entries of the first n bytes leave the ring as they stand.
        let mut taken: Option<Entry> = None;
        let mut next = last.next();
        while bytes + next.len() <= n && units <= most {
            bytes += next.len();
            units += next.units();
            self.entries.forget(next);
            taken = Some(next);
            if next == last {
                break;
            }
            next = next.next();
        }
        let mut packet = taken.map(|end| {
            let first = last.next();
            self.entries.unlink_up_to(end, last);
            end.set_next(first);
            end.set_totals(bytes, units);
            end.set_meta(Meta::default());
            Packet::from_ring(end)
        });
        self.entries.took(bytes, units as usize * DESCRIPTOR_SIZE_BYTES);
        if let (Some(last), 1..) = (self.entries.last, n - bytes)
            && units <= most
            && let Some(part) = self.entries.take_part(last.next(), n - bytes, pool)
        {
            match &mut packet {
                Some(packet) => packet.concat(part),
                None => packet = Some(part),
            }
        }
        if let (Some(left), Some(packet)) = (self.entries.last, &packet) {
            // The rest of its last frame, in the queue, may be freed before the packet, which is
            // charged for the frame then.
            let end = packet.last();
            let more = end.charge_beside(left.next(), Kind::Part);
            end.set_totals(packet.len(), end.held_units() + more);
        }
        packet
    }

    /// Drops `n` bytes from the front, or all. Returns how many.
    pub fn discard(&mut self, n: usize) -> usize {
        match self.entries.sole_frame() {
            Some(sole) if sole.len() == n && n != 0 => {
                self.entries.drop_sole(sole);
                n
            }
            _ => self.entries.discard_some(n),
        }
    }

    /// Copies bytes from the front into `out` and drops them. Returns how many.
    ///
    /// Frames are given up when all is copied: an atomic exchange, where others refer to a frame,
    /// would wait for the bytes copied before it to be written.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        #[cfg(feature = "clogs")]
        if let Some(read) = self.read_clogged(out) {
            return read;
        }
        if let Some(sole) = self.entries.sole_frame()
            && let Some(out) = out.get_mut(..sole.len())
            && !out.is_empty()
        {
            // SAFETY: the entry is the queue's.
            sum::copy_few(unsafe { sole.own_bytes() }, out);
            let len = out.len();
            self.entries.drop_sole(sole);
            return len;
        }
        self.entries.read_some(out)
    }
}

impl Entries {
    /// Takes the first `n` bytes of the first entry, which has more.
    fn take_part(&mut self, first: Entry, n: usize, pool: &Pool) -> Option<Packet> {
        let part = match pool.take_view() {
            Some(view) => {
                view.reset_view(Kind::Part, first, first.offset(), n);
                view.set_totals(n, view.units());
                view.set_meta(Meta::default());
                Packet::from_ring(view)
            }
            None => {
                // SAFETY: the entry is the queue's, and stays during the copy.
                let bytes = unsafe { &first.bytes()[..n] };
                let few = &bytes[..n.min(FRAME_SIZE_BYTES)];
                let copy = Packet::from_slice(pool, 0, bytes);
                copy.or_else(|_| Packet::from_slice(pool, 0, few)).ok()?
            }
        };
        let n = part.len();
        self.trim_front(first, n);
        self.took(n, 0);
        Some(part)
    }

    #[inline]
    pub(crate) fn took(&mut self, bytes: usize, held: usize) {
        self.len -= bytes;
        self.front = self.front.wrapping_add(bytes as u64);
        self.gauge.sub(held);
    }

    /// Returns the one entry, if it is one and a frame.
    #[inline]
    fn sole_frame(&self) -> Option<Entry> {
        self.last.filter(|last| last.next() == *last && last.is_frame())
    }

    /// Releases the one entry, a frame whose bytes were used.
    #[inline(always)]
    fn drop_sole(&mut self, sole: Entry) {
        self.last = None;
        self.forget(sole);
        self.took(sole.len(), FRAME_HELD_BYTES);
        memory::release(sole);
    }

    fn discard_some(&mut self, n: usize) -> usize {
        let n = n.min(self.len);
        let mut left = n - self.discard_whole(n);
        // With the last byte go frames that were appended without data.
        while let Some(last) = self.last
            && (left != 0 || self.len == 0)
        {
            let first = last.next();
            let step = first.len().min(left);
            left -= step;
            self.drop_front(last, first, step);
        }
        n
    }

    /// Drops the entries that lie in the first `n` bytes, but the last of the queue. Returns their
    /// bytes.
    fn discard_whole(&mut self, n: usize) -> usize {
        let Some(last) = self.last else { return 0 };
        let front = last.next();
        let (mut entry, mut bytes, mut units) = (front, 0, 0);
        let mut releasing = Releasing::like(front);
        while entry != last && bytes + entry.len() <= n {
            bytes += entry.len();
            self.forget(entry);
            let next = entry.next();
            units += releasing.release(entry);
            entry = next;
        }
        if entry != front {
            last.set_next(entry);
            self.took(bytes, units as usize * DESCRIPTOR_SIZE_BYTES);
        }
        bytes
    }

    /// Drops the first `n` bytes of the first entry, and the entry when that is all of it.
    fn drop_front(&mut self, last: Entry, first: Entry, n: usize) {
        if n < first.len() {
            self.trim_front(first, n);
            return self.took(n, 0);
        }
        self.unlink_up_to(first, last);
        self.forget(first);
        self.took(n, first.units() as usize * DESCRIPTOR_SIZE_BYTES);
        memory::release(first);
    }

    fn read_some(&mut self, out: &mut [u8]) -> usize {
        let Some(last) = self.last else { return 0 };
        let front = last.next();
        let (mut entry, mut done, mut units) = (front, 0, 0);
        let mut whole = None;
        while done < out.len() {
            let next = entry.next();
            next.prefetch();
            let n = entry.len().min(out.len() - done);
            // SAFETY: the entry is the queue's.
            out[done..done + n].copy_from_slice(unsafe { &entry.bytes()[..n] });
            done += n;
            if n < entry.len() {
                self.trim_front(entry, n);
                break;
            }
            units += entry.units();
            self.forget(entry);
            whole = Some(entry);
            if entry == last {
                break;
            }
            entry = next;
        }
        self.took(done, units as usize * DESCRIPTOR_SIZE_BYTES);
        if let Some(end) = whole {
            self.unlink_up_to(end, last);
            memory::release_run(front, end);
        }
        if self.len == 0 {
            self.discard_some(0);
        }
        done
    }
}
