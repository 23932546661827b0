//! Where the time of the ends of a load goes: the end of their waits, a bar and a table for each of
//! their threads.

use std::collections::BTreeMap;
use std::fmt::Write;

use millstream_diagnose::budget::ends;
use millstream_foreign::markup as escape;
use millstream_record::{
    Budget, BudgetRow, Probes, RunRecord, Table, Tables, ThreadBudget, ThreadState,
};

use crate::frame::{Cell, Chapter, Frame, Grid, Part, Row, Section};
use crate::uses::{answer, called_from, named};
use crate::{grids, medians};

/// Rows of less than this share of a thread's time are told as one of their state, and threads
/// that worked less as one of their process.
const SMALL: f64 = 0.01;
/// The callers of a sleep of so much of a thread's time are told.
const LARGE: f64 = 0.05;
/// Sums of less are left out.
const NONE: f64 = 0.0005;
/// Threads of a process, and of all, that are told.
const OF_PROCESS: usize = 4;
const THREADS: usize = 16;
/// Width of the drawing, of the names at its left, and of a letter; height of a bar and of its row.
const WIDTH: f64 = 1120.0;
const LEFT: f64 = 230.0;
const LETTER: f64 = 6.6;
const BAR: f64 = 24.0;
const LINE: f64 = 32.0;

/// States in the order of the tables, with the classes of their colours.
const STATES: [(ThreadState, &str, &str); 6] = [
    (ThreadState::OwnCode, "in its own code", "k-usr"),
    (ThreadState::Kernel, "in the kernel", "k-sys"),
    (ThreadState::Ready, "ready without a CPU", "k-wait"),
    (ThreadState::Asleep, "asleep", "idle"),
    (ThreadState::Blocked, "blocked", "k-irq"),
    (ThreadState::Untold, "not told", "k-steal"),
];

/// Names of the tables of connections and of what stands on the way of their packets, as probes
/// give them.
const CONNECTED: [&str; 5] = ["connections", "opened", "workers", "captures", "classifiers"];

/// Returns these tables of one run, what grows with time by
/// second.
pub fn connections(probes: &Probes) -> Tables {
    let own = |(name, table): (&String, &Table)| {
        CONNECTED.contains(&name.as_str()).then(|| (name.clone(), table.clone()))
    };
    let tables = probes.tables.iter().filter_map(own).collect();
    let (times_s, mut run) = (probes.times_s.clone(), RunRecord::default());
    run.probes = Probes { times_s, tables, ..Probes::default() };
    medians(&[&run])
}

/// Returns the section of these tables.
pub fn connected<'a>(tables: &Tables) -> Section<'a> {
    let drawn = grids("of the run with the budget", "", &[(Cell::default(), tables)]);
    Section::new(Chapter::NONE, "Connections", drawn.into_iter().map(Part::Grid).collect())
}

/// Returns the budget of `roots`, of what they started, and of those they wait for; without roots
/// of the process that works most and its peers. The connections of all of them follow.
pub fn text(probes: &Probes, budget: &Budget, roots: &[u32]) -> String {
    let sections = vec![section(budget, roots, None), connected(&connections(probes))];
    format!("\n{}", Frame { title: String::new(), sections }.text())
}

/// Returns the same as a section of a page or text: where the time goes in the end, of a unit of
/// work if that is known, and their threads.
pub fn section<'a>(budget: &Budget, roots: &[u32], work: Option<(&str, f64)>) -> Section<'a> {
    let busiest = budget.threads.first().map(|one| one.process);
    let roots = if roots.is_empty() { busiest.as_slice() } else { roots };
    let ends = ends(budget, roots);
    let said = answer(budget, roots, work).map(|one| one.text);
    let said = said.unwrap_or_else(|| "None of the processes was at work.".to_owned());
    let mut parts = vec![Part::Answer(said)];
    let (mut told, mut more): (Vec<&ThreadBudget>, usize) = (Vec::new(), 0);
    for process in ends {
        let mut threads: Vec<&ThreadBudget> =
            budget.threads.iter().filter(|one| one.process == process).collect();
        let all = threads.len();
        let is_first = |at: usize| at == 0 && told.len() < THREADS;
        let works = |one: &ThreadBudget| work_share(one) >= SMALL;
        let kept = (0..all).take_while(|&at| is_first(at) || works(threads[at]));
        let kept = kept.count().min(OF_PROCESS).min(THREADS - told.len());
        threads.truncate(kept);
        more += all - kept;
        told.extend(threads);
    }
    if !told.is_empty() {
        parts.push(Part::Markup(drawn(budget, &told)));
    }
    for thread in &told {
        parts.push(Part::Heading("", headed(budget, thread)));
        parts.push(Part::Grid(table(budget, thread, SMALL)));
    }
    let threads = |n: usize| if n == 1 { "1 thread".to_owned() } else { format!("{n} threads") };
    if more > 0 {
        parts.push(Part::line(format!("Working less, and not shown: {}.", threads(more))));
    }
    if budget.left_out > 0 {
        let left_out = threads(budget.left_out as usize);
        parts.push(Part::line(format!("Left out of the machine's: {left_out}.")));
    }
    parts.push(Part::lines(settings(budget, &told)));
    let small = told.iter().flat_map(|thread| {
        [Part::Heading("", headed(budget, thread)), Part::Grid(table(budget, thread, 0.0))]
    });
    let small: Vec<Part<'_>> = small.collect();
    if !small.is_empty() {
        parts.push(Part::Folded("All rows".to_owned(), false, small));
    }
    let heading = format!("Where the time goes, of {:.2} s", budget.width_s);
    Section::new(Chapter::NONE, heading, parts)
}

/// Returns the settings of the ends, those that have the same in one line.
fn settings(budget: &Budget, threads: &[&ThreadBudget]) -> Vec<String> {
    let mut all: Vec<(&BTreeMap<String, String>, Vec<String>)> = Vec::new();
    for thread in threads {
        let end = budget.ends.get(&thread.process).filter(|end| !end.settings.is_empty());
        let Some(settings) = end.map(|end| &end.settings) else { continue };
        let name = budget.name(thread.process);
        match all.iter_mut().find(|(one, _)| *one == settings) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => all.push((settings, vec![name])),
        }
    }
    let said = |(settings, names): (&BTreeMap<String, String>, Vec<String>)| {
        let each = settings.iter().map(|(name, value)| format!("{name} {value}"));
        format!("Settings of {}: {}.", names.join(", "), each.collect::<Vec<_>>().join("; "))
    };
    all.into_iter().map(said).collect()
}

fn work_share(thread: &ThreadBudget) -> f64 {
    let is_work = |row: &&BudgetRow| {
        !matches!(row.state, ThreadState::Asleep | ThreadState::Blocked | ThreadState::Untold)
    };
    let work_s: f64 = thread.rows.iter().filter(is_work).map(|row| row.s).sum();
    work_s / thread.alive_s.max(1e-9)
}

/// Rows that are told as one.
struct Merged {
    what: String,
    share: f64,
    s: f64,
    count: u64,
    from: String,
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
            None => {
                let from = called_from(&row.stack);
                all.push(Merged { what, share, s: row.s, count: row.count, from });
            }
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

/// Returns the name of a thread, with its process and the role of that.
fn headed(budget: &Budget, thread: &ThreadBudget) -> String {
    let of = match thread.thread == thread.process {
        true => named(budget, thread.process),
        false => format!("{} of {}", budget.name(thread.thread), named(budget, thread.process)),
    };
    let what = if thread.thread == thread.process { "processes" } else { "threads" };
    let others = match thread.others {
        0 => String::new(),
        others => format!(" and {others} {what} like it"),
    };
    format!("{of}{others}, {:.2} s", thread.alive_s)
}

/// Returns each state of a thread that has rows, with its share, those rows that have at least
/// `least` of the time, and all that have less as one, with how many these are.
fn by_state(
    budget: &Budget,
    thread: &ThreadBudget,
    least: f64,
) -> Vec<(&'static str, &'static str, f64, Vec<Merged>)> {
    let mut all = Vec::new();
    for (state, name, class) in STATES {
        let rows = thread.rows.iter().filter(|row| row.state == state);
        let mut rows = merged(budget, rows.map(|row| (row, row.s / thread.alive_s.max(1e-9))));
        let share: f64 = rows.iter().map(|row| row.share).sum();
        if rows.is_empty() || share < NONE {
            continue;
        }
        let small = rows.split_off(rows.partition_point(|row| row.share >= least));
        let sum: f64 = small.iter().map(|row| row.share).sum();
        if sum >= NONE {
            let what = format!("{} smaller", small.len());
            rows.push(Merged { what, share: sum, s: 0.0, count: 0, from: String::new() });
        }
        all.push((name, class, share, rows));
    }
    all
}

/// Returns the table of a thread: its states with their rows, and the sum.
fn table(budget: &Budget, thread: &ThreadBudget, least: f64) -> Grid {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut rows: Vec<Row> = Vec::new();
    for (name, _, share, own) in by_state(budget, thread, least) {
        let cells = [name.to_owned(), percent(share), String::new(), String::new()];
        rows.push(Row { class: "head", ..cells.into() });
        for Merged { what, share, s, count, from } in own {
            let [count, each] = match count {
                0 => [String::new(), String::new()],
                count => [count.to_string(), format!("{:.1} µs", s * 1e6 / count as f64)],
            };
            rows.push([format!("  {what}"), percent(share), count, each].into());
            if share >= LARGE && !from.is_empty() {
                let none = String::new;
                rows.push([format!("    from {from}"), none(), none(), none()].into());
            }
        }
    }
    let sum: f64 = thread.rows.iter().map(|row| row.s).sum();
    let sum = percent(sum / thread.alive_s.max(1e-9));
    rows.push(Row {
        class: "head",
        ..["sum".to_owned(), sum, String::new(), String::new()].into()
    });
    Grid::new("", ["state", ">share", ">times", ">each"]).rows(rows)
}

/// Returns a bar for each thread, a segment for each row, and what the colours are.
fn drawn(budget: &Budget, threads: &[&ThreadBudget]) -> String {
    let mut text = String::from("<p class=\"legend\">");
    for (_, name, class) in STATES {
        let _ = write!(text, "<span><i class=\"{class}\"></i>{name}</span> ");
    }
    let height = LINE * threads.len() as f64;
    let _ = write!(
        text,
        "</p>\n<div class=\"scroll\"><svg class=\"budget\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">"
    );
    for (at, thread) in threads.iter().enumerate() {
        let y = LINE * at as f64;
        let below = y + BAR * 0.7;
        let name = escape(&budget.name(thread.thread));
        let role = budget.ends.get(&thread.process).map_or("", |end| end.role());
        let _ = write!(
            text,
            "<text x=\"{:.0}\" y=\"{below:.1}\" class=\"end\">{name} <tspan class=\"dim\">{role}</tspan></text>",
            LEFT - 8.0
        );
        let mut x = LEFT;
        for (name, class, _, rows) in by_state(budget, thread, SMALL) {
            for Merged { what, share, .. } in rows {
                let width = share * (WIDTH - LEFT);
                let percent = share * 100.0;
                let _ = write!(
                    text,
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\">\
                     <title>{name}: {} {percent:.1} %</title></rect>",
                    escape(&what)
                );
                let room = (width / LETTER) as usize;
                let label = match what.chars().count() {
                    0 => String::new(),
                    letters if letters < room => what,
                    _ if room > 6 => what.chars().take(room - 2).chain(['…']).collect(),
                    _ => String::new(),
                };
                let _ = match label.is_empty() {
                    true => Ok(()),
                    false => write!(
                        text,
                        "<text x=\"{:.1}\" y=\"{below:.1}\">{}</text>",
                        x + 4.0,
                        escape(&label)
                    ),
                };
                x += width;
            }
        }
    }
    text + "</svg></div>\n"
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
    fn a_heading_says_how_many_are_told_as_one() {
        let rows = || vec![row(ThreadState::OwnCode, "work", None, 10.0, 0)];
        let one = |others, number| ThreadBudget { others, thread: number, ..thread(2, rows()) };
        let names = [2, 3].map(|number| (number, "serve".to_owned())).into();
        let budget = Budget { names, ..Budget::default() };
        assert_eq!(headed(&budget, &one(0, 2)), "serve/2, 10.00 s");
        assert_eq!(headed(&budget, &one(9, 2)), "serve/2 and 9 processes like it, 10.00 s");
        assert_eq!(
            headed(&budget, &one(9, 3)),
            "serve/3 of serve/2 and 9 threads like it, 10.00 s"
        );
    }

    #[test]
    fn the_end_of_the_chain_and_tables_that_sum_are_told() {
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
            row(OwnCode, "work", None, 6.0, 0),
            row(Kernel, "fdatasync", None, 0.4, 0),
            disk,
            row(Asleep, "recvfrom", Some(1), 1.0, 1000),
            row(Ready, "", Some(7), 0.3, 30),
            row(Ready, "", Some(8), 0.3, 30),
        ];
        let names = [(1, "ask"), (2, "serve"), (7, "other"), (8, "other")];
        let end = |accepts| {
            let settings = [("tcp_rmem".to_owned(), "4096 8192 16384".to_owned())].into();
            End { accepts, connects: !accepts, peers: vec![], settings }
        };
        let budget = Budget {
            width_s: 10.0,
            threads: vec![thread(2, server), thread(1, client)],
            names: names.map(|(number, name)| (number, name.to_owned())).into(),
            ends: [(1, end(false)), (2, end(true))].into(),
            ..Budget::default()
        };
        let told = text(&Probes::default(), &budget, &[1]);
        for line in [
            "Of the time of ask/1 (client) 60 %: serve/2 (server), for which ask/1 (client) waits, is in its own code \
             (work 60 %). The rest: 24 % serve/2 (server) is blocked in fdatasync wal.log (each 20.0 ms), 17 % of it \
             at work in the kernel; 8 % ask/1 (client) is in the kernel (sendto 8 %); 6 % serve/2 (server) is ready without a CPU (other has it 6 %).",
            "  ask/1 (client), 10.00 s:\n  state",
            "\n  asleep                         91.0 %\n    recvfrom, woken by serve/2   91.0 %   1000  9100.0 µs\n",
            "\n\n  serve/2 (server), 10.00 s:\n  state",
            "\n    2 smaller                     0.8 %\n",
            "\n    other has it                6.0 %     60  10000.0 µs\n",
            "\n  sum                           100.0 %\n",
            "\n  Settings of ask/1, serve/2: tcp_rmem 4096 8192 16384.\n",
        ] {
            assert!(told.contains(line), "{line:?} in\n{told}");
        }
        assert!(
            text(&Probes::default(), &budget, &[9]).contains("None of the processes was at work")
        );
    }
}
