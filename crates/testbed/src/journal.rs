//! Settings of this machine that are changed for a while, and are put back in any case.
//!
//! The value of a setting is written to a journal, and the journal to the disk, before the setting
//! is changed. The journal puts everything back when it is dropped. If its owner was killed, the
//! next start puts it back, or `millstream undo`: [`put_back_of_the_dead`]. A journal of an earlier
//! boot is removed, for its settings have gone with that boot. A journal of another network
//! namespace stays as long as a process is in that namespace.
//!
//! Only journals of the same user are read ([`OwnFolder`]). Whatever a journal says, nothing is
//! written but files of the kernel whose settings are changed here, and nothing is asked of an
//! interface whose name no interface can have.

#![expect(
    clippy::disallowed_methods,
    reason = "what is put back is what was there, to the byte, or nothing"
)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use millstream_link::netdev::Rings;
use millstream_netlink::set_features;
use millstream_record::error::Error;
use millstream_record::own_folder::OwnFolder;
use nix::sys::statfs::{
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, fstatfs,
};
use serde::{Deserialize, Serialize};

use crate::leftovers::{ProcessIdentity, StateDir};
use crate::namespace;

/// End of a journal's name.
const ENDING: &str = "undo";

/// End of its name while it is written.
const PART: &str = "undo-part";

/// The begin of a line that says that settings must be put back which cannot be reached from here.
pub const ELSEWHERE: &str = "another network namespace has settings to put back";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Text {
    owner: ProcessIdentity,
    /// Network namespace, whose own some of the settings are.
    namespace: u64,
    /// The changes in the order in which they were made.
    changes: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    /// The file, or the name of the interface.
    path: PathBuf,
    before: String,
    #[serde(default)]
    what: What,
}

/// The kind of a setting that was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    /// The content of a file.
    #[default]
    File,
    /// Offload features of an interface: those that were off before.
    Offload,
    /// Packets of an interface's receive and transmit rings.
    Rings,
}

/// Returns whether it is the file of a setting that is changed here: of the network, of an
/// interface, of the CPUs that take an interrupt, or of a CPU quota.
fn is_setting(path: &Path) -> bool {
    let is_plain = |part: Component| matches!(part, Component::RootDir | Component::Normal(_));
    let parts: Option<Vec<&str>> = path
        .components()
        .map(|part| part.as_os_str().to_str().filter(|_| is_plain(part)))
        .collect();
    match parts.as_deref() {
        Some(["/", "proc", "sys", "net", _, _, ..]) => true,
        Some(["/", "sys", "class", "net", interface, "mtu"]) => is_interface(interface),
        Some(["/", "sys", "class", "net", interface, "queues", _, "rps_cpus" | "rps_flow_cnt"]) => {
            is_interface(interface)
        }
        Some(["/", "proc", "irq", _, "smp_affinity_list"]) => true,
        Some(["/", "sys", "fs", "cgroup", .., "cpu.max" | "cpu.cfs_quota_us"]) => true,
        _ => false,
    }
}

/// Returns whether an interface can have this name (`dev_valid_name` of Linux).
pub fn is_interface(name: &str) -> bool {
    let is_odd = |byte: u8| byte == b'/' || byte == b':' || byte == 0 || byte.is_ascii_whitespace();
    (1..16).contains(&name.len()) && !matches!(name, "." | "..") && !name.bytes().any(is_odd)
}

/// Opens the file of a setting for writing: one that the kernel shows, and nobody else.
fn setting(path: &Path) -> io::Result<File> {
    let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "no setting of the network");
    if !is_setting(path) {
        return Err(refused());
    }
    let mut options = File::options();
    let file = options.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let kind = fstatfs(&file)?.filesystem_type();
    let kernels = [PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC];
    if kernels.contains(&kind) { Ok(file) } else { Err(refused()) }
}

impl Change {
    fn put_back(&self) -> io::Result<()> {
        if self.what == What::File {
            return setting(&self.path)?.write_all(self.before.as_bytes());
        }
        let interface = self.path.to_str().filter(|name| is_interface(name));
        let interface = interface.ok_or(io::ErrorKind::InvalidData)?;
        match self.what {
            What::File => Ok(()),
            What::Offload => {
                let features: Vec<&str> = self.before.split_whitespace().collect();
                set_features(interface, &features, false)
            }
            What::Rings => {
                let mut words = self.before.split_whitespace().map(str::parse);
                let (Some(Ok(receive)), Some(Ok(transmit))) = (words.next(), words.next()) else {
                    return Err(io::ErrorKind::InvalidData.into());
                };
                Rings::set(interface, receive, transmit).map_err(io::Error::other)
            }
        }
    }
}

/// Changes that are in force. Dropping it puts them back.
#[derive(Debug)]
pub struct Journal {
    folder: OwnFolder,
    /// Its file, without the ending.
    name: String,
    text: Text,
}

impl Journal {
    /// An empty one, owned by this process, in the folder of its state.
    pub fn open(state: &StateDir) -> Result<Self, Error> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let pid = std::process::id();
        let owner = ProcessIdentity::of(pid).map_err(Error::file("/proc/self/stat"))?;
        let namespace =
            namespace::current_inode().map_err(Error::host("read the network namespace"))?;
        let (folder, name) = (state.folder().clone(), format!("{pid}-{number}"));
        Ok(Self { folder, name, text: Text { owner, namespace, changes: vec![] } })
    }

    /// Writes `value` to a file of settings, once what it held is on the disk. Where the value is
    /// refused what was before is still in force.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<(), Error> {
        let named = path.display().to_string();
        let mut file = setting(path).map_err(Error::file(named.clone()))?;
        let before = fs::read_to_string(path).map_err(Error::file(named.clone()))?;
        let before = before.trim_end().to_owned();
        self.text.changes.push(Change { path: path.to_owned(), before, what: What::File });
        self.write()?;
        file.write_all(value.as_bytes()).map_err(Error::file(named))
    }

    /// Switches the offload features of an interface on that are off, once those are on the disk.
    pub fn offload(&mut self, interface: &str, off: &[String]) -> Result<(), Error> {
        let (path, before) = (PathBuf::from(interface), off.join(" "));
        self.text.changes.push(Change { path, before, what: What::Offload });
        self.write()?;
        let features: Vec<&str> = off.iter().map(String::as_str).collect();
        set_features(interface, &features, true)
            .map_err(Error::host(format!("switch offloads of {interface} on")))
    }

    /// Gives the rings of an interface so many packets, or the `most` that they take, once what
    /// they had is on the disk.
    pub fn rings(&mut self, interface: &str, level: &str) -> Result<(), Error> {
        let refused = |why: String| Error::Refused(format!("rings of {interface}: {why}"));
        let found = Rings::of(interface).map_err(|error| refused(error.to_string()))?;
        let of = |most: u32| if level == "most" { Ok(most) } else { level.parse::<u32>() };
        let [receive, transmit] = [of(found.receive_most), of(found.transmit_most)];
        let (Ok(receive), Ok(transmit)) = (receive, transmit) else {
            return Err(refused(format!("{level} is neither a number of packets nor most")));
        };
        let (path, before) =
            (PathBuf::from(interface), format!("{} {}", found.receive, found.transmit));
        self.text.changes.push(Change { path, before, what: What::Rings });
        self.write()?;
        Rings::set(interface, receive, transmit).map_err(|error| refused(error.to_string()))
    }

    fn file(&self, ending: &str) -> String {
        format!("{}.{ending}", self.name)
    }

    fn write(&self) -> Result<(), Error> {
        let text = serde_json::to_string(&self.text).expect("plain data");
        let name = self.file(ENDING);
        self.folder
            .write(&name, &self.file(PART), &text)
            .map_err(Error::file(self.folder.path().join(name).display().to_string()))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // In another namespace its paths are other settings. What it says is still on the disk.
        if namespace::current_inode().ok() != Some(self.text.namespace) {
            return;
        }
        let (_, failed) = self.text.put_back();
        // One that found no room.
        let _ = self.folder.remove(&self.file(PART));
        // The next start tries again what could not be put back.
        if failed == 0 {
            let _ = self.folder.remove(&self.file(ENDING));
        }
    }
}

impl Text {
    /// Puts all back, what was changed last first: a line for each, and how many could not be.
    fn put_back(&self) -> (Vec<String>, usize) {
        let (mut lines, mut failed) = (Vec::new(), 0);
        for change in self.changes.iter().rev() {
            let of = match change.what {
                What::File => "",
                What::Offload => "off: ",
                What::Rings => "rings of ",
            };
            let what = format!("{} back to {of}{}", change.path.display(), change.before);
            match change.put_back() {
                Ok(()) => lines.push(format!("put {what}")),
                Err(error) => {
                    failed += 1;
                    lines.push(format!("cannot put {what}: {error}"));
                }
            }
        }
        (lines, failed)
    }
}

/// Ends what dead owners have left, puts back the settings that they have changed, and removes
/// their markers. Returns one line for each thing.
pub fn sweep(state: &StateDir) -> Result<Vec<String>, Error> {
    let mut lines = state.sweep()?;
    lines.extend(put_back_of_the_dead(state)?);
    Ok(lines)
}

/// Puts back what killed owners have changed: a line for each thing. Journals of living owners are
/// left alone.
pub fn put_back_of_the_dead(state: &StateDir) -> Result<Vec<String>, Error> {
    let folder = state.folder();
    let names = folder.names().map_err(Error::file(folder.path().display().to_string()))?;
    let here = namespace::current_inode().map_err(Error::host("read the network namespace"))?;
    let boot = ProcessIdentity::of(std::process::id()).map_err(Error::file("/proc/self/stat"))?;
    let mut lines = Vec::new();
    for (name, ending) in names.iter().filter_map(|name| Some((name, name.rsplit_once('.')?.1))) {
        // Nothing has been changed by what such a file says.
        if ending == PART && !is_being_written(name) {
            let _ = folder.remove(name);
        }
        if ending != ENDING {
            continue;
        }
        let text = folder.read(name).ok();
        let text = text.and_then(|found| serde_json::from_str::<Text>(&found.text).ok());
        // Renamed into its place, so that one that cannot be read is none of ours.
        let Some(text) = text.filter(|text| !text.owner.is_alive()) else { continue };
        let mut failed = 0;
        if text.owner.boot != boot.boot {
            // Its settings have gone with that boot.
        } else if text.namespace == here {
            let (put_back, not) = text.put_back();
            lines.extend(put_back);
            failed = not;
        } else if let Some(way) = way_into(text.namespace) {
            lines.push(format!("{ELSEWHERE}: {way} millstream undo"));
            failed = 1;
        } else {
            lines.push("a network namespace is gone, and changed settings with it".to_owned());
        }
        if failed == 0 {
            let _ = folder.remove(name);
        }
    }
    Ok(lines)
}

/// Returns true while the process lives whose number the file's name begins with, and for a name
/// without a number.
fn is_being_written(name: &str) -> bool {
    let pid = name.split_once('-').and_then(|(pid, _)| pid.parse().ok());
    pid.is_none_or(|pid| ProcessIdentity::of(pid).is_ok())
}

/// Returns true for a network namespace that a process or a mount has.
pub fn is_reachable(namespace: u64) -> bool {
    way_into(namespace).is_some()
}

/// Returns the words of a command that enters a living network namespace; `None` where there is no
/// such namespace.
fn way_into(namespace: u64) -> Option<String> {
    let of_process = inside(namespace).map(|pid| format!("nsenter -t {pid} -n -m"));
    of_process.or_else(|| {
        let mounts = millstream_foreign::read("/proc/self/mountinfo").unwrap_or_default();
        let path = mounted(namespace, &mounts)?;
        // `ip netns exec` shows the settings of the namespace's own interfaces in /sys, too.
        let name = ["/run/netns/", "/var/run/netns/"].iter().find_map(|at| path.strip_prefix(at));
        Some(match name {
            Some(name) => format!("ip netns exec {name}"),
            None => format!("nsenter --net={path}"),
        })
    })
}

/// Returns the path of a mount that keeps a network namespace alive without a process in it (`ip
/// netns add`).
fn mounted(namespace: u64, mounts: &str) -> Option<&str> {
    let root = format!("net:[{namespace}]");
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(3);
        (words.next()? == root).then(|| words.next()).flatten()
    })
}

/// A process in a network namespace.
fn inside(namespace: u64) -> Option<u32> {
    let listed = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|meta| meta.ino() == namespace)
    })
}

/// The file of a sysctl; `None` for a name that is none, or that has nothing to do with the
/// network.
pub fn sysctl_path(name: &str) -> Option<PathBuf> {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let words: Vec<&str> = name.split('.').collect();
    (words.len() >= 3 && words[0] == "net" && words.iter().all(|word| is_word(word)))
        .then(|| Path::new("/proc/sys").join(words.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;
    use crate::privilege;

    /// A setting that each network namespace has for itself, and what it is in a new one.
    const SETTING: &str = "/proc/sys/net/ipv4/ip_default_ttl";
    const FIRST: &str = "64\n";

    fn value() -> String {
        fs::read_to_string(SETTING).unwrap()
    }

    fn files(state: &StateDir) -> usize {
        state.folder().names().unwrap().len()
    }

    /// Does `work` with a folder of its own, in a network namespace of its own.
    fn in_a_namespace(name: &str, work: impl FnOnce(&StateDir) + Send + 'static) {
        if !privilege::may_make_namespaces() {
            eprintln!("skipped: network namespaces are not permitted here");
            return;
        }
        let unique = format!("ms-journal-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        Namespace::create("ms-journal").unwrap().run(move || {
            let state = StateDir::at(folder.clone()).unwrap();
            assert_eq!(value(), FIRST);
            work(&state);
            fs::remove_dir_all(folder).unwrap();
        });
    }

    #[test]
    fn what_was_changed_is_put_back_in_the_end_and_nothing_stays() {
        in_a_namespace("dropped", |state| {
            let mut journal = Journal::open(state).unwrap();
            journal.set(Path::new(SETTING), "65").unwrap();
            journal.set(Path::new(SETTING), "66").unwrap();
            assert_eq!(value(), "66\n");
            // It lives: nobody else touches it.
            assert_eq!(put_back_of_the_dead(state).unwrap(), Vec::<String>::new());
            assert_eq!(value(), "66\n");
            drop(journal);
            assert_eq!((value().as_str(), files(state)), (FIRST, 0));
        });
    }

    #[test]
    fn a_journal_that_is_dropped_in_another_namespace_changes_nothing_there() {
        in_a_namespace("elsewhere", |state| {
            let mut journal = Journal::open(state).unwrap();
            journal.set(Path::new(SETTING), "65").unwrap();
            let other = Namespace::create("ms-journal-2").unwrap();
            let there = other.run(|| {
                fs::write(SETTING, "66").unwrap();
                drop(journal);
                value()
            });
            assert_eq!((there.as_str(), value().as_str(), files(state)), ("66\n", "65\n", 1));
        });
    }

    /// The journal of an owner that was killed, as the next start finds it.
    fn of_a_killed_owner(state: &StateDir, change: impl FnOnce(&mut Text)) {
        let mut journal = Journal::open(state).unwrap();
        journal.set(Path::new(SETTING), "65").unwrap();
        journal.text.owner.start_ticks += 1;
        change(&mut journal.text);
        journal.write().unwrap();
        std::mem::forget(journal);
    }

    #[test]
    fn the_next_start_puts_back_what_a_killed_one_has_changed() {
        in_a_namespace("killed", |state| {
            of_a_killed_owner(state, |_| {});
            let lines = put_back_of_the_dead(state).unwrap();
            assert!(lines.len() == 1 && lines[0].ends_with("back to 64"), "{lines:?}");
            assert_eq!((value().as_str(), files(state)), (FIRST, 0));
        });
    }

    #[test]
    fn a_journal_that_found_no_room_or_whose_writer_was_killed_leaves_nothing() {
        in_a_namespace("part", |state| {
            // No process has such a number.
            let dead = format!("{}-0.{PART}", u32::MAX);
            let mut journal = Journal::open(state).unwrap();
            let part = journal.file(PART);
            let at = |name: &str| state.folder().path().join(name);
            fs::write(at(&dead), "{").unwrap();
            fs::write(at(&part), "{").unwrap();
            assert_eq!(put_back_of_the_dead(state).unwrap(), Vec::<String>::new());
            assert!(!at(&dead).exists() && at(&part).exists(), "who lives may be writing");
            // As where the disk is full: the journal's own name is taken by what no file replaces.
            let taken = at(&journal.file(ENDING));
            fs::create_dir(&taken).unwrap();
            assert!(journal.set(Path::new(SETTING), "65").is_err());
            assert_eq!(value(), FIRST);
            fs::remove_dir(&taken).unwrap();
            drop(journal);
            assert_eq!(files(state), 0);
        });
    }

    #[test]
    fn a_forged_journal_writes_no_other_file_and_asks_nothing_of_odd_interfaces() {
        in_a_namespace("forged", |state| {
            let place = state.folder().path().join("place");
            fs::create_dir(&place).unwrap();
            let victim = place.join("cpu.max");
            fs::write(&victim, "theirs").unwrap();
            let below = |root: &str| PathBuf::from(format!("{root}/../../..{}", victim.display()));
            let mut paths = vec![
                victim.clone(),
                below("/proc/sys/net"),
                below("/sys/fs/cgroup"),
                below("/sys/class/net"),
                below("/proc/irq"),
            ];
            let odd = [
                "/proc/sys/kernel/core_pattern",
                "/proc/sys/net",
                "/proc/sys/net/../kernel/core_pattern",
                "/sys/class/net/lo/queues/../../lo/mtu",
                "/sys/class/net/../net/mtu",
                "/sys/class/net/lo/ifalias",
                "/proc/irq/0/../../sysrq-trigger",
                "proc/sys/net/ipv4/ip_default_ttl",
                "",
            ];
            paths.extend(odd.iter().map(PathBuf::from));
            for path in paths {
                assert!(!is_setting(&path) && setting(&path).is_err(), "{path:?}");
                let of_it = path.clone();
                of_a_killed_owner(state, |text| text.changes[0].path = of_it);
                let lines = put_back_of_the_dead(state).unwrap();
                assert!(lines.len() == 1 && lines[0].starts_with("cannot put"), "{lines:?}");
                assert!(Journal::open(state).unwrap().set(&path, "ours").is_err(), "{path:?}");
                let journals = state.folder().names().unwrap();
                journals.iter().for_each(|name| drop(state.folder().remove(name)));
            }
            assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
            for what in [What::Offload, What::Rings] {
                for name in ["", "..", "a/b", "lo:1", "a b", "lo\n", "longer-than-fifteen"] {
                    let change = Change { path: name.into(), before: "1 1".to_owned(), what };
                    let kind = change.put_back().unwrap_err().kind();
                    assert_eq!(kind, io::ErrorKind::InvalidData, "{name:?}");
                }
            }
        });
    }

    #[test]
    fn a_namespace_that_a_mount_holds_is_found() {
        let mounts = "22 1 0:5 / /proc rw - proc proc rw\n\
             99 22 0:4 net:[4026532280] /run/netns/left rw shared:5 - nsfs nsfs rw\n";
        assert_eq!(mounted(4_026_532_280, mounts), Some("/run/netns/left"));
        assert_eq!(mounted(402_653_228, mounts), None);
    }

    #[test]
    fn another_boot_and_another_namespace_have_settings_of_their_own() {
        in_a_namespace("other", |state| {
            of_a_killed_owner(state, |text| text.owner.boot.push('x'));
            of_a_killed_owner(state, |text| text.namespace = 1);
            let lines = put_back_of_the_dead(state).unwrap();
            assert!(lines.len() == 1 && lines[0].contains("is gone"), "{lines:?}");
            assert_eq!((value().as_str(), files(state)), ("65\n", 0));
        });
    }

    #[test]
    fn what_cannot_be_put_back_is_said_and_kept_for_the_next_start() {
        in_a_namespace("stuck", |state| {
            of_a_killed_owner(state, |text| {
                text.changes[0].path = "/proc/sys/net/ipv4/no_such_setting".into();
            });
            for _ in 0..2 {
                let lines = put_back_of_the_dead(state).unwrap();
                assert!(lines.len() == 1 && lines[0].starts_with("cannot put"), "{lines:?}");
                assert_eq!(files(state), 1);
            }
        });
    }

    #[test]
    fn only_settings_of_the_network_are_sysctls_here() {
        let of = |name| sysctl_path(name).map(|path| path.display().to_string());
        assert_eq!(of("net.core.somaxconn").unwrap(), "/proc/sys/net/core/somaxconn");
        for bad in ["kernel.panic", "net.core", "net.core.", "net...x", "net.core.a/b", ""] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
