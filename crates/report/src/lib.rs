//! The report of an experiment's runs: text for the terminal, JSON lines, and one HTML page.
//!
//! All three show the same numbers: they are computed once, in [`Report::new`], and written by the
//! same functions.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod budget;
mod detail;
mod distance;
mod forced;
pub mod frame;
mod html;
mod idle;
pub mod kernel;
mod levels;
mod matrix;
mod metric;
mod model;
mod overruns;
mod page;
mod per_cpu;
mod room;
mod sections;
mod soak;
mod stages;
mod sweep;
mod tables;
mod text;
mod threads;
pub mod uses;
mod verdict;

#[cfg(test)]
mod fixture;
#[cfg(test)]
#[path = "../../diagnose/src/features/made_up.rs"]
mod made_up;

use std::fmt;

pub use detail::{in_detail, spread};
pub use html::surroundings::of_machine;
use millstream_record::{ExperimentRecord, RunRecord};
use model::Model;
pub use per_cpu::{beside, per_cpu};
pub use tables::{grids, medians, trouble};

/// The summary of an experiment.
#[derive(Debug)]
pub struct Report<'a> {
    model: Model<'a>,
}

/// The page could not be made.
#[derive(Debug)]
pub struct ReportError(String);

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the report page could not be made: {}", self.0)
    }
}

impl std::error::Error for ReportError {}

impl<'a> Report<'a> {
    /// Computes the summary. Runs of other experiments do not belong here; an unfinished
    /// experiment and one without a valid run are fine.
    pub fn new(experiment: &'a ExperimentRecord, runs: &'a [RunRecord]) -> Self {
        Self { model: Model::new(experiment, runs) }
    }

    /// The answer in one or two sentences.
    pub fn verdict(&self) -> String {
        verdict::sentence(&self.model)
    }

    /// A table for a terminal of about 100 columns: medians, intervals, n, ratios, invalid runs.
    pub fn text(&self) -> String {
        page::text(&self.model)
    }

    /// Returns ratios by case as Markdown tables, with the number of cases that hold. Empty when
    /// there are not at least two cases of more than one stack.
    pub fn matrix(&self) -> String {
        matrix::markdown(&matrix::of(&self.model))
    }

    /// One self-contained page: no network, no script, below 2 MB.
    pub fn html(&self) -> Result<String, ReportError> {
        page::render(&self.model).map_err(|error| ReportError(format!("{error:#}")))
    }
}

/// One JSON object per run and line, in the order given: the run format of `docs/run-format.md`.
pub fn json_lines<'a>(runs: impl IntoIterator<Item = &'a RunRecord>) -> String {
    let mut lines = String::new();
    for run in runs {
        // Maps with text keys and numbers: this cannot fail.
        lines.push_str(&serde_json::to_string(run).expect("a run record is representable in JSON"));
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests;
