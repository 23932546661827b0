//! The numbers of a soak at its end: bytes, rate, memory and queues over time, and the engine in
//! the first and in the last quarter.
//!
//! The numbers over time are those of the last run of each case and stack. The bytes are those of
//! all its runs, also of those that do not count.

use std::collections::BTreeSet;

use millstream_diagnose::causes::{Look, Scene, built_in};
use millstream_diagnose::features::features;
use millstream_diagnose::histogram::{Buckets, quantile};
use millstream_diagnose::separate::Separation;
use millstream_diagnose::stats::{median, poisson_bound};
use millstream_diagnose::units::{Scale, duration, significant};
use millstream_record::{EngineStretch, QueueSeries, RunRecord, Series, keys};

use super::frame::{Cell, Chapter, Grid, Part, Section};
use super::html::series::{bar, over_time};
use super::model::{Case, Row};
use super::room::Scope;

/// Causes that the queues of one run tell of by themselves.
const OF_QUEUES: [&str; 3] =
    ["work-grows-with-the-queue", "limit-counts-payload", "small-pieces-in-large-buffers"];

/// Returns a section for each stack of each case that has checked bytes, as many as there is room
/// for.
pub(super) fn sections<'a>(scope: Scope<'a>) -> Vec<Section<'a>> {
    let mut all: Vec<Section<'a>> = scope.model.rows().filter_map(section).collect();
    let most = scope.room.lines / 10;
    if all.len() > most {
        let more = all.len() - most;
        all.truncate(most);
        let said = format!("{more} more soaks are left out; `millstream show` has all of them.");
        all.push(Section::new(Chapter::NONE, "", vec![Part::line(said)]));
    }
    all
}

fn section<'a>((case, row): (&'a Case<'a>, &'a Row<'a>)) -> Option<Section<'a>> {
    let all = || row.group.all().filter(|run| run.result(keys::CHECKED_BYTES).is_some());
    let run = all().max_by_key(|run| run.order)?;
    let engine = run.probes.engine_series.iter().find_map(|one| one.quarters.as_ref());
    let said = sentences(all(), run).into_iter().chain(of_queues(run));
    let mut parts = vec![Part::lines(said.collect())];
    let grids = [Some(lines(run)), engine.map(stages), engine.map(histograms)];
    parts.extend(grids.into_iter().flatten().map(Part::Grid));
    parts.extend(engine.map(|quarters| Part::on_page(move || bars(quarters))));
    Some(Section::new(Chapter::NONE, format!("Soak of {}, {}", case.label, row.label), parts))
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

/// Returns the causes that the queues of a run tell of, with the evidence.
fn of_queues(run: &RunRecord) -> Vec<String> {
    let scene = Scene::new(&features(&[run]), &[], &Separation::default());
    let causes = built_in().into_iter().filter(|cause| OF_QUEUES.contains(&cause.id.as_str()));
    let said = causes.filter_map(|cause| match scene.look(&cause) {
        Look::Fits { evidence, .. } => Some(format!("{}: {evidence}", cause.title)),
        _ => None,
    });
    said.collect()
}

/// `130 thousand million`: how many bytes there are to one that is wrong.
fn in_words(count: f64) -> String {
    let steps = [(1e12, " million million"), (1e9, " thousand million"), (1e6, " million")];
    let step = steps.iter().find(|(from, _)| count >= *from);
    step.map_or_else(|| significant(count), |(from, word)| significant(count / from) + word)
}

/// Returns memory and queues over time: of the first and of the last quarter, and the most.
fn lines(run: &RunRecord) -> Grid {
    let columns =
        ["memory and queues over the run", ">first quarter", ">last quarter", ">most", ""];
    let mut grid = Grid::new("Memory and queues over the run", columns);
    let probes = &run.probes;
    let mut add = |name: &str, of: &str, series: &Series| {
        if series.iter().flatten().any(|&bytes| bytes > 0) {
            let name = format!("{name}, {of}");
            let values = summary(series);
            let bytes = |bytes: f64| Scale::of("_bytes", bytes).with_unit(bytes);
            let drawn = Cell::drawn(over_time(series, values[2], &name));
            let cells = std::iter::once(name).chain(values.map(bytes)).map(Cell::from);
            grid = std::mem::take(&mut grid).rows([cells.chain([drawn]).collect::<Vec<_>>()]);
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
    grid
}

fn add_queues(add: &mut impl FnMut(&str, &str, &Series), of: &str, queues: &QueueSeries) {
    let QueueSeries { received_bytes, sent_bytes, held_bytes } = queues;
    add("received and not read", of, received_bytes);
    add("written and not acknowledged", of, sent_bytes);
    add("memory of both queues", of, held_bytes);
}

/// Returns the medians of the first and of the last quarter, and the most, of the known values.
fn summary(series: &Series) -> [f64; 3] {
    let known: Vec<f64> = series.iter().flatten().map(|&bytes| bytes as f64).collect();
    let quarter = (known.len() / 4).max(1);
    let of = |part: &[f64]| median(part).unwrap_or(0.0);
    let (first, last) = (of(&known[..quarter]), of(&known[known.len() - quarter..]));
    [first, last, known.iter().copied().fold(0.0, f64::max)]
}

/// Returns the stages of the engine, each with its share of the timed turns and the time of a
/// packet or call.
fn stages(quarters: &[EngineStretch; 2]) -> Grid {
    let names: BTreeSet<&String> = quarters.iter().flat_map(|one| one.stages.keys()).collect();
    let total = |of: &EngineStretch| of.stages.values().map(|stage| stage.ns).sum::<u64>().max(1);
    let of = |name: &'_ String| {
        let both = quarters.each_ref().map(|one| one.stages.get(name).copied().unwrap_or_default());
        let share = |at: usize| both[at].ns as f64 / total(&quarters[at]) as f64;
        let unit_ns = both.map(|stage| stage.ns as f64 / stage.units.max(1) as f64);
        (name.clone(), [share(0), share(1)], unit_ns)
    };
    let mut all: Vec<_> = names.into_iter().map(of).collect();
    all.sort_by(|a, b| b.1[0].total_cmp(&a.1[0]));
    let cells = |(name, shares, unit_ns): (String, [f64; 2], [f64; 2])| {
        let [one, two] = shares.map(|share| format!("{:.1} %", share * 100.0));
        let [before, after] = unit_ns.map(|ns| format!("{} ns", significant(ns)));
        [name, one, two, before, after]
    };
    let columns = [
        "stage of the engine",
        ">first quarter",
        ">last quarter",
        ">a unit, first",
        ">a unit, last",
    ];
    Grid::new("Stages of the engine", columns).rows(all.into_iter().map(cells))
}

/// Histograms that both quarters have.
fn both([first, last]: &[EngineStretch; 2]) -> impl Iterator<Item = (&String, [&Buckets; 2])> {
    first.histograms.iter().filter_map(|(name, one)| {
        let other: &Buckets = last.histograms.get(name)?;
        Some((name, [one.as_slice(), other]))
    })
}

/// Returns the values below which half, nine tenths and 99 of 100 of each histogram are.
fn histograms(quarters: &[EngineStretch; 2]) -> Grid {
    let at = |of: &Buckets, q| quantile(of, q).map_or("–".to_owned(), |least| least.to_string());
    let cells = |(name, quarters): (&String, [&Buckets; 2])| {
        let [one, two] = quarters.map(|of| [0.5, 0.9, 0.99].map(|q| at(of, q)).join(" "));
        [name.clone(), one, two]
    };
    let columns =
        ["histogram of the engine, 50 %, 90 % and 99 %", ">first quarter", ">last quarter"];
    Grid::new("Histograms of the engine", columns).rows(both(quarters).map(cells))
}

/// Returns each histogram of both quarters with a bar for each bucket.
fn bars<'a>(quarters: &[EngineStretch; 2]) -> Vec<Part<'a>> {
    let part = |(name, quarters): (&String, [&Buckets; 2])| {
        let leasts: BTreeSet<u64> =
            quarters.iter().flat_map(|of| of.iter()).map(|(least, _)| *least).collect();
        let share = |of: &Buckets, least| {
            let all: u64 = of.iter().map(|(_, count)| count).sum();
            let count = of.iter().find(|(at, _)| *at == least).map_or(0, |(_, count)| *count);
            bar(count as f64 / all.max(1) as f64)
        };
        let row = |least: u64| {
            let [one, two] = quarters.map(|of| Cell::drawn(share(of, least)));
            vec![least.to_string().into(), one, two]
        };
        let grid = Grid::new(name, ["from", "first quarter", "last quarter"]);
        let grid = grid.rows(leasts.into_iter().map(row));
        Part::Folded(format!("Histogram {name}"), false, vec![Part::Grid(grid)])
    };
    both(quarters).map(part).collect()
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
        let runs = std::slice::from_ref(run);
        let text = crate::Report::new(&experiment, runs).text();
        text.split("Soak of").nth(1).map_or_else(String::new, str::to_owned)
    }

    #[test]
    fn the_end_of_a_soak_has_bytes_rate_memory_queues_and_both_quarters() {
        let said = said(&run("millstream", 0.0));
        for expected in [
            "0 wrong bytes of 3.00 TB checked: with 95 % confidence fewer than one in 1.00 million million",
            "rate of the last quarter over the first: 0.991 (95 %: 0.985 to 0.998), of 1 h 0 min",
            "2.00 GB read in order, 1.00 GB written, 5,000 reads of 4 KiB",
            "memory held for peers, near engine 70.0 kB 80.0 kB 80.0 kB",
            "written and not acknowledged, far kernel 5,000 B",
            "receive 75.0 % 50.0 % 15.0 ns 5.00 ns",
            "rx_batch_packets 4 4 64 8 8 64",
        ] {
            let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(expected), "{expected}: {said}");
        }
        assert!(!said.contains("received and not read"), "what was never there is no line");
        assert!(!said.contains("small pieces"), "{said}");
    }

    #[test]
    fn a_full_queue_of_small_pieces_is_told() {
        let mut run = run("kernel", 0.0);
        run.probes.times_s = (0..4).map(f64::from).collect();
        let queue = run.probes.fullest_queues.entry("far".to_owned()).or_default();
        (0..3).for_each(|step| queue.set(step, [7, 50_000, 900_000, 1_000_000, step as u64]));
        let said = said(&run);
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = "full of small pieces in large buffers: A full receive queue held 18 times";
        assert!(words.contains(expected), "{said}");
    }

    #[test]
    fn what_is_no_soak_says_nothing_of_it() {
        let mut run = run("kernel", 0.0);
        run.results.remove(keys::CHECKED_BYTES);
        assert_eq!(said(&run), "");
    }
}
