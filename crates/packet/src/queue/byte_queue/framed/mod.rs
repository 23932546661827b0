//! Bytes written into frames of a segment each, summed as they are copied, and the frames
//! themselves sent.
//!
//! ```text
//!   write_framed            hand_out                     discard
//!   frame ── in the queue ─► the frame leaves, behind it ─► the view goes, and with it or
//!                            a view of it stays inside       before it whoever has the frame
//! ```
//! So a sender copies and sums in one pass, keeps what it may have to send again, and copies
//! nothing to send it. Bytes that do not fit this scheme (other insertions, cuts elsewhere) are
//! still sent by `ByteQueue::copy_packet`. A segment that no frame holds lies in several
//! ([`chained`]).

mod chained;

use crate::limits::{
    DESCRIPTOR_SIZE_BYTES, FRAME_HELD_BYTES, FRAME_SIZE_BYTES, FRAMED_COPY_BYTES,
    PACKET_LIMIT_BYTES,
};
use crate::memory::Pool;
use crate::memory::{Entry, FRAME_UNITS, Kind};
use crate::packet::Packet;
use crate::packet::PacketBatch;
use crate::queue::byte_queue::{ByteQueue, Entries};
use crate::sum;

/// The state of a queue's framed bytes.
pub(crate) struct Framed {
    /// From position `from` on, all there is was written by `write_framed`.
    active: bool,
    from: u64,
    /// The view of the foremost frame handed out, while it is inside, and the position of its end.
    given: Option<(Entry, u64)>,
    /// Bytes of the last segment, where it is to lie in several frames and is not whole; as long as
    /// it [takes more](ByteQueue::takes_more).
    open: u16,
    /// Headroom that the owner wants in each frame.
    headroom: u16,
}

impl Framed {
    pub(crate) const fn new() -> Self {
        Self { active: false, from: 0, given: None, open: 0, headroom: 0 }
    }

    /// Ends framing, when everything has left.
    pub(crate) fn clear(&mut self) {
        (self.active, self.given) = (false, None);
    }

    /// Begins framing at position `from`, unless it has begun before.
    #[inline]
    fn begin(&mut self, from: u64) {
        if !self.active {
            (self.active, self.from, self.open) = (true, from, 0);
        }
    }

    /// Returns true if what is at position `at` was written by `write_framed`.
    #[inline]
    fn covers(&self, at: u64) -> bool {
        self.active && at.wrapping_sub(self.from) <= u64::MAX / 2
    }

    /// Ends framing, when other bytes were put in.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.active = false;
    }

    /// Notes that the entry was handed out, up to `end`. A segment that is sent again lies behind
    /// others, whose place is kept: new data goes on there.
    #[inline]
    fn give(&mut self, entry: Entry, end: u64) {
        let is_ahead = |last: u64| end.wrapping_sub(last) <= u64::MAX / 2;
        if self.given.is_none_or(|(_, last)| is_ahead(last)) {
            self.given = Some((entry, end));
        }
    }

    /// Forgets an entry, which leaves the queue.
    #[inline]
    pub(crate) fn forget(&mut self, entry: Entry) {
        if self.given.is_some_and(|(given, _)| given == entry) {
            self.given = None;
        }
    }

    /// Takes the sum off an entry that has lost bytes at its front: it no longer holds.
    #[inline]
    pub(crate) fn trim(&mut self, first: Entry) {
        if self.active {
            set_sum(first, None);
        }
    }
}

#[inline]
fn set_sum(entry: Entry, sum: Option<u16>) {
    // SAFETY: the entry is owned; its metadata is its own.
    unsafe { (*entry.meta_ptr()).payload_sum = sum };
}

#[inline]
fn get_sum(entry: Entry) -> Option<u16> {
    // SAFETY: as above.
    unsafe { (*entry.meta_ptr()).payload_sum }
}

impl ByteQueue {
    /// Does as [`set_framing`](Self::set_framing), for a link that takes no super-segments.
    #[inline]
    pub fn set_framing_only(&mut self, headroom: usize) {
        self.set_framing(headroom);
        self.set_whole(0);
    }

    /// Remembers, for writers, that frames are to be written behind `headroom` bytes (at most a
    /// frame's); 0 that they are not.
    #[inline]
    pub fn set_framing(&mut self, headroom: usize) {
        self.entries.framed.headroom = headroom.min(FRAME_SIZE_BYTES) as u16;
    }

    /// Returns the headroom that [`set_framing`](Self::set_framing) has set.
    #[inline]
    pub fn framing(&self) -> usize {
        usize::from(self.entries.framed.headroom)
    }

    /// Writes as [`write`](Self::write) does, into frames of `size` bytes each behind `headroom`
    /// free ones, which [`hand_out`](Self::hand_out) gives out when they are asked for one by one.
    /// The last one may have fewer, and takes more until it is handed out. Where a frame does not
    /// hold `size` (65,535 at most), each segment lies in some of its own.
    pub fn write_framed(
        &mut self,
        pool: &Pool,
        bytes: &[u8],
        headroom: usize,
        size: usize,
    ) -> usize {
        if size == 0 || size > usize::from(u16::MAX) || headroom >= FRAME_SIZE_BYTES {
            return self.write(pool, bytes);
        }
        self.entries.framed.begin(self.entries.front.wrapping_add(self.len() as u64));
        if headroom + size > FRAME_SIZE_BYTES {
            return self.entries.write_chained(pool, bytes, headroom, size);
        }
        self.entries.framed.open = 0;
        let mut rest = bytes;
        if let Some(last) = self.entries.last {
            rest = &rest[self.entries.grow(last, rest, size)..];
        }
        if rest.len() >= size {
            rest = &rest[self.entries.write_whole(pool, rest, headroom, size)..];
        }
        while !rest.is_empty() {
            if !self.entries.gauge.admit(FRAME_HELD_BYTES) {
                break;
            }
            let Some(frame) = pool.take_frame() else { break };
            let (now, later) = rest.split_at(rest.len().min(size));
            frame.reset_filled(headroom, now.len());
            // SAFETY: nobody else has the frame.
            let part = sum::copy_and_sum(now, unsafe { frame.own_frame_mut(headroom, now.len()) });
            set_sum(frame, Some(part as u16));
            self.entries.link_frame(frame, now.len());
            rest = later;
        }
        bytes.len() - rest.len()
    }

    /// Returns the frame, or frames, that hold exactly the `len` bytes from `offset` (a copy where
    /// they are [few](FRAMED_COPY_BYTES)), if [`write_framed`](Self::write_framed) put them there,
    /// behind `headroom` free bytes at least, and it was not handed out before: with its partial
    /// checksum in [`Meta::payload_sum`](crate::Meta). The bytes stay inside. `None` when there is
    /// none, or no view is free.
    ///
    /// To be asked in the order of writing; what was passed over is not found again until all
    /// before it has left.
    pub fn hand_out(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        len: usize,
    ) -> Option<Packet> {
        let entries = &mut self.entries;
        let at = entries.front.wrapping_add(offset as u64);
        let last = entries.last.filter(|_| entries.framed.covers(at))?;
        if offset >= entries.len || len > PACKET_LIMIT_BYTES {
            return None;
        }
        let before = match entries.framed.given {
            Some((given, end)) if end == at => given,
            _ if offset == 0 => last,
            _ => entries.ends_at(offset)?,
        };
        let (frame, end) = (before.next(), at.wrapping_add(len as u64));
        if len > frame.len() {
            return entries.hand_out_chained(pool, headroom, before, len, end);
        }
        if !frame.is_frame() || frame.len() != len || get_sum(frame).is_none() {
            return None;
        }
        if len <= FRAMED_COPY_BYTES {
            return entries.copy_framed(pool, headroom, frame, end);
        }
        if frame.offset() < headroom || !frame.is_unique() {
            return None;
        }
        let view = pool.take_view()?;
        view.reset_view(Kind::Part, frame, frame.offset(), len);
        entries.replace_behind(before, frame, view);
        entries.gauge.add(view.units() as usize * DESCRIPTOR_SIZE_BYTES - FRAME_HELD_BYTES);
        entries.framed.give(view, end);
        frame.set_next(frame);
        frame.set_totals(len, frame.units());
        Some(Packet::from_ring(frame))
    }

    /// Hands out, as [`hand_out`](Self::hand_out) does, frames that follow each other, `each` bytes
    /// in every one, up to `len` bytes of them: they go to `parts`. Returns the number of these
    /// bytes; 0 where the first is no such frame.
    pub fn hand_out_run(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        (each, len): (usize, usize),
        parts: &mut PacketBatch,
    ) -> usize {
        let len = len.min(self.len().saturating_sub(offset));
        let entries = &mut self.entries;
        let at = entries.front.wrapping_add(offset as u64);
        let Some(last) = entries.last.filter(|_| entries.framed.covers(at)) else { return 0 };
        let mut before = match entries.framed.given {
            Some((given, end)) if end == at => given,
            _ if offset == 0 => last,
            _ => return 0,
        };
        let most = if each > FRAMED_COPY_BYTES { parts.room().min(len / each) } else { 0 };
        let mut count = 0;
        let (mut parts, mut views) = (parts.filling(), pool.taking_views());
        while count < most {
            let frame = before.next();
            let is_whole = frame.is_frame()
                && frame.len() == each
                && frame.offset() >= headroom
                && get_sum(frame).is_some()
                && frame.refs().is_sole();
            if !is_whole {
                break;
            }
            let Some(view) = views.take() else { break };
            view.reset_view_of_frame(frame, each);
            entries.replace_behind(before, frame, view);
            before = view;
            count += 1;
            frame.set_next(frame);
            frame.set_totals(each, FRAME_UNITS);
            parts.put(Packet::from_ring(frame));
        }
        let made = count * each;
        if made != 0 {
            // In the place of each frame there is a view that holds it.
            entries.gauge.add(count * DESCRIPTOR_SIZE_BYTES);
            entries.framed.give(before, at.wrapping_add(made as u64));
        }
        made
    }

    /// Returns true if all that is put in now goes into frames that can be handed out, as long as
    /// nothing else is put in.
    #[inline]
    pub fn is_framed(&self) -> bool {
        self.entries.framed.active
    }

    /// Returns the number of bytes from `offset` to the end of a segment written by
    /// [`write_framed`](Self::write_framed), where the copy before ended inside it: a sender that
    /// sends just these goes on with whole ones.
    pub fn left_in_frame(&self, offset: usize) -> Option<usize> {
        let at = self.entries.front.wrapping_add(offset as u64);
        let place = self.entries.nearest(offset).filter(|_| self.entries.framed.covers(at));
        let (_, mut entry, start) = place?;
        let (is_inside, mut end) = (entry.is_frame() && start < offset, start + entry.len());
        // The first frame of a segment has headroom, others have none.
        while is_inside && offset <= end && Some(entry) != self.entries.last {
            entry = entry.next();
            if !entry.is_frame() || entry.offset() != 0 {
                break;
            }
            end += entry.len();
        }
        (is_inside && offset < end).then(|| end - offset)
    }
}

impl Entries {
    /// Fills up `last` to `size` bytes, if it takes more: how many of the `bytes` that took.
    #[inline(never)]
    fn grow(&mut self, last: Entry, bytes: &[u8], size: usize) -> usize {
        if bytes.is_empty() || !self.is_growing(last, size) {
            return 0;
        }
        self.grow_summed(last, &bytes[..bytes.len().min(size - last.len())])
    }

    /// Writes as many of the `bytes` behind those of `last` as it has room for, and adds their sum
    /// to its own. How many.
    fn grow_summed(&mut self, last: Entry, bytes: &[u8]) -> usize {
        let now = &bytes[..bytes.len().min(last.tailroom())];
        let (before, is_odd) = (get_sum(last).map_or(0, u32::from), last.len() % 2 == 1);
        // SAFETY: there is room.
        let part = sum::copy_and_sum(now, unsafe { last.extend(now.len()) });
        set_sum(last, Some(sum::combine(before, part, is_odd) as u16));
        self.len += now.len();
        now.len()
    }

    /// Writes as many whole frames of `size` bytes as there are in `bytes`, and find room. How many
    /// bytes those are.
    #[inline(never)]
    fn write_whole(&mut self, pool: &Pool, bytes: &[u8], headroom: usize, size: usize) -> usize {
        let (mut count, mut frames) = (0, pool.taking_frames());
        for now in bytes.chunks_exact(size).take(self.gauge.rooms(FRAME_HELD_BYTES)) {
            let Some(frame) = frames.take() else { break };
            frame.reset_filled(headroom, size);
            // SAFETY: nobody else has the frame.
            let part = sum::copy_and_sum_bulk(now, unsafe { frame.own_frame_mut(headroom, size) });
            set_sum(frame, Some(part as u16));
            self.link_entry(frame);
            count += 1;
        }
        if count != 0 {
            self.len += count * size;
            self.gauge.add(count * FRAME_HELD_BYTES);
        }
        count * size
    }

    /// Returns true if the last frame was written by `write_framed`, has less than `size` bytes,
    /// and takes more.
    #[inline]
    fn is_growing(&self, last: Entry, size: usize) -> bool {
        last.len() < size && self.takes_more(last)
    }

    /// Returns true if the last frame was written by `write_framed`, and nobody else has it or had
    /// it.
    #[inline]
    fn takes_more(&self, last: Entry) -> bool {
        let end = self.front.wrapping_add(self.len as u64);
        let inside = end.wrapping_sub(self.framed.from) as usize;
        let given = self.framed.given.is_some_and(|(given, _)| given == last);
        !given
            && last.is_frame()
            && last.len() != 0
            && last.len() <= inside
            && last.is_unique()
            && get_sum(last).is_some()
    }

    /// Copies a frame of few bytes, which end at `end`, with their sum: the frame stays.
    #[inline(always)]
    fn copy_framed(
        &mut self,
        pool: &Pool,
        headroom: usize,
        frame: Entry,
        end: u64,
    ) -> Option<Packet> {
        // SAFETY: the entry is the queue's.
        let bytes = unsafe { frame.own_bytes() };
        if bytes.len() > FRAME_SIZE_BYTES.checked_sub(headroom)? {
            return None;
        }
        let copy = pool.take_frame()?;
        copy.reset_filled(headroom, bytes.len());
        // SAFETY: nobody else has the frame.
        sum::copy_few(bytes, unsafe { copy.own_frame_mut(headroom, bytes.len()) });
        set_sum(copy, get_sum(frame));
        self.framed.give(frame, end);
        Some(Packet::from_ring(copy))
    }

    /// Returns the entry that ends at `offset`, if a copy or view ended there.
    fn ends_at(&self, offset: usize) -> Option<Entry> {
        let (_, entry, start) = self.nearest(offset)?;
        (start + entry.len() == offset).then_some(entry)
    }
}
