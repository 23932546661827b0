//! Trouble that the kernel had with memory, from `/proc/vmstat`: pages fetched from a disk, on the
//! wrong node, or not to be had in one piece.

use millstream_record::Kind::Trouble;
use millstream_record::{Column, Key};

use super::counters::{Counters, Rows};
use super::{Kind, ProcFile, rise};

const PATH: &str = "/proc/vmstat";

static COLUMNS: [Column; 7] = [
    Column::new("pgmajfault", "", Trouble, "Page faults that had to wait for a disk."),
    Column::new("pswpin", "pages", Trouble, "Pages read back from swap."),
    Column::new("pswpout", "pages", Trouble, "Pages written to swap."),
    Column::new("pgscan_direct", "pages", Trouble, "Pages that an allocation looked at to free."),
    Column::new("compact_stall", "", Trouble, "Allocations that waited for compaction."),
    Column::new("numa_miss", "pages", Trouble, "Pages of another node than the one wanted."),
    Column::new("thp_fault_fallback", "", Trouble, "Huge pages that could not be had."),
];

pub(super) const KIND: Kind = Kind {
    name: "vmstat",
    open: |_| {
        // A kernel lacks those of what was not built into it.
        let mut file = ProcFile::open(PATH)?;
        let columns: Vec<Column> = file.parse(|text| {
            let is_there = |column: &&Column| parse(text, &column.name).is_ok();
            Ok(COLUMNS.iter().filter(is_there).cloned().collect())
        })?;
        let names: Vec<_> = columns.iter().map(|column| column.name.clone()).collect();
        let read = move || {
            let row = |text: &str| names.iter().map(|name| parse(text, name)).collect();
            Ok(Rows::from([("all".to_owned(), file.parse::<Vec<u64>>(row)?)]))
        };
        Ok(Counters::boxed("vmstat", Key::Machine, columns, rise, Box::new(read)))
    },
};

/// The counter of this name: a line is a name and a number.
fn parse(text: &str, name: &str) -> Result<u64, String> {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let number = found.ok_or_else(|| format!("no line {name}"))?;
    number.parse().map_err(|_| format!("{name} is {number:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_known_by_its_whole_name() {
        let text = "pswpin_x 1\npswpin 42\nnuma_miss -\n";
        assert_eq!(parse(text, "pswpin"), Ok(42));
        assert!(parse(text, "numa_miss").is_err() && parse(text, "pswp").is_err());
    }
}
