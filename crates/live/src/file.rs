//! The files of segments: their names, and how they are opened.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::Damage;

/// Ends of the names of segments and of control sockets, and the beginning of unfinished files'
/// names.
pub(crate) const SEGMENT: &str = "live";
pub(crate) const SOCKET: &str = "sock";
pub(crate) const UNFINISHED: &str = ".new-";

/// Opens a regular file of user `uid` that nobody else may write, for reading. It waits for nobody,
/// whatever the path names.
pub(crate) fn open_regular(path: &Path, uid: u32) -> Result<File, Damage> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options.open(path)?;
    let meta = file.metadata()?;
    match () {
        () if !meta.is_file() => Err(Damage::NotOurs("it is no regular file")),
        () if meta.uid() != uid => Err(Damage::NotOurs("it belongs to another user")),
        () if meta.mode() & 0o022 != 0 => Err(Damage::NotOurs("others may write it")),
        () => Ok(file),
    }
}
