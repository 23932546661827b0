//! `millstream events`: what happens to one connection, as qlog.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use millstream_live::{Record, Segment};
use millstream_record::error::Error;
use serde_json::{Map, Value, json};

use super::ask::{ask, has_socket};
use super::{Of, engines, unreadable};
use crate::output::{out, say};
use crate::values::seconds;

/// For `events --help`.
pub const HELP: &str = "\
One JSON object a line, in the manner of qlog 0.3 (NDJSON): changes of state, what the congestion control reckons with, losses,
time-outs, recoveries, marks, drops. Events that qlog does not have are named `tcp:`. Times are milliseconds since 1970. The
connection is watched from the first question on; what happened before is not known. docs/trace.md describes each event.";

/// Interval at which the engine is asked; it keeps 1,024 events of a connection.
const INTERVAL: Duration = Duration::from_millis(50);
/// The longest that is waited for events.
const SECONDS_MOST: f64 = 86_400.0;

/// Arguments of `events`.
#[derive(Debug, Args)]
pub struct Events {
    /// The connection, as `millstream ss` names it
    id: String,
    #[command(flatten)]
    of: Of,
    /// Watch it for SECONDS
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    seconds: f64,
    /// Watch it until it is gone
    #[arg(short, long, conflicts_with = "seconds")]
    follow: bool,
}

/// Writes the events.
pub fn events(arguments: &Events) -> Result<ExitCode, Error> {
    if !(0.0..=SECONDS_MOST).contains(&arguments.seconds) {
        return Err(Error::Refused(format!("--seconds is 0 to {SECONDS_MOST}")));
    }
    let mut segment =
        engines::one_that(arguments.of.place(), |one| has_socket(one, &arguments.id))?;
    let now = segment.read().map_err(|damage| unreadable(&segment, &damage))?;
    let mut watch = Watch {
        id: &arguments.id,
        next: 1,
        clock_begins_ns: now.time_ns.saturating_sub(now.engine_ns),
        lost: 0,
    };
    let until = Instant::now() + Duration::from_secs_f64(arguments.seconds);
    let (mut goes_on, first) = watch.ask(&segment)?;
    out(&format!("{}\n", header(&engines::id(&segment), &arguments.id, &first.end)))?;
    first.write()?;
    while goes_on && (arguments.follow || Instant::now() < until) {
        sleep(INTERVAL);
        let (more, answer) = watch.ask(&segment)?;
        answer.write()?;
        goes_on = more;
    }
    if watch.lost != 0 {
        say(format_args!("{} events were not asked for in time", watch.lost));
    }
    Ok(ExitCode::SUCCESS)
}

/// A connection that is watched.
struct Watch<'a> {
    id: &'a str,
    next: u64,
    /// When the engine's clock was 0, in ns since 1970.
    clock_begins_ns: u64,
    lost: u64,
}

/// The answer of an engine.
#[derive(Default)]
struct Answer {
    events: Vec<Value>,
    end: Record,
}

impl Answer {
    fn write(&self) -> Result<(), Error> {
        let lines: Vec<String> = self.events.iter().map(|event| format!("{event}\n")).collect();
        out(&lines.concat())
    }
}

impl Watch<'_> {
    /// Asks the engine for the events since the last answer. The flag says whether the connection
    /// is still there.
    fn ask(&mut self, segment: &Segment) -> Result<(bool, Answer), Error> {
        let mut answer = Answer::default();
        let begins = self.clock_begins_ns;
        ask(segment, &format!("events {} {}", self.id, self.next), |line| {
            match line.kind.as_str() {
                "event" => answer.events.push(event(&line, begins)),
                _ => answer.end = line,
            }
            Ok(())
        })?;
        self.next = answer.end.number("next").unwrap_or(self.next);
        self.lost += answer.end.number("lost").unwrap_or(0);
        Ok((answer.end.get("local").is_some(), answer))
    }
}

/// Returns the first line, which names the connection of the events.
fn header(engine: &str, id: &str, end: &Record) -> Value {
    let get = |key| end.get(key).unwrap_or("-");
    json!({
        "qlog_format": "NDJSON",
        "qlog_version": "0.3",
        "title": format!("millstream {engine} {id}"),
        "trace": {
            "title": format!("{} {}", get("local"), get("remote")),
            "vantage_point": { "name": engine, "type": "unknown" },
            "common_fields": {
                "protocol_type": ["TCP"],
                "time_format": "absolute",
                "group_id": id,
                "congestion": get("congestion"),
            },
        },
    })
}

/// Returns one event, by the clock of the host.
fn event(line: &Record, clock_begins_ns: u64) -> Value {
    let name = line.get("name").unwrap_or("-");
    let ns = clock_begins_ns.saturating_add(line.number("time_ns").unwrap_or(0));
    let data = match (name, line.get("trigger")) {
        ("recovery:loss_timer_updated", Some(trigger)) => {
            let timer = trigger.trim_end_matches("_expired");
            json!({ "event_type": "expired", "timer_type": timer, "count": line.number("count") })
        }
        _ => data(line),
    };
    json!({ "time": ns as f64 / 1e6, "name": name, "data": data })
}

/// Returns the fields of an event in the units of qlog: milliseconds, and bits a second.
fn data(line: &Record) -> Value {
    let own = ["number", "time_ns", "name"];
    let fields = line.fields.iter().filter(|(key, _)| !own.contains(&key.as_str()));
    let data: Map<String, Value> = fields.map(|(key, text)| in_units(key, text)).collect();
    Value::Object(data)
}

fn in_units(key: &str, text: &str) -> (String, Value) {
    match (key, text.parse::<u64>()) {
        (_, Err(_)) => (key.to_owned(), text.into()),
        ("pacing_rate", Ok(bytes)) => (key.to_owned(), bytes.saturating_mul(8).into()),
        (_, Ok(number)) => match key.strip_suffix("_us") {
            Some(key) => (key.to_owned(), (number as f64 / 1000.0).into()),
            None => (key.to_owned(), number.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_in_the_units_of_qlog() {
        let of = |line: &str| event(&Record::parse(line), 1_000_000_000);
        let metrics = of("event number=1 time_ns=2500000 name=recovery:metrics_updated \
             congestion_window=14600 pacing_rate=1000 smoothed_rtt_us=1500");
        assert_eq!(metrics["time"], 1002.5);
        assert_eq!(metrics["data"]["smoothed_rtt"], 1.5);
        assert_eq!(metrics["data"]["pacing_rate"], 8000);
        assert_eq!(metrics["data"]["congestion_window"], 14_600);
        assert!(metrics["data"].get("number").is_none());
        let timer = of("event name=recovery:loss_timer_updated trigger=rto_expired count=1");
        assert_eq!(
            timer["data"],
            json!({"event_type": "expired", "timer_type": "rto", "count": 1})
        );
        let state = of("event name=connectivity:connection_state_updated old=ESTAB new=CLOSE-WAIT");
        assert_eq!(state["data"], json!({ "old": "ESTAB", "new": "CLOSE-WAIT" }));
    }
}
