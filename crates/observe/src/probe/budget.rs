//! Where the time of each thread goes, in rows that sum to it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use millstream_record::{
    Budget, BudgetRow, HELD_BACK, LOOKS, Probes, SharedAddress, TIME_OUT, ThreadBudget, ThreadState,
};

use super::callers::Callers;
use super::connections::{opened, workers};
use super::peers::Peers;
use super::{Absent, Kind, Probe, Turn, limits, short_lived};
use crate::bpf::{
    self, Asleep, FILE, HELD, KERNEL_THREAD, Met, OWN, Off, Opened, Opener, Reason, Times,
    call_name, thing,
};
use crate::names::{Named, process_stacks};
use crate::symbols::UNKNOWN;

pub(super) const KIND: Kind =
    Kind { name: "budget", open: |_| Ok(Box::new(BudgetProbe::default())) };
/// Name of what counts new connections.
const OPENED: &str = "opened";

/// Distance of looks at names: programs that have ended have none.
const LOOK: Duration = Duration::from_secs(1);
/// Time before the first one.
const FIRST_LOOK: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct BudgetProbe {
    programs: Option<bpf::Budget>,
    next: Option<Instant>,
    /// Processes of the load, as far as they were told.
    roots: BTreeSet<u32>,
    peers: Peers,
    /// The programs that count new connections, or the reason why there are none; and the counts.
    opened: Option<Result<Opened, Absent>>,
    counts: Vec<(Opener, u64)>,
    callers: Callers,
    asked: HashSet<(u32, u64)>,
    answers: Vec<(u32, Named)>,
    found: Option<(Vec<Times>, u64, u64)>,
}

impl BudgetProbe {
    /// Looks at the connections of the processes that were met, and asks for the names of those
    /// addresses that are new and of the load.
    fn look(&mut self, met: &Met) {
        self.peers.look(met.processes.keys().copied());
        if let Some(Ok(opened)) = &self.opened
            && let Ok(counts) = opened.read()
        {
            self.counts = counts;
        }
        self.peers.opened(self.counts.iter().map(|(opener, _)| opener));
        let load = self.load(&met.processes);
        let mut fresh: BTreeMap<u32, Vec<Vec<u64>>> = BTreeMap::new();
        let mut ask = |process: u32, address: u64| {
            if self.asked.insert((process, address)) {
                fresh.entry(process).or_default().push(vec![address]);
            }
        };
        for (process, stacks) in met.asleep.iter().filter(|(process, _)| load.contains(process)) {
            self.callers.look(*process, stacks.iter().map(|one| &one.stack));
            let all = stacks.iter().flat_map(|one| self.callers.of(*process, &one.stack));
            all.for_each(|address| ask(*process, *address));
        }
        let of_load = met.addresses.iter().filter(|(process, _)| load.contains(process));
        of_load.for_each(|&(process, address)| ask(process, address));
        let asked = |(process, stacks)| (process, process_stacks(process, stacks));
        self.answers.extend(fresh.into_iter().map(asked));
    }

    /// Returns the processes of the load, those that they started and those that they are connected
    /// with; all where none was told.
    fn load(&self, processes: &BTreeMap<u32, u32>) -> BTreeSet<u32> {
        if self.roots.is_empty() {
            return processes.keys().copied().collect();
        }
        let mut load = self.roots.clone();
        loop {
            let peers = load.iter().flat_map(|&one| self.peers.of(one));
            let mut more: BTreeSet<u32> = peers.copied().collect();
            let started = processes.iter().filter(|(_, parent)| load.contains(parent));
            more.extend(started.map(|(process, _)| *process));
            if more.is_subset(&load) {
                return load;
            }
            load.append(&mut more);
        }
    }
}

impl Probe for BudgetProbe {
    fn name(&self) -> &'static str {
        "budget"
    }

    fn watch(&mut self, pid: u32) {
        self.roots.insert(pid);
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        let now = Instant::now();
        match turn {
            Turn::First => {
                self.programs = Some(bpf::Budget::begin()?);
                self.opened = Some(Opened::begin());
                self.next = Some(now + FIRST_LOOK);
            }
            Turn::Middle if self.next.is_some_and(|next| next <= now) => {
                if let Some(programs) = &self.programs {
                    let met = programs.met()?;
                    self.look(&met);
                }
                self.next = Some(now + LOOK);
            }
            Turn::Middle => {}
            Turn::Last => {
                let Some(programs) = self.programs.take() else { return Ok(()) };
                let found = programs.end()?;
                let processes = found.0.iter().map(|one| (one.process, one.parent)).collect();
                let of = |one: &Times| {
                    let process = one.process;
                    let own = one.samples.iter().filter(|(_, address, _)| *address != 0);
                    own.map(move |(_, address, _)| (process, *address)).collect::<Vec<_>>()
                };
                let addresses = found.0.iter().flat_map(of).collect();
                let mut asleep: BTreeMap<u32, Vec<Asleep>> = BTreeMap::new();
                for one in &found.0 {
                    asleep.entry(one.process).or_default().extend(one.asleep.iter().cloned());
                }
                self.look(&Met { processes, addresses, asleep });
                self.found = Some(found);
                if let Some(Ok(_)) = &self.opened {
                    self.opened = None;
                }
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, into: &mut Probes) {
        if let Some(Err(why)) = &self.opened {
            into.absent.insert(OPENED.to_owned(), why.0.clone());
        }
        let Some((times, left_out, width_ns)) = self.found.take() else { return };
        let processes: BTreeMap<u32, u32> =
            times.iter().map(|one| (one.process, one.parent)).collect();
        let load = self.load(&processes);
        let mut functions: HashMap<(u32, u64), String> = HashMap::new();
        for (process, named) in std::mem::take(&mut self.answers) {
            let stacks = named.stacks().to_vec();
            let named = stacks.into_iter().flatten().zip(named.wait().into_iter().flatten());
            functions.extend(named.map(|(at, name)| ((process, at), name)));
        }
        let mut names: HashMap<u32, String> =
            times.iter().map(|one| (one.thread, name_of(one))).collect();
        for one in &times {
            let of_thread = names[&one.thread].clone();
            let name = || living(one.process).unwrap_or(of_thread);
            names.entry(one.process).or_insert_with(name);
        }
        let named = |process: u32| {
            let name = names.get(&process).map_or("process", String::as_str);
            let role = self.peers.ends().get(&process).map(|end| format!(" ({})", end.role()));
            format!("{name}/{process}{}", role.unwrap_or_default())
        };
        let connections = self.peers.connections.table(|one| load.contains(&one), named);
        let of_load = self.counts.iter().filter(|(one, _)| load.contains(&one.process));
        let opened = opened(&of_load.copied().collect::<Vec<_>>(), named);
        let shared: Vec<SharedAddress> = (self.peers.shared().into_iter())
            .filter(|one| one.connections.keys().any(|process| load.contains(process)))
            .collect();
        let workers = workers(&shared, named);
        let tables = [("connections", connections), (OPENED, opened), ("workers", workers)];
        let tables = tables.into_iter();
        into.tables.extend(tables.filter_map(|(name, table)| Some((name.to_owned(), table?))));
        let mut stands_for = BTreeMap::new();
        let mut times = short_lived::merge(times, width_ns, &mut stands_for);
        let ends = short_lived::ends(self.peers.ends(), &stands_for);
        let process_of: HashMap<u32, u32> =
            times.iter().map(|one| (one.thread, one.process)).collect();
        times.sort_by_key(|one| std::cmp::Reverse(one.on_ns));
        // What this program does beside the load is no part of it.
        let of_program = |one: &Times| {
            let is_ours = one.process == std::process::id() && !self.roots.is_empty();
            !is_ours && !one.off.iter().any(|(why, ..)| why.call == KERNEL_THREAD)
        };
        let mut kept: Vec<Times> = times.into_iter().filter(of_program).collect();
        let more = kept.len().saturating_sub(limits::BUDGET_THREADS) as u64;
        kept.truncate(limits::BUDGET_THREADS);
        let thread = |one: &Times| ThreadBudget {
            thread: one.thread,
            process: one.process,
            parent: one.parent,
            name: names[&one.thread].clone(),
            others: one.others,
            alive_s: one.alive_ns as f64 / 1e9,
            rows: rows(
                one,
                &process_of,
                |at| functions.get(&(one.process, at)).cloned(),
                |asleep| {
                    let all = self.callers.of(one.process, &asleep.stack).iter();
                    let names = all.map_while(|at| functions.get(&(one.process, *at)).cloned());
                    names.take_while(|name| name != UNKNOWN).take(limits::STACK).collect()
                },
                |name| self.peers.path_of(one.process, name).map(str::to_owned),
            ),
        };
        let threads: Vec<ThreadBudget> = kept.iter().map(thread).collect();
        let met = threads.iter().flat_map(|one| {
            one.rows.iter().filter_map(|row| row.with).chain([one.process, one.thread])
        });
        let met = met.filter_map(|number| Some((number, names.get(&number)?.clone()))).collect();
        into.budget = Some(Budget {
            width_s: width_ns as f64 / 1e9,
            threads,
            names: met,
            ends,
            carriers: self.peers.carriers.clone(),
            with_udp: self.peers.with_udp.clone(),
            shared,
            left_out: left_out + more,
        });
    }
}

/// Returns the name of a thread or process that lives.
fn living(number: u32) -> Option<String> {
    millstream_foreign::read_name(format!("/proc/{number}/comm")).ok()
}

/// Returns the name of a thread, which it may have changed, or had when it ended.
fn name_of(one: &Times) -> String {
    let name = if one.ended { None } else { living(one.thread) };
    name.unwrap_or_else(|| one.name.clone())
}

/// Returns the rows of a thread, the longest first. Threads that had a CPU are told by their
/// processes.
fn rows(
    times: &Times,
    process_of: &HashMap<u32, u32>,
    function: impl Fn(u64) -> Option<String>,
    callers: impl Fn(&Asleep) -> Vec<String>,
    path: impl Fn(&str) -> Option<String>,
) -> Vec<BudgetRow> {
    let thing = |why: &Reason| {
        let name = thing(why);
        let whole = if why.kind == FILE { path(&name) } else { None };
        let is_over =
            why.by_clock && name.is_empty() && !call_name(why.call).ends_with("nanosleep");
        whole.unwrap_or(if is_over { TIME_OUT.to_owned() } else { name })
    };
    let mut rows: Vec<BudgetRow> = Vec::new();
    let mut add = |row: BudgetRow| {
        let is_same = |one: &&mut BudgetRow| {
            (one.state, &one.what, &one.on, one.with) == (row.state, &row.what, &row.on, row.with)
        };
        match rows.iter_mut().find(is_same) {
            Some(one) => {
                (one.s, one.count) = (one.s + row.s, one.count + row.count);
                if one.stack.is_empty() {
                    one.stack = row.stack;
                }
            }
            None => rows.push(row),
        }
    };
    let untold = |what: &str, ns: u64| BudgetRow {
        what: what.to_owned(),
        s: ns as f64 / 1e9,
        ..BudgetRow::default()
    };
    let all: u64 = times.samples.iter().map(|(.., count)| count).sum();
    for (call, address, count) in &times.samples {
        let s = times.ran_ns as f64 / 1e9 * *count as f64 / all as f64;
        let (state, what) = match *call {
            OWN => (ThreadState::OwnCode, function(*address).unwrap_or_else(|| UNKNOWN.to_owned())),
            call => (ThreadState::Kernel, call_name(call)),
        };
        add(BudgetRow { state, what, s, ..BudgetRow::default() });
    }
    if all == 0 {
        add(untold("on a CPU, where no sample met it", times.ran_ns));
    }
    let stolen = untold("the hypervisor has it", times.on_ns.saturating_sub(times.ran_ns));
    add(BudgetRow { state: ThreadState::Ready, ..stolen });
    for (why, ns, count) in &times.off {
        let (state, what, on) = match why.state {
            Off::Ready => {
                let what = if why.kind == HELD { HELD_BACK } else { "" };
                (ThreadState::Ready, what.to_owned(), String::new())
            }
            Off::Asleep => (ThreadState::Asleep, call_name(why.call), thing(why)),
            Off::Blocked => (ThreadState::Blocked, call_name(why.call), thing(why)),
        };
        let with = match why.state {
            Off::Ready => process_of.get(&why.by).copied(),
            Off::Asleep | Off::Blocked => Some(why.by),
        };
        let with = with.or(Some(why.by)).filter(|by| *by != 0);
        let looks = why.state == Off::Ready && with == Some(std::process::id());
        let (what, with) = if looks { (LOOKS.to_owned(), None) } else { (what, with) };
        let stack = times.stack(why).map_or_else(Vec::new, &callers);
        add(BudgetRow { state, what, on, with, stack, s: *ns as f64 / 1e9, count: *count });
    }
    add(untold("no room was left for its reasons", times.lost_ns));
    let told = times.off.iter().map(|(_, ns, _)| ns).sum::<u64>() + times.on_ns + times.lost_ns;
    add(untold("no event told of it", times.alive_ns.saturating_sub(told)));
    rows.retain(|row| row.s > 0.0);
    rows.sort_by(|a, b| b.s.total_cmp(&a.s));
    rows
}
