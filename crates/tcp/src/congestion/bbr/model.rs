//! BBR's model of the path: its rate, its round trip, what may be in flight (section 5.5).

use millstream_packet::Instant;

use super::super::rate::RateSample;
use super::super::{DeliverySample, LossSample, Window};
use super::{
    AckPhase, BETA_PERCENT, Bbr, INFINITE, LOSS_THRESHOLD_PERCENT, MIN_PIPE_SEGMENTS,
    MIN_RTT_FILTER, PACING_MARGIN_PERCENT, PROBE_RTT_CWND_GAIN, PROBE_RTT_DURATION,
    PROBE_RTT_INTERVAL, STARTUP_FULL_LOSS_COUNT, State, is_too_high, percent,
};

impl Bbr {
    /// Section 5.5.10.3.
    pub(super) fn update_latest(&mut self, rs: &RateSample) {
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(rs.bytes_per_s);
        self.inflight_latest = self.inflight_latest.max(rs.delivered);
        if rs.bytes_per_s > 0 && rs.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = self.rate.delivered;
            self.loss_round_start = true;
        }
    }

    pub(super) fn advance_latest(&mut self, rs: &RateSample) {
        if self.loss_round_start {
            self.bw_latest = rs.bytes_per_s;
            self.inflight_latest = rs.delivered;
        }
    }

    pub(super) fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    pub(super) fn reset_short_term(&mut self) {
        self.bw_shortterm = INFINITE;
        self.inflight_shortterm = INFINITE;
    }

    pub(super) fn update_congestion_signals(
        &mut self,
        window: &Window,
        rs: &RateSample,
        sack: bool,
    ) {
        self.update_max_bw(rs);
        if !self.loss_round_start {
            return;
        }
        let probing = matches!(self.state, State::Startup | State::ProbeRefill | State::ProbeUp);
        // The draft lowers the bounds in every round that lost anything. On a path with a little
        // random loss that is nearly every round, and the bounds ratchet down between probes
        // although the loss is below the threshold that is tolerated while probing; so it is
        // tolerated here too.
        let congested =
            is_too_high(rs.lost, rs.in_flight_at_send, sack) || std::mem::take(&mut self.marked);
        if self.loss_in_round && congested && !probing {
            let (bw, inflight) = (self.bw_shortterm, self.inflight_shortterm);
            let bw = if bw == INFINITE { self.max_bw[0].max(self.max_bw[1]) } else { bw };
            let inflight = if inflight == INFINITE { window.cwnd_bytes } else { inflight };
            // what is paced a margin below the estimate arrives a margin below it: that is no
            // congestion
            let latest = self.bw_latest / (100 - PACING_MARGIN_PERCENT) * 100;
            self.bw_shortterm = latest.max(percent(bw, BETA_PERCENT));
            self.inflight_shortterm = self.inflight_latest.max(percent(inflight, BETA_PERCENT));
        }
        self.loss_in_round = false;
    }

    /// Sections 5.5.1 and 5.5.5.
    fn update_max_bw(&mut self, rs: &RateSample) {
        // what was sent again, and arrives in less than a round trip, is the original: it says
        // nothing of a round
        self.round_start = rs.bytes_per_s > 0 && rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.round_count += 1;
            self.rounds_since_probe_up += 1;
        }
        let max = self.max_bw[0].max(self.max_bw[1]);
        if rs.bytes_per_s >= max || !rs.app_limited {
            self.max_bw[1] = self.max_bw[1].max(rs.bytes_per_s);
        }
    }

    pub(super) fn start_round(&mut self) {
        self.next_round_delivered = self.rate.delivered;
    }

    /// Section 5.5.6.
    pub(super) fn advance_max_bw(&mut self) {
        if self.max_bw[1] > 0 {
            self.max_bw = [self.max_bw[1], 0];
        }
    }

    /// Section 5.5.9. The maximum of the last five to ten rounds, of the last in Startup.
    pub(super) fn update_aggregation(&mut self, window: &Window, now: Instant, rs: &RateSample) {
        if self.round_start {
            self.aggregation.round_begins(if self.full_bw_reached { 5 } else { 1 });
        }
        self.aggregation.on_delivery(now, rs.newly, self.bw, window.cwnd_bytes);
    }

    pub(super) fn reset_full_bw(&mut self) {
        self.full_bw = 0;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    /// Section 5.3.1.2.
    pub(super) fn check_full_bw(&mut self, rs: &RateSample) {
        if self.full_bw_now || !self.round_start || rs.app_limited {
            return;
        }
        if rs.bytes_per_s >= percent(self.full_bw, 125) {
            self.reset_full_bw();
            self.full_bw = rs.bytes_per_s;
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= 3;
        self.full_bw_reached |= self.full_bw_now;
    }

    /// Section 5.3.1.3.
    pub(super) fn check_startup_done(&mut self, d: &DeliverySample, rs: &RateSample) {
        if self.state != State::Startup {
            return;
        }
        if d.lost_bytes > 0 {
            self.loss_events = self.loss_events.saturating_add(1);
        }
        if self.loss_round_start {
            let enough = self.loss_events >= STARTUP_FULL_LOSS_COUNT || !d.sack;
            let losing = d.recovering && is_too_high(rs.lost, rs.in_flight_at_send, d.sack);
            if enough && losing {
                self.saved.state = Some(State::Startup);
                self.full_bw_reached = true;
                self.inflight_longterm = self.bdp().max(self.inflight_latest);
            }
            self.loss_events = 0;
        }
        if self.full_bw_reached {
            self.state = State::Drain;
            self.drain_start_round = self.round_count;
        }
    }

    /// Section 5.3.4.3.
    pub(super) fn update_min_rtt(&mut self, d: &DeliverySample) {
        self.probe_rtt_expired = d.now > self.probe_rtt_min_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = d.rtt {
            let rtt_ns = (rtt.as_nanos() as u64).max(1);
            if rtt_ns < self.probe_rtt_min_ns || self.probe_rtt_expired {
                self.probe_rtt_min_ns = rtt_ns;
                self.probe_rtt_min_at = d.now;
            }
        }
        let expired = d.now > self.min_rtt_at + MIN_RTT_FILTER;
        if self.probe_rtt_min_ns < self.min_rtt_ns || expired {
            self.min_rtt_ns = self.probe_rtt_min_ns;
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    pub(super) fn probe_rtt_cwnd(&self, mss: u64) -> u64 {
        percent(self.bdp(), PROBE_RTT_CWND_GAIN).max(MIN_PIPE_SEGMENTS * mss)
    }

    pub(super) fn check_probe_rtt(&mut self, window: &mut Window, d: &DeliverySample) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(window);
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.rate.mark_app_limited(d.in_flight_bytes);
            let mss = u64::from(window.mss_bytes);
            if self.probe_rtt_done.is_some() {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done {
                    self.check_probe_rtt_done(window, d.now);
                }
            } else if d.in_flight_bytes <= self.probe_rtt_cwnd(mss) {
                self.probe_rtt_done = Some(d.now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.start_round();
            }
        }
        self.idle_restart = false;
    }

    pub(super) fn check_probe_rtt_done(&mut self, window: &mut Window, now: Instant) {
        if self.probe_rtt_done.is_none_or(|at| now <= at) {
            return;
        }
        self.probe_rtt_min_at = now;
        self.restore_cwnd(window);
        // section 5.3.4.4
        self.reset_short_term();
        if self.full_bw_reached {
            self.start_down(now);
            self.state = State::ProbeCruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// Section 5.5.10.2.
    pub(super) fn note_loss(&mut self, window: &Window) {
        if !self.loss_in_round {
            self.loss_round_delivered = self.rate.delivered;
            self.save_state(window);
        }
        self.loss_in_round = true;
    }

    /// Where in what was lost the threshold was crossed, and what follows from it.
    pub(super) fn on_too_high(
        &mut self,
        window: &Window,
        loss: &LossSample,
        in_flight: u64,
        lost: u64,
        app_limited: bool,
    ) {
        let before = in_flight.saturating_sub(loss.bytes);
        let lost_before = lost.saturating_sub(loss.bytes);
        let prefix = percent(before, LOSS_THRESHOLD_PERCENT).saturating_sub(lost_before) * 100
            / (100 - LOSS_THRESHOLD_PERCENT);
        self.too_high(window, loss.now, before + prefix, app_limited);
    }

    pub(super) fn too_high(
        &mut self,
        window: &Window,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
    ) {
        self.prev_probe_too_high = true;
        self.probe_sample = false;
        if !app_limited {
            let target = self.bdp().min(window.cwnd_bytes);
            self.inflight_longterm = in_flight.max(percent(target, BETA_PERCENT));
        }
        if self.state == State::ProbeUp {
            self.saved.state = Some(State::ProbeUp);
            self.start_down(now);
        }
    }
}
