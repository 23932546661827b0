//! Drawings of the page: runs over time, and histograms.

use std::collections::BTreeMap;

use super::seen::{Heat, TwoHistograms, shares_of};

const WIDTH: f64 = 760.0;
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
                "<text class=\"tick\" x=\"{:.0}\" y=\"{:.1}\">CPU {cpu}</text>",
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
         <text class=\"tick\" x=\"{WIDTH}\" y=\"{y:.0}\">{end:.1} s</text></svg>"
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
}
