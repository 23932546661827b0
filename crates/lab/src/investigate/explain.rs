//! The first half of an investigation, of runs that are there: nothing is run, and nothing is
//! forced.

use millstream_diagnose::causes::{Cause, Force};
use millstream_diagnose::features::{by_threads, threads_of};
use millstream_diagnose::scaling::Scaling;
use millstream_plan::Workload;
use millstream_record::error::Error;
use millstream_record::{RunRecord, THREADS, configuration_label, keys};

use super::{Investigation, Options, Subject, look};

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

/// Explains `runs` by groups, by features and by the causes of `catalogue`. All runs have one
/// configuration, except for the number of threads. With several numbers of threads it explains the
/// runs with the largest number for which the CPUs sufficed, beside the others.
///
/// # Errors
///
/// `Refused` where the runs are of several configurations, or fewer than [`super::RUNS_LEAST`]
/// count.
pub fn explain(
    runs: &[RunRecord],
    catalogue: &[Cause],
    options: &Options,
) -> Result<Investigation, Error> {
    if runs.is_empty() {
        return Err(Error::Refused("there are no runs to explain".to_owned()));
    }
    let Err(several) = one_thing(runs, name) else {
        return explain_as(name(&runs[0]), key(runs), runs, None, catalogue, options);
    };
    if one_thing(runs, name_without_threads).is_err() {
        return Err(several);
    }
    let numbered = runs.iter().filter_map(|run| Some((threads_of(run)?, run)));
    let scaling = by_threads(numbered, options.seed).map_err(|why| {
        Error::Refused(format!("{several}; numbers of threads cannot be compared: {why}"))
    })?;
    let at = |run: &&RunRecord| threads_of(run) == Some(scaling.to);
    let those: Vec<RunRecord> = runs.iter().filter(at).cloned().collect();
    explain_as(name(&those[0]), key(&those), &those, Some(&scaling), catalogue, options)
}

/// Explains runs of one configuration by the result with this key.
///
/// # Errors
///
/// As [`explain`].
#[cfg(feature = "clogs")]
pub(crate) fn explain_by(
    runs: &[RunRecord],
    key: &str,
    by_threads: Option<&Scaling>,
    catalogue: &[Cause],
    options: &Options,
) -> Result<Investigation, Error> {
    let said = runs.first().map_or_else(String::new, |run| run.workload.clone());
    explain_as(said, key.to_owned(), runs, by_threads, catalogue, options)
}

fn name(run: &RunRecord) -> String {
    format!("{} over {}", configuration_label(&run.workload, &run.factors), run.stack)
}

fn name_without_threads(run: &RunRecord) -> String {
    let mut factors = run.factors.clone();
    factors.remove(THREADS);
    format!("{} over {}", configuration_label(&run.workload, &factors), run.stack)
}

/// Refuses runs that do not all have one name. There is at least one run.
fn one_thing(runs: &[RunRecord], name: fn(&RunRecord) -> String) -> Result<(), Error> {
    let first = name(&runs[0]);
    let other = runs.iter().map(name).find(|other| *other != first);
    other.map_or(Ok(()), |other| {
        let why = format!(
            "the runs are of several things, as {first} and {other}; explain one of them (--only)"
        );
        Err(Error::Refused(why))
    })
}

/// Key of the result of these runs: of a command, whose failed runs have none, that of the first
/// run that counts.
fn key(runs: &[RunRecord]) -> String {
    match Workload::of(&runs[0].workload) {
        Some(workload) => workload.result().to_owned(),
        None => {
            let mut keys =
                runs.iter().filter(|run| run.validity.valid).flat_map(|run| run.results.keys());
            keys.next().cloned().unwrap_or_default()
        }
    }
}

fn explain_as(
    name: String,
    key: String,
    runs: &[RunRecord],
    by_threads: Option<&Scaling>,
    catalogue: &[Cause],
    options: &Options,
) -> Result<Investigation, Error> {
    // The unit alone says which way a command's figure is better.
    let stored = Stored { name, higher_is_better: !keys::is_time(&key), key };
    let mut found = look(&stored, runs, by_threads, catalogue, options)?;
    for suspect in &mut found.suspects {
        suspect.not_forced = Some("kept runs are not run again".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;
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
    fn a_first_run_that_failed_does_not_hide_the_figure() {
        let mut failing = runs("host", 9);
        for (at, run) in failing.iter_mut().enumerate() {
            run.workload = "command".into();
            run.results = [("figure".to_owned(), 100.0 + at as f64)].into();
        }
        failing[0].results.clear();
        failing[0].validity.reject("exit status: 1");
        let found = explain(&failing, &built_in(), &Options::default()).unwrap();
        assert_eq!((found.result.as_str(), found.observed.len()), ("figure", 8));
        assert_eq!(found.left_out, ["r0: exit status: 1"]);
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

    /// Runs of one and of two threads, of which two send so many packets, with a function met so
    /// often.
    fn threaded(function: &str, many: (f64, u64)) -> Vec<RunRecord> {
        let level = |(threads, mut run): (u32, RunRecord)| {
            run.factors.insert("threads".into(), threads.to_string());
            run
        };
        made_up::set(function, many).into_iter().map(level).collect()
    }

    #[test]
    fn runs_that_differ_in_their_threads_say_what_threads_share() {
        let spin = "native_queued_spin_lock_slowpath_[k]";
        let look = |runs: &[RunRecord]| explain(runs, &built_in(), &Options::default()).unwrap();
        let found = look(&threaded(spin, (120_000.0, 80)));
        assert_eq!(
            (found.subject.as_str(), found.observed.len()),
            ("udp_pps threads=2 over kernel", 8)
        );
        let text = found.text();
        assert!(text.contains("With 2 threads a unit of work takes 1.67 times"), "{text}");
        assert!(text.contains("native_queued_spin_lock_slowpath ("), "{text}");
        let ids = |found: &Investigation| -> Vec<String> {
            found.suspects.iter().map(|one| one.cause.id.clone()).collect()
        };
        // The lock that is waited for goes before what follows from it.
        assert_eq!(ids(&found)[..2], ["lock-contention", "shared-between-threads"]);
        // A cache line without a name of its own, and threads that share none.
        let found = look(&threaded("look_up", (120_000.0, 80)));
        assert_eq!(ids(&found), ["shared-between-threads"]);
        assert!(ids(&look(&threaded("look_up", (198_000.0, 11)))).is_empty());
        // Runs of one number of threads cannot say it, and that is told.
        let two = threaded(spin, (120_000.0, 80)).split_off(8);
        let only: Vec<RunRecord> =
            two.iter().filter(|run| run.factors["threads"] == "2").cloned().collect();
        let found = look(&[only.clone(), only].concat());
        assert_eq!(ids(&found), ["lock-contention"]);
        assert!(found.not_judged.iter().any(|(cause, _)| cause == "shared-between-threads"));
    }

    #[test]
    fn more_threads_than_cpus_explain_nothing() {
        let mut runs = threaded("look_up", (120_000.0, 80));
        for run in &mut runs {
            let threads = if run.factors["threads"] == "1" { "2" } else { "4" };
            run.factors.insert("threads".into(), threads.into());
            // Both have the two CPUs.
            run.probes.workers.as_mut().unwrap().values_mut().for_each(|end| end.usr_s = 1.85);
        }
        let error = explain(&runs, &built_in(), &Options::default()).unwrap_err().to_string();
        assert!(error.ends_with("4 threads want more than the 2 CPUs that there are"), "{error}");
        assert!(error.contains("(--only)"), "{error}");
    }
}
