//! An experiment: the question, the design and the surroundings of a set of runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use super::{Environment, FORMAT_VERSION, Timestamp};

/// The question, the design and the surroundings of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentRecord {
    /// [`FORMAT_VERSION`] of the program that wrote it.
    pub format: u32,
    /// Unique in a store: `first-look-20261120-222419-5f3a`.
    pub id: String,
    /// Name of the definition: `first-look`.
    pub name: String,
    /// The question in one sentence, for the head of the report.
    #[serde(default)]
    pub question: String,
    /// When the first run was prepared.
    pub started_at: Timestamp,
    /// When the last run ended; absent while it goes on or when it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Seed of the order of runs and of everything random in them.
    pub seed: u64,
    /// Blocks; each holds every configuration once, in random order or that of the one before, turned
    /// around.
    pub repeats: u32,
    /// Runs the design asks for.
    pub planned_runs: u32,
    /// Workloads in the order of the definition.
    #[serde(default)]
    pub workloads: Vec<String>,
    /// Stacks in the order of the definition; the first one is the base of ratios.
    #[serde(default)]
    pub stacks: Vec<String>,
    /// Factors with their levels, other than workload and stack.
    #[serde(default)]
    pub factors: BTreeMap<String, Vec<String>>,
    /// Differences between the two sides, for the reader to weigh.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// True where CPUs near each other were asked for: runs that had others may be set aside.
    #[serde(default)]
    pub steady_cpus: bool,
    /// The definition as run (TOML), overrides applied.
    #[serde(default)]
    pub definition: String,
    /// The words of the command that started it.
    #[serde(default)]
    pub command_line: Vec<String>,
    /// The surroundings when it started.
    #[serde(default)]
    pub environment: Environment,
    /// Remarks for the reader, for example what was not permitted and what was done instead.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One thing that is not the same on all stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The subject: `link`, `congestion control`, `threads`.
    pub what: String,
    /// Its value on each stack.
    pub by_stack: BTreeMap<String, String>,
}

impl ExperimentRecord {
    /// Returns a record with name, seed, a fresh id and the format filled in. The id is made of the
    /// name, the second, the seed, the process, and how many records this process has made.
    pub fn new(name: &str, seed: u64, started_at: Timestamp) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let tail = tail(seed, std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        Self {
            format: FORMAT_VERSION,
            id: format!("{name}-{}-{tail:04x}", started_at.compact()),
            name: name.to_owned(),
            started_at,
            seed,
            ..Self::default()
        }
    }

    /// Returns the id of the run at `order` (from 0) of this experiment.
    pub fn run_id(&self, order: u32) -> String {
        format!("{}-r{order:04}", self.id)
    }
}

/// Returns the end of an id, which tells experiments of one name and second apart. The process
/// number separates those of one seed. The seed is scattered first (Fibonacci hashing), so that
/// seeds and processes that both follow each other, as slices of a design have, differ too. The
/// number separates those of one process, whose runs may all end within the second.
fn tail(seed: u64, process: u32, number: u32) -> u16 {
    let of_number = (number as u16).wrapping_mul(0x9e37);
    (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16 ^ process as u16 ^ of_number
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn neither_seeds_nor_processes_that_follow_each_other_share_a_tail() {
        let pairs =
            (0..16).flat_map(|seed| (0..16).map(move |process| (3000 + seed, 500 + process)));
        let tails: BTreeSet<u16> = pairs.map(|(seed, process)| tail(seed, process, 0)).collect();
        assert_eq!(tails.len(), 16 * 16);
    }

    #[test]
    fn experiments_of_one_process_and_second_have_ids_of_their_own() {
        let at = Timestamp::from_unix_ms(1_795_213_459_123);
        let ids: BTreeSet<String> =
            (0..1000).map(|_| ExperimentRecord::new("x", 1, at).id).collect();
        assert_eq!(ids.len(), 1000);
    }
}
