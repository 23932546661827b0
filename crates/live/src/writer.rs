//! The engine's end of a segment.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::directory::Directory;
use crate::error::LiveError;
use crate::file::{SEGMENT, SOCKET, UNFINISHED};
use crate::layout::{
    CAPACITY, HEADER_BYTES, Header, NAME_BYTES, SCHEMA_BYTES, SLOT_BYTES, SLOT_HEAD_BYTES,
    SlotHead, sum,
};
use crate::schema::SchemaText;

/// Numbers of this process's engines.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Number of file names that are tried while others have taken them.
const NAMES_TRIED: usize = 64;

/// Writes snapshots into a segment. The segment is there under its name from the first one on, and
/// is removed when the writer is dropped.
///
/// A publication takes one system call and no memory from the heap, but where the schema was
/// changed.
#[derive(Debug)]
pub struct Writer {
    file: File,
    header: Header,
    /// Where it is, or is going to be.
    path: PathBuf,
    /// Under which name it is there now: nobody finds it yet.
    unfinished: Option<PathBuf>,
    sequence: u64,
    /// The slot that is being filled: its head and its values.
    slot: Vec<u8>,
    schema: SchemaText,
    schema_sum: u64,
    /// Slots whose schema is not this one.
    stale: [bool; 2],
}

impl Writer {
    /// Creates a segment of this name in `directory`, which publishes every `every` while there is
    /// something new. Segments of engines that are gone are removed.
    ///
    /// # Errors
    /// Fails for a name that is not allowed, and when the file cannot be made.
    pub fn create(directory: &Directory, name: &str, every: Duration) -> Result<Self, LiveError> {
        check_name(name)?;
        let _ = directory.sweep();
        let pid = std::process::id();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unfinished = directory.path().join(format!("{UNFINISHED}{name}-{pid}-{number}"));
        // Another process with this number may have left the file.
        let _ = fs::remove_file(&unfinished);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let file = options.open(&unfinished).map_err(LiveError::file(&unfinished))?;
        let header = Header {
            name: name.to_owned(),
            pid,
            number,
            began_ns: since_1970(),
            every_ns: every.as_nanos() as u64,
            slot_bytes: SLOT_BYTES,
            capacity: CAPACITY,
        };
        let path = directory.path().join(format!("{name}-{pid}-{number}.{SEGMENT}"));
        let writer = Self {
            file,
            header,
            path,
            unfinished: Some(unfinished),
            sequence: 0,
            slot: Vec::with_capacity(SLOT_HEAD_BYTES + 8 * CAPACITY),
            schema: SchemaText::default(),
            schema_sum: 0,
            stale: [true; 2],
        };
        let made = writer.file.try_lock().map_err(io::Error::from);
        let made = made.and_then(|()| writer.file.write_all_at(&writer.header.encode(), 0));
        // As long as it ever is: a reader finds no end before that of a slot.
        let length = (HEADER_BYTES + 2 * SLOT_BYTES) as u64;
        made.and_then(|()| writer.file.set_len(length)).map_err(LiveError::file(&writer.path))?;
        Ok(writer)
    }

    /// Sets the schema of the snapshots that follow.
    ///
    /// # Errors
    /// Returns `schema` when a segment has no room for it or for its values; the schema before
    /// stays.
    pub fn set_schema(&mut self, schema: SchemaText) -> Result<(), SchemaText> {
        if schema.values > CAPACITY || schema.text.len() > SCHEMA_BYTES {
            return Err(schema);
        }
        self.schema_sum = sum(0, schema.text.as_bytes());
        self.schema = schema;
        self.stale = [true; 2];
        Ok(())
    }

    /// Begins a snapshot.
    pub fn begin(&mut self) {
        self.slot.clear();
        self.slot.resize(SLOT_HEAD_BYTES, 0);
    }

    /// Appends the next value of the snapshot, in the schema's order. Values beyond the schema's
    /// are left out.
    #[inline]
    pub fn push(&mut self, value: u64) {
        if self.slot.len() < SLOT_HEAD_BYTES + 8 * self.schema.values {
            self.slot.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Publishes the snapshot, as of `engine_ns` of the engine's clock.
    ///
    /// # Errors
    /// When the system does not take it; the one before stands. [`LiveError::File`] also when
    /// somebody has taken the segment's name.
    pub fn publish(&mut self, engine_ns: u64) -> Result<(), LiveError> {
        self.slot.resize(SLOT_HEAD_BYTES + 8 * self.schema.values, 0);
        let sequence = self.sequence + 1;
        let head = SlotHead {
            sequence,
            time_ns: since_1970(),
            engine_ns,
            values: self.schema.values,
            schema_bytes: self.schema.text.len(),
            schema_sum: self.schema_sum,
        };
        head.encode(&mut self.slot);
        self.write(sequence).map_err(LiveError::file(&self.path))?;
        self.sequence = sequence;
        self.finish()
    }

    fn write(&mut self, sequence: u64) -> io::Result<()> {
        let at = self.header.slot_at(sequence);
        let stale = &mut self.stale[(sequence % 2) as usize];
        if *stale {
            let behind = (SLOT_HEAD_BYTES + 8 * CAPACITY) as u64;
            self.file.write_all_at(self.schema.text.as_bytes(), at + behind)?;
            *stale = false;
        }
        self.file.write_all_at(&self.slot, at)
    }

    /// Gives the segment its name, when the first snapshot is there.
    fn finish(&mut self) -> Result<(), LiveError> {
        let Some(unfinished) = &self.unfinished else { return Ok(()) };
        for _ in 0..NAMES_TRIED {
            match fs::hard_link(unfinished, &self.path) {
                Ok(()) => {
                    let _ = fs::remove_file(unfinished);
                    self.unfinished = None;
                    return Ok(());
                }
                // The name belongs to a process with this number in another namespace, which
                // lives: files of dead ones were removed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                    let Header { name, pid, .. } = &self.header;
                    self.path.set_file_name(format!("{name}-{pid}-{number}.{SEGMENT}"));
                    self.header.number = number;
                    let written = self.file.write_all_at(&self.header.encode(), 0);
                    written.map_err(LiveError::file(&self.path))?;
                }
                Err(error) => return Err(LiveError::file(&self.path)(error)),
            }
        }
        Err(LiveError::File {
            path: self.path.clone(),
            source: io::ErrorKind::AlreadyExists.into(),
        })
    }

    /// Returns the path of the segment.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path at which the engine's control socket belongs.
    pub fn socket_path(&self) -> PathBuf {
        self.path.with_extension(SOCKET)
    }

    /// Returns the number of snapshots published.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A copy that fork() has made in another process removes nothing.
        if self.header.pid != std::process::id() {
            return;
        }
        match &self.unfinished {
            Some(unfinished) => drop(fs::remove_file(unfinished)),
            None => {
                let _ = fs::remove_file(self.socket_path());
                let _ = fs::remove_file(&self.path);
            }
        }
    }
}

/// Refuses a name that cannot be part of a file's name.
fn check_name(name: &str) -> Result<(), LiveError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric();
    let fits = (1..=NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| is_plain(byte) || b"._-".contains(&byte))
        && name.bytes().next().is_some_and(is_plain);
    if fits { Ok(()) } else { Err(LiveError::Name(name.to_owned())) }
}

/// Returns the nanoseconds since 1970.
fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
