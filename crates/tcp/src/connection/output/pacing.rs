//! The rate at which data leaves, and whether it is time for the next.

use core::time::Duration;

use millstream_packet::Instant;

use crate::connection::Connection;

/// Longest burst.
const BURST: Duration = Duration::from_millis(1);

impl Connection {
    /// Bytes a second at which data leaves now; none: as the window allows. Where the controller
    /// sets none, it is the window in a round trip and a part more, so that the window stays what
    /// limits: twice in slow start, a fifth above it (as Linux does).
    #[inline]
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        if let Some(rate) = self.congestion.pacing_bytes_per_s() {
            return Some(rate.max(1));
        }
        if !self.config.pacing {
            return None;
        }
        let srtt_ns = self.rtt.srtt().as_nanos();
        if srtt_ns == 0 {
            return None;
        }
        let percent = match self.window.cwnd_bytes < self.window.ssthresh_bytes / 2 {
            true => 200,
            false => 120,
        };
        let rate = u128::from(self.window.cwnd_bytes) * percent * 10_000_000 / srtt_ns;
        Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// Returns whether what is sent is spread over time.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.config.pacing || self.congestion.may_pace()
    }

    /// Most payload in one burst, at least two segments.
    #[inline(never)]
    pub(crate) fn pacing_burst(&self, mss: u64) -> u64 {
        self.pacing_rate().map_or(u64::MAX, |rate| {
            let bytes = u128::from(rate) * BURST.as_nanos() / 1_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX).max(2 * mss)
        })
    }

    /// Returns whether data must wait for its time; if so, that time is a deadline of the
    /// connection.
    #[inline]
    pub(crate) fn held_by_pace(&mut self, now: Instant) -> bool {
        let held = self.pacer.hold(now);
        // where the rate follows from the window, to wait for it is to be limited by the window
        if held && !self.congestion.governs() {
            self.snd.set_cwnd_limited(true);
        }
        held
    }

    /// `bytes` were sent: the next may follow when they have had their time.
    #[inline]
    pub(crate) fn pace(&mut self, now: Instant, bytes: u64) {
        if !self.is_paced() {
            return;
        }
        let Some(rate) = self.pacing_rate() else { return };
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let took = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(self.rtt.rto());
        self.pacer.put_off(now, took);
    }
}
