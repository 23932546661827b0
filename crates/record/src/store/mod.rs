//! The store, which holds experiments and runs: an SQLite file, or a database of a PostgreSQL
//! server.
//!
//! Records are kept as the JSON of `docs/run-format.md`, with the columns that are searched beside
//! it. A run that `save_run` has returned for is there after `kill -9` or a loss of power.

#[cfg(feature = "postgres")]
mod address;
#[cfg(not(feature = "postgres"))]
#[path = "no_address.rs"]
mod address;
mod error;
mod location;
mod schema;
mod secret;
#[cfg(feature = "postgres")]
mod server;
mod sqlite;
mod statements;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::mem;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

pub use address::Server;
pub use error::StoreError;
pub use location::Location;
pub use secret::without_password;

use crate::{ExperimentRecord, FORMAT_VERSION, RunRecord, Timestamp, brief, for_tables};
use sqlite::Sqlite;

/// Takes the id and the record of a run.
type Take<'a> = &'a mut dyn FnMut(&str, &str);

/// A database that keeps the rows.
trait Backend: Debug {
    fn save_experiment(&self, experiment: &ExperimentRecord, json: &str) -> Result<(), StoreError>;
    /// Keeps the run and, where it has one, its brief: both or none.
    fn save_run(&self, run: &RunRecord, json: &str, brief: Option<&str>) -> Result<(), StoreError>;
    /// Returns all experiments, the one that was kept last first.
    fn experiments(&self) -> Result<Vec<Summary>, StoreError>;
    /// Returns the record of an experiment.
    fn experiment(&self, id: &str) -> Result<Option<String>, StoreError>;
    /// Hands over id and record of each run of an experiment, in the order of execution.
    fn each_run(&self, experiment_id: &str, take: Take<'_>) -> Result<(), StoreError>;
    /// The same, with the brief of a run instead of its record where it has one of this version
    /// ([`BRIEF_VERSION`](crate::BRIEF_VERSION)).
    fn each_brief(&self, experiment_id: &str, take: Take<'_>) -> Result<(), StoreError>;
    /// Hands over id and record of the runs with these ids, in the order of the ids; one that is
    /// not there is passed over.
    fn each_of(&self, ids: &[&str], take: Take<'_>) -> Result<(), StoreError>;
    /// Removes these experiments, all or none.
    fn forget(&self, ids: &[&str]) -> Result<(), StoreError>;
    fn give_back_room(&self, alone: bool) -> Result<bool, StoreError>;
}

impl Location {
    /// Reads a URL that begins with `postgres://` or `postgresql://` as that of a server, and
    /// anything else as the path of a file.
    ///
    /// Parts that the URL leaves out have defaults: the host is the local socket, the user that of
    /// this process (so call it before a user namespace is entered), the database is named like the
    /// user, and the password is `PGPASSWORD` of the environment. Options of TLS are those of the
    /// server's library (`sslmode`, `sslnegotiation`).
    pub fn parse(text: &OsStr) -> Result<Self, StoreError> {
        Self::parse_in(text, &|name| std::env::var_os(name))
    }

    fn parse_in(
        text: &OsStr,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, StoreError> {
        match text.to_str().filter(|text| is_url(text)) {
            Some(url) => match Server::parse(url, environment) {
                Ok(server) => Ok(Self::Server(Box::new(server))),
                Err(why) => Err(StoreError::BadUrl { url: without_password(url), why }),
            },
            None => Ok(Self::File(text.into())),
        }
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// An open store. One per thread; several processes may have the same one open.
#[derive(Debug)]
pub struct Store {
    at: Location,
    backend: Box<dyn Backend>,
}

/// An experiment in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Id of the experiment.
    pub id: String,
    /// Name of its definition.
    pub name: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; `None` when it was interrupted or still goes on.
    pub finished_at: Option<Timestamp>,
    /// Runs that the design asks for.
    pub planned_runs: u32,
    /// Runs that are kept.
    pub runs: u32,
    /// Kept runs that are valid.
    pub valid_runs: u32,
}

impl Store {
    /// Opens the store, makes it when it is missing, and brings an older schema up to date.
    ///
    /// Errors: no permission, not a store, a server that does not answer, or a store of a newer
    /// version of this program, which is left untouched.
    pub fn open<L: ?Sized>(at: &L) -> Result<Self, StoreError>
    where
        for<'a> Location: From<&'a L>,
    {
        let at = Location::from(at);
        let backend: Box<dyn Backend> = match &at {
            Location::File(path) => Box::new(Sqlite::open(path)?),
            Location::Server(server) => server.open()?,
        };
        Ok(Self { at, backend })
    }

    /// Returns true where nothing is kept there yet: no such file, one that is empty, or a database
    /// without our tables.
    ///
    /// Errors: a server that does not answer, or tables that are not ours.
    pub fn is_missing<L: ?Sized>(at: &L) -> Result<bool, StoreError>
    where
        for<'a> Location: From<&'a L>,
    {
        match Location::from(at) {
            Location::File(path) => Ok(Sqlite::is_missing(&path)),
            Location::Server(server) => server.is_missing(),
        }
    }

    /// Opens a store that must be there already: for commands that only show, and are to make none.
    /// One that may not be written is read.
    pub fn open_existing<L: ?Sized>(at: &L) -> Result<Self, StoreError>
    where
        for<'a> Location: From<&'a L>,
    {
        let at = Location::from(at);
        let backend: Box<dyn Backend> = match &at {
            Location::File(path) => Box::new(Sqlite::open_existing(path)?),
            Location::Server(server) => server.open_existing()?,
        };
        Ok(Self { at, backend })
    }

    /// Returns its location.
    pub fn at(&self) -> &Location {
        &self.at
    }

    /// Keeps an experiment; one with the same id is replaced, its runs stay.
    pub fn save_experiment(&self, experiment: &ExperimentRecord) -> Result<(), StoreError> {
        self.backend.save_experiment(experiment, &self.json(experiment)?)
    }

    /// Keeps a finished run in one transaction. It is on the disk when this returns.
    pub fn save_run(&mut self, run: &RunRecord) -> Result<(), StoreError> {
        let json = self.json(run)?;
        self.backend.save_run(run, &json, brief(&json).as_deref())
    }

    /// Returns all experiments, the one that was kept last first. Rows are numbered in the order of
    /// keeping, which no clock that is set changes; saving an experiment again leaves its number.
    pub fn experiments(&self) -> Result<Vec<Summary>, StoreError> {
        self.backend.experiments()
    }

    /// Returns the experiment with this id.
    pub fn experiment(&self, id: &str) -> Result<Option<ExperimentRecord>, StoreError> {
        self.backend.experiment(id)?.map(|text| parse(&self.at, &text, id)).transpose()
    }

    /// Removes these experiments with all their runs, all or none. Other writers wait meanwhile; an
    /// id that is not there is passed over.
    pub fn forget(&mut self, ids: &[&str]) -> Result<(), StoreError> {
        self.backend.forget(ids)
    }

    /// Gives room of a file that nothing uses back to the file system, a piece at a time, so that
    /// nobody who keeps a run waits long. A file of an earlier version has to be written anew for
    /// that, under one lock and into as much room again: only where `alone`. False where the file
    /// was left as large as it is. A server does that by itself.
    pub fn give_back_room(&mut self, alone: bool) -> Result<bool, StoreError> {
        self.backend.give_back_room(alone)
    }

    /// Returns the experiment that was kept last, or the last of that name.
    pub fn latest(&self, name: Option<&str>) -> Result<Option<ExperimentRecord>, StoreError> {
        let all = self.experiments()?;
        let newest = all.iter().find(|one| name.is_none_or(|name| one.name == name));
        newest.map_or(Ok(None), |one| self.experiment(&one.id))
    }

    /// Returns the experiment that `text` means: an id, the beginning of exactly one id, or a name
    /// (its newest).
    pub fn find(&self, text: &str) -> Result<ExperimentRecord, StoreError> {
        if let Some(exact) = self.experiment(text)? {
            return Ok(exact);
        }
        if let Some(named) = self.latest(Some(text))? {
            return Ok(named);
        }
        let found = self.experiment(&self.find_one(text)?.id)?;
        // Forgotten between the two looks.
        found.ok_or_else(|| self.none(text, 0))
    }

    /// Returns the experiment that `text` means without doubt: an id, or the beginning of exactly
    /// one. A name that several have had means none of them.
    pub fn find_one(&self, text: &str) -> Result<Summary, StoreError> {
        let mut all = self.experiments()?;
        let kept = all.len();
        if let Some(at) = all.iter().position(|one| one.id == text) {
            return Ok(all.swap_remove(at));
        }
        all.retain(|one| !text.is_empty() && one.id.starts_with(text));
        match all.len() {
            0 => Err(self.none(text, kept)),
            1 => Ok(all.swap_remove(0)),
            _ => Err(StoreError::Ambiguous {
                wanted: text.to_owned(),
                ids: all.into_iter().map(|one| one.id).collect(),
            }),
        }
    }

    fn none(&self, wanted: &str, kept: usize) -> StoreError {
        StoreError::NoExperiment { at: self.at.clone(), wanted: wanted.to_owned(), kept }
    }

    /// Returns the runs of an experiment in the order of execution. One that cannot be read is an
    /// error.
    pub fn runs(&self, experiment_id: &str) -> Result<Vec<RunRecord>, StoreError> {
        self.read(&mut |take| self.backend.each_run(experiment_id, take))?.into_iter().collect()
    }

    /// Returns the runs that can be read, and one error for each other. Fails with the first error
    /// where no run can be read.
    pub fn readable_runs(&self, experiment_id: &str) -> Result<Readable, StoreError> {
        readable(self.read(&mut |take| self.backend.each_run(experiment_id, take))?)
    }

    /// Returns the same for tables (the text report and `matrix`): parts of a run that these do not
    /// show are not read, and stay empty. Reads the brief that lies beside the record of each run.
    pub fn readable_runs_for_tables(&self, experiment_id: &str) -> Result<Readable, StoreError> {
        let runs = self.read(&mut |take| self.backend.each_brief(experiment_id, take))?;
        let runs = runs.into_iter();
        readable(runs.map(|run| run.map(|ForTables(run)| run)).collect())
    }

    /// Returns the runs with these ids that can be read, in the order of the ids, and one error for
    /// each other. One that is not there is passed over.
    pub fn runs_of(&self, ids: &[&str]) -> Result<Readable, StoreError> {
        Ok(apart(self.read(&mut |take| self.backend.each_of(ids, take))?))
    }

    /// Returns the records that `each` hands over, in its order. Many are read by as many threads
    /// as there are CPUs.
    fn read<T: Record + Send>(
        &self,
        each: &mut dyn FnMut(Take<'_>) -> Result<(), StoreError>,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        // The connection is not shared with the threads.
        let at = &self.at;
        let read = |batch: Batch| -> Vec<_> {
            batch.texts.iter().map(|(id, text)| parse(at, text, id)).collect()
        };
        thread::scope(|scope| {
            let (mut runs, mut begun, mut batch) = (Vec::new(), VecDeque::new(), Batch::default());
            let end = |reader: ScopedJoinHandle<'_, Vec<_>>| {
                reader.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            each(&mut |id, text| {
                batch.add(id, text);
                if batch.bytes < BATCH_BYTES {
                    return;
                }
                if begun.len() >= cpus {
                    runs.extend(begun.pop_front().into_iter().flat_map(end));
                }
                let full = mem::take(&mut batch);
                begun.push_back(scope.spawn(move || read(full)));
            })?;
            runs.extend(begun.into_iter().flat_map(end));
            runs.extend(read(batch));
            Ok(runs)
        })
    }

    fn json(&self, record: &impl serde::Serialize) -> Result<String, StoreError> {
        serde_json::to_string(record).map_err(|error| StoreError::Record {
            at: self.at.clone(),
            id: String::new(),
            why: error.to_string(),
        })
    }
}

fn parse<T: Record>(at: &Location, text: &str, id: &str) -> Result<T, StoreError> {
    let bad = |why: String| StoreError::Record { at: at.clone(), id: id.to_owned(), why };
    let newer = |format: u32| format!("run format {format}, this program knows {FORMAT_VERSION}");
    match T::read(text) {
        Ok(record) if record.format() <= FORMAT_VERSION => Ok(record),
        Ok(record) => Err(bad(newer(record.format()))),
        // One of a newer format may have other parts.
        Err(error) => match serde_json::from_str::<Format>(text) {
            Ok(Format { format }) if format > FORMAT_VERSION => Err(bad(newer(format))),
            _ => Err(bad(error.to_string())),
        },
    }
}

/// Bytes of records that a thread reads in one go.
const BATCH_BYTES: usize = 2 << 20;

/// Ids and records of some runs.
#[derive(Default)]
struct Batch {
    texts: Vec<(String, String)>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, id: &str, text: &str) {
        self.bytes += text.len();
        self.texts.push((id.to_owned(), text.to_owned()));
    }
}

/// A record that is kept as JSON.
trait Record: Sized {
    fn read(text: &str) -> serde_json::Result<Self>;
    fn format(&self) -> u32;
}

impl Record for ExperimentRecord {
    fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    fn format(&self) -> u32 {
        self.format
    }
}

impl Record for RunRecord {
    fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    fn format(&self) -> u32 {
        self.format
    }
}

/// A run as far as tables tell of it.
struct ForTables(RunRecord);

impl Record for ForTables {
    fn read(text: &str) -> serde_json::Result<Self> {
        for_tables(text).map(Self)
    }

    fn format(&self) -> u32 {
        self.0.format
    }
}

/// Runs that can be read, and what is wrong with the others.
pub type Readable = (Vec<RunRecord>, Vec<StoreError>);

/// Returns the runs that can be read, and one error for each other. Fails with the first error
/// where no run can be read.
fn readable(all: Vec<Result<RunRecord, StoreError>>) -> Result<Readable, StoreError> {
    let (runs, mut bad) = apart(all);
    if runs.is_empty() && !bad.is_empty() {
        return Err(bad.swap_remove(0));
    }
    Ok((runs, bad))
}

fn apart(all: Vec<Result<RunRecord, StoreError>>) -> Readable {
    let (mut runs, mut bad) = (Vec::with_capacity(all.len()), Vec::new());
    for run in all {
        match run {
            Ok(run) => runs.push(run),
            Err(error) => bad.push(error),
        }
    }
    (runs, bad)
}

/// The part of a record that every version has.
#[derive(serde::Deserialize)]
struct Format {
    format: u32,
}

/// Returns a line of a list, made of begin and end as text, and of the numbers of runs that are
/// planned, kept and valid.
fn summary(
    id: String,
    name: String,
    [started_at, finished_at]: [Option<String>; 2],
    counts: [i64; 3],
) -> Summary {
    // A moment that cannot be read does not hide the experiment.
    let moment = |text: String| text.parse().unwrap_or_default();
    let [planned_runs, runs, valid_runs] = counts.map(|count| count.try_into().unwrap_or(0));
    Summary {
        id,
        name,
        started_at: started_at.map(moment).unwrap_or_default(),
        finished_at: finished_at.map(moment),
        planned_runs,
        runs,
        valid_runs,
    }
}

#[cfg(test)]
mod tests;
