//! One run at the far side.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use millstream_netlink::{Interface, Netlink};
use millstream_observe::environment;
use millstream_observe::probe::{Config, Host, NetSource, Sampler};
use millstream_record::error::Error;
use millstream_testbed::guard::WorkerProgram;
use millstream_testbed::interrupt::Interrupt;
use millstream_testbed::priority;

use super::WorkerProcess;
use super::message::{Answer, FarCommand, FarJob, FarSide, InterfaceBytes, Machine, Request};
use super::wire::{Receiver, Sender};
use crate::ready::{Outlook, Ready};
use crate::running::{Listening, Running, may_be_started};
use crate::worker::{Command, Job, Reply, StackJob};
use crate::workload::{End, monotonic_ns};

/// Time between two looks for the worker's answers.
const LOOK: Duration = Duration::from_millis(10);
/// Time between two signs of life, by which the client knows that this side does not hang.
const SIGN: Duration = Duration::from_secs(1);
/// Longest silence of a client that has proved itself, while there is no load.
const IDLE: Duration = Duration::from_secs(30);

/// The programs that a session starts.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// The program of workers.
    pub(super) worker: WorkerProgram,
    /// The program that stands before commands; none where a runner may start none.
    pub(super) guard: Option<WorkerProgram>,
}

/// The far end of a run. Dropping it ends its processes.
struct Load {
    end: FarEnd,
    sampler: Sampler,
    origin_ns: u64,
    interfaces: Vec<Interface>,
    /// The moment at which it ends, even if the runner still wants it.
    until: Instant,
}

/// The process that is the far end.
enum FarEnd {
    Worker(WorkerProcess),
    Command(FarProcess),
}

struct FarProcess {
    running: Running,
    said: Listening,
    begun: Instant,
    /// The sign that is waited for, and how long; `None` once that is over.
    ready: Option<(Ready, Duration)>,
    watched: BTreeSet<u32>,
}

/// Does what a client asks until it goes, and ends the load with it. The reason is why the server
/// ended it.
pub(super) fn session(
    (mut sender, mut receiver): (Sender, Receiver),
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<(), String> {
    let (teller, requests) = channel();
    let reading = std::thread::spawn(move || {
        loop {
            let request = receiver.receive::<Request>();
            let is_last = request.is_err();
            if teller.send(request).is_err() || is_last {
                return;
            }
        }
    });
    let mut load: Option<Load> = None;
    let mut until = Instant::now() + IDLE;
    let mut signed = Instant::now();
    let done = loop {
        if interrupt.is_raised() {
            break Err("the server ends".to_owned());
        }
        let limit = load.as_ref().map_or(until, |load| load.until);
        if Instant::now() >= limit {
            break Err("it takes longer than it may".to_owned());
        }
        let had_load = load.is_some();
        let next = requests.recv_timeout(LOOK);
        let is_heard = next.is_ok();
        let answered = match next {
            Ok(Ok(Request::Finish)) => match load.take() {
                Some(load) => sender.send(&Answer::Finished(Box::new(finish(load)))),
                None => refuse(&mut sender, "nothing was begun"),
            },
            Ok(Ok(request)) => take(request, &mut load, programs, &mut sender),
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(()),
            Ok(Err(error)) => break Err(error.to_string()),
            Err(RecvTimeoutError::Timeout) if signed.elapsed() >= SIGN => {
                signed = Instant::now();
                sender.send(&Answer::Alive)
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
        };
        if let Err(error) = answered.and_then(|()| tell(&mut load, &mut sender)) {
            break Err(error.to_string());
        }
        if is_heard || had_load {
            until = Instant::now() + IDLE;
        }
    };
    drop(load);
    if let Err(why) = &done {
        let _ = refuse(&mut sender, why);
    }
    sender.close();
    let _ = reading.join();
    done
}

fn refuse(sender: &mut Sender, why: &str) -> io::Result<()> {
    sender.send(&Answer::Refused { why: why.to_owned() })
}

/// Does one request. An error is that the client cannot be answered.
fn take(
    request: Request,
    load: &mut Option<Load>,
    programs: &Programs,
    sender: &mut Sender,
) -> io::Result<()> {
    let had_load = load.is_some();
    let done = match (request, load.as_mut()) {
        (Request::Now, _) => return sender.send(&Answer::Now { at_ns: monotonic_ns() }),
        (Request::Machine, _) => return sender.send(&Answer::Machine(Machine::here())),
        (Request::Begin(job), None) => {
            begin(job, &programs.worker).map(|begun| *load = Some(begun))
        }
        (Request::Command(command), None) => {
            start(&command, programs).map(|begun| *load = Some(begun))
        }
        (Request::Begin(_) | Request::Command(_), Some(_)) => {
            Err("a run is going already".to_owned())
        }
        (Request::Listen { address }, Some(load)) => told(load, &Command::Listen { address }),
        (Request::Measure { begin_ns, end_ns }, Some(load)) => {
            told(load, &Command::Measure { begin_ns, end_ns })
        }
        _ => Err("nothing was begun".to_owned()),
    };
    match (done, load.as_ref().and_then(Load::pid)) {
        (Ok(()), Some(pid)) if !had_load => sender.send(&Answer::Started { pid }),
        (Ok(()), _) => Ok(()),
        (Err(why), _) => refuse(sender, &why),
    }
}

impl Load {
    fn pid(&self) -> Option<u32> {
        match &self.end {
            FarEnd::Worker(worker) => worker.pid(),
            FarEnd::Command(command) => Some(command.running.child.id()),
        }
    }
}

fn told(load: &mut Load, command: &Command) -> Result<(), String> {
    match &mut load.end {
        FarEnd::Worker(worker) => worker.tell(command).map_err(|error| error.to_string()),
        FarEnd::Command(_) => Err("the far end is a command".to_owned()),
    }
}

/// Returns the probes of this host, from now on.
fn sampler(begun: Instant, flows: bool) -> Sampler {
    let mut config = Config::new(begun);
    config.hosts = vec![Host { name: "far".to_owned(), net: NetSource::Own }];
    config.flows = flows;
    Sampler::start(config)
}

fn start(command: &FarCommand, programs: &Programs) -> Result<Load, String> {
    let FarCommand { words, cpu, raised, ready, patience_ms, most_s } = command;
    let Some(guard) = &programs.guard else {
        return Err("commands are started by who has started this program (--far-by)".to_owned());
    };
    let because = |error: Error| error.to_string();
    may_be_started(OsStr::new(words.first().map_or("", String::as_str))).map_err(because)?;
    let (begun, origin_ns) = (Instant::now(), monotonic_ns());
    let until = ends(begun, *most_s)?;
    let sampler = sampler(begun, true);
    let mut running =
        Running::start_server(words, (*cpu, *raised), Some(guard)).map_err(because)?;
    let said = running.said();
    let ready = Some((ready.clone(), Duration::from_millis(*patience_ms)));
    let watched = BTreeSet::new();
    let end = FarEnd::Command(FarProcess { running, said, begun, ready, watched });
    Ok(Load { end, sampler, origin_ns, interfaces: interfaces(), until })
}

/// Returns the moment at which a load ends that may last so long.
fn ends(begun: Instant, most_s: f64) -> Result<Instant, String> {
    let most = Duration::try_from_secs_f64(most_s).ok();
    let until = most.and_then(|most| begun.checked_add(most));
    until.ok_or_else(|| format!("{most_s:?} s are more than a clock counts: lower --timeout"))
}

fn begin(job: FarJob, program: &WorkerProgram) -> Result<Load, String> {
    job.check()?;
    let because = |error: Error| error.to_string();
    let (begun, origin_ns) = (Instant::now(), monotonic_ns());
    let until = ends(begun, job.most_s)?;
    let sampler = sampler(begun, false);
    let mut worker = WorkerProcess::start("far", program, None).map_err(because)?;
    let FarJob { task, buffer_bytes, congestion, cpu, raised, .. } = job;
    if let Some(pid) = worker.pid() {
        if raised {
            priority::raise(Some(pid))?;
        }
        sampler.watch_worker("far", pid);
    }
    worker
        .tell(&Command::Start(Box::new(Job {
            end: Some(End::Far),
            task,
            stack: StackJob::Kernel,
            cpu,
            far_cpu: None,
            engine_cpu: None,
            far_engine_cpu: None,
            buffer_bytes,
            congestion,
            source: None,
        })))
        .map_err(because)?;
    let end = FarEnd::Worker(worker);
    Ok(Load { end, sampler, origin_ns, interfaces: interfaces(), until })
}

/// Passes on what the far end says, and ends the load of one that has failed.
fn tell(load: &mut Option<Load>, sender: &mut Sender) -> io::Result<()> {
    while let Some(begun) = load {
        let said = match &mut begun.end {
            FarEnd::Worker(worker) => {
                worker.answer().map(|reply| reply.map(|reply| Answer::Worker(Box::new(reply))))
            }
            FarEnd::Command(command) => command.look(&begun.sampler),
        };
        match said {
            Ok(Some(answer)) => sender.send(&answer)?,
            Ok(None) => return Ok(()),
            Err(error) => {
                *load = None;
                let why = error.to_string();
                sender.send(&Answer::Worker(Box::new(Reply::Failed { why })))?;
            }
        }
    }
    Ok(())
}

impl FarProcess {
    /// Watches what it has started, and returns what is to be told of it.
    fn look(&mut self, sampler: &Sampler) -> Result<Option<Answer>, Error> {
        for pid in self.running.processes() {
            if self.watched.insert(pid) {
                sampler.watch_worker("server", pid);
            }
        }
        let Some((ready, patience)) = &self.ready else { return Ok(None) };
        let age = self.begun.elapsed();
        let outlook = self.running.look((ready, *patience), age, &self.said)?;
        if outlook == Outlook::NotYet {
            return Ok(None);
        }
        self.ready = None;
        Ok(Some(Answer::Outlook(outlook)))
    }
}

fn finish(load: Load) -> FarSide {
    let Load { end, sampler, origin_ns, interfaces: before, .. } = load;
    if let FarEnd::Worker(worker) = end {
        drop(worker.leave());
    }
    let probes = sampler.stop();
    let carried = interfaces().into_iter().map(|now| {
        let then = before.iter().find(|one| one.index == now.index);
        let risen = |of: fn(&Interface) -> u64| of(&now).saturating_sub(then.map_or(0, of));
        let bytes = InterfaceBytes {
            rx_bytes: risen(|one| one.rx_bytes),
            tx_bytes: risen(|one| one.tx_bytes),
        };
        (now.name, bytes)
    });
    let interfaces = carried.collect();
    FarSide { probes, origin_ns, environment: environment::capture(), interfaces }
}

/// Returns the interfaces of this host; none when they cannot be listed.
fn interfaces() -> Vec<Interface> {
    Netlink::route().and_then(|mut netlink| netlink.interfaces()).unwrap_or_default()
}
