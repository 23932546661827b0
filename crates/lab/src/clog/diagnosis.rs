//! What the laboratory's catalogue of causes says of runs, and whether that names the clog.

use millstream_diagnose::causes::{BY_THREADS, built_in};
use millstream_diagnose::features::by_threads;
use millstream_record::RunRecord;
use serde::Serialize;

use super::{CLOGS, Clog};
use crate::investigate::{Options, explain_by};

/// What is said of the runs of one variant.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Diagnosis {
    /// Causes that fit, the likeliest first.
    pub causes: Vec<Named>,
    /// Whether the first of them is what was switched on; of cured runs whether any of the five clogs is among them.
    pub names_it: bool,
    /// Features that were not measured, of causes of this clog.
    pub not_measured: Vec<String>,
    /// Why nothing is said.
    pub refused: Option<String>,
}

/// A cause that fits.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    /// Its name in the catalogue.
    pub id: String,
    /// What it is.
    pub title: String,
    /// What speaks for it.
    pub evidence: String,
    /// Whether it is one by which any of the five clogs is named.
    pub is_of_a_clog: bool,
}

/// Whether a cause names any of the clogs.
fn is_of_a_clog(id: &str) -> bool {
    CLOGS.iter().any(|clog| clog.causes.contains(&id))
}

impl Diagnosis {
    /// Of the runs of one variant at `level`, beside those of other levels where these are numbers of threads. Which variant
    /// it is is not looked at but to say whether the answer is right.
    pub(super) fn of(clog: &Clog, level: u64, runs: &[RunRecord]) -> Self {
        let is_clogged = runs.iter().any(|run| run.factors["variant"] == "clogged");
        let level_of = |run: &RunRecord| run.factors["level"].parse::<u64>().ok();
        let options = Options::default();
        let scaling = clog.is_by_threads().then(|| {
            let threads = |run| u32::try_from(level_of(run)?).ok();
            by_threads(runs.iter().filter_map(|run| Some((threads(run)?, run))), options.seed)
        });
        // They are runs of one thing; what tells them apart is what is asked for.
        let mut those: Vec<RunRecord> =
            runs.iter().filter(|run| level_of(run) == Some(level)).cloned().collect();
        those.iter_mut().for_each(|run| run.factors.clear());
        let beside = scaling.as_ref().and_then(|one| one.as_ref().ok());
        let found = match explain_by(&those, clog.result, beside, &built_in(), &options) {
            Ok(found) => found,
            Err(error) => {
                return Self { refused: Some(error.to_string()), ..Self::default() };
            }
        };
        let named = |suspect: crate::investigate::Suspect| Named {
            is_of_a_clog: is_of_a_clog(&suspect.cause.id),
            id: suspect.cause.id,
            title: suspect.cause.title,
            evidence: suspect.evidence,
        };
        let causes: Vec<Named> = found.suspects.into_iter().map(named).collect();
        let names_it = match is_clogged {
            true => causes.first().is_some_and(|one| clog.causes.contains(&one.id.as_str())),
            false => causes.iter().any(|one| one.is_of_a_clog),
        };
        let of_this =
            found.not_judged.into_iter().filter(|(id, _)| clog.causes.contains(&id.as_str()));
        let mut not_measured: Vec<String> = of_this.flat_map(|(_, missing)| missing).collect();
        not_measured.sort();
        not_measured.dedup();
        if let Some(Err(why)) = scaling {
            not_measured.retain(|missing| missing != BY_THREADS);
            not_measured.push(format!("what threads cost each other, as {why}"));
        }
        Self { causes, names_it, not_measured, refused: None }
    }
}
