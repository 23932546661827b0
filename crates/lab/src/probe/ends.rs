//! A file of `/proc` at the start and at the end of a run.

use std::path::Path;

use super::{Absent, ProcFile, Turn};

/// A file that is read at the start and at the end, for what rose between them.
#[derive(Debug)]
pub struct Ends<T> {
    file: ProcFile,
    parser: fn(&str) -> Result<T, String>,
    /// As parsed at the start.
    pub first: T,
    /// As parsed at the end.
    pub last: T,
}

impl<T: Default> Ends<T> {
    /// Opens `path`; nothing is read yet.
    pub fn open(
        path: impl AsRef<Path>,
        parser: fn(&str) -> Result<T, String>,
    ) -> Result<Self, Absent> {
        Ok(Self { file: ProcFile::open(path)?, parser, first: T::default(), last: T::default() })
    }

    /// Reads when it is the turn for it.
    pub fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        match turn {
            Turn::First => self.first = self.file.parse(self.parser)?,
            Turn::Middle => {}
            Turn::Last => self.last = self.file.parse(self.parser)?,
        }
        Ok(())
    }
}
