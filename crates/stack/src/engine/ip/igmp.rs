//! The messages of IGMP and MLD: what routers ask of the groups of a link, and what they are told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millstream_packet::{Packet, Pool};
use millstream_route::LinkId;
use millstream_wire::groups::{self, Generation, GroupMessage};
use millstream_wire::ip::{self, IpHeader, Protocol, Version};
use millstream_wire::{checksum, icmp};

use crate::engine::context::Context;
use crate::engine::ip::arrival::{Arrival, checksum_holds, gather};
use crate::engine::ip::reach::addresses::Addresses;
use crate::engine::ip::reach::group_member::Say;
use crate::engine::ip::reach::membership::Membership;
use crate::engine::ip::reach::{IpReach, NextHop, output::with_header};
use crate::stats::DropReason;

/// Bytes of the IPv4 header with Router Alert (RFC 2113).
const V4_ALERT_LEN: usize = 24;

/// The IPv4 option, and the hop-by-hop header before ICMPv6 (RFC 2711), padded.
const V4_ALERT: [u8; 4] = [148, 4, 0, 0];
const V6_ALERT: [u8; 8] = [Protocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];

/// Internetwork control (RFC 3376, 4).
const TRAFFIC_CLASS: u8 = 0xc0;

/// Whom reports of the newest versions go to.
const ALL_IGMP_ROUTERS: IpAddr = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 22));
const ALL_MLD_ROUTERS: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16));

/// Whom it is said to that a group was left, by the version before.
const ALL_ROUTERS_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 2));
const ALL_ROUTERS_V6: IpAddr = IpAddr::V6(millstream_route::ALL_ROUTERS);

impl Membership {
    /// A message of IGMP. It does not come from another link.
    #[cold]
    pub(in crate::engine) fn igmp_input(&mut self, cx: &mut Context, mut arrival: Arrival) {
        if !gather(&mut arrival.packet, usize::MAX) {
            return cx.stats.drop(DropReason::PoolExhausted);
        }
        let ip = arrival.ip;
        let is_valid = checksum_holds(&arrival, 0) && ip.hop_limit == 1;
        let body = arrival.packet.head().get(ip.header_len..).unwrap_or_default();
        let message = GroupMessage::parse(Version::V4, body).filter(|_| is_valid);
        self.heed(cx, arrival.link, &ip, message);
    }

    /// The same of MLD, whose checksum holds. RFC 3810, 5.1.14 and 6.2: from a link-local address,
    /// with a hop limit of 1, and with Router Alert.
    #[cold]
    pub(in crate::engine) fn mld_input(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        packet: &Packet,
        ip: &IpHeader,
    ) {
        let head = packet.head();
        let (extensions, body) = head.split_at(ip.header_len.min(head.len()));
        let from_here = matches!(ip.src, IpAddr::V6(src) if src.is_unicast_link_local());
        let is_valid = from_here && ip.hop_limit == 1 && has_alert(extensions);
        let message = GroupMessage::parse(Version::V6, body).filter(|_| is_valid);
        self.heed(cx, link, ip, message);
    }

    fn heed(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        ip: &IpHeader,
        message: Option<GroupMessage<'_>>,
    ) {
        match message {
            Some(GroupMessage::Query(query)) => self.asked(cx.now, link, ip.src.is_ipv4(), &query),
            // It goes to the group that it names.
            Some(GroupMessage::Report(group)) if group == ip.dst => self.heard(cx.now, link, group),
            _ => cx.stats.drop(DropReason::GroupMessageIgnored),
        }
    }
}

impl Say<'_> {
    /// Tells the routers of a link, by the packets of IGMP or MLD.
    pub(super) fn send(self, cx: &mut Context, reach: &mut IpReach, link: LinkId) {
        let Some(mut packet) = cx.alloc() else { return };
        let (dst, len) = match self {
            Say::Records(records) => {
                let Some(first) = records.first() else { return };
                let version = Version::of(&first.group);
                let len = groups::report_len(records);
                if let Some(room) = packet.append(len) {
                    groups::emit_report(version, records, room);
                }
                let is_v4 = version == Version::V4;
                (if is_v4 { ALL_IGMP_ROUTERS } else { ALL_MLD_ROUTERS }, len)
            }
            Say::Old { generation, group, left } => {
                let len = groups::old_len(Version::of(&group));
                if let Some(room) = packet.append(len) {
                    groups::emit_old(generation, group, left, room);
                }
                let to_routers = left && generation == Generation::Second;
                match (to_routers, group.is_ipv4()) {
                    (true, true) => (ALL_ROUTERS_V4, len),
                    (true, false) => (ALL_ROUTERS_V6, len),
                    (false, _) => (group, len),
                }
            }
        };
        let packet = match dst.is_ipv4() {
            true => with_alert_v4(&reach.addresses, &cx.pool, link, dst, packet, len),
            false => with_alert_v6(&reach.addresses, &cx.pool, link, dst, packet, len),
        };
        let Some(packet) = packet else { return cx.stats.drop(DropReason::PoolExhausted) };
        let mtu = reach.links[link.index()].capabilities.mtu;
        reach.send_to_neighbor(cx, NextHop { link, address: dst, mtu }, packet);
    }
}

/// RFC 3376, 4: from the link's address, or none where it has none yet (4.2.13).
fn with_alert_v4(
    addresses: &Addresses,
    pool: &Pool,
    link: LinkId,
    dst: IpAddr,
    packet: Packet,
    len: usize,
) -> Option<Packet> {
    let own = addresses.of_link(link).map(|own| own.addr).find(IpAddr::is_ipv4);
    let src = own.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let payload_len = V4_ALERT_LEN - ip::V4_HEADER_LEN + len;
    let header = IpHeader {
        hop_limit: 1,
        traffic_class: TRAFFIC_CLASS,
        ..IpHeader::new(src, dst, Protocol::IGMP, payload_len)
    };
    let write = |room: &mut [u8]| {
        header.emit(room);
        let room = &mut room[..V4_ALERT_LEN];
        room[0] = 0x40 | (V4_ALERT_LEN / 4) as u8;
        room[ip::V4_HEADER_LEN..].copy_from_slice(&V4_ALERT);
        room[10..12].fill(0);
        let field = checksum::finish(checksum::sum(room));
        room[10..12].copy_from_slice(&field);
        V4_ALERT_LEN
    };
    with_header(pool, packet, V4_ALERT_LEN, write).ok()
}

/// RFC 3810, 5 and 5.2.13: from the link's link-local address, or none where it has none yet.
fn with_alert_v6(
    addresses: &Addresses,
    pool: &Pool,
    link: LinkId,
    dst: IpAddr,
    mut packet: Packet,
    len: usize,
) -> Option<Packet> {
    let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let own = addresses.of_link(link).map(|own| own.addr).find(is_local);
    let src = own.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    let at = icmp::CHECKSUM_OFFSET;
    let head = packet.head_mut()?;
    let pseudo = icmp::pseudo_sum(src, dst, len);
    let mut sum = checksum::Accumulator::new(pseudo);
    sum.add(head);
    head[at..at + 2].copy_from_slice(&sum.finish());
    let header = IpHeader {
        hop_limit: 1,
        ..IpHeader::new(src, dst, Protocol::HOP_BY_HOP, V6_ALERT.len() + len)
    };
    let header_len = ip::V6_HEADER_LEN + V6_ALERT.len();
    let write = |room: &mut [u8]| {
        header.emit(room);
        room[ip::V6_HEADER_LEN..header_len].copy_from_slice(&V6_ALERT);
        header_len
    };
    with_header(pool, packet, header_len, write).ok()
}

/// Returns true if a valid IPv6 header is followed by a hop-by-hop header with Router Alert (RFC
/// 2711, 2.1).
fn has_alert(headers: &[u8]) -> bool {
    if headers.get(6) != Some(&Protocol::HOP_BY_HOP.0) {
        return false;
    }
    let Some(extension) = headers.get(ip::V6_HEADER_LEN..) else { return false };
    let len = extension.get(1).map_or(0, |&len| 8 + 8 * usize::from(len));
    let mut rest = extension.get(2..len).unwrap_or_default();
    loop {
        rest = match *rest {
            [5, 2, ..] => return true,
            [0, ..] => &rest[1..],
            [_, len, ..] => rest.get(2 + usize::from(len)..).unwrap_or_default(),
            _ => return false,
        };
    }
}
