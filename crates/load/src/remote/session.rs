//! One run at the far side.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use millstream_netlink::{Interface, Netlink};
use millstream_observe::environment;
use millstream_observe::probe::{Config, Host, NetSource, Sampler};
use millstream_testbed::guard::WorkerProgram;
use millstream_testbed::interrupt::Interrupt;

use super::WorkerProcess;
use super::message::{Answer, FarJob, FarSide, InterfaceBytes, Request};
use super::wire::{Receiver, Sender};
use crate::worker::{Command, Job, Reply, StackJob};
use crate::workload::{End, monotonic_ns};

/// Time between two looks for the worker's answers.
const LOOK: Duration = Duration::from_millis(10);
/// Longest silence of a client that has proved itself, while there is no load.
const IDLE: Duration = Duration::from_secs(30);

/// The far end of a run. Dropping it kills the worker.
struct Load {
    worker: WorkerProcess,
    sampler: Sampler,
    origin_ns: u64,
    interfaces: Vec<Interface>,
    /// The moment at which it ends, even if the runner still wants it.
    until: Instant,
}

/// Does what a client asks until it goes, and ends the load with it. The reason is why the server
/// ended it.
pub(super) fn session(
    (mut sender, mut receiver): (Sender, Receiver),
    program: &WorkerProgram,
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
            Ok(Ok(request)) => take(request, &mut load, program, &mut sender),
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(()),
            Ok(Err(error)) => break Err(error.to_string()),
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
    program: &WorkerProgram,
    sender: &mut Sender,
) -> io::Result<()> {
    let done = match (request, load.as_mut()) {
        (Request::Now, _) => return sender.send(&Answer::Now { at_ns: monotonic_ns() }),
        (Request::Begin(job), None) => begin(job, program).map(|begun| *load = Some(begun)),
        (Request::Begin(_), Some(_)) => Err("a run is going already".to_owned()),
        (Request::Listen { address }, Some(load)) => told(load, &Command::Listen { address }),
        (Request::Measure { begin_ns, end_ns }, Some(load)) => {
            told(load, &Command::Measure { begin_ns, end_ns })
        }
        _ => Err("nothing was begun".to_owned()),
    };
    match done {
        Ok(()) => Ok(()),
        Err(why) => refuse(sender, &why),
    }
}

fn told(load: &mut Load, command: &Command) -> Result<(), String> {
    load.worker.tell(command).map_err(|error| error.to_string())
}

fn begin(job: FarJob, program: &WorkerProgram) -> Result<Load, String> {
    job.check()?;
    let because = |error: millstream_record::error::Error| error.to_string();
    let (begun, origin_ns) = (Instant::now(), monotonic_ns());
    let mut config = Config::new(begun);
    config.hosts = vec![Host { name: "far".to_owned(), net: NetSource::Own }];
    let sampler = Sampler::start(config);
    let mut worker = WorkerProcess::start("far", program, None).map_err(because)?;
    if let Some(pid) = worker.pid() {
        sampler.watch_worker("far", pid);
    }
    let FarJob { task, buffer_bytes, congestion, most_s } = job;
    worker
        .tell(&Command::Start(Box::new(Job {
            end: Some(End::Far),
            task,
            stack: StackJob::Kernel,
            cpu: None,
            far_cpu: None,
            engine_cpu: None,
            far_engine_cpu: None,
            buffer_bytes,
            congestion,
            source: None,
        })))
        .map_err(because)?;
    let until = begun + Duration::from_secs_f64(most_s);
    Ok(Load { worker, sampler, origin_ns, interfaces: interfaces(), until })
}

/// Passes on what the worker says, and ends the load of one that has failed.
fn tell(load: &mut Option<Load>, sender: &mut Sender) -> io::Result<()> {
    while let Some(begun) = load {
        match begun.worker.answer() {
            Ok(Some(reply)) => sender.send(&Answer::Worker(Box::new(reply)))?,
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

fn finish(load: Load) -> FarSide {
    let Load { worker, sampler, origin_ns, interfaces: before, .. } = load;
    drop(worker.leave());
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
