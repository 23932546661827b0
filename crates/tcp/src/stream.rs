//! A byte queue that exists only while it is needed.

use millstream_packet::{
    Appended, ByteQueue, Cuts, Exhausted, FRAMED_COPY_BYTES, Full, Packet, PacketBatch, Pool,
    QueueLimits, QueueStats, sum,
};

use crate::memory::put_tight;

/// The queue of one direction. Made with the first byte, kept while the connection is in use, and given back by
/// [`release`](Self::release): an idle connection holds a pointer and a limit.
///
/// A few bytes that are sent as they are written wait for their ACK beside it, where they hold no frame
/// ([`write_out`](Self::write_out)): mostly nothing more is written before that comes. Whatever else is done with the
/// queue puts them into it first ([`settle`](Self::settle)).
pub(crate) struct StreamQueue {
    queue: Option<Box<Stream>>,
    high_bytes: usize,
}

struct Stream {
    /// Empty while there are `few`.
    bytes: ByteQueue,
    few_len: usize,
    few: [u8; FRAMED_COPY_BYTES],
}

impl Stream {
    fn new(high_bytes: usize) -> Self {
        let bytes = ByteQueue::new(queue_limits(high_bytes));
        Self { bytes, few_len: 0, few: [0; FRAMED_COPY_BYTES] }
    }

    /// Bytes of data.
    #[inline]
    fn len(&self) -> usize {
        self.bytes.len() + self.few_len
    }

    /// Puts the few bytes into a frame, if there are any; false when none is free.
    #[inline]
    fn settle(&mut self, pool: &Pool) -> bool {
        self.few_len == 0 || self.settle_few(pool)
    }

    #[inline(never)]
    fn settle_few(&mut self, pool: &Pool) -> bool {
        debug_assert!(self.bytes.is_empty());
        // All or nothing: they fit one frame, and an empty queue takes one at any limit.
        let is_settled = self.bytes.write(pool, &self.few[..self.few_len]).bytes != 0;
        if is_settled {
            self.few_len = 0;
        }
        is_settled
    }

    /// Drops the first `len` of the few bytes.
    #[inline]
    fn discard_few(&mut self, len: usize) {
        let len = len.min(self.few_len);
        if len < self.few_len {
            self.few.copy_within(len..self.few_len, 0);
        }
        self.few_len -= len;
    }
}

impl StreamQueue {
    /// An empty queue that will hold at most `high_bytes` of memory.
    pub(crate) fn new(high_bytes: usize) -> Self {
        StreamQueue { queue: None, high_bytes }
    }

    #[inline]
    fn made(&mut self) -> &mut Stream {
        let high_bytes = self.high_bytes;
        self.queue.get_or_insert_with(|| Box::new(Stream::new(high_bytes)))
    }

    /// The queue with all bytes in it; none when it takes a frame for that, and there is none.
    #[inline]
    fn settled(&mut self, pool: &Pool) -> Option<&mut ByteQueue> {
        let stream = self.made();
        stream.settle(pool).then_some(&mut stream.bytes)
    }

    /// Puts bytes that wait beside the queue into it, for [`append`](Self::append); false when that takes a frame, and
    /// there is none.
    #[inline]
    pub(crate) fn settle(&mut self, pool: &Pool) -> bool {
        self.queue.as_mut().is_none_or(|stream| stream.settle(pool))
    }

    /// The queue while it exists, for what changes or asks nothing of the few bytes beside it.
    #[inline]
    fn bytes(&self) -> Option<&ByteQueue> {
        self.queue.as_ref().map(|stream| &stream.bytes)
    }

    #[inline]
    fn bytes_mut(&mut self) -> Option<&mut ByteQueue> {
        self.queue.as_mut().map(|stream| &mut stream.bytes)
    }

    /// The same, where there are none beside it.
    #[inline]
    fn whole_mut(&mut self) -> Option<&mut ByteQueue> {
        let stream = self.queue.as_mut()?;
        debug_assert!(stream.few_len == 0, "bytes were not settled");
        Some(&mut stream.bytes)
    }

    pub(crate) fn set_limit(&mut self, high_bytes: usize) {
        self.high_bytes = high_bytes;
        if let Some(queue) = self.bytes_mut() {
            queue.set_limits(queue_limits(high_bytes));
        }
    }

    /// Most memory that it holds.
    #[inline]
    pub(crate) fn limit(&self) -> usize {
        self.high_bytes
    }

    /// Gives the memory back if nothing is queued.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            self.queue = None;
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queue.as_ref().map_or(0, |stream| stream.len())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes().map_or(0, |queue| queue.held_bytes())
    }

    /// What the queue counts; nothing while it does not exist.
    pub(crate) fn stats(&self) -> QueueStats {
        let Some(stream) = &self.queue else { return QueueStats::default() };
        QueueStats { bytes: stream.len(), ..stream.bytes.stats() }
    }

    /// Most memory held since it was made.
    pub(crate) fn high_water(&self) -> usize {
        self.bytes().map_or(0, |queue| queue.high_water())
    }

    /// Bytes that were copied into the room of a frame that was there.
    pub(crate) fn coalesced_bytes(&self) -> u64 {
        self.bytes().map_or(0, |queue| queue.coalesced_bytes())
    }

    #[inline]
    pub(crate) fn append(&mut self, packet: Packet) -> Result<Appended, Full> {
        let stream = self.made();
        debug_assert!(stream.few_len == 0, "bytes were not settled");
        stream.bytes.append(packet)
    }

    /// As [`put_tight`].
    pub(crate) fn put_tight(&mut self, packet: Packet, room: usize, pool: &Pool) -> bool {
        self.settled(pool).is_some_and(|queue| put_tight(queue, packet, room, pool))
    }

    /// Bytes that fit behind the last ones without more memory.
    pub(crate) fn room_behind(&self) -> usize {
        self.bytes().map_or(0, |queue| queue.room_behind())
    }

    /// Copies as much of `bytes` as limit and pool allow, and answers how much.
    #[inline]
    pub(crate) fn write(&mut self, pool: &Pool, bytes: &[u8]) -> usize {
        self.settled(pool).map_or(0, |queue| queue.write(pool, bytes).bytes)
    }

    /// Blocks are to carry segments of so many bytes; 0: the link takes none so large. Forgotten with the memory.
    #[inline]
    pub(crate) fn set_whole(&mut self, bytes: usize) {
        if let Some(queue) = self.bytes_mut() {
            queue.set_whole(bytes);
        }
    }

    /// What [`set_whole`](Self::set_whole) has set.
    pub(crate) fn whole(&self) -> usize {
        self.bytes().map_or(0, |queue| queue.whole())
    }

    /// Whether a write of `len` bytes goes into blocks, or behind one.
    #[inline]
    pub(crate) fn is_bulk(&self, len: usize) -> bool {
        self.bytes().is_some_and(|queue| queue.is_bulk(len))
    }

    /// As [`write`](Self::write), into blocks of a segment each.
    pub(crate) fn write_bulk(&mut self, pool: &Pool, bytes: &[u8], cuts: &Cuts) -> usize {
        self.settled(pool).map_or(0, |queue| queue.write_bulk(pool, bytes, cuts).bytes)
    }

    /// As [`write_bulk`](Self::write_bulk) of `len` bytes that [`fill`](Self::fill) gives later.
    pub(crate) fn reserve_bulk(&mut self, pool: &Pool, len: usize, cuts: &Cuts) -> usize {
        self.settled(pool).map_or(0, |queue| queue.reserve_bulk(pool, len, cuts))
    }

    /// Writes the last bytes, which were reserved.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        if let Some(queue) = self.bytes_mut() {
            queue.fill(bytes);
        }
    }

    /// How many of `len` bytes to send from `offset`, so that the next segment is what a block holds: fewer where that
    /// leaves half of them, or they are as many as a block is filled with. Whole multiples of `segment`.
    #[inline]
    pub(crate) fn up_to_block(&self, offset: usize, len: usize, segment: usize) -> usize {
        let Some(queue) = self.bytes().filter(|queue| queue.whole() != 0) else {
            return len;
        };
        let short = queue.up_to_block(offset, len);
        let worth = 2 * short >= len || len == queue.whole();
        if worth && short.is_multiple_of(segment) { short } else { len }
    }

    /// Frames are sent as they are written, behind so many bytes of headers; 0: they are not. Forgotten with the
    /// memory.
    #[inline]
    pub(crate) fn set_framing(&mut self, headroom: usize) {
        if let Some(queue) = self.bytes_mut() {
            queue.set_framing(headroom);
        }
    }

    /// The same, and that there are no blocks.
    #[inline]
    pub(crate) fn set_framing_only(&mut self, headroom: usize) {
        if let Some(queue) = self.bytes_mut() {
            queue.set_framing_only(headroom);
        }
    }

    /// What [`set_framing`](Self::set_framing) has set.
    #[inline]
    pub(crate) fn framing(&self) -> usize {
        self.bytes().map_or(0, |queue| queue.framing())
    }

    /// As [`write`](Self::write), into frames of `size` bytes each behind `headroom` free ones: see
    /// [`hand_out`](Self::hand_out).
    #[inline]
    pub(crate) fn write_framed(
        &mut self,
        pool: &Pool,
        bytes: &[u8],
        headroom: usize,
        size: usize,
    ) -> usize {
        let queue = self.settled(pool);
        queue.map_or(0, |queue| queue.write_framed(pool, bytes, headroom, size).bytes)
    }

    /// As that, where the queue is empty and the bytes fill one frame at most; `None` where it is not so, and nothing
    /// has changed.
    #[inline]
    pub(crate) fn write_first(&mut self, pool: &Pool, bytes: &[u8], size: usize) -> Option<usize> {
        let stream = self.queue.as_mut().filter(|stream| stream.few_len == 0)?;
        stream.bytes.write_first(pool, bytes, size)
    }

    /// Takes a few bytes that are sent at once behind `headroom` free ones, and gives a copy with their sum. `None`,
    /// and nothing has changed, where there are others, they are not [few](FRAMED_COPY_BYTES), or there is no frame.
    #[inline]
    pub(crate) fn write_out(
        &mut self,
        pool: &Pool,
        bytes: &[u8],
        headroom: usize,
    ) -> Option<Packet> {
        let stream = self.queue.as_mut().filter(|stream| stream.len() == 0)?;
        let room = stream.few.get_mut(..bytes.len())?;
        let packet = Packet::summed(pool, headroom, bytes)?;
        sum::copy_few(bytes, room);
        stream.few_len = bytes.len();
        stream.bytes.set_framing_only(headroom);
        Some(packet)
    }

    /// Whether what is written now goes into such frames without a seam.
    #[inline]
    pub(crate) fn is_framed(&self) -> bool {
        self.bytes().is_some_and(|queue| queue.is_framed())
    }

    /// `len` bytes from `offset` with their sum: the frame that they were written into where that holds just these and
    /// was never sent, else a copy. Fewer bytes, at least half, where those that follow are whole frames then.
    #[inline]
    pub(crate) fn hand_out(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        let queue = self.settled(pool).ok_or(Exhausted)?;
        match queue.hand_out(pool, headroom, offset, len) {
            Some(frame) => Ok(frame),
            None => {
                let left =
                    queue.left_in_frame(offset).filter(|&left| left < len && 2 * left >= len);
                queue.copy_packet(pool, headroom, offset, left.unwrap_or(len))
            }
        }
    }

    /// Whole frames of `each` bytes from `offset`, as [`hand_out`](Self::hand_out) gives them one by one, `len` bytes
    /// at most: how many bytes went to `parts`.
    #[inline]
    pub(crate) fn hand_out_run(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        (each, len): (usize, usize),
        parts: &mut PacketBatch,
    ) -> usize {
        let queue = self.settled(pool);
        queue.map_or(0, |queue| queue.hand_out_run(pool, headroom, offset, (each, len), parts))
    }

    pub(crate) fn concat(&mut self, other: &mut ByteQueue) {
        self.made().bytes.concat(other);
    }

    #[inline]
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        self.whole_mut().map_or(0, |queue| queue.read(out))
    }

    /// Copies the first bytes, which stay.
    pub(crate) fn peek(&self, out: &mut [u8]) -> usize {
        self.bytes().map_or(0, |queue| queue.peek(0, out))
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize, pool: &Pool) -> Option<Packet> {
        self.whole_mut()?.take(len, pool)
    }

    #[inline]
    pub(crate) fn discard(&mut self, len: usize) {
        let Some(stream) = &mut self.queue else { return };
        if stream.few_len != 0 {
            return stream.discard_few(len);
        }
        stream.bytes.discard(len);
    }

    #[inline]
    pub(crate) fn view(
        &mut self,
        pool: &Pool,
        offset: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        self.settled(pool).ok_or(Exhausted)?.view(pool, offset, len)
    }

    #[inline]
    pub(crate) fn copy_packet(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        let queue = self.settled(pool).ok_or(Exhausted)?;
        queue.copy_packet(pool, headroom, offset, len)
    }
}

/// Limits of a queue that becomes writable again at half.
pub(crate) fn queue_limits(high_bytes: usize) -> QueueLimits {
    QueueLimits { low_bytes: high_bytes / 2, high_bytes }
}
