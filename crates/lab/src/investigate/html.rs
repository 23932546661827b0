//! An investigation as one page without network or script: the verdict first, what it rests on
//! below.

use millstream_diagnose::units::Scale;
use millstream_foreign::markup as escape;
use millstream_report::{STYLE, first_of, spread};
use minijinja::{Environment, context};
use serde::Serialize;

use super::text::{FINDINGS_SHOWN, plain, spoken};
use super::{Heat, Investigation, Suspect, drawings};

const PAGE: &str = include_str!("page.html");

/// Size of a drawing and its margins, in pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 90.0;
const BELOW: f64 = 28.0;

/// Runs that are drawn one by one, of all and of a level of a forced cause; lines of a list; names
/// in one line.
const DOTS: usize = 1_500;
const LEVEL_DOTS: usize = 60;
const LINES: usize = 100;
const MEMBERS: usize = 40;
/// Bytes of a page that heat maps and flame graphs have together, so that it stays below 2 MB, and
/// of a flame graph at least and at most.
const DRAWN_BYTES: usize = 1_500_000;
const FLAME: [usize; 2] = [50_000, 400_000];

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
                    members => first_words(&one.members),
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
        let heat = self.heat();
        let heat_bytes: usize = heat.iter().map(|(_, svg)| svg.len()).sum();
        let flame_bytes = (DRAWN_BYTES.saturating_sub(heat_bytes) / 2).clamp(FLAME[0], FLAME[1]);
        let page = environment.get_template("page.html").expect("the page").render(context! {
            style => STYLE,
            found => context! {
                subject => self.subject,
                runs => self.observed.len(),
                looked_at => self.separation.looked_at,
                not_judged => self.not_judged,
                experiments => self.experiments,
            },
            verdict => self.verdict(),
            median => scale.with_unit(self.median),
            interval => self.interval.map(|(low, high)| {
                format!("{} to {}", scale.number(low), scale.number(high))
            }),
            least_seen => self.least_seen_text(),
            runs_plot => self.runs_plot(&scale),
            suspects,
            limits => self.limits.rows(),
            not_double => self.limits.sentence(),
            groups,
            findings,
            lists,
            flames => self.met.flames(flame_bytes),
            heat,
            histograms => self.seen.histograms.iter().map(|both| {
                context! { name => both.name, svg => drawings::histograms(both) }
            }).collect::<Vec<_>>(),
            costs => self.costs(),
            cost => self.cost(),
            no_flames => self.met.absent.get("profile"),
            left_out => first_of(self.left_out.clone(), LINES),
            notes => first_of(self.notes.clone(), LINES),
            dots_drawn => DOTS.min(self.observed.len()),
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

    /// Returns the probes and programs, with the percent of one CPU that each took.
    fn costs(&self) -> Vec<(String, String)> {
        let shown = self.seen.costs.iter().filter(|(_, percent)| *percent >= 0.001);
        shown.map(|(name, percent)| (name.clone(), format!("{percent:.3} %"))).collect()
    }

    /// Returns the percent of one CPU, and of the machine, that all of them took.
    fn cost(&self) -> String {
        let all: f64 = self.seen.costs.iter().map(|(_, percent)| percent).sum();
        let of_machine = all / self.seen.cpus.max(1) as f64;
        format!("{all:.2} % of one CPU, {of_machine:.2} % of this machine")
    }

    /// Returns the lowest and the highest place of a drawing, zero among them, with some room
    /// above.
    fn ends(&self) -> (f64, f64) {
        let forced = self.suspects.iter().flat_map(|one| &one.forced).flat_map(|(_, runs)| runs);
        let all = self.observed.iter().map(|point| &point.result).chain(forced);
        let (low, high) =
            all.fold((0.0f64, 0.0f64), |(low, high), one| (low.min(*one), high.max(*one)));
        let height = high - low;
        (low, if height > 0.0 { low + height * 1.05 } else { low + 1.0 })
    }

    /// The observed runs in the order of execution, coloured by group: all, or of very many some of
    /// every height, with the lowest and the highest.
    fn runs_plot(&self, scale: &Scale) -> String {
        let step = (WIDTH - LEFT - 20.0) / self.observed.len().max(1) as f64;
        let mut drawn: Vec<_> = self.observed.iter().enumerate().collect();
        drawn.sort_by(|a, b| a.1.result.total_cmp(&b.1.result));
        let mut drawn = spread(&drawn, DOTS);
        drawn.sort_by_key(|(at, _)| *at);
        let points = drawn.into_iter().map(|(at, point)| Dot {
            x: LEFT + step * (at as f64 + 0.5),
            value: point.result,
            class: point.group.unwrap_or(0),
            title: format!("run {at}: {}", scale.with_unit(point.result)),
        });
        drawing(
            self.ends(),
            scale,
            points.collect(),
            &[(LEFT + 4.0, "runs in the order of execution".to_owned())],
        )
    }

    /// The runs of each level of a forced cause, a column each.
    fn levels_plot(&self, suspect: &Suspect, scale: &Scale) -> String {
        let column = (WIDTH - LEFT - 20.0) / suspect.forced.len().max(1) as f64;
        let (mut dots, mut labels) = (Vec::new(), Vec::new());
        for (at, (level, results)) in suspect.forced.iter().enumerate() {
            let begin = LEFT + column * at as f64;
            let said = match results.len() > LEVEL_DOTS {
                true => format!("{level} ({LEVEL_DOTS} of {} are drawn)", results.len()),
                false => level.clone(),
            };
            labels.push((begin + column * 0.3, said));
            let mut drawn: Vec<(usize, f64)> = results.iter().copied().enumerate().collect();
            drawn.sort_by(|a, b| a.1.total_cmp(&b.1));
            for (run, value) in spread(&drawn, LEVEL_DOTS) {
                let share = (run as f64 + 0.5) / results.len() as f64;
                dots.push(Dot {
                    x: begin + column * (0.3 + 0.4 * share),
                    value,
                    class: 3 + at,
                    title: format!("{level}: {}", scale.with_unit(value)),
                });
            }
        }
        drawing(self.ends(), scale, dots, &labels)
    }
}

/// The first of many names, and how many more there are.
fn first_words(names: &[String]) -> String {
    let text = names.iter().take(MEMBERS).cloned().collect::<Vec<_>>().join(", ");
    match names.len() > MEMBERS {
        true => format!("{text} and {} more", names.len() - MEMBERS),
        false => text,
    }
}

struct Dot {
    x: f64,
    value: f64,
    class: usize,
    title: String,
}

fn drawing(
    (low, top): (f64, f64),
    scale: &Scale,
    dots: Vec<Dot>,
    labels: &[(f64, String)],
) -> String {
    let y = |value: f64| (HEIGHT - BELOW) * (1.0 - (value - low) / (top - low)) + 4.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for tick in 0..=4 {
        let value = low + (top - low) * f64::from(tick) / 4.0 / 1.05;
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

#[cfg(test)]
mod tests {
    use super::super::Heat;
    use super::super::tests::investigated;
    use millstream_record::StackRecord;

    /// Everything that there may be much of at once: runs, deep stacks that all differ, features of
    /// one family, CPUs.
    #[test]
    fn a_page_of_a_thousand_runs_and_more_is_small_and_says_what_it_leaves_out() {
        let few = investigated(true);
        let page = few.html();
        for said in ["are drawn", "are left out", " more</span>"] {
            assert!(!page.contains(said), "{said}");
        }
        let mut found = few;
        let observed = found.observed.iter().cycle().take(3_000).cloned();
        found.observed = observed.collect();
        found.observed[1_717].result = 1.0;
        found.observed[2_121].result = 99e9;
        found.left_out = (0..3_000).map(|at| format!("run {at}: its worker stood still")).collect();
        let stack = |at: usize| StackRecord {
            stack: (0..60)
                .map(|depth| format!("function_{}_of_{depth}", at / (60 - depth)))
                .collect(),
            by_cpu: vec![10; 2],
        };
        let profile: Vec<StackRecord> = (0..500).map(stack).collect();
        found.met.profile_ends = Some((profile.clone(), profile.clone()));
        found.met.profile = profile;
        found.met.absent.clear();
        let row =
            |cpu: u32| (cpu, (0..120).map(|at| f64::from((at * 7 + cpu) % 9) / 8.0).collect());
        let heat = Heat { busy: (0..64).map(row).collect(), ..Heat::default() };
        found.seen.heat = vec![heat; 6];
        found.separation.findings[0].members =
            (0..5_000).map(|at| format!("feature_{at}")).collect();
        let (level, results) = &mut found.suspects[0].forced[0];
        *results = results.iter().copied().cycle().take(1_000).collect();
        let level = format!("{level} (60 of 1000 are drawn)");
        let page = found.html();
        assert!(page.len() < 2_000_000, "{}", page.len());
        for said in [
            "1500 of\nthem are drawn",
            "<title>run 1717: ",
            "<title>run 2121: ",
            "and 2900 more lines, which are left out.",
            "functions of less than",
            " and 4960 more",
            &level,
        ] {
            assert!(page.contains(said), "{said}");
        }
    }

    #[test]
    fn results_at_zero_and_below_are_drawn_within_the_drawing() {
        for results in
            [[-3.0, -3.0], [0.0, 0.0], [-5.0, 5.0], [f64::MIN_POSITIVE, 0.0], [1e300, -1e300]]
        {
            let mut found = investigated(true);
            for (at, point) in found.observed.iter_mut().enumerate() {
                point.result = results[at % 2];
            }
            let page = found.html();
            let places: Vec<f64> = (page.split("cy=\"").skip(1))
                .map(|rest| rest[..rest.find('"').unwrap()].parse().unwrap())
                .collect();
            assert!(places.len() > found.observed.len());
            assert!(
                places.iter().all(|y| (0.0..=super::HEIGHT).contains(y)),
                "{results:?}: {places:?}"
            );
            assert!(!page.contains("NaN") && !page.contains("\"inf"), "{results:?}");
        }
    }
}
