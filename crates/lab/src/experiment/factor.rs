//! The factors an experiment can vary, with their allowed levels and defaults.

use std::fmt;

use crate::record::keys;

/// A kind of traffic; its name is the field's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// Bulk data over n connections, in one or both directions.
    TcpStream,
    /// Request and response on an open connection, one outstanding.
    TcpRr,
    /// A connection for each request and response.
    TcpCrr,
    /// Datagrams as fast as the sender can, or as it may.
    UdpStream,
    /// Request and response in datagrams, one outstanding.
    UdpRr,
    /// The smallest datagrams, by number of threads.
    UdpPps,
    /// Checked streams beside a busy disk.
    Soak,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 7] = [
        Workload::TcpStream,
        Workload::TcpRr,
        Workload::TcpCrr,
        Workload::UdpStream,
        Workload::UdpRr,
        Workload::UdpPps,
        Workload::Soak,
    ];

    /// `tcp_stream`, `tcp_rr`, …
    pub fn name(self) -> &'static str {
        match self {
            Workload::TcpStream => "tcp_stream",
            Workload::TcpRr => "tcp_rr",
            Workload::TcpCrr => "tcp_crr",
            Workload::UdpStream => "udp_stream",
            Workload::UdpRr => "udp_rr",
            Workload::UdpPps => "udp_pps",
            Workload::Soak => "soak",
        }
    }

    /// The key of the result that is looked at first; more of it is better.
    pub fn result(self) -> &'static str {
        match self {
            Workload::TcpStream | Workload::UdpStream | Workload::Soak => keys::THROUGHPUT,
            Workload::TcpRr | Workload::TcpCrr | Workload::UdpRr => keys::TRANSACTIONS,
            Workload::UdpPps => keys::PACKETS,
        }
    }

    /// The workload of this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }
}

/// What a level may be.
#[derive(Clone, Copy, Debug)]
pub enum Levels {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number in this range.
    Number(u64, u64),
    /// One of these words, or a whole number in this range.
    WordsOrNumber(&'static [&'static str], u64, u64),
    /// A number in this range, of at most three decimal places.
    Decimal(f64, f64),
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Levels::Words(words) => f.write_str(&words.join(", ")),
            Levels::Number(low, high) => write!(f, "a whole number from {low} to {high}"),
            Levels::WordsOrNumber(words, low, high) => {
                write!(f, "{} or a whole number from {low} to {high}", words.join(", "))
            }
            Levels::Decimal(low, high) => write!(f, "a number from {low} to {high}"),
        }
    }
}

/// One thing that an experiment can vary.
#[derive(Debug)]
pub struct Factor {
    /// Its name in definitions and records.
    pub name: &'static str,
    /// Allowed levels.
    pub levels: Levels,
    /// The level when nothing is said; the first word of the list for `stack`.
    pub default: &'static str,
    /// Workloads that know it.
    pub workloads: &'static [Workload],
    /// True when it means something on Millstream alone.
    pub millstream_only: bool,
    /// True when a level other than the default means something on the impaired path alone.
    pub needs_impaired: bool,
    /// One line for the help text.
    pub help: &'static str,
}

const STREAM: &[Workload] = &[Workload::TcpStream];
const RR: &[Workload] = &[Workload::TcpRr, Workload::TcpCrr, Workload::UdpRr];
const DIRECTED: &[Workload] =
    &[Workload::TcpStream, Workload::UdpStream, Workload::UdpPps, Workload::Soak];
const BYTES: &[Workload] = &[Workload::TcpStream, Workload::Soak];
const CONTROLLED: &[Workload] =
    &[Workload::TcpStream, Workload::TcpRr, Workload::TcpCrr, Workload::Soak];
const BOTH: &[Workload] = &Workload::ALL;
const ON_OFF: Levels = Levels::Words(&["on", "off"]);

const fn factor(
    name: &'static str,
    workloads: &'static [Workload],
    levels: Levels,
    default: &'static str,
    help: &'static str,
) -> Factor {
    Factor { name, levels, default, workloads, millstream_only: false, needs_impaired: false, help }
}

/// Every factor except `stack`, in the order in which configurations are named.
pub const FACTORS: &[Factor] = &[
    factor(
        "direction",
        DIRECTED,
        Levels::Words(&["send", "recv", "both"]),
        "send",
        "which way the data goes, seen from the near host; both = as many streams each way",
    ),
    factor("streams", STREAM, Levels::Number(1, 1024), "1", "connections (per direction)"),
    factor(
        "soak_streams",
        &[Workload::Soak],
        Levels::Number(3, 1024),
        "3",
        "connections of soak (per direction)",
    ),
    factor(
        "message_bytes",
        BYTES,
        Levels::Number(1, 16 << 20),
        "131072",
        "bytes of one call to send or recv",
    ),
    factor("request_bytes", RR, Levels::Number(1, 1 << 20), "1", "bytes of a request"),
    factor("response_bytes", RR, Levels::Number(1, 1 << 20), "1", "bytes of a response"),
    factor(
        "datagram_bytes",
        &[Workload::UdpStream],
        Levels::Number(1, 65_507),
        "1472",
        "payload bytes of a datagram",
    ),
    factor(
        "send_mbit",
        &[Workload::UdpStream],
        Levels::WordsOrNumber(&["none"], 1, 1_000_000),
        "none",
        "payload Mbit/s that are sent (per direction); none = as fast as the sender can",
    ),
    factor(
        "threads",
        &[Workload::UdpPps],
        Levels::Number(1, 256),
        "1",
        "threads of each end, each with a socket; several on Millstream with engine=net",
    ),
    factor(
        "disk_mib",
        &[Workload::Soak],
        Levels::WordsOrNumber(&["off"], 1, 1 << 20),
        "64",
        "MiB of a file of the near host (in TMPDIR, else /var/tmp) that is read, sought in and written meanwhile",
    ),
    factor("ip", BOTH, Levels::Words(&["v4", "v6"]), "v4", "version of IP"),
    factor(
        "mtu",
        BOTH,
        Levels::Number(1280, 65521),
        "1500",
        "largest IP packet of the link, bytes",
    ),
    factor("offload", BOTH, ON_OFF, "on", "checksum and segmentation offload of the link"),
    factor(
        "super_segment_bytes",
        BOTH,
        Levels::WordsOrNumber(&["auto"], 65_536, 524_280),
        "auto",
        "longest packet that passes whole with offload=on, of both hosts (BIG TCP): gso_max_size and gro_max_size of a \
         veth pair, gro_max_size of a TAP device, over which what comes from the kernel keeps to 65536 (not \
         so with link=macvtap); auto = as devices are made, 65536; of path=direct alone",
    ),
    factor(
        "placement",
        BOTH,
        Levels::Words(&["split", "same", "free"]),
        "split",
        "the hosts on the first two CPUs, both on the first, or wherever the kernel puts them",
    ),
    factor(
        "socket_buffer_bytes",
        BOTH,
        Levels::WordsOrNumber(&["auto"], 4096, 1 << 30),
        "auto",
        "send and receive buffer of the sockets of both hosts",
    ),
    factor(
        "peer_buffer_bytes",
        BOTH,
        Levels::WordsOrNumber(&["same", "auto"], 4096, 1 << 30),
        "same",
        "the same for the far host alone; same = as socket_buffer_bytes, auto = its stack tunes them",
    ),
    factor(
        "congestion",
        CONTROLLED,
        Levels::Words(&["cubic", "reno", "bbr", "bbr1", "system"]),
        "cubic",
        "congestion control of both hosts; bbr is version 3 on Millstream and 1 on Linux, bbr1 is 1 on both; \
         system = the system's own in the kernel, Millstream's default there; where an experiment names none and the \
         system's is another than the default, each run says so",
    ),
    factor(
        "priority",
        BOTH,
        Levels::Words(&["normal", "high"]),
        "normal",
        "scheduling priority of both ends: as they come, or nice -20, which leaves others next to nothing of their CPUs",
    ),
    factor(
        "idle_latency_us",
        BOTH,
        Levels::WordsOrNumber(&["auto"], 0, 2_000_000_000),
        "auto",
        "longest wake-up time of idle CPUs that the kernel is asked for during a run, of the whole machine and for \
         both stacks; 0 = idle CPUs poll instead of halting; auto = nothing is asked",
    ),
    Factor {
        name: "link",
        levels: Levels::Words(&["tap", "macvtap", "memory"]),
        default: "tap",
        workloads: BOTH,
        millstream_only: true,
        needs_impaired: false,
        help: "a TAP device with a kernel at its other end, a macvtap device over the near end of the veth pair that the \
               kernels have, or in memory with Millstream at both ends",
    },
    Factor {
        name: "engine",
        levels: Levels::Words(&["local", "net"]),
        default: "local",
        workloads: BOTH,
        millstream_only: true,
        needs_impaired: false,
        help: "Millstream inside the application's thread, or in a thread of its own",
    },
    factor(
        "api",
        STREAM,
        Levels::Words(&["copy", "zero-copy"]),
        "copy",
        "bytes copied between buffers and sockets, or what is sent handed over as it is: packets of Millstream's \
         pool, or a file in memory by sendfile(2); a kernel at the far end copies always",
    ),
    factor(
        "path",
        BOTH,
        Levels::Words(&["direct", "impaired"]),
        "direct",
        "one link between the hosts, or two TAP devices with the faults below in both directions",
    ),
    impairment("peer", Levels::Words(STACKS), "kernel", "the stack of the far host"),
    // Nobody reads what the transactions of a rival would be.
    Factor {
        needs_impaired: true,
        ..factor(
            "rival",
            STREAM,
            Levels::Words(&["none", "kernel", "millstream"]),
            "none",
            "a stack that does the same beside the near host, over the same path, to a peer of its own; CPU per GB \
             and cross-calls per GB are then left out, for they would be of both",
        )
    },
    impairment("rtt_ms", Levels::Decimal(0.0, 10_000.0), "0", "round trip of the empty path"),
    impairment("loss_percent", Levels::Decimal(0.0, 100.0), "0", "packets lost"),
    impairment(
        "loss_run_packets",
        Levels::Number(1, 1000),
        "1",
        "mean length of a run of losses; 1 = each packet by itself",
    ),
    impairment("reorder_percent", Levels::Decimal(0.0, 100.0), "0", "packets held back"),
    impairment("reorder_by_us", Levels::Number(1, 10_000_000), "1000", "for how long"),
    impairment(
        "rate_mbit",
        Levels::WordsOrNumber(&["none"], 1, 100_000),
        "none",
        "Mbit/s that pass, link headers included",
    ),
    impairment(
        "queue_packets",
        Levels::WordsOrNumber(&["auto"], 1, 100_000),
        "auto",
        "packets that wait for the rate; auto = what passes in a round trip, at least 100",
    ),
    impairment(
        "late_percent",
        Levels::Decimal(0.0, 100.0),
        "5",
        "a run of which the path itself passed on more than this share of the packets either way late (by 1 ms, or a \
         twentieth of rtt_ms if that is more) is done again, thrice at most, and then does not count; \
         100 = counts always",
    ),
    Factor {
        name: "engine_cpu",
        levels: Levels::Words(&["near", "far", "free"]),
        default: "near",
        workloads: BOTH,
        millstream_only: true,
        needs_impaired: false,
        help: "with engine=net: the engine's thread on the CPU of its own host's application, on the other \
               host's, or wherever the kernel puts it; near and far as the near host sees it",
    },
];

/// A factor of the impaired path.
const fn impairment(
    name: &'static str,
    levels: Levels,
    default: &'static str,
    help: &'static str,
) -> Factor {
    let needs_impaired = true;
    Factor { needs_impaired, ..factor(name, BOTH, levels, default, help) }
}

/// The stacks that can be measured; the order is that of the default.
pub const STACKS: &[&str] = &["kernel", "millstream"];

impl Factor {
    /// The factor of this name; `stack` is not one of them.
    pub fn of(name: &str) -> Option<&'static Factor> {
        FACTORS.iter().find(|factor| factor.name == name)
    }

    /// Whether it means something for this workload on this stack.
    pub fn applies(&self, workload: Workload, stack: &str) -> bool {
        self.workloads.contains(&workload) && (!self.millstream_only || stack == "millstream")
    }

    /// The level in its one way of writing, or `None` when it is not allowed.
    pub fn level(&self, text: &str) -> Option<String> {
        self.levels.level(text)
    }
}

impl Levels {
    /// The level in its one way of writing, or `None` when it is not allowed.
    pub fn level(&self, text: &str) -> Option<String> {
        let number = |low: u64, high: u64| {
            let value: u64 = text.replace('_', "").parse().ok()?;
            (low..=high).contains(&value).then(|| value.to_string())
        };
        match *self {
            Levels::Words(words) => words.contains(&text).then(|| text.to_owned()),
            Levels::Number(low, high) => number(low, high),
            Levels::WordsOrNumber(words, _, _) if words.contains(&text) => Some(text.to_owned()),
            Levels::WordsOrNumber(_, low, high) => number(low, high),
            Levels::Decimal(low, high) => {
                // "-0" is 0.
                let value = text.parse::<f64>().ok()? + 0.0;
                let level = ((value * 1e3).round() / 1e3).to_string();
                let is_exact = level.parse::<f64>().is_ok_and(|level| level == value);
                (is_exact && (low..=high).contains(&value)).then_some(level)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_an_allowed_level() {
        for factor in FACTORS {
            assert_eq!(factor.level(factor.default).as_deref(), Some(factor.default));
            assert!(!factor.workloads.is_empty());
        }
    }

    #[test]
    fn levels_have_one_way_of_writing() {
        let streams = Factor::of("streams").unwrap();
        assert_eq!(streams.level("0016").as_deref(), Some("16"));
        assert_eq!(streams.level("1_000").as_deref(), Some("1000"));
        for refused in ["0", "1025", "-1", "1.5", "many", ""] {
            assert_eq!(streams.level(refused), None, "{refused}");
        }
        assert_eq!(Factor::of("socket_buffer_bytes").unwrap().level("auto").unwrap(), "auto");
        for word in ["same", "auto"] {
            assert_eq!(Factor::of("peer_buffer_bytes").unwrap().level(word).unwrap(), word);
        }
        let idle = Factor::of("idle_latency_us").unwrap();
        assert_eq!(idle.level("0").as_deref(), Some("0"));
        assert_eq!(idle.level("-1"), None);
        assert!(Factor::of("stack").is_none());
        let loss = Factor::of("loss_percent").unwrap();
        assert_eq!(loss.level("0.10").as_deref(), Some("0.1"));
        assert_eq!(loss.level("3.0").as_deref(), Some("3"));
        assert_eq!(loss.level("-0").as_deref(), Some("0"));
        for refused in ["100.5", "-1", "0.0001", "NaN", "1%"] {
            assert_eq!(loss.level(refused), None, "{refused}");
        }
    }
}
