//! The plain case of an ACK: an established connection with nothing uncommon about it has nothing to send but that.

use millstream_packet::Instant;
use millstream_wire::tcp::PlainHeader;

use crate::congestion::Controller;
use crate::connection::{Connection, Probe};
use crate::predicted::short_ways;
use crate::recovery::Phase;
use crate::state::State;

impl Connection {
    /// Whether all there is to send is an ACK without data and without anything uncommon: then
    /// [`poll_plain_ack`](Self::poll_plain_ack) has it.
    #[inline]
    pub fn has_plain_ack(&self) -> bool {
        let Self { state, snd, rcv, recovery, board, counters, .. } = self;
        // one after the other, each a branch that is hardly ever taken; a FIN that was sent lies beyond the data
        (rcv.ack.now || rcv.ack.due)
            && snd.nxt == self.data_end()
            && *state == State::Established
            && !self.orphaned
            && !snd.fin_queued
            && !snd.syn_due
            && snd.probe == Probe::None
            && self.reset_due.is_none()
            && !self.congestion.governs()
            && board.is_plain()
            && recovery.phase == Phase::Open
            && !recovery.probe_due
            && counters.is_plain()
            && rcv.reassembly.is_none()
            && !rcv.dsack.is_some()
            && !self.ecn.has_to_say()
            && short_ways()
    }

    /// The header of an ACK without data, where [that is all there is to send](Self::has_plain_ack); its checksum is the
    /// caller's. What [`poll_transmit`](Self::poll_transmit) would make.
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
