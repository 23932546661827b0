//! The steps that the workers of a run are led through: prepared, connected, measured.

use std::net::IpAddr;
use std::time::Duration;

use millstream_load::remote::WorkerProcess;
use millstream_load::worker::{Command, EndReport, Job, Reply, Report};
use millstream_load::workload::{Ports, monotonic_ns};
use millstream_observe::environment;
use millstream_observe::probe::{Absent, IdleReading};
use millstream_record::error::Error;
use millstream_record::{IdleCpu, RunRecord};

use super::Run;
use crate::limits;
use crate::runner::machine::{MachineTime, MachineUse};
use crate::runner::still;

/// The measurements of the window.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) ends: Vec<EndReport>,
    pub(super) rivals: Vec<EndReport>,
    pub(super) machine: Option<MachineUse>,
    /// Idle states over the same window.
    pub(super) idle: Option<Result<Vec<IdleCpu>, Absent>>,
    /// Seconds of the window for which each worker stood still.
    pub(super) still: Vec<(&'static str, f64)>,
    /// Delay from the edges of the window until the runner has read the machine's counters, in
    /// seconds.
    pub(super) late_s: f64,
    pub(super) near_cpu_s: f64,
    pub(super) far_cpu_s: f64,
}

impl Run<'_> {
    pub(super) fn prepare(
        &self,
        worker: &mut WorkerProcess,
        job: Job,
        inode: u64,
        record: &mut RunRecord,
    ) -> Result<(), Error> {
        self.prepare_by(worker, &Command::Start(Box::new(job)), inode, record)
    }

    /// Prepares a worker by the command that says what it is to be.
    pub(super) fn prepare_by(
        &self,
        worker: &mut WorkerProcess,
        command: &Command,
        inode: u64,
        record: &mut RunRecord,
    ) -> Result<(), Error> {
        worker.tell(command)?;
        match worker.hear(limits::STEP_TIMEOUT_MS, self.interrupt())? {
            Reply::Prepared { notes, namespace_inode } => {
                // A worker lifts its own: each connection of the kernel's takes a file.
                record.notes.extend(notes);
                // One elsewhere is in a namespace of another machine.
                let Some(pid) = worker.pid() else { return Ok(()) };
                let files = environment::open_files_limit(&pid.to_string());
                let fact = format!("{}.process.open_files_limit", worker.role());
                record.environment.record(&fact, files);
                if namespace_inode != inode {
                    record.validity.reject("a worker was not in its host's network namespace");
                }
                Ok(())
            }
            other => Err(worker.out_of_turn(&other)),
        }
    }

    pub(super) fn listen(
        &self,
        worker: &mut WorkerProcess,
        address: IpAddr,
    ) -> Result<Ports, Error> {
        worker.tell(&Command::Listen { address })?;
        match worker.hear(limits::STEP_TIMEOUT_MS, self.interrupt())? {
            Reply::Listening { ports } => Ok(ports),
            other => Err(worker.out_of_turn(&other)),
        }
    }

    pub(super) fn connect(
        &self,
        worker: &mut WorkerProcess,
        address: IpAddr,
        ports: Ports,
    ) -> Result<(), Error> {
        worker.tell(&Command::Connect { address, ports })?;
        match worker.hear(limits::STEP_TIMEOUT_MS, self.interrupt())? {
            Reply::Connected => Ok(()),
            other => Err(worker.out_of_turn(&other)),
        }
    }

    /// Warm-up and window; then the workers end the workload and report. The first worker is the
    /// near one, the second the far one; others are its rivals.
    pub(super) fn measure(&self, workers: &mut [&mut WorkerProcess]) -> Result<Measured, Error> {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let lead_ns = limits::LEAD_MS * 1_000_000;
        let begin_ns = monotonic_ns() + lead_ns + ns(self.definition.warmup_s);
        let end_ns = begin_ns + ns(self.definition.duration_s);
        for worker in workers.iter_mut() {
            worker.tell(&Command::Measure { begin_ns, end_ns })?;
        }
        self.watch_until(begin_ns, workers)?;
        let begin = MachineTime::now();
        let idle = IdleReading::now();
        let late_at = |edge_ns: u64| monotonic_ns().saturating_sub(edge_ns) as f64 / 1e9;
        let late_s = late_at(begin_ns);
        self.watch_until(end_ns, workers)?;
        let end = MachineTime::now();
        let machine = end.zip(begin).map(|(end, begin)| end.since(&begin));
        let idle = idle.and_then(|begin| Ok(IdleReading::now()?.since(&begin)));
        let mut measured = Measured { machine, idle: Some(idle), ..Measured::default() };
        measured.late_s = late_s.max(late_at(end_ns));
        if measured.late_s > still::most_s(self.definition.duration_s) {
            let missed = Absent("the runner stood still at an edge of the window".to_owned());
            (measured.machine, measured.idle) = (None, Some(Err(missed)));
        }
        for (at, report) in self.reports(workers)?.into_iter().enumerate() {
            let still = report.ends.iter().map(|end| still::of_readings(&end.samples, begin_ns));
            measured.still.push((workers[at].role(), still.fold(0.0, f64::max)));
            match at {
                0 => measured.near_cpu_s = report.cpu_s,
                1 => measured.far_cpu_s = report.cpu_s,
                _ => {}
            }
            let ends = if at < 2 { &mut measured.ends } else { &mut measured.rivals };
            ends.extend(report.ends);
        }
        Ok(measured)
    }

    /// Returns the reports of the workers, in their order. A slow path takes its time to carry the
    /// data that were sent, so workers may take as long as some data arrive, within limits.
    fn reports(&self, workers: &mut [&mut WorkerProcess]) -> Result<Vec<Report>, Error> {
        // As `WorkerProcess::hear` counts time.
        let (mut silent_ms, mut waited_ms) = (0, 0);
        let mut reports: Vec<Option<Report>> = workers.iter().map(|_| None).collect();
        while let Some(missing) = reports.iter().position(Option::is_none) {
            self.interrupt().check()?;
            if silent_ms >= limits::FINISH_TIMEOUT_MS || waited_ms >= limits::FINISH_LIMIT_MS {
                return Err(workers[missing].failed("does not finish after the window"));
            }
            for (worker, report) in workers.iter_mut().zip(&mut reports) {
                if report.is_some() {
                    continue;
                }
                match worker.answer()? {
                    None => {}
                    Some(Reply::Draining) => silent_ms = 0,
                    Some(Reply::Done(done)) => *report = Some(*done),
                    Some(other) => return Err(worker.out_of_turn(&other)),
                }
            }
            std::thread::sleep(Duration::from_millis(limits::LOOK_MS));
            silent_ms += limits::LOOK_MS;
            waited_ms += limits::LOOK_MS;
        }
        Ok(reports.into_iter().flatten().collect())
    }

    /// Sleeps until then; a worker that dies or gives up meanwhile ends the run at once.
    fn watch_until(&self, at_ns: u64, workers: &mut [&mut WorkerProcess]) -> Result<(), Error> {
        loop {
            self.interrupt().check()?;
            for worker in workers.iter_mut() {
                worker.still_at_work()?;
            }
            let left = at_ns.saturating_sub(monotonic_ns());
            if left == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_nanos(left.min(limits::WATCH_MS * 1_000_000)));
        }
    }
}
