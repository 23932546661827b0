//! A run by way of a router on a third host: the kernel's sockets at both ends.

use std::net::IpAddr;

use millstream_link::netdev::ReceiveSteering;
use millstream_load::remote::WorkerProcess;
use millstream_load::worker::{Command, MillstreamLink, Reply, RouterJob, RouterReport, StackJob};
use millstream_load::workload::End;
use millstream_observe::probe::Sampler;
use millstream_record::RunRecord;
use millstream_record::error::Error;
use millstream_testbed::hosts::{
    Between, FAR_INTERFACE, Hosts, IN_INTERFACE, NEAR_INTERFACE, OUT_INTERFACE, PREFIX_V4,
    PREFIX_V6, Path, Router, steer_from,
};
use millstream_testbed::integrity;
use millstream_testbed::namespace::Namespace;

use super::Run;
use super::asked::Routed;
use crate::limits;
use crate::runner::{overruns, results};

impl Run<'_> {
    /// The near host sends to the far one by way of the router.
    pub(super) fn by_router(
        &mut self,
        routed: Routed,
        record: &mut RunRecord,
    ) -> Result<(), Error> {
        let hosts = self.hosts(Between::Router { veth: routed != Routed::Tap }, record)?;
        let sampler = self.sampler(Some(&hosts));
        let by = match routed {
            Routed::Veth => Router::Kernel,
            _ if self.is_bare() => Router::Bare,
            _ => Router::Stack,
        };
        if routed == Routed::Xdp {
            hosts.sum_checksums()?;
        }
        // Both ends of a veth pair are to be up before anything is sent; a TAP device the router
        // has yet to make.
        if routed != Routed::Tap {
            hosts.configure_routed(by)?;
        }
        let mut router = self.router(routed, &hosts, &sampler, record)?;
        if routed == Routed::Tap {
            hosts.configure_routed(by)?;
        }
        let _steering = match hosts.router().filter(|_| routed == Routed::Veth) {
            Some(host) => self.steer(host, record),
            None => None,
        };
        let mut near = self.worker("near", Some(hosts.near()), &sampler)?;
        let mut far = self.worker("far", Some(hosts.far()), &sampler)?;
        let job = |end| self.job(Some(end), StackJob::Kernel);
        let (near_job, far_job) = (job(End::Near), job(End::Far));
        self.prepare(&mut near, near_job, hosts.near().inode(), record)?;
        self.prepare(&mut far, far_job, hosts.far().inode(), record)?;
        let before = hosts.counters()?;
        let address = Path::FromRouter.far_address(self.v6());
        let ports = self.listen(&mut far, address)?;
        self.connect(&mut near, address, ports)?;
        match far.hear(limits::STEP_TIMEOUT_MS, self.interrupt())? {
            Reply::Connected => {}
            other => return Err(far.out_of_turn(&other)),
        }
        let measured = self.measure(&mut [&mut near, &mut far])?;
        let seen = router.as_mut().map(|router| self.end_router(router)).transpose()?;
        let after = hosts.counters()?;
        // While the devices are there, and what they dropped can be read.
        let mut probes = sampler.stop();
        for worker in [Some(near), Some(far), router].into_iter().flatten() {
            worker.leave();
        }
        if let Some(RouterReport { engine, notes }) = seen {
            probes.engines.push(engine);
            record.notes.extend(notes);
        }
        let claim = results::claim(self.task().plan(), &measured.ends);
        let (tested, same_link) = (Path::FromRouter.far_interface(), Some(NEAR_INTERFACE));
        let proof = integrity::check(claim, &before, &after, tested, same_link);
        self.fill(record, measured, proof, probes);
        overruns::fill(record);
        Ok(())
    }

    /// Has the kernel's router work on another CPU than the near host's, or notes why it does not.
    fn steer(&self, host: &Namespace, record: &mut RunRecord) -> Option<ReceiveSteering> {
        let is_asked = matches!(self.configuration().level("router_cpu"), "own" | "far");
        let (near, _) = self.cpus;
        let near = near.filter(|_| is_asked && self.router_cpu() != near)?;
        let steered = steer_from(host, near);
        let how = match &steered {
            Ok(_) => format!("any but {near}, by flow (RPS)"),
            Err(_) => format!("{near}"),
        };
        record.environment.set("placement.router_cpu", how);
        if let Err(error) = &steered {
            record
                .notes
                .push(format!("The kernel's router works where the near host sends: {error}"));
        }
        steered.ok()
    }

    /// The worker on the third host; none where the kernel hands on.
    fn router(
        &mut self,
        routed: Routed,
        hosts: &Hosts,
        sampler: &Sampler,
        record: &mut RunRecord,
    ) -> Result<Option<WorkerProcess>, Error> {
        let Some(host) = hosts.router().filter(|_| routed != Routed::Veth) else {
            return Ok(None);
        };
        let mut worker = self.worker("router", Some(host), sampler)?;
        let job = self.router_job(routed, hosts);
        let cpu = job.cpu.map_or("any".to_owned(), |cpu| cpu.to_string());
        record.environment.set("placement.router_cpu", cpu);
        let command = Command::Route(Box::new(job));
        self.prepare_by(&mut worker, &command, host.inode(), record)?;
        Ok(Some(worker))
    }

    fn router_job(&self, routed: Routed, hosts: &Hosts) -> RouterJob {
        let link = |there: &Namespace, tap: &str, own: &str| {
            let interface = own.to_owned();
            match routed {
                Routed::Veth | Routed::Packet => MillstreamLink::Raw { interface },
                Routed::Xdp => MillstreamLink::Xdp { interface },
                Routed::Tap => {
                    MillstreamLink::Tap { namespace: there.path().to_owned(), name: tap.to_owned() }
                }
            }
        };
        let addresses = |path: Path, number| -> Vec<(IpAddr, u8)> {
            match self.is_bare() {
                true => Vec::new(),
                false => [(false, PREFIX_V4), (true, PREFIX_V6)]
                    .map(|(v6, len)| (path.address(v6, number), len))
                    .to_vec(),
            }
        };
        let near = link(hosts.near(), NEAR_INTERFACE, IN_INTERFACE);
        let far = link(hosts.far(), FAR_INTERFACE, OUT_INTERFACE);
        RouterJob {
            links: [(near, addresses(Path::ToRouter, 2)), (far, addresses(Path::FromRouter, 1))],
            is_bare: self.is_bare(),
            mtu: self.mtu(),
            offload: self.offload(),
            ring_packets: self.configuration().level("ring_packets").parse().ok(),
            cpu: self.router_cpu(),
        }
    }

    fn end_router(&self, router: &mut WorkerProcess) -> Result<RouterReport, Error> {
        router.tell(&Command::EndRoute)?;
        match router.hear(limits::STEP_TIMEOUT_MS, self.interrupt())? {
            Reply::Routed(report) => Ok(*report),
            other => Err(router.out_of_turn(&other)),
        }
    }
}
