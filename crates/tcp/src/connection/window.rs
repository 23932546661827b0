//! The window offered to the peer, when it is acknowledged, and how large the buffers are.

use millstream_packet::Instant;

use crate::ack_policy::Acknowledged;
use crate::connection::Connection;
use crate::limits::BUFFER_MAX_BYTES;
use crate::tuning::{SEND_BASE_BYTES, SEND_LEAST_BYTES, TUNE_BASE_BYTES};

impl Connection {
    /// Returns the bytes that the peer may still send before it hears of more.
    pub fn window_left_bytes(&self) -> u64 {
        self.rcv.window_bytes()
    }

    /// `len` bytes came next in order: when they are acknowledged.
    #[inline(always)]
    pub(crate) fn schedule_ack(&mut self, now: Instant, len: u32) {
        self.rcv.note_burst(len);
        let delay_ns = self.config.delayed_ack_ns();
        let when = self.ack.on_data(len, self.rcv.mss_estimate(), delay_ns != 0);
        if when == Acknowledged::Delayed {
            let at = Instant::from_nanos(now.as_nanos().saturating_add(delay_ns));
            self.timers.delay_ack(at);
        }
    }

    /// The application took `bytes` out of the receive queue.
    #[inline(always)]
    pub(crate) fn after_read(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.rcv.on_read(self.clock, bytes, &self.rtt, &self.config);
        if !self.state.may_receive_data() {
            return;
        }
        if self.rcv.queue().is_empty() {
            self.ack.on_all_read();
        }
        if !self.rcv.is_wide_open() {
            self.widen_window();
        }
    }

    /// Tells the peer of the window if that can double, or open (RFC 9293 3.8.6.2.2).
    #[inline(never)]
    fn widen_window(&mut self) {
        if self.rcv.may_double(&self.rtt, &self.config) {
            self.ack.send_at_once();
        }
    }

    /// Sets how many connections, this one among them, move data at present: they share what the
    /// host can take in at once. Counted as the power of two at or above; one until it is said.
    #[inline]
    pub fn set_sharers(&mut self, connections: u32) {
        self.rcv.set_sharers(connections);
    }

    /// The send queue holds two windows in flight and one to come. Where the round trip has grown
    /// over its least, part of the window only waits in a queue below: three times what the path
    /// carries is enough then, with an allowance for scheduling. What the peer has selectively
    /// stays in the queue and is in flight no more: where the controller keeps its rate while
    /// recovering, that has room of its own, or one segment that is lost again and again would
    /// empty a long path.
    #[inline(always)]
    pub(crate) fn tune_send_buffer(&mut self) {
        if !self.config.send_auto_tune {
            return;
        }
        let windows = self.window.cwnd_bytes.min(BUFFER_MAX_BYTES as u64) * 3;
        let early = if self.congestion.governs() { self.board.sacked_bytes() } else { 0 };
        let limit = self.snd.queue().limit();
        if (windows + early) as usize <= limit {
            return;
        }
        let most = self.send_tuned_at_most();
        if limit >= most {
            return;
        }
        let least_ns = self.rtt.min_rtt().unwrap_or_default().as_nanos() as u64;
        // in slow start the mean lags behind; after an idle time the last is too good
        let now_ns = self.rtt.srtt().max(self.rtt.latest()).as_nanos().max(1) as u64;
        let carried = u128::from(windows) * u128::from(least_ns) / u128::from(now_ns);
        let wanted = (windows.min(carried as u64 + SEND_BASE_BYTES as u64) + early) as usize;
        if wanted > limit {
            self.snd.set_queue_limit(wanted.min(most));
            self.wake_writer();
        }
    }

    /// Most memory that tuning gives the send queue. Within a machine, where even a fast path
    /// carries little, it is little, too, unless the writer then waits for much of the time: for a
    /// peer that looks only now and then.
    fn send_tuned_at_most(&self) -> usize {
        let most = self.config.send_buffer_bytes;
        if self.counters.limited.is_much_by_buffer() {
            return most.min(self.rtt.carried_bytes_and(TUNE_BASE_BYTES));
        }
        most.min(self.rtt.carried_bytes_and(SEND_LEAST_BYTES).max(SEND_BASE_BYTES))
    }

    /// Tells a writer that waits for room that there is some.
    #[inline]
    pub(crate) fn wake_writer(&mut self) {
        if self.snd.take_writable() {
            self.events.writable = true;
        }
    }
}
