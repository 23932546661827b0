//! Small parts that all plots share.

pub(super) use millstream_foreign::markup as escape;

/// A drawing with a heading, a word on it, and what is below it.
pub(super) fn figure(class: &str, heading: &str, said: &str, svg: &str, below: &str) -> String {
    let [heading, said, below] = [heading, said, below].map(escape);
    let below = if below.is_empty() { below } else { format!("<p class=\"dim\">{below}</p>") };
    format!(
        "<figure class=\"{class}\"><figcaption><b>{heading}</b><span>{said}</span></figcaption>\n{svg}{below}</figure>\n"
    )
}

/// A coordinate with at most one decimal.
pub(super) fn n(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // No "-0".
    format!("{}", if rounded == 0.0 { 0.0 } else { rounded })
}

/// About `wanted` round numbers from 0 to at least `largest`: steps of 1, 2, 2.5 or 5 times a power
/// of ten.
pub(super) fn ticks(largest: f64, wanted: usize) -> Vec<f64> {
    if !largest.is_finite() || largest <= 0.0 {
        return vec![0.0, 1.0];
    }
    let rough = largest / wanted.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(power * 10.0);
    let count = (largest / step - 1e-9).ceil() as usize;
    (0..=count).map(|at| at as f64 * step).collect()
}

/// The mark of one run: circle, diamond, square, triangle by the place of its stack; a cross when
/// it does not count. `class` chooses the colour.
pub(super) fn mark(place: usize, counts: bool, x: f64, y: f64, title: &str) -> String {
    let title = format!("<title>{}</title>", escape(title));
    let (x0, y0) = (n(x), n(y));
    if !counts {
        return format!(
            "<path class=\"pt s{place} bad\" d=\"M{x0} {y0}m-4.5 -4.5l9 9m0 -9l-9 9\">{title}</path>"
        );
    }
    match place % 4 {
        0 => format!(
            "<circle class=\"pt s{place}\" cx=\"{x0}\" cy=\"{y0}\" r=\"4.5\">{title}</circle>"
        ),
        1 => format!(
            "<path class=\"pt s{place}\" d=\"M{x0} {y0}m0 -5.6l5.6 5.6l-5.6 5.6l-5.6 -5.6z\">{title}</path>"
        ),
        2 => format!(
            "<path class=\"pt s{place}\" d=\"M{x0} {y0}m-4.2 -4.2h8.4v8.4h-8.4z\">{title}</path>"
        ),
        _ => format!(
            "<path class=\"pt s{place}\" d=\"M{x0} {y0}m0 -5.2l5.2 9.2h-10.4z\">{title}</path>"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_largest() {
        assert_eq!(ticks(23.1, 5), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        assert_eq!(ticks(1.0, 4), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(ticks(0.0, 5), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN, 5), [0.0, 1.0]);
        for largest in [1e-9, 0.37, 7.0, 999.0, 1.7e12] {
            let ticks = ticks(largest, 5);
            assert!(*ticks.last().unwrap() >= largest && ticks.len() <= 7, "{largest}");
        }
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([n(1.04), n(-0.04), n(12.0)], ["1", "0", "12"]);
    }
}
