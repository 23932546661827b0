//! Time that tasks waited for CPU, memory and disk, from `/proc/pressure`.

use millstream_record::Kind::Counter;
use millstream_record::{Column, Key};

use super::counters::{Counters, Read};
use super::{Absent, Kind, ProcFile, rise};

const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

static COLUMNS: [Column; 2] = [
    Column::new("some", "us", Counter, "Time in which a task at least waited."),
    Column::new("full", "us", Counter, "Time in which all tasks waited."),
];

pub(super) const KIND: Kind = Kind {
    name: "pressure",
    open: |_| {
        let columns = COLUMNS.iter().cloned();
        Ok(Counters::boxed("pressure", Key::Resource, columns, rise, read()?))
    },
};

fn read() -> Result<Read, Absent> {
    let open = |name| Ok((name, ProcFile::open(format!("/proc/pressure/{name}"))?));
    let mut files = RESOURCES.map(open).into_iter().collect::<Result<Vec<_>, Absent>>()?;
    Ok(Box::new(move || {
        let row = |(name, file): &mut (&str, ProcFile)| {
            Ok(((*name).to_owned(), file.parse(parse)?.to_vec()))
        };
        files.iter_mut().map(row).collect()
    }))
}

/// Microseconds in which some task and all tasks waited.
///
/// `some avg10=0.16 avg60=0.46 avg300=0.43 total=7614984`; the line `full` is absent for the CPU
/// on kernels before 5.13.
pub(crate) fn parse(text: &str) -> Result<[u64; 2], String> {
    let total = |kind: &str| -> Option<Result<u64, String>> {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        let word = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="));
        let number = word.and_then(|word| word.parse().ok());
        Some(number.ok_or_else(|| format!("odd line {line:?}")))
    };
    let some = total("some ").ok_or("no line some")??;
    Ok([some, total("full ").transpose()?.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_taken() {
        let text = "some avg10=0.05 avg60=0.43 avg300=0.37 total=6590034\n\
                    full avg10=0.03 avg60=0.40 avg300=0.35 total=6257450\n";
        assert_eq!(parse(text), Ok([6_590_034, 6_257_450]));
        assert_eq!(parse("some total=3\n"), Ok([3, 0]));
    }

    #[test]
    fn odd_input_is_refused() {
        assert!(parse("").is_err());
        assert!(parse("some avg10=0.05\n").is_err());
        assert!(parse("some total=1\nfull total=x\n").is_err());
    }
}
