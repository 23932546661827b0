//! Interrupts by source and CPU, from `/proc/interrupts`.

use std::collections::HashMap;

use millstream_record::{self as record, InterruptRow, Probes};

use super::{Absent, Kind, Probe, ProcFile, Turn, rise32};
use crate::proc::interrupts::{Table, parse};

/// Inter-processor rows, kept over time: rescheduling, function calls, TLB shootdowns.
const SERIES: [&str; 3] = ["RES", "CAL", "TLB"];

pub(super) const KIND: Kind =
    Kind { name: "interrupts", open: |_| Ok(Box::new(Interrupts::open()?)) };

pub(super) struct Interrupts {
    file: ProcFile,
    cpus: Vec<u32>,
    rows: Vec<Row>,
    /// Place of a row by its id: lines come and go with devices.
    places: HashMap<String, usize>,
}

struct Row {
    id: String,
    name: String,
    last: Vec<u64>,
    counts: Vec<u64>,
    series: Vec<Vec<u64>>,
}

impl Interrupts {
    pub(super) fn open() -> Result<Self, Absent> {
        let file = ProcFile::open("/proc/interrupts")?;
        Ok(Self { file, cpus: Vec::new(), rows: Vec::new(), places: HashMap::new() })
    }

    fn take(&mut self, turn: Turn, table: Table) -> Result<(), Absent> {
        let Table { cpus, rows } = table;
        if turn == Turn::First {
            self.cpus = cpus;
        } else if self.cpus != cpus {
            return Err(Absent("the CPUs that are online changed meanwhile".into()));
        }
        for (id, now, name) in rows {
            let width = now.len();
            let place = *self.places.entry(id.clone()).or_insert_with(|| {
                // A row that appears later started at zero, unless this is the first look.
                let last = if turn == Turn::First { now.clone() } else { vec![0; width] };
                let series = if SERIES.contains(&id.as_str()) {
                    vec![Vec::new(); width]
                } else {
                    Vec::new()
                };
                self.rows.push(Row { id, name, last, counts: vec![0; width], series });
                self.rows.len() - 1
            });
            if turn == Turn::First {
                continue;
            }
            let row = &mut self.rows[place];
            for (at, &count) in now.iter().enumerate().take(row.last.len()) {
                let risen = rise32(row.last[at], count);
                row.counts[at] += risen;
                if let Some(series) = row.series.get_mut(at) {
                    series.push(risen);
                }
                row.last[at] = count;
            }
        }
        Ok(())
    }
}

impl Probe for Interrupts {
    fn name(&self) -> &'static str {
        "interrupts"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        let table = self.file.parse(parse)?;
        self.take(turn, table)
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let Self { file: _, cpus, rows, places: _ } = *self;
        let rows = rows
            .into_iter()
            .filter(|row| !row.series.is_empty() || row.counts.iter().any(|&n| n > 0));
        let rows = rows.map(|Row { id, name, last: _, counts, series }| InterruptRow {
            id,
            name,
            counts,
            series,
        });
        into.interrupts = Some(record::Interrupts { cpus, rows: rows.collect() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rise_by_row_and_new_rows_start_at_zero() {
        let mut probe = Box::new(Interrupts::open().unwrap());
        let row = |id: &str, counts: &[u64]| (id.to_owned(), counts.to_vec(), String::new());
        let table = |rows| Table { cpus: vec![0, 1], rows };
        probe.take(Turn::First, table(vec![row("RES", &[5, 5]), row("7", &[1, 1])])).unwrap();
        probe.take(Turn::Middle, table(vec![row("RES", &[7, 5]), row("7", &[1, 1])])).unwrap();
        let last = vec![row("8", &[0, 3]), row("RES", &[8, 9]), row("7", &[1, 1])];
        probe.take(Turn::Last, table(last)).unwrap();
        let mut probes = Probes::default();
        probe.finish(&mut probes);
        let rows = probes.interrupts.unwrap().rows;
        assert_eq!(rows.len(), 2, "a source that did not fire is left out");
        assert_eq!((rows[0].id.as_str(), &rows[0].counts[..]), ("RES", &[3u64, 4][..]));
        assert_eq!(rows[0].series, [[2, 1], [0, 4]]);
        assert_eq!((rows[1].id.as_str(), &rows[1].counts[..]), ("8", &[0u64, 3][..]));
    }

    #[test]
    fn a_change_of_cpus_ends_the_probe() {
        let mut probe = Interrupts::open().unwrap();
        probe.take(Turn::First, Table { cpus: vec![0, 1], rows: vec![] }).unwrap();
        assert!(probe.take(Turn::Last, Table { cpus: vec![0], rows: vec![] }).is_err());
    }
}
