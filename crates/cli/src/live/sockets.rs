//! `millstream queue` and `census`: what a living engine answers of the queues of its sockets.

use std::cmp::Reverse;
use std::process::ExitCode;

use clap::Args;
use millstream_live::{Record, Segment};
use millstream_record::error::Error;

use super::ask::{ask, object, shown};
use super::columns::Side::{Left, Right};
use super::columns::{columns, row};
use super::histogram::{bars, set_count};
use super::network::answer;
use super::{Of, Which, engines};
use crate::output::{out, versioned};

/// For `ss --help` and others.
pub const HELP: &str = "\
The engine answers between two turns, so much at a time that none is long: what changes meanwhile is shown as it is when its
turn comes. Only its own user is answered. ENGINE is its name, its process, its number there, or the ID that
`millstream ps` shows; where several are meant each is shown below a line with its ID, as JSON in a line of its own.";

/// Arguments of `queue`.
#[derive(Debug, Args)]
pub struct Queue {
    /// The socket, as `millstream ss` names it
    id: String,
    #[command(flatten)]
    of: Of,
    /// Each segment: where it is in the stream, its payload, and the memory that it holds
    #[arg(short, long)]
    verbose: bool,
    /// As JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Text that is written at a time.
const TEXT_BYTES: usize = 64 << 10;

/// Shows the queues of a socket.
pub fn queue(arguments: &Queue) -> Result<ExitCode, Error> {
    engines::each(arguments.of.place(), arguments.json, |segment| queue_of(segment, arguments))
}

fn queue_of(segment: &Segment, arguments: &Queue) -> Result<(), Error> {
    let verbose = if arguments.verbose { " -v" } else { "" };
    let (mut sizes, mut text) = (Sizes::default(), String::new());
    ask(segment, &format!("queue {}{verbose}", arguments.id), |line| {
        match &line.kind[..] {
            _ if arguments.json => text += &format!("{}\n", versioned(object(&line))),
            "queue" => {
                let fields = line.fields.iter().filter(|(key, _)| key != "side");
                let fields: Vec<String> =
                    fields.map(|(key, value)| format!("  {key:<18}{value}\n")).collect();
                text += &format!("{} queue\n{}", shown(&line, "side"), fields.concat());
            }
            "waiting" | "socket" => {
                text += &format!(
                    "{:<8}{:>12}  {:<24}{}\n",
                    shown(&line, "state"),
                    shown(&line, "id"),
                    shown(&line, "remote"),
                    line.get("age_us").map_or_else(String::new, |us| format!("since {us} us")),
                );
            }
            "segment" => show_segment(&line, &mut text),
            _ => sizes.take(&line),
        }
        match text.len() {
            ..TEXT_BYTES => Ok(()),
            _ => out(&std::mem::take(&mut text)),
        }
    })?;
    out(&(text + &sizes.text()))
}

/// Adds the line of a segment, of which there may be many.
fn show_segment(line: &Record, text: &mut String) {
    let widths = [
        ("position", 20),
        ("payload_bytes", 10),
        ("held_bytes", 10),
        ("offset_bytes", 8),
        ("references", 5),
    ];
    text.push_str(&format!("{:<8}", shown(line, "side")));
    for (key, width) in widths {
        let value = line.get(key).filter(|value| !value.is_empty()).unwrap_or("-");
        text.extend(std::iter::repeat_n(' ', width - value.len().min(width)));
        text.push_str(value);
    }
    text.push('\n');
}

/// Arguments of `census`.
#[derive(Debug, Args)]
pub struct Census {
    #[command(flatten)]
    which: Which,
    /// Each size by itself, with the references to the frame and where in it is read next: a table,
    /// the most frequent first
    #[arg(short = 'x', long)]
    exact: bool,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows the sizes of all that is queued.
pub fn census(arguments: &Census) -> Result<ExitCode, Error> {
    let question = if arguments.exact { "census -x" } else { "census" };
    answer(&arguments.which, arguments.json, question, |lines| {
        let mut sizes = Sizes::default();
        lines.iter().for_each(|line| sizes.take(line));
        if !arguments.exact {
            return out(&sizes.text());
        }
        out(&sizes.head())?;
        exact(lines)
    })
}

/// Shows the sizes one by one.
fn exact(lines: &[Record]) -> Result<(), Error> {
    let of = |kind: &'static str| lines.iter().filter(move |line| line.kind == kind);
    let mut all: Vec<&Record> = of("exact").collect();
    all.sort_by_key(|line| Reverse(line.number("count")));
    let mut rows = vec![row(["side", "payload", "held", "references", "read from", "to", "count"])];
    let offsets = ["least_offset_bytes", "most_offset_bytes"];
    let keys = [&["side", "payload_bytes", "held_bytes", "references"][..], &offsets, &["count"]];
    let keys = keys.concat();
    rows.extend(all.iter().map(|line| keys.iter().map(|key| shown(line, key)).collect()));
    let others: u64 = of("exact_others").filter_map(|line| line.number("count")).sum();
    if others != 0 {
        rows.push(row(["", "", "", "", "", "others", &others.to_string()]));
    }
    out(&format!("\n{}", columns(&[&[Left][..], &[Right; 6]].concat(), &rows)))
}

/// The number of pieces by size.
#[derive(Default)]
struct Sizes {
    total: Option<Record>,
    payload: Vec<u64>,
    held: Vec<u64>,
}

impl Sizes {
    fn take(&mut self, line: &Record) {
        match (line.kind.as_str(), line.get("of")) {
            ("sizes", _) => self.total = Some(line.clone()),
            ("size", Some(of)) => {
                let counts = if of == "payload" { &mut self.payload } else { &mut self.held };
                let (least, count) = (line.number("least_bytes"), line.number("count"));
                let (Some(least), Some(count)) = (least, count) else { return };
                set_count(counts, least, count);
            }
            _ => {}
        }
    }

    /// Returns the sums.
    fn head(&self) -> String {
        let Some(total) = &self.total else { return String::new() };
        let part = |key| shown(total, key);
        format!(
            "{} segments, {} bytes of payload, {} bytes held\n",
            part("segments"),
            part("payload_bytes"),
            part("held_bytes")
        )
    }

    fn text(&self) -> String {
        let mut text = self.head();
        for (what, counts) in [("payload bytes", &self.payload), ("held bytes", &self.held)] {
            if !counts.is_empty() {
                text += &format!("\n{what} of a segment\n{}", bars(counts));
            }
        }
        text
    }
}
