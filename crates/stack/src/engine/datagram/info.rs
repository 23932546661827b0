//! What is told of a datagram beside its data, and what is said of one that is sent.

use std::net::{IpAddr, SocketAddr};

use millstream_packet::Packet;
use millstream_route::LinkId;
use millstream_wire::ip::IpHeader;

use super::udp_table::{Datagram, Marks};
use crate::engine::{Engine, Serial};
use crate::error::Error;
use crate::socket::SocketId;

/// What its IP header and its link say of a datagram that has come (`IP_PKTINFO`, `IP_RECVTTL` and `IP_RECVTOS` of Linux;
/// RFC 1122, 4.1.3.5 and 4.1.4; RFC 3542, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramInfo {
    /// Whom it was sent to: an own address, a group or a broadcast.
    pub to: IpAddr,
    /// The link that it came by; its number may be another link's when it is read.
    pub link: LinkId,
    /// TTL or hop limit that were left.
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
    /// What the application chose for the IP header.
    pub(in crate::engine) fn marks(&self, socket: Marks) -> Marks {
        Marks {
            hop_limit: self.hop_limit.unwrap_or(socket.hop_limit),
            traffic_class: self.traffic_class.unwrap_or(socket.traffic_class),
        }
    }
}

impl Engine {
    /// As [`udp_send`](Self::udp_send), by `options` where they say something. Its headers are built anew each time.
    ///
    /// # Errors
    /// Also [`Error::AddrNotAvailable`] for a source that is not the engine's, and [`Error::Invalid`] for one of the other
    /// version of IP, for a hop limit of 0 and for a link that is not in use; [`Error::NetworkUnreachable`] where the routes
    /// lead to another link.
    pub fn udp_send_with(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        if *options == SendOptions::default() {
            return self.udp_send(id, data, to);
        }
        let packet = Packet::from_slice(&self.cx.pool, crate::tuning::HEADROOM_BYTES, data);
        let packet = packet.map_err(|_| Error::Exhausted)?;
        self.udp_send_packet_with(id, packet, to, options)
    }

    /// As [`udp_send_packet`](Self::udp_send_packet), by `options` as [`udp_send_with`](Self::udp_send_with).
    pub fn udp_send_packet_with(
        &mut self,
        id: SocketId,
        packet: Packet,
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        self.check_options(id, options)?;
        let len = packet.len();
        let send = |engine: &mut Self| engine.udp_send_owned(id, packet, to, options);
        let sent = self.trace_send(id, (len, to), send);
        self.udp_heed(id, sent)
    }

    fn check_options(&mut self, id: SocketId, options: &SendOptions) -> Result<(), Error> {
        if options.hop_limit == Some(0) {
            return Err(Error::Invalid("a hop limit of 0"));
        }
        if let Some(link) = options.link {
            self.ip.check_link(link)?;
        }
        if let Some(from) = options.from {
            self.check_local(from)?;
            if from.is_unspecified() || !self.udp.by_id(id)?.reaches(from) {
                return Err(Error::Invalid("not a source that fits the socket"));
            }
        }
        Ok(())
    }

    /// The link that options name.
    pub(in crate::engine) fn serial_of(&self, options: &SendOptions) -> Option<Serial> {
        let slot = options.link.and_then(|link| self.ip.links.used_slot(link));
        slot.map(|slot| slot.serial)
    }

    /// As [`udp_recv`](Self::udp_recv), with what is known of the datagram.
    pub fn udp_recv_with_info(
        &mut self,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr, DatagramInfo), Error> {
        let (packet, from, info) = self.udp_recv_packet_with_info(id)?;
        Ok((packet.copy_to(0, buffer), from, info))
    }

    /// As [`udp_recv_packet`](Self::udp_recv_packet), with what is known of the datagram.
    pub fn udp_recv_packet_with_info(
        &mut self,
        id: SocketId,
    ) -> Result<(Packet, SocketAddr, DatagramInfo), Error> {
        let Datagram { from, info, packet } = self.udp_next(id)?;
        Ok((packet, from, info))
    }
}
