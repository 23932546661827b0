//! The places where datagrams were lost on their way through a router, by the counters of these
//! places.

use std::collections::BTreeMap;

use millstream_record::{HostCounters, Probes, RunRecord, keys};
use millstream_testbed::hosts::{FAR_INTERFACE, IN_INTERFACE, NEAR_INTERFACE, OUT_INTERFACE};

/// The role of the router, and the name of its host.
const ROUTER: &str = "router";

/// Fills in how many were dropped at each place over the whole run; no line for none.
pub(super) fn fill(record: &mut RunRecord) {
    for (place, count) in of(&record.probes) {
        record.results.insert(format!("{}{place}_packets", keys::OVERRUN), count as f64);
    }
}

/// Returns the lost packets by place and cause.
fn of(probes: &Probes) -> BTreeMap<String, u64> {
    let host = |name: &str| probes.hosts.as_ref().and_then(|hosts| hosts.get(name));
    let mut all: Vec<(String, u64)> = Vec::new();
    let mut add = |place: &str, count: u64| all.push((place.to_owned(), count));
    add("near_queue", dropped(host("near"), NEAR_INTERFACE));
    for (side, name) in [("in", IN_INTERFACE), ("out", OUT_INTERFACE)] {
        add(&format!("router_{side}_device"), dropped(host(ROUTER), name));
    }
    add("router_kernel", counted(host(ROUTER), &["Ip.InDiscards", "Ip.OutDiscards"]));
    add("far_device", dropped(host("far"), FAR_INTERFACE));
    add("far_socket", counted(host("far"), &["Udp.RcvbufErrors", "Udp6RcvbufErrors"]));
    add("cpu_backlog", probes.total("softnet", "dropped").unwrap_or(0.0) as u64);
    for engine in probes.engines.iter().filter(|engine| engine.role == ROUTER) {
        for (link, side) in engine.links.iter().zip(["in", "out"]) {
            for (cause, &count) in &link.drops {
                add(&format!("router_{side}_{cause}"), count);
            }
        }
        for (name, &count) in &engine.counters {
            if let Some(reason) = name.strip_prefix("dropped_") {
                add(&format!("router_{reason}"), count);
            }
        }
    }
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Returns the packets that an interface dropped, received and sent ones.
fn dropped(host: Option<&HostCounters>, interface: &str) -> u64 {
    let counters = host.and_then(|host| host.interfaces.get(interface));
    counters.map_or(0, |counters| counters.rx_dropped + counters.tx_dropped)
}

/// The sum of counters of a host's protocols.
fn counted(host: Option<&HostCounters>, names: &[&str]) -> u64 {
    let of = |name: &&str| host.and_then(|host| host.protocols.get(*name)).copied();
    names.iter().filter_map(of).map(|count| count.max(0) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::{EngineRecord, InterfaceCounters, LinkRecord};

    #[test]
    fn each_place_has_its_own_number() {
        let host = |name: &str, tx_dropped, protocols: &[(&str, i64)]| HostCounters {
            interfaces: [(
                name.to_owned(),
                InterfaceCounters { tx_dropped, ..InterfaceCounters::default() },
            )]
            .into(),
            protocols: protocols.iter().map(|&(name, n)| (name.to_owned(), n)).collect(),
        };
        let link = |cause: &str, n| LinkRecord {
            drops: [(cause.to_owned(), n)].into(),
            ..LinkRecord::default()
        };
        let router = EngineRecord {
            role: ROUTER.to_owned(),
            links: vec![link("overrun", 3), link("refused", 4)],
            counters: [("dropped_ttl".to_owned(), 5), ("forwarded".to_owned(), 9)].into(),
            ..EngineRecord::default()
        };
        let probes = Probes {
            hosts: Some(
                [
                    ("near".to_owned(), host(NEAR_INTERFACE, 1, &[])),
                    ("far".to_owned(), host(FAR_INTERFACE, 0, &[("Udp.RcvbufErrors", 2)])),
                ]
                .into(),
            ),
            engines: vec![router, EngineRecord { role: "far".to_owned(), ..Default::default() }],
            ..Probes::default()
        };
        let found: Vec<(String, u64)> = of(&probes).into_iter().collect();
        let expected = [
            ("far_socket", 2),
            ("near_queue", 1),
            ("router_in_overrun", 3),
            ("router_out_refused", 4),
            ("router_ttl", 5),
        ];
        assert_eq!(found, expected.map(|(place, n)| (place.to_owned(), n)));
    }
}
