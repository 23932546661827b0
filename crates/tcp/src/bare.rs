//! The plain case of an ACK: an established connection with nothing uncommon about it has nothing to send but that.

use millstream_packet::Instant;
use millstream_wire::tcp::PlainHeader;

use crate::connection::Connection;

impl Connection {
    /// Whether all there is to send is an ACK without data and without anything uncommon: then
    /// [`poll_plain_ack`](Self::poll_plain_ack) has it.
    #[inline]
    pub fn has_plain_ack(&self) -> bool {
        let ack = &self.rcv.ack;
        // a FIN that was sent lies beyond the data
        (ack.now || ack.due) && self.snd.nxt == self.data_end() && self.has_nothing_uncommon()
    }

    /// The header of an ACK without data, where [that is all there is to send](Self::has_plain_ack); its checksum is
    /// the caller's. What [`poll_transmit`](Self::poll_transmit) would make.
    #[inline]
    pub fn poll_plain_ack(&mut self, now: Instant) -> Option<PlainHeader> {
        if !self.has_plain_ack() {
            return None;
        }
        self.set_clock(now);
        self.snd.frames_wanted = false;
        self.snd.cwnd_limited = false;
        self.account_limits(now);
        let header = self.plain_header(now, self.snd.nxt, false);
        self.counters.segments_out += 1;
        self.check();
        Some(header)
    }
}
