//! Which UDP socket a datagram is for, where no flow tells.
//!
//! Connected sockets are found by their ends, so that a server with a socket for each peer, all on
//! one port, pays the same for its first and its last. Those of a port that are not connected have
//! different addresses, or share them, and are looked at one by one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use crate::demux::{match_rank, overlaps};
use crate::tuning::SHARED_UDP_SOCKETS;

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
    /// In the order they were bound.
    unconnected: Vec<Bound>,
    connected: usize,
}

/// A socket that is not connected.
#[derive(Clone, Copy)]
struct Bound {
    local: SocketAddr,
    slot: u32,
    /// Others that are so, too, may have its address.
    shared: bool,
}

/// The sockets of a port that are in a group.
pub(crate) struct Members {
    slots: [u32; MEMBERS],
    len: usize,
}

/// Most members: sockets that share an address, and one that has the address of the other IP
/// version for itself.
const MEMBERS: usize = SHARED_UDP_SOCKETS + 1;

impl std::ops::Deref for Members {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.slots[..self.len]
    }
}

impl Ports {
    pub fn is_used(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    /// Returns true if an unconnected socket has this address, and does not share it with one that
    /// is `shared`.
    pub fn is_taken(&self, local: SocketAddr, shared: bool) -> bool {
        let taken = |other: &Bound| overlaps(other.local, local) && !(shared && other.shared);
        let port = self.by_port.get(&local.port());
        port.is_some_and(|port| port.unconnected.iter().any(taken))
    }

    /// Returns how many sockets of a port share addresses.
    pub fn shared(&self, port: u16) -> usize {
        let port = self.by_port.get(&port);
        port.map_or(0, |port| port.unconnected.iter().filter(|other| other.shared).count())
    }

    /// A socket has this address, which others may have, too, if it is `shared`.
    pub fn bind(&mut self, slot: u32, local: SocketAddr, shared: bool) {
        let port = self.by_port.entry(local.port()).or_default();
        port.unconnected.push(Bound { local, slot, shared });
    }

    /// A socket has this address, and this peer if any.
    pub fn add(&mut self, slot: u32, local: SocketAddr, remote: Option<SocketAddr>) {
        let port = self.by_port.entry(local.port()).or_default();
        match remote {
            Some(remote) => {
                port.connected += 1;
                self.connected.entry(ends(local, remote)).or_default().push(slot);
            }
            None => port.unconnected.push(Bound { local, slot, shared: false }),
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
            None => port.unconnected.retain(|other| other.slot != slot),
        }
        if port.connected == 0 && port.unconnected.is_empty() {
            self.by_port.remove(&local.port());
        }
    }

    /// The unconnected sockets on a port that are bound to any address of the version, or of both,
    /// and are members.
    pub fn members(&self, to: SocketAddr, is_member: impl Fn(u32) -> bool) -> Members {
        let mut members = Members { slots: [0; MEMBERS], len: 0 };
        let unconnected = self.by_port.get(&to.port()).map_or(&[][..], |port| &port.unconnected);
        let of_any = unconnected.iter().filter(|bound| {
            matches!(match_rank(bound.local, to), Some(1 | 2)) && is_member(bound.slot)
        });
        for (place, bound) in members.slots.iter_mut().zip(of_any) {
            *place = bound.slot;
            members.len += 1;
        }
        members
    }

    /// The socket for a datagram: a connected one before one bound to the address before one bound
    /// to any; of those that share an address the one that was bound last, as in Linux.
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let port = self.by_port.get(&local.port())?;
        if port.connected != 0
            && let Some(slots) = self.connected.get(&ends(local, remote))
        {
            return slots.last().copied();
        }
        let rank = |bound: &Bound| Some((match_rank(bound.local, local)?, bound.slot));
        let ranks = port.unconnected.iter().filter_map(rank);
        ranks.max_by_key(|&(rank, _)| rank).map(|(_, slot)| slot)
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
        assert!(ports.is_taken(any, false) && !ports.is_taken(own, false));
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

    /// A socket that connects leaves its address free for others on the same port.
    #[test]
    fn connecting_leaves_the_address_to_others() {
        let mut ports = Ports::default();
        let own = addr("10.0.0.1:53");
        for slot in 0..1000 {
            assert!(!ports.is_taken(own, false));
            let remote = SocketAddr::new(own.ip(), 1000 + slot as u16);
            ports.add(slot, own, None);
            assert!(ports.is_taken(own, false));
            ports.remove(slot, own, None);
            ports.add(slot, own, Some(remote));
            assert_eq!(ports.find(own, remote), Some(slot));
        }
        assert!(ports.is_used(53));
    }
}
