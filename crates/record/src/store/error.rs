//! Errors of a store, each in one line that says what to do.

use std::fmt;
use std::path::Path;

use rusqlite::ErrorCode;

use super::location::Location;
use crate::error::Error;

/// An error of the store; its text is one line for the user.
#[derive(Debug)]
pub enum StoreError {
    /// A URL of a database that cannot be understood.
    BadUrl {
        /// It, without its password.
        url: String,
        /// The fault of the URL, and the remedy.
        why: String,
    },
    /// The server, or the database there, cannot be reached.
    Unreachable {
        /// Where.
        at: Location,
        /// The system's or the server's message.
        why: String,
        /// Advice to the user.
        remedy: &'static str,
    },
    /// There is no such file, an empty one, or a database without our tables.
    Missing {
        /// Where.
        at: Location,
    },
    /// The file or database is not a store of this program.
    NotAStore {
        /// Where.
        at: Location,
        /// Its actual kind, as far as known.
        why: String,
    },
    /// A later version of this program wrote it.
    Newer {
        /// Where.
        at: Location,
        /// Its schema.
        found: u32,
        /// The newest schema known here.
        known: u32,
    },
    /// Another process kept it locked.
    Busy {
        /// Where.
        at: Location,
    },
    /// It could not be opened or written.
    Io {
        /// Where.
        at: Location,
        /// The system's message.
        why: String,
    },
    /// A record is not readable or not writable.
    Record {
        /// Where.
        at: Location,
        /// Id of the record.
        id: String,
        /// The reason.
        why: String,
    },
    /// No experiment has that id or name.
    NoExperiment {
        /// Where.
        at: Location,
        /// The id or name that was asked for.
        wanted: String,
        /// Number of experiments in the store.
        kept: usize,
    },
    /// The experiment of a run was removed while it went on.
    Forgotten {
        /// Where.
        at: Location,
        /// Id of the run that cannot be kept.
        run: String,
    },
    /// Several ids begin like that.
    Ambiguous {
        /// The beginning of an id that was asked for.
        wanted: String,
        /// The ids.
        ids: Vec<String>,
    },
}

impl StoreError {
    pub(super) fn from_sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let at = Location::from(path);
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::NotAStore { at, why: "not a SQLite database, or damaged".into() }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { at },
            Some(ErrorCode::CannotOpen) if path.is_dir() => {
                Self::NotAStore { at, why: "a folder".into() }
            }
            _ => {
                // Some of SQLite's sentences end with the path, which stands before them.
                let why = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                let why = why.strip_suffix(&format!(": {}", path.display())).unwrap_or(&why);
                let why = why.strip_suffix(&format!(": ./{}", path.display())).unwrap_or(why);
                Self::Io { why: why.to_owned(), at }
            }
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUrl { url, why } => write!(f, "{url}: {why}"),
            Self::Unreachable { at, why, remedy } => write!(f, "{at}: {why}; {remedy}"),
            Self::Missing { at } => {
                write!(f, "{at}: no store here; `millstream run` makes one, --db names another")
            }
            Self::NotAStore { at, why } => match at {
                Location::File(_) => {
                    write!(f, "{at}: {why}; move it away or name another file with --db")
                }
                Location::Server(_) => write!(f, "{at}: {why}; name another database with --db"),
            },
            Self::Newer { at, found, known } => write!(
                f,
                "{at}: written by a newer millstream (schema {found}, this one knows {known}); use that version"
            ),
            Self::Busy { at } => {
                write!(
                    f,
                    "{at}: another process keeps it locked; wait for it or name another with --db"
                )
            }
            Self::Io { at, why } => write!(f, "{at}: {why}; --db names another"),
            Self::Record { at, id, why } => write!(f, "{at}: record {id}: {why}"),
            Self::NoExperiment { at, wanted, kept } => write!(
                f,
                "{at}: no experiment {wanted:?} among {kept}; `millstream list` shows them"
            ),
            Self::Forgotten { at, run } => write!(
                f,
                "{at}: the experiment of {run} was removed from it meanwhile; the run is not kept"
            ),
            Self::Ambiguous { wanted, ids } => {
                write!(f, "{wanted:?} may mean {}; give more of the id", ids.join(" or "))
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// A store or a name that is not there is refused; the rest has failed.
impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        use StoreError::{Busy, Forgotten, Io, Record};
        match &error {
            Busy { .. } | Io { .. } | Record { .. } | Forgotten { .. } => {
                Self::Store(error.to_string())
            }
            _ => Self::Refused(error.to_string()),
        }
    }
}
