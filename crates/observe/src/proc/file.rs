//! Files under `/proc` that are read again and again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
}

impl ProcFile {
    /// Opens `path` for reading; the reason of a failure names the path.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Absent> {
        let path = path.as_ref().to_owned();
        let file = File::open(&path).map_err(|error| because(&path, &error))?;
        Ok(Self { path, file, buffer: vec![0; 8192] })
    }

    /// The whole text as it is now. Bytes that are no UTF-8 are an error, and so is a text of
    /// more than 16 MiB.
    pub fn read(&mut self) -> Result<&str, Absent> {
        let Self { path, file, buffer } = self;
        let mut filled = 0;
        loop {
            if filled == buffer.len() {
                if filled >= limits::FILE_SIZE_BYTES {
                    return Err(Absent(format!("{}: larger than {filled} bytes", path.display())));
                }
                buffer.resize(filled * 2, 0);
            }
            // The kernel may give less than asked for, a page or a line at a time: go on to the end.
            match file.read_at(&mut buffer[filled..], filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(because(path, &error)),
            }
        }
        std::str::from_utf8(&buffer[..filled])
            .map_err(|_| Absent(format!("{}: not text", path.display())))
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
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(ProcFile::open(&path).unwrap().read().unwrap_err().0.ends_with("not text"));
        std::fs::remove_file(&path).unwrap();
    }
}
