//! What a connection counts.

use millstream_packet::Instant;

use super::RateMeter;
use crate::fast_open::{FastOpen, FastOpenStatus};
use crate::stats::TcpStats;
use crate::timers::Deadline;

/// Counters that only grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) segments_out: u64,
    pub(crate) segments_in: u64,
    pub(crate) data_segments_out: u64,
    pub(crate) data_segments_in: u64,
    pub(crate) delayed_acks: u32,
    /// Something is counted that the owner was not told.
    is_untold: bool,
    pub(crate) limited: Limited,
    /// Exists while the connection is busy.
    pub(crate) rate: Option<Box<RateMeter>>,
    pub(super) rare: Option<Box<Rare>>,
}

/// Counters of what does not happen on a good path; made when the first of it does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rare {
    pub(crate) stats: TcpStats,
    /// The same as the owner was told last.
    told: TcpStats,
    /// The second of the clock in which the last were sent, and how many.
    pub(crate) challenges: (u32, u8),
    pub(crate) reordering_bytes: u64,
    /// Nothing new was acknowledged since the timer expired then; and how long that was before.
    pub(crate) timed_out_at: Deadline,
    pub(crate) timed_out_ns: u64,
    pub(crate) delivered_ce_bytes: u64,
    /// Offsets after urgent data: the peer's, and ours.
    pub(crate) urgent_in: u64,
    pub(crate) urgent_out: u64,
    /// Made by those that open with it, given back when they are open.
    pub(crate) fast_open: Option<Box<FastOpen>>,
    pub(crate) fast_open_status: FastOpenStatus,
    /// Bytes that were written and not acknowledged when the connection ended, if they or its end were cut off.
    pub(crate) cut_off: Option<u64>,
}

impl Counters {
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Returns where something rare is counted.
    #[cold]
    pub(crate) fn count(&mut self) -> &mut TcpStats {
        self.is_untold = true;
        &mut self.rare().stats
    }

    /// Counts segments that were sent again.
    #[cold]
    pub(crate) fn count_resent(&mut self, segments: u64, bytes: u64) {
        let stats = self.count();
        stats.retransmitted_segments += segments;
        stats.retransmitted_bytes += bytes;
    }

    /// Adds to `sums` what was counted since the last call.
    #[inline]
    pub(crate) fn tell(&mut self, sums: &mut TcpStats) {
        if std::mem::take(&mut self.is_untold)
            && let Some(rare) = &mut self.rare
        {
            sums.add_since(&rare.stats, &rare.told);
            rare.told.clone_from(&rare.stats);
        }
    }

    pub(crate) fn cut_off(&self) -> Option<u64> {
        self.rare.as_ref()?.cut_off
    }

    /// Of challenge ACKs, the second in which the last were sent, and how many.
    pub(crate) fn challenges(&self) -> (u32, u8) {
        self.rare.as_ref().map_or((0, 0), |rare| rare.challenges)
    }

    /// The retransmission timer expired.
    pub(crate) fn begin_timed_out(&mut self, now: Instant) {
        self.rare().timed_out_at.set_if_none(now);
    }

    /// Something new was acknowledged after it.
    pub(crate) fn end_timed_out(&mut self, now: Instant) {
        let ns = self.timed_out_ns(now);
        if let Some(rare) = self.rare.as_mut() {
            (rare.timed_out_at, rare.timed_out_ns) = (Deadline::NONE, ns);
        }
    }

    /// How long nothing new has been acknowledged after time-outs, all told.
    pub(crate) fn timed_out_ns(&self, now: Instant) -> u64 {
        let Some(rare) = self.rare.as_ref() else { return 0 };
        let since = rare.timed_out_at.get();
        let last = since.map_or(0, |at| now.saturating_duration_since(at).as_nanos() as u64);
        rare.timed_out_ns + last
    }

    #[inline]
    pub(crate) fn urgent_out(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.urgent_out)
    }

    pub(crate) fn urgent_in(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.urgent_in)
    }

    pub(crate) fn fast_open(&self) -> Option<&FastOpen> {
        self.rare.as_ref()?.fast_open.as_deref()
    }

    pub(crate) fn fast_open_mut(&mut self) -> Option<&mut FastOpen> {
        self.rare.as_mut()?.fast_open.as_deref_mut()
    }

    pub(crate) fn take_fast_open(&mut self) -> Option<Box<FastOpen>> {
        self.rare.as_mut()?.fast_open.take()
    }
}

/// A buffer that holds back its sender for less than this part of the time is large enough. (A stream over TAP, whose
/// peer reads as fast as it can, has a twentieth.)
const BUFFER_SHARE: u64 = 4;

/// Time spent with data to send, by what held it back. Nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limited {
    pub(crate) since_ns: u64,
    pub(crate) by: LimitedBy,
    pub(crate) busy_ns: u64,
    pub(crate) rwnd_ns: u64,
    pub(crate) sndbuf_ns: u64,
}

/// What holds the sender back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LimitedBy {
    #[default]
    Idle,
    Busy,
    PeerWindow,
    SendBuffer,
}

impl Limited {
    /// From `now_ns` on the sender is held back by `by`.
    #[inline]
    pub(crate) fn set(&mut self, by: LimitedBy, now_ns: u64) {
        if self.by != by {
            if self.by != LimitedBy::Idle {
                self.add(now_ns.saturating_sub(self.since_ns));
            }
            self.by = by;
            self.since_ns = now_ns;
        }
    }

    fn add(&mut self, passed: u64) {
        if self.by == LimitedBy::Idle {
            return;
        }
        self.busy_ns += passed;
        if self.by != LimitedBy::Busy {
            let held_back = match self.by {
                LimitedBy::PeerWindow => &mut self.rwnd_ns,
                _ => &mut self.sndbuf_ns,
            };
            *held_back += passed;
        }
    }

    /// The send buffer has held back the sender for more than the [`BUFFER_SHARE`]th part of the time.
    pub(crate) fn is_much_by_buffer(&self) -> bool {
        self.sndbuf_ns * BUFFER_SHARE > self.busy_ns
    }

    pub(super) fn at(mut self, now_ns: u64) -> Limited {
        let passed = now_ns.saturating_sub(self.since_ns);
        self.add(passed);
        self
    }
}
