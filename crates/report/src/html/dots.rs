//! One result of one case: every run a point, the median with its interval, a row per stack.

use millstream_diagnose::groups::Sample;
use millstream_diagnose::stats::Summary;
use millstream_diagnose::units::{Scale, grouped};

use super::super::detail::spread;
use super::super::model::{Case, Row, Table};
use super::super::text::interval_text;
use super::svg::{escape, mark, n, ticks};

const WIDTH: f64 = 540.0;
const LEFT: f64 = 14.0;
const RIGHT: f64 = 18.0;
const ROW: f64 = 74.0;
const AXIS: f64 = 26.0;
/// Height that a row has more where its name and its numbers do not fit on one line.
const LINE: f64 = 18.0;
/// About the width of a letter of a name, and of a letter of numbers.
const NAME_LETTER: f64 = 8.3;
const NUMBER_LETTER: f64 = 7.2;

/// The numbers of a row: the median, and the rest in brackets.
fn numbers(summary: &Summary, scale: &Scale) -> (String, String) {
    let rest = format!("({}) n={}", interval_text(summary, scale), summary.n);
    (scale.with_unit(summary.median), rest)
}

/// Returns true when name and numbers of every row fit on one line.
fn fit_one_line(case: &Case<'_>, table: &Table) -> bool {
    let letters = |text: &str| text.chars().count() as f64;
    case.rows.iter().zip(case.cells(table)).all(|(row, cell)| {
        let numbers = cell.summary.map(|summary| numbers(&summary, &table.scale));
        let wide = numbers.map_or(0.0, |(value, rest)| letters(&value) + 2.0 + letters(&rest));
        letters(&row.label) * NAME_LETTER + wide * NUMBER_LETTER <= WIDTH - LEFT - RIGHT
    })
}

/// The plot, and what is said of points that are left out. The axis starts at zero, so that lengths
/// compare as the numbers do; the height of a point inside its row is its block. A row has `each`
/// points at most.
pub(super) fn plot(case: &Case<'_>, at: usize, each: usize) -> (String, String) {
    let table = &case.tables[at];
    let Table { metric, scale, .. } = table;
    let cells = case.cells(table);
    let samples: Vec<_> = case.rows.iter().map(|row| row.group.samples(&metric.key)).collect();
    let largest =
        samples.iter().flatten().map(|sample| sample.value).fold(0.0, f64::max) / scale.divisor;
    let all: usize = samples.iter().map(Vec::len).sum();
    let drawn: Vec<_> = samples.into_iter().map(|row| drawn(row, each)).collect();
    let left_out = said(all, drawn.iter().map(Vec::len).sum());
    let ticks = ticks(largest, 5);
    let end = ticks.last().copied().unwrap_or(1.0);
    let x =
        |value: f64| LEFT + (value / scale.divisor / end).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let more = if fit_one_line(case, table) { 0.0 } else { LINE };
    let bottom = (ROW + more) * case.rows.len() as f64;
    let height = bottom + AXIS;
    let heard: Vec<String> = case
        .rows
        .iter()
        .zip(cells)
        .filter_map(|(row, cell)| {
            Some(format!("{} median {}", row.label, scale.with_unit(cell.summary?.median)))
        })
        .collect();
    let mut out = format!(
        "<svg class=\"dots\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
        n(WIDTH),
        n(height),
        escape(&format!("{}, {}: {}", case.label, metric.label, heard.join("; ")))
    );
    out.push_str(&grid(&ticks, bottom, |tick| x(tick * scale.divisor)));
    out.push_str(&format!(
        "<path class=\"axis\" d=\"M{} {}H{}\"/>",
        n(LEFT),
        n(bottom),
        n(WIDTH - RIGHT)
    ));
    for (index, (row, cell)) in case.rows.iter().zip(cells).enumerate() {
        let top = index as f64 * (ROW + more);
        out.push_str(&name(row, top));
        let top = top + more;
        if let Some(summary) = &cell.summary {
            out.push_str(&median(row, summary, scale, top, x));
        }
        out.push_str(&points(row, &drawn[index], scale, top + 47.0, &x));
    }
    out.push_str("</svg>");
    (out, left_out)
}

/// Returns at most about `each` of a row's points: from every height, those that count and the
/// others by their share of all, with the lowest and the highest of either.
fn drawn(samples: Vec<Sample<'_>>, each: usize) -> Vec<Sample<'_>> {
    let all = samples.len();
    if all <= each {
        return samples;
    }
    let (counting, others): (Vec<_>, Vec<_>) =
        samples.into_iter().partition(|sample| sample.counts);
    let room = others.len() * each / all;
    let others = at_all_heights(others, room);
    let mut drawn = at_all_heights(counting, each.saturating_sub(others.len()));
    drawn.extend(others);
    drawn
}

fn at_all_heights(mut samples: Vec<Sample<'_>>, room: usize) -> Vec<Sample<'_>> {
    samples.sort_by(|a, b| a.value.total_cmp(&b.value));
    spread(&samples, room.max(2))
}

/// Returns the sentence on points that are left out; empty where all are drawn.
fn said(all: usize, drawn: usize) -> String {
    if drawn == all {
        return String::new();
    }
    format!(
        "{} of {} points are drawn: of each row as many at all heights as there is room for, spread evenly from its lowest \
         to its highest, which are among them. Medians and intervals are of all.",
        grouped(drawn as f64),
        grouped(all as f64)
    )
}

/// The name of a row, drawn closer together where it is wider than the plot.
fn name(row: &Row<'_>, top: f64) -> String {
    let room = WIDTH - LEFT - RIGHT;
    let is_wide = row.label.chars().count() as f64 * NAME_LETTER > room;
    let close = format!(" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", n(room - 4.0));
    format!(
        "<text class=\"name t{}\" x=\"{}\" y=\"{}\"{}>{}</text>",
        row.place,
        n(LEFT + 4.0),
        n(top + 18.0),
        if is_wide { &close } else { "" },
        escape(&row.label)
    )
}

/// A line and a label for each tick.
fn grid(ticks: &[f64], bottom: f64, x: impl Fn(f64) -> f64) -> String {
    let mut out = String::new();
    for tick in ticks {
        let at = n(x(*tick));
        out.push_str(&format!("<path class=\"grid\" d=\"M{at} 4V{}\"/>", n(bottom)));
        let label = millstream_diagnose::units::significant(*tick);
        let label = if label.contains('.') {
            label.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            label
        };
        out.push_str(&format!(
            "<text class=\"tick\" x=\"{at}\" y=\"{}\">{label}</text>",
            n(bottom + 16.0)
        ));
    }
    out
}

/// The median of a row with its interval, as a number and as a line in its band.
fn median(
    row: &Row<'_>,
    summary: &Summary,
    scale: &Scale,
    top: f64,
    x: impl Fn(f64) -> f64,
) -> String {
    let mut out = String::new();
    let (value, rest) = numbers(summary, scale);
    let value = format!(
        "<tspan class=\"value\">{}</tspan> <tspan class=\"dim\">{}</tspan>",
        escape(&value),
        escape(&rest)
    );
    out.push_str(&format!(
        "<text class=\"num\" x=\"{}\" y=\"{}\">{value}</text>",
        n(WIDTH - RIGHT),
        n(top + 18.0)
    ));
    if let Some(interval) = summary.interval {
        let (low, high) = (x(interval.low), x(interval.high));
        out.push_str(&format!(
            "<rect class=\"band s{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"38\" rx=\"2\"/>",
            row.place,
            n(low),
            n(top + 28.0),
            n((high - low).max(1.0))
        ));
    }
    let at = n(x(summary.median));
    out.push_str(&format!(
        "<path class=\"median s{}\" d=\"M{at} {}v42\"/>",
        row.place,
        n(top + 26.0)
    ));
    out
}

fn points(
    row: &Row<'_>,
    samples: &[Sample<'_>],
    scale: &Scale,
    middle: f64,
    x: &impl Fn(f64) -> f64,
) -> String {
    let blocks = samples.iter().map(|sample| sample.run.block).max().unwrap_or(0);
    let points = samples.iter().map(|sample| {
        let place =
            if blocks == 0 { 0.0 } else { f64::from(sample.run.block) / f64::from(blocks) - 0.5 };
        let remark = if sample.counts { "" } else { ", does not count" };
        let title = format!(
            "{}: {}, run {}, block {}{remark}",
            row.label,
            scale.with_unit(sample.value),
            sample.run.order,
            sample.run.block
        );
        mark(row.place, sample.counts, x(sample.value), middle + place * 28.0, &title)
    });
    points.collect()
}
