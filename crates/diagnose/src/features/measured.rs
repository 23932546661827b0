//! Features from probes that have numbers alone.

use millstream_record::{Measured, Probes};

use super::{Seen, distance};

/// Parts of the names that drivers give to what goes wrong. What else they count, often hundreds of
/// numbers, is what every interface counts, by queue.
const TROUBLE: [&str; 11] = [
    "drop", "err", "miss", "fifo", "nobuf", "no_buf", "discard", "timeout", "busy", "stop",
    "overrun",
];

/// Share of an interface's packets that its busiest receive queue had, of several. Runs have it of
/// the interface that received most; of older ones, which have it of each, the highest is taken.
const QUEUE: &str = "busiest_receive_queue_share";

pub(super) fn measured(seen: &mut Seen, probes: &Probes) {
    let all = probes.measured.get("drivers").into_iter().flatten();
    let shares = all.filter_map(|(name, value)| match *value {
        Measured::Level(share) if name.ends_with(QUEUE) => Some(share),
        _ => None,
    });
    if let Some(most) = shares.reduce(f64::max) {
        seen.put(QUEUE, most, distance::MACHINE);
    }
    for (probe, values) in &probes.measured {
        for (name, value) in values {
            let feature = format!("{probe}.{name}");
            match *value {
                Measured::Level(level) => seen.put(feature, level, distance::MACHINE),
                Measured::Count(count) if probe != "drivers" => seen.per_unit(&feature, count),
                Measured::Count(count) => {
                    if TROUBLE.iter().any(|word| name.to_ascii_lowercase().contains(word)) {
                        seen.per_unit(&feature, count);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::features;
    use millstream_record::{Measured, RunRecord, Window, keys};

    #[test]
    fn levels_are_as_they_are_and_counts_by_unit_of_drivers_only_trouble() {
        let mut run = RunRecord::new("x");
        run.window = Window { start_s: 0.0, end_s: 2.0 };
        run.results.insert(keys::TRANSACTION_COUNT.into(), 10.0);
        run.probes.times_s = vec![0.0, 2.0];
        let mut put = |probe: &str, name: &str, value| {
            let probe = run.probes.measured.entry(probe.to_owned()).or_default();
            probe.insert(name.to_owned(), value);
        };
        put("frequency", "cpu0_mean_mhz", Measured::Level(2000.0));
        put("frequency", "cpu0_core_throttle_count", Measured::Count(5.0));
        put("drivers", "a/eth0/rx_drops", Measured::Count(20.0));
        put("drivers", "a/eth0/rx_queue_0_packets", Measured::Count(30.0));
        put("drivers", "a/eth0/busiest_receive_queue_share", Measured::Level(0.75));
        put("drivers", "b/eth1/busiest_receive_queue_share", Measured::Level(0.5));
        let found = features(&[&run]);
        let of =
            |name: &str| found.iter().find(|one| one.name == name).and_then(|one| one.values[0]);
        assert_eq!(of("frequency.cpu0_mean_mhz"), Some(2000.0));
        assert_eq!(of("frequency.cpu0_core_throttle_count"), Some(0.5));
        assert_eq!(of("drivers.a/eth0/rx_drops"), Some(2.0));
        assert_eq!(of("drivers.a/eth0/rx_queue_0_packets"), None);
        assert_eq!(of("busiest_receive_queue_share"), Some(0.75));
    }
}
