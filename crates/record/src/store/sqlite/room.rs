//! Giving the room that forgotten experiments had back to the file system.

use std::thread::sleep;
use std::time::Duration;

use super::{Sqlite, StoreError};

/// Pages of the file that are given back under one lock: 16 MB. Other processes may write in
/// between.
const PIECE_PAGES: u32 = 4096;

/// Pause between two pieces, in which other processes may write.
const PIECE_PAUSE: Duration = Duration::from_millis(5);

/// `auto_vacuum` of a file that gives room back piece by piece; [`Sqlite::open`] makes new ones so.
pub(super) const INCREMENTAL: u32 = 2;

impl Sqlite {
    /// Gives room that nothing uses back to the file system, a piece at a time, so that nobody who
    /// keeps a run waits long. A file of an earlier version has to be written anew for that, under
    /// one lock and into as much room again: only where `alone`. False where the file was left as
    /// large as it is.
    pub(super) fn give_back(&self, alone: bool) -> Result<bool, StoreError> {
        let rewritten = self.number("PRAGMA auto_vacuum")? != INCREMENTAL;
        if rewritten && !alone {
            return Ok(false);
        }
        if rewritten {
            let anew = format!("PRAGMA auto_vacuum = {INCREMENTAL}; VACUUM");
            self.connection.execute_batch(&anew).map_err(|error| self.failed(error))?;
        }
        let mut unused = self.number("PRAGMA freelist_count")?;
        while unused > 0 {
            self.rows(&format!("PRAGMA incremental_vacuum({PIECE_PAGES})"))?;
            let left = self.number("PRAGMA freelist_count")?;
            // Another process may have removed something, too; it then gives that back itself.
            if left >= unused {
                break;
            }
            unused = left;
            sleep(PIECE_PAUSE);
        }
        // The file itself gets shorter with this.
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(true)
    }

    fn number(&self, pragma: &str) -> Result<u32, StoreError> {
        let found = self.connection.query_row(pragma, [], |row| row.get(0));
        found.map_err(|error| self.failed(error))
    }

    /// Carries out what does its work row by row.
    fn rows(&self, pragma: &str) -> Result<(), StoreError> {
        let all = || {
            let mut statement = self.connection.prepare(pragma)?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        };
        all().map_err(|error| self.failed(error))
    }
}
