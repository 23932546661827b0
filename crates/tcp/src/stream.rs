//! A byte queue that exists only while it is needed.

use millstream_packet::{Appended, ByteQueue, Exhausted, Full, Packet, Pool, QueueStats};

use crate::connection::queue_limits;

/// The queue of one direction. Made with the first byte, kept while the connection is in use, and given back by
/// [`release`](Self::release): an idle connection holds a pointer and a limit.
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
        self.queue.get_or_insert_with(|| Box::new(ByteQueue::new(queue_limits(high_bytes))))
    }

    pub(crate) fn set_limit(&mut self, high_bytes: usize) {
        self.high_bytes = high_bytes;
        if let Some(queue) = &mut self.queue {
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
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.held_bytes())
    }

    /// What the queue counts; nothing while it does not exist.
    pub(crate) fn stats(&self) -> QueueStats {
        self.queue.as_ref().map_or_else(QueueStats::default, |queue| queue.stats())
    }

    /// Most memory held since it was made.
    pub(crate) fn high_water(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.high_water())
    }

    /// Bytes that were copied into the room of a frame that was there.
    pub(crate) fn coalesced_bytes(&self) -> u64 {
        self.queue.as_ref().map_or(0, |queue| queue.coalesced_bytes())
    }

    #[inline]
    pub(crate) fn append(&mut self, packet: Packet) -> Result<Appended, Full> {
        self.made().append(packet)
    }

    /// Copies as much of `bytes` as limit and pool allow, and answers how much.
    #[inline]
    pub(crate) fn write(&mut self, pool: &Pool, bytes: &[u8]) -> usize {
        self.made().write(pool, bytes).bytes
    }

    pub(crate) fn concat(&mut self, other: &mut ByteQueue) {
        self.made().concat(other);
    }

    #[inline]
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        self.queue.as_mut().map_or(0, |queue| queue.read(out))
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize, pool: &Pool) -> Option<Packet> {
        self.queue.as_mut()?.take(len, pool)
    }

    #[inline]
    pub(crate) fn discard(&mut self, len: usize) {
        if let Some(queue) = &mut self.queue {
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
        self.made().view(pool, offset, len)
    }

    #[inline]
    pub(crate) fn copy_packet(
        &mut self,
        pool: &Pool,
        headroom: usize,
        offset: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        self.made().copy_packet(pool, headroom, offset, len)
    }
}
