//! `millstream drops`: what was dropped, by reason.

use std::process::ExitCode;

use clap::Args;
use millstream_live::Snapshot;
use millstream_record::error::Error;
use serde_json::json;

use super::columns::Side::{Left, Right};
use super::columns::{columns, row};
use super::{Again, Which, engines, since};
use crate::output::{out, out_json};

/// For `drops --help`.
pub const HELP: &str = "\
Who dropped it: `stack` a packet that was well formed, `malformed` one that was not, a link's name one that the link lost;
`control` a client of the control socket.
docs/counters.md says what each reason means. With -i what came in each interval, and how much a second.";

/// Arguments of `drops`.
#[derive(Debug, Args)]
pub struct Drops {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    again: Again,
    /// Reasons by which nothing was dropped, too
    #[arg(long)]
    all: bool,
    /// As JSON, one object a line for each look
    #[arg(long)]
    json: bool,
}

/// The number of packets, or clients, that one reason has cost.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reason {
    by: String,
    /// The link's number, as two may have one name.
    link: Option<String>,
    reason: String,
    count: u64,
}

/// Returns all reasons.
fn reasons(now: &Snapshot) -> Vec<Reason> {
    let mut all = Vec::new();
    for (entry, values) in now.iter() {
        let (by, reason) = match entry.name.as_str() {
            "drops" => ("stack", entry.label("reason")),
            "malformed" => ("malformed", entry.label("reason")),
            "control_drops" => ("control", entry.label("reason")),
            "link_drops" => (entry.label("name").unwrap_or("link"), entry.label("cause")),
            _ => continue,
        };
        let reason = reason.unwrap_or("-").to_owned();
        let link = entry.label("link").map(str::to_owned);
        all.push(Reason { by: by.to_owned(), link, reason, count: values[0] });
    }
    all
}

/// Shows them.
pub fn drops(arguments: &Drops) -> Result<ExitCode, Error> {
    let segments = engines::meant(arguments.which.place())?;
    let several = segments.len() > 1;
    arguments.again.look(segments, |id, before, now| {
        let old = before.map(reasons);
        let mut all = reasons(now);
        if let Some(old) = &old {
            for one in &mut all {
                let is_same = |old: &&Reason| {
                    (&old.by, &old.link, &old.reason) == (&one.by, &one.link, &one.reason)
                };
                one.count = since(old.iter().find(is_same).map(|old| old.count), one.count);
            }
        }
        all.retain(|one| arguments.all || one.count != 0);
        let seconds = before.map(|old| now.time_ns.saturating_sub(old.time_ns) as f64 / 1e9);
        let rate =
            |count: u64| seconds.filter(|&length| length > 0.0).map(|length| count as f64 / length);
        if arguments.json {
            let rows = all.iter().map(|one| {
                json!({
                    "by": one.by, "link": one.link, "reason": one.reason, "count": one.count,
                    "per_s": rate(one.count),
                })
            });
            let rows: Vec<_> = rows.collect();
            return out_json(json!({ "engine": id, "time_ns": now.time_ns, "drops": rows }));
        }
        let mut rows = vec![row(["by", "reason", "count", "per s"])];
        for one in &all {
            let rate = rate(one.count).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
            rows.push(vec![one.by.clone(), one.reason.clone(), one.count.to_string(), rate]);
        }
        let mut text = columns(&[Left, Left, Right, Right], &rows);
        if all.is_empty() {
            text = "nothing was dropped\n".to_owned();
        }
        let heading = if several { engines::heading(id) } else { String::new() };
        out(&(heading + &text))
    })
}
