//! Shares of the time that tasks waited for CPU, memory and disk, from `/proc/pressure`.

use std::time::Instant;

use serde::Serialize;

use crate::probe::{Absent, ProcFile, parse_pressure};

/// Shares of all three resources.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PressureShares {
    /// CPUs.
    pub cpu: Shares,
    /// Memory.
    pub memory: Shares,
    /// Disks.
    pub io: Shares,
}

/// Shares of one resource, in percent of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// One task at least waited.
    pub some_percent: f64,
    /// All tasks that had something to do waited.
    pub full_percent: f64,
}

pub(super) struct Pressure {
    files: [ProcFile; 3],
    last: (Instant, [[u64; 2]; 3]),
}

impl Pressure {
    pub(super) fn open() -> Result<Self, Absent> {
        let open = |name: &str| ProcFile::open(format!("/proc/pressure/{name}"));
        let mut files = [open("cpu")?, open("memory")?, open("io")?];
        let last = (Instant::now(), read(&mut files)?);
        Ok(Self { files, last })
    }

    pub(super) fn sample(&mut self) -> Result<PressureShares, Absent> {
        let now = (Instant::now(), read(&mut self.files)?);
        let width_us = now.0.duration_since(self.last.0).as_secs_f64() * 1e6;
        let share = |before: u64, now: u64| now.saturating_sub(before) as f64 * 100.0 / width_us;
        let of = |at: usize| Shares {
            some_percent: share(self.last.1[at][0], now.1[at][0]),
            full_percent: share(self.last.1[at][1], now.1[at][1]),
        };
        let shares = PressureShares { cpu: of(0), memory: of(1), io: of(2) };
        self.last = now;
        Ok(shares)
    }
}

fn read(files: &mut [ProcFile; 3]) -> Result<[[u64; 2]; 3], Absent> {
    let [cpu, memory, io] = files;
    let one = |file: &mut ProcFile| file.parse(parse_pressure);
    Ok([one(cpu)?, one(memory)?, one(io)?])
}
