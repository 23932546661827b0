//! Packets that the flow cache does not know: link header and IP header parsed, and to whom they
//! go.

use millstream_link::Medium;
use millstream_packet::Packet;
use millstream_route::LinkId;
use millstream_wire::Malformed;
use millstream_wire::ethernet::{self, EtherType, EthernetHeader};
use millstream_wire::ip::{self, Protocol};

use crate::engine::context::Context;
use crate::engine::ip::IpLayer;
use crate::engine::ip::addresses::Destination;
use crate::engine::ip::arrival::{Arrival, Delivery, PULL_UP_BYTES, gather};
use crate::stats::DropReason;

impl IpLayer {
    /// Takes in a frame as the link gave it.
    #[inline]
    pub(in crate::engine) fn input(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        packet: Packet,
    ) -> Delivery {
        let delivery = self.frame_input(cx, link, packet);
        match delivery {
            Delivery::Dropped(reason) => cx.stats.drop(reason),
            Delivery::Malformed(reason) => cx.stats.malformed(reason),
            _ => {}
        }
        delivery
    }

    #[inline]
    fn frame_input(&mut self, cx: &mut Context, link: LinkId, mut packet: Packet) -> Delivery {
        let slot = &self.links[link.index()];
        if slot.capabilities.medium == Medium::Ip {
            return self.packet_input(cx, link, packet, false);
        }
        if !gather(&mut packet, ethernet::HEADER_LEN + ethernet::VLAN_TAG_LEN) {
            return Delivery::Dropped(DropReason::PoolExhausted);
        }
        let (header, len) = match EthernetHeader::parse(packet.head()) {
            Ok(parsed) => parsed,
            Err(reason) => return Delivery::Malformed(reason),
        };
        if !header.dst.is_multicast() && header.dst != slot.capabilities.mac {
            return Delivery::Dropped(DropReason::OtherLinkAddress);
        }
        // IEEE 802.1Q: VLAN 0 is a priority only.
        if header.vlan.is_some_and(|tag| tag.id() != 0) {
            return Delivery::Dropped(DropReason::Vlan);
        }
        packet.trim_front(len);
        match header.ethertype {
            EtherType::IPV4 | EtherType::IPV6 => {
                self.packet_input(cx, link, packet, header.dst.is_multicast())
            }
            EtherType::ARP => match gather(&mut packet, PULL_UP_BYTES) {
                true => {
                    self.arp_input(cx, link, &packet);
                    Delivery::Taken
                }
                false => Delivery::Dropped(DropReason::PoolExhausted),
            },
            _ => Delivery::Dropped(DropReason::UnknownEthertype),
        }
    }

    /// An IP packet, maybe with padding behind it, in a frame that was sent `to_all`, or to a
    /// group.
    #[inline]
    pub(in crate::engine) fn packet_input(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        mut packet: Packet,
        to_all: bool,
    ) -> Delivery {
        let available = packet.len();
        let mut parsed = ip::parse(packet.head(), available);
        if parsed == Err(Malformed::Truncated) && packet.head().len() < available {
            if !gather(&mut packet, PULL_UP_BYTES) {
                return Delivery::Dropped(DropReason::PoolExhausted);
            }
            parsed = ip::parse(packet.head(), available);
        }
        let ip = match parsed {
            Ok(ip) => ip,
            Err(reason) => match self.passes(link, &packet, reason) {
                Some(ip) => ip,
                None => {
                    self.ip_refused(cx, link, packet, reason, to_all);
                    return Delivery::Malformed(reason);
                }
            },
        };
        packet.truncate(ip.packet_len());
        let destination = self.addresses.classify(link, ip.dst);
        if destination == Destination::Other {
            return match self.forwards && !self.addresses.is_loopback(link) {
                true => {
                    self.forward(cx, link, packet, ip, to_all);
                    Delivery::Taken
                }
                false => Delivery::Dropped(DropReason::OtherAddress),
            };
        }
        // Neither does anybody talk to itself by way of us.
        let is_own_reflection = ip.src == ip.dst && !self.addresses.is_loopback(link);
        if is_own_reflection || self.addresses.is_martian(link, ip.src, destination) {
            if ip.protocol == Protocol::ICMPV6 {
                self.claimed_by_source(cx, &Arrival { packet, ip, link, destination, to_all });
            }
            return Delivery::Dropped(DropReason::MartianSource);
        }
        if destination == Destination::Own && !self.has_way_back(link, ip.src) {
            return Delivery::Dropped(DropReason::ReversePath);
        }
        // RFC 1122, 3.3.6: what one station is to have does not come in a frame for all; over IPv6
        // that is said of what is answered by an error (RFC 4443, 2.4 (e.4)), as most of TCP would
        // be.
        let is_for_one =
            destination == Destination::Own && (ip.dst.is_ipv4() || ip.protocol == Protocol::TCP);
        if to_all && is_for_one {
            return Delivery::Dropped(DropReason::OtherLinkAddress);
        }
        let arrival = Arrival { packet, ip, link, destination, to_all };
        if ip.fragment.is_some() {
            return self.fragment_input(cx, arrival);
        }
        match ip.protocol {
            Protocol::TCP => Delivery::Tcp(arrival),
            Protocol::UDP => Delivery::Udp(arrival),
            Protocol::ICMP if ip.src.is_ipv4() => self.icmp_input(cx, arrival),
            Protocol::ICMPV6 if ip.src.is_ipv6() => self.icmp_input(cx, arrival),
            Protocol::IGMP if ip.src.is_ipv4() => {
                self.igmp_input(cx, arrival);
                Delivery::Taken
            }
            Protocol::NO_NEXT_HEADER => Delivery::Dropped(DropReason::UnknownProtocol),
            _ => {
                self.tell_problem(cx, &arrival);
                Delivery::Dropped(DropReason::UnknownProtocol)
            }
        }
    }
}
