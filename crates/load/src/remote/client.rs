//! The runner's side of a far host.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use millstream_record::error::Error;
use millstream_testbed::guard::{WorkerProgram, family};
use socket2::Socket;

use super::Token;
use super::message::{Answer, FarCommand, FarJob, FarSide, Machine, Request, longest_s};
use super::started::{self, Started};
use super::wire::{self, PROOF_TIMEOUT, Receiver, Sender};
use crate::ready::Outlook;
use crate::worker::{Command, Job, Reply};
use crate::workload::monotonic_ns;

/// Times that the clocks of both hosts are compared; the quickest answer counts.
const CLOCK_LOOKS: usize = 16;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the worker there is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// Longest time that the far side may take to report what it measured.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// The way to a far host.
#[derive(Clone, Debug)]
pub enum FarHost {
    /// `millstream serve` waits there.
    Served {
        /// Address of its control connections.
        control: SocketAddr,
        /// The secret that both sides have.
        token: Token,
    },
    /// A command starts `millstream serve --stdio` there.
    Started {
        /// Its words.
        words: Vec<String>,
        /// The program that ends it when this process is gone.
        guard: WorkerProgram,
    },
}

impl fmt::Display for FarHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { control, .. } => write!(f, "millstream serve at {control}"),
            Self::Started { words, .. } => write!(f, "`{}`", millstream_foreign::command(words)),
        }
    }
}

/// The lead of the other host's CLOCK_MONOTONIC over ours.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Nanoseconds that it is ahead.
    pub ahead_ns: i64,
    /// Largest error of the lead, in nanoseconds.
    pub unsure_ns: u64,
}

impl Clock {
    fn theirs(self, ours_ns: u64) -> u64 {
        ours_ns.saturating_add_signed(self.ahead_ns)
    }

    /// Returns what our clock says when theirs says `theirs_ns`.
    pub fn ours(self, theirs_ns: u64) -> u64 {
        theirs_ns.saturating_add_signed(self.ahead_ns.saturating_neg())
    }
}

/// The far end of a run on the far host. Dropping it ends the load there.
pub struct FarSeat {
    sender: Sender,
    /// Its clock beside ours.
    pub clock: Clock,
    machine: Machine,
    /// The number of its process there.
    pid: Arc<OnceLock<u32>>,
    heard: Heard<Inbox<Outlook>, Inbox<FarSide>>,
    /// The thread that hears what the far side says, and the error that ends that.
    listener: Option<JoinHandle<io::Error>>,
    most_s: f64,
    /// True for a worker of a high priority.
    raised: bool,
    started: Option<Started>,
}

/// One side of the channels on which the far end says what has come of the wait for it, and that it
/// has finished.
struct Heard<O, F> {
    outlook: O,
    finished: F,
}

/// A command that is the far end of a run. Dropping it ends it.
pub struct FarOther {
    seat: FarSeat,
    replies: Inbox<Result<Reply, String>>,
}

/// A control connection, over which both sides know each other's clock.
struct Joined {
    sender: Sender,
    receiver: Receiver,
    clock: Clock,
    machine: Machine,
    started: Option<Started>,
}

/// Asks `millstream serve`; again for a while where the connection ends before a word: so it does
/// where very many others connect.
pub(super) fn ask_served(control: SocketAddr, token: &Token) -> io::Result<(Sender, Receiver)> {
    let until = Instant::now() + CONNECT_TIMEOUT;
    loop {
        let stream = Socket::from(TcpStream::connect_timeout(&control, CONNECT_TIMEOUT)?);
        let asked = wire::over_tcp(&stream).and_then(|()| wire::ask(stream, token, PROOF_TIMEOUT));
        let ended = matches!(&asked, Err(error) if matches!(error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe));
        if !ended || Instant::now() >= until {
            return asked;
        }
        std::thread::sleep(AGAIN);
    }
}

impl FarHost {
    fn join(&self) -> Result<Joined, Error> {
        let failed = |why: &dyn fmt::Display| Error::Worker(format!("{self}: {why}"));
        let (mut started, asked) = match self {
            Self::Served { control, token } => (None, ask_served(*control, token)),
            Self::Started { words, guard } => {
                let (mut started, stream) =
                    Started::start(words).map_err(|error| failed(&error))?;
                started.watch(guard)?;
                (Some(started), wire::ask(stream, &Token::of_who_starts(), started::PATIENCE))
            }
        };
        let met = asked.and_then(|(mut sender, mut receiver)| {
            let clock = compare(&mut sender, &mut receiver)?;
            sender.send(&Request::Machine)?;
            match Answer::next(&mut receiver)? {
                Answer::Machine(machine) => {
                    let bad = |why| io::Error::new(io::ErrorKind::InvalidData, why);
                    machine.check(&Machine::here()).map_err(bad)?;
                    Ok((sender, receiver, clock, machine))
                }
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it does not tell who it is")),
            }
        });
        match met {
            Ok((sender, receiver, clock, machine)) => {
                Ok(Joined { sender, receiver, clock, machine, started })
            }
            Err(error) => Err(match &mut started {
                Some(started) => {
                    let why = started.because(&error);
                    failed(&format_args!("{why}{}", started.last_words()))
                }
                None => failed(&error),
            }),
        }
    }

    /// Asks which machine it is, and so whether it can be asked.
    pub fn machine(&self) -> Result<Machine, Error> {
        let joined = self.join()?;
        joined.sender.close();
        Ok(joined.machine)
    }

    /// Begins a run there that lasts so long at most, at a high priority where it is `raised`. What
    /// its worker says goes to `replies`, with the times of our clock.
    pub fn begin(
        &self,
        (warmup_s, duration_s): (f64, f64),
        raised: bool,
        replies: Outbox<Result<Reply, String>>,
    ) -> Result<FarSeat, Error> {
        let mut seat = self.seat(longest_s(warmup_s, duration_s), replies)?;
        seat.raised = raised;
        Ok(seat)
    }

    fn seat(&self, most_s: f64, replies: Outbox<Result<Reply, String>>) -> Result<FarSeat, Error> {
        let Joined { sender, receiver, clock, machine, started } = self.join()?;
        let ((tell_outlook, outlook), (tell_finished, finished)) = (channel(), channel());
        let tell = Heard { outlook: tell_outlook, finished: tell_finished };
        let pid = Arc::new(OnceLock::new());
        let known = pid.clone();
        let listener = spawn(move || listen(receiver, clock, &replies, &known, &tell));
        let (heard, listener) = (Heard { outlook, finished }, Some(listener));
        let raised = false;
        Ok(FarSeat { sender, clock, machine, pid, heard, listener, most_s, raised, started })
    }

    /// Starts a command there.
    pub fn command(&self, command: FarCommand) -> Result<FarOther, Error> {
        let (teller, replies) = channel();
        let mut seat = self.seat(command.most_s, teller)?;
        let sent = seat.sender.send(&Request::Command(command));
        sent.map_err(|error| Error::Worker(format!("{self}: {error}")))?;
        Ok(FarOther { seat, replies })
    }
}

impl FarOther {
    /// Returns whether it can be used.
    pub fn look(&mut self) -> Outlook {
        match self.failed() {
            Some(why) => Outlook::Failed(why),
            None => self.seat.heard.outlook.try_recv().unwrap_or(Outlook::NotYet),
        }
    }

    /// Returns why it cannot be used any more, if that is so.
    pub fn failed(&mut self) -> Option<String> {
        let why = match self.replies.try_recv() {
            Ok(Err(why) | Ok(Reply::Failed { why })) => why,
            Err(TryRecvError::Disconnected) => self.seat.gone(),
            _ => return None,
        };
        Some(format!("the other end (--server): {why}{}", self.seat.last_words()))
    }

    /// Its process and those that it has started, where they have numbers of this host.
    pub fn processes(&self) -> Vec<u32> {
        self.seat.pid().map_or(vec![], |pid| family(pid).into_iter().skip(1).collect())
    }

    /// Ends it, and hears what was seen there, with how its clock goes.
    pub fn finish(self) -> Result<(FarSide, Clock), String> {
        let clock = self.seat.clock;
        self.seat.finish().map(|side| (side, clock))
    }
}

/// Asks for the time again and again; where the answer was quickest the clocks are known best.
fn compare(sender: &mut Sender, receiver: &mut Receiver) -> io::Result<Clock> {
    let mut best: Option<Clock> = None;
    for _ in 0..CLOCK_LOOKS {
        let before = monotonic_ns();
        sender.send(&Request::Now)?;
        let Answer::Now { at_ns } = Answer::next(receiver)? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not tell the time"));
        };
        let unsure_ns = monotonic_ns().saturating_sub(before) / 2;
        let ahead_ns = at_ns.wrapping_sub(before + unsure_ns) as i64;
        if best.is_none_or(|best| unsure_ns < best.unsure_ns) {
            best = Some(Clock { ahead_ns, unsure_ns });
        }
    }
    best.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Passes on what the far side says, until the connection ends by this error.
fn listen(
    mut receiver: Receiver,
    clock: Clock,
    replies: &Outbox<Result<Reply, String>>,
    pid: &OnceLock<u32>,
    tell: &Heard<Outbox<Outlook>, Outbox<FarSide>>,
) -> io::Error {
    loop {
        let passed = match Answer::next(&mut receiver) {
            Ok(Answer::Worker(reply)) => replies.send(Ok(in_our_time(*reply, clock))).is_ok(),
            Ok(Answer::Finished(side)) => tell.finished.send(*side).is_ok(),
            Ok(Answer::Refused { why }) => replies.send(Err(why)).is_ok(),
            Ok(Answer::Started { pid: number }) => {
                let _ = pid.set(number);
                true
            }
            Ok(Answer::Outlook(outlook)) => tell.outlook.send(outlook).is_ok(),
            Ok(Answer::Alive | Answer::Now { .. } | Answer::Machine(_)) => true,
            Err(error) => return error,
        };
        if !passed {
            return io::ErrorKind::BrokenPipe.into();
        }
    }
}

fn in_our_time(mut reply: Reply, clock: Clock) -> Reply {
    if let Reply::Done(report) = &mut reply {
        for end in &mut report.ends {
            end.samples.iter_mut().for_each(|one| one.at_ns = clock.ours(one.at_ns));
        }
    }
    reply
}

impl FarSeat {
    /// Passes a command on to the worker there.
    pub fn tell(&mut self, command: &Command) -> io::Result<()> {
        let request = match command {
            Command::Start(job) => Request::Begin(self.job(job)),
            Command::Listen { address } => Request::Listen { address: *address },
            Command::Measure { begin_ns, end_ns } => Request::Measure {
                begin_ns: self.clock.theirs(*begin_ns),
                end_ns: self.clock.theirs(*end_ns),
            },
            Command::Leave => Request::Finish,
            Command::Connect { .. } | Command::Route(_) | Command::EndRoute => {
                let why = "the far end neither connects nor hands on";
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        };
        let told = self.sender.send(&request);
        if told.is_err() {
            // Who listens to it hears the end, too.
            self.sender.close();
        }
        told
    }

    fn job(&self, job: &Job) -> FarJob {
        FarJob {
            task: job.task.clone(),
            buffer_bytes: job.buffer_bytes,
            congestion: job.congestion.clone(),
            cpu: job.cpu,
            raised: self.raised,
            most_s: self.most_s,
        }
    }

    /// Returns the number of its process, where it is one of this host's.
    pub fn pid(&self) -> Option<u32> {
        self.pid.get().copied().filter(|_| self.machine.has_same_processes(&Machine::here()))
    }

    /// Returns the last lines of the command that started the far end, in brackets.
    pub(super) fn last_words(&self) -> String {
        self.started.as_ref().map_or(String::new(), Started::last_words)
    }

    /// Returns how it has ended, once it hears or says nothing any more.
    pub(super) fn gone(&mut self) -> String {
        let error = self.listener.take().and_then(|listener| listener.join().ok());
        let error = error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
        match &mut self.started {
            Some(started) => started.because(&error),
            None => error.to_string(),
        }
    }

    /// Ends the load there, and hears what was seen.
    pub fn finish(mut self) -> Result<FarSide, String> {
        self.sender.send(&Request::Finish).map_err(|error| error.to_string())?;
        self.heard
            .finished
            .recv_timeout(FINISH_TIMEOUT)
            .map_err(|_| "it does not tell what its probes saw".to_owned())
    }
}

impl Drop for FarSeat {
    fn drop(&mut self) {
        self.sender.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_goes_there_and_back() {
        for ahead_ns in [0, 5, -5, i64::MAX / 2, -1_000_000] {
            let clock = Clock { ahead_ns, unsure_ns: 1 };
            assert_eq!(clock.ours(clock.theirs(10_000_000)), 10_000_000);
        }
        let clock = Clock { ahead_ns: i64::MIN, unsure_ns: 0 };
        clock.ours(clock.theirs(u64::MAX));
    }
}
