//! The thread that does the traffic of one end.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::protocol::{Job, LinkBytes, StackJob};
use crate::limits;
use crate::transport::{KernelNetwork, Network};
use crate::workload::{End, Outcome, Ports, Progress, Task};

/// What the main thread tells a data thread.
enum Step {
    Listen(IpAddr),
    Connect(IpAddr, Ports),
}

/// What a data thread tells.
enum Told {
    Prepared(Vec<String>),
    Listening(Ports),
    Connected,
    Finished(Box<Finished>),
    Failed(String),
}

/// The end of a data thread.
pub(super) struct Finished {
    pub(super) outcome: Outcome,
    pub(super) link: Option<LinkBytes>,
    pub(super) notes: Vec<String>,
}

/// One end, seen from the main thread.
pub(super) struct DataThread {
    pub(super) end: End,
    pub(super) progress: Arc<Progress>,
    steps: Sender<Step>,
    told: Receiver<Told>,
    thread: JoinHandle<()>,
}

impl DataThread {
    /// Starts an end; `open` makes its stack, inside the new thread.
    fn spawn(end: End, task: Task, cpu: Option<usize>, open: Open) -> Result<Self, String> {
        let progress = Arc::new(Progress::default());
        let shared = progress.clone();
        let (steps, inbox) = channel();
        let (teller, told) = channel();
        let body = move || {
            let life = || -> Result<Finished, String> {
                pin(cpu)?;
                let mut stack = open()?;
                live(task, &mut stack, &inbox, &teller, &shared)
            };
            let last = life().map_or_else(Told::Failed, |f| Told::Finished(Box::new(f)));
            let _ = teller.send(last);
        };
        let thread = std::thread::Builder::new()
            .name(if end == End::Near { "near-data".into() } else { "far-data".into() })
            .spawn(body)
            .map_err(|error| error.to_string())?;
        Ok(Self { end, progress, steps, told, thread })
    }

    fn hear(&self) -> Result<Told, String> {
        match self.told.recv() {
            Ok(Told::Failed(why)) => Err(why),
            Ok(told) => Ok(told),
            Err(_) => Err("the data thread panicked".to_owned()),
        }
    }

    pub(super) fn prepared(&self) -> Result<Vec<String>, String> {
        match self.hear()? {
            Told::Prepared(notes) => Ok(notes),
            _ => Err(out_of_turn()),
        }
    }

    pub(super) fn listen(&self, address: IpAddr) -> Result<(), String> {
        self.steps.send(Step::Listen(address)).map_err(|_| out_of_turn())
    }

    pub(super) fn listening(&self) -> Result<Ports, String> {
        match self.hear()? {
            Told::Listening(ports) => Ok(ports),
            _ => Err(out_of_turn()),
        }
    }

    pub(super) fn connect(&self, address: IpAddr, ports: Ports) -> Result<(), String> {
        self.steps.send(Step::Connect(address, ports)).map_err(|_| out_of_turn())
    }

    pub(super) fn connected(&self) -> Result<(), String> {
        match self.hear()? {
            Told::Connected => Ok(()),
            _ => Err(out_of_turn()),
        }
    }

    /// Waits for the end of the workload.
    pub(super) fn finish(self) -> Result<Finished, String> {
        let finished = match self.hear()? {
            Told::Finished(finished) => *finished,
            _ => return Err(out_of_turn()),
        };
        self.thread.join().map_err(|_| "the data thread panicked".to_owned())?;
        Ok(finished)
    }
}

fn out_of_turn() -> String {
    "a step of the workload came out of turn".to_owned()
}

/// A stack and what can be asked of it besides traffic.
struct Opened {
    network: Box<dyn Network>,
    stack: &'static str,
    notes: Vec<String>,
}

type Open = Box<dyn FnOnce() -> Result<Opened, String> + Send>;

fn live(
    task: Task,
    opened: &mut Opened,
    steps: &Receiver<Step>,
    teller: &Sender<Told>,
    progress: &Progress,
) -> Result<Finished, String> {
    let network = opened.network.as_mut();
    let tell = |told| teller.send(told).map_err(|_| "the main thread has gone".to_owned());
    let failed = |what: &str, error: std::io::Error| format!("cannot {what}: {error}");
    tell(Told::Prepared(std::mem::take(&mut opened.notes)))?;
    let session = match steps.recv().map_err(|_| out_of_turn())? {
        Step::Listen(address) => {
            let listening = task
                .listen(network, address)
                .map_err(|e| failed(&format!("listen at {address}"), e))?;
            tell(Told::Listening(listening.ports))?;
            listening.accept(network).map_err(|e| failed("accept", e))?
        }
        Step::Connect(address, ports) => task
            .connect(network, address, ports)
            .map_err(|e| failed(&format!("connect to {address}"), e))?,
    };
    tell(Told::Connected)?;
    let mut outcome = session.run(network, progress).map_err(|e| failed("move data", e))?;
    for info in &mut outcome.tcp_info {
        info.stack = opened.stack.to_owned();
    }
    network.finish(Duration::from_millis(limits::LINGER_MS));
    Ok(Finished { outcome, link: network.link_bytes(), notes: network.notes() })
}

/// Starts the ends that the job asks for.
pub(super) fn start(job: Job) -> Result<Vec<DataThread>, String> {
    let Job { end, task, stack, cpu, far_cpu: _, buffer_bytes } = job;
    match (stack, end) {
        (StackJob::Kernel, Some(end)) => {
            let open: Open = Box::new(move || {
                let mut network = KernelNetwork::new().map_err(|error| error.to_string())?;
                network.set_buffers(buffer_bytes);
                Ok(Opened { network: Box::new(network), stack: "kernel", notes: Vec::new() })
            });
            Ok(vec![DataThread::spawn(end, task, cpu, open)?])
        }
        (StackJob::Kernel, None) => Err("the kernel has no in-memory link".to_owned()),
        (StackJob::Millstream(_), _) => Err("not yet".to_owned()),
    }
}

/// Keeps the calling thread, and those it starts, on one CPU.
pub(super) fn pin(cpu: Option<usize>) -> Result<(), String> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|error| format!("cannot run on CPU {cpu}: {error}"))
}
