//! `millstream ps`: the engines of this user.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millstream_live::{Segment, Snapshot};
use millstream_record::error::Error;
use serde_json::{Value, json};

use super::columns::Side::{Left, Right};
use super::columns::{bytes, columns, duration, row};
use super::engines;
use crate::output::{out, out_json, say};

/// Arguments of `ps`.
#[derive(Debug, Args)]
pub struct Ps {
    /// Look at what `millstream snapshot` has written to FILE, in place of engines that run
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// The columns of `ps`, for one engine.
const COLUMNS: [(&str, &str); 5] = [
    ("CONNS", "connections"),
    ("LISTEN", "listeners"),
    ("UDP", "udp_sockets"),
    ("RX PKTS", "rx_packets"),
    ("TX PKTS", "tx_packets"),
];

/// Lists them.
pub fn ps(arguments: &Ps) -> Result<ExitCode, Error> {
    let mut seen = Vec::new();
    for mut segment in engines::all(arguments.from.as_deref())? {
        match segment.read() {
            Ok(snapshot) => seen.push((segment, snapshot)),
            Err(damage) => say(format_args!("note: {}: {damage}", segment.path().display())),
        }
    }
    if arguments.json {
        let engines: Vec<Value> = seen.iter().map(|(one, now)| described(one, now)).collect();
        out_json(json!({ "engines": engines }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![row([
        "ID", "PID", "UP", "CONNS", "LISTEN", "UDP", "RX PKTS", "TX PKTS", "DROPS", "HELD",
        "PRESSURE",
    ])];
    for (segment, now) in &seen {
        let mut cells = vec![
            engines::id(segment),
            segment.header().pid.to_string(),
            duration(now.time_ns.saturating_sub(segment.header().began_ns)),
        ];
        cells.extend(COLUMNS.map(|(_, name)| number(now.total(name))));
        cells.push(number(dropped(now)));
        cells.push(now.total("memory_held_bytes").map_or_else(|| "-".into(), bytes));
        cells.push(pressure(now).to_owned());
        rows.push(cells);
    }
    let sides = [Left, Right, Right, Right, Right, Right, Right, Right, Right, Right, Left];
    out(&columns(&sides, &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn described(segment: &Segment, now: &Snapshot) -> Value {
    let header = segment.header();
    let mut engine = json!({
        "id": engines::id(segment),
        "name": header.name,
        "pid": header.pid,
        "number": header.number,
        "began_ns": header.began_ns,
        "published_ns": now.time_ns,
        "running": segment.is_running(),
        "path": segment.path(),
        "dropped": dropped(now),
        "memory_pressure": pressure(now),
    });
    for name in COLUMNS.map(|(_, name)| name).into_iter().chain(["memory_held_bytes"]) {
        engine[name] = json!(now.total(name));
    }
    engine
}

/// Returns a number as it is shown: a counter that an engine does not publish is not 0.
fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns the number of packets that were dropped, by the stack and by links.
pub(super) fn dropped(now: &Snapshot) -> Option<u64> {
    let parts = ["drops", "malformed", "link_drops"];
    parts.into_iter().filter_map(|name| now.total(name)).reduce(|one, other| one + other)
}

fn pressure(now: &Snapshot) -> &'static str {
    match now.total("memory_pressure") {
        Some(0) => "none",
        Some(1) => "pressure",
        Some(2) => "critical",
        _ => "-",
    }
}
