//! `millstream trace`: the ways of sampled packets, for a viewer of traces.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millstream::trace::Direction;
use millstream_record::error::Error;
use serde_json::{Value, json};

use super::traced::{Collected, Sampling, Traced};
use super::{Which, engines};
use crate::output::{say, write_whole};

/// For `trace --help`.
pub const HELP: &str = "\
Open the file at https://ui.perfetto.dev, or in chrome://tracing. Each flow has a track for each way, with a slice for each
sampled packet and in it one for each stage; packets that overlap are below each other. Times are those of the engine's
clock. docs/trace.md says what each stage is, and what the sampling costs.";

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct Trace {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    sampling: Sampling,
    /// The file: trace events as JSON; `-` is the standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Writes the trace.
pub fn trace(arguments: &Trace) -> Result<ExitCode, Error> {
    let segment = engines::one(arguments.which.place())?;
    let all = arguments.sampling.collect(&segment)?;
    let text = format!("{}\n", events(&engines::id(&segment), &all));
    if arguments.output.as_os_str() == "-" {
        crate::output::out(&text)?;
    } else {
        write_whole(&arguments.output, text.as_bytes())?;
    }
    let (count, sample) = (all.traces.len(), all.sample);
    let mut said = format!("{count} packets, one in {sample} sampled");
    if all.lost != 0 {
        said += &format!("; {} more were not asked for in time: sample fewer", all.lost);
    }
    say(format_args!("{said}"));
    Ok(ExitCode::SUCCESS)
}

/// The tracks of a viewer: a process for each flow, and in it a thread for each way, or several
/// where packets overlap.
#[derive(Default)]
struct Tracks {
    flows: BTreeMap<String, usize>,
    /// When the last slice of each track ends, by flow, way, and place below each other.
    ends: BTreeMap<(usize, &'static str), Vec<u64>>,
    events: Vec<Value>,
}

/// Tracks of one flow and way at most; a viewer shows no more of use.
const TRACKS: usize = 1000;

/// Returns the traces in the trace-event format
/// (<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>).
fn events(engine: &str, all: &Collected) -> Value {
    let mut traces: Vec<&Traced> = all.traces.iter().collect();
    traces.sort_by_key(|trace| trace.span());
    let mut tracks = Tracks::default();
    for trace in traces {
        tracks.add(trace);
    }
    json!({
        "displayTimeUnit": "ns",
        "otherData": { "engine": engine, "sample": all.sample, "lost": all.lost },
        "traceEvents": tracks.events,
    })
}

impl Tracks {
    fn add(&mut self, trace: &Traced) {
        let flow = self.flow(trace);
        let (begin, end) = trace.span();
        let Some(thread) = self.thread(flow, way_of(trace).name(), (begin, end)) else { return };
        let get = |key| trace.record.get(key).unwrap_or("-");
        let slice = |name: &str, (begin, end): (u64, u64), more: Value| {
            json!({
                "ph": "X", "cat": get("transport"), "name": name, "pid": flow, "tid": thread,
                "ts": us(begin), "dur": us(end - begin), "args": more,
            })
        };
        let more = json!({
            "number": get("number"), "bytes": get("bytes"), "position": get("position"),
            "end": get("end"),
        });
        let name = format!("{} {} B", get("transport"), get("bytes"));
        self.events.push(slice(&name, (begin, end), more));
        for (point, begin, end) in trace.stages() {
            self.events.push(slice(point.stage(), (begin, end), json!({ "until": point.name() })));
        }
    }

    /// Returns the number of its flow, which is named where it is new.
    fn flow(&mut self, trace: &Traced) -> usize {
        let get = |key| trace.record.get(key).unwrap_or("-");
        let name = format!("{} {} – {}", get("id"), get("local"), get("remote"));
        let next = self.flows.len() + 1;
        let flow = *self.flows.entry(name.clone()).or_insert(next);
        if flow == next {
            self.events.push(json!({
                "ph": "M", "name": "process_name", "pid": flow, "args": { "name": name },
            }));
        }
        flow
    }

    /// Returns the first track of the flow that is free then, which is named where it is new.
    fn thread(
        &mut self,
        flow: usize,
        way: &'static str,
        (begin, end): (u64, u64),
    ) -> Option<usize> {
        let ends = self.ends.entry((flow, way)).or_default();
        let at = ends.iter().position(|&end| end <= begin).unwrap_or(ends.len());
        let thread = at * 2 + usize::from(way == Direction::Out.name()) + 1;
        if let Some(last) = ends.get_mut(at) {
            *last = end;
            return Some(thread);
        }
        if at == TRACKS {
            return None;
        }
        ends.push(end);
        let name = if at == 0 { way.to_owned() } else { format!("{way} {}", at + 1) };
        self.events.push(json!({
            "ph": "M", "name": "thread_name", "pid": flow, "tid": thread, "args": { "name": name },
        }));
        Some(thread)
    }
}

fn way_of(trace: &Traced) -> Direction {
    trace.times[0].0.direction()
}

/// Returns microseconds, as the format wants them.
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use millstream_live::Record;

    use super::*;

    fn collected(lines: &str) -> Collected {
        let traces = lines.lines().filter_map(|line| Traced::of(Record::parse(line))).collect();
        Collected { traces, lost: 0, sample: 1 }
    }

    /// Begin and end of a slice, in ns.
    fn span(slice: &Value) -> (u64, u64) {
        let ns = |key: &str| (slice[key].as_f64().unwrap() * 1000.0).round() as u64;
        (ns("ts"), ns("ts") + ns("dur"))
    }

    #[test]
    fn stages_are_in_their_packets_and_no_packets_of_a_track_overlap() {
        let all = collected(
            "trace number=1 way=in transport=tcp bytes=9 id=tcp0.0 position=9 local=10.0.0.1:7 \
             remote=10.0.0.2:9 end=complete received=1000 headers_read=1200 demultiplexed=1250 \
             accepted=1300 readable=1300 read=5001
             trace number=2 way=in transport=tcp bytes=4 id=tcp0.0 position=13 local=10.0.0.1:7 \
             remote=10.0.0.2:9 end=complete received=2000 headers_read=2001 demultiplexed=2002 \
             accepted=2003 readable=2004 read=5001
             trace number=3 way=in transport=udp bytes=4 id=udp0.0 position=1 local=10.0.0.1:7 \
             remote=10.0.0.2:9 end=complete received=2000 headers_read=2001 read=5001
             trace number=4 way=in transport=tcp bytes=1 id=tcp0.0 position=14 local=10.0.0.1:7 \
             remote=10.0.0.2:9 end=displaced received=6000 headers_read=6001
             trace number=5 read=1 received=2
             trace number=6 end=complete",
        );
        let text = events("proxy-1-0", &all).to_string();
        let read: Value = serde_json::from_str(&text).unwrap();
        let events = read["traceEvents"].as_array().unwrap();
        let slices: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(slices.len(), 6 + 6 + 3 + 2, "what is no trace is left out");
        let names = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert_eq!((names("process_name"), names("thread_name")), (2, 3));
        // As a viewer does: a slice lies within the one that is open on its track, or begins behind
        // it.
        let mut open: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
        for slice in &slices {
            let track = (slice["pid"].as_u64().unwrap(), slice["tid"].as_u64().unwrap());
            let (begin, end) = span(slice);
            let stack = open.entry(track).or_default();
            while stack.last().is_some_and(|&(_, last)| last <= begin) {
                stack.pop();
            }
            assert!(stack.last().is_none_or(|&(first, last)| first <= begin && end <= last));
            stack.push((begin, end));
        }
        let stages: Vec<_> = slices[1..6].iter().map(|slice| &slice["name"]).collect();
        assert_eq!(stages, ["ingress", "demultiplex", "tcp", "reassembly", "receive_queue"]);
        assert_eq!(span(slices[5]), (1300, 5001));
    }
}
