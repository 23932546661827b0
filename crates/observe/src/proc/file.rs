//! Files under `/proc` that are read again and again.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use millstream_foreign::lines;

use super::limits;
use crate::{Absent, in_one_line};

/// A file kept open, with a buffer that is used again.
///
/// A file of a network namespace keeps showing that namespace, whoever reads it and whether or
/// not the process it was opened through still lives.
#[derive(Debug)]
pub struct ProcFile {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// The text of a file with bytes that are no plain text: names of others are in nearly all of
    /// them.
    cleaned: String,
}

impl ProcFile {
    /// Opens `path` for reading; the reason of a failure names the path.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Absent> {
        let path = path.as_ref().to_owned();
        let file = File::open(&path).map_err(|error| because(&path, &error))?;
        Ok(Self { path, file, buffer: vec![0; 8192], cleaned: String::new() })
    }

    /// Returns the whole text as it is now, as [`lines`] has it. One of more than 16 MiB is an
    /// error.
    pub fn read(&mut self) -> Result<&str, Absent> {
        let Self { path, file, buffer, cleaned } = self;
        let mut filled = 0;
        loop {
            if filled == buffer.len() {
                if filled >= limits::FILE_SIZE_BYTES {
                    return Err(Absent(format!("{}: larger than {filled} bytes", path.display())));
                }
                buffer.resize(filled * 2, 0);
            }
            // The kernel may give less than asked for, a page or a line at a time: go on to the
            // end.
            match file.read_at(&mut buffer[filled..], filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(because(path, &error)),
            }
        }
        Ok(match lines(&buffer[..filled]) {
            Cow::Borrowed(text) => text,
            Cow::Owned(text) => {
                *cleaned = text;
                cleaned
            }
        })
    }

    /// Reads and parses; the reason of a failure names the path.
    pub fn parse<T>(
        &mut self,
        parser: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Absent> {
        let parsed = parser(self.read()?);
        parsed.map_err(|why| Absent(format!("{}: {why}", self.path.display())))
    }
}

fn because(path: &Path, error: &io::Error) -> Absent {
    Absent(format!("{}: {}", path.display(), in_one_line(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_absent_with_its_path() {
        let absent = ProcFile::open("/proc/no_such_file").unwrap_err();
        assert_eq!(absent.to_string(), "/proc/no_such_file: No such file or directory");
    }

    #[test]
    fn the_same_file_is_read_again_from_the_start() {
        let mut file = ProcFile::open("/proc/self/status").unwrap();
        for _ in 0..3 {
            assert!(file.read().unwrap().starts_with("Name:"));
        }
    }

    #[test]
    fn text_longer_than_the_first_buffer_comes_whole() {
        let path = std::env::temp_dir().join(format!("millstream-file-{}", std::process::id()));
        std::fs::write(&path, "x".repeat(20_000)).unwrap();
        assert_eq!(ProcFile::open(&path).unwrap().read().unwrap().len(), 20_000);
        std::fs::write(&path, b"7 (\xd0) S\n a\xffb: 1\x1b\n").unwrap();
        let mut file = ProcFile::open(&path).unwrap();
        assert_eq!(file.read().unwrap(), "7 (\\xd0) S\n a\\xffb: 1\\u001b\n");
        std::fs::remove_file(&path).unwrap();
    }
}
