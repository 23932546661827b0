//! Drawings of the page: every run as a point, runs over time, and histograms.

use std::collections::BTreeMap;

use millstream_diagnose::features::{ANY_CPU, of_one_cpu};
use millstream_diagnose::units::Scale;
use millstream_foreign::markup as escape;
use millstream_report::spread;

use super::seen::{Heat, TwoHistograms, shares_of};
use super::text::plain;
use super::{Investigation, Point, Suspect};

const WIDTH: f64 = 760.0;
/// Height of a drawing of runs, and its margins.
const HEIGHT: f64 = 240.0;
const VALUES: f64 = 90.0;
const LABELS: f64 = 28.0;
/// Runs that are drawn one by one, of all and of a level of a forced cause.
pub(super) const DOTS: usize = 1_500;
const LEVEL_DOTS: usize = 60;
/// Colours of points; there are as many classes of them.
const COLOURS: usize = 7;
const LEFT: f64 = 60.0;
const BELOW: f64 = 18.0;
/// Shades from idle to busy; the page has a colour for each but the first, which is not drawn.
const SHADES: usize = 8;
/// Height of a row where there are few CPUs, and of all rows at most.
const ROW: f64 = 16.0;
const ROWS: f64 = 320.0;
/// Width of a histogram's half, for all values in one bucket.
const HALF: f64 = 300.0;
const LINE: f64 = 15.0;

impl Investigation {
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

    /// Draws the observed runs in the order of execution, coloured by group: all, or of very many
    /// some of every height, with the lowest and the highest.
    pub(super) fn runs_plot(&self, scale: &Scale) -> String {
        let step = (WIDTH - VALUES - 20.0) / self.observed.len().max(1) as f64;
        let mut drawn: Vec<_> = self.observed.iter().enumerate().collect();
        drawn.sort_by(|a, b| a.1.result.total_cmp(&b.1.result));
        let mut drawn = spread(&drawn, DOTS);
        drawn.sort_by_key(|(at, _)| *at);
        let points = drawn.into_iter().map(|(at, point)| Dot {
            x: VALUES + step * (at as f64 + 0.5),
            value: point.result,
            class: point.group.unwrap_or(0),
            title: format!("run {at}: {}", scale.with_unit(point.result)),
        });
        drawing(
            self.ends(),
            scale,
            points.collect(),
            &[(VALUES + 4.0, "runs in the order of execution".to_owned())],
        )
    }

    /// Draws the results over a feature: coloured by group, or, where it is the highest of any CPU,
    /// by the CPU that has it. None where no two runs have it.
    pub(super) fn scatter(&self, feature: &str, scale: &Scale) -> Option<String> {
        let values = self.features.get(feature)?;
        let mut drawn: Vec<(usize, &Point, f64)> = (self.observed.iter().enumerate().zip(values))
            .filter_map(|((at, point), value)| Some((at, point, (*value)?)))
            .collect();
        drawn.sort_by(|a, b| a.1.result.total_cmp(&b.1.result));
        let drawn = spread(&drawn, DOTS);
        let ends = drawn.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| {
            (low.min(one.2), high.max(one.2))
        });
        let width = (ends.1 - ends.0).max(f64::MIN_POSITIVE);
        let dots = drawn.iter().map(|(at, point, value)| {
            let cpu = feature.strip_prefix(ANY_CPU).and_then(|rest| self.highest_cpu(rest, *at));
            let on = cpu.map_or_else(String::new, |cpu| format!(", CPU {cpu}"));
            Dot {
                x: VALUES + 8.0 + (WIDTH - VALUES - 28.0) * ((value - ends.0) / width),
                value: point.result,
                class: cpu.map_or(point.group.unwrap_or(0), |cpu| cpu as usize % COLOURS),
                title: format!(
                    "run {at}: {}, {}{on}",
                    scale.with_unit(point.result),
                    plain(*value)
                ),
            }
        });
        let label = format!("{feature}: {} to {}", plain(ends.0), plain(ends.1));
        let dots: Vec<Dot> = dots.collect();
        (dots.len() > 1).then(|| drawing(self.ends(), scale, dots, &[(VALUES + 4.0, label)]))
    }

    /// Returns the CPU on which a feature of each CPU is the highest in a run.
    fn highest_cpu(&self, feature: &str, run: usize) -> Option<u32> {
        let of_cpus = self.features.iter().filter_map(|(name, values)| {
            let (cpu, _) = of_one_cpu(name).filter(|(_, rest)| *rest == feature)?;
            Some((cpu, (*values.get(run)?)?))
        });
        Some(of_cpus.max_by(|a, b| a.1.total_cmp(&b.1))?.0)
    }

    /// Draws the runs of each level of a forced cause, a column each.
    pub(super) fn levels_plot(&self, suspect: &Suspect, scale: &Scale) -> String {
        let column = (WIDTH - VALUES - 20.0) / suspect.forced.len().max(1) as f64;
        let (mut dots, mut labels) = (Vec::new(), Vec::new());
        for (at, (level, results)) in suspect.forced.iter().enumerate() {
            let begin = VALUES + column * at as f64;
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
    let y = |value: f64| (HEIGHT - LABELS) * (1.0 - (value - low) / (top - low)) + 4.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for tick in 0..=4 {
        let value = low + (top - low) * f64::from(tick) / 4.0 / 1.05;
        let at = y(value);
        svg.push_str(&format!(
            "<line class=\"grid\" x1=\"{VALUES}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            VALUES - 6.0,
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

/// A row for each CPU, a column for each step, the darker the busier.
pub(super) fn heat(heat: &Heat) -> String {
    let row = ROW.min(ROWS / heat.busy.len().max(1) as f64);
    let steps = heat.busy.first().map_or(1, |(_, busy)| busy.len()).max(1);
    let step = (WIDTH - LEFT) / steps as f64;
    let bottom = row * heat.busy.len() as f64;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\">", bottom + BELOW);
    let mut shades: BTreeMap<usize, String> = BTreeMap::new();
    for (at, (cpu, busy)) in heat.busy.iter().enumerate() {
        let y = row * at as f64;
        // Every name where there is room for it.
        if row >= 11.0 || at.is_multiple_of((11.0 / row).ceil() as usize) {
            svg.push_str(&format!(
                "<text class=\"tick end\" x=\"{:.0}\" y=\"{:.1}\">CPU {cpu}</text>",
                LEFT - 6.0,
                y + row.max(11.0) - 3.0
            ));
        }
        let mut from = 0;
        // Neighbours of one shade are one bar.
        for run in busy.chunk_by(|a, b| shade(*a) == shade(*b)) {
            let (x, width) = (LEFT + step * from as f64, step * run.len() as f64);
            let path = shades.entry(shade(run[0])).or_default();
            path.push_str(&format!("M{x:.1} {y:.1}h{width:.1}v{row:.1}h-{width:.1}z"));
            from += run.len();
        }
    }
    for (shade, path) in shades.iter().filter(|(shade, _)| **shade > 0) {
        svg.push_str(&format!("<path class=\"h{shade}\" d=\"{path}\"/>"));
    }
    let (begin, end) = heat.span_s;
    let y = bottom + BELOW - 4.0;
    svg.push_str(&format!(
        "<text x=\"{LEFT}\" y=\"{y:.0}\">{begin:.1} s</text>\
         <text class=\"tick end\" x=\"{WIDTH}\" y=\"{y:.0}\">{end:.1} s</text></svg>"
    ));
    svg
}

fn shade(share: f64) -> usize {
    (share * SHADES as f64).round() as usize
}

/// A line for each power of two: the lowest group's share to the left, the highest group's to the
/// right.
pub(super) fn histograms(both: &TwoHistograms) -> String {
    let shares = shares_of(both);
    let height = LINE * shares.len() as f64;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">");
    let middle = WIDTH / 2.0;
    for (at, (least, low, high)) in shares.into_iter().enumerate() {
        let y = LINE * at as f64;
        svg.push_str(&format!(
            "<rect class=\"g0\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{:.2} %</title></rect>\
             <rect class=\"g1\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{:.2} %</title></rect>\
             <text class=\"middle\" x=\"{middle}\" y=\"{:.1}\">{least}</text>",
            middle - 45.0 - low * HALF,
            y + 1.0,
            low * HALF,
            LINE - 2.0,
            low * 100.0,
            middle + 45.0,
            y + 1.0,
            high * HALF,
            LINE - 2.0,
            high * 100.0,
            y + LINE - 4.0
        ));
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::super::tests::investigated;
    use super::*;

    #[test]
    fn neighbours_of_one_shade_are_one_bar_and_idle_is_not_drawn() {
        let busy = vec![(0, vec![1.0, 1.0, 0.5, 0.0]), (3, vec![0.0; 4])];
        let drawn = heat(&Heat { busy, span_s: (0.0, 4.0), ..Heat::default() });
        assert!(drawn.contains("CPU 3</text>") && drawn.contains("4.0 s"), "{drawn}");
        assert!(
            drawn.contains("<path class=\"h8\" d=\"M60.0 0.0h350.0v16.0h-350.0z\"/>"),
            "{drawn}"
        );
        assert!(drawn.contains("<path class=\"h4\" d=\"M410.0 0.0h175.0"), "{drawn}");
        assert_eq!(drawn.matches("<path").count(), 2);
    }

    /// The page has to stay below 2 MB whatever the machine.
    #[test]
    fn many_cpus_of_all_shades_are_small() {
        let row =
            |cpu: u32| (cpu, (0..120).map(|at| f64::from((at * 7 + cpu) % 9) / 8.0).collect());
        let busy: Vec<(u32, Vec<f64>)> = (0..64).map(row).collect();
        let drawn = heat(&Heat { busy, span_s: (0.0, 4.0), ..Heat::default() });
        // Three groups, of two hosts each.
        assert!(drawn.len() * 6 < 1_600_000, "{}", drawn.len());
    }

    #[test]
    fn both_groups_are_beside_each_other_by_power_of_two() {
        let both =
            TwoHistograms { name: "x".into(), lowest: vec![(4, 1), (8, 1)], highest: vec![(8, 3)] };
        assert_eq!(shares_of(&both), [(4, 0.5, 0.0), (8, 0.5, 1.0)]);
        let drawn = histograms(&both);
        assert!(drawn.contains("width=\"300.0\"") && drawn.contains(">8</text>"), "{drawn}");
    }

    /// The CPU that has the highest value is another one in each run.
    #[test]
    fn a_feature_of_any_cpu_is_coloured_by_the_cpu_that_has_it() {
        let mut found = investigated(true);
        let runs = found.observed.len();
        let of = |cpu: usize| (0..runs).map(|at| Some(((at + cpu) % 2) as f64)).collect();
        found.features.insert("cpu0.x".into(), of(0));
        found.features.insert("cpu4.x".into(), of(1));
        found.features.insert("any_cpu.x".into(), (0..runs).map(|at| Some(at as f64)).collect());
        let scale = found.scale();
        let svg = found.scatter("any_cpu.x", &scale).unwrap();
        let of_class = |class: &str| svg.matches(&format!("<circle class=\"{class}\"")).count();
        assert_eq!((of_class("g0") + of_class("g4"), svg.matches("<circle").count()), (runs, runs));
        assert!(of_class("g0").abs_diff(of_class("g4")) <= 1 && svg.contains(", 1.00, CPU 0<"));
        assert_eq!(found.scatter("nothing", &scale), None);
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
            assert!(places.iter().all(|y| (0.0..=HEIGHT).contains(y)), "{results:?}: {places:?}");
            assert!(!page.contains("NaN") && !page.contains("\"inf"), "{results:?}");
        }
    }
}
