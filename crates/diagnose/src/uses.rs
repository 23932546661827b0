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
/// Calls in which a process begins, or a thread gives its stack back. A forked process copies its
/// pages as it touches them.
const BEGINS: [&str; 4] = [FAULTS, "execve", "madvise", "munmap"];
/// Calls in which it ends. Whoever waited for its answer has that by then.
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
        if !is_socket(row) {
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

/// Returns true for time that goes to a TCP or UDP socket.
pub(crate) fn is_socket(row: &BudgetRow) -> bool {
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
mod tests;
