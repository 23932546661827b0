//! `millstream netstat`: packets and errors by link, in the manner of `netstat -ni`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millstream_live::{Segment, Snapshot};
use millstream_record::error::Error;
use serde_json::{Value, json};

use super::columns::Side::{Left, Right};
use super::columns::{columns, row};
use super::netstat_log::{Log, bursts};
use super::ps::dropped;
use super::{Again, Which, engines, since};
use crate::output::{out, out_json};

/// For `netstat --help`.
pub const HELP: &str = "\
With -i each line is one interval, as of `netstat -ni 1`: on the left one link (--link, else the first), on the right all.
The first line is what was counted since the engine began. A super-segment counts as one packet. `errs` are packets that
the link lost or could not use (`millstream drops` has them by cause); `drops` is what the stack itself dropped.";

/// Arguments of `netstat`.
#[derive(Debug, Args)]
pub struct Netstat {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    again: Again,
    /// The link to the left of the total
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Add each look to FILE, too, as a line of JSON: for hours
    #[arg(long, value_name = "FILE", requires = "interval")]
    log: Option<PathBuf>,
    /// Show the bursts and lulls in FILE, which --log has written, against its median
    #[arg(long, value_name = "FILE", conflicts_with_all = ["log", "interval", "from"])]
    bursts: Option<PathBuf>,
    /// As JSON, one object a line for each look
    #[arg(long, conflicts_with_all = ["log", "bursts"])]
    json: bool,
}

/// Lines between two headings.
const LINES: u64 = 20;

/// Causes by which a packet is lost that a link has received or was to receive; by all others one
/// that was to be sent.
const RECEIVED: [&str; 9] = [
    "pool_exhausted",
    "too_short",
    "virtio_truncated",
    "virtio_unknown_segmentation",
    "virtio_zero_segment",
    "virtio_checksum_range",
    "truncated",
    "overrun",
    "fill_empty",
];

/// The counters of a link that `netstat` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Its number and its name.
    link: (String, String),
    /// Packets and errors received, packets and errors sent.
    counts: [u64; 4],
}

impl Row {
    fn since(&self, before: Option<&Self>) -> Self {
        let grown = |at| since(before.map(|row| row.counts[at]), self.counts[at]);
        Self { link: self.link.clone(), counts: std::array::from_fn(grown) }
    }

    fn json(&self) -> Value {
        let [rx_packets, rx_errors, tx_packets, tx_errors] = self.counts;
        json!({
            "link": self.link.0, "name": self.link.1, "rx_packets": rx_packets, "rx_errors": rx_errors,
            "tx_packets": tx_packets, "tx_errors": tx_errors,
        })
    }
}

/// Returns the links of an engine.
fn links(now: &Snapshot) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (entry, values) in now.iter() {
        let (Some(link), Some(name)) = (entry.label("link"), entry.label("name")) else { continue };
        let at = rows.iter().position(|row| row.link.0 == link).unwrap_or_else(|| {
            rows.push(Row { link: (link.into(), name.into()), counts: [0; 4] });
            rows.len() - 1
        });
        let [rx_packets, rx_errors, tx_packets, tx_errors] = &mut rows[at].counts;
        match (entry.name.as_str(), entry.label("cause")) {
            ("link_rx_packets", _) => *rx_packets = values[0],
            ("link_tx_packets", _) => *tx_packets = values[0],
            ("link_drops", Some(cause)) if RECEIVED.contains(&cause) => *rx_errors += values[0],
            ("link_drops", _) => *tx_errors += values[0],
            _ => {}
        }
    }
    rows
}

/// Returns what came since: by link, of all links, and what the stack dropped.
fn grown(before: Option<&Snapshot>, now: &Snapshot) -> (Vec<Row>, Row, u64) {
    let old = before.map(links).unwrap_or_default();
    let of = |row: &Row| row.since(old.iter().find(|old| old.link == row.link));
    let rows: Vec<Row> = links(now).iter().map(of).collect();
    let sum = |at: usize| rows.iter().map(|row| row.counts[at]).sum();
    let total = Row { link: (String::new(), "total".into()), counts: std::array::from_fn(sum) };
    let by_stack = |now: &Snapshot| {
        let by_links = now.total("link_drops").unwrap_or(0);
        dropped(now).unwrap_or(0).saturating_sub(by_links)
    };
    (rows, total, since(before.map(by_stack), by_stack(now)))
}

/// Shows them.
pub fn netstat(arguments: &Netstat) -> Result<ExitCode, Error> {
    if let Some(path) = &arguments.bursts {
        out(&bursts(path)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let segments = engines::meant(arguments.which.place())?;
    let several = segments.len() > 1;
    if arguments.json {
        return arguments
            .again
            .look(segments, |id, before, now| out_json(as_json(id, before, now)));
    }
    if arguments.again.interval.is_none() && arguments.again.count.is_none() {
        return arguments.again.look(segments, |id, _, now| {
            let heading = if several { engines::heading(id) } else { String::new() };
            out(&(heading + &table(now)))
        });
    }
    intervals(arguments, segments)
}

/// Returns a look as an object. The first one counts since the engine began, for no `seconds`.
fn as_json(id: &str, before: Option<&Snapshot>, now: &Snapshot) -> Value {
    let (rows, total, drops) = grown(before, now);
    let seconds = before.map(|before| now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9);
    let rows: Vec<Value> = rows.iter().map(Row::json).collect();
    json!({
        "engine": id, "time_ns": now.time_ns, "seconds": seconds, "links": rows, "total": total.json(),
        "drops": drops,
    })
}

/// Returns a line for each link, and one for all.
fn table(now: &Snapshot) -> String {
    let (rows, total, drops) = grown(None, now);
    let mut lines = vec![row(["link", "rx packets", "errs", "tx packets", "errs", "drops"])];
    for one in rows.iter().chain([&total]) {
        let mut cells = vec![one.link.1.clone()];
        cells.extend(one.counts.map(|number| number.to_string()));
        cells.push(String::new());
        lines.push(cells);
    }
    if let Some(cell) = lines.last_mut().and_then(|row| row.last_mut()) {
        *cell = drops.to_string();
    }
    columns(&[Left, Right, Right, Right, Right, Right], &lines)
}

/// Prints a line for each interval; of several engines one for each, with its ID.
fn intervals(arguments: &Netstat, segments: Vec<Segment>) -> Result<ExitCode, Error> {
    let (mut line, several) = (0, segments.len() > 1);
    let mut log = arguments.log.as_deref().map(Log::open).transpose()?;
    arguments.again.look(segments, |id, before, now| {
        log.as_mut().map_or(Ok(()), |log| log.add(as_json(id, before, now)))?;
        let (rows, total, drops) = grown(before, now);
        let wanted = arguments.link.as_deref();
        let shown = rows.iter().find(|row| wanted.is_none_or(|name| row.link.1 == name));
        let Some(shown) = shown.or((wanted.is_none()).then_some(&total)) else {
            return Err(Error::Refused(format!("no link '{}'", wanted.unwrap_or_default())));
        };
        let mut text = String::new();
        if line % LINES == 0 {
            let name = format!("input ({}) output", shown.link.1);
            text += &format!("{name:^35}   {:^35}\n", "input (total) output");
            let half = format!("{:>10} {:>6} {:>10} {:>6}", "packets", "errs", "packets", "errs");
            text += &format!("{half}   {half} {:>7}\n", "drops");
        }
        line += 1;
        let half = |row: &Row| {
            let [rx, rx_errors, tx, tx_errors] = row.counts;
            format!("{rx:>10} {rx_errors:>6} {tx:>10} {tx_errors:>6}")
        };
        text += &format!("{}   {} {drops:>7}", half(shown), half(&total));
        text += &if several { format!("  {id}\n") } else { "\n".to_owned() };
        out(&text)
    })
}
