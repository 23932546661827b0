//! Keeps the runs of an experiment, and says how far it is.

use millstream_lab::investigate::{CommandRuns, RUNS_LEAST};
use millstream_lab::runner::Observer;
use millstream_plan::PlannedRun;
use millstream_record::error::Error;
use millstream_record::store::{Location, Store};
use millstream_record::{ExperimentRecord, RunRecord};

use crate::output::say;
use crate::prepare::{Made, new_store};
use crate::progress::Progress;

/// Keeps every run the moment it ends.
pub struct Keeper {
    /// Where they are kept, made when it is first asked for.
    pub store: Option<Store>,
    at: Location,
    made: Made,
    /// The bar, or the lines, that say how far it is.
    pub progress: Progress,
    pub experiment: Option<ExperimentRecord>,
    pub runs: Vec<RunRecord>,
    /// The number of them that the store has taken.
    kept: usize,
}

impl Keeper {
    /// Keeps in `store`, or in one that is made `at` this place when the experiment begins.
    pub fn new(store: Option<Store>, at: Location, made: Made, progress: Progress) -> Self {
        Self { store, at, made, progress, experiment: None, runs: vec![], kept: 0 }
    }

    /// Begins an experiment of so many runs.
    pub fn begin_of(&mut self, experiment: &ExperimentRecord, runs: usize) -> Result<(), Error> {
        self.store()?.save_experiment(experiment)?;
        self.made.keep();
        self.experiment = Some(experiment.clone());
        for note in &experiment.notes {
            say(format_args!("note: {note}"));
        }
        self.progress.begin(&experiment.id, runs);
        Ok(())
    }

    /// Returns a line about the runs that the store has: all that were made, or how many of them.
    pub fn kept_where(&self, id: &str) -> String {
        let (kept, made, at) = (self.kept, self.runs.len(), &self.at);
        match made - kept {
            0 => format!("Kept: {id} in {at}"),
            _ if kept == 0 => {
                format!("Kept: {id} in {at} without a run; none of the {made} made could be kept")
            }
            1 => {
                format!("Kept: {id} in {at} with {kept} of {made} runs; 1 run could not be kept")
            }
            lost => format!(
                "Kept: {id} in {at} with {kept} of {made} runs; {lost} runs could not be kept"
            ),
        }
    }

    /// Says what is kept of an experiment that has come to no end, and what can be done with that.
    pub fn say_kept(&self) {
        let Some(experiment) = self.experiment.as_ref().filter(|_| !self.runs.is_empty()) else {
            return;
        };
        let kept = self.kept_where(&experiment.id);
        let counting = self.runs.iter().filter(|run| run.validity.valid).count();
        match counting.min(self.kept) < RUNS_LEAST as usize {
            true => say(kept),
            false => {
                say(format_args!("{kept}; `millstream explain {}` looks into it", experiment.id));
            }
        }
    }

    /// Returns the store, made when it is first asked for.
    fn store(&mut self) -> Result<&mut Store, Error> {
        let store = match self.store.take() {
            Some(store) => store,
            None => new_store(&self.at)?,
        };
        Ok(self.store.insert(store))
    }
}

impl Observer for Keeper {
    fn begin(&mut self, experiment: &ExperimentRecord, plan: &[PlannedRun]) -> Result<(), Error> {
        self.begin_of(experiment, plan.len())
    }

    fn run_begins(&mut self, run: &PlannedRun) {
        self.progress.run_begins(run);
    }

    fn run_ended(&mut self, run: &RunRecord) -> Result<(), Error> {
        // Also a run that cannot be kept is shown.
        self.runs.push(run.clone());
        self.store()?.save_run(run)?;
        self.kept += 1;
        self.progress.run_ended(run);
        Ok(())
    }

    fn end(&mut self, experiment: &ExperimentRecord) -> Result<(), Error> {
        self.experiment = Some(experiment.clone());
        Ok(self.store()?.save_experiment(experiment)?)
    }
}

/// Keeps the runs of a command as those of an experiment.
pub struct CommandKeeper(pub Keeper);

impl CommandRuns for CommandKeeper {
    fn begin(&mut self, experiment: &ExperimentRecord, runs: usize) -> Result<(), Error> {
        // Nobody knows how long a command takes before its first run has ended.
        self.0.progress.end();
        self.0.progress = Progress::new(0.0);
        self.0.begin_of(experiment, runs)
    }

    fn run_ended(&mut self, run: &RunRecord) -> Result<(), Error> {
        self.0.run_ended(run)
    }

    fn end(&mut self, experiment: &ExperimentRecord) -> Result<(), Error> {
        self.0.end(experiment)
    }
}
