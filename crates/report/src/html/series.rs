//! Lines over time and bars of shares, small enough for a cell of a table.

use millstream_record::Series;

use super::svg::{escape, n};

/// Size of a line over time.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 40.0;
/// Points of a line; a longer one has the most of several steps in one.
const POINTS: usize = 180;
/// Width of the bar of all values.
const BAR: f64 = 240.0;

/// Draws the most of each stretch; a gap where nothing is known.
pub(in super::super) fn over_time(series: &Series, most: f64, name: &str) -> String {
    let each = series.len().div_ceil(POINTS).max(1);
    let count = series.len().div_ceil(each).max(1) as f64;
    let (mut path, mut is_open) = (String::new(), false);
    for (at, some) in series.chunks(each).enumerate() {
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
        "<svg class=\"series\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"{}\">\
         <path class=\"axis\" d=\"M0 {HEIGHT}H{WIDTH}\"/><path class=\"line\" d=\"{path}\"/></svg>",
        escape(name)
    )
}

/// Draws a share as a bar, and says it.
pub(in super::super) fn bar(share: f64) -> String {
    format!(
        "<svg class=\"series\" viewBox=\"0 0 {BAR} 10\" width=\"{BAR}\" height=\"10\" aria-hidden=\"true\"><rect class=\"bar\" \
         width=\"{}\" height=\"10\"/></svg> {:.1} %",
        n(share * BAR),
        share * 100.0
    )
}
