//! `millstream snapshot`: all that engines publish and answer, as a file for later; and two such
//! files compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use millstream_live::{Kind, Record, Segment, Snapshot as Published, keep};
use millstream_record::error::Error;

use super::ask::ask_all;
use super::columns::Side::{Left, Right};
use super::columns::{columns, duration, row};
use super::{Of, engines, kernel, unreadable};
use crate::output::{out, say, write_whole};

/// For `snapshot --help`.
pub const HELP: &str = "\
Examples:
  millstream snapshot before.txt              # sockets, queues with each segment, timers, pool, drops, stages, routes
  millstream ss -kp --from before.txt         # and the kernel's sockets
  millstream queue tcp0.0 -v --from before.txt
  millstream snapshot --compare before.txt after.txt

The file is text (docs/live.md). Engines answer one question after the other, while they go on: what changes meanwhile is
as it was when its turn came. Sampled packets and events are not in it.";

/// Arguments of `snapshot`.
#[derive(Debug, Args)]
pub struct Snapshot {
    /// The file to write
    #[arg(value_name = "FILE", required_unless_present = "compare")]
    file: Option<PathBuf>,
    #[command(flatten)]
    of: Of,
    /// Show what has changed from one file to the other
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["file", "from"])]
    compare: Vec<PathBuf>,
}

/// Questions that every engine is asked; then the queues of each of its sockets.
const QUESTIONS: [&str; 10] = [
    "ss -a",
    "census",
    "census -x",
    "links",
    "pool",
    "neigh",
    "route",
    "groups",
    "timers -v",
    "thread",
];

/// The longest time that an engine may take for the next part of its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes one, or compares two.
pub fn snapshot(arguments: &Snapshot) -> Result<ExitCode, Error> {
    if let [before, after] = &arguments.compare[..] {
        return compare(before, after, arguments.of.place().engine);
    }
    let Some(file) = &arguments.file else { return Ok(ExitCode::SUCCESS) };
    let mut segments = engines::meant(arguments.of.place())?;
    let queue = |line: &Record| {
        let id = line.get("id").filter(|_| line.kind == "socket")?;
        Some(format!("queue {id} -v"))
    };
    let mut text = Vec::new();
    keep(&mut segments, &QUESTIONS, queue, PATIENCE, &mut text)
        .map_err(Error::host("keep what engines say"))?;
    kernel::keep(&mut text);
    write_whole(file, &text)?;
    let (count, bytes) = (segments.len(), text.len());
    say(format_args!("{}: {count} engines, {bytes} bytes", file.display()));
    Ok(ExitCode::SUCCESS)
}

/// Shows of each engine that is in both what has changed, and of the kernel's sockets.
fn compare(before: &PathBuf, after: &PathBuf, engine: Option<&str>) -> Result<ExitCode, Error> {
    let read = |path: &PathBuf| engines::meant(super::Place { engine, from: Some(path) });
    let (mut old, mut new) = (read(before)?, read(after)?);
    let mut is_any = false;
    for one in &mut new {
        let id = engines::id(one);
        let Some(other) = old.iter_mut().find(|old| engines::id(old) == id) else {
            say(format_args!("note: {id} is in {} alone", after.display()));
            continue;
        };
        is_any = true;
        out(&engines::heading(&id))?;
        let published = |one: &mut Segment| one.read().map_err(|damage| unreadable(one, &damage));
        out(&values(&published(other)?, &published(one)?))?;
        out(&queues(&ask_all(other, "ss -a")?, &ask_all(one, "ss -a")?))?;
    }
    let of_kernel = queues(&kernel::kept(before)?, &kernel::kept(after)?);
    if engine.is_none() && !of_kernel.is_empty() {
        out(&format!("\nkernel{of_kernel}"))?;
    }
    match is_any {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Error::Refused("no engine is in both files".to_owned())),
    }
}

/// Returns the counters and levels that differ, with the rate of counters.
fn values(before: &Published, after: &Published) -> String {
    let named = |of: &Published| -> BTreeMap<String, (Kind, u64)> {
        let plain = of.iter().filter(|(entry, _)| entry.kind != Kind::Histogram);
        let named = plain.map(|(entry, values)| {
            let labels = entry.labels.iter().map(|(key, value)| format!(" {key}={value}"));
            (entry.name.clone() + &labels.collect::<String>(), (entry.kind, values[0]))
        });
        named.collect()
    };
    let (old, new) = (named(before), named(after));
    let ns = after.time_ns.saturating_sub(before.time_ns);
    let mut rows = vec![row(["value", "before", "after", "difference", "per s"])];
    for (name, (kind, now)) in &new {
        let was = old.get(name).map_or(0, |(_, value)| *value);
        if was != *now {
            let difference = i128::from(*now) - i128::from(was);
            let rate = match (kind, ns) {
                (Kind::Counter, 1..) => format!("{:.1}", difference as f64 * 1e9 / ns as f64),
                _ => "-".to_owned(),
            };
            let cells = [was.to_string(), now.to_string(), format!("{difference:+}"), rate];
            rows.push([vec![name.clone()], cells.to_vec()].concat());
        }
    }
    let table = columns(&[Left, Right, Right, Right, Right], &rows);
    format!("{} later\n{table}", duration(ns))
}

/// Returns the sockets that came, went, or have other queues.
fn queues(before: &[Record], after: &[Record]) -> String {
    const KEYS: [&str; 4] = ["state", "recv_q", "send_q", "held_bytes"];
    let by_id = |all: &[Record]| -> BTreeMap<String, [String; 4]> {
        let ids = all.iter().filter_map(|one| {
            let cell = |key: &str| one.get(key).unwrap_or("-").to_owned();
            Some((one.get("id")?.to_owned(), KEYS.map(cell)))
        });
        ids.collect()
    };
    let (old, new) = (by_id(before), by_id(after));
    let ids: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut rows = vec![row(["id", "state", "recv-q", "send-q", "held"])];
    for id in ids.into_iter().filter(|id| old.get(*id) != new.get(*id)) {
        let cell = |at: usize| {
            let of = |all: &BTreeMap<String, [String; 4]>| {
                all.get(id).map_or_else(|| "-".to_owned(), |cells| cells[at].clone())
            };
            let (was, is) = (of(&old), of(&new));
            if was == is { is } else { format!("{was} → {is}") }
        };
        rows.push([vec![id.clone()], (0..KEYS.len()).map(cell).collect()].concat());
    }
    match rows.len() {
        1 => String::new(),
        _ => format!("\n{}", columns(&[Left, Left, Right, Right, Right], &rows)),
    }
}
