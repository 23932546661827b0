//! UDP sockets.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use millstream_packet::Packet;
use millstream_route::{Generations, HeaderTemplate, LinkId};

use super::listener::{match_rank, overlaps};
use super::udp_flows::Flows;
use super::{EventQueue, Readiness, SocketId, SocketKind};
use crate::engine::{Serial, Way};
use crate::error::Error;
use crate::slab::Slab;

/// A datagram that waits to be read.
pub(crate) struct Datagram {
    pub from: SocketAddr,
    pub packet: Packet,
}

pub(crate) struct UdpSocket {
    pub id: SocketId,
    /// The address may be unspecified: any of ours.
    pub local: SocketAddr,
    pub remote: Option<SocketAddr>,
    pub queue: VecDeque<Datagram>,
    pub held_bytes: usize,
    pub limit_bytes: usize,
    pub pending: Readiness,
    /// An ICMP error not told yet; only connected sockets hear of them (RFC 1122, 4.1.3.3).
    pub error: Option<Error>,
    /// The link of the last datagram, for link-local peers.
    pub scope: Option<Serial>,
    /// Whom the last datagram went to that had no headers ready.
    pub last_remote: Option<SocketAddr>,
    pub path: Option<Box<DatagramPath>>,
    /// Was refused for want of room on a link.
    pub wants_room: bool,
}

/// Headers kept ready for the peer that datagrams go to.
pub(crate) struct DatagramPath {
    pub remote: SocketAddr,
    pub way: Way,
    /// It holds while these are the present ones.
    pub generations: Generations,
    pub template: HeaderTemplate,
}

/// All UDP sockets, by port.
pub(crate) struct UdpTable {
    pub sockets: Slab<UdpSocket>,
    by_port: BTreeMap<u16, Vec<u32>>,
    limit_bytes: usize,
    /// Forgotten when a socket changes.
    pub flows: Flows,
    /// Refused for want of room on this link, oldest first; each is here once. Sockets that are gone may still be named.
    pub refused: VecDeque<(SocketId, LinkId)>,
}

impl UdpTable {
    pub fn new(limit: usize, limit_bytes: usize) -> Self {
        Self {
            sockets: Slab::new(limit),
            by_port: BTreeMap::new(),
            limit_bytes,
            flows: Flows::new(),
            refused: VecDeque::new(),
        }
    }

    pub fn uses_port(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    /// Adds a socket on an address that no other unconnected socket has.
    pub fn bind(&mut self, local: SocketAddr) -> Result<SocketId, Error> {
        let same = |&slot: &u32| {
            self.sockets.get(slot).is_some_and(|other: &UdpSocket| {
                overlaps(other.local, local) && other.remote.is_none()
            })
        };
        if self.by_port.get(&local.port()).is_some_and(|slots| slots.iter().any(same)) {
            return Err(Error::AddrInUse);
        }
        let socket = UdpSocket {
            id: SocketId::new(SocketKind::Udp, 0, 0),
            local,
            remote: None,
            queue: VecDeque::new(),
            held_bytes: 0,
            limit_bytes: self.limit_bytes,
            pending: Readiness::default(),
            error: None,
            scope: None,
            last_remote: None,
            path: None,
            wants_room: false,
        };
        let slot = self.sockets.insert(socket).map_err(|_| Error::Limit("udp_sockets"))?;
        self.by_port.entry(local.port()).or_default().push(slot);
        self.flows.forget();
        let id = SocketId::new(SocketKind::Udp, slot, self.sockets.generation(slot));
        if let Some(socket) = self.sockets.get_mut(slot) {
            socket.id = id;
        }
        Ok(id)
    }

    pub fn by_id(&mut self, id: SocketId) -> Result<&mut UdpSocket, Error> {
        self.sockets.get_mut(id.slot()).filter(|socket| socket.id == id).ok_or(Error::NoSuchSocket)
    }

    pub fn remove(&mut self, id: SocketId) {
        if self.by_id(id).is_err() {
            return;
        }
        let Some(socket) = self.sockets.remove(id.slot()) else { return };
        self.flows.forget();
        if let Some(slots) = self.by_port.get_mut(&socket.local.port()) {
            slots.retain(|&other| other != id.slot());
            if slots.is_empty() {
                self.by_port.remove(&socket.local.port());
            }
        }
    }

    /// The socket for a datagram: a connected one before one bound to the address before one bound to
    /// any.
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let rank = |&slot: &u32| {
            let socket = self.sockets.get(slot)?;
            let bound = match_rank(socket.local, local)?;
            match socket.remote {
                Some(peer) if peer == remote => Some((bound + 4, slot)),
                Some(_) => None,
                None => Some((bound, slot)),
            }
        };
        self.by_port.get(&local.port())?.iter().filter_map(rank).max().map(|(_, slot)| slot)
    }

    /// Fixes (and names) the address of a socket and its peer.
    pub fn connect(
        &mut self,
        id: SocketId,
        local: IpAddr,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        self.flows.forget();
        let socket = self.by_id(id)?;
        socket.local.set_ip(local);
        socket.remote = Some(remote);
        socket.path = None;
        Ok(())
    }

    /// Queues a datagram; gives it back when the socket's memory is used up.
    pub fn deliver(
        &mut self,
        slot: u32,
        datagram: Datagram,
        link: Serial,
        events: &mut EventQueue,
    ) -> Result<(), Datagram> {
        let Some(socket) = self.sockets.get_mut(slot) else { return Err(datagram) };
        let was_empty = socket.queue.is_empty();
        socket.push(datagram)?;
        socket.delivered(link, was_empty, events);
        Ok(())
    }

    /// Tells a connected socket of an ICMP error; whether there is such a socket.
    pub fn icmp_error(
        &mut self,
        events: &mut EventQueue,
        local: SocketAddr,
        remote: SocketAddr,
        error: Option<Error>,
    ) -> bool {
        let Some(slot) = self.find(local, remote) else { return false };
        let Some(socket) = self.sockets.get_mut(slot) else { return false };
        if socket.remote == Some(remote) && error.is_some() {
            socket.error = error;
            let readable = Readiness { readable: true, ..Readiness::default() };
            events.push(socket.id, &mut socket.pending, readable);
        }
        true
    }
}

impl UdpSocket {
    /// Queues a datagram; gives it back when the socket's memory is used up. [`delivered`](Self::delivered) is to
    /// follow.
    #[inline]
    pub fn push(&mut self, datagram: Datagram) -> Result<(), Datagram> {
        let held = datagram.packet.held_bytes() + size_of::<Datagram>();
        if self.held_bytes + held > self.limit_bytes {
            return Err(datagram);
        }
        self.held_bytes += held;
        self.queue.push_back(datagram);
        Ok(())
    }

    /// Datagrams from `link` were queued; whoever waits is told, if there were none before.
    #[inline]
    pub fn delivered(&mut self, link: Serial, was_empty: bool, events: &mut EventQueue) {
        self.scope = Some(link);
        if was_empty {
            let readable = Readiness { readable: true, ..Readiness::default() };
            events.push(self.id, &mut self.pending, readable);
        }
    }

    /// The next datagram.
    #[inline]
    pub fn take(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.held_bytes -= datagram.packet.held_bytes() + size_of::<Datagram>();
        Some(datagram)
    }

    /// Whether the socket can send to `remote`'s family.
    pub fn reaches(&self, remote: IpAddr) -> bool {
        let local = self.local.ip();
        local.is_ipv4() == remote.is_ipv4() || (local.is_ipv6() && local.is_unspecified())
    }
}
