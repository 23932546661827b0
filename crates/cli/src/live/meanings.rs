//! What each value that an engine publishes means, for `# HELP` lines. A value of a newer engine has none.

/// What the value of this name means, if that is known.
pub fn meaning(name: &str) -> Option<&'static str> {
    let all = [SEGMENT, ENGINE, TCP, IP, GAUGES, SAMPLED, LINKS].into_iter().flatten();
    all.into_iter().find(|(known, _)| *known == name).map(|(_, meaning)| *meaning)
}

type Meanings = &'static [(&'static str, &'static str)];

const SEGMENT: Meanings = &[
    ("start_time_ns", "When the engine began to publish, since 1970."),
    (
        "published_time_ns",
        "When it published these values, since 1970. An engine without work publishes nothing new.",
    ),
    ("publications", "Times that the engine has published its values."),
    ("control_answered", "Clients of the control socket that had their answer."),
    ("control_refused", "Clients of the control socket that were told why there is no answer."),
    (
        "control_times_full",
        "Times that all places for clients of the control socket came to be taken: others had to wait.",
    ),
    (
        "control_accept_failed",
        "Times that a client of the control socket could not be accepted; it waits on.",
    ),
    ("control_drops", "Clients of the control socket that were dropped, by reason."),
];

const ENGINE: Meanings = &[
    ("turns", "Turns taken."),
    ("idle_turns", "Turns that found nothing to do."),
    ("sleeps", "Times the engine slept."),
    ("rx_packets", "Packets received from links; a merged burst counts as one."),
    ("rx_bytes", "Bytes of packets received from links, link headers included."),
    ("tx_packets", "Packets handed to links; a super-segment counts as one."),
    ("tx_bytes", "Bytes of packets handed to links, link headers included."),
    ("drops", "Well-formed packets that the stack has dropped, by reason."),
    ("malformed", "Malformed packets dropped, by what was wrong with them."),
    ("timers_fired", "Timers fired."),
    ("templates_built", "Header templates made anew because routes or neighbours had changed."),
];

const TCP: Meanings = &[
    ("tcp_rx_segments", "TCP segments taken in by a connection or an unfinished handshake."),
    ("tcp_rx_merged", "Received TCP segments that were joined to the one before."),
    ("tcp_rx_direct_bytes", "Bytes that links put straight into the buffers of reads that waited."),
    (
        "tcp_rx_direct_missed",
        "Packets that links put into the buffer of a read they were not for: copied out.",
    ),
    (
        "tcp_rx_copied_bytes",
        "Bytes copied from frames into the buffers of reads that waited, in the pass that verified them.",
    ),
    (
        "tcp_tx_zero_copy_bytes",
        "Bytes of zero-copy writes that links took straight from the writer's memory, when sent first.",
    ),
    (
        "tcp_tx_zero_copy_copied_bytes",
        "Bytes of zero-copy writes that were not acknowledged when the write ended: copied.",
    ),
    ("tcp_tx_segments", "TCP segments sent; a super-segment counts as one."),
    ("tcp_tx_pure", "TCP segments sent without payload."),
    ("tcp_resets", "Resets sent for segments without a connection."),
    ("tcp_active_opens", "Connections that began with our SYN."),
    ("tcp_passive_opens", "Connections that began with a peer's SYN."),
    (
        "tcp_syn_acks_repeated",
        "SYN-ACKs sent again, because their time was over or the SYN came again.",
    ),
    ("tcp_cookies_sent", "SYNs answered by a cookie."),
    ("tcp_cookies_accepted", "SYN cookies that came back and became a connection."),
    ("tcp_cookies_refused", "ACKs that might have brought a SYN cookie back and did not."),
    (
        "tcp_time_wait_reused",
        "Passive connections that took the place of one in TIME-WAIT between the same ends.",
    ),
    (
        "tcp_time_wait_displaced",
        "Connections whose TIME-WAIT was cut short because too many were in it.",
    ),
    ("tcp_orphans_over_number", "Orphans that gave way because there were too many."),
    ("tcp_orphans_over_source", "Orphans that gave way because their source had too many."),
    ("tcp_orphans_over_memory", "Orphans that gave way because all of them held too much memory."),
    ("tcp_orphans_displaced", "Orphans whose place a new connection took."),
    ("tcp_unused_displaced", "Connections with nothing exchanged whose place a new one took."),
    ("tcp_idle_displaced", "Idle connections, of sources with many, whose place a new one took."),
    ("tcp_fast_opens", "Passive connections that were open with the SYN already (RFC 7413)."),
    (
        "tcp_fast_open_refused",
        "SYNs with a good cookie (RFC 7413) that had to wait for their handshake, because too many did not.",
    ),
    ("tcp_pruned_bytes", "Bytes of memory that data out of order gave back, as it was short."),
    (
        "tcp_evicted",
        "Connections reset, as memory was short and nothing of what they held went on.",
    ),
    (
        "write_grants",
        "Turns that granted a share to connections whose writes had to wait for others.",
    ),
    (
        "write_starvations",
        "Connections that began to wait for a free frame, as a write found none.",
    ),
];

const IP: Meanings = &[
    ("udp_rx", "UDP datagrams delivered to a socket."),
    ("udp_rx_known", "UDP datagrams delivered whose flow's headers were known."),
    ("udp_rx_shown", "UDP datagrams that a waiting reader had straight out of a link's memory."),
    ("udp_tx", "UDP datagrams sent."),
    ("forwarded", "Packets handed on from one link to another; a super-segment counts as one."),
    ("forwarded_in_runs", "Packets handed on many at a time."),
    ("fragments_received", "Fragments received for this engine."),
    ("datagrams_reassembled", "Datagrams put together from fragments."),
    ("datagrams_fragmented", "Datagrams sent in fragments."),
    ("fragments_sent", "Fragments sent."),
    ("icmp_echo_answered", "ICMP echo requests answered."),
    ("icmp_errors_sent", "ICMP errors sent."),
    ("neighbor_solicits", "ARP requests and neighbour solicitations sent."),
    ("neighbor_moves", "Times that a neighbour's link address was replaced by another one."),
    (
        "neighbor_moves_disproved",
        "Times that a replaced link address came back, as its station answered all the same.",
    ),
    (
        "neighbor_claims_refused",
        "Link addresses not believed, as another one had just been confirmed by an answer.",
    ),
    ("address_conflicts", "Times that others claimed addresses of the engine."),
    (
        "addresses_duplicated",
        "Addresses found to be another's while they were checked: not used any more.",
    ),
    ("address_defences", "Claims by others that were answered by an announcement."),
    (
        "address_announcements",
        "Announcements of addresses sent: gratuitous ARP, unsolicited advertisements.",
    ),
];

const GAUGES: Meanings = &[
    ("connections", "TCP connections."),
    ("listeners", "TCP listeners."),
    ("half_open", "TCP handshakes that are not finished."),
    ("time_wait", "Connections in TIME-WAIT that the application has let go of."),
    (
        "orphans",
        "Connections that the application has closed and that go on to deliver what was written.",
    ),
    ("udp_sockets", "UDP sockets."),
    ("icmp_sockets", "ICMP sockets."),
    (
        "tcp_sockets",
        "TCP connections by state; where there are many, counted over several publications.",
    ),
    (
        "timers",
        "Timers that are armed: one for each connection, handshake and TIME-WAIT that waits for something.",
    ),
    (
        "timers_armed",
        "What connections wait for, by kind; where there are many, counted over several publications.",
    ),
    ("routes", "Routes."),
    ("neighbors", "Entries of the neighbour cache."),
    ("neighbor_pending_bytes", "Memory of packets that wait for the link address of a neighbour."),
    ("memory_held_bytes", "Memory that queues hold, frames and what stands around them."),
    ("memory_held_most_bytes", "The most memory that queues held."),
    ("memory_limit_bytes", "Memory that queues may hold."),
    ("memory_pressure", "How short memory is: 0 not at all, 1 under pressure, 2 critical."),
    ("memory_times_pressed", "Times that memory became short."),
    (
        "pool_limit_frames",
        "Frames that the pool may have. Engines of one process may share a pool.",
    ),
    ("pool_free_frames", "Frames that the engine could still be given."),
    ("pool_descriptors", "Frames, views and blocks that the pool has."),
    (
        "pool_descriptors_out",
        "Frames, views and blocks of the pool that are in use or at hand for a thread.",
    ),
    (
        "pool_descriptors_out_most",
        "The most frames, views and blocks of the pool that were in use or at hand for a thread.",
    ),
    ("pool_exhausted", "Times that a thread found no frame, view or block in the pool."),
    ("links", "Links in use."),
];

const SAMPLED: Meanings = &[
    ("stage_sample", "One turn in how many is timed; 0: none."),
    ("stage_timed_turns", "Turns that were timed."),
    ("stage_ns", "Time spent in a stage, in the turns that were timed."),
    ("stage_most_ns", "The longest visit of a stage that was timed."),
    ("stage_visits", "Timed visits of a stage."),
    ("stage_units", "Units of work (packets, mostly) done in timed visits of a stage."),
    ("receive_packets", "Packets of a link's receive that found something."),
    ("transmit_packets", "Packets that a link took at once."),
    ("served_bytes", "Payload that one connection sent when it had its turn."),
    ("served_connections", "Connections served with transmission in a turn that sent something."),
    ("sleep_us", "Length of a sleep."),
    ("packet_sample", "One packet in how many is sampled."),
    ("packet_traces", "Sampled packets whose traces have ended."),
    (
        "packet_traces_displaced",
        "Sampled packets that were followed no further, as others needed their places.",
    ),
    ("packet_ns", "Time that sampled packets were in a stage."),
];

const LINKS: Meanings = &[
    ("link_rx_packets", "Packets received by a link."),
    ("link_rx_bytes", "Bytes received by a link, link headers included."),
    ("link_tx_packets", "Packets sent by a link."),
    ("link_tx_bytes", "Bytes sent by a link, link headers included."),
    ("link_rx_super_segments", "Received packets that were merged super-segments."),
    (
        "link_rx_software_segmented",
        "Received packets beyond 64 KiB that had to be cut in software.",
    ),
    ("link_tx_super_segments", "Sent packets that left whole as super-segments."),
    ("link_tx_software_segmented", "Sent packets that had to be cut in software."),
    ("link_tx_software_checksums", "Sent packets whose checksum had to be completed in software."),
    ("link_rx_syscalls", "System calls made to receive."),
    ("link_tx_syscalls", "System calls made to send."),
    ("link_rx_starved", "Times a receive ended because the pool had no frame."),
    (
        "link_rx_handed_over",
        "Packets handed over to the engine that they belong to, by a device that engines share.",
    ),
    ("link_wakeups", "Times that a link woke the other side of a pair, or another engine."),
    ("link_tx_full", "Times a link took nothing more for want of room."),
    ("link_tx_steered", "Sent packets that the kernel was asked to receive on another CPU."),
    ("link_tx_steerings", "Times that steering of sent packets to another CPU began."),
    (
        "link_tx_returns",
        "Times that packets which other CPUs had read were taken back before the kernel interrupted for it.",
    ),
    ("link_drops", "Packets that a link has dropped, by cause."),
    ("link_is_down", "Whether the interface of a link is down."),
    ("link_queued_packets", "Packets that wait for a link to take them."),
    ("link_mtu_bytes", "The largest IP packet that a link carries."),
    ("link_rx_ring", "Packets that the receive side of a link holds before it drops."),
    ("link_tx_ring", "Packets that the transmit side of a link holds before it is full."),
];
