//! The memory that a connection holds, and how it does with less where its owner has little for
//! all.
//!
//! Its own limits, which follow what it needs, hold in any case. Beyond them its owner may say that
//! it has less: then the window is not opened further than that, and what arrives beyond is
//! dropped, its ACK taken all the same. What lies out of order gives way to what is next (RFC 2018
//! section 8: it was not acknowledged, so the peer has it still).

use crate::connection::Connection;
use crate::error::ConnError;

impl Connection {
    /// Sets the memory that the receive side may hold from now on, in bytes; `None`: as much as its
    /// own limits say. What arrives and would have it hold more is dropped. The window is offered
    /// by as much, and by [`BUFFER_MIN_BYTES`](crate::limits::BUFFER_MIN_BYTES) at least; what was
    /// offered before stays offered. To be set anew with each segment where it changes: nothing
    /// that is held is dropped by this call.
    pub fn set_memory_limit(&mut self, most_bytes: Option<usize>) {
        self.receiving.rcv.memory_limit.set(most_bytes);
    }

    /// Returns whether its owner has set a limit.
    #[inline(always)]
    pub fn is_memory_limited(&self) -> bool {
        self.receiving.rcv.memory_limit.is_set()
    }

    /// Bytes of memory that its queues hold, what is out of order among them.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.receive_held_bytes() + self.send_held_bytes()
    }

    /// Returns the bytes held by data that waits to be read, or is out of order.
    #[inline]
    pub fn receive_held_bytes(&self) -> usize {
        self.receiving.rcv.held_bytes()
    }

    /// Returns the bytes held by data out of order.
    pub fn early_held_bytes(&self) -> usize {
        self.receiving.rcv.early_held_bytes()
    }

    /// Returns the bytes held by data that waits to be sent, or to be acknowledged.
    #[inline]
    pub fn send_held_bytes(&self) -> usize {
        self.sending.snd.queue().held_bytes()
    }

    /// How far the peer has acknowledged, and how far the application has read: offsets, wrapping.
    /// By these what is held becomes less.
    pub fn memory_passed(&self) -> (u32, u32) {
        let (snd, rcv) = (&self.sending.snd, &self.receiving.rcv);
        (snd.una() as u32, (rcv.nxt() as u32).wrapping_sub(rcv.queue().len() as u32))
    }

    /// Returns whether data were dropped since this was last asked, as the owner's limit had no
    /// room for them.
    pub fn take_refused(&mut self) -> bool {
        self.receiving.rcv.memory_limit.take_refused()
    }

    /// Drops what is out of order, the farthest first, until it holds no more than `keep_bytes`;
    /// how many bytes of memory that gave back.
    pub fn prune_early(&mut self, keep_bytes: usize) -> usize {
        self.receiving.rcv.prune_early(keep_bytes)
    }

    /// Ends the connection, as it holds memory that others need and nothing of it goes on. The peer
    /// is told by RST, the application by [`ConnError::Evicted`], and what was received and not
    /// read is dropped.
    pub fn evict(&mut self) {
        self.finish_with_reset(ConnError::Evicted);
        self.receiving.rcv.discard_unread();
        self.receiving.rcv.release();
    }

    /// Returns the bytes that the peer may still send before it hears of more.
    pub fn window_left_bytes(&self) -> u64 {
        self.receiving.rcv.window_bytes()
    }

    /// Sets how many connections, this one among them, move data at present: they share what the
    /// host can take in at once. Counted as the power of two at or above; one until it is said.
    #[inline]
    pub fn set_sharers(&mut self, connections: u32) {
        self.receiving.rcv.set_sharers(connections);
    }
}
