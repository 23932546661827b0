//! Declares what is published beside the counters of the engine and of its links, and lists it all.

use millstream_link::LinkStats;
use millstream_live::Kind;
use millstream_packet::{Counter, counters};
use millstream_tcp::TcpStats;

use super::clients::ClientStats;
use super::states::Fullest;
use crate::stats::EngineStats;

counters! {
    /// Levels of an engine, each beside its limit.
    pub struct Levels {
        /// TCP connections.
        connections: count,
        /// TCP listeners.
        listeners: count,
        /// TCP handshakes that are not finished.
        half_open: count,
        /// Connections in TIME-WAIT that the application has let go of.
        time_wait: count,
        /// Connections that the application has closed and that go on to deliver what was written.
        orphans: count,
        /// UDP sockets.
        udp_sockets: count,
        /// ICMP sockets.
        icmp_sockets: count,
        /// Timers that are armed: one for each connection, handshake and TIME-WAIT that waits for
        /// something.
        timers: count,
        /// Routes.
        routes: count,
        /// Entries of the neighbour cache.
        neighbors: count,
        /// Memory of packets that wait for the link address of a neighbour.
        neighbor_pending_bytes: bytes,
        /// Memory that queues hold, frames and what stands around them.
        memory_held_bytes: bytes,
        /// The most memory that queues held.
        memory_held_most_bytes: bytes,
        /// Memory that queues may hold.
        memory_limit_bytes: bytes,
        /// How short memory is: 0 not at all, 1 under pressure, 2 critical.
        memory_pressure: count,
        /// Links in use.
        links: count,
        /// Frames that the pool may have. Engines of one process may share a pool.
        pool_limit_frames: count,
        /// Frames that the engine could still be given.
        pool_free_frames: count,
    }
}

counters! {
    /// Levels of the pool: frames, views or blocks.
    pub struct StockLevels {
        /// Frames, views and blocks that the pool has.
        pool_descriptors: count,
        /// Frames, views and blocks of the pool that are in use or at hand for a thread.
        pool_descriptors_out: count,
        /// The most frames, views and blocks of the pool that were in use or at hand for a thread.
        pool_descriptors_out_most: count,
    }
}

counters! {
    /// How a link stands.
    pub struct LinkLevels {
        /// 1 where the interface of a link is down.
        is_down: count,
        /// Packets that wait for a link to take them.
        queued_packets: count,
        /// The largest IP packet that a link carries.
        mtu_bytes: bytes,
        /// Packets that the receive side of a link holds before it drops.
        rx_ring: count,
        /// Packets that the transmit side of a link holds before it is full.
        tx_ring: count,
    }
}

/// Several numbers of one name, told apart by labels, or a histogram.
pub(super) type Family = (Kind, Counter);

/// Declares what has labels or is a histogram: `NAME: KIND unit` and its help.
macro_rules! families {
    ($($const:ident $kind:ident $name:literal $unit:ident $help:literal;)*) => {
        $(pub(super) const $const: Family =
            (Kind::$kind, Counter::new($name, stringify!($unit), $help));)*
        const FAMILIES: &[Family] = &[$($const),*];
    };
}

families! {
    DROPS Counter "drops" count "Well-formed packets that the stack has dropped, by reason.";
    MALFORMED Counter "malformed" count "Malformed packets dropped, by what was wrong with them.";
    CONTROL_DROPS Counter "control_drops" count
        "Clients of the control socket that were dropped, by reason.";
    LINK_DROPS Counter "link_drops" count "Packets that a link has dropped, by cause.";
    TIMES_PRESSED Counter "memory_times_pressed" count "Times that memory became short.";
    POOL_EXHAUSTED Counter "pool_exhausted" count
        "Times that a thread found no frame, view or block in the pool.";
    TCP_SOCKETS Gauge "tcp_sockets" count
        "TCP connections by state; where there are many, counted over several publications.";
    TIMERS_ARMED Gauge "timers_armed" count
        "What connections wait for, by kind; where there are many, counted over several publications.";
    STAGE_SAMPLE Gauge "stage_sample" count "One turn in how many is timed; 0: none.";
    STAGE_TIMED_TURNS Counter "stage_timed_turns" count "Turns that were timed.";
    STAGE_NS Counter "stage_ns" ns "Time spent in a stage, in the turns that were timed.";
    STAGE_MOST_NS Gauge "stage_most_ns" ns "The longest visit of a stage that was timed.";
    STAGE_VISITS Counter "stage_visits" count "Timed visits of a stage.";
    STAGE_UNITS Counter "stage_units" count
        "Units of work (packets, mostly) done in timed visits of a stage.";
    RECEIVE_PACKETS Histogram "receive_packets" count
        "Packets of a link's receive that found something.";
    TRANSMIT_PACKETS Histogram "transmit_packets" count "Packets that a link took at once.";
    SERVED_BYTES Histogram "served_bytes" bytes
        "Payload that one connection sent when it had its turn.";
    SERVED_CONNECTIONS Histogram "served_connections" count
        "Connections served with transmission in a turn that sent something.";
    SLEEP_US Histogram "sleep_us" us "Length of a sleep.";
    PACKET_SAMPLE Gauge "packet_sample" count "One packet in how many is sampled.";
    PACKET_TRACES Counter "packet_traces" count "Sampled packets whose traces have ended.";
    PACKET_TRACES_DISPLACED Counter "packet_traces_displaced" count
        "Sampled packets that were followed no further, as others needed their places.";
    PACKET_NS Histogram "packet_ns" ns "Time that sampled packets were in a stage.";
}

/// Returns everything that an engine publishes: its name, of what kind it is, and what was
/// declared.
pub fn published() -> Vec<(String, Kind, Counter)> {
    let of = |prefix: &'static str, kind, all: &'static [Counter]| {
        all.iter().map(move |one| (format!("{prefix}{}", one.name), kind, *one))
    };
    let families = FAMILIES.iter().map(|(kind, one)| (one.name.to_owned(), *kind, *one));
    of("", Kind::Counter, &EngineStats::COUNTERS)
        .chain(of("tcp_", Kind::Counter, &TcpStats::COUNTERS))
        .chain(of("", Kind::Gauge, &Levels::COUNTERS))
        .chain(of("tcp_fullest_queue_", Kind::Gauge, &Fullest::COUNTERS))
        .chain(of("", Kind::Gauge, &StockLevels::COUNTERS))
        .chain(of("control_", Kind::Counter, &ClientStats::COUNTERS))
        .chain(of("link_", Kind::Counter, &LinkStats::COUNTERS))
        .chain(of("link_", Kind::Gauge, &LinkLevels::COUNTERS))
        .chain(families)
        .collect()
}
