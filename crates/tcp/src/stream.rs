//! A byte queue that exists only while it is needed.

use millstream_packet::{
    ByteQueue, Cuts, Exhausted, FRAME_HELD_BYTES, FRAME_SIZE_BYTES, Full, Packet, PacketBatch,
    Piece, Pool, QueueStats,
};

/// The queue of one direction. Made with the first byte, kept while the connection is in use, and
/// given back by [`release`](Self::release): an idle connection holds a pointer and a limit.
pub(crate) struct StreamQueue {
    queue: Option<Box<ByteQueue>>,
    high_bytes: usize,
}

impl StreamQueue {
    /// An empty queue that will hold at most `high_bytes` of memory.
    pub(crate) fn new(high_bytes: usize) -> Self {
        StreamQueue { queue: None, high_bytes }
    }

    #[inline]
    fn made(&mut self) -> &mut ByteQueue {
        let high_bytes = self.high_bytes;
        self.queue.get_or_insert_with(|| Box::new(ByteQueue::new(high_bytes)))
    }

    /// The queue while it exists.
    #[inline]
    fn bytes(&self) -> Option<&ByteQueue> {
        self.queue.as_deref()
    }

    #[inline]
    fn bytes_mut(&mut self) -> Option<&mut ByteQueue> {
        self.queue.as_deref_mut()
    }

    pub(crate) fn set_limit(&mut self, high_bytes: usize) {
        self.high_bytes = high_bytes;
        if let Some(queue) = self.bytes_mut() {
            queue.set_limit(high_bytes);
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
        self.bytes().map_or(0, |queue| queue.len())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes().map_or(0, |queue| queue.held_bytes())
    }

    /// Returns what the queue counts; nothing while it does not exist.
    pub(crate) fn stats(&self) -> QueueStats {
        self.bytes().map_or_else(QueueStats::default, |queue| queue.stats())
    }

    /// As [`ByteQueue::survey`]; from the front where `from` says nothing.
    pub(crate) fn survey(
        &mut self,
        by: u64,
        from: Option<u64>,
        most: usize,
        see: impl FnMut(Piece),
    ) -> Option<u64> {
        let queue = self.bytes_mut()?;
        queue.survey(by, from.unwrap_or(queue.position()), most, see)
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
    pub(crate) fn append(&mut self, packet: Packet) -> Result<(), Full> {
        self.made().append(packet)
    }

    /// As [`put_tight`].
    pub(crate) fn put_tight(&mut self, packet: Packet, room: usize, pool: &Pool) -> bool {
        put_tight(self.made(), packet, room, pool)
    }

    /// Bytes that fit behind the last ones without more memory.
    pub(crate) fn room_behind(&self) -> usize {
        self.bytes().map_or(0, |queue| queue.room_behind())
    }

    /// Copies as much of `bytes` as limit and pool allow, and answers how much.
    #[inline]
    pub(crate) fn write(&mut self, pool: &Pool, bytes: &[u8]) -> usize {
        self.made().write(pool, bytes)
    }

    /// Blocks are to carry segments of so many bytes; 0: the link takes none so large. Forgotten
    /// with the memory.
    #[inline]
    pub(crate) fn set_whole(&mut self, bytes: usize) {
        if let Some(queue) = self.bytes_mut() {
            queue.set_whole(bytes);
        }
    }

    /// Returns what [`set_whole`](Self::set_whole) has set.
    pub(crate) fn whole(&self) -> usize {
        self.bytes().map_or(0, |queue| queue.whole())
    }

    /// Returns whether a write of `len` bytes goes into blocks, or behind one.
    #[inline]
    pub(crate) fn is_bulk(&self, len: usize) -> bool {
        self.bytes().is_some_and(|queue| queue.is_bulk(len))
    }

    /// As [`write`](Self::write), into blocks of a segment each.
    pub(crate) fn write_bulk(&mut self, pool: &Pool, bytes: &[u8], cuts: &Cuts) -> usize {
        self.made().write_bulk(pool, bytes, cuts)
    }

    /// As [`write_bulk`](Self::write_bulk) of `len` bytes that [`fill`](Self::fill) gives later.
    pub(crate) fn reserve_bulk(&mut self, pool: &Pool, len: usize, cuts: &Cuts) -> usize {
        self.made().reserve_bulk(pool, len, cuts)
    }

    /// Writes the last bytes, which were reserved.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        if let Some(queue) = self.bytes_mut() {
            queue.fill(bytes);
        }
    }

    /// Returns how many of `len` bytes to send from `offset`, so that the next segment is what a
    /// block holds: fewer where that leaves half of them, or they are as many as a block is filled
    /// with. Whole multiples of `segment`.
    #[inline]
    pub(crate) fn up_to_block(&self, offset: usize, len: usize, segment: usize) -> usize {
        let Some(queue) = self.bytes().filter(|queue| queue.whole() != 0) else {
            return len;
        };
        let short = queue.up_to_block(offset, len);
        let worth = 2 * short >= len || len == queue.whole();
        if worth && short.is_multiple_of(segment) { short } else { len }
    }

    /// Frames are sent as they are written, behind so many bytes of headers; 0: they are not.
    /// Forgotten with the memory.
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

    /// Returns what [`set_framing`](Self::set_framing) has set.
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
        self.made().write_framed(pool, bytes, headroom, size)
    }

    /// Returns whether what is written now goes into such frames without a seam.
    #[inline]
    pub(crate) fn is_framed(&self) -> bool {
        self.bytes().is_some_and(|queue| queue.is_framed())
    }

    /// `len` bytes from `offset` with their sum: the frame that they were written into where that
    /// holds just these and was never sent, else a copy. Fewer bytes, at least half, where those
    /// that follow are whole frames then.
    fn hand_out(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        let queue = self.bytes_mut().ok_or(Exhausted)?;
        match queue.hand_out(pool, headroom, offset, len) {
            Some(frame) => Ok(frame),
            None => {
                let left =
                    queue.left_in_frame(offset).filter(|&left| left < len && 2 * left >= len);
                queue.copy_packet(pool, headroom, offset, left.unwrap_or(len))
            }
        }
    }

    /// Puts `len` bytes from `offset` into `batch` as packets of `each` bytes, the last may have
    /// less, behind `headroom` free bytes and with their sums: how many bytes. Fewer than `len`
    /// where frames are wanting, the batch is full, or a shorter packet makes whole frames of those
    /// that follow.
    #[inline]
    pub(crate) fn hand_out_segments(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        (each, len): (usize, usize),
        batch: &mut PacketBatch,
    ) -> usize {
        let mut made = match self.bytes_mut() {
            Some(queue) if len > each => {
                queue.hand_out_run(pool, headroom, offset, (each, len), batch)
            }
            _ => 0,
        };
        while made < len && !batch.is_full() {
            let wanted = each.min(len - made);
            let Ok(packet) = self.hand_out(pool, headroom, offset + made, wanted) else { break };
            let got = packet.len();
            if batch.push(packet).is_err() {
                break;
            }
            made += got;
            if got < wanted {
                // a shorter one is the last of a decision
                break;
            }
        }
        made
    }

    pub(crate) fn concat(&mut self, other: &mut ByteQueue) {
        self.made().concat(other);
    }

    #[inline]
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        self.bytes_mut().map_or(0, |queue| queue.read(out))
    }

    /// Copies the first bytes, which stay.
    pub(crate) fn peek(&self, out: &mut [u8]) -> usize {
        self.bytes().map_or(0, |queue| queue.peek(0, out))
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize, pool: &Pool) -> Option<Packet> {
        self.bytes_mut()?.take(len, pool)
    }

    #[inline]
    pub(crate) fn discard(&mut self, len: usize) {
        if let Some(queue) = self.bytes_mut() {
            queue.discard(len);
        }
    }

    #[inline]
    pub(crate) fn view(
        &mut self,
        pool: &Pool,
        offset: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        self.bytes_mut().ok_or(Exhausted)?.view(pool, offset, len)
    }

    #[inline]
    pub(crate) fn copy_packet(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        let queue = self.bytes_mut().ok_or(Exhausted)?;
        queue.copy_packet(pool, headroom, offset, len)
    }
}

/// Memory that `len` bytes take in frames that are full.
pub(crate) fn needed_bytes(len: usize) -> usize {
    len.div_ceil(FRAME_SIZE_BYTES) * FRAME_HELD_BYTES
}

/// Puts `packet` to the end of `queue` in no more than `room` bytes of further memory: into the
/// free room behind what is there; as it lies; or copied, where it holds twice what its bytes need
/// or more, as what is left of a larger packet does. False, and nothing has changed, when that is
/// too little, or there are too few frames.
pub(crate) fn put_tight(queue: &mut ByteQueue, packet: Packet, room: usize, pool: &Pool) -> bool {
    if queue.take_in(&packet) {
        return true;
    }
    let needed = needed_bytes(packet.len());
    if packet.held_bytes() < 2 * needed {
        return packet.held_bytes() <= room && queue.append(packet).is_ok();
    }
    let mut copy = ByteQueue::new(usize::MAX / 4);
    let is_copied =
        needed <= room && packet.slices().all(|slice| copy.write(pool, slice) == slice.len());
    if is_copied {
        queue.concat(&mut copy);
    }
    is_copied
}
