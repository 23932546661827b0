//! The counters of a connection.

use millstream_packet::Instant;

use crate::fast_open::{FastOpen, FastOpenStatus};
use crate::info::TcpInfo;
use crate::stats::{TcpDrop, TcpStats};
use crate::timers::Deadline;

/// How fast data arrives at the peer: over a flight at a time, from its first byte sent to its last
/// acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateMeter {
    since: Instant,
    delivered: u64,
    /// `nxt` when the flight began.
    end: u64,
    /// Bytes of the last flight that was measured, and nanoseconds that it took.
    bytes: u64,
    passed_ns: u64,
    /// All was sent when the flight was acknowledged.
    app_limited: bool,
}

impl RateMeter {
    /// Bytes a second of the last flight; 0: none was measured.
    fn bytes_per_s(&self) -> u64 {
        (u128::from(self.bytes) * 1_000_000_000 / u128::from(self.passed_ns.max(1))) as u64
    }
}

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
    pub(crate) rare: Option<Box<Rare>>,
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
    /// Bytes that were written and not acknowledged when the connection ended, if they or its end
    /// were cut off.
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

    /// Counts a segment, whether or not it will be taken: it has `len` bytes, in parts of `size` if
    /// it was merged.
    #[inline]
    pub(crate) fn count_in(&mut self, len: usize, size: usize) {
        if len == 0 {
            self.segments_in += 1;
            return;
        }
        // mostly one: not worth a division
        let parts = if len <= size { 1 } else { len.div_ceil(size.max(1)) as u64 };
        self.segments_in += parts;
        self.data_segments_in += parts;
    }

    /// Counts segments that were sent again.
    #[cold]
    pub(crate) fn count_resent(&mut self, segments: u64, bytes: u64) {
        let stats = self.count();
        stats.retransmitted_segments += segments;
        stats.retransmitted_bytes += bytes;
    }

    /// Data leaves up to `end` and nothing was in flight: what is measured begins now.
    #[inline(always)]
    pub(crate) fn begin_rate(&mut self, now: Instant, end: u64) {
        let delivered = self.delivered_bytes;
        let meter = match &mut self.rate {
            Some(meter) => meter,
            none => none.insert(Default::default()),
        };
        (meter.since, meter.delivered, meter.end) = (now, delivered, end);
    }

    /// An ACK up to `una` was taken, with all below `nxt` sent and all below `data_end` written.
    #[inline(always)]
    pub(crate) fn measure_rate(&mut self, now: Instant, una: u64, nxt: u64, data_end: u64) {
        let delivered = self.delivered_bytes;
        let Some(meter) = self.rate.as_mut().filter(|meter| una >= meter.end) else { return };
        let passed = now.as_nanos().saturating_sub(meter.since.as_nanos());
        let bytes = delivered - meter.delivered;
        if passed > 0 && bytes > 0 {
            meter.app_limited = data_end <= nxt;
            (meter.bytes, meter.passed_ns) = (bytes, passed);
        }
        (meter.since, meter.delivered, meter.end) = (now, delivered, nxt);
    }

    /// Returns what is counted as of `now`; gauges have no value.
    pub(crate) fn info(&self, now: Instant) -> TcpInfo {
        let rare = self.rare.as_deref().cloned().unwrap_or_default();
        let stats = &rare.stats;
        let dropped = |reason| stats.dropped(reason) as u32;
        let limited = self.limited.at(now.as_nanos());
        TcpInfo {
            bytes_sent: self.bytes_sent,
            bytes_retransmitted: stats.retransmitted_bytes,
            bytes_acked: self.bytes_acked,
            delivered_bytes: self.delivered_bytes,
            delivered_ce_bytes: rare.delivered_ce_bytes,
            delivery_rate_app_limited: self.rate.as_ref().is_some_and(|meter| meter.app_limited),
            delivery_rate_bytes_per_s: self.rate.as_ref().map_or(0, |meter| meter.bytes_per_s()),
            segments_out: self.segments_out,
            segments_in: self.segments_in,
            data_segments_out: self.data_segments_out,
            data_segments_in: self.data_segments_in,
            retransmits: stats.retransmitted_segments as u32,
            timeouts: stats.timeouts as u32,
            fast_recoveries: stats.fast_recoveries as u32,
            loss_probes: stats.loss_probes as u32,
            spurious_recoveries: stats.spurious_recoveries as u32,
            spurious_bytes: stats.spurious_bytes,
            window_probes: stats.window_probes as u32,
            keepalives: stats.keepalives as u32,
            delayed_acks: self.delayed_acks,
            duplicate_acks_in: stats.duplicate_acks_in as u32,
            dsacks_in: stats.dsacks_in as u32,
            dsacks_out: stats.dsacks_out as u32,
            out_of_order_segments: stats.out_of_order_segments as u32,
            challenge_acks: stats.challenge_acks as u32,
            paws_rejected: dropped(TcpDrop::OldTimestamp),
            without_timestamp: dropped(TcpDrop::NoTimestamp),
            challenged_resets: dropped(TcpDrop::ChallengedReset),
            challenged_syns: dropped(TcpDrop::ChallengedSyn),
            without_ack: dropped(TcpDrop::NoAck),
            unacceptable_acks: dropped(TcpDrop::UnacceptableAck),
            out_of_window: [TcpDrop::Duplicate, TcpDrop::ZeroWindow, TcpDrop::OutOfWindow]
                .map(dropped)
                .iter()
                .sum(),
            icmp_not_outstanding: stats.icmp_not_outstanding as u32,
            memory_drops: stats.memory_drops as u32,
            timeout_recoveries: stats.timeout_recoveries as u32,
            timed_out_us: self.timed_out_ns(now) / 1000,
            reorderings: stats.reorderings as u32,
            ce_segments_in: stats.ce_segments_in as u32,
            ecn_reductions: stats.ecn_reductions as u32,
            black_holes: stats.black_holes as u32,
            mtu_probes: stats.mtu_probes as u32,
            mtu_probes_lost: stats.mtu_probes_lost as u32,
            fast_open: rare.fast_open_status,
            busy_us: limited.busy_ns / 1000,
            rwnd_limited_us: limited.rwnd_ns / 1000,
            sndbuf_limited_us: limited.sndbuf_ns / 1000,
            ..TcpInfo::default()
        }
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

    /// Returns the second in which the last challenge ACKs were sent, and how many.
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

    /// Returns how long nothing new has been acknowledged after time-outs, all told.
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

/// A buffer that holds back its sender for less than this part of the time is large enough. (A
/// stream over TAP, whose peer reads as fast as it can, has a twentieth.)
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

/// Limits that hold the sender back.
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

    /// The send buffer has held back the sender for more than the [`BUFFER_SHARE`]th part of the
    /// time.
    pub(crate) fn is_much_by_buffer(&self) -> bool {
        self.sndbuf_ns * BUFFER_SHARE > self.busy_ns
    }

    pub(crate) fn at(mut self, now_ns: u64) -> Limited {
        let passed = now_ns.saturating_sub(self.since_ns);
        self.add(passed);
        self
    }
}
