//! Segments that no frame holds: each lies in frames of its own, the first of them behind the
//! headroom.
//!
//! ```text
//!   │ headroom, 1,918 bytes │─►│ 2,048 bytes │─► … ─►│ what is left │─►│ headroom, the next segment …
//! ```
//! Each frame has the sum of its bytes; a segment leaves with that of all, and a view of each frame
//! stays.

use super::{get_sum, set_sum};
use crate::limits::{DESCRIPTOR_SIZE_BYTES, FRAME_HELD_BYTES, FRAME_SIZE_BYTES};
use crate::memory::Pool;
use crate::memory::{Entry, FRAME_UNITS, more_units};
use crate::packet::Packet;
use crate::packet::RingBuilder;
use crate::queue::byte_queue::Entries;
use crate::sum;

/// Frames that follow each other and hold just a segment.
struct Measured {
    last: Entry,
    count: usize,
    sum: u32,
}

impl Entries {
    /// Writes as [`write_framed`](Self::write_framed) does, where a segment of `size` bytes, and
    /// `headroom`, need more than a frame. Returns the number of bytes written.
    pub(super) fn write_chained(
        &mut self,
        pool: &Pool,
        bytes: &[u8],
        headroom: usize,
        size: usize,
    ) -> usize {
        let (mut rest, mut inside) = (bytes, self.in_open_segment(size));
        while !rest.is_empty() {
            let (now, _) = rest.split_at(rest.len().min(size - inside));
            let n = match self.last.filter(|last| inside != 0 && last.tailroom() != 0) {
                Some(last) => self.grow_summed(last, now),
                None => {
                    let headroom = if inside == 0 { headroom } else { 0 };
                    let Some(n) = self.link_summed(pool, now, headroom) else { break };
                    n
                }
            };
            rest = &rest[n..];
            inside = (inside + n) % size;
        }
        self.framed.open = inside as u16;
        bytes.len() - rest.len()
    }

    /// Returns the bytes of the segment at the end, where that has less than `size`, and takes
    /// more; 0 where the next byte begins one.
    fn in_open_segment(&self, size: usize) -> usize {
        let open = usize::from(self.framed.open);
        let takes_more = self.last.is_some_and(|last| self.takes_more(last));
        if takes_more && open < size { open } else { 0 }
    }

    /// Writes `bytes` into a new frame behind `headroom` free ones, as many as it holds; `None`
    /// where none is to be had.
    fn link_summed(&mut self, pool: &Pool, bytes: &[u8], headroom: usize) -> Option<usize> {
        if !self.gauge.admit(FRAME_HELD_BYTES) {
            return None;
        }
        let frame = pool.take_frame()?;
        let now = &bytes[..bytes.len().min(FRAME_SIZE_BYTES - headroom)];
        frame.reset_filled(headroom, now.len());
        // SAFETY: nobody else has the frame.
        let part = sum::copy_and_sum(now, unsafe { frame.own_frame_mut(headroom, now.len()) });
        set_sum(frame, Some(part as u16));
        self.link_frame(frame, now.len());
        Some(now.len())
    }

    /// Returns the packet of the frames behind `before` that hold just the `len` bytes which end at
    /// position `end`, with its sum; views of them stay. `None` where they are none that were
    /// [written so](Self::write_chained), or no views are free; then nothing has changed.
    pub(super) fn hand_out_chained(
        &mut self,
        pool: &Pool,
        headroom: usize,
        before: Entry,
        len: usize,
        end: u64,
    ) -> Option<Packet> {
        let first = before.next();
        let Measured { last, count, sum } = self.measure(first, headroom, len)?;
        let units = u32::try_from(count).ok()?.checked_mul(FRAME_UNITS)?;
        more_units(units, 0)?;
        let mut views = RingBuilder::new();
        let mut frame = first;
        for _ in 0..count {
            // On failure the views taken so far are freed by `views`.
            let view = pool.take_view()?;
            view.reset_view_of_frame(frame, frame.len());
            views.push(view, 0);
            self.cursors.forget(frame);
            frame = frame.next();
        }
        let views = views.finish()?.into_ring();
        // `frame` is the one behind them: the first of them, where there are no others.
        if frame != first {
            before.set_next(views.next());
            views.set_next(frame);
        }
        if self.last == Some(last) {
            self.last = Some(views);
        }
        self.gauge.add(count * DESCRIPTOR_SIZE_BYTES);
        self.framed.give(views, end);
        last.set_next(first);
        last.set_totals(len, units);
        set_sum(last, Some(sum as u16));
        Some(Packet::from_ring(last))
    }

    /// Looks whether the frames from `first` on hold just `len` bytes, the first one behind
    /// `headroom` free ones and none with a gap before the next, and are all the queue's alone.
    fn measure(&self, first: Entry, headroom: usize, len: usize) -> Option<Measured> {
        if first.offset() < headroom {
            return None;
        }
        let (mut entry, mut bytes, mut total, mut count) = (first, 0, 0, 1);
        loop {
            let is_own = entry.is_frame() && entry.is_unique();
            let part = get_sum(entry).filter(|_| is_own)?;
            total = sum::combine(total, part.into(), bytes % 2 == 1);
            bytes += entry.len();
            if bytes >= len || Some(entry) == self.last {
                break;
            }
            let is_full = entry.offset() + entry.len() == FRAME_SIZE_BYTES;
            entry = entry.next();
            count += 1;
            if !is_full || entry.offset() != 0 {
                return None;
            }
        }
        (bytes == len).then_some(Measured { last: entry, count, sum: total })
    }
}
