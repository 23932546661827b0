//! SQL statements in words that SQLite and PostgreSQL both know.
//!
//! SQLite numbers rows by itself, in the order of keeping; the tables of a server have a column of
//! that name.

/// Parameters: id, name, begin, end, planned runs, record. One with the same id is replaced and
/// keeps its place.
pub(super) const SAVE_EXPERIMENT: &str =
    "INSERT INTO experiment (id, name, started_at, finished_at, planned_runs, record)
     VALUES ($1, $2, $3, $4, $5, $6)
     ON CONFLICT (id) DO UPDATE SET name = $2, started_at = $3, finished_at = $4, planned_runs = $5, record = $6";

/// Parameters: id, experiment, workload, stack, block, order, begin, whether it counts, record.
pub(super) const SAVE_RUN: &str =
    "INSERT INTO run (id, experiment_id, workload, stack, block, ordinal, started_at, valid, record)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// Parameters: id of a kept run, version of the brief, the brief.
pub(super) const SAVE_BRIEF: &str =
    "INSERT INTO brief (run_id, version, record) VALUES ($1, $2, $3)
     ON CONFLICT (run_id) DO NOTHING";

/// Columns: those of a [`Summary`](super::Summary), the experiment that was kept last first.
pub(super) const EXPERIMENTS: &str =
    "SELECT e.id, e.name, e.started_at, e.finished_at, e.planned_runs, COUNT(r.id),
        CAST(COALESCE(SUM(r.valid), 0) AS BIGINT)
     FROM experiment e LEFT JOIN run r ON r.experiment_id = e.id
     GROUP BY e.id ORDER BY e.rowid DESC";

/// Parameter: id. Column: record.
pub(super) const EXPERIMENT: &str = "SELECT record FROM experiment WHERE id = $1";

/// Parameter: experiment. Columns: id, record.
#[cfg(feature = "postgres")]
pub(super) const RUNS: &str =
    "SELECT id, record FROM run WHERE experiment_id = $1 ORDER BY ordinal, id";

/// The same for SQLite, whose index has them in this order: by another it copies every record to
/// sort it.
pub(super) const RUNS_BY_ROWID: &str =
    "SELECT id, record FROM run WHERE experiment_id = $1 ORDER BY ordinal, rowid";

/// Parameters: experiment, version of briefs. Columns: id, and the brief, or the record of a run
/// without one.
#[cfg(feature = "postgres")]
pub(super) const BRIEFS: &str = "SELECT r.id, COALESCE(b.record, r.record)
     FROM run r LEFT JOIN brief b ON b.run_id = r.id AND b.version = $2
     WHERE r.experiment_id = $1 ORDER BY r.ordinal, r.id";

/// The same for SQLite, as [`RUNS_BY_ROWID`]. SQLite takes `$2` for a name, and numbers names as
/// they come.
pub(super) const BRIEFS_BY_ROWID: &str = "SELECT r.id, COALESCE(b.record, r.record)
     FROM run r LEFT JOIN brief b ON b.run_id = r.id AND b.version = ?2
     WHERE r.experiment_id = ?1 ORDER BY r.ordinal, r.rowid";

/// Parameter: id of a run. Columns: id, record.
pub(super) const RUN: &str = "SELECT id, record FROM run WHERE id = $1";

/// Parameter: id. Its runs go, too.
pub(super) const FORGET: &str = "DELETE FROM experiment WHERE id = $1";
