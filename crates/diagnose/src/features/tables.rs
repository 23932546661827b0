//! Features of any table, by the kind of each column.
//!
//! Time becomes a share, another counter a rate for each unit of work, trouble a rate in a second,
//! a part its share of the whole; levels stay as they are. Rows of a key that has other names on
//! other machines count together.

use millstream_record::{Column, Key, Kind, Probes};

use super::{Seen, distance};

/// Features that causes ask for by a shorter name, and those that are nearer to a cause than what a
/// machine counts is in general. Of these alone counters are given by second too.
const KNOWN: [(&str, &str, u8); 13] = [
    ("softnet.dropped_per_s", "softnet_dropped_per_s", distance::PROTOCOL),
    ("softnet.dropped_share", "softnet_dropped_share", distance::PROTOCOL),
    ("softnet.squeezed_per_s", "softnet_squeezed_per_s", distance::PROTOCOL),
    ("softnet.received_rps_share", "rps_share", distance::PROTOCOL),
    ("softnet.received_rps_per_unit", "rps_wake_ups_per_unit", distance::PER_UNIT),
    ("softnet.received_rps_per_s", "rps_wake_ups_per_s", distance::PROTOCOL),
    ("disks.busy_share", "disk_busy_share", distance::MACHINE),
    ("disks.written_bytes_per_s", "disk_written_bytes_per_s", distance::MACHINE),
    ("pressure.io.some_share", "io_pressure_share", distance::MACHINE),
    ("qdiscs.dropped_per_s", "qdisc_drops_per_s", distance::PROTOCOL),
    ("qdiscs.dropped_share", "qdisc_dropped_share", distance::PROTOCOL),
    ("qdiscs.overlimits_per_s", "qdisc_overlimits_per_s", distance::PROTOCOL),
    ("qdiscs.waiting", "qdisc_held_share", distance::PROTOCOL),
];

/// Drops that have one cause, whichever of these reasons the kernel gives.
const DROPS: [(&str, &[&str]); 2] = [
    (
        "rule_drops_per_s",
        &[
            "NETFILTER_DROP",
            "TC_INGRESS",
            "TC_EGRESS",
            "XDP",
            "BPF_CGROUP_EGRESS",
            "IP_RPFILTER",
            "XFRM_POLICY",
            "SECURITY_HOOK",
        ],
    ),
    (
        "neighbour_drops_per_s",
        &["NEIGH_CREATEFAIL", "NEIGH_FAILED", "NEIGH_QUEUEFULL", "NEIGH_DEAD"],
    ),
];

pub(super) fn tables(seen: &mut Seen, probes: &Probes) {
    if let Some(drops) = probes.tables.get("drops").and_then(|table| table.column("packets")) {
        for (feature, reasons) in DROPS {
            let of_it = drops.clone().filter(|(reason, _)| reasons.contains(reason));
            seen.per_second(feature, of_it.map(|(_, count)| count).sum(), distance::PROTOCOL);
        }
    }
    for (name, table) in &probes.tables {
        for column in &table.columns {
            if table.key == Key::Resource {
                for (key, value) in table.column(&column.name).into_iter().flatten() {
                    put(seen, &format!("{name}.{key}.{}", column.name), column, value);
                }
                continue;
            }
            let (stem, value) = (format!("{name}.{}", column.name), table.all_of(column));
            put(seen, &stem, column, value);
            if let Some(share) = table.share_of(column) {
                add(seen, &format!("{stem}_share"), share);
            }
        }
    }
}

fn put(seen: &mut Seen, stem: &str, column: &Column, value: f64) {
    if !column.grows() {
        return add(seen, stem, value);
    }
    if let Some(seconds) = column.seconds() {
        return add(seen, &format!("{stem}_share"), value * seconds / seen.span);
    }
    let per_s = format!("{stem}_per_s");
    if column.kind == Kind::Trouble || KNOWN.iter().any(|(feature, _, _)| *feature == per_s) {
        add(seen, &per_s, value / seen.span);
    }
    if let (Kind::Counter, Some(units)) = (column.kind, seen.units) {
        add(seen, &format!("{stem}_per_unit"), value / units);
    }
}

fn add(seen: &mut Seen, feature: &str, value: f64) {
    match KNOWN.iter().find(|(known, _, _)| *known == feature) {
        Some((_, name, distance)) => seen.put(*name, value, *distance),
        None => seen.put(feature, value, distance::PER_UNIT),
    }
}

#[cfg(test)]
mod tests {
    use super::super::features;
    use millstream_record::{Column, Key, Kind, RunRecord, Table, Window, keys};

    #[test]
    fn columns_are_features_by_their_kind_under_the_names_that_causes_know() {
        let mut run = RunRecord::new("x");
        run.window = Window { start_s: 0.0, end_s: 2.0 };
        run.results.insert(keys::TRANSACTION_COUNT.into(), 10.0);
        run.probes = serde_json::from_str(
            r#"{"times_s": [0.0, 2.0],
            "softnet": [{"cpu": 0, "processed": 60, "dropped": 20, "time_squeezed": 4, "received_rps": 15}],
            "pressure": {"io": {"some_us": 500000, "full_us": 0}},
            "disks": {"vda": {"read_bytes": 1, "written_bytes": 4096, "busy_ms": 250}, "vdb": {"busy_ms": 80}},
            "qdiscs": {"a/eth0 tbf 1:": {"sent_packets": 60, "drops": 20, "overlimits": 4, "waiting_share": 0.5},
                       "b/eth0 fq 2:": {"sent_packets": 180, "drops": 2, "overlimits": 0, "waiting_share": 1}}}"#,
        )
        .unwrap();
        let found = features(&[&run]);
        let of =
            |name: &str| found.iter().find(|one| one.name == name).and_then(|one| one.values[0]);
        for (name, value) in [
            ("softnet_dropped_per_s", 10.0),
            ("softnet_dropped_share", 0.25),
            ("softnet_squeezed_per_s", 2.0),
            ("rps_share", 0.25),
            ("rps_wake_ups_per_unit", 1.5),
            ("rps_wake_ups_per_s", 7.5),
            ("softnet.processed_per_unit", 6.0),
            ("disk_busy_share", 0.125),
            ("disk_written_bytes_per_s", 2048.0),
            ("io_pressure_share", 0.25),
            ("qdisc_drops_per_s", 10.0),
            ("qdisc_dropped_share", 0.25),
            ("qdisc_overlimits_per_s", 2.0),
            ("qdisc_held_share", 0.5),
        ] {
            assert_eq!(of(name), Some(value), "{name}");
        }
        assert_eq!(of("softnet.processed_per_s"), None, "grows with the result");
        assert_eq!(of("rule_drops_per_s"), None, "was not measured");
        let rows = [("NETFILTER_DROP", 30.0), ("XDP", 10.0), ("NO_SOCKET", 7.0)];
        let drops = Table {
            key: Key::Reason,
            columns: vec![Column::new("packets", "packets", Kind::Counter, "")],
            rows: rows.map(|(reason, count)| (reason.to_owned(), vec![count])).into(),
        };
        run.probes.tables.insert("drops".to_owned(), drops);
        let found = features(&[&run]);
        let of =
            |name: &str| found.iter().find(|one| one.name == name).and_then(|one| one.values[0]);
        assert_eq!(of("rule_drops_per_s"), Some(20.0));
        assert_eq!(of("neighbour_drops_per_s"), Some(0.0));
    }
}
