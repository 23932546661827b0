//! Echoes of marks (RFC 3168 6.1.2).

use millstream_packet::Instant;

use crate::connection::Connection;

impl Connection {
    /// An acceptable ACK up to `ack` carries ECE (RFC 3168 6.1.2): reduces as for loss, at most
    /// once a window. `in_flight` is what was in flight before it.
    pub(crate) fn ecn_take_echo(&mut self, now: Instant, ack: u64, in_flight: u64) {
        if !self.ecn.is_answered(ack) {
            return;
        }
        if self.recovery.is_open() {
            let before = self.window.cwnd_bytes;
            self.congestion.on_mark(&mut self.window, now, in_flight);
            self.window.cwnd_bytes = self.window.cwnd_bytes.min(self.window.ssthresh_bytes);
            self.trace_window("congestion mark", before);
            self.recovery.forget_undo();
            self.counters.count().ecn_reductions += 1;
        }
        self.ecn.on_reduced(self.snd.nxt());
    }
}
