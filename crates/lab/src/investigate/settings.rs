//! Settings of this host that are changed while a command runs, as factors of an experiment. All of
//! them are journalled, and put back.
//!
//! To add a factor, add a variant of [`Setting`], its name in [`Setting::named`], and its work in
//! the two functions behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use millstream::link::netdev::Rings;
use millstream_netlink::{Netlink, OFFLOAD_FEATURES, features_off};
use millstream_record::error::Error;
use millstream_testbed::journal::{Journal, is_interface, sysctl_path};

use super::quota::no_quota;
use super::subject::KEEP;

/// The folder in which the kernel shows interfaces: those of the namespace that `/sys` was mounted
/// in.
const INTERFACES: &str = "/sys/class/net";
/// Connections that receive flow steering remembers where it is switched on, of the host and of all
/// queues of an interface.
const FLOWS: usize = 32_768;

/// The setting that a factor changes. Its level [`KEEP`] leaves the setting as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// `rps`: receive packet steering of all interfaces: `off`.
    Rps,
    /// `rfs`: receive flow steering of all interfaces: `on`, `off`.
    Rfs,
    /// `offload`: offload features of all interfaces: `on`.
    Offload,
    /// `cpu_quota`: the CPU quota that held the ends back: `none`.
    CpuQuota,
    /// `busy_poll`: microseconds for which a socket's reader polls the device instead of sleeping.
    BusyPoll,
    /// `sysctl.NAME`: a setting of the network: any value.
    Sysctl(String),
    /// `mtu.INTERFACE`: bytes.
    Mtu(String),
    /// `rings.INTERFACE`: packets of its rings: a number, or `most`.
    Rings(String),
    /// `interrupts.INTERFACE`: the CPUs that take its interrupts, as a list: `0-3`.
    Interrupts(String),
}

impl Setting {
    /// The setting that is this factor.
    pub fn named(factor: &str) -> Option<Self> {
        let of = |prefix: &str| factor.strip_prefix(prefix).map(str::to_owned);
        let interface = |prefix: &str| of(prefix).filter(|name| is_interface(name));
        Some(match factor {
            "rps" => Self::Rps,
            "rfs" => Self::Rfs,
            "offload" => Self::Offload,
            "cpu_quota" => Self::CpuQuota,
            "busy_poll" => Self::BusyPoll,
            _ => of("sysctl.")
                .map(Self::Sysctl)
                .or_else(|| interface("mtu.").map(Self::Mtu))
                .or_else(|| interface("rings.").map(Self::Rings))
                .or_else(|| interface("interrupts.").map(Self::Interrupts))?,
        })
    }

    /// Refuses a setting that cannot be changed here, with the reason. `quotas` are the files of
    /// quotas that held observed runs back.
    pub fn may(&self, quotas: &BTreeSet<PathBuf>) -> Result<(), String> {
        match self {
            Self::Offload => match offloads_off().is_empty() {
                false => Ok(()),
                true => Err("no interface here has offloads that are off".to_owned()),
            },
            Self::Rings(interface) => {
                Rings::of(interface).map(drop).map_err(|error| error.to_string())
            }
            _ => self.files(quotas)?.iter().try_for_each(|path| may_write(path)),
        }
    }

    /// Sets it to `level`, which is not [`KEEP`].
    pub fn set(
        &self,
        level: &str,
        journal: &mut Journal,
        quotas: &BTreeSet<PathBuf>,
    ) -> Result<(), Error> {
        debug_assert_ne!(level, KEEP);
        match self {
            Self::Offload => {
                return offloads_off()
                    .iter()
                    .try_for_each(|(interface, off)| journal.offload(interface, off));
            }
            Self::Rings(interface) => return journal.rings(interface, level),
            _ => {}
        }
        let files = self.files(quotas).map_err(Error::Refused)?;
        let per_queue = FLOWS / files.len().saturating_sub(1).max(1);
        for (at, path) in files.iter().enumerate() {
            let value = match self {
                Self::Rps => "0",
                Self::CpuQuota => no_quota(path),
                Self::Rfs if level == "off" => "0",
                // The first file is the host's, the others are of queues.
                Self::Rfs if at == 0 => &FLOWS.to_string(),
                Self::Rfs => &per_queue.to_string(),
                _ => level,
            };
            journal.set(path, value)?;
        }
        Ok(())
    }

    /// The files that are written, one at least, or why there is none.
    fn files(&self, quotas: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>, String> {
        let (files, none) = match self {
            Self::Rps => (rps_masks(), "no interface here steers what it receives".to_owned()),
            Self::Rfs => {
                let mut files = vec![PathBuf::from("/proc/sys/net/core/rps_sock_flow_entries")];
                files.extend(of_receive_queues("rps_flow_cnt"));
                (files, String::new())
            }
            Self::CpuQuota => {
                (quotas.iter().cloned().collect(), "no CPU quota held them back".to_owned())
            }
            Self::BusyPoll => {
                let of = |name| sysctl_path(name);
                let files = ["net.core.busy_poll", "net.core.busy_read"].into_iter().filter_map(of);
                (files.collect(), String::new())
            }
            Self::Sysctl(name) => (
                sysctl_path(name).into_iter().collect(),
                format!("{name} is no sysctl of the network"),
            ),
            Self::Mtu(interface) => {
                (vec![Path::new(INTERFACES).join(interface).join("mtu")], String::new())
            }
            Self::Interrupts(interface) => {
                (interrupt_files(interface), format!("{interface} has no interrupts of its own"))
            }
            Self::Offload | Self::Rings(_) => (vec![], "it is no file".to_owned()),
        };
        if files.is_empty() { Err(none) } else { Ok(files) }
    }
}

fn may_write(path: &Path) -> Result<(), String> {
    let opened = fs::File::options().write(true).open(path);
    opened.map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

/// Interfaces of this namespace with the offload features that are off, and that they could have.
fn offloads_off() -> Vec<(String, Vec<String>)> {
    let listed = Netlink::route().and_then(|mut netlink| netlink.interfaces()).unwrap_or_default();
    let off = |name: String| {
        let off = features_off(&name, OFFLOAD_FEATURES).unwrap_or_default();
        (!off.is_empty()).then_some((name, off))
    };
    listed.into_iter().filter(|one| one.up).filter_map(|one| off(one.name)).collect()
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// A file of each receive queue of the interfaces that this process sees.
fn of_receive_queues(file: &str) -> Vec<PathBuf> {
    let queues =
        listed(Path::new(INTERFACES)).into_iter().flat_map(|one| listed(&one.join("queues")));
    queues.map(|queue| queue.join(file)).filter(|path| path.exists()).collect()
}

/// The masks of receive packet steering that are not 0.
fn rps_masks() -> Vec<PathBuf> {
    let is_set = |path: &PathBuf| {
        let mask = millstream_foreign::read(path).unwrap_or_default();
        mask.chars().any(|c| c.is_ascii_hexdigit() && c != '0')
    };
    of_receive_queues("rps_cpus").into_iter().filter(is_set).collect()
}

/// Returns the files that set the CPUs of an interface's interrupts. The interrupts of a virtio
/// device are those of the PCI device above it.
fn interrupt_files(interface: &str) -> Vec<PathBuf> {
    let device = Path::new(INTERFACES).join(interface).join("device");
    let Ok(device) = fs::canonicalize(device) else { return vec![] };
    let numbers = [Some(device.as_path()), device.parent()]
        .into_iter()
        .flatten()
        .map(|folder| listed(&folder.join("msi_irqs")))
        .find(|numbers| !numbers.is_empty());
    let file = |number: PathBuf| {
        Some(Path::new("/proc/irq").join(number.file_name()?).join("smp_affinity_list"))
    };
    numbers.unwrap_or_default().into_iter().filter_map(file).filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_their_settings_and_others_have_none() {
        let none = BTreeSet::new();
        assert_eq!(Setting::named("mtu.eth0"), Some(Setting::Mtu("eth0".into())));
        assert_eq!(Setting::named("interrupts.eth0"), Some(Setting::Interrupts("eth0".into())));
        for bad in ["mtu.", "mtu...", "mtu.a/b", "mtu", "rings.", "placement", ""] {
            let found = Setting::named(bad);
            assert!(found.is_none() || bad == "mtu...", "{bad}: {found:?}");
        }
        let why = Setting::named("sysctl.kernel.panic").unwrap().may(&none).unwrap_err();
        assert!(why.contains("no sysctl of the network"), "{why}");
        assert!(Setting::CpuQuota.may(&none).unwrap_err().contains("no CPU quota"));
        let why = Setting::Interrupts("lo".into()).may(&none).unwrap_err();
        assert!(why.contains("lo has no interrupts"), "{why}");
        assert!(Setting::Mtu("no-such-one".into()).may(&none).is_err());
        assert!(Setting::Rings("lo".into()).may(&none).is_err());
    }
}
