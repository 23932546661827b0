//! Time that tasks waited for CPU, memory and disk, from `/proc/pressure`.

use std::collections::BTreeMap;

use super::{Absent, Kind, Probe, ProcFile, Turn, rise};
use crate::record::{self, Probes};

const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

pub(super) const KIND: Kind = Kind { name: "pressure", open: |_| Ok(Box::new(Pressure::open()?)) };

pub(super) struct Pressure {
    files: Vec<(&'static str, ProcFile)>,
    first: Vec<record::Pressure>,
    last: Vec<record::Pressure>,
}

impl Pressure {
    pub(super) fn open() -> Result<Self, Absent> {
        let files: Result<_, Absent> = RESOURCES
            .iter()
            .map(|name| Ok((*name, ProcFile::open(format!("/proc/pressure/{name}"))?)))
            .collect();
        Ok(Self { files: files?, first: Vec::new(), last: Vec::new() })
    }

    fn read(&mut self) -> Result<Vec<record::Pressure>, Absent> {
        self.files.iter_mut().map(|(_, file)| file.parse(parse)).collect()
    }
}

impl Probe for Pressure {
    fn name(&self) -> &'static str {
        "pressure"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        match turn {
            Turn::First => self.first = self.read()?,
            Turn::Middle => {}
            Turn::Last => self.last = self.read()?,
        }
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let Self { files, first, last } = *self;
        let pairs = first.iter().zip(&last).map(|(before, now)| record::Pressure {
            some_us: rise(before.some_us, now.some_us),
            full_us: rise(before.full_us, now.full_us),
        });
        let names = files.iter().map(|(name, _)| (*name).to_owned());
        into.pressure = Some(names.zip(pairs).collect::<BTreeMap<_, _>>());
    }
}

/// `some avg10=0.16 avg60=0.46 avg300=0.43 total=7614984`; the line `full` is absent for the CPU
/// on kernels before 5.13.
pub(crate) fn parse(text: &str) -> Result<record::Pressure, String> {
    let total = |kind: &str| -> Option<Result<u64, String>> {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        let word = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="));
        let number = word.and_then(|word| word.parse().ok());
        Some(number.ok_or_else(|| format!("odd line {line:?}")))
    };
    let some_us = total("some ").ok_or("no line some")??;
    Ok(record::Pressure { some_us, full_us: total("full ").transpose()?.unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_taken() {
        let text = "some avg10=0.05 avg60=0.43 avg300=0.37 total=6590034\n\
                    full avg10=0.03 avg60=0.40 avg300=0.35 total=6257450\n";
        assert_eq!(parse(text), Ok(record::Pressure { some_us: 6_590_034, full_us: 6_257_450 }));
        assert_eq!(parse("some total=3\n"), Ok(record::Pressure { some_us: 3, full_us: 0 }));
    }

    #[test]
    fn odd_input_is_refused() {
        assert!(parse("").is_err());
        assert!(parse("some avg10=0.05\n").is_err());
        assert!(parse("some total=1\nfull total=x\n").is_err());
    }
}
