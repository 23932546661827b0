//! What can go wrong with a store, each in one line that says what to do.

use std::fmt;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// An error of the store; its text is one line for the user.
#[derive(Debug)]
pub enum StoreError {
    /// There is no such file, or an empty one.
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file is no store of this program.
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is instead, as far as known.
        why: String,
    },
    /// A later version of this program wrote the file.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema known here.
        known: u32,
    },
    /// Another process kept the file locked.
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be opened or written.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// A record is not readable or not writable.
    Record {
        /// The file.
        path: PathBuf,
        /// Id of the record.
        id: String,
        /// What was wrong.
        why: String,
    },
    /// No experiment has that id or name.
    NoExperiment {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        wanted: String,
        /// How many experiments the file holds.
        kept: usize,
    },
    /// The experiment of a run was removed while it went on.
    Forgotten {
        /// The file.
        path: PathBuf,
        /// Id of the run that cannot be kept.
        run: String,
    },
    /// Several ids begin like that.
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// The ids.
        ids: Vec<String>,
    },
}

impl StoreError {
    pub(super) fn from_sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::NotAStore { path, why: "not a SQLite database, or damaged".into() }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            Some(ErrorCode::CannotOpen) if path.is_dir() => {
                Self::NotAStore { path, why: "a folder".into() }
            }
            _ => {
                // Some of SQLite's sentences end with the path, which stands before them.
                let why = one_line(&error.to_string());
                let why = why.strip_suffix(&format!(": {}", path.display())).unwrap_or(&why);
                let why = why.strip_suffix(&format!(": ./{}", path.display())).unwrap_or(why);
                Self::Io { why: why.to_owned(), path }
            }
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path } => {
                write!(
                    f,
                    "{}: no store here; `millstream run` makes one, --db names another file",
                    path.display()
                )
            }
            Self::NotAStore { path, why } => {
                write!(f, "{}: {why}; move it away or name another file with --db", path.display())
            }
            Self::Newer { path, found, known } => write!(
                f,
                "{}: written by a newer millstream (schema {found}, this one knows {known}); use that version",
                path.display()
            ),
            Self::Busy { path } => {
                write!(
                    f,
                    "{}: another process keeps it locked; wait for it or name another file with --db",
                    path.display()
                )
            }
            Self::Io { path, why } => {
                write!(f, "{}: {why}; --db names another file", path.display())
            }
            Self::Record { path, id, why } => write!(f, "{}: record {id}: {why}", path.display()),
            Self::NoExperiment { path, wanted, kept } => write!(
                f,
                "{}: no experiment {wanted:?} among {kept}; `millstream list` shows them",
                path.display()
            ),
            Self::Forgotten { path, run } => write!(
                f,
                "{}: the experiment of {run} was removed from it meanwhile; the run is not kept",
                path.display()
            ),
            Self::Ambiguous { wanted, ids } => {
                write!(f, "{wanted:?} may mean {}; give more of the id", ids.join(" or "))
            }
        }
    }
}

impl std::error::Error for StoreError {}
