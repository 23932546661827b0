//! Where the time of the ends of a load goes, as text: whom they wait for, and a table for each of
//! their threads.

use std::fmt::Write;

use millstream_diagnose::budget::{Shares, chain, ends};
use millstream_record::{Budget, BudgetRow, ThreadBudget, ThreadState};

/// Rows of less than this share of a thread's time are told as one of their state.
const SMALL: f64 = 0.005;
/// Rows of a state that the chain names, and their least share.
const NAMED: usize = 3;
const NAMED_SHARE: f64 = 0.02;
/// Threads of a process with a table of their own.
const TABLES: usize = 4;

/// States in the order of the tables.
const STATES: [(ThreadState, &str); 6] = [
    (ThreadState::OwnCode, "in its own code"),
    (ThreadState::Kernel, "in the kernel"),
    (ThreadState::Ready, "ready without a CPU"),
    (ThreadState::Asleep, "asleep"),
    (ThreadState::Blocked, "blocked"),
    (ThreadState::Untold, "not told"),
];

/// Returns the budget of `roots`, of what they started, and of those they wait for; without roots
/// of the process that works most and its peers.
pub fn text(budget: &Budget, roots: &[u32]) -> String {
    let [headline, tables] = parts(budget, roots);
    format!("\nWhere the time goes, of {:.2} s:\n{headline}\n{tables}", budget.width_s)
}

/// Returns the same as a sentence on whom the first of them waits for, and their tables.
pub fn parts(budget: &Budget, roots: &[u32]) -> [String; 2] {
    let busiest = budget.threads.first().map(|one| one.process);
    let roots = if roots.is_empty() { busiest.as_slice() } else { roots };
    let ends = ends(budget, roots);
    let Some(first) = ends.first() else {
        return ["None of the processes was at work.".to_owned(), String::new()];
    };
    let headline = sentence(budget, *first);
    let mut text = String::new();
    for process in ends {
        let threads: Vec<&ThreadBudget> =
            budget.threads.iter().filter(|one| one.process == process).collect();
        for thread in threads.iter().take(TABLES) {
            table(&mut text, budget, thread);
        }
        if let Some(more @ 1..) = threads.len().checked_sub(TABLES) {
            let _ = writeln!(text, "\n{}: {more} threads more", named(budget, process));
        }
    }
    if budget.left_out > 0 {
        let _ = writeln!(text, "\n{} threads of the machine are left out.", budget.left_out);
    }
    [headline, text]
}

/// Returns the chain of waits from `process` on as a sentence.
fn sentence(budget: &Budget, process: u32) -> String {
    let chain = chain(budget, process);
    let mut text = named(budget, process);
    for (at, shares) in chain.iter().enumerate() {
        let next = chain.get(at + 1);
        let which = if at == 0 { "" } else { ", which" };
        let mut parts = states(budget, shares, next.map(|next| next.process));
        if let Some(next) = next {
            let share = shares.sleeps_for(next.process) * 100.0;
            parts.push(format!("asleep {share:.0} % for {}", named(budget, next.process)));
        }
        let _ = write!(text, "{which} is {}", parts.join(", "));
    }
    text + "."
}

/// Returns the states of a process, the longest first, but for its sleeps until `next` woke it.
fn states(budget: &Budget, shares: &Shares, next: Option<u32>) -> Vec<String> {
    let is_next = |row: &BudgetRow| {
        let sleeps = matches!(row.state, ThreadState::Asleep | ThreadState::Blocked);
        sleeps && next.is_some() && row.with == next
    };
    let mut parts: Vec<(f64, String)> = Vec::new();
    for (state, name) in STATES {
        let rows = shares.rows.iter().filter(|(row, _)| row.state == state && !is_next(row));
        let rows = merged(budget, rows.map(|(row, share)| (row, *share)));
        let share: f64 = rows.iter().map(|row| row.share).sum();
        if share < NAMED_SHARE {
            continue;
        }
        let most = rows.iter().filter(|row| row.share >= NAMED_SHARE).take(NAMED);
        let most: Vec<String> =
            most.map(|row| format!("{} {:.0} %", row.what, row.share * 100.0)).collect();
        let most = if most.is_empty() { String::new() } else { format!(" ({})", most.join(", ")) };
        parts.push((share, format!("{name} {:.0} %{most}", share * 100.0)));
    }
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    parts.into_iter().map(|(_, part)| part).collect()
}

fn named(budget: &Budget, process: u32) -> String {
    let role = budget.ends.get(&process).map(|end| format!(" ({})", end.role()));
    budget.name(process) + &role.unwrap_or_default()
}

/// Rows that are told as one.
struct Merged {
    what: String,
    share: f64,
    s: f64,
    count: u64,
}

/// Returns rows of one state by what they are told as, the longest first.
fn merged<'a>(budget: &Budget, rows: impl Iterator<Item = (&'a BudgetRow, f64)>) -> Vec<Merged> {
    let mut all: Vec<Merged> = Vec::new();
    for (row, share) in rows {
        let what = described(budget, row);
        match all.iter_mut().find(|one| one.what == what) {
            Some(one) => {
                (one.share, one.s) = (one.share + share, one.s + row.s);
                one.count += row.count;
            }
            None => all.push(Merged { what, share, s: row.s, count: row.count }),
        }
    }
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all
}

/// Returns what a row is of, beside its state. Threads that had a CPU are told by their program.
fn described(budget: &Budget, row: &BudgetRow) -> String {
    let BudgetRow { state, what, on, with, .. } = row;
    let mut text = what.clone();
    if !on.is_empty() {
        let _ = write!(text, " {on}");
    }
    match (state, with) {
        (ThreadState::Ready, Some(with)) => {
            let name = budget.names.get(with).map_or("another thread", String::as_str);
            format!("{name} has it")
        }
        (ThreadState::Ready, None) if !what.is_empty() => text,
        (ThreadState::Ready, None) => "it was idle, and wakes up".to_owned(),
        (_, Some(with)) => format!("{text}, woken by {}", budget.name(*with)),
        _ => text,
    }
}

/// Adds the table of a thread: its states with their rows, those that are small as one, and the
/// sum.
fn table(text: &mut String, budget: &Budget, thread: &ThreadBudget) {
    let of = match thread.thread == thread.process {
        true => named(budget, thread.process),
        false => format!("{} of {}", budget.name(thread.thread), named(budget, thread.process)),
    };
    let alive_s = thread.alive_s;
    let _ = writeln!(text, "\n{of}, {alive_s:.2} s:");
    for (state, name) in STATES {
        let rows = thread.rows.iter().filter(|row| row.state == state);
        let rows = merged(budget, rows.map(|row| (row, row.s / alive_s.max(1e-9))));
        let share: f64 = rows.iter().map(|row| row.share).sum();
        if rows.is_empty() || share < SMALL / 10.0 {
            continue;
        }
        let _ = writeln!(text, "  {:>6.1} %  {name}", share * 100.0);
        let (large, small): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.share >= SMALL);
        for Merged { what, share, s, count } in large {
            let times = match count {
                0 => String::new(),
                count => format!(", {count} × {:.1} µs", s * 1e6 / *count as f64),
            };
            let _ = writeln!(text, "            {:>5.1} %  {what}{times}", share * 100.0);
        }
        let sum: f64 = small.iter().map(|row| row.share).sum();
        if sum >= SMALL / 10.0 {
            let of = small.len();
            let _ = writeln!(text, "            {:>5.1} %  {of} smaller", sum * 100.0);
        }
    }
    let sum: f64 = thread.rows.iter().map(|row| row.s).sum();
    let _ = writeln!(text, "  {:>6.1} %  sum", sum / alive_s.max(1e-9) * 100.0);
}

#[cfg(test)]
mod tests {
    use millstream_record::End;

    use super::*;

    fn row(state: ThreadState, what: &str, with: Option<u32>, s: f64, count: u64) -> BudgetRow {
        BudgetRow { state, what: what.into(), with, s, count, ..BudgetRow::default() }
    }

    fn thread(number: u32, rows: Vec<BudgetRow>) -> ThreadBudget {
        let (thread, process) = (number, number);
        ThreadBudget { thread, process, alive_s: 10.0, rows, ..ThreadBudget::default() }
    }

    #[test]
    fn a_chain_and_tables_that_sum_are_told() {
        use ThreadState::*;
        let mut disk = row(Blocked, "fdatasync", None, 2.0, 100);
        disk.on = "wal.log".into();
        let client = vec![
            row(Asleep, "recvfrom", Some(2), 9.1, 1000),
            row(Kernel, "sendto", None, 0.8, 0),
            row(OwnCode, "main", None, 0.04, 0),
            row(OwnCode, "parse", None, 0.04, 0),
            row(Untold, "no event told of it", None, 0.02, 0),
        ];
        let server = vec![
            row(OwnCode, "work", None, 6.4, 0),
            disk,
            row(Asleep, "recvfrom", Some(1), 1.0, 1000),
            row(Ready, "", Some(7), 0.3, 30),
            row(Ready, "", Some(8), 0.3, 30),
        ];
        let names = [(1, "ask"), (2, "serve"), (7, "other"), (8, "other")];
        let end = |accepts| End { accepts, connects: !accepts, peers: vec![] };
        let budget = Budget {
            width_s: 10.0,
            threads: vec![thread(2, server), thread(1, client)],
            names: names.map(|(number, name)| (number, name.to_owned())).into(),
            ends: [(1, end(false)), (2, end(true))].into(),
            left_out: 0,
        };
        let told = text(&budget, &[1]);
        for line in [
            "ask/1 (client) is in the kernel 8 % (sendto 8 %), asleep 91 % for serve/2 (server), \
             which is in its own code 64 % (work 64 %), blocked 20 % (fdatasync wal.log 20 %), \
             asleep 10 % (recvfrom, woken by ask/1 10 %), ready without a CPU 6 % (other has it 6 %).",
            "    91.0 %  asleep\n             91.0 %  recvfrom, woken by serve/2, 1000 × 9100.0 µs",
            "     0.8 %  in its own code\n              0.8 %  2 smaller",
            "              6.0 %  other has it, 60 × 10000.0 µs",
            "   100.0 %  sum",
        ] {
            assert!(told.contains(line), "{line:?} in\n{told}");
        }
        assert!(text(&budget, &[9]).contains("None of the processes was at work"));
    }
}
