//! Packets for others, handed on between the links of an engine (RFC 1812, 5.3; RFC 8200).
//!
//! A packet keeps its frames: the headers before it are written into the room of those that it came
//! with. What is known of its sums and super-segments goes with it; its link completes and cuts
//! what its device does not.
//!
//! This is the long way of one packet. Those that ask for no more than a way go many at a time,
//! where they can (`run`).

mod hops;
mod run;

pub(in crate::engine) use run::Runs;

use std::net::IpAddr;

use millstream_packet::{Checksum, Packet, SegmentationKind};
use millstream_route::{LinkId, Reject, Route};
use millstream_wire::Malformed;
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::ip::{self, IpHeader};
use millstream_wire::udp;

use crate::engine::context::Context;
use crate::engine::ip::arrival::Arrival;
use crate::engine::ip::icmp::IcmpErrors;
use crate::engine::ip::reach::addresses::{Addresses, Destination};
use crate::engine::ip::reach::fragments::part_of;
use crate::engine::ip::reach::reserved::{is_link_local, is_no_destination};
use crate::engine::ip::reach::{IpReach, NextHop};
use crate::stats::DropReason;

/// Where a TCP header says how long it is.
const TCP_OFFSET_AT: usize = 12;

/// The switch for packets of others, and memory for many of them.
#[derive(Default)]
pub(in crate::engine) struct Forwarding {
    pub is_on: bool,
    /// Where they are handed on many at a time, with the fast path; away while they are.
    pub runs: Option<Box<Runs>>,
}

impl Forwarding {
    /// A packet that is not for us: hands it on, tells its sender why not, or drops and counts it.
    pub fn forward(
        &self,
        cx: &mut Context,
        reach: &mut IpReach,
        errors: &mut IcmpErrors,
        mut arrival: Arrival,
    ) {
        if let Err(reason) = Self::may_forward(reach, &arrival) {
            return cx.stats.drop(reason);
        }
        let Arrival { packet, ip, .. } = &mut arrival;
        // RFC 1812, 5.3.1; RFC 8200, 3.
        if ip.hop_limit <= 1 {
            cx.stats.drop(DropReason::HopLimit);
            let error = Icmp::TimeExceeded { reassembly: false };
            return errors.send(cx, reach, &arrival, error);
        }
        let route = reach.routing.lookup_packet(ip, packet.head());
        let hop = route.and_then(|route| reach.hop_by(route, ip.dst));
        let Some(hop) = hop else {
            return Self::forward_nowhere(cx, reach, errors, &arrival, route);
        };
        // RFC 1812, 5.3.5.2: what is for all of a network is not handed on to it.
        if reach.addresses.is_broadcast_of(hop.link, ip.dst) {
            return cx.stats.drop(DropReason::NotForwardable);
        }
        if wire_len(packet, ip) > hop.mtu {
            return Self::forward_long(cx, reach, errors, arrival, hop);
        }
        let Ok(head) = packet.make_head_mut(&cx.pool) else {
            return cx.stats.drop(DropReason::PoolExhausted);
        };
        ip::decrement_hop_limit(head);
        carry_meta(packet, ip);
        cx.stats.forwarded += 1;
        reach.send_to_neighbor(cx, hop, arrival.packet);
    }

    /// The header of a packet for others that would be refused here for what its extension headers
    /// ask of its destination: that is nobody's business on the way (RFC 8200, 4).
    #[cold]
    pub fn passes(
        &self,
        addresses: &Addresses,
        link: LinkId,
        packet: &Packet,
        reason: Malformed,
    ) -> Option<IpHeader> {
        let is_for_its_destination = matches!(
            reason,
            Malformed::Ipv6OptionUnknown
                | Malformed::Ipv6OptionLimit
                | Malformed::Ipv6OptionLength
                | Malformed::Ipv6Routing
                | Malformed::Ipv6ExtensionOrder
        );
        if !self.is_on || !is_for_its_destination {
            return None;
        }
        let ip = ip::parse_quoted(packet.head()).ok()?;
        let is_others = addresses.classify(link, ip.dst) == Destination::Other;
        (is_others && ip.packet_len() <= packet.len()).then_some(ip)
    }

    /// RFC 1812, 5.3.4, 5.3.7 and 4.2.2.11; RFC 4291, 2.5.6; RFC 3927, 2.7: whose packets are not
    /// handed on.
    #[inline]
    fn may_forward(reach: &IpReach, arrival: &Arrival) -> Result<(), DropReason> {
        let &Arrival { ref ip, link, to_all, .. } = arrival;
        let stays =
            |ip: IpAddr| is_link_local(ip) || matches!(ip, IpAddr::V4(ip) if ip.is_link_local());
        let is_broadcast = matches!(ip.dst, IpAddr::V4(dst) if dst.is_broadcast());
        if reach.addresses.is_martian(link, ip.src, Destination::Own) {
            return Err(DropReason::MartianSource);
        }
        if to_all
            || ip.dst.is_multicast()
            || is_broadcast
            || is_no_destination(ip.dst)
            || stays(ip.src)
            || stays(ip.dst)
        {
            return Err(DropReason::NotForwardable);
        }
        match reach.has_way_back(link, ip.src) {
            true => Ok(()),
            false => Err(DropReason::ReversePath),
        }
    }

    /// One that is longer than its way carries: cut where that is allowed, else its sender is told
    /// (RFC 1191, RFC 1812 4.2.2.7; RFC 4443, 3.2).
    #[cold]
    fn forward_long(
        cx: &mut Context,
        reach: &mut IpReach,
        errors: &mut IcmpErrors,
        arrival: Arrival,
        hop: NextHop,
    ) {
        let ip = arrival.ip;
        // RFC 791, 3.1: options would be copied into some; whoever sends them is told instead.
        let may_cut = ip.src.is_ipv4()
            && !ip.dont_fragment
            && ip.header_len == ip::V4_HEADER_LEN
            && arrival.packet.meta().segmentation.is_none();
        if !may_cut {
            cx.stats.drop(DropReason::TooLong);
            let error = Icmp::PacketTooBig { mtu: hop.mtu as u32 };
            return errors.send(cx, reach, &arrival, error);
        }
        let mut packet = arrival.packet;
        carry_meta(&mut packet, &ip);
        if millstream_link::offload::complete_checksum(&mut packet, &cx.pool).is_err() {
            return cx.stats.drop(DropReason::PoolExhausted);
        }
        packet.trim_front(ip.header_len);
        let header = IpHeader { hop_limit: ip.hop_limit - 1, ..ip };
        cx.stats.forwarded += 1;
        reach.send_fragments_as(cx, hop, &header, &packet, ip.identification.into());
    }

    /// One that no route leads on, whose `route` says what becomes of it, or leads by a link that
    /// we do not have.
    #[cold]
    fn forward_nowhere(
        cx: &mut Context,
        reach: &mut IpReach,
        errors: &mut IcmpErrors,
        arrival: &Arrival,
        route: Option<Route>,
    ) {
        let reject = route.and_then(|route| route.reject);
        cx.stats.drop(match (route, reject) {
            (None, _) => DropReason::NoRoute,
            (Some(_), Some(_)) => DropReason::RejectRoute,
            (Some(_), None) => DropReason::NoLink,
        });
        let why = match reject {
            Some(Reject::Blackhole) => return,
            // As Linux says it; in ICMPv6 the code for hosts is about those on the last link.
            Some(Reject::Unreachable) if arrival.ip.src.is_ipv4() => Unreachable::Host,
            Some(Reject::Prohibit) => Unreachable::Prohibited,
            Some(Reject::Unreachable) | None => Unreachable::Network,
        };
        errors.send(cx, reach, arrival, Icmp::Unreachable(why));
    }

    /// A packet of somebody else, from its IP header on, whose next hop does not answer (RFC 1812,
    /// 5.2.7.1; RFC 4443, 3.1); false for one of ours.
    #[cold]
    pub fn forwarded_in_vain(
        &self,
        cx: &mut Context,
        reach: &mut IpReach,
        errors: &mut IcmpErrors,
        packet: &Packet,
    ) -> bool {
        let Ok(ip) = ip::parse_quoted(packet.head()) else { return false };
        if reach.addresses.is_local(ip.src) || !self.is_on {
            return false;
        }
        let Some(back) = reach.next_hop(ip.src, None) else { return true };
        if let Ok(packet) = part_of(cx, packet, 0, packet.len().min(1500)) {
            let error = Icmp::Unreachable(Unreachable::Host);
            errors.send(cx, reach, &Arrival::forwarded(back.link, packet, ip, false), error);
        }
        true
    }
}

/// Bytes of IP of the longest packet that this is on a wire: of a super-segment those of its parts.
#[inline]
fn wire_len(packet: &Packet, ip: &IpHeader) -> usize {
    match packet.meta().segmentation {
        None => ip.packet_len(),
        Some(parts) => {
            let len =
                ip.header_len + transport_len(packet, ip, parts.kind) + usize::from(parts.size);
            len.min(ip.packet_len())
        }
    }
}

fn transport_len(packet: &Packet, ip: &IpHeader, kind: SegmentationKind) -> usize {
    match kind {
        SegmentationKind::Udp => udp::HEADER_LEN,
        SegmentationKind::TcpV4 | SegmentationKind::TcpV6 => {
            let offset = packet.head().get(ip.header_len + TCP_OFFSET_AT);
            offset.map_or(0, |offset| usize::from(offset >> 4) * 4)
        }
    }
}

/// Adapts the link's notes on a packet, which count from the link header: the packet now begins
/// with the IP header.
#[inline]
fn carry_meta(packet: &mut Packet, ip: &IpHeader) {
    let segmentation = packet.meta().segmentation.map(|parts| parts.kind);
    let header_len = segmentation.map(|kind| ip.header_len + transport_len(packet, ip, kind));
    let meta = packet.meta_mut();
    if let Checksum::Partial { start, .. } = &mut meta.checksum {
        *start = ip.header_len as u16;
    }
    if let (Some(parts), Some(header_len)) = (&mut meta.segmentation, header_len) {
        parts.header_len = header_len as u16;
    }
    meta.l3_offset = 0;
    meta.l4_offset = ip.header_len as u16;
}
