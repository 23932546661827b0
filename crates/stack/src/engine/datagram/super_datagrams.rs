//! UDP super-segments: datagrams of one size to one peer that travel as one packet (`UDP_SEGMENT` and `UDP_GRO` of
//! Linux). Sockets never see one: what arrives so is cut here, and what is sent so is cut here for links that do not
//! take it whole.

use std::net::SocketAddr;

use millstream_packet::{Exhausted, Instant, Packet, Segmentation, SegmentationKind};
use millstream_wire::ip::{IpHeader, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use crate::engine::datagram::udp_table::{Datagram, Marks};
use crate::engine::datagram::{DatagramInfo, SendOptions, on_link};
use crate::engine::ip::NextHop;
use crate::engine::{Engine, Serial};
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

/// Payload of a super-segment at most, in bytes: with its headers it is one IPv4 packet (RFC 791 section 3.1).
const PAYLOAD_LIMIT_BYTES: usize = 65_535 - 20 - udp::HEADER_LEN;

/// How the packet is to be cut, if it is several datagrams.
#[inline]
pub(in crate::engine) fn datagram_size(packet: &Packet) -> Option<usize> {
    let Segmentation { kind, size, .. } = packet.meta().segmentation?;
    let is_cut = kind == SegmentationKind::Udp && size != 0 && packet.len() > usize::from(size);
    is_cut.then_some(usize::from(size))
}

impl Engine {
    /// Sends a copy of `data` as datagrams of `size` bytes each, of which the last may be shorter: as one packet over a
    /// link that cuts it itself, else one by one. `None` sends to the connected peer. They leave at the end of the
    /// turn; those that find no room on the link are dropped and counted.
    ///
    /// # Errors
    /// As [`udp_send`](Self::udp_send), and when `data` is more than 65,507 bytes, or `size` is 0; then none is sent.
    pub fn udp_send_segmented(
        &mut self,
        id: SocketId,
        data: &[u8],
        size: u16,
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        if size == 0 {
            return Err(Error::Invalid("datagrams of no bytes"));
        }
        let mut packet = Packet::from_slice(&self.cx.pool, HEADROOM_BYTES, data)
            .map_err(|_| Error::Exhausted)?;
        packet.meta_mut().segmentation = Some(datagrams_of(size));
        self.udp_send_packet(id, packet, to)
    }

    /// Sends a super-segment of datagrams of `size` bytes from `local` to `remote`.
    pub(in crate::engine) fn udp_send_super(
        &mut self,
        now: Instant,
        id: SocketId,
        (hop, marks): (NextHop, Marks),
        (local, remote): (SocketAddr, SocketAddr),
        (mut packet, size): (Packet, usize),
        options: &SendOptions,
    ) -> Result<(), Error> {
        let ip_len =
            |len| IpHeader::new(local.ip(), remote.ip(), Protocol::UDP, udp::HEADER_LEN + len);
        if ip_len(size).packet_len() > hop.mtu || packet.len() > PAYLOAD_LIMIT_BYTES {
            return Err(Error::MessageTooLong);
        }
        if self.ip.room(&mut self.cx, hop.link) == 0 {
            return Err(Error::WouldBlock);
        }
        let mut ip = ip_len(packet.len());
        marks.write(&mut ip);
        let most = self.ip.links[hop.link.index()].capabilities.uso_bytes;
        if most.is_none_or(|most| ip.packet_len() > most as usize) {
            return self.udp_send_parts(id, &packet, size, on_link(remote, hop.link), options);
        }
        if self.udp.by_id(id)?.fragmentation.heeds_path() {
            // Of those that the link makes, the first one's sum is known here.
            let first = packet.view(&self.cx.pool, 0, size).map_err(|_| Error::Exhausted)?;
            let header = UdpHeader::new(local.port(), remote.port(), size);
            let mut first = self.ip.with_udp_header(&mut self.cx, first, &header)?;
            first.meta_mut().segmentation = None;
            let ip = ip_len(size);
            self.ip.seal(&mut first, hop.link, &ip, udp::CHECKSUM_OFFSET as u16);
            self.ip.sent.note(now, &ip, first.head());
        }
        self.cx.stats.udp_tx += packet.len().div_ceil(size) as u64;
        packet.meta_mut().segmentation = Some(datagrams_of(size as u16));
        let header = UdpHeader::new(local.port(), remote.port(), packet.len());
        let mut packet = self.ip.with_udp_header(&mut self.cx, packet, &header)?;
        self.ip.seal(&mut packet, hop.link, &ip, udp::CHECKSUM_OFFSET as u16);
        self.ip.send_ip(&mut self.cx, hop, &ip, packet);
        Ok(())
    }

    /// Sends the datagrams one by one; a link-local address names the link.
    pub(in crate::engine) fn udp_send_parts(
        &mut self,
        id: SocketId,
        packet: &Packet,
        size: usize,
        remote: SocketAddr,
        options: &SendOptions,
    ) -> Result<(), Error> {
        for at in (0..packet.len()).step_by(size) {
            let part = packet.view(&self.cx.pool, at, size).map_err(|_| Error::Exhausted)?;
            match self.udp_send_packet_with(id, part, Some(remote), options) {
                Err(Error::WouldBlock) => self.cx.stats.drop(DropReason::TransmitQueueFull),
                sent => sent?,
            }
        }
        Ok(())
    }

    /// Queues the datagrams of a super-segment, each in frames of its own: who keeps one keeps none of the others.
    /// There may be as many as bytes. Once there is no room for one, or no frame, there is none for those behind it.
    pub(in crate::engine) fn udp_deliver_parts(
        &mut self,
        slot: u32,
        (from, info): (SocketAddr, DatagramInfo),
        (packet, size): (Packet, usize),
        link: Serial,
    ) {
        for at in (0..packet.len()).step_by(size) {
            let refused = match self.copy_of(&packet, at, size) {
                Ok(part) => {
                    let datagram = Datagram { from, info, packet: part };
                    let queued = self.udp.deliver(
                        slot,
                        datagram,
                        link,
                        &mut self.cx.account,
                        &mut self.cx.events,
                    );
                    queued.err().map(|_| DropReason::UdpQueueFull)
                }
                Err(Exhausted) => Some(DropReason::PoolExhausted),
            };
            if let Some(reason) = refused {
                let left = (packet.len() - at).div_ceil(size);
                return self.cx.stats.drop_many(reason, left as u64);
            }
            self.cx.stats.udp_rx += 1;
        }
    }

    /// `len` bytes from `at`, or as many as there are.
    pub(in crate::engine) fn copy_of(
        &self,
        packet: &Packet,
        at: usize,
        len: usize,
    ) -> Result<Packet, Exhausted> {
        let pool = &self.cx.pool;
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
