//! ARP and neighbour discovery: what is asked, what is answered, what is learnt.

use std::net::{IpAddr, Ipv6Addr};

use millstream_packet::Packet;
use millstream_route::{Action, Change, Evidence, Heard, LinkId, solicited_node};
use millstream_wire::arp::{self, ArpOperation, ArpPacket};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp::{self, Unreachable};
use millstream_wire::ip::{self, IpHeader, Protocol, Version};
use millstream_wire::ndp::{
    self, Envelope, NdpMessage, NeighborAdvert, NeighborSolicitation, RouterSolicitation,
};

use super::claims::AddressState;
use super::reserved::{is_no_host, is_no_source};
use crate::engine::context::Context;
use crate::engine::ip::arrival::IcmpError;
use crate::engine::ip::{IpLayer, NextHop};
use crate::error::Error;
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

impl IpLayer {
    /// Sends the question for the address of a neighbour that a packet was just kept for.
    pub fn ask(&mut self, cx: &mut Context, link: LinkId, ip: IpAddr) {
        self.solicit(cx, link, ip, None);
    }

    /// Asks `unicast`, or everybody, who has `ip`.
    pub fn solicit(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        ip: IpAddr,
        unicast: Option<MacAddr>,
    ) {
        cx.stats.neighbor_solicits += 1;
        let source = self.addresses.source(link, ip, ip);
        match (ip, source) {
            (IpAddr::V4(target), Some(IpAddr::V4(source))) => {
                let mac = self.links[link.index()].capabilities.mac;
                let request = ArpPacket {
                    operation: ArpOperation::Request,
                    sender_mac: mac,
                    sender_ip: source,
                    target_mac: unicast.unwrap_or(MacAddr::ZERO),
                    target_ip: target,
                };
                self.send_arp(cx, link, unicast.unwrap_or(MacAddr::BROADCAST), &request);
            }
            (IpAddr::V6(target), Some(IpAddr::V6(source))) => {
                let source = self.asker(link, target).unwrap_or(source);
                self.neighbors.set_asker(link, ip, source);
                // RFC 4429, 3.2.
                let is_silent = self.addresses.claims.is_silent(link, source);
                let source_ll = (!is_silent).then_some(self.links[link.index()].capabilities.mac);
                let question = NeighborSolicitation { target, source_ll, nonce: None };
                let message = NdpMessage::NeighborSolicitation(question);
                match unicast {
                    Some(mac) => self.send_ndp(cx, link, source, target, Some(mac), &message),
                    None => {
                        self.send_ndp(cx, link, source, solicited_node(target), None, &message);
                    }
                }
            }
            _ => cx.stats.drop(DropReason::NoRoute),
        }
    }

    /// Returns the address that asks for an IPv6 neighbour: the source of the packet that waits for
    /// it (RFC 4861 section 7.2.2), or the one that asked before. Packets for another address of
    /// ours may not reach us: AF_XDP gets some alone.
    fn asker(&self, link: LinkId, target: Ipv6Addr) -> Option<Ipv6Addr> {
        let waiting = self.neighbors.first_waiting(link, target.into());
        let header = waiting.and_then(|packet| ip::parse_quoted(packet.head()).ok());
        let source = header.and_then(|header| match header.src {
            IpAddr::V6(source) => Some(source),
            IpAddr::V4(_) => None,
        });
        let is_ours =
            |address: &Ipv6Addr| self.addresses.of_link(link).any(|own| own.addr == *address);
        let asked = || self.neighbors.asker(link, target.into()).filter(is_ours);
        source.filter(is_ours).or_else(asked)
    }

    pub fn send_arp(&mut self, cx: &mut Context, link: LinkId, to: MacAddr, message: &ArpPacket) {
        let header = EthernetHeader::new(to, message.sender_mac, EtherType::ARP);
        let len = header.header_len() + arp::PACKET_LEN;
        let Some(mut packet) = cx.pool.alloc(HEADROOM_BYTES) else {
            return cx.stats.drop(DropReason::PoolExhausted);
        };
        if let Some(room) = packet.append(len) {
            let at = header.emit(room);
            message.emit(&mut room[at..]);
        }
        self.enqueue(cx, link, packet);
    }

    /// Sends a neighbour discovery message to a station, or to the group's address.
    pub fn send_ndp(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        mac: Option<MacAddr>,
        message: &NdpMessage,
    ) {
        let Some(mut packet) = cx.pool.alloc(HEADROOM_BYTES) else {
            return cx.stats.drop(DropReason::PoolExhausted);
        };
        let len = message.emit_len();
        if let Some(room) = packet.append(len) {
            message.emit(room);
        }
        let mut header = IpHeader::new(src.into(), dst.into(), Protocol::ICMPV6, len);
        header.hop_limit = ndp::HOP_LIMIT;
        self.seal(&mut packet, link, &header, icmp::CHECKSUM_OFFSET as u16);
        let mac = mac.or_else(|| MacAddr::for_multicast(dst.into()));
        match mac {
            Some(mac) => {
                let len = header.emit_len();
                match crate::engine::ip::output::with_header(&cx.pool, packet, len, |room| {
                    header.emit(room)
                }) {
                    Ok(packet) => self.send_to_mac(cx, link, mac, packet),
                    Err(_) => cx.stats.drop(DropReason::PoolExhausted),
                }
            }
            None => {
                let mtu = self.links[link.index()].capabilities.mtu;
                self.send_ip(cx, NextHop { link, address: dst.into(), mtu }, &header, packet);
            }
        }
    }

    /// Takes in what a neighbour said and sends what waited for it.
    fn hear(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        ip: IpAddr,
        mac: Option<MacAddr>,
        why: Evidence,
    ) {
        // Nobody is reached at our own address, nor is there a neighbour at an IP address of ours.
        let own_mac = self.links[link.index()].capabilities.mac;
        if mac == Some(own_mac) || self.addresses.owns(ip) {
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        let Heard { change, mut released, displaced } =
            self.neighbors.hear(cx.now, link, ip, mac, why);
        cx.stats.drop_many(DropReason::NeighborQueueFull, displaced.into());
        match change {
            Change::Moved => cx.stats.neighbor_moves += 1,
            Change::Restored => cx.stats.neighbor_moves_disproved += 1,
            Change::Refused => cx.stats.neighbor_claims_refused += 1,
            Change::Nothing | Change::Learnt | Change::Confirmed | Change::Doubted => {}
        }
        let Some(mac) = mac else { return };
        while let Some(packet) = released.pop() {
            self.send_to_mac(cx, link, mac, packet);
        }
    }
}

impl IpLayer {
    fn check_neighbor(&self, link: LinkId, ip: IpAddr, mac: MacAddr) -> Result<(), Error> {
        self.links.check(link)?;
        let is_station = !(is_no_host(ip)
            || self.addresses.is_here(ip)
            || self.addresses.is_broadcast_of(link, ip));
        match is_station && mac.is_unicast() {
            true => Ok(()),
            false => Err(Error::Invalid("not the addresses of a neighbour")),
        }
    }

    /// Does what time makes due in the neighbour table, as much as a turn may. Returns what sockets
    /// are to hear of packets that did not get out.
    pub(in crate::engine) fn neighbor_timers(&mut self, cx: &mut Context) -> Vec<IcmpError> {
        let mut unheard = Vec::new();
        for _ in 0..cx.limits.tuning.timers {
            let Some(action) = self.neighbors.poll(cx.now) else { break };
            match action {
                Action::Solicit { link, ip, unicast, former } => {
                    self.solicit(cx, link, ip, unicast);
                    if former.is_some() {
                        self.solicit(cx, link, ip, former);
                    }
                }
                Action::Unreachable { link, mut packets, .. } => {
                    while let Some(packet) = packets.pop() {
                        cx.stats.drop(DropReason::NeighborUnreachable);
                        if !self.forwarded_in_vain(cx, &packet) {
                            unheard.extend(unreachable(link, &packet));
                        }
                    }
                }
            }
        }
        unheard
    }

    /// An ARP packet from the link. RFC 826: who the sender is goes into the table when he is in it
    /// already, before anybody looks whom the packet is for; he is added to it when it is for us.
    pub(in crate::engine) fn arp_input(&mut self, cx: &mut Context, link: LinkId, packet: &Packet) {
        let message = match ArpPacket::parse(packet.head()) {
            Ok(message) => message,
            Err(reason) => return cx.stats.malformed(reason),
        };
        let ArpPacket { operation, sender_mac, sender_ip, target_ip, .. } = message;
        let sender = IpAddr::V4(sender_ip);
        if sender_mac == self.links[link.index()].capabilities.mac {
            // It came back.
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        if self.addresses.claims.is_arp_claim(link, &message) {
            // Somebody else claims our address (RFC 5227, 2.4): nothing is learnt from it.
            let claimed = if sender_ip.is_unspecified() { target_ip } else { sender_ip };
            return self.address_claimed(cx, link, claimed.into(), Some(sender_mac));
        }
        if self.addresses.owns(sender) {
            // Of another link, or of one that is over.
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        // RFC 1122, 3.2.1.3: no station has these.
        if is_no_source(sender) || self.addresses.is_broadcast_of(link, sender) {
            return cx.stats.drop(DropReason::MartianSource);
        }
        // Probes and announcements are for who has the address (RFC 5227, 2.1.1 and 2.3), not for a
        // proxy.
        let is_question = !sender_ip.is_unspecified() && sender_ip != target_ip;
        let for_us = self.addresses.of_link(link).any(|own| own.addr == IpAddr::V4(target_ip))
            || is_question && self.addresses.prefixes.answers_neighbor(link, target_ip.into());
        let evidence = match operation {
            _ if sender_ip == target_ip => Evidence::GRATUITOUS_ARP,
            _ if !for_us => Evidence::Overheard,
            ArpOperation::Reply => Evidence::ARP_REPLY,
            ArpOperation::Request => Evidence::Asked,
        };
        // A probe (RFC 5227, 2.1.1) has no sender address to learn.
        if !sender_ip.is_unspecified() {
            self.hear(cx, link, sender, Some(sender_mac), evidence);
        }
        if !for_us {
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        if operation == ArpOperation::Request {
            let reply = ArpPacket {
                operation: ArpOperation::Reply,
                sender_mac: self.links[link.index()].capabilities.mac,
                sender_ip: target_ip,
                target_mac: sender_mac,
                target_ip: sender_ip,
            };
            self.send_arp(cx, link, sender_mac, &reply);
        }
    }

    /// A neighbour discovery message whose checksum holds; `packet` starts at its IP header.
    pub(in crate::engine) fn ndp_input(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        packet: &Packet,
        ip: &IpHeader,
    ) {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else { return };
        let envelope = Envelope { src, dst, hop_limit: ip.hop_limit };
        let body = packet.head().get(ip.header_len..).unwrap_or_default();
        match NdpMessage::parse(body, &envelope) {
            Err(reason) => cx.stats.malformed(reason),
            Ok(NdpMessage::NeighborSolicitation(asked)) => {
                self.answer_solicitation(cx, link, src, &asked);
            }
            Ok(NdpMessage::NeighborAdvert(told)) => {
                let NeighborAdvert { router, solicited, override_flag, target, target_ll } = told;
                if self.addresses.claims.is_ours(link, target.into()) {
                    return self.address_claimed(cx, link, target.into(), target_ll);
                }
                let why = Evidence::Advertised { solicited, replace: override_flag, router };
                self.hear(cx, link, target.into(), target_ll, why);
            }
            Ok(NdpMessage::RouterAdvert(told)) => {
                // Autoconfiguration is not done here; the router's address is worth knowing.
                if told.source_ll.is_some() {
                    self.hear(cx, link, src.into(), told.source_ll, Evidence::Asked);
                }
            }
            Ok(NdpMessage::RouterSolicitation(RouterSolicitation { .. }))
            | Ok(NdpMessage::Redirect(_)) => cx.stats.drop(DropReason::NeighborIgnored),
        }
    }

    /// RFC 4861, 7.2.3 and 7.2.4.
    fn answer_solicitation(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        src: Ipv6Addr,
        asked: &NeighborSolicitation,
    ) {
        let target = asked.target;
        let probe = src.is_unspecified();
        let state = self.addresses.claims.state(link, target.into());
        let is_own = self.addresses.claims.is_own_question(link, target.into(), asked.nonce);
        match state {
            // RFC 7527: it came back.
            _ if probe && is_own => return cx.stats.drop(DropReason::NeighborIgnored),
            // RFC 4862, 5.4.3: two begin at once, and neither has it.
            Some(AddressState::Tentative | AddressState::Optimistic) if probe => {
                return self.address_claimed(cx, link, target.into(), None);
            }
            _ => {}
        }
        let ours = self.addresses.of_link(link).any(|own| own.addr == IpAddr::V6(target));
        let is_proxied = !probe && self.addresses.prefixes.answers_neighbor(link, target.into());
        if !ours && !is_proxied {
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        if let (false, Some(mac)) = (probe, asked.source_ll) {
            self.hear(cx, link, src.into(), Some(mac), Evidence::Asked);
        }
        let advert = NdpMessage::NeighborAdvert(NeighborAdvert {
            router: false,
            solicited: !probe,
            // RFC 4429, 3.3; RFC 4861, 7.2.8.
            override_flag: ours && state != Some(AddressState::Optimistic),
            target,
            target_ll: Some(self.links[link.index()].capabilities.mac),
        });
        let dst = if probe { millstream_route::ALL_NODES } else { src };
        self.send_ndp(cx, link, target, dst, asked.source_ll.filter(|_| !probe), &advert);
    }
}

impl IpLayer {
    /// See [`LinksHandle::add_neighbor`](crate::LinksHandle::add_neighbor).
    pub(in crate::engine) fn add_neighbor(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        ip: IpAddr,
        mac: MacAddr,
    ) -> Result<(), Error> {
        self.check_neighbor(link, ip, mac)?;
        let waiting = self.neighbors.set_static(cx.now, link, ip, mac);
        let mut waiting = waiting.map_err(|_| Error::Limit("neighbors"))?;
        while let Some(packet) = waiting.pop() {
            self.send_to_mac(cx, link, mac, packet);
        }
        Ok(())
    }

    /// See [`LinksHandle::suggest_neighbor`](crate::LinksHandle::suggest_neighbor).
    pub(in crate::engine) fn suggest_neighbor(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        ip: IpAddr,
        mac: MacAddr,
    ) -> Result<(), Error> {
        self.check_neighbor(link, ip, mac)?;
        self.hear(cx, link, ip, Some(mac), Evidence::Asked);
        Ok(())
    }

    /// See [`LinksHandle::remove_neighbor`](crate::LinksHandle::remove_neighbor).
    pub(in crate::engine) fn remove_neighbor(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        ip: IpAddr,
    ) -> Result<(), Error> {
        let waiting = self.neighbors.remove(link, ip).ok_or(Error::AddrNotAvailable)?;
        cx.stats.drop_many(DropReason::NeighborUnreachable, waiting.len() as u64);
        Ok(())
    }
}

/// Returns what the socket of a packet that did not get out hears of it: as of an ICMP error.
fn unreachable(link: LinkId, packet: &Packet) -> Option<IcmpError> {
    let head = packet.head();
    let version = if head.first().is_some_and(|b| b >> 4 == 6) { Version::V6 } else { Version::V4 };
    let quote = icmp::Quote::parse(version, head).ok()?;
    Some(IcmpError { link, error: icmp::Icmp::Unreachable(Unreachable::Host), quote })
}
