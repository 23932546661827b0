//! The places of the two ends of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use millstream_load::remote::{FarHost, Machine};
use millstream_netlink::Interface;
use millstream_plan::{Factor, PlannedRun, Workload};
use millstream_record::error::Error;

/// The places of the two ends.
#[derive(Clone, Debug, Default)]
pub enum Places {
    /// Hosts that are made for each run.
    #[default]
    Made,
    /// Addresses that are there already.
    There(Addresses),
}

/// Addresses that are there already, and the server of the far one.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Address of the near end; without it the kernel chooses.
    pub near: Option<IpAddr>,
    /// Address of the far end.
    pub far: IpAddr,
    /// The way to the far end's host; this one if there is none.
    pub host: Option<FarHost>,
    /// True when both ends are of one kernel, whose CPUs have the same numbers.
    pub is_one_machine: bool,
}

impl Places {
    /// Returns whether both ends are of one kernel, whose CPUs have the same numbers.
    pub fn is_one_machine(&self) -> bool {
        !matches!(self, Self::There(Addresses { is_one_machine: false, .. }))
    }
}

/// Factors that say how the hosts and links of a run are made.
const OF_MADE_HOSTS: [&str; 4] = ["mtu", "offload", "super_segment_bytes", "path"];

/// Takes out of the runs what nobody sets between addresses that are there. One level for all of a
/// workload is no more than a note; levels to compare would all be the same.
fn not_set(name: &str, runs: &mut [PlannedRun]) -> Result<Option<String>, Error> {
    let mut levels: BTreeMap<Workload, BTreeSet<&str>> = BTreeMap::new();
    for run in runs.iter() {
        let configuration = &run.configuration;
        levels.entry(configuration.workload).or_default().insert(configuration.level(name));
    }
    let why = "with --far the interfaces are as they are";
    let is_asked = |level: &&&str| Factor::of(name).is_none_or(|one| **level != one.default);
    let is_refused = |levels: &&BTreeSet<&str>| {
        levels.len() > 1 || (name == "path" && levels.iter().any(|level| is_asked(&level)))
    };
    if let Some(levels) = levels.values().find(is_refused) {
        let all: Vec<&str> = levels.iter().copied().collect();
        return Err(Error::Refused(format!("{name}={}: {why}", all.join(","))));
    }
    let asked = levels.values().flatten().find(is_asked);
    let note = asked.map(|level| format!("{name}={level} was not set: {why}."));
    for run in runs {
        run.configuration.named.remove(name);
        run.configuration.settings.remove(name);
    }
    Ok(note)
}

impl Addresses {
    /// Asks the far end's host, and refuses an address that this host does not have, or has where
    /// the other host should.
    pub fn check(&mut self) -> Result<(), Error> {
        self.check_addresses()?;
        if let Some(host) = &self.host {
            let machine = host.machine().map_err(|error| Error::Refused(error.to_string()))?;
            self.is_one_machine = machine.is_same_kernel(&Machine::here());
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), Error> {
        let refused = |what: &str, address: IpAddr, why: String| {
            Err(Error::Refused(format!("{what} {address}: {why}")))
        };
        if let Some(near) = self.near {
            if near.is_ipv4() != self.far.is_ipv4() {
                return refused("--near", near, format!("{} is of another family", self.far));
            }
            if let Err(why) = has(near) {
                return refused("--near", near, why);
            }
        }
        match (has(self.far), &self.host) {
            (Ok(()), Some(FarHost::Served { control, .. })) if has(control.ip()).is_err() => {
                let why = "it is this host's own; the far end is to be at another".to_owned();
                refused("--far", self.far, why)
            }
            (Err(why), None) => {
                let how = "--far-by starts this program at the other host, --serve names one that waits there";
                refused("--far", self.far, format!("{why}; {how}"))
            }
            _ => Ok(()),
        }
    }

    /// The address that the near end has towards the far one.
    pub(super) fn own(&self) -> io::Result<IpAddr> {
        if let Some(near) = self.near {
            return Ok(near);
        }
        let any: IpAddr = if self.far.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        // Nothing is sent: the kernel chooses the route alone.
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(SocketAddr::new(self.far, 9))?;
        Ok(socket.local_addr()?.ip())
    }

    /// The interface that the bytes cross here: between two addresses of one host that is the
    /// loopback.
    pub(super) fn interface(&self, all: &[Interface]) -> io::Result<String> {
        let by_name = |name: &str| all.iter().find(|one| one.name == name);
        if has(self.far).is_ok() {
            return by_name("lo").map(|lo| lo.name.clone()).ok_or(io::ErrorKind::NotFound.into());
        }
        let own = self.own()?;
        let addresses = nix::ifaddrs::getifaddrs()?;
        let of_own = addresses.filter(|one| {
            let address = one.address.as_ref();
            let v4 = address.and_then(|a| a.as_sockaddr_in()).map(|a| IpAddr::V4(a.ip()));
            let v6 = address.and_then(|a| a.as_sockaddr_in6()).map(|a| IpAddr::V6(a.ip()));
            v4.or(v6) == Some(own)
        });
        let mut names = of_own.map(|one| one.interface_name);
        // An alias is no interface of its own.
        let first = names.next().map(|name| name.split(':').next().unwrap_or_default().to_owned());
        first.filter(|name| by_name(name).is_some()).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Leaves out what cannot run between them, with a note for each kind.
    pub(super) fn possible(
        &self,
        runs: Vec<PlannedRun>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<PlannedRun>, Error> {
        let (routed, runs): (Vec<_>, Vec<_>) =
            runs.into_iter().partition(|run| run.configuration.workload.is_routed());
        if !routed.is_empty() {
            notes.push(
                "Runs by way of a router were left out: it is a host that is made for them."
                    .to_owned(),
            );
        }
        let family = if self.far.is_ipv4() { "v4" } else { "v6" };
        let (kernel, others): (Vec<_>, Vec<_>) =
            runs.into_iter().partition(|run| run.configuration.stack == "kernel");
        if !others.is_empty() {
            notes.push("Runs on Millstream were left out: between addresses that are there the kernel's sockets run.".to_owned());
        }
        let is_of_family = |run: &PlannedRun| {
            let named = run.configuration.named.get("ip");
            named.is_none_or(|ip| ip == family)
        };
        let (mut kept, others): (Vec<_>, Vec<_>) = kernel.into_iter().partition(is_of_family);
        if !others.is_empty() {
            notes.push(format!(
                "Runs over the other version of IP were left out: {} is {family}.",
                self.far
            ));
        }
        for name in OF_MADE_HOSTS {
            notes.extend(not_set(name, &mut kept)?);
        }
        for run in &mut kept {
            run.configuration.settings.insert("ip".to_owned(), family.to_owned());
        }
        if kept.is_empty() {
            return Err(Error::Refused("nothing of it can run between these addresses".to_owned()));
        }
        for (order, run) in kept.iter_mut().enumerate() {
            run.order = order as u32;
        }
        Ok(kept)
    }

    /// Returns the remarks for people, before the numbers.
    pub(super) fn notes(&self) -> Vec<String> {
        match &self.host {
            None => vec![format!(
                "Both ends are on this host, the far one at {}: the kernel keeps that on its loopback.",
                self.far
            )],
            Some(host) => vec![format!(
                "The far end is at {}, by {host}: CPU figures are {}.",
                self.far,
                if self.is_one_machine {
                    "of both ends, as they are on one machine"
                } else {
                    "of this host alone"
                }
            )],
        }
    }
}

/// Refuses an address that this host does not have.
fn has(address: IpAddr) -> Result<(), String> {
    UdpSocket::bind((address, 0)).map(drop).map_err(|_| "this host does not have it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_plan::{builtin, plan};
    use millstream_testbed::guard::WorkerProgram;

    fn at(far: &str) -> Addresses {
        Addresses { near: None, far: far.parse().unwrap(), host: None, is_one_machine: true }
    }

    #[test]
    fn addresses_that_are_not_there_are_refused() {
        assert!(at("127.0.0.1").check().is_ok());
        let error = at("192.0.2.1").check().unwrap_err().to_string();
        assert!(error.contains("does not have it") && error.contains("--serve"), "{error}");
        let near = |near: &str| Addresses { near: near.parse().ok(), ..at("127.0.0.1") };
        assert!(near("127.0.0.2").check().is_ok());
        assert!(near("192.0.2.1").check().is_err() && near("::1").check().is_err());
        let host = FarHost::Served {
            control: "192.0.2.1:1".parse().unwrap(),
            token: millstream_load::remote::Token::new("0123456789abcdef").unwrap(),
        };
        let own = Addresses { host: Some(host.clone()), ..at("127.0.0.1") };
        assert!(own.check_addresses().unwrap_err().to_string().contains("this host's own"));
        assert!(Addresses { host: Some(host), ..at("192.0.2.1") }.check_addresses().is_ok());
        // Both ends may be of this host, whatever starts the far one.
        let guard = WorkerProgram { path: "millstream".into(), arguments: vec![] };
        let here = FarHost::Started { words: vec!["ssh".to_owned()], guard };
        assert!(Addresses { host: Some(here), ..at("127.0.0.1") }.check_addresses().is_ok());
    }

    #[test]
    fn only_the_kernels_sockets_run_there_and_the_rest_is_said() {
        let runs = plan(&builtin("first-look").unwrap(), 3);
        let mut notes = Vec::new();
        let kept = at("127.0.0.1").possible(runs.clone(), &mut notes).unwrap();
        assert!(!kept.is_empty() && kept.len() < runs.len(), "{notes:?}");
        assert!(notes.iter().any(|note| note.contains("Millstream were left out")));
        for (at, run) in kept.iter().enumerate() {
            assert_eq!((run.order as usize, run.configuration.stack.as_str()), (at, "kernel"));
            let configuration = &run.configuration;
            for name in ["mtu", "super_segment_bytes"] {
                let is_there = configuration.named.contains_key(name)
                    || configuration.settings.contains_key(name);
                assert!(!is_there, "nobody has set {name}");
            }
        }
        assert!(notes.iter().any(|note| note.contains("super_segment_bytes=262144 was not set")));
        let mut compared = runs.clone();
        for (at, run) in compared.iter_mut().enumerate() {
            run.configuration.named.insert("mtu".to_owned(), (1400 + at % 2).to_string());
        }
        let error = at("127.0.0.1").possible(compared, &mut notes).unwrap_err().to_string();
        assert!(error.contains("mtu=1400,1401: with --far"), "{error}");
        let mut bad = runs.clone();
        bad.iter_mut()
            .for_each(|run| drop(run.configuration.named.insert("path".into(), "impaired".into())));
        assert!(at("127.0.0.1").possible(bad, &mut notes).is_err());
        let mut of_v4 = runs;
        of_v4
            .iter_mut()
            .for_each(|run| drop(run.configuration.named.insert("ip".into(), "v4".into())));
        assert!(at("::1").possible(of_v4, &mut notes).is_err());
    }

    #[test]
    fn the_loopback_carries_what_one_host_sends_to_itself() {
        let lo = Interface { name: "lo".to_owned(), ..Interface::default() };
        assert_eq!(at("127.0.0.1").interface(&[lo]).unwrap(), "lo");
        assert_eq!(at("127.0.0.1").own().unwrap(), IpAddr::from([127, 0, 0, 1]));
    }
}
