//! The process between the laboratory and an outside command, which ends the command when the laboratory is gone.
//!
//! It adopts what the command starts, also what leaves its session or loses its parent, and reads its standard input, which
//! the laboratory holds open. When that ends, or the command does, all of them are killed.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::investigate::family;

/// Exit status where the command could not be started, as a shell's.
const NOT_STARTED: u8 = 127;

/// Until what was killed must be gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// The guard's whole life; its exit status is the command's, 128 and the signal where one ended it.
pub fn main(words: &[String]) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else {
        return ExitCode::from(NOT_STARTED);
    };
    if let Err(error) = prctl::set_child_subreaper(true) {
        eprintln!("millstream guard: cannot adopt what the command starts: {error}");
        return ExitCode::from(NOT_STARTED);
    }
    let started = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            eprintln!("millstream guard: {program}: {error}");
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
    end_all();
    let code = status
        .ok()
        .and_then(|status| status.code().or_else(|| status.signal().map(|signal| 128 + signal)));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Kills all descendants, again until there are none: one may start others meanwhile.
fn end_all() {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: Vec<u32> = family(std::process::id()).into_iter().skip(1).collect();
        if left.is_empty() || Instant::now() > deadline {
            return;
        }
        for pid in left {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|one| one.pid().is_some()) {}
        std::thread::sleep(Duration::from_millis(1));
    }
}
