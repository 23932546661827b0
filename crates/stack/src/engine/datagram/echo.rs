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
use crate::engine::ip::arrival::{Arrival, Delivery};
use crate::engine::ip::reach::addresses::{Destination, TO_ITSELF};
use crate::engine::ip::reach::output::with_header;
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

/// An echo request to an address that is not the engine's
/// ([`Intercept::next_echo`](crate::Intercept::next_echo)).
#[derive(Debug)]
pub struct EchoRequest {
    /// The sender.
    pub from: IpAddr,
    /// The address that was asked for.
    pub to: IpAddr,
    /// Identifier of the sender's ping.
    pub identifier: u16,
    /// Its sequence number.
    pub seq: u16,
    /// Its data.
    pub packet: Packet,
}

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
        let echo = Echo { from: ip.src, to: ip.dst, identifier, seq, packet };
        if self.deliver(slot, echo, &mut cx.account, &mut cx.events).is_err() {
            cx.stats.drop(DropReason::IcmpQueueFull);
        }
    }

    /// An echo request to an address of a local prefix: for the socket that intercepts it, or
    /// answered where the prefix says so.
    pub(in crate::engine) fn request(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        arrival: Arrival,
        identifier: u16,
        seq: u16,
    ) {
        let (from, to) = (arrival.ip.src, arrival.ip.dst);
        let Some(slot) = self.interceptor(to) else {
            let prefix = ip.reach.addresses.prefixes.find(Some(arrival.link), to);
            return match prefix.is_some_and(|prefix| prefix.answers_echo) {
                true => {
                    if let Delivery::Dropped(why) = ip.answer_echo(cx, arrival, identifier, seq) {
                        cx.stats.drop(why);
                    }
                }
                false => cx.stats.drop(DropReason::IcmpIgnored),
            };
        };
        let mut packet = arrival.packet;
        packet.trim_front(arrival.ip.header_len + icmp::HEADER_LEN);
        let echo = Echo { from, to, identifier, seq, packet };
        if self.deliver(slot, echo, &mut cx.account, &mut cx.events).is_err() {
            cx.stats.drop(DropReason::IcmpQueueFull);
        }
    }

    /// The next request that a socket has intercepted.
    pub(in crate::engine) fn next_request(
        &mut self,
        cx: &mut Context,
        id: SocketId,
    ) -> Result<EchoRequest, Error> {
        let socket = self.by_id(id)?;
        if socket.intercepts.is_none() {
            return Err(Error::Invalid("a socket that does not intercept"));
        }
        let echo = socket.take(&mut cx.account).ok_or(Error::WouldBlock)?;
        let Echo { from, to, identifier, seq, packet } = echo;
        Ok(EchoRequest { from, to, identifier, seq, packet })
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
        if ip.reach.addresses.lacks_loopback_to(to) {
            return Err(Error::Invalid(TO_ITSELF));
        }
        let socket = self.by_id(id)?;
        if socket.intercepts.is_some() {
            return Err(Error::Invalid("a socket that intercepts"));
        }
        let message = Icmp::EchoRequest { id: socket.identifier, seq };
        send_echo(cx, ip, (None, to), message, data)
    }

    /// See [`EchoHandle::recv`](crate::EchoHandle::recv).
    pub(in crate::engine) fn receive(
        &mut self,
        cx: &mut Context,
        id: SocketId,
    ) -> Result<(IpAddr, u16, Packet), Error> {
        let socket = self.by_id(id)?;
        if socket.intercepts.is_some() {
            return Err(Error::Invalid("a socket that intercepts"));
        }
        let Echo { from, seq, packet, .. } =
            socket.take(&mut cx.account).ok_or(Error::WouldBlock)?;
        Ok((from, seq, packet))
    }
}

/// Sends an echo message to `to`, from an address of the engine's choice without one.
pub(in crate::engine) fn send_echo(
    cx: &mut Context,
    ip: &mut IpLayer,
    (from, to): (Option<IpAddr>, IpAddr),
    message: Icmp,
    data: &[u8],
) -> Result<(), Error> {
    let hop = ip.datagram_next_hop(cx.now, to, None);
    let hop = hop.ok_or_else(|| ip.reach.why_no_hop(to))?;
    let src = from.or_else(|| ip.reach.addresses.source(hop.link, hop.address, to));
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
    let mut packet =
        with_header(&cx.pool, packet, icmp::HEADER_LEN, |room| message.emit(version, room))
            .map_err(|_| Error::Exhausted)?;
    ip.reach.seal(&mut packet, hop.link, &header, icmp::CHECKSUM_OFFSET as u16);
    ip.sent.note(cx.now, &header, packet.head());
    ip.reach.send_ip(cx, hop, &header, packet);
    Ok(())
}
