//! The choice of runs that are shown one by one, so that a page stays small: spread evenly, with
//! both ends among them, and with a sentence on their number.

use std::collections::HashMap;

use millstream_diagnose::groups::groups;
use millstream_record::RunRecord;

use super::metric;

/// Runs that a page looks at one by one: beyond it these are chosen.
const RUNS: usize = 600;

/// The places of the runs that a page looks at one by one, in order: all, or of very many so many
/// of each configuration and stack that they are 600 at most, or two of each. They are spread
/// evenly over the order of execution, those that count and those that do not each by themselves,
/// and the runs with the lowest and the highest result are among them.
pub fn in_detail(runs: &[RunRecord]) -> Vec<usize> {
    if runs.len() <= RUNS {
        return (0..runs.len()).collect();
    }
    let groups = groups(runs, &[], &[]);
    let parts: Vec<&[&RunRecord]> =
        groups.iter().flat_map(|group| [&group.valid[..], &group.invalid[..]]).collect();
    let ends: Vec<&RunRecord> = groups.iter().flat_map(|group| ends(&group.valid)).collect();
    let sizes: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let each = each(&sizes, RUNS.saturating_sub(ends.len())).max(2);
    let places: HashMap<&str, usize> =
        runs.iter().enumerate().map(|(at, run)| (run.id.as_str(), at)).collect();
    let chosen = parts.iter().flat_map(|part| spread(part, each)).chain(ends);
    let mut chosen: Vec<usize> =
        chosen.filter_map(|run| places.get(run.id.as_str()).copied()).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// The runs with the lowest and the highest of the result that comes first.
fn ends<'a>(runs: &[&'a RunRecord]) -> Vec<&'a RunRecord> {
    let Some(first) = runs.first() else { return Vec::new() };
    let metrics = metric::of_runs([*first].into_iter());
    let Some(metric) = metrics.iter().find(|metric| metric.headline) else { return Vec::new() };
    let known = runs.iter().filter_map(|run| Some((run.result(&metric.key)?, *run)));
    let known: Vec<(f64, &RunRecord)> = known.collect();
    let by_value = |a: &&(f64, &RunRecord), b: &&(f64, &RunRecord)| a.0.total_cmp(&b.0);
    let both = [known.iter().min_by(by_value), known.iter().max_by(by_value)];
    both.into_iter().flatten().map(|(_, run)| *run).collect()
}

/// Returns the number of entries that each of several lists may have, so that all together have at
/// most `room`. Shorter lists leave the rest of their share to the others.
pub(super) fn each(sizes: &[usize], room: usize) -> usize {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    let (mut left, mut lists) = (room, sizes.len());
    for &size in &sizes {
        if size.saturating_mul(lists) > left {
            return left / lists;
        }
        left -= size;
        lists -= 1;
    }
    usize::MAX
}

/// Returns at most `count` of a list, spread evenly, the first and the last among them.
pub fn spread<T: Copy>(list: &[T], count: usize) -> Vec<T> {
    if list.len() <= count {
        return list.to_vec();
    }
    match count {
        0 => Vec::new(),
        1 => vec![list[list.len() / 2]],
        _ => (0..count).map(|at| list[at * (list.len() - 1) / (count - 1)]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::keys;

    #[test]
    fn what_is_short_leaves_room_to_what_is_long() {
        assert_eq!(each(&[5, 100, 3], 30), 22);
        assert_eq!(each(&[10, 10], 20), usize::MAX);
        assert_eq!(each(&[10, 10, 10], 20), 6);
        assert_eq!(each(&[], 5), usize::MAX);
        assert_eq!(spread(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 4), [0, 3, 6, 9]);
        assert_eq!(
            (spread(&[1, 2, 3], 1), spread(&[1, 2], 0), spread(&[7], 3)),
            (vec![2], vec![], vec![7])
        );
    }

    #[test]
    fn of_many_runs_some_of_each_kind_are_chosen_and_both_ends() {
        let run = |at: usize| {
            let mut run = RunRecord::new(format!("r{at}"));
            run.workload = "tcp_stream".into();
            run.stack = ["kernel", "millstream"][at % 2].into();
            (run.order, run.block) = (at as u32, at as u32 / 2);
            // The highest of either stack are in the middle, the lowest somewhere.
            let value = match at {
                2501 | 2502 => 9e9,
                1333 | 1334 => 1.0,
                _ => 1e9 + (at % 97) as f64,
            };
            run.results.insert(keys::THROUGHPUT.into(), value);
            if at % 1000 == 5 {
                run.validity.reject("a test");
            }
            run
        };
        let runs: Vec<RunRecord> = (0..5000).map(run).collect();
        let chosen = in_detail(&runs);
        assert!((500..=RUNS).contains(&chosen.len()), "{}", chosen.len());
        for at in [0, 1, 4998, 4999, 2501, 2502, 1333, 1334, 5, 1005, 2005, 3005, 4005] {
            assert!(chosen.contains(&at), "{at}");
        }
        let of_kernel = chosen.iter().filter(|&at| at % 2 == 0).count();
        assert!(of_kernel.abs_diff(chosen.len() - of_kernel) <= 5, "{of_kernel}");
        let widest = chosen.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(widest.is_some_and(|widest| widest < 30), "spread evenly: {widest:?}");
        assert_eq!(in_detail(&runs[..RUNS]), (0..RUNS).collect::<Vec<_>>());
    }
}
