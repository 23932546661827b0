//! `millstream stages`: where an engine's time goes, and how large its batches are.

use std::process::ExitCode;

use clap::Args;
use millstream::live::{Kind, Snapshot, bucket_least};
use millstream_lab::error::Error;
use serde_json::{Map, Value, json};

use super::columns::Side::{Left, Right};
use super::columns::{columns, row};
use super::{Which, engines, unreadable};
use crate::output::out;

/// For `stages --help`.
pub const HELP: &str = "\
Stages are timed where the program asks for it (`EngineConfig::stage_sample`): one turn in so many. Histograms are
always counted. All is since the engine began.";

/// Arguments of `stages`.
#[derive(Debug, Args)]
pub struct Stages {
    #[command(flatten)]
    which: Which,
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
    let mut segment = engines::one(arguments.which.engine.as_deref())?;
    let now = segment.read().map_err(|damage| unreadable(&segment, &damage))?;
    match arguments.json {
        true => out(&format!("{}\n", as_json(&engines::id(&segment), &now)))?,
        false => out(&(times(&now) + &histograms(&now)))?,
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
    let histograms = now.iter().filter(|(entry, _)| entry.kind == Kind::Histogram);
    let histograms = histograms.map(|(entry, values)| {
        let buckets = values.iter().enumerate().filter(|(_, count)| **count != 0);
        let buckets: Vec<Value> = buckets
            .map(|(at, count)| json!({ "least": bucket_least(at), "count": count }))
            .collect();
        let labels: Map<String, Value> =
            entry.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        json!({ "name": entry.name, "labels": labels, "unit": entry.unit, "buckets": buckets })
    });
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

/// Each histogram that has something in it.
fn histograms(now: &Snapshot) -> String {
    let mut text = String::new();
    for (entry, values) in now.iter().filter(|(entry, _)| entry.kind == Kind::Histogram) {
        if values.iter().any(|&count| count != 0) {
            let labels = entry.labels.iter().map(|(key, value)| format!(" {key}={value}"));
            let labels: String = labels.collect();
            text += &format!("\n{}{labels}\n{}", entry.name, histogram(values));
        }
    }
    text
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
