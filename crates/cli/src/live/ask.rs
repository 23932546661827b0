//! Questions to an engine that runs, by its control socket (docs/live.md).

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use millstream::live::{Record, Segment};
use millstream_lab::error::Error;
use serde_json::{Map, Value};

use super::engines;

/// How long an engine may take for the next part of its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer: of a queue of a million segments.
const ANSWER_BYTES: u64 = 128 << 20;

/// Asks, and hands each line of the answer on.
pub fn ask(
    segment: &Segment,
    question: &str,
    mut each: impl FnMut(Record) -> Result<(), Error>,
) -> Result<(), Error> {
    let path = segment.socket_path();
    let failed = |source| Error::File { path: path.display().to_string(), source };
    let mut stream = UnixStream::connect(&path).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.write_all(format!("{question}\n").as_bytes()).map_err(failed)?;
    let mut lines = BufReader::new(stream.take(ANSWER_BYTES));
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).map_err(failed)? == 0 {
            let id = engines::id(segment);
            return Err(Error::Worker(format!("the engine {id} did not finish its answer")));
        }
        let record = Record::parse(&line);
        match record.kind.as_str() {
            "end" => return Ok(()),
            "error" => {
                return Err(Error::Refused(record.get("why").unwrap_or("refused").to_owned()));
            }
            _ => each(record)?,
        }
    }
}

/// All lines of an answer.
pub fn ask_all(segment: &Segment, question: &str) -> Result<Vec<Record>, Error> {
    let mut all = Vec::new();
    ask(segment, question, |record| {
        all.push(record);
        Ok(())
    })?;
    Ok(all)
}

/// A line as an object; numbers are numbers.
pub fn object(record: &Record) -> Value {
    let mut fields = Map::new();
    fields.insert("kind".into(), record.kind.as_str().into());
    for (key, value) in &record.fields {
        let value = value.parse::<u64>().map_or_else(|_| Value::from(value.as_str()), Value::from);
        fields.insert(key.clone(), value);
    }
    Value::Object(fields)
}

/// A value as text; what the engine does not say is `-`.
pub fn shown(record: &Record, key: &str) -> String {
    record.get(key).filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}
