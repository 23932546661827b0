//! The network namespaces that the ends of a command are in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use millstream_observe::probe::{Host, NetSource};
use millstream_testbed::journal::is_reachable;
use millstream_testbed::namespace::current_inode;

/// Name of the host that this process is in.
const HERE: &str = "here";
/// Namespaces that are looked at, at most.
const MOST: usize = 16;

/// The namespaces of the ends, found while they run and held open for the runs that follow.
#[derive(Debug, Default)]
pub struct Namespaces {
    own: Option<u64>,
    others: Vec<Other>,
    /// The namespace of each process of the run that goes on, or of the last one.
    of: BTreeMap<u32, u64>,
}

#[derive(Debug)]
struct Other {
    inode: u64,
    name: String,
    /// Keeps it: its processes may end before they are looked at.
    file: File,
}

impl Other {
    fn host(&self) -> Host {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Host { name: self.name.clone(), net: NetSource::Namespace(path.into()) }
    }
}

impl Namespaces {
    /// Returns the hosts of a run that begins: this one, and those of the runs before it.
    pub(super) fn begin(&mut self) -> Vec<Host> {
        self.own = current_inode().ok();
        self.of.clear();
        // One that only its processes had is gone with them.
        self.others.retain(|one| is_reachable(one.inode));
        std::iter::once(here()).chain(self.others.iter().map(Other::host)).collect()
    }

    /// Notes where the processes of an end are, and returns the hosts that were not known.
    pub(super) fn look(&mut self, role: &str, processes: &[u32]) -> Vec<Host> {
        let mut fresh = Vec::new();
        for &process in processes {
            let path = format!("/proc/{process}/ns/net");
            let Ok(inode) = fs::metadata(&path).map(|meta| meta.ino()) else { continue };
            self.of.insert(process, inode);
            let is_known =
                self.own == Some(inode) || self.others.iter().any(|one| one.inode == inode);
            if is_known || self.others.len() >= MOST {
                continue;
            }
            let Ok(file) = File::open(&path) else { continue };
            let taken = |name: &String| self.others.iter().any(|one| one.name == *name);
            let mut names =
                std::iter::once(role.to_owned()).chain((2..).map(|at| format!("{role}-{at}")));
            let name = names.find(|name| !taken(name)).unwrap_or_default();
            self.others.push(Other { inode, name, file });
            fresh.extend(self.others.last().map(Other::host));
        }
        fresh
    }

    /// Returns the hosts that the ends of the last run were in; this one where there was none.
    pub(super) fn of_ends(&self) -> Vec<Host> {
        let inodes: BTreeSet<u64> = self.of.values().copied().collect();
        let others = self.others.iter().filter(|one| inodes.contains(&one.inode));
        let others: Vec<Host> = others.map(Other::host).collect();
        let is_here = self.own.is_some_and(|own| inodes.contains(&own));
        let here = (is_here || others.is_empty()).then(here);
        here.into_iter().chain(others).collect()
    }
}

fn here() -> Host {
    Host { name: HERE.to_owned(), net: NetSource::Own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_testbed::namespace::Namespace;
    use millstream_testbed::privilege;

    #[test]
    fn the_ends_are_found_where_they_are_and_forgotten_with_their_namespace() {
        if !privilege::may_make_namespaces() {
            return eprintln!("skipped: network namespaces are not permitted here");
        }
        let names = |hosts: Vec<Host>| hosts.into_iter().map(|one| one.name).collect::<Vec<_>>();
        let mut found = Namespaces::default();
        assert_eq!(names(found.begin()), ["here"]);
        assert_eq!(names(found.of_ends()), ["here"]);
        let other = Namespace::create("ms-elsewhere").unwrap();
        let mut sleeper = other
            .run(|| std::process::Command::new("sleep").arg("60").spawn())
            .expect("a process inside");
        let pids = [std::process::id(), sleeper.id()];
        assert_eq!(names(found.look("client", &pids)), ["client"]);
        assert_eq!(names(found.look("client", &pids)), Vec::<String>::new());
        assert_eq!(names(found.of_ends()), ["here", "client"]);
        found.look("server", &[u32::MAX]);
        assert_eq!(names(found.begin()), ["here", "client"]);
        assert_eq!(names(found.look("server", &[sleeper.id()])), Vec::<String>::new());
        assert_eq!(names(found.of_ends()), ["client"]);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        drop(other);
        assert_eq!(names(found.begin()), ["here"]);
    }
}
