//! Information about a received datagram beside its data, and options of a sent one.

use std::net::{IpAddr, SocketAddr};

use millstream_packet::Packet;
use millstream_route::LinkId;
use millstream_wire::ip::IpHeader;

use super::udp_table::{Datagram, Marks};
use crate::engine::Serial;
use crate::engine::context::Context;
use crate::engine::datagram::udp_table::UdpLayer;
use crate::engine::ip::IpLayer;
use crate::error::Error;
use crate::socket::SocketId;

/// Information about a received datagram, from its IP header and its link (`IP_PKTINFO`,
/// `IP_RECVTTL` and `IP_RECVTOS` of Linux; RFC 1122, 4.1.3.5 and 4.1.4; RFC 3542, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramInfo {
    /// The destination: an own address, a group or a broadcast.
    pub to: IpAddr,
    /// The link that it came by; its number may be another link's when it is read.
    pub link: LinkId,
    /// The TTL or hop limit that was left.
    pub hop_limit: u8,
    /// Traffic class: differentiated services, and ECN in the lower two bits. Of a reassembled datagram those of its first
    /// fragment.
    pub traffic_class: u8,
}

impl DatagramInfo {
    pub(in crate::engine) fn new(ip: &IpHeader, link: LinkId) -> Self {
        let &IpHeader { dst, hop_limit, traffic_class, .. } = ip;
        Self { to: dst, link, hop_limit, traffic_class }
    }
}

/// How one datagram is sent, where that differs from what its socket says (`IP_PKTINFO`, `IP_TTL` and `IP_TOS` of
/// `sendmsg`; RFC 1122, 4.1.4; RFC 3542, 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// The own address that it is sent from.
    pub from: Option<IpAddr>,
    /// The link that it leaves by. It chooses the way to groups, broadcasts and link-local addresses; where the routes lead
    /// to another link the datagram is refused.
    pub link: Option<LinkId>,
    /// TTL or hop limit, not 0.
    pub hop_limit: Option<u8>,
    /// Traffic class, ECN in the lower two bits.
    pub traffic_class: Option<u8>,
}

impl SendOptions {
    /// Returns the header fields that the application chose, for this datagram or for the socket.
    pub(in crate::engine) fn marks(&self, socket: Marks) -> Marks {
        Marks {
            hop_limit: self.hop_limit.unwrap_or(socket.hop_limit),
            traffic_class: self.traffic_class.unwrap_or(socket.traffic_class),
        }
    }
}

impl IpLayer {
    /// The link that options name.
    pub(in crate::engine) fn serial_of(&self, options: &SendOptions) -> Option<Serial> {
        let slot = options.link.and_then(|link| self.links.used_slot(link));
        slot.map(|slot| slot.serial)
    }
}

impl UdpLayer {
    /// See [`UdpHandle::send_with`](crate::UdpHandle::send_with).
    pub(in crate::engine) fn send_with(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        if *options == SendOptions::default() {
            return self.send(cx, ip, id, data, to);
        }
        let packet = Packet::from_slice(&cx.pool, crate::tuning::HEADROOM_BYTES, data);
        let packet = packet.map_err(|_| Error::Exhausted)?;
        self.send_packet_with(cx, ip, id, packet, to, options)
    }

    /// See [`UdpHandle::send_packet_with`](crate::UdpHandle::send_packet_with).
    pub(in crate::engine) fn send_packet_with(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        packet: Packet,
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        self.check_options(ip, id, options)?;
        let len = packet.len();
        let send = |udp: &mut Self, cx: &mut Context, ip: &mut IpLayer| {
            udp.send_owned(cx, ip, id, packet, to, options)
        };
        let sent = self.send_watched(cx, ip, id, (len, to), send);
        self.heed(ip, id, sent)
    }

    fn check_options(
        &mut self,
        ip: &mut IpLayer,
        id: SocketId,
        options: &SendOptions,
    ) -> Result<(), Error> {
        if options.hop_limit == Some(0) {
            return Err(Error::Invalid("a hop limit of 0"));
        }
        if let Some(link) = options.link {
            ip.check_link(link)?;
        }
        if let Some(from) = options.from {
            ip.check_local(from)?;
            if from.is_unspecified() || !self.by_id(id)?.reaches(from) {
                return Err(Error::Invalid("not a source that fits the socket"));
            }
        }
        Ok(())
    }

    /// See [`UdpHandle::recv_with_info`](crate::UdpHandle::recv_with_info).
    pub(in crate::engine) fn recv_with_info(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr, DatagramInfo), Error> {
        let (packet, from, info) = self.recv_packet_with_info(cx, id)?;
        Ok((packet.copy_to(0, buffer), from, info))
    }

    /// See [`UdpHandle::recv_packet_with_info`](crate::UdpHandle::recv_packet_with_info).
    pub(in crate::engine) fn recv_packet_with_info(
        &mut self,
        cx: &mut Context,
        id: SocketId,
    ) -> Result<(Packet, SocketAddr, DatagramInfo), Error> {
        let Datagram { from, info, packet } = self.next(cx, id)?;
        Ok((packet, from, info))
    }
}
