//! Whether a connection is calm: established both ways, with nothing uncommon about it.
//!
//! The short ways of segments (`plain`, `predicted`, `placed`, `bare`) may be taken only then, and what makes a
//! connection uncommon stands in some twenty places: a FIN queued or seen, a reset or probe due, something lost or out
//! of order, ECN's marks. That it is calm is found by looking at them all, once, and remembered while nothing can
//! change it: the short ways themselves do not, and every other way begins by forgetting it. What is not remembered is
//! looked up as before.

use crate::congestion::Controller;
use crate::connection::{Connection, NO_FIN, Probe};
use crate::predicted::short_ways;
use crate::recovery::Phase;
use crate::state::State;

impl Connection {
    /// Whether it is known to be calm; where not, it may be all the same.
    #[inline(always)]
    pub(crate) fn is_calm(&self) -> bool {
        self.calm && short_ways()
    }

    /// What follows may make it uncommon.
    #[inline(always)]
    pub(crate) fn forget_calm(&mut self) {
        self.calm = false;
    }

    /// Remembers whether it is calm, after a segment was taken as only one that may be so takes it.
    #[inline(always)]
    pub(crate) fn remember_calm(&mut self) {
        if !self.calm {
            self.look_for_calm();
        }
    }

    #[inline(never)]
    fn look_for_calm(&mut self) {
        self.calm = self.may_be_calm();
    }

    /// All that has to hold. With [`check`](Self::check), whoever changes one of these has to forget what was
    /// remembered.
    pub(crate) fn may_be_calm(&self) -> bool {
        self.sends_nothing_uncommon() && self.takes_nothing_uncommon() && !self.rtt.is_backed_off()
    }

    /// Whether nothing uncommon is to be said or done with what is sent next, data or an ACK alone.
    pub(crate) fn sends_nothing_uncommon(&self) -> bool {
        let Self { state, snd, rcv, recovery, board, counters, .. } = self;
        *state == State::Established
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

    /// Whether nothing uncommon keeps a segment from being the expected one.
    pub(crate) fn takes_nothing_uncommon(&self) -> bool {
        let Self { state, negotiated, snd, rcv, recovery, board, .. } = self;
        *state == State::Established
            && !self.orphaned
            && self.soft_error.is_none()
            && rcv.reassembly.is_none()
            && rcv.fin == NO_FIN
            && !rcv.shut
            && !self.is_memory_limited()
            && negotiated.sack
            && board.is_plain()
            && recovery.phase == Phase::Open
            && recovery.probe_end == 0
            && snd.wl1 <= rcv.nxt
            && !self.congestion.governs()
            && short_ways()
    }
}
