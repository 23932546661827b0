//! CUBIC (RFC 9438). Windows inside are in segments, as in the RFC.

use millstream_packet::Instant;

use super::hystart::HyStart;
use super::{AckSample, Controller, Factory, Window};

/// RFC 9438 4.1.2: multiplicative decrease.
const BETA: f64 = 0.7;
/// RFC 9438 5: aggressiveness, segments/s³.
const C: f64 = 0.4;
/// RFC 9438 4.3: additive increase of the Reno-friendly estimate until it reaches the window before
/// the loss.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// A cubic function of the time since the last congestion, with its plateau where that congestion
/// was.
///
/// Values set once per congestion are kept in single precision; what grows with every ACK in
/// double.
#[derive(Debug, Default)]
pub struct Cubic {
    /// Window just before the last reduction, in segments.
    w_max: f32,
    /// Window at the last reduction, before it; where the Reno estimate speeds up.
    cwnd_prior: f32,
    /// Seconds from the epoch to the plateau.
    k_s: f32,
    /// Part of a byte not yet added.
    fraction: f32,
    /// Estimate of what Reno would have.
    w_est: f64,
    /// Start of the present stage of growth; zero between stages.
    epoch: Instant,
    /// `w_max` and `cwnd_prior` before the last reduction.
    undo: [f32; 2],
    hystart: HyStart,
}

impl Cubic {
    fn begin_epoch(&mut self, now: Instant, cwnd: f64) {
        self.epoch = now.max(Instant::from_nanos(1));
        self.w_est = cwnd;
        if f64::from(self.w_max) <= cwnd {
            // RFC 9438 4.8: no plateau ahead
            self.k_s = 0.0;
            self.w_max = cwnd as f32;
        } else {
            // RFC 9438 equation 2
            self.k_s = ((f64::from(self.w_max) - cwnd) / C).cbrt() as f32;
        }
    }

    fn avoid(&mut self, window: &mut Window, ack: &AckSample, acked_bytes: u64) {
        let mss = f64::from(window.mss_bytes);
        let cwnd = window.cwnd_bytes as f64 / mss;
        let acked = acked_bytes as f64 / mss;
        if self.epoch == Instant::ZERO {
            self.begin_epoch(ack.now, cwnd);
        }
        let (w_max, k_s) = (f64::from(self.w_max), f64::from(self.k_s));
        let t = ack.now.saturating_duration_since(self.epoch).as_secs_f64();
        // RFC 9438 4.2: the value one round trip ahead, between cwnd and 1.5 cwnd
        let at = t + ack.srtt.as_secs_f64() - k_s;
        let target = (C * at * at * at + w_max).clamp(cwnd, 1.5 * cwnd);
        // RFC 9438 4.3
        let alpha = if self.w_est >= f64::from(self.cwnd_prior) { 1.0 } else { ALPHA };
        self.w_est += alpha * acked / cwnd;
        let now_at = t - k_s;
        let w_cubic = C * now_at * now_at * now_at + w_max;
        let grown = if w_cubic < self.w_est {
            self.w_est.max(cwnd)
        } else {
            // RFC 9438 4.4 and 4.5
            cwnd + (target - cwnd) / cwnd * acked
        };
        // Never more than half of what was acknowledged: the bound of 1.5 windows a round trip.
        let step = ((grown - cwnd) * mss).min(acked_bytes as f64 / 2.0).max(0.0)
            + f64::from(self.fraction);
        window.cwnd_bytes += step as u64;
        self.fraction = (step - step.trunc()) as f32;
    }

    fn reduce(&mut self, window: &mut Window, in_flight_bytes: u64) {
        let mss = f64::from(window.mss_bytes);
        let cwnd = (window.cwnd_bytes as f64 / mss) as f32;
        self.undo = [self.w_max, self.cwnd_prior];
        self.epoch = Instant::ZERO;
        self.hystart.reset();
        self.cwnd_prior = cwnd;
        // RFC 9438 4.7, fast convergence
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA as f32) / 2.0 } else { cwnd };
        // RFC 9438 4.6: from the window, but a window that was not used counts only as far as it
        // was
        let used = window.cwnd_bytes.min(in_flight_bytes.max(window.cwnd_bytes / 2));
        window.ssthresh_bytes = ((used as f64 * BETA) as u64).max(window.minimum());
    }
}

pub(super) static FACTORY: Factory =
    Factory { name: "cubic", make: |_seed| Box::new(Cubic::default()) };

impl Controller for Cubic {
    fn may_pace(&self) -> bool {
        false
    }

    fn on_ack(&mut self, window: &mut Window, ack: &AckSample) {
        if !ack.cwnd_limited {
            return;
        }
        let mut acked = ack.acked_bytes;
        if window.in_slow_start() {
            let into = acked.min(window.ssthresh_bytes - window.cwnd_bytes);
            acked -= into;
            self.hystart.grow(window, ack, into);
        }
        if acked > 0 {
            self.avoid(window, ack, acked);
        }
    }

    fn on_congestion(&mut self, window: &mut Window, _now: Instant, in_flight_bytes: u64) {
        self.reduce(window, in_flight_bytes);
    }

    fn on_timeout(&mut self, window: &mut Window, _now: Instant, in_flight_bytes: u64) {
        self.reduce(window, in_flight_bytes);
    }

    fn on_undo(&mut self) {
        [self.w_max, self.cwnd_prior] = self.undo;
        self.epoch = Instant::ZERO;
    }

    fn on_idle(&mut self, _now: Instant) {
        // RFC 9438 4.2: time without sending is not time of growth
        self.epoch = Instant::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::super::newreno::tests::sample;
    use super::*;
    use core::time::Duration;

    #[test]
    fn returns_to_the_plateau_in_k_seconds() {
        let mut cubic = Cubic::default();
        let mut window =
            Window { cwnd_bytes: 1_000_000, ssthresh_bytes: 1_000_000, mss_bytes: 1000 };
        cubic.on_congestion(&mut window, Instant::ZERO, 1_000_000);
        assert_eq!(window.ssthresh_bytes, 700_000);
        window.cwnd_bytes = window.ssthresh_bytes;
        let k_s = (300.0f64 / 0.4).cbrt();
        let mut now = Instant::ZERO;
        // a full window acknowledged in every round trip of 100 ms
        while now < Instant::ZERO + Duration::from_secs_f64(k_s) {
            let per_ack = window.cwnd_bytes / 20;
            for _ in 0..20 {
                let srtt = Duration::from_millis(100);
                cubic.on_ack(&mut window, &AckSample { srtt, ..sample(now, per_ack) });
            }
            now += Duration::from_millis(100);
        }
        let cwnd = window.cwnd_bytes as f64 / 1_000_000.0;
        assert!((0.97..1.03).contains(&cwnd), "{cwnd}");
    }

    #[test]
    fn is_at_least_as_fast_as_reno_on_a_small_window() {
        let mut cubic = Cubic::default();
        let mut window = Window { cwnd_bytes: 10_000, ssthresh_bytes: 10_000, mss_bytes: 1000 };
        cubic.on_congestion(&mut window, Instant::ZERO, 10_000);
        window.cwnd_bytes = window.ssthresh_bytes;
        let mut now = Instant::ZERO;
        for _ in 0..60 {
            let cwnd = window.cwnd_bytes;
            cubic.on_ack(&mut window, &sample(now, cwnd));
            now += Duration::from_millis(10);
        }
        // 60 round trips at 0.53, later 1 segment each
        assert!(window.cwnd_bytes > 7_000 + 30_000, "{}", window.cwnd_bytes);
    }
}
