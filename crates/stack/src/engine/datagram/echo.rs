//! ICMP echo sockets, both ways.

use std::net::IpAddr;

use millstream_packet::Packet;
use millstream_wire::icmp::{self, Icmp};
use millstream_wire::ip::{self, IpHeader};

use super::longest_payload;
use crate::engine::context::Context;
use crate::engine::context::FOREIGN;
use crate::engine::datagram::echo_table::Echo;
use crate::engine::datagram::echo_table::EchoLayer;
use crate::engine::ip::IpLayer;
use crate::engine::ip::addresses::{Destination, TO_ITSELF};
use crate::engine::ip::arrival::Arrival;
use crate::engine::ip::output::with_header;
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

impl EchoLayer {
    /// An echo reply for this engine.
    pub(in crate::engine) fn input(
        &mut self,
        cx: &mut Context,
        arrival: Arrival,
        identifier: u16,
        seq: u16,
    ) {
        let Arrival { mut packet, ip, destination, .. } = arrival;
        let slot = self.find(identifier).filter(|_| destination == Destination::Own);
        let Some(slot) = slot else { return cx.stats.drop(DropReason::IcmpNoSocket) };
        packet.trim_front(ip.header_len + icmp::HEADER_LEN);
        let echo = Echo { from: ip.src, seq, packet };
        if self.deliver(slot, echo, &mut cx.account, &mut cx.events).is_err() {
            cx.stats.drop(DropReason::IcmpQueueFull);
        }
    }

    /// See [`SocketsHandle::icmp_bind`](crate::SocketsHandle::icmp_bind).
    pub(in crate::engine) fn open(
        &mut self,
        cx: &mut Context,
        identifier: u16,
    ) -> Result<SocketId, Error> {
        match identifier {
            0 => {
                let start = cx.random.next() as u16;
                let mut wanted = (0..=u16::MAX).map(|step| start.wrapping_add(step));
                let free = wanted
                    .find(|&id| id != 0 && cx.share.owns_identifier(id) && self.find(id).is_none());
                self.bind(free.ok_or(Error::AddrNotAvailable)?)
            }
            identifier if !cx.share.owns_identifier(identifier) => Err(FOREIGN),
            identifier => self.bind(identifier),
        }
    }

    /// See [`EchoHandle::send`](crate::EchoHandle::send).
    pub(in crate::engine) fn send(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        to: IpAddr,
        seq: u16,
        data: &[u8],
    ) -> Result<(), Error> {
        let to = to.to_canonical();
        if ip.addresses.lacks_loopback_to(to) {
            return Err(Error::Invalid(TO_ITSELF));
        }
        let identifier = self.by_id(id)?.identifier;
        let hop = ip.datagram_next_hop(cx.now, to, None);
        let hop = hop.ok_or_else(|| ip.why_no_hop(to))?;
        let src = ip.addresses.source(hop.link, hop.address, to);
        let src = src.ok_or(Error::AddrNotAvailable)?;
        let packet =
            Packet::from_slice(&cx.pool, HEADROOM_BYTES, data).map_err(|_| Error::Exhausted)?;
        let version = ip::Version::of(&to);
        let len = packet.len() + icmp::HEADER_LEN;
        let mut header = IpHeader::new(src, to, icmp::protocol(version), len);
        if to.is_multicast() {
            // RFC 1112, 6.1; RFC 3493, 5.2.
            header.hop_limit = 1;
        }
        if data.len() > longest_payload(version) {
            return Err(Error::MessageTooLong);
        }
        header.dont_fragment = header.packet_len() <= hop.mtu;
        let mut packet = with_header(&cx.pool, packet, icmp::HEADER_LEN, |room| {
            Icmp::EchoRequest { id: identifier, seq }.emit(version, room)
        })
        .map_err(|_| Error::Exhausted)?;
        ip.seal(&mut packet, hop.link, &header, icmp::CHECKSUM_OFFSET as u16);
        ip.sent.note(cx.now, &header, packet.head());
        ip.send_ip(cx, hop, &header, packet);
        Ok(())
    }

    /// See [`EchoHandle::recv`](crate::EchoHandle::recv).
    pub(in crate::engine) fn receive(
        &mut self,
        cx: &mut Context,
        id: SocketId,
    ) -> Result<(IpAddr, u16, Packet), Error> {
        let Echo { from, seq, packet } =
            self.by_id(id)?.take(&mut cx.account).ok_or(Error::WouldBlock)?;
        Ok((from, seq, packet))
    }
}
