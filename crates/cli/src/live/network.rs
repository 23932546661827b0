//! `millstream neigh`, `route`, `groups`, `timers`, `links` and `pool`: what a living engine answers beside its sockets.

use std::process::ExitCode;

use clap::Args;
use millstream::live::Record;
use millstream_lab::error::Error;
use serde_json::{Map, Value, json};

use super::ask::{ask, ask_all, object, shown};
use super::columns::Side::{Left, Right};
use super::columns::{columns, duration, row};
use super::{One, Which, engines};
use crate::output::out;

/// Arguments of `route`.
#[derive(Debug, Args)]
pub struct RouteTable {
    /// Routes inside this prefix alone (10.0.0.0/8)
    #[arg(value_name = "PREFIX", conflicts_with = "get")]
    prefix: Option<String>,
    /// The route that packets to this address take, and the neighbour that it leads to
    #[arg(long, value_name = "ADDRESS")]
    get: Option<String>,
    /// The engine [default: the only one]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// As JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Arguments of `timers`.
#[derive(Debug, Args)]
pub struct Timers {
    #[command(flatten)]
    which: Which,
    /// Each timer: its kind, what it is of, and when it is due
    #[arg(short, long)]
    verbose: bool,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows the neighbours.
pub fn neigh(arguments: &One) -> Result<ExitCode, Error> {
    let Some(lines) = answer(arguments, "neigh")? else { return Ok(ExitCode::SUCCESS) };
    let heads =
        ["address", "link", "lladdr", "state", "used", "confirmed", "probes", "waiting", "held"];
    let mut rows = vec![row(heads)];
    rows.extend(lines.iter().filter(|line| line.kind == "neighbor").map(|one| {
        let mut cells = ["address", "name", "lladdr", "state"].map(|key| shown(one, key)).to_vec();
        cells.extend(["used_us", "confirmed_us"].map(|key| time(one, key)));
        cells.extend(["probes", "pending_packets", "pending_bytes"].map(|key| shown(one, key)));
        cells
    }));
    let sides = [Left, Left, Left, Left, Right, Right, Right, Right, Right];
    out(&columns(&sides, &rows))?;
    lines.iter().filter(|line| line.kind == "neighbors").try_for_each(|line| out(&plain(line)))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the routes. There may be a million: each is written as it comes.
pub fn route(arguments: &RouteTable) -> Result<ExitCode, Error> {
    let segment = engines::one(arguments.engine.as_deref())?;
    let question = match (&arguments.get, &arguments.prefix) {
        (Some(address), _) => format!("route get {address}"),
        (None, Some(prefix)) => format!("route {prefix}"),
        (None, None) => "route".to_owned(),
    };
    ask(&segment, &question, |route| {
        if arguments.json {
            return out(&format!("{}\n", object(&route)));
        }
        let to = route.get("prefix").or(route.get("destination")).unwrap_or("-");
        let words =
            [("via", "gateway"), ("dev", "name"), ("lladdr", "lladdr"), ("mtu", "mtu_bytes")];
        let words = words.into_iter().chain([("metric", "metric")]);
        let words = words.filter_map(|(word, key)| Some(format!(" {word} {}", route.get(key)?)));
        let others = if route.number("place").is_some_and(|place| place != 0) {
            " (not in force)"
        } else {
            ""
        };
        let kind = route.get("type").map_or_else(String::new, |kind| format!("{kind} "));
        out(&format!("{kind}{to}{}{others}\n", words.collect::<String>()))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the multicast groups.
pub fn groups(arguments: &One) -> Result<ExitCode, Error> {
    let Some(lines) = answer(arguments, "groups")? else { return Ok(ExitCode::SUCCESS) };
    let keys = ["group", "name", "socket", "mode", "sources"];
    let mut rows = vec![row(["group", "link", "socket", "mode", "sources"])];
    rows.extend(lines.iter().map(|line| keys.map(|key| shown(line, key)).into()));
    out(&columns(&[Left; 5], &rows))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the timers.
pub fn timers(arguments: &Timers) -> Result<ExitCode, Error> {
    let segment = engines::one(arguments.which.engine.as_deref())?;
    let question = if arguments.verbose { "timers -v" } else { "timers" };
    let lines = ask_all(&segment, question)?;
    if arguments.json {
        out(&format!("{}\n", all(&engines::id(&segment), "timers", &lines)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let of = |kind: &'static str| lines.iter().filter(move |line| line.kind == kind);
    let mut rows = vec![row(["kind", "armed", "first due in"])];
    rows.extend(
        of("timers")
            .map(|line| vec![shown(line, "kind"), shown(line, "armed"), time(line, "first_us")]),
    );
    out(&columns(&[Left, Right, Right], &rows))?;
    if !arguments.verbose {
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![row(["kind", "of", "due in"])];
    rows.extend(
        of("timer").map(|line| vec![shown(line, "kind"), shown(line, "of"), time(line, "due_us")]),
    );
    out(&format!("\n{}", columns(&[Left, Left, Right], &rows)))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the links.
pub fn links(arguments: &One) -> Result<ExitCode, Error> {
    listed(arguments, "links")
}

/// Shows the pool, and who holds how much of it.
pub fn pool(arguments: &One) -> Result<ExitCode, Error> {
    listed(arguments, "pool")
}

/// Each line of an answer with all its fields, those of 0 left out.
fn listed(arguments: &One, question: &str) -> Result<ExitCode, Error> {
    let Some(lines) = answer(arguments, question)? else { return Ok(ExitCode::SUCCESS) };
    lines.iter().try_for_each(|line| out(&plain(line)))?;
    Ok(ExitCode::SUCCESS)
}

/// The lines of an answer; `None` where they were written as JSON.
fn answer(arguments: &One, question: &str) -> Result<Option<Vec<Record>>, Error> {
    let segment = engines::one(arguments.which.engine.as_deref())?;
    let lines = ask_all(&segment, question)?;
    if arguments.json {
        out(&format!("{}\n", all(&engines::id(&segment), question, &lines)))?;
        return Ok(None);
    }
    Ok(Some(lines))
}

/// An engine and the lines of its answer as one object.
pub fn all(engine: &str, name: &str, lines: &[Record]) -> Value {
    let mut answer = Map::new();
    answer.insert("engine".into(), engine.into());
    answer.insert(name.into(), json!(lines.iter().map(object).collect::<Vec<_>>()));
    Value::Object(answer)
}

/// A line with all its fields, those of 0 left out.
fn plain(line: &Record) -> String {
    let fields = line.fields.iter().filter(|(_, value)| value != "0");
    let fields: Vec<String> = fields.map(|(key, value)| format!(" {key} {value}")).collect();
    format!("{}{}\n", line.kind, fields.concat())
}

/// A time in microseconds, for people.
fn time(line: &Record, key: &str) -> String {
    let us = line.number(key);
    us.map_or_else(|| "-".to_owned(), |us| duration(us.saturating_mul(1000)))
}
