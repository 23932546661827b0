//! `millstream stages`: where an engine's time goes, and how large its batches are; with `--flow`
//! how long the packets of one flow are in each stage; with `--udp-path` what a datagram costs on
//! its way to the link.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millstream_lab::udp_path::{self, PAYLOAD_BYTES};
use millstream_live::{Kind, Snapshot};
use millstream_record::error::Error;
use serde_json::{Value, json};

use super::ask::has_socket;
use super::columns::Side::{Left, Right};
use super::columns::{columns, row};
use super::flow_stages::Counted;
use super::histogram::Histogram;
use super::traced::Sampling;
use super::{Which, engines, unreadable};
use crate::output::{full_path, out, out_json, page_into, say};
use crate::prepare::Made;
use crate::values::{seconds, whole};

/// For `stages --help`.
pub const HELP: &str = "\
Stages are timed where the program asks for it (`EngineConfig::stage_sample`): one turn in so many. Histograms are
always counted. All is since the engine began.

With --flow the sampled packets of one connection or UDP socket are counted from now on, for --seconds: nanoseconds in
each stage of their way (docs/trace.md). Up to eight flows can be looked at at once. Where the engine samples of its own accord,
or others have asked for more packets, --sample is not heard; the first line says one packet in how many it was.

With --udp-path no engine is looked at: datagrams are sent here, to one peer and to many, by 1, 2 and 4 threads as far as
there are CPUs, and come back at each stage (docs/udp-path.md). The kernel's side is measured for root, with `ip`.
--out writes udp-path.html, with a bar for each stage; one that is there is replaced.";

/// Arguments of `stages`.
#[derive(Debug, Args)]
pub struct Stages {
    #[command(flatten)]
    which: Which,
    /// Show how long sampled packets of this socket, as `millstream ss` names it, are in each stage
    #[arg(long, value_name = "ID")]
    flow: Option<String>,
    /// Count those of --flow whose traces end within SECONDS
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, requires = "flow")]
    seconds: f64,
    /// Sample one packet in N of the engine meanwhile
    #[arg(long, value_name = "N", default_value = "1000", value_parser = whole::<u32>, requires = "flow")]
    sample: u32,
    /// Measure what each stage of a datagram's way costs, from the call to the link, of this stack
    /// and of the kernel
    #[arg(long, conflicts_with_all = ["flow", "named", "engine", "from"])]
    udp_path: bool,
    /// Measure the way with N routes, too
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole::<usize>, requires = "udp_path")]
    routes: usize,
    /// Write a page of the way into DIR, too, with a bar for each stage
    #[arg(long, value_name = "DIR", requires = "udp_path")]
    out: Option<PathBuf>,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// One stage.
struct Stage<'a> {
    name: &'a str,
    ns: u64,
    most_ns: u64,
    visits: u64,
    units: u64,
}

/// Returns the stages that were seen.
fn seen(now: &Snapshot) -> Vec<Stage<'_>> {
    let of = |name: &'static str, stage: &str| now.labelled(name, "stage", stage).unwrap_or(0);
    let names = now.named("stage_ns").filter_map(|(entry, _)| entry.label("stage"));
    let stages = names.map(|name| Stage {
        name,
        ns: of("stage_ns", name),
        most_ns: of("stage_most_ns", name),
        visits: of("stage_visits", name),
        units: of("stage_units", name),
    });
    stages.filter(|stage| stage.visits != 0).collect()
}

/// Shows them.
pub fn stages(arguments: &Stages) -> Result<ExitCode, Error> {
    if arguments.udp_path {
        return udp_path(arguments);
    }
    if let Some(flow) = &arguments.flow {
        let segment = engines::one_that(arguments.which.place(), |one| has_socket(one, flow))?;
        let sampling = Sampling {
            flow: Some(flow.clone()),
            seconds: arguments.seconds,
            sample: arguments.sample,
        };
        let counted = Counted::ask(&segment, flow, &sampling)?;
        match arguments.json {
            true => out_json(counted.json(&engines::id(&segment)))?,
            false => out(&counted.text())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    engines::each(arguments.which.place(), arguments.json, |segment| {
        let now = segment.read().map_err(|damage| unreadable(segment, &damage))?;
        if arguments.json {
            return out_json(as_json(&engines::id(segment), &now));
        }
        let histograms = all_histograms(&now).map(|one| one.text());
        out(&(times(&now) + &histograms.collect::<String>()))
    })
}

/// Measures the way of a datagram and shows it; the page, too, where there is a folder for it.
fn udp_path(arguments: &Stages) -> Result<ExitCode, Error> {
    let mut made = Made::default();
    arguments.out.as_deref().map_or(Ok(()), |folder| made.page_folder(folder))?;
    let mut tell = |line: &str| say(format_args!("note: {line}"));
    let ways = udp_path::measure(arguments.routes, &mut tell)?;
    match arguments.json {
        true => out_json(json!({ "payload_bytes": PAYLOAD_BYTES, "ways": ways }))?,
        false => out(&udp_path::frame(&ways).text())?,
    }
    if let Some(folder) = &arguments.out {
        let page = page_into(folder, "udp-path", &udp_path::frame(&ways).page())?;
        say(format_args!("Page: {}", full_path(&page)));
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(id: &str, now: &Snapshot) -> Value {
    let stage = |stage: &Stage<'_>| {
        json!({
            "stage": stage.name, "ns": stage.ns, "most_ns": stage.most_ns, "visits": stage.visits,
            "units": stage.units,
        })
    };
    let histograms = all_histograms(now).map(|one| one.json());
    json!({
        "engine": id,
        "time_ns": now.time_ns,
        "sample": now.total("stage_sample"),
        "timed_turns": now.total("stage_timed_turns"),
        "stages": seen(now).iter().map(stage).collect::<Vec<_>>(),
        "histograms": histograms.collect::<Vec<_>>(),
    })
}

fn times(now: &Snapshot) -> String {
    let stages = seen(now);
    if stages.is_empty() {
        return "no stage was timed (EngineConfig::stage_sample)\n".to_owned();
    }
    let total = stages.iter().map(|stage| stage.ns).sum::<u64>().max(1) as f64;
    let mut rows = vec![row(["stage", "share", "visits", "ns/visit", "ns/unit", "most ns"])];
    for stage in &stages {
        let per = |count: u64| match count {
            0 => "-".to_owned(),
            count => format!("{:.0}", stage.ns as f64 / count as f64),
        };
        rows.push(vec![
            stage.name.to_owned(),
            format!("{:.1} %", stage.ns as f64 / total * 100.0),
            stage.visits.to_string(),
            per(stage.visits),
            per(stage.units),
            stage.most_ns.to_string(),
        ]);
    }
    columns(&[Left, Right, Right, Right, Right, Right], &rows)
}

/// Returns the histograms that the engine publishes.
fn all_histograms(now: &Snapshot) -> impl Iterator<Item = Histogram<'_>> {
    let all = now.iter().filter(|(entry, _)| entry.kind == Kind::Histogram);
    all.map(|(entry, values)| {
        let labels = entry.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Histogram { name: &entry.name, labels: labels.collect(), unit: &entry.unit, values }
    })
}
