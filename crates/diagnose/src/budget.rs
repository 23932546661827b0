//! Whom the ends of a load wait for: which processes belong to it, and the chain of waits from the
//! one that was asked about to the one that waits for nobody.

use std::collections::{BTreeMap, BTreeSet};

use millstream_record::{Budget, BudgetRow, ThreadBudget, ThreadState};

/// A process waits for another one where the other wakes it from so much of its time.
const WAITS: f64 = 0.05;
/// Threads with less than this part of the work of the busiest of their process are helpers.
const WORKS: f64 = 0.05;

/// The time of a process's threads that work, in shares that sum to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// The process.
    pub process: u32,
    /// Shares, the largest first; `with` is a process, where it is known.
    pub rows: Vec<(BudgetRow, f64)>,
}

/// Returns true for time in which a thread ran, or would have.
fn is_work(row: &&BudgetRow) -> bool {
    matches!(row.state, ThreadState::OwnCode | ThreadState::Kernel | ThreadState::Ready)
}

fn work_s(thread: &ThreadBudget) -> f64 {
    thread.rows.iter().filter(is_work).map(|row| row.s).sum()
}

/// Returns the processes that are `roots`, or were started by them, and those that they wait for or
/// that wait for them; those of most work first among each.
pub fn ends(budget: &Budget, roots: &[u32]) -> Vec<u32> {
    let mut work: BTreeMap<u32, f64> = BTreeMap::new();
    for thread in &budget.threads {
        *work.entry(thread.process).or_default() += work_s(thread);
    }
    let mut found: Vec<u32> = Vec::new();
    let take = |found: &mut Vec<u32>, fresh: BTreeSet<u32>| {
        let mut fresh: Vec<u32> = fresh.into_iter().filter(|one| !found.contains(one)).collect();
        fresh.sort_by(|a, b| work[b].total_cmp(&work[a]));
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
    let waits: Vec<(u32, u32)> = work.keys().flat_map(|&process| waits(budget, process)).collect();
    loop {
        let beside = |(a, b): &(u32, u32)| {
            let other = if found.contains(a) { b } else { a };
            (found.contains(a) || found.contains(b)).then_some(*other)
        };
        let fresh: BTreeSet<u32> = waits.iter().filter_map(beside).collect();
        if !take(&mut found, fresh) {
            return found;
        }
    }
}

/// Returns the pairs of `process` and each other one that it waits for.
fn waits(budget: &Budget, process: u32) -> Vec<(u32, u32)> {
    let mut by: BTreeMap<u32, f64> = BTreeMap::new();
    for (row, share) in shares(budget, process).rows {
        if let (ThreadState::Asleep | ThreadState::Blocked, Some(with)) = (row.state, row.with) {
            *by.entry(with).or_default() += share;
        }
    }
    let is_known = |one: &u32| *one != process && budget.threads.iter().any(|t| t.process == *one);
    let long = by.into_iter().filter(|(with, share)| *share >= WAITS && is_known(with));
    long.map(|(with, _)| (process, with)).collect()
}

/// Returns the shares of the time of the threads of `process` that work.
pub fn shares(budget: &Budget, process: u32) -> Shares {
    let threads: Vec<&ThreadBudget> =
        budget.threads.iter().filter(|one| one.process == process).collect();
    let most = threads.iter().map(|one| work_s(one)).fold(0.0, f64::max);
    let working: Vec<_> = threads.iter().filter(|one| work_s(one) >= WORKS * most).collect();
    let alive_s: f64 = working.iter().map(|one| one.alive_s).sum();
    let process_of = |thread: u32| {
        let known = budget.threads.iter().find(|one| one.thread == thread);
        known.map_or(thread, |one| one.process)
    };
    let mut rows: Vec<(BudgetRow, f64)> = Vec::new();
    for row in working.iter().flat_map(|one| &one.rows) {
        let with = row.with.map(process_of);
        let is_same = |(one, _): &&mut (BudgetRow, f64)| {
            (one.state, &one.what, &one.on, one.with) == (row.state, &row.what, &row.on, with)
        };
        match rows.iter_mut().find(is_same) {
            Some((one, _)) => (one.s, one.count) = (one.s + row.s, one.count + row.count),
            None => rows.push((BudgetRow { with, ..row.clone() }, 0.0)),
        }
    }
    rows.iter_mut().for_each(|(row, share)| *share = row.s / alive_s.max(1e-9));
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    Shares { process, rows }
}

/// Returns the chain of waits from `process` on: each the one that the one before it waits for
/// most. It ends where one waits for nobody, or for one that was there before.
pub fn chain(budget: &Budget, process: u32) -> Vec<Shares> {
    let mut chain: Vec<Shares> = Vec::new();
    let mut next = Some(process);
    while let Some(process) = next {
        let own = shares(budget, process);
        let longest = waits(budget, process)
            .into_iter()
            .map(|(_, with)| with)
            .filter(|with| *with != process && chain.iter().all(|one| one.process != *with))
            .max_by(|a, b| own.sleeps_for(*a).total_cmp(&own.sleeps_for(*b)));
        chain.push(own);
        next = longest;
    }
    chain
}

impl Shares {
    /// Returns the share of the time in a state.
    pub fn of(&self, state: ThreadState) -> f64 {
        self.rows.iter().filter(|(row, _)| row.state == state).map(|(_, share)| share).sum()
    }

    /// Returns the share of the time in which it slept until `process` woke it.
    pub fn sleeps_for(&self, process: u32) -> f64 {
        let is_sleep = |row: &BudgetRow| {
            matches!(row.state, ThreadState::Asleep | ThreadState::Blocked)
                && row.with == Some(process)
        };
        self.rows.iter().filter(|(row, _)| is_sleep(row)).map(|(_, share)| share).sum()
    }
}

#[cfg(test)]
mod tests {
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
        ];
        Budget { width_s: 10.0, threads, ..Budget::default() }
    }

    #[test]
    fn ends_are_those_that_were_started_and_those_that_wait_for_each_other() {
        // The command's first, then the proxy, which it waits for, then the server behind that.
        assert_eq!(ends(&budget(), &[1]), [2, 1, 4, 5]);
    }

    #[test]
    fn a_chain_follows_the_longest_waits_to_one_that_waits_for_nobody_else() {
        let chain = chain(&budget(), 2);
        assert_eq!(chain.iter().map(|one| one.process).collect::<Vec<_>>(), [2, 4, 5]);
        assert!((chain[0].sleeps_for(4) - 0.9).abs() < 1e-9, "the helper is left out");
        assert!((chain[1].sleeps_for(5) - 0.7).abs() < 1e-9);
        let last = &chain[2];
        assert_eq!((last.rows[0].0.what.as_str(), last.of(ThreadState::OwnCode)), ("work", 0.6));
        let sum: f64 = last.rows.iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }
}
