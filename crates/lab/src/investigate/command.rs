//! An outside command as the thing that is investigated: run again and again beside the probes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use millstream_diagnose::causes::Force;
use millstream_foreign::shown;
use millstream_load::running::{Running, Said, bind, ending, is_process, may_be_started};
use millstream_load::workload::monotonic_ns;
use millstream_observe::environment;
use millstream_observe::probe::{Config, NetSource, Sampler, kernel};
use millstream_plan::Orders;
use millstream_record::error::Error;
use millstream_record::{ExperimentRecord, RunRecord, Timestamp, Window};
use millstream_testbed::guard::{WorkerProgram, family};
use millstream_testbed::interrupt::Interrupt;
use millstream_testbed::leftovers::StateDir;
use millstream_testbed::priority;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::elsewhere::Namespaces;
use super::figure::{FIGURE_LESS, FIGURE_UNIT, Figure, Reading, unit_name};
use super::other_end::{OtherEnd, Started};
use super::placement::Watch;
use super::quota::Quotas;
use super::settings::{InForce, Setting};
use super::subject::{KEEP, Subject};

/// Time between two looks at the command and its children.
const LOOK: Duration = Duration::from_millis(10);

/// Most runs that are made again after they failed, and the part of all runs where that is more.
const FAILED_MOST: usize = 3;
const FAILED_PART: usize = 4;

/// A run that is to be made: its block, a factor and its level, and whether beside it the budget is
/// taken.
struct Planned<'a> {
    block: u32,
    name: &'a str,
    level: &'a str,
    budget: bool,
}

/// A keeper of the runs of a command.
pub trait CommandRuns {
    /// An experiment of so many runs begins.
    fn begin(&mut self, experiment: &ExperimentRecord, runs: usize) -> Result<(), Error>;
    /// A run has ended; it must be on the disk when this returns.
    fn run_ended(&mut self, run: &RunRecord) -> Result<(), Error>;
    /// All runs have ended.
    fn end(&mut self, experiment: &ExperimentRecord) -> Result<(), Error>;
}

/// A command whose runs are compared.
pub struct CommandSubject<'a> {
    /// Name of the experiments that hold its runs.
    pub name: String,
    /// The question that the experiments answer.
    pub question: String,
    /// The words of the command.
    pub command: Vec<OsString>,
    /// The other end, started before each run and ended after it.
    pub server: Option<OtherEnd>,
    /// A process whose threads are watched, too, as the other end.
    pub watch: Option<u32>,
    /// The place of its result in the output.
    pub figure: Figure,
    /// Longest run.
    pub timeout: Duration,
    /// True when processes that the command starts may be bound to CPUs.
    pub may_force: bool,
    /// Seed of the order of levels.
    pub seed: u64,
    /// Raised when the user has had enough.
    pub interrupt: Interrupt,
    /// The folder of the journals of changed settings.
    pub state: StateDir,
    /// The program that stands between this process and the command, with the words that go before
    /// the command. It ends the command when this process is killed. Without it the command is
    /// started directly, and outlives this process.
    pub guard: Option<WorkerProgram>,
    /// The keeper of the runs.
    pub keep: &'a mut dyn CommandRuns,
    /// Ids of the experiments so far; empty at first.
    pub experiments: Vec<String>,
    /// Files of CPU quotas that held observed runs back; empty at first.
    pub quotas: BTreeSet<PathBuf>,
    /// The figure of the first run that had one; `None` at first.
    pub first: Option<Reading>,
    /// The network namespaces of the ends; none at first.
    pub namespaces: Namespaces,
    /// The two commands that are run in turns; empty where there is one.
    pub builds: [Vec<OsString>; 2],
    /// Commands that had a figure in some run; none at first.
    pub spoken: BTreeSet<Vec<OsString>>,
}

/// CPUs of the two ends at a level of `placement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    Free,
    /// Client and server.
    On(usize, usize),
}

/// The factor that is the CPUs of the two ends: `free`, `same`, `split`.
const PLACEMENT: &str = "placement";

/// The factor that is the priority of the two ends: `high`.
const PRIORITY: &str = "priority";

/// The factor that is the command, of two that are run in turns, and its levels.
pub const BUILD: &str = "build";
/// The levels of [`BUILD`].
pub const BUILDS: [&str; 2] = ["a", "b"];

/// The way in which the processes of a run are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Binding {
    placement: Placement,
    /// True for a high priority.
    raised: bool,
}

impl Binding {
    fn of(factor: &str, level: &str) -> Result<Self, Error> {
        match factor {
            PLACEMENT => Ok(Self { placement: placement(level)?, raised: false }),
            _ => Ok(Self {
                placement: Placement::Free,
                raised: (factor, level) == (PRIORITY, "high"),
            }),
        }
    }
}

impl CommandSubject<'_> {
    /// Runs this command and another one in turns, so many pairs, each in random order. The factor
    /// [`BUILD`] of a run says which it is of; its block is the pair.
    pub fn in_turns(&mut self, other: &[OsString], pairs: u32) -> Result<Vec<RunRecord>, Error> {
        self.check()?;
        may_be_started(other.first().map_or(OsStr::new(""), OsString::as_os_str))?;
        self.builds = [self.command.clone(), other.to_vec()];
        let levels = BUILDS.map(str::to_owned).to_vec();
        self.carry_out(Some(&Force { factor: BUILD.to_owned(), levels, free: None }), pairs)
    }

    /// Refuses a command that cannot be started or a process that cannot be watched, before an
    /// experiment is kept.
    fn check(&self) -> Result<(), Error> {
        may_be_started(self.command.first().map_or(OsStr::new(""), OsString::as_os_str))?;
        self.server.as_ref().map_or(Ok(()), OtherEnd::check)?;
        match self.watch {
            Some(pid) if !is_process(pid) => {
                Err(Error::Refused(format!("--watch {pid}: there is no such process")))
            }
            _ => Ok(()),
        }
    }

    fn carry_out(&mut self, factor: Option<&Force>, runs: u32) -> Result<Vec<RunRecord>, Error> {
        let seed = self.seed ^ self.experiments.len() as u64;
        let mut experiment = ExperimentRecord::new(&self.name, self.seed, Timestamp::now());
        experiment.question.clone_from(&self.question);
        experiment.environment = environment::capture();
        if !self.figure.higher_is_better {
            experiment.environment.set(FIGURE_LESS, "true");
        }
        experiment.workloads = vec!["command".to_owned()];
        experiment.stacks = vec!["host".to_owned()];
        experiment.repeats = runs;
        experiment.command_line =
            self.command.iter().map(|word| shown(word.as_encoded_bytes())).collect();
        let levels = match factor {
            Some(force) => force.levels.clone(),
            None => vec!["free".to_owned()],
        };
        let name = factor.map_or(PLACEMENT, |force| force.factor.as_str());
        experiment.factors.insert(name.to_owned(), levels.clone());
        // One more is observed, with a budget.
        let last = (factor.is_none() && kernel().is_ok()).then_some(runs);
        let runs = runs.saturating_add(u32::from(last.is_some()));
        experiment.planned_runs = runs.saturating_mul(levels.len() as u32);
        self.keep.begin(&experiment, experiment.planned_runs as usize)?;
        self.experiments.push(experiment.id.clone());
        let mut records = Vec::new();
        for (block, order) in (0..runs).zip(Orders::new(levels.len(), seed)) {
            for level in order.into_iter().map(|at| levels[at].as_str()) {
                let of = Planned { block, name, level, budget: last == Some(block) };
                self.until_it_counts(&of, &experiment, &mut records)?;
            }
        }
        if let Some(first) = &self.first {
            experiment.environment.set(FIGURE_UNIT, first.unit.clone());
        }
        experiment.finished_at = Some(Timestamp::now());
        self.keep.end(&experiment)?;
        Ok(records)
    }

    /// Makes a run, and again where it fails, as often as the spare runs of the experiment allow.
    /// Each is kept.
    fn until_it_counts(
        &mut self,
        of: &Planned<'_>,
        experiment: &ExperimentRecord,
        records: &mut Vec<RunRecord>,
    ) -> Result<(), Error> {
        loop {
            self.interrupt.check()?;
            let mut record = RunRecord::new(experiment.run_id(records.len() as u32));
            record.experiment_id.clone_from(&experiment.id);
            record.experiment.clone_from(&experiment.name);
            record.workload = "command".to_owned();
            record.stack = "host".to_owned();
            record.block = of.block;
            record.order = records.len() as u32;
            record.factors.insert(of.name.to_owned(), of.level.to_owned());
            if of.name == BUILD {
                let which = usize::from(of.level == BUILDS[1]);
                self.command.clone_from(&self.builds[which]);
            }
            let binding = Binding::of(of.name, of.level)?;
            // In force until the run has ended, and put back whatever its end is.
            let in_force = self.set(of.name, of.level)?;
            let is_silent = self.one(binding, of.budget, &mut record)?;
            let failed = !record.validity.valid;
            let holds = in_force.map(|one| one.check(self.namespaces.of_ends(), &self.quotas));
            if let Some(Err(why)) = holds {
                record.validity.reject(format!("{} did not hold: {why}", of.name));
            }
            self.keep.run_ended(&record)?;
            let why = record.validity.reasons.first().cloned();
            records.push(record);
            if !failed || of.budget {
                return Ok(());
            }
            let why = why.unwrap_or_default();
            if is_silent {
                let whose = match of.name {
                    BUILD => format!(" of {}", of.level.to_uppercase()),
                    _ => String::new(),
                };
                return Err(Error::Worker(format!("the first run{whose} tells nothing: {why}")));
            }
            let failed = records.iter().filter(|one| !one.validity.valid).count();
            if failed == records.len() && failed == FAILED_MOST {
                return Err(Error::Worker(format!("the first {failed} runs failed: {why}")));
            }
            if failed > FAILED_MOST.max(experiment.planned_runs as usize / FAILED_PART) {
                return Ok(());
            }
        }
    }

    /// A figure as the result of a run, unless it is in another unit than the first of all.
    fn take(&mut self, reading: Reading, record: &mut RunRecord) {
        self.spoken.insert(self.command.clone());
        let first = self.first.get_or_insert_with(|| reading.clone());
        if reading.has_other_prefix(first) {
            record.validity.reject(format!(
                "its figure is in {}, that of the first run in {}: have a second group of --figure take the prefix",
                unit_name(&reading.unit),
                unit_name(&first.unit)
            ));
            return;
        }
        record.results.insert(self.figure.key.clone(), reading.value);
    }

    /// Sets something to a level where the ends are, if the factor is that.
    fn set(&self, factor: &str, level: &str) -> Result<Option<InForce>, Error> {
        let Some(setting) = Setting::named(factor).filter(|_| level != KEEP) else {
            return Ok(None);
        };
        let ends = self.namespaces.of_ends();
        InForce::set(setting, level, ends, &self.state, &self.quotas).map(Some)
    }

    /// One run, in new processes. Returns true where it ended as it should and had no figure, as no
    /// run of this command had before.
    fn one(
        &mut self,
        binding: Binding,
        budget: bool,
        record: &mut RunRecord,
    ) -> Result<bool, Error> {
        let Binding { placement, raised } = binding;
        let guard = self.guard.as_ref();
        let (client_cpu, server_cpu) = match placement {
            Placement::Free => (None, None),
            Placement::On(client, server) => (Some(client), Some(server)),
        };
        let (begun, origin_ns) = (Instant::now(), monotonic_ns());
        record.started_at = Timestamp::now();
        let mut server = match &self.server {
            Some(server) => Some(server.start((server_cpu, raised), guard, self.timeout)?),
            None => None,
        };
        if let (Some(other), Some(started)) = (&mut self.server, &mut server) {
            let failed = other.wait(started, &self.interrupt, record)?;
            if let Some(why) = failed {
                record.validity.reject(why);
                record.duration_s = begun.elapsed().as_secs_f64();
                return Ok(false);
            }
        }
        let mut config = Config::new(begun);
        config.hosts = self.namespaces.begin();
        config.flows = true;
        config.budget = budget;
        let sampler = Sampler::start(config);
        let mut client = Running::start(&self.command, (client_cpu, raised), guard)?;
        let start_s = begun.elapsed().as_secs_f64();
        let listening = client.said();
        let mut watched = BTreeSet::new();
        let mut watch = Watch::default();
        let mut quotas = Quotas::default();
        let status = loop {
            let clients = client.processes();
            // With servers that fork for each client.
            let servers = match (&server, self.watch) {
                (Some(server), _) => server.processes(),
                (None, Some(pid)) => family(pid),
                (None, None) => vec![],
            };
            let ends = [("client", clients.as_slice()), ("server", servers.as_slice())];
            for (role, pids) in ends {
                for &pid in pids.iter().filter(|pid| watched.insert(**pid)) {
                    sampler.watch_worker(role, pid);
                }
                self.namespaces.look(role, pids).into_iter().for_each(|host| sampler.join(host));
            }
            watch.look(&ends);
            quotas.look(clients.iter().chain(&servers));
            // One that binds itself is bound again: what is forced is where it runs.
            client_cpu.into_iter().for_each(|cpu| bind(&clients, cpu));
            server_cpu.into_iter().for_each(|cpu| bind(&servers, cpu));
            if let Some(status) = client.child.try_wait().map_err(Error::file("the command"))? {
                break Some(status);
            }
            if self.interrupt.is_raised() {
                return Err(Error::Interrupted);
            }
            server.as_mut().map_or(Ok(()), Started::still_there)?;
            if begun.elapsed() > self.timeout {
                break None;
            }
            std::thread::sleep(LOOK);
        };
        let end_s = begun.elapsed().as_secs_f64();
        record.probes = sampler.stop();
        record.probes.ends = watch.finish();
        record.probes.throttling = quotas.finish();
        if record.probes.throttling.is_none() {
            let why = "the ends are in no control group that counts CPU quotas".to_owned();
            record.probes.absent.insert("throttling".to_owned(), why);
        }
        if record.probes.budget.is_some() {
            record.validity.reject(crate::limits::BUDGETED);
        }
        drop(client);
        if let Some(server) = server {
            server.end(origin_ns, record);
        }
        record.duration_s = begun.elapsed().as_secs_f64();
        record.window = Window { start_s, end_s };
        Ok(self.conclude(status, &listening.all(), record))
    }

    /// Takes the figure of a run that has ended so, or says why it does not count. Returns what
    /// [`Self::one`] does.
    fn conclude(
        &mut self,
        status: Option<ExitStatus>,
        said: &Said,
        record: &mut RunRecord,
    ) -> bool {
        let output = self.figure.output_of(&said.out, &said.err);
        match status {
            None => record.validity.reject(format!(
                "it did not end within {} s and was ended (--timeout)",
                self.timeout.as_secs_f64()
            )),
            Some(status) if !status.success() => {
                record.validity.reject(said.because(&ending("the command", status)));
            }
            Some(_) => match (self.figure.failed(output), self.figure.read(output)) {
                (Some(why), _) => record.validity.reject(why),
                (None, Ok(reading)) => self.take(reading, record),
                (None, Err(why)) => {
                    record.validity.reject(said.because(&why));
                    return !self.spoken.contains(&self.command);
                }
            },
        }
        false
    }
}

impl Subject for CommandSubject<'_> {
    fn name(&self) -> String {
        millstream_foreign::command(&self.command)
    }

    fn result(&self) -> (String, bool) {
        (self.figure.key.clone(), self.figure.higher_is_better)
    }

    fn observe(&mut self, runs: u32) -> Result<Vec<RunRecord>, Error> {
        self.check()?;
        let records = self.carry_out(None, runs)?;
        let throttling = records.iter().filter_map(|run| run.probes.throttling.as_ref());
        self.quotas.extend(throttling.filter_map(|one| one.quota_file.as_ref()).map(PathBuf::from));
        Ok(records)
    }

    fn may_force(&self, force: &Force) -> Result<(), String> {
        if !self.may_force {
            return Err("nothing is set without --force".to_owned());
        }
        match (force.factor.as_str(), Setting::named(&force.factor)) {
            (PRIORITY, _) => return priority::may_raise(self.guard.is_some()),
            (PLACEMENT, _) => {}
            (_, Some(setting)) => return setting.may(self.namespaces.of_ends(), &self.quotas),
            (other, None) => return Err(format!("{other} is not set for an outside command")),
        }
        let Some(server) = &self.server else {
            return Err(
                "the other end is not ours to bind: say its command with --server".to_owned()
            );
        };
        server.may_bind()?;
        placement("split").map(drop).map_err(|error| error.to_string())
    }

    fn force(&mut self, force: &Force, runs: u32) -> Result<Vec<RunRecord>, Error> {
        self.carry_out(Some(force), runs)
    }

    fn experiments(&self) -> Vec<String> {
        self.experiments.clone()
    }

    fn set_at(&self, force: &Force) -> Vec<String> {
        let setting = Setting::named(&force.factor);
        let ends = setting.map_or(vec![], |one| one.places(self.namespaces.of_ends()));
        let others = ends.into_iter().filter(|host| !matches!(host.net, NetSource::Own));
        others.map(|host| host.name).collect()
    }
}

/// CPUs of a level: `free`, `same`, `split`, of those that this process may use.
fn placement(level: &str) -> Result<Placement, Error> {
    if level == "free" {
        return Ok(Placement::Free);
    }
    let allowed = sched_getaffinity(Pid::from_raw(0))
        .map_err(|errno| Error::host("read the CPUs of this process")(errno.into()))?;
    let cpus: Vec<usize> =
        (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu) == Ok(true)).take(2).collect();
    match (level, cpus.as_slice()) {
        ("same", [one, ..]) => Ok(Placement::On(*one, *one)),
        ("split", [one, other]) => Ok(Placement::On(*one, *other)),
        ("split", _) => Err(Error::Refused("placement=split needs two CPUs".to_owned())),
        _ => Err(Error::Refused(format!("no placement {level:?}"))),
    }
}

#[cfg(test)]
mod tests;
