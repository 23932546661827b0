//! Features from a queue that was looked at over time: does the rate fall as it grows, and is its
//! limit kept?

use millstream_record::{RunRecord, keys};

use super::{Seen, distance};

/// A shorter queue counts as one of so many entries.
const SHORT: f64 = 10.0;
/// Intervals, and how far apart the lengths of the queue have to be, for a slope.
const INTERVALS_LEAST: usize = 4;
const LENGTHS_APART: f64 = 10.0;

pub(super) fn queue(seen: &mut Seen, run: &RunRecord) {
    let series = |key: &str| run.intervals.series.get(key);
    if let Some(entries) = series(keys::QUEUE_ENTRIES) {
        let most = entries.iter().copied().fold(0.0, f64::max);
        seen.put("queue_entries_most", most, distance::PROTOCOL);
        let rates = [keys::PACKETS, keys::THROUGHPUT].into_iter().find_map(series);
        // Without a long queue nothing slows down by one.
        let slope = rates.map(|rates| slope(entries, rates).unwrap_or(0.0));
        slope.into_iter().for_each(|slope| {
            seen.put("rate_at_tenfold_queue", 10.0_f64.powf(slope), distance::PROTOCOL);
        });
    }
    if let (Some(held), Some(limit)) = (series(keys::QUEUE_HELD), run.result(keys::QUEUE_LIMIT))
        && limit > 0.0
    {
        let most = held.iter().copied().fold(0.0, f64::max);
        seen.put("queue_held_over_limit", most / limit, distance::PROTOCOL);
    }
}

/// The slope of the rate over the length of the queue, both as logarithms: the median of the slopes
/// of all pairs (Theil and Sen), of which a few intervals that say something else change little. An
/// interval has the rate that it came to with the queue that was there at its beginning. In one
/// without any progress nobody read.
fn slope(entries: &[f64], rates: &[f64]) -> Option<f64> {
    let begun_with = [0.0].into_iter().chain(entries.iter().copied());
    let points: Vec<(f64, f64)> = (begun_with.zip(rates))
        .filter(|(_, rate)| **rate > 0.0)
        .map(|(entries, rate)| (entries.max(SHORT).ln(), rate.ln()))
        .collect();
    let lengths = || points.iter().map(|point| point.0);
    let (least, most) = lengths()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |ends, x| (ends.0.min(x), ends.1.max(x)));
    if points.len() < INTERVALS_LEAST || most - least < LENGTHS_APART.ln() {
        return None;
    }
    let pairs = points.iter().enumerate().flat_map(|(at, one)| {
        points[at + 1..].iter().filter_map(move |other| {
            let (x, y) = (other.0 - one.0, other.1 - one.1);
            (x.abs() > 0.5).then(|| y / x)
        })
    });
    crate::stats::median(&pairs.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::features;
    use super::*;

    fn run(entries: &[f64], rates: &[f64]) -> RunRecord {
        let mut run = RunRecord::new("x");
        run.probes.times_s = vec![0.0, 1.0];
        run.results.insert(keys::QUEUE_LIMIT.into(), 1e6);
        let held = entries.iter().map(|count| count * 2112.0).collect();
        let series = [
            (keys::QUEUE_ENTRIES, entries.to_vec()),
            (keys::PACKETS, rates.to_vec()),
            (keys::QUEUE_HELD, held),
        ];
        run.intervals.series = series.map(|(key, values)| (key.to_owned(), values)).into();
        run
    }

    fn of(run: &RunRecord, name: &str) -> Option<f64> {
        features(&[run]).iter().find(|one| one.name == name).and_then(|one| one.values[0])
    }

    #[test]
    fn a_rate_that_falls_as_the_queue_grows_is_seen_and_an_even_one_is_not() {
        let entries: Vec<f64> = (0..12).map(|at| 100.0 * 1.8_f64.powi(at)).collect();
        // Each interval has the rate by what was queued when it began.
        let before = |at: usize| at.checked_sub(1).map_or(SHORT, |before| entries[before]);
        let falling: Vec<f64> = (0..12).map(|at| 1e8 / before(at)).collect();
        let slow = of(&run(&entries, &falling), "rate_at_tenfold_queue").unwrap();
        assert!((slow - 0.1).abs() < 0.01, "{slow}");
        assert_eq!(of(&run(&entries, &[5e5; 12]), "rate_at_tenfold_queue"), Some(1.0));
        // A short queue says nothing of long ones.
        let short = run(&[3.0; 12], &falling);
        assert_eq!(of(&short, "rate_at_tenfold_queue"), Some(1.0));
        assert_eq!(of(&short, "queue_entries_most"), Some(3.0));
    }

    #[test]
    fn a_queue_that_holds_more_than_its_limit_says_how_much() {
        let held = of(&run(&[10.0, 1_000.0], &[1.0, 1.0]), "queue_held_over_limit").unwrap();
        assert!((held - 2.112).abs() < 1e-9);
        let mut without = run(&[10.0], &[1.0]);
        without.results.clear();
        assert_eq!(of(&without, "queue_held_over_limit"), None);
    }
}
