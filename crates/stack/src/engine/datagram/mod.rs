//! Datagram sockets: UDP, opened and sent from here, and ICMP echo.

mod echo;
pub(in crate::engine) mod echo_table;
mod info;
mod many;
mod receive;
mod refused;
mod shown;
pub(in crate::engine) mod super_datagrams;
pub(in crate::engine) mod udp_flows;
mod udp_ports;
pub(in crate::engine) mod udp_table;

use std::net::{IpAddr, SocketAddr};

use millstream_packet::{Checksum, Instant, Packet};
use millstream_route::{HeaderTemplate, Stamp, TransportChecksum};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use super::Engine;
use super::links::Serial;
use crate::engine::context::Context;
use crate::engine::datagram::super_datagrams::datagram_size;
use crate::engine::datagram::udp_table::{DatagramRoute, Fragmentation, Marks};
use crate::engine::ip::addresses::{TO_ITSELF, is_link_local};
use crate::engine::ip::{IpLayer, NextHop, is_broadcast, output::with_header};
use crate::engine::tcp::table::plain;
use crate::error::Error;
use crate::socket::SocketId;
use crate::tuning::{HEADROOM_BYTES, LINK_HEADROOM_BYTES, LONGEST_PACKET};
pub use info::{DatagramInfo, SendOptions};
pub use many::DatagramToSend;
pub use receive::ReceivedDatagram;
pub(crate) use receive::copy_many;
pub(super) use receive::on_link;

/// Bytes of a datagram's data at most, or of an echo's: what the length fields of UDP and of IP have room for (RFC 768,
/// RFC 791, RFC 8200). Both headers are eight bytes.
fn longest_payload(version: ip::Version) -> usize {
    match version {
        ip::Version::V4 => LONGEST_PACKET - ip::V4_HEADER_LEN - udp::HEADER_LEN,
        ip::Version::V6 => LONGEST_PACKET - udp::HEADER_LEN,
    }
}

/// A datagram on its way down whose route is not known.
pub(in crate::engine) struct Sending {
    pub id: SocketId,
    pub packet: Packet,
    pub remote: SocketAddr,
    /// The link that the peer's address or the options name.
    pub named: Option<Serial>,
    pub options: SendOptions,
}

/// Whether the next hop to `remote` depends on more than the routes.
fn is_scoped(remote: IpAddr) -> bool {
    is_link_local(remote) || remote.is_multicast() || is_broadcast(remote)
}

impl IpLayer {
    /// Whether what goes to `remote` by this hop is for all of a network.
    fn is_broadcast_by(&self, hop: NextHop, remote: IpAddr) -> bool {
        is_broadcast(remote) || self.addresses.is_broadcast_of(hop.link, remote)
    }

    /// The link of a datagram to a peer that no route leads to and whose address names none: that of the address it is
    /// sent from, or the one that its socket's `last` datagram came from.
    pub(super) fn datagram_scope(
        &self,
        local: IpAddr,
        remote: IpAddr,
        last: Option<Serial>,
    ) -> Option<Serial> {
        if !is_scoped(remote) || local.is_unspecified() {
            return last;
        }
        let own = self.addresses.iter().find(|(_, own)| own.addr == local);
        let link = own.and_then(|(link, _)| link).and_then(|link| self.links.used_slot(link));
        link.map(|slot| slot.serial).or(last)
    }

    /// Sends a copy of `data` by the headers kept ready for its peer. False when it does not fit one frame.
    #[inline]
    fn write_known(
        &mut self,
        cx: &mut Context,
        route: &mut DatagramRoute,
        data: &[u8],
    ) -> Result<bool, Error> {
        let checksum = self.checksum_on(route);
        let packet = self.known_datagram(cx, route, data, checksum)?;
        let Some(packet) = packet else { return Ok(false) };
        cx.stats.udp_tx += 1;
        self.enqueue(cx, route.hop.link, packet);
        Ok(true)
    }

    /// A datagram with a copy of `data` behind the headers kept ready for its peer, for which its link's queue has
    /// room. `None` when it does not fit one frame.
    #[inline(always)]
    fn known_datagram(
        &mut self,
        cx: &mut Context,
        route: &mut DatagramRoute,
        data: &[u8],
        mut checksum: TransportChecksum,
    ) -> Result<Option<Packet>, Error> {
        let is_noted = route.is_to_note(cx.now, data.len());
        if is_noted {
            checksum = TransportChecksum::Compute;
        }
        let DatagramRoute { hop, template, remote, .. } = route;
        let len = template.header_len() + data.len();
        if len - template.link_header_len() > hop.mtu {
            return Err(Error::MessageTooLong);
        }
        if self.room(cx, hop.link) == 0 {
            return Err(Error::WouldBlock);
        }
        let mut packet = cx.pool.alloc(LINK_HEADROOM_BYTES).ok_or(Error::Exhausted)?;
        let Some(room) = packet.append(len) else { return Ok(None) };
        let Some(checksum) = template.write_datagram(room, data, checksum) else { return Ok(None) };
        if is_noted {
            let version = ip::Version::of(&remote.ip());
            self.sent.note_packet(cx.now, version, &room[template.link_header_len()..]);
        }
        let meta = packet.meta_mut();
        meta.checksum = checksum;
        meta.l3_offset = template.link_header_len() as u16;
        meta.l4_offset = meta.l3_offset + template.ip_header_len() as u16;
        Ok(Some(packet))
    }

    /// A datagram's data behind their header, in a frame to which nobody else refers, so that its checksum can be written:
    /// an application may keep views of what it sends.
    pub(in crate::engine) fn with_udp_header(
        &self,
        cx: &mut Context,
        packet: Packet,
        header: &UdpHeader,
    ) -> Result<Packet, Error> {
        let packet = with_header(&cx.pool, packet, udp::HEADER_LEN, |room| header.emit(room));
        let mut packet = packet.map_err(|_| Error::Exhausted)?;
        packet.make_head_mut(&cx.pool).map_err(|_| Error::Exhausted)?;
        Ok(packet)
    }

    /// Who completes the checksums of datagrams that go this way.
    #[inline]
    fn checksum_on(&self, route: &DatagramRoute) -> TransportChecksum {
        let sums = self.links[route.hop.link.index()].capabilities.tx_checksum;
        match if route.remote.is_ipv4() { sums.v4 } else { sums.v6 } {
            true => TransportChecksum::Offload,
            false => TransportChecksum::Compute,
        }
    }

    /// Sends a datagram's data by the headers kept ready for its peer. Gives it back when they do not fit in
    /// front of it.
    fn send_known(
        &mut self,
        cx: &mut Context,
        route: &mut DatagramRoute,
        mut packet: Packet,
    ) -> Result<Option<Packet>, Error> {
        if !route.fits(packet.len()) {
            return Err(Error::MessageTooLong);
        }
        if self.room(cx, route.hop.link) == 0 {
            return Err(Error::WouldBlock);
        }
        let is_noted = route.is_to_note(cx.now, packet.len());
        let checksum = match is_noted {
            true => TransportChecksum::Compute,
            false => self.checksum_on(route),
        };
        let DatagramRoute { hop, template, remote, .. } = route;
        // RFC 6864, 4.1: what is not fragmented needs no identification.
        let stamp = Stamp { checksum, ..Stamp::default() };
        if template.apply(&mut packet, stamp).is_err() {
            return Ok(Some(packet));
        }
        if is_noted && let Some(ip) = packet.head().get(template.link_header_len()..) {
            self.sent.note_packet(cx.now, ip::Version::of(&remote.ip()), ip);
        }
        cx.stats.udp_tx += 1;
        self.enqueue(cx, hop.link, packet);
        Ok(None)
    }

    /// Headers for datagrams from `local` to `remote`, while the neighbour is known.
    fn datagram_route(
        &mut self,
        cx: &mut Context,
        hop: NextHop,
        local: SocketAddr,
        remote: SocketAddr,
        marks: Marks,
    ) -> Option<DatagramRoute> {
        let ethernet = self.ethernet(cx.now, hop, remote.ip())?;
        // Being used can change the table's generation.
        let generations = self.datagram_generations();
        let mut ip = IpHeader::new(local.ip(), remote.ip(), Protocol::UDP, 0);
        marks.write(&mut ip);
        let ports = (local.port(), remote.port());
        let template = HeaderTemplate::udp(ethernet.as_ref(), &ip, ports, generations);
        cx.stats.templates_built += 1;
        Some(DatagramRoute { remote, hop, generations, template, note_at: cx.now })
    }
}

impl Engine {
    /// Opens a UDP socket. Port 0 asks for a free ephemeral one; an unspecified address takes datagrams
    /// for any own address, the IPv6 one those of IPv4 as well.
    pub fn udp_bind(&mut self, addr: SocketAddr) -> Result<SocketId, Error> {
        self.udp_bind_as(addr, false)
    }

    /// The same for an address that other sockets have which were opened so, too (as with SO_REUSEADDR in Linux): 64 on a
    /// port. Each of them gets the datagrams to a group that it has joined; those to the engine itself the one that was
    /// opened last.
    ///
    /// # Errors
    /// As [`udp_bind`](Self::udp_bind); also [`Error::Limit`] when as many have the port.
    pub fn udp_bind_shared(&mut self, addr: SocketAddr) -> Result<SocketId, Error> {
        self.udp_bind_as(addr, true)
    }

    pub(crate) fn udp_bind_as(
        &mut self,
        addr: SocketAddr,
        shared: bool,
    ) -> Result<SocketId, Error> {
        let mut local = plain(addr);
        self.check_local(local.ip())?;
        if local.port() == 0 {
            local.set_port(self.free_udp_port()?);
        }
        self.check_share(local.port())?;
        self.udp.bind(local, shared)
    }

    fn free_udp_port(&mut self) -> Result<u16, Error> {
        let (share, start) = (self.cx.share, self.cx.random.next() as u32);
        (0..share.own_ports())
            .map(|step| share.own_port(start.wrapping_add(step)))
            .find(|&port| !self.udp.uses_port(port))
            .ok_or(Error::AddrNotAvailable)
    }

    /// Fixes the peer: datagrams of others are not for this socket any more, and ICMP errors are told.
    pub fn udp_connect(&mut self, id: SocketId, remote: SocketAddr) -> Result<(), Error> {
        let named = self.ip.named_link(remote)?;
        let remote = plain(remote);
        let socket = self.udp.by_id(id)?;
        if !socket.reaches(remote.ip()) || remote.port() == 0 {
            return Err(Error::Invalid("the peer's address does not fit the socket"));
        }
        let (mut local, last) = (socket.local.ip(), socket.scope);
        let may_broadcast = socket.broadcast;
        if self.ip.addresses.lacks_loopback_to(remote.ip()) {
            return Err(Error::Invalid(TO_ITSELF));
        }
        let scope = named.or_else(|| self.ip.datagram_scope(local, remote.ip(), last));
        let hop = self.ip.next_hop(remote.ip(), scope);
        if !may_broadcast && hop.is_some_and(|hop| self.ip.is_broadcast_by(hop, remote.ip())) {
            return Err(Error::Broadcast);
        }
        if local.is_unspecified() {
            let hop = hop.ok_or_else(|| self.ip.why_no_hop(remote.ip()))?;
            let source = self.ip.addresses.source(hop.link, hop.address, remote.ip());
            local = source.ok_or(Error::AddrNotAvailable)?;
        }
        if named.is_some() {
            self.udp.by_id(id)?.scope = named;
        }
        self.udp.connect(id, local, remote)
    }

    /// The socket's own address, and its peer's when it is connected.
    pub fn udp_addresses(
        &mut self,
        id: SocketId,
    ) -> Result<(SocketAddr, Option<SocketAddr>), Error> {
        self.udp.by_id(id).map(|socket| (socket.local, socket.remote))
    }

    /// The hop limit (TTL) of what the socket sends to one host, 64 at first, and to groups, 1 at first (RFC 1112 section
    /// 6.1, RFC 3493 section 5.2), where that is set. [`Error::Invalid`] for 0: what goes nowhere has nobody here.
    pub fn udp_set_hop_limits(
        &mut self,
        id: SocketId,
        to_hosts: Option<u8>,
        to_groups: Option<u8>,
    ) -> Result<(), Error> {
        if [to_hosts, to_groups].contains(&Some(0)) {
            return Err(Error::Invalid("a hop limit of 0"));
        }
        let socket = self.udp.by_id(id)?;
        let [hosts, groups] = socket.hop_limits;
        socket.hop_limits = [to_hosts.unwrap_or(hosts), to_groups.unwrap_or(groups)];
        socket.route = None;
        Ok(())
    }

    /// Who may cut what the socket sends: the engine alone, where nothing else is said. Super-segments
    /// ([`udp_send_segmented`](Self::udp_send_segmented)) are never fragmented.
    pub fn udp_set_fragmentation(
        &mut self,
        id: SocketId,
        fragmentation: Fragmentation,
    ) -> Result<(), Error> {
        let socket = self.udp.by_id(id)?;
        socket.fragmentation = fragmentation;
        socket.route = None;
        Ok(())
    }

    /// What the socket's datagrams have in the traffic class field (`IP_TOS`, `IPV6_TCLASS`), 0 at first: differentiated
    /// services in the upper six bits (RFC 2474), ECN in the lower two (RFC 3168).
    pub fn udp_set_traffic_class(&mut self, id: SocketId, class: u8) -> Result<(), Error> {
        let socket = self.udp.by_id(id)?;
        socket.traffic_class = class;
        socket.route = None;
        Ok(())
    }

    /// Whether the socket may send to broadcast addresses, 255.255.255.255 and those of the links' networks
    /// (`SO_BROADCAST`); at first it may not, and is refused with [`Error::Broadcast`].
    pub fn udp_set_broadcast(&mut self, id: SocketId, may: bool) -> Result<(), Error> {
        let socket = self.udp.by_id(id)?;
        socket.broadcast = may;
        socket.route = None;
        Ok(())
    }

    /// The hop limits of what the socket sends to one host, and to groups.
    pub fn udp_hop_limits(&mut self, id: SocketId) -> Result<[u8; 2], Error> {
        self.udp.by_id(id).map(|socket| socket.hop_limits)
    }

    /// Bytes of the longest IP packet that a datagram or an echo request to `destination` may be: the MTU of its link or
    /// route, or less where a router has said so in the last ten minutes, of a packet that one of this engine's sockets
    /// sent in the seconds before. As many destinations as [`PATH_MTUS`](crate::tuning::PATH_MTUS) are remembered. TCP
    /// connections know their own: [`TcpInfo::path_mtu_bytes`](millstream_tcp::TcpInfo).
    pub fn path_mtu(&self, destination: IpAddr) -> Result<usize, Error> {
        let to = destination.to_canonical();
        let hop = self.ip.datagram_next_hop(self.cx.now, to, None);
        Ok(hop.ok_or_else(|| self.ip.why_no_hop(to))?.mtu)
    }

    /// Sends a datagram with a copy of `data`; `None` sends to the connected peer. It leaves at the end
    /// of the turn. Datagrams longer than the MTU to their peer (link, route, or what a router said of the path,
    /// [`Engine::path_mtu`]) are sent in fragments, unless the socket has
    /// [`Fragmentation::Never`](Engine::udp_set_fragmentation): then they are refused with [`Error::MessageTooLong`], as
    /// are those longer than 65,507 bytes over IPv4, 65,527 over IPv6. A writable event follows
    /// [`Error::WouldBlock`], which says that the link's queue has no room.
    pub fn udp_send(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let send = |engine: &mut Self| engine.udp_send_copy(id, data, to);
        let sent = self.trace_send(id, (data.len(), to), send);
        self.udp_heed(id, sent)
    }

    #[inline]
    fn udp_send_copy(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let now = self.now();
        let socket = self.udp.by_id(id)?;
        if let (Some(route), None) = (&mut socket.route, &socket.error)
            && route.generations == self.ip.datagram_generations()
            && to.is_none_or(|to| to == route.remote)
            && (to.is_some() || socket.remote == Some(route.remote))
        {
            let remote = route.remote.ip();
            match self.ip.write_known(&mut self.cx, route, data) {
                Ok(true) => return Ok(()),
                Err(Error::MessageTooLong) if !socket.fragmentation.refuses() => {}
                // What was said of the path may be too old: then it is looked up anew.
                Err(Error::MessageTooLong) if self.ip.path_mtus.expire(now, remote) => {}
                Err(error) => return Err(error),
                Ok(false) => {}
            }
        }
        let packet = Packet::from_slice(&self.cx.pool, HEADROOM_BYTES, data)
            .map_err(|_| Error::Exhausted)?;
        self.udp_send_owned(id, packet, to, &SendOptions::default())
    }

    /// What the next call on the socket would fail with, once.
    pub(crate) fn udp_take_error(&mut self, id: SocketId) -> Option<Error> {
        self.udp.by_id(id).ok()?.error.take()
    }

    /// Sends a packet's bytes as a datagram, without copying them; as several where its
    /// [`Meta::segmentation`](millstream_packet::Meta) is that of UDP, see
    /// [`udp_send_segmented`](Self::udp_send_segmented).
    pub fn udp_send_packet(
        &mut self,
        id: SocketId,
        packet: Packet,
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let len = packet.len();
        let send =
            |engine: &mut Self| engine.udp_send_owned(id, packet, to, &SendOptions::default());
        let sent = self.trace_send(id, (len, to), send);
        self.udp_heed(id, sent)
    }

    fn udp_send_owned(
        &mut self,
        id: SocketId,
        mut packet: Packet,
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        let now = self.now();
        // One that was received says what its sender left to be summed, and where in its own headers.
        packet.meta_mut().checksum = Checksum::Unverified;
        let socket = self.udp.by_id(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let remote = to.map(plain).or(socket.remote).ok_or(Error::NotConnected)?;
        let named = to.map_or(Ok(None), |to| self.ip.named_link(to))?;
        let is_as_usual = *options == SendOptions::default();
        let generations = self.ip.datagram_generations();
        let packet = match &mut socket.route {
            // What is too long for it may go if what was said of the path is too old.
            Some(route)
                if is_as_usual
                    && packet.meta().segmentation.is_none()
                    && route.remote == remote
                    && route.generations == generations
                    && (route.fits(packet.len())
                        || socket.fragmentation.refuses()
                            && !self.ip.path_mtus.expire(now, remote.ip())) =>
            {
                match self.ip.send_known(&mut self.cx, route, packet)? {
                    Some(packet) => packet,
                    None => return Ok(()),
                }
            }
            _ => packet,
        };
        let named = self.serial_of(options).or(named);
        self.udp_send_slowly(now, Sending { id, packet, remote, named, options: *options })
    }

    /// Sends a datagram whose route is not known yet.
    fn udp_send_slowly(&mut self, now: Instant, sending: Sending) -> Result<(), Error> {
        match sending.remote.ip().is_multicast() {
            true => self.udp_send_to_group(now, sending),
            false => self.udp_send_uncached(now, sending),
        }
    }

    /// The next hop of a datagram, and the address that it is sent from.
    fn datagram_way(
        &mut self,
        now: Instant,
        sending: &Sending,
    ) -> Result<(NextHop, IpAddr), Error> {
        let Sending { id, remote, named, options, .. } = *sending;
        let socket = self.udp.by_id(id)?;
        let remote = remote.ip();
        if !socket.reaches(remote) || sending.remote.port() == 0 {
            return Err(Error::Invalid("the peer's address does not fit the socket"));
        }
        let (local, last, may_broadcast) = (socket.local.ip(), socket.scope, socket.broadcast);
        let heeds_path = socket.fragmentation.heeds_path();
        let (ip, local) = (&self.ip, options.from.unwrap_or(local));
        if ip.addresses.lacks_loopback_to(remote) {
            return Err(Error::Invalid(TO_ITSELF));
        }
        if local.is_ipv4() != remote.is_ipv4() && !local.is_unspecified() {
            return Err(Error::Invalid("a source of the other version of IP than the peer's"));
        }
        let scope = named.or_else(|| ip.datagram_scope(local, remote, last));
        let hop = match heeds_path {
            true => ip.datagram_next_hop(now, remote, scope),
            false => ip.next_hop(remote, scope),
        };
        let hop = hop.ok_or_else(|| ip.why_no_hop(remote))?;
        if options.link.is_some_and(|link| link != hop.link) {
            return Err(Error::NetworkUnreachable);
        }
        if !may_broadcast && ip.is_broadcast_by(hop, remote) {
            return Err(Error::Broadcast);
        }
        let source = match local {
            any if any.is_unspecified() => {
                ip.addresses.source(hop.link, hop.address, remote).ok_or(Error::AddrNotAvailable)?
            }
            // Somebody else has turned out to have it.
            own if !ip.addresses.is_here(own) => return Err(Error::AddrNotAvailable),
            own => own,
        };
        ip.addresses.check_way(source, hop.link)?;
        Ok((hop, source))
    }

    /// Sends a datagram by a route that is looked up, and keeps that for the next one to the same peer.
    pub(in crate::engine) fn udp_send_uncached(
        &mut self,
        now: Instant,
        sending: Sending,
    ) -> Result<(), Error> {
        let (hop, src) = self.datagram_way(now, &sending)?;
        let Sending { id, mut packet, remote, options, .. } = sending;
        let socket = self.udp.by_id(id)?;
        let local = socket.local;
        let is_as_usual = options == SendOptions::default();
        let marks = options.marks(socket.marks(remote.ip()));
        let fragmentation = socket.fragmentation;
        if let Some(size) = datagram_size(&packet) {
            let ends = (SocketAddr::new(src, local.port()), remote);
            return self.udp_send_super(now, id, (hop, marks), ends, (packet, size), &options);
        }
        packet.meta_mut().segmentation = None;
        // One datagram to a peer is no reason to expect another.
        let again = socket.last_remote.replace(remote) == Some(remote);
        // Headers kept ready have no ECN field and no identification of their own.
        let is_plain = is_as_usual && marks.is_plain() && !fragmentation.is_by_routers();
        if again && !is_scoped(remote.ip()) && is_plain {
            let local = SocketAddr::new(src, local.port());
            let mut found = self.ip.datagram_route(&mut self.cx, hop, local, remote, marks);
            if let (Some(route), false) = (&mut found, fragmentation.heeds_path()) {
                route.note_at = Instant::MAX;
            }
            // The memory of one to another peer, which is of no use any more.
            match (found, &mut socket.route) {
                (Some(found), Some(route)) => **route = found,
                (found, route) => *route = found.map(Box::new),
            }
        }
        let header = UdpHeader::new(local.port(), remote.port(), packet.len());
        let len = packet.len() + udp::HEADER_LEN;
        let mut ip = IpHeader::new(src, remote.ip(), Protocol::UDP, len);
        marks.write(&mut ip);
        let is_long = ip.packet_len() > hop.mtu;
        if packet.len() > longest_payload(ip.version()) || is_long && fragmentation.refuses() {
            return Err(Error::MessageTooLong);
        }
        ip.dont_fragment = !is_long && (remote.is_ipv6() || !fragmentation.is_by_routers());
        if !ip.dont_fragment && remote.is_ipv4() {
            let id = self.ip.identifications.next(src, remote.ip(), Protocol::UDP);
            ip.identification = id as u16;
        }
        let count = if is_long { IpLayer::fragment_count(&ip, hop.mtu) } else { 1 };
        if !self.ip.has_room_for(&mut self.cx, hop.link, count) {
            return Err(Error::WouldBlock);
        }
        let mut packet = self.ip.with_udp_header(&mut self.cx, packet, &header)?;
        self.ip.seal(&mut packet, hop.link, &ip, udp::CHECKSUM_OFFSET as u16);
        if fragmentation.heeds_path() {
            self.ip.sent.note(now, &ip, packet.head());
        }
        self.cx.stats.udp_tx += 1;
        self.ip.send_ip(&mut self.cx, hop, &ip, packet);
        Ok(())
    }
}
