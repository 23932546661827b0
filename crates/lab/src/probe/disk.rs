//! How busy disks were, from `/proc/diskstats`.

use std::collections::BTreeMap;

use super::{Absent, Kind, Probe, ProcFile, Turn, rise};
use crate::record::{DiskCounters, Probes};

pub(super) const KIND: Kind = Kind { name: "disks", open: |_| Ok(Box::new(Disk::open()?)) };

pub(super) struct Disk {
    file: ProcFile,
    first: BTreeMap<String, DiskCounters>,
    last: BTreeMap<String, DiskCounters>,
}

impl Disk {
    pub(super) fn open() -> Result<Self, Absent> {
        let file = ProcFile::open("/proc/diskstats")?;
        Ok(Self { file, first: BTreeMap::new(), last: BTreeMap::new() })
    }
}

impl Probe for Disk {
    fn name(&self) -> &'static str {
        "disks"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        match turn {
            Turn::First => self.first = self.file.parse(parse)?,
            Turn::Middle => {}
            Turn::Last => self.last = self.file.parse(parse)?,
        }
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let Self { file: _, first, last } = *self;
        let of = |(name, now): (String, DiskCounters)| {
            let before = first.get(&name).copied().unwrap_or_default();
            let risen = DiskCounters {
                read_bytes: rise(before.read_bytes, now.read_bytes),
                written_bytes: rise(before.written_bytes, now.written_bytes),
                busy_ms: rise(before.busy_ms, now.busy_ms),
            };
            (name, risen)
        };
        into.disks = Some(last.into_iter().map(of).filter(|(_, one)| one.busy_ms > 0).collect());
    }
}

/// Columns of Documentation/admin-guide/iostats.rst: sectors of 512 bytes read (6) and written (10), milliseconds with a
/// request outstanding (13). Partitions are counted beside their disk, which changes nothing as the busiest counts.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, DiskCounters>, String> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| -> Result<u64, String> {
            let word = words.get(at).ok_or_else(|| format!("a line is short: {line}"))?;
            word.parse().map_err(|_| format!("{word:?} is no number"))
        };
        let counters = DiskCounters {
            read_bytes: number(5)?.saturating_mul(512),
            written_bytes: number(9)?.saturating_mul(512),
            busy_ms: number(12)?,
        };
        all.insert(words[2].to_owned(), counters);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_moved_and_how_long_it_was_busy_is_read() {
        let text = " 254       0 vda 50 4 300 7 60 5 400 8 0 90 100 0 0 0 0 1 2\n";
        let expected =
            DiskCounters { read_bytes: 300 * 512, written_bytes: 400 * 512, busy_ms: 90 };
        assert_eq!(parse(text).unwrap()["vda"], expected);
        assert!(parse("254 0 vda 1").is_err() && parse(&text.replace("90", "x")).is_err());
    }
}
