//! The section of a soak: what its end says, memory and queues as lines over the run, and the
//! engine's two quarters beside each other.

use millstream_diagnose::units::{Scale, significant};
use serde::Serialize;

use super::super::model::Model;
use super::super::soak::{Line, Soak, Stage, Twice};
use super::svg::{escape, n};

/// Size of a line over time.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 40.0;
/// Points of a line; a longer one has the most of several steps in one.
const POINTS: usize = 180;
/// Width of a histogram's bar of half of all values.
const BAR: f64 = 120.0;

/// A stack in a case.
#[derive(Serialize)]
pub(super) struct View {
    label: String,
    sentences: Vec<String>,
    lines: Vec<LineView>,
    stages: Vec<[String; 5]>,
    histograms: Vec<HistogramView>,
}

#[derive(Serialize)]
struct LineView {
    name: String,
    first: String,
    last: String,
    most: String,
    svg: String,
}

#[derive(Serialize)]
struct HistogramView {
    name: String,
    /// The least value of a bucket, and its share in the first and in the last quarter.
    rows: Vec<(u64, String, String)>,
}

/// Every stack that has checked bytes.
pub(super) fn views(model: &Model<'_>) -> Vec<View> {
    let view = |soak: Soak<'_>| View {
        label: soak.label,
        sentences: soak.sentences,
        lines: soak.lines.iter().filter_map(line).collect(),
        stages: soak.stages.iter().map(stage).collect(),
        histograms: soak.histograms.iter().map(histogram).collect(),
    };
    Soak::of(model).into_iter().map(view).collect()
}

fn line(line: &Line) -> Option<LineView> {
    let values = line.summary()?;
    let [first, last, most] = values.map(|bytes| Scale::of("_bytes", bytes).with_unit(bytes));
    let name = format!("{}, {}", line.name, line.of);
    let svg = drawn(line, values[2], &name);
    Some(LineView { name, first, last, most, svg })
}

/// The most of each stretch; a gap where nothing is known.
fn drawn(line: &Line, most: f64, name: &str) -> String {
    let each = line.series.len().div_ceil(POINTS).max(1);
    let count = line.series.len().div_ceil(each).max(1) as f64;
    let (mut path, mut is_open) = (String::new(), false);
    for (at, some) in line.series.chunks(each).enumerate() {
        let Some(&value) = some.iter().flatten().max() else {
            // Between two answers of an engine there are steps without one: no gap, unless it is
            // long.
            is_open &= each == 1;
            continue;
        };
        let x = (at as f64 + 0.5) / count * WIDTH;
        let y = HEIGHT - 2.0 - value as f64 / most.max(1.0) * (HEIGHT - 4.0);
        path.push_str(&format!("{}{} {}", if is_open { 'L' } else { 'M' }, n(x), n(y)));
        is_open = true;
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\
         <path class=\"axis\" d=\"M0 {HEIGHT}H{WIDTH}\"/><path class=\"line\" d=\"{path}\"/></svg>",
        escape(name)
    )
}

fn stage(stage: &Stage) -> [String; 5] {
    let [one, two] = stage.shares.map(|share| format!("{:.1} %", share * 100.0));
    let [before, after] = stage.unit_ns.map(|ns| format!("{} ns", significant(ns)));
    [stage.name.clone(), one, two, before, after]
}

fn histogram(twice: &Twice<'_>) -> HistogramView {
    let [first, last] = twice.quarters;
    let leasts: std::collections::BTreeSet<u64> =
        first.iter().chain(last).map(|(least, _)| *least).collect();
    let share = |of: &[(u64, u64)], least| {
        let all: u64 = of.iter().map(|(_, count)| count).sum();
        let count = of.iter().find(|(at, _)| *at == least).map_or(0, |(_, count)| *count);
        let share = count as f64 / all.max(1) as f64;
        format!(
            "<svg viewBox=\"0 0 {} 10\" width=\"{}\" height=\"10\"><rect class=\"bar\" width=\"{}\" height=\"10\"/></svg> {:.1} %",
            2.0 * BAR,
            2.0 * BAR,
            n(share * 2.0 * BAR),
            share * 100.0
        )
    };
    let rows = leasts.into_iter().map(|least| (least, share(first, least), share(last, least)));
    HistogramView { name: twice.name.to_owned(), rows: rows.collect() }
}
