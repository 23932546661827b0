//! The thread that does the traffic of one end.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use millstream::link::{Link, PairEnd};
use millstream_link::sys::pin_current_thread;
use millstream_plan::Task;
use millstream_record::EngineRecord;

use super::protocol::{Job, StackJob};
use super::stack::{self, Opened, SocketOptions};
use crate::limits;
use crate::transport::LinkBytes;
use crate::workload::{self, End, Outcome, Ports, Progress};

/// An order of the main thread to a data thread.
enum Step {
    Listen(IpAddr),
    Connect(IpAddr, Ports),
}

/// An answer of a data thread.
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
    pub(super) engine: Option<EngineRecord>,
    pub(super) notes: Vec<String>,
}

/// One end, seen from the main thread.
pub(super) struct DataThread {
    pub(super) end: End,
    pub(super) progress: Arc<Progress>,
    steps: Sender<Step>,
    told: Receiver<Told>,
    /// An answer that came before it was asked for.
    early: RefCell<Option<Told>>,
}

impl DataThread {
    /// Starts an end; `open` makes its stack, inside the new thread.
    fn spawn(end: End, task: Task, cpu: Option<usize>, open: Open) -> Result<Self, String> {
        let progress = Arc::new(Progress::default());
        let shared = progress.clone();
        let (steps, inbox) = channel();
        let (teller, told) = channel();
        let body = move || {
            let opened = pin(cpu).and_then(|()| open());
            let (last, mut kept) = match opened {
                Err(why) => (Told::Failed(why), None),
                Ok(mut stack) => match live((end, task), &mut stack, &inbox, &teller, &shared) {
                    Err(why) => (Told::Failed(why), Some(stack)),
                    Ok(finished) => (Told::Finished(Box::new(finished)), Some(stack)),
                },
            };
            let _ = teller.send(last);
            // The link stays, with its counters, until the runner has read them; and the stack has
            // its turns, for a path may have lost its last words.
            let wait = Duration::from_millis(limits::AFTERLIFE_TURN_MS);
            while let (Some(stack), Err(RecvTimeoutError::Timeout)) =
                (&mut kept, inbox.recv_timeout(wait))
            {
                stack.network.finish(wait);
            }
            drop(kept);
        };
        std::thread::Builder::new()
            .name(if end == End::Near { "near-data".into() } else { "far-data".into() })
            .spawn(body)
            .map_err(|error| error.to_string())?;
        Ok(Self { end, progress, steps, told, early: RefCell::new(None) })
    }

    /// Returns the reason why the thread has given up, when it has. Does not wait.
    pub(super) fn failure(&self) -> Option<String> {
        if self.early.borrow().is_some() {
            return None;
        }
        match self.told.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(panicked()),
            Ok(Told::Failed(why)) => Some(why),
            Ok(told) => {
                *self.early.borrow_mut() = Some(told);
                None
            }
        }
    }

    fn hear(&self) -> Result<Told, String> {
        if let Some(told) = self.early.take() {
            return Ok(told);
        }
        match self.told.recv() {
            Ok(Told::Failed(why)) => Err(why),
            Ok(told) => Ok(told),
            Err(_) => Err(panicked()),
        }
    }

    fn hear_within(&self, wait: Duration) -> Result<Option<Told>, String> {
        if let Some(told) = self.early.take() {
            return Ok(Some(told));
        }
        match self.told.recv_timeout(wait) {
            Ok(Told::Failed(why)) => Err(why),
            Ok(told) => Ok(Some(told)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(panicked()),
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

    /// Waits for the end of the workload; `meanwhile` is called now and then. The stack stays open
    /// until this is dropped.
    pub(super) fn finished(
        &self,
        mut meanwhile: impl FnMut() -> Result<(), String>,
    ) -> Result<Finished, String> {
        loop {
            match self.hear_within(Duration::from_millis(limits::NEWS_MS))? {
                Some(Told::Finished(finished)) => return Ok(*finished),
                Some(_) => return Err(out_of_turn()),
                None => meanwhile()?,
            }
        }
    }
}

fn panicked() -> String {
    "the data thread panicked".to_owned()
}

fn out_of_turn() -> String {
    "a step of the workload came out of turn".to_owned()
}

type Open = Box<dyn FnOnce() -> Result<Opened, String> + Send>;

fn live(
    (session_end, task): (End, Task),
    opened: &mut Opened,
    steps: &Receiver<Step>,
    teller: &Sender<Told>,
    progress: &Progress,
) -> Result<Finished, String> {
    let network = opened.network.as_mut();
    let tell = |told| teller.send(told).map_err(|_| "the main thread has gone".to_owned());
    let failed = |what: &str, error: std::io::Error| format!("cannot {what}: {error}");
    tell(Told::Prepared(opened.notes.clone()))?;
    let session = match steps.recv().map_err(|_| out_of_turn())? {
        Step::Listen(address) => {
            let listening = workload::listen(task, network, address)
                .map_err(|e| failed(&format!("listen at {address}"), e))?;
            tell(Told::Listening(listening.ports.clone()))?;
            listening.accept(network).map_err(|e| failed("accept", e))?
        }
        Step::Connect(address, ports) => workload::connect(task, network, address, &ports)
            .map_err(|e| failed(&format!("connect to {address}"), e))?,
    };
    tell(Told::Connected)?;
    let mut outcome = session.run(network, progress).map_err(|e| failed("move data", e))?;
    for info in &mut outcome.tcp_info {
        info.stack = opened.stack.to_owned();
    }
    let engine = network.engine().map(|mut engine| {
        let end = if session_end == End::Near { "near" } else { "far" };
        engine.role = end.to_owned();
        engine
    });
    network.finish(Duration::from_millis(limits::LINGER_MS));
    let mut notes = network.notes();
    // Most of what links note they said when they were opened.
    let remarks = engine.iter().flat_map(EngineRecord::remarks);
    notes.extend(remarks.filter(|remark| !opened.notes.contains(remark)));
    Ok(Finished { outcome, link: network.link_bytes(), engine, notes })
}

/// Starts the ends that the job asks for.
pub(super) fn start(job: Job) -> Result<Vec<DataThread>, String> {
    let Job { end, task, stack: wanted, cpu, far_cpu, .. } = job;
    let Job { engine_cpu, far_engine_cpu, buffer_bytes, congestion, source, .. } = job;
    let options = SocketOptions { buffer_bytes, congestion, source };
    match (wanted, end) {
        (StackJob::Kernel, Some(end)) => {
            let open: Open = Box::new(move || stack::kernel(&options));
            Ok(vec![DataThread::spawn(end, task, cpu, open)?])
        }
        (StackJob::Kernel, None) => Err("the kernel has no in-memory link".to_owned()),
        (StackJob::Millstream(job), Some(end)) => {
            let open: Open = Box::new(move || stack::one_end(&job, engine_cpu, &options));
            Ok(vec![DataThread::spawn(end, task, cpu, open)?])
        }
        (StackJob::Millstream(job), None) => {
            let (near, far) = stack::memory(&job)?;
            let open = |link: PairEnd, addresses: Vec<(IpAddr, u8)>, engine_cpu| -> Open {
                let (job, options) = (job.clone(), options.clone());
                Box::new(move || {
                    let link = (Box::new(link) as Box<dyn Link>, stack::pool()?);
                    stack::millstream(link, &addresses, &job, engine_cpu, &options, Vec::new())
                })
            };
            let near = open(near, job.addresses.clone(), engine_cpu);
            let far = open(far, job.far_addresses.clone(), far_engine_cpu);
            Ok(vec![
                DataThread::spawn(End::Near, task.clone(), cpu, near)?,
                DataThread::spawn(End::Far, task, far_cpu, far)?,
            ])
        }
    }
}

/// Keeps the calling thread, and those it starts, on one CPU.
pub(super) fn pin(cpu: Option<usize>) -> Result<(), String> {
    let Some(cpu) = cpu else { return Ok(()) };
    pin_current_thread(cpu).map_err(|error| format!("cannot run on CPU {cpu}: {error}"))
}
