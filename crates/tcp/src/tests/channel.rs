//! What the channel between two connections is like, and the chance behind it.

use core::time::Duration;

/// SplitMix64: small, seeded, good enough for schedules.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    pub fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64 / (1u64 << 53) as f64) < p
    }
}

/// What the channel does to segments, the same in both directions.
#[derive(Clone, Copy)]
pub struct Path {
    pub delay: Duration,
    pub jitter: Duration,
    pub loss: f64,
    pub duplicate: f64,
    /// Probability of, and time added by, being late.
    pub reorder: f64,
    pub late: Duration,
    /// Bottleneck: bits per second (0: none) and bytes that may wait for it.
    pub rate_bits_per_s: u64,
    pub queue_bytes: u64,
    /// Data that may be marked is marked when more than this waits (0: never).
    pub mark_bytes: u64,
    /// Most payload handed out at once; split to MSS on the wire, as a link would.
    pub super_segment_bytes: u32,
    /// Consecutive parts of a super-segment that survive arrive merged.
    pub merge: bool,
    pub view: bool,
    /// Payload lies in the reader's memory when its segment is looked at, as far as that has room.
    pub placed: bool,
    /// Segments with more payload than this vanish (0: none do).
    pub largest: usize,
    /// So much after its time a timer is seen to have expired, where nothing arrives before.
    pub wake_late: Duration,
}

impl Path {
    /// A bottleneck and the round trip over it; `queue_bytes` may wait.
    pub fn bottleneck(rate_bits_per_s: u64, rtt_ms: u64, queue_bytes: u64) -> Path {
        let delay = Duration::from_millis(rtt_ms) / 2;
        Path { rate_bits_per_s, queue_bytes, delay, ..Path::default() }
    }
}

impl Default for Path {
    fn default() -> Self {
        Path {
            delay: Duration::from_millis(5),
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            late: Duration::from_millis(3),
            rate_bits_per_s: 0,
            queue_bytes: 0,
            mark_bytes: 0,
            super_segment_bytes: 0,
            merge: false,
            view: false,
            placed: false,
            largest: 0,
            wake_late: Duration::ZERO,
        }
    }
}
