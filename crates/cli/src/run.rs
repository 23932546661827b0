//! `millstream run`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use millstream_lab::error::Error;
use millstream_lab::experiment::{Definition, PlannedRun, builtin, builtins};
use millstream_lab::leftovers::StateDir;
use millstream_lab::record::{ExperimentRecord, RunRecord};
use millstream_lab::report::Report;
use millstream_lab::runner::{self, Access, Interrupt, Observer, Places, Setting, WorkerProgram};
use millstream_lab::store::Store;

use crate::arguments::Run;
use crate::kept;
use crate::prepare::{Made, new_store, prepare_json};
use crate::progress::Progress;

/// Runs the experiment, keeps every finished run, prints the table and names
/// the page. After an interrupt it does the same with what was finished.
pub fn run(arguments: &Run) -> Result<ExitCode, Error> {
    let mut definition = load(&arguments.experiment)?;
    definition.apply(&arguments.overrides())?;
    let places = arguments.places()?;
    let mut made = Made::default();
    made.page_folder(&arguments.out)?;
    arguments.json.as_deref().map_or(Ok(()), prepare_json)?;
    let file = kept::database(&arguments.database)?;
    made.database_folder(&file)?;
    let setting = Setting { places, ..setting()? };
    // One that is not there yet is made when the experiment begins.
    let store = (!Store::is_missing(&file)).then(|| new_store(&file)).transpose()?;
    let seconds = definition.duration_s + definition.warmup_s;
    let progress = Progress::new(seconds);
    let mut keeper = Keeper::new(store, file, made, progress);
    let done = runner::run(&definition, &setting, &mut keeper).map(drop);
    keeper.progress.end();
    // Whatever ended it, what was measured is shown.
    let mut failed =
        keeper.experiment.as_ref().map_or_else(Vec::new, |_| finish(arguments, &keeper));
    failed.extend(done.err());
    // Each is said; the command ends with what ended the experiment, else with the last.
    let Some(last) = failed.pop() else { return Ok(verdict(&keeper.runs)) };
    failed.iter().for_each(|error| kept::say(format_args!("millstream: {error}")));
    Err(last)
}

/// What the runner needs; what an earlier run left is taken away first. To be called before any thread is started: a user
/// namespace can be entered only then.
pub fn setting() -> Result<Setting, Error> {
    Ok(Setting {
        program: worker_program()?,
        state: state()?,
        access: Access::obtain(),
        places: Places::Made,
        interrupt: Interrupt::from_signals()?,
        command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    })
}

/// The folder of this user's state, once what killed runs have left is put right.
pub fn state() -> Result<StateDir, Error> {
    let state = StateDir::locate()?;
    for line in state.sweep()? {
        kept::say(line);
    }
    Ok(state)
}

/// Puts right what killed runs have left, and says what that was.
pub fn undo() -> Result<ExitCode, Error> {
    let lines = StateDir::locate()?.sweep()?;
    match lines.is_empty() {
        true => kept::out("nothing to undo\n")?,
        false => kept::out(&(lines.join("\n") + "\n"))?,
    }
    let failed = lines.iter().any(|line| line.starts_with("cannot") || line.contains("nsenter"));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A definition by the name of a built-in experiment or from a file.
pub fn load(name: &str) -> Result<Definition, Error> {
    if let Some(definition) = builtin(name) {
        return Ok(definition);
    }
    if !name.ends_with(".toml") {
        let names: Vec<&str> = builtins().iter().map(|(name, _)| *name).collect();
        return Err(Error::Refused(format!(
            "no experiment '{name}'; built in: {}; or give a file ending in .toml",
            names.join(", ")
        )));
    }
    let bytes = fs::read(name).map_err(|error| Error::Refused(format!("{name}: {error}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::Refused(format!("{name}: no TOML file, it is not text (UTF-8)")))?;
    Definition::parse(name, &text)
}

/// This very program, as a worker.
pub fn worker_program() -> Result<WorkerProgram, Error> {
    let path = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    Ok(WorkerProgram { path, arguments: vec!["worker".to_owned()] })
}

/// Keeps every run the moment it ends.
pub struct Keeper {
    /// Where they are kept, made when it is first asked for.
    pub store: Option<Store>,
    file: PathBuf,
    made: Made,
    /// Who is told how far it is.
    pub progress: Progress,
    experiment: Option<ExperimentRecord>,
    runs: Vec<RunRecord>,
    /// How many of them the store has taken.
    kept: usize,
}

impl Keeper {
    /// Keeps in `store`, or in one that is made in `file` when the experiment begins.
    pub fn new(store: Option<Store>, file: PathBuf, made: Made, progress: Progress) -> Self {
        Self { store, file, made, progress, experiment: None, runs: vec![], kept: 0 }
    }

    /// An experiment of so many runs begins.
    pub fn begin_of(&mut self, experiment: &ExperimentRecord, runs: usize) -> Result<(), Error> {
        self.store()?.save_experiment(experiment).map_err(kept::stored)?;
        self.made.keep();
        self.experiment = Some(experiment.clone());
        for note in &experiment.notes {
            kept::say(format_args!("note: {note}"));
        }
        self.progress.begin(&experiment.id, runs);
        Ok(())
    }

    /// What the store has of it: all runs that were made, or how many of them.
    fn kept_where(&self, id: &str) -> String {
        let (kept, made, file) = (self.kept, self.runs.len(), self.file.display());
        match made - kept {
            0 => format!("Kept: {id} in {file}"),
            _ if kept == 0 => {
                format!("Kept: {id} in {file} without a run; none of the {made} made could be kept")
            }
            1 => {
                format!("Kept: {id} in {file} with {kept} of {made} runs; 1 run could not be kept")
            }
            lost => format!(
                "Kept: {id} in {file} with {kept} of {made} runs; {lost} runs could not be kept"
            ),
        }
    }

    /// The store, made when it is first asked for.
    fn store(&mut self) -> Result<&mut Store, Error> {
        let store = match self.store.take() {
            Some(store) => store,
            None => new_store(&self.file)?,
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
        self.store()?.save_run(run).map_err(kept::stored)?;
        self.kept += 1;
        self.progress.run_ended(run);
        Ok(())
    }

    fn end(&mut self, experiment: &ExperimentRecord) -> Result<(), Error> {
        self.experiment = Some(experiment.clone());
        self.store()?.save_experiment(experiment).map_err(kept::stored)
    }
}

/// Table, page and JSON of what was finished, and what could not be written of them. One that fails does not keep the
/// others from coming.
fn finish(arguments: &Run, keeper: &Keeper) -> Vec<Error> {
    let (Some(experiment), runs) = (&keeper.experiment, &keeper.runs) else { return Vec::new() };
    if runs.is_empty() {
        let id = &experiment.id;
        kept::say(format_args!("No run was finished; the experiment is kept as {id}."));
        return Vec::new();
    }
    let report = Report::new(experiment, runs);
    let page = kept::write_page(&arguments.out, experiment, &report);
    let written = arguments.json.as_ref().map_or(Ok(()), |path| kept::write_json(path, runs));
    let mut summary = format!("{}\n", report.text());
    if let Ok(page) = &page {
        summary.push_str(&format!("Page: {}\n", shown(page)));
    }
    summary.push_str(&format!("{}\n", keeper.kept_where(&experiment.id)));
    let printed = match &arguments.json {
        // JSON alone on the standard output: what people read goes beside it.
        Some(path) if path == Path::new("-") => {
            kept::say(summary.trim_end());
            Ok(())
        }
        _ => kept::out(&summary),
    };
    [page.map(drop), written, printed].into_iter().filter_map(Result::err).collect()
}

/// A path as it is found from anywhere.
pub fn shown(path: &Path) -> String {
    let full: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    full.display().to_string()
}

/// Success when every configuration has at least one run that counts.
fn verdict(runs: &[RunRecord]) -> ExitCode {
    let mut valid: BTreeMap<(String, &str), u32> = BTreeMap::new();
    for run in runs {
        let count = valid.entry((run.configuration(), &run.stack)).or_default();
        *count += u32::from(run.validity.valid);
    }
    let mut code = ExitCode::SUCCESS;
    for ((configuration, stack), _) in valid.iter().filter(|(_, count)| **count == 0) {
        let what = format_args!("{configuration} on {stack}");
        kept::say(format_args!("millstream: no valid run of {what}; see the reasons above"));
        code = ExitCode::FAILURE;
    }
    code
}
