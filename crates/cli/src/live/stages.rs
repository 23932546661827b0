//! `millstream stages`: where an engine's time goes, and how large its batches are; with `--flow` how long the packets of
//! one flow are in each stage.

use std::process::ExitCode;

use clap::Args;
use millstream::live::{Kind, Snapshot, bucket_least};
use millstream_lab::error::Error;
use serde_json::{Map, Value, json};

use super::ask::has_socket;
use super::columns::Side::{Left, Right};
use super::columns::{columns, row};
use super::flow_stages::Counted;
use super::traced::Sampling;
use super::{Which, engines, unreadable};
use crate::output::out;
use crate::values::{seconds, whole};

/// For `stages --help`.
pub const HELP: &str = "\
Stages are timed where the program asks for it (`EngineConfig::stage_sample`): one turn in so many. Histograms are
always counted. All is since the engine began.

With --flow the sampled packets of one connection or UDP socket are counted from now on, for --seconds: nanoseconds in
each stage of their way (docs/trace.md). Up to eight flows can be looked at at once. Where the engine samples of its own accord,
or others have asked for more packets, --sample is not heard; the first line says one packet in how many it was.";

/// Arguments of `stages`.
#[derive(Debug, Args)]
pub struct Stages {
    #[command(flatten)]
    which: Which,
    /// How long sampled packets of this socket, as `millstream ss` names it, are in each stage
    #[arg(long, value_name = "ID")]
    flow: Option<String>,
    /// Count those of --flow whose traces end within SECONDS
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, requires = "flow")]
    seconds: f64,
    /// Sample one packet in N of the engine meanwhile
    #[arg(long, value_name = "N", default_value = "1000", value_parser = whole::<u32>, requires = "flow")]
    sample: u32,
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

/// The stages that were seen.
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
    if let Some(flow) = &arguments.flow {
        let segment = engines::one_that(arguments.which.engine(), |one| has_socket(one, flow))?;
        let sampling = Sampling {
            flow: Some(flow.clone()),
            seconds: arguments.seconds,
            sample: arguments.sample,
        };
        let counted = Counted::ask(&segment, flow, &sampling)?;
        out(&match arguments.json {
            true => format!("{}\n", counted.json(&engines::id(&segment))),
            false => counted.text(),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    engines::each(arguments.which.engine(), arguments.json, |segment| {
        let now = segment.read().map_err(|damage| unreadable(segment, &damage))?;
        if arguments.json {
            return out(&format!("{}\n", as_json(&engines::id(segment), &now)));
        }
        let histograms = all_histograms(&now).map(|one| one.text());
        out(&(times(&now) + &histograms.collect::<String>()))
    })
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

/// A histogram, and what it is of.
pub(super) struct Named<'a> {
    pub name: &'a str,
    pub labels: Vec<(&'a str, &'a str)>,
    pub unit: &'a str,
    pub values: &'a [u64],
}

impl Named<'_> {
    pub fn json(&self) -> Value {
        let buckets = self.values.iter().enumerate().filter(|(_, count)| **count != 0);
        let buckets: Vec<Value> = buckets
            .map(|(at, count)| json!({ "least": bucket_least(at), "count": count }))
            .collect();
        let labels = self.labels.iter().map(|&(key, value)| (key.to_owned(), value.into()));
        let labels: Map<String, Value> = labels.collect();
        json!({ "name": self.name, "labels": labels, "unit": self.unit, "buckets": buckets })
    }

    /// Nothing where nothing was counted.
    pub fn text(&self) -> String {
        let labels = self.labels.iter().map(|(key, value)| format!(" {key}={value}"));
        match histogram(self.values) {
            empty if empty.is_empty() => empty,
            lines => format!("\n{}{}\n{lines}", self.name, labels.collect::<String>()),
        }
    }
}

/// Those that the engine publishes.
fn all_histograms(now: &Snapshot) -> impl Iterator<Item = Named<'_>> {
    let all = now.iter().filter(|(entry, _)| entry.kind == Kind::Histogram);
    all.map(|(entry, values)| {
        let labels = entry.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Named { name: &entry.name, labels: labels.collect(), unit: &entry.unit, values }
    })
}

/// Powers of two that there are.
const BUCKETS: u32 = u64::BITS;

/// Notes in a histogram that so many values have the power of two that begins with `least`.
pub(super) fn set_count(counts: &mut Vec<u64>, least: u64, count: u64) {
    let at = least.checked_ilog2().map_or(0, |power| power + 1).min(BUCKETS) as usize;
    counts.resize(counts.len().max(at + 1), 0);
    counts[at] = count;
}

/// Characters of the longest bar.
const BAR: f64 = 40.0;

/// A line for each power of two between the least and the greatest that was counted, in the manner of DTrace's
/// `quantize()`.
pub(super) fn histogram(values: &[u64]) -> String {
    let is_used = |count: &u64| *count != 0;
    let (Some(first), Some(last)) =
        (values.iter().position(is_used), values.iter().rposition(is_used))
    else {
        return String::new();
    };
    let total = values.iter().map(|&count| count as f64).sum::<f64>();
    let rows = (first..=last).map(|at| {
        let bar = (values[at] as f64 / total * BAR).round() as usize;
        vec![
            bucket_least(at).to_string(),
            format!("|{:<40}", "@".repeat(bar)),
            values[at].to_string(),
        ]
    });
    let mut all = vec![row(["value", " distribution", "count"])];
    all.extend(rows);
    columns(&[Right, Left, Right], &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_a_line_for_each_power_of_two_that_matters() {
        let text = histogram(&[0, 0, 3, 0, 1, 0]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].trim().starts_with(&format!("2  |{}", "@".repeat(30))), "{text}");
        assert!(lines[2].trim().ends_with('0') && lines[3].trim().starts_with('8'), "{text}");
        assert_eq!(histogram(&[0; 4]), "");
    }
}
