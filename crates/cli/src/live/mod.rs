//! Commands that look at engines which run: what they publish, and what they answer.

mod ask;
mod columns;
mod drops;
mod engines;
mod events;
mod filter;
mod flow_stages;
mod histogram;
mod http;
mod kernel;
mod metrics;
mod netstat;
mod netstat_log;
mod network;
mod ps;
mod snapshot;
mod sockets;
mod ss;
mod stages;
mod trace;
mod traced;

pub use drops::{Drops, HELP as DROPS_HELP, drops};
pub use events::{Events, HELP as EVENTS_HELP, events};
pub use metrics::{HELP as METRICS_HELP, Metrics, metrics};
pub use netstat::{HELP as NETSTAT_HELP, Netstat, netstat};
pub use network::{RouteTable, Timers, groups, links, neigh, pool, route, timers};
pub use ps::{Ps, ps};
pub use snapshot::{HELP as SNAPSHOT_HELP, Snapshot as KeepSnapshot, snapshot};
pub use sockets::{Census, HELP as SOCKETS_HELP, Queue, census, queue};
pub use ss::{HELP as SS_HELP, Ss, ss};
pub use stages::{HELP as STAGES_HELP, Stages, stages};
pub use trace::{HELP as TRACE_HELP, Trace, trace};

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use millstream_live::{Damage, Segment, Snapshot};
use millstream_record::error::Error;

use crate::values::{seconds, whole};

/// For `--help` of all of them.
pub const HELP: &str = "\
An engine is seen here when its program gives it a name (docs/live.md), and by the user alone whose program it is.
ENGINE is its name, its process, its number there, or the ID that `millstream ps` shows; where several are meant each is
shown below a line with its ID, as JSON in a line of its own.";

/// Which engines, where something else than an engine is named first.
#[derive(Debug, Args)]
pub struct Of {
    /// Name, process, number in its process, or ID of the engine [default: all]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Look at what `millstream snapshot` has written to FILE, in place of engines that run
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// Which engines.
#[derive(Debug, Args)]
pub struct Which {
    /// Name, process, number in its process, or ID of the engine [default: all]
    #[arg(value_name = "ENGINE", conflicts_with = "engine")]
    named: Option<String>,
    #[command(flatten)]
    of: Of,
}

/// The engines that are meant by name (`None`: all of them), and the file that they are in, where
/// they do not run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    pub engine: Option<&'a str>,
    pub from: Option<&'a Path>,
}

impl Of {
    /// Returns what the engines are named by, and where they are.
    pub fn place(&self) -> Place<'_> {
        Place { engine: self.engine.as_deref(), from: self.from.as_deref() }
    }
}

impl Which {
    /// Returns what the engines are named by, and where they are.
    pub fn place(&self) -> Place<'_> {
        let place = self.of.place();
        Place { engine: self.named.as_deref().or(place.engine), ..place }
    }
}

/// Arguments of a command that asks one engine, and takes no other option.
#[derive(Debug, Args)]
pub struct One {
    #[command(flatten)]
    which: Which,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// How often.
#[derive(Debug, Args)]
pub struct Again {
    /// Look again every SECONDS: what came since is shown
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<f64>,
    /// Look N times, every second where no interval is given [default: once; with an interval for
    /// ever]
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u64>)]
    pub count: Option<u64>,
}

/// The shortest interval: an engine publishes every 10 ms.
const INTERVAL_LEAST: Duration = Duration::from_millis(10);
/// The longest.
const INTERVAL_MOST: Duration = Duration::from_secs(86_400);

impl Again {
    /// Shows what is there of each engine, and then, as often as asked for, what it has become:
    /// `show` gets its ID, and the snapshot before, too. One that has ended is shown for the last
    /// time, and looking ends with the last one.
    fn look(
        &self,
        segments: Vec<Segment>,
        mut show: impl FnMut(&str, Option<&Snapshot>, &Snapshot) -> Result<(), Error>,
    ) -> Result<ExitCode, Error> {
        let interval = match self.interval {
            None => Duration::from_secs(1),
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|interval| (INTERVAL_LEAST..=INTERVAL_MOST).contains(interval))
                .ok_or_else(|| Error::Refused("an interval is 0.01 to 86400 seconds".into()))?,
        };
        // A snapshot does not change.
        let is_kept = segments.iter().any(|segment| segment.kept().is_some());
        let times = if is_kept { Some(1) } else { self.count };
        let times = times.unwrap_or(if self.interval.is_some() { u64::MAX } else { 1 });
        let mut looked: Vec<(Segment, Option<Snapshot>)> =
            segments.into_iter().map(|segment| (segment, None)).collect();
        for time in 0..times {
            if time != 0 {
                sleep(interval);
            }
            let mut left = Vec::new();
            let mut ended = String::new();
            for (mut segment, before) in looked {
                let runs = segment.is_running();
                let now = segment.read().map_err(|damage| unreadable(&segment, &damage))?;
                show(&engines::id(&segment), before.as_ref(), &now)?;
                match runs {
                    true => left.push((segment, Some(now))),
                    false => ended = format!("the engine {} has ended", engines::id(&segment)),
                }
            }
            looked = left;
            if looked.is_empty() {
                return Err(if time == 0 { Error::Refused(ended) } else { Error::Worker(ended) });
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns a segment that cannot be read, as an error of the command.
fn unreadable(segment: &Segment, damage: &Damage) -> Error {
    Error::Refused(format!("{}: {damage}", segment.path().display()))
}

/// Returns by how much a counter has grown; an engine of the same file never counts down.
fn since(before: Option<u64>, now: u64) -> u64 {
    now.saturating_sub(before.unwrap_or(0))
}
