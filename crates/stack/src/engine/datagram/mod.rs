//! Datagram sockets: UDP, opened and sent from here, and ICMP echo.

pub(in crate::engine) mod echo;
pub(in crate::engine) mod echo_table;
mod groups;
mod info;
pub(in crate::engine) mod intercept;
mod many;
mod options;
mod receive;
mod refused;
mod route;
mod shown;
pub(in crate::engine) mod super_datagrams;
pub(in crate::engine) mod udp_flows;
mod udp_ports;
mod udp_rules;
pub(in crate::engine) mod udp_table;
mod with_info;

use std::net::{IpAddr, SocketAddr};

use millstream_packet::{Checksum, Instant, Packet};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use super::links::Serial;
use crate::demux::plain;
use crate::engine::context::Context;
use crate::engine::datagram::route::with_udp_header;
use crate::engine::datagram::super_datagrams::datagram_size;
use crate::engine::datagram::udp_table::DatagramRoute;
use crate::engine::datagram::udp_table::UdpLayer;
use crate::engine::ip::IpLayer;
use crate::engine::ip::reach::addresses::TO_ITSELF;
use crate::engine::ip::reach::fragments::fragment_count;
use crate::engine::ip::reach::{IpReach, NextHop, is_scoped};
use crate::error::Error;
use crate::socket::SocketId;
use crate::tuning::{HEADROOM_BYTES, LONGEST_PACKET};
pub use echo::EchoRequest;
pub(super) use info::on_link;
pub use info::{DatagramInfo, SendOptions};
pub use many::DatagramToSend;
pub use options::UdpSocketOptions;

/// Bytes of a datagram's data at most, or of an echo's: what the length fields of UDP and of IP
/// have room for (RFC 768, RFC 791, RFC 8200). Both headers are eight bytes.
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

impl UdpLayer {
    /// Opens a socket on an address that others have, too, where all have it `shared`.
    pub(in crate::engine) fn open(
        &mut self,
        cx: &mut Context,
        reach: &IpReach,
        addr: SocketAddr,
        shared: bool,
    ) -> Result<SocketId, Error> {
        let mut local = plain(addr);
        reach.addresses.check_local(local.ip())?;
        if local.port() == 0 {
            local.set_port(self.free_udp_port(cx)?);
        }
        cx.check_share(local.port())?;
        self.bind(local, shared)
    }

    fn free_udp_port(&mut self, cx: &mut Context) -> Result<u16, Error> {
        let (share, start) = (cx.share, cx.random.next() as u32);
        (0..share.own_ports())
            .map(|step| share.own_port(start.wrapping_add(step)))
            .find(|&port| !self.uses_port(port))
            .ok_or(Error::AddrNotAvailable)
    }

    /// See [`UdpHandle::connect`](crate::UdpHandle::connect).
    pub(in crate::engine) fn set_peer(
        &mut self,
        reach: &IpReach,
        id: SocketId,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        let named = reach.links.named(remote)?;
        let remote = plain(remote);
        let socket = self.by_id(id)?;
        if !socket.reaches(remote.ip()) || remote.port() == 0 {
            return Err(Error::Invalid("the peer's address does not fit the socket"));
        }
        let (mut local, last) = (socket.local.ip(), socket.scope);
        let may_broadcast = socket.broadcast;
        if reach.addresses.lacks_loopback_to(remote.ip()) {
            return Err(Error::Invalid(TO_ITSELF));
        }
        let scope = named.or_else(|| reach.datagram_scope(local, remote.ip(), last));
        let hop = reach.next_hop(remote.ip(), scope);
        if !may_broadcast
            && hop.is_some_and(|hop| reach.addresses.is_broadcast_by(hop.link, remote.ip()))
        {
            return Err(Error::Broadcast);
        }
        if local.is_unspecified() {
            let hop = hop.ok_or_else(|| reach.why_no_hop(remote.ip()))?;
            let source = reach.addresses.source(hop.link, hop.address, remote.ip());
            local = source.ok_or(Error::AddrNotAvailable)?;
        }
        if named.is_some() {
            self.by_id(id)?.scope = named;
        }
        self.connect(id, local, remote)
    }

    /// Sends a datagram of so many bytes by `send`, and tells who watches.
    #[inline]
    pub(super) fn send_watched(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        (bytes, to): (usize, Option<SocketAddr>),
        send: impl FnOnce(&mut Self, &mut Context, &mut IpLayer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !cx.sink.packets.is_on() {
            return send(self, cx, ip);
        }
        let (begun, queued_before) = (cx.sink.datagram_out(), cx.stats.tx_packets);
        let sent = send(self, cx, ip);
        if let (Some(begun), Ok(()), Ok(socket)) = (begun, &sent, self.by_id(id)) {
            let remote = to.map(plain).or(socket.remote);
            let route = socket.route.as_ref().filter(|route| Some(route.remote) == remote);
            let is_queued = cx.stats.tx_packets > queued_before;
            let link = route.map(|route| route.hop.link).filter(|_| is_queued);
            let queued = link.and_then(|link| Some((link, ip.reach.links.queued(link)?)));
            let ends = remote.map(|remote| (socket.local, remote));
            cx.sink.datagram_queued(begun, id, (ends, bytes), queued);
            cx.sink.transmitted(|link| ip.reach.links.taken(link));
        }
        sent
    }

    /// See [`UdpHandle::send`](crate::UdpHandle::send).
    pub(in crate::engine) fn send(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let send = |udp: &mut Self, cx: &mut Context, ip: &mut IpLayer| {
            udp.send_copy(cx, ip, id, data, to)
        };
        let sent = self.send_watched(cx, ip, id, (data.len(), to), send);
        self.heed(&mut ip.reach, id, sent)
    }

    #[inline]
    fn send_copy(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let socket = self.by_id(id)?;
        socket.sends += 1;
        if let (Some(route), None) = (&mut socket.route, &socket.error)
            && route.generations == ip.datagram_generations()
            && to.is_none_or(|to| to == route.remote)
            && (to.is_some() || socket.remote == Some(route.remote))
        {
            let remote = route.remote.ip();
            match route.write(cx, ip, data) {
                Ok(true) => return Ok(()),
                Err(Error::MessageTooLong) if !socket.fragmentation.refuses() => {}
                // The known MTU of the path may be too old: then it is looked up anew.
                Err(Error::MessageTooLong) if ip.path_mtus.expire(cx.now, remote) => {}
                Err(error) => return Err(error),
                Ok(false) => {}
            }
        }
        let packet =
            Packet::from_slice(&cx.pool, HEADROOM_BYTES, data).map_err(|_| Error::Exhausted)?;
        self.send_owned(cx, ip, id, packet, to, &SendOptions::default())
    }

    /// See [`UdpHandle::send_packet`](crate::UdpHandle::send_packet).
    pub(in crate::engine) fn send_packet(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        packet: Packet,
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let len = packet.len();
        let send = |udp: &mut Self, cx: &mut Context, ip: &mut IpLayer| {
            udp.send_owned(cx, ip, id, packet, to, &SendOptions::default())
        };
        let sent = self.send_watched(cx, ip, id, (len, to), send);
        self.heed(&mut ip.reach, id, sent)
    }

    fn send_owned(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        mut packet: Packet,
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        // One that was received says what its sender left to be summed, and where in its own
        // headers.
        packet.meta_mut().checksum = Checksum::Unverified;
        let socket = self.by_id(id)?;
        socket.sends += 1;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let remote = to.map(plain).or(socket.remote).ok_or(Error::NotConnected)?;
        let named = to.map_or(Ok(None), |to| ip.reach.links.named(to))?;
        let is_as_usual = *options == SendOptions::default();
        let generations = ip.datagram_generations();
        let packet = match &mut socket.route {
            // A datagram that is too long for it may go if the known MTU of the path is too old.
            Some(route)
                if is_as_usual
                    && packet.meta().segmentation.is_none()
                    && route.remote == remote
                    && route.generations == generations
                    && (route.fits(packet.len())
                        || socket.fragmentation.refuses()
                            && !ip.path_mtus.expire(cx.now, remote.ip())) =>
            {
                match route.send(cx, ip, packet)? {
                    Some(packet) => packet,
                    None => return Ok(()),
                }
            }
            _ => packet,
        };
        let named = options.link.and_then(|link| ip.reach.links.serial_of(link)).or(named);
        self.send_slowly(cx, ip, Sending { id, packet, remote, named, options: *options })
    }

    /// Sends a datagram whose route is not known yet.
    fn send_slowly(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        sending: Sending,
    ) -> Result<(), Error> {
        match sending.remote.ip().is_multicast() {
            true => self.send_to_group(cx, ip, sending),
            false => self.send_uncached(cx, ip, sending),
        }
    }

    /// The next hop of a datagram, and the address that it is sent from.
    fn datagram_way(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        sending: &Sending,
    ) -> Result<(NextHop, IpAddr), Error> {
        let Sending { id, remote, named, options, .. } = *sending;
        let socket = self.by_id(id)?;
        let remote = remote.ip();
        if !socket.reaches(remote) || sending.remote.port() == 0 {
            return Err(Error::Invalid("the peer's address does not fit the socket"));
        }
        let (local, last, may_broadcast) = (socket.local.ip(), socket.scope, socket.broadcast);
        let heeds_path = socket.fragmentation.heeds_path();
        let local = options.from.unwrap_or(local);
        if ip.reach.addresses.lacks_loopback_to(remote) {
            return Err(Error::Invalid(TO_ITSELF));
        }
        if local.is_ipv4() != remote.is_ipv4() && !local.is_unspecified() {
            return Err(Error::Invalid("a source of the other version of IP than the peer's"));
        }
        let scope = named.or_else(|| ip.reach.datagram_scope(local, remote, last));
        let hop = match heeds_path {
            true => ip.datagram_next_hop(cx.now, remote, scope),
            false => ip.reach.next_hop(remote, scope),
        };
        let hop = hop.ok_or_else(|| ip.reach.why_no_hop(remote))?;
        if options.link.is_some_and(|link| link != hop.link) {
            return Err(Error::NetworkUnreachable);
        }
        if !may_broadcast && ip.reach.addresses.is_broadcast_by(hop.link, remote) {
            return Err(Error::Broadcast);
        }
        let source = match local {
            any if any.is_unspecified() => ip
                .reach
                .addresses
                .source(hop.link, hop.address, remote)
                .ok_or(Error::AddrNotAvailable)?,
            // Somebody else has turned out to have it.
            own if !ip.reach.addresses.is_local(own) => return Err(Error::AddrNotAvailable),
            own => own,
        };
        ip.reach.addresses.check_way(source, hop.link)?;
        Ok((hop, source))
    }

    /// Sends a datagram by a route that is looked up, and keeps that for the next one to the same
    /// peer.
    pub(in crate::engine) fn send_uncached(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        sending: Sending,
    ) -> Result<(), Error> {
        let (hop, src) = self.datagram_way(cx, ip, &sending)?;
        let Sending { id, mut packet, remote, options, .. } = sending;
        let socket = self.by_id(id)?;
        let local = socket.local;
        let is_as_usual = options == SendOptions::default();
        let marks = options.marks(socket.marks(remote.ip()));
        let fragmentation = socket.fragmentation;
        if let Some(size) = datagram_size(&packet) {
            let ends = (SocketAddr::new(src, local.port()), remote);
            return self.send_super(cx, ip, (id, &options), (hop, marks), ends, (packet, size));
        }
        packet.meta_mut().segmentation = None;
        // One datagram to a peer is no reason to expect another.
        let again = socket.last_remote.replace(remote) == Some(remote);
        // Headers kept ready have no ECN field and no identification of their own.
        let is_plain = is_as_usual && marks.is_plain() && !fragmentation.is_by_routers();
        if again && !is_scoped(remote.ip()) && is_plain {
            let local = SocketAddr::new(src, local.port());
            let mut found = DatagramRoute::look_up(cx, ip, hop, local, remote, marks);
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
        let mut ip_header = IpHeader::new(src, remote.ip(), Protocol::UDP, len);
        marks.write(&mut ip_header);
        let is_long = ip_header.packet_len() > hop.mtu;
        if packet.len() > longest_payload(ip_header.version()) || is_long && fragmentation.refuses()
        {
            return Err(Error::MessageTooLong);
        }
        ip_header.dont_fragment = !is_long && (remote.is_ipv6() || !fragmentation.is_by_routers());
        if !ip_header.dont_fragment && remote.is_ipv4() {
            let id = ip.reach.identifications.next(src, remote.ip(), Protocol::UDP);
            ip_header.identification = id as u16;
        }
        let count = if is_long { fragment_count(&ip_header, hop.mtu) } else { 1 };
        if !ip.reach.has_room_for(cx, hop.link, count) {
            return Err(Error::WouldBlock);
        }
        let mut packet = with_udp_header(&cx.pool, packet, &header)?;
        ip.reach.seal(&mut packet, hop.link, &ip_header, udp::CHECKSUM_OFFSET as u16);
        if fragmentation.heeds_path() {
            ip.sent.note(cx.now, &ip_header, packet.head());
        }
        cx.stats.udp_tx += 1;
        ip.reach.send_ip(cx, hop, &ip_header, packet);
        Ok(())
    }
}
