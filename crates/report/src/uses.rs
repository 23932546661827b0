//! Words on where the time of a unit of work goes.

use std::fmt::Write;

use millstream_diagnose::budget::ends;
use millstream_diagnose::units::significant;
use millstream_diagnose::uses::{Use, Uses, uses};
use millstream_record::{Budget, ThreadState};

/// Callers of a sleep that are named.
const CALLERS: usize = 3;
/// Rows that are named, functions and calls of one, and the least share of either.
const ROWS: usize = 5;
const PARTS: usize = 3;
const SMALL: f64 = 0.02;

/// Uses of one kind by one process, which are told as one.
struct Told<'a> {
    path: &'a [u32],
    behind: Option<&'a (String, u32)>,
    state: ThreadState,
    uses: Vec<&'a Use>,
    share: f64,
}

/// The words on a budget, and the bound that follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Sentences: the first row of the time of a unit of work, and the rest of it.
    pub text: String,
    /// The first row alone.
    pub first: String,
    /// Its share of the time.
    pub share: f64,
    /// The share of the other rows that are waits for a CPU.
    ready: f64,
}

impl Answer {
    /// Returns the factor by which the result grows where the first row is gone, and the others
    /// stay as they are.
    pub fn alone(&self) -> f64 {
        1.0 / (1.0 - self.share).max(0.001)
    }

    /// Returns the factor by which the result grows at most where the first row is gone: what had
    /// the CPU then may have kept others from it, and slept long enough that it had to wake up.
    pub fn at_most(&self) -> f64 {
        1.0 / (1.0 - self.share - self.ready).max(0.001)
    }
}

/// Returns where the time of the first end of `roots` goes; of a unit of work where it is said what
/// that is, and how many there are in a second.
pub fn answer(budget: &Budget, roots: &[u32], work: Option<(&str, f64)>) -> Option<Answer> {
    let ends = ends(budget, roots);
    let process = *ends.first()?;
    let Uses { all, threads } = uses(budget, &ends);
    let mut rows: Vec<Told> = Vec::new();
    // Of a call that blocks, its work in the kernel is a part: one to the disk, mostly.
    let blocks = |one: &Use| {
        all.iter().any(|other| {
            let is_blocked = other.row.state == ThreadState::Blocked && other.share >= SMALL;
            is_blocked && other.path == one.path && other.row.what == one.row.what
        })
    };
    for one in &all {
        let behind = one.behind.as_ref();
        let state = match one.row.state {
            ThreadState::Kernel if blocks(one) => ThreadState::Blocked,
            state => state,
        };
        let is_same = |told: &&mut Told| {
            let is_one = match state {
                ThreadState::OwnCode | ThreadState::Kernel | ThreadState::Ready => true,
                ThreadState::Blocked => told.uses[0].row.what == one.row.what,
                _ => false,
            };
            is_one && told.path == one.path && told.state == state
        };
        match rows.iter_mut().find(is_same) {
            Some(told) => {
                told.share += one.share;
                told.uses.push(one);
            }
            None => {
                let (path, share) = (&one.path[..], one.share);
                rows.push(Told { path, behind, state, uses: vec![one], share });
            }
        }
    }
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    let (first, rest) = rows.split_first()?;
    let unit_s = work.map(|(unit, per_s)| (unit, threads / per_s));
    let unit_s = unit_s.filter(|(_, s)| s.is_finite() && *s > 0.0);
    let share = first.share;
    let of = match unit_s {
        Some((unit, s)) => {
            format!("Of each {unit} ({}) {} ({})", time(s), time(s * share), percent(share))
        }
        None => format!("Of the time of {} {}", named(budget, process), percent(share)),
    };
    let is_ready = |one: &&Told| one.state == ThreadState::Ready;
    let ready = rest.iter().filter(is_ready).map(|one| one.share).sum();
    let said = first.said(budget, true);
    let mut text = format!("{of}: {said}.");
    let rest: Vec<String> = rest
        .iter()
        .filter(|one| one.share >= SMALL)
        .take(ROWS)
        .map(|one| format!("{} {}", percent(one.share), one.said(budget, false)))
        .collect();
    if !rest.is_empty() {
        let _ = write!(text, " The rest: {}.", rest.join("; "));
    }
    Some(Answer { text, first: said, share, ready })
}

impl Told<'_> {
    /// Returns who does what; with all of those that wait for it where `whole`.
    fn said(&self, budget: &Budget, whole: bool) -> String {
        let Some((last, before)) = self.path.split_last() else { return String::new() };
        let mut text = named(budget, *last);
        if whole && !before.is_empty() {
            for one in before.iter().rev() {
                let _ = write!(text, ", for which {} waits", named(budget, *one));
            }
            text.push(',');
        }
        let one = self.uses[0];
        let what = match self.state {
            ThreadState::OwnCode => format!("is in its own code{}", self.parts(budget)),
            ThreadState::Kernel => format!("is in the kernel{}", self.parts(budget)),
            ThreadState::Ready => format!("is ready without a CPU{}", self.parts(budget)),
            ThreadState::Asleep => format!("sleeps in {}", asleep(one)),
            ThreadState::Blocked => self.blocked(),
            ThreadState::Untold => format!("does what is not known ({})", one.row.what),
        };
        let _ = write!(text, " {what}");
        if let Some((lock, thread)) = self.behind {
            let _ = write!(
                text,
                ", while others wait for {lock}, of which {} lets go",
                budget.name(*thread)
            );
        }
        text
    }

    /// Returns the call that blocks, with the part that is work in the kernel.
    fn blocked(&self) -> String {
        let is_work = |one: &&&Use| one.row.state == ThreadState::Kernel;
        let work: f64 = self.uses.iter().filter(is_work).map(|one| one.share).sum();
        let sleeps = self.uses.iter().find(|one| !is_work(one)).unwrap_or(&self.uses[0]);
        let work = match work {
            0.0 => String::new(),
            work => format!(", {} of it at work in the kernel", percent(work / self.share)),
        };
        format!("is blocked in {}{work}", asleep(sleeps))
    }

    fn parts(&self, budget: &Budget) -> String {
        let what = |one: &Use| match (self.state, one.row.with) {
            (ThreadState::Ready, Some(with)) => {
                let name = budget.names.get(&with).map_or("another thread", String::as_str);
                format!("{name} has it")
            }
            (ThreadState::Ready, None) if one.row.what.is_empty() => {
                "it was idle, and wakes up".to_owned()
            }
            _ => one.row.what.clone(),
        };
        let mut all: Vec<(String, f64)> = Vec::new();
        for one in &self.uses {
            let what = what(one);
            match all.iter_mut().find(|(name, _)| *name == what) {
                Some((_, share)) => *share += one.share,
                None => all.push((what, one.share)),
            }
        }
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let large = all.into_iter().filter(|(_, share)| *share >= SMALL).take(PARTS);
        let part = |(what, share)| format!("{what} {}", percent(share));
        let parts: Vec<String> = large.map(part).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }
}

/// Returns the call in which a thread sleeps, the thing that it waits for, and how long each time.
fn asleep(one: &Use) -> String {
    let row = &one.row;
    let on = if row.on.is_empty() { String::new() } else { format!(" {}", row.on) };
    let mean = row.s / row.count.max(1) as f64;
    let from = called_from(&row.stack);
    let from = if from.is_empty() { from } else { format!(", from {from}") };
    format!("{}{on} (each {}{from})", row.what, time(mean))
}

/// Returns the innermost functions of a stack.
pub(crate) fn called_from(stack: &[String]) -> String {
    stack[..stack.len().min(CALLERS)].join(" ← ")
}

/// Returns the name of a process with its role.
pub(crate) fn named(budget: &Budget, process: u32) -> String {
    let role = budget.ends.get(&process).map(|end| format!(" ({})", end.role()));
    budget.name(process) + &role.unwrap_or_default()
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn time(s: f64) -> String {
    match s {
        _ if s >= 1.0 => format!("{} s", significant(s)),
        _ if s >= 1e-3 => format!("{} ms", significant(s * 1e3)),
        _ => format!("{} µs", significant(s * 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use millstream_record::{BudgetRow, End, ThreadBudget};

    use super::*;

    #[test]
    fn the_end_of_the_chain_stands_before_the_rest_of_a_unit_of_work() {
        use ThreadState::*;
        let row = |state, what: &str, with, s| BudgetRow {
            state,
            what: what.to_owned(),
            with,
            s,
            count: 1000,
            ..BudgetRow::default()
        };
        let thread = |number, rows| {
            let (thread, process) = (number, number);
            ThreadBudget { thread, process, rows, ..ThreadBudget::default() }
        };
        let mut look_up = row(Asleep, "poll", None, 4.0);
        look_up.on = "UDP 10.0.0.1:53".to_owned();
        let client =
            vec![row(Asleep, "read", Some(2), 5.0), row(Kernel, "connect", None, 1.0), look_up];
        let server = vec![row(OwnCode, "price", None, 4.5), row(Ready, "", Some(7), 0.5)];
        let end = |accepts| End { accepts, connects: !accepts, ..End::default() };
        let budget = Budget {
            width_s: 10.0,
            threads: vec![thread(1, client), thread(2, server)],
            names: [(1, "ask".to_owned()), (2, "serve".to_owned()), (7, "other".to_owned())].into(),
            ends: [(1, end(false)), (2, end(true))].into(),
            ..Budget::default()
        };
        let found = answer(&budget, &[1], Some(("transaction", 100.0))).unwrap();
        let said = "Of each transaction (10.0 ms) 4.50 ms (45 %): serve/2 (server), for which ask/1 (client) waits, \
                    is in its own code (price 45 %). The rest: 40 % ask/1 (client) sleeps in poll UDP 10.0.0.1:53 \
                    (each 4.00 ms); 10 % ask/1 (client) is in the kernel (connect 10 %); 5 % serve/2 (server) is \
                    ready without a CPU (other has it 5 %).";
        assert_eq!(found.text, said);
        assert!((found.alone() - 1.0 / 0.55).abs() < 1e-9);
        assert!((found.at_most() - 1.0 / 0.5).abs() < 1e-9, "a wait for a CPU may go with it");
        let found = answer(&budget, &[1], None).unwrap();
        assert!(
            found.text.starts_with("Of the time of ask/1 (client) 45 %: serve/2"),
            "{}",
            found.text
        );
        assert_eq!(answer(&budget, &[9], None), None);
    }
}
