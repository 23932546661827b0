//! Statistics of a connection, in the spirit and with the names of Linux's `tcp_info`, units added.

mod counters;

use core::time::Duration;

use millstream_packet::Instant;

use crate::connection::Connection;
use crate::fast_open::FastOpenStatus;
use crate::recovery::Phase;
use crate::state::State;
use crate::stats::TcpDrop;
use crate::ticks::since_tick;
use crate::tuning::R1_TIMEOUTS;
pub(crate) use counters::{Counters, LimitedBy};

/// How fast data arrives at the peer: over a flight at a time, from its first byte sent to its last acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateMeter {
    since: Instant,
    delivered: u64,
    /// `nxt` when the flight began.
    end: u64,
    /// Of the last flight that was measured: bytes, and nanoseconds that it took.
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

impl Connection {
    /// Data leaves and nothing was in flight: what is measured begins now.
    #[inline(always)]
    pub(crate) fn begin_rate(&mut self, now: Instant) {
        let (delivered, end) = (self.counters.delivered_bytes, self.snd.nxt());
        let meter = match &mut self.counters.rate {
            Some(meter) => meter,
            none => none.insert(Default::default()),
        };
        (meter.since, meter.delivered, meter.end) = (now, delivered, end);
    }

    /// An ACK was taken.
    #[inline]
    pub(crate) fn measure_rate(&mut self, now: Instant) {
        self.measure_rate_to(now, self.snd.data_end());
    }

    /// The same where the application has written up to `data_end`.
    #[inline(always)]
    pub(crate) fn measure_rate_to(&mut self, now: Instant, data_end: u64) {
        let (snd, delivered) = (&self.snd, self.counters.delivered_bytes);
        let Some(meter) = self.counters.rate.as_mut().filter(|meter| snd.una() >= meter.end) else {
            return;
        };
        let passed = now.as_nanos().saturating_sub(meter.since.as_nanos());
        let bytes = delivered - meter.delivered;
        if passed > 0 && bytes > 0 {
            meter.app_limited = data_end <= snd.nxt();
            (meter.bytes, meter.passed_ns) = (bytes, passed);
        }
        (meter.since, meter.delivered, meter.end) = (now, delivered, snd.nxt());
    }
}

/// A snapshot of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct TcpInfo {
    pub state: State,
    /// Name of the congestion control, as Linux spells it.
    pub congestion: &'static str,
    /// `Open`, `Recovery` or `Loss`, as Linux's ca_state.
    pub ca_state: &'static str,
    pub timestamps: bool,
    pub sack: bool,
    pub ecn: bool,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub rto_us: u64,
    pub srtt_us: u64,
    pub rttvar_us: u64,
    pub min_rtt_us: u64,
    pub backoff: u8,
    pub snd_mss_bytes: u32,
    pub rcv_mss_bytes: u32,
    /// Segment size offered to the peer.
    pub adv_mss_bytes: u16,
    /// Round trip as the receiver sees it, and the most that was read in one; 0: not known.
    pub rcv_rtt_us: u64,
    pub rcv_space_bytes: u64,
    /// Time since data, or an ACK with it, was sent last.
    pub last_data_sent_us: u64,
    /// Time since data came last, and since an acceptable segment with an ACK did, in steps of 1.05 ms that count 52
    /// days; of a connection that had none, since it began.
    pub last_data_received_us: u64,
    pub last_ack_received_us: u64,
    /// The longest that an ACK is held back.
    pub delayed_ack_us: u64,
    pub cwnd_bytes: u64,
    /// `None` before the first congestion.
    pub ssthresh_bytes: Option<u64>,
    pub in_flight_bytes: u64,
    pub unacked_bytes: u64,
    pub sacked_bytes: u64,
    pub lost_bytes: u64,
    /// Sent again and neither acknowledged nor judged lost since.
    pub resent_bytes: u64,
    /// Window the peer offers.
    pub snd_wnd_bytes: u64,
    /// Window offered to the peer.
    pub rcv_wnd_bytes: u64,
    /// The window that would be offered if nothing waited to be read.
    pub rcv_wnd_limit_bytes: u64,
    /// Data written and not yet sent.
    pub notsent_bytes: u64,
    pub send_queue_bytes: u64,
    pub send_queue_held_bytes: usize,
    pub send_limit_bytes: usize,
    pub recv_queue_bytes: u64,
    pub recv_queue_held_bytes: usize,
    pub recv_limit_bytes: usize,
    /// Most memory that either queue held, and received bytes copied into frames that were there already, since
    /// the connection was last idle.
    pub send_queue_high_water_bytes: usize,
    pub recv_queue_high_water_bytes: usize,
    pub recv_coalesced_bytes: u64,
    pub out_of_order_bytes: u64,
    pub out_of_order_ranges: usize,
    pub bytes_sent: u64,
    pub bytes_retransmitted: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub delivered_bytes: u64,
    /// Of these, those that came with an echo of a mark (RFC 3168).
    pub delivered_ce_bytes: u64,
    /// How fast the last flight of data arrived; 0: none of late.
    pub delivery_rate_bytes_per_s: u64,
    /// That rate is what the application wrote rather than what the path carries: nothing waited to be sent when the
    /// flight was acknowledged.
    pub delivery_rate_app_limited: bool,
    /// Rate at which data leaves; 0: as the window allows.
    pub pacing_rate_bytes_per_s: u64,
    /// Segments as on the wire: a super-segment counts as what it is split into.
    pub segments_out: u64,
    pub segments_in: u64,
    pub data_segments_out: u64,
    pub data_segments_in: u64,
    /// Segments sent again.
    pub retransmits: u32,
    pub timeouts: u32,
    /// Recoveries that a time-out began; those that follow in a row are not counted.
    pub timeout_recoveries: u32,
    /// Time from the first time-out in a row until something new was acknowledged, all told.
    pub timed_out_us: u64,
    pub fast_recoveries: u32,
    pub loss_probes: u32,
    pub spurious_recoveries: u32,
    /// Bytes that the peer says arrived twice (D-SACK).
    pub spurious_bytes: u64,
    pub window_probes: u32,
    pub keepalives: u32,
    /// Of window probes and keep-alives, those without an answer by now.
    pub probes_unanswered: u8,
    pub delayed_acks: u32,
    pub duplicate_acks_in: u32,
    pub dsacks_in: u32,
    pub dsacks_out: u32,
    pub out_of_order_segments: u32,
    pub challenge_acks: u32,
    /// Segments dropped because their timestamp was older than the last one (RFC 7323 section 5).
    pub paws_rejected: u32,
    /// Segments dropped because they had no timestamp, where timestamps were agreed on (RFC 7323 3.2).
    pub without_timestamp: u32,
    /// Resets in the window that were not at exactly the next number: challenged (RFC 5961 3.2).
    pub challenged_resets: u32,
    /// SYNs in the window: challenged (RFC 5961 4.2).
    pub challenged_syns: u32,
    /// Segments dropped because they acknowledged nothing (RFC 9293 3.10.7.4, fifth).
    pub without_ack: u32,
    /// Segments dropped because they acknowledged what was never sent, or what was long ago (RFC 5961 section 5).
    pub unacceptable_acks: u32,
    /// Segments dropped because they lay outside the window (RFC 9293 3.10.7.4, first).
    pub out_of_window: u32,
    /// ICMP errors about segments that were not on their way, and not believed for that (RFC 5927 4.1).
    pub icmp_not_outstanding: u32,
    pub memory_drops: u32,
    pub reorderings: u32,
    /// The farthest that a segment was overtaken, in segments of the present size; 0: none was.
    pub reordering_segments: u64,
    /// Time-outs in a row have reached R1 (RFC 9293 3.8.3).
    pub delivery_problem: bool,
    /// Segments with data that arrived marked, and reductions that the peer's echoes of marks caused.
    pub ce_segments_in: u32,
    pub ecn_reductions: u32,
    /// Times that large segments vanished and smaller ones were tried.
    pub black_holes: u32,
    /// Largest IP packet that is sent, and the largest that the search for a larger one may still find (0: there
    /// is no search).
    pub path_mtu_bytes: u32,
    pub mtu_search_bytes: u32,
    /// Routers may cut IPv4 packets: one asked for smaller ones than are made.
    pub may_be_fragmented: bool,
    /// Probes of larger segments, and those that got lost.
    pub mtu_probes: u32,
    pub mtu_probes_lost: u32,
    /// What became of Fast Open.
    pub fast_open: FastOpenStatus,
    /// Time with data outstanding or waiting.
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
}

fn us(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

impl Connection {
    /// Whether any data has got through, either way.
    pub fn has_exchanged(&self) -> bool {
        self.rcv.bytes_received() > 0 || self.counters.bytes_acked > 0
    }

    /// How long nothing has got on: since data came last, or the peer acknowledged something new. Where all is
    /// acknowledged, since the last of it was sent.
    pub fn still_for(&self, now: Instant) -> Duration {
        let sent = self.snd.waiting_since().unwrap_or(self.snd.last_sent_at());
        now.saturating_duration_since(sent).min(since_tick(now, self.rcv.heard_at().0))
    }

    /// Statistics and gauges, as of the last call that carried a time. In one literal, so that no field can be
    /// forgotten.
    pub fn info(&self) -> TcpInfo {
        let Self { snd, rcv, rtt, window, counters: c, board, .. } = self;
        let rare = c.rare.as_deref().cloned().unwrap_or_default();
        let stats = &rare.stats;
        let dropped = |reason| stats.dropped(reason) as u32;
        let limited = c.limited.at(self.clock.as_nanos());
        let (out_of_order_bytes, out_of_order_ranges) = rcv.early();
        let (data_at, ack_at) = rcv.heard_at();
        TcpInfo {
            state: self.state,
            congestion: self.config.congestion.name(),
            ca_state: match self.recovery.phase() {
                Phase::Open => "Open",
                Phase::Recovery => "Recovery",
                Phase::Loss => "Loss",
            },
            timestamps: self.negotiated.timestamps,
            sack: self.negotiated.sack,
            ecn: self.ecn.is_agreed(),
            snd_wscale: self.negotiated.snd_shift,
            rcv_wscale: rcv.shift(),
            rto_us: us(rtt.rto()),
            srtt_us: us(rtt.srtt()),
            rttvar_us: us(rtt.rttvar()),
            min_rtt_us: us(rtt.min_rtt().unwrap_or_default()),
            backoff: rtt.backoff(),
            snd_mss_bytes: snd.mss(),
            rcv_mss_bytes: rcv.mss_estimate(),
            adv_mss_bytes: self.offered_mss(),
            rcv_rtt_us: u64::from(rcv.rtt_us()),
            rcv_space_bytes: rcv.space_bytes(),
            last_data_sent_us: us(self.clock.saturating_duration_since(snd.last_sent_at())),
            last_data_received_us: us(since_tick(self.clock, data_at)),
            last_ack_received_us: us(since_tick(self.clock, ack_at)),
            delayed_ack_us: u64::from(self.config.delayed_ack_ms) * 1000,
            cwnd_bytes: window.cwnd_bytes,
            ssthresh_bytes: (window.ssthresh_bytes != u64::MAX).then_some(window.ssthresh_bytes),
            in_flight_bytes: board.pipe(snd.una(), snd.nxt()),
            unacked_bytes: snd.outstanding(),
            sacked_bytes: board.sacked_bytes(),
            lost_bytes: board.lost_bytes(),
            resent_bytes: board.resent_bytes(),
            snd_wnd_bytes: snd.edge().saturating_sub(snd.una()),
            rcv_wnd_bytes: rcv.window_bytes(),
            rcv_wnd_limit_bytes: rcv.window_limit(rtt, &self.config),
            notsent_bytes: self.snd.data_end().saturating_sub(snd.nxt().max(1)),
            send_queue_bytes: snd.queue().len() as u64,
            send_queue_held_bytes: snd.queue().held_bytes(),
            send_limit_bytes: snd.queue().limit(),
            recv_queue_bytes: rcv.queue().len() as u64,
            recv_queue_held_bytes: rcv.held_bytes(),
            recv_limit_bytes: rcv.limit_bytes(),
            send_queue_high_water_bytes: snd.queue().high_water(),
            recv_queue_high_water_bytes: rcv.queue().high_water(),
            recv_coalesced_bytes: rcv.queue().coalesced_bytes(),
            out_of_order_bytes,
            out_of_order_ranges,
            bytes_sent: c.bytes_sent,
            bytes_retransmitted: stats.retransmitted_bytes,
            bytes_acked: c.bytes_acked,
            bytes_received: rcv.bytes_received(),
            delivered_bytes: c.delivered_bytes,
            delivered_ce_bytes: rare.delivered_ce_bytes,
            delivery_rate_app_limited: c.rate.as_ref().is_some_and(|meter| meter.app_limited),
            delivery_rate_bytes_per_s: c.rate.as_ref().map_or(0, |meter| meter.bytes_per_s()),
            pacing_rate_bytes_per_s: self.pacing_rate().unwrap_or(0),
            segments_out: c.segments_out,
            segments_in: c.segments_in,
            data_segments_out: c.data_segments_out,
            data_segments_in: c.data_segments_in,
            retransmits: stats.retransmitted_segments as u32,
            timeouts: stats.timeouts as u32,
            fast_recoveries: stats.fast_recoveries as u32,
            loss_probes: stats.loss_probes as u32,
            spurious_recoveries: stats.spurious_recoveries as u32,
            spurious_bytes: stats.spurious_bytes,
            window_probes: stats.window_probes as u32,
            probes_unanswered: snd.probes_unanswered(),
            keepalives: stats.keepalives as u32,
            delayed_acks: c.delayed_acks,
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
            timed_out_us: self.counters.timed_out_ns(self.clock) / 1000,
            reorderings: stats.reorderings as u32,
            reordering_segments: rare.reordering_bytes.div_ceil(u64::from(snd.mss())),
            delivery_problem: rtt.backoff() >= R1_TIMEOUTS,
            ce_segments_in: stats.ce_segments_in as u32,
            ecn_reductions: stats.ecn_reductions as u32,
            black_holes: stats.black_holes as u32,
            path_mtu_bytes: self.mtu_of(self.config.mss.min(snd.peer_mss())),
            mtu_search_bytes: self.path.search_end().map_or(0, |mss| self.mtu_of(mss)),
            may_be_fragmented: self.path.is_fragmentable(),
            mtu_probes: stats.mtu_probes as u32,
            mtu_probes_lost: stats.mtu_probes_lost as u32,
            fast_open: rare.fast_open_status,
            busy_us: limited.busy_ns / 1000,
            rwnd_limited_us: limited.rwnd_ns / 1000,
            sndbuf_limited_us: limited.sndbuf_ns / 1000,
        }
    }
}
