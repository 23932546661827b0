//! The processes at both ends of connections, wherever their network namespaces are.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::os::linux::fs::MetadataExt;
use std::path::PathBuf;

use millstream_netlink::{InetSocket, Protocol, State};
use millstream_record::{End, SharedAddress};

use super::connections::Connections;
use super::host::in_namespace;
use super::limits;
use super::owners::{descriptors_of, socket, sockets};
use crate::bpf::{self, Opener};

/// Settings of a namespace that are told of its processes, `net.ipv4.`.
const SETTINGS: [&str; 4] =
    ["tcp_congestion_control", "tcp_rmem", "tcp_wmem", "tcp_window_scaling"];

/// Devices through which a program has packets of others.
const TUN: &str = "/dev/net/tun";
const MACVTAP: &str = "/dev/tap";

/// The processes that were seen at ends of connections.
#[derive(Default)]
pub(super) struct Peers {
    ends: BTreeMap<u32, End>,
    /// Namespaces and processes in which somebody listens at a TCP port.
    listening: HashMap<u16, BTreeSet<(u64, u32)>>,
    /// Addresses of namespaces at which somebody listened.
    shared: BTreeMap<(u64, SocketAddr), Shared>,
    /// Processes that have a TUN or TAP device open.
    pub(super) carriers: BTreeSet<u32>,
    /// Processes that have a UDP socket.
    pub(super) with_udp: BTreeSet<u32>,
    /// Settings of the namespace of each process.
    settings: HashMap<u32, BTreeMap<String, String>>,
    /// Files that a process had open, by the beginning of their name; `None` where several begin so.
    files: HashMap<(u32, String), Option<String>>,
    /// The connections.
    pub(super) connections: Connections,
}

/// The sockets that listened at one address, and how many connections at its port each of their
/// processes had at most.
#[derive(Default)]
struct Shared {
    sockets: BTreeSet<u32>,
    connections: BTreeMap<u32, u32>,
}

/// A socket, the namespace that it is in, and the processes that have it.
struct Owned {
    namespace: u64,
    socket: InetSocket,
    owners: Vec<u32>,
}

impl Peers {
    /// Looks which of `processes` are connected with which now.
    pub(super) fn look(&mut self, processes: impl IntoIterator<Item = u32>) {
        let mut owners: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut namespaces: BTreeMap<u64, PathBuf> = BTreeMap::new();
        let mut within: Vec<(u32, u64)> = Vec::new();
        for process in processes {
            let path = PathBuf::from(format!("/proc/{process}/ns/net"));
            // One that has ended has none.
            if let Ok(namespace) = fs::metadata(&path) {
                within.push((process, namespace.st_ino()));
                namespaces.insert(namespace.st_ino(), path);
                for (_, link) in descriptors_of(process, limits::DESCRIPTORS) {
                    match socket(&link) {
                        Some(inode) => owners.entry(inode).or_default().push(process),
                        None => self.note_file(process, &link),
                    }
                }
            }
        }
        let mut all: Vec<Owned> = Vec::new();
        let mut settings: HashMap<u64, BTreeMap<String, String>> = HashMap::new();
        for (namespace, path) in namespaces {
            // A namespace may go with its last process.
            let Ok((there, sockets)) = in_namespace(&path, || Ok((self::settings(), sockets()?)))
            else {
                continue;
            };
            settings.insert(namespace, there);
            for socket in sockets {
                let owners = owners.get(&socket.inode).cloned().unwrap_or_default();
                all.push(Owned { namespace, socket, owners });
            }
        }
        let of = |(process, namespace)| Some((process, settings.get(&namespace)?.clone()));
        self.settings.extend(within.into_iter().filter_map(of));
        self.add(&all);
    }

    fn add(&mut self, all: &[Owned]) {
        self.connections.begin();
        for one in all.iter().filter(|one| one.socket.protocol == Protocol::Tcp) {
            self.connections.take(&one.socket, one.owners.first().copied());
            if one.socket.state == State::LISTEN {
                let at = self.listening.entry(one.socket.local.port()).or_default();
                at.extend(one.owners.iter().map(|owner| (one.namespace, *owner)));
            }
        }
        self.add_shared(all);
        let udp = all.iter().filter(|one| one.socket.protocol == Protocol::Udp);
        self.with_udp.extend(udp.flat_map(|one| &one.owners));
        let ends = |one: &Owned| (one.socket.protocol, one.socket.local, one.socket.remote);
        let is_open = |one: &&Owned| one.socket.remote.port() == 0;
        let listening: HashSet<_> = (all.iter().filter(is_open))
            .map(|one| (one.namespace, one.socket.protocol, one.socket.local.port()))
            .collect();
        let mut by_ends: HashMap<(Protocol, SocketAddr, SocketAddr), &Owned> = HashMap::new();
        by_ends.extend(all.iter().map(|one| (ends(one), one)));
        // Datagrams come to one socket from everywhere.
        let open = |protocol: Protocol, address: SocketAddr| {
            all.iter().filter(is_open).find(|one| {
                let local = one.socket.local;
                (one.socket.protocol, local.port()) == (protocol, address.port())
                    && (local.ip().is_unspecified() || local.ip() == address.ip())
            })
        };
        for one in all.iter().filter(|one| !is_open(one)) {
            let (protocol, local, remote) = ends(one);
            let accepted = listening.contains(&(one.namespace, protocol, local.port()));
            let other = by_ends.get(&(protocol, remote, local)).copied();
            let other = other.or_else(|| match protocol {
                Protocol::Udp => open(protocol, remote),
                Protocol::Tcp => None,
            });
            let others = other.map_or(&[][..], |other| &other.owners);
            for owner in &one.owners {
                self.note(*owner, accepted, others);
            }
            if protocol == Protocol::Udp {
                others.iter().for_each(|other| self.note(*other, true, &one.owners));
            }
        }
    }

    /// Notes which processes share an address at which they listen, and the connections of each.
    fn add_shared(&mut self, all: &[Owned]) {
        let tcp = || all.iter().filter(|one| one.socket.protocol == Protocol::Tcp);
        for one in tcp().filter(|one| one.socket.state == State::LISTEN) {
            let local = one.socket.local;
            let shared = self.shared.entry((one.namespace, local)).or_default();
            shared.sockets.insert(one.socket.inode);
            for owner in &one.owners {
                let is_of_it = |other: &&Owned| {
                    let there = &other.socket;
                    there.remote.port() != 0
                        && (other.namespace, there.local.port()) == (one.namespace, local.port())
                        && other.owners.contains(owner)
                };
                let now = tcp().filter(is_of_it).count() as u32;
                let most = shared.connections.entry(*owner).or_default();
                *most = now.max(*most);
            }
        }
    }

    /// Returns the addresses at which several sockets listened.
    pub(super) fn shared(&self) -> Vec<SharedAddress> {
        let several = self.shared.iter().filter(|(_, shared)| shared.sockets.len() > 1);
        let one = |((_, address), shared): (&(u64, SocketAddr), &Shared)| SharedAddress {
            address: address.to_string(),
            sockets: shared.sockets.len() as u32,
            connections: shared.connections.clone(),
        };
        several.map(one).collect()
    }

    /// Joins processes that opened connections, be they ever so short, with those that listen at
    /// the port, where these are of one namespace.
    pub(super) fn opened<'a>(&mut self, by: impl IntoIterator<Item = &'a Opener>) {
        for Opener { process, port, .. } in by.into_iter().filter(|one| !one.looks_up) {
            let at = self.listening.get(port).into_iter().flatten();
            let at: Vec<(u64, u32)> = at.copied().collect();
            let is_one = at.windows(2).all(|pair| pair[0].0 == pair[1].0);
            let others: Vec<u32> = at.into_iter().filter(|_| is_one).map(|one| one.1).collect();
            self.note(*process, false, &others);
            others.iter().for_each(|other| self.note(*other, true, &[*process]));
        }
    }

    fn note_file(&mut self, process: u32, path: &str) {
        if path == TUN || path.starts_with(MACVTAP) {
            self.carriers.insert(process);
        }
        if let Some((_, name)) = path.rsplit_once('/').filter(|_| path.starts_with('/')) {
            let known = self.files.entry((process, begin_of(name)));
            let of = known.or_insert_with(|| Some(path.to_owned()));
            if of.as_deref() != Some(path) {
                *of = None;
            }
        }
    }

    /// Returns the path of the file that a process had open whose name begins so, where that is one
    /// alone.
    pub(super) fn path_of(&self, process: u32, name: &str) -> Option<&str> {
        self.files.get(&(process, begin_of(name)))?.as_deref()
    }

    fn note(&mut self, process: u32, accepted: bool, others: &[u32]) {
        let end = self.ends.entry(process).or_default();
        if let Some(there) = self.settings.get(&process) {
            end.settings.clone_from(there);
        }
        end.accepts |= accepted;
        end.connects |= !accepted;
        end.peers.extend(others);
        end.peers.sort_unstable();
        end.peers.dedup();
    }

    /// Returns the processes at the other ends of connections of `process`.
    pub(super) fn of(&self, process: u32) -> &[u32] {
        self.ends.get(&process).map_or(&[], |end| &end.peers)
    }

    /// Returns what was seen in all looks, by process.
    pub(super) fn ends(&self) -> &BTreeMap<u32, End> {
        &self.ends
    }
}

/// Returns the part of a file's name that the kernel's programs keep.
fn begin_of(name: &str) -> String {
    let bytes = name.as_bytes();
    millstream_foreign::shown(&bytes[..bytes.len().min(bpf::FILE_NAME)])
}

/// Returns the settings of the namespace that the calling thread is in.
fn settings() -> BTreeMap<String, String> {
    let value = |name: &str| {
        let value = millstream_foreign::read(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        Some((name.to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    SETTINGS.into_iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(namespace: u64, protocol: Protocol, ends: [&str; 2], owner: u32) -> Owned {
        let [local, remote] = ends.map(|end| end.parse().unwrap());
        let is_open = remote == SocketAddr::from(([0, 0, 0, 0], 0));
        let state = if is_open { State::LISTEN } else { State(1) };
        let socket = InetSocket {
            protocol,
            state,
            local,
            remote,
            cookie: 0,
            inode: owner,
            receive_queue: 0,
            send_queue: 0,
            receive_memory: None,
            send_memory: None,
            drops: None,
            tcp: None,
        };
        Owned { namespace, socket, owners: vec![owner] }
    }

    #[test]
    fn a_file_is_told_by_its_path_where_no_other_begins_so() {
        let mut peers = Peers::default();
        for path in ["/a/appendonly.aof.1.incr.aof", "/a/log", "/b/journal-2026-11-29", "pipe:[7]"]
        {
            peers.note_file(5, path);
            peers.note_file(5, path);
        }
        peers.note_file(5, "/b/journal-2026-11-30");
        peers.note_file(6, TUN);
        peers.note_file(7, "/dev/tap9");
        assert_eq!(peers.carriers, [6, 7].into());
        assert_eq!(peers.path_of(5, "appendonly.aof."), Some("/a/appendonly.aof.1.incr.aof"));
        assert_eq!(peers.path_of(5, "log"), Some("/a/log"));
        assert_eq!((peers.path_of(5, "journal-2026-11"), peers.path_of(6, "log")), (None, None));
    }

    #[test]
    fn sockets_that_share_an_address_are_told_with_the_connections_of_their_processes() {
        let (mut peers, none) = (Peers::default(), "0.0.0.0:0");
        let mut all = vec![
            owned(1, Protocol::Tcp, ["10.0.0.2:80", none], 11),
            owned(1, Protocol::Tcp, ["10.0.0.2:80", none], 12),
            owned(1, Protocol::Tcp, ["10.0.0.2:81", none], 11),
            owned(1, Protocol::Tcp, ["10.0.0.2:80", "10.0.0.1:40000"], 11),
            owned(1, Protocol::Tcp, ["10.0.0.2:80", "10.0.0.1:40001"], 11),
        ];
        all[1].socket.inode = 99;
        peers.add(&all);
        peers.add(&all[..4]);
        let expected = SharedAddress {
            address: "10.0.0.2:80".to_owned(),
            sockets: 2,
            connections: [(11, 2), (12, 0)].into(),
        };
        assert_eq!(peers.shared(), [expected]);
    }

    #[test]
    fn who_accepts_and_who_connects_is_joined_across_namespaces() {
        use Protocol::*;
        let none = "0.0.0.0:0";
        let mut peers = Peers::default();
        peers.add(&[
            owned(1, Tcp, ["10.0.0.1:40000", "10.0.0.2:80"], 11),
            owned(2, Tcp, ["0.0.0.0:80", none], 22),
            owned(2, Tcp, ["10.0.0.2:80", "10.0.0.1:40000"], 22),
            owned(2, Tcp, ["127.0.0.1:40001", "127.0.0.1:81"], 22),
            owned(2, Tcp, ["0.0.0.0:81", none], 33),
            owned(2, Tcp, ["127.0.0.1:81", "127.0.0.1:40001"], 33),
            owned(1, Udp, ["10.0.0.1:5000", "10.0.0.9:53"], 11),
            owned(3, Udp, ["0.0.0.0:53", none], 44),
        ]);
        assert_eq!(peers.with_udp, [11, 44].into());
        let ends = peers.ends();
        let said = |process: u32| (ends[&process].role(), ends[&process].peers.clone());
        assert_eq!(said(11), ("client", vec![22, 44]));
        assert_eq!(said(22), ("proxy", vec![11, 33]));
        assert_eq!(said(33), ("server", vec![22]));
        assert_eq!(said(44), ("server", vec![11]));
        // Connections that no look met: ports that two namespaces have tell of nobody.
        peers.add(&[
            owned(1, Tcp, ["0.0.0.0:90", none], 55),
            owned(1, Tcp, ["0.0.0.0:91", none], 55),
            owned(2, Tcp, ["0.0.0.0:91", none], 66),
        ]);
        let opener = |port, looks_up| Opener { process: 77, port, looks_up };
        peers.opened(&[opener(90, false), opener(91, false), opener(80, true)]);
        let said = |process: u32| (peers.ends()[&process].role(), &peers.ends()[&process].peers);
        assert_eq!(said(77), ("client", &vec![55]));
        assert_eq!(said(55), ("server", &vec![77]));
        assert!(!peers.ends().contains_key(&66));
    }
}
