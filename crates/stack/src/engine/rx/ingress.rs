//! Packets that the flow cache does not know: link header and IP header parsed.

use millstream_link::Medium;
use millstream_packet::{Checksum, Instant, Packet};
use millstream_route::LinkId;
use millstream_wire::Malformed;
use millstream_wire::checksum::Accumulator;
use millstream_wire::ethernet::{self, EtherType, EthernetHeader};
use millstream_wire::ip::{self, IpHeader, Protocol};

use crate::engine::Engine;
use crate::engine::ip::addresses::Destination;
use crate::stats::DropReason;

/// Most bytes of headers that are ever gathered into one frame.
pub(in crate::engine) const PULL_UP_BYTES: usize = 256;

/// An IP packet on its way up.
pub(in crate::engine) struct Arrival {
    /// Starts at the IP header; link padding is cut off.
    pub packet: Packet,
    pub ip: IpHeader,
    pub link: LinkId,
    pub destination: Destination,
    /// In a frame for all stations, or for a group of them.
    pub to_all: bool,
}

impl Engine {
    /// A frame as the link gave it.
    #[inline]
    pub(in crate::engine) fn link_input(&mut self, now: Instant, link: LinkId, mut packet: Packet) {
        let slot = &self.out.links[link.index()];
        if slot.capabilities.medium == Medium::Ip {
            return self.ip_input(now, link, packet, false);
        }
        if !gather(&mut packet, ethernet::HEADER_LEN + ethernet::VLAN_TAG_LEN) {
            return self.out.stats.drop(DropReason::PoolExhausted);
        }
        let (header, len) = match EthernetHeader::parse(packet.head()) {
            Ok(parsed) => parsed,
            Err(reason) => return self.out.stats.malformed(reason),
        };
        if !header.dst.is_multicast() && header.dst != slot.capabilities.mac {
            return self.out.stats.drop(DropReason::OtherLinkAddress);
        }
        // IEEE 802.1Q: VLAN 0 is a priority only.
        if header.vlan.is_some_and(|tag| tag.id() != 0) {
            return self.out.stats.drop(DropReason::Vlan);
        }
        packet.trim_front(len);
        match header.ethertype {
            EtherType::IPV4 | EtherType::IPV6 => {
                self.ip_input(now, link, packet, header.dst.is_multicast());
            }
            EtherType::ARP => match gather(&mut packet, PULL_UP_BYTES) {
                true => self.arp_input(now, link, &packet),
                false => self.out.stats.drop(DropReason::PoolExhausted),
            },
            _ => self.out.stats.drop(DropReason::UnknownEthertype),
        }
    }

    /// An IP packet, maybe with padding behind it, in a frame that was sent `to_all`, or to a group.
    #[inline]
    pub(in crate::engine) fn ip_input(
        &mut self,
        now: Instant,
        link: LinkId,
        mut packet: Packet,
        to_all: bool,
    ) {
        let available = packet.len();
        let mut parsed = ip::parse(packet.head(), available);
        if parsed == Err(Malformed::Truncated) && packet.head().len() < available {
            if !gather(&mut packet, PULL_UP_BYTES) {
                return self.out.stats.drop(DropReason::PoolExhausted);
            }
            parsed = ip::parse(packet.head(), available);
        }
        let ip = match parsed {
            Ok(ip) => ip,
            Err(reason) => match self.passes(link, &packet, reason) {
                Some(ip) => ip,
                None => return self.ip_refused(now, link, packet, reason, to_all),
            },
        };
        packet.truncate(ip.packet_len());
        let destination = self.out.addresses.classify(link, ip.dst);
        if destination == Destination::Other {
            return match self.forwards && !self.out.addresses.is_loopback(link) {
                true => self.forward(now, link, packet, ip, to_all),
                false => self.out.stats.drop(DropReason::OtherAddress),
            };
        }
        if self.out.addresses.is_martian(link, ip.src, destination) {
            if ip.protocol == Protocol::ICMPV6 {
                self.claimed_by_source(now, &Arrival { packet, ip, link, destination, to_all });
            }
            return self.out.stats.drop(DropReason::MartianSource);
        }
        if destination == Destination::Own && !self.has_way_back(link, ip.src) {
            return self.out.stats.drop(DropReason::ReversePath);
        }
        // RFC 1122, 3.3.6: what one station is to have does not come in a frame for all; over IPv6 that is said of what
        // is answered by an error (RFC 4443, 2.4 (e.4)), as most of TCP would be.
        let is_for_one =
            destination == Destination::Own && (ip.dst.is_ipv4() || ip.protocol == Protocol::TCP);
        if to_all && is_for_one {
            return self.out.stats.drop(DropReason::OtherLinkAddress);
        }
        let arrival = Arrival { packet, ip, link, destination, to_all };
        if ip.fragment.is_some() {
            return self.fragment_input(now, arrival);
        }
        match ip.protocol {
            Protocol::TCP => self.tcp_arrival(arrival),
            Protocol::UDP => self.udp_input(now, arrival),
            Protocol::ICMP if ip.src.is_ipv4() => self.icmp_input(now, arrival),
            Protocol::ICMPV6 if ip.src.is_ipv6() => self.icmp_input(now, arrival),
            Protocol::IGMP if ip.src.is_ipv4() => self.igmp_input(now, arrival),
            Protocol::NO_NEXT_HEADER => self.out.stats.drop(DropReason::UnknownProtocol),
            _ => {
                self.out.stats.drop(DropReason::UnknownProtocol);
                self.tell_problem(now, &arrival);
            }
        }
    }
}

/// Whether the first `len` bytes of the packet (or all, when there are fewer) lie in its first frame,
/// after moving them there when they did not. False when the pool has no frame for that.
#[inline]
pub(in crate::engine) fn gather(packet: &mut Packet, len: usize) -> bool {
    let have = packet.head().len();
    if have >= len || have == packet.len() {
        return true;
    }
    let len = len.min(packet.len()).min(PULL_UP_BYTES);
    packet.pull_up(len).is_ok()
}

/// Whether the transport checksum holds, or somebody trusted has said so.
#[inline]
pub(in crate::engine) fn checksum_holds(arrival: &Arrival, pseudo: u32) -> bool {
    match arrival.packet.meta().checksum {
        Checksum::Verified | Checksum::Partial { .. } => true,
        Checksum::Unverified => sum_from(&arrival.packet, arrival.ip.header_len, pseudo).is_valid(),
    }
}

/// The sum of everything from `offset` to the end of the packet, on top of `start`.
#[inline]
fn sum_from(packet: &Packet, offset: usize, start: u32) -> Accumulator {
    let mut sum = Accumulator::new(start);
    let mut skip = offset;
    for slice in packet.slices() {
        let part = slice.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(slice.len());
        sum.add(part);
    }
    sum
}
