//! The limiting resource: utilisation, saturation and errors of each resource on the path (Gregg,
//! the USE method).
//!
//! Utilisation is the share of the time (or of the room) in which a resource is used; saturation is
//! the share of the time in which work waits for it; errors are how often it refused work in a
//! second. Each is a median over runs. A value that was not measured is absent, never zero.

use serde::{Deserialize, Serialize};

use crate::separate::Feature;
use crate::stats::median;

/// From this saturation on a resource is the limit, however little of it is used.
pub const SATURATED_LEAST: f64 = 0.2;

/// From this utilisation on a resource is at its limit.
pub const FULL_LEAST: f64 = 0.9;

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// The resource in words: `CPU 3`, `the receiver's window`.
    pub name: String,
    /// Share of the time or of the room that is used, 0 to 1.
    pub utilisation: Option<f64>,
    /// Share of the time that work waits for it, 0 to 1.
    pub saturation: Option<f64>,
    /// Refused, dropped or done again in a second.
    pub errors_per_s: Option<f64>,
    /// Features that would say more, and were not measured.
    pub not_measured: Vec<String>,
}

/// The resource that limits the runs, and the one that would limit them next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The resource at its limit; none where no resource is.
    pub resource: Option<String>,
    /// Its saturation where work waits for it, else its utilisation; 0 where no resource is at its
    /// limit.
    pub share: f64,
    /// The one of the others that is used most, with its utilisation: it ends the gain.
    pub next: Option<(String, f64)>,
}

impl Limit {
    /// Returns the factor by which the result may grow until the next resource is fully used.
    pub fn gain_at_most(&self) -> Option<f64> {
        self.next.as_ref().filter(|(_, used)| *used > 0.0).map(|(_, used)| 1.0 / used)
    }
}

/// Features that say something of a resource; an empty name where there is none.
struct Known {
    name: &'static str,
    utilisation: &'static str,
    saturation: &'static str,
    errors: &'static str,
}

const fn known(
    name: &'static str,
    utilisation: &'static str,
    saturation: &'static str,
    errors: &'static str,
) -> Known {
    Known { name, utilisation, saturation, errors }
}

const KNOWN: &[Known] = &[
    known("the busiest thread of an end", "busiest_thread_share", "waits_for_cpu_share", ""),
    known("the CPU quota", "", "throttled_share", ""),
    known(
        "receiving in soft interrupts",
        "busiest_softirq_time_share",
        "",
        "softnet_dropped_per_s",
    ),
    known("locks", "lock_spin_time_share", "", ""),
    known("the sender's socket buffer", "send_buffer_full_share", "sndbuf_limited_share", ""),
    known("the receiver's window", "unread_share", "rwnd_limited_share", "tcp_prunes_per_s"),
    known("the path between the ends", "", "timed_out_share", "retransmissions_per_s"),
    known("queueing disciplines", "", "qdisc_held_share", "qdisc_drops_per_s"),
    known("interfaces", "", "", "interface_drops_per_s"),
    known("accept queues", "", "", "listen_overflows_per_s"),
    known("UDP receive buffers", "", "", "udp_receive_buffer_errors_per_s"),
    known("connection tracking", "", "", "conntrack_drops_per_s"),
    known("disks", "disk_busy_share", "io_pressure_share", ""),
];

/// Returns the resources with the values of `features`, CPUs first.
pub fn resources(features: &[Feature]) -> Vec<Resource> {
    let of = |name: &str| -> Option<f64> {
        let feature = features.iter().find(|one| one.name == name)?;
        median(&feature.values.iter().copied().flatten().collect::<Vec<_>>())
    };
    let idle = features.iter().filter_map(|one| {
        let cpu = one.name.strip_prefix("cpu")?.strip_suffix(".idle_share")?;
        Some((cpu.parse::<u32>().ok()?, of(&one.name)?))
    });
    let mut idle: Vec<(u32, f64)> = idle.collect();
    idle.sort_by_key(|(cpu, _)| *cpu);
    let cpus = idle.into_iter().map(|(cpu, idle)| Resource {
        name: format!("CPU {cpu}"),
        utilisation: Some((1.0 - idle).clamp(0.0, 1.0)),
        ..Resource::default()
    });
    let others = KNOWN.iter().map(|one| {
        let names = [one.utilisation, one.saturation, one.errors];
        let missing = names.iter().filter(|name| !name.is_empty() && of(name).is_none());
        Resource {
            name: one.name.to_owned(),
            utilisation: of(one.utilisation).map(|share| share.clamp(0.0, 1.0)),
            saturation: of(one.saturation).map(|share| share.clamp(0.0, 1.0)),
            errors_per_s: of(one.errors),
            not_measured: missing.map(|name| (*name).to_owned()).collect(),
        }
    });
    cpus.chain(others).collect()
}

/// Returns the resource at its limit: the one that work waits for most, or else the fullest one.
pub fn limit(resources: &[Resource]) -> Limit {
    let greatest = |of: fn(&Resource) -> Option<f64>, least: f64| {
        let known = resources.iter().enumerate().filter_map(|(at, one)| Some((at, of(one)?)));
        known
            .filter(|(_, share)| *share >= least)
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
    };
    let waited = greatest(|one| one.saturation, SATURATED_LEAST);
    let first = waited.or_else(|| greatest(|one| one.utilisation, FULL_LEAST));
    let rest = resources.iter().enumerate().filter(|(at, _)| first.is_none_or(|(it, _)| it != *at));
    let next = rest
        .filter(|(_, one)| one.is_capacity())
        .filter_map(|(_, one)| Some((one.name.clone(), one.utilisation?)))
        .reduce(|a, b| if b.1 > a.1 { b } else { a });
    Limit {
        resource: first.map(|(at, _)| resources[at].name.clone()),
        share: first.map_or(0.0, |(_, share)| share),
        next,
    }
}

impl Resource {
    /// Returns true where more of the result takes more of it. A full queue is a consequence
    /// instead.
    fn is_capacity(&self) -> bool {
        let is_queue = KNOWN.iter().any(|one| {
            one.name == self.name
                && ["send_buffer_full_share", "unread_share"].contains(&one.utilisation)
        });
        !is_queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(&str, f64)]) -> Vec<Resource> {
        let feature = |(name, value): &(&str, f64)| Feature {
            name: (*name).to_owned(),
            distance: 0,
            values: vec![Some(*value), None, Some(*value)],
        };
        resources(&values.iter().map(feature).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_waited_for_limits_before_what_is_full() {
        let all = of(&[
            ("cpu10.idle_share", 0.2),
            ("cpu2.idle_share", 0.05),
            ("rwnd_limited_share", 0.7),
            ("unread_share", 0.99),
        ]);
        assert_eq!([&all[0].name, &all[1].name], ["CPU 2", "CPU 10"]);
        let found = limit(&all);
        assert_eq!((found.resource.as_deref(), found.share), (Some("the receiver's window"), 0.7));
        assert_eq!(found.next, Some(("CPU 2".to_owned(), 0.95)));
        assert!(found.gain_at_most().is_some_and(|gain| (gain - 1.0 / 0.95).abs() < 1e-9));
    }

    #[test]
    fn without_waits_the_fullest_limits_and_without_a_full_one_nothing_does() {
        let found = limit(&of(&[("cpu0.idle_share", 0.02), ("cpu1.idle_share", 0.5)]));
        assert_eq!(found.resource.as_deref(), Some("CPU 0"));
        assert_eq!(found.gain_at_most(), Some(2.0));
        let found = limit(&of(&[("cpu0.idle_share", 0.4), ("rwnd_limited_share", 0.1)]));
        assert_eq!((found.resource, found.next), (None, Some(("CPU 0".to_owned(), 0.6))));
        assert_eq!(limit(&[]), Limit::default());
    }

    #[test]
    fn what_was_not_measured_is_no_zero() {
        let all = of(&[("retransmissions_per_s", 3.0)]);
        let path = all.iter().find(|one| one.name == "the path between the ends").unwrap();
        assert_eq!((path.saturation, path.errors_per_s), (None, Some(3.0)));
        assert_eq!(path.not_measured, ["timed_out_share"]);
    }
}
