//! The process that does the traffic of one run: started by the runner inside
//! a host's namespace, told what to do by lines of JSON on its standard input,
//! answering by lines of JSON on its standard output. Near and far ends never
//! agree about anything over the network under test.
//!
//! The main thread waits for commands and reads the counters on time; the
//! traffic is the matter of one data thread per end.

mod data;
mod protocol;
mod router;
mod sampling;
mod stack;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use data::DataThread;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::getppid;
pub use protocol::{
    Command, EndReport, Engine, Job, Latency, MillstreamJob, MillstreamLink, Reply, Report,
    RouterJob, RouterReport, Sample, StackJob,
};
use router::RouterThread;

use crate::workload::End;

/// The worker's whole life. `parent` is the process that started it: when that
/// is gone, now or later, the worker is killed by the kernel.
#[expect(clippy::disallowed_macros, reason = "its parent reads the standard error, and shows it")]
pub fn main(parent: u32) -> ExitCode {
    if let Err(error) = prctl::set_pdeathsig(Signal::SIGKILL) {
        eprintln!("millstream worker: cannot tie its life to its parent: {error}");
        return ExitCode::FAILURE;
    }
    if getppid().as_raw() as u32 != parent {
        return ExitCode::FAILURE;
    }
    may_open_files();
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = answer(&Reply::Failed { why });
            ExitCode::FAILURE
        }
    }
}

/// A connection of the kernel's takes a descriptor: the limit that a shell gives is below what
/// `streams` allows. Where no more is permitted, a connection that cannot be made says so.
pub fn may_open_files() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

fn answer(reply: &Reply) -> Result<(), String> {
    let mut line = serde_json::to_string(reply).map_err(|error| error.to_string())?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// The data threads of this process: one end, or both over the in-memory link.
struct Ends {
    near: Option<DataThread>,
    far: Option<DataThread>,
}

impl Ends {
    fn all(&self) -> impl Iterator<Item = &DataThread> {
        self.near.iter().chain(&self.far)
    }

    fn of(&self, end: End) -> Result<&DataThread, String> {
        let thread = if end == End::Near { &self.near } else { &self.far };
        thread.as_ref().ok_or_else(|| format!("this worker has no {end:?} end"))
    }
}

fn serve() -> Result<(), String> {
    let mut ends = Ends { near: None, far: None };
    let mut router = None;
    for line in io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| error.to_string())?;
        let command = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
        match command {
            Command::Start(job) => {
                let notes = start(&mut ends, *job)?;
                answer(&prepared(notes)?)?;
            }
            Command::Route(job) => {
                let (thread, notes) = RouterThread::start(*job)?;
                router = Some(thread);
                answer(&prepared(notes)?)?;
            }
            Command::EndRoute => {
                let thread: &RouterThread = router.as_ref().ok_or("this worker is no router")?;
                answer(&Reply::Routed(Box::new(thread.end()?)))?;
            }
            Command::Listen { address } => {
                let far = ends.of(End::Far)?;
                far.listen(address)?;
                answer(&Reply::Listening { ports: far.listening()? })?;
                if ends.near.is_none() {
                    far.connected()?;
                    answer(&Reply::Connected)?;
                }
            }
            Command::Connect { address, ports } => {
                ends.of(End::Near)?.connect(address, ports)?;
                for end in ends.all() {
                    end.connected()?;
                }
                answer(&Reply::Connected)?;
            }
            Command::Measure { begin_ns, end_ns } => {
                let report = measure(&ends, begin_ns, end_ns)?;
                answer(&Reply::Done(Box::new(report)))?;
            }
            Command::Leave => return Ok(()),
        }
    }
    Err("the runner has gone".to_owned())
}

fn prepared(notes: Vec<String>) -> Result<Reply, String> {
    let inode =
        millstream_testbed::namespace::current_inode().map_err(|error| error.to_string())?;
    Ok(Reply::Prepared { notes, namespace_inode: inode })
}

fn start(ends: &mut Ends, job: Job) -> Result<Vec<String>, String> {
    let threads = data::start(job)?;
    let mut notes = Vec::new();
    for thread in threads {
        notes.extend(thread.prepared()?);
        match thread.end {
            End::Near => ends.near = Some(thread),
            End::Far => ends.far = Some(thread),
        }
    }
    Ok(notes)
}

fn measure(ends: &Ends, begin_ns: u64, end_ns: u64) -> Result<Report, String> {
    for end in ends.all() {
        end.progress.set_window(begin_ns, end_ns);
    }
    let counters: Vec<_> = ends.all().map(|end| end.progress.clone()).collect();
    let failed = || ends.all().find_map(DataThread::failure).map_or(Ok(()), Err);
    let taken = sampling::sample(&counters, begin_ns, end_ns, failed)?;
    counters.iter().for_each(|progress| progress.stop());
    let mut reports = Vec::new();
    let counts = || counters.iter().map(|progress| progress.counts()).collect::<Vec<_>>();
    let mut told = counts();
    let mut tell_of_progress = || match std::mem::replace(&mut told, counts()) == told {
        true => Ok(()),
        false => answer(&Reply::Draining),
    };
    for (at, thread) in ends.all().enumerate() {
        let finished = thread.finished(&mut tell_of_progress)?;
        reports.push(EndReport {
            end: thread.end,
            samples: taken.samples.iter().map(|sample| sample.of(at)).collect(),
            totals: thread.progress.counts(),
            latency: finished.outcome.latency_ns.as_ref().map(Latency::of),
            received_by: match taken.samples.as_slice() {
                [first, .., last] => sampling::received_between(first, last, at),
                _ => Vec::new(),
            },
            tcp_info: finished.outcome.tcp_info,
            sending: finished.outcome.sending,
            whereabouts: finished.outcome.whereabouts,
            counters: finished.outcome.counters,
            wrong: finished.outcome.wrong,
            link: finished.link,
            engine: finished.engine,
            notes: finished.notes,
        });
    }
    Ok(Report { ends: reports, cpu_s: taken.cpu_s })
}
