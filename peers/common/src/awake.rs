//! Idle CPUs that do not halt: a request to the kernel's power management, for the whole machine.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use crate::Options;

/// Holds the request; the kernel drops it with this value, or with the process.
pub struct Awake {
    _request: Option<File>,
}

impl Awake {
    /// Asks for it where `--awake` says so.
    ///
    /// # Errors
    /// When it is refused: the run would not be what it is called.
    pub fn of(options: &Options) -> io::Result<Self> {
        Ok(Self { _request: options.awake.then(hold).transpose()? })
    }
}

fn hold() -> io::Result<File> {
    let path = "/dev/cpu_dma_latency";
    let because = |error| io::Error::other(format!("{path}: {error}"));
    let mut file = OpenOptions::new().write(true).open(path).map_err(because)?;
    // Four bytes: the longest wake-up time in microseconds, for as long as the file is open.
    file.write_all(&0_i32.to_ne_bytes()).map_err(because)?;
    Ok(file)
}
