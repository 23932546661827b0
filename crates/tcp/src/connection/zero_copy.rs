//! Zero-copy send: data is sent for the first time from the writer's memory, and only what is not
//! acknowledged when the write ends is copied.
//!
//! ```text
//!       una                nxt            data_end
//!   filled | borrowed, in flight | borrowed, unsent |
//!          └─ acknowledged while borrowed: never copied
//! ```
//! The send queue has a place for each borrowed byte, as for any other: what it counts, and what a
//! peer or an event sees of the connection, is the same. Only the bytes are missing. So nothing may
//! be sent from the queue until [`Connection::fill_borrowed`] has brought them;
//! [`Connection::poll`] with [`PayloadSource::Borrowed`] makes segments that need none of them.
//!
//! [`PayloadSource::Borrowed`]: crate::PayloadSource::Borrowed

use std::time::Duration;

use millstream_packet::Pool;

use crate::connection::Connection;
use crate::sender::Widened;

impl Connection {
    /// Returns whether a write may be sent from its own memory: the connection is established,
    /// nothing is lost, there is nothing to say but data, and the link takes super-segments. Never
    /// under a congestion control that governs each transmission.
    pub fn may_borrow(&self) -> bool {
        self.cx.config.fast_path
            && self.sending.sends_only_data_and_acks(&self.cx)
            && !self.receiving.ack.is_at_once()
            && self.sending.snd.queue().whole() != 0
    }

    /// Returns whether a segment sent now is acknowledged within `time`, as far as the last round
    /// trips tell.
    pub fn answers_within(&self, time: Duration) -> bool {
        self.cx.rtt.srtt() <= time
    }

    /// Raises the limit of the send queue to `bytes`, where it tunes itself: what is borrowed is
    /// neither copied nor in the cache. To be given to [`narrow`](Self::narrow) when the write
    /// ends.
    pub fn widen(&mut self, bytes: usize) -> Widened {
        let most = if self.cx.config.send_auto_tune { self.cx.config.send_buffer_bytes } else { 0 };
        self.sending.snd.widen(bytes.min(most))
    }

    /// Sets the limit of the send queue back, unless it was tuned or set meanwhile. What it holds
    /// beyond stays.
    pub fn narrow(&mut self, widened: Widened) {
        self.sending.snd.narrow(widened);
    }

    /// Makes places for `len` bytes of the writer's, as far as limit and pool allow, and answers
    /// for how many. All that was written before must have been sent, and the connection [may
    /// borrow](Self::may_borrow). The places must be [filled](Self::fill_borrowed) before anything
    /// is called but [`poll`](Self::poll) for borrowed segments and what takes segments in.
    pub fn reserve_borrowed(&mut self, pool: &Pool, len: usize) -> usize {
        debug_assert!(self.may_borrow() && self.unsent_bytes() == 0);
        self.sending.snd.reserve(pool, len)
    }

    /// `bytes` are the last ones that places were made for: copies those that are not acknowledged.
    /// Returns how many they were; none once the connection is closed.
    pub fn fill_borrowed(&mut self, bytes: &[u8]) -> usize {
        self.sending.snd.fill(bytes)
    }
}
