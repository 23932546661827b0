//! An investigation as one page without network or script: the verdict first, what it rests on below.

use minijinja::{Environment, context};
use serde::Serialize;

use super::text::{FINDINGS_SHOWN, plain, spoken};
use super::{Heat, Investigation, Suspect, drawings};
use crate::report::STYLE;
use crate::report::units::Scale;

const PAGE: &str = include_str!("page.html");

/// Size of a drawing and its margins, in pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 90.0;
const BELOW: f64 = 28.0;

#[derive(Serialize)]
struct SuspectView<'a> {
    suspect: &'a Suspect,
    verdict: &'static str,
    proof: Vec<String>,
    ranked: Option<String>,
    plot: Option<String>,
}

impl Investigation {
    /// The page.
    ///
    /// # Panics
    ///
    /// When the template cannot be rendered, which a test excludes.
    pub fn html(&self) -> String {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.add_template("page.html", PAGE).expect("a template");
        let scale = self.scale();
        let suspects: Vec<SuspectView<'_>> = self
            .suspects
            .iter()
            .map(|suspect| SuspectView {
                suspect,
                verdict: spoken(suspect.verdict()),
                proof: suspect.proof(&scale),
                ranked: suspect.ranked(),
                plot: (!suspect.forced.is_empty()).then(|| self.levels_plot(suspect, &scale)),
            })
            .collect();
        let groups: Vec<_> = self
            .modes
            .iter()
            .map(|mode| {
                context! {
                    median => scale.with_unit(mode.median),
                    low => scale.number(mode.range.0),
                    high => scale.number(mode.range.1),
                    runs => mode.members.len(),
                    share => format!("{:.0} %", 100.0 * mode.share(self.observed.len())),
                }
            })
            .collect();
        let findings: Vec<_> = self
            .separation
            .findings
            .iter()
            .take(2 * FINDINGS_SHOWN)
            .map(|one| {
                context! {
                    feature => one.feature,
                    medians => one.medians.iter().map(|value| plain(*value)).collect::<Vec<_>>().join(" → "),
                    strength => format!("{:.2}", one.strength),
                    p => format!("{:.4}", one.p),
                    shown => one.is_shown(),
                    members => one.members.join(", "),
                }
            })
            .collect();
        let lists: Vec<_> = (self.met.lists().into_iter())
            .map(|(name, title, list)| {
                let rows: Vec<_> = (list.iter())
                    .map(|one| {
                        context! {
                            who => one.who,
                            per_s => plain(one.per_s),
                            groups => one.groups(),
                            stack => one.stack.join(" ← "),
                        }
                    })
                    .collect();
                context! { title, rows, absent => self.met.absent.get(name) }
            })
            .collect();
        let page = environment.get_template("page.html").expect("the page").render(context! {
            style => STYLE,
            found => self,
            verdict => self.verdict(),
            median => scale.with_unit(self.median),
            interval => self.interval.map(|(low, high)| {
                format!("{} to {}", scale.number(low), scale.number(high))
            }),
            least_seen => self.has_ratios().then(|| format!("{:.1} %", 100.0 * self.least_seen)),
            runs_plot => self.runs_plot(&scale),
            suspects,
            limits => self.limits.rows(),
            not_double => self.limits.sentence(),
            groups,
            findings,
            lists,
            flames => self.met.flames(),
            heat => self.heat(),
            histograms => self.seen.histograms.iter().map(|both| {
                context! { name => both.name, svg => drawings::histograms(both) }
            }).collect::<Vec<_>>(),
            costs => self.costs(),
            cost => self.cost(),
            no_flames => self.met.absent.get("profile"),
        });
        page.expect("a page")
    }

    /// A heat map for each run that is kept over time, with its heading.
    fn heat(&self) -> Vec<(String, String)> {
        let ends = ["lowest", "middle", "highest"];
        let groups = self.seen.heat.iter().map(|one| one.group + 1).max().unwrap_or(1);
        let named = |one: &Heat| {
            let of = match (groups, one.group) {
                (1, _) => "a run near the median".to_owned(),
                (_, 0) => format!("a run of the {} results", ends[0]),
                (all, group) if group + 1 == all => format!("a run of the {} results", ends[2]),
                _ => format!("a run of the {} results", ends[1]),
            };
            let host = if one.is_far { "the host of the far end" } else { "this host" };
            (format!("{host}, {of} ({})", one.run), drawings::heat(one))
        };
        self.seen.heat.iter().map(named).collect()
    }

    /// What looked, and the percent of one CPU it took.
    fn costs(&self) -> Vec<(String, String)> {
        let shown = self.seen.costs.iter().filter(|(_, percent)| *percent >= 0.001);
        shown.map(|(name, percent)| (name.clone(), format!("{percent:.3} %"))).collect()
    }

    /// What all of it took.
    fn cost(&self) -> String {
        let all: f64 = self.seen.costs.iter().map(|(_, percent)| percent).sum();
        let of_machine = all / self.seen.cpus.max(1) as f64;
        format!("{all:.2} % of one CPU, {of_machine:.2} % of this machine")
    }

    fn top(&self) -> f64 {
        let forced = self.suspects.iter().flat_map(|one| &one.forced).flat_map(|(_, runs)| runs);
        let all = self.observed.iter().map(|point| &point.result).chain(forced);
        all.copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE) * 1.05
    }

    /// Every observed run in the order of execution, coloured by group.
    fn runs_plot(&self, scale: &Scale) -> String {
        let step = (WIDTH - LEFT - 20.0) / self.observed.len().max(1) as f64;
        let points = self.observed.iter().enumerate().map(|(at, point)| Dot {
            x: LEFT + step * (at as f64 + 0.5),
            value: point.result,
            class: point.group.unwrap_or(0),
            title: format!("run {at}: {}", scale.with_unit(point.result)),
        });
        drawing(
            self.top(),
            scale,
            points.collect(),
            &[(LEFT + 4.0, "runs in the order of execution")],
        )
    }

    /// The runs of each level of a forced cause, a column each.
    fn levels_plot(&self, suspect: &Suspect, scale: &Scale) -> String {
        let column = (WIDTH - LEFT - 20.0) / suspect.forced.len().max(1) as f64;
        let (mut dots, mut labels) = (Vec::new(), Vec::new());
        for (at, (level, results)) in suspect.forced.iter().enumerate() {
            let begin = LEFT + column * at as f64;
            labels.push((begin + column * 0.3, level.as_str()));
            for (run, &value) in results.iter().enumerate() {
                let share = (run as f64 + 0.5) / results.len() as f64;
                dots.push(Dot {
                    x: begin + column * (0.3 + 0.4 * share),
                    value,
                    class: 3 + at,
                    title: format!("{level}: {}", scale.with_unit(value)),
                });
            }
        }
        drawing(self.top(), scale, dots, &labels)
    }
}

struct Dot {
    x: f64,
    value: f64,
    class: usize,
    title: String,
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn drawing(top: f64, scale: &Scale, dots: Vec<Dot>, labels: &[(f64, &str)]) -> String {
    let y = |value: f64| (HEIGHT - BELOW) * (1.0 - value / top) + 4.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for tick in 0..=4 {
        let value = top * f64::from(tick) / 4.0 / 1.05;
        let at = y(value);
        svg.push_str(&format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            escape(&scale.with_unit(value))
        ));
    }
    for (x, label) in labels {
        svg.push_str(&format!(
            "<text x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            HEIGHT - 6.0,
            escape(label)
        ));
    }
    for dot in dots {
        svg.push_str(&format!(
            "<circle class=\"g{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}</title></circle>",
            dot.class,
            dot.x,
            y(dot.value),
            escape(&dot.title)
        ));
    }
    svg.push_str("</svg>");
    svg
}
