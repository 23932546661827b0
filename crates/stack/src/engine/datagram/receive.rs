//! Datagrams received: up to their socket, and from there to the application.

use std::net::{SocketAddr, SocketAddrV6};

use millstream_link::Medium;
use millstream_packet::{Checksum, Packet};
use millstream_route::LinkId;
use millstream_wire::Malformed;
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::ip::{self, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use crate::engine::Engine;
use crate::engine::datagram::DatagramInfo;
use crate::engine::datagram::super_datagrams::datagram_size;
use crate::engine::datagram::udp_flows::Place;
use crate::engine::datagram::udp_table::{Datagram, UdpTable};
use crate::engine::ip::addresses::is_link_local;
use crate::engine::ip::arrival::{Arrival, checksum_holds, gather};
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::DropReason;

/// A datagram that [`Engine::udp_recv_many`] has copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Who sent it.
    pub from: SocketAddr,
    /// Bytes of it in the buffer.
    pub len: usize,
}

/// A peer's address as the application has it: a link-local one names the link that the peer is on.
pub(in crate::engine) fn on_link(peer: SocketAddr, link: LinkId) -> SocketAddr {
    match peer {
        SocketAddr::V6(peer) if is_link_local((*peer.ip()).into()) => {
            SocketAddrV6::new(*peer.ip(), peer.port(), 0, u32::from(link.0) + 1).into()
        }
        _ => peer,
    }
}

impl Engine {
    /// A frame as the link gave it, which is no segment of a known connection: if it is a datagram of a known flow,
    /// that and those of the same flow that follow it in the batch; else by the long way.
    #[inline]
    pub(in crate::engine) fn datagram_or_other(
        &mut self,
        link: LinkId,
        medium: Medium,
        packet: Packet,
    ) {
        let Some(place) = Place::of(packet.head(), medium) else {
            return self.packet_input(link, packet);
        };
        if let Err(packet) = self.known_datagrams(link, &place, packet) {
            self.udp.flows.propose(packet.head(), place);
            self.packet_input(link, packet);
            self.udp.flows.settle();
        }
    }

    /// Queues a datagram of a known flow, and those of it that follow in the batch: its socket is looked for and told
    /// once. Gives back what has to go the long way.
    #[inline(never)]
    fn known_datagrams(
        &mut self,
        link: LinkId,
        place: &Place,
        packet: Packet,
    ) -> Result<(), Packet> {
        let UdpTable { flows, sockets, .. } = &mut self.udp;
        let Some(flow) = flows.at(place) else { return Err(packet) };
        let Some(data) = flow.read(&packet, packet.head(), link) else { return Err(packet) };
        let Some(socket) = sockets.get_mut(flow.slot) else { return Err(packet) };
        let was_empty = socket.queue.is_empty();
        let (mut taken, mut refused, mut bytes) = (0, 0, 0);
        let mut next = Some((packet, data));
        while let Some((mut packet, data)) = next.take() {
            packet.crop(data.start, data.end);
            match socket
                .push(Datagram { from: flow.from, info: flow.info, packet }, &mut self.cx.account)
            {
                Ok(()) => taken += 1,
                Err(_) => refused += 1,
            }
            next = self.rx.next_if(|packet| flow.read(packet, packet.head(), link));
            bytes += next.as_ref().map_or(0, |(packet, _)| packet.len());
        }
        if taken != 0 {
            let serial = self.ip.links[link.index()].serial;
            socket.delivered(serial, was_empty, &mut self.cx.events);
        }
        let stats = &mut self.cx.stats;
        stats.udp_rx += taken;
        stats.udp_rx_known += taken;
        stats.rx_bytes += bytes as u64;
        stats.drop_many(DropReason::UdpQueueFull, refused);
        Ok(())
    }

    /// A UDP datagram for this engine.
    pub(in crate::engine) fn udp_input(&mut self, mut arrival: Arrival) {
        let ip_len = arrival.ip.header_len;
        if !gather(&mut arrival.packet, ip_len + udp::HEADER_LEN) {
            return self.cx.stats.drop(DropReason::PoolExhausted);
        }
        let ip = arrival.ip;
        let bytes = arrival.packet.head().get(ip_len..).unwrap_or_default();
        let (header, header_len) = match UdpHeader::parse(bytes, ip.payload_len) {
            Ok(parsed) => parsed,
            Err(reason) => return self.cx.stats.malformed(reason),
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
            return self.cx.stats.malformed(Malformed::UdpChecksum);
        }
        let local = SocketAddr::new(ip.dst, header.dst_port);
        let from = SocketAddr::new(ip.src, header.src_port);
        if ip.dst.is_multicast() && self.ip.addresses.groups.is_for_members(arrival.link, ip.dst) {
            let Arrival { mut packet, link, .. } = arrival;
            packet.trim_front(ip_len + header_len);
            let size = datagram_size(&packet);
            let info = DatagramInfo::new(&ip, link);
            return self.deliver_to_group(local, from, info, packet, size);
        }
        let Some(slot) = self.udp.find(local, from) else {
            self.cx.stats.drop(DropReason::UdpNoSocket);
            return self.ip.send_icmp_error(
                &mut self.cx,
                &arrival,
                Icmp::Unreachable(Unreachable::Port),
            );
        };
        let Arrival { mut packet, link, .. } = arrival;
        let (from, info) = (on_link(from, link), DatagramInfo::new(&ip, link));
        packet.trim_front(ip_len + header_len);
        let serial = self.ip.links[link.index()].serial;
        if let Some(size) = datagram_size(&packet) {
            return self.udp_deliver_parts(slot, (from, info), (packet, size), serial);
        }
        packet.meta_mut().segmentation = None;
        match self.udp.deliver(
            slot,
            Datagram { from, info, packet },
            serial,
            &mut self.cx.account,
            &mut self.cx.events,
        ) {
            Ok(()) => {
                self.cx.stats.udp_rx += 1;
                self.udp.flows.learn(info, from, slot);
            }
            Err(_) => self.cx.stats.drop(DropReason::UdpQueueFull),
        }
    }

    /// Copies the next datagram into `buffer` and tells its length and sender. What does not fit is lost,
    /// as with `recvfrom`.
    pub fn udp_recv(
        &mut self,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr), Error> {
        let (packet, from) = self.udp_recv_packet(id)?;
        Ok((copy_out(&packet, buffer), from))
    }

    /// Copies the datagrams that wait into `buffer`, one behind the other, as many as it has room for, and lists them
    /// in `list`, which is cleared before; how many those are. One that is longer than all of `buffer` is cut, as by
    /// [`Engine::udp_recv`]; another for which no room is left stays.
    ///
    /// # Errors
    /// As [`Engine::udp_recv`]: [`Error::WouldBlock`] when none waits.
    pub fn udp_recv_many(
        &mut self,
        id: SocketId,
        buffer: &mut [u8],
        list: &mut Vec<ReceivedDatagram>,
    ) -> Result<usize, Error> {
        list.clear();
        let Self { udp, cx, .. } = self;
        let socket = udp.by_id(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        copy_many(buffer, list, |room| {
            socket.queue.front().filter(|next| next.packet.len() <= room)?;
            socket.take(&mut cx.account).map(|Datagram { from, packet, .. }| (packet, from))
        });
        self.trace_progress(id);
        if list.is_empty() { Err(Error::WouldBlock) } else { Ok(list.len()) }
    }

    /// The next datagram as it came, and its sender.
    pub fn udp_recv_packet(&mut self, id: SocketId) -> Result<(Packet, SocketAddr), Error> {
        self.udp_next(id).map(|Datagram { from, packet, .. }| (packet, from))
    }

    #[inline]
    pub(super) fn udp_next(&mut self, id: SocketId) -> Result<Datagram, Error> {
        let socket = self.udp.by_id(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let taken = socket.take(&mut self.cx.account);
        self.trace_progress(id);
        taken.ok_or(Error::WouldBlock)
    }

    /// Counts what a caller lost who cannot wait for room.
    pub(crate) fn count_drop(&mut self, reason: crate::DropReason) {
        self.cx.stats.drop(reason);
    }

    /// Sets how much memory the socket's received datagrams may hold.
    pub fn udp_set_limit(&mut self, id: SocketId, limit_bytes: usize) -> Result<(), Error> {
        self.udp.by_id(id)?.limit_bytes = limit_bytes;
        Ok(())
    }
}

/// Copies datagrams into `buffer`, one behind the other, and lists them behind those of `list`, as long as `next` has
/// one of at most so many bytes. The first may have any number, and is cut to `buffer`.
#[inline]
pub(crate) fn copy_many(
    mut buffer: &mut [u8],
    list: &mut Vec<ReceivedDatagram>,
    mut next: impl FnMut(usize) -> Option<(Packet, SocketAddr)>,
) {
    let mut room = usize::MAX;
    while let Some((packet, from)) = next(room) {
        let len = copy_out(&packet, buffer);
        list.push(ReceivedDatagram { from, len });
        buffer = &mut buffer[len..];
        room = buffer.len();
    }
}

/// Copies the packet, or as much of it as there is room for; how many bytes that was.
#[inline]
fn copy_out(packet: &Packet, buffer: &mut [u8]) -> usize {
    let head = packet.head();
    match buffer.get_mut(..head.len()) {
        Some(room) if head.len() == packet.len() => {
            room.copy_from_slice(head);
            head.len()
        }
        _ => packet.copy_to(0, buffer),
    }
}
