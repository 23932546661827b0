//! Data that lies in the application's memory while it is sent for the first time: a write lends it, and what is not
//! acknowledged when the write ends is copied.
//!
//! ```text
//!       una                nxt            data_end
//!   filled |   lent, in flight |  lent, unsent |
//!          └─ acknowledged while lent: never copied
//! ```
//! The send queue has a place for each byte that was lent, as for any other: what it counts, and what a peer or an
//! event sees of the connection, is the same. Only the bytes are missing, so nothing may be sent from the queue until
//! [`Connection::fill_lent`] has brought them; [`Connection::poll_lent`] makes segments that need none of it.

use std::time::Duration;

use millstream_packet::{Cuts, Instant, Pool};

use crate::connection::Connection;
use crate::transmit::{PayloadMode, Segment, TransmitLimits};

/// A send queue has room for a loan.
#[derive(Clone, Copy)]
pub struct Widened {
    from: usize,
    to: usize,
}

impl Connection {
    /// Whether a write may lend: established, nothing lost, nothing to say but data, and all that was written is sent.
    /// Not under a congestion control that governs each transmission.
    pub fn lends(&self) -> bool {
        self.sends_plainly() && !self.rcv.ack.now && self.snd.queue.whole() != 0
    }

    /// Whether a segment sent now is acknowledged within `time`, as far as the last round trips tell.
    pub fn answers_within(&self, time: Duration) -> bool {
        self.rtt.srtt() <= time
    }

    /// For the time of a loan the send queue, where it tunes itself, has room for `bytes` at least: what is lent is
    /// neither copied nor in the cache. To be given to [`narrow`](Self::narrow) at its end.
    pub fn widen(&mut self, bytes: usize) -> Widened {
        let from = self.snd.queue.limit();
        let to = match self.config.send_auto_tune {
            true => from.max(bytes.min(self.config.send_buffer_bytes)),
            false => from,
        };
        if to != from {
            self.snd.queue.set_limit(to);
        }
        Widened { from, to }
    }

    /// The end of a loan: the send queue holds at most what it held before, unless that was tuned or set meanwhile.
    /// What it holds beyond stays.
    pub fn narrow(&mut self, Widened { from, to }: Widened) {
        if to != from && self.snd.queue.limit() == to {
            self.snd.queue.set_limit(from);
        }
    }

    /// Makes places for `len` bytes that the caller has, as far as limit and pool allow, and answers for how many. All
    /// that was written before must have been sent. They must be [filled](Self::fill_lent) before anything is called
    /// but [`poll_lent`](Self::poll_lent) and what takes segments in.
    pub fn lend(&mut self, pool: &Pool, len: usize) -> usize {
        debug_assert!(self.lends() && self.unsent_bytes() == 0);
        let segment = self.snd.mss.max(1) as usize;
        self.snd.queue.reserve_bulk(pool, len, &Cuts { segment, unsent: 0 })
    }

    /// As [`poll_transmit`](Self::poll_transmit) for the next of what was lent: the payload, `payload_len` bytes (0 in
    /// an ACK), is the caller's to add. `None`: not now, or not any more in this way.
    pub fn poll_lent(
        &mut self,
        now: Instant,
        pool: &Pool,
        super_segment_bytes: u32,
    ) -> Option<Segment> {
        if !self.sends_plainly() {
            return None;
        }
        let limits = TransmitLimits { super_segment_bytes, payload: PayloadMode::Lent };
        self.poll(now, pool, &limits, None)
    }

    /// Of the last `bytes.len()` bytes that were lent, copies those to their places that are not acknowledged. How many
    /// they were; none once the connection is closed.
    pub fn fill_lent(&mut self, bytes: &[u8]) -> usize {
        let left = bytes.len().min(self.snd.queue.len());
        self.snd.queue.fill(&bytes[bytes.len() - left..]);
        left
    }
}
