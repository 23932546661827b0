//! Which CPUs carry what an interface receives through the kernel's stack: receive packet steering
//! (RPS), set through sysfs (Documentation/networking/scaling.rst). Where the machine has receive
//! flow steering (RFS), the CPU on which a flow's process runs.

use std::fmt::Write;
use std::io;

use super::index;
use super::sysfs::{Setting, Sysfs};
use crate::{LinkError, sys};

/// Flows of an interface that RFS remembers: the kernel's advice for one queue of a machine that is
/// not very busy.
const FLOWS: &str = "32768";

/// The steering of an interface's first receive queue, open to be changed as often as one likes.
/// Dropped, it puts back what it found, where it changed that, for the interface that outlives its
/// user; a killed process cannot.
#[derive(Debug)]
pub struct ReceiveSteering {
    name: String,
    cpus: Setting,
    /// The number of flows that RFS remembers, where the kernel has it.
    flows: Option<Setting>,
    /// The CPUs that the process may use.
    cpuset: Vec<usize>,
}

impl ReceiveSteering {
    /// Opens that of the interface `name`, and changes nothing.
    ///
    /// # Errors
    /// When there is no such interface, or for want of privilege: to mount sysfs (it shows the
    /// interfaces of the namespace it is mounted in) or to steer.
    pub fn open(name: &str) -> Result<Self, LinkError> {
        // A name that is no interface here must not become a path.
        index(name)?;
        let open = || -> io::Result<Self> {
            let sysfs = Sysfs::mount()?;
            let cpus = sysfs.setting(&format!("class/net/{name}/queues/rx-0/rps_cpus"))?;
            // A caller that may read it may still not be allowed to write.
            cpus.restore()?;
            let flows = sysfs.setting(&format!("class/net/{name}/queues/rx-0/rps_flow_cnt")).ok();
            Ok(Self { name: name.to_owned(), cpus, flows, cpuset: sys::cpuset()? })
        };
        open().map_err(|error| failed(name, error))
    }

    /// Returns whether it was set when this was opened.
    pub fn was_set(&self) -> bool {
        self.cpus.found().bytes().any(|digit| digit != b'0' && digit != b',')
    }

    /// Returns whether there is ever another CPU that can receive.
    pub fn has_choice(&self) -> bool {
        self.cpuset.len() > 1
    }

    /// From now on packets are received by CPUs of the process's cpuset, a flow's by one of them,
    /// not that of the calling thread; where the machine has RFS
    /// (`net.core.rps_sock_flow_entries`), the one on which the flow's process runs, whichever that
    /// is. Whoever brings a packet only puts it into that one's queue. Some 100 µs. What is
    /// received already and waits in such a queue may be overtaken when this ends.
    ///
    /// # Errors
    /// When there is no other CPU, the interface is gone, or the kernel has no memory: then it is
    /// as it was.
    pub fn elsewhere(&self) -> Result<(), LinkError> {
        let here = sys::current_cpu();
        let others = || self.cpuset.iter().copied().filter(|&cpu| Some(cpu) != here);
        if others().next().is_none() {
            // An empty set would be taken, and mean that nothing is steered.
            let error = io::Error::new(io::ErrorKind::NotFound, "there is no other CPU");
            return Err(failed(&self.name, error));
        }
        if let Some(flows) = &self.flows {
            // Without memory for them it is as where the machine has no RFS.
            let _ = flows.write(FLOWS);
        }
        self.cpus.write(&mask(others())).map_err(|error| {
            if let Some(flows) = &self.flows {
                let _ = flows.restore();
            }
            failed(&self.name, error)
        })
    }

    /// From now on packets are received as they were when this was opened.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn as_found(&self) -> Result<(), LinkError> {
        if let Some(flows) = &self.flows {
            let _ = flows.restore();
        }
        self.cpus.restore().map_err(|error| failed(&self.name, error))
    }
}

fn failed(name: &str, error: io::Error) -> LinkError {
    LinkError::from_io(format!("set the receive packet steering of {name}"), error)
}

/// A set of CPUs as the kernel reads it: words of 32 in hexadecimal, the highest first.
fn mask(cpus: impl Iterator<Item = usize>) -> String {
    let mut words = vec![0_u32];
    for cpu in cpus {
        words.resize(words.len().max(cpu / 32 + 1), 0);
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    let mut text = String::new();
    for (at, word) in words.iter().rev().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        // A string takes everything.
        let _ = write!(text, "{comma}{word:08x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::{Namespace, setting};
    use crate::testing::permitted;
    use crate::{Link, Tap, TapConfig};

    #[test]
    fn masks_are_the_kernels() {
        assert_eq!(mask([0, 1, 31].into_iter()), "80000003");
        assert_eq!(mask([1, 32, 70].into_iter()), "00000040,00000001,00000002");
        assert_eq!(mask(std::iter::empty()), "00000000");
    }

    #[test]
    fn packets_are_received_elsewhere_and_then_as_before() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let config =
            TapConfig { netns: Some(namespace.path()), rps: false, ..TapConfig::default() };
        let Some(tap) = permitted(Tap::open(&config)) else { return };
        let name = tap.name();
        let opened = namespace.run(|| ReceiveSteering::open(name)).unwrap();
        let Some(mut steering) = permitted(opened) else { return };
        let set = || namespace.run(|| setting(name, "queues/rx-0/rps_cpus")).unwrap().unwrap();
        let flows = || namespace.run(|| setting(name, "queues/rx-0/rps_flow_cnt")).unwrap().ok();
        let remembers = flows().is_some();
        let bits = || u128::from_str_radix(&set().replace(',', ""), 16).unwrap();
        assert!(!steering.was_set() && bits() == 0);
        let cpuset = sys::cpuset().unwrap();
        if cpuset.len() > 1 {
            steering.elsewhere().unwrap();
            assert_eq!(bits().count_ones() as usize, cpuset.len() - 1);
            assert_eq!(flows().as_deref(), remembers.then_some(FLOWS));
            let again = namespace.run(|| ReceiveSteering::open(name)).unwrap().unwrap();
            assert!(again.was_set());
            steering.as_found().unwrap();
            assert_eq!(bits(), 0);
            assert_eq!(flows().as_deref(), remembers.then_some("0"));
            steering.elsewhere().unwrap();
            steering.as_found().unwrap();
            drop(again);
            assert_eq!(bits(), 0, "who changed nothing puts nothing back");
        }
        // There is no other, or a CPU that no kernel has: it is as it was.
        for cpus in [vec![], vec![100_000]] {
            steering.cpuset = cpus;
            assert!(steering.elsewhere().is_err());
            assert_eq!(bits(), 0);
            assert_eq!(flows().as_deref(), remembers.then_some("0"));
        }
        steering.cpuset = cpuset;
        let changed = steering.elsewhere().is_ok();
        assert_eq!(bits() != 0, changed);
        drop(steering);
        assert_eq!(bits(), 0, "as it was found");
        assert_eq!(flows().as_deref(), remembers.then_some("0"));
        assert!(namespace.run(|| ReceiveSteering::open("../lo")).unwrap().is_err());
    }
}
