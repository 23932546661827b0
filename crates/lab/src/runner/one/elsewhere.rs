//! A run between addresses that are there already, of this host or with a far one.

use millstream_load::remote::WorkerProcess;
use millstream_load::worker::{Reply, StackJob};
use millstream_load::workload::End;
use millstream_netlink::Netlink;
use millstream_observe::probe::{self, NetSource, Sampler};
use millstream_record::RunRecord;
use millstream_record::error::Error;
use millstream_testbed::integrity;
use millstream_testbed::namespace::current_inode;

use super::{Run, results};
use crate::runner::Places;
use crate::{far, limits};

impl Run<'_> {
    /// The kernel's sockets at both ends; nothing of either host is made or set.
    pub(super) fn between_addresses(&mut self, record: &mut RunRecord) -> Result<(), Error> {
        let setting = self.setting;
        let Places::There(places) = &setting.places else {
            return Err(Error::Refused("no addresses were named".to_owned()));
        };
        let read = || Netlink::route()?.interfaces();
        let interfaces = || read().map_err(Error::host("read the interfaces"));
        let before = interfaces()?;
        let tested = places.interface(&before);
        let tested = tested.map_err(Error::host(format!("find the way to {}", places.far)))?;
        let inode = current_inode().map_err(Error::host("read a namespace"))?;
        let mut config = self.probe_config();
        config.hosts = vec![probe::Host { name: "near".to_owned(), net: NetSource::Own }];
        let sampler = Sampler::start(config);
        let mut near = self.worker("near", None, &sampler)?;
        let mut far = match &places.host {
            None => self.worker("far", None, &sampler)?,
            Some(host) => {
                let lasts = (self.definition.warmup_s, self.definition.duration_s);
                WorkerProcess::elsewhere("far", host, lasts, self.is_raised())?
            }
        };
        let near_job = self.job(Some(End::Near), StackJob::Kernel);
        let far_job = self.job(Some(End::Far), StackJob::Kernel);
        self.prepare(&mut near, near_job, inode, record)?;
        self.prepare(&mut far, far_job, inode, record)?;
        if let Some(pid) = far.far_pid() {
            self.claim.note_worker(pid)?;
            sampler.watch_worker("far", pid);
        }
        let ports = self.listen(&mut far, places.far)?;
        self.connect(&mut near, places.far, ports)?;
        match far.hear(limits::STEP_TIMEOUT_MS, self.interrupt())? {
            Reply::Connected => {}
            other => return Err(far.out_of_turn(&other)),
        }
        let measured = self.measure(&mut [&mut near, &mut far])?;
        let after = interfaces()?;
        near.leave();
        let far_side = far.leave();
        let probes = sampler.stop();
        let claim = results::claim(self.task().plan(), &measured.ends);
        let proof = integrity::at_least(claim, &before, &after, &tested);
        self.fill(record, measured, proof, probes);
        if let Some(found) = far_side {
            far::add(found, self.origin_ns, record);
            // Numbers of CPUs of two machines are not to be compared.
            if let Some(ends) = record.probes.ends.as_mut().filter(|_| !places.is_one_machine) {
                ends.same_cpu_share = None;
                ends.shares.remove("far");
            }
        }
        Ok(())
    }
}
