//! Counters of an engine since it began.

use std::fmt;
use std::sync::Arc;

use millstream_link::{LinkError, LinkStats};
use millstream_packet::{counters, reasons};
use millstream_route::LinkId;
use millstream_tcp::{TcpDrop, TcpStats};
use millstream_wire::Malformed;
use millstream_wire::ethernet::MacAddr;

use crate::clock::Clock;
use crate::stages::{Batches, StageTimes};

reasons! {
    /// Why the stack itself dropped a packet that was well formed. Malformed packets are counted by
    /// [`Malformed`], packets lost on a link by that link.
    #[non_exhaustive]
    pub enum DropReason {
        /// A frame for another link address.
        OtherLinkAddress = "other_link_address",
        /// A VLAN-tagged frame with a VLAN number.
        Vlan = "vlan",
        /// Neither IP nor ARP.
        UnknownEthertype = "unknown_ethertype",
        /// An IP packet for an address that is not ours, where none are handed on.
        OtherAddress = "other_address",
        /// A packet that is not handed on between links: for a group, for all of a network, to or
        /// from an address that means something on one link alone, or in a frame for all.
        NotForwardable = "not_forwardable",
        /// A packet for others whose TTL or hop limit is used up.
        HopLimit = "hop_limit",
        /// An IP packet from an address that nobody can have there: our own, a group's, a whole
        /// network's, loopback, 0/8, 240/4, none at all (but to groups), IPv4 in the form of IPv6.
        MartianSource = "martian_source",
        /// An IP packet from an address to which the routes lead by another link, or not at all
        /// (`ReversePath`).
        ReversePath = "reverse_path",
        /// Fragments of a datagram that overlap, which ends it (RFC 5722), and what comes of it
        /// later.
        FragmentOverlap = "fragment_overlap",
        /// A fragment with data that have come before.
        FragmentDuplicate = "fragment_duplicate",
        /// Fragments of a datagram that was not whole in time.
        FragmentTimeout = "fragment_timeout",
        /// Fragments that found no room, or gave way to others (`Limits::fragments_bytes`).
        FragmentMemory = "fragment_memory",
        /// Fragments that make no datagram: of two ends, of too many pieces, too long together,
        /// some with and some without ECN, or neighbour discovery.
        FragmentInvalid = "fragment_invalid",
        /// A first IPv6 fragment without all headers (RFC 7112).
        FragmentHeaders = "fragment_headers",
        /// A transport protocol without a handler.
        UnknownProtocol = "unknown_protocol",
        /// An ICMP message of a kind that has no use here.
        IcmpIgnored = "icmp_ignored",
        /// An ICMP echo reply or error that no socket waits for.
        IcmpNoSocket = "icmp_no_socket",
        /// IGMP or MLD that is for routers, or no valid message from this link.
        GroupMessageIgnored = "group_message_ignored",
        /// ARP or neighbour discovery for others, or unasked.
        NeighborIgnored = "neighbor_ignored",
        /// ARP or neighbour discovery by which somebody else claims an address of ours.
        AddressConflict = "address_conflict",
        /// A TCP segment without a connection or listener.
        TcpNoSocket = "tcp_no_socket",
        /// A TCP segment to a listener with none of SYN, ACK and RST.
        TcpListenOther = "tcp_listen_other",
        /// A TCP segment to a broadcast or multicast address.
        TcpNotUnicast = "tcp_not_unicast",
        /// A SYN to a listener whose queue of unfinished handshakes is full.
        SynQueueFull = "syn_queue_full",
        /// A SYN, or the last step of a handshake, to a listener whose accept queue is full.
        AcceptQueueFull = "accept_queue_full",
        /// The last step of a handshake without data, to a listener that waits for data
        /// (`defer_accept`).
        AcceptDeferred = "accept_deferred",
        /// A SYN, or the last step of a handshake, when the engine has as many connections as it
        /// may and none gives way.
        ConnectionLimit = "connection_limit",
        /// A SYN, or the last step of a handshake, of a source that has as much as one source may.
        SourceLimit = "source_limit",
        /// A datagram without a socket.
        UdpNoSocket = "udp_no_socket",
        /// A datagram that would open a flow when there are as many as may be and none gives way.
        UdpFlowLimit = "udp_flow_limit",
        /// A datagram to a socket whose receive queue is full.
        UdpQueueFull = "udp_queue_full",
        /// An ICMP message to a socket whose receive queue is full.
        IcmpQueueFull = "icmp_queue_full",
        /// The pool had no frame for an answer or a segment.
        PoolExhausted = "pool_exhausted",
        /// No route to the destination.
        NoRoute = "no_route",
        /// The route to the destination leads nowhere (`Reject`).
        RejectRoute = "reject_route",
        /// The route to the destination of a packet for others leads by a link that is not in use.
        NoLink = "no_link",
        /// The neighbour did not answer.
        NeighborUnreachable = "neighbor_unreachable",
        /// Too much waits for the neighbour's answer already.
        NeighborQueueFull = "neighbor_queue_full",
        /// A packet for an unknown neighbour, while more of them are asked for than may be in a
        /// second.
        NeighborRateLimit = "neighbor_rate_limit",
        /// The link took nothing more.
        TransmitQueueFull = "transmit_queue_full",
        /// The link failed.
        LinkFailed = "link_failed",
        /// The link was removed.
        LinkRemoved = "link_removed",
        /// Longer than the link's MTU and not to be fragmented.
        TooLong = "too_long",
        /// An ICMP error not sent because too many were.
        IcmpRateLimit = "icmp_rate_limit",
        /// A reset not sent because too many were.
        ResetRateLimit = "reset_rate_limit",
        /// Received data that found no room as memory was short (`MemoryPressure`): of TCP the peer
        /// sends it again.
        MemoryPressure = "memory_pressure",
    }
}

/// How short the memory is that queues take: that of the engine
/// ([`Limits::memory_bytes`](crate::Limits)), or that of the pool. It ends a step below where it
/// began, so that it does not change with each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryPressure {
    /// Less than half of it is in use (3/8 where it was more before): each queue has what its own
    /// limit says.
    #[default]
    None,
    /// Queues have a share of what is left, and data out of order gives way.
    Pressure,
    /// From three quarters on (until it is 5/8): a queue that is not emptied has its minimum, and
    /// connections that hold memory and do nothing are reset.
    Critical,
}

impl MemoryPressure {
    /// `none`, `pressure` or `critical`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pressure => "pressure",
            Self::Critical => "critical",
        }
    }
}

/// Memory that the queues of an engine hold ([`Inspect::memory_use`](crate::Inspect::memory_use)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// The state of memory: enough, short or critical.
    pub pressure: MemoryPressure,
    /// Bytes that queues hold now: frames, and the memory around them.
    pub held_bytes: usize,
    /// The most that they held.
    pub held_most_bytes: usize,
    /// The most bytes that they may hold.
    pub limit_bytes: usize,
    /// Times that memory became short.
    pub times_pressed: u64,
}

/// A listener's queues as they stand, and what it counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerStats {
    /// Handshakes that are not finished.
    pub half_open: usize,
    /// Connections that wait to be accepted.
    pub ready: usize,
    /// The most that may wait.
    pub backlog: usize,
    /// SYNs that arrived, without those sent again for an unfinished handshake.
    pub syns: u64,
    /// SYNs dropped because the queue of unfinished handshakes was full.
    pub syn_queue_full: u64,
    /// SYNs, and last steps of handshakes, dropped because the accept queue was full.
    pub accept_queue_full: u64,
    /// SYNs answered by a cookie.
    pub cookies_sent: u64,
    /// Cookies that came back.
    pub cookies_accepted: u64,
    /// ACKs that might have brought a cookie back and did not.
    pub cookies_refused: u64,
    /// Handshakes that the peer never finished.
    pub timed_out: u64,
    /// Handshakes that the peer reset.
    pub reset: u64,
}

/// A link as it stands, for showing. As text it is one line.
#[derive(Clone, Debug)]
pub struct LinkInfo {
    /// Its name in the engine.
    pub id: LinkId,
    /// Its name for people: the interface's, mostly.
    pub name: String,
    /// The largest IP packet that it carries, in bytes.
    pub mtu: usize,
    /// Its link address; zero where it has none.
    pub mac: MacAddr,
    /// Sentences that say which wishes for the link failed, and how its interface has changed
    /// since.
    pub notes: Vec<String>,
    /// Its interface is down, as far as the link knows: it may come up again.
    pub is_down: bool,
    /// Why the engine uses it no more, if so ([`Inspect::link_error`](crate::Inspect::link_error)).
    pub error: Option<Arc<LinkError>>,
    /// Names and values that only links of its kind have
    /// ([`Link::details`](crate::link::Link::details)).
    pub details: Vec<(&'static str, u64)>,
    /// Its counters.
    pub stats: LinkStats,
}

impl LinkInfo {
    /// `up`, `down` or `failed`.
    pub fn state(&self) -> &'static str {
        match (&self.error, self.is_down) {
            (Some(_), _) => "failed",
            (None, true) => "down",
            (None, false) => "up",
        }
    }
}

impl fmt::Display for LinkInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkStats { rx_packets, rx_bytes, tx_packets, tx_bytes, .. } = self.stats;
        let state = self.state();
        write!(
            f,
            "{} {state} mtu {} rx {rx_packets} ({rx_bytes} B) tx {tx_packets} ({tx_bytes} B)",
            self.name, self.mtu
        )?;
        for (cause, count) in self.stats.drops_by_name() {
            write!(f, " {cause} {count}")?;
        }
        for (name, value) in &self.details {
            write!(f, " {name} {value}")?;
        }
        self.error.iter().try_for_each(|error| write!(f, ": {error}"))
    }
}

counters! {
    /// Counters of one engine. They only grow.
    #[derive(Clone, Debug)]
    pub struct EngineStats {
        /// Turns taken.
        turns: count,
        /// Turns that found nothing to do.
        idle_turns: count,
        /// Times the engine slept.
        sleeps: count,
        /// Packets received from links; a merged burst counts as one.
        rx_packets: count,
        /// Bytes of packets received from links, link headers included.
        rx_bytes: bytes,
        /// Packets handed to links; a super-segment counts as one.
        tx_packets: count,
        /// Bytes of packets handed to links, link headers included.
        tx_bytes: bytes,
        /// TCP segments taken in by a connection or an unfinished handshake.
        tcp_rx_segments: count,
        /// Bytes that links put straight into the buffers of reads that waited.
        tcp_rx_direct_bytes: bytes,
        /// Packets that links put into the buffer of a read they were not for: copied out.
        tcp_rx_direct_missed: count,
        /// Bytes of zero-copy writes that links took straight from the writer's memory, when sent
        /// first.
        tcp_tx_zero_copy_bytes: bytes,
        /// Bytes of zero-copy writes that were not acknowledged when the write ended: copied.
        tcp_tx_zero_copy_copied_bytes: bytes,
        /// TCP segments sent; a super-segment counts as one.
        tcp_tx_segments: count,
        /// TCP segments sent without payload.
        tcp_tx_pure: count,
        /// Resets sent for segments without a connection.
        tcp_resets: count,
        /// Connections that began with our SYN.
        tcp_active_opens: count,
        /// Connections that began with a peer's SYN.
        tcp_passive_opens: count,
        /// SYNs that began to wait for the application's verdict.
        tcp_requests: count,
        /// Requests that the application accepted.
        tcp_requests_accepted: count,
        /// Requests that the application had answered by a reset.
        tcp_requests_reset: count,
        /// Requests that the application had answered by an ICMP error.
        tcp_requests_rejected: count,
        /// Requests that the application left without an answer.
        tcp_requests_dropped: count,
        /// Requests that had no verdict in time.
        tcp_requests_late: count,
        /// Requests that gave way to newer ones, as there was no room.
        tcp_requests_displaced: count,
        /// Requests that their peer reset, or whose prefix was removed.
        tcp_requests_withdrawn: count,
        /// SYN-ACKs sent again, because their time was over or the SYN came again.
        tcp_syn_acks_repeated: count,
        /// SYNs answered by a cookie.
        tcp_cookies_sent: count,
        /// SYN cookies that came back and became a connection.
        tcp_cookies_accepted: count,
        /// ACKs that might have brought a SYN cookie back and did not.
        tcp_cookies_refused: count,
        /// Passive connections that took the place of one in TIME-WAIT between the same ends.
        tcp_time_wait_reused: count,
        /// Connections whose TIME-WAIT was cut short because too many were in it.
        tcp_time_wait_displaced: count,
        /// Orphans that gave way because there were too many.
        tcp_orphans_over_number: count,
        /// Orphans that gave way because their source had too many.
        tcp_orphans_over_source: count,
        /// Orphans that gave way because all of them held too much memory.
        tcp_orphans_over_memory: count,
        /// Orphans whose place a new connection took.
        tcp_orphans_displaced: count,
        /// Connections with nothing exchanged whose place a new one took.
        tcp_unused_displaced: count,
        /// Connections of sources with many, idle ones first, whose place a new one took.
        tcp_idle_displaced: count,
        /// Passive connections that were open with the SYN already (RFC 7413).
        tcp_fast_opens: count,
        /// SYNs with a good cookie (RFC 7413) that had to wait for their handshake, because too
        /// many did not.
        tcp_fast_open_refused: count,
        /// UDP datagrams delivered to a socket.
        udp_rx: count,
        /// UDP datagrams delivered whose flow's headers were known.
        udp_rx_known: count,
        /// UDP datagrams that a waiting reader had straight out of a link's memory.
        udp_rx_shown: count,
        /// UDP flows that were intercepted.
        udp_flows: count,
        /// UDP flows that ended as nothing moved in them.
        udp_flows_expired: count,
        /// UDP flows that gave way to others, as there were too many.
        udp_flows_displaced: count,
        /// UDP flows that the application had answered by an ICMP error.
        udp_flows_refused: count,
        /// UDP datagrams sent.
        udp_tx: count,
        /// Packets handed on from one link to another; a super-segment counts as one.
        forwarded: count,
        /// Packets handed on many at a time.
        forwarded_in_runs: count,
        /// Fragments received for this engine.
        fragments_received: count,
        /// Datagrams put together from fragments.
        datagrams_reassembled: count,
        /// Datagrams sent in fragments.
        datagrams_fragmented: count,
        /// Fragments sent.
        fragments_sent: count,
        /// ICMP echo requests answered.
        icmp_echo_answered: count,
        /// ICMP errors sent.
        icmp_errors_sent: count,
        /// ARP requests and neighbour solicitations sent.
        neighbor_solicits: count,
        /// Times that a neighbour's link address was replaced by another one.
        neighbor_moves: count,
        /// Times that a replaced link address came back, as its station answered all the same.
        neighbor_moves_disproved: count,
        /// Link addresses not believed, as another one had just been confirmed by an answer.
        neighbor_claims_refused: count,
        /// Times that others claimed addresses of the engine.
        address_conflicts: count,
        /// Addresses found to be another's while they were checked: not used any more.
        addresses_duplicated: count,
        /// Claims by others that were answered by an announcement.
        address_defences: count,
        /// Announcements of addresses sent: gratuitous ARP, unsolicited advertisements.
        address_announcements: count,
        /// Turns that granted a share to connections whose writes had to wait for others.
        write_grants: count,
        /// Connections that began to wait for a free frame, as a write found none.
        write_starvations: count,
        /// Bytes of memory that data out of order gave back, as it was short.
        tcp_pruned_bytes: bytes,
        /// Connections reset, as memory was short and nothing of what they held went on.
        tcp_evicted: count,
        /// Timers fired.
        timers_fired: count,
        /// Header templates made anew because routes or neighbours had changed.
        templates_built: count,
    } and {
        /// Counters of TCP's rare events, and of its drops.
        pub tcp: TcpStats = TcpStats::default(),
        /// Drops of well-formed packets, by [`DropReason`].
        pub drops: [u64; DropReason::COUNT] = [0; DropReason::COUNT],
        /// Drops of malformed packets, by [`Malformed::index`].
        pub malformed: [u64; Malformed::COUNT] = [0; Malformed::COUNT],
        /// Sizes of its batches.
        pub batches: Batches = Batches::default(),
        /// Where its time goes, as far as it is sampled.
        pub stages: StageTimes = StageTimes::new(Clock::default(), 0),
    }
}

/// How often one side of a pair of threads was told of news, was woken for it, and had gone to
/// sleep. `wakes` (each a system call) is never more than `edges`, nor than `sleeps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeStats {
    /// Times that news were announced where there had been none.
    pub edges: u64,
    /// Wake-ups sent.
    pub wakes: u64,
    /// Times that the side announced its sleep.
    pub sleeps: u64,
}

/// Written data that did not reach its peer, as far as the peer has acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undelivered {
    /// TCP connections that ended before all that was written on them, and their end, was
    /// acknowledged.
    pub connections: u64,
    /// Bytes written on them and not acknowledged.
    pub bytes: u64,
}

impl Undelivered {
    /// One more connection.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.connections += 1;
        self.bytes += bytes;
    }

    /// Returns the data that was added after `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        let Self { connections, bytes } = before;
        Self { connections: self.connections - connections, bytes: self.bytes - bytes }
    }

    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        let Self { connections, bytes } = other;
        Self { connections: self.connections + connections, bytes: self.bytes + bytes }
    }

    /// Returns true if all data has arrived.
    pub fn is_none(&self) -> bool {
        self.connections == 0
    }
}

impl std::ops::AddAssign for WakeStats {
    fn add_assign(&mut self, other: Self) {
        self.edges += other.edges;
        self.wakes += other.wakes;
        self.sleeps += other.sleeps;
    }
}

impl EngineStats {
    /// Nothing counted; one turn in `stage_sample` is going to be timed (0: none).
    pub(crate) fn new(clock: Clock, stage_sample: u32) -> Self {
        Self { stages: StageTimes::new(clock, stage_sample), ..Self::default() }
    }

    /// Returns how many turns found something to do.
    pub(crate) fn turns_of_work(&self) -> u64 {
        self.turns - self.idle_turns
    }

    /// Counts a drop.
    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drop_many(reason, 1);
    }

    /// Counts as many dropped packets.
    #[inline]
    pub(crate) fn drop_many(&mut self, reason: DropReason, count: u64) {
        self.drops[reason as usize] += count;
    }

    /// Counts a malformed packet.
    #[inline]
    pub(crate) fn malformed(&mut self, reason: Malformed) {
        self.malformed[reason.index()] += 1;
    }

    /// Drops counted under `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Malformed packets counted under `reason`.
    pub fn malformed_by(&self, reason: Malformed) -> u64 {
        self.malformed[reason.index()]
    }

    /// Everything dropped, malformed or not.
    pub fn dropped_total(&self) -> u64 {
        [&self.drops[..], &self.tcp.drops, &self.malformed].into_iter().flatten().sum()
    }

    /// Returns name and count of every reason to drop a well-formed packet.
    pub(crate) fn drops_of_stack(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let tcp = TcpDrop::ALL.map(|reason| (reason.name(), self.tcp.dropped(reason)));
        DropReason::ALL.map(|reason| (reason.name(), self.dropped(reason))).into_iter().chain(tcp)
    }

    /// Name and count of every reason that was counted at least once.
    pub fn drops_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let malformed =
            Malformed::ALL.iter().map(|reason| (reason.name(), self.malformed_by(*reason)));
        self.drops_of_stack().chain(malformed).filter(|(_, count)| *count != 0)
    }
}
