//! One run over time: its outcome per interval, and every CPU as a stack of what it did.

use millstream_diagnose::units::Scale;
use millstream_record::{CpuSeries, RunRecord, keys};

use super::super::metric;
use super::svg::{escape, n};

const WIDTH: f64 = 212.0;
const LEFT: f64 = 33.0;
const RIGHT: f64 = 4.0;
const LINE: f64 = 46.0;
const CORE: f64 = 38.0;
const GAP: f64 = 7.0;
/// Height of the distance of the hosts' CPUs, and the top of its axis unless it was more.
const APART: f64 = 24.0;
const APART_NS: f64 = 600.0;
/// CPUs drawn per run: the busiest.
pub(super) const CPUS: usize = 8;
/// Steps drawn per run; longer runs are drawn with several steps in one.
const STEPS: usize = 60;

/// Kinds in the order of stacking, from the bottom.
pub(super) const KINDS: [&str; 7] = ["usr", "nice", "sys", "softirq", "irq", "steal", "wait"];

/// About how much a plot of this run weighs, in drawn steps.
pub(super) fn weight(run: &RunRecord) -> usize {
    let cpus = run.probes.cpu.as_ref().map_or(0, |cpu| cpu.cpus.len().min(CPUS));
    let apart = usize::from(run.probes.cpu_distance_ns.is_some());
    run.probes.times_s.len().min(STEPS) * (cpus + apart + 1)
}

/// The plot; `largest` is the top of the outcome's axis, the same in all runs of a case.
pub(super) fn plot(run: &RunRecord, largest: f64) -> String {
    let end = run.probes.times_s.last().copied().unwrap_or(0.0).max(run.window.end_s).max(0.1);
    let x = |time: f64| LEFT + (time / end).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let cpus = chosen(run);
    let apart = distance(run, LINE + GAP, &x);
    let first = LINE + GAP + if apart.is_empty() { 0.0 } else { APART + GAP };
    let height = first + cpus.len() as f64 * (CORE + GAP) + 14.0;
    let mut out = format!(
        "<svg class=\"act\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
        n(WIDTH),
        n(height),
        escape(&spoken(run, &cpus))
    );
    let (from, to) = (x(run.window.start_s), x(run.window.end_s));
    out.push_str(&format!(
        "<rect class=\"win\" x=\"{}\" y=\"0\" width=\"{}\" height=\"{}\"><title>measured window</title></rect>",
        n(from),
        n((to - from).max(0.0)),
        n(height - 14.0)
    ));
    out.push_str(&outcome(run, largest, &x));
    out.push_str(&apart);
    let mut top = first;
    for cpu in &cpus {
        out.push_str(&core(run, cpu, top, &x));
        top += CORE + GAP;
    }
    for time in [0.0, end / 2.0, end] {
        let anchor = if time == 0.0 {
            " st"
        } else if time == end {
            " en"
        } else {
            ""
        };
        let decimals = if end < 2.0 { 2 } else { 1 };
        out.push_str(&format!(
            "<text class=\"tick{anchor}\" x=\"{}\" y=\"{}\">{time:.decimals$} s</text>",
            n(x(time)),
            n(height - 2.0)
        ));
    }
    out.push_str("</svg>");
    out
}

/// The key of the outcome that is drawn over time.
pub(super) fn outcome_key(run: &RunRecord) -> Option<&str> {
    let metrics = metric::of_runs([run].into_iter());
    let series = &run.intervals.series;
    let leading = metrics
        .iter()
        .filter(|metric| metric.headline)
        .find_map(|metric| series.get_key_value(&metric.key));
    let fallback = || series.get_key_value(keys::THROUGHPUT).or_else(|| series.iter().next());
    leading.or_else(fallback).map(|(key, _)| key.as_str())
}

/// Largest finite value of the outcome's intervals.
pub(super) fn largest(run: &RunRecord) -> f64 {
    let series = outcome_key(run).and_then(|key| run.intervals.series.get(key));
    series.into_iter().flatten().copied().filter(|value| value.is_finite()).fold(0.0, f64::max)
}

fn outcome(run: &RunRecord, largest: f64, x: &impl Fn(f64) -> f64) -> String {
    let Some(key) = outcome_key(run) else { return String::new() };
    let scale = Scale::of(key, largest);
    let y = |value: f64| 4.0 + (LINE - 4.0) * (1.0 - (value / largest.max(1e-12)).clamp(0.0, 1.0));
    let values = &run.intervals.series[key];
    let each = values.len().div_ceil(STEPS).max(1);
    let spans = run.intervals.spans(values.len());
    let mut path = String::new();
    for (some, spans) in values.chunks(each).zip(spans.chunks(each)) {
        let (from, to) = (spans[0].0, spans[spans.len() - 1].1);
        let width = |&(from, to): &(f64, f64)| to - from;
        let known = some.iter().zip(spans).filter(|(value, _)| value.is_finite());
        let (sum, known_s) = known.fold((0.0, 0.0), |(sum, known_s), (value, span)| {
            (sum + value * width(span), known_s + width(span))
        });
        if known_s <= 0.0 {
            continue;
        }
        let mean = sum / known_s;
        let command = if path.is_empty() { 'M' } else { 'L' };
        path.push_str(&format!("{command}{} {}H{}", n(x(from)), n(y(mean)), n(x(to))));
    }
    format!(
        "<path class=\"axis\" d=\"M{} {LINE}H{}\"/>\
         <text class=\"lab\" x=\"{}\" y=\"10\">{}</text><text class=\"lab\" x=\"{}\" y=\"20\">{}</text>\
         <path class=\"line\" d=\"{path}\"/>",
        n(LEFT),
        n(WIDTH - RIGHT),
        n(LEFT - 4.0),
        scale.number(largest),
        n(LEFT - 4.0),
        escape(&scale.unit),
    )
}

/// The distance of the hosts' CPUs over time, below `top`; empty where it was not looked at.
fn distance(run: &RunRecord, top: f64, x: &impl Fn(f64) -> f64) -> String {
    let Some(seen) = &run.probes.cpu_distance_ns else { return String::new() };
    let times = run.probes.times_s.windows(2);
    let each = seen.len().div_ceil(STEPS).max(1);
    let farthest = seen.iter().flatten().max().map_or(0.0, |&ns| ns as f64);
    let bottom = top + APART;
    let mut path = String::new();
    for (times, seen) in times.collect::<Vec<_>>().chunks(each).zip(seen.chunks(each)) {
        // The farthest of several steps: one of many is looked for.
        let (Some(&ns), Some(first), Some(last)) =
            (seen.iter().flatten().max(), times.first(), times.last())
        else {
            continue;
        };
        let y = bottom - APART * ns as f64 / farthest.max(APART_NS);
        path.push_str(&format!("M{} {}H{}", n(x(first[0])), n(y), n(x(last[1]))));
    }
    format!(
        "<g><title>round trip of a cache line between the hosts' CPUs, at most {farthest:.0} ns</title>\
         <path class=\"axis\" d=\"M{} {}H{}\"/>\
         <text class=\"lab\" x=\"{}\" y=\"{}\">{farthest:.0}</text>\
         <text class=\"lab\" x=\"{}\" y=\"{}\">ns</text>\
         <path class=\"line apart\" d=\"{path}\"/></g>",
        n(LEFT),
        n(bottom),
        n(WIDTH - RIGHT),
        n(LEFT - 4.0),
        n(top + 9.0),
        n(LEFT - 4.0),
        n(top + 19.0),
    )
}

/// The CPUs to draw, in ascending number: all, or the busiest.
fn chosen(run: &RunRecord) -> Vec<&CpuSeries> {
    let Some(activity) = &run.probes.cpu else { return Vec::new() };
    let mut cpus: Vec<&CpuSeries> = activity.cpus.iter().collect();
    let busy = |cpu: &CpuSeries| (0..cpu.idle_s.len()).map(|at| cpu.busy_s(at)).sum::<f64>();
    cpus.sort_by(|a, b| busy(b).total_cmp(&busy(a)).then(a.cpu.cmp(&b.cpu)));
    cpus.truncate(CPUS);
    cpus.sort_by_key(|cpu| cpu.cpu);
    cpus
}

/// Share of each kind in each drawn step, with the step's ends.
fn shares(run: &RunRecord, cpu: &CpuSeries) -> Vec<(f64, f64, [f64; KINDS.len()])> {
    let times = &run.probes.times_s;
    let steps = times.len().saturating_sub(1).min(cpu.idle_s.len());
    let each = steps.div_ceil(STEPS).max(1);
    let kinds = cpu.kinds();
    let series = |name: &str| {
        kinds.iter().find(|(kind, _)| *kind == name).map_or(&[][..], |(_, series)| *series)
    };
    let sum = |series: &[f64], from: usize, to: usize| {
        series.get(from..to).unwrap_or_default().iter().sum::<f64>()
    };
    let drawn = (0..steps).step_by(each).map(|from| {
        let to = (from + each).min(steps);
        let parts = KINDS.map(|kind| sum(series(kind), from, to));
        let all = parts.iter().sum::<f64>() + sum(series("idle"), from, to);
        let share = |part: f64| if all > 0.0 { part / all } else { 0.0 };
        (times[from], times[to], parts.map(share))
    });
    drawn.collect()
}

fn core(run: &RunRecord, cpu: &CpuSeries, top: f64, x: &impl Fn(f64) -> f64) -> String {
    let bottom = top + CORE;
    let steps = shares(run, cpu);
    let mut out = format!(
        "<rect class=\"idle\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{CORE}\"/>\
         <text class=\"lab\" x=\"{}\" y=\"{}\">CPU {}</text>",
        n(LEFT),
        n(top),
        n(WIDTH - LEFT - RIGHT),
        n(LEFT - 4.0),
        n(top + CORE / 2.0 + 3.0),
        cpu.cpu
    );
    let busy = mean_busy(&steps);
    out.push_str(&format!(
        "<text class=\"lab dim\" x=\"{}\" y=\"{}\">{:.0} %</text>",
        n(LEFT - 4.0),
        n(top + CORE / 2.0 + 13.0),
        busy * 100.0
    ));
    let mut below = vec![0.0; steps.len()];
    for (kind, name) in KINDS.iter().enumerate() {
        if steps.iter().all(|(.., parts)| parts[kind] <= 0.0) {
            continue;
        }
        let above: Vec<f64> =
            below.iter().zip(&steps).map(|(low, (.., parts))| low + parts[kind]).collect();
        let y = |share: f64| n(bottom - share.clamp(0.0, 1.0) * CORE);
        let mut path = String::new();
        for (at, (from, to, _)) in steps.iter().enumerate() {
            let start = if at == 0 { format!("M{}", n(x(*from))) } else { String::new() };
            let vertical =
                if at == 0 { format!(" {}", y(above[at])) } else { format!("V{}", y(above[at])) };
            path.push_str(&format!("{start}{vertical}H{}", n(x(*to))));
        }
        for (at, (from, ..)) in steps.iter().enumerate().rev() {
            path.push_str(&format!("V{}H{}", y(below[at]), n(x(*from))));
        }
        out.push_str(&format!("<path class=\"k-{name}\" d=\"{path}Z\"/>"));
        below = above;
    }
    out
}

/// Mean share of work; waiting for a disk and stolen time are none.
fn mean_busy(steps: &[(f64, f64, [f64; KINDS.len()])]) -> f64 {
    let length: f64 = steps.iter().map(|(from, to, _)| to - from).sum();
    let worked: f64 =
        steps.iter().map(|(from, to, parts)| (to - from) * parts[..5].iter().sum::<f64>()).sum();
    if length > 0.0 { worked / length } else { 0.0 }
}

fn spoken(run: &RunRecord, cpus: &[&CpuSeries]) -> String {
    let mut text = format!("run {} over time", run.order);
    for cpu in cpus {
        text.push_str(&format!(
            "; CPU {} {:.0} % busy",
            cpu.cpu,
            mean_busy(&shares(run, cpu)) * 100.0
        ));
    }
    text
}
