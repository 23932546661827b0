//! Features from a queue that was looked at over time: does the rate fall as it grows, and is its
//! limit kept?

use millstream_record::{EngineSeries, RunRecord, keys};

use super::{Seen, distance};

/// A shorter queue counts as one of so many entries: while it is short, something else than its
/// length limits the rate.
const SHORT: f64 = 1000.0;
/// Intervals, and how far apart the lengths of the queue have to be, for a slope.
const INTERVALS_LEAST: usize = 4;
const LENGTHS_APART: f64 = 10.0;
/// Memory that a frame of an engine holds, with its descriptor.
const FRAME_BYTES: f64 = 2112.0;

/// A queue over time: what was in it at the end of each interval, the rate at which it was read
/// then, the memory that it held, and its limit.
struct Watched {
    entries: Vec<f64>,
    rates: Option<Vec<f64>>,
    held: Vec<f64>,
    limit: Option<f64>,
}

pub(super) fn queue(seen: &mut Seen, run: &RunRecord) {
    let watched = of_run(run).into_iter().chain(
        run.probes.engine_series.iter().filter_map(|one| of_engine(one, &run.probes.times_s)),
    );
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    // Of several the one that held most.
    let found = watched.max_by(|one, other| most(&one.held).total_cmp(&most(&other.held)));
    let Some(Watched { entries, rates, held, limit }) = found else { return };
    seen.put("queue_entries_most", most(&entries), distance::PROTOCOL);
    // Without a long queue nothing slows down by one.
    if let Some(slope) = rates.map(|rates| slope(&entries, &rates).unwrap_or(0.0)) {
        seen.put("rate_at_tenfold_queue", 10.0_f64.powf(slope), distance::PROTOCOL);
    }
    if let Some(limit) = limit.filter(|limit| *limit > 0.0) {
        seen.put("queue_held_over_limit", most(&held) / limit, distance::PROTOCOL);
    }
}

/// Returns the queue that a workload looks at itself.
fn of_run(run: &RunRecord) -> Option<Watched> {
    let series = |key: &str| run.intervals.series.get(key);
    let entries = series(keys::QUEUE_ENTRIES)?.clone();
    let rates = [keys::PACKETS, keys::THROUGHPUT].into_iter().find_map(series).cloned();
    let held = series(keys::QUEUE_HELD).cloned().unwrap_or_default();
    Some(Watched { entries, rates, held, limit: run.result(keys::QUEUE_LIMIT) })
}

/// Returns the fullest receive queue of an engine, as it published it; each frame counts as an
/// entry. Intervals in which another connection's came to be the fullest are left out.
fn of_engine(engine: &EngineSeries, times_s: &[f64]) -> Option<Watched> {
    let gauge = |name: &str| -> Option<Vec<Option<u64>>> {
        let name = format!("tcp_fullest_queue_{name}");
        let constant = || Some(vec![Some(*engine.constant.get(&name)?); times_s.len()]);
        engine.gauges.get(&name).cloned().or_else(constant)
    };
    let (held, read) = (gauge("held_bytes")?, gauge("read_bytes")?);
    let limit = gauge("limit_bytes")?.into_iter().flatten().max().map(|limit| limit as f64);
    // The first connection is number 0, which is not kept where it stays so.
    let socket = gauge("socket").unwrap_or_default();
    let (mut entries, mut rates, mut all_held) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = None;
    for (at, (held, read)) in held.into_iter().zip(read).enumerate() {
        let (Some(held), Some(read), Some(&time)) = (held, read, times_s.get(at + 1)) else {
            continue;
        };
        let of = socket.get(at).copied().flatten().unwrap_or(0);
        if let Some((then, had, other)) = before.replace((time, read, of))
            && (time > then && of == other)
        {
            rates.push(read.saturating_sub(had) as f64 / (time - then));
            entries.push(held as f64 / FRAME_BYTES);
            all_held.push(held as f64);
        }
    }
    Some(Watched { entries, rates: Some(rates), held: all_held, limit })
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
    use millstream_record::Series;

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
        let entries: Vec<f64> = (0..12).map(|at| 1000.0 * 1.8_f64.powi(at)).collect();
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

    /// An engine that any program has publishes its fullest queue: what the laboratory's own series
    /// say, its gauges do.
    #[test]
    fn the_queue_of_an_engine_is_seen_in_what_it_publishes() {
        let frames: Vec<u64> = (0..12).map(|at| 1000 * (1 << at)).collect();
        // In each second so many messages as the queue at its beginning lets through.
        let reads = |rate: &dyn Fn(u64) -> u64| -> Series {
            let mut read = 0;
            let before = [1000].into_iter().chain(frames.iter().copied());
            before
                .take(12)
                .map(|frames| {
                    read += rate(frames);
                    Some(read)
                })
                .collect()
        };
        let engine = |read: Series| EngineSeries {
            gauges: [
                (
                    "tcp_fullest_queue_held_bytes".to_owned(),
                    frames.iter().map(|n| Some(n * 2112)).collect(),
                ),
                ("tcp_fullest_queue_read_bytes".to_owned(), read),
            ]
            .into(),
            constant: [("tcp_fullest_queue_limit_bytes".to_owned(), 1 << 18)].into(),
            ..EngineSeries::default()
        };
        let run = |read: Series| {
            let mut run = RunRecord::new("x");
            run.probes.times_s = (0..13).map(f64::from).collect();
            run.probes.engine_series.push(engine(read));
            run
        };
        let walks = run(reads(&|frames| 100_000_000 / frames));
        let slow = of(&walks, "rate_at_tenfold_queue").unwrap();
        assert!((slow - 0.1).abs() < 0.01, "{slow}");
        assert_eq!(of(&walks, "queue_entries_most"), Some(2_048_000.0));
        let over = of(&walks, "queue_held_over_limit").unwrap();
        assert!((over - 2_048_000.0 * 2112.0 / 262_144.0).abs() < 1e-6, "{over}");
        let even = run(reads(&|_| 100_000));
        assert_eq!(of(&even, "rate_at_tenfold_queue"), Some(1.0));
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
