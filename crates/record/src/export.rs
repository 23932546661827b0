//! Kept runs as Parquet files, for engines that read columns.
//!
//! `runs.parquet` has a row for each run, with its whole record as JSON; `values.parquet` a row for
//! each number and level of a run, so that a query needs to know no column beforehand. Both are
//! compressed by Zstandard. They are read by rows of an experiment at a time: no more than that is
//! in memory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::own_folder::create_anew;
use crate::{RunRecord, Table};

/// The file with a row for each run.
pub const RUNS: &str = "runs.parquet";
/// The file with a row for each number and level.
pub const VALUES: &str = "values.parquet";

const RUNS_SCHEMA: &str = "message run {
    required binary run_id (UTF8);
    required binary experiment_id (UTF8);
    required binary experiment (UTF8);
    required binary workload (UTF8);
    required binary stack (UTF8);
    required binary started_at (UTF8);
    required int64 block;
    required int64 ordinal;
    required boolean valid;
    required double duration_s;
    required binary record (UTF8);
}";

const VALUES_SCHEMA: &str = "message value {
    required binary run_id (UTF8);
    required binary kind (UTF8);
    required binary name (UTF8);
    optional double number;
    optional binary word (UTF8);
}";

/// Writes both files, experiment by experiment.
pub struct Export<W: Write + Send> {
    runs: SerializedFileWriter<W>,
    values: SerializedFileWriter<W>,
    parts: Option<Parts>,
}

/// Both files while they are written, under other names. Files that are left in the end are
/// removed.
struct Parts {
    folder: PathBuf,
}

impl Parts {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!(".{name}.part"))
    }

    /// Gives them their names.
    fn keep(&self) -> io::Result<()> {
        for name in [RUNS, VALUES] {
            fs::rename(self.path(name), self.folder.join(name))?;
        }
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for name in [RUNS, VALUES] {
            let _ = fs::remove_file(self.path(name));
        }
    }
}

impl Export<File> {
    /// Creates `folder` and writes both files into it. They replace files of the same names only
    /// once they are whole.
    pub fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let parts = Parts { folder: folder.to_owned() };
        let file = |name| create_anew(&parts.path(name));
        let export = Self::new(file(RUNS)?, file(VALUES)?)?;
        Ok(Self { parts: Some(parts), ..export })
    }
}

impl<W: Write + Send> Export<W> {
    /// Writes into these.
    pub fn new(runs: W, values: W) -> io::Result<Self> {
        let level = ZstdLevel::try_new(3).map_err(failed)?;
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level));
        let properties = Arc::new(properties.build());
        let writer = |to, schema| {
            let schema = Arc::new(parse_message_type(schema).map_err(failed)?);
            SerializedFileWriter::new(to, schema, properties.clone()).map_err(failed)
        };
        Ok(Self {
            runs: writer(runs, RUNS_SCHEMA)?,
            values: writer(values, VALUES_SCHEMA)?,
            parts: None,
        })
    }

    /// Adds runs, those of an experiment.
    pub fn add(&mut self, runs: &[RunRecord]) -> io::Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        let mut group = self.runs.next_row_group().map_err(failed)?;
        let texts = |of: fn(&RunRecord) -> String| -> Vec<ByteArray> {
            runs.iter().map(|run| of(run).into_bytes().into()).collect()
        };
        let numbers = |of: fn(&RunRecord) -> i64| -> Vec<i64> { runs.iter().map(of).collect() };
        let records: Result<Vec<ByteArray>, _> =
            runs.iter().map(|run| serde_json::to_vec(run).map(ByteArray::from)).collect();
        column::<ByteArrayType>(&mut group, &texts(|run| run.id.clone()))?;
        column::<ByteArrayType>(&mut group, &texts(|run| run.experiment_id.clone()))?;
        column::<ByteArrayType>(&mut group, &texts(|run| run.experiment.clone()))?;
        column::<ByteArrayType>(&mut group, &texts(|run| run.workload.clone()))?;
        column::<ByteArrayType>(&mut group, &texts(|run| run.stack.clone()))?;
        column::<ByteArrayType>(&mut group, &texts(|run| run.started_at.to_string()))?;
        column::<Int64Type>(&mut group, &numbers(|run| run.block.into()))?;
        column::<Int64Type>(&mut group, &numbers(|run| run.order.into()))?;
        let valid: Vec<bool> = runs.iter().map(|run| run.validity.valid).collect();
        column::<BoolType>(&mut group, &valid)?;
        let durations: Vec<f64> = runs.iter().map(|run| run.duration_s).collect();
        column::<DoubleType>(&mut group, &durations)?;
        column::<ByteArrayType>(&mut group, &records?)?;
        group.close().map_err(failed)?;
        self.add_values(runs)
    }

    fn add_values(&mut self, runs: &[RunRecord]) -> io::Result<()> {
        let mut rows = Rows::default();
        for run in runs {
            for (name, value) in &run.results {
                rows.number(&run.id, "result", name, *value);
            }
            for (table, name, value) in run.probes.tables.iter().flat_map(cells) {
                rows.number(&run.id, "table", &format!("{table}/{name}"), value);
            }
            for (name, level) in &run.factors {
                rows.level(&run.id, name, level);
            }
        }
        if rows.names.is_empty() {
            return Ok(());
        }
        let mut group = self.values.next_row_group().map_err(failed)?;
        column::<ByteArrayType>(&mut group, &rows.runs)?;
        column::<ByteArrayType>(&mut group, &rows.kinds)?;
        column::<ByteArrayType>(&mut group, &rows.names)?;
        optional::<DoubleType>(&mut group, &rows.numbers, &rows.has_number)?;
        optional::<ByteArrayType>(&mut group, &rows.words, &rows.has_word)?;
        group.close().map(drop).map_err(failed)
    }

    /// Ends both files; without this they cannot be read.
    pub fn finish(self) -> io::Result<()> {
        self.runs.close().map_err(failed)?;
        self.values.close().map_err(failed)?;
        self.parts.map_or(Ok(()), |parts| parts.keep())
    }
}

/// Returns each value of a table, with the names of the table and of its row and column.
fn cells<'a>(
    (name, table): (&'a String, &'a Table),
) -> impl Iterator<Item = (&'a str, String, f64)> {
    table.rows.iter().flat_map(move |(key, values)| {
        let columns = table.columns.iter().zip(values);
        columns
            .map(move |(column, value)| (name.as_str(), format!("{key}/{}", column.name), *value))
    })
}

/// Rows of `values.parquet`, column by column. A value that a row does not have is left out of its
/// column, and its mark there is 0.
#[derive(Default)]
struct Rows {
    runs: Vec<ByteArray>,
    kinds: Vec<ByteArray>,
    names: Vec<ByteArray>,
    numbers: Vec<f64>,
    has_number: Vec<i16>,
    words: Vec<ByteArray>,
    has_word: Vec<i16>,
}

impl Rows {
    fn begin(&mut self, run: &str, kind: &str, name: &str) {
        self.runs.push(run.into());
        self.kinds.push(kind.into());
        self.names.push(name.into());
    }

    fn number(&mut self, run: &str, kind: &str, name: &str, value: f64) {
        self.begin(run, kind, name);
        self.numbers.push(value);
        self.has_number.push(1);
        self.has_word.push(0);
    }

    /// Writes a level of a factor: a word always, and a number where it is one.
    fn level(&mut self, run: &str, name: &str, level: &str) {
        self.begin(run, "factor", name);
        let number: Option<f64> = level.parse().ok();
        self.numbers.extend(number);
        self.has_number.push(i16::from(number.is_some()));
        self.words.push(level.into());
        self.has_word.push(1);
    }
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

/// Writes the next column, in which every row has a value.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
) -> io::Result<()> {
    write::<T>(group, values, None)
}

/// Writes the next column, in which the rows with mark 1 have a value.
fn optional<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
    marks: &[i16],
) -> io::Result<()> {
    write::<T>(group, values, Some(marks))
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
    marks: Option<&[i16]>,
) -> io::Result<()> {
    let next = group.next_column().map_err(failed)?;
    let mut column = next.ok_or_else(|| io::Error::other("the schema has no further column"))?;
    column.typed::<T>().write_batch(values, marks, None).map_err(failed)?;
    column.close().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    fn run(number: u32) -> RunRecord {
        let mut run = RunRecord::new(format!("e-{number}"));
        run.experiment_id = "e".to_owned();
        run.workload = "tcp_rr".to_owned();
        (run.order, run.validity.valid) = (number, number != 1);
        run.results.insert("transactions_per_s".to_owned(), 100.0 + f64::from(number));
        run.factors.insert("mtu".to_owned(), "1500".to_owned());
        run.factors.insert("direction".to_owned(), "send".to_owned());
        run
    }

    fn rows(bytes: Vec<u8>) -> Vec<parquet::record::Row> {
        let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
        reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
    }

    /// As where the disk is full, or the store goes away.
    #[test]
    fn files_that_are_there_stay_until_new_ones_are_whole() {
        let folder = std::env::temp_dir().join(format!("ms-export-{}", std::process::id()));
        let export = |count: u32, ends: bool| {
            let mut export = Export::create(&folder).unwrap();
            (0..count).for_each(|number| export.add(&[run(number)]).unwrap());
            if ends {
                export.finish().unwrap()
            } else {
                drop(export)
            }
            fs::read_dir(&folder).unwrap().count()
        };
        assert_eq!(export(1, false), 0);
        assert_eq!(export(2, true), 2);
        assert_eq!(export(3, false), 2);
        let found = rows(fs::read(folder.join(RUNS)).unwrap());
        assert_eq!(export(3, true), 2);
        let newer = rows(fs::read(folder.join(RUNS)).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((found.len(), newer.len()), (2, 3));
    }

    #[test]
    fn every_run_and_value_is_read_back() {
        let (mut runs, mut values) = (Vec::new(), Vec::new());
        let mut export = Export::new(&mut runs, &mut values).unwrap();
        export.add(&[run(0), run(1)]).unwrap();
        export.add(&[]).unwrap();
        export.add(&[run(2)]).unwrap();
        export.finish().unwrap();
        let found = rows(runs);
        assert_eq!(found.len(), 3);
        for (at, row) in found.iter().enumerate() {
            assert_eq!(row.get_string(0).unwrap(), &format!("e-{at}"));
            assert_eq!((row.get_long(7).unwrap(), row.get_bool(8).unwrap()), (at as i64, at != 1));
            let record: RunRecord = serde_json::from_str(row.get_string(10).unwrap()).unwrap();
            assert_eq!(record, run(at as u32));
        }
        let found = rows(values);
        assert_eq!(found.len(), 9, "a result and two levels of each");
        let of = |run: &str, name: &str| {
            let mine = |row: &&parquet::record::Row| {
                row.get_string(0).unwrap() == run && row.get_string(2).unwrap() == name
            };
            found.iter().find(mine).unwrap()
        };
        assert_eq!(of("e-2", "transactions_per_s").get_double(3).unwrap(), 102.0);
        assert!(of("e-2", "transactions_per_s").get_string(4).is_err(), "no word");
        assert_eq!(of("e-1", "mtu").get_double(3).unwrap(), 1500.0);
        assert_eq!(of("e-1", "mtu").get_string(4).unwrap(), "1500");
        assert!(of("e-1", "direction").get_double(3).is_err(), "no number");
        assert_eq!(of("e-1", "direction").get_string(4).unwrap(), "send");
    }
}
