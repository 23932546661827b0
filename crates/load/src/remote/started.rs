//! This program at the far end, started by a command of the user's: `ssh host`, `ip netns exec b`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millstream_record::error::Error;
use millstream_testbed::guard::{Watchdog, WorkerProgram};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use socket2::Socket;

use super::last_words::{LastWords, ended_by};
use crate::limits;

/// Longest time until the program there says its first word: a cluster may look for a place first.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The command. Dropping it ends what is left of it, once its input is closed.
pub(super) struct Started {
    child: Child,
    last_words: LastWords,
    watchdog: Option<Watchdog>,
}

impl Started {
    /// Starts the words. Returns the socket whose other end is their standard input and output.
    pub(super) fn start(words: &[String]) -> io::Result<(Self, Socket)> {
        let (near, far) = UnixStream::pair()?;
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        // A group of its own: an interrupt from the terminal is the runner's to handle.
        command.args(arguments).process_group(0).stderr(Stdio::piped());
        command.stdin(OwnedFd::from(far.try_clone()?)).stdout(OwnedFd::from(far));
        let mut child = command.spawn()?;
        let last_words = LastWords::of(child.stderr.take());
        Ok((Self { child, last_words, watchdog: None }, near.into()))
    }

    /// Has it end when this process is gone: one that hangs does not see that its input ends.
    pub(super) fn watch(&mut self, guard: &WorkerProgram) -> Result<(), Error> {
        self.watchdog = Some(Watchdog::start(guard, self.child.id())?);
        Ok(())
    }

    /// Returns `error` as what is wrong with it: how it ended, if it did.
    pub(super) fn because(&mut self, error: &io::Error) -> String {
        // One that says something odd has not ended.
        let is_odd = error.kind() == io::ErrorKind::InvalidData;
        let most_ms = if is_odd { limits::LAST_WORDS_MS } else { limits::FAR_LAST_WORDS_MS };
        let deadline = Instant::now() + Duration::from_millis(most_ms);
        let ended = ended_by(&mut self.child, deadline);
        self.last_words.wait(deadline);
        match ended {
            Some(status) if !is_odd => format!("it ended with {status}"),
            _ => error.to_string(),
        }
    }

    /// Returns its last lines in brackets; nothing if there are none.
    pub(super) fn last_words(&self) -> String {
        self.last_words.text()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let patience = Duration::from_millis(limits::LEAVE_TIMEOUT_MS);
        if ended_by(&mut self.child, Instant::now() + patience).is_none() {
            let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
            let _ = self.child.kill();
            // One of another user, as sudo, may not be killed.
            ended_by(&mut self.child, Instant::now() + patience);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_command_that_has_left_its_group_is_ended_all_the_same() {
        let script = "setpgrp(0, getpgrp(getppid())); sleep 600";
        let words = ["perl", "-e", script].map(str::to_owned);
        let Ok((started, _near)) = Started::start(&words) else {
            eprintln!("skipped: no perl");
            return;
        };
        let at = format!("/proc/{}", started.child.id());
        let own = started.child.id().to_string();
        let group = || {
            let stat = fs::read_to_string(format!("{at}/stat")).unwrap();
            stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().to_owned()
        };
        while group() == own {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(started);
        assert!(!fs::exists(at).unwrap());
    }
}
