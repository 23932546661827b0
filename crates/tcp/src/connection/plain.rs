//! The one question that a segment of an established connection asks, in or out, instead of
//! one for each thing that is rare.
//!
//! Functions of the walk that have a parameter `PLAIN` exist twice, built of one text:
//! where it is true nothing rare is under way, and nothing rare is asked for.

use crate::connection::Connection;
use crate::state::State;

impl Connection {
    /// Looks whether what was rare is over.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !self.cx.is_plain {
            self.cx.is_plain = self.has_nothing_rare();
        }
    }

    /// Returns whether nothing is under way but new data and ACKs.
    pub(super) fn has_nothing_rare(&self) -> bool {
        self.cx.state == State::Established
            && !self.cx.orphaned
            && self.cx.negotiated.sack
            && !self.sending.congestion.governs()
            && !self.sending.is_paced(&self.cx)
            && self.cx.config.keepalive.is_none()
            && !self.sending.ecn.is_agreed()
            && self.sending.board.is_in_order()
            && self.sending.recovery.is_quiet()
            && self.cx.rtt.backoff() == 0
            && !self.cx.rtt.is_backed_off()
            && !self.cx.timers.overrides_sws
            && self.sending.path.is_settled()
            && self.sending.snd.has_only_data()
            && self.receiving.rcv.has_only_data()
            && !self.sending.is_urgent(&self.cx)
            && self.sending.reset_due.is_none()
            && self.soft_error.is_none()
    }
}
