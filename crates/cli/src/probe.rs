//! `millstream probe`: watches this machine, and a command where one is given, and changes nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use millstream_diagnose::cost;
use millstream_diagnose::flame::flame_graph;
use millstream_foreign::shown;
use millstream_lab::runner::Interrupt;
use millstream_observe::probe::{
    Absent, Config, Host, NetSource, Sampler, Want, kernel, thread_cpu_s, watch_kernel,
};
use millstream_observe::table::{CpuTable, Row};
use millstream_observe::watch::{cpu_json, cpu_sheet};
use millstream_record::Probes;
use millstream_record::error::Error;
use millstream_report::{budget, kernel::text};
use millstream_testbed::guard::Watchdog;
use serde_json::{Value, json};

use crate::exits;
use crate::output::{out, say, versioned, write_whole};
use crate::setting::guard_program;
use crate::values::{seconds, whole};

/// For `probe --help`.
pub const HELP: &str = "\
Examples:
  millstream probe                                   # the table of every CPU each second, until interrupted
  millstream probe --histograms -- iperf3 -c 192.0.2.1
  millstream probe --profile 99 --stacks 20 --flame flame.svg --count 10
  millstream probe --uprobe /usr/lib/x86_64-linux-gnu/libc.so.6:malloc --count 5
  millstream probe --uprobe ./server:Engine::turn --uprobe ./server:mmap --inside ./server:engine::rx::receive --count 5
  millstream probe --uprobe ./server:alloc --argument 1 --stacks 10 --count 5    # the sizes, and who asked for them
  millstream probe --kernel-function tcp_v4_rcv --count 5
  millstream probe --budget -- wrk -d 5 http://127.0.0.1/    # where the time of both ends goes
  millstream probe --budget --process 1234 --count 5

At the end: who sent interrupts to other CPUs and for what, who waited for which lock, latencies by powers of two, and what the
programs cost. Nothing on this machine is changed. With a command it ends with the command.";

/// Functions of programs that are timed at once.
const FUNCTIONS: usize = 16;

/// Arguments of `probe`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("met").args(["profile", "argument"]).multiple(true))]
pub struct Arguments {
    /// Seconds from one table to the next, 0.01 at least
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, allow_negative_numbers = true, value_parser = seconds)]
    interval: f64,
    /// Tables, then it ends; without it, until interrupted or the command ends
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    count: Option<u32>,
    /// Write each table, and what is told at the end, to this file too, as a JSON object on a line
    /// of its own
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Histograms of soft interrupts, system calls and lock waits, too
    #[arg(long)]
    histograms: bool,
    /// Sample the stacks of every CPU so many times in a second
    #[arg(long, value_name = "HZ", value_parser = whole::<u32>)]
    profile: Option<u32>,
    /// Tell at the end the N stacks that the profile met most, of programs and of the kernel; and
    /// those that called the functions whose --argument is counted most
    #[arg(long, value_name = "N", requires = "met", value_parser = whole::<u32>)]
    stacks: Option<u32>,
    /// Write the profile to this file as a flame graph (SVG)
    #[arg(long, value_name = "FILE", requires = "profile")]
    flame: Option<PathBuf>,
    /// Time a function of a program or library, in every process that runs it; of Rust by its path,
    /// or the end of that. May be given 16 times
    #[arg(long, value_name = "PATH:FUNCTION", value_parser = function)]
    uprobe: Vec<(PathBuf, String)>,
    /// Count the values of the Nth argument with which the functions of --uprobe are called: of
    /// whole numbers and pointers, the first is 1
    #[arg(long, value_name = "N", requires = "uprobe", value_parser = whole::<u32>)]
    argument: Option<u32>,
    /// Time the functions of --uprobe only while this one runs, in the same thread
    #[arg(long, value_name = "PATH:FUNCTION", value_parser = function, requires = "uprobe")]
    inside: Option<(PathBuf, String)>,
    /// Time a function of the kernel, where it lets programs be attached to functions (fentry)
    #[arg(long, value_name = "NAME")]
    kernel_function: Option<String>,
    /// Tell at the end where the time of each thread of the command or the processes goes, and of
    /// those that they wait for
    #[arg(long)]
    budget: bool,
    /// A process that the budget is of; without one and without a command, the one that works most
    #[arg(long, value_name = "PID", requires = "budget", value_parser = whole::<u32>)]
    process: Vec<u32>,
    /// Count no system calls: they are counted in windows of a few milliseconds, two in a second,
    /// which cost most where there are many
    #[arg(long)]
    no_system_calls: bool,
    /// Look by /proc alone: no BPF programs count in the kernel, but for those of --budget
    #[arg(long, conflicts_with_all = ["histograms", "profile", "uprobe", "kernel_function"])]
    no_bpf: bool,
    /// A command to watch; it ends with `probe`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn function(text: &str) -> Result<(PathBuf, String), String> {
    // A path of Rust has colons, too.
    match text.split_once(':') {
        Some((path, symbol)) if !path.is_empty() && !symbol.is_empty() => {
            Ok((PathBuf::from(path), symbol.to_owned()))
        }
        _ => Err("is no PATH:FUNCTION".to_owned()),
    }
}

/// Watches, and tells.
pub fn probe(arguments: &Arguments) -> Result<ExitCode, Error> {
    let interval = Duration::try_from_secs_f64(arguments.interval)
        .ok()
        .filter(|interval| *interval >= Duration::from_millis(10))
        .ok_or_else(|| {
            Error::Refused(format!("--interval {}: 0.01 at least", arguments.interval))
        })?;
    if arguments.uprobe.len() > FUNCTIONS {
        return Err(Error::Refused(format!("--uprobe: {FUNCTIONS} functions at most")));
    }
    let interrupt = Interrupt::from_signals()?;
    let mut json = arguments
        .json
        .as_ref()
        .map(|path| File::create(path).map_err(Error::file(path.display().to_string())))
        .transpose()?;
    let programs = match arguments.no_bpf {
        true => Err(Absent("--no-bpf".to_owned())),
        false => watch_kernel(&wanted(arguments)).and_then(|()| kernel()),
    };
    let programs = programs.as_deref();
    let refuse = |why: Absent| Error::Refused(why.0);
    let mut table = CpuTable::open(programs.ok()).map_err(refuse)?;
    for (column, note) in table.notes(programs) {
        say(format_args!("{column}: {note}"));
    }
    if let Ok(programs) = programs {
        for (program, why) in programs.absent() {
            say(format_args!("{}: not measured, because {why}", program.name()));
        }
    }
    let mut config = Config::new(Instant::now());
    // The end waits for half of it.
    config.interval = interval.min(Duration::from_secs(1));
    config.hosts = vec![Host { name: "here".to_owned(), net: NetSource::Own }];
    config.budget = arguments.budget;
    let begun = Instant::now();
    let sampler = Sampler::start(config);
    let mut command = match arguments.command.split_first() {
        Some((program, words)) => {
            let child = Command::new(program).args(words).spawn();
            let child = child.map_err(|error| {
                Error::Refused(format!("{}: {error}", shown(program.as_encoded_bytes())))
            })?;
            let mut watched = Watched { child, watchdog: None };
            watched.watchdog = Some(Watchdog::start(&guard_program()?, watched.child.id())?);
            Some(watched)
        }
        None => None,
    };
    let mut roots = arguments.process.clone();
    roots.extend(command.as_ref().map(|command| command.child.id()));
    if let Some(command) = &command {
        sampler.watch_worker("command", command.child.id());
    }
    let (mut tables, mut table_cpu_s) = (0, 0.0);
    let mut status = None;
    let mut cpus = 0;
    while !interrupt.is_raised()
        && status.is_none()
        && arguments.count.is_none_or(|count| tables < count)
    {
        status = wait(interval, &interrupt, command.as_mut())?;
        let before_s = thread_cpu_s();
        let (seconds, rows) = table.sample(programs.ok()).map_err(refuse)?;
        if let (Ok(before_s), Ok(now_s)) = (before_s, thread_cpu_s()) {
            table_cpu_s += now_s - before_s;
        }
        cpus = rows.len();
        out(&cpu_sheet(&rows).text())?;
        write(&mut json, || as_json(begun.elapsed().as_secs_f64(), seconds, &rows))?;
        tables += 1;
    }
    drop(command);
    let probes = sampler.stop();
    let watched_s = begun.elapsed().as_secs_f64();
    if let Some(kernel) = &probes.kernel {
        let stacks = arguments.stacks.unwrap_or(0) as usize;
        out(&text(kernel, probes.interrupts.as_ref(), watched_s, stacks))?;
        if let Some(path) = &arguments.flame {
            let drawn = flame_graph("CPU clock", &kernel.profile);
            write_whole(path, drawn.as_bytes())?;
        }
    }
    if arguments.budget {
        tell_budget(&probes, &roots)?;
    }
    out(&cost::text(&cost::costs(&probes, &[("table", table_cpu_s)]), cpus))?;
    write(&mut json, || json!({ "probes": probes }))?;
    if let Some(status) = status {
        // As a shell tells of one that a signal has ended.
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        return Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
    }
    Ok(exits::unless_interrupted(interrupt.is_raised() && arguments.count.is_some()))
}

/// Returns what is to be looked at in the kernel.
fn wanted(arguments: &Arguments) -> Want {
    Want {
        no_system_calls: arguments.no_system_calls,
        histograms: arguments.histograms,
        profile_hz: arguments.profile.map(u64::from),
        functions: arguments.inside.iter().chain(&arguments.uprobe).cloned().collect(),
        argument: arguments.argument.map(|number| number as usize),
        only_inside: arguments.inside.is_some(),
        kernel_function: arguments.kernel_function.clone(),
    }
}

/// Tells where the time of the processes `roots` and of those that they wait for went.
fn tell_budget(probes: &Probes, roots: &[u32]) -> Result<(), Error> {
    match (&probes.budget, probes.absent.get("budget")) {
        (Some(found), _) => out(&budget::text(probes, found, roots)),
        (None, why) => {
            let why = why.map_or("it ended before it began", String::as_str);
            say(format_args!("budget: not measured, because {why}"));
            Ok(())
        }
    }
}

/// A command that ends with this value, and with this process.
struct Watched {
    child: Child,
    watchdog: Option<Watchdog>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.watchdog = None;
    }
}

/// Waits until the interval is over, it is interrupted, or the command ends. Returns the command's
/// status, if it ended.
fn wait(
    interval: Duration,
    interrupt: &Interrupt,
    mut command: Option<&mut Watched>,
) -> Result<Option<std::process::ExitStatus>, Error> {
    const LOOK: Duration = Duration::from_millis(20);
    let until = Instant::now() + interval;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || interrupt.is_raised() {
            return Ok(None);
        }
        std::thread::sleep(left.min(LOOK));
        if let Some(command) = &mut command
            && let Some(status) = command.child.try_wait().map_err(Error::file("the command"))?
        {
            return Ok(Some(status));
        }
    }
}

fn as_json(at_s: f64, seconds: f64, rows: &[Row]) -> Value {
    let rows: Vec<Value> = rows.iter().map(cpu_json).collect();
    json!({ "at_s": at_s, "width_s": seconds, "cpus": rows })
}

fn write(file: &mut Option<File>, value: impl FnOnce() -> Value) -> Result<(), Error> {
    match file {
        Some(file) => writeln!(file, "{}", versioned(value())).map_err(Error::file("--json")),
        None => Ok(()),
    }
}
