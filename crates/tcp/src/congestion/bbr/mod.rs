//! BBR, version 3 (draft-ietf-ccwg-bbr-06; sections are of that text). It keeps a model of the path
//! — the largest rate of delivery and the least round trip — and paces by it; the window only
//! bounds what is in flight.
//!
//! Rates are bytes a second, gains are percent, round trips nanoseconds. Time comes with each call;
//! what the draft draws at random comes from a seed.

mod cycle;
mod model;

use core::time::Duration;

use millstream_packet::Instant;

use super::aggregation::Aggregation;
use super::rate::{RateSample, RateSampler};
use super::{
    AckSample, Controller, DeliverySample, Factory, LossSample, Random, Transmit, Window, percent,
};

/// Sections 2.4 to 2.8 of the draft.
const STARTUP_PACING_GAIN: u64 = 277;
const DRAIN_PACING_GAIN: u64 = 50;
const DEFAULT_CWND_GAIN: u64 = 200;
const PROBE_UP_CWND_GAIN: u64 = 225;
const PROBE_RTT_CWND_GAIN: u64 = 50;
const PACING_MARGIN_PERCENT: u64 = 1;
const LOSS_THRESHOLD_PERCENT: u64 = 2;
const BETA_PERCENT: u64 = 70;
const HEADROOM_PERCENT: u64 = 15;
const STARTUP_FULL_LOSS_COUNT: u8 = 6;
const MIN_PIPE_SEGMENTS: u64 = 4;
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Most that is handed down at once.
const SEND_QUANTUM_BYTES: u64 = 64 * 1024;
/// Not known, not bounded.
const INFINITE: u64 = u64::MAX;

/// Section 5.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Startup,
    Drain,
    ProbeDown,
    ProbeCruise,
    ProbeRefill,
    ProbeUp,
    ProbeRtt,
}

impl State {
    fn is_probe_bw(self) -> bool {
        use State::{ProbeCruise, ProbeDown, ProbeRefill, ProbeUp};
        matches!(self, ProbeDown | ProbeCruise | ProbeRefill | ProbeUp)
    }

    /// Section 5.6.1.
    fn pacing_gain(self) -> u64 {
        match self {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => DRAIN_PACING_GAIN,
            State::ProbeDown => 90,
            State::ProbeUp => 125,
            State::ProbeCruise | State::ProbeRefill | State::ProbeRtt => 100,
        }
    }

    fn cwnd_gain(self) -> u64 {
        match self {
            State::ProbeUp => PROBE_UP_CWND_GAIN,
            State::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => DEFAULT_CWND_GAIN,
        }
    }
}

/// Which ACKs come in, relative to a probe for bandwidth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The state to return to when a loss turns out to be none (section 5.5.11).
#[derive(Clone, Copy, Debug)]
struct Saved {
    state: Option<State>,
    bw_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
}

/// The controller.
#[derive(Debug)]
pub struct Bbr {
    rate: RateSampler,
    state: State,
    ack_phase: AckPhase,
    pacing_rate: u64,
    /// Window at the start; zero before anything was sent.
    initial_cwnd: u64,
    bw: u64,
    /// Largest rate of the cycle before and of this.
    max_bw: [u64; 2],
    bw_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
    min_rtt_ns: u64,
    min_rtt_at: Instant,
    probe_rtt_min_ns: u64,
    probe_rtt_min_at: Instant,
    probe_rtt_expired: bool,
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    prior_cwnd: u64,
    saved: Saved,
    recovering: bool,
    // rounds
    next_round_delivered: u64,
    round_start: bool,
    round_count: u64,
    // the full pipe
    full_bw: u64,
    full_bw_count: u8,
    full_bw_now: bool,
    full_bw_reached: bool,
    drain_start_round: u64,
    // loss in the present round
    loss_round_delivered: u64,
    loss_round_start: bool,
    loss_in_round: bool,
    /// A mark came in the present round.
    marked: bool,
    loss_events: u8,
    bw_latest: u64,
    inflight_latest: u64,
    aggregation: Aggregation,
    // the cycle
    cycle_at: Instant,
    probe_wait: Duration,
    rounds_since_probe_up: u64,
    probe_up_rounds: u32,
    probe_up_acked: u64,
    probe_up_acked_per_inc: u64,
    probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    random: Random,
}

impl Bbr {
    /// Starts in Startup (section 5.2.1). Equal seeds give equal behaviour.
    pub fn new(seed: u64) -> Self {
        let saved =
            Saved { state: None, bw_shortterm: 0, inflight_shortterm: 0, inflight_longterm: 0 };
        Bbr {
            rate: RateSampler::default(),
            state: State::Startup,
            ack_phase: AckPhase::Init,
            pacing_rate: 0,
            initial_cwnd: 0,
            bw: 0,
            max_bw: [0; 2],
            bw_shortterm: INFINITE,
            inflight_shortterm: INFINITE,
            inflight_longterm: INFINITE,
            min_rtt_ns: INFINITE,
            min_rtt_at: Instant::ZERO,
            probe_rtt_min_ns: INFINITE,
            probe_rtt_min_at: Instant::ZERO,
            probe_rtt_expired: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            prior_cwnd: 0,
            saved,
            recovering: false,
            next_round_delivered: 0,
            round_start: false,
            round_count: 0,
            full_bw: 0,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            drain_start_round: 0,
            loss_round_delivered: 0,
            loss_round_start: false,
            loss_in_round: false,
            marked: false,
            loss_events: 0,
            bw_latest: 0,
            inflight_latest: 0,
            aggregation: Aggregation::default(),
            cycle_at: Instant::ZERO,
            probe_wait: Duration::ZERO,
            rounds_since_probe_up: 0,
            probe_up_rounds: 0,
            probe_up_acked: 0,
            probe_up_acked_per_inc: INFINITE,
            probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            random: Random::new(seed),
        }
    }

    fn begin(&mut self, window: &Window, sent: &Transmit) {
        self.initial_cwnd = window.cwnd_bytes.max(1);
        self.min_rtt_at = sent.now;
        self.probe_rtt_min_at = sent.now;
        self.aggregation.begin(sent.now);
        if sent.srtt > Duration::ZERO {
            self.min_rtt_ns = sent.srtt.as_nanos() as u64;
        }
        // section 5.6.2
        let rtt_ns = match sent.srtt.as_nanos() as u64 {
            0 => 1_000_000,
            ns => ns,
        };
        let rate = u128::from(self.initial_cwnd) * 1_000_000_000 / u128::from(rtt_ns);
        self.pacing_rate = rate as u64 / 100 * STARTUP_PACING_GAIN;
    }

    /// Section 5.4.1.
    fn restart_from_idle(&mut self, window: &mut Window, now: Instant) {
        self.idle_restart = true;
        self.aggregation.begin(now);
        if self.state.is_probe_bw() {
            self.set_pacing_rate(100);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(window, now);
        }
    }

    fn set_pacing_rate(&mut self, gain: u64) {
        let rate = u128::from(self.bw) * u128::from(gain * (100 - PACING_MARGIN_PERCENT)) / 10_000;
        let rate = u64::try_from(rate).unwrap_or(INFINITE);
        if self.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// Section 5.6.3.
    fn send_quantum(&self, mss: u64) -> u64 {
        (self.pacing_rate / 1000).min(SEND_QUANTUM_BYTES).max(2 * mss)
    }

    fn bdp(&self) -> u64 {
        self.product(self.bw)
    }

    fn product(&self, bw: u64) -> u64 {
        if self.min_rtt_ns == INFINITE {
            return self.initial_cwnd;
        }
        let bytes = u128::from(bw) * u128::from(self.min_rtt_ns) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(INFINITE)
    }

    /// Section 5.6.4.2.
    fn with_budget(&self, inflight: u64, mss: u64) -> u64 {
        let budget = 3 * self.send_quantum(mss);
        let least = inflight.max(budget).max(MIN_PIPE_SEGMENTS * mss);
        least + if self.state == State::ProbeUp { 2 * mss } else { 0 }
    }

    fn inflight(&self, bw: u64, mss: u64) -> u64 {
        self.with_budget(self.product(bw), mss)
    }

    /// Section 5.3.3.9.
    fn inflight_with_headroom(&self, mss: u64) -> u64 {
        if self.inflight_longterm == INFINITE {
            return INFINITE;
        }
        let headroom = percent(self.inflight_longterm, HEADROOM_PERCENT).max(mss);
        self.inflight_longterm.saturating_sub(headroom).max(MIN_PIPE_SEGMENTS * mss)
    }

    fn save_cwnd(&mut self, window: &Window) {
        self.prior_cwnd = match self.recovering || self.state == State::ProbeRtt {
            false => window.cwnd_bytes,
            true => self.prior_cwnd.max(window.cwnd_bytes),
        };
    }

    fn restore_cwnd(&self, window: &mut Window) {
        window.cwnd_bytes = window.cwnd_bytes.max(self.prior_cwnd);
    }

    /// Section 5.5.11.1.
    fn save_state(&mut self, window: &Window) {
        self.save_cwnd(window);
        self.saved = Saved {
            state: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// Section 5.6.4.6.
    fn set_cwnd(&mut self, window: &mut Window, newly: u64) {
        let mss = u64::from(window.mss_bytes);
        let wanted = percent(self.bdp(), self.state.cwnd_gain());
        let wanted = wanted.saturating_add(self.aggregation.most());
        let most = self.with_budget(wanted, mss);
        let grown = window.cwnd_bytes + newly;
        if self.full_bw_reached {
            window.cwnd_bytes = grown.min(most);
        } else if window.cwnd_bytes < most || self.rate.delivered < self.initial_cwnd {
            window.cwnd_bytes = grown;
        }
        let least = MIN_PIPE_SEGMENTS * mss;
        window.cwnd_bytes = window.cwnd_bytes.max(least);
        if self.state == State::ProbeRtt {
            window.cwnd_bytes = window.cwnd_bytes.min(self.probe_rtt_cwnd(mss));
        }
        // section 5.6.4.7
        let cap = match self.state {
            State::ProbeCruise | State::ProbeRtt => self.inflight_with_headroom(mss),
            state if state.is_probe_bw() => self.inflight_longterm,
            _ => INFINITE,
        };
        let cap = cap.min(self.inflight_shortterm).max(least);
        window.cwnd_bytes = window.cwnd_bytes.min(cap);
    }

    fn update(&mut self, window: &mut Window, d: &DeliverySample, rs: &RateSample) {
        self.update_latest(rs);
        self.update_congestion_signals(window, rs, d.sack);
        self.update_aggregation(window, d.now, rs);
        self.check_full_bw(rs);
        self.check_startup_done(d, rs);
        self.check_drain_done(window, d);
        self.update_cycle(window, d, rs);
        self.update_min_rtt(d);
        self.check_probe_rtt(window, d);
        self.advance_latest(rs);
        self.bw = self.max_bw[0].max(self.max_bw[1]).min(self.bw_shortterm);
        self.set_pacing_rate(self.state.pacing_gain());
        self.set_cwnd(window, rs.newly);
    }
}

pub(super) static FACTORY: Factory = Factory { name: "bbr", make: |seed| Box::new(Bbr::new(seed)) };

impl Controller for Bbr {
    fn on_ack(&mut self, _window: &mut Window, _ack: &AckSample) {
        // `on_delivery` does it all
    }

    fn on_congestion(&mut self, window: &mut Window, _now: Instant, _in_flight_bytes: u64) {
        // section 5.6.4.4; what is lost came by `on_lost` before, and the state was saved then
        match self.loss_in_round || self.saved.state.is_some() {
            true => self.save_cwnd(window),
            false => self.save_state(window),
        }
    }

    fn on_timeout(&mut self, window: &mut Window, _now: Instant, _in_flight_bytes: u64) {
        self.save_state(window);
    }

    /// Section 5.5.11.2. The window was put back by the caller.
    fn on_undo(&mut self) {
        self.loss_in_round = false;
        self.reset_full_bw();
        self.bw_shortterm = self.bw_shortterm.max(self.saved.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.saved.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.saved.inflight_longterm);
        let was = self.saved.state.take();
        if was == Some(State::Startup) && self.state != State::Startup {
            self.full_bw_reached = false;
            if self.state != State::ProbeRtt {
                self.state = State::Startup;
            }
        } else if was == Some(State::ProbeUp)
            && self.state != State::ProbeUp
            && self.state != State::ProbeRtt
        {
            self.start_refill();
        }
    }

    fn on_idle(&mut self, _now: Instant) {
        // section 5.4: the window stays; the next transmission is paced by the model
    }

    fn pacing_bytes_per_s(&self) -> Option<u64> {
        (self.pacing_rate > 0).then_some(self.pacing_rate)
    }

    fn phase(&self, _window: &Window) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::ProbeDown => "probe-down",
            State::ProbeCruise => "probe-cruise",
            State::ProbeRefill => "probe-refill",
            State::ProbeUp => "probe-up",
            State::ProbeRtt => "probe-rtt",
        }
    }

    fn governs(&self) -> bool {
        true
    }

    fn on_transmit(&mut self, window: &mut Window, sent: &Transmit) {
        if self.initial_cwnd == 0 {
            self.begin(window, sent);
        } else if sent.in_flight_bytes <= sent.bytes && self.rate.is_app_limited() {
            self.restart_from_idle(window, sent.now);
        }
        self.rate.on_transmit(sent.now, sent.bytes, sent.in_flight_bytes);
    }

    fn on_app_limited(&mut self, in_flight_bytes: u64) {
        self.rate.mark_app_limited(in_flight_bytes);
    }

    fn on_lost(&mut self, window: &mut Window, loss: &LossSample) {
        self.rate.lost += loss.bytes;
        self.note_loss(window);
        let Some(sent) = loss.sent_at.and_then(|at| self.rate.sent_at(at)).copied() else { return };
        let lost = self.rate.lost - sent.lost;
        if self.probe_sample && is_too_high(lost, sent.in_flight, loss.sack) {
            self.on_too_high(window, loss, sent.in_flight, lost, sent.app_limited);
        }
    }

    /// A mark (RFC 3168), of which the draft says nothing, is taken for a round with loss, and
    /// while probing for too much in flight.
    fn on_mark(&mut self, window: &mut Window, now: Instant, in_flight_bytes: u64) {
        self.note_loss(window);
        self.marked = true;
        if self.probe_sample {
            self.too_high(window, now, in_flight_bytes, false);
        }
    }

    fn on_delivery(&mut self, window: &mut Window, d: &DeliverySample) {
        self.recovering = d.recovering;
        let sample = self.rate.on_delivery(d.now, d.bytes, d.newest_at, d.oldest_at, d.min_rtt);
        if let Some(rs) = sample {
            self.update(window, d, &rs);
        }
    }

    fn on_recovered(&mut self, window: &mut Window) {
        self.recovering = false;
        self.saved.state = None;
        self.restore_cwnd(window);
    }
}

/// Section 5.5.10.2.
fn is_too_high(lost: u64, in_flight: u64, sack: bool) -> bool {
    lost > percent(in_flight, LOSS_THRESHOLD_PERCENT) || lost > 0 && !sack
}

#[cfg(test)]
#[path = "../../tests/bbr.rs"]
mod tests;
