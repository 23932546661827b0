//! Why a segment is not written, or not read.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why an engine publishes nothing. The engine runs on.
#[derive(Debug)]
#[non_exhaustive]
pub enum LiveError {
    /// A name has 1 to 32 of the characters `A–Z a–z 0–9 . _ -`, and begins with none of the last
    /// three.
    Name(String),
    /// There is no directory in memory that this user has alone.
    NoDirectory(String),
    /// The directory is not this user's alone, so others could read or replace what is in it.
    Unsafe {
        /// Which.
        path: PathBuf,
        /// The reason: its owner, its mode, or a directory above it that others may exchange.
        why: String,
    },
    /// A file could not be made or written.
    File {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl LiveError {
    /// Returns a closure for `map_err` that names the file.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "'{name}' is no name for an engine: 1 to 32 of A-Z a-z 0-9 . _ -, the first a letter or digit"
            ),
            Self::NoDirectory(why) => write!(f, "no directory in memory to publish in: {why}"),
            Self::Unsafe { path, why } => write!(f, "{}: {why}", path.display()),
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for LiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why a segment could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Damage {
    /// It is not a file of this user that only this user can write.
    NotOurs(&'static str),
    /// It does not begin as a segment does.
    NotASegment,
    /// It was written by an engine whose layout this reader does not know.
    Version(u32),
    /// A length or a sum in it is wrong.
    Broken(&'static str),
    /// It was being changed each time that it was looked at, or its engine stopped in the middle of
    /// a change.
    Unsettled,
    /// The system's answer.
    Io(io::Error),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs(why) => f.write_str(why),
            Self::NotASegment => f.write_str("not a segment of an engine"),
            Self::Version(version) => {
                write!(f, "layout {version}, which this version of millstream does not know")
            }
            Self::Broken(what) => write!(f, "damaged: {what}"),
            Self::Unsettled => f.write_str("the engine stopped in the middle of a change"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Damage {}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
