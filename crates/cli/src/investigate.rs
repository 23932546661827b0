//! `millstream investigate`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use millstream_diagnose::causes::{Cause, built_in};
use millstream_foreign::command;
use millstream_lab::investigate::{
    CommandRuns, CommandSubject, Figure, Investigation, Options, OtherEnd, WorkloadSubject,
    investigate as find, known_figure, tried,
};
use millstream_lab::runner::{self, Interrupt};
use millstream_plan::{Definition, Overrides, is_name, shuffle_seed};
use millstream_record::error::Error;
use millstream_record::store::Location;

use crate::ends::{Ends, Server};
use crate::keeper::{CommandKeeper, Keeper};
use crate::output::{self, full_path};
use crate::prepare::{Made, existing_store, prepare_json};
use crate::progress::Progress;
use crate::setting::{guard_program, load, look_by_bpf, setting, state};
use crate::values;
use crate::values::{Database, name, seconds, whole};

/// For `investigate --help`.
pub const HELP: &str = "\
Examples:
  millstream investigate erratic
  millstream investigate --server 'iperf3 -s -1 -B 127.0.0.1' --force -- iperf3 -c 127.0.0.1 -t 2 -J
  millstream investigate --figure 'rate=([0-9.]+)' -- ./my-benchmark
  millstream investigate --force --try mtu.eth0=1500,9000 -- iperf3 -c 192.0.2.1 -J
  millstream investigate --far-by 'ssh host2' --server 'iperf3 -s -1' -- iperf3 -c host2 -J
  millstream investigate erratic --far-by 'ip netns exec b' --far 192.0.2.2

Figures are read from the standard output of iperf3 (with -J, --json-stream or without), iperf,
netperf, wrk, ab, hey, oha, fortio, sockperf, neper, redis-benchmark, memtier_benchmark and pgbench,
whatever starts them; of other programs by --figure. Each run is a new process.
Without --force nothing on this machine is set. With it the processes that are started here are
bound to CPUs or raised in priority, and sysctls, steering masks and offloads of the network and
the CPU quota of the ends are set for a run and put back (after a kill: millstream undo); what
--try names, too.";

/// Characters of the name of a program in a name of kept runs.
const NAME_MOST: usize = 32;

/// The causes that runs are explained by.
#[derive(Debug, Args)]
pub struct Catalogue {
    /// Folder with causes of your own, one TOML file each; one of the same id replaces a built-in one
    #[arg(long, value_name = "DIR")]
    causes: Option<PathBuf>,
    /// Leave the built-in causes out: where the time goes is told all the same
    #[arg(long)]
    no_built_in_causes: bool,
}

/// Arguments of `investigate`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of a built-in experiment of one configuration (erratic), or a file ending in .toml
    #[arg(required_unless_present = "command", conflicts_with_all = ["command", "server"])]
    experiment: Option<String>,
    /// Runs that are observed, 8 at least
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = whole::<u32>)]
    runs: u32,
    /// Runs of each level of a cause that is forced
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<u32>)]
    forced_runs: u32,
    /// Causes that are forced at most; 0 forces none
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole::<u32>)]
    causes_forced: u32,
    /// Look by /proc alone: no BPF programs count in the kernel
    #[arg(long)]
    no_bpf: bool,
    /// Keep with each run latencies by powers of two: of soft interrupts, system calls, lock
    /// waits
    #[arg(long, conflicts_with = "no_bpf")]
    histograms: bool,
    #[command(flatten)]
    catalogue: Catalogue,
    /// Seconds that each run of an experiment measures
    #[arg(long, value_name = "SECONDS", conflicts_with = "command", value_parser = seconds)]
    duration: Option<f64>,
    /// Seed of the order of runs and of the analysis; drawn when not given
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    /// Where the command's figure is: json:PATH (end.sum.bits_per_second), a regular expression
    /// with one group, or the name of a program whose output it is (iperf3)
    #[arg(long, value_name = "WHERE", requires = "command")]
    figure: Option<String>,
    /// Less of the figure is better (a time)
    #[arg(long, requires = "figure")]
    lower_is_better: bool,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    ends: Ends,
    /// A process that is the other end and is there already: its threads are watched, too
    #[arg(long, value_name = "PID", requires = "command", conflicts_with = "server")]
    watch: Option<u32>,
    /// Seconds after which a run of the command is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    timeout: f64,
    /// Force causes of an outside command: bind what is started here to CPUs, raise it, set sysctls
    /// and put them back
    #[arg(long, requires = "command")]
    force: bool,
    /// Force this, too, whatever the runs say, and judge it: sysctl.NAME, mtu.INTERFACE,
    /// rings.INTERFACE (most, or packets), interrupts.INTERFACE (CPUs), busy_poll (microseconds),
    /// rfs (on, off), rps (off), placement (same, split)
    #[arg(long = "try", value_name = "FACTOR=LEVEL,…", requires = "force")]
    tried: Vec<String>,
    /// Write what was found to this file too, as JSON ('-': standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Name of what is kept, for `explain` and others [default: that of the experiment or the
    /// program]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Folder of the page
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    #[command(flatten)]
    database: Database,
    /// The command, behind `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Observes, forces, and tells what was found.
pub fn investigate(arguments: &Arguments) -> Result<ExitCode, Error> {
    let causes = arguments.catalogue.causes()?;
    let figure = match (&arguments.figure, arguments.command.is_empty()) {
        (_, true) => None,
        (text, false) => {
            Some(figure_of(&arguments.command, text.as_deref(), arguments.lower_is_better)?)
        }
    };
    let definition = arguments.experiment.as_deref().map(load).transpose()?;
    let mut made = Made::default();
    made.page_folder(&arguments.out)?;
    arguments.json.as_deref().map_or(Ok(()), prepare_json)?;
    let at = values::database(&arguments.database)?;
    made.database_folder(&at)?;
    let options = Options {
        runs: arguments.runs,
        forced_runs: arguments.forced_runs,
        causes: arguments.causes_forced as usize,
        tried: arguments.tried.iter().map(|text| tried(text)).collect::<Result<_, _>>()?,
        seed: arguments.seed.unwrap_or_else(shuffle_seed),
    };
    if !arguments.no_bpf {
        look_by_bpf(arguments.histograms);
    }
    let mut tell = |line: &str| output::say(line);
    let found = match (definition, figure) {
        (Some(definition), _) => {
            of_workload(arguments, definition, &causes, &options, made, &at, &mut tell)?
        }
        (None, Some(figure)) => {
            let seconds = values::time_limit(arguments.timeout)?;
            let store = existing_store(&at)?;
            let mut keeper =
                CommandKeeper(Keeper::new(store, at.clone(), made, Progress::new(0.0)));
            let server = arguments.server()?;
            let name = arguments.name.clone().unwrap_or_else(|| name_of(&arguments.command));
            let why = format!("Why do runs of {} differ?", command(&arguments.command));
            let mut subject = CommandSubject {
                server,
                watch: arguments.watch,
                may_force: arguments.force,
                seed: options.seed,
                ..subject(name, why, &arguments.command, figure, seconds, &mut keeper)?
            };
            let found = find(&mut subject, &causes, &options, &mut tell);
            keeper.0.progress.end();
            found.inspect_err(|_| keeper.0.say_kept())?
        }
        (None, None) => unreachable!("the command line has one of them"),
    };
    finish(arguments, &found, &at)
}

fn of_workload(
    arguments: &Arguments,
    mut definition: Definition,
    causes: &[Cause],
    options: &Options,
    made: Made,
    at: &Location,
    tell: &mut dyn FnMut(&str),
) -> Result<Investigation, Error> {
    let overrides = Overrides { duration_s: arguments.duration, ..Overrides::default() };
    definition.apply(&overrides)?;
    definition.name = arguments.name.clone().unwrap_or(definition.name);
    let places = arguments.ends.places()?;
    let is_one_machine = places.is_one_machine();
    let setting = setting(places)?;
    let store = existing_store(at)?;
    let seconds = definition.duration_s + definition.warmup_s;
    let (mut store, mut made) = (store, made);
    let mut run = |definition: &Definition| {
        let (store_now, made) = (store.take(), std::mem::take(&mut made));
        let mut keeper = Keeper::new(store_now, at.clone(), made, Progress::new(seconds));
        let done = runner::run(definition, &setting, &mut keeper);
        keeper.progress.end();
        if done.is_err() {
            keeper.say_kept();
        }
        store = keeper.store.take();
        done
    };
    let mut subject = WorkloadSubject::new(definition, is_one_machine, &mut run)?;
    find(&mut subject, causes, options, tell)
}

impl Arguments {
    /// Returns the other end of the command, if it is to be started. Its far host is asked.
    fn server(&self) -> Result<Option<OtherEnd>, Error> {
        if self.ends.far.is_some() {
            let why = "--far: a command names its other end itself; --far-by starts --server there";
            return Err(Error::Refused(why.to_owned()));
        }
        self.server.other_end(&self.ends.by)
    }
}

/// Returns a command as a subject whose runs are kept: without another end, and with nothing set
/// for it.
pub fn subject<'a>(
    name: String,
    question: String,
    command: &[OsString],
    figure: Figure,
    timeout: Duration,
    keep: &'a mut dyn CommandRuns,
) -> Result<CommandSubject<'a>, Error> {
    Ok(CommandSubject {
        name,
        question,
        command: command.to_vec(),
        server: None,
        watch: None,
        figure,
        timeout,
        may_force: false,
        seed: shuffle_seed(),
        interrupt: Interrupt::from_signals()?,
        state: state()?,
        guard: Some(guard_program()?),
        keep,
        experiments: vec![],
        quotas: Default::default(),
        namespaces: Default::default(),
        first: None,
        builds: Default::default(),
        spoken: Default::default(),
    })
}

/// Returns the name of the program of a command, with nothing in it that a name may not have.
fn name_of(words: &[OsString]) -> String {
    let program = words.first().and_then(|word| Path::new(word).file_name()).unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = command(&[program]).chars().map(plain).take(NAME_MOST).collect();
    if is_name(&name) { name } else { "command".to_owned() }
}

/// Returns the place of a command's figure in its output: as it was given, or as it is known of the
/// program.
pub fn figure_of(
    words: &[OsString],
    said: Option<&str>,
    lower_is_better: bool,
) -> Result<Figure, Error> {
    let program = command(words.get(..1).unwrap_or_default());
    match said {
        Some(text) => Figure::parse(text, !lower_is_better),
        None => known_figure(words).ok_or_else(|| {
            Error::Refused(format!("where is the figure of {program}? Say it with --figure"))
        }),
    }
}

impl Catalogue {
    /// Returns the causes that are built in and those of a folder, which go before built-in ones of
    /// the same name.
    pub fn causes(&self) -> Result<Vec<Cause>, Error> {
        let mut causes = if self.no_built_in_causes { vec![] } else { built_in() };
        let Some(folder) = &self.causes else { return Ok(causes) };
        let named = || format!("--causes {}", folder.display());
        let mut files: Vec<PathBuf> = fs::read_dir(folder)
            .map_err(Error::file(named()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "toml"))
            .collect();
        files.sort();
        for path in files {
            let name = path.display().to_string();
            #[expect(clippy::disallowed_methods, reason = "TOML is UTF-8")]
            let text = fs::read_to_string(&path).map_err(Error::file(name.clone()))?;
            let cause =
                Cause::parse(&name, &text).map_err(|bad| Error::Refused(bad.to_string()))?;
            causes.retain(|known| known.id != cause.id);
            causes.push(cause);
        }
        Ok(causes)
    }
}

fn finish(arguments: &Arguments, found: &Investigation, at: &Location) -> Result<ExitCode, Error> {
    let page = write_page(&arguments.out, found);
    let mut summary = found.text();
    if let Ok(page) = &page {
        summary.push_str(&format!("\nPage: {}\n", full_path(page)));
    }
    summary.push_str(&format!("Kept: {} in {at}\n", found.experiments.join(", ")));
    // JSON alone on the standard output: what people read goes beside it.
    if arguments.json.as_deref() == Some(Path::new("-")) {
        output::say(summary.trim_end());
    }
    output::tell(&summary, found, arguments.json.as_deref())?;
    page.map(|_| ExitCode::SUCCESS)
}

/// Writes the page into a folder.
pub fn write_page(folder: &Path, found: &Investigation) -> Result<PathBuf, Error> {
    let name = found.experiments.first().map_or("investigation", String::as_str);
    output::page_into(folder, &format!("{name}-investigation"), &found.html())
}
