//! The tables and how older files come up to date.
//!
//! `application_id` marks a file as a store, `user_version` counts the migrations it has had.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

/// "MSTR" in ASCII.
pub(super) const APPLICATION_ID: u32 = 0x4d53_5452;

/// One step each, as SQLite has it; the schema's version is the number of steps applied. Never
/// change a step that was released, add one.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE experiment (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        started_at TEXT NOT NULL,
        finished_at TEXT,
        planned_runs INTEGER NOT NULL,
        record TEXT NOT NULL
    ) STRICT;
    CREATE TABLE run (
        id TEXT PRIMARY KEY,
        experiment_id TEXT NOT NULL REFERENCES experiment (id) ON DELETE CASCADE,
        workload TEXT NOT NULL,
        stack TEXT NOT NULL,
        block INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        started_at TEXT NOT NULL,
        valid INTEGER NOT NULL,
        record TEXT NOT NULL
    ) STRICT;
    CREATE INDEX run_by_experiment ON run (experiment_id, ordinal);
    CREATE INDEX experiment_by_time ON experiment (started_at);
",
    "
    CREATE TABLE brief (
        run_id TEXT PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
        version INTEGER NOT NULL,
        record TEXT NOT NULL
    ) STRICT;
",
];

/// The first version with briefs of runs.
pub(super) const WITH_BRIEFS: u32 = 2;

/// Version of the schema that this program writes.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Refuses files of other programs and of newer versions of this one; changes nothing.
pub(super) fn check_version(path: &Path, connection: &Connection) -> Result<u32, StoreError> {
    let failed = |error| StoreError::from_sqlite(path, error);
    // By one statement, so of one moment: another process may be creating the tables.
    let (application, version, tables) = connection
        .query_row(
            "SELECT (SELECT COUNT(*) FROM sqlite_schema), application_id, user_version
             FROM pragma_application_id, pragma_user_version",
            [],
            // SQLite's own numbers are signed.
            |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(0)?)),
        )
        .map_err(failed)?;
    let fresh = application == 0 && version == 0 && tables == 0;
    if !fresh && application != i64::from(APPLICATION_ID) {
        let why = "a SQLite database of another program".into();
        return Err(StoreError::NotAStore { at: path.into(), why });
    }
    let Ok(version) = u32::try_from(version) else {
        let why = format!("no schema has the number {version}");
        return Err(StoreError::NotAStore { at: path.into(), why });
    };
    if version > VERSION {
        return Err(StoreError::Newer { at: path.into(), found: version, known: VERSION });
    }
    Ok(version)
}

/// Applies the missing steps, all or none, while other writers wait.
pub(super) fn migrate(path: &Path, connection: &mut Connection) -> Result<(), StoreError> {
    if check_version(path, connection)? == VERSION {
        return Ok(());
    }
    let failed = |error| StoreError::from_sqlite(path, error);
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have done it while this one waited for the lock.
    let version = check_version(path, &transaction)?;
    for step in &MIGRATIONS[version as usize..] {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    transaction.pragma_update(None, "user_version", VERSION).map_err(failed)?;
    transaction.commit().map_err(failed)
}
