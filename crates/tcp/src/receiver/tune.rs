//! How large the receive buffer is, and how much of it the window uses: dynamic right-sizing by
//! what the application reads in a round trip (Fisk and Feng, 2001).

use millstream_packet::Instant;

use super::Receiver;
use crate::config::Config;
use crate::rtt::RttEstimator;
use crate::tuning::{
    TUNE_BASE_BYTES, WINDOW_BASE_BYTES, WINDOW_SHARE_MIN_BYTES, WINDOW_SLACK_BYTES,
};

/// By how much the allowance of a receive window grows beyond [`TUNE_BASE_BYTES`] each time that
/// too little is left of the window, and after how many other reads that is taken back.
const SLACK_STEP_BYTES: u32 = 128 * 1024;
const SLACK_STEP_READS: u32 = 512;

/// A peer's initial window (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;

/// Payload per 256 bytes of memory held, as observed.
/// Packed as [`Pacer`](crate::pacer::Pacer) is.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed)]
pub(super) struct Density {
    /// Moving sums: payload that arrived, and memory that the queue grew by.
    mean_len: u32,
    mean_held: u32,
    value: u8,
}

impl Density {
    pub(super) fn new() -> Density {
        Density { mean_len: 160 * 256, mean_held: 256 * 256, value: 160 }
    }

    /// `len` bytes arrived and the queue grew by `held` (nothing, where they fitted into a frame
    /// that was there).
    #[inline(always)]
    pub(super) fn observe(&mut self, len: usize, held: usize) {
        let before = (self.mean_len, self.mean_held);
        self.mean_len = self.mean_len - self.mean_len / 16 + (len as u32).min(1 << 17);
        self.mean_held = self.mean_held - self.mean_held / 16 + (held as u32).min(1 << 17);
        if before == (self.mean_len, self.mean_held) {
            // what comes is always the same: not worth a division
            return;
        }
        self.value = (self.mean_len * 256 / self.mean_held.max(1)).clamp(32, 248) as u8;
    }

    /// Payload that so much memory can take.
    #[inline(always)]
    pub(super) fn payload_of(self, memory: usize) -> u64 {
        memory as u64 * u64::from(self.value) / 256
    }

    /// Memory that so much payload takes.
    fn memory_for(self, payload: u64) -> u64 {
        payload * 256 / u64::from(self.value)
    }
}

/// The bytes read in a round trip, and those that may be under way beyond what the path carries.
/// Packed as [`Pacer`](crate::pacer::Pacer) is.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub(super) struct AutoTune {
    since: Instant,
    /// Bytes read since then, or arrived out of order.
    read_bytes: u32,
    /// Bytes that were counted as they arrived out of order, and are not counted again when they
    /// are read.
    early_bytes: u32,
    /// Most ever read in a round trip.
    space_bytes: u32,
    /// Round trip as the receiver sees it, from timestamps echoed; zero before the first.
    rtt_us: u32,
    /// Bytes that may be under way beyond what the path carries.
    slack_bytes: u32,
}

impl AutoTune {
    pub(super) fn new(now: Instant) -> AutoTune {
        AutoTune {
            since: now,
            read_bytes: 0,
            early_bytes: 0,
            space_bytes: 0,
            rtt_us: 0,
            slack_bytes: WINDOW_SLACK_BYTES,
        }
    }

    /// So many bytes may be under way beyond what the path carries, at least.
    pub(super) fn allow(&mut self, bytes: usize) {
        self.slack_bytes = self.slack_bytes.max(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Returns those of `bytes` that were read which were not counted when they arrived.
    #[inline(always)]
    fn uncounted(&mut self, bytes: u64) -> u64 {
        let counted = u64::from(self.early_bytes).min(bytes);
        self.early_bytes -= counted as u32;
        bytes - counted
    }

    /// Counts `bytes`. At the end of a round trip that brought more than any before: the most
    /// before, and that.
    #[inline(always)]
    fn count(&mut self, now: Instant, bytes: u64, srtt_ns: u64) -> Option<(u32, u64)> {
        self.read_bytes = self.read_bytes.saturating_add(bytes as u32);
        let rtt_ns = match self.rtt_us {
            0 => srtt_ns.max(500_000),
            us => u64::from(us) * 1000,
        };
        if now.as_nanos().saturating_sub(self.since.as_nanos()) < rtt_ns {
            return None;
        }
        let read = std::mem::take(&mut self.read_bytes);
        self.since = now;
        let before = self.space_bytes;
        self.space_bytes = before.max(read);
        (read > before).then_some((before, read.into()))
    }
}

impl Receiver {
    /// Data came that echoes an ACK of ours sent so many milliseconds before: the round trip as the
    /// receiver sees it.
    #[inline]
    pub(crate) fn sample_rtt(&mut self, passed_ms: u32) {
        if passed_ms > 10_000 {
            return;
        }
        let sample = passed_ms.max(1) * 1000;
        self.tune.rtt_us = match self.tune.rtt_us {
            0 => sample,
            old => (old - old / 8 + sample / 8).max(1000),
        };
    }

    /// Returns the receiver's round trip in microseconds; 0 before the first.
    pub(crate) fn rtt_us(&self) -> u32 {
        self.tune.rtt_us
    }

    /// The most that has come in a round trip.
    pub(crate) fn space_bytes(&self) -> u64 {
        self.tune.space_bytes.into()
    }

    /// Sets how many connections, this one among them, move data at present.
    #[inline]
    pub(crate) fn set_sharers(&mut self, connections: u32) {
        self.sharers = (u32::BITS - connections.saturating_sub(1).leading_zeros()) as u8;
    }

    /// Returns true if other connections move data at present, too.
    #[inline]
    pub(crate) fn has_sharers(&self) -> bool {
        self.sharers != 0
    }

    /// The application took `bytes` out of the queue.
    #[inline(always)]
    pub(crate) fn on_read(
        &mut self,
        now: Instant,
        bytes: u64,
        rtt: &RttEstimator,
        config: &Config,
    ) {
        let bytes = self.tune.uncounted(bytes);
        self.count_read(now, bytes, rtt, config);
        self.tune_slack(rtt, config);
    }

    /// So many bytes more are out of order: the buffer grows with how far that reaches, and they
    /// count as what is read does. Else a sender in slow start, whose segment is lost twice on a
    /// long path, would be held back meanwhile.
    pub(crate) fn on_early(
        &mut self,
        now: Instant,
        bytes: u64,
        rtt: &RttEstimator,
        config: &Config,
    ) {
        if config.recv_auto_tune {
            self.tune.early_bytes = self.tune.early_bytes.saturating_add(bytes as u32);
            self.count_read(now, bytes, rtt, config);
            self.grow(2 * self.space_bytes(), rtt, config);
        }
    }

    #[inline(always)]
    fn count_read(&mut self, now: Instant, bytes: u64, rtt: &RttEstimator, config: &Config) {
        if let Some((before, read)) = self.tune.count(now, bytes, rtt.srtt_ns()) {
            self.follow_reads(before, read, rtt, config);
        }
    }

    /// In the last round trip `read` bytes were read, more than the most `before`.
    #[inline(never)]
    fn follow_reads(&mut self, before: u32, read: u64, rtt: &RttEstimator, config: &Config) {
        if !config.recv_auto_tune {
            return;
        }
        // the first is compared with an initial window
        let before = u64::from(before).max(INITIAL_SEGMENTS * u64::from(self.mss_estimate));
        // A sender in slow start sends twice as much in the round trip to come, and twice that
        // before the next look: by how much more came than before, twice over, the window grows
        // ahead of it (as Linux), at most threefold.
        let window = 2 * read;
        let growth = window * read.saturating_sub(before).min(before) / before.max(1) * 2;
        self.grow(window + growth, rtt, config);
    }

    /// Room for `window` bytes of payload, and for what lies out of order now: that will be read
    /// only when it is repaired, and until then a sender that is not to stop needs as much beyond
    /// it.
    fn grow(&mut self, window: u64, rtt: &RttEstimator, config: &Config) {
        let early = self.reassembly.as_ref().map_or(0, |r| r.highest().saturating_sub(self.nxt));
        let window = window + early + 16 * u64::from(self.mss_estimate);
        let most = config.recv_buffer_bytes.min(rtt.carried_bytes_and(WINDOW_BASE_BYTES));
        let wanted = self.density.memory_for(window).min(most as u64);
        self.limit_bytes = self.limit_bytes.max(wanted as usize);
    }

    /// The application has everything, and the window is used up: while its update travels, nothing
    /// more can come. Unless the buffer is the limit, the allowance doubles, up to
    /// [`TUNE_BASE_BYTES`]. A window that the peer fills and that never runs empty here is large
    /// enough, however long the queue in it. Beyond that it goes by steps to where a third of it is
    /// left when the peer hears of more, as one that writes much by one call needs, and back again.
    #[inline(always)]
    fn tune_slack(&mut self, rtt: &RttEstimator, config: &Config) {
        const BASE: u32 = TUNE_BASE_BYTES as u32;
        let slack = self.tune.slack_bytes;
        // less than a sender waits for
        let share = if slack < BASE { 8 } else { 3 };
        if self.window_bytes() < u64::from(slack / share)
            && self.queue.is_empty()
            && self.used_at_most(rtt, config) < self.limit_bytes
        {
            let more = if slack < BASE { slack } else { SLACK_STEP_BYTES };
            self.tune.slack_bytes = (slack + more).min(WINDOW_BASE_BYTES as u32);
        } else if slack > BASE {
            let less = SLACK_STEP_BYTES / SLACK_STEP_READS;
            self.tune.slack_bytes = (slack - less).max(BASE);
        }
    }

    /// Memory that is used of the buffer, however large that is: what the path carries, and an
    /// allowance for scheduling, shared with the other busy connections of the host. More in flight
    /// only waits, in memory that has left the cache.
    pub(super) fn used_at_most(&self, rtt: &RttEstimator, config: &Config) -> usize {
        let limit = self.limit_bytes.min(self.memory_limit.window_bytes());
        let alone = rtt.carried_bytes_and(self.tune.slack_bytes as usize);
        let together = rtt.carried_bytes_and(config.windows_bytes);
        let share = together >> self.sharers;
        limit.min(share.max(WINDOW_SHARE_MIN_BYTES).min(alone))
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::tests::receiver;
    use super::*;

    #[test]
    fn density_is_what_arrives_of_what_it_holds() {
        let mut density = Density::new();
        assert_eq!(density.payload_of(256), 160);
        for _ in 0..200 {
            density.observe(1460, 2048);
        }
        assert!((180..=184).contains(&density.payload_of(256)), "{density:?}");
        for _ in 0..200 {
            density.observe(1, 2048);
        }
        assert_eq!((density.payload_of(256), density.memory_for(32)), (32, 256));
    }

    #[test]
    fn the_buffer_grows_with_what_is_read_in_a_round_trip() {
        let (mut rcv, rtt, config) = (receiver(), RttEstimator::new(200), Config::default());
        let (before, mut now) = (rcv.limit_bytes, Instant::ZERO);
        rcv.sample_rtt(10);
        assert_eq!(rcv.rtt_us(), 10_000);
        rcv.on_read(now, 200_000, &rtt, &config);
        assert_eq!(rcv.limit_bytes, before, "the round trip is not over");
        now += Duration::from_millis(10);
        rcv.on_read(now, 100_000, &rtt, &config);
        assert_eq!(rcv.space_bytes(), 300_000);
        assert!(rcv.limit_bytes > 600_000, "two round trips of it: {}", rcv.limit_bytes);
        let (before, fixed) = (rcv.limit_bytes, Config { recv_auto_tune: false, ..config });
        now += Duration::from_millis(10);
        rcv.on_read(now, 1_000_000, &rtt, &fixed);
        assert_eq!((rcv.space_bytes(), rcv.limit_bytes), (1_000_000, before));
    }

    #[test]
    fn what_arrived_out_of_order_is_not_counted_again_when_it_is_read() {
        let mut tune = AutoTune::new(Instant::ZERO);
        tune.early_bytes = 300;
        assert_eq!((tune.uncounted(200), tune.uncounted(200), tune.uncounted(200)), (0, 100, 200));
    }

    #[test]
    fn busy_connections_share_what_the_path_carries() {
        let (mut rcv, mut rtt, config) = (receiver(), RttEstimator::new(200), Config::default());
        rcv.limit_bytes = usize::MAX;
        assert_eq!(rcv.used_at_most(&rtt, &config), rcv.memory_limit.window_bytes());
        rtt.sample(Instant::ZERO, Duration::from_micros(100), 1);
        let alone = rcv.used_at_most(&rtt, &config);
        rcv.set_sharers(1_000);
        assert!(rcv.used_at_most(&rtt, &config) < alone);
        rcv.memory_limit.set(Some(100_000));
        assert_eq!(rcv.used_at_most(&rtt, &config), 100_000);
    }
}
