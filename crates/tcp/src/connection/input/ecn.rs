//! Marks that arrive, and echoes of them (RFC 3168 6.1.2 and 6.1.3).

use millstream_packet::Instant;
use millstream_wire::tcp::TcpHeader;

use crate::connection::Connection;

impl Connection {
    /// Data within the window arrived with `codepoint` in its IP header.
    #[inline]
    pub(crate) fn ecn_take_data(&mut self, header: &TcpHeader, codepoint: u8) {
        if let Some(is_first) = self.ecn.take_data(header.flags.cwr(), codepoint) {
            self.counters.count().ce_segments_in += 1;
            if is_first {
                // told at once: it is what the sender waits for
                self.ack.send_at_once();
            }
        }
    }

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
