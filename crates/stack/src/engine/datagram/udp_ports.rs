//! Which UDP socket a datagram is for, where no flow tells.
//!
//! Connected sockets are found by their ends, so that a server with a socket for each peer, all on one port, pays the
//! same for its first and its last. Those of a port that are not connected have different addresses, and are looked at
//! one by one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use crate::engine::tcp::listener::{match_rank, overlaps};

/// A connected socket's own address, and its peer's.
type Ends = (IpAddr, u16, SocketAddr);

fn ends(local: SocketAddr, remote: SocketAddr) -> Ends {
    (local.ip(), local.port(), remote)
}

/// See the module text. Sockets are named by their slots.
#[derive(Default)]
pub(crate) struct Ports {
    by_port: BTreeMap<u16, Port>,
    /// The last of those with the same ends gets what comes.
    connected: HashMap<Ends, Vec<u32>>,
}

#[derive(Default)]
struct Port {
    unconnected: Vec<(SocketAddr, u32)>,
    connected: usize,
}

impl Ports {
    pub fn is_used(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    /// Whether an unconnected socket has this very address.
    pub fn is_taken(&self, local: SocketAddr) -> bool {
        let port = self.by_port.get(&local.port());
        port.is_some_and(|port| port.unconnected.iter().any(|(other, _)| overlaps(*other, local)))
    }

    pub fn add(&mut self, slot: u32, local: SocketAddr, remote: Option<SocketAddr>) {
        let port = self.by_port.entry(local.port()).or_default();
        match remote {
            Some(remote) => {
                port.connected += 1;
                self.connected.entry(ends(local, remote)).or_default().push(slot);
            }
            None => port.unconnected.push((local, slot)),
        }
    }

    /// Forgets what was added.
    pub fn remove(&mut self, slot: u32, local: SocketAddr, remote: Option<SocketAddr>) {
        let Some(port) = self.by_port.get_mut(&local.port()) else { return };
        match remote {
            Some(remote) => {
                let ends = ends(local, remote);
                if let Some(slots) = self.connected.get_mut(&ends) {
                    slots.retain(|&other| other != slot);
                    if slots.is_empty() {
                        self.connected.remove(&ends);
                    }
                }
                port.connected -= 1;
            }
            None => port.unconnected.retain(|&(_, other)| other != slot),
        }
        if port.connected == 0 && port.unconnected.is_empty() {
            self.by_port.remove(&local.port());
        }
    }

    /// The unconnected sockets on a port that are bound to any address of the version, and of both.
    pub fn of_any(&self, to: SocketAddr) -> [Option<u32>; 2] {
        [2, 1].map(|rank| {
            let unconnected = &self.by_port.get(&to.port())?.unconnected;
            let is_it = |(bound, _): &&(SocketAddr, u32)| match_rank(*bound, to) == Some(rank);
            unconnected.iter().find(is_it).map(|&(_, slot)| slot)
        })
    }

    /// The socket for a datagram: a connected one before one bound to the address before one bound to
    /// any.
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let port = self.by_port.get(&local.port())?;
        if port.connected != 0
            && let Some(slots) = self.connected.get(&ends(local, remote))
        {
            return slots.last().copied();
        }
        let rank = |&(bound, slot): &(SocketAddr, u32)| Some((match_rank(bound, local)?, slot));
        port.unconnected.iter().filter_map(rank).max().map(|(_, slot)| slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_connected_come_first_and_then_the_more_exact() {
        let mut ports = Ports::default();
        let (any, own, peer) = (addr("0.0.0.0:53"), addr("10.0.0.1:53"), addr("10.0.0.2:9"));
        ports.add(1, any, None);
        assert!(ports.is_taken(any) && !ports.is_taken(own));
        ports.add(2, own, None);
        ports.add(3, own, Some(peer));
        ports.add(4, own, Some(peer));
        let found = |ports: &Ports| {
            [(own, peer), (own, addr("10.0.0.2:8")), (addr("10.0.0.3:53"), peer)]
                .map(|(local, remote)| ports.find(local, remote))
        };
        assert_eq!(found(&ports), [Some(4), Some(2), Some(1)]);
        ports.remove(4, own, Some(peer));
        assert_eq!(found(&ports), [Some(3), Some(2), Some(1)]);
        ports.remove(2, own, None);
        ports.remove(3, own, Some(peer));
        assert_eq!(found(&ports), [Some(1); 3]);
        ports.remove(1, any, None);
        assert_eq!(found(&ports), [None; 3]);
        assert!(!ports.is_used(53) && ports.connected.is_empty());
    }

    /// Of a connected socket's port its address is free for others.
    #[test]
    fn connecting_leaves_the_address_to_others() {
        let mut ports = Ports::default();
        let own = addr("10.0.0.1:53");
        for slot in 0..1000 {
            assert!(!ports.is_taken(own));
            let remote = SocketAddr::new(own.ip(), 1000 + slot as u16);
            ports.add(slot, own, None);
            assert!(ports.is_taken(own));
            ports.remove(slot, own, None);
            ports.add(slot, own, Some(remote));
            assert_eq!(ports.find(own, remote), Some(slot));
        }
        assert!(ports.is_used(53));
    }
}
