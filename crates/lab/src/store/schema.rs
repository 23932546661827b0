//! The tables and how older files come up to date.
//!
//! `application_id` marks a file as a store, `user_version` counts the migrations it has had. On a server a schema of its
//! own has the tables, and its table `store` that number.

use std::path::Path;

use postgres::Client;
use rusqlite::{Connection, TransactionBehavior};

use super::{Location, StoreError};

/// "MSTR" in ASCII.
const APPLICATION_ID: u32 = 0x4d53_5452;

/// One step each, as SQLite has it; the schema's version is the number of steps applied. Never change a step that
/// was released, add one.
const MIGRATIONS: &[&str] = &["
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
"];

/// What SQLite does unasked, and a server is told after the first step: rows are numbered in the order of keeping.
const NUMBERED: &str =
    "ALTER TABLE experiment ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY";

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

/// The schema's version of a store on a server, `None` where there is none yet. Refuses tables of other programs and of
/// newer versions of this one; changes nothing.
pub(super) fn server_version(
    at: &Location,
    client: &mut Client,
) -> Result<Option<u32>, StoreError> {
    let failed = |error| StoreError::from_postgres(at, &error);
    // The tables themselves are read: what `to_regclass` says may be of before another process made them.
    let found = client.query_one(
        "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'millstream'),
            EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = 'millstream' AND c.relname = 'store')",
        &[],
    );
    let found = found.map_err(failed)?;
    let not_ours = |why: String| StoreError::NotAStore { at: at.clone(), why };
    match (found.try_get(0).map_err(failed)?, found.try_get(1).map_err(failed)?) {
        (false, _) => return Ok(None),
        (true, false) => {
            return Err(not_ours("its schema \"millstream\" is of another program".into()));
        }
        (true, true) => {}
    }
    let version = client.query_one("SELECT version FROM millstream.store", &[]).map_err(failed)?;
    let version: i64 = version.try_get(0).map_err(failed)?;
    let number = u32::try_from(version);
    let found = number.map_err(|_| not_ours(format!("no schema has the number {version}")))?;
    if found > VERSION {
        return Err(StoreError::Newer { at: at.clone(), found, known: VERSION });
    }
    Ok(Some(found))
}

/// Applies the steps that are missing on a server, all or none, while others who would wait.
pub(super) fn migrate_server(at: &Location, client: &mut Client) -> Result<(), StoreError> {
    if server_version(at, client)? == Some(VERSION) {
        return Ok(());
    }
    let failed = |error| StoreError::from_postgres(at, &error);
    let begun =
        client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({APPLICATION_ID})"));
    let applied = begun.map_err(failed).and_then(|()| {
        // Another process may have done it while this one waited for the lock.
        let version = server_version(at, client)?;
        client.batch_execute(&missing_steps(version)).map_err(failed)
    });
    match applied {
        Ok(()) => client.batch_execute("COMMIT").map_err(failed),
        Err(error) => {
            // It ends with the connection, too.
            let _ = client.batch_execute("ROLLBACK");
            Err(error)
        }
    }
}

/// What brings a store of this version up to date on a server.
fn missing_steps(version: Option<u32>) -> String {
    let mut text = String::new();
    if version.is_none() {
        text += "CREATE SCHEMA millstream;
            CREATE TABLE millstream.store (version BIGINT NOT NULL);
            INSERT INTO millstream.store VALUES (0);";
    }
    for (at, step) in MIGRATIONS.iter().enumerate().skip(version.unwrap_or(0) as usize) {
        // Every table of SQLite's is STRICT and its integers are of 64 bits: all of a server's are.
        text += &step.replace(") STRICT;", ");").replace("INTEGER", "BIGINT");
        if at == 0 {
            text += NUMBERED;
            text += ";";
        }
    }
    text + &format!("UPDATE millstream.store SET version = {VERSION}")
}
