//! The cycle of probing for bandwidth (section 5.3.3): down, cruise, refill, up.

use core::time::Duration;

use millstream_packet::Instant;

use super::super::rate::RateSample;
use super::super::{DeliverySample, Window};
use super::{AckPhase, Bbr, INFINITE, State, is_too_high};

impl Bbr {
    /// Section 5.3.2.
    pub(super) fn check_drain_done(&mut self, window: &Window, d: &DeliverySample) {
        if self.state != State::Drain {
            return;
        }
        let drained = d.in_flight_bytes <= self.inflight(self.bw, u64::from(window.mss_bytes));
        if drained || self.round_count > self.drain_start_round + 3 {
            self.start_down(d.now);
        }
    }

    pub(super) fn start_down(&mut self, now: Instant) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_inc = INFINITE;
        // section 5.3.3.8.3: randomised, so that flows mix
        self.rounds_since_probe_up = self.random.below(2);
        self.probe_wait = Duration::from_micros(2_000_000 + self.random.below(1_000_000));
        self.cycle_at = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = State::ProbeDown;
    }

    pub(super) fn start_refill(&mut self) {
        self.reset_short_term();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = State::ProbeRefill;
    }

    fn start_up(&mut self, window: &Window, rs: &RateSample) {
        self.probe_sample = true;
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw();
        self.full_bw = rs.bytes_per_s;
        self.state = State::ProbeUp;
        self.raise_slope(window);
    }

    /// Section 5.3.3.9, on every ACK.
    pub(super) fn update_cycle(&mut self, window: &Window, d: &DeliverySample, rs: &RateSample) {
        if !self.full_bw_reached || self.adapt_long_term(window, d, rs) {
            return;
        }
        let state = self.state;
        match state {
            State::ProbeDown => {
                if self.is_time_to_probe(window, d.now) {
                    self.start_refill();
                } else if self.is_time_to_cruise(window, d) {
                    self.state = State::ProbeCruise;
                }
            }
            State::ProbeCruise if self.is_time_to_probe(window, d.now) => self.start_refill(),
            State::ProbeRefill if self.round_start => self.start_up(window, rs),
            State::ProbeUp if self.is_time_to_go_down(window, d, rs) => {
                self.prev_probe_too_high = false;
                self.start_down(d.now);
            }
            _ => {}
        }
    }

    fn is_time_to_probe(&self, window: &Window, now: Instant) -> bool {
        let target = self.bdp().min(window.cwnd_bytes) / u64::from(window.mss_bytes.max(1));
        now > self.cycle_at + self.probe_wait || self.rounds_since_probe_up >= target.min(63)
    }

    fn is_time_to_cruise(&self, window: &Window, d: &DeliverySample) -> bool {
        let mss = u64::from(window.mss_bytes);
        let max_bw = self.max_bw[0].max(self.max_bw[1]);
        d.in_flight_bytes <= self.inflight_with_headroom(mss)
            && d.in_flight_bytes <= self.inflight(max_bw, mss)
    }

    fn is_time_to_go_down(&mut self, window: &Window, d: &DeliverySample, rs: &RateSample) -> bool {
        if self.prev_probe_too_high && d.in_flight_bytes >= self.inflight_longterm {
            // section 5.3.3.6: once bitten, only a touch
            self.prev_probe_precautionary = true;
            return true;
        }
        if d.cwnd_limited && window.cwnd_bytes >= self.inflight_longterm {
            self.reset_full_bw();
            self.full_bw = rs.bytes_per_s;
            return false;
        }
        self.full_bw_now
    }

    fn raise_slope(&mut self, window: &Window) {
        let growth = 1u64 << self.probe_up_rounds;
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc =
            (window.cwnd_bytes / growth).max(u64::from(window.mss_bytes)).max(1);
    }

    fn probe_upward(&mut self, window: &Window, d: &DeliverySample, rs: &RateSample) {
        if !d.cwnd_limited || window.cwnd_bytes < self.inflight_longterm {
            return;
        }
        self.probe_up_acked += rs.newly;
        if self.probe_up_acked >= self.probe_up_acked_per_inc {
            let delta = self.probe_up_acked / self.probe_up_acked_per_inc;
            self.probe_up_acked -= delta * self.probe_up_acked_per_inc;
            self.inflight_longterm += delta * u64::from(window.mss_bytes);
        }
        if self.round_start {
            self.raise_slope(window);
        }
    }

    /// True when it changed the state.
    fn adapt_long_term(&mut self, window: &Window, d: &DeliverySample, rs: &RateSample) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() {
                if !rs.app_limited {
                    self.advance_max_bw();
                }
                if self.prev_probe_precautionary && !self.prev_probe_too_high {
                    // section 5.3.3.6: nothing was lost, so probe again at once
                    self.start_refill();
                    return true;
                }
            }
        }
        if is_too_high(rs.lost, rs.in_flight_at_send, d.sack) || self.inflight_longterm == INFINITE
        {
            return false;
        }
        self.inflight_longterm = self.inflight_longterm.max(rs.in_flight_at_send);
        if self.state == State::ProbeUp {
            self.probe_upward(window, d, rs);
        }
        false
    }
}
