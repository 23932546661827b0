//! The runner's side of a far host.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, channel};
use std::time::{Duration, Instant};

use millstream_record::error::Error;

use super::Token;
use super::message::{Answer, FarJob, FarSide, Request, longest_s};
use super::wire::{self, Receiver, Sender};
use crate::worker::{Command, Job, Reply};
use crate::workload::monotonic_ns;

/// Times that the clocks of both hosts are compared; the quickest answer counts.
const CLOCK_LOOKS: usize = 16;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the worker there is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// Longest time that the far side may take to report what it measured.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of a `millstream serve`, and the token that it has.
#[derive(Clone, Debug)]
pub struct FarHost {
    /// Address of its control connections.
    pub control: SocketAddr,
    /// The secret that both sides have.
    pub token: Token,
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
    finished: Inbox<FarSide>,
    most_s: f64,
}

impl FarHost {
    /// Asks it; again for a while where the connection ends before a word: so it does where very
    /// many others connect.
    pub(super) fn ask(&self) -> io::Result<(Sender, Receiver)> {
        let until = Instant::now() + CONNECT_TIMEOUT;
        loop {
            let stream = TcpStream::connect_timeout(&self.control, CONNECT_TIMEOUT)?;
            let asked = wire::ask(stream, &self.token);
            let ended = matches!(&asked, Err(error) if matches!(error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe));
            if !ended || Instant::now() >= until {
                return asked;
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Begins a run there that lasts so long at most. What its worker says goes to `replies`, with
    /// the times of our clock.
    pub fn begin(
        &self,
        (warmup_s, duration_s): (f64, f64),
        replies: Outbox<Result<Reply, String>>,
    ) -> Result<FarSeat, Error> {
        let failed = |error: io::Error| {
            Error::Worker(format!("millstream serve at {}: {error}", self.control))
        };
        let joined = || {
            let (mut sender, mut receiver) = self.ask()?;
            let clock = compare(&mut sender, &mut receiver)?;
            Ok((sender, receiver, clock))
        };
        let (sender, receiver, clock) = joined().map_err(failed)?;
        let (teller, finished) = channel();
        std::thread::spawn(move || listen(receiver, clock, &replies, &teller));
        Ok(FarSeat { sender, clock, finished, most_s: longest_s(warmup_s, duration_s) })
    }
}

/// Asks for the time again and again; where the answer was quickest the clocks are known best.
fn compare(sender: &mut Sender, receiver: &mut Receiver) -> io::Result<Clock> {
    let mut best: Option<Clock> = None;
    for _ in 0..CLOCK_LOOKS {
        let before = monotonic_ns();
        sender.send(&Request::Now)?;
        let Answer::Now { at_ns } = receiver.receive()? else {
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

/// Passes on what the far side says, until it ends.
fn listen(
    mut receiver: Receiver,
    clock: Clock,
    replies: &Outbox<Result<Reply, String>>,
    finished: &Outbox<FarSide>,
) {
    loop {
        let passed = match receiver.receive::<Answer>() {
            Ok(Answer::Worker(reply)) => replies.send(Ok(in_our_time(*reply, clock))).is_ok(),
            Ok(Answer::Finished(side)) => finished.send(*side).is_ok(),
            Ok(Answer::Refused { why }) => replies.send(Err(why)).is_ok(),
            Ok(Answer::Now { .. }) => true,
            Err(error) => {
                let _ = replies.send(Err(format!("its control connection ended: {error}")));
                false
            }
        };
        if !passed {
            return;
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
        self.sender.send(&request)
    }

    fn job(&self, job: &Job) -> FarJob {
        FarJob {
            task: job.task.clone(),
            buffer_bytes: job.buffer_bytes,
            congestion: job.congestion.clone(),
            most_s: self.most_s,
        }
    }

    /// Ends the load there, and hears what was seen.
    pub fn finish(mut self) -> Result<FarSide, String> {
        self.sender.send(&Request::Finish).map_err(|error| error.to_string())?;
        self.finished
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
