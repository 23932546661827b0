//! The places where datagrams were lost on their way through a router, one line for each case and
//! stack.

use millstream_diagnose::stats::median;
use millstream_record::{RunRecord, keys};

use super::model::{Model, Row};

/// `forward router_link=tap, millstream (5 runs): near queue 92 %, far socket 8 %`; medians over
/// valid runs of the shares of all that were dropped at a known place.
pub(super) fn lines(model: &Model<'_>) -> Vec<String> {
    model.lines_of(|row| super::stages::in_words(shares(row)))
}

/// Places and their median shares.
fn shares<'a>(row: &Row<'a>) -> Vec<(&'a str, f64)> {
    let runs = &row.group.valid;
    let mut places: Vec<&str> = runs.iter().flat_map(|run| counts(run)).map(|(at, _)| at).collect();
    places.sort_unstable();
    places.dedup();
    let share = |run: &RunRecord, place: &str| {
        let all: f64 = counts(run).map(|(_, count)| count).sum();
        let here: f64 = counts(run).filter(|(at, _)| *at == place).map(|(_, count)| count).sum();
        if all > 0.0 { here / all } else { 0.0 }
    };
    let of = |place: &str| {
        let values: Vec<f64> = runs.iter().map(|run| share(run, place)).collect();
        median(&values).unwrap_or(0.0)
    };
    places.into_iter().map(|place| (place, of(place))).collect()
}

/// Returns the packets that were dropped at each place of a run. Where no datagram was lost it
/// returns nothing, as hosts send some packets of their own, which are dropped, too.
fn counts(run: &RunRecord) -> impl Iterator<Item = (&str, f64)> {
    let has_lost = run.result(keys::LOST).is_some_and(|percent| percent > 0.0);
    run.results.iter().filter(move |_| has_lost).filter_map(|(key, &count)| {
        Some((key.strip_prefix(keys::OVERRUN)?.strip_suffix("_packets")?, count))
    })
}
