//! `millstream neigh`, `route`, `groups`, `timers`, `links` and `pool`: what a living engine
//! answers beside its sockets.

use std::process::ExitCode;

use clap::Args;
use millstream_live::Record;
use millstream_record::error::Error;
use serde_json::{Map, Value, json};

use super::ask::{ask, ask_all, object, shown};
use super::columns::Side::{Left, Right};
use super::columns::{columns, duration, row};
use super::{Of, One, Which, engines};
use crate::output::{out, out_json};

/// Arguments of `route`.
#[derive(Debug, Args)]
pub struct RouteTable {
    /// Routes inside this prefix alone (10.0.0.0/8)
    #[arg(value_name = "PREFIX", conflicts_with = "get")]
    prefix: Option<String>,
    /// The route that packets to this address take, and the neighbour that it leads to
    #[arg(long, value_name = "ADDRESS")]
    get: Option<String>,
    #[command(flatten)]
    of: Of,
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
    answer(&arguments.which, arguments.json, "neigh", neighbors)
}

fn neighbors(lines: &[Record]) -> Result<(), Error> {
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
    lines.iter().filter(|line| line.kind == "neighbors").try_for_each(|line| out(&plain(line)))
}

/// Shows the routes. There may be a million: each is written as it comes.
pub fn route(arguments: &RouteTable) -> Result<ExitCode, Error> {
    let question = match (&arguments.get, &arguments.prefix) {
        (Some(address), _) => format!("route get {address}"),
        (None, Some(prefix)) => format!("route {prefix}"),
        (None, None) => "route".to_owned(),
    };
    let json = arguments.json;
    engines::each(arguments.of.place(), json, |segment| {
        let id = engines::id(segment);
        ask(segment, &question, |route| {
            if !json {
                return out(&route_line(&route));
            }
            let mut object = object(&route);
            object["engine"] = id.as_str().into();
            out_json(object)
        })
    })
}

fn route_line(route: &Record) -> String {
    let to = route.get("prefix").or(route.get("destination")).unwrap_or("-");
    let words = [("via", "gateway"), ("dev", "name"), ("lladdr", "lladdr"), ("mtu", "mtu_bytes")];
    let words = words.into_iter().chain([("metric", "metric")]);
    let words = words.filter_map(|(word, key)| Some(format!(" {word} {}", route.get(key)?)));
    let others =
        if route.number("place").is_some_and(|place| place != 0) { " (not in force)" } else { "" };
    let kind = route.get("type").map_or_else(String::new, |kind| format!("{kind} "));
    format!("{kind}{to}{}{others}\n", words.collect::<String>())
}

/// Shows the multicast groups.
pub fn groups(arguments: &One) -> Result<ExitCode, Error> {
    answer(&arguments.which, arguments.json, "groups", |lines| {
        let keys = ["group", "name", "socket", "mode", "sources"];
        let mut rows = vec![row(["group", "link", "socket", "mode", "sources"])];
        rows.extend(lines.iter().map(|line| keys.map(|key| shown(line, key)).into()));
        out(&columns(&[Left; 5], &rows))
    })
}

/// Shows the timers.
pub fn timers(arguments: &Timers) -> Result<ExitCode, Error> {
    let question = if arguments.verbose { "timers -v" } else { "timers" };
    answer(&arguments.which, arguments.json, question, |lines| armed(lines, arguments.verbose))
}

fn armed(lines: &[Record], verbose: bool) -> Result<(), Error> {
    let of = |kind: &'static str| lines.iter().filter(move |line| line.kind == kind);
    let mut rows = vec![row(["kind", "armed", "first due in"])];
    rows.extend(
        of("timers")
            .map(|line| vec![shown(line, "kind"), shown(line, "armed"), time(line, "first_us")]),
    );
    out(&columns(&[Left, Right, Right], &rows))?;
    if !verbose {
        return Ok(());
    }
    let mut rows = vec![row(["kind", "of", "due in"])];
    rows.extend(
        of("timer").map(|line| vec![shown(line, "kind"), shown(line, "of"), time(line, "due_us")]),
    );
    out(&format!("\n{}", columns(&[Left, Left, Right], &rows)))
}

/// Shows the links: a table of all, one of every further value with a column for each of them, and
/// their prefixes.
pub fn links(arguments: &One) -> Result<ExitCode, Error> {
    answer(&arguments.which, arguments.json, "links", |lines| {
        const KEYS: [&str; 10] = [
            "name",
            "state",
            "mtu_bytes",
            "rx_ring",
            "tx_ring",
            "queued_packets",
            "rx_packets",
            "rx_bytes",
            "tx_packets",
            "tx_bytes",
        ];
        const HEADS: [&str; 11] = [
            "link",
            "state",
            "mtu",
            "rx ring",
            "tx ring",
            "queued",
            "rx packets",
            "rx bytes",
            "tx packets",
            "tx bytes",
            "drops",
        ];
        let of = |kind: &'static str| lines.iter().filter(move |line| line.kind == kind);
        let (mut rows, mut further) = (vec![row(HEADS)], Vec::<&str>::new());
        for line in of("link") {
            let mut cells: Vec<String> = KEYS.map(|key| shown(line, key)).into();
            let drops = line.fields.iter().filter(|(key, _)| key.starts_with("drop_"));
            let drops: u64 = drops.filter_map(|(_, count)| count.parse::<u64>().ok()).sum();
            cells.push(drops.to_string());
            rows.push(cells);
            for (key, _) in line.fields.iter().filter(|(key, _)| key != "link") {
                if !KEYS.contains(&key.as_str()) && !further.contains(&key.as_str()) {
                    further.push(key);
                }
            }
        }
        let sides = [&[Left, Left][..], &[Right; 9]].concat();
        out(&columns(&sides, &rows))?;
        let each = |first: &str, cell: &dyn Fn(&Record) -> String| {
            std::iter::once(first.to_owned()).chain(of("link").map(cell)).collect::<Vec<_>>()
        };
        let mut values = vec![each("value", &|line| shown(line, "name"))];
        values.extend(further.into_iter().map(|key| {
            // A link names the causes alone by which it has dropped something.
            let is_counted = key.starts_with("drop_");
            each(key, &|line| match line.get(key) {
                None if is_counted => "0".to_owned(),
                _ => shown(line, key),
            })
        }));
        let sides = [vec![Left], vec![Right; of("link").count()]].concat();
        out(&format!("\n{}", columns(&sides, &values)))?;
        of("prefix").try_for_each(|line| out(&plain(line)))
    })
}

/// Shows the pool, which threads have some of it at hand, and who holds how much of it.
pub fn pool(arguments: &One) -> Result<ExitCode, Error> {
    answer(&arguments.which, arguments.json, "pool", |lines| {
        let of = |kind: &'static str| lines.iter().filter(move |line| line.kind == kind);
        let whole = of("pool").flat_map(|line| &line.fields);
        let whole: Vec<_> = whole.map(|(key, value)| row([key, value])).collect();
        out(&columns(&[Left, Right], &whole))?;
        let threads = ["name", "frames", "views", "blocks", "exchanges"];
        let holders = ["name", "queues", "payload_bytes", "held_bytes"];
        for (kind, keys) in [("thread", &threads[..]), ("holder", &holders)] {
            let head = [&[kind], &keys[1..]].concat();
            let mut rows: Vec<Vec<String>> = vec![head.iter().map(|one| one.to_string()).collect()];
            rows.extend(of(kind).map(|line| keys.iter().map(|key| shown(line, key)).collect()));
            let sides = [&[Left][..], &vec![Right; keys.len() - 1]].concat();
            out(&format!("\n{}", columns(&sides, &rows)))?;
        }
        Ok(())
    })
}

/// Asks each engine, and has `show` write the lines of its answer, unless they are wanted as JSON.
pub fn answer(
    which: &Which,
    json: bool,
    question: &str,
    mut show: impl FnMut(&[Record]) -> Result<(), Error>,
) -> Result<ExitCode, Error> {
    engines::each(which.place(), json, |segment| {
        let lines = ask_all(segment, question)?;
        if !json {
            return show(&lines);
        }
        let name = question.split(' ').next().unwrap_or(question);
        out_json(all(&engines::id(segment), name, &lines))
    })
}

/// Returns an engine and the lines of its answer as one object.
pub fn all(engine: &str, name: &str, lines: &[Record]) -> Value {
    let mut answer = Map::new();
    answer.insert("engine".into(), engine.into());
    answer.insert(name.into(), json!(lines.iter().map(object).collect::<Vec<_>>()));
    Value::Object(answer)
}

/// Returns a line with all its fields.
fn plain(line: &Record) -> String {
    let fields = line.fields.iter();
    let fields: Vec<String> = fields.map(|(key, value)| format!(" {key} {value}")).collect();
    format!("{}{}\n", line.kind, fields.concat())
}

/// Returns a time in microseconds, for people.
fn time(line: &Record, key: &str) -> String {
    let us = line.number(key);
    us.map_or_else(|| "-".to_owned(), |us| duration(us.saturating_mul(1000)))
}
