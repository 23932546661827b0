//! The ends of a load: processes that belong to it, by who started whom and who waits for whom.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use millstream_record::{Budget, BudgetRow, ThreadBudget, ThreadState};

/// A process waits for another one where the other wakes it from so much of its time.
const WAITS: f64 = 0.05;
/// Threads with less than this part of the work of the busiest of their process are helpers.
const WORKS: f64 = 0.05;

/// Returns true for time in which a thread ran, or would have.
fn is_work(row: &&BudgetRow) -> bool {
    matches!(row.state, ThreadState::OwnCode | ThreadState::Kernel | ThreadState::Ready)
}

fn work_s(thread: &ThreadBudget) -> f64 {
    thread.rows.iter().filter(is_work).map(|row| row.s).sum()
}

/// Returns the processes that are `roots`, or were started by them, and those that they wait for or
/// that wait for them. Among each come first those that have connections, as a shell may work more
/// than a load that waits, and of these those of most work.
pub fn ends(budget: &Budget, roots: &[u32]) -> Vec<u32> {
    let mut work: BTreeMap<u32, f64> = BTreeMap::new();
    for thread in &budget.threads {
        *work.entry(thread.process).or_default() += work_s(thread);
    }
    let mut found: Vec<u32> = Vec::new();
    let take = |found: &mut Vec<u32>, fresh: BTreeSet<u32>| {
        let mut fresh: Vec<u32> = fresh.into_iter().filter(|one| !found.contains(one)).collect();
        let order = |one: &u32| (budget.ends.contains_key(one), work[one]);
        fresh.sort_by(|a, b| order(b).partial_cmp(&order(a)).unwrap_or(Ordering::Equal));
        found.extend(&fresh);
        !fresh.is_empty()
    };
    let started = |found: &[u32]| -> BTreeSet<u32> {
        let all = budget.threads.iter();
        let ours = all.filter(|one| found.contains(&one.process) || found.contains(&one.parent));
        ours.map(|one| one.process).collect()
    };
    let mut fresh = started(roots);
    while take(&mut found, fresh) {
        fresh = started(&found);
    }
    // The process that started them waits for their end alone.
    let started_by = budget.threads.iter().filter(|one| roots.contains(&one.process));
    let parents: BTreeSet<u32> = started_by.map(|one| one.parent).collect();
    let waits: Vec<(u32, u32)> = work.keys().flat_map(|&process| waits(budget, process)).collect();
    loop {
        let beside = |(a, b): &(u32, u32)| {
            let other = if found.contains(a) { b } else { a };
            (found.contains(a) || found.contains(b)).then_some(*other)
        };
        let mut fresh: BTreeSet<u32> = waits.iter().filter_map(beside).collect();
        fresh.retain(|one| !parents.contains(one));
        if !take(&mut found, fresh) {
            return found;
        }
    }
}

/// Returns the pairs of `process` and each other one that its threads that work wait for.
fn waits(budget: &Budget, process: u32) -> Vec<(u32, u32)> {
    let threads: Vec<&ThreadBudget> =
        budget.threads.iter().filter(|one| one.process == process).collect();
    let most = threads.iter().map(|one| work_s(one)).fold(0.0, f64::max);
    let working: Vec<_> = threads.iter().filter(|one| work_s(one) >= WORKS * most).collect();
    let alive_s: f64 = working.iter().map(|one| one.alive_s).sum();
    let process_of =
        |thread: u32| budget.threads.iter().find(|one| one.thread == thread).map(|one| one.process);
    let mut by: BTreeMap<u32, f64> = BTreeMap::new();
    for row in working.iter().flat_map(|one| &one.rows) {
        if let ThreadState::Asleep | ThreadState::Blocked = row.state {
            let with = row.with.and_then(process_of).filter(|with| *with != process);
            with.into_iter().for_each(|with| *by.entry(with).or_default() += row.s);
        }
    }
    let long = by.into_iter().filter(|(_, s)| *s >= WAITS * alive_s);
    long.map(|(with, _)| (process, with)).collect()
}

#[cfg(test)]
mod tests {
    use millstream_record::End;

    use super::*;

    fn row(state: ThreadState, what: &str, with: u32, s: f64) -> BudgetRow {
        let with = (with != 0).then_some(with);
        BudgetRow { state, what: what.into(), with, s, ..BudgetRow::default() }
    }

    fn thread(process: u32, parent: u32, thread: u32, rows: Vec<BudgetRow>) -> ThreadBudget {
        let alive_s = rows.iter().map(|row| row.s).sum();
        ThreadBudget { thread, process, parent, alive_s, rows, ..ThreadBudget::default() }
    }

    /// A shell that started a client with a thread that only waits for its worker; a proxy; a
    /// server; somebody else.
    fn budget() -> Budget {
        use ThreadState::*;
        let threads = vec![
            thread(1, 9, 1, vec![row(Asleep, "wait4", 2, 9.9), row(OwnCode, "main", 0, 0.1)]),
            thread(2, 1, 2, vec![row(Asleep, "futex", 3, 10.0)]),
            thread(2, 1, 3, vec![row(Asleep, "epoll_wait", 4, 9.0), row(Kernel, "write", 0, 1.0)]),
            thread(
                4,
                9,
                4,
                vec![
                    row(Asleep, "epoll_wait", 3, 2.0),
                    row(Asleep, "recvfrom", 5, 7.0),
                    row(OwnCode, "relay", 0, 1.0),
                ],
            ),
            thread(5, 9, 5, vec![row(OwnCode, "work", 0, 6.0), row(Asleep, "accept", 4, 4.0)]),
            thread(6, 9, 6, vec![row(OwnCode, "other", 0, 10.0)]),
            // This one started the shell, and waits for its end.
            thread(9, 8, 9, vec![row(Asleep, "wait4", 1, 10.0)]),
        ];
        Budget { width_s: 10.0, threads, ..Budget::default() }
    }

    #[test]
    fn ends_are_those_that_were_started_and_those_that_wait_for_each_other() {
        // The command's first, then the proxy, which it waits for, then the server behind that.
        assert_eq!(ends(&budget(), &[1]), [2, 1, 4, 5]);
        // What the shell ran before it worked longer, and has no connections.
        let mut budget = budget();
        budget.threads.push(thread(7, 1, 7, vec![row(ThreadState::Kernel, "execve", 0, 2.0)]));
        budget.ends.insert(2, End::default());
        assert_eq!(ends(&budget, &[1]), [2, 7, 1, 4, 5]);
    }
}
