//! HyStart++ (RFC 9406): leave slow start when the round trip grows, before a queue overflows.

use super::{AckSample, Window};

/// RFC 9406 4.3.
const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
const RTT_SAMPLES: u8 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u8 = 5;

/// Watches the round trips of slow start. Times in microseconds; zero where nothing is known.
#[derive(Debug, Default)]
pub(crate) struct HyStart {
    /// The round ends when this offset is acknowledged.
    round_end: u64,
    last_min_us: u32,
    current_min_us: u32,
    /// In conservative slow start: the least round trip when it began.
    baseline_us: u32,
    samples: u8,
    /// Rounds of conservative slow start.
    rounds: u8,
}

impl HyStart {
    /// Grows `window` for `acked_bytes` in slow start; ends it by lowering the threshold.
    pub(crate) fn grow(&mut self, window: &mut Window, ack: &AckSample, acked_bytes: u64) {
        if ack.una > self.round_end {
            self.begin_round(window, ack);
        }
        if let Some(rtt) = ack.rtt {
            let rtt_us = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX).max(1);
            self.current_min_us = match self.current_min_us {
                0 => rtt_us,
                min => min.min(rtt_us),
            };
            self.samples = self.samples.saturating_add(1);
        }
        self.judge();
        window.cwnd_bytes += match self.baseline_us {
            0 => acked_bytes,
            _ => acked_bytes / CSS_GROWTH_DIVISOR,
        };
    }

    fn begin_round(&mut self, window: &mut Window, ack: &AckSample) {
        self.round_end = ack.nxt;
        self.last_min_us = std::mem::take(&mut self.current_min_us);
        self.samples = 0;
        if self.baseline_us > 0 {
            self.rounds += 1;
            if self.rounds >= CSS_ROUNDS {
                // RFC 9406 4.2: enter congestion avoidance
                window.ssthresh_bytes = window.cwnd_bytes;
            }
        }
    }

    fn judge(&mut self) {
        let (current, last) = (self.current_min_us, self.last_min_us);
        if self.samples < RTT_SAMPLES {
            return;
        }
        if self.baseline_us > 0 {
            if current < self.baseline_us {
                // RFC 9406 4.2: the round trip fell again; it was no queue
                self.baseline_us = 0;
            }
        } else if last > 0
            && current
                >= last.saturating_add((last / 8).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US))
        {
            self.baseline_us = current;
            self.rounds = 0;
        }
    }

    /// Slow start ended, by loss or otherwise.
    pub(crate) fn reset(&mut self) {
        *self = HyStart::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::newreno::tests::sample;
    use super::*;
    use core::time::Duration;
    use millstream_packet::Instant;

    fn round(hystart: &mut HyStart, window: &mut Window, number: u64, rtt_ms: u64) {
        for i in 0..10u64 {
            let at = (number * 10 + i) * 1000;
            let ack = AckSample {
                rtt: Some(Duration::from_millis(rtt_ms)),
                una: at + 1,
                nxt: at + 10_000,
                ..sample(Instant::ZERO, 1000)
            };
            hystart.grow(window, &ack, 1000);
        }
    }

    #[test]
    fn a_growing_round_trip_ends_slow_start_and_a_steady_one_does_not() {
        let start = Window { cwnd_bytes: 10_000, ssthresh_bytes: u64::MAX, mss_bytes: 1000 };
        let (mut steady, mut window) = (HyStart::default(), start);
        for number in 0..20 {
            round(&mut steady, &mut window, number, 20);
        }
        assert_eq!((window.cwnd_bytes, window.ssthresh_bytes), (210_000, u64::MAX));
        let (mut growing, mut window) = (HyStart::default(), start);
        for number in 0..20 {
            round(&mut growing, &mut window, number, 20 + 5 * number);
        }
        assert!(window.ssthresh_bytes < 80_000, "{}", window.ssthresh_bytes);
    }

    #[test]
    fn one_late_round_is_forgiven() {
        let mut window = Window { cwnd_bytes: 10_000, ssthresh_bytes: u64::MAX, mss_bytes: 1000 };
        let mut hystart = HyStart::default();
        for (number, rtt_ms) in [20, 20, 40, 20, 20, 20, 20, 20, 20, 20].into_iter().enumerate() {
            round(&mut hystart, &mut window, number as u64, rtt_ms);
        }
        assert_eq!(window.ssthresh_bytes, u64::MAX);
    }
}
