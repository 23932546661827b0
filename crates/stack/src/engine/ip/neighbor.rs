//! ARP and neighbour discovery: what is asked, what is answered, what is learnt.

use std::net::{IpAddr, Ipv6Addr};

use millstream_packet::{Instant, Packet};
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
use crate::engine::Engine;
use crate::engine::tx::output::{NextHop, Output};
use crate::error::Error;
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

impl Output {
    /// Sends the question for the address of a neighbour that a packet was just kept for.
    pub fn ask(&mut self, now: Instant, link: LinkId, ip: IpAddr) {
        self.solicit(now, link, ip, None);
    }

    /// Asks `unicast`, or everybody, who has `ip`.
    pub fn solicit(&mut self, now: Instant, link: LinkId, ip: IpAddr, unicast: Option<MacAddr>) {
        self.stats.neighbor_solicits += 1;
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
                self.send_arp(now, link, unicast.unwrap_or(MacAddr::BROADCAST), &request);
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
                    Some(mac) => self.send_ndp(now, link, source, target, Some(mac), &message),
                    None => {
                        self.send_ndp(now, link, source, solicited_node(target), None, &message);
                    }
                }
            }
            _ => self.stats.drop(DropReason::NoRoute),
        }
    }

    /// Who asks for an IPv6 neighbour: the source of what waits for it (RFC 4861 section 7.2.2), or who has asked
    /// before. Another address of ours may be one whose packets are not brought to us, as AF_XDP is asked for some.
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

    pub fn send_arp(&mut self, now: Instant, link: LinkId, to: MacAddr, message: &ArpPacket) {
        let header = EthernetHeader::new(to, message.sender_mac, EtherType::ARP);
        let len = header.header_len() + arp::PACKET_LEN;
        let Some(mut packet) = self.pool.alloc(HEADROOM_BYTES) else {
            return self.stats.drop(DropReason::PoolExhausted);
        };
        if let Some(room) = packet.append(len) {
            let at = header.emit(room);
            message.emit(&mut room[at..]);
        }
        self.enqueue(now, link, packet);
    }

    /// Sends a neighbour discovery message to a station, or to the group's address.
    pub fn send_ndp(
        &mut self,
        now: Instant,
        link: LinkId,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        mac: Option<MacAddr>,
        message: &NdpMessage,
    ) {
        let Some(mut packet) = self.pool.alloc(HEADROOM_BYTES) else {
            return self.stats.drop(DropReason::PoolExhausted);
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
                match crate::engine::tx::output::with_header(&self.pool, packet, len, |room| {
                    header.emit(room)
                }) {
                    Ok(packet) => self.send_to_mac(now, link, mac, packet),
                    Err(_) => self.stats.drop(DropReason::PoolExhausted),
                }
            }
            None => {
                let mtu = self.links[link.index()].capabilities.mtu;
                self.send_ip(now, NextHop { link, address: dst.into(), mtu }, &header, packet);
            }
        }
    }

    /// Takes in what a neighbour said and sends what waited for it.
    fn hear(
        &mut self,
        now: Instant,
        link: LinkId,
        ip: IpAddr,
        mac: Option<MacAddr>,
        why: Evidence,
    ) {
        // Nobody is reached at our own address, nor is there a neighbour at an IP address of ours.
        let own_mac = self.links[link.index()].capabilities.mac;
        if mac == Some(own_mac) || self.addresses.owns(ip) {
            return self.stats.drop(DropReason::NeighborIgnored);
        }
        let Heard { change, mut released, displaced } =
            self.neighbors.hear(now, link, ip, mac, why);
        self.stats.drop_many(DropReason::NeighborQueueFull, displaced.into());
        match change {
            Change::Moved => self.stats.neighbor_moves += 1,
            Change::Restored => self.stats.neighbor_moves_disproved += 1,
            Change::Refused => self.stats.neighbor_claims_refused += 1,
            Change::Nothing | Change::Learnt | Change::Confirmed | Change::Doubted => {}
        }
        let Some(mac) = mac else { return };
        while let Some(packet) = released.pop() {
            self.send_to_mac(now, link, mac, packet);
        }
    }
}

impl Engine {
    /// Sets a neighbour by hand: it is never asked, nobody else may claim its address, and it never gives way to others.
    /// What waited for it is sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a link that is not in use, for addresses that no single station has, and for one of the
    /// engine's own; [`Error::Limit`] when the table is full of neighbours that were set by hand.
    pub fn add_neighbor(&mut self, link: LinkId, ip: IpAddr, mac: MacAddr) -> Result<(), Error> {
        self.check_neighbor(link, ip, mac)?;
        let waiting = self.out.neighbors.set_static(self.time, link, ip, mac);
        let mut waiting = waiting.map_err(|_| Error::Limit("neighbors"))?;
        while let Some(packet) = waiting.pop() {
            self.out.send_to_mac(self.time, link, mac, packet);
        }
        Ok(())
    }

    /// Tells the engine of a neighbour that somebody else has learnt, as the host's kernel: it is taken in as if it had
    /// asked for an address of ours (RFC 826; RFC 4861, 7.2.3), and is asked itself soon after its first use. It changes
    /// nothing of one that was set by hand.
    ///
    /// # Errors
    /// As [`add_neighbor`](Self::add_neighbor), but where no other gives way it is not taken in.
    pub fn suggest_neighbor(
        &mut self,
        link: LinkId,
        ip: IpAddr,
        mac: MacAddr,
    ) -> Result<(), Error> {
        self.check_neighbor(link, ip, mac)?;
        self.out.hear(self.time, link, ip, Some(mac), Evidence::Asked);
        Ok(())
    }

    /// Forgets a neighbour, set by hand or not; it is asked for anew with its next use. What waited for it is dropped and
    /// counted ([`DropReason::NeighborUnreachable`]).
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when it is not known.
    pub fn remove_neighbor(&mut self, link: LinkId, ip: IpAddr) -> Result<(), Error> {
        let waiting = self.out.neighbors.remove(link, ip).ok_or(Error::AddrNotAvailable)?;
        self.out.stats.drop_many(DropReason::NeighborUnreachable, waiting.len() as u64);
        Ok(())
    }

    fn check_neighbor(&self, link: LinkId, ip: IpAddr, mac: MacAddr) -> Result<(), Error> {
        self.check_link(link)?;
        let is_station = !(is_no_host(ip)
            || self.out.addresses.is_here(ip)
            || self.out.addresses.is_broadcast_of(link, ip));
        match is_station && mac.is_unicast() {
            true => Ok(()),
            false => Err(Error::Invalid("not the addresses of a neighbour")),
        }
    }

    /// Does what time makes due in the neighbour table, as much as a turn may.
    pub(in crate::engine) fn neighbor_timers(&mut self, now: Instant) {
        for _ in 0..self.limits.tuning.timers {
            let Some(action) = self.out.neighbors.poll(now) else { break };
            match action {
                Action::Solicit { link, ip, unicast, former } => {
                    self.out.solicit(now, link, ip, unicast);
                    if former.is_some() {
                        self.out.solicit(now, link, ip, former);
                    }
                }
                Action::Unreachable { link, mut packets, .. } => {
                    while let Some(packet) = packets.pop() {
                        self.out.stats.drop(DropReason::NeighborUnreachable);
                        if !self.forwarded_in_vain(now, &packet) {
                            self.unreachable_here(now, link, &packet);
                        }
                    }
                }
            }
        }
    }

    /// An ARP packet from the link. RFC 826: who the sender is goes into the table when he is in it already, before
    /// anybody looks whom the packet is for; he is added to it when it is for us.
    pub(in crate::engine) fn arp_input(&mut self, now: Instant, link: LinkId, packet: &Packet) {
        let message = match ArpPacket::parse(packet.head()) {
            Ok(message) => message,
            Err(reason) => return self.out.stats.malformed(reason),
        };
        let ArpPacket { operation, sender_mac, sender_ip, target_ip, .. } = message;
        let sender = IpAddr::V4(sender_ip);
        if sender_mac == self.out.links[link.index()].capabilities.mac {
            // It came back.
            return self.out.stats.drop(DropReason::NeighborIgnored);
        }
        if self.is_arp_claim(link, &message) {
            // Somebody else claims our address (RFC 5227, 2.4): nothing is learnt from it.
            let claimed = if sender_ip.is_unspecified() { target_ip } else { sender_ip };
            return self.address_claimed(now, link, claimed.into(), Some(sender_mac));
        }
        if self.out.addresses.owns(sender) {
            // Of another link, or of one that is over.
            return self.out.stats.drop(DropReason::NeighborIgnored);
        }
        // RFC 1122, 3.2.1.3: no station has these.
        if is_no_source(sender) || self.out.addresses.is_broadcast_of(link, sender) {
            return self.out.stats.drop(DropReason::MartianSource);
        }
        let for_us = self.out.addresses.of_link(link).any(|own| own.addr == IpAddr::V4(target_ip));
        let evidence = match operation {
            _ if sender_ip == target_ip => Evidence::GRATUITOUS_ARP,
            _ if !for_us => Evidence::Overheard,
            ArpOperation::Reply => Evidence::ARP_REPLY,
            ArpOperation::Request => Evidence::Asked,
        };
        // A probe (RFC 5227, 2.1.1) has no sender address to learn.
        if !sender_ip.is_unspecified() {
            self.out.hear(now, link, sender, Some(sender_mac), evidence);
        }
        if !for_us {
            return self.out.stats.drop(DropReason::NeighborIgnored);
        }
        if operation == ArpOperation::Request {
            let reply = ArpPacket {
                operation: ArpOperation::Reply,
                sender_mac: self.out.links[link.index()].capabilities.mac,
                sender_ip: target_ip,
                target_mac: sender_mac,
                target_ip: sender_ip,
            };
            self.out.send_arp(now, link, sender_mac, &reply);
        }
    }

    /// A neighbour discovery message whose checksum holds; `packet` starts at its IP header.
    pub(in crate::engine) fn ndp_input(
        &mut self,
        now: Instant,
        link: LinkId,
        packet: &Packet,
        ip: &IpHeader,
    ) {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else { return };
        let envelope = Envelope { src, dst, hop_limit: ip.hop_limit };
        let body = packet.head().get(ip.header_len..).unwrap_or_default();
        match NdpMessage::parse(body, &envelope) {
            Err(reason) => self.out.stats.malformed(reason),
            Ok(NdpMessage::NeighborSolicitation(asked)) => {
                self.answer_solicitation(now, link, src, &asked);
            }
            Ok(NdpMessage::NeighborAdvert(told)) => {
                let NeighborAdvert { router, solicited, override_flag, target, target_ll } = told;
                if self.out.addresses.claims.is_ours(link, target.into()) {
                    return self.address_claimed(now, link, target.into(), target_ll);
                }
                let why = Evidence::Advertised { solicited, replace: override_flag, router };
                self.out.hear(now, link, target.into(), target_ll, why);
            }
            Ok(NdpMessage::RouterAdvert(told)) => {
                // Autoconfiguration is not done here; the router's address is worth knowing.
                if told.source_ll.is_some() {
                    self.out.hear(now, link, src.into(), told.source_ll, Evidence::Asked);
                }
            }
            Ok(NdpMessage::RouterSolicitation(RouterSolicitation { .. }))
            | Ok(NdpMessage::Redirect(_)) => self.out.stats.drop(DropReason::NeighborIgnored),
        }
    }

    /// RFC 4861, 7.2.3 and 7.2.4.
    fn answer_solicitation(
        &mut self,
        now: Instant,
        link: LinkId,
        src: Ipv6Addr,
        asked: &NeighborSolicitation,
    ) {
        let target = asked.target;
        let probe = src.is_unspecified();
        let state = self.out.addresses.claims.state(link, target.into());
        let is_own = self.out.addresses.claims.is_own_question(link, target.into(), asked.nonce);
        match state {
            // RFC 7527: it came back.
            _ if probe && is_own => return self.out.stats.drop(DropReason::NeighborIgnored),
            // RFC 4862, 5.4.3: two begin at once, and neither has it.
            Some(AddressState::Tentative | AddressState::Optimistic) if probe => {
                return self.address_claimed(now, link, target.into(), None);
            }
            _ => {}
        }
        let ours = self.out.addresses.of_link(link).any(|own| own.addr == IpAddr::V6(target));
        if !ours {
            return self.out.stats.drop(DropReason::NeighborIgnored);
        }
        if let (false, Some(mac)) = (probe, asked.source_ll) {
            self.out.hear(now, link, src.into(), Some(mac), Evidence::Asked);
        }
        let advert = NdpMessage::NeighborAdvert(NeighborAdvert {
            router: false,
            solicited: !probe,
            // RFC 4429, 3.3.
            override_flag: state != Some(AddressState::Optimistic),
            target,
            target_ll: Some(self.out.links[link.index()].capabilities.mac),
        });
        let dst = if probe { millstream_route::ALL_NODES } else { src };
        self.out.send_ndp(now, link, target, dst, asked.source_ll.filter(|_| !probe), &advert);
    }

    /// A packet of ours did not get out: its socket hears of it as of an ICMP error.
    fn unreachable_here(&mut self, now: Instant, link: LinkId, packet: &Packet) {
        let head = packet.head();
        let version =
            if head.first().is_some_and(|b| b >> 4 == 6) { Version::V6 } else { Version::V4 };
        if let Ok(quote) = icmp::Quote::parse(version, head) {
            // Nobody's was not heard either: it is counted as what did not get out.
            self.icmp_error_input(now, link, &icmp::Icmp::Unreachable(Unreachable::Host), &quote);
        }
    }
}
