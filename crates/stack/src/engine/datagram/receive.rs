//! Datagrams received: up to their socket, and from there to the application.

use std::net::SocketAddr;

use millstream_packet::{BATCH_LIMIT, Checksum, Packet, PacketBatch};
use millstream_route::LinkId;
use millstream_wire::Malformed;
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::ip::{self, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use crate::engine::context::Context;
use crate::engine::datagram::info::{DatagramInfo, on_link};
use crate::engine::datagram::intercept::UdpFlows;
use crate::engine::datagram::super_datagrams::datagram_size;
use crate::engine::datagram::udp_flows::Place;
use crate::engine::datagram::udp_table::{Datagram, UdpLayer};
use crate::engine::ip::IpLayer;
use crate::engine::ip::arrival::{Arrival, checksum_holds, gather};
use crate::engine::ip::reach::IpReach;
use crate::engine::ip::reach::addresses::Destination;
use crate::engine::reader::{ReceivedDatagram, copy_many, copy_out};
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::DropReason;

impl UdpLayer {
    /// Queues a datagram of a known flow, and those of it that follow in the batch: its socket is
    /// looked for and told once. Gives back what has to go the long way.
    #[inline(never)]
    pub(in crate::engine) fn known_datagrams(
        &mut self,
        cx: &mut Context,
        reach: &IpReach,
        batch: &mut PacketBatch,
        (link, place): (LinkId, &Place),
        packet: Packet,
    ) -> Result<(), Packet> {
        let UdpLayer { flows, sockets, .. } = self;
        let Some(flow) = flows.at(place) else { return Err(packet) };
        let Some(data) = flow.read(&packet, packet.head(), link) else { return Err(packet) };
        let Some(socket) = sockets.get_mut(flow.slot) else { return Err(packet) };
        let was_empty = socket.queue.is_empty();
        let (mut taken, mut refused, mut bytes) = (0, 0, 0);
        let mut next = Some((packet, data));
        while let Some((mut packet, data)) = next.take() {
            packet.crop(data.start, data.end);
            match socket
                .push(Datagram { from: flow.from, info: flow.info, packet }, &mut cx.account)
            {
                Ok(()) => taken += 1,
                Err(_) => refused += 1,
            }
            let data = batch.front().and_then(|next| flow.read(next, next.head(), link));
            next = data.and_then(|data| batch.pop_ahead().map(|packet| (packet, data)));
            bytes += next.as_ref().map_or(0, |(packet, _)| packet.len());
        }
        if taken != 0 {
            let serial = reach.links[link.index()].serial;
            socket.delivered(serial, was_empty, &mut cx.events);
        }
        let stats = &mut cx.stats;
        stats.udp_rx += taken;
        stats.udp_rx_known += taken;
        stats.rx_bytes += bytes as u64;
        stats.drop_many(DropReason::UdpQueueFull, refused);
        Ok(())
    }

    /// A UDP datagram for this engine.
    pub(in crate::engine) fn input(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        mut arrival: Arrival,
    ) {
        let ip_len = arrival.ip.header_len;
        if !gather(&mut arrival.packet, ip_len + udp::HEADER_LEN) {
            return cx.stats.drop(DropReason::PoolExhausted);
        }
        let ip_header = arrival.ip;
        let bytes = arrival.packet.head().get(ip_len..).unwrap_or_default();
        let (header, header_len) = match UdpHeader::parse(bytes, ip_header.payload_len) {
            Ok(parsed) => parsed,
            Err(reason) => return cx.stats.malformed(reason),
        };
        let covered = header_len + header.payload_len;
        arrival.packet.truncate(ip_len + covered);
        // RFC 768: a zero checksum says there is none; RFC 8200, 8.1: not so in IPv6.
        let none = header.checksum == [0, 0];
        let holds = || {
            arrival.packet.meta().checksum != Checksum::Unverified
                || checksum_holds(
                    &arrival,
                    ip::pseudo_header_sum(ip_header.src, ip_header.dst, Protocol::UDP, covered),
                )
        };
        if (none && ip_header.src.is_ipv6()) || (!none && !holds()) {
            return cx.stats.malformed(Malformed::UdpChecksum);
        }
        let local = SocketAddr::new(ip_header.dst, header.dst_port);
        let from = SocketAddr::new(ip_header.src, header.src_port);
        if ip_header.dst.is_multicast()
            && ip.reach.addresses.groups.is_for_members(arrival.link, ip_header.dst)
        {
            let Arrival { mut packet, link, .. } = arrival;
            packet.trim_front(ip_len + header_len);
            let size = datagram_size(&packet);
            let info = DatagramInfo::new(&ip_header, link);
            return self.deliver_to_group(cx, &ip.reach, (local, from), info, packet, size);
        }
        let found = match self.find(local, from) {
            None if arrival.destination == Destination::Own => {
                UdpFlows { udp: self, cx }.open(local, from)
            }
            found => Ok(found),
        };
        let slot = match found {
            Ok(Some(slot)) => slot,
            Ok(None) => {
                cx.stats.drop(DropReason::UdpNoSocket);
                let error = Icmp::Unreachable(Unreachable::Port);
                return ip.icmp_errors.send(cx, &mut ip.reach, &arrival, error);
            }
            Err(reason) => return cx.stats.drop(reason),
        };
        let Arrival { mut packet, link, .. } = arrival;
        let (from, info) = (on_link(from, link), DatagramInfo::new(&ip_header, link));
        packet.trim_front(ip_len + header_len);
        let serial = ip.reach.links[link.index()].serial;
        if let Some(size) = datagram_size(&packet) {
            return self.deliver_parts(cx, slot, (from, info), (packet, size), serial);
        }
        packet.meta_mut().segmentation = None;
        match self.deliver(
            slot,
            Datagram { from, info, packet },
            serial,
            &mut cx.account,
            &mut cx.events,
        ) {
            Ok(()) => {
                cx.stats.udp_rx += 1;
                self.flows.learn(info, from, slot);
            }
            Err(_) => cx.stats.drop(DropReason::UdpQueueFull),
        }
    }

    /// Returns the socket of a datagram of the last batch whose payload lies at this address, and
    /// its number there.
    #[cold]
    pub(in crate::engine) fn find_datagram(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        payload_at: usize,
    ) -> Option<(SocketId, u64)> {
        let socket = self.sockets.get(self.find(local, remote)?)?;
        let mut last = socket.queue.iter().enumerate().rev().take(BATCH_LIMIT);
        let (at, _) =
            last.find(|(_, datagram)| datagram.packet.head().as_ptr() as usize == payload_at)?;
        Some((socket.id, socket.taken + at as u64 + 1))
    }

    /// See [`UdpHandle::recv`](crate::UdpHandle::recv).
    pub(in crate::engine) fn recv(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr), Error> {
        let (packet, from) = self.recv_packet(cx, id)?;
        Ok((copy_out(&packet, buffer), from))
    }

    /// See [`UdpHandle::recv_many`](crate::UdpHandle::recv_many).
    pub(in crate::engine) fn recv_many(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        buffer: &mut [u8],
        list: &mut Vec<ReceivedDatagram>,
    ) -> Result<usize, Error> {
        list.clear();
        let socket = self.by_id(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        copy_many(buffer, list, |room| {
            socket.queue.front().filter(|next| next.packet.len() <= room)?;
            socket.take(&mut cx.account).map(|Datagram { from, packet, .. }| (packet, from))
        });
        cx.sink.datagrams_read(id, socket.taken);
        if list.is_empty() { Err(Error::WouldBlock) } else { Ok(list.len()) }
    }

    /// See [`UdpHandle::recv_packet`](crate::UdpHandle::recv_packet).
    pub(in crate::engine) fn recv_packet(
        &mut self,
        cx: &mut Context,
        id: SocketId,
    ) -> Result<(Packet, SocketAddr), Error> {
        self.next(cx, id).map(|Datagram { from, packet, .. }| (packet, from))
    }

    #[inline]
    pub(super) fn next(&mut self, cx: &mut Context, id: SocketId) -> Result<Datagram, Error> {
        let socket = self.by_id(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let taken = socket.take(&mut cx.account);
        cx.sink.datagrams_read(id, socket.taken);
        taken.ok_or(Error::WouldBlock)
    }
}
