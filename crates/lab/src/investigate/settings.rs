//! Settings of this host that are changed while a command runs, as factors of an experiment. All of
//! them are journalled, and put back.
//!
//! To add a factor, add a variant of [`Setting`], its name in [`Setting::named`], and its work in
//! the two functions behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use millstream_link::netdev::Rings;
use millstream_netlink::{Netlink, OFFLOAD_FEATURES, features_off};
use millstream_observe::probe::{Host, NetSource, inside};
use millstream_record::error::Error;
use millstream_testbed::journal::{Journal, is_interface, sysctl_path};
use millstream_testbed::leftovers::StateDir;

use super::quota::no_quota;
use super::subject::KEEP;

/// The folder in which the kernel shows interfaces: those of the namespace that `/sys` was mounted
/// in.
const INTERFACES: &str = "/sys/class/net";
/// The settings that bound a receiver's window, and values that let it grow to 64 MiB.
const WINDOW: [(&str, &str); 2] =
    [("net.ipv4.tcp_window_scaling", "1"), ("net.ipv4.tcp_rmem", "4096 131072 67108864")];
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
    /// `window`: what bounds a receiver's window, of both ends: `large`.
    Window,
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
            "window" => Self::Window,
            _ => of("sysctl.")
                .map(Self::Sysctl)
                .or_else(|| interface("mtu.").map(Self::Mtu))
                .or_else(|| interface("rings.").map(Self::Rings))
                .or_else(|| interface("interrupts.").map(Self::Interrupts))?,
        })
    }

    /// Returns the hosts where it is set: those of `ends` where each network namespace has its own
    /// and it is reached from outside of it; the first one for a sysctl that it alone has, else
    /// this one.
    pub fn places(&self, ends: Vec<Host>) -> Vec<Host> {
        match self {
            Self::Sysctl(name) => match of_first_namespace(name, &ends) {
                Some(first) => vec![first],
                None => ends,
            },
            Self::Window => ends,
            _ => vec![Host { name: "here".to_owned(), net: NetSource::Own }],
        }
    }

    /// Refuses a setting that cannot be changed here, with the reason. `quotas` are the files of
    /// quotas that held observed runs back.
    pub fn may(&self, ends: Vec<Host>, quotas: &BTreeSet<PathBuf>) -> Result<(), String> {
        let of = |host: Host| inside(&host.net, || Ok(self.may_here(quotas)));
        let each = self.places(ends).into_iter().map(of);
        let mut each = each.map(|may| may.unwrap_or_else(|why| Err(why.0)));
        let first = each.next().unwrap_or(Ok(()));
        if first.is_ok() || each.any(|may| may.is_ok()) { Ok(()) } else { first }
    }

    fn may_here(&self, quotas: &BTreeSet<PathBuf>) -> Result<(), String> {
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
    fn set(
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
                Self::Window => WINDOW[at].1,
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

    /// Returns what is read of it now, in the namespace of the calling thread.
    fn values(&self, quotas: &BTreeSet<PathBuf>) -> Vec<String> {
        let files = self.files(quotas).unwrap_or_default();
        let value = |path: &PathBuf| millstream_foreign::read(path).ok();
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        files.iter().filter_map(value).map(words).collect()
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
            Self::Window => {
                let files = WINDOW.iter().filter_map(|(name, _)| sysctl_path(name));
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

/// Returns the first network namespace, in which kthreadd is, where that has a sysctl which none of
/// `ends` has.
fn of_first_namespace(name: &str, ends: &[Host]) -> Option<Host> {
    let has = |net: &NetSource| {
        let exists = || Ok(sysctl_path(name).is_some_and(|path| path.exists()));
        inside(net, exists).unwrap_or(false)
    };
    let first = NetSource::Namespace("/proc/2/ns/net".into());
    let is_of_first = !ends.is_empty() && !ends.iter().any(|one| has(&one.net)) && has(&first);
    is_of_first.then(|| Host { name: "the kernel's threads".to_owned(), net: first })
}

/// A setting that is in force where the ends are. Dropping it puts back what was there.
pub(super) struct InForce {
    setting: Setting,
    /// The hosts where it was set, with what is read there since.
    places: Vec<(Host, Journal, Vec<String>)>,
}

impl InForce {
    /// Sets `setting` to `level` on each of `ends` that has it; another than one of a namespace on
    /// this host.
    pub fn set(
        setting: Setting,
        level: &str,
        ends: Vec<Host>,
        state: &StateDir,
        quotas: &BTreeSet<PathBuf>,
    ) -> Result<Self, Error> {
        let mut places = Vec::new();
        let mut refused = None;
        for host in setting.places(ends) {
            let set = || {
                let mut journal = Journal::open(state)?;
                setting.set(level, &mut journal, quotas)?;
                Ok((journal, setting.values(quotas)))
            };
            match inside(&host.net, || Ok(set())).map_err(|why| Error::Refused(why.0))? {
                Ok((journal, values)) => places.push((host, journal, values)),
                Err(why) => refused = Some(why),
            }
        }
        match refused.filter(|_| places.is_empty()) {
            Some(why) => Err(why),
            None => Ok(Self { setting, places }),
        }
    }

    /// Refuses a setting that no longer holds, or that a host of `ends` does not have: its
    /// namespace is new in this run.
    pub fn check(&self, ends: Vec<Host>, quotas: &BTreeSet<PathBuf>) -> Result<(), String> {
        let Some((.., set)) = self.places.first() else { return Ok(()) };
        for host in self.setting.places(ends) {
            // One whose namespace has ended, or that does not have it, says nothing.
            let now = inside(&host.net, || Ok(self.setting.values(quotas)));
            if let Ok(now) = now
                && !now.is_empty()
                && now != *set
            {
                let (now, set) = (now.join(", "), set.join(", "));
                return Err(format!("it was {now} where {} is, and not {set}", host.name));
            }
        }
        Ok(())
    }
}

impl Drop for InForce {
    fn drop(&mut self) {
        for (host, journal, _) in self.places.drain(..) {
            let put_back = || {
                drop(journal);
                Ok(())
            };
            // The journal stays where it could not be entered, and the next start says so.
            let _ = inside(&host.net, put_back);
        }
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
    use millstream_testbed::namespace::Namespace;

    fn here() -> Host {
        Host { name: "here".to_owned(), net: NetSource::Own }
    }

    #[test]
    fn a_setting_is_made_where_the_ends_are_checked_there_and_put_back() {
        const NAME: &str = "net.ipv4.ip_default_ttl";
        if !millstream_testbed::privilege::may_make_namespaces() {
            return eprintln!("skipped: network namespaces are not permitted here");
        }
        let folder = std::env::temp_dir().join(format!("ms-in-force-{}", std::process::id()));
        let (state, quotas) = (StateDir::at(folder).unwrap(), BTreeSet::new());
        let make = |name| Namespace::create(name).unwrap();
        let host = |of: &Namespace| Host {
            name: of.name().to_owned(),
            net: NetSource::Namespace(of.path().to_owned()),
        };
        let (one, other) = (make("ms-one"), make("ms-other"));
        let value = |of: &Namespace| of.run(|| setting().values(&BTreeSet::new()).join(" "));
        fn setting() -> Setting {
            Setting::Sysctl(NAME.to_owned())
        }
        let here_before = setting().values(&quotas);
        let ends = || vec![host(&one), host(&other)];
        setting().may(ends(), &quotas).unwrap();
        let force = InForce::set(setting(), "77", ends(), &state, &quotas).unwrap();
        assert_eq!([value(&one), value(&other)], ["77", "77"]);
        assert_eq!(setting().values(&quotas), here_before, "nobody is here");
        assert_eq!(force.check(ends(), &quotas), Ok(()));
        // One of the whole host is set in the first namespace, which alone has it.
        let of_host = Setting::Sysctl("net.core.netdev_budget".to_owned());
        if !of_host.values(&quotas).is_empty() {
            of_host.may(ends(), &quotas).unwrap();
            assert_eq!(of_host.places(ends()).len(), 1);
        }
        // An end in a namespace that is new does not have it.
        let late = make("ms-late");
        let why = force.check(vec![host(&one), host(&late)], &quotas).unwrap_err();
        assert_eq!(why, "it was 64 where ms-late is, and not 77");
        drop(force);
        assert_eq!([value(&one), value(&other)], ["64", "64"]);
        assert_eq!(state.folder().names().unwrap().len(), 0);
    }

    #[test]
    fn factors_have_their_settings_and_others_have_none() {
        let none = BTreeSet::new();
        assert_eq!(Setting::named("mtu.eth0"), Some(Setting::Mtu("eth0".into())));
        assert_eq!(Setting::named("interrupts.eth0"), Some(Setting::Interrupts("eth0".into())));
        for bad in ["mtu.", "mtu...", "mtu.a/b", "mtu", "rings.", "placement", ""] {
            let found = Setting::named(bad);
            assert!(found.is_none() || bad == "mtu...", "{bad}: {found:?}");
        }
        let why =
            Setting::named("sysctl.kernel.panic").unwrap().may(vec![here()], &none).unwrap_err();
        assert!(why.contains("no sysctl of the network"), "{why}");
        assert!(Setting::CpuQuota.may(vec![], &none).unwrap_err().contains("no CPU quota"));
        let why = Setting::Interrupts("lo".into()).may(vec![], &none).unwrap_err();
        assert!(why.contains("lo has no interrupts"), "{why}");
        assert!(Setting::Mtu("no-such-one".into()).may(vec![], &none).is_err());
        assert!(Setting::Rings("lo".into()).may(vec![], &none).is_err());
    }
}
