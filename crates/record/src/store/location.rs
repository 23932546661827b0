//! Where a store is: a file of this machine, or a database of a server.

use std::fmt;
use std::path::{Path, PathBuf};

use super::address::Server;

/// Where a store is. Its text, in messages and records, has no password.
#[derive(Clone, Debug)]
pub enum Location {
    /// An SQLite file.
    File(PathBuf),
    /// A database of a PostgreSQL server.
    Server(Box<Server>),
}

impl Location {
    /// Returns the file, where it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Server(_) => None,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(server) => f.write_str(server.name()),
        }
    }
}

impl From<&Location> for Location {
    fn from(location: &Location) -> Self {
        location.clone()
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&PathBuf> for Location {
    fn from(path: &PathBuf) -> Self {
        Self::File(path.clone())
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}
