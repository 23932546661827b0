//! The results of a soak: bytes out of place, and a slower rate at its end.

use millstream_diagnose::stats::{Bootstrap, Interval, poisson_bound};
use millstream_load::worker::EndReport;
use millstream_load::workload::{End, Wrong};
use millstream_record::{IntervalSeries, RunRecord, WrongBytes, keys};

/// Fills in both. Times are of a clock that showed `origin_ns` when the run began.
pub(super) fn fill(record: &mut RunRecord, ends: &[EndReport], origin_ns: u64) {
    let sum = |name: &str| ends.iter().filter_map(|end| end.counters.get(name)).sum::<f64>();
    let (checked, wrong, written) =
        (sum("checked_bytes"), sum("wrong_bytes"), sum("written_bytes"));
    record.set(keys::WRONG_BYTES, wrong);
    record.set(keys::CHECKED_BYTES, checked);
    if checked > 0.0 {
        record.set(keys::WRONG_BOUND, poisson_bound(wrong) / checked);
    }
    if wrong > 0.0 {
        record.probes.wrong_bytes = places(ends, origin_ns);
        let first = record
            .probes
            .wrong_bytes
            .first()
            .map_or_else(String::new, |place| format!("; {place}"));
        record
            .validity
            .reject(format!("{wrong} bytes of {checked} were not those that were sent{first}"));
    }
    if written != checked {
        record.validity.reject(format!("{written} bytes were sent, and {checked} arrived"));
    }
    let quarters = [0, 3].map(|quarter| rates_of_blocks(&record.intervals, quarter));
    let [first, last] = &quarters;
    let bootstrap = Bootstrap { resamples: 2_000, seed: record.seed, ..Bootstrap::default() };
    if let Some(Interval { low, high }) = bootstrap.ratio_of_means(last, first) {
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        record.set(keys::LAST_OVER_FIRST, mean(last) / mean(first));
        record.set(keys::LAST_OVER_FIRST_LOW, low);
        record.set(keys::LAST_OVER_FIRST_HIGH, high);
    }
}

/// Returns where bytes were wrong, the first place in time first.
fn places(ends: &[EndReport], origin_ns: u64) -> Vec<WrongBytes> {
    let of = |end: &EndReport| {
        let direction = if end.end == End::Far { "near to far" } else { "far to near" };
        let place = |wrong: &Wrong| WrongBytes {
            connection: wrong.connection,
            direction: direction.to_owned(),
            offset: wrong.offset,
            at_s: wrong.at_ns.saturating_sub(origin_ns) as f64 / 1e9,
            expected: wrong.expected.clone(),
            seen: wrong.seen.clone(),
        };
        end.wrong.iter().map(place).collect::<Vec<_>>()
    };
    let mut all: Vec<WrongBytes> = ends.iter().flat_map(of).collect();
    all.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    all
}

/// Blocks that a quarter of a soak is cut into: what happens within one counts once, however long
/// it lasts.
const QUARTER_BLOCKS: usize = 20;

/// The rate in each block of a quarter of the window, of which the first has number 0.
fn rates_of_blocks(intervals: &IntervalSeries, quarter: usize) -> Vec<f64> {
    let Some(rates) = intervals.series.get(keys::THROUGHPUT) else { return Vec::new() };
    let spans = intervals.spans(rates.len());
    let (Some(begin), Some(end)) = (spans.first(), spans.last()) else { return Vec::new() };
    let (begin_s, blocks) = (begin.0, 4 * QUARTER_BLOCKS);
    let block_s = (end.1 - begin_s) / blocks as f64;
    let mut moved = vec![(0.0, 0.0); blocks];
    for ((from_s, to_s), rate) in spans.into_iter().zip(rates) {
        let block = ((from_s + to_s) / 2.0 - begin_s) / block_s;
        let (amount, time_s) = &mut moved[(block as usize).min(blocks - 1)];
        *amount += rate * (to_s - from_s);
        *time_s += to_s - from_s;
    }
    let of_quarter = moved.into_iter().skip(quarter * QUARTER_BLOCKS).take(QUARTER_BLOCKS);
    of_quarter.filter(|(_, time_s)| *time_s > 0.0).map(|(amount, time_s)| amount / time_s).collect()
}

#[cfg(test)]
mod tests {
    use super::super::results;
    use super::super::results::tests::{BUSY, end, plan};
    use super::*;

    #[test]
    fn a_soak_says_its_bound_and_whether_it_went_slower() {
        let task = plan("soak", &[]);
        let taken: Vec<u64> = (0..=16).map(|at| 1000 * at.min(8) + 500 * u64::max(at, 8)).collect();
        let taken: Vec<u64> = taken.iter().map(|bytes| bytes - taken[0]).collect();
        let [mut near, mut far] = [end(End::Near, &[0; 17]), end(End::Far, &taken)];
        let checked = taken[16] as f64;
        near.counters = [("written_bytes".into(), checked)].into();
        far.counters = [("checked_bytes".into(), checked), ("wrong_bytes".into(), 0.0)].into();
        let mut record = RunRecord::default();
        results::fill(&mut record, task, &[near.clone(), far.clone()], Some(BUSY), 0);
        assert!(record.validity.valid, "{:?}", record.validity);
        assert!((record.results[keys::LAST_OVER_FIRST] - 0.5).abs() < 1e-9);
        assert!((record.results[keys::WRONG_BOUND] * checked - 2.9957).abs() < 1e-3);
        for (wrong, written) in [(1.0, checked), (0.0, checked + 1.0)] {
            far.counters.insert("wrong_bytes".into(), wrong);
            far.wrong = vec![Wrong {
                connection: 2,
                offset: 77,
                at_ns: 1_500_000_000,
                expected: vec![0x0a, 0xff],
                seen: vec![0x0b, 0xff],
            }];
            near.counters.insert("written_bytes".into(), written);
            let mut record = RunRecord::default();
            results::fill(&mut record, task, &[near.clone(), far.clone()], Some(BUSY), 0);
            assert!(!record.validity.valid && record.results[keys::WRONG_BYTES] == wrong);
            let reasons = format!("{:?}", record.validity);
            let place =
                "connection 2 near to far, offset 77, at 1.500 s: expected 0a ff, seen 0b ff";
            assert_eq!(reasons.contains(place), wrong > 0.0, "{reasons}");
            assert_eq!(record.probes.wrong_bytes.len(), wrong as usize);
        }
    }

    /// A quarter that is slower by a tenth, however unsteady the rate is within it.
    #[test]
    fn a_slower_quarter_is_told_with_an_interval_that_excludes_one() {
        let rate = |at: usize| if at < 3_000 { 1_000 } else { 900 } + (at as u64 * 7_919) % 400;
        let mut sum = 0;
        let taken: Vec<u64> = (0..=4_000)
            .map(|at| {
                sum += rate(at);
                sum
            })
            .collect();
        let mut ends = [end(End::Near, &[0; 4_001]), end(End::Far, &taken)];
        let checked = *taken.last().unwrap() as f64;
        ends[0].counters = [("written_bytes".into(), checked)].into();
        ends[1].counters = [("checked_bytes".into(), checked)].into();
        let mut record = RunRecord::default();
        results::fill(&mut record, plan("soak", &[]), &ends, Some(BUSY), 0);
        let of = |key: &str| record.results[key];
        let expected = 1_100.0 / 1_200.0;
        assert!((of(keys::LAST_OVER_FIRST) / expected - 1.0).abs() < 0.01, "{:?}", record.results);
        assert!(of(keys::LAST_OVER_FIRST_HIGH) < 1.0 && of(keys::LAST_OVER_FIRST_LOW) > 0.85);
        assert_eq!(rates_of_blocks(&record.intervals, 0).len(), QUARTER_BLOCKS);
    }
}
