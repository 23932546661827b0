//! Engines as text: what they published and answered at one time, for whoever looks later.
//!
//! ```text
//! millstream-snapshot format=1
//! engine name=proxy pid=1848 number=0 began_ns=… every_ns=… sequence=… time_ns=… engine_ns=…
//! counter count 1 turns                the schema, a line for each name
//! values 71 0 5 …                      the values, in the order of the schema
//! answer question=ss%20-a              each question, and the lines of its answer up to `end`
//! socket id=tcp0.0 …
//! end
//! ```

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, BufRead, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use millstream_foreign::lines;

use crate::ask::AskError;
use crate::error::Damage;
use crate::layout::Header;
use crate::record::{Fields, Record};
use crate::schema::SchemaText;
use crate::segment::{Kept, Segment, Snapshot};

/// The first line.
const FIRST: &str = "millstream-snapshot format=1";
/// Engines of a file that are read, and values of one.
const ENGINES_MOST: usize = 4096;
const VALUES_MOST: usize = 1 << 20;
/// Bytes of a line.
const LINE_BYTES: u64 = 32 << 20;

/// Writes what engines have published and answer now. `questions` are those for all; `more` gives
/// further ones for the lines of an answer.
///
/// # Errors
/// When `out` cannot be written. An engine that cannot be read is left out.
pub fn keep(
    segments: &mut [Segment],
    questions: &[&str],
    more: impl Fn(&Record) -> Option<String>,
    patience: Duration,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{FIRST}")?;
    for segment in segments {
        let Ok(snapshot) = segment.read() else { continue };
        write_published(segment.header(), &snapshot, out)?;
        let mut left: Vec<String> = questions.iter().rev().map(|one| (*one).to_owned()).collect();
        while let Some(question) = left.pop() {
            let mut text = String::new();
            line(&mut text, "answer", &[("question", &question)]);
            let asked = segment.ask(&question, patience, |record| {
                left.extend(more(&record));
                let fields = record.fields.iter().map(|(key, value)| (key.as_str(), value));
                let fields: Vec<(&str, &dyn Display)> =
                    fields.map(|(key, value)| (key, value as &dyn Display)).collect();
                line(&mut text, &record.kind, &fields);
                ControlFlow::Continue(())
            });
            match asked {
                Ok(()) => text.push_str("end\n"),
                Err(error) => {
                    let why = match error {
                        AskError::Refused(why) => why,
                        error => error.to_string(),
                    };
                    line(&mut text, "error", &[("why", &why)]);
                }
            }
            out.write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

fn line(text: &mut String, kind: &str, fields: &[(&str, &dyn Display)]) {
    let mut line = Fields::begin(text, kind);
    for (key, value) in fields {
        line.put(key, value);
    }
    line.end();
}

fn write_published(header: &Header, now: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    let Header { name, pid, number, began_ns, every_ns, .. } = header;
    let (mut text, mut schema, mut values) =
        (String::new(), SchemaText::default(), String::from("values"));
    let fields: [(&str, &dyn Display); 8] = [
        ("name", name),
        ("pid", pid),
        ("number", number),
        ("began_ns", began_ns),
        ("every_ns", every_ns),
        ("sequence", &now.sequence),
        ("time_ns", &now.time_ns),
        ("engine_ns", &now.engine_ns),
    ];
    line(&mut text, "engine", &fields);
    for (entry, numbers) in now.iter() {
        let labels: Vec<(&str, &dyn Display)> =
            entry.labels.iter().map(|(key, value)| (key.as_str(), value as &dyn Display)).collect();
        schema.line(entry.kind, &entry.unit, numbers.len(), &entry.name, &labels);
        numbers.iter().for_each(|number| values.push_str(&format!(" {number}")));
    }
    writeln!(out, "{text}{}{values}", schema.text)
}

/// Reads the engines that [`keep`] has written.
///
/// # Errors
/// When it is no such file, or is cut short.
pub fn read_kept(path: &Path, mut file: impl BufRead) -> Result<Vec<Segment>, Damage> {
    let mut next = || -> Result<Option<String>, Damage> {
        let mut line = Vec::new();
        let read = file.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line);
        let text = lines(line.strip_suffix(b"\n").unwrap_or(&line));
        Ok((read.map_err(Damage::Io)? != 0).then(|| text.into_owned()))
    };
    if next()?.as_deref() != Some(FIRST) {
        return Err(Damage::Broken("it is no snapshot"));
    }
    const SHORT: Damage = Damage::Broken("it is cut short");
    let mut all: Vec<(Header, Kept)> = Vec::new();
    while let Some(text) = next()? {
        let record = Record::parse(&text);
        if record.kind == "engine" && all.len() < ENGINES_MOST {
            let (mut schema, mut values) = (String::new(), None);
            while values.is_none() {
                let text = next()?.ok_or(SHORT)?;
                match text.strip_prefix("values") {
                    Some(numbers) => {
                        let numbers = numbers.split_ascii_whitespace().take(VALUES_MOST);
                        let numbers: Option<Vec<u64>> =
                            numbers.map(|number| number.parse().ok()).collect();
                        values = Some(numbers.ok_or(Damage::Broken("a value"))?);
                    }
                    None => schema.push_str(&(text + "\n")),
                }
            }
            let times = ["sequence", "time_ns", "engine_ns"];
            let times = times.map(|key| record.number(key).unwrap_or(0));
            let snapshot = Snapshot::of(times, &schema, values.unwrap_or_default())?;
            all.push((Header::of(&record), Kept { snapshot, answers: BTreeMap::new() }));
        } else if let ("answer", Some((_, kept))) = (record.kind.as_str(), all.last_mut()) {
            let mut answer = Vec::new();
            let answer = loop {
                let line = Record::parse(&next()?.ok_or(SHORT)?);
                match line.kind.as_str() {
                    "end" => break Ok(answer),
                    "error" => break Err(line.get("why").unwrap_or("refused").to_owned()),
                    _ => answer.push(line),
                }
            };
            kept.answers.insert(record.get("question").unwrap_or_default().to_owned(), answer);
        }
    }
    let of = |(header, kept)| Segment::of_kept(path.to_owned(), header, kept);
    Ok(all.into_iter().map(of).collect())
}

/// Questions whose answer is a part of a longer one: without these kinds of lines, or lines without
/// an `id`.
const PARTS: [(&str, &[&str]); 2] = [(" -v", &["segment", "waiting", "timer"]), (" -a", &[])];

impl Kept {
    /// Returns the answer to a question, as it was kept or as a part of what was; else the reason
    /// why there is none.
    pub(crate) fn answer(&self, question: &str) -> Result<Vec<Record>, String> {
        if let Some(whole) = self.answers.get(question) {
            return whole.clone();
        }
        for (longer, without) in PARTS {
            if let Some(Ok(whole)) = self.answers.get(&format!("{question}{longer}")) {
                let is_part = |line: &&Record| match without {
                    [] => line.get("id").is_some(),
                    _ => !without.contains(&line.kind.as_str()),
                };
                return Ok(whole.iter().filter(is_part).cloned().collect());
            }
        }
        Err(format!("the snapshot has no answer to '{question}'"))
    }
}
