//! Datagram sockets: UDP and ICMP echo, both ways.

use std::net::{IpAddr, SocketAddr};

use millstream_packet::{Checksum, Instant, Packet};
use millstream_route::{HeaderTemplate, Stamp, TransportChecksum};
use millstream_wire::Malformed;
use millstream_wire::icmp::{self, Icmp, Unreachable};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use super::addresses::Destination;
use super::addresses::is_link_local;
use super::ingress::{Arrival, checksum_holds, gather};
use super::output::{Output, Way, is_broadcast, with_header};
use super::super_datagrams::datagram_size;
use super::{Engine, FOREIGN};
use crate::error::Error;
use crate::limits::{HEADROOM_BYTES, LINK_HEADROOM_BYTES};
use crate::socket::SocketId;
use crate::socket::icmp::Echo;
use crate::socket::tcp::plain;
use crate::socket::udp::{Datagram, DatagramPath};
use crate::stats::DropReason;

/// Whether the way to `remote` depends on more than the routes.
fn is_scoped(remote: IpAddr) -> bool {
    is_link_local(remote) || remote.is_multicast() || is_broadcast(remote)
}

impl Output {
    /// Sends a copy of `data` by the headers kept ready for its peer. False when it does not fit one frame.
    #[inline]
    fn write_known(
        &mut self,
        now: Instant,
        path: &DatagramPath,
        data: &[u8],
    ) -> Result<bool, Error> {
        let DatagramPath { way, template, .. } = path;
        let len = template.header_len() + data.len();
        if len - template.link_header_len() > way.mtu {
            return Err(Error::MessageTooLong);
        }
        if self.room(now, way.link) == 0 {
            return Err(Error::WouldBlock);
        }
        let mut packet = self.pool.alloc(LINK_HEADROOM_BYTES).ok_or(Error::Exhausted)?;
        let Some(room) = packet.append(len) else { return Ok(false) };
        let Some(checksum) = template.write_datagram(room, data, self.checksum_on(path)) else {
            return Ok(false);
        };
        let meta = packet.meta_mut();
        meta.checksum = checksum;
        meta.l3_offset = template.link_header_len() as u16;
        meta.l4_offset = meta.l3_offset + template.ip_header_len() as u16;
        self.stats.udp_tx += 1;
        self.enqueue(now, way.link, packet);
        Ok(true)
    }

    /// Who completes the checksums of datagrams that go this way.
    #[inline]
    fn checksum_on(&self, path: &DatagramPath) -> TransportChecksum {
        let sums = self.links[path.way.link.index()].capabilities.tx_checksum;
        match if path.remote.is_ipv4() { sums.v4 } else { sums.v6 } {
            true => TransportChecksum::Offload,
            false => TransportChecksum::Compute,
        }
    }

    /// Sends a datagram's data by the headers kept ready for its peer. Gives it back when they do not fit in
    /// front of it.
    fn send_known(
        &mut self,
        now: Instant,
        path: &DatagramPath,
        mut packet: Packet,
    ) -> Result<Option<Packet>, Error> {
        let DatagramPath { way, template, .. } = path;
        if template.header_len() - template.link_header_len() + packet.len() > way.mtu {
            return Err(Error::MessageTooLong);
        }
        if self.room(now, way.link) == 0 {
            return Err(Error::WouldBlock);
        }
        let checksum = self.checksum_on(path);
        // RFC 6864, 4.1: what is not fragmented needs no identification.
        let stamp = Stamp { checksum, ..Stamp::default() };
        if template.apply(&mut packet, stamp).is_err() {
            return Ok(Some(packet));
        }
        self.stats.udp_tx += 1;
        self.enqueue(now, way.link, packet);
        Ok(None)
    }

    /// Headers for datagrams from `local` to `remote`, while the neighbour is known.
    fn datagram_path(
        &mut self,
        now: Instant,
        way: Way,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<Box<DatagramPath>> {
        let ethernet = self.ethernet(now, way, remote.ip())?;
        // Being used can change the table's generation.
        let generations = self.generations();
        let ip = IpHeader::new(local.ip(), remote.ip(), Protocol::UDP, 0);
        let ports = (local.port(), remote.port());
        let template = HeaderTemplate::udp(ethernet.as_ref(), &ip, ports, generations);
        self.stats.templates_built += 1;
        Some(Box::new(DatagramPath { remote, way, generations, template }))
    }
}

impl Engine {
    /// A UDP datagram for this engine.
    pub(super) fn udp_input(&mut self, now: Instant, mut arrival: Arrival) {
        let ip_len = arrival.ip.header_len;
        if !gather(&mut arrival.packet, ip_len + udp::HEADER_LEN) {
            return self.out.stats.drop(DropReason::PoolExhausted);
        }
        let ip = arrival.ip;
        let bytes = arrival.packet.head().get(ip_len..).unwrap_or_default();
        let (header, header_len) = match UdpHeader::parse(bytes, ip.payload_len) {
            Ok(parsed) => parsed,
            Err(reason) => return self.out.stats.malformed(reason),
        };
        let covered = header_len + header.payload_len;
        arrival.packet.truncate(ip_len + covered);
        // RFC 768: a zero checksum says there is none; RFC 8200, 8.1: not so in IPv6.
        let none = header.checksum == [0, 0];
        let holds = || {
            arrival.packet.meta().checksum != Checksum::Unverified
                || checksum_holds(
                    &arrival,
                    ip::pseudo_header_sum(ip.src, ip.dst, Protocol::UDP, covered),
                )
        };
        if (none && ip.src.is_ipv6()) || (!none && !holds()) {
            return self.out.stats.malformed(Malformed::UdpChecksum);
        }
        let local = SocketAddr::new(ip.dst, header.dst_port);
        let from = SocketAddr::new(ip.src, header.src_port);
        let Some(slot) = self.udp.find(local, from) else {
            self.out.stats.drop(DropReason::UdpNoSocket);
            return self.send_icmp_error(now, &arrival, Icmp::Unreachable(Unreachable::Port));
        };
        let Arrival { mut packet, link, .. } = arrival;
        packet.trim_front(ip_len + header_len);
        if let Some(size) = datagram_size(&packet) {
            return self.udp_deliver_parts(slot, from, (packet, size), link);
        }
        packet.meta_mut().segmentation = None;
        match self.udp.deliver(slot, Datagram { from, packet }, link, &mut self.events) {
            Ok(()) => self.out.stats.udp_rx += 1,
            Err(_) => self.out.stats.drop(DropReason::UdpQueueFull),
        }
    }

    /// An echo reply for this engine.
    pub(super) fn echo_reply_input(&mut self, arrival: Arrival, identifier: u16, seq: u16) {
        let Arrival { mut packet, ip, destination, .. } = arrival;
        let slot = self.icmp.find(identifier).filter(|_| destination == Destination::Own);
        let Some(slot) = slot else { return self.out.stats.drop(DropReason::IcmpNoSocket) };
        packet.trim_front(ip.header_len + icmp::HEADER_LEN);
        let echo = Echo { from: ip.src, seq, packet };
        if self.icmp.deliver(slot, echo, &mut self.events).is_err() {
            self.out.stats.drop(DropReason::IcmpQueueFull);
        }
    }

    /// Opens a UDP socket. Port 0 asks for a free ephemeral one; an unspecified address takes datagrams
    /// for any own address, the IPv6 one those of IPv4 as well.
    pub fn udp_bind(&mut self, addr: SocketAddr) -> Result<SocketId, Error> {
        let mut local = plain(addr);
        self.check_local(local.ip())?;
        if local.port() == 0 {
            local.set_port(self.free_udp_port()?);
        }
        self.check_share(local.port())?;
        self.udp.bind(local)
    }

    fn free_udp_port(&mut self) -> Result<u16, Error> {
        let (share, start) = (self.share, self.random() as u32);
        (0..share.own_ports())
            .map(|step| share.own_port(start.wrapping_add(step)))
            .find(|&port| !self.udp.uses_port(port))
            .ok_or(Error::AddrNotAvailable)
    }

    /// Fixes the peer: datagrams of others are not for this socket any more, and ICMP errors are told.
    pub fn udp_connect(&mut self, id: SocketId, remote: SocketAddr) -> Result<(), Error> {
        let remote = plain(remote);
        let socket = self.udp.by_id(id)?;
        if !socket.reaches(remote.ip()) || remote.port() == 0 {
            return Err(Error::Invalid("the peer's address does not fit the socket"));
        }
        let mut local = socket.local.ip();
        if local.is_unspecified() {
            let way = self.out.way(remote.ip(), None).ok_or(Error::NetworkUnreachable)?;
            let source = self.out.addresses.source(way.link, way.next_hop, remote.ip());
            local = source.ok_or(Error::AddrNotAvailable)?;
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

    /// Sends a datagram with a copy of `data`; `None` sends to the connected peer. It leaves at the end
    /// of the turn. Datagrams longer than the path's MTU are refused: they are not fragmented.
    pub fn udp_send(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let now = self.now();
        let socket = self.udp.by_id(id)?;
        if let (Some(path), None) = (&socket.path, &socket.error)
            && path.generations == self.out.generations()
            && to.is_none_or(|to| to == path.remote)
            && (to.is_some() || socket.remote == Some(path.remote))
            && self.out.write_known(now, path, data)?
        {
            return Ok(());
        }
        let packet = Packet::from_slice(&self.out.pool, HEADROOM_BYTES, data)
            .map_err(|_| Error::Exhausted)?;
        self.udp_send_packet(id, packet, to)
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
        let now = self.now();
        let socket = self.udp.by_id(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let remote = to.map(plain).or(socket.remote).ok_or(Error::NotConnected)?;
        let generations = self.out.generations();
        let packet = match &mut socket.path {
            Some(path)
                if packet.meta().segmentation.is_none()
                    && path.remote == remote
                    && path.generations == generations =>
            {
                match self.out.send_known(now, path, packet)? {
                    Some(packet) => packet,
                    None => return Ok(()),
                }
            }
            _ => packet,
        };
        self.udp_send_slowly(now, id, packet, remote)
    }

    /// Sends a datagram whose way is not known yet, and keeps the way for the next one to the same peer.
    fn udp_send_slowly(
        &mut self,
        now: Instant,
        id: SocketId,
        mut packet: Packet,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        let socket = self.udp.by_id(id)?;
        if !socket.reaches(remote.ip()) || remote.port() == 0 {
            return Err(Error::Invalid("the peer's address does not fit the socket"));
        }
        let (local, scope) = (socket.local, socket.scope);
        let way = self.out.way(remote.ip(), scope).ok_or(Error::NetworkUnreachable)?;
        let src = match local.ip() {
            any if any.is_unspecified() => self
                .out
                .addresses
                .source(way.link, way.next_hop, remote.ip())
                .ok_or(Error::AddrNotAvailable)?,
            ip => ip,
        };
        if let Some(size) = datagram_size(&packet) {
            let ends = (SocketAddr::new(src, local.port()), remote);
            return self.udp_send_super(now, id, way, ends, (packet, size));
        }
        packet.meta_mut().segmentation = None;
        // One datagram to a peer is no reason to expect another.
        let again = socket.last_remote.replace(remote) == Some(remote);
        socket.path = match again && !is_scoped(remote.ip()) {
            true => self.out.datagram_path(now, way, SocketAddr::new(src, local.port()), remote),
            false => None,
        };
        let header = UdpHeader::new(local.port(), remote.port(), packet.len());
        let len = packet.len() + udp::HEADER_LEN;
        let ip = IpHeader::new(src, remote.ip(), Protocol::UDP, len);
        if ip.packet_len() > way.mtu {
            return Err(Error::MessageTooLong);
        }
        if self.out.room(now, way.link) == 0 {
            return Err(Error::WouldBlock);
        }
        let mut packet =
            with_header(&self.out.pool, packet, udp::HEADER_LEN, |room| header.emit(room))
                .map_err(|_| Error::Exhausted)?;
        self.out.seal(&mut packet, way.link, &ip, udp::CHECKSUM_OFFSET as u16);
        self.out.stats.udp_tx += 1;
        self.out.send_ip(now, way, &ip, packet);
        Ok(())
    }

    /// Copies the next datagram into `buffer` and tells its length and sender. What does not fit is lost,
    /// as with `recvfrom`.
    pub fn udp_recv(
        &mut self,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr), Error> {
        let (packet, from) = self.udp_recv_packet(id)?;
        let head = packet.head();
        if head.len() == packet.len() && head.len() <= buffer.len() {
            buffer[..head.len()].copy_from_slice(head);
            return Ok((head.len(), from));
        }
        Ok((packet.copy_to(0, buffer), from))
    }

    /// The next datagram as it came, and its sender.
    pub fn udp_recv_packet(&mut self, id: SocketId) -> Result<(Packet, SocketAddr), Error> {
        let socket = self.udp.by_id(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let Datagram { from, packet } = socket.take().ok_or(Error::WouldBlock)?;
        Ok((packet, from))
    }

    /// Counts what a caller lost who cannot wait for room.
    pub(crate) fn count_drop(&mut self, reason: crate::DropReason) {
        self.out.stats.drop(reason);
    }

    /// Sets how much memory the socket's received datagrams may hold.
    pub fn udp_set_limit(&mut self, id: SocketId, limit_bytes: usize) -> Result<(), Error> {
        self.udp.by_id(id)?.limit_bytes = limit_bytes;
        Ok(())
    }

    /// Opens an echo socket; identifier 0 asks for a free one.
    pub fn icmp_bind(&mut self, identifier: u16) -> Result<SocketId, Error> {
        match identifier {
            0 => {
                let start = self.random() as u16;
                let mut wanted = (0..=u16::MAX).map(|step| start.wrapping_add(step));
                let free = wanted.find(|&id| {
                    id != 0 && self.share.owns_identifier(id) && self.icmp.find(id).is_none()
                });
                self.icmp.bind(free.ok_or(Error::AddrNotAvailable)?)
            }
            identifier if !self.share.owns_identifier(identifier) => Err(FOREIGN),
            identifier => self.icmp.bind(identifier),
        }
    }

    /// Sends an echo request with `data`.
    pub fn icmp_send_echo(
        &mut self,
        id: SocketId,
        to: IpAddr,
        seq: u16,
        data: &[u8],
    ) -> Result<(), Error> {
        let now = self.now();
        let identifier = self.icmp.by_id(id)?.identifier;
        let way = self.out.way(to, None).ok_or(Error::NetworkUnreachable)?;
        let src = self.out.addresses.source(way.link, way.next_hop, to);
        let src = src.ok_or(Error::AddrNotAvailable)?;
        let packet = Packet::from_slice(&self.out.pool, HEADROOM_BYTES, data)
            .map_err(|_| Error::Exhausted)?;
        let version = ip::Version::of(&to);
        let len = packet.len() + icmp::HEADER_LEN;
        let header = IpHeader::new(src, to, icmp::protocol(version), len);
        if header.packet_len() > way.mtu {
            return Err(Error::MessageTooLong);
        }
        let mut packet = with_header(&self.out.pool, packet, icmp::HEADER_LEN, |room| {
            Icmp::EchoRequest { id: identifier, seq }.emit(version, room)
        })
        .map_err(|_| Error::Exhausted)?;
        self.out.seal(&mut packet, way.link, &header, icmp::CHECKSUM_OFFSET as u16);
        self.out.send_ip(now, way, &header, packet);
        Ok(())
    }

    /// The next echo reply: who sent it, its sequence number, its data.
    pub fn icmp_recv(&mut self, id: SocketId) -> Result<(IpAddr, u16, Packet), Error> {
        let Echo { from, seq, packet } = self.icmp.by_id(id)?.take().ok_or(Error::WouldBlock)?;
        Ok((from, seq, packet))
    }
}
