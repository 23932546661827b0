//! The five historical clogs, each beside its cure: run in turns, measured, drawn, and diagnosed
//! from what was measured.
//!
//! A clog is one file and a line in [`CLOGS`]. Everything runs in this process, on links in memory:
//! no namespace and no device is needed. The diagnosis is that of `investigate`: it is told nothing
//! of which fault was switched on.

mod diagnosis;
mod heap;
mod live;
mod nic;
mod picture;
mod placement;
mod pullup;
mod putback;
mod route;
#[cfg(test)]
mod tests;
mod text;
mod threads;
mod two_hosts;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use millstream_diagnose::stats::{Bootstrap, median};
use serde::Serialize;

pub use diagnosis::{Diagnosis, Named};
use live::Live;
pub use live::Living;

use millstream_observe::probe::{Config, Sampler};
use millstream_record::THREADS;
use millstream_record::error::Error;
use millstream_record::{EndsOnCpus, FORMAT_VERSION, IntervalSeries, RunRecord, Window, keys};

/// Rounds that run every level, of a clog whose diagnosis is of one; in the others that level runs
/// alone.
const ROUNDS_OF_ALL: u32 = 2;

/// One of the five.
pub struct Clog {
    /// Its name at the command line.
    pub name: &'static str,
    /// The clog in one line.
    pub title: &'static str,
    /// The meaning of a level: `receive buffer, bytes`.
    pub sweep: &'static str,
    /// Key of the result.
    pub result: &'static str,
    /// Causes of the catalogue, any of which names it.
    pub causes: &'static [&'static str],
    /// The levels on this machine; the first one is compared and diagnosed.
    levels: fn() -> Vec<u64>,
    /// Seconds of a run, and rounds.
    seconds: f64,
    rounds: u32,
    run: fn(&Setup) -> io::Result<Seen>,
    live: Live,
    picture: fn(&[RunRecord]) -> String,
}

impl std::fmt::Debug for Clog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clog").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All of them, in the order of the page for students.
pub const CLOGS: [&Clog; 5] =
    [&pullup::CLOG, &putback::CLOG, &heap::CLOG, &route::CLOG, &placement::CLOG];

/// The variant, level and length of one run.
struct Setup {
    clogged: bool,
    level: u64,
    time: Duration,
    /// The round, from 0.
    round: u32,
}

/// The measurements of one run.
#[derive(Default)]
struct Seen {
    /// The result in a second.
    rate: f64,
    /// Bytes that reached the application.
    payload: Option<f64>,
    /// Packets that are counted where bytes are not.
    packets: Option<f64>,
    /// Further results by their keys.
    results: Vec<(&'static str, f64)>,
    /// Series over time, from the start of the run on.
    intervals: IntervalSeries,
    /// Counters of the clog itself.
    counts: Vec<(&'static str, u64)>,
    /// The CPUs on which its threads ran.
    ends: Option<EndsOnCpus>,
    /// The group that it belongs to, in words.
    group: String,
}

/// The options of a run of a clog.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Rounds: each runs both variants. `None` takes as many as the clog wants; the diagnosis needs
    /// eight.
    pub rounds: Option<u32>,
    /// Seconds of a run.
    pub seconds: Option<f64>,
}

/// Clogged and cured side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// [`FORMAT_VERSION`] of the program that wrote it.
    pub format: u32,
    /// Name of the clog.
    pub clog: &'static str,
    /// The clog in one line.
    pub title: &'static str,
    /// Key of the result.
    pub result: &'static str,
    /// The level at which the ratio and the diagnosis are made.
    pub level: u64,
    /// The medians of both variants there.
    pub medians: BTreeMap<&'static str, f64>,
    /// Clogged over cured.
    pub ratio: f64,
    /// Its 95 % interval, from two runs a side on.
    pub interval: Option<(f64, f64)>,
    /// The laboratory's diagnoses, of the clogged runs and of the cured ones.
    pub diagnoses: BTreeMap<&'static str, Diagnosis>,
    /// The historical picture, as text.
    pub picture: String,
    /// Each run: its factors, its results, and the clog's counters.
    pub runs: Vec<Point>,
    /// Seconds that all runs took.
    pub took_s: f64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// `clogged` or `cured`, the level, the group.
    pub factors: BTreeMap<String, String>,
    /// Results by key.
    pub results: BTreeMap<String, f64>,
    /// Seconds that the run took.
    pub duration_s: f64,
    /// CPU time of this process meanwhile.
    pub cpu_s: Option<f64>,
    /// Times that the CPU clock met each innermost function.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, u64>,
}

/// The names of the variants, the clogged one first.
pub const VARIANTS: [&str; 2] = ["clogged", "cured"];

fn variant(clogged: bool) -> &'static str {
    VARIANTS[usize::from(!clogged)]
}

/// Finds one by its name.
///
/// # Errors
/// `Refused`, with the names that there are.
pub fn find(name: &str) -> Result<&'static Clog, Error> {
    let names = || CLOGS.map(|clog| clog.name).join(", ");
    let found = CLOGS.into_iter().find(|clog| clog.name == name);
    found.ok_or_else(|| Error::Refused(format!("{name} is no clog; there are {}", names())))
}

impl Clog {
    /// Runs it and its cure in turns. `tell` is called with each run's place, from 1, and their
    /// number.
    ///
    /// # Errors
    /// When a run cannot be made; `Interrupted` as `go_on` says.
    pub fn run(
        &self,
        options: Options,
        go_on: &dyn Fn() -> Result<(), Error>,
        tell: &mut dyn FnMut(usize, usize),
    ) -> Result<Outcome, Error> {
        let begun = Instant::now();
        let plan = self.plan(options.rounds.unwrap_or(self.rounds).max(1));
        let seconds = options.seconds.unwrap_or(self.seconds).max(0.05);
        let mut runs = Vec::with_capacity(plan.len());
        for (at, setup) in plan.iter().enumerate() {
            go_on()?;
            tell(at + 1, plan.len());
            let setup = Setup { time: Duration::from_secs_f64(seconds), ..*setup };
            runs.push(self.measure(at, &setup)?);
        }
        Ok(self.outcome(runs, begun.elapsed().as_secs_f64()))
    }

    /// Returns true when a level is a number of threads, which the diagnosis compares.
    fn is_by_threads(&self) -> bool {
        self.sweep == THREADS
    }

    /// Returns the runs in their order: in each round both variants, which take turns in being
    /// first.
    fn plan(&self, rounds: u32) -> Vec<Setup> {
        let levels = (self.levels)();
        let mut plan = Vec::new();
        for round in 0..rounds {
            let all = round < ROUNDS_OF_ALL || self.is_by_threads();
            let taken = if all { levels.len() } else { 1 };
            for &level in &levels[..taken] {
                let first = round % 2 == 0;
                for clogged in [first, !first] {
                    plan.push(Setup { clogged, level, time: Duration::ZERO, round });
                }
            }
        }
        plan
    }

    /// One run, with the probes beside it.
    fn measure(&self, at: usize, setup: &Setup) -> Result<RunRecord, Error> {
        let origin = Instant::now();
        let sampler = Sampler::start(Config::new(origin));
        sampler.watch_worker("here", std::process::id());
        let begun = origin.elapsed().as_secs_f64();
        let seen = (self.run)(setup);
        let ended = origin.elapsed().as_secs_f64();
        let probes = sampler.stop();
        let seen = seen.map_err(Error::host(format!("run the clog {}", self.name)))?;
        let mut run = RunRecord::new(format!("{}-{at}", self.name));
        run.workload = format!("clog {}", self.name);
        run.stack = "millstream".to_owned();
        run.block = setup.round;
        run.order = at as u32;
        run.window = Window { start_s: begun, end_s: ended };
        run.duration_s = ended;
        run.probes = probes;
        own_stacks_alone(&mut run);
        run.probes.ends = seen.ends;
        run.intervals = seen.intervals;
        let factors = [
            ("variant", variant(setup.clogged).to_owned()),
            ("level", setup.level.to_string()),
            ("group", seen.group),
        ];
        run.factors = factors.map(|(name, level)| (name.to_owned(), level)).into();
        let moved = [(keys::PAYLOAD, seen.payload), (keys::TRANSACTION_COUNT, seen.packets)];
        let moved = moved.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let counts = seen.counts.into_iter().map(|(key, count)| (key, count as f64));
        let calls = run.probes.cross_calls(run.window).map(|calls| calls / (ended - begun));
        let results = [(self.result, seen.rate)].into_iter().chain(moved).chain(counts);
        let results =
            results.chain(seen.results).chain(calls.map(|rate| (picture::CROSS_CALLS, rate)));
        run.results = results.map(|(key, value)| (key.to_owned(), value)).collect();
        Ok(run)
    }

    fn outcome(&self, runs: Vec<RunRecord>, took_s: f64) -> Outcome {
        let level = (self.levels)()[0];
        let rates = |clogged| picture::results(&runs, clogged, level, self.result);
        let [clogged, cured] = [rates(true), rates(false)];
        let middle = |values: &[f64]| median(values).unwrap_or(f64::NAN);
        let bootstrap = Bootstrap::default();
        let interval = bootstrap.ratio_of_medians(&clogged, &cured);
        let diagnose = |is_clogged: bool| {
            let those: Vec<RunRecord> = runs
                .iter()
                .filter(|run| run.factors["variant"] == variant(is_clogged))
                .cloned()
                .collect();
            Diagnosis::of(self, level, &those)
        };
        Outcome {
            format: FORMAT_VERSION,
            clog: self.name,
            title: self.title,
            result: self.result,
            level,
            medians: [("clogged", middle(&clogged)), ("cured", middle(&cured))].into(),
            ratio: middle(&clogged) / middle(&cured),
            interval: interval.map(|interval| (interval.low, interval.high)),
            diagnoses: [true, false].map(|one| (variant(one), diagnose(one))).into(),
            picture: (self.picture)(&runs),
            runs: runs.into_iter().map(Point::of).collect(),
            took_s,
        }
    }
}

/// Keeps of the profile what was met in this process: all of a run is in it, and other programs are
/// no part of what it shows.
fn own_stacks_alone(run: &mut RunRecord) {
    let own = millstream_foreign::read_name("/proc/self/comm").unwrap_or_default();
    if let Some(kernel) = &mut run.probes.kernel {
        kernel.profile.retain(|one| one.stack.first().is_some_and(|name| *name == own));
    }
}

impl Point {
    fn of(run: RunRecord) -> Self {
        let workers = run.probes.workers.iter().flat_map(BTreeMap::values);
        let cpu_s = workers.map(|one| one.usr_s + one.sys_s).reduce(|a, b| a + b);
        let functions = picture::functions([&run]);
        Self {
            factors: run.factors,
            results: run.results,
            duration_s: run.duration_s,
            cpu_s,
            functions,
        }
    }
}
