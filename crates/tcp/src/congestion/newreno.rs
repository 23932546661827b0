//! NewReno: RFC 5681 growth; the recovery of RFC 6582 is the machine's own.

use millstream_packet::Instant;

use super::{AckSample, Controller, Factory, Window};

/// One segment per round trip above the threshold, half on loss.
#[derive(Debug, Default)]
pub struct NewReno {
    /// Bytes acknowledged towards the next segment of growth (RFC 5681 3.1, byte counting of RFC
    /// 3465).
    counted: u64,
}

pub(super) static FACTORY: Factory =
    Factory { name: "reno", make: |_seed| Box::new(NewReno::default()) };

impl Controller for NewReno {
    fn may_pace(&self) -> bool {
        false
    }

    fn on_ack(&mut self, window: &mut Window, ack: &AckSample) {
        if !ack.cwnd_limited {
            return;
        }
        let mut acked = ack.acked_bytes;
        if window.in_slow_start() {
            // RFC 5681 3.1; one ACK may stand for a merged burst, so all it acknowledges counts.
            let grown = (window.cwnd_bytes + acked).min(window.ssthresh_bytes);
            acked -= grown - window.cwnd_bytes;
            window.cwnd_bytes = grown;
        }
        self.counted += acked;
        // RFC 5681 3.1: one segment for every window of bytes acknowledged
        while self.counted >= window.cwnd_bytes {
            self.counted -= window.cwnd_bytes;
            window.cwnd_bytes += u64::from(window.mss_bytes);
        }
    }

    fn on_congestion(&mut self, window: &mut Window, _now: Instant, in_flight_bytes: u64) {
        // RFC 5681 equation 4; in whole segments, for a part of one would never be sent but slow
        // the growth
        let mss = u64::from(window.mss_bytes.max(1));
        window.ssthresh_bytes = (in_flight_bytes / 2 / mss * mss).max(window.minimum());
        self.counted = 0;
    }

    fn on_timeout(&mut self, window: &mut Window, now: Instant, in_flight_bytes: u64) {
        self.on_congestion(window, now, in_flight_bytes);
    }

    fn on_undo(&mut self) {
        self.counted = 0;
    }

    fn on_idle(&mut self, _now: Instant) {
        self.counted = 0;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use core::time::Duration;

    pub(crate) fn sample(now: Instant, acked_bytes: u64) -> AckSample {
        AckSample {
            now,
            acked_bytes,
            in_flight_bytes: 1 << 20,
            cwnd_limited: true,
            rtt: Some(Duration::from_millis(10)),
            srtt: Duration::from_millis(10),
            una: 1,
            nxt: 1 << 20,
        }
    }

    #[test]
    fn doubles_then_adds_a_segment_per_window() {
        let mut reno = NewReno::default();
        let mut window = Window { cwnd_bytes: 10_000, ssthresh_bytes: 20_000, mss_bytes: 1000 };
        reno.on_ack(&mut window, &sample(Instant::ZERO, 10_000));
        assert_eq!(window.cwnd_bytes, 20_000);
        for _ in 0..20 {
            reno.on_ack(&mut window, &sample(Instant::ZERO, 1000));
        }
        assert_eq!(window.cwnd_bytes, 21_000);
        reno.on_congestion(&mut window, Instant::ZERO, 21_000);
        assert_eq!(window.ssthresh_bytes, 10_000);
        reno.on_congestion(&mut window, Instant::ZERO, 1_000);
        assert_eq!(window.ssthresh_bytes, 2_000);
    }

    #[test]
    fn does_not_grow_when_something_else_holds_the_sender_back() {
        let mut reno = NewReno::default();
        let mut window = Window { cwnd_bytes: 10_000, ssthresh_bytes: 20_000, mss_bytes: 1000 };
        reno.on_ack(
            &mut window,
            &AckSample { cwnd_limited: false, ..sample(Instant::ZERO, 10_000) },
        );
        assert_eq!(window.cwnd_bytes, 10_000);
    }
}
