//! Two commands that are run in turns, and the pairs of their results.

use std::collections::BTreeMap;
use std::ffi::OsString;

use millstream_diagnose::paired::{PAIRS_LEAST, least_seen};
use millstream_lab::investigate::{BUILD, BUILDS, CommandRuns, CommandSubject, OtherEnd};
use millstream_record::error::Error;
use millstream_record::{ExperimentRecord, RunRecord};

use crate::ends::words;
use crate::investigate::{figure_of, subject};
use crate::keeper::{CommandKeeper, Keeper};
use crate::output;
use crate::prepare::{Made, existing_store};
use crate::progress::Progress;
use crate::values::{Database, database, time_limit};

/// Name of the kept runs where none is given.
const NAME: &str = "ab";
/// Pairs after which it is said what all will show.
const FIRST_PAIRS: usize = 5;

/// Two commands that are to be run in turns.
pub(crate) struct Two<'a> {
    pub(crate) ab: &'a [String],
    pub(crate) figure: Option<&'a str>,
    pub(crate) lower_is_better: bool,
    pub(crate) pairs: u32,
    pub(crate) timeout: f64,
    /// The other end of both, started before each run.
    pub(crate) server: Option<OtherEnd>,
    /// Name of the kept runs, if they are to have one of their own.
    pub(crate) name: Option<&'a str>,
    pub(crate) database: &'a Database,
}

impl Two<'_> {
    /// Refuses fewer pairs than can tell anything.
    pub(crate) fn check(pairs: u32) -> Result<(), Error> {
        match (pairs as usize) < PAIRS_LEAST {
            true => Err(Error::Refused(format!(
                "--runs {pairs}: {PAIRS_LEAST} at least, as fewer pairs tell nothing"
            ))),
            false => Ok(()),
        }
    }

    /// Runs both. Returns the runs, the key of their figure, and whether less is better.
    pub(crate) fn measure(&self) -> Result<(Vec<RunRecord>, String, bool), Error> {
        let commands = self.ab.iter().map(|line| words("--ab", line));
        let commands: Vec<Vec<OsString>> = commands
            .map(|words| Ok(words?.into_iter().map(OsString::from).collect()))
            .collect::<Result<_, Error>>()?;
        let [a, b] = commands.as_slice() else {
            return Err(Error::Refused("--ab: two commands".to_owned()));
        };
        let figure = figure_of(a, self.figure, self.lower_is_better)?;
        let timeout = time_limit(self.timeout)?;
        let at = database(self.database)?;
        let mut made = Made::default();
        made.database_folder(&at)?;
        let store = existing_store(&at)?;
        let keeper = CommandKeeper(Keeper::new(store, at, made, Progress::new(0.0)));
        let (key, pairs) = (figure.key.clone(), self.pairs as usize);
        let mut keeper = Foretold { keeper, key: key.clone(), pairs, is_said: false };
        let name = self.name.unwrap_or(NAME).to_owned();
        let question = format!("Is {} as good as {}?", self.ab[1], self.ab[0]);
        let lower_is_better = !figure.higher_is_better;
        let subject = subject(name, question, a, figure, timeout, &mut keeper)?;
        let done =
            CommandSubject { server: self.server.clone(), ..subject }.in_turns(b, self.pairs);
        keeper.keeper.0.progress.end();
        let runs = done.inspect_err(|_| keeper.keeper.0.say_kept())?;
        Ok((runs, key, lower_is_better))
    }
}

/// Returns the results of both commands in each pair in which both count.
pub(crate) fn pairs(runs: &[RunRecord], key: &str) -> Vec<(f64, f64)> {
    let mut blocks: BTreeMap<u32, [Option<f64>; 2]> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.validity.valid) {
        let build = run.factors.get(BUILD).map(String::as_str);
        if let Some(at) = BUILDS.iter().position(|one| Some(*one) == build) {
            blocks.entry(run.block).or_default()[at] = run.result(key);
        }
    }
    blocks.into_values().filter_map(|[a, b]| a.zip(b)).collect()
}

/// Keeps the runs, and says after the first pairs what all of them will show.
struct Foretold {
    keeper: CommandKeeper,
    key: String,
    pairs: usize,
    is_said: bool,
}

impl CommandRuns for Foretold {
    fn begin(&mut self, experiment: &ExperimentRecord, runs: usize) -> Result<(), Error> {
        self.keeper.begin(experiment, runs)
    }

    fn run_ended(&mut self, run: &RunRecord) -> Result<(), Error> {
        self.keeper.run_ended(run)?;
        let first = pairs(&self.keeper.0.runs, &self.key);
        if first.len() >= FIRST_PAIRS && !self.is_said {
            self.is_said = true;
            if let Some(share) = least_seen(&first, self.pairs) {
                output::say(format_args!(
                    "By the first {FIRST_PAIRS} pairs, {} will show a change of {:.1} % four times out of five.",
                    self.pairs,
                    share * 100.0
                ));
            }
        }
        Ok(())
    }

    fn end(&mut self, experiment: &ExperimentRecord) -> Result<(), Error> {
        self.keeper.end(experiment)
    }
}
