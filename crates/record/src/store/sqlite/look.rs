//! Opening a store where nothing may be written: an archive, a read-only mount, the file of another
//! user.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use crate::store::{StoreError, schema};

/// Returns a connection that only reads, and the schema's version, which may be an older one. A
/// file in write-ahead mode wants two others beside it. Where a writer has them open they are
/// there; else nobody writes, and the file is read as it stands.
pub(super) fn open(path: &Path) -> Result<(Connection, u32), StoreError> {
    let failed = |error| StoreError::from_sqlite(path, error);
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let query = if Path::new(&log).exists() { "" } else { "?immutable=1" };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri(path, query), flags).map_err(failed)?;
    let version = schema::check_version(path, &connection)?;
    if version != 0 {
        return Ok((connection, version));
    }
    Err(StoreError::Io { at: path.into(), why: "no schema can be made here".to_owned() })
}

/// Returns the path as a URI, `file:./a%20b?query`: all but plain characters by their numbers.
fn uri(path: &Path, query: &str) -> PathBuf {
    let mut text = b"file:".to_vec();
    for &byte in Path::new(".").join(path).as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte) {
            text.push(byte);
        } else {
            text.extend(format!("%{byte:02x}").bytes());
        }
    }
    text.extend(query.bytes());
    OsString::from_vec(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_file_of_that_name() {
        assert_eq!(
            uri(Path::new("a b?c#%.db"), "?x=1"),
            Path::new("file:./a%20b%3fc%23%25.db?x=1")
        );
        assert_eq!(uri(Path::new("/å/k.sqlite3"), ""), Path::new("file:/%c3%a5/k.sqlite3"));
    }
}
