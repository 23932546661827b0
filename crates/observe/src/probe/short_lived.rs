//! Threads that a process starts for each connection or request. There may be thousands in a
//! second, of which each has a few rows; what all of them did together says where the time goes.

use std::collections::BTreeMap;

use crate::bpf::Times;

/// Threads of one process that are told as one, where there are as many at least.
const MANY: usize = 8;
/// A thread ends soon that lived for less than the time divided by this.
const SHORT: u64 = 10;

/// Makes one of the many threads of a process that ended soon: their times are summed, and whoever
/// waited for one of them waited for all.
pub(super) fn merge(all: Vec<Times>, width_ns: u64) -> Vec<Times> {
    let is_short = |one: &Times| {
        one.ended && one.thread != one.process && one.alive_ns.saturating_mul(SHORT) < width_ns
    };
    let (short, mut kept): (Vec<Times>, Vec<Times>) = all.into_iter().partition(is_short);
    let mut processes: BTreeMap<u32, Vec<Times>> = BTreeMap::new();
    short.into_iter().for_each(|one| processes.entry(one.process).or_default().push(one));
    let mut first_of: BTreeMap<u32, u32> = BTreeMap::new();
    for of_process in processes.into_values() {
        if of_process.len() < MANY {
            kept.extend(of_process);
            continue;
        }
        let count = of_process.len();
        first_of.extend(of_process.iter().map(|one| (one.thread, of_process[0].thread)));
        if let Some(mut sum) = of_process.into_iter().reduce(Times::with) {
            sum.name = format!("{} ({count} threads)", sum.name);
            kept.push(sum);
        }
    }
    for one in &mut kept {
        one.rename(|thread| first_of.get(&thread).copied().unwrap_or(thread));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::{Off, Reason};

    const WIDTH_NS: u64 = 1_000;

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
        let found = merge(all, WIDTH_NS);
        let of = |thread| found.iter().find(|one| one.thread == thread).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(*of(1), server, "the first thread of its process");
        assert_eq!(of(90).off, [(Reason { by: 10, ..Reason::default() }, 60, 10)]);
        let one = of(10);
        assert_eq!(one.name, "server (10 threads)");
        assert_eq!((one.alive_ns, one.on_ns, one.ran_ns), (50, 20, 10));
        assert_eq!(one.samples, [(3, 0x10, 10)]);
        let why = |by| Reason { by, call: 7, ..Reason::default() };
        assert_eq!(one.off, [(why(90), 15, 5), (why(10), 15, 5)]);
        assert_eq!(one.off[0].0.state, Off::Asleep);
    }

    #[test]
    fn few_and_those_that_live_are_told_each() {
        let few: Vec<Times> = (10..17).map(|thread| short(thread, 0)).collect();
        assert_eq!(merge(few.clone(), WIDTH_NS), few);
        let long = |thread| Times { alive_ns: 100, ..short(thread, 0) };
        let workers: Vec<Times> = (10..30).map(long).collect();
        assert_eq!(merge(workers.clone(), WIDTH_NS), workers);
        let alive = |thread| Times { ended: false, ..short(thread, 0) };
        let fresh: Vec<Times> = (10..30).map(alive).collect();
        assert_eq!(merge(fresh.clone(), WIDTH_NS), fresh);
    }
}
