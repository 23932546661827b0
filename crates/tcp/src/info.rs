//! Statistics of a connection, in the spirit and with the names of Linux's `tcp_info`, units added.

use crate::fast_open::FastOpenStatus;
use crate::state::State;

/// A snapshot of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct TcpInfo {
    pub state: State,
    /// Name of the congestion control, as Linux spells it.
    pub congestion: &'static str,
    /// Phase of the control, by its own names.
    pub congestion_phase: &'static str,
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
    /// Time since data came last, and since an acceptable segment with an ACK did, in steps of 1.05
    /// ms that count 52 days; of a connection that had none, since it began.
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
    /// Most memory that either queue held, and received bytes copied into frames that were there
    /// already, since the connection was last idle.
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
    /// The part of these that came with an echo of a mark (RFC 3168).
    pub delivered_ce_bytes: u64,
    /// How fast the last flight of data arrived; 0: none of late.
    pub delivery_rate_bytes_per_s: u64,
    /// The rate shows what the application wrote rather than what the path carries: nothing waited
    /// to be sent when the flight was acknowledged.
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
    /// Window probes and keep-alives that have had no answer by now.
    pub probes_unanswered: u8,
    pub delayed_acks: u32,
    pub duplicate_acks_in: u32,
    pub dsacks_in: u32,
    pub dsacks_out: u32,
    pub out_of_order_segments: u32,
    pub challenge_acks: u32,
    /// Segments dropped because their timestamp was older than the last one (RFC 7323 section 5).
    pub paws_rejected: u32,
    /// Segments dropped because they had no timestamp, where timestamps were agreed on (RFC 7323
    /// 3.2).
    pub without_timestamp: u32,
    /// Resets in the window that were not at exactly the next number: challenged (RFC 5961 3.2).
    pub challenged_resets: u32,
    /// SYNs in the window: challenged (RFC 5961 4.2).
    pub challenged_syns: u32,
    /// Segments dropped because they acknowledged nothing (RFC 9293 3.10.7.4, fifth).
    pub without_ack: u32,
    /// Segments dropped because they acknowledged what was never sent, or what was long ago (RFC
    /// 5961 section 5).
    pub unacceptable_acks: u32,
    /// Segments dropped because they lay outside the window (RFC 9293 3.10.7.4, first).
    pub out_of_window: u32,
    /// ICMP errors about segments that were not on their way, and not believed for that (RFC 5927
    /// 4.1).
    pub icmp_not_outstanding: u32,
    pub memory_drops: u32,
    pub reorderings: u32,
    /// The farthest that a segment was overtaken, in segments of the present size; 0: none was.
    pub reordering_segments: u64,
    /// Time-outs in a row have reached R1 (RFC 9293 3.8.3).
    pub delivery_problem: bool,
    /// Segments with data that arrived marked, and reductions that the peer's echoes of marks
    /// caused.
    pub ce_segments_in: u32,
    pub ecn_reductions: u32,
    /// Times that large segments vanished and smaller ones were tried.
    pub black_holes: u32,
    /// Largest IP packet that is sent, and the largest that the search for a larger one may still
    /// find (0: there is no search).
    pub path_mtu_bytes: u32,
    pub mtu_search_bytes: u32,
    /// Routers may cut IPv4 packets: one asked for smaller ones than are made.
    pub may_be_fragmented: bool,
    /// Probes of larger segments, and those that got lost.
    pub mtu_probes: u32,
    pub mtu_probes_lost: u32,
    /// Outcome of Fast Open.
    pub fast_open: FastOpenStatus,
    /// Time with data outstanding or waiting.
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
}
