//! Where the time of a unit of work goes: the time of the first end's threads, of which each wait
//! for another thread is passed on to what that thread did meanwhile.
//!
//! A thread that waits for the one that asked it does nothing for it in that time, so that such a
//! wait counts for nothing; neither does a sleep that comes once in a run, which is part of no unit
//! of work.

use std::collections::{BTreeMap, BTreeSet};

use millstream_record::{Budget, BudgetRow, FAULTS, LOOKS, ThreadBudget, ThreadState};

/// Threads of the first end with less than this part of the work of its busiest are helpers.
const WORKS: f64 = 0.05;
/// Shares of less than this, and waits behind so many threads, are passed on to the next one's own
/// time alone, and to that of another program for which it waits.
const SMALL: f64 = 0.004;
const DEEP: usize = 12;
/// A sleep that comes so often at most, and takes so many seconds each time, is part of no unit of
/// work.
const ONCE: (u64, f64) = (2, 0.02);
/// Bytes from each other at which two words belong to one lock.
const LOCK_BYTES: u64 = 64;
/// Calls that wait for a process that was started; clone, until that one runs a program.
const WAITS_FOR_CHILD: [&str; 5] = ["wait4", "waitid", "vfork", "clone", "clone3"];
/// In what a thread or process begins, and a thread gives its stack back: the pages of a process
/// that forked are copied as it touches them.
const BEGINS: [&str; 4] = [FAULTS, "execve", "madvise", "munmap"];
/// In what it ends, when whoever waited for its answer has that.
const ENDS: [&str; 2] = ["exit", "exit_group"];
/// Functions of Go from which a thread sleeps that has nothing to run, or watches the others.
const IDLE: [&str; 5] = [
    "runtime.stopm",
    "runtime.stealWork",
    "runtime.runqgrab",
    "runtime.sysmon",
    "runtime.notetsleep",
];

/// A purpose of time, whatever it goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Nothing beside the work.
    #[default]
    Work,
    /// A wait for a name server's answer, or what that server does meanwhile.
    LookUp,
    /// A wait for the end of a process that was started, or what that one does meanwhile.
    Child,
    /// The beginning and end of threads or processes that live as long as one connection.
    Start,
}

/// One use of the first end's time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Use {
    /// Processes of which each waits for the next one; the last one has the row.
    pub path: Vec<u32>,
    /// The lock that its process waited for, and the thread that let go of it.
    pub behind: Option<(String, u32)>,
    /// Its purpose.
    pub purpose: Purpose,
    /// State and reason. Its seconds and count are those of all waits that lead to it.
    pub row: BudgetRow,
    /// Share of the first end's time.
    pub share: f64,
}

/// All uses of the first end's time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Uses {
    /// The largest first; their shares sum to 1.
    pub all: Vec<Use>,
    /// Threads of the first end that work at a time.
    pub threads: f64,
}

/// Returns where the time of the first of `ends`, the processes of a load, goes in the end; nothing
/// where none of its threads is known.
pub fn uses(budget: &Budget, ends: &[u32]) -> Uses {
    let Some(&process) = ends.first() else { return Uses::default() };
    let mut walk = Walk::new(budget, ends);
    let own: Vec<&ThreadBudget> =
        budget.threads.iter().filter(|one| walk.is_same(one.process, process)).collect();
    let most = own.iter().map(|one| ran_s(one)).fold(0.0, f64::max);
    let works: Vec<_> = own.into_iter().filter(|one| ran_s(one) >= WORKS * most).collect();
    // One that did little but wait for the others counts for little.
    let time_s = |one: &ThreadBudget| one.rows.iter().filter(recurs).map(|row| row.s).sum::<f64>();
    let all: f64 = works.iter().map(|one| time_s(one)).sum();
    for thread in &works {
        let share = if all > 0.0 { time_s(thread) / all } else { 1.0 / works.len() as f64 };
        let at = Place { path: vec![walk.group(process)], ..Place::default() };
        walk.pass(thread, &at, share);
    }
    // Several that are told as one may have been there at a time.
    let longest_s = |one: &&ThreadBudget| match one.others {
        0 => time_s(one),
        _ => time_s(one).min(budget.width_s),
    };
    let longest = works.iter().map(longest_s).fold(0.0, f64::max);
    walk.found.sort_by(|a, b| b.share.total_cmp(&a.share));
    Uses { all: walk.found, threads: if longest > 0.0 { all / longest } else { 1.0 } }
}

/// The way to a thread.
#[derive(Clone, Default)]
struct Place {
    path: Vec<u32>,
    from: Option<u32>,
    behind: Option<(String, u32)>,
    purpose: Purpose,
    /// True in threads that live as long as one connection.
    is_fresh: bool,
    depth: usize,
}

/// The part that a row of a thread has in the time of the first end.
enum Part<'a> {
    /// It is the end of the chain.
    End,
    /// It waits for this thread.
    For(&'a ThreadBudget),
    /// It waits for those that wait for it.
    Back,
}

struct Walk<'a> {
    budget: &'a Budget,
    threads: BTreeMap<u32, &'a ThreadBudget>,
    /// Processes of the load.
    load: &'a [u32],
    /// The first process of each program of which there are several beside each other.
    groups: BTreeMap<u32, u32>,
    found: Vec<Use>,
}

impl<'a> Walk<'a> {
    fn new(budget: &'a Budget, load: &'a [u32]) -> Self {
        let mut parents: BTreeMap<u32, u32> = BTreeMap::new();
        parents.extend(budget.threads.iter().map(|one| (one.process, one.parent)));
        let name = |process: &u32| budget.names.get(process);
        // Those that speak with each other are two ends, whatever their program is.
        let is_peer = |one: &u32, other: &u32| {
            budget.ends.get(one).is_some_and(|end| end.peers.contains(other))
        };
        let mut groups: BTreeMap<u32, u32> = BTreeMap::new();
        for (process, parent) in &parents {
            let is_beside = |other: &u32| {
                let their = parents.get(other).copied().unwrap_or_default();
                name(other).is_some()
                    && name(other) == name(process)
                    && !is_peer(process, other)
                    && !is_peer(other, process)
                    && (their == *parent || other == parent)
            };
            let first = groups.keys().copied().find(is_beside);
            let first = first.and_then(|first| groups.get(&first).copied()).unwrap_or(*process);
            groups.insert(*process, first);
        }
        let threads = budget.threads.iter().map(|one| (one.thread, one)).collect();
        Self { budget, threads, load, groups, found: vec![] }
    }

    fn group(&self, process: u32) -> u32 {
        self.groups.get(&process).copied().unwrap_or(process)
    }

    fn is_same(&self, one: u32, other: u32) -> bool {
        self.group(one) == self.group(other)
    }

    /// Passes `share` on to the rows of `thread`, and to those that it waits for.
    fn pass(&mut self, thread: &'a ThreadBudget, at: &Place, share: f64) {
        let mut parts = self.parts(thread, at);
        if at.depth >= DEEP && parts.iter().any(|(_, part)| self.counts(thread, part, at)) {
            parts.retain(|(_, part)| self.counts(thread, part, at));
        }
        let all: f64 = parts.iter().map(|(row, _)| row.s).sum();
        for (row, part) in parts {
            let share = share * row.s / all;
            let counts = self.counts(thread, &part, at);
            let Part::For(other) = part else {
                self.end(at, row, share);
                continue;
            };
            let mut next = self.next(thread, &row, other, at);
            // It may have done less meanwhile than it was waited for.
            let did: f64 = self.parts(other, &next).iter().map(|(row, _)| row.s).sum();
            let told = (did / row.s).min(1.0);
            if at.depth >= DEEP && !counts || did == 0.0 {
                self.add(at, row, share);
                continue;
            }
            if share * told < SMALL {
                next.depth = next.depth.max(DEEP);
            }
            self.pass(other, &next, share * told);
            if told < 1.0 {
                self.add(at, row, share * (1.0 - told));
            }
        }
    }

    /// Returns true for what still counts where the chain is cut off: the end of it, and a wait for
    /// another program, whose own time is looked at.
    fn counts(&self, thread: &ThreadBudget, part: &Part, at: &Place) -> bool {
        match part {
            Part::End => true,
            Part::For(other) => at.depth <= DEEP && !self.is_same(thread.process, other.process),
            Part::Back => false,
        }
    }

    /// Adds a row that is the end of a chain. A wait for a CPU that a process of the load has is
    /// what that process does on its CPUs, as far as that was as long.
    fn end(&mut self, at: &Place, row: BudgetRow, share: f64) {
        let is_of_load = |with: &u32| row.state == ThreadState::Ready && self.load.contains(with);
        let Some(holder) = row.with.filter(is_of_load).map(|with| self.group(with)) else {
            return self.add(at, row, share);
        };
        let threads = self.budget.threads.iter();
        let threads = threads.filter(|one| self.group(one.process) == holder);
        let work: Vec<BudgetRow> =
            threads.flat_map(|one| one.rows.iter().filter(ran)).cloned().collect();
        let all: f64 = work.iter().map(|one| one.s).sum();
        let told = (all / row.s).min(1.0);
        if told < 1.0 {
            self.add(at, row, share * (1.0 - told));
        }
        let mut at = at.clone();
        if at.path.last() != Some(&holder) {
            at.behind = None;
            match at.path.iter().position(|one| *one == holder) {
                Some(place) => at.path.truncate(place + 1),
                None => at.path.push(holder),
            }
        }
        for one in work {
            let share = share * told * one.s / all;
            self.add(&at, BudgetRow { with: None, ..one }, share);
        }
    }

    fn next(
        &self,
        thread: &ThreadBudget,
        row: &BudgetRow,
        other: &ThreadBudget,
        at: &Place,
    ) -> Place {
        let mut next = Place { from: Some(thread.thread), depth: at.depth + 1, ..at.clone() };
        next.is_fresh =
            other.others > 0 && [other.process, other.parent].iter().any(|one| self.accepts(*one));
        let told = match purpose(row) {
            // One that lives long is told by what it does.
            Purpose::Child if other.others == 0 => Purpose::Work,
            told => told,
        };
        next.purpose = match at.purpose {
            Purpose::LookUp => Purpose::LookUp,
            // A child may wait for somebody else.
            Purpose::Child if self.is_same(thread.process, other.process) => Purpose::Child,
            _ => told,
        };
        if !self.is_same(thread.process, other.process) {
            next.path.push(self.group(other.process));
            next.behind.take_if(|(lock, _)| !self.is_shared(thread.process, lock));
        } else if row.on.starts_with("lock ") {
            next.behind = Some((row.on.clone(), other.thread));
        }
        next
    }

    fn accepts(&self, process: u32) -> bool {
        self.budget.ends.get(&process).is_some_and(|end| end.accepts)
    }

    /// Returns true for a lock for which several threads of a process wait: what its holder waits
    /// for outside the process keeps the others waiting for it. Where one sleeps for itself, the
    /// other hands something over.
    fn is_shared(&self, process: u32, lock: &str) -> bool {
        let own = self.budget.threads.iter().filter(|one| one.process == process);
        let waits = own.filter(|one| one.rows.iter().any(|row| row.on == lock));
        waits.map(|one| 1 + one.others).sum::<u32>() > 1
    }

    /// Returns the rows of a thread that count for those that wait for it; all of them where none
    /// does.
    fn parts(&self, thread: &'a ThreadBudget, at: &Place) -> Vec<(BudgetRow, Part<'a>)> {
        let mut rows: Vec<BudgetRow> = thread.rows.iter().filter(recurs).cloned().collect();
        if at.depth == 0 && rows.is_empty() {
            rows.clone_from(&thread.rows);
        }
        if at.is_fresh && at.purpose != Purpose::Child {
            rows.retain(|row| !ENDS.contains(&row.what.as_str()));
        }
        let told = rows.into_iter().map(|mut row| {
            row.with = row.with.or_else(|| lets_go(thread, &row));
            let part = self.part(thread, &row, at);
            if matches!(part, Part::End) && row.state != ThreadState::Ready {
                row.with = None;
            }
            (row, part)
        });
        told.filter(|(_, part)| !matches!(part, Part::Back)).collect()
    }

    fn part(&self, thread: &ThreadBudget, row: &BudgetRow, at: &Place) -> Part<'a> {
        // A process that carries packets rests until one comes. Others wait for that packet, and
        // the time is theirs.
        if row.state == ThreadState::Asleep && self.carries(thread.process, at) {
            return Part::Back;
        }
        // A timer ends by itself, a disk's interrupt may come to anybody.
        if row.state != ThreadState::Asleep || row.what.ends_with("nanosleep") {
            return Part::End;
        }
        let other = row.with.filter(|with| *with != thread.thread);
        let Some(other) = other.and_then(|with| self.threads.get(&with).copied()) else {
            return self.alone(row, at);
        };
        let is_own = self.is_same(thread.process, other.process);
        let before = at.path.split_last().map_or(&[][..], |(_, before)| before);
        let asked = before.contains(&self.group(other.process)) && !self.is_inside(thread, at);
        if at.from == Some(other.thread) || asked {
            return Part::Back;
        }
        if !is_own && !self.may_speak(thread.process, row, other.process) {
            return self.alone(row, at);
        }
        Part::For(other)
    }

    /// Returns true where another thread of its program waits for `thread`: it may hold what that
    /// one wants while it waits for its own client, as a session that has a row of a database.
    fn is_inside(&self, thread: &ThreadBudget, at: &Place) -> bool {
        let from = at.from.and_then(|from| self.threads.get(&from));
        from.is_some_and(|from| self.is_same(from.process, thread.process))
    }

    /// Returns true for a process through which packets of the first end pass on their way.
    fn carries(&self, process: u32, at: &Place) -> bool {
        self.budget.carriers.contains(&process) && at.path.first() != Some(&self.group(process))
    }

    /// Returns the part of a sleep that nobody is known to have ended. One that waits to be asked
    /// lets nobody wait.
    fn alone(&self, row: &BudgetRow, at: &Place) -> Part<'a> {
        let is_accepted = ["TCP port ", "UDP port "].iter().any(|one| row.on.starts_with(one));
        let reads = ["read", "recv", "accept"].iter().any(|one| row.what.starts_with(one));
        if at.path.len() > 1 && is_accepted && reads { Part::Back } else { Part::End }
    }

    /// Returns false where a socket's wait was ended by a process that is not at its other end: the
    /// kernel's timer or an interrupt met it.
    fn may_speak(&self, process: u32, row: &BudgetRow, other: u32) -> bool {
        if !["TCP ", "UDP "].iter().any(|one| row.on.starts_with(one)) {
            return true;
        }
        let peers = self.budget.ends.get(&process).map_or(&[][..], |end| &end.peers);
        peers.is_empty() || peers.iter().any(|peer| self.is_same(*peer, other))
    }

    fn add(&mut self, at: &Place, row: BudgetRow, share: f64) {
        let with = row.with.filter(|_| row.state == ThreadState::Ready);
        let begins = at.is_fresh && BEGINS.contains(&row.what.as_str());
        let purpose = match at.purpose {
            Purpose::Work if begins => Purpose::Start,
            Purpose::Child if !(is_sleep(&row) && is_socket(&row)) => Purpose::Child,
            Purpose::LookUp => Purpose::LookUp,
            _ => purpose(&row),
        };
        let is_same = |one: &&mut Use| {
            // The same work behind a lock and without one are two uses.
            (&one.path, one.behind.is_some(), one.purpose)
                == (&at.path, at.behind.is_some(), purpose)
                && (one.row.state, &one.row.what, &one.row.on, one.row.with)
                    == (row.state, &row.what, &row.on, with)
        };
        match self.found.iter_mut().find(is_same) {
            Some(one) => {
                if share > one.share {
                    one.behind.clone_from(&at.behind);
                }
                one.share += share;
                (one.row.s, one.row.count) = (one.row.s + row.s, one.row.count + row.count);
            }
            None => self.found.push(Use {
                path: at.path.clone(),
                behind: at.behind.clone(),
                purpose,
                row: BudgetRow { with, ..row },
                share,
            }),
        }
    }
}

/// Returns false for a sleep that comes so seldom that it is part of no unit of work, for one of a
/// thread that has nothing to run, and for time that the looking itself took.
fn recurs(row: &&BudgetRow) -> bool {
    let is_often = row.count > ONCE.0 || row.s < ONCE.1 * row.count as f64;
    let is_idle = row.stack.iter().any(|name| IDLE.contains(&name.as_str()));
    row.what != LOOKS && (!is_sleep(row) || is_often && !is_idle)
}

/// Returns what a sleep is for, by its call and by whom it waits for: the port of name servers.
fn purpose(row: &BudgetRow) -> Purpose {
    if !is_sleep(row) {
        Purpose::Work
    } else if is_socket(row) && row.on.ends_with(":53") {
        Purpose::LookUp
    } else if WAITS_FOR_CHILD.contains(&row.what.as_str()) {
        Purpose::Child
    } else {
        Purpose::Work
    }
}

/// Returns true for time on a CPU.
fn ran(row: &&BudgetRow) -> bool {
    matches!(row.state, ThreadState::OwnCode | ThreadState::Kernel)
        || row.what.starts_with("on a CPU")
}

/// Returns the seconds of a thread on a CPU.
fn ran_s(thread: &ThreadBudget) -> f64 {
    thread.rows.iter().filter(ran).map(|row| row.s).sum()
}

fn is_sleep(row: &BudgetRow) -> bool {
    matches!(row.state, ThreadState::Asleep | ThreadState::Blocked)
}

fn is_socket(row: &BudgetRow) -> bool {
    ["TCP ", "UDP "].iter().any(|protocol| row.on.starts_with(protocol))
}

fn address(lock: &str) -> Option<u64> {
    u64::from_str_radix(lock.strip_prefix("lock 0x")?, 16).ok()
}

fn is_near(one: &str, other: &str) -> bool {
    let both = address(one).zip(address(other));
    both.is_some_and(|(one, other)| one.abs_diff(other) <= LOCK_BYTES)
}

/// Returns the thread that lets go of the lock of `row` most often, where its wait ended by a
/// time-out: those who take an interpreter's lock wait so again and again.
fn lets_go(thread: &ThreadBudget, row: &BudgetRow) -> Option<u32> {
    let same = thread.rows.iter().filter(|one| is_near(&one.on, &row.on));
    let by: BTreeSet<(u64, u32)> = same.filter_map(|one| Some((one.count, one.with?))).collect();
    by.last().map(|(_, with)| *with)
}

#[cfg(test)]
mod tests {
    use millstream_record::{End, TIME_OUT};

    use super::*;
    use ThreadState::*;

    fn row(state: ThreadState, what: &str, on: &str, with: u32, s: f64) -> BudgetRow {
        let with = (with != 0).then_some(with);
        BudgetRow {
            state,
            what: what.into(),
            on: on.into(),
            with,
            s,
            count: 1000,
            ..Default::default()
        }
    }

    fn thread(process: u32, thread: u32, rows: Vec<BudgetRow>) -> ThreadBudget {
        let alive_s = rows.iter().map(|row| row.s).sum();
        ThreadBudget { thread, process, parent: 9, alive_s, rows, ..ThreadBudget::default() }
    }

    fn told(threads: Vec<ThreadBudget>, ends: &[(u32, u32)]) -> Vec<(Vec<u32>, String, f64)> {
        let end =
            |(process, peer): &(u32, u32)| (*process, End { peers: vec![*peer], ..End::default() });
        let ends = ends.iter().map(end).collect();
        let budget = Budget { width_s: 10.0, threads, ends, ..Budget::default() };
        let all = uses(&budget, &[1, 2]).all;
        let sum: f64 = all.iter().map(|one| one.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{all:?}");
        let round = |share: f64| (share * 1000.0).round() / 1000.0;
        all.into_iter().map(|one| (one.path, one.row.what, round(one.share))).collect()
    }

    #[test]
    fn several_that_are_told_as_one_work_at_a_time_and_share_a_lock() {
        let workers = |others| {
            let main = thread(1, 1, vec![row(OwnCode, "accept", "", 0, 5.0)]);
            let rows =
                vec![row(OwnCode, "work", "", 0, 20.0), row(Asleep, "futex", "lock 1", 3, 15.0)];
            let fresh = ThreadBudget { others, ..thread(1, 2, rows) };
            Budget { width_s: 10.0, threads: vec![main, fresh], ..Budget::default() }
        };
        // Forty seconds of threads in ten.
        assert_eq!(uses(&workers(7), &[1]).threads, 4.0);
        let budget = workers(7);
        assert!(Walk::new(&budget, &[1]).is_shared(1, "lock 1"));
        let budget = workers(0);
        assert!(!Walk::new(&budget, &[1]).is_shared(1, "lock 1"));
    }

    #[test]
    fn what_a_process_begins_for_one_connection_and_what_a_child_does_are_told_apart() {
        let of = |waits: &str, accepts, others| {
            let client = vec![row(Asleep, waits, "", 3, 9.0), row(OwnCode, "work", "", 0, 1.0)];
            // It stands for those that the server forked.
            let rows = vec![
                row(Kernel, FAULTS, "", 0, 2.0),
                row(Kernel, "munmap", "", 0, 1.0),
                row(OwnCode, "answer", "", 0, 6.0),
                row(Kernel, "exit_group", "", 0, 9.0),
            ];
            let child = ThreadBudget { parent: 2, others, ..thread(3, 3, rows) };
            let ends = [(2, End { accepts, ..End::default() })].into();
            let threads = vec![thread(1, 1, client), child];
            let budget = Budget { width_s: 10.0, threads, ends, ..Budget::default() };
            let all = uses(&budget, &[1]).all;
            let told = |one: Use| (one.row.what, one.purpose, (one.share * 100.0).round());
            all.into_iter().map(told).collect::<Vec<_>>()
        };
        let told = |all: [(&str, Purpose, f64); 4]| {
            all.map(|(what, purpose, share)| (what.to_owned(), purpose, share)).to_vec()
        };
        // Who waits for an answer has it before the other ends.
        let expected = [
            ("answer", Purpose::Work, 60.0),
            (FAULTS, Purpose::Start, 20.0),
            ("munmap", Purpose::Start, 10.0),
            ("work", Purpose::Work, 10.0),
        ];
        assert_eq!(of("read", true, 9), told(expected));
        let all = of("wait4", true, 9);
        assert_eq!(all.len(), 5);
        assert!(all.iter().all(|(what, purpose, _)| {
            *purpose == if what == "work" { Purpose::Work } else { Purpose::Child }
        }));
        let is_work =
            |all: Vec<(String, Purpose, f64)>| all.iter().all(|one| one.1 == Purpose::Work);
        assert!(is_work(of("read", false, 9)), "it serves no connection");
        assert!(is_work(of("wait4", true, 0)), "one that lives long is told by what it does");
    }

    #[test]
    fn what_a_child_waits_for_is_no_time_of_the_child() {
        let script = vec![row(Asleep, "wait4", "", 2, 10.0)];
        let rows = vec![
            row(Kernel, "execve", "", 0, 1.0),
            row(Asleep, "recvfrom", "TCP 10.0.0.2:80", 3, 7.0),
            row(Asleep, "recvfrom", "TCP 10.0.0.9:80", 0, 2.0),
        ];
        let child = ThreadBudget { parent: 1, others: 99, ..thread(2, 2, rows) };
        let server = vec![row(OwnCode, "price", "", 0, 7.0)];
        let threads = vec![thread(1, 1, script), child, thread(3, 3, server)];
        let budget = Budget { width_s: 10.0, threads, ..Budget::default() };
        let all = uses(&budget, &[1]).all;
        let told: Vec<_> = all.iter().map(|one| (one.row.what.as_str(), one.purpose)).collect();
        let expected =
            [("price", Purpose::Work), ("recvfrom", Purpose::Work), ("execve", Purpose::Child)];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_a_name_server_does_while_it_is_asked_is_a_look_up() {
        let client = vec![
            row(Asleep, "poll", "UDP 127.0.0.1:53", 2, 6.0),
            row(Asleep, "recvfrom", "TCP 10.0.0.2:80", 0, 3.0),
            row(OwnCode, "work", "", 0, 1.0),
        ];
        let server = vec![
            row(Asleep, "clock_nanosleep", "", 0, 5.0),
            row(Kernel, "sendto", "", 0, 1.0),
            row(Asleep, "recvfrom", "UDP port 53", 1, 4.0),
        ];
        let threads = vec![thread(1, 1, client), thread(2, 2, server)];
        let budget = Budget { width_s: 10.0, threads, ..Budget::default() };
        let all = uses(&budget, &[1]).all;
        let told: Vec<_> = all.iter().map(|one| (one.row.what.as_str(), one.purpose)).collect();
        let expected = [
            ("clock_nanosleep", Purpose::LookUp),
            ("recvfrom", Purpose::Work),
            ("work", Purpose::Work),
            ("sendto", Purpose::LookUp),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_wait_is_passed_on_to_what_the_other_does_beside_waiting_for_the_one_that_asked() {
        let client = vec![row(Asleep, "read", "", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
        let server = vec![
            row(OwnCode, "work", "", 0, 6.0),
            row(Blocked, "fdatasync", "journal", 1, 3.0),
            row(Asleep, "read", "", 1, 1.0),
        ];
        let all = told(vec![thread(1, 1, client), thread(2, 2, server)], &[]);
        let expected = [
            (vec![1, 2], "work".to_owned(), 0.6),
            (vec![1, 2], "fdatasync".to_owned(), 0.3),
            (vec![1], "write".to_owned(), 0.1),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_thread_that_only_waits_for_its_worker_and_a_sleep_that_comes_once_count_for_nothing() {
        let mut linger = row(Asleep, "clock_nanosleep", "", 0, 4.0);
        linger.count = 1;
        let threads = vec![
            thread(1, 1, vec![row(Asleep, "futex", "lock 0x10", 3, 10.0)]),
            thread(1, 3, vec![row(Asleep, "read", "", 2, 9.9), row(OwnCode, "ask", "", 0, 0.1)]),
            thread(2, 2, vec![linger, row(Kernel, "read", "", 0, 9.9)]),
        ];
        let all = told(threads, &[]);
        assert_eq!((all[0].1.as_str(), all[0].2, all.len()), ("read", 0.99, 2));
    }

    #[test]
    fn two_ends_of_one_program_are_two_and_processes_beside_each_other_are_one() {
        let client = vec![row(Asleep, "read", "", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
        let server = vec![row(OwnCode, "work", "", 0, 9.0), row(Asleep, "read", "", 1, 1.0)];
        let threads = || vec![thread(1, 1, client.clone()), thread(2, 2, server.clone())];
        let names = || [(1, "same".to_owned()), (2, "same".to_owned())].into();
        let end = End { peers: vec![2], ..End::default() };
        let budget = Budget { threads: threads(), names: names(), ..Budget::default() };
        let apart = Budget { ends: [(1, end)].into(), ..budget.clone() };
        assert_eq!(uses(&apart, &[1, 2]).all[0].path, [1, 2]);
        assert_eq!(uses(&budget, &[1, 2]).all[0].path, [1]);
    }

    #[test]
    fn what_a_path_of_packets_waits_for_takes_no_time_and_what_it_does_takes_some() {
        let client = vec![row(Asleep, "select", "", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
        let tunnel =
            vec![row(Kernel, "writev", "", 0, 2.0), row(Asleep, "epoll_wait", TIME_OUT, 0, 8.0)];
        let threads = vec![thread(1, 1, client), thread(2, 2, tunnel)];
        let budget = Budget { threads, carriers: [2].into(), ..Budget::default() };
        let told = |budget: &Budget, ends: &[u32]| -> Vec<(String, f64)> {
            let all = uses(budget, ends).all.into_iter();
            all.map(|one| (one.row.what, (one.share * 100.0).round())).collect()
        };
        let of = |rows: &[(&str, f64)]| -> Vec<(String, f64)> {
            rows.iter().map(|(what, share)| ((*what).to_owned(), *share)).collect()
        };
        assert_eq!(
            told(&budget, &[1, 2]),
            of(&[("select", 70.0), ("writev", 20.0), ("write", 10.0)])
        );
        assert_eq!(told(&budget, &[2, 1]), of(&[("epoll_wait", 80.0), ("writev", 20.0)]), "an end");
    }

    #[test]
    fn a_wait_for_a_cpu_that_the_load_itself_has_is_what_it_does_there() {
        let client = vec![
            row(Ready, "", "", 2, 4.0),
            row(Ready, "", "", 8, 1.0),
            row(Asleep, "read", "", 2, 3.0),
            row(Kernel, "write", "", 0, 2.0),
        ];
        let server = vec![
            row(OwnCode, "price", "", 0, 6.0),
            row(Ready, "", "", 1, 2.0),
            row(Asleep, "read", "", 1, 2.0),
        ];
        let other = vec![row(OwnCode, "other", "", 0, 9.0)];
        let all = told(vec![thread(1, 1, client), thread(2, 2, server), thread(8, 8, other)], &[]);
        let expected = [
            (vec![1, 2], "price".to_owned(), 0.625),
            (vec![1], "write".to_owned(), 0.275),
            (vec![1], String::new(), 0.1),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_wait_for_a_cpu_leads_to_no_more_than_who_had_it_worked() {
        // A quota holds the server back, whichever thread had its CPU meanwhile.
        let client = vec![row(Asleep, "read", "", 2, 9.0), row(OwnCode, "ask", "", 0, 1.0)];
        let server = vec![row(OwnCode, "work", "", 0, 1.0), row(Ready, "", "", 2, 8.0)];
        let all = told(vec![thread(1, 1, client), thread(2, 2, server)], &[]);
        let expected = [
            (vec![1, 2], String::new(), 0.7),
            (vec![1, 2], "work".to_owned(), 0.2),
            (vec![1], "ask".to_owned(), 0.1),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_thread_without_anything_to_run_counts_for_nothing() {
        let mut parked = row(Asleep, "futex", "lock 0x10", 4, 8.0);
        parked.stack = vec!["runtime.notesleep".to_owned(), "runtime.stopm".to_owned()];
        let worker = vec![parked, row(OwnCode, "ask", "", 0, 2.0)];
        let poller = vec![row(Asleep, "epoll_pwait", "", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
        let server = vec![row(Kernel, "read", "", 0, 9.0), row(Asleep, "read", "", 4, 1.0)];
        let all = told(vec![thread(1, 3, worker), thread(1, 4, poller), thread(2, 2, server)], &[]);
        let expected = [
            (vec![1, 2], "read".to_owned(), 0.75),
            (vec![1], "ask".to_owned(), 0.167),
            (vec![1], "write".to_owned(), 0.083),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn who_holds_what_others_want_and_waits_for_its_own_client_leads_to_that() {
        // Two clients' threads, each with its session; one session has the row of the other.
        let waits = vec![row(Asleep, "recvfrom", "", 12, 9.0), row(OwnCode, "ask", "", 0, 1.0)];
        let rests =
            vec![row(Asleep, "clock_nanosleep", "", 0, 8.0), row(Kernel, "sendto", "", 0, 2.0)];
        let wants = vec![row(Asleep, "epoll_wait", "", 13, 9.0), row(Kernel, "sendto", "", 0, 1.0)];
        let holds = vec![row(Asleep, "epoll_wait", "", 3, 9.0), row(Kernel, "sendto", "", 0, 1.0)];
        let threads = vec![
            thread(1, 1, waits),
            thread(1, 3, rests),
            thread(2, 12, wants),
            thread(2, 13, holds),
        ];
        let all = told(threads, &[]);
        let rest = all.iter().find(|one| one.0 == [1, 2, 1] && one.1 == "clock_nanosleep");
        assert!(rest.is_some_and(|one| one.2 > 0.25), "{all:?}");
    }

    #[test]
    fn a_lock_of_several_stays_a_lock_where_its_holder_waits_for_another_program() {
        let behind = |lock: [&str; 2]| {
            let waits =
                |lock| vec![row(Asleep, "futex", lock, 3, 8.0), row(OwnCode, "ask", "", 0, 2.0)];
            let holds = vec![row(Asleep, "recvfrom", "", 9, 9.0), row(OwnCode, "ask", "", 0, 1.0)];
            let server =
                vec![row(Asleep, "clock_nanosleep", "", 0, 9.0), row(Kernel, "read", "", 0, 1.0)];
            let threads = vec![
                thread(1, 1, waits(lock[0])),
                thread(1, 2, waits(lock[1])),
                thread(1, 3, holds),
                thread(2, 9, server),
            ];
            let budget = Budget { width_s: 10.0, threads, ..Budget::default() };
            let all = uses(&budget, &[1, 2]).all;
            let rests = all.into_iter().filter(|one| one.row.what == "clock_nanosleep");
            let round = |share: f64| (share * 100.0).round() as u32;
            rests.map(|one| (round(one.share), one.behind)).collect::<Vec<_>>()
        };
        let pool = "lock 0x10";
        // Its holder waits for the other program itself, too.
        let shared = [(43, Some((pool.to_owned(), 3))), (27, None)];
        assert_eq!(behind([pool, pool]), shared);
        // Each has a word of its own, as threads have that are parked.
        assert_eq!(behind([pool, "lock 0x900"]), [(70, None)]);
    }

    #[test]
    fn a_wait_for_who_looks_counts_for_nothing() {
        let rows = vec![row(OwnCode, "ask", "", 0, 6.0), row(Ready, LOOKS, "", 0, 4.0)];
        assert_eq!(told(vec![thread(1, 1, rows)], &[]), [(vec![1], "ask".to_owned(), 1.0)]);
    }

    #[test]
    fn who_did_less_than_it_was_waited_for_is_not_all_of_the_wait() {
        let client = vec![row(Asleep, "recvfrom", "", 2, 9.0), row(OwnCode, "ask", "", 0, 1.0)];
        let server = vec![row(OwnCode, "work", "", 0, 1.8), row(Asleep, "read", "", 1, 8.2)];
        let all = told(vec![thread(1, 1, client), thread(2, 2, server)], &[]);
        let expected = [
            (vec![1], "recvfrom".to_owned(), 0.72),
            (vec![1, 2], "work".to_owned(), 0.18),
            (vec![1], "ask".to_owned(), 0.1),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn locks_lead_to_those_who_let_go_of_them_also_where_the_wait_timed_out() {
        let client = vec![row(Asleep, "read", "", 2, 10.0)];
        let waits = vec![
            row(Asleep, "futex", "lock 0x1004", 0, 8.0),
            row(Asleep, "futex", "lock 0x1000", 3, 1.0),
            row(OwnCode, "answer", "", 0, 1.0),
        ];
        let burns = vec![row(OwnCode, "burn", "", 0, 10.0)];
        let threads = vec![thread(1, 1, client), thread(2, 2, waits), thread(2, 3, burns)];
        let budget = Budget { width_s: 10.0, threads, ..Budget::default() };
        let first = uses(&budget, &[1, 2]).all[0].clone();
        assert_eq!((first.row.what.as_str(), (first.share * 100.0).round()), ("burn", 90.0));
        assert_eq!(first.behind.map(|(_, thread)| thread), Some(3));
    }

    #[test]
    fn one_that_waits_to_be_asked_lets_nobody_wait() {
        let client =
            vec![row(Asleep, "write", "TCP 10.0.0.2:80", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
        let mut accepts = row(Asleep, "accept", "TCP port 80", 0, 0.5);
        accepts.count = 1;
        let server = vec![
            row(Asleep, "read", "TCP port 80", 0, 9.0),
            accepts,
            row(Kernel, "read", "", 0, 0.9),
        ];
        let all = told(vec![thread(1, 1, client), thread(2, 2, server)], &[]);
        let expected = [
            (vec![1], "write".to_owned(), 0.81),
            (vec![1], "write".to_owned(), 0.1),
            (vec![1, 2], "read".to_owned(), 0.09),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_strangers_thread_that_an_interrupt_met_is_not_waited_for() {
        let client = vec![row(Asleep, "write", "TCP 10.0.0.2:80", 7, 10.0)];
        let stranger = vec![row(OwnCode, "other", "", 0, 10.0)];
        let threads = || vec![thread(1, 1, client.clone()), thread(7, 7, stranger.clone())];
        assert_eq!(told(threads(), &[(1, 2)]), [(vec![1], "write".to_owned(), 1.0)]);
        assert_eq!(told(threads(), &[(1, 7)])[0].1, "other");
    }
}
