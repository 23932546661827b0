//! BBR, version 1: what Linux has under the name of `bbr`
//! (draft-cardwell-iccrg-bbr-congestion-control-00; sections are of that text, and where Linux
//! departs from it the comment says so). It believes the largest rate of delivery of ten round
//! trips and the least round trip of ten seconds, and takes no loss for congestion: it holds its
//! rate where version 3 gives way, and costs those beside it more. Its sampling for policers is
//! left out.
//!
//! Rates are bytes a second, gains are percent, round trips nanoseconds.

use core::time::Duration;

use millstream_packet::Instant;

use millstream_tcp::congestion::{
    AckSample, Aggregation, Controller, DeliverySample, Factory, LossSample, Random, RateSample,
    RateSampler, Transmit, Window, percent,
};

/// 2/ln 2, and its reciprocal: the least gain that doubles the rate every round trip, and what
/// drains after it.
const HIGH_GAIN: u64 = 289;
const DRAIN_GAIN: u64 = 35;
const CWND_GAIN: u64 = 200;
/// Section 4.3.4.2: the cycle of gains, a round trip each.
const CYCLE: [u64; 8] = [125, 75, 100, 100, 100, 100, 100, 100];
/// Linux: paced this much below the estimate, so that no queue is built by rounding.
const PACING_MARGIN_PERCENT: u64 = 1;
const BW_ROUNDS: usize = 10;
const FULL_BW_ROUNDS: u8 = 3;
const MIN_PIPE_SEGMENTS: u64 = 4;
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
pub(crate) const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Linux: rounds over which the largest aggregate of ACKs is kept, and the longest it may stand
/// for.
const EXTRA_ROUNDS: u8 = 5;
const EXTRA_LIMIT: Duration = Duration::from_millis(100);
const SEND_QUANTUM_BYTES: u64 = 64 * 1024;

/// Section 3.4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// Where loss recovery stands: Linux's congestion state, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recovery {
    None,
    Fast,
    TimedOut,
}

/// The controller. Connections get one each by [`BBR1`]:
///
/// ```
/// use millstream_control::BBR1;
/// use millstream_tcp::Config;
///
/// let config = Config::default().congestion(BBR1.kind());
/// assert_eq!(config.congestion.name(), "bbr1");
/// ```
#[derive(Debug)]
pub struct Bbr1 {
    rate: RateSampler,
    pub(crate) state: State,
    pacing_rate: u64,
    /// Window at the start; zero before anything was sent.
    initial_cwnd: u64,
    /// Largest rate of rounds, each beside its round's number, and of those that are not too old.
    pub(crate) bw_by_round: [(u64, u64); BW_ROUNDS],
    pub(crate) bw: u64,
    pub(crate) round: u64,
    pub(crate) round_start: bool,
    next_round_delivered: u64,
    /// Zero: none yet.
    pub(crate) min_rtt_ns: u64,
    min_rtt_at: Instant,
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    prior_cwnd: u64,
    full_bw: u64,
    full_bw_count: u8,
    full_bw_reached: bool,
    cycle: usize,
    cycle_at: Instant,
    /// Lost since the last ACK was taken.
    lost_bytes: u64,
    /// As it stands, and as it stood when the last ACK had been taken: a recovery that ends with an
    /// ACK and another that begins with it are one.
    recovery: Recovery,
    recovery_before: Recovery,
    /// In the first round of a recovery no more is sent than arrives.
    pub(crate) conserving: bool,
    aggregation: Aggregation,
    random: Random,
}

impl Bbr1 {
    /// Starts in Startup. Equal seeds give equal behaviour.
    pub fn new(seed: u64) -> Self {
        Bbr1 {
            rate: RateSampler::default(),
            state: State::Startup,
            pacing_rate: 0,
            initial_cwnd: 0,
            bw_by_round: [(0, 0); BW_ROUNDS],
            bw: 0,
            round: 0,
            round_start: false,
            next_round_delivered: 0,
            min_rtt_ns: 0,
            min_rtt_at: Instant::ZERO,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            prior_cwnd: 0,
            full_bw: 0,
            full_bw_count: 0,
            full_bw_reached: false,
            cycle: 0,
            cycle_at: Instant::ZERO,
            lost_bytes: 0,
            recovery: Recovery::None,
            recovery_before: Recovery::None,
            conserving: false,
            aggregation: Aggregation::default(),
            random: Random::new(seed),
        }
    }

    fn pacing_gain(&self) -> u64 {
        match self.state {
            State::Startup => HIGH_GAIN,
            State::Drain => DRAIN_GAIN,
            State::ProbeBw => CYCLE[self.cycle],
            State::ProbeRtt => 100,
        }
    }

    fn cwnd_gain(&self) -> u64 {
        match self.state {
            State::Startup | State::Drain => HIGH_GAIN,
            State::ProbeBw => CWND_GAIN,
            State::ProbeRtt => 100,
        }
    }

    /// Section 4.2.1.
    fn begin(&mut self, window: &Window, sent: &Transmit) {
        self.initial_cwnd = window.cwnd_bytes.max(1);
        self.min_rtt_at = sent.now;
        self.aggregation.begin(sent.now);
        self.min_rtt_ns = sent.srtt.as_nanos() as u64;
        let rtt_ns = match self.min_rtt_ns {
            0 => 1_000_000,
            ns => ns,
        };
        let rate = u128::from(self.initial_cwnd) * 1_000_000_000 / u128::from(rtt_ns);
        self.pacing_rate = percent(rate as u64, HIGH_GAIN);
    }

    fn set_pacing_rate(&mut self, gain: u64) {
        let rate = percent(percent(self.bw, gain), 100 - PACING_MARGIN_PERCENT);
        if self.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// Section 4.2.3.2, with the allowance for what is handed down at once.
    fn inflight(&self, gain: u64, mss: u64) -> u64 {
        if self.min_rtt_ns == 0 {
            return self.initial_cwnd;
        }
        let bytes = u128::from(self.bw) * u128::from(self.min_rtt_ns) / 1_000_000_000;
        let quantum = (self.pacing_rate / 1000).min(SEND_QUANTUM_BYTES).max(2 * mss);
        let pairs = percent(bytes as u64, gain).saturating_add(3 * quantum).div_ceil(2 * mss);
        let probing = self.state == State::ProbeBw && self.cycle == 0;
        2 * mss * (pairs + u64::from(probing))
    }

    fn save_cwnd(&mut self, window: &Window) {
        let reduced = self.recovery_before != Recovery::None || self.state == State::ProbeRtt;
        self.prior_cwnd = match reduced {
            false => window.cwnd_bytes,
            true => self.prior_cwnd.max(window.cwnd_bytes),
        };
    }

    /// Section 4.1.1.3, and rounds by section 4.1.1.1.
    fn update_bw(&mut self, rs: &RateSample) {
        // what was sent again, and arrives in less than a round trip, is the original: it says
        // nothing of a round
        self.round_start = rs.bytes_per_s > 0 && rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.next_round_delivered = self.rate.delivered;
            self.round += 1;
            self.conserving = false;
        }
        if rs.bytes_per_s >= self.bw || !rs.app_limited {
            self.filter_bw(rs.bytes_per_s);
        }
    }

    /// The largest of the last rounds. An old rate is forgotten only when another takes its place
    /// (as in Linux): the rounds of ProbeRTT, which are short and say nothing of the path, would
    /// else leave nothing to go on with.
    fn filter_bw(&mut self, bytes_per_s: u64) {
        let slot = &mut self.bw_by_round[self.round as usize % BW_ROUNDS];
        let same_round = slot.0 == self.round;
        *slot = (self.round, if same_round { slot.1.max(bytes_per_s) } else { bytes_per_s });
        let oldest = (self.round + 1).saturating_sub(BW_ROUNDS as u64);
        let kept = self.bw_by_round.iter().filter(|(round, _)| *round >= oldest);
        self.bw = kept.map(|(_, bw)| *bw).max().unwrap_or(0);
    }

    /// Linux: how much more than the estimate a burst of ACKs delivered, of the last five to ten
    /// rounds.
    fn update_aggregation(&mut self, window: &Window, now: Instant, rs: &RateSample) {
        if self.round_start {
            self.aggregation.round_begins(EXTRA_ROUNDS);
        }
        self.aggregation.on_delivery(now, rs.newly, self.bw, window.cwnd_bytes);
    }

    /// Section 4.3.4.3.
    fn update_cycle(&mut self, d: &DeliverySample, mss: u64) {
        if self.state != State::ProbeBw {
            return;
        }
        let passed = d.now.saturating_duration_since(self.cycle_at).as_nanos();
        let whole = passed > u128::from(self.min_rtt_ns);
        let before = d.in_flight_bytes + d.bytes;
        let gain = self.pacing_gain();
        let over = match gain {
            100 => whole,
            up if up > 100 => whole && (self.lost_bytes > 0 || before >= self.inflight(up, mss)),
            _ => whole || before <= self.inflight(100, mss),
        };
        if over {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_at = d.now;
        }
    }

    fn start_probe_bw(&mut self, now: Instant) {
        self.state = State::ProbeBw;
        // at random, but not where it drains
        self.cycle = match self.random.below(CYCLE.len() as u64 - 1) as usize {
            0 => 0,
            later => later + 1,
        };
        self.cycle_at = now;
    }

    /// Sections 4.3.2.2 and 4.3.3.
    fn check_full_bw(&mut self, d: &DeliverySample, rs: &RateSample, mss: u64) {
        if !self.full_bw_reached && self.round_start && !rs.app_limited {
            if self.bw >= percent(self.full_bw, 125) {
                self.full_bw = self.bw;
                self.full_bw_count = 0;
            } else {
                self.full_bw_count += 1;
                self.full_bw_reached = self.full_bw_count >= FULL_BW_ROUNDS;
            }
        }
        if self.state == State::Startup && self.full_bw_reached {
            self.state = State::Drain;
        }
        if self.state == State::Drain && d.in_flight_bytes <= self.inflight(100, mss) {
            self.start_probe_bw(d.now);
        }
    }

    /// Sections 4.1.2.3 and 4.3.5.
    fn update_min_rtt(&mut self, window: &mut Window, d: &DeliverySample) {
        let expired = d.now > self.min_rtt_at + MIN_RTT_FILTER;
        if let Some(rtt) = d.rtt {
            let rtt_ns = (rtt.as_nanos() as u64).max(1);
            if self.min_rtt_ns == 0 || rtt_ns < self.min_rtt_ns || expired {
                self.min_rtt_ns = rtt_ns;
                self.min_rtt_at = d.now;
            }
        }
        if expired && !self.idle_restart && self.state != State::ProbeRtt {
            self.state = State::ProbeRtt;
            // what it was before a recovery, too, if that was more
            self.save_cwnd(window);
            self.probe_rtt_done = None;
        }
        if self.state == State::ProbeRtt {
            self.rate.mark_app_limited(d.in_flight_bytes);
            if self.probe_rtt_done.is_some() {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done {
                    self.check_probe_rtt_done(window, d.now);
                }
            } else if d.in_flight_bytes <= MIN_PIPE_SEGMENTS * u64::from(window.mss_bytes) {
                self.probe_rtt_done = Some(d.now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.next_round_delivered = self.rate.delivered;
            }
        }
        self.idle_restart = false;
    }

    fn check_probe_rtt_done(&mut self, window: &mut Window, now: Instant) {
        if self.probe_rtt_done.is_none_or(|at| now <= at) {
            return;
        }
        self.min_rtt_at = now;
        window.cwnd_bytes = window.cwnd_bytes.max(self.prior_cwnd);
        match self.full_bw_reached {
            true => self.start_probe_bw(now),
            false => self.state = State::Startup,
        }
    }

    /// Section 4.2.3.4: what is lost goes off; in the first round of a recovery, packet
    /// conservation; at the end of the last the window from before. As Linux, which looks at where
    /// recovery stands once an ACK: on a long path with much loss one recovery follows the other,
    /// and conservation in the first round of each would end Startup early.
    fn recover_or_restore(&mut self, window: &mut Window, d: &DeliverySample, newly: u64) {
        let mss = u64::from(window.mss_bytes);
        let lost = std::mem::take(&mut self.lost_bytes);
        window.cwnd_bytes = window.cwnd_bytes.saturating_sub(lost).max(mss);
        match (self.recovery_before, self.recovery) {
            (Recovery::None | Recovery::TimedOut, Recovery::Fast) => {
                self.conserving = true;
                self.next_round_delivered = self.rate.delivered;
                window.cwnd_bytes = (d.in_flight_bytes + newly).max(mss);
            }
            (Recovery::Fast | Recovery::TimedOut, Recovery::None) => {
                self.conserving = false;
                window.cwnd_bytes = window.cwnd_bytes.max(self.prior_cwnd);
            }
            _ => {}
        }
        self.recovery_before = self.recovery;
    }

    /// Section 4.2.3.
    fn set_cwnd(&mut self, window: &mut Window, d: &DeliverySample, rs: &RateSample) {
        let mss = u64::from(window.mss_bytes);
        self.recover_or_restore(window, d, rs.newly);
        if self.conserving {
            window.cwnd_bytes = window.cwnd_bytes.max(d.in_flight_bytes + rs.newly);
        } else {
            let most = u128::from(self.bw) * EXTRA_LIMIT.as_nanos() / 1_000_000_000;
            let extra = self.aggregation.most().min(most as u64);
            let extra = if self.full_bw_reached { extra } else { 0 };
            let target = self.inflight(self.cwnd_gain(), mss).saturating_add(extra);
            let grown = window.cwnd_bytes + rs.newly;
            if self.full_bw_reached {
                window.cwnd_bytes = grown.min(target);
            } else if window.cwnd_bytes < target || self.rate.delivered < self.initial_cwnd {
                window.cwnd_bytes = grown;
            }
            window.cwnd_bytes = window.cwnd_bytes.max(MIN_PIPE_SEGMENTS * mss);
        }
        if self.state == State::ProbeRtt {
            window.cwnd_bytes = window.cwnd_bytes.min(MIN_PIPE_SEGMENTS * mss);
        }
    }
}

/// Makes version 1 of BBR. Paces always.
pub static BBR1: Factory = Factory { name: "bbr1", make: |seed| Box::new(Bbr1::new(seed)) };

impl Controller for Bbr1 {
    fn on_ack(&mut self, _window: &mut Window, _ack: &AckSample) {
        // `on_delivery` does it all
    }

    fn on_congestion(&mut self, window: &mut Window, _now: Instant, _in_flight_bytes: u64) {
        self.save_cwnd(window);
        self.recovery = Recovery::Fast;
    }

    fn on_timeout(&mut self, window: &mut Window, _now: Instant, _in_flight_bytes: u64) {
        self.save_cwnd(window);
        (self.recovery, self.recovery_before) = (Recovery::TimedOut, Recovery::TimedOut);
        self.full_bw = 0;
        self.lost_bytes = 0;
    }

    /// The window was put back by the caller.
    fn on_undo(&mut self) {
        self.full_bw = 0;
        self.full_bw_count = 0;
    }

    fn on_idle(&mut self, _now: Instant) {
        // section 4.3.4.4: the window stays; the next transmission is paced by the model
    }

    fn pacing_bytes_per_s(&self) -> Option<u64> {
        (self.pacing_rate > 0).then_some(self.pacing_rate)
    }

    fn phase(&self, _window: &Window) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::ProbeBw => "probe-bw",
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
            self.idle_restart = true;
            self.aggregation.begin_anew(sent.now);
            match self.state {
                State::ProbeBw => self.set_pacing_rate(100),
                State::ProbeRtt => self.check_probe_rtt_done(window, sent.now),
                _ => {}
            }
        }
        self.rate.on_transmit(sent.now, sent.bytes, sent.in_flight_bytes);
    }

    fn on_app_limited(&mut self, in_flight_bytes: u64) {
        self.rate.mark_app_limited(in_flight_bytes);
    }

    fn on_lost(&mut self, _window: &mut Window, loss: &LossSample) {
        self.rate.lost += loss.bytes;
        self.lost_bytes += loss.bytes;
    }

    fn on_delivery(&mut self, window: &mut Window, d: &DeliverySample) {
        let sample = self.rate.on_delivery(d.now, d.bytes, d.newest_at, d.oldest_at, d.min_rtt);
        let Some(rs) = sample else { return };
        let mss = u64::from(window.mss_bytes);
        self.update_bw(&rs);
        self.update_aggregation(window, d.now, &rs);
        self.update_cycle(d, mss);
        self.check_full_bw(d, &rs, mss);
        self.update_min_rtt(window, d);
        self.set_pacing_rate(self.pacing_gain());
        self.set_cwnd(window, d, &rs);
    }

    fn on_recovered(&mut self, _window: &mut Window) {
        self.recovery = Recovery::None;
    }

    /// Version 1 knows no marks.
    fn on_mark(&mut self, _window: &mut Window, _now: Instant, _in_flight_bytes: u64) {}
}
