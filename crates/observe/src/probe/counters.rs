//! Counters that are read at the start and at the end of a run: what they rose by is a table.

use std::path::Path;

use millstream_record::{Column, Key, Probes, Table};

use super::{Absent, Probe, ProcFile, Turn};

/// Key and values of each row, as read.
pub(super) type Rows = Vec<(String, Vec<u64>)>;

/// A way to read the rows.
pub(super) type Read = Box<dyn FnMut() -> Result<Rows, Absent> + Send>;

/// Reads `path` anew each time; it is opened at once.
pub(super) fn file(
    path: impl AsRef<Path>,
    parse: fn(&str) -> Result<Rows, String>,
) -> Result<Read, Absent> {
    let mut file = ProcFile::open(path)?;
    Ok(Box::new(move || file.parse(parse)))
}

/// A probe whose name is that of its table.
pub(super) struct Counters {
    pub(super) name: &'static str,
    pub(super) key: Key,
    pub(super) columns: Vec<Column>,
    pub(super) read: Read,
    /// A function that returns the growth of a counter of this width.
    pub(super) rise: fn(u64, u64) -> u64,
    first: Rows,
    last: Rows,
}

impl Counters {
    pub(super) fn boxed(
        name: &'static str,
        key: Key,
        columns: impl IntoIterator<Item = Column>,
        rise: fn(u64, u64) -> u64,
        read: Read,
    ) -> Box<dyn Probe> {
        let columns = columns.into_iter().collect();
        Box::new(Self { name, key, columns, read, rise, first: Rows::new(), last: Rows::new() })
    }
}

impl Probe for Counters {
    fn name(&self) -> &'static str {
        self.name
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        match turn {
            Turn::First => self.first = (self.read)()?,
            Turn::Middle => {}
            Turn::Last => self.last = (self.read)()?,
        }
        Ok(())
    }

    /// Levels are as they are in the end. Rows without a count are left out, but for CPUs.
    fn finish(self: Box<Self>, into: &mut Probes) {
        let Self { name, key, columns, read: _, rise, first, last } = *self;
        let risen = |(row, now): (String, Vec<u64>)| {
            let before = first.iter().find(|(one, _)| *one == row).map(|(_, values)| values);
            let before = |at: usize| before.and_then(|all| all.get(at)).copied().unwrap_or(0);
            let value = |(at, (&now, column)): (usize, (&u64, &Column))| match column.grows() {
                true => rise(before(at), now) as f64,
                false => now as f64,
            };
            let values = now.iter().zip(&columns).enumerate().map(value).collect();
            (row, values)
        };
        let is_kept = |(_, values): &(String, Vec<f64>)| {
            key == Key::Cpu || values.iter().any(|value| *value != 0.0)
        };
        let rows = last.into_iter().map(risen).filter(is_kept).collect();
        into.tables.insert(name.to_owned(), Table { key, columns, rows });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::rise32;
    use millstream_record::Kind;

    #[test]
    fn counters_rise_levels_stay_and_rows_without_a_count_go() {
        let mut turns = 0;
        let read: Read = Box::new(move || {
            turns += 1;
            let row = |key: &str, values: [u64; 2]| (key.to_owned(), values.to_vec());
            Ok(match turns {
                1 => vec![row("a", [u64::from(u32::MAX), 9]), row("b", [7, 0])],
                _ => vec![row("a", [1, 5]), row("b", [7, 0]), row("new", [3, 0])],
            })
        });
        let columns = [
            Column::new("count", "", Kind::Counter, ""),
            Column::new("level", "", Kind::Level, ""),
        ];
        let mut probe = Counters::boxed("some", Key::Disk, columns, rise32, read);
        for turn in [Turn::First, Turn::Middle, Turn::Last] {
            probe.sample(turn).unwrap();
        }
        let mut probes = Probes::default();
        probe.finish(&mut probes);
        let expected = [("a", vec![2.0, 5.0]), ("new", vec![3.0, 0.0])];
        assert_eq!(probes.tables["some"].rows, expected.map(|(key, all)| (key.to_owned(), all)));
    }
}
