//! The records inside the page.

use std::io::{self, Write};

use millstream_foreign::to_parse;
use millstream_record::{Environment, ExperimentRecord, RunRecord};
use serde::{Serialize, Serializer};

use super::super::model::Model;
use super::super::room::Detailed;

/// Largest JSON put into a page; what goes beyond is left out by kind and named.
pub(in super::super) const SIZE_BYTES: usize = 900_000;

#[derive(Serialize)]
struct Data<'a> {
    experiment: &'a ExperimentRecord,
    runs: Reduced<'a>,
    omitted: &'a [&'a str],
}

/// Runs without what the experiment says of all of them, and without what these reductions take
/// out.
struct Reduced<'a> {
    runs: &'a [RunRecord],
    around: &'a Environment,
    by: &'a [Reduction],
}

impl Serialize for Reduced<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.runs.iter().map(|run| {
            let mut run = run.clone();
            if run.environment == *self.around {
                run.environment = Environment::default();
            }
            self.by.iter().for_each(|(_, reduce)| reduce(&mut run));
            run
        }))
    }
}

/// Text that becomes no more than so many bytes; more of it is an error, so that what does not fit
/// is not made to its end.
struct Bounded {
    text: Vec<u8>,
    room: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let escaped = bytes.iter().filter(|byte| **byte == b'<').count() * (ESCAPED.len() - 1);
        let left = self.room.checked_sub(bytes.len() + escaped);
        self.room = left.ok_or(io::ErrorKind::FileTooLarge)?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes something out of a run to make it smaller.
type Reduction = (&'static str, fn(&mut RunRecord));

const REDUCTIONS: [Reduction; 6] = [
    ("runs[].probes.hosts series", |run| {
        let hosts = run.probes.hosts.iter_mut().flat_map(|hosts| hosts.values_mut());
        for interface in hosts.flat_map(|host| host.interfaces.values_mut()) {
            interface.rx_bytes_series.clear();
            interface.tx_bytes_series.clear();
        }
    }),
    ("runs[].probes.engine_series and queues", |run| {
        run.probes.engine_series.clear();
        run.probes.queues = None;
        run.probes.fullest_queues.clear();
    }),
    ("runs[].environment", |run| run.environment = Environment::default()),
    ("runs[].probes.interrupts series", |run| {
        for row in
            run.probes.interrupts.iter_mut().flat_map(|interrupts| interrupts.rows.iter_mut())
        {
            row.series.clear();
        }
    }),
    ("runs[].probes", |run| run.probes = Default::default()),
    ("runs[].intervals", |run| run.intervals = Default::default()),
];

/// JSON that is safe inside a script element, of so many bytes at most: no `<` in it. Of runs that
/// were not all looked at there is none.
pub(in super::super) fn embedded(
    model: &Model<'_>,
    detailed: &Detailed<'_>,
    bytes: usize,
) -> Result<String, serde_json::Error> {
    let experiment = model.experiment;
    for reductions in 0..=REDUCTIONS.len() {
        if !detailed.is_all() {
            break;
        }
        let by = &REDUCTIONS[..reductions];
        let omitted: Vec<&str> = by.iter().map(|(name, _)| *name).collect();
        let runs = Reduced { runs: model.runs, around: &experiment.environment, by };
        let mut text = Bounded { text: Vec::new(), room: bytes };
        match serde_json::to_writer(&mut text, &Data { experiment, runs, omitted: &omitted }) {
            Ok(()) => return Ok(safe(&to_parse(&text.text))),
            Err(error) if error.is_io() => {}
            Err(error) => return Err(error),
        }
    }
    let names = REDUCTIONS.iter().map(|(name, _)| *name);
    let omitted: Vec<&str> = names.chain(["runs"]).collect();
    let runs = Reduced { runs: &[], around: &experiment.environment, by: &[] };
    serde_json::to_string(&Data { experiment, runs, omitted: &omitted }).map(|text| safe(&text))
}

/// The escape that replaces `<`.
const ESCAPED: &str = "\\u003c";

fn safe(text: &str) -> String {
    text.replace('<', ESCAPED)
}
