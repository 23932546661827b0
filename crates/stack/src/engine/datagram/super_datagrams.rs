//! UDP super-segments: datagrams of one size to one peer that travel as one packet (`UDP_SEGMENT`
//! and `UDP_GRO` of Linux). Sockets never see one: what arrives so is cut here, and what is sent so
//! is cut here for links that do not take it whole.

use std::net::SocketAddr;

use millstream_packet::{Exhausted, Packet, Segmentation, SegmentationKind};
use millstream_wire::ip::{IpHeader, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use crate::engine::Serial;
use crate::engine::context::Context;
use crate::engine::datagram::info::{DatagramInfo, Marks, SendOptions, on_link};
use crate::engine::datagram::route::with_udp_header;
use crate::engine::datagram::udp_table::Datagram;
use crate::engine::datagram::udp_table::UdpLayer;
use crate::engine::ip::IpLayer;
use crate::engine::ip::reach::NextHop;
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

/// Payload of a super-segment at most, in bytes: with its headers it is one IPv4 packet (RFC 791
/// section 3.1).
const PAYLOAD_LIMIT_BYTES: usize = 65_535 - 20 - udp::HEADER_LEN;

/// How the packet is to be cut, if it is several datagrams.
#[inline]
pub(in crate::engine) fn datagram_size(packet: &Packet) -> Option<usize> {
    let Segmentation { kind, size, .. } = packet.meta().segmentation?;
    let is_cut = kind == SegmentationKind::Udp && size != 0 && packet.len() > usize::from(size);
    is_cut.then_some(usize::from(size))
}

impl UdpLayer {
    /// See [`UdpHandle::send_segmented`](crate::UdpHandle::send_segmented).
    pub(in crate::engine) fn send_segmented(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        data: &[u8],
        size: u16,
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        if size == 0 {
            return Err(Error::Invalid("datagrams of no bytes"));
        }
        let mut packet =
            Packet::from_slice(&cx.pool, HEADROOM_BYTES, data).map_err(|_| Error::Exhausted)?;
        packet.meta_mut().segmentation = Some(datagrams_of(size));
        self.send_packet(cx, ip, id, packet, to)
    }

    /// Sends a super-segment of datagrams of `size` bytes from `local` to `remote`.
    pub(in crate::engine) fn send_super(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        (id, options): (SocketId, &SendOptions),
        (hop, marks): (NextHop, Marks),
        (local, remote): (SocketAddr, SocketAddr),
        (mut packet, size): (Packet, usize),
    ) -> Result<(), Error> {
        let ip_len =
            |len| IpHeader::new(local.ip(), remote.ip(), Protocol::UDP, udp::HEADER_LEN + len);
        if ip_len(size).packet_len() > hop.mtu || packet.len() > PAYLOAD_LIMIT_BYTES {
            return Err(Error::MessageTooLong);
        }
        if ip.reach.room(cx, hop.link) == 0 {
            return Err(Error::WouldBlock);
        }
        let mut ip_header = ip_len(packet.len());
        marks.write(&mut ip_header);
        let most = ip.reach.links[hop.link.index()].capabilities.uso_bytes;
        if most.is_none_or(|most| ip_header.packet_len() > most as usize) {
            let remote = on_link(remote, hop.link);
            return self.send_parts(cx, ip, id, (&packet, size), remote, options);
        }
        if self.by_id(id)?.fragmentation.heeds_path() {
            // The link makes the others; the sum of the first is known here.
            let first = packet.view(&cx.pool, 0, size).map_err(|_| Error::Exhausted)?;
            let header = UdpHeader::new(local.port(), remote.port(), size);
            let mut first = with_udp_header(&cx.pool, first, &header)?;
            first.meta_mut().segmentation = None;
            let ip_header = ip_len(size);
            ip.reach.seal(&mut first, hop.link, &ip_header, udp::CHECKSUM_OFFSET as u16);
            ip.sent.note(cx.now, &ip_header, first.head());
        }
        cx.stats.udp_tx += packet.len().div_ceil(size) as u64;
        packet.meta_mut().segmentation = Some(datagrams_of(size as u16));
        let header = UdpHeader::new(local.port(), remote.port(), packet.len());
        let mut packet = with_udp_header(&cx.pool, packet, &header)?;
        ip.reach.seal(&mut packet, hop.link, &ip_header, udp::CHECKSUM_OFFSET as u16);
        ip.reach.send_ip(cx, hop, &ip_header, packet);
        Ok(())
    }

    /// Sends the datagrams one by one; a link-local address names the link.
    pub(in crate::engine) fn send_parts(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        (packet, size): (&Packet, usize),
        remote: SocketAddr,
        options: &SendOptions,
    ) -> Result<(), Error> {
        for at in (0..packet.len()).step_by(size) {
            let part = packet.view(&cx.pool, at, size).map_err(|_| Error::Exhausted)?;
            match self.send_packet_with(cx, ip, id, part, Some(remote), options) {
                Err(Error::WouldBlock) => cx.stats.drop(DropReason::TransmitQueueFull),
                sent => sent?,
            }
        }
        Ok(())
    }

    /// Queues the datagrams of a super-segment, each in frames of its own: who keeps one keeps none
    /// of the others. There may be as many as bytes. Once there is no room for one, or no frame,
    /// there is none for those behind it.
    pub(in crate::engine) fn deliver_parts(
        &mut self,
        cx: &mut Context,
        slot: u32,
        (from, info): (SocketAddr, DatagramInfo),
        (packet, size): (Packet, usize),
        link: Serial,
    ) {
        for at in (0..packet.len()).step_by(size) {
            let refused = match self.copy_of(cx, &packet, at, size) {
                Ok(part) => {
                    let datagram = Datagram { from, info, packet: part };
                    let queued =
                        self.deliver(slot, datagram, link, &mut cx.account, &mut cx.events);
                    queued.err().map(|_| DropReason::UdpQueueFull)
                }
                Err(Exhausted) => Some(DropReason::PoolExhausted),
            };
            if let Some(reason) = refused {
                let left = (packet.len() - at).div_ceil(size);
                return cx.stats.drop_many(reason, left as u64);
            }
            cx.stats.udp_rx += 1;
        }
    }

    /// `len` bytes from `at`, or as many as there are.
    pub(in crate::engine) fn copy_of(
        &self,
        cx: &mut Context,
        packet: &Packet,
        at: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        let pool = &cx.pool;
        let view = packet.view(pool, at, len)?;
        let mut copy = pool.alloc(HEADROOM_BYTES).ok_or(Exhausted)?;
        for slice in view.slices() {
            copy.extend_from_slice(pool, slice)?;
        }
        Ok(copy)
    }
}

/// Datagrams of `size` bytes each, without headers yet.
pub(crate) fn datagrams_of(size: u16) -> Segmentation {
    Segmentation { kind: SegmentationKind::Udp, ecn: false, size, header_len: 0 }
}
