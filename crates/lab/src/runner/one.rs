//! One run, from the making of its hosts to its record.

mod asked;
mod elsewhere;
mod idle;
mod impaired;
mod routed;
mod steps;

use std::time::{Duration, Instant};

use millstream_load::remote::WorkerProcess;
use millstream_load::worker::{MillstreamLink, Reply, StackJob};
use millstream_load::workload::{End, monotonic_ns};
use millstream_netlink::Interface;
use millstream_observe::probe::{self, NetSource, Sampler};
use millstream_plan::{Definition, PlannedRun};
use millstream_testbed::hosts::{
    Between, Counters, Hosts, HostsConfig, NEAR_INTERFACE, Path, TAP_INTERFACE,
};
use millstream_testbed::integrity;
use millstream_testbed::leftovers::Claim;

use super::again::{Again, until_fit};
use super::distance::{Around, Distances};
use super::{Interrupt, Setting, given_back, results, still};
use crate::limits;
pub(super) use asked::two_cpus;
use asked::{Link, on_this_host, overridden_control, path_seed, placement};
use idle::IdleLimit;
use millstream_record::error::Error;
use millstream_record::{ExperimentRecord, PathProof, Probes, RunRecord, Timestamp};
use steps::Measured;

/// A run that is to be done, and where.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub planned: &'a PlannedRun,
    pub definition: &'a Definition,
    pub experiment: &'a ExperimentRecord,
    pub setting: &'a Setting,
    /// The label in the names of the experiment's namespaces and devices.
    pub label: &'a str,
}

/// Does one planned run, again if its path was late or its CPUs were apart. A failure of the run is
/// a record that says so; an error is what ends the experiment: an interrupt or the loss of the
/// marker.
pub(super) fn execute(
    order: &Order<'_>,
    distances: &mut Distances,
    claim: &mut Claim,
) -> Result<RunRecord, Error> {
    let impaired = order.planned.configuration.level("path") == "impaired";
    let mut first = true;
    let (mut record, repeats) = until_fit(|| {
        if !std::mem::take(&mut first) {
            claim.forget_workers()?;
        }
        attempt(order, distances, claim)
    })?;
    if impaired {
        record.results.insert("path_late_repeats".to_owned(), f64::from(repeats));
    }
    Ok(record)
}

/// Does it once, and tells what speaks against it.
fn attempt(
    order: &Order<'_>,
    distances: &mut Distances,
    claim: &mut Claim,
) -> Result<(RunRecord, Option<Again>), Error> {
    let mut record = begun(order);
    let mut run = Run::new(order, claim);
    run.record_placement(&mut record);
    let (steady, interrupt) = (order.definition.steady_cpus, &order.setting.interrupt);
    let cpus = run.cpus_between();
    let around = cpus.map(|cpus| Around::begin(distances, cpus, steady, interrupt));
    let around = around.transpose()?;
    run.starts_now(&mut record);
    let configuration = &order.planned.configuration;
    let idle = IdleLimit::hold(configuration.level("idle_latency_us"));
    let done = match run.link() {
        Link::There => run.between_addresses(&mut record),
        Link::Path(Path::Impaired) => run.over_impaired(&mut record),
        Link::Path(path) => run.between_hosts(path, &mut record),
        Link::Macvtap => run.between_hosts(Path::Veth, &mut record),
        Link::Routed(routed) => run.by_router(routed, &mut record),
        Link::Memory => run.in_memory(&mut record),
    };
    idle.record(&mut record);
    record.duration_s = run.origin.elapsed().as_secs_f64();
    let late = run.path_was_late.take().map(Again::PathLate);
    match done {
        Ok(()) => {}
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(error) => record.validity.reject(error.to_string()),
    }
    if record.probes.budget.is_some() {
        record.validity.reject(crate::limits::BUDGETED);
    }
    let apart = around.and_then(|around| around.end(&mut record));
    given_back::after(&mut record, cpus);
    Ok((record, late.or(apart)))
}

/// The record of a run that has not begun: what it is, and its settings.
fn begun(order: &Order<'_>) -> RunRecord {
    let Order { planned, experiment, .. } = *order;
    let configuration = &planned.configuration;
    let mut record = RunRecord::new(experiment.run_id(planned.order));
    record.experiment_id.clone_from(&experiment.id);
    record.experiment.clone_from(&experiment.name);
    record.workload = configuration.workload.name().to_owned();
    record.stack.clone_from(&configuration.stack);
    record.factors.clone_from(&configuration.named);
    record.seed = planned.seed;
    record.block = planned.block;
    record.order = planned.order;
    for (name, level) in &configuration.settings {
        record.environment.set(format!("setting.{name}"), level);
    }
    record
}

struct Run<'a> {
    planned: &'a PlannedRun,
    definition: &'a Definition,
    setting: &'a Setting,
    label: &'a str,
    claim: &'a mut Claim,
    origin: Instant,
    origin_ns: u64,
    cpus: (Option<usize>, Option<usize>),
    path_seed: u64,
    /// The reason why the run is to be made again.
    path_was_late: Option<String>,
}

impl<'a> Run<'a> {
    fn new(order: &Order<'a>, claim: &'a mut Claim) -> Self {
        let Order { planned, definition, experiment, setting, label } = *order;
        Self {
            planned,
            definition,
            setting,
            label,
            claim,
            origin: Instant::now(),
            origin_ns: monotonic_ns(),
            cpus: on_this_host(
                placement(planned.configuration.level("placement")),
                &setting.places,
            ),
            path_seed: path_seed(experiment.seed, planned.block),
            path_was_late: None,
        }
    }

    /// The zero of its times is now: waiting for CPUs is no part of it.
    fn starts_now(&mut self, record: &mut RunRecord) {
        (self.origin, self.origin_ns) = (Instant::now(), monotonic_ns());
        record.started_at = Timestamp::now();
    }

    fn record_placement(&self, record: &mut RunRecord) {
        record.notes.extend(self.vain_super_segments());
        let any = |cpu: Option<usize>| cpu.map_or("any".to_owned(), |cpu| cpu.to_string());
        if self.has_engine_thread() {
            record.environment.set("placement.engine_cpu", any(self.engine_cpu(End::Near)));
        }
        if self.far_is_millstream() {
            let threaded = self.has_engine_thread();
            record.environment.set("placement.far_engine", if threaded { "net" } else { "local" });
            if threaded {
                record.environment.set("placement.far_engine_cpu", any(self.engine_cpu(End::Far)));
            }
        }
        record.environment.set("setting.link", self.link().name());
        for (host, cpu) in [("near", self.cpus.0), ("far", self.cpus.1)] {
            record.environment.set(format!("placement.{host}_cpu"), any(cpu));
        }
    }

    fn interrupt(&self) -> &Interrupt {
        &self.setting.interrupt
    }

    /// Returns the configuration of the probes of this run.
    fn probe_config(&self) -> probe::Config {
        let mut config = probe::Config::new(self.origin);
        let lasts_s = self.definition.warmup_s + self.definition.duration_s;
        let interval_s = lasts_s / f64::from(limits::PROBE_STEPS);
        config.interval = config.interval.max(Duration::from_secs_f64(interval_s));
        config.distance = self.cpus_watched();
        config.queues = self.planned.configuration.workload.is_watched();
        config.budget = self.definition.budget && self.planned.block + 1 == self.definition.repeats;
        config
    }

    fn sampler(&self, hosts: Option<&Hosts>) -> Sampler {
        let mut config = self.probe_config();
        if let Some(hosts) = hosts {
            let router = hosts.router().map(|router| ("router", router));
            for (name, host) in
                [("near", hosts.near()), ("far", hosts.far())].into_iter().chain(router)
            {
                let net = NetSource::Namespace(host.path().to_owned());
                config.hosts.push(probe::Host { name: name.to_owned(), net });
            }
        }
        Sampler::start(config)
    }

    /// Returns whether its workers have a high priority.
    fn is_raised(&self) -> bool {
        self.planned.configuration.level("priority") == "high"
    }

    fn worker(
        &mut self,
        role: &'static str,
        host: Option<&millstream_testbed::namespace::Namespace>,
        sampler: &Sampler,
    ) -> Result<WorkerProcess, Error> {
        let worker = WorkerProcess::start(role, &self.setting.program, host)?;
        if let Some(pid) = worker.pid() {
            self.claim.note_worker(pid)?;
            if self.is_raised() {
                millstream_testbed::priority::raise(Some(pid)).map_err(Error::Worker)?;
            }
            sampler.watch_worker(role, pid);
        }
        Ok(worker)
    }

    fn hosts(&self, between: Between, record: &mut RunRecord) -> Result<Hosts, Error> {
        let (mtu, offload) = (self.mtu(), self.offload());
        let super_segment_bytes = self.super_segment_bytes();
        let config = HostsConfig { mtu, offload, super_segment_bytes, between };
        let hosts = Hosts::set_up(self.label, config)?;
        for (name, value) in hosts.settings() {
            record.environment.set(name, value);
        }
        record.notes.extend(hosts.notes().iter().cloned());
        let systems = record.environment.get("near.sysctl.net.ipv4.tcp_congestion_control");
        let systems = systems.filter(|_| !self.task().plan().is_of_datagrams());
        let note =
            systems.and_then(|systems| overridden_control(&self.planned.configuration, systems));
        record.notes.extend(note);
        Ok(hosts)
    }

    /// The near stack on its host, the far kernel on the other.
    fn between_hosts(&mut self, path: Path, record: &mut RunRecord) -> Result<(), Error> {
        let hosts = self.hosts(Between::Veth, record)?;
        let sampler = self.sampler(Some(&hosts));
        let mut near = self.worker("near", Some(hosts.near()), &sampler)?;
        let mut far = self.worker("far", Some(hosts.far()), &sampler)?;
        let link = match self.link() {
            Link::Path(Path::Tap) => {
                let namespace = hosts.far().path().to_owned();
                Some(MillstreamLink::Tap { namespace, name: TAP_INTERFACE.to_owned() })
            }
            Link::Macvtap => Some(MillstreamLink::Macvtap { interface: NEAR_INTERFACE.to_owned() }),
            _ => None,
        };
        let stack = link.map_or(StackJob::Kernel, |link| self.millstream(link, path, 1));
        let near_job = self.job(Some(End::Near), stack);
        let far_job = self.job(Some(End::Far), StackJob::Kernel);
        self.prepare(&mut near, near_job, hosts.near().inode(), record)?;
        self.prepare(&mut far, far_job, hosts.far().inode(), record)?;
        if path == Path::Tap {
            hosts.configure_tap()?;
        }
        let before = hosts.counters()?;
        let address = path.far_address(self.v6());
        let ports = self.listen(&mut far, address)?;
        self.connect(&mut near, address, ports)?;
        match far.hear(limits::STEP_TIMEOUT_MS, self.interrupt())? {
            Reply::Connected => {}
            other => return Err(far.out_of_turn(&other)),
        }
        let measured = self.measure(&mut [&mut near, &mut far])?;
        let after = hosts.counters()?;
        near.leave();
        far.leave();
        let probes = sampler.stop();
        let same_link = (path == Path::Veth).then_some(NEAR_INTERFACE);
        let proof = integrity::check(
            results::claim(self.task().plan(), &measured.ends),
            &before,
            &after,
            path.far_interface(),
            same_link,
        );
        self.fill(record, measured, proof, probes);
        Ok(())
    }

    /// Millstream at both ends of the in-memory link, in one process.
    fn in_memory(&mut self, record: &mut RunRecord) -> Result<(), Error> {
        let sampler = self.sampler(None);
        let mut both = self.worker("both", None, &sampler)?;
        let job = self.job(None, self.millstream(MillstreamLink::Pair, Path::Tap, 1));
        let inode = millstream_testbed::namespace::current_inode()
            .map_err(Error::host("read a namespace"))?;
        self.prepare(&mut both, job, inode, record)?;
        let address = Path::Tap.far_address(self.v6());
        let ports = self.listen(&mut both, address)?;
        self.connect(&mut both, address, ports)?;
        let measured = self.measure(&mut [&mut both])?;
        both.leave();
        let probes = sampler.stop();
        let link = measured.ends.iter().find(|end| end.end == End::Far).and_then(|far| far.link);
        let interface = link.map(|link| Interface {
            name: "memory".to_owned(),
            rx_bytes: link.rx_bytes,
            tx_bytes: link.tx_bytes,
            rx_packets: link.rx_packets,
            tx_packets: link.tx_packets,
            ..Interface::default()
        });
        let far = interface.into_iter().collect();
        let after = Counters { far, ..Counters::default() };
        let claim = results::claim(self.task().plan(), &measured.ends);
        let proof = integrity::check(claim, &Counters::default(), &after, "memory", None);
        self.fill(record, measured, proof, probes);
        Ok(())
    }

    fn fill(
        &self,
        record: &mut RunRecord,
        measured: Measured,
        (proof, reasons): (PathProof, Vec<String>),
        mut probes: Probes,
    ) {
        let Measured { mut ends, mut rivals, machine, idle, near_cpu_s, far_cpu_s, .. } = measured;
        still::tell_workers(record, &measured.still, self.definition.duration_s);
        still::tell_runner(record, measured.late_s, self.definition.duration_s);
        let has_rival = !rivals.is_empty();
        match idle {
            Some(Ok(states)) => probes.idle_states = Some(states),
            Some(Err(reason)) => drop(probes.absent.insert("idle_states".to_owned(), reason.0)),
            None => {}
        }
        for end in ends.iter_mut().chain(&mut rivals) {
            probes.tcp_info.append(&mut end.tcp_info);
            probes.engines.extend(end.engine.take());
            record.notes.append(&mut end.notes);
        }
        probes.ends = results::on_cpus(&ends);
        record.probes = probes;
        still::tell_probes(record);
        record.path = Some(proof);
        reasons.into_iter().for_each(|reason| record.validity.reject(reason));
        results::fill(record, self.task().plan(), &ends, machine, self.origin_ns);
        results::fill_from_probes(record);
        if has_rival {
            results::forget_costs(record);
        }
        results::fill_from_workers(record, near_cpu_s, far_cpu_s);
        let (asked, got) =
            (self.definition.duration_s, record.window.end_s - record.window.start_s);
        let tolerance = limits::WINDOW_TOLERANCE_S.max(asked * limits::WINDOW_TOLERANCE_SHARE);
        if (got - asked).abs() > tolerance {
            record.validity.reject(format!("the window lasted {got:.2} s instead of {asked} s"));
        }
    }
}
