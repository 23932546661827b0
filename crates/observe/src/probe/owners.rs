//! The kernel's sockets of every network namespace that can be entered, and the processes that have
//! them.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::os::linux::fs::MetadataExt;
use std::path::PathBuf;

use millstream_netlink::{InetSocket, Protocol, State, each_inet_socket};

use super::host::in_namespace;
use super::{Absent, limits};

/// A socket of the kernel, and whose it is.
#[derive(Clone, Debug)]
pub struct OwnedSocket {
    /// The network namespace that it is in, by inode number.
    pub namespace: u64,
    /// The socket.
    pub socket: InetSocket,
    /// Processes that have it, each with its descriptor there, where they are asked for; one that
    /// may not be looked at is not among them.
    pub owners: Vec<(u32, u32)>,
}

/// Returns the sockets of all namespaces that processes of this machine are in, as far as they can
/// be entered, `with_owners` or without: every descriptor of the machine is looked at for them.
///
/// # Errors
/// When not even the sockets of the own namespace can be listed.
pub fn owned_sockets(with_owners: bool) -> Result<Vec<OwnedSocket>, Absent> {
    let mut owners: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
    let mut namespaces: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes =
        processes.filter_map(|one| one.file_name().to_str().and_then(|name| name.parse().ok()));
    for process in processes {
        let most = if with_owners { limits::OWNED_DESCRIPTORS } else { 0 };
        for (descriptor, link) in descriptors_of(process, most) {
            if let Some(inode) = socket(&link) {
                owners.entry(inode).or_default().push((process, descriptor));
            }
        }
        for path in namespaces_of(process) {
            if let Ok(namespace) = fs::metadata(&path) {
                namespaces.entry(namespace.st_ino()).or_insert(path);
            }
        }
    }
    let own = fs::metadata("/proc/thread-self/ns/net").map(|one| one.st_ino()).unwrap_or(0);
    namespaces.remove(&own);
    let mut all = Vec::new();
    let mut add = |namespace, sockets: Vec<InetSocket>| {
        all.extend(sockets.into_iter().map(|socket| {
            let owners = owners.get(&socket.inode).cloned().unwrap_or_default();
            OwnedSocket { namespace, socket, owners }
        }));
    };
    add(own, sockets()?);
    for (namespace, path) in namespaces {
        // A namespace may go with its last process, or be another user's.
        if let Ok(sockets) = in_namespace(&path, sockets) {
            add(namespace, sockets);
        }
    }
    Ok(all)
}

/// Returns the paths of the namespaces of a process, in which a thread may have one of its own.
fn namespaces_of(process: u32) -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks.take(limits::WORKER_THREADS).map(|task| task.path().join("ns/net"))
}

/// Returns the descriptors that a process has, the first `most`, with their links.
pub(super) fn descriptors_of(process: u32, most: usize) -> impl Iterator<Item = (u32, String)> {
    let folder = (most > 0).then(|| fs::read_dir(format!("/proc/{process}/fd")).ok()).flatten();
    folder.into_iter().flatten().flatten().take(most).filter_map(|one| {
        let link = fs::read_link(one.path()).ok()?.to_str()?.to_owned();
        Some((one.file_name().to_str()?.parse().ok()?, link))
    })
}

/// Returns the inode of the socket that a descriptor's link names.
pub(super) fn socket(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns the sockets of the namespace that the calling thread is in.
pub(super) fn sockets() -> Result<Vec<InetSocket>, Absent> {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let mut all = Vec::new();
    for protocol in Protocol::ALL {
        for v6 in [false, true] {
            let done = each_inet_socket(protocol, v6, |one| {
                let (local, remote) = (plain(one.local), plain(one.remote));
                all.push(InetSocket { local, remote, ..one });
            });
            // Without IPv6 there are none of it.
            if !v6 {
                done.map_err(|error| Absent(format!("sock_diag: {error}")))?;
            }
        }
    }
    // A socket that has been closed has no process any more.
    all.retain(|one| one.inode != 0 || one.state == State::LISTEN);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    /// Both ends are this process's, each with the descriptor that it has here.
    #[test]
    fn a_connection_has_its_process_and_descriptor_at_either_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let all = owned_sockets(true).unwrap();
        for end in [&client, &server] {
            let ends = (end.local_addr().unwrap(), end.peer_addr().unwrap());
            let found = all.iter().find(|one| (one.socket.local, one.socket.remote) == ends);
            let owner = (std::process::id(), end.as_raw_fd() as u32);
            assert_eq!(found.expect("it").owners, [owner]);
        }
        let unnamed = owned_sockets(false).unwrap();
        assert!(!unnamed.is_empty() && unnamed.iter().all(|one| one.owners.is_empty()));
    }
}
