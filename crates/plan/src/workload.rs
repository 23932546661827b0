//! The catalogue of workloads: name, first result and factors of each. The code of its two ends is
//! in `millstream-load`.

use millstream_record::keys;
use serde::{Deserialize, Serialize};

use super::factor::{Factor, Levels};

/// A kind of traffic. The order is that of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Bulk data on connections.
    TcpStream,
    /// Request and response on an open connection.
    TcpRr,
    /// A connection for each request and response.
    TcpCrr,
    /// Datagrams as fast as the sender can, or as it may.
    UdpStream,
    /// Request and response in datagrams.
    UdpRr,
    /// The smallest datagrams, by number of threads.
    UdpPps,
    /// Datagrams through a router.
    Forward,
    /// Streams whose every byte is checked.
    Soak,
}

/// Every workload, in the order of lists.
pub const ALL: &[Workload] = &[
    Workload::TcpStream,
    Workload::TcpRr,
    Workload::TcpCrr,
    Workload::UdpStream,
    Workload::UdpRr,
    Workload::UdpPps,
    Workload::Forward,
    Workload::Soak,
];

/// Bytes of the moment that a datagram of [`Workload::Forward`] begins with.
pub const STAMP_BYTES: usize = 8;

/// Everything that the catalogue says of a workload.
struct Kind {
    /// Its name in definitions and records: `tcp_stream`, `tcp_rr`, ...
    name: &'static str,
    /// The key of the result that is looked at first. More of it is better.
    result: &'static str,
    /// Factors that only this workload has.
    own_factors: &'static [Factor],
    /// Names of the factors that it shares with some other workloads. Factors that all workloads
    /// have are not listed.
    factors: &'static [&'static str],
    /// True when its runs sample the queues and publish the engines' counters from begin to end, as
    /// they may last for hours.
    watched: bool,
}

impl Workload {
    fn kind(self) -> &'static Kind {
        match self {
            Workload::TcpStream => &TCP_STREAM,
            Workload::TcpRr => &TCP_RR,
            Workload::TcpCrr => &TCP_CRR,
            Workload::UdpStream => &UDP_STREAM,
            Workload::UdpRr => &UDP_RR,
            Workload::UdpPps => &UDP_PPS,
            Workload::Forward => &FORWARD,
            Workload::Soak => &SOAK,
        }
    }

    /// Returns the workload of this name.
    pub fn of(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|workload| workload.name() == name)
    }

    /// Returns its name in definitions and records: `tcp_stream`, `tcp_rr`, ...
    pub fn name(self) -> &'static str {
        self.kind().name
    }

    /// Returns the key of the result that is looked at first. More of it is better.
    pub fn result(self) -> &'static str {
        self.kind().result
    }

    /// Returns true when its runs sample the queues and publish the engines' counters from begin to
    /// end.
    pub fn is_watched(self) -> bool {
        self.kind().watched
    }

    /// Returns true when a router stands between its two hosts.
    pub fn is_routed(self) -> bool {
        self == Workload::Forward
    }

    /// Returns the factors that only this workload has.
    pub(crate) fn own_factors(self) -> &'static [Factor] {
        self.kind().own_factors
    }

    /// Returns the names of the factors that it shares with some other workloads.
    pub(crate) fn shared_factors(self) -> &'static [&'static str] {
        self.kind().factors
    }

    /// Returns true when the factor is its own, or one that it shares with some other workloads.
    pub(crate) fn names(self, factor: &str) -> bool {
        self.shared_factors().contains(&factor)
            || self.own_factors().iter().any(|own| own.name == factor)
    }
}

/// Returns a factor that says how the router works, which means nothing when the router is the
/// kernel.
const fn of_router(
    name: &'static str,
    levels: Levels,
    default: &'static str,
    help: &'static str,
) -> Factor {
    Factor { millstream_only: true, ..Factor::own(name, levels, default, help) }
}

const TCP_STREAM: Kind = Kind {
    name: "tcp_stream",
    result: keys::THROUGHPUT,
    own_factors: &[Factor::own(
        "streams",
        Levels::Number(1, 1024),
        "1",
        "connections (per direction)",
    )],
    factors: &["direction", "message_bytes", "congestion", "api", "rival"],
    watched: false,
};

const TCP_RR: Kind = Kind {
    name: "tcp_rr",
    result: keys::TRANSACTIONS,
    own_factors: &[],
    factors: &["request_bytes", "response_bytes", "congestion"],
    watched: false,
};

const TCP_CRR: Kind = Kind {
    name: "tcp_crr",
    result: keys::TRANSACTIONS,
    own_factors: &[],
    factors: &["request_bytes", "response_bytes", "congestion"],
    watched: false,
};

const UDP_STREAM: Kind = Kind {
    name: "udp_stream",
    result: keys::THROUGHPUT,
    own_factors: &[
        Factor::own(
            "datagram_bytes",
            Levels::Number(1, 65_507),
            "1472",
            "payload bytes of a datagram",
        ),
        Factor::own(
            "send_mbit",
            Levels::WordsOrNumber(&["none"], 1, 1_000_000),
            "none",
            "payload Mbit/s that are sent (per direction); none = as fast as the sender can",
        ),
    ],
    factors: &["direction"],
    watched: false,
};

const UDP_RR: Kind = Kind {
    name: "udp_rr",
    result: keys::TRANSACTIONS,
    own_factors: &[],
    factors: &["request_bytes", "response_bytes"],
    watched: false,
};

const UDP_PPS: Kind = Kind {
    name: "udp_pps",
    result: keys::PACKETS,
    own_factors: &[Factor::own(
        "threads",
        Levels::Number(1, 256),
        "1",
        "threads of each end, each with a socket; several on Millstream with engine=net",
    )],
    factors: &["direction"],
    watched: false,
};

const FORWARD: Kind = Kind {
    name: "forward",
    result: keys::PACKETS,
    own_factors: &[
        Factor::own(
            "payload_bytes",
            Levels::Number(STAMP_BYTES as u64, 65_507),
            "18",
            "payload bytes of a datagram; 18 over IPv4 make the shortest frame of Ethernet, 60 bytes",
        ),
        Factor::own(
            "send_packets_per_s",
            Levels::WordsOrNumber(&["max"], 1, 100_000_000),
            "max",
            "datagrams that are sent each second; max = as fast as the sender can",
        ),
        Factor::own(
            "flows",
            Levels::Number(1, 1024),
            "1",
            "sockets that send in turn, 32 datagrams each at the most",
        ),
        of_router(
            "router_link",
            Levels::Words(&["tap", "xdp", "packet"]),
            "tap",
            "the router's links, to either host: TAP devices, or AF_XDP or packet sockets on the ends of veth pairs",
        ),
        of_router(
            "ring_packets",
            Levels::WordsOrNumber(&["auto"], 64, 4096),
            "auto",
            "packets that a ring of the router's links takes: the queue of a TAP device, each ring of an AF_XDP socket, \
             the receive buffer of a packet socket; auto = as the links are made",
        ),
        Factor::own(
            "router_cpu",
            Levels::Words(&["own", "near", "far", "free"]),
            "own",
            "the router on the first CPU that neither host has (else on the far host's), on that of a host, or wherever \
             the kernel puts it; a kernel's router with own and far on any but the near host's, else where that sends",
        ),
    ],
    factors: &[],
    watched: false,
};

const SOAK: Kind = Kind {
    name: "soak",
    result: keys::THROUGHPUT,
    own_factors: &[
        Factor::own(
            "soak_streams",
            Levels::Number(3, 1024),
            "3",
            "connections of soak (per direction)",
        ),
        Factor::own(
            "disk_mib",
            Levels::WordsOrNumber(&["off"], 1, 1 << 20),
            "64",
            "MiB of a file of the near host (in TMPDIR, else /var/tmp) that is read, sought in and written meanwhile",
        ),
    ],
    factors: &["direction", "message_bytes", "congestion"],
    watched: true,
};
