//! Threads that a process starts for each connection or request, and processes that one starts for
//! each. There may be thousands in a second, of which each has a few rows; what all of them did
//! together says where the time goes.

use std::collections::{BTreeMap, BTreeSet};

use millstream_record::End;

use crate::bpf::Times;

/// Threads of one process that are told as one, where there are as many at least.
const MANY: usize = 8;
/// A thread has ended soon if it lived for less than the time of the budget, divided by this.
const SHORT: u64 = 10;

/// Makes one of the many threads of a process that ended soon, and of the many processes of one
/// name that a process started: their times are summed, and whoever waited for one of them waited
/// for all. Adds the number of each, with that of the one that stands for it.
pub(super) fn merge(
    all: Vec<Times>,
    width_ns: u64,
    stands_for: &mut BTreeMap<u32, u32>,
) -> Vec<Times> {
    let is_first = |one: &Times| one.thread == one.process;
    let of_process = |one: &Times| (!is_first(one)).then_some(one.process);
    let all = merge_by(all, width_ns, stands_for, of_process);
    let of_parent = |one: &Times| is_first(one).then(|| (one.parent, one.name.clone()));
    merge_by(all, width_ns, stands_for, of_parent)
}

/// Makes one of those that ended soon and have the same key.
fn merge_by<K: Ord>(
    all: Vec<Times>,
    width_ns: u64,
    stands_for: &mut BTreeMap<u32, u32>,
    key: impl Fn(&Times) -> Option<K>,
) -> Vec<Times> {
    let ends_soon = |one: &Times| one.ended && one.alive_ns.saturating_mul(SHORT) < width_ns;
    let mut kept = Vec::new();
    let mut groups: BTreeMap<K, Vec<Times>> = BTreeMap::new();
    for one in all {
        match key(&one).filter(|_| ends_soon(&one)) {
            Some(key) => groups.entry(key).or_default().push(one),
            None => kept.push(one),
        }
    }
    for group in groups.into_values() {
        if group.len() < MANY {
            kept.extend(group);
            continue;
        }
        stands_for.extend(group.iter().map(|one| (one.thread, group[0].thread)));
        kept.extend(group.into_iter().reduce(Times::with));
    }
    let first = |number: u32| stands_for.get(&number).copied().unwrap_or(number);
    for one in &mut kept {
        (one.process, one.parent) = (first(one.process), first(one.parent));
        one.rename(first);
    }
    kept
}

/// Returns the ends of connections by the processes that stand for theirs.
pub(super) fn ends(
    ends: &BTreeMap<u32, End>,
    stands_for: &BTreeMap<u32, u32>,
) -> BTreeMap<u32, End> {
    let first = |number: &u32| stands_for.get(number).copied().unwrap_or(*number);
    let mut all: BTreeMap<u32, End> = BTreeMap::new();
    for (process, end) in ends {
        let fresh = || End { peers: vec![], ..end.clone() };
        let one = all.entry(first(process)).or_insert_with(fresh);
        one.accepts |= end.accepts;
        one.connects |= end.connects;
        let peers: BTreeSet<u32> =
            end.peers.iter().map(first).chain(one.peers.iter().copied()).collect();
        one.peers = peers.into_iter().collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::{Off, Reason};

    fn merged(all: Vec<Times>) -> Vec<Times> {
        merge(all, 1_000, &mut BTreeMap::new())
    }

    /// A thread of process 1 that was on a CPU for 2 ns and waited for `by` for 3 ns.
    fn short(thread: u32, by: u32) -> Times {
        let why = Reason { by, call: 7, ..Reason::default() };
        Times {
            thread,
            process: 1,
            name: "server".to_owned(),
            alive_ns: 5,
            ended: true,
            on_ns: 2,
            ran_ns: 1,
            off: vec![(why, 3, 1)],
            samples: vec![(3, 0x10, 1)],
            ..Times::default()
        }
    }

    #[test]
    fn many_that_ended_soon_are_one_for_whom_all_wait() {
        // The client has waited for each of them once, and each of them for the client, or for the
        // one before.
        let mut client = Times { thread: 90, process: 90, ..Times::default() };
        client.off = (10..20).map(|by| (Reason { by, ..Reason::default() }, 6, 1)).collect();
        let server = Times { thread: 1, process: 1, ended: true, ..short(1, 90) };
        let mut all: Vec<Times> = (10..20)
            .map(|thread| short(thread, if thread < 15 { 90 } else { thread - 1 }))
            .collect();
        all.extend([client, server.clone()]);
        let found = merged(all);
        let of = |thread| found.iter().find(|one| one.thread == thread).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(*of(1), server, "the first thread of its process");
        assert_eq!(of(90).off, [(Reason { by: 10, ..Reason::default() }, 60, 10)]);
        let one = of(10);
        assert_eq!((one.name.as_str(), one.others), ("server", 9));
        assert_eq!((one.alive_ns, one.on_ns, one.ran_ns), (50, 20, 10));
        assert_eq!(one.samples, [(3, 0x10, 10)]);
        let why = |by| Reason { by, call: 7, ..Reason::default() };
        assert_eq!(one.off, [(why(90), 15, 5), (why(10), 15, 5)]);
        assert_eq!(one.off[0].0.state, Off::Asleep);
    }

    #[test]
    fn many_processes_of_one_name_and_parent_are_one() {
        let child = |process, name: &str| Times {
            thread: process,
            process,
            parent: 5,
            name: name.to_owned(),
            ..short(process, 90)
        };
        let mut all: Vec<Times> = (10..20).map(|process| child(process, "worker")).collect();
        all.push(child(20, "other"));
        // A thread of one of them, and the child of another one.
        all.push(Times { process: 12, ..short(30, 11) });
        all.push(Times { parent: 13, ..child(31, "helper") });
        let mut stands_for = BTreeMap::new();
        let found = merge(all, 1_000, &mut stands_for);
        let of = |thread| found.iter().find(|one| one.thread == thread).unwrap();
        assert_eq!(found.len(), 4);
        assert_eq!(stands_for, (10..20).map(|process| (process, 10)).collect());
        assert_eq!((of(10).others, of(10).alive_ns), (9, 50));
        assert_eq!((of(30).process, of(30).off[0].0.by), (10, 10));
        assert_eq!(of(31).parent, 10);
        assert_eq!(of(20).others, 0, "of another name");
    }

    #[test]
    fn an_end_has_the_connections_of_all_for_which_it_stands() {
        let end = |accepts: bool, peers: &[u32]| {
            let peers = peers.to_vec();
            End { accepts, connects: !accepts, peers, ..End::default() }
        };
        let all = [(10, end(false, &[1])), (11, end(true, &[2, 1])), (2, end(false, &[11, 10]))];
        let found = ends(&all.into(), &[(10, 10), (11, 10)].into());
        let both = End { connects: true, ..end(true, &[1, 2]) };
        assert_eq!(found, [(2, end(false, &[10])), (10, both)].into());
    }

    #[test]
    fn few_and_those_that_live_are_told_each() {
        let few: Vec<Times> = (10..17).map(|thread| short(thread, 0)).collect();
        assert_eq!(merged(few.clone()), few);
        let long = |thread| Times { alive_ns: 100, ..short(thread, 0) };
        let workers: Vec<Times> = (10..30).map(long).collect();
        assert_eq!(merged(workers.clone()), workers);
        let alive = |thread| Times { ended: false, ..short(thread, 0) };
        let fresh: Vec<Times> = (10..30).map(alive).collect();
        assert_eq!(merged(fresh.clone()), fresh);
    }
}
