//! UDP sockets.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use millstream_packet::{Instant, Packet};
use millstream_route::{HeaderTemplate, LinkId};

use super::info::{DatagramInfo, Marks};
use super::udp_flows::Flows;
use super::udp_ports::{Members, Ports};
use super::udp_rules::{UdpFlow, UdpRules};
use crate::engine::ip::path_mtus::sent_lately::{NOTE_EVERY, least_path_mtu};
use crate::engine::ip::reach::Generations;
use crate::engine::sources::Counted;
use crate::engine::{Account, Held, NextHop, Serial};
use crate::error::Error;
use crate::slab::Slab;
use crate::socket::{EventQueue, Readiness, SocketId, SocketKind};
use crate::tuning::{EVENTS_UNTRIMMED, SHARED_UDP_SOCKETS};

/// A datagram that waits to be read.
pub(crate) struct Datagram {
    pub from: SocketAddr,
    pub info: DatagramInfo,
    pub packet: Packet,
}

/// The parties that may fragment a UDP socket's datagrams (`IP_MTU_DISCOVER` of Linux). Over IPv6
/// routers never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fragmentation {
    /// Nobody (`IP_PMTUDISC_DO`): a datagram longer than its way carries is refused
    /// ([`Error::MessageTooLong`]).
    Never,
    /// The sender (`IP_PMTUDISC_WANT`): datagrams longer than their way is known to carry are sent
    /// in fragments. The others forbid fragmentation by routers, which then report a smaller size.
    #[default]
    Sender,
    /// Anybody (`IP_PMTUDISC_DONT`): routers, too, cut what they cannot pass on whole.
    Anybody,
    /// Nobody, and what routers say of the path is not heeded (`IP_PMTUDISC_PROBE`): a datagram
    /// longer than its link or route takes is refused. For applications that find out themselves
    /// what arrives (RFC 8899).
    Probe,
    /// Anybody, and what routers say of the path is not heeded (`IP_PMTUDISC_OMIT`): for servers
    /// that would not be made to send fragments.
    Omit,
}

impl Fragmentation {
    /// Returns whether a datagram that is too long is refused.
    pub(crate) fn refuses(self) -> bool {
        matches!(self, Self::Never | Self::Probe)
    }

    /// Returns whether routers may cut.
    pub(crate) fn is_by_routers(self) -> bool {
        matches!(self, Self::Anybody | Self::Omit)
    }

    /// Returns whether what routers say of the path counts.
    pub(crate) fn heeds_path(self) -> bool {
        !matches!(self, Self::Probe | Self::Omit)
    }
}

pub(crate) struct UdpSocket {
    pub id: SocketId,
    /// The address may be unspecified: any of ours.
    pub local: SocketAddr,
    pub remote: Option<SocketAddr>,
    pub queue: VecDeque<Datagram>,
    /// Datagrams that were taken out of it.
    pub taken: u64,
    /// Datagrams for which it had no room.
    pub refused: u64,
    pub held_bytes: usize,
    pub limit_bytes: usize,
    pub pending: Readiness,
    /// An ICMP error not told yet; only connected sockets hear of them (RFC 1122, 4.1.3.3).
    pub error: Option<Error>,
    /// The link of the last datagram, for link-local peers.
    pub scope: Option<Serial>,
    /// Whom the last datagram went to that had no headers ready.
    pub last_remote: Option<SocketAddr>,
    pub route: Option<Box<DatagramRoute>>,
    /// The hop limits of datagrams to one host, and to groups.
    pub hop_limits: [u8; 2],
    pub traffic_class: u8,
    pub fragmentation: Fragmentation,
    /// It may send to broadcast addresses.
    pub broadcast: bool,
    /// The link by which it sends to groups.
    pub group_link: Option<Serial>,
    /// Sockets here get what it sends to their groups.
    pub group_loop: bool,
    /// Links on which it was refused for want of room, a bit each ([`Refused::bit`]).
    pub wants_room: u64,
    /// It gets datagrams: the ports know it.
    pub is_bound: bool,
    /// Calls to send.
    pub sends: u64,
    /// It intercepts.
    pub intercepts: bool,
    /// It is a flow that another one has intercepted.
    pub flow: Option<UdpFlow>,
}

/// Headers kept ready for the peer that datagrams go to.
pub(crate) struct DatagramRoute {
    pub remote: SocketAddr,
    pub hop: NextHop,
    /// It holds while these are the present ones.
    pub generations: Generations,
    pub template: HeaderTemplate,
    /// From when on the next datagram is remembered that some path may not carry
    /// ([`sent_lately`](crate::engine::ip::path_mtus::sent_lately)).
    pub note_at: Instant,
}

impl DatagramRoute {
    /// Returns true if a datagram with `len` bytes of data is no longer than the way allows.
    #[inline]
    pub fn fits(&self, len: usize) -> bool {
        self.template.header_len() - self.template.link_header_len() + len <= self.hop.mtu
    }

    /// Returns whether a datagram with so many bytes of data is to be remembered; then the next one
    /// is some time later.
    #[inline]
    pub fn is_to_note(&mut self, now: Instant, len: usize) -> bool {
        let ip_len = self.template.header_len() - self.template.link_header_len() + len;
        let is_to = now >= self.note_at && ip_len > least_path_mtu(self.remote.ip());
        if is_to {
            self.note_at = now + NOTE_EVERY;
        }
        is_to
    }
}

/// Sockets that were refused for want of room on a link.
#[derive(Default)]
pub(crate) struct Refused {
    /// Links for which a socket waits, a bit each.
    pub links: u64,
    /// By the link's bit, oldest first; each socket is there once. Sockets that are gone may still
    /// be named.
    by_bit: Vec<VecDeque<SocketId>>,
}

impl Refused {
    /// The bit of a link. As many links as there are bits may be in use; beside ones that have
    /// failed two may share one.
    pub fn bit(link: LinkId) -> usize {
        link.index() % u64::BITS as usize
    }

    /// Remembers a socket, unless it is for this link.
    pub fn add(&mut self, socket: &mut UdpSocket, link: LinkId) {
        let bit = Self::bit(link);
        if socket.wants_room & 1 << bit != 0 {
            return;
        }
        socket.wants_room |= 1 << bit;
        self.links |= 1 << bit;
        if self.by_bit.len() <= bit {
            self.by_bit.resize_with(bit + 1, VecDeque::new);
        }
        self.by_bit[bit].push_back(socket.id);
    }

    /// Forgets those with this bit of whom `waits` says no, when they are many more than there are
    /// `sockets`: who is closed and opened again and again while a link is full would stand there
    /// each time.
    pub fn trim(&mut self, link: LinkId, sockets: usize, waits: impl FnMut(&SocketId) -> bool) {
        let Some(list) = self.by_bit.get_mut(Self::bit(link)) else { return };
        if list.len() > 2 * sockets + EVENTS_UNTRIMMED {
            list.retain(waits);
        }
    }

    /// Returns how many sockets are named, for all links.
    #[cfg(test)]
    pub fn named(&self) -> usize {
        self.by_bit.iter().map(VecDeque::len).sum()
    }

    /// Takes the socket that was refused first on the link with this bit.
    pub fn pop(&mut self, bit: usize) -> Option<SocketId> {
        let id = self.by_bit.get_mut(bit).and_then(VecDeque::pop_front);
        if self.by_bit.get(bit).is_none_or(VecDeque::is_empty) {
            self.links &= !(1 << bit);
        }
        id
    }
}

/// All UDP sockets.
pub(crate) struct UdpLayer {
    pub sockets: Slab<UdpSocket>,
    ports: Ports,
    limit_bytes: usize,
    pub flows: Flows,
    pub refused: Refused,
    pub rules: UdpRules,
    /// Sockets that there may be beside flows.
    limit: usize,
}

impl UdpLayer {
    pub fn new(limit: usize, flows: usize, limit_bytes: usize) -> Self {
        Self {
            sockets: Slab::new(limit + flows),
            rules: UdpRules::default(),
            limit,
            ports: Ports::default(),
            limit_bytes,
            flows: Flows::new(),
            refused: Refused::default(),
        }
    }

    pub fn uses_port(&self, port: u16) -> bool {
        self.ports.is_used(port)
    }

    /// Adds a socket on an address that no other unconnected socket has, or one that those which
    /// have it share.
    pub fn bind(&mut self, local: SocketAddr, shared: bool) -> Result<SocketId, Error> {
        if self.ports.is_taken(local, shared) {
            return Err(Error::AddrInUse);
        }
        if shared && self.ports.shared(local.port()) >= SHARED_UDP_SOCKETS {
            return Err(Error::Limit("udp_sockets_sharing"));
        }
        if self.sockets.len() - self.rules.flows.len() >= self.limit {
            return Err(Error::Limit("udp_sockets"));
        }
        let id = self.insert(local)?;
        self.ports.bind(id.slot(), local, shared);
        self.by_id(id)?.is_bound = true;
        self.flows.forget(None);
        Ok(id)
    }

    /// Adds a socket that gets nothing yet.
    pub(super) fn insert(&mut self, local: SocketAddr) -> Result<SocketId, Error> {
        let socket = UdpSocket {
            id: SocketId::new(SocketKind::Udp, 0, 0),
            local,
            remote: None,
            queue: VecDeque::new(),
            taken: 0,
            refused: 0,
            held_bytes: 0,
            limit_bytes: self.limit_bytes,
            pending: Readiness::default(),
            error: None,
            scope: None,
            last_remote: None,
            route: None,
            // RFC 1112, 6.1; RFC 3493, 5.2.
            hop_limits: [64, 1],
            traffic_class: 0,
            fragmentation: Fragmentation::default(),
            broadcast: false,
            group_link: None,
            group_loop: true,
            wants_room: 0,
            is_bound: false,
            sends: 0,
            intercepts: false,
            flow: None,
        };
        let slot = self.sockets.insert(socket).map_err(|_| Error::Limit("udp_sockets"))?;
        let id = SocketId::new(SocketKind::Udp, slot, self.sockets.generation(slot));
        if let Some(socket) = self.sockets.get_mut(slot) {
            socket.id = id;
        }
        Ok(id)
    }

    pub fn by_id(&mut self, id: SocketId) -> Result<&mut UdpSocket, Error> {
        self.sockets.get_mut(id.slot()).filter(|socket| socket.id == id).ok_or(Error::NoSuchSocket)
    }

    pub fn remove(&mut self, id: SocketId, account: &mut Account) {
        if self.by_id(id).is_err() {
            return;
        }
        self.forget_flow(id.slot());
        self.unbind(id.slot());
        let Some(socket) = self.sockets.remove(id.slot()) else { return };
        account.sub(Held::Datagrams, socket.held_bytes);
        let Some(rule) = self.rules.take(id) else { return };
        // Flows that the application has are its own from now on, as any socket.
        for flow in rule.checks.into_iter().map(|check| check.id).chain(rule.untold) {
            match self.by_id(flow).ok().and_then(|socket| socket.flow) {
                Some(UdpFlow { is_told: false, .. }) => self.remove(flow, account),
                Some(_) => self.forget_flow(flow.slot()),
                None => {}
            }
        }
    }

    /// Has a socket get nothing any more.
    pub(super) fn unbind(&mut self, slot: u32) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        if socket.is_bound {
            socket.is_bound = false;
            self.ports.remove(slot, socket.local, socket.remote);
            self.flows.forget(Some(slot));
        }
    }

    /// Has a new socket be a flow, and get what `remote` sends to its address.
    pub(super) fn set_flow(&mut self, slot: u32, remote: SocketAddr) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        (socket.remote, socket.is_bound) = (Some(remote), true);
        socket.flow = Some(UdpFlow { at: self.rules.flows.len(), is_told: false });
        self.ports.add(slot, socket.local, socket.remote);
        self.rules.flows.push(slot);
        if let Some(sources) = &mut self.rules.sources {
            sources.add(remote.ip(), Counted::Connections);
        }
    }

    /// Has the socket be no flow any more.
    pub(super) fn forget_flow(&mut self, slot: u32) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        let Some(UdpFlow { at, .. }) = socket.flow.take() else { return };
        if let (Some(sources), Some(remote)) = (&mut self.rules.sources, socket.remote) {
            sources.remove(remote.ip(), Counted::Connections);
        }
        self.rules.flows.swap_remove(at);
        let moved = self.rules.flows.get(at).and_then(|&slot| self.sockets.get_mut(slot));
        if let Some(flow) = moved.and_then(|socket| socket.flow.as_mut()) {
            flow.at = at;
        }
    }

    /// See [`Ports::find`].
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        self.ports.find(local, remote)
    }

    /// The sockets for a datagram to a group: bound to any address of its version, or of both, and
    /// in the group.
    pub fn members(&self, to: SocketAddr, is_in: impl Fn(SocketId) -> bool) -> Members {
        let is_member = |slot: u32| self.sockets.get(slot).is_some_and(|socket| is_in(socket.id));
        self.ports.members(to, is_member)
    }

    /// Fixes (and names) the address of a socket and its peer.
    pub fn connect(
        &mut self,
        id: SocketId,
        local: IpAddr,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        self.by_id(id)?;
        self.forget_flow(id.slot());
        self.unbind(id.slot());
        let Self { sockets, ports, .. } = self;
        let socket = sockets.get_mut(id.slot()).ok_or(Error::NoSuchSocket)?;
        socket.local.set_ip(local);
        socket.remote = Some(remote);
        socket.route = None;
        socket.is_bound = true;
        ports.add(id.slot(), socket.local, socket.remote);
        self.flows.forget(None);
        Ok(())
    }

    /// Queues a datagram; gives it back when the socket's memory is used up.
    pub fn deliver(
        &mut self,
        slot: u32,
        datagram: Datagram,
        link: Serial,
        account: &mut Account,
        events: &mut EventQueue,
    ) -> Result<(), Datagram> {
        let Some(socket) = self.sockets.get_mut(slot) else { return Err(datagram) };
        let was_empty = socket.queue.is_empty();
        socket.push(datagram, account)?;
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
    /// See [`UdpHandle::set_hop_limits`](crate::UdpHandle::set_hop_limits).
    pub(in crate::engine) fn set_hop_limits(
        &mut self,
        to_hosts: Option<u8>,
        to_groups: Option<u8>,
    ) -> Result<(), Error> {
        if [to_hosts, to_groups].contains(&Some(0)) {
            return Err(Error::Invalid("a hop limit of 0"));
        }
        let [hosts, groups] = self.hop_limits;
        self.hop_limits = [to_hosts.unwrap_or(hosts), to_groups.unwrap_or(groups)];
        self.route = None;
        Ok(())
    }

    /// Says who may cut what it sends; its route is looked up anew.
    pub(in crate::engine) fn set_fragmentation(&mut self, fragmentation: Fragmentation) {
        self.fragmentation = fragmentation;
        self.route = None;
    }

    /// Sets the traffic class of what it sends.
    pub(in crate::engine) fn set_traffic_class(&mut self, class: u8) {
        self.traffic_class = class;
        self.route = None;
    }

    /// Lets it send to broadcast addresses, or not.
    pub(in crate::engine) fn set_broadcast(&mut self, may: bool) {
        self.broadcast = may;
        self.route = None;
    }

    /// Queues a datagram; gives it back when the socket's memory is used up.
    /// [`delivered`](Self::delivered) is to follow.
    #[inline]
    pub fn push(&mut self, datagram: Datagram, account: &mut Account) -> Result<(), Datagram> {
        let held = datagram.packet.held_alone_bytes() + size_of::<Datagram>();
        if self.held_bytes + held > self.limit_bytes
            || !account.admit_datagram(self.held_bytes, held)
        {
            self.refused += 1;
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
    pub fn take(&mut self, account: &mut Account) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.taken += 1;
        let held = datagram.packet.held_alone_bytes() + size_of::<Datagram>();
        self.held_bytes -= held;
        account.sub(Held::Datagrams, held);
        Some(datagram)
    }

    /// Returns the header fields that the application chose for datagrams to `remote`.
    pub fn marks(&self, remote: IpAddr) -> Marks {
        let hop_limit = self.hop_limits[usize::from(remote.is_multicast())];
        Marks { hop_limit, traffic_class: self.traffic_class }
    }

    /// Returns how much has moved by it, both ways.
    pub fn moved(&self) -> u64 {
        self.taken + self.queue.len() as u64 + self.sends
    }

    /// Returns true if the socket can send to `remote`'s family.
    pub fn reaches(&self, remote: IpAddr) -> bool {
        if self.intercepts {
            return false;
        }
        let local = self.local.ip();
        local.is_ipv4() == remote.is_ipv4() || (local.is_ipv6() && local.is_unspecified())
    }
}
