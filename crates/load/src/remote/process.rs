//! A worker process seen from the runner: born inside a host, spoken to by
//! lines of JSON, and always ended.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command as Program, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use millstream_foreign::{lines, to_parse};
use millstream_record::error::Error;
use millstream_testbed::guard::WorkerProgram;
use millstream_testbed::interrupt::Interrupt;
use millstream_testbed::namespace::Namespace;

use super::last_words::{LastWords, ended_by};
use super::{Clock, FarHost, FarSeat, FarSide};
use crate::limits;
use crate::worker::{Command, Reply};

/// A running worker. Dropping it ends the process, here or at the far host.
pub struct WorkerProcess {
    role: &'static str,
    seat: Seat,
    /// Its answers; an error says what is wrong with one.
    replies: Receiver<Result<Reply, String>>,
    /// An answer that came while nobody waited for it.
    early: Option<Reply>,
}

/// The place of a worker.
enum Seat {
    Here(Here),
    There(Box<FarSeat>),
}

/// A process of this host.
struct Here {
    child: Child,
    stdin: Option<ChildStdin>,
    last_words: LastWords,
}

impl WorkerProcess {
    /// Starts a worker inside `host`, or in the current namespace without one.
    /// It gets a process group of its own: an interrupt from the terminal is
    /// the runner's to handle.
    pub fn start(
        role: &'static str,
        program: &WorkerProgram,
        host: Option<&Namespace>,
    ) -> Result<Self, Error> {
        use std::os::unix::process::CommandExt;
        let WorkerProgram { path, arguments } = program.clone();
        let begin = move || {
            Program::new(path)
                .args(arguments)
                .arg(std::process::id().to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0)
                .spawn()
        };
        let spawned = match host {
            Some(host) => host.run(begin),
            None => begin(),
        };
        let mut child = spawned.map_err(Error::host(format!("start the {role} worker")))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let last_words = LastWords::of(child.stderr.take());
        let (teller, replies) = channel();
        if let Some(stdout) = stdout {
            thread::spawn(move || {
                for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                    let line = to_parse(&line);
                    let reply = serde_json::from_str(&line);
                    let reply = reply
                        .map_err(|e| format!("answers oddly: {e}: {}", lines(line.as_bytes())));
                    if teller.send(reply).is_err() {
                        break;
                    }
                }
            });
        }
        let seat = Seat::Here(Here { child, stdin, last_words });
        Ok(Self { role, seat, replies, early: None })
    }

    /// Has the far host start one for a run of so many seconds of warm-up and window, at a high
    /// priority where it is `raised`.
    pub fn elsewhere(
        role: &'static str,
        host: &FarHost,
        lasts_s: (f64, f64),
        raised: bool,
    ) -> Result<Self, Error> {
        let (teller, replies) = channel();
        let seat = Seat::There(Box::new(host.begin(lasts_s, raised, teller)?));
        Ok(Self { role, seat, replies, early: None })
    }

    /// Returns its name: `near`, `far`, `both`, `rival`, `peer`.
    pub fn role(&self) -> &'static str {
        self.role
    }

    /// Its process number, if it is a process of this host.
    pub fn pid(&self) -> Option<u32> {
        match &self.seat {
            Seat::Here(here) => Some(here.child.id()),
            Seat::There(_) => None,
        }
    }

    /// Returns the number of one at a far host that has the processes of this one, too.
    pub fn far_pid(&self) -> Option<u32> {
        match &self.seat {
            Seat::Here(_) => None,
            Seat::There(there) => there.pid(),
        }
    }

    /// Tells the worker something.
    pub fn tell(&mut self, command: &Command) -> Result<(), Error> {
        let told = match &mut self.seat {
            Seat::Here(here) => here.tell(command),
            Seat::There(there) => there.tell(command).is_ok(),
        };
        if told { Ok(()) } else { Err(self.died()) }
    }

    /// Waits for its next answer, at most this long, looking out for interrupts. Time is counted as
    /// far as this process waited: a pause of the whole machine, or of runner and workers, is none
    /// of the worker's.
    pub fn hear(&mut self, timeout_ms: u64, interrupt: &Interrupt) -> Result<Reply, Error> {
        if let Some(reply) = self.early.take() {
            return Ok(reply);
        }
        let mut looks = timeout_ms.div_ceil(limits::WATCH_MS);
        loop {
            interrupt.check()?;
            match self.replies.recv_timeout(Duration::from_millis(limits::WATCH_MS)) {
                Ok(Ok(Reply::Failed { why })) => return Err(self.failed(&why)),
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(garbage)) => return Err(self.failed(&garbage)),
                Err(RecvTimeoutError::Timeout) if looks > 1 => looks -= 1,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.failed(&format!("does not answer for {timeout_ms} ms")));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    interrupt.check()?;
                    return Err(self.died());
                }
            }
        }
    }

    /// Its next answer, if there is one. Does not wait.
    pub fn answer(&mut self) -> Result<Option<Reply>, Error> {
        if let Some(reply) = self.early.take() {
            return Ok(Some(reply));
        }
        match self.replies.try_recv() {
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.died()),
            Ok(Ok(Reply::Failed { why })) => Err(self.failed(&why)),
            Ok(Ok(reply)) => Ok(Some(reply)),
            Ok(Err(garbage)) => Err(self.failed(&garbage)),
        }
    }

    /// An error when the worker has died or given up. Does not wait. An answer is kept for
    /// [`hear`](Self::hear): on a busy machine a workload is over before the runner looks at its
    /// clock.
    pub fn still_at_work(&mut self) -> Result<(), Error> {
        self.early = self.answer()?;
        Ok(())
    }

    /// The error for an answer that is not the one asked for.
    pub fn out_of_turn(&self, reply: &Reply) -> Error {
        let told = format!("{reply:?}");
        let name = told.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        self.failed(&format!("answers out of turn: {name}"))
    }

    /// The error for a worker whose answers have ended: how it ended, and its last words.
    fn died(&mut self) -> Error {
        let why = match &mut self.seat {
            Seat::Here(here) => match here.ended() {
                Some(status) => format!("has died: {status}"),
                None => "has closed its answers".to_owned(),
            },
            Seat::There(there) => there.gone(),
        };
        self.failed(&why)
    }

    /// Asks the worker to exit and gives it a moment; then it is killed. Of one at the far host,
    /// what was seen there and how its clock goes, or why that is not known.
    pub fn leave(self) -> Option<Result<(FarSide, Clock), String>> {
        match self.seat {
            Seat::Here(mut here) => {
                here.leave();
                None
            }
            Seat::There(there) => {
                let clock = there.clock;
                Some(there.finish().map(|side| (side, clock)))
            }
        }
    }

    /// An error with the worker's last words on one line.
    pub fn failed(&self, why: &str) -> Error {
        let words = match &self.seat {
            Seat::Here(here) => here.last_words.text(),
            Seat::There(there) => there.last_words(),
        };
        Error::Worker(format!("the {} worker: {why}{words}", self.role))
    }
}

impl Here {
    fn tell(&mut self, command: &Command) -> bool {
        let mut line = serde_json::to_string(command).expect("plain data");
        line.push('\n');
        let stdin = self.stdin.as_mut();
        stdin.is_some_and(|pipe| pipe.write_all(line.as_bytes()).is_ok())
    }

    /// Returns the status with which it ended, if it ends within a moment.
    fn ended(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + Duration::from_millis(limits::LAST_WORDS_MS);
        let ended = ended_by(&mut self.child, deadline);
        self.last_words.wait(deadline);
        ended
    }

    fn leave(&mut self) {
        if self.tell(&Command::Leave) {
            let deadline = Instant::now() + Duration::from_millis(limits::LEAVE_TIMEOUT_MS);
            ended_by(&mut self.child, deadline);
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell that says `reply` at once and then stays.
    fn saying(reply: &Reply) -> WorkerProcess {
        let line = serde_json::to_string(reply).unwrap();
        let arguments = ["-c".to_owned(), format!("echo '{line}'; read rest")];
        let program = WorkerProgram { path: "/bin/sh".into(), arguments: arguments.to_vec() };
        WorkerProcess::start("near", &program, None).unwrap()
    }

    #[test]
    fn an_answer_before_it_is_waited_for_is_not_lost() {
        let mut worker = saying(&Reply::Connected);
        while worker.early.is_none() {
            worker.still_at_work().unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        worker.still_at_work().unwrap();
        let reply = worker.hear(600_000, &Interrupt::default()).unwrap();
        assert!(matches!(reply, Reply::Connected));
    }

    #[test]
    fn a_second_answer_that_does_not_come_is_not_waited_for_without_end() {
        let mut worker = saying(&Reply::Connected);
        worker.hear(600_000, &Interrupt::default()).unwrap();
        let error = worker.hear(100, &Interrupt::default()).unwrap_err().to_string();
        assert!(error.ends_with("the near worker: does not answer for 100 ms"), "{error}");
    }

    #[test]
    fn an_answer_out_of_turn_is_named_in_short() {
        let worker = saying(&Reply::Connected);
        let reply = Reply::Prepared { notes: vec!["long".into()], namespace_inode: 1 };
        let error = worker.out_of_turn(&reply).to_string();
        assert!(error.ends_with("the near worker: answers out of turn: Prepared"), "{error}");
    }
}
