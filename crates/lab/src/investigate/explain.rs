//! The first half of an investigation, of runs that are there: nothing is run, and nothing is forced.

use millstream_diagnose::causes::{Cause, Force};

use super::{Investigation, Options, Subject, look};
use crate::error::Error;
use crate::record::{RunRecord, configuration_label};
use crate::workload::Workload;

/// Runs that were kept, as what is investigated.
struct Stored {
    name: String,
    key: String,
    higher_is_better: bool,
}

impl Subject for Stored {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn result(&self) -> (String, bool) {
        (self.key.clone(), self.higher_is_better)
    }

    fn observe(&mut self, _: u32) -> Result<Vec<RunRecord>, Error> {
        Err(Error::Refused("kept runs are not run again".to_owned()))
    }

    fn may_force(&self, _: &Force) -> Result<(), String> {
        Err("kept runs are not run again".to_owned())
    }

    fn force(&mut self, _: &Force, _: u32) -> Result<Vec<RunRecord>, Error> {
        Err(Error::Refused("kept runs are not run again".to_owned()))
    }

    fn experiments(&self) -> Vec<String> {
        vec![]
    }
}

/// What `runs`, all of one configuration, say of groups, of features and of the causes of `catalogue`.
///
/// # Errors
///
/// `Refused` where the runs are of several configurations, or fewer than [`super::RUNS_LEAST`] count.
pub fn explain(
    runs: &[RunRecord],
    catalogue: &[Cause],
    options: &Options,
) -> Result<Investigation, Error> {
    let name = |run: &RunRecord| {
        format!("{} over {}", configuration_label(&run.workload, &run.factors), run.stack)
    };
    let Some(first) = runs.first() else {
        return Err(Error::Refused("there are no runs to explain".to_owned()));
    };
    let said = name(first);
    if let Some(other) = runs.iter().map(name).find(|other| *other != said) {
        let why = format!(
            "the runs are of several things, as {said} and {other}; explain one of them (--only)"
        );
        return Err(Error::Refused(why));
    }
    let key = match Workload::of(&first.workload) {
        Some(workload) => workload.result().to_owned(),
        None => first.results.keys().next().cloned().unwrap_or_default(),
    };
    explain_as(said, key, runs, catalogue, options)
}

/// The same of runs that are one thing, by the result with this key.
///
/// # Errors
///
/// As [`explain`].
#[cfg(feature = "clogs")]
pub(crate) fn explain_by(
    runs: &[RunRecord],
    key: &str,
    catalogue: &[Cause],
    options: &Options,
) -> Result<Investigation, Error> {
    let said = runs.first().map_or_else(String::new, |run| run.workload.clone());
    explain_as(said, key.to_owned(), runs, catalogue, options)
}

fn explain_as(
    name: String,
    key: String,
    runs: &[RunRecord],
    catalogue: &[Cause],
    options: &Options,
) -> Result<Investigation, Error> {
    // Of a command's figure the unit alone says which way is better.
    let is_time = ["_s", "_us", "_ms", "_ns"].iter().any(|end| key.ends_with(end));
    let higher_is_better = !is_time || key.ends_with("_per_s");
    let stored = Stored { name, key, higher_is_better };
    let mut found = look(&stored, runs, catalogue, options)?;
    for suspect in &mut found.suspects {
        suspect.not_forced = Some("kept runs are not run again".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::keys;
    use millstream_diagnose::causes::built_in;

    fn runs(stack: &str, count: usize) -> Vec<RunRecord> {
        let one = |at: usize| {
            let mut run = RunRecord::new(format!("r{at}"));
            run.workload = "tcp_rr".into();
            run.stack = stack.into();
            let slow = if at.is_multiple_of(2) { 1.0 } else { 4.0 };
            run.results.insert(keys::TRANSACTIONS.into(), slow * (1000.0 + at as f64));
            run.results.insert(keys::CPU_DISTANCE.into(), 100.0 * slow);
            run
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn kept_runs_have_groups_and_what_goes_with_them_and_nothing_confirmed() {
        let found = explain(&runs("kernel", 24), &built_in(), &Options::default()).unwrap();
        assert_eq!((found.modes.len(), found.observed.len()), (2, 24));
        assert_eq!(found.separation.findings[0].feature, "cpu_distance_ns");
        assert!(found.suspects.iter().all(|suspect| suspect.judgement.is_none()));
        assert!(found.text().contains("tcp_rr over kernel"));
    }

    #[test]
    fn runs_of_several_things_and_too_few_are_refused() {
        let mut mixed = runs("kernel", 12);
        mixed.extend(runs("millstream", 12));
        for (set, why) in
            [(mixed, "several things"), (runs("kernel", 7), "needed"), (vec![], "no runs")]
        {
            let error = explain(&set, &built_in(), &Options::default()).unwrap_err();
            assert!(matches!(&error, Error::Refused(said) if said.contains(why)), "{error}");
        }
    }
}
