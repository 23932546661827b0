//! All ratios against the base on one logarithmic axis.

use millstream_diagnose::stats::Comparison;
use millstream_diagnose::units::ratio;

use super::super::frame::Part;
use super::super::metric::Better;
use super::super::model::Model;
use super::super::room::Scope;
use super::super::verdict::{bracketed, judgement, ratio_with_interval};
use super::svg::{escape, figure, n};

const WIDTH: f64 = 1100.0;
const PLOT_LEFT: f64 = 330.0;
const PLOT_RIGHT: f64 = 760.0;
const ROW: f64 = 30.0;
const HEAD: f64 = 34.0;
const TOP: f64 = 30.0;

struct Line {
    case: String,
    row: String,
    metric: String,
    better: Better,
    comparison: Comparison,
}

/// Returns the plot, below the facts of the experiment.
pub(super) fn parts<'a>(scope: Scope<'_>) -> Vec<Part<'a>> {
    let most = scope.room.lines / 2;
    let drawn = plot(scope.model, most).map(|(svg, all)| {
        let mut said = "of medians, with 95 % intervals, on a logarithmic axis".to_owned();
        if all > most {
            said.push_str(&format!("; {} more are left out", all - most));
        }
        let svg = format!("<div class=\"scroll\">{svg}</div>");
        Part::Markup(figure("card", "Ratios", &said, &svg, ""))
    });
    drawn.into_iter().collect()
}

/// The plot of the first so many ratios, and how many there are; `None` when nothing is compared.
fn plot(model: &Model<'_>, most: usize) -> Option<(String, usize)> {
    let mut lines = lines(model);
    let all = lines.len();
    if lines.is_empty() {
        return None;
    }
    lines.truncate(most.max(1));
    let (low, high) = range(&lines);
    let x = |value: f64| {
        let share = (value.max(1e-9).ln() - low.ln()) / (high.ln() - low.ln());
        PLOT_LEFT + share.clamp(0.0, 1.0) * (PLOT_RIGHT - PLOT_LEFT)
    };
    let mut body = String::new();
    let mut y = TOP;
    let mut head = String::new();
    for line in &lines {
        let title = format!("{} · {}", line.case, line.row);
        if title != head {
            body.push_str(&format!(
                "<text class=\"case\" x=\"4\" y=\"{}\">{}</text>",
                n(y + 23.0),
                escape(&title)
            ));
            y += HEAD;
            head = title;
        }
        body.push_str(&drawn(line, y + ROW / 2.0, &x));
        y += ROW;
    }
    let height = y + 8.0;
    let mut out = format!(
        "<svg class=\"forest\" viewBox=\"0 0 {} {}\" role=\"img\" \
         aria-label=\"Ratios of medians against {}, with 95 % intervals; the table below has the numbers\">",
        n(WIDTH),
        n(height),
        escape(
            &model
                .cases
                .iter()
                .find_map(|case| case.rows.first())
                .map_or(String::new(), |row| row.label.clone())
        )
    );
    for tick in ratio_ticks(low, high) {
        let at = n(x(tick));
        let class = if tick == 1.0 { "one" } else { "grid" };
        out.push_str(&format!(
            "<path class=\"{class}\" d=\"M{at} {}V{}\"/>",
            n(TOP - 6.0),
            n(height - 6.0)
        ));
        let label = if tick == 1.0 { "equal".into() } else { format!("× {}", trimmed(tick)) };
        out.push_str(&format!(
            "<text class=\"tick\" x=\"{at}\" y=\"{}\">{label}</text>",
            n(TOP - 12.0)
        ));
    }
    out.push_str(&body);
    out.push_str("</svg>");
    Some((out, all))
}

fn lines(model: &Model<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    for case in &model.cases {
        for (at, row) in case.rows.iter().enumerate().skip(1) {
            for table in case.tables.iter().filter(|table| table.metric.headline) {
                let comparison = case.cells(table)[at].comparison.filter(Comparison::is_supported);
                let Some(comparison) = comparison else { continue };
                lines.push(Line {
                    case: case.label.clone(),
                    row: format!("{} against {}", row.label, case.rows[0].label),
                    metric: table.metric.label.clone(),
                    better: table.metric.better,
                    comparison,
                });
            }
        }
    }
    lines
}

fn drawn(line: &Line, y: f64, x: &impl Fn(f64) -> f64) -> String {
    let Line { case: _, row: _, metric, better, comparison } = line;
    let judged = judgement(comparison, *better);
    let class = match judged {
        "better" => "good",
        "worse" => "poor",
        _ => "even",
    };
    let mut out =
        format!("<text class=\"what\" x=\"22\" y=\"{}\">{}</text>", n(y + 4.5), escape(metric));
    if let Some(interval) = comparison.interval {
        let (low, high) = (n(x(interval.low)), n(x(interval.high)));
        out.push_str(&format!("<path class=\"span {class}\" d=\"M{low} {0}H{high}\"/>", n(y)));
    }
    let title = format!("{metric}: {}", ratio_with_interval(comparison));
    out.push_str(&format!(
        "<circle class=\"at {class}\" cx=\"{}\" cy=\"{}\" r=\"6\"><title>{}</title></circle>",
        n(x(comparison.ratio)),
        n(y),
        escape(&title)
    ));
    let interval = comparison.interval.map_or_else(String::new, bracketed);
    let wish = match better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
        Better::Neither => "",
    };
    out.push_str(&format!(
        "<text class=\"ratio\" x=\"790\" y=\"{0}\">{1}</text><text class=\"dim\" x=\"838\" y=\"{0}\">{interval}</text>\
         <text class=\"word {class}\" x=\"950\" y=\"{0}\">{judged}<title>{wish}</title></text>",
        n(y + 4.5),
        ratio(comparison.ratio),
    ));
    out
}

/// A range that holds 1 and all intervals as far as they end, at least from a half to the double.
fn range(lines: &[Line]) -> (f64, f64) {
    let (mut low, mut high) = (0.5f64, 2.0f64);
    for Line { comparison, .. } in lines {
        let ends = comparison.interval.map(|interval| [interval.low, interval.high]);
        let values = ends.into_iter().flatten().chain([comparison.ratio]);
        for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
    }
    (low.max(1e-6) / 1.08, high.min(1e6) * 1.08)
}

/// Powers of two inside the range, fewer when it is wide.
fn ratio_ticks(low: f64, high: f64) -> Vec<f64> {
    let (from, to) = (low.log2().ceil() as i32, high.log2().floor() as i32);
    let every = ((to - from) / 7 + 1).max(1);
    let fine = to - from <= 3;
    let mut ticks: Vec<f64> =
        (from..=to).filter(|power| power % every == 0).map(|power| 2f64.powi(power)).collect();
    if fine {
        ticks.extend([0.75, 1.5].into_iter().filter(|tick| (low..=high).contains(tick)));
    }
    ticks.sort_by(f64::total_cmp);
    ticks
}

fn trimmed(tick: f64) -> String {
    if tick < 0.25 {
        // Exact: an eighth is not 0.12.
        return format!("1/{:.0}", 1.0 / tick);
    }
    let text = ratio(tick);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_called_what_it_is() {
        let called: Vec<String> = ratio_ticks(0.01, 9.0).into_iter().map(trimmed).collect();
        assert_eq!(called, ["1/64", "1/16", "0.25", "1", "4"]);
        assert_eq!([0.125, 0.5, 0.75, 1.5].map(trimmed), ["1/8", "0.5", "0.75", "1.5"]);
    }
}
