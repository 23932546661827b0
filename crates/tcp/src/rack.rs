//! RACK-TLP (RFC 8985): loss by time, and the probe of a tail.

use core::time::Duration;

use millstream_packet::Instant;

use crate::connection::Connection;
use crate::limits::{DUPLICATE_THRESHOLD, INITIAL_RTO_MS};
use crate::recovery::{Acked, Phase};
use crate::timers::Expiry;

impl Connection {
    /// RFC 8985 6.2 step 2: the last moment at which something was sent again that an ACK with this echo can be the
    /// answer to. It came by then as long ago as a round trip takes at least, and the timestamp echoed is not older.
    pub(crate) fn answers(&self, now: Instant, echo: Option<u32>) -> Instant {
        let least = self.rtt.min_rtt_ns().unwrap_or(0);
        // what the echo itself says of the round trip counts (step 1)
        let least = match self.rtt_by_timestamp(now, echo) {
            Some(rtt) => least.min(rtt.as_nanos() as u64),
            None => least,
        };
        let now_ns = now.as_nanos();
        let late_ms = echo.map_or(0, |echo| self.ts_now(now).wrapping_sub(echo) as i32).max(0);
        // the end of that millisecond
        let echoed_ns = ((now_ns / 1_000_000).saturating_sub(late_ms as u64) + 1) * 1_000_000 - 1;
        Instant::from_nanos(echoed_ns.min(now_ns.saturating_sub(least)))
    }

    /// RFC 8985 6.2 step 2.
    pub(crate) fn update_rack(&mut self, now: Instant, ack: &Acked) {
        let Some(newest) = ack.delivery.rack else { return };
        let rtt = now.saturating_duration_since(newest.0);
        self.recovery.rack_rtt_ns = rtt.as_nanos() as u64;
        self.recovery.rack = self.recovery.rack.max(newest);
    }

    /// RFC 8985 6.2 step 4: how long to wait for what may only be late.
    fn reordering_window(&self) -> Duration {
        let mss = u64::from(self.snd.mss());
        if !self.recovery.reordering_seen {
            let many = self.board.sacked_segments() >= DUPLICATE_THRESHOLD
                || self.board.sacked_bytes() > mss * u64::from(DUPLICATE_THRESHOLD - 1);
            if self.recovery.phase != Phase::Open || many {
                return Duration::ZERO;
            }
        }
        let quarter = self.rtt.min_rtt().unwrap_or_default() / 4;
        (quarter * u32::from(self.recovery.reo_wnd_mult)).min(self.rtt.srtt())
    }

    /// RFC 8985 6.2 step 5. Arms the reordering timer when something is to be judged later.
    pub(crate) fn detect_lost(&mut self, now: Instant) -> u64 {
        let rack = self.recovery.rack;
        if rack.1 == 0 {
            return 0;
        }
        let wait = Duration::from_nanos(self.recovery.rack_rtt_ns) + self.reordering_window();
        let judged = self.board.detect_lost(rack, wait, now);
        if let Some(at) = judged.again {
            self.timers.arm_retransmit(at, Expiry::Reorder);
        }
        if judged.bytes > 0 && self.was_mtu_probe(now, judged.bytes) {
            return 0;
        }
        if judged.bytes > 0 {
            self.tell_lost(now, judged.bytes, judged.sent_at);
        }
        judged.bytes
    }

    /// Nothing new has arrived; time has passed.
    pub(crate) fn judge_by_time(&mut self, now: Instant) {
        let newly = self.detect_lost(now);
        if newly > 0 && self.recovery.phase == Phase::Open {
            self.enter_recovery(now, 0, 0);
        }
    }

    /// RFC 8985 7.3: ask for an ACK of the tail.
    pub(crate) fn on_loss_probe(&mut self, now: Instant) {
        self.restart_retransmit(now);
        if self.believe_path_claim(now) {
            // what is outstanding is sent again, in smaller segments
            return;
        }
        let shrunk = self.snd.nxt() > self.snd.edge();
        let may_probe = self.recovery.phase == Phase::Open && self.recovery.probe_end == 0;
        if may_probe && !shrunk && self.choose_probe(u64::from(self.snd.mss())).is_some() {
            self.recovery.probe_due = true;
            self.counters.rare().loss_probes += 1;
        }
    }

    /// RFC 8985 7.4: did the probe repair a loss?
    pub(crate) fn end_probe(&mut self, now: Instant, ack: &Acked) {
        let (end, resent) = (self.recovery.probe_end, self.recovery.probe_resent);
        let una = self.snd.una();
        if end == 0 || una < end {
            return;
        }
        if !resent || ack.dsack_bytes > 0 {
            self.recovery.probe_end = 0;
        } else if una > end {
            // it did: one congestion response
            self.recovery.probe_end = 0;
            if self.recovery.phase == Phase::Open {
                let before = self.window.cwnd_bytes;
                self.congestion.on_congestion(&mut self.window, now, ack.in_flight);
                self.window.cwnd_bytes = self.window.cwnd_bytes.min(self.window.ssthresh_bytes);
                self.trace_window("loss that a probe repaired", before);
                self.ecn_reduced();
            }
        } else if ack.duplicate {
            self.recovery.probe_end = 0;
        }
    }

    /// Chooses between the loss probe and the time-out after something was sent or acknowledged (RFC 8985 7.2).
    #[inline]
    pub(crate) fn arm_loss_timers(&mut self, now: Instant) {
        if self.snd.is_all_acked() {
            return self.restart_retransmit(now);
        }
        self.arm_loss_timers_since(now, now);
    }

    /// After new data was sent: the time-out runs on (RFC 6298 5.1); a loss probe is put off (RFC 8985 7.2), but not
    /// beyond that. With `same_burst` the timers were started by the segment before, at the same moment.
    #[inline(always)]
    pub(crate) fn keep_loss_timers(&mut self, now: Instant, same_burst: bool) {
        match self.timers.retransmit() {
            Some((_, Expiry::Reorder)) => {}
            Some((_, Expiry::Timeout | Expiry::LossProbe)) if same_burst => {}
            Some((_, Expiry::Timeout)) if !self.may_probe() => {}
            Some((_, Expiry::Timeout | Expiry::LossProbe)) => {
                // a recovery that ended may have begun the time-out anew
                let due = |since: &Instant| since.as_nanos() + self.rtt.rto_ns() <= now.as_nanos();
                let since = self.snd.waiting_since().filter(|since| !due(since));
                self.arm_loss_timers_since(now, since.unwrap_or(now));
            }
            _ => self.arm_loss_timers(now),
        }
    }

    /// A tail loss probe may come before the time-out (RFC 8985 7.2).
    #[inline]
    fn may_probe(&self) -> bool {
        self.negotiated.sack
            && self.recovery.phase == Phase::Open
            && self.recovery.probe_end == 0
            && self.board.sacked_bytes() == 0
            && !self.rtt.is_backed_off()
    }

    /// As [`arm_loss_timers`](Self::arm_loss_timers), where something is outstanding and the time-out runs since
    /// `since`.
    #[inline]
    fn arm_loss_timers_since(&mut self, now: Instant, since: Instant) {
        debug_assert!(!self.snd.is_all_acked(), "nothing is outstanding");
        if !self.may_probe() {
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
