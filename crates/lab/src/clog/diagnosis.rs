//! The diagnosis of a clog's runs by the laboratory's catalogue of causes, and whether it names the
//! clog.

use millstream_diagnose::causes::{BY_THREADS, built_in};
use millstream_diagnose::features::by_threads;
use millstream_record::RunRecord;
use serde::Serialize;

use super::{CLOGS, Clog};
use crate::investigate::{Options, explain_by};

/// The diagnosis of the runs of one variant.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Diagnosis {
    /// Causes that fit, the likeliest first.
    pub causes: Vec<Named>,
    /// True when the first cause names the clog that was switched on; for cured runs, true when any
    /// cause names one of the five clogs.
    pub names_it: bool,
    /// Features that were not measured, of causes of this clog.
    pub not_measured: Vec<String>,
    /// The reason why there is no diagnosis.
    pub refused: Option<String>,
}

/// A cause that fits.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    /// Its name in the catalogue.
    pub id: String,
    /// Its title in the catalogue.
    pub title: String,
    /// The evidence for it, as text.
    pub evidence: String,
    /// True when it names one of the five clogs.
    pub is_of_a_clog: bool,
}

/// Returns true when a cause names any of the clogs.
fn is_of_a_clog(id: &str) -> bool {
    CLOGS.iter().any(|clog| clog.causes.contains(&id))
}

impl Diagnosis {
    /// Returns the diagnosis of the runs of one variant at `level`. Runs at other levels are
    /// compared where the levels are numbers of threads. The variant is looked at only to judge
    /// whether the answer is right.
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
