//! The factors an experiment can vary, with their allowed levels and defaults.

use std::sync::LazyLock;

use super::factor::{Factor, Levels, Scope};
use super::workload::{ALL, Workload};

const ON_OFF: Levels = Levels::Words(&["on", "off"]);

/// A factor of all workloads.
const fn factor(
    name: &'static str,
    levels: Levels,
    default: &'static str,
    help: &'static str,
) -> Factor {
    Factor { scope: Scope::All, ..Factor::own(name, levels, default, help) }
}

/// A factor of all workloads between whose hosts there is no router.
const fn direct(
    name: &'static str,
    levels: Levels,
    default: &'static str,
    help: &'static str,
) -> Factor {
    Factor { scope: Scope::Direct, ..Factor::own(name, levels, default, help) }
}

/// Every factor except `stack`, in the order in which configurations are named: those of some
/// workloads, those of one, those of all.
pub static FACTORS: LazyLock<Vec<Factor>> = LazyLock::new(|| {
    let own = ALL.iter().flat_map(|workload| workload.own_factors());
    SHARED.iter().chain(own).chain(OF_ALL).cloned().collect()
});

/// Factors of some workloads, which name them.
const SHARED: &[Factor] = &[
    Factor::own(
        "direction",
        Levels::Words(&["send", "recv", "both"]),
        "send",
        "which way the data goes, seen from the near host; both = as many streams each way",
    ),
    Factor::own(
        "message_bytes",
        Levels::Number(1, 16 << 20),
        "131072",
        "bytes of one call to send or recv",
    ),
    Factor::own("request_bytes", Levels::Number(1, 1 << 20), "1", "bytes of a request"),
    Factor::own("response_bytes", Levels::Number(1, 1 << 20), "1", "bytes of a response"),
    Factor::own(
        "congestion",
        Levels::Words(&["cubic", "reno", "bbr", "bbr1", "system"]),
        "cubic",
        "congestion control of both hosts; bbr is version 3 on Millstream and 1 on Linux, bbr1 is 1 on both; \
         system = the system's own in the kernel, Millstream's default there; where an experiment names none and the \
         system's is another than the default, each run says so",
    ),
    Factor::own(
        "api",
        Levels::Words(&["copy", "zero-copy"]),
        "copy",
        "bytes copied between buffers and sockets, or what is sent handed over as it is: packets of Millstream's \
         pool, or a file in memory by sendfile(2); a kernel at the far end copies always",
    ),
    // Nobody reads what the transactions of a rival would be.
    Factor {
        needs_impaired: true,
        ..Factor::own(
            "rival",
            Levels::Words(&["none", "kernel", "millstream"]),
            "none",
            "a stack that does the same beside the near host, over the same path, to a peer of its own; CPU per GB \
             and cross-calls per GB are then left out, for they would be of both",
        )
    },
];

/// Factors of all workloads.
const OF_ALL: &[Factor] = &[
    factor("ip", Levels::Words(&["v4", "v6"]), "v4", "version of IP"),
    factor("mtu", Levels::Number(1280, 65521), "1500", "largest IP packet of the link, bytes"),
    factor("offload", ON_OFF, "on", "checksum and segmentation offload of the link"),
    direct(
        "super_segment_bytes",
        Levels::WordsOrNumber(&["auto"], 65_536, 524_280),
        "auto",
        "longest packet that passes whole with offload=on, of both hosts (BIG TCP): gso_max_size and gro_max_size of a \
         veth pair, gro_max_size of a TAP device, over which what comes from the kernel keeps to 65536 (not \
         so with link=macvtap); auto = as devices are made, 65536; of path=direct alone",
    ),
    factor(
        "placement",
        Levels::Words(&["split", "same", "free"]),
        "split",
        "the hosts on the first two CPUs, both on the first, or wherever the kernel puts them",
    ),
    factor(
        "socket_buffer_bytes",
        Levels::WordsOrNumber(&["auto"], 4096, 1 << 30),
        "auto",
        "send and receive buffer of the sockets of both hosts",
    ),
    factor(
        "peer_buffer_bytes",
        Levels::WordsOrNumber(&["same", "auto"], 4096, 1 << 30),
        "same",
        "the same for the far host alone; same = as socket_buffer_bytes, auto = its stack tunes them",
    ),
    factor(
        "priority",
        Levels::Words(&["normal", "high"]),
        "normal",
        "scheduling priority of both ends: as they come, or nice -20, which leaves others next to nothing of their CPUs",
    ),
    factor(
        "idle_latency_us",
        Levels::WordsOrNumber(&["auto"], 0, 2_000_000_000),
        "auto",
        "longest wake-up time of idle CPUs that the kernel is asked for during a run, of the whole machine and for \
         both stacks; 0 = idle CPUs poll instead of halting; auto = nothing is asked",
    ),
    Factor {
        name: "link",
        levels: Levels::Words(&["tap", "macvtap", "memory"]),
        default: "tap",
        scope: Scope::Direct,
        millstream_only: true,
        needs_impaired: false,
        help: "a TAP device with a kernel at its other end, a macvtap device over the near end of the veth pair that the \
               kernels have, or in memory with Millstream at both ends",
    },
    Factor {
        name: "engine",
        levels: Levels::Words(&["local", "net"]),
        default: "local",
        scope: Scope::Direct,
        millstream_only: true,
        needs_impaired: false,
        help: "Millstream inside the application's thread, or in a thread of its own",
    },
    direct(
        "path",
        Levels::Words(&["direct", "impaired"]),
        "direct",
        "one link between the hosts, or two TAP devices with the faults below in both directions",
    ),
    impairment("peer", Levels::Words(STACKS), "kernel", "the stack of the far host"),
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
        scope: Scope::Direct,
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
    Factor { needs_impaired, ..direct(name, levels, default, help) }
}

/// The stacks that can be measured; the order is that of the default.
pub const STACKS: &[&str] = &["kernel", "millstream"];

/// The names of all routers: a stack, or a bare loop that moves frames between the same links.
pub const ROUTERS: &[&str] = &["kernel", "millstream", "bare"];

impl Factor {
    /// Returns true when this workload knows the factor.
    pub fn is_of(&self, workload: Workload) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::Direct => !workload.is_routed(),
            Scope::Named => workload.names(self.name),
        }
    }

    /// Returns the factor of this name. `stack` is none of them.
    pub fn of(name: &str) -> Option<&'static Factor> {
        FACTORS.iter().find(|factor| factor.name == name)
    }

    /// Returns true when the factor means something for this workload on this stack.
    pub fn applies(&self, workload: Workload, stack: &str) -> bool {
        self.is_of(workload) && (!self.millstream_only || stack != "kernel")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_an_allowed_level() {
        for factor in FACTORS.iter() {
            assert_eq!(factor.level(factor.default).as_deref(), Some(factor.default));
            assert!(ALL.iter().any(|workload| factor.is_of(*workload)), "{}", factor.name);
            let same = FACTORS.iter().filter(|other| other.name == factor.name);
            assert_eq!(same.count(), 1, "{} is one factor", factor.name);
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
