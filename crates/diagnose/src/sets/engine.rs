//! Counters and times of Millstream's engines in a run, as numbers that can be compared between
//! runs.

use std::collections::BTreeMap;

use millstream_record::{EngineRecord, RunRecord, keys};

/// Bytes of a unit where a run counts bytes.
const UNIT_BYTES: f64 = 1e6;

/// Each counter of each engine by what was moved (10^6 bytes, or a transaction) and what each stage
/// took of a packet or a call. Of a run that does not say what it moved, by second.
pub(super) fn values(run: &RunRecord) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let Some((per, word)) = divisor(run) else { return values };
    for engine in &run.probes.engines {
        let EngineRecord { role, counters, timed_turns: _, stages, batches: _, links } = engine;
        let mut put = |name: &str, count: f64| {
            *values.entry(format!("{role}.engine.{name}_{word}")).or_insert(0.0) += count / per;
        };
        for (name, &count) in counters {
            put(name, count as f64);
        }
        for link in links {
            link.counters
                .iter()
                .for_each(|(name, &count)| put(&format!("link_{name}"), count as f64));
            link.drops.iter().for_each(|(cause, &count)| {
                put(&format!("link_drops_{cause}"), count as f64);
            });
        }
        for (name, stage) in stages.iter().filter(|(_, stage)| stage.units > 0) {
            let unit_ns = stage.ns as f64 / stage.units as f64;
            values.insert(format!("{role}.engine.stage_{name}_ns_per_unit"), unit_ns);
        }
    }
    values
}

/// Returns the divisor of counters of the whole run, and its name in keys.
fn divisor(run: &RunRecord) -> Option<(f64, &'static str)> {
    let span_s = run.probes.times_s.last()? - run.probes.times_s.first()?;
    let window_s = run.window.end_s - run.window.start_s;
    let moved = run
        .result(keys::TRANSACTION_COUNT)
        .or_else(|| run.result(keys::PAYLOAD).map(|bytes| bytes / UNIT_BYTES))
        .filter(|units| *units > 0.0 && window_s > 0.0);
    let all = moved.map(|units| (units * (span_s / window_s).max(1.0), "per_unit"));
    all.or((span_s > 0.0).then_some((span_s, "per_s")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::{LinkRecord, StageRecord, Window};

    #[test]
    fn counters_are_by_what_was_moved_in_the_whole_run() {
        let mut run = RunRecord::new("r");
        run.probes.times_s = vec![0.0, 2.0, 4.0];
        run.window = Window { start_s: 1.0, end_s: 3.0 };
        let link = |drops| LinkRecord {
            drops: [("ring".to_owned(), drops)].into(),
            ..LinkRecord::default()
        };
        run.probes.engines.push(EngineRecord {
            role: "near".into(),
            counters: [("turns".to_owned(), 400)].into(),
            stages: [("tcp".into(), StageRecord { ns: 900, max_ns: 9, visits: 2, units: 30 })]
                .into(),
            links: vec![link(6), link(2)],
            ..EngineRecord::default()
        });
        let of = |run: &RunRecord, name: &str| values(run).get(name).copied();
        assert_eq!(of(&run, "near.engine.turns_per_s"), Some(100.0));
        run.results.insert(keys::PAYLOAD.into(), 10e6);
        // 10 units in half of the time.
        assert_eq!(of(&run, "near.engine.turns_per_unit"), Some(20.0));
        assert_eq!(of(&run, "near.engine.link_drops_ring_per_unit"), Some(0.4));
        assert_eq!(of(&run, "near.engine.stage_tcp_ns_per_unit"), Some(30.0));
        run.probes.times_s.clear();
        assert!(values(&run).is_empty());
    }
}
