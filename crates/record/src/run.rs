//! A run: one workload on one stack with one level of each factor, in a process of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::ends::numbers;
use super::{Environment, FORMAT_VERSION, Probes, Timestamp, Window};

/// Everything that is kept of one finished run.
///
/// All times inside a run are seconds after `started_at`, in one clock for probes, intervals and
/// the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT_VERSION`] of the program that wrote it.
    pub format: u32,
    /// Unique in a store.
    pub id: String,
    /// Id of the experiment.
    pub experiment_id: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the workload: `tcp_stream`, `tcp_rr`.
    pub workload: String,
    /// `kernel`, `millstream`.
    pub stack: String,
    /// Level of every other factor.
    #[serde(default)]
    pub factors: BTreeMap<String, String>,
    /// Seed of this run.
    pub seed: u64,
    /// Block (repeat), from 0.
    pub block: u32,
    /// Place in the order of execution over the experiment, from 0.
    pub order: u32,
    /// When set-up began; the zero of all times inside the run.
    pub started_at: Timestamp,
    /// From `started_at` to the end of the run, set-up and warm-up included.
    pub duration_s: f64,
    /// The part that the results describe.
    #[serde(default)]
    pub window: Window,
    /// May the results be used?
    pub validity: Validity,
    /// The outcome in base units, the unit being the end of the key; see [`super::keys`].
    #[serde(default, deserialize_with = "numbers")]
    pub results: BTreeMap<String, f64>,
    /// The evidence that the traffic took the path under test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathProof>,
    /// The outcome over time. Intervals of a run depend on each other: they are for plots, not for
    /// n.
    #[serde(default)]
    pub intervals: IntervalSeries,
    /// Probes of this machine during the run.
    #[serde(default)]
    pub probes: Probes,
    /// Probes of the machine with the far end, where it is another one; their times are by this
    /// one's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_probes: Option<Box<Probes>>,
    /// The facts of this run, such as settings of its hosts; the machine's are in the experiment.
    #[serde(default)]
    pub environment: Environment,
    /// Remarks, for example fall-backs of a link's self-check.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Says if the run counts, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// False: the run is listed and drawn but enters no summary.
    pub valid: bool,
    /// One plain sentence each.
    #[serde(default)]
    pub reasons: Vec<String>,
}

impl Default for Validity {
    fn default() -> Self {
        Self { valid: true, reasons: Vec::new() }
    }
}

impl Validity {
    /// Marks the run invalid for one more reason.
    pub fn reject(&mut self, reason: impl Into<String>) {
        self.valid = false;
        self.reasons.push(reason.into());
    }
}

/// Bytes reported by the application beside bytes counted on the interface under test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathProof {
    /// `HOST/INTERFACE` whose counters were read.
    pub interface: String,
    /// Payload bytes that the workload says it moved over the link.
    pub reported_bytes: u64,
    /// Bytes that the interface counted in the same stretch (headers included).
    pub counted_bytes: u64,
    /// True where the two agree within the limits of the workload.
    pub agrees: bool,
}

/// Outcomes per interval, each series under a key of the kind used in `results`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IntervalSeries {
    /// Start of the first interval, seconds after the start of the run.
    pub start_s: f64,
    /// Intended width of an interval.
    pub width_s: f64,
    /// Width that each really had: where a worker stood still one is much longer. Empty in records
    /// of earlier versions, whose intervals are taken for as wide as intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub widths_s: Vec<f64>,
    /// One value per interval; one that is unknown is NaN (`null` in JSON).
    #[serde(default, deserialize_with = "number_lists")]
    pub series: BTreeMap<String, Vec<f64>>,
}

impl IntervalSeries {
    /// Returns beginning and end of every interval, of `n` of them, in seconds after the start of
    /// the run.
    pub fn spans(&self, n: usize) -> Vec<(f64, f64)> {
        let mut from = self.start_s;
        let span = |at| {
            let to = from + self.widths_s.get(at).copied().unwrap_or(self.width_s);
            (std::mem::replace(&mut from, to), to)
        };
        (0..n).map(span).collect()
    }
}

impl RunRecord {
    /// Returns a run with the format filled in and everything else empty and valid.
    pub fn new(id: impl Into<String>) -> Self {
        Self { format: FORMAT_VERSION, id: id.into(), ..Self::default() }
    }

    /// Takes over all of `full`, the same run read in full, but what reading several experiments
    /// together changes of a run: its factors, and its place among the others.
    pub fn complete(&mut self, full: Self) {
        let part = std::mem::replace(self, full);
        (self.factors, self.block, self.order) = (part.factors, part.block, part.order);
    }

    /// Returns a result, if the run has it and it is a finite number.
    pub fn result(&self, key: &str) -> Option<f64> {
        self.results.get(key).copied().filter(|value| value.is_finite())
    }

    /// Keeps a result.
    pub fn set(&mut self, key: &str, value: f64) {
        self.results.insert(key.to_owned(), value);
    }

    /// Returns workload and factors, without the stack: two stacks are compared where these are
    /// equal.
    pub fn configuration(&self) -> String {
        configuration_label(&self.workload, &self.factors)
    }
}

fn number_lists<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<f64>>, D::Error> {
    let all = BTreeMap::<String, Vec<Option<f64>>>::deserialize(deserializer)?;
    let known =
        |list: Vec<Option<f64>>| list.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect();
    Ok(all.into_iter().map(|(key, list)| (key, known(list))).collect())
}

/// Returns the name of a configuration in tables and plots: `tcp_stream direction=up streams=4`.
pub fn configuration_label(workload: &str, factors: &BTreeMap<String, String>) -> String {
    let mut label = workload.to_owned();
    for (name, level) in factors {
        label.push_str(&format!(" {name}={level}"));
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_comes_back_from_json() {
        let mut run = RunRecord::new("a-r0001");
        run.workload = "tcp_stream".into();
        run.factors.insert("streams".into(), "4".into());
        run.results.insert(crate::keys::THROUGHPUT.into(), 1.25e10);
        run.validity.reject("the interface counted 3 % of the bytes");
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<RunRecord>(&text).unwrap(), run);
        assert_eq!(run.configuration(), "tcp_stream streams=4");
    }

    #[test]
    fn the_smallest_record_of_the_documentation_loads() {
        let text = r#"{"format":1,"id":"x","experiment_id":"e","experiment":"n","workload":"tcp_rr",
            "stack":"kernel","seed":1,"block":0,"order":0,"started_at":"2026-11-20T22:24:19.123Z",
            "duration_s":3.5,"validity":{"valid":true},"something_new":[1]}"#;
        let run: RunRecord = serde_json::from_str(text).unwrap();
        assert!(run.validity.valid && run.results.is_empty() && run.probes.cpu.is_none());
    }

    #[test]
    fn a_result_that_is_no_number_is_no_result() {
        let mut run = RunRecord::new("x");
        run.results.insert("cpu_s_per_gb".into(), f64::INFINITY);
        assert_eq!(run.result("cpu_s_per_gb"), None);
        assert_eq!(run.result("latency_p50_us"), None);
        run.intervals.series.insert("throughput_bits_per_s".into(), vec![1.0, f64::NAN]);
        let back: RunRecord = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        assert!(back.results.is_empty(), "a record with such a number can still be read");
        assert!(back.intervals.series["throughput_bits_per_s"][1].is_nan());
    }
}
