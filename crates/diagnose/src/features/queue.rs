//! Features from a queue that was looked at over time: does the rate fall as it grows, and is its
//! limit kept?

use millstream_record::{EngineSeries, FullestQueue, RunRecord, Series, keys};

use super::{Seen, distance};

/// Intervals, and how far apart the lengths of the queue have to be, for a slope.
const INTERVALS_LEAST: usize = 4;
const LENGTHS_APART: f64 = 10.0;
/// A full queue: this share of its limit, and memory of which it is worth to speak.
const FULL: f64 = 0.5;
const FULL_BYTES: f64 = 262_144.0;

/// The pieces of a queue: the memory that one holds, and the number below which a queue counts as
/// one of so many. While it is short, something else than its length limits the rate.
#[derive(Clone, Copy)]
struct Pieces {
    bytes: f64,
    short: f64,
}

/// A frame of an engine, with its descriptor.
const FRAMES: Pieces = Pieces { bytes: 2112.0, short: 1000.0 };
/// The least that a segment of the kernel holds (`truesize`), whose queues hold some megabytes.
const SEGMENTS: Pieces = Pieces { bytes: 768.0, short: 100.0 };

/// A queue over time: what was in it at the end of each interval, the rate at which it was read
/// then, its bytes and the memory that it held, and its limit.
struct Watched {
    entries: Vec<f64>,
    short: f64,
    rates: Option<Vec<f64>>,
    payload: Vec<f64>,
    held: Vec<f64>,
    limit: Option<f64>,
}

pub(super) fn queue(seen: &mut Seen, run: &RunRecord) {
    let times_s = &run.probes.times_s;
    let of_kernel = |queue: &FullestQueue| {
        let FullestQueue { socket, bytes, held_bytes, limit_bytes, read_bytes } = queue;
        let all = [held_bytes, read_bytes, limit_bytes, bytes, socket].map(|one| Some(one.clone()));
        Watched::of(all, times_s, SEGMENTS)
    };
    let watched: Vec<Watched> = (of_run(run).into_iter())
        .chain(run.probes.engine_series.iter().filter_map(|one| of_engine(one, times_s)))
        .chain(run.probes.fullest_queues.values().filter_map(of_kernel))
        .collect();
    // The one that slows down most as it grows, or of several the one that held most.
    let most_slowed = watched.iter().min_by(|one, other| {
        let slowed = one.rate_at_tenfold().total_cmp(&other.rate_at_tenfold());
        slowed.then(most(&other.held).total_cmp(&most(&one.held)))
    });
    let Some(found) = most_slowed else { return };
    seen.put("queue_entries_most", most(&found.entries), distance::PROTOCOL);
    if found.rates.is_some() {
        seen.put("rate_at_tenfold_queue", found.rate_at_tenfold(), distance::PROTOCOL);
        seen.put("rate_at_longest_queue", found.rate_at_longest(), distance::PROTOCOL);
    }
    let highest = |of: fn(&Watched) -> Option<f64>| watched.iter().filter_map(of).reduce(f64::max);
    for (name, value) in [
        ("queue_held_over_limit", highest(Watched::held_over_limit)),
        ("full_queue_held_over_payload", highest(Watched::held_over_payload)),
    ] {
        if let Some(value) = value {
            seen.put(name, value, distance::PROTOCOL);
        }
    }
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Returns the queue that a workload looks at itself.
fn of_run(run: &RunRecord) -> Option<Watched> {
    let series = |key: &str| run.intervals.series.get(key);
    let entries = series(keys::QUEUE_ENTRIES)?.clone();
    let rates = [keys::PACKETS, keys::THROUGHPUT].into_iter().find_map(series).cloned();
    let held = series(keys::QUEUE_HELD).cloned().unwrap_or_default();
    let payload = series(keys::QUEUE_PAYLOAD).cloned().unwrap_or_default();
    let (limit, short) = (run.result(keys::QUEUE_LIMIT), FRAMES.short);
    Some(Watched { entries, short, rates, payload, held, limit })
}

/// Returns the fullest receive queue of an engine, as it published it.
fn of_engine(engine: &EngineSeries, times_s: &[f64]) -> Option<Watched> {
    let gauge = |name: &str| -> Option<Series> {
        let name = format!("tcp_fullest_queue_{name}");
        let constant = || Some(vec![Some(*engine.constant.get(&name)?); times_s.len()]);
        engine.gauges.get(&name).cloned().or_else(constant)
    };
    let names = ["held_bytes", "read_bytes", "limit_bytes", "bytes", "socket"];
    Watched::of(names.map(gauge), times_s, FRAMES)
}

impl Watched {
    /// Returns the queue whose memory held, bytes read, limit, bytes and socket these are. The
    /// first three have to be known. Intervals in which another connection's came to be the fullest
    /// are left out.
    fn of(series: [Option<Series>; 5], times_s: &[f64], pieces: Pieces) -> Option<Self> {
        let [held, read, limits, bytes, socket] = series;
        let (held, read) = (held?, read?);
        let limit = limits?.into_iter().flatten().max().map(|limit| limit as f64);
        // The first connection is number 0, which is not kept where it stays so.
        let [bytes, socket] = [bytes, socket].map(Option::unwrap_or_default);
        let at = |series: &Series, at: usize| series.get(at).copied().flatten();
        let mut found = Self {
            entries: vec![],
            short: pieces.short,
            rates: None,
            payload: vec![],
            held: vec![],
            limit,
        };
        let mut before = None;
        for (step, (held, read)) in held.into_iter().zip(read).enumerate() {
            let (Some(held), Some(read), Some(&time)) = (held, read, times_s.get(step + 1)) else {
                continue;
            };
            let of = at(&socket, step).unwrap_or(0);
            if let Some((then, had, other)) = before.replace((time, read, of))
                && (time > then && of == other)
            {
                let rates = found.rates.get_or_insert_default();
                rates.push(read.saturating_sub(had) as f64 / (time - then));
                found.entries.push(held as f64 / pieces.bytes);
                found.held.push(held as f64);
                found.payload.extend(at(&bytes, step).map(|bytes| bytes as f64));
            }
        }
        found.rates.is_some().then_some(found)
    }

    /// Returns the rate with ten times as much in the queue, of that before. Without a long queue
    /// nothing slows down by one.
    fn rate_at_tenfold(&self) -> f64 {
        let slope = self.rates.as_ref().and_then(|rates| slope(&self.entries, self.short, rates));
        10.0_f64.powf(slope.unwrap_or(0.0))
    }

    /// Returns the rate with the longest queue, of that with a short one.
    fn rate_at_longest(&self) -> f64 {
        let tenfolds = (most(&self.entries) / self.short).max(1.0).log10();
        self.rate_at_tenfold().powf(tenfolds)
    }

    /// Returns memory and bytes of each interval; bytes that are not known are none.
    fn both(&self) -> impl Iterator<Item = (f64, f64)> {
        let payload = if self.payload.len() == self.held.len() { &self.payload[..] } else { &[] };
        let payload = payload.iter().copied().chain(std::iter::repeat(0.0));
        self.held.iter().copied().zip(payload)
    }

    /// Returns the most memory that was held over its limit, where it is as far over its bytes: a
    /// limit that a single large packet exceeds counts memory all the same.
    fn held_over_limit(&self) -> Option<f64> {
        let limit = self.limit.filter(|limit| *limit > 0.0)?;
        Some(self.both().map(|(held, bytes)| held / limit.max(bytes)).fold(0.0, f64::max))
    }

    /// Returns the memory of a full queue over its bytes; 1 where it never was full.
    fn held_over_payload(&self) -> Option<f64> {
        let limit = self.limit.filter(|limit| *limit > 0.0 && !self.payload.is_empty())?;
        let full = self.both().filter(|(held, _)| *held >= FULL_BYTES.max(FULL * limit));
        Some(full.map(|(held, bytes)| held / bytes.max(1.0)).fold(1.0, f64::max))
    }
}

/// The slope of the rate over the length of the queue, both as logarithms: the median of the slopes
/// of all pairs (Theil and Sen), of which a few intervals that say something else change little. An
/// interval has the rate that it came to with the queue that was there at its beginning. In one
/// without any progress nobody read.
fn slope(entries: &[f64], short: f64, rates: &[f64]) -> Option<f64> {
    let begun_with = [0.0].into_iter().chain(entries.iter().copied());
    let points: Vec<(f64, f64)> = (begun_with.zip(rates))
        .filter(|(_, rate)| **rate > 0.0)
        .map(|(entries, rate)| (entries.max(short).ln(), rate.ln()))
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
        let before = |at: usize| at.checked_sub(1).map_or(FRAMES.short, |before| entries[before]);
        let falling: Vec<f64> = (0..12).map(|at| 1e8 / before(at)).collect();
        let slow = of(&run(&entries, &falling), "rate_at_tenfold_queue").unwrap();
        assert!((slow - 0.1).abs() < 0.01, "{slow}");
        let longest = of(&run(&entries, &falling), "rate_at_longest_queue").unwrap();
        assert!((longest * entries[11] / FRAMES.short - 1.0).abs() < 0.1, "{longest}");
        assert_eq!(of(&run(&entries, &[5e5; 12]), "rate_at_tenfold_queue"), Some(1.0));
        // A short queue says nothing of long ones.
        let short = run(&[3.0; 12], &falling);
        assert_eq!(of(&short, "rate_at_tenfold_queue"), Some(1.0));
        assert_eq!(of(&short, "rate_at_longest_queue"), Some(1.0));
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

    /// The kernel's queue at each second: bytes, memory and bytes read.
    fn of_kernel(limit: u64, steps: &[[u64; 3]]) -> RunRecord {
        let mut queue = FullestQueue::default();
        let socket = 80 << 16 | 9;
        for (at, [bytes, held, read]) in steps.iter().copied().enumerate() {
            queue.set(at, [socket, bytes, held, limit, read]);
        }
        let mut run = RunRecord::new("x");
        run.probes.times_s = (0..=steps.len()).map(|at| at as f64).collect();
        run.probes.fullest_queues = [("here".to_owned(), queue)].into();
        run
    }

    /// The queue of a kernel's socket gives the same features as an engine's queue.
    #[test]
    fn a_queue_of_the_kernel_is_seen_as_well() {
        let steps = |read_in: &dyn Fn(u64) -> u64| -> Vec<[u64; 3]> {
            let (mut read, held) = (0, |at: u32| 76_800 << at.min(6));
            (0..12_u32)
                .map(|at| {
                    read += at.checked_sub(1).map_or(0, |before| read_in(held(before)));
                    [held(at) / 8, held(at), read]
                })
                .collect()
        };
        let slows = of_kernel(6_000_000, &steps(&|held| 7_680_000_000 / held));
        let slow = of(&slows, "rate_at_tenfold_queue").unwrap();
        assert!((slow - 0.1).abs() < 0.01, "{slow}");
        assert_eq!(of(&slows, "queue_entries_most"), Some(6_400.0));
        let even = of_kernel(6_000_000, &steps(&|_| 5_000));
        assert_eq!(of(&even, "rate_at_tenfold_queue"), Some(1.0));
        // The kernel keeps its limit, which small pieces fill with an eighth of it.
        assert!(of(&even, "queue_held_over_limit").unwrap() < 1.0);
        assert_eq!(of(&even, "full_queue_held_over_payload"), Some(8.0));
        let small = [[1_000, 700_000, 0], [1_000, 700_000, 9], [1_000, 700_000, 12]];
        assert_eq!(of(&of_kernel(6_000_000, &small), "full_queue_held_over_payload"), Some(1.0));
        assert_eq!(of(&of_kernel(100_000, &small), "queue_held_over_limit"), Some(7.0));
        // One large packet in a small buffer is none of it.
        let large = [[60_000, 70_000, 0], [60_000, 70_000, 9], [60_000, 70_000, 12]];
        assert!(of(&of_kernel(2_304, &large), "queue_held_over_limit").unwrap() < 2.0);
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
