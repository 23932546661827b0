//! The process between the laboratory and an outside command, which ends the command when the
//! laboratory is gone.
//!
//! It adopts what the command starts, also what leaves its session or loses its parent, and reads
//! its standard input, which the laboratory holds open. When that ends, or the command does, all of
//! them are killed. One that is a server ends with the last of what it has started: many a server
//! puts itself into the background.
//!
//! A command that is to have the user's own terminal is started without one, and has a [`Watchdog`]
//! beside it.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use millstream_record::error::Error;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::leftovers::ProcessIdentity;
use crate::priority;

/// Exit status where the command could not be started, as a shell's.
const NOT_STARTED: u8 = 127;

/// Time for one that sees by itself that this process is gone: its input has ended.
const MOMENT: Duration = Duration::from_millis(500);

/// Longest wait for killed processes to be gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// The guard's whole life; its exit status is the command's, 128 and the signal where one ended it.
///
/// `is_raised`: it and the command are in a session of their own with a high priority. `is_server`:
/// a command that ends with 0 goes on in what it has started.
pub fn main(words: &[OsString], is_raised: bool, is_server: bool) -> ExitCode {
    if is_raised && let Err(why) = priority::raise_session() {
        say(why);
        return ExitCode::from(NOT_STARTED);
    }
    let Some((program, arguments)) = words.split_first() else {
        return ExitCode::from(NOT_STARTED);
    };
    if let Err(error) = prctl::set_child_subreaper(true) {
        say(format_args!("cannot adopt what the command starts: {error}"));
        return ExitCode::from(NOT_STARTED);
    }
    let started = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            let program = millstream_foreign::shown(program.as_encoded_bytes());
            say(format_args!("{program}: {error}"));
            return ExitCode::from(NOT_STARTED);
        }
    };
    std::thread::spawn(|| {
        let mut byte = [0];
        while matches!(std::io::stdin().read(&mut byte), Ok(1..)) {}
        end_all();
        std::process::exit(1);
    });
    let status = child.wait();
    if is_server && status.as_ref().is_ok_and(ExitStatus::success) {
        // Until there is no child any more.
        while waitpid(None, None).is_ok() {}
    }
    end_all();
    let code = status
        .ok()
        .and_then(|status| status.code().or_else(|| status.signal().map(|signal| 128 + signal)));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[expect(
    clippy::disallowed_macros,
    reason = "who started it reads the standard error, and shows it"
)]
fn say(what: impl Display) {
    eprintln!("millstream guard: {what}");
}

/// Kills all descendants, again until there are none: one may start others meanwhile.
fn end_all() {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: Vec<u32> = family(std::process::id()).into_iter().skip(1).collect();
        if left.is_empty() {
            return;
        }
        if Instant::now() > deadline {
            return say(format_args!("could not end {left:?}: are they another user's?"));
        }
        for pid in left {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|one| one.pid().is_some()) {}
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The command line of a worker: this program with these arguments, followed by the number of the
/// starting process.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// The program.
    pub path: PathBuf,
    /// Arguments that make the program a worker.
    pub arguments: Vec<String>,
}

impl WorkerProgram {
    /// Returns this guard as that of a server.
    #[must_use]
    pub fn of_server(mut self) -> Self {
        self.arguments.push("--server".to_owned());
        self
    }
}

/// A process and its descendants, itself first.
pub fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while at < all.len() && all.len() < 256 {
        let tasks = fs::read_dir(format!("/proc/{}/task", all[at])).into_iter().flatten().flatten();
        for task in tasks {
            let children =
                millstream_foreign::read(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    all
}

/// A process that ends another one with what that has started, when this process is gone, whatever
/// has ended it.
#[derive(Debug)]
pub struct Watchdog(Child);

impl Watchdog {
    /// Starts `program` as that of the process `pid`.
    pub fn start(program: &WorkerProgram, pid: u32) -> Result<Self, Error> {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).args(["--of", &pid.to_string()]);
        // It has nothing of the user's, so that nobody waits for its end.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command.spawn().map(Self).map_err(Error::host("start a watchdog"))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.0.wait();
    }
}

/// The watchdog's whole life: a byte lets it go, the end of its input has it do its work.
pub fn watch(pid: u32) -> ExitCode {
    let Ok(identity) = ProcessIdentity::of(pid) else { return ExitCode::SUCCESS };
    if matches!(std::io::stdin().read(&mut [0]), Ok(1..)) {
        return ExitCode::SUCCESS;
    }
    let begun = Instant::now();
    while identity.is_alive() && begun.elapsed() < MOMENT + PATIENCE {
        let all = if begun.elapsed() < MOMENT { vec![] } else { family(pid) };
        for pid in all {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    ExitCode::SUCCESS
}
