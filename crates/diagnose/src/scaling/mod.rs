//! The cost of sharing between threads, seen in the CPU time of their work.
//!
//! Threads that share nothing do twice the work on twice the CPUs, at the same CPU time for each
//! unit of it. A cache line that goes from core to core has no name in a profile: the function that
//! touches it becomes slow. So the CPU time for a unit of work is compared between few threads and
//! many, function by function.
//!
//! Several things make *all* functions slower once a second CPU works: CPUs that share a core, a
//! lower frequency, a hypervisor that gives less. The common factor measures this. It is taken from
//! the functions that are not shown to have grown more than the others (`risen`); only growth
//! beyond it is laid to sharing.

mod risen;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::stats::{Bootstrap, RUNS_FOR_A_CLAIM, median};

/// Samples of a run below which it is left out.
const SAMPLES_LEAST: u64 = 20;
/// The largest demand of the threads for CPUs, as a multiple of the CPUs there are, that counts as
/// met.
const ROOM: f64 = 1.1;
/// Factor by which more CPUs must work at once than with the fewest threads.
const MORE_AT_ONCE: f64 = 1.3;
/// Share of the time, at few threads or at many, from which a function is looked at.
const LOOKED_AT: f64 = 0.01;
/// Factor by which a function must grow beyond everything else.
const GROWN: f64 = 1.25;
/// Functions that are named.
const NAMED: usize = 3;

/// A run with some number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadedRun<'a> {
    /// Number of threads that did the work.
    pub threads: u32,
    /// Work done: packets, transactions.
    pub units: f64,
    /// CPU time of these threads.
    pub cpu_s: f64,
    /// Time from their start to their end.
    pub wall_s: f64,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Share of the CPUs' time that a hypervisor gave to others.
    pub steal_share: f64,
    /// Functions in which these threads were met, the innermost first, and how often.
    pub stacks: Vec<(Vec<&'a str>, u64)>,
}

/// The cost of a unit of work with few threads and with many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The fewest threads.
    pub from: u32,
    /// The most threads for which the CPUs sufficed.
    pub to: u32,
    /// CPUs that worked at once, with few threads and with many.
    pub at_once: (f64, f64),
    /// CPU time for a unit of work, in nanoseconds, likewise.
    pub cost_ns: (f64, f64),
    /// Ratio of the medians of that.
    pub growth: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Factor by which all functions grew that are not among `functions`, taken together.
    pub common: f64,
    /// Functions that grew more than everything else, the one that added most first.
    pub functions: Vec<Grown>,
    /// CPU time that these added beyond the common factor, as a share of that with many threads.
    pub share: f64,
    /// The same CPU time as a share of the CPU time for a unit of work that was added, 0 to 1.
    pub explained: f64,
    /// The first of them in words.
    pub named: String,
    /// Rise of the share of the CPUs' time that a hypervisor gave to others, from few threads to
    /// many.
    pub steal_rise: f64,
}

/// A function that grew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grown {
    /// Its name.
    pub function: String,
    /// Caller that asked for the lock most often, where it is a lock's own function.
    pub caller: Option<String>,
    /// Its CPU time for a unit of work, in nanoseconds, with few threads and with many.
    pub cost_ns: (f64, f64),
    /// CPU time for a unit of work that it added beyond the common factor, in nanoseconds.
    pub added_ns: f64,
}

type Runs<'r, 'a> = Vec<&'r ThreadedRun<'a>>;

impl Scaling {
    /// Compares runs of one thing that differ in their number of threads. Everything random is
    /// seeded with `seed`.
    ///
    /// # Errors
    ///
    /// A sentence without its full stop says why nothing can be compared: too few runs of two
    /// numbers of threads, more threads than CPUs, or threads that had no more CPUs than fewer of
    /// them.
    pub fn of(runs: &[ThreadedRun<'_>], seed: u64) -> Result<Self, String> {
        let levels = levels(runs);
        let ((from, few), (to, many)) = chosen(&levels)?;
        let at_once = (at_once(few), at_once(many));
        if at_once.1 < MORE_AT_ONCE * at_once.0 {
            return Err(format!(
                "{to} threads had no more CPUs at once than {from} ({:.1} and {:.1})",
                at_once.1, at_once.0
            ));
        }
        let costs = [few, many].map(|runs| of_each(runs, |run| run.cpu_s / run.units));
        let bootstrap = Bootstrap { seed, ..Bootstrap::default() };
        let interval = bootstrap.ratio_of_medians(&costs[1], &costs[0]);
        let interval = interval.ok_or("the CPU time for a unit of work is not known")?;
        let [few_ns, many_ns] = costs.map(|costs| 1e9 * median(&costs).unwrap_or(f64::NAN));
        let steal = [few, many].map(|runs| middle(runs, |run| run.steal_share));
        let spent = Spent { few: by_function(few), many: by_function(many) };
        let (common, grown) = spent.grown(&risen(few, many, &spent, seed));
        let mut functions: Vec<Grown> = grown
            .into_iter()
            .map(|name| spent.as_grown(name, common, caller(name, many)))
            .collect();
        functions.sort_by(|a, b| b.added_ns.total_cmp(&a.added_ns));
        let added: f64 = functions.iter().map(|one| one.added_ns).sum();
        let (all_few, all_many) = spent.all_ns();
        Ok(Self {
            from,
            to,
            at_once,
            cost_ns: (few_ns, many_ns),
            growth: many_ns / few_ns,
            low: interval.low,
            high: interval.high,
            common,
            share: added / all_many,
            explained: share_of(added, all_many - all_few),
            named: named(&functions),
            functions,
            steal_rise: steal[1] - steal[0],
        })
    }
}

/// Returns the share that `added` has of what was lost, at most all; none where nothing was lost.
fn share_of(added: f64, lost: f64) -> f64 {
    if lost > 0.0 { (added / lost).min(1.0) } else { 0.0 }
}

/// Returns the runs that can be used, by their number of threads.
fn levels<'r, 'a>(runs: &'r [ThreadedRun<'a>]) -> BTreeMap<u32, Runs<'r, 'a>> {
    let mut levels: BTreeMap<u32, Runs<'r, 'a>> = BTreeMap::new();
    let is_known = |run: &&ThreadedRun<'_>| {
        samples(run) >= SAMPLES_LEAST
            && [run.units, run.cpu_s, run.wall_s].iter().all(|one| *one > 0.0)
    };
    for run in runs.iter().filter(is_known) {
        levels.entry(run.threads).or_default().push(run);
    }
    levels.retain(|_, runs| runs.len() >= RUNS_FOR_A_CLAIM);
    levels
}

type Level<'l, 'r, 'a> = (u32, &'l Runs<'r, 'a>);

/// Returns the fewest threads, and the most for which the CPUs suffice.
fn chosen<'l, 'r, 'a>(
    levels: &'l BTreeMap<u32, Runs<'r, 'a>>,
) -> Result<(Level<'l, 'r, 'a>, Level<'l, 'r, 'a>), String> {
    let mut each = levels.iter().map(|(threads, runs)| (*threads, runs));
    let (Some(few), Some(next)) = (each.next(), each.next()) else {
        return Err(format!(
            "{RUNS_FOR_A_CLAIM} runs of each of two numbers of threads are needed, with samples of the CPU clock"
        ));
    };
    let one_wants = at_once(few.1) / f64::from(few.0);
    let cpus = few.1.iter().map(|run| run.cpus).max().unwrap_or(0);
    let suffice = |threads: u32| f64::from(threads) * one_wants <= ROOM * cpus as f64;
    let many = std::iter::once(next).chain(each).rfind(|(threads, _)| suffice(*threads));
    let many = many.ok_or_else(|| {
        format!("{} threads want more than the {cpus} CPUs that there are", next.0)
    })?;
    Ok((few, many))
}

fn samples(run: &ThreadedRun<'_>) -> u64 {
    run.stacks.iter().map(|(_, count)| count).sum()
}

fn of_each(runs: &Runs<'_, '_>, value: impl Fn(&ThreadedRun<'_>) -> f64) -> Vec<f64> {
    runs.iter().map(|run| value(run)).collect()
}

fn middle(runs: &Runs<'_, '_>, value: impl Fn(&ThreadedRun<'_>) -> f64) -> f64 {
    median(&of_each(runs, value)).unwrap_or(0.0)
}

/// Returns the number of CPUs that worked at once.
fn at_once(runs: &Runs<'_, '_>) -> f64 {
    middle(runs, |run| run.cpu_s / run.wall_s)
}

/// Returns the innermost function of a stack.
fn innermost<'a>(stack: &[&'a str]) -> &'a str {
    stack.first().copied().unwrap_or("[no stack]")
}

/// Returns the share of a run's samples that each function had.
fn shares<'a>(run: &ThreadedRun<'a>) -> BTreeMap<&'a str, f64> {
    let all = samples(run) as f64;
    let mut shares = BTreeMap::new();
    for (stack, count) in &run.stacks {
        *shares.entry(innermost(stack)).or_insert(0.0) += *count as f64 / all;
    }
    shares
}

/// Returns the CPU time for a unit of work by function, in nanoseconds, over all these runs.
fn by_function<'a>(runs: &Runs<'_, 'a>) -> BTreeMap<&'a str, f64> {
    let units: f64 = runs.iter().map(|run| run.units).sum();
    let mut spent = BTreeMap::new();
    for run in runs {
        for (name, share) in shares(run) {
            *spent.entry(name).or_insert(0.0) += 1e9 * share * run.cpu_s / units;
        }
    }
    spent
}

/// CPU time for a unit of work by function, with few threads and with many.
struct Spent<'a> {
    few: BTreeMap<&'a str, f64>,
    many: BTreeMap<&'a str, f64>,
}

impl<'a> Spent<'a> {
    fn of(&self, name: &str) -> (f64, f64) {
        let of = |spent: &BTreeMap<&str, f64>| spent.get(name).copied().unwrap_or(0.0);
        (of(&self.few), of(&self.many))
    }

    fn all_ns(&self) -> (f64, f64) {
        (self.few.values().sum(), self.many.values().sum())
    }

    /// Returns the functions with at least [`LOOKED_AT`] of the time.
    fn large(&self) -> BTreeSet<&'a str> {
        let (few, many) = self.all_ns();
        let names = self.few.keys().chain(self.many.keys()).copied();
        let is_large = |name: &&str| {
            let (of_few, of_many) = self.of(name);
            of_few >= LOOKED_AT * few || of_many >= LOOKED_AT * many
        };
        names.filter(is_large).collect()
    }

    /// Returns the factor by which everything but `without` grew.
    fn common(&self, without: &BTreeSet<&str>) -> f64 {
        let rest = |spent: &BTreeMap<&str, f64>| -> f64 {
            spent.iter().filter(|(name, _)| !without.contains(*name)).map(|(_, ns)| ns).sum()
        };
        let (few, many) = (rest(&self.few), rest(&self.many));
        if few > 0.0 { many / few } else { 1.0 }
    }

    /// Returns the common growth factor, and the functions of `risen` that grew [`GROWN`] times as
    /// much.
    fn grown(&self, risen: &BTreeSet<&'a str>) -> (f64, BTreeSet<&'a str>) {
        let mut grown = risen.clone();
        loop {
            let (common, before) = (self.common(&grown), grown.len());
            grown.retain(|name| {
                let (few, many) = self.of(name);
                many > GROWN * common * few
            });
            if grown.len() == before {
                return (common, grown);
            }
        }
    }

    fn as_grown(&self, name: &str, common: f64, caller: Option<&str>) -> Grown {
        let (few, many) = self.of(name);
        Grown {
            function: plain(name).to_owned(),
            caller: caller.map(|caller| plain(caller).to_owned()),
            cost_ns: (few, many),
            added_ns: many - common * few,
        }
    }
}

/// Returns the functions whose share of the time is shown to be larger with many threads.
fn risen<'a>(
    few: &Runs<'_, 'a>,
    many: &Runs<'_, 'a>,
    spent: &Spent<'a>,
    seed: u64,
) -> BTreeSet<&'a str> {
    let large: Vec<&str> = spent.large().into_iter().collect();
    let each: Vec<BTreeMap<&str, f64>> = few.iter().chain(many).map(|run| shares(run)).collect();
    let of = |name: &&str| each.iter().map(|run| run.get(name).copied().unwrap_or(0.0)).collect();
    let values: Vec<Vec<f64>> = large.iter().map(of).collect();
    let is_many: Vec<bool> = (0..each.len()).map(|at| at >= few.len()).collect();
    let sampled: Vec<f64> = few.iter().chain(many).map(|run| samples(run) as f64).collect();
    let resolution = 1.0 / median(&sampled).unwrap_or(1.0);
    let found = risen::risen(&values, &is_many, resolution, seed);
    large.into_iter().zip(found).filter(|(_, risen)| *risen).map(|(name, _)| name).collect()
}

/// Returns true for a function of a lock, whose caller tells more than its name.
fn is_of_a_lock(name: &str) -> bool {
    ["lock", "futex", "mutex"].iter().any(|part| name.contains(part))
}

/// Returns the caller that was met most above a lock's own function; `None` for other functions.
fn caller<'a>(function: &str, runs: &Runs<'_, 'a>) -> Option<&'a str> {
    if !is_of_a_lock(function) {
        return None;
    }
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, count) in runs.iter().flat_map(|run| &run.stacks) {
        if innermost(stack) == function
            && let Some(caller) = stack.iter().find(|name| !is_of_a_lock(name))
        {
            *met.entry(caller).or_default() += count;
        }
    }
    met.into_iter().max_by_key(|(_, count)| *count).map(|(caller, _)| caller)
}

/// Returns a name without the mark of the kernel's functions.
fn plain(name: &str) -> &str {
    name.trim_end_matches("_[k]")
}

/// Returns text such as `look_up (61 to 163 ns), other (0 to 12 ns) and 2 more`.
fn named(functions: &[Grown]) -> String {
    let one = |one: &Grown| {
        let caller =
            one.caller.as_ref().map_or(String::new(), |caller| format!(", called by {caller}"));
        format!("{} ({}{caller})", one.function, between(one.cost_ns))
    };
    let mut text = functions.iter().take(NAMED).map(one).collect::<Vec<_>>().join(", ");
    if functions.len() > NAMED {
        let _ = write!(text, " and {} more", functions.len() - NAMED);
    }
    text
}

/// Returns two times in one unit: `61 to 163 ns`.
fn between((few, many): (f64, f64)) -> String {
    let (by, unit) = match few.max(many) {
        ..1e4 => (1.0, "ns"),
        ..1e7 => (1e3, "µs"),
        _ => (1e6, "ms"),
    };
    format!("{:.0} to {:.0} {unit}", few / by, many / by)
}

#[cfg(test)]
mod tests;
