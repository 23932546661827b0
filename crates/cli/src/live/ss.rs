//! `millstream ss`: the sockets of engines, of the kernel beside them, and whose they are.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use millstream_live::{Record, Segment};
use millstream_record::error::Error;
use serde_json::Value;

use super::ask::{ask_all, object, shown};
use super::columns::Side::{Left, Right};
use super::columns::columns;
use super::filter::{Filter, begins_filter};
use super::kernel::{self, Names, OWNERS};
use super::network::all;
use super::{Of, Place, engines};
use crate::output::{lines_of_json, out, out_json, say};
use crate::values::whole;

/// For `ss --help`.
pub const HELP: &str = "\
Examples:
  millstream ss -i proxy
  millstream ss -kp state established '( dport = :443 or sport = :80 )'
  millstream ss --order held --limit 10

FILTER is that of ss(8): `state STATE`, `exclude STATE` (established, listening, connected, all, ...), and an expression of
`sport`, `dport`, `src`, `dst` with `=`, `!=`, `<`, `>`, `and`, `or`, `not` and brackets. A first word that begins no filter is
an ENGINE: its name, its process, its number there, or the ID that `millstream ps` shows. An engine answers between two
turns, its own user alone.";

/// Arguments of `ss`.
#[derive(Debug, Args)]
pub struct Ss {
    /// The engine [default: all], and which sockets
    #[arg(value_name = "ENGINE|FILTER")]
    words: Vec<String>,
    #[command(flatten)]
    of: Of,
    /// Also what has no socket: handshakes that are not finished, and what is left in TIME-WAIT
    #[arg(short, long)]
    all: bool,
    /// All that is known of each connection (round trips, windows, losses, what limits it)
    #[arg(short, long)]
    info: bool,
    /// The kernel's sockets, too, of every network namespace that can be entered
    #[arg(short, long)]
    kernel: bool,
    /// The processes that have each socket, with its descriptor there, or the thread of its engine,
    /// and those that have the other end
    #[arg(short, long)]
    processes: bool,
    /// The largest of this field first: recv_q, send_q, held_bytes or any that --info shows
    #[arg(long, value_name = "FIELD")]
    order: Option<String>,
    /// The first N alone
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    limit: Option<usize>,
    /// As one JSON object for each engine
    #[arg(long)]
    json: bool,
    /// As JSON, one object a line for each socket
    #[arg(long, conflicts_with = "json")]
    lines: bool,
}

/// The name that the kernel has in the place of an engine.
const KERNEL: &str = "kernel";

/// A socket, and where it is.
struct Socket {
    of: String,
    /// The process of an engine, and what is said of it behind its name.
    owner: Option<(u32, String)>,
    record: Record,
}

/// The fields that have a column.
const KEYS: [&str; 7] = ["id", "state", "recv_q", "send_q", "local", "remote", "held_bytes"];
const HEADS: [&str; 7] = ["id", "state", "recv-q", "send-q", "local", "remote", "held"];

/// Lists the sockets.
pub fn ss(arguments: &Ss) -> Result<ExitCode, Error> {
    let place = arguments.of.place();
    let (engine, words) = match arguments.words.split_first() {
        Some((first, rest)) if !begins_filter(first) => (Some(first.as_str()), rest),
        _ => (place.engine, &arguments.words[..]),
    };
    let place = Place { engine, ..place };
    let filter = Filter::parse(&words.join(" ")).map_err(Error::Refused)?;
    let (mut sockets, kernel) = (Vec::new(), kernel_sockets(arguments, place.from)?);
    let question = if arguments.all { "ss -a" } else { "ss" };
    let segments = match engines::meant(place) {
        Err(_) if arguments.kernel && engine.is_none() => Vec::new(),
        found => found?,
    };
    let several = segments.len() > 1;
    let mut failed = None;
    for segment in &segments {
        match ask_all(segment, question) {
            Ok(lines) => sockets.extend(of_engine(segment, lines, arguments.processes)),
            Err(error) if several => {
                say(format_args!("note: {}: {error}", engines::id(segment)));
                failed = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = failed.filter(|_| sockets.is_empty()) {
        return Err(error);
    }
    if arguments.kernel {
        sockets.extend(kernel.iter().map(|one| Socket {
            of: KERNEL.to_owned(),
            owner: None,
            record: one.clone(),
        }));
    }
    if arguments.processes {
        name_owners(&mut sockets, &kernel, place.from.is_some());
    }
    sockets.retain(|one| filter.takes(&one.record));
    if let Some(field) = &arguments.order {
        let key = match field.as_str() {
            "held" => "held_bytes",
            field => field,
        };
        sockets.sort_by_key(|one| Reverse(one.record.number(key).unwrap_or(0)));
    }
    sockets.truncate(arguments.limit.unwrap_or(usize::MAX));
    show(arguments, &segments, sockets)
}

/// Returns the sockets of an engine, with its process and its thread or without.
fn of_engine(
    segment: &Segment,
    lines: Vec<Record>,
    with_owner: bool,
) -> impl Iterator<Item = Socket> {
    let (of, process) = (engines::id(segment), segment.header().pid);
    let owner = with_owner.then(|| {
        let thread = ask_all(segment, "thread").ok();
        let thread = thread.and_then(|lines| lines.first()?.number("id"));
        let thread = thread.map_or_else(String::new, |thread| format!("thread={thread},"));
        (process, format!("({process},{thread}{of})"))
    });
    lines.into_iter().map(move |record| Socket { of: of.clone(), owner: owner.clone(), record })
}

/// Shows them: by engine, or all in one table where their order matters or the kernel's are among
/// them.
fn show(arguments: &Ss, segments: &[Segment], sockets: Vec<Socket>) -> Result<ExitCode, Error> {
    if arguments.lines {
        let line = |one: &Socket| {
            let mut line = object(&one.record);
            line["engine"] = Value::from(one.of.as_str());
            line
        };
        lines_of_json(sockets.iter().map(line))?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.kernel || arguments.order.is_some() {
        match arguments.json {
            true => {
                let of: Vec<&str> = sockets.iter().map(|one| one.of.as_str()).collect();
                let records: Vec<Record> = sockets.iter().map(|one| one.record.clone()).collect();
                let mut object = all("all", "sockets", &records);
                for (at, of) in of.into_iter().enumerate() {
                    object["sockets"][at]["engine"] = of.into();
                }
                out_json(object)?;
            }
            false => table(&sockets, arguments, true)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut by_engine: HashMap<String, Vec<Socket>> = HashMap::new();
    for one in sockets {
        by_engine.entry(one.of.clone()).or_default().push(one);
    }
    for id in segments.iter().map(engines::id) {
        let those = by_engine.remove(&id).unwrap_or_default();
        if arguments.json {
            let records: Vec<Record> = those.into_iter().map(|one| one.record).collect();
            out_json(all(&id, "sockets", &records))?;
            continue;
        }
        if segments.len() > 1 {
            out(&engines::heading(&id))?;
        }
        table(&those, arguments, false)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(sockets: &[Socket], arguments: &Ss, names_engine: bool) -> Result<(), Error> {
    let mut heads: Vec<&str> = HEADS.to_vec();
    let mut sides = vec![Left, Left, Right, Right, Left, Left, Right];
    if arguments.processes {
        heads.extend(["processes", "of the other end"]);
        sides.extend([Left, Left]);
    }
    if names_engine {
        heads.insert(0, "engine");
        sides.insert(0, Left);
    }
    let mut rows = vec![heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>()];
    rows.extend(sockets.iter().map(|one| {
        let mut cells: Vec<String> = KEYS.map(|key| shown(&one.record, key)).into();
        if arguments.processes {
            cells.extend(OWNERS.map(|key| shown(&one.record, key)));
        }
        if names_engine {
            cells.insert(0, one.of.clone());
        }
        cells
    }));
    let text = columns(&sides, &rows);
    if !arguments.info {
        return out(&text);
    }
    let none = Record::default();
    let records = std::iter::once(&none).chain(sockets.iter().map(|one| &one.record));
    let mut whole = String::new();
    for (line, socket) in text.lines().zip(records) {
        let is_more = |key: &str| !KEYS.contains(&key) && !OWNERS.contains(&key);
        let more = socket.fields.iter().filter(|(key, _)| is_more(key));
        let more: Vec<String> = more.map(|(key, value)| format!("{key}:{value}")).collect();
        whole += &format!("{line}\n");
        if !more.is_empty() {
            whole += &format!("    {}\n", more.join(" "));
        }
    }
    out(&whole)
}

/// Returns the kernel's sockets, where they are to be seen or may be other ends: those of now, or
/// of a snapshot.
fn kernel_sockets(arguments: &Ss, from: Option<&Path>) -> Result<Vec<Record>, Error> {
    match (arguments.kernel || arguments.processes, from) {
        (false, _) => Ok(Vec::new()),
        (true, Some(file)) => kernel::kept(file),
        (true, None) => kernel::sockets(arguments.processes),
    }
}

/// Adds to each socket of an engine its process and thread, and to all sockets the processes that
/// have the other end. A snapshot has no names of the processes of engines.
fn name_owners(sockets: &mut [Socket], kernel: &[Record], is_kept: bool) {
    let mut names = Names::default();
    for one in sockets.iter_mut() {
        if let Some((process, behind)) = &one.owner {
            let name = if is_kept { "-" } else { names.of(*process) };
            one.record.fields.push((OWNERS[0].to_owned(), format!("{name}{behind}")));
        }
    }
    let ends = |record: &Record| {
        let end = |key| record.get(key).map(str::to_owned);
        Some((end("local")?, end("remote")?))
    };
    // By both ends, of which one is an address of the kernel and the other of an engine.
    let all = kernel.iter().chain(sockets.iter().map(|one| &one.record));
    let owned = all.filter_map(|one| Some((ends(one)?, one.get(OWNERS[0])?.to_owned())));
    let by_ends: HashMap<(String, String), String> = owned.collect();
    for one in sockets {
        let other = ends(&one.record).and_then(|(local, remote)| by_ends.get(&(remote, local)));
        one.record.fields.extend(other.map(|other| (OWNERS[1].to_owned(), other.clone())));
    }
}
