//! The numbers of a soak at its end: bytes, rate, memory and queues over time, and the engine in
//! the first and in the last quarter.
//!
//! The numbers over time are those of the last run of each case and stack. The bytes are those of
//! all its runs, also of those that do not count.

use std::collections::BTreeSet;

use millstream_diagnose::histogram::{Buckets, quantile};
use millstream_diagnose::stats::poisson_bound;
use millstream_diagnose::units::{Scale, duration, significant};
use millstream_record::{EngineStretch, QueueSeries, RunRecord, Series, keys};

use super::model::Model;

/// A stack in a case.
pub(super) struct Soak<'a> {
    /// Case and stack.
    pub(super) label: String,
    /// Bytes of all runs, and the rate of this one.
    pub(super) sentences: Vec<String>,
    /// Memory and queues of this run.
    pub(super) lines: Vec<Line>,
    /// Stages of its engine in the first and in the last quarter.
    pub(super) stages: Vec<Stage>,
    /// Its histograms in both quarters.
    pub(super) histograms: Vec<Twice<'a>>,
}

/// Bytes over time.
pub(super) struct Line {
    pub(super) name: &'static str,
    /// The process or the host that the bytes belong to.
    pub(super) of: String,
    pub(super) series: Series,
}

/// A stage in both quarters.
pub(super) struct Stage {
    pub(super) name: String,
    /// Share of the timed turns.
    pub(super) shares: [f64; 2],
    /// Nanoseconds of a unit: a packet or a call.
    pub(super) unit_ns: [f64; 2],
}

/// A histogram in both quarters.
pub(super) struct Twice<'a> {
    pub(super) name: &'a str,
    pub(super) quarters: [&'a Buckets; 2],
}

impl<'a> Soak<'a> {
    /// Each stack of each case that has checked bytes.
    pub(super) fn of(model: &Model<'a>) -> Vec<Self> {
        let rows = model.cases.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row)));
        let one = |(case, row): (&super::model::Case<'a>, &super::model::Row<'a>)| {
            let all = || row.group.all().filter(|run| run.result(keys::CHECKED_BYTES).is_some());
            let run = all().max_by_key(|run| run.order)?;
            let engine = run.probes.engine_series.iter().find_map(|one| one.quarters.as_ref());
            Some(Self {
                label: format!("{}, {}", case.label, row.label),
                sentences: sentences(all(), run),
                lines: lines(run),
                stages: engine.map(stages).unwrap_or_default(),
                histograms: engine.map(histograms).unwrap_or_default(),
            })
        };
        rows.filter_map(one).collect()
    }
}

/// Returns the soaks as text for a terminal.
pub(super) fn text(model: &Model<'_>) -> String {
    let mut text = String::new();
    for soak in Soak::of(model) {
        text.push_str(&format!("\nSoak of {}:\n", soak.label));
        let mut line = |line: String| text.push_str(&format!("  {line}\n"));
        soak.sentences.iter().cloned().for_each(&mut line);
        soak.lines.iter().map(Line::text).for_each(&mut line);
        if !soak.stages.is_empty() {
            line("Stages of the engine, first quarter → last quarter:".to_owned());
            soak.stages.iter().map(|stage| format!("  {}", stage.text())).for_each(&mut line);
        }
        if !soak.histograms.is_empty() {
            line(
                "Histograms of the engine, 50 %, 90 % and 99 % of the values, likewise:".to_owned(),
            );
            soak.histograms.iter().map(|one| format!("  {}", one.text())).for_each(&mut line);
        }
    }
    text
}

fn sentences<'a>(all: impl Iterator<Item = &'a RunRecord>, run: &RunRecord) -> Vec<String> {
    let (mut sum, mut places) = ((0.0, 0.0, 0), Vec::new());
    for one in all {
        places.extend(one.probes.wrong_bytes.iter().map(|place| format!("wrong: {place}")));
        sum.0 += one.result(keys::CHECKED_BYTES).unwrap_or(0.0);
        sum.1 += one.result(keys::WRONG_BYTES).unwrap_or(0.0);
        sum.2 += 1;
    }
    let (checked, wrong, runs) = sum;
    let amount = Scale::of("_bytes", checked).with_unit(checked);
    let mut said = match (wrong > 0.0, runs) {
        (false, _) => vec![format!(
            "0 wrong bytes of {amount} checked: with 95 % confidence fewer than one in {} is wrong",
            in_words(checked / poisson_bound(0.0))
        )],
        (true, _) => vec![format!("{wrong} WRONG BYTES of {amount} checked")],
    };
    if runs > 1 {
        said[0].push_str(&format!(" ({runs} runs)"));
    }
    said.extend(places);
    let of = |key: &str| run.result(key);
    if let (Some(ratio), Some(low), Some(high)) =
        (of(keys::LAST_OVER_FIRST), of(keys::LAST_OVER_FIRST_LOW), of(keys::LAST_OVER_FIRST_HIGH))
    {
        said.push(format!(
            "rate of the last quarter over the first: {ratio:.3} (95 %: {low:.3} to {high:.3}), of {}",
            duration(run.window.end_s - run.window.start_s)
        ));
    }
    let disk = ["disk_read_bytes", "disk_written_bytes", "disk_seeks"].map(of);
    if let [Some(read), Some(written), Some(seeks)] = disk {
        let bytes = |value: f64| Scale::of("_bytes", value).with_unit(value);
        said.push(format!(
            "disk stress beside it: {} read in order, {} written, {} reads of 4 KiB here and there",
            bytes(read),
            bytes(written),
            significant(seeks)
        ));
    }
    said
}

/// `130 thousand million`: how many bytes there are to one that is wrong.
fn in_words(count: f64) -> String {
    let steps = [(1e12, " million million"), (1e9, " thousand million"), (1e6, " million")];
    let step = steps.iter().find(|(from, _)| count >= *from);
    step.map_or_else(|| significant(count), |(from, word)| significant(count / from) + word)
}

fn lines(run: &RunRecord) -> Vec<Line> {
    let probes = &run.probes;
    let mut all = Vec::new();
    let mut add = |name, of: &str, series: &Series| {
        if series.iter().flatten().any(|&bytes| bytes > 0) {
            all.push(Line { name, of: of.to_owned(), series: series.clone() });
        }
    };
    for (role, worker) in probes.workers.iter().flatten() {
        add("resident memory", &format!("{role} worker"), &worker.resident_bytes);
    }
    for engine in &probes.engine_series {
        let of = format!("{} engine", engine.role);
        if let Some(held) = engine.gauges.get("memory_held_bytes") {
            add("memory held for peers", &of, held);
        }
        add_queues(&mut add, &of, &engine.queues);
    }
    for (host, queues) in probes.queues.iter().flatten() {
        add_queues(&mut add, &format!("{host} kernel"), queues);
    }
    all
}

fn add_queues(add: &mut impl FnMut(&'static str, &str, &Series), of: &str, queues: &QueueSeries) {
    let QueueSeries { received_bytes, sent_bytes, held_bytes } = queues;
    add("received and not read", of, received_bytes);
    add("written and not acknowledged", of, sent_bytes);
    add("memory of both queues", of, held_bytes);
}

impl Line {
    /// Medians of the first and of the last quarter, and the most; `None` of too few values.
    pub(super) fn summary(&self) -> Option<[f64; 3]> {
        let known: Vec<f64> = self.series.iter().flatten().map(|&bytes| bytes as f64).collect();
        let quarter = (known.len() / 4).max(1);
        let first = millstream_diagnose::stats::median(known.get(..quarter)?)?;
        let last = millstream_diagnose::stats::median(&known[known.len() - quarter..])?;
        Some([first, last, known.iter().copied().fold(0.0, f64::max)])
    }

    fn text(&self) -> String {
        let Self { name, of, .. } = self;
        let Some(values) = self.summary() else { return format!("{name}, {of}: –") };
        let [first, last, most] = values.map(|bytes| Scale::of("_bytes", bytes).with_unit(bytes));
        format!("{name}, {of}: first quarter {first}, last quarter {last}, most {most}")
    }
}

fn stages(quarters: &[EngineStretch; 2]) -> Vec<Stage> {
    let names: BTreeSet<&String> = quarters.iter().flat_map(|one| one.stages.keys()).collect();
    let total = |of: &EngineStretch| of.stages.values().map(|stage| stage.ns).sum::<u64>().max(1);
    let of = |name: &String| {
        let both = quarters.each_ref().map(|one| one.stages.get(name).copied().unwrap_or_default());
        let share = |at: usize| both[at].ns as f64 / total(&quarters[at]) as f64;
        Stage {
            name: name.clone(),
            shares: [share(0), share(1)],
            unit_ns: both.map(|stage| stage.ns as f64 / stage.units.max(1) as f64),
        }
    };
    let mut all: Vec<Stage> = names.into_iter().map(of).collect();
    all.sort_by(|a, b| b.shares[0].total_cmp(&a.shares[0]));
    all
}

impl Stage {
    fn text(&self) -> String {
        let [one, two] = self.shares.map(|share| format!("{:.1} %", share * 100.0));
        let [before, after] = self.unit_ns.map(significant);
        format!("{:<16} {one} → {two} of the time, {before} → {after} ns a unit", self.name)
    }
}

fn histograms(quarters: &[EngineStretch; 2]) -> Vec<Twice<'_>> {
    let [first, last] = quarters;
    let both = first.histograms.iter().filter_map(|(name, one)| {
        Some(Twice { name, quarters: [one, last.histograms.get(name)?.as_slice()] })
    });
    both.collect()
}

impl Twice<'_> {
    fn text(&self) -> String {
        let at =
            |of: &Buckets, q| quantile(of, q).map_or("–".to_owned(), |least| least.to_string());
        let [one, two] = self.quarters.map(|of| [0.5, 0.9, 0.99].map(|q| at(of, q)).join(" "));
        format!("{:<24} {one} → {two}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::{EngineSeries, ExperimentRecord, StageRecord, Timestamp, Window};

    fn stretch(ns: u64, least: u64) -> EngineStretch {
        let stage = |ns| StageRecord { ns, max_ns: ns, visits: 10, units: 20 };
        EngineStretch {
            ns: 1_000,
            stages: [("receive".into(), stage(ns)), ("tcp".into(), stage(100))].into(),
            histograms: [("rx_batch_packets".into(), vec![(least, 10), (64, 1)])].into(),
        }
    }

    fn run(stack: &str, wrong: f64) -> RunRecord {
        let mut run = RunRecord::new(format!("soak-{stack}"));
        (run.workload, run.stack) = ("soak".into(), stack.into());
        run.window = Window { start_s: 1.0, end_s: 3601.0 };
        let results = [
            (keys::THROUGHPUT, 1e10),
            (keys::CHECKED_BYTES, 3e12),
            (keys::WRONG_BYTES, wrong),
            (keys::LAST_OVER_FIRST, 0.991),
            (keys::LAST_OVER_FIRST_LOW, 0.985),
            (keys::LAST_OVER_FIRST_HIGH, 0.998),
            ("disk_read_bytes", 2e9),
            ("disk_written_bytes", 1e9),
            ("disk_seeks", 5_000.0),
        ];
        run.results.extend(results.map(|(key, value)| (key.to_owned(), value)));
        let steps = |first: u64, last: u64| -> Series {
            (0..8).map(|at| (at > 0).then_some(if at < 4 { first } else { last })).collect()
        };
        let queues = QueueSeries {
            received_bytes: steps(0, 0),
            sent_bytes: steps(5_000, 6_000),
            held_bytes: steps(9_000, 9_000),
        };
        run.probes.engine_series.push(EngineSeries {
            role: "near".into(),
            gauges: [("memory_held_bytes".into(), steps(70_000, 80_000))].into(),
            queues: queues.clone(),
            quarters: Some([stretch(300, 4), stretch(100, 8)]),
            ..EngineSeries::default()
        });
        run.probes.queues = Some([("far".to_owned(), queues)].into());
        run
    }

    fn said(run: &RunRecord) -> String {
        let mut experiment = ExperimentRecord::new("soak", 1, Timestamp::from_unix_ms(0));
        experiment.workloads = vec!["soak".into()];
        experiment.stacks = vec![run.stack.clone()];
        text(&Model::new(&experiment, std::slice::from_ref(run)))
    }

    #[test]
    fn the_end_of_a_soak_has_bytes_rate_memory_queues_and_both_quarters() {
        let said = said(&run("millstream", 0.0));
        for expected in [
            "0 wrong bytes of 3.00 TB checked: with 95 % confidence fewer than one in 1.00 million million",
            "rate of the last quarter over the first: 0.991 (95 %: 0.985 to 0.998), of 1 h 0 min",
            "2.00 GB read in order, 1.00 GB written, 5,000 reads of 4 KiB",
            "memory held for peers, near engine: first quarter 70.0 kB, last quarter 80.0 kB, most 80.0 kB",
            "written and not acknowledged, far kernel: first quarter 5,000 B",
            "receive          75.0 % → 50.0 % of the time, 15.0 → 5.00 ns a unit",
            "rx_batch_packets         4 4 64 → 8 8 64",
        ] {
            assert!(said.contains(expected), "{expected}: {said}");
        }
        assert!(!said.contains("received and not read"), "what was never there is no line");
    }

    #[test]
    fn what_is_no_soak_says_nothing_of_it() {
        let mut run = run("kernel", 0.0);
        run.results.remove(keys::CHECKED_BYTES);
        assert_eq!(said(&run), "");
    }
}
