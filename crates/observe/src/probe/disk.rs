//! Activity of disks, from `/proc/diskstats`.

use millstream_record::Kind::Counter;
use millstream_record::{Column, Key};

use super::counters::{Counters, Rows, file};
use super::{Kind, rise};

static COLUMNS: [Column; 3] = [
    Column::new("read_bytes", "bytes", Counter, "Bytes read."),
    Column::new("written_bytes", "bytes", Counter, "Bytes written."),
    Column::new("busy", "ms", Counter, "Time with a request outstanding."),
];

pub(super) const KIND: Kind = Kind {
    name: "disks",
    open: |_| {
        let read = file("/proc/diskstats", parse)?;
        Ok(Counters::boxed("disks", Key::Disk, COLUMNS.iter().cloned(), rise, read))
    },
};

/// Columns of Documentation/admin-guide/iostats.rst: sectors of 512 bytes read (6) and written
/// (10), milliseconds with a request outstanding (13). Partitions are counted beside their disk,
/// which changes nothing as the busiest counts.
pub(super) fn parse(text: &str) -> Result<Rows, String> {
    let disk = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| -> Result<u64, String> {
            let word = words.get(at).ok_or_else(|| format!("a line is short: {line}"))?;
            word.parse().map_err(|_| format!("{word:?} is no number"))
        };
        let bytes = |sectors: u64| sectors.saturating_mul(512);
        let values = vec![bytes(number(5)?), bytes(number(9)?), number(12)?];
        Ok((words[2].to_owned(), values))
    };
    text.lines().map(disk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_moved_and_how_long_it_was_busy_is_read() {
        let text = " 254       0 vda 50 4 300 7 60 5 400 8 0 90 100 0 0 0 0 1 2\n";
        assert_eq!(parse(text), Ok(vec![("vda".to_owned(), vec![300 * 512, 400 * 512, 90])]));
        assert!(parse("254 0 vda 1").is_err() && parse(&text.replace("90", "x")).is_err());
    }
}
