//! Neighbours: what is asked of them, and what is learnt.

use std::net::{IpAddr, Ipv6Addr};

use millstream_route::{Change, Evidence, Heard, LinkId, solicited_node};
use millstream_wire::arp::{self, ArpOperation, ArpPacket};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp;
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::ndp::{self, NdpMessage, NeighborSolicitation};

use super::output::with_header;
use super::reserved::is_no_host;
use super::{IpReach, NextHop};
use crate::engine::context::Context;
use crate::error::Error;
use crate::stats::DropReason;

impl IpReach {
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
        let Some(mut packet) = cx.alloc() else { return };
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
        let Some(mut packet) = cx.alloc() else { return };
        let len = message.emit_len();
        if let Some(room) = packet.append(len) {
            message.emit(room);
        }
        let mut header = IpHeader::new(src.into(), dst.into(), Protocol::ICMPV6, len);
        header.hop_limit = ndp::HOP_LIMIT;
        self.seal(&mut packet, link, &header, icmp::CHECKSUM_OFFSET as u16);
        let len = header.emit_len();
        let Ok(packet) = with_header(&cx.pool, packet, len, |room| header.emit(room)) else {
            return cx.stats.drop(DropReason::PoolExhausted);
        };
        match mac.or_else(|| MacAddr::for_multicast(dst.into())) {
            Some(mac) => self.send_to_mac(cx, link, mac, packet),
            None => {
                let mtu = self.links[link.index()].capabilities.mtu;
                self.send_to_neighbor(cx, NextHop { link, address: dst.into(), mtu }, packet);
            }
        }
    }

    /// Takes in what a neighbour said and sends what waited for it.
    pub fn hear(
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

    /// See [`LinksHandle::add_neighbor`](crate::LinksHandle::add_neighbor).
    pub fn add_neighbor(
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
    pub fn suggest_neighbor(
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
    pub fn remove_neighbor(
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
