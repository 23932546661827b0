//! The store: one SQLite file that holds experiments and runs.
//!
//! Every finished run is one transaction in write-ahead mode, synchronised: after `kill -9` or a
//! loss of power the file opens and holds the runs that `save_run` had returned for. Records are
//! kept as the JSON of `docs/run-format.md`, with the columns that are searched beside it.

mod error;
mod forget;
mod look;
mod schema;

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

pub use error::StoreError;

use crate::record::{ExperimentRecord, FORMAT_VERSION, RunRecord, Timestamp};

/// How long another process that is writing is waited for.
const BUSY_TIMEOUT_MS: u64 = 10_000;

/// How soon a store that is busy while it is opened is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// An open store. One per thread; several processes may have the same file open.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
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
    /// Those of them that count.
    pub valid_runs: u32,
}

impl Store {
    /// Opens the file, creates it when it is missing, and brings an older schema up to date.
    ///
    /// Errors: no permission, not a store, or a store of a newer version of this program, which is
    /// left untouched.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        Self::open_with(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
    }

    /// Whether nothing is kept there yet: no such file, or one that is empty.
    pub fn is_missing(path: &Path) -> bool {
        path.metadata().map_or(true, |meta| meta.is_file() && meta.len() == 0)
    }

    /// Opens a file that must hold a store already: for commands that only show, and are to make none. One that may not
    /// be written is read.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if Self::is_missing(path) {
            return Err(StoreError::Missing { path: path.to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        match Self::open_with(path, flags) {
            Err(error @ StoreError::Io { .. }) => match look::open(path) {
                Ok(connection) => Ok(Self { path: path.to_owned(), connection }),
                Err(_) => Err(error),
            },
            opened => opened,
        }
    }

    /// Where another process creates the file, or closes it as the last, SQLite answers at once that it is busy.
    fn open_with(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let deadline = Instant::now() + Duration::from_millis(BUSY_TIMEOUT_MS);
        loop {
            match Self::try_open(path, flags) {
                Err(StoreError::Busy { .. }) if Instant::now() < deadline => sleep(BUSY_PAUSE),
                opened => return opened,
            }
        }
    }

    fn try_open(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let failed = |error| StoreError::from_sqlite(path, error);
        // Below a folder no name is one of SQLite's own: of ":memory:" nothing would be kept.
        let named = Path::new(".").join(path);
        let mut connection = Connection::open_with_flags(named, flags).map_err(failed)?;
        connection.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS)).map_err(failed)?;
        // The version is looked at before anything is written, so that a newer store stays as it is.
        if schema::check_version(path, &connection)? == 0 {
            // Before the first page is written.
            connection.pragma_update(None, "auto_vacuum", forget::INCREMENTAL).map_err(failed)?;
        }
        connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
        connection.pragma_update(None, "synchronous", "full").map_err(failed)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        schema::migrate(path, &mut connection)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Keeps an experiment; one with the same id is replaced, its runs stay.
    pub fn save_experiment(&self, experiment: &ExperimentRecord) -> Result<(), StoreError> {
        let record = self.json(experiment)?;
        let ExperimentRecord { id, name, started_at, finished_at, planned_runs, .. } = experiment;
        let finished_at = finished_at.map(|moment| moment.to_string());
        let saved = self.connection.execute(
            "INSERT INTO experiment (id, name, started_at, finished_at, planned_runs, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (id) DO UPDATE SET name = ?2, started_at = ?3, finished_at = ?4,
                planned_runs = ?5, record = ?6",
            params![id, name, started_at.to_string(), finished_at, planned_runs, record],
        );
        saved.map(drop).map_err(|error| self.failed(error))
    }

    /// Keeps a finished run in one transaction. It is on the disk when this returns.
    pub fn save_run(&mut self, run: &RunRecord) -> Result<(), StoreError> {
        let record = self.json(run)?;
        let Self { path, connection } = self;
        let failed = |error| StoreError::from_sqlite(path, error);
        let transaction = connection.transaction().map_err(failed)?;
        let saved = transaction.execute(
            "INSERT INTO run (id, experiment_id, workload, stack, block, ordinal, started_at, valid, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                run.id,
                run.experiment_id,
                run.workload,
                run.stack,
                run.block,
                run.order,
                run.started_at.to_string(),
                run.validity.valid,
                record
            ],
        );
        saved.map_err(|error| match error.sqlite_error() {
            Some(cause) if cause.extended_code == SQLITE_CONSTRAINT_FOREIGNKEY => {
                StoreError::Forgotten { path: path.clone(), run: run.id.clone() }
            }
            _ => failed(error),
        })?;
        transaction.commit().map_err(failed)
    }

    /// All experiments, the one that was kept last first. SQLite numbers rows in the order of keeping, which no clock
    /// that is set changes; saving an experiment again leaves its number.
    pub fn experiments(&self) -> Result<Vec<Summary>, StoreError> {
        let mut statement = self
            .connection
            .prepare(
                "SELECT e.id, e.name, e.started_at, e.finished_at, e.planned_runs, COUNT(r.id), COALESCE(SUM(r.valid), 0)
                 FROM experiment e LEFT JOIN run r ON r.experiment_id = e.id
                 GROUP BY e.id ORDER BY e.rowid DESC",
            )
            .map_err(|error| self.failed(error))?;
        let rows = statement.query_map([], summary).map_err(|error| self.failed(error))?;
        rows.collect::<Result<_, _>>().map_err(|error| self.failed(error))
    }

    /// The experiment with this id.
    pub fn experiment(&self, id: &str) -> Result<Option<ExperimentRecord>, StoreError> {
        let found =
            self.connection
                .query_row("SELECT record FROM experiment WHERE id = ?1", [id], |row| row.get(0));
        let found: Option<String> = found.optional().map_err(|error| self.failed(error))?;
        found.map(|text| self.parse(&text, id)).transpose()
    }

    /// The experiment that was kept last, or the last of that name.
    pub fn latest(&self, name: Option<&str>) -> Result<Option<ExperimentRecord>, StoreError> {
        let all = self.experiments()?;
        let newest = all.iter().find(|one| name.is_none_or(|name| one.name == name));
        newest.map_or(Ok(None), |one| self.experiment(&one.id))
    }

    /// The experiment that `text` means: an id, the beginning of exactly one id, or a name (its newest).
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

    /// The experiment that `text` means without doubt: an id, or the beginning of exactly one. A name that several
    /// have had means none of them.
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
        StoreError::NoExperiment { path: self.path.clone(), wanted: wanted.to_owned(), kept }
    }

    /// The runs of an experiment in the order of execution. One that cannot be read is an error.
    pub fn runs(&self, experiment_id: &str) -> Result<Vec<RunRecord>, StoreError> {
        self.each_run(experiment_id)?.into_iter().collect()
    }

    /// Those that can be read, and what is wrong with the others. Where none can, that is the error.
    pub fn readable_runs(
        &self,
        experiment_id: &str,
    ) -> Result<(Vec<RunRecord>, Vec<StoreError>), StoreError> {
        let (mut runs, mut bad) = (Vec::new(), Vec::new());
        for run in self.each_run(experiment_id)? {
            match run {
                Ok(run) => runs.push(run),
                Err(error) => bad.push(error),
            }
        }
        if runs.is_empty() && !bad.is_empty() {
            return Err(bad.swap_remove(0));
        }
        Ok((runs, bad))
    }

    fn each_run(
        &self,
        experiment_id: &str,
    ) -> Result<Vec<Result<RunRecord, StoreError>>, StoreError> {
        let mut statement = self
            .connection
            .prepare("SELECT id, record FROM run WHERE experiment_id = ?1 ORDER BY ordinal, id")
            .map_err(|error| self.failed(error))?;
        let rows = statement.query_map([experiment_id], |row| Ok((row.get(0)?, row.get(1)?)));
        let rows: Result<Vec<(String, String)>, _> =
            rows.map_err(|error| self.failed(error))?.collect();
        let rows = rows.map_err(|error| self.failed(error))?;
        Ok(rows.iter().map(|(id, text)| self.parse(text, id)).collect())
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        StoreError::from_sqlite(&self.path, error)
    }

    fn json(&self, record: &impl serde::Serialize) -> Result<String, StoreError> {
        serde_json::to_string(record).map_err(|error| StoreError::Record {
            path: self.path.clone(),
            id: String::new(),
            why: error.to_string(),
        })
    }

    fn parse<T: serde::de::DeserializeOwned>(&self, text: &str, id: &str) -> Result<T, StoreError> {
        #[derive(serde::Deserialize)]
        struct Format {
            format: u32,
        }
        let bad =
            |why: String| StoreError::Record { path: self.path.clone(), id: id.to_owned(), why };
        let Format { format } =
            serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        if format > FORMAT_VERSION {
            return Err(bad(format!("run format {format}, this program knows {FORMAT_VERSION}")));
        }
        serde_json::from_str(text).map_err(|error| bad(error.to_string()))
    }
}

fn summary(row: &Row<'_>) -> rusqlite::Result<Summary> {
    let moment = |at: usize| -> rusqlite::Result<Option<Timestamp>> {
        let text: Option<String> = row.get(at)?;
        // A moment that cannot be read does not hide the experiment.
        Ok(text.map(|text| text.parse().unwrap_or_default()))
    };
    Ok(Summary {
        id: row.get(0)?,
        name: row.get(1)?,
        started_at: moment(2)?.unwrap_or_default(),
        finished_at: moment(3)?,
        planned_runs: row.get(4)?,
        runs: row.get(5)?,
        valid_runs: row.get(6)?,
    })
}

#[cfg(test)]
mod tests;
