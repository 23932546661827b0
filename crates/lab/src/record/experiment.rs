//! An experiment: the question, the design and the surroundings of a set of runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Environment, FORMAT_VERSION, Timestamp};

/// What was asked, how it was to be answered, and where.
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
    /// Blocks; each holds every configuration once, in random order.
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
    /// What is not the same on the two sides, for the reader to weigh.
    #[serde(default)]
    pub differences: Vec<Difference>,
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
    /// How it is on each stack.
    pub by_stack: BTreeMap<String, String>,
}

impl ExperimentRecord {
    /// A record with name, seed, a fresh id (of name, second, seed and process) and the format filled in.
    pub fn new(name: &str, seed: u64, started_at: Timestamp) -> Self {
        let folded = (seed ^ (seed >> 16) ^ (seed >> 32) ^ (seed >> 48)) as u16;
        // Slices of one design are started with one seed in one second.
        let tail = folded ^ std::process::id() as u16;
        Self {
            format: FORMAT_VERSION,
            id: format!("{name}-{}-{tail:04x}", started_at.compact()),
            name: name.to_owned(),
            started_at,
            seed,
            ..Self::default()
        }
    }

    /// The id of the run at `order` (from 0) of this experiment.
    pub fn run_id(&self, order: u32) -> String {
        format!("{}-r{order:04}", self.id)
    }
}
