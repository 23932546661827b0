//! The one question that a segment of an established connection asks, in or out, instead of
//! one for each thing that is rare.
//!
//! Functions of the walk that have a parameter `PLAIN` exist twice, built of one text:
//! where it is true nothing rare is under way, and nothing rare is asked for.

use crate::connection::Connection;
use crate::state::State;

impl Connection {
    /// Something rare has begun, or may have: all is asked for until it is over.
    #[inline]
    pub(crate) fn begin_rare(&mut self) {
        self.is_plain = false;
    }

    /// Looks whether what was rare is over.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if !self.is_plain {
            self.is_plain = self.has_nothing_rare();
        }
    }

    /// Returns whether nothing is under way but new data and ACKs.
    pub(crate) fn has_nothing_rare(&self) -> bool {
        self.state == State::Established
            && !self.orphaned
            && self.negotiated.sack
            && !self.congestion.governs()
            && !self.is_paced()
            && self.config.keepalive.is_none()
            && !self.ecn.is_agreed()
            && self.board.is_in_order()
            && self.recovery.is_quiet()
            && self.rtt.backoff() == 0
            && !self.rtt.is_backed_off()
            && !self.timers.overrides_sws()
            && self.path.is_settled()
            && self.snd.has_only_data()
            && self.rcv.has_only_data()
            && !self.is_urgent()
            && self.reset_due.is_none()
            && self.soft_error.is_none()
    }
}
