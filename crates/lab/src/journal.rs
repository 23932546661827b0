//! Settings of this machine that are changed for a while, and put back whatever happens.
//!
//! What a file under `/proc/sys` holds is written to a journal, and the journal to the disk, before the file is changed. The
//! journal puts all back when it is dropped. Of an owner that was killed the next start puts it back, or `millstream undo`:
//! [`put_back_of_the_dead`]. A journal of an earlier boot is removed, for its settings have gone with that boot; one of
//! another network namespace stays as long as anybody is in that.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use millstream::link::netdev::Rings;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::leftovers::{ProcessIdentity, StateDir};
use crate::namespace;
use crate::netlink::set_features;

/// End of a journal's name.
const ENDING: &str = "undo";

/// End of its name while it is written.
const PART: &str = "undo-part";

/// How a line begins that says where there is something to put back that cannot be reached from here.
pub const ELSEWHERE: &str = "another network namespace has settings to put back";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Text {
    owner: ProcessIdentity,
    /// Network namespace, whose own some of the settings are.
    namespace: u64,
    /// In the order in which they were changed.
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

/// What was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    /// What a file holds.
    #[default]
    File,
    /// Offload features of an interface: those that were off.
    Offload,
    /// Packets of an interface's receive and transmit rings.
    Rings,
}

impl Change {
    fn put_back(&self) -> std::io::Result<()> {
        let interface = self.path.to_string_lossy();
        match self.what {
            What::File => fs::write(&self.path, &self.before),
            What::Offload => {
                let features: Vec<&str> = self.before.split_whitespace().collect();
                set_features(&interface, &features, false)
            }
            What::Rings => {
                let mut words = self.before.split_whitespace().map(str::parse);
                let (Some(Ok(receive)), Some(Ok(transmit))) = (words.next(), words.next()) else {
                    return Err(std::io::ErrorKind::InvalidData.into());
                };
                Rings::set(&interface, receive, transmit).map_err(std::io::Error::other)
            }
        }
    }
}

/// Changes that are in force. Dropping it puts them back.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
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
        let path = state.folder().join(format!("{pid}-{number}.{ENDING}"));
        Ok(Self { path, text: Text { owner, namespace, changes: vec![] } })
    }

    /// Writes `value` to a file of settings, once what it held is on the disk. Where the value is refused what was before is
    /// still in force.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<(), Error> {
        let named = path.display().to_string();
        let before = fs::read_to_string(path).map_err(Error::file(named.clone()))?;
        let before = before.trim_end().to_owned();
        self.text.changes.push(Change { path: path.to_owned(), before, what: What::File });
        self.write()?;
        fs::write(path, value).map_err(Error::file(named))
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

    /// Gives the rings of an interface so many packets, or the `most` that they take, once what they had is on the disk.
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

    /// Written aside, to the disk, and renamed: whoever finds it finds all of it.
    fn write(&self) -> Result<(), Error> {
        let part = self.path.with_extension(PART);
        let text = serde_json::to_string(&self.text).expect("plain data");
        let write = || {
            let mut file = fs::File::create(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, &self.path)?;
            fs::File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        write().map_err(Error::file(self.path.display().to_string()))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let (_, failed) = self.text.put_back();
        // One that found no room.
        let _ = fs::remove_file(self.path.with_extension(PART));
        // What could not be put back is tried again by the next start.
        if failed == 0 {
            let _ = fs::remove_file(&self.path);
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

/// Puts back what killed owners have changed: a line for each thing. Journals of living owners are left alone.
pub fn put_back_of_the_dead(state: &StateDir) -> Result<Vec<String>, Error> {
    let named = || state.folder().display().to_string();
    let listed = fs::read_dir(state.folder()).map_err(Error::file(named()))?;
    let here = namespace::current_inode().map_err(Error::host("read the network namespace"))?;
    let boot = ProcessIdentity::of(std::process::id()).map_err(Error::file("/proc/self/stat"))?;
    let mut lines = Vec::new();
    let paths = listed.flatten().map(|entry| entry.path());
    let (parts, paths): (Vec<_>, Vec<_>) =
        paths.partition(|path| path.extension().is_some_and(|end| end == PART));
    // Nothing has been changed by what such a file says.
    parts
        .iter()
        .filter(|part| !is_being_written(part))
        .for_each(|part| drop(fs::remove_file(part)));
    for path in paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == ENDING)) {
        let text = fs::read_to_string(&path).ok();
        let text = text.and_then(|text| serde_json::from_str::<Text>(&text).ok());
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
            let _ = fs::remove_file(&path);
        }
    }
    Ok(lines)
}

/// Whether the process lives that a file is named after.
fn is_being_written(part: &Path) -> bool {
    let name = part.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let pid = name.split_once('-').and_then(|(pid, _)| pid.parse().ok());
    pid.is_none_or(|pid| ProcessIdentity::of(pid).is_ok())
}

/// How a network namespace is entered that lives; `None` where there is none.
fn way_into(namespace: u64) -> Option<String> {
    let of_process = inside(namespace).map(|pid| format!("nsenter -t {pid} -n -m"));
    of_process.or_else(|| {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let path = mounted(namespace, &mounts)?;
        // That command shows the settings of the namespace's own interfaces in /sys, too.
        let name = ["/run/netns/", "/var/run/netns/"].iter().find_map(|at| path.strip_prefix(at));
        Some(match name {
            Some(name) => format!("ip netns exec {name}"),
            None => format!("nsenter --net={path}"),
        })
    })
}

/// Where a network namespace lies that a mount holds, with nobody in it (`ip netns add`).
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

/// The file of a sysctl; `None` for a name that is none, or that has nothing to do with the network.
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

    fn place(name: &str) -> (StateDir, PathBuf) {
        let unique = format!("ms-journal-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        let state = StateDir::at(folder.join("state")).unwrap();
        let setting = folder.join("setting");
        fs::write(&setting, "first\n").unwrap();
        (state, setting)
    }

    fn files(state: &StateDir) -> usize {
        fs::read_dir(state.folder()).unwrap().count()
    }

    #[test]
    fn what_was_changed_is_put_back_in_the_end_and_nothing_stays() {
        let (state, setting) = place("dropped");
        let mut journal = Journal::open(&state).unwrap();
        journal.set(&setting, "second").unwrap();
        journal.set(&setting, "third").unwrap();
        assert_eq!(fs::read_to_string(&setting).unwrap(), "third");
        // It lives: nobody else touches it.
        assert_eq!(put_back_of_the_dead(&state).unwrap(), Vec::<String>::new());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "third");
        drop(journal);
        assert_eq!((fs::read_to_string(&setting).unwrap().as_str(), files(&state)), ("first", 0));
        fs::remove_dir_all(setting.parent().unwrap()).unwrap();
    }

    /// The journal of an owner that was killed, as the next start finds it.
    fn of_a_killed_owner(state: &StateDir, setting: &Path, change: impl FnOnce(&mut Text)) {
        let mut journal = Journal::open(state).unwrap();
        journal.set(setting, "second").unwrap();
        journal.text.owner.start_ticks += 1;
        change(&mut journal.text);
        journal.write().unwrap();
        std::mem::forget(journal);
    }

    #[test]
    fn the_next_start_puts_back_what_a_killed_one_has_changed() {
        let (state, setting) = place("killed");
        of_a_killed_owner(&state, &setting, |_| {});
        let lines = put_back_of_the_dead(&state).unwrap();
        assert!(lines.len() == 1 && lines[0].ends_with("back to first"), "{lines:?}");
        assert_eq!((fs::read_to_string(&setting).unwrap().as_str(), files(&state)), ("first", 0));
        fs::remove_dir_all(setting.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_journal_that_found_no_room_or_whose_writer_was_killed_leaves_nothing() {
        let (state, setting) = place("part");
        // No process has such a number.
        let dead = state.folder().join(format!("{}-0.{PART}", u32::MAX));
        fs::write(&dead, "{").unwrap();
        let mut journal = Journal::open(&state).unwrap();
        let part = journal.path.with_extension(PART);
        fs::write(&part, "{").unwrap();
        assert_eq!(put_back_of_the_dead(&state).unwrap(), Vec::<String>::new());
        assert!(!dead.exists() && part.exists(), "who lives may be writing");
        // As where the disk is full: the journal's own name is taken by what no file replaces.
        fs::create_dir(&journal.path).unwrap();
        assert!(journal.set(&setting, "second").is_err());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "first\n");
        fs::remove_dir(&journal.path).unwrap();
        drop(journal);
        assert_eq!(files(&state), 0);
        fs::remove_dir_all(setting.parent().unwrap()).unwrap();
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
        let (state, setting) = place("other");
        of_a_killed_owner(&state, &setting, |text| text.owner.boot.push('x'));
        of_a_killed_owner(&state, &setting, |text| text.namespace = 1);
        let lines = put_back_of_the_dead(&state).unwrap();
        assert!(lines.len() == 1 && lines[0].contains("is gone"), "{lines:?}");
        assert_eq!((fs::read_to_string(&setting).unwrap().as_str(), files(&state)), ("second", 0));
        fs::remove_dir_all(setting.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_cannot_be_put_back_is_said_and_kept_for_the_next_start() {
        let (state, setting) = place("stuck");
        of_a_killed_owner(&state, &setting, |text| {
            text.changes[0].path = "/no/such/folder/setting".into();
        });
        for _ in 0..2 {
            let lines = put_back_of_the_dead(&state).unwrap();
            assert!(lines.len() == 1 && lines[0].starts_with("cannot put"), "{lines:?}");
            assert_eq!(files(&state), 1);
        }
        fs::remove_dir_all(setting.parent().unwrap()).unwrap();
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
