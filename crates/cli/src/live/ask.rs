//! Questions to an engine that runs, by its control socket (docs/live.md).

use std::ops::ControlFlow;
use std::time::Duration;

use millstream_live::{AskError, Record, Segment};
use millstream_record::error::Error;
use serde_json::{Map, Value};

use super::engines;

/// The longest time that an engine may take for the next part of its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks, and hands each line of the answer on.
pub fn ask(
    segment: &Segment,
    question: &str,
    mut each: impl FnMut(Record) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut result = Ok(());
    let asked = segment.ask(question, PATIENCE, |record| {
        result = each(record);
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    asked.map_err(|error| match error {
        AskError::Refused(why) => Error::Refused(why),
        AskError::Socket(source) => {
            Error::File { path: segment.socket_path().display().to_string(), source }
        }
        error => Error::Worker(format!("{}: {error}", engines::id(segment))),
    })?;
    result
}

/// Returns all lines of an answer.
pub fn ask_all(segment: &Segment, question: &str) -> Result<Vec<Record>, Error> {
    let mut all = Vec::new();
    ask(segment, question, |record| {
        all.push(record);
        Ok(())
    })?;
    Ok(all)
}

/// Returns true where this engine has a socket of that name.
pub fn has_socket(segment: &Segment, socket: &str) -> bool {
    ask_all(segment, &format!("queue {socket}")).is_ok()
}

/// Returns a line as an object; numbers are numbers.
pub fn object(record: &Record) -> Value {
    let mut fields = Map::new();
    fields.insert("kind".into(), record.kind.as_str().into());
    for (key, value) in &record.fields {
        let value = value.parse::<u64>().map_or_else(|_| Value::from(value.as_str()), Value::from);
        fields.insert(key.clone(), value);
    }
    Value::Object(fields)
}

/// Returns a value as text; `-` where the engine does not say it.
pub fn shown(record: &Record, key: &str) -> String {
    record.get(key).filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}
