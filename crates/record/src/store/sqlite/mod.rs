//! A store in an SQLite file.
//!
//! Every finished run is one transaction in write-ahead mode, synchronised: after `kill -9` or a
//! loss of power the file opens and holds the runs that were kept.

mod look;
mod room;

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Row, ToSql, Transaction, TransactionBehavior, params,
};

use super::{Backend, StoreError, Summary, Take, schema, statements, summary};
use crate::{BRIEF_VERSION, ExperimentRecord, RunRecord};

/// Time for which another process that is writing is waited for.
const BUSY_TIMEOUT_MS: u64 = 10_000;

/// Pause before a store that is busy while it is opened is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// An open file. Several processes may have the same one open.
#[derive(Debug)]
pub(super) struct Sqlite {
    path: PathBuf,
    connection: Connection,
    /// False for a file that nobody may bring up to date, of a version without them.
    has_briefs: bool,
}

impl Sqlite {
    /// Opens the file, makes it when it is missing, and brings an older schema up to date.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        Self::open_with(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
    }

    /// Returns true where nothing is kept there yet: no such file, or one that is empty.
    pub(super) fn is_missing(path: &Path) -> bool {
        path.metadata().map_or(true, |meta| meta.is_file() && meta.len() == 0)
    }

    /// Opens a file that must hold a store already. One that may not be written is read.
    pub(super) fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if Self::is_missing(path) {
            return Err(StoreError::Missing { at: path.into() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        match Self::open_with(path, flags) {
            Err(error @ StoreError::Io { .. }) => Self::open_read_only(path).map_err(|_| error),
            opened => opened,
        }
    }

    /// Opens a file that holds a store and changes nothing; its schema may be an older one.
    pub(super) fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let (connection, version) = look::open(path)?;
        let has_briefs = version >= schema::WITH_BRIEFS;
        Ok(Self { path: path.to_owned(), connection, has_briefs })
    }

    /// Opens the file, for [`BUSY_TIMEOUT_MS`] again and again: where another process creates the
    /// file, or closes it as the last, SQLite answers at once that it is busy.
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
        // The version is looked at before anything is written, so that a newer store stays as it
        // is.
        if schema::check_version(path, &connection)? == 0 {
            // Before the first page is written.
            connection.pragma_update(None, "auto_vacuum", room::INCREMENTAL).map_err(failed)?;
        }
        connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
        connection.pragma_update(None, "synchronous", "full").map_err(failed)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        schema::migrate(path, &mut connection)?;
        Ok(Self { path: path.to_owned(), connection, has_briefs: true })
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        StoreError::from_sqlite(&self.path, error)
    }

    /// Hands over the ids and records that a statement finds.
    fn each(
        &self,
        statement: &str,
        parameters: &[&dyn ToSql],
        take: Take<'_>,
    ) -> Result<(), StoreError> {
        let mut all = || {
            let mut statement = self.connection.prepare(statement)?;
            let mut rows = statement.query(parameters)?;
            while let Some(row) = rows.next()? {
                take(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            }
            Ok(())
        };
        all().map_err(|error| self.failed(error))
    }
}

impl Backend for Sqlite {
    fn save_experiment(&self, experiment: &ExperimentRecord, json: &str) -> Result<(), StoreError> {
        let ExperimentRecord { id, name, started_at, finished_at, planned_runs, .. } = experiment;
        let finished_at = finished_at.map(|moment| moment.to_string());
        let saved = self.connection.execute(
            statements::SAVE_EXPERIMENT,
            params![id, name, started_at.to_string(), finished_at, planned_runs, json],
        );
        saved.map(drop).map_err(|error| self.failed(error))
    }

    fn save_run(&self, run: &RunRecord, json: &str, brief: Option<&str>) -> Result<(), StoreError> {
        let both = || {
            let behavior = TransactionBehavior::Immediate;
            let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
            transaction.execute(
                statements::SAVE_RUN,
                params![
                    run.id,
                    run.experiment_id,
                    run.workload,
                    run.stack,
                    run.block,
                    run.order,
                    run.started_at.to_string(),
                    run.validity.valid,
                    json
                ],
            )?;
            if let Some(brief) = brief {
                transaction
                    .execute(statements::SAVE_BRIEF, params![run.id, BRIEF_VERSION, brief])?;
            }
            transaction.commit()
        };
        both().map_err(|error: rusqlite::Error| match error.sqlite_error() {
            Some(cause) if cause.extended_code == SQLITE_CONSTRAINT_FOREIGNKEY => {
                StoreError::Forgotten { at: self.path.clone().into(), run: run.id.clone() }
            }
            _ => self.failed(error),
        })
    }

    fn experiments(&self) -> Result<Vec<Summary>, StoreError> {
        let all = || {
            let mut statement = self.connection.prepare(statements::EXPERIMENTS)?;
            statement.query_map([], of_row)?.collect::<Result<_, _>>()
        };
        all().map_err(|error| self.failed(error))
    }

    fn experiment(&self, id: &str) -> Result<Option<String>, StoreError> {
        let found = self.connection.query_row(statements::EXPERIMENT, [id], |row| row.get(0));
        found.optional().map_err(|error| self.failed(error))
    }

    fn each_run(&self, experiment_id: &str, take: Take<'_>) -> Result<(), StoreError> {
        self.each(statements::RUNS_BY_ROWID, params![experiment_id], take)
    }

    fn each_brief(&self, experiment_id: &str, take: Take<'_>) -> Result<(), StoreError> {
        if !self.has_briefs {
            return self.each_run(experiment_id, take);
        }
        self.each(statements::BRIEFS_BY_ROWID, params![experiment_id, BRIEF_VERSION], take)
    }

    fn each_of(&self, ids: &[&str], take: Take<'_>) -> Result<(), StoreError> {
        ids.iter().try_for_each(|id| self.each(statements::RUN, params![id], take))
    }

    fn forget(&self, ids: &[&str]) -> Result<(), StoreError> {
        let all = || {
            let behavior = TransactionBehavior::Immediate;
            let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
            for id in ids {
                transaction.execute(statements::FORGET, [id])?;
            }
            transaction.commit()
        };
        all().map_err(|error| self.failed(error))
    }

    fn give_back_room(&self, alone: bool) -> Result<bool, StoreError> {
        self.give_back(alone)
    }
}

fn of_row(row: &Row<'_>) -> rusqlite::Result<Summary> {
    Ok(summary(
        row.get(0)?,
        row.get(1)?,
        [row.get(2)?, row.get(3)?],
        [row.get(4)?, row.get(5)?, row.get(6)?],
    ))
}
