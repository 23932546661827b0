//! ICMP echo sockets, both ways.

use std::net::IpAddr;

use millstream_packet::Packet;
use millstream_wire::icmp::{self, Icmp};
use millstream_wire::ip::{self, IpHeader};

use super::longest_payload;
use crate::engine::datagram::echo_table::Echo;
use crate::engine::ip::addresses::{Destination, TO_ITSELF};
use crate::engine::ip::arrival::Arrival;
use crate::engine::ip::output::with_header;
use crate::engine::{Engine, FOREIGN};
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

impl Engine {
    /// An echo reply for this engine.
    pub(in crate::engine) fn echo_reply_input(
        &mut self,
        arrival: Arrival,
        identifier: u16,
        seq: u16,
    ) {
        let Arrival { mut packet, ip, destination, .. } = arrival;
        let slot = self.icmp.find(identifier).filter(|_| destination == Destination::Own);
        let Some(slot) = slot else { return self.cx.stats.drop(DropReason::IcmpNoSocket) };
        packet.trim_front(ip.header_len + icmp::HEADER_LEN);
        let echo = Echo { from: ip.src, seq, packet };
        if self.icmp.deliver(slot, echo, &mut self.cx.account, &mut self.cx.events).is_err() {
            self.cx.stats.drop(DropReason::IcmpQueueFull);
        }
    }

    /// Opens an echo socket; identifier 0 asks for a free one.
    pub fn icmp_bind(&mut self, identifier: u16) -> Result<SocketId, Error> {
        match identifier {
            0 => {
                let start = self.cx.random.next() as u16;
                let mut wanted = (0..=u16::MAX).map(|step| start.wrapping_add(step));
                let free = wanted.find(|&id| {
                    id != 0 && self.cx.share.owns_identifier(id) && self.icmp.find(id).is_none()
                });
                self.icmp.bind(free.ok_or(Error::AddrNotAvailable)?)
            }
            identifier if !self.cx.share.owns_identifier(identifier) => Err(FOREIGN),
            identifier => self.icmp.bind(identifier),
        }
    }

    /// Sends an echo request with `data`, in fragments where that is longer than the path carries.
    /// [`Error::NetworkUnreachable`] where no route leads, as to loopback addresses; [`Error::MessageTooLong`] for more
    /// than 65,507 bytes over IPv4, 65,527 over IPv6.
    pub fn icmp_send_echo(
        &mut self,
        id: SocketId,
        to: IpAddr,
        seq: u16,
        data: &[u8],
    ) -> Result<(), Error> {
        let to = to.to_canonical();
        if self.ip.addresses.lacks_loopback_to(to) {
            return Err(Error::Invalid(TO_ITSELF));
        }
        let now = self.now();
        let identifier = self.icmp.by_id(id)?.identifier;
        let hop = self.ip.datagram_next_hop(now, to, None);
        let hop = hop.ok_or_else(|| self.ip.why_no_hop(to))?;
        let src = self.ip.addresses.source(hop.link, hop.address, to);
        let src = src.ok_or(Error::AddrNotAvailable)?;
        let packet = Packet::from_slice(&self.cx.pool, HEADROOM_BYTES, data)
            .map_err(|_| Error::Exhausted)?;
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
        let mut packet = with_header(&self.cx.pool, packet, icmp::HEADER_LEN, |room| {
            Icmp::EchoRequest { id: identifier, seq }.emit(version, room)
        })
        .map_err(|_| Error::Exhausted)?;
        self.ip.seal(&mut packet, hop.link, &header, icmp::CHECKSUM_OFFSET as u16);
        self.ip.sent.note(now, &header, packet.head());
        self.ip.send_ip(&mut self.cx, hop, &header, packet);
        Ok(())
    }

    /// The next echo reply: who sent it, its sequence number, its data.
    pub fn icmp_recv(&mut self, id: SocketId) -> Result<(IpAddr, u16, Packet), Error> {
        let Echo { from, seq, packet } =
            self.icmp.by_id(id)?.take(&mut self.cx.account).ok_or(Error::WouldBlock)?;
        Ok((from, seq, packet))
    }
}
