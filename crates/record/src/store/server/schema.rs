//! The tables on a server, and how older ones come up to date: a schema of its own has them, and
//! its table `store` the number of the steps that they have had.

use postgres::Client;

use super::super::schema::{APPLICATION_ID, MIGRATIONS, VERSION};
use super::super::{Location, StoreError};

/// Numbers rows in the order of keeping, after the first step: SQLite does so by itself.
const NUMBERED: &str =
    "ALTER TABLE experiment ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY";

/// Returns the schema's version of a store on a server, `None` where there is none yet. Refuses
/// tables of other programs and of newer versions of this one; changes nothing.
pub(super) fn version(at: &Location, client: &mut Client) -> Result<Option<u32>, StoreError> {
    let failed = |error| StoreError::from_postgres(at, &error);
    // The tables themselves are read: what `to_regclass` says may be of before another process made
    // them.
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
pub(super) fn migrate(at: &Location, client: &mut Client) -> Result<(), StoreError> {
    if version(at, client)? == Some(VERSION) {
        return Ok(());
    }
    let failed = |error| StoreError::from_postgres(at, &error);
    let begun =
        client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({APPLICATION_ID})"));
    let applied = begun.map_err(failed).and_then(|()| {
        // Another process may have done it while this one waited for the lock.
        let found = version(at, client)?;
        client.batch_execute(&missing_steps(found)).map_err(failed)
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

/// Returns the SQL that brings a server's store of this version up to date.
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
