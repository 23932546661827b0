//! The probe of a tail (RFC 8985 section 7), and the choice between it and the time-out.

use millstream_packet::Instant;

use super::{Acked, Recovery};
use crate::connection::Connection;
use crate::timers::Expiry;
use crate::tuning::INITIAL_RTO_MS;

/// The tail loss probe.
/// Packed as [`Pacer`](crate::pacer::Pacer) is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(4))]
pub(super) struct LossProbe {
    /// RFC 8985: TLP.end_seq, the end of the data outstanding when one was sent; zero when none is
    /// out.
    end: u64,
    /// One is to be sent.
    is_due: bool,
    /// The one that is out was sent again (TLP.is_retrans).
    is_resent: bool,
}

impl LossProbe {
    #[inline(always)]
    pub(super) fn is_out(self) -> bool {
        self.end != 0
    }
}

impl Recovery {
    /// A loss probe is to be sent.
    #[inline(always)]
    pub(crate) fn is_probe_due(&self) -> bool {
        self.probe.is_due
    }

    /// All that one would probe for was acknowledged before it could be sent.
    pub(crate) fn cancel_probe(&mut self) {
        self.probe.is_due = false;
    }

    /// One was sent, with all below `end` outstanding (RFC 8985 7.3).
    #[cold]
    pub(crate) fn on_probe_sent(&mut self, end: u64, is_resent: bool) {
        self.probe = LossProbe { end, is_due: false, is_resent };
    }

    /// A segment that the peer had before was the probe's.
    pub(super) fn has_resent_probe(&self) -> bool {
        self.probe.is_out() && self.probe.is_resent
    }
}

impl Connection {
    /// RFC 8985 7.3: ask for an ACK of the tail.
    pub(crate) fn on_loss_probe(&mut self, now: Instant) {
        self.restart_retransmit(now);
        if self.believe_path_claim(now) {
            // what is outstanding is sent again, in smaller segments
            return;
        }
        let shrunk = self.snd.nxt() > self.snd.edge();
        if self.recovery.is_at_rest()
            && !shrunk
            && self.choose_probe(u64::from(self.snd.mss())).is_some()
        {
            self.recovery.probe.is_due = true;
            self.counters.count().loss_probes += 1;
        }
    }

    /// RFC 8985 7.4: did the probe repair a loss?
    pub(crate) fn end_probe(&mut self, now: Instant, ack: &Acked) {
        let LossProbe { end, is_resent, .. } = self.recovery.probe;
        let una = self.snd.una();
        if end == 0 || una < end {
            return;
        }
        if !is_resent || ack.dsack_bytes > 0 {
            self.recovery.probe.end = 0;
        } else if una > end {
            // it did: one congestion response
            self.recovery.probe.end = 0;
            if self.recovery.is_open() {
                let before = self.window.cwnd_bytes;
                self.congestion.on_congestion(&mut self.window, now, ack.in_flight);
                self.window.cwnd_bytes = self.window.cwnd_bytes.min(self.window.ssthresh_bytes);
                self.trace_window("loss that a probe repaired", before);
                self.ecn.on_reduced(self.snd.nxt());
            }
        } else if ack.duplicate {
            self.recovery.probe.end = 0;
        }
    }

    /// Chooses between the loss probe and the time-out after something was sent or acknowledged
    /// (RFC 8985 7.2).
    #[inline]
    pub(crate) fn arm_loss_timers<const PLAIN: bool>(&mut self, now: Instant) {
        if self.snd.is_all_acked() {
            return self.restart_retransmit(now);
        }
        self.arm_loss_timers_since::<PLAIN>(now, now);
    }

    /// After new data was sent: the time-out runs on (RFC 6298 5.1); a loss probe is put off (RFC
    /// 8985 7.2), but not beyond that. With `same_burst` the timers were started by the segment
    /// before, at the same moment.
    #[inline(always)]
    pub(crate) fn keep_loss_timers<const PLAIN: bool>(&mut self, now: Instant, same_burst: bool) {
        match self.timers.retransmit() {
            Some((_, Expiry::Reorder)) => {}
            Some((_, Expiry::Timeout | Expiry::LossProbe)) if same_burst => {}
            Some((_, Expiry::Timeout)) if !PLAIN && !self.may_probe() => {}
            Some((_, Expiry::Timeout | Expiry::LossProbe)) => {
                // a recovery that ended may have begun the time-out anew
                let due = |since: &Instant| since.as_nanos() + self.rtt.rto_ns() <= now.as_nanos();
                let since = self.snd.waiting_since().filter(|since| !due(since));
                self.arm_loss_timers_since::<PLAIN>(now, since.unwrap_or(now));
            }
            _ => self.arm_loss_timers::<PLAIN>(now),
        }
    }

    /// A tail loss probe may come before the time-out (RFC 8985 7.2).
    #[inline]
    fn may_probe(&self) -> bool {
        self.negotiated.sack
            && self.recovery.is_at_rest()
            && self.board.sacked_bytes() == 0
            && !self.rtt.is_backed_off()
    }

    /// As [`arm_loss_timers`](Self::arm_loss_timers), where something is outstanding and the
    /// time-out runs since `since`.
    #[inline]
    fn arm_loss_timers_since<const PLAIN: bool>(&mut self, now: Instant, since: Instant) {
        debug_assert!(!self.snd.is_all_acked(), "nothing is outstanding");
        if !PLAIN && !self.may_probe() {
            return self.restart_retransmit(since);
        }
        let mut wait_ms = match self.rtt.srtt_ns() {
            // RFC 8985 7.2: a second while no round trip is known
            0 => u64::from(INITIAL_RTO_MS),
            _ => 0,
        };
        // one segment: the peer may hold its ACK back
        wait_ms += if self.snd.outstanding() <= u64::from(self.snd.mss()) { 200 } else { 2 };
        let wait_ns = wait_ms * 1_000_000 + 2 * self.rtt.srtt_ns();
        let probe_at = now.as_nanos().saturating_add(wait_ns);
        let rto_at = since.as_nanos().saturating_add(self.rtt.base_rto_ns());
        let expiry = if probe_at < rto_at { Expiry::LossProbe } else { Expiry::Timeout };
        self.timers.arm_retransmit(Instant::from_nanos(probe_at.min(rto_at)), expiry);
    }
}
