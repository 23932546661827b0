//! The histograms of two sets: those that BPF programs counted in the kernel, and those of
//! Millstream's engines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use millstream_record::RunRecord;
use serde::{Deserialize, Serialize};

use crate::compare::P_CHANGE;
use crate::histogram::{Shift, shift};

/// A histogram in both sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistogramRow {
    /// Its name with that of its owner: `kernel.scheduling_delay_ns`, `near.engine.rx_batch`.
    pub name: String,
    /// The distance of the second set's histogram from the first's.
    pub shift: Shift,
    /// The chance, corrected for the number of histograms that are compared.
    pub p_corrected: f64,
    /// True when it is shown to differ.
    pub changed: bool,
}

/// Histograms by name: pairs of the least value of a bucket, and how many lay in it.
pub type Histograms = BTreeMap<String, Vec<(u64, u64)>>;

/// Every histogram that enough runs of both sets have, the least likely by chance first.
pub(super) fn compare(first: &[RunRecord], second: &[RunRecord], seed: u64) -> Vec<HistogramRow> {
    let of = |runs: &[RunRecord]| -> Vec<Histograms> {
        runs.iter().map(|run| histograms_of([run])).collect()
    };
    let (one, two) = (of(first), of(second));
    let names: BTreeSet<&String> = one.iter().flat_map(BTreeMap::keys).collect();
    let row = |name: &String| {
        let named = |set: &[Histograms]| -> Vec<Vec<(u64, u64)>> {
            set.iter().filter_map(|run| run.get(name).cloned()).collect()
        };
        let shift = shift(&named(&one), &named(&two), seed)?;
        Some(HistogramRow { name: name.clone(), p_corrected: shift.p, shift, changed: false })
    };
    let mut rows: Vec<HistogramRow> = names.into_iter().filter_map(row).collect();
    rows.sort_by(|a, b| a.shift.p.total_cmp(&b.shift.p));
    let corrected = super::step_up(rows.iter().map(|row| row.shift.p));
    for (row, p) in rows.iter_mut().zip(corrected) {
        (row.p_corrected, row.changed) = (p, p < P_CHANGE);
    }
    rows
}

/// Returns the histograms of all `runs` together: those of the kernel, summed over CPUs, and those
/// of each engine.
pub fn histograms_of<'a>(runs: impl IntoIterator<Item = &'a RunRecord>) -> Histograms {
    let mut all: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut add = |name: String, buckets: &[(u64, u64)]| {
        let sum = all.entry(name).or_default();
        buckets.iter().for_each(|&(least, count)| *sum.entry(least).or_default() += count);
    };
    for run in runs {
        for one in run.probes.kernel.iter().flat_map(|kernel| &kernel.histograms) {
            add(format!("kernel.{}_ns", one.what), &one.buckets_ns);
        }
        for engine in &run.probes.engines {
            for (name, buckets) in &engine.batches {
                add(format!("{}.engine.{name}", engine.role), buckets);
            }
        }
    }
    all.into_iter().map(|(name, buckets)| (name, buckets.into_iter().collect())).collect()
}

/// Returns the histograms that differ, and the number of those that were compared; empty when there
/// are none.
pub(super) fn text(rows: &[HistogramRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let changed: Vec<&HistogramRow> = rows.iter().filter(|row| row.changed).collect();
    let end = if changed.is_empty() { "" } else { ":" };
    let mut text = format!("  of {} histograms {} differ{end}\n", rows.len(), changed.len());
    for HistogramRow { name, shift, p_corrected, .. } in changed {
        let times = |powers: f64| powers.exp2();
        let (low, high) = shift.interval;
        let _ = write!(
            text,
            "  {name}: {:.2} times as much (95 %: {:.2} to {:.2})",
            times(shift.powers),
            times(low),
            times(high)
        );
        let quantile = |at: usize| shift.quantiles.get(at).map_or((0, 0), |both| *both);
        let [half, nine, most] = [0, 1, 2].map(quantile);
        let _ = writeln!(
            text,
            ", moved by {:.2} powers of two; 50 % {} → {}, 90 % {} → {}, 99 % {} → {}; p {p_corrected:.4}",
            shift.moved, half.0, half.1, nine.0, nine.1, most.0, most.1
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::{EngineRecord, HistogramRecord, KernelActivity};

    fn set(least_ns: u64, count: usize) -> Vec<RunRecord> {
        let one = |at: usize| {
            let mut run = RunRecord::new(format!("r{at}"));
            let of_cpu = |cpu| HistogramRecord {
                what: "scheduling_delay".into(),
                cpu,
                buckets_ns: vec![(least_ns, 90 + at as u64), (1 << 20, 5)],
                ..HistogramRecord::default()
            };
            let histograms = vec![of_cpu(0), of_cpu(1)];
            run.probes.kernel = Some(KernelActivity { histograms, ..KernelActivity::default() });
            run.probes.engines.push(EngineRecord {
                role: "near".into(),
                batches: [("rx_batch".to_owned(), vec![(8, 100 + (at as u64 * 7) % 5), (16, 50)])]
                    .into(),
                ..EngineRecord::default()
            });
            run
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn the_histogram_that_moved_is_named_with_its_interval_and_the_other_is_not() {
        let rows = compare(&set(1 << 10, 8), &set(1 << 12, 8), 1);
        assert_eq!(rows.len(), 2);
        let [moved, still] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!(moved.name, "kernel.scheduling_delay_ns");
        assert!(moved.changed && !still.changed, "{rows:?}");
        let said = text(&rows);
        assert!(said.starts_with("  of 2 histograms 1 differ:\n"), "{said}");
        assert!(said.contains("50 % 1024 → 4096"), "{said}");
        assert!(said.contains("times as much (95 %: 3."), "{said}");
    }

    #[test]
    fn without_histograms_nothing_is_said() {
        let none = vec![RunRecord::new("r"); 8];
        assert_eq!(text(&compare(&none, &none, 1)), "");
    }
}
