//! `millstream ss`, `queue` and `census`: what a living engine answers of its sockets and their
//! queues.

use std::process::ExitCode;

use clap::Args;
use millstream::live::{Record, Segment};
use millstream_record::error::Error;

use super::ask::{ask, ask_all, object, shown};
use super::columns::Side::{Left, Right};
use super::columns::{columns, row};
use super::histogram::{bars, set_count};
use super::network::{all, answer};
use super::{One, Which, engines};
use crate::output::{out, out_json};

/// For `ss --help` and others.
pub const HELP: &str = "\
The engine answers between two turns, so much at a time that none is long: what changes meanwhile is shown as it is when its
turn comes. Only its own user is answered. ENGINE is its name, its process, its number there, or the ID that
`millstream ps` shows; where several are meant each is shown below a line with its ID, as JSON in a line of its own.";

/// Arguments of `ss`.
#[derive(Debug, Args)]
pub struct Ss {
    #[command(flatten)]
    which: Which,
    /// Also what has no socket: handshakes that are not finished, and what is left in TIME-WAIT
    #[arg(short, long)]
    all: bool,
    /// All that is known of each connection (round trips, windows, losses, what limits it)
    #[arg(short, long)]
    info: bool,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `queue`.
#[derive(Debug, Args)]
pub struct Queue {
    /// The socket, as `millstream ss` names it
    id: String,
    /// The engine [default: all that have such a socket]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Each segment: where it is in the stream, its payload, and the memory that it holds
    #[arg(short, long)]
    verbose: bool,
    /// As JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Lists the sockets.
pub fn ss(arguments: &Ss) -> Result<ExitCode, Error> {
    engines::each(arguments.which.engine(), arguments.json, |segment| {
        let sockets = ask_all(segment, if arguments.all { "ss -a" } else { "ss" })?;
        match arguments.json {
            true => out_json(all(&engines::id(segment), "sockets", &sockets)),
            false => table(&sockets, arguments.info),
        }
    })
}

fn table(sockets: &[Record], info: bool) -> Result<(), Error> {
    let mut rows = vec![row(["id", "state", "recv-q", "send-q", "local", "remote", "held"])];
    let keys = ["id", "state", "recv_q", "send_q", "local", "remote", "held_bytes"];
    rows.extend(sockets.iter().map(|socket| keys.map(|key| shown(socket, key)).into()));
    let text = columns(&[Left, Left, Right, Right, Left, Left, Right], &rows);
    if !info {
        return out(&text);
    }
    for (line, socket) in text.lines().zip(std::iter::once(&Record::default()).chain(sockets)) {
        let more = socket.fields.iter().filter(|(key, _)| !keys.contains(&key.as_str()));
        let more: Vec<String> = more.map(|(key, value)| format!("{key}:{value}")).collect();
        out(&format!("{line}\n"))?;
        if !more.is_empty() {
            out(&format!("    {}\n", more.join(" ")))?;
        }
    }
    Ok(())
}

/// Shows the queues of a socket.
pub fn queue(arguments: &Queue) -> Result<ExitCode, Error> {
    let text = arguments.engine.as_deref();
    engines::each(text, arguments.json, |segment| queue_of(segment, arguments))
}

fn queue_of(segment: &Segment, arguments: &Queue) -> Result<(), Error> {
    let verbose = if arguments.verbose { " -v" } else { "" };
    let mut sizes = Sizes::default();
    ask(segment, &format!("queue {}{verbose}", arguments.id), |line| match &line.kind[..] {
        _ if arguments.json => out_json(object(&line)),
        "queue" => {
            let fields = line.fields.iter().filter(|(key, _)| key != "side");
            let fields: Vec<String> =
                fields.map(|(key, value)| format!("  {key:<18}{value}\n")).collect();
            out(&format!("{} queue\n{}", shown(&line, "side"), fields.concat()))
        }
        "waiting" | "socket" => out(&format!(
            "{:<8}{:>12}  {:<24}{}\n",
            shown(&line, "state"),
            shown(&line, "id"),
            shown(&line, "remote"),
            line.get("age_us").map_or_else(String::new, |us| format!("since {us} us")),
        )),
        "segment" => out(&format!(
            "{:<8}{:>20}{:>10}{:>10}\n",
            shown(&line, "side"),
            shown(&line, "position"),
            shown(&line, "payload_bytes"),
            shown(&line, "held_bytes")
        )),
        _ => {
            sizes.take(&line);
            Ok(())
        }
    })?;
    if arguments.json { Ok(()) } else { out(&sizes.text()) }
}

/// Shows the sizes of all that is queued.
pub fn census(arguments: &One) -> Result<ExitCode, Error> {
    answer(&arguments.which, arguments.json, "census", |lines| {
        let mut sizes = Sizes::default();
        lines.iter().for_each(|line| sizes.take(line));
        out(&sizes.text())
    })
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

    fn text(&self) -> String {
        let Some(total) = &self.total else { return String::new() };
        let part = |key| shown(total, key);
        let mut text = format!(
            "{} segments, {} bytes of payload, {} bytes held\n",
            part("segments"),
            part("payload_bytes"),
            part("held_bytes")
        );
        for (what, counts) in [("payload bytes", &self.payload), ("held bytes", &self.held)] {
            if !counts.is_empty() {
                text += &format!("\n{what} of a segment\n{}", bars(counts));
            }
        }
        text
    }
}
