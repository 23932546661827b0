//! The part of a run that tables show: `show` reads no more of ten thousand runs. Most of a record
//! is series and counters for the page alone.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::ends::numbers;
use super::{
    CpuActivity, CpuSeries, Environment, IdleCpu, IntervalSeries, Probes, RunRecord, THREADS,
    Tables, Timestamp, Validity, Window, WorkerActivity, keys,
};

/// Facts of a run that tables ask for: the wake-up times of idle CPUs, and levels of factors that
/// the run does not name.
const TOLD: [&str; 2] = ["idle_latency.", "setting."];

/// The version of what `brief` keeps of a run: one more whenever tables tell of more.
pub const BRIEF_VERSION: u32 = 1;

/// Reads the JSON of a run, or its `brief`. All of it has to be JSON, but what no table tells
/// of is not looked at and stays empty.
///
/// Text shows nearly all of a soak, and of a profiled run with a number of threads: those are
/// read whole.
pub fn for_tables(text: &str) -> serde_json::Result<RunRecord> {
    let brief: Brief = serde_json::from_str(text)?;
    match brief.is_read_whole() {
        true => serde_json::from_str(text),
        false => Ok(brief.into()),
    }
}

/// Returns the JSON of a run without what no table tells of; `None` for a run of which all is
/// read, and for text that is no run.
pub(crate) fn brief(text: &str) -> Option<String> {
    let brief: Brief = serde_json::from_str(text).ok()?;
    let is_read_whole = brief.is_read_whole();
    (!is_read_whole).then(|| serde_json::to_string(&RunRecord::from(brief)).ok()).flatten()
}

/// The parts of a [`RunRecord`] that are read, under their names.
#[derive(Deserialize)]
struct Brief {
    format: u32,
    id: String,
    experiment_id: String,
    experiment: String,
    workload: String,
    stack: String,
    #[serde(default)]
    factors: BTreeMap<String, String>,
    seed: u64,
    block: u32,
    order: u32,
    started_at: Timestamp,
    duration_s: f64,
    #[serde(default)]
    window: Window,
    validity: Validity,
    #[serde(default, deserialize_with = "numbers")]
    results: BTreeMap<String, f64>,
    #[serde(default)]
    probes: BriefProbes,
    #[serde(default)]
    environment: BriefEnvironment,
    #[serde(default)]
    notes: Vec<String>,
}

/// The probes that tables show; `kernel` tells only that the run was profiled.
#[derive(Default, Deserialize)]
#[serde(default)]
struct BriefProbes {
    times_s: Vec<f64>,
    own_cpu_s: f64,
    cpu: Option<BriefCpus>,
    workers: Option<BTreeMap<String, WorkerActivity>>,
    idle_states: Option<Vec<IdleCpu>>,
    tables: Tables,
    kernel: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct BriefCpus {
    cpus: Vec<BriefCpu>,
}

impl Brief {
    /// Returns true where text tells of nearly all of the record.
    fn is_read_whole(&self) -> bool {
        let is_soak = self.results.contains_key(keys::CHECKED_BYTES);
        let is_threaded = self.factors.contains_key(THREADS)
            || self.environment.facts.contains_key(&format!("setting.{THREADS}"));
        is_soak || (is_threaded && self.probes.kernel.is_some())
    }
}

#[derive(Deserialize)]
struct BriefCpu {
    cpu: u32,
    usr_s: Vec<f64>,
    nice_s: Vec<f64>,
}

#[derive(Default, Deserialize)]
struct BriefEnvironment {
    #[serde(default, deserialize_with = "told")]
    facts: BTreeMap<String, String>,
}

impl From<Brief> for RunRecord {
    /// Names every part, so that a new one needs a decision if tables show it.
    fn from(brief: Brief) -> Self {
        let Brief { probes, environment, .. } = brief;
        let BriefProbes { times_s, own_cpu_s, workers, idle_states, tables, .. } = probes;
        // Text tells of sums over the run, of its length, and of trouble.
        let times_s = match times_s[..] {
            [first, .., last] => vec![first, last],
            _ => times_s,
        };
        let all = |series: Vec<f64>| vec![series.iter().sum()];
        let cpu = |one: BriefCpu| CpuSeries {
            cpu: one.cpu,
            usr_s: all(one.usr_s),
            nice_s: all(one.nice_s),
            ..CpuSeries::default()
        };
        let worker = |(role, one)| {
            let (resident_bytes, seen_on_cpu) = Default::default();
            (role, WorkerActivity { resident_bytes, seen_on_cpu, ..one })
        };
        let workers = workers.map(|all| all.into_iter().map(worker).collect());
        let tables = tables.into_iter().filter_map(|(name, one)| Some((name, one.of_trouble()?)));
        let cpu = probes.cpu.map(|all| CpuActivity {
            cpus: all.cpus.into_iter().map(cpu).collect(),
            ..CpuActivity::default()
        });
        Self {
            format: brief.format,
            id: brief.id,
            experiment_id: brief.experiment_id,
            experiment: brief.experiment,
            workload: brief.workload,
            stack: brief.stack,
            factors: brief.factors,
            seed: brief.seed,
            block: brief.block,
            order: brief.order,
            started_at: brief.started_at,
            duration_s: brief.duration_s,
            window: brief.window,
            validity: brief.validity,
            results: brief.results,
            path: None,
            intervals: IntervalSeries::default(),
            probes: Probes {
                times_s,
                own_cpu_s,
                cpu,
                workers,
                idle_states,
                tables: tables.collect(),
                ..Probes::default()
            },
            far_probes: None,
            environment: Environment { facts: environment.facts, absent: BTreeMap::new() },
            notes: brief.notes,
        }
    }
}

/// Returns the facts whose names begin as one of [`TOLD`] does.
fn told<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Told;
    impl<'de> Visitor<'de> for Told {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("facts by their names")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut facts = BTreeMap::new();
            while let Some(Name(name)) = map.next_key()? {
                match name {
                    Some(name) => drop(facts.insert(name, map.next_value()?)),
                    None => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(facts)
        }
    }
    deserializer.deserialize_map(Told)
}

/// The name of a fact, where it is told.
struct Name(Option<String>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IsTold;
        impl Visitor<'_> for IsTold {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a fact")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Name, E> {
                let is_told = TOLD.iter().any(|begin| name.starts_with(begin));
                Ok(Name(is_told.then(|| name.to_owned())))
            }
        }
        deserializer.deserialize_str(IsTold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Key, Kind, Table};

    #[test]
    fn what_tables_do_not_tell_is_left_where_it_is_and_all_of_it_has_to_be_json() {
        let mut run = RunRecord::new("a-r0001");
        run.environment.set("setting.link", "tap");
        run.environment.set("near.sysctl.net.core.rmem_max", "212992");
        run.results.insert(keys::THROUGHPUT.into(), 1.25e10);
        run.intervals.series.insert(keys::THROUGHPUT.into(), vec![1.0, 2.0]);
        run.probes.times_s = vec![0.0, 1.0, 2.0];
        let columns = vec![
            Column::new("processed", "packets", Kind::Counter, "Packets taken."),
            Column::new("dropped", "packets", Kind::Trouble, "Packets dropped."),
        ];
        let rows = vec![("0".to_owned(), vec![7.0, 0.0]), ("1".to_owned(), vec![7.0, 3.0])];
        run.probes.tables.insert("softnet".into(), Table { key: Key::Cpu, columns, rows });
        let text = serde_json::to_string(&run).unwrap();
        let read = for_tables(&text).unwrap();
        assert_eq!(read.results, run.results);
        assert_eq!(read.environment.facts, [("setting.link".into(), "tap".into())].into());
        assert!(read.intervals.series.is_empty());
        assert_eq!(read.probes.times_s, [0.0, 2.0], "the length");
        let trouble = &read.probes.tables["softnet"];
        assert_eq!(trouble.rows, [("1".to_owned(), vec![3.0])]);
        assert!(trouble.columns.len() == 1 && trouble.columns[0].help.is_empty());
        // a brief is much the same to tables, and smaller
        let short = brief(&text).expect("a brief");
        assert!(short.len() < text.len());
        assert_eq!(format!("{:?}", for_tables(&short).unwrap()), format!("{read:?}"));
        let damaged = text.replace("[1.0,2.0]", "[1.0,2.0");
        let cut = &text[..text.len() - 1];
        assert!(for_tables(&damaged).is_err() && for_tables(cut).is_err());
    }
}
