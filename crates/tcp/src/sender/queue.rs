//! Data written and not acknowledged yet: how it gets into the send queue, and into segments.

use millstream_packet::{Cuts, Exhausted, Packet, PacketBatch, Piece, Pool};

use super::Sender;
use crate::stream::StreamQueue;
use crate::tuning::FRAMED_SEGMENT_BYTES;

/// A send queue whose limit was raised for a write.
#[derive(Clone, Copy, Debug)]
pub struct Widened {
    from: usize,
    to: usize,
}

impl Sender {
    /// The queue, to look at.
    #[inline(always)]
    pub(crate) fn queue(&self) -> &StreamQueue {
        &self.queue
    }

    /// As [`StreamQueue::survey`].
    pub(crate) fn survey_queue(
        &mut self,
        by: u64,
        from: Option<u64>,
        most: usize,
        see: impl FnMut(Piece),
    ) -> Option<u64> {
        self.queue.survey(by, from, most, see)
    }

    /// Bytes written and not sent for the first time.
    #[inline]
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.data_end().saturating_sub(self.nxt.max(1)) as usize
    }

    /// Copies as much of `bytes` into the queue as has room and answers how much; less than all:
    /// the writer waits.
    ///
    /// Much at once goes into blocks of a super-segment each, where the link takes those; where it
    /// does not, into segments that are sent as they are, where those fill half a frame and there
    /// is enough for one, or nothing it could share a frame with.
    #[inline]
    pub(crate) fn write(&mut self, pool: &Pool, bytes: &[u8]) -> usize {
        let written = self.queue_bytes(pool, bytes);
        if written < bytes.len() {
            self.is_starved = true;
        }
        written
    }

    fn queue_bytes(&mut self, pool: &Pool, bytes: &[u8]) -> usize {
        let Sender { queue, mss, .. } = self;
        let size = (*mss).max(1) as usize;
        let is_wasteful = size < FRAMED_SEGMENT_BYTES;
        let shares = bytes.len() < size / 2 && !queue.is_empty();
        let is_copied = queue.framing() == 0 || is_wasteful || shares;
        if is_copied && !queue.is_bulk(bytes.len()) {
            return queue.write(pool, bytes);
        }
        self.queue_segments(pool, bytes)
    }

    /// The same into memory of whole segments, or super-segments.
    #[inline(never)]
    fn queue_segments(&mut self, pool: &Pool, bytes: &[u8]) -> usize {
        let unsent = self.unsent_bytes();
        let Sender { queue, mss, .. } = self;
        let (headroom, size) = (queue.framing(), (*mss).max(1) as usize);
        if queue.is_bulk(bytes.len()) {
            return queue.write_bulk(pool, bytes, &Cuts { segment: size, unsent });
        }
        // the segments before it are cut without regard to frames: up to where the last of them
        // ends
        let seam = if queue.is_framed() { 0 } else { (size - unsent % size) % size };
        let (first, rest) = bytes.split_at(seam.min(bytes.len()));
        let written = if first.is_empty() { 0 } else { queue.write(pool, first) };
        if written < first.len() || rest.is_empty() {
            return written;
        }
        written + queue.write_framed(pool, rest, headroom, size)
    }

    /// Queues a packet; it is given back where there is no room, and the writer waits.
    pub(crate) fn append(&mut self, packet: Packet) -> Result<(), Packet> {
        self.queue.append(packet).map_err(|full| {
            self.is_starved = true;
            full.0
        })
    }

    /// Room for the application to write.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.queue.held_bytes() * 4 < self.queue.limit() * 3
    }

    /// Returns whether a writer waits for room and there is some; then it does not wait any more.
    #[inline]
    pub(crate) fn take_writable(&mut self) -> bool {
        let wakes = self.is_starved && self.has_room();
        if wakes {
            self.is_starved = false;
        }
        wakes
    }

    /// Most memory that the queue may hold.
    pub(crate) fn set_queue_limit(&mut self, bytes: usize) {
        self.queue.set_limit(bytes);
    }

    /// Raises the limit to `bytes`; to be given to [`narrow`](Self::narrow).
    pub(crate) fn widen(&mut self, bytes: usize) -> Widened {
        let from = self.queue.limit();
        let to = from.max(bytes);
        if to != from {
            self.queue.set_limit(to);
        }
        Widened { from, to }
    }

    /// Sets the limit back, unless it was changed meanwhile. What the queue holds beyond stays.
    pub(crate) fn narrow(&mut self, Widened { from, to }: Widened) {
        if to != from && self.queue.limit() == to {
            self.queue.set_limit(from);
        }
    }

    /// Makes places for `len` bytes that [`fill`](Self::fill) brings later: for how many.
    pub(crate) fn reserve(&mut self, pool: &Pool, len: usize) -> usize {
        let segment = self.mss.max(1) as usize;
        self.queue.reserve_bulk(pool, len, &Cuts { segment, unsent: 0 })
    }

    /// `bytes` are the last ones that places were made for: copies those that are not acknowledged.
    /// Returns how many they were.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        let left = bytes.len().min(self.queue.len());
        self.queue.fill(&bytes[bytes.len() - left..]);
        left
    }

    /// Segments are views of the queue.
    #[inline]
    pub(crate) fn send_views(&mut self) {
        self.queue.set_framing(0);
    }

    /// Segments are frames of their own, with so much room for headers.
    #[inline]
    pub(crate) fn send_frames(&mut self, headroom: usize) {
        self.queue.set_framing_only(headroom);
    }

    /// Blocks are to carry segments of so many bytes; 0: the link takes none so large.
    #[inline]
    pub(crate) fn set_whole(&mut self, bytes: usize) {
        self.queue.set_whole(bytes);
    }

    /// Puts a view of `len` bytes from offset `start` into `batch`: how many bytes, all or none.
    #[inline]
    pub(crate) fn put_view(
        &mut self,
        pool: &Pool,
        start: u64,
        len: u64,
        batch: &mut PacketBatch,
    ) -> u64 {
        let offset = (start - self.queue_base) as usize;
        let view = self.queue.view(pool, offset, len as usize);
        view.map_or(0, |view| batch.push(view).map_or(0, |()| len))
    }

    /// Puts `len` bytes from offset `start` into `batch`, a frame for each segment of `mss` bytes:
    /// how many bytes.
    #[inline]
    pub(crate) fn put_frames(
        &mut self,
        pool: &Pool,
        headroom: usize,
        start: u64,
        (mss, len): (u64, u64),
        batch: &mut PacketBatch,
    ) -> u64 {
        let offset = (start - self.queue_base) as usize;
        let bytes = (mss as usize, len as usize);
        self.queue.hand_out_segments(pool, headroom, offset, bytes, batch) as u64
    }

    /// The first `len` bytes in one packet, as a view, or copied behind so much room for headers.
    pub(crate) fn first_bytes(
        &mut self,
        pool: &Pool,
        headroom: Option<usize>,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        match headroom {
            Some(headroom) => self.queue.copy_packet(pool, headroom, 0, len),
            None => self.queue.view(pool, 0, len),
        }
    }

    /// Returns how many of `len` bytes to send from offset `start`, so that the next segment is a
    /// piece of memory.
    pub(crate) fn up_to_block(&self, start: u64, len: u64, mss: u64) -> u64 {
        let offset = (start - self.queue_base) as usize;
        self.queue.up_to_block(offset, len as usize, mss as usize) as u64
    }

    /// Gives back the memory that only a busy connection needs.
    pub(crate) fn release(&mut self) {
        self.queue.release();
    }
}
