//! Multicast groups: sockets join and leave them, get what is sent to them, and routers are told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use millstream_packet::{Instant, Packet};
use millstream_route::LinkId;
use millstream_wire::groups::{self, Generation, GroupMessage};
use millstream_wire::ip::{self, IpHeader, Protocol, Version};
use millstream_wire::{checksum, icmp};

use super::group_filter::GroupFilter;
use super::group_member::Say;
use crate::engine::Engine;
use crate::engine::context::Context;
use crate::engine::datagram::super_datagrams::datagram_size;
use crate::engine::datagram::udp_table::Datagram;
use crate::engine::datagram::{DatagramInfo, Sending, on_link};
use crate::engine::ip::arrival::{Arrival, checksum_holds, gather};
use crate::engine::ip::reserved::is_no_host;
use crate::engine::ip::{IpLayer, NextHop, output::with_header};
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

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

impl IpLayer {
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

    /// The same of MLD, whose checksum holds. RFC 3810, 5.1.14 and 6.2: from a link-local address, with a hop limit of 1,
    /// and with Router Alert.
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
        let groups = &mut self.addresses.groups;
        match message {
            Some(GroupMessage::Query(query)) => {
                groups.asked(cx.now, link, ip.src.is_ipv4(), &query)
            }
            // It goes to the group that it names.
            Some(GroupMessage::Report(group)) if group == ip.dst => {
                groups.heard(cx.now, link, group)
            }
            _ => cx.stats.drop(DropReason::GroupMessageIgnored),
        }
    }

    /// Says what is due.
    #[cold]
    pub(in crate::engine) fn group_timers(&mut self, cx: &mut Context) {
        // They are told while the list of them is walked.
        let mut groups = std::mem::take(&mut self.addresses.groups);
        groups.poll(cx.now, cx.limits.tuning.timers, &mut |link, say| self.say(cx, link, say));
        self.addresses.groups = groups;
    }
}

impl Engine {
    /// Has a socket that is bound to any address get what is sent to `group` on a link, from whichever source; without a
    /// link on the first in use. Multicast routers there are told (IGMPv3, MLDv2, or what they speak). Datagrams to a
    /// group go to those of its port's sockets that have joined it, each of which gets all of them.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] when it is in the group; else as
    /// [`udp_set_group_filter`](Self::udp_set_group_filter).
    pub fn udp_join_group(
        &mut self,
        id: SocketId,
        group: IpAddr,
        link: Option<LinkId>,
    ) -> Result<(), Error> {
        let group = group.to_canonical();
        let at = self.group_link(link)?;
        if self.ip.addresses.groups.filter(at, group, id).is_some() {
            return Err(Error::AddrInUse);
        }
        self.udp_set_group_filter(id, group, Some(at), GroupFilter::ALL)
    }

    /// Ends what [`udp_join_group`](Self::udp_join_group) began; without a link on the first where the socket is in the
    /// group. Closing a socket does it, too.
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when it is not in the group there.
    pub fn udp_leave_group(
        &mut self,
        id: SocketId,
        group: IpAddr,
        link: Option<LinkId>,
    ) -> Result<(), Error> {
        let group = group.to_canonical();
        self.udp.by_id(id)?;
        let groups = &self.ip.addresses.groups;
        let link = link.or_else(|| groups.link_of(group, id)).ok_or(Error::AddrNotAvailable)?;
        if groups.filter(link, group, id).is_none() {
            return Err(Error::AddrNotAvailable);
        }
        self.udp_set_group_filter(id, group, Some(link), GroupFilter::NONE)
    }

    /// Has a socket that is bound to any address get what is sent to `group` on a link from some sources (RFC 3678, 4.2.1),
    /// without a link on the first in use: it joins the group by that, or leaves it, or gets it from others than before.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no group, or not of the socket's version of IP, for sources that are not of the
    /// group's version or that no host has, for a socket with an address of its own, and for a link that is not in use;
    /// [`Error::Limit`] beyond [`Limits::groups`](crate::Limits::groups), and for more than 64 sources that this socket
    /// names, or that all sockets on the link together make of the group; [`Error::NetworkUnreachable`] without a link.
    /// Nothing has changed then.
    pub fn udp_set_group_filter(
        &mut self,
        id: SocketId,
        group: IpAddr,
        link: Option<LinkId>,
        filter: GroupFilter,
    ) -> Result<(), Error> {
        let now = self.now();
        let group = group.to_canonical();
        let socket = self.udp.by_id(id)?;
        if !group.is_multicast() || !socket.reaches(group) {
            return Err(Error::Invalid("not a multicast group of the socket's version of IP"));
        }
        if !socket.local.ip().is_unspecified() {
            return Err(Error::Invalid("the socket is bound to an address"));
        }
        let is_source =
            |source: &IpAddr| source.is_ipv4() == group.is_ipv4() && !is_no_host(*source);
        if !filter.sources().iter().all(is_source) {
            return Err(Error::Invalid("not a source of the group"));
        }
        let link = self.group_link(link)?;
        if !self.ip.addresses.groups.set(now, link, group, id, filter.sorted()) {
            return Err(Error::Limit("groups"));
        }
        // Datagrams may go to others from now on.
        self.udp.flows.forget();
        Ok(())
    }

    /// The link that a call about groups means.
    fn group_link(&self, link: Option<LinkId>) -> Result<LinkId, Error> {
        match link {
            Some(link) => self.ip.check_link(link).map(|()| link),
            None => self.ip.first_link().ok_or(Error::NetworkUnreachable),
        }
    }

    /// The link by which the socket sends to groups (`IP_MULTICAST_IF`); none: that of the address it is bound to, of what
    /// it received last, or the first in use. An address that names a link goes before. [`Error::Invalid`] for a link
    /// that is not in use.
    pub fn udp_set_group_link(&mut self, id: SocketId, link: Option<LinkId>) -> Result<(), Error> {
        if let Some(link) = link {
            self.ip.check_link(link)?;
        }
        let serial = link.map(|link| self.ip.links[link.index()].serial);
        self.udp.by_id(id)?.group_link = serial;
        Ok(())
    }

    /// Whether sockets of this engine get what the socket sends to groups that they have joined on the link it leaves by
    /// (`IP_MULTICAST_LOOP`, but of the sender, as on Linux), itself among them; at first they do.
    pub fn udp_set_group_loop(&mut self, id: SocketId, loops: bool) -> Result<(), Error> {
        self.udp.by_id(id)?.group_loop = loops;
        Ok(())
    }

    /// Sends a datagram to a group, and to the sockets here that have joined it.
    pub(in crate::engine) fn udp_send_to_group(
        &mut self,
        now: Instant,
        sending: Sending,
    ) -> Result<(), Error> {
        let Sending { id, packet, remote, named, options } = sending;
        let socket = self.udp.by_id(id)?;
        let (port, last, loops) = (socket.local.port(), socket.scope, socket.group_loop);
        let local = options.from.unwrap_or(socket.local.ip());
        // A link that is over leaves the choice to the engine.
        let chosen = socket.group_link.filter(|&chosen| self.ip.links.by_serial(chosen).is_some());
        let marks = options.marks(socket.marks(remote.ip()));
        let named = named.or(chosen).or_else(|| self.ip.datagram_scope(local, remote.ip(), last));
        let hop = self.ip.next_hop(remote.ip(), named);
        let groups = &self.ip.addresses.groups;
        let Some(hop) = hop.filter(|hop| loops && groups.has(hop.link, remote.ip())) else {
            let sending = Sending { id, packet, remote, named, options };
            return self.udp_send_uncached(now, sending);
        };
        // Each part of a super-segment is sent, and comes back, by itself.
        if let Some(size) = datagram_size(&packet) {
            return self.udp_send_parts(id, &packet, size, on_link(remote, hop.link), &options);
        }
        let source = match local {
            any if any.is_unspecified() => {
                self.ip.addresses.source(hop.link, hop.address, remote.ip())
            }
            ip => Some(ip),
        };
        let copy = self.copy_of(&packet, 0, packet.len());
        self.udp_send_uncached(now, Sending { id, packet, remote, named, options })?;
        match (source, copy) {
            (Some(ip), Ok(copy)) => {
                let mut header = IpHeader::new(ip, remote.ip(), Protocol::UDP, 0);
                marks.write(&mut header);
                let info = DatagramInfo::new(&header, hop.link);
                self.deliver_to_group(remote, SocketAddr::new(ip, port), info, copy, None);
            }
            _ => self.cx.stats.drop(DropReason::PoolExhausted),
        }
        Ok(())
    }

    /// Gives a datagram's data, or those of `size` bytes each, to the sockets of its port that have joined the group, to
    /// each a view.
    pub(in crate::engine) fn deliver_to_group(
        &mut self,
        to: SocketAddr,
        from: SocketAddr,
        info: DatagramInfo,
        packet: Packet,
        size: Option<usize>,
    ) {
        let Self { udp, ip, .. } = &mut *self;
        let (groups, link) = (&ip.addresses.groups, info.link);
        let found = udp.members(to, |id| groups.admits(link, to.ip(), id, from.ip()));
        let from = on_link(from, link);
        let Some((&last, others)) = found.split_last() else {
            return self.cx.stats.drop(DropReason::UdpNoSocket);
        };
        for &slot in others {
            match self.copy_of(&packet, 0, packet.len()) {
                Ok(copy) => self.deliver_one(slot, (from, info), copy, size),
                Err(_) => self.cx.stats.drop(DropReason::PoolExhausted),
            }
        }
        self.deliver_one(last, (from, info), packet, size);
    }

    fn deliver_one(
        &mut self,
        slot: u32,
        (from, info): (SocketAddr, DatagramInfo),
        mut packet: Packet,
        size: Option<usize>,
    ) {
        let link = self.ip.links[info.link.index()].serial;
        if let Some(size) = size {
            return self.udp_deliver_parts(slot, (from, info), (packet, size), link);
        }
        packet.meta_mut().segmentation = None;
        let datagram = Datagram { from, info, packet };
        match self.udp.deliver(slot, datagram, link, &mut self.cx.account, &mut self.cx.events) {
            Ok(()) => self.cx.stats.udp_rx += 1,
            Err(_) => self.cx.stats.drop(DropReason::UdpQueueFull),
        }
    }
}

impl IpLayer {
    /// Tells the routers of a link, by the packets of IGMP or MLD.
    fn say(&mut self, cx: &mut Context, link: LinkId, say: Say<'_>) {
        let Some(mut packet) = cx.pool.alloc(HEADROOM_BYTES) else {
            return cx.stats.drop(DropReason::PoolExhausted);
        };
        let (dst, len) = match say {
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
            true => self.with_alert_v4(cx, link, dst, packet, len),
            false => self.with_alert_v6(cx, link, dst, packet, len),
        };
        let Some(packet) = packet else { return cx.stats.drop(DropReason::PoolExhausted) };
        let mtu = self.links[link.index()].capabilities.mtu;
        self.send_to_neighbor(cx, NextHop { link, address: dst, mtu }, packet);
    }

    /// RFC 3376, 4: from the link's address, or none where it has none yet (4.2.13).
    fn with_alert_v4(
        &self,
        cx: &mut Context,
        link: LinkId,
        dst: IpAddr,
        packet: Packet,
        len: usize,
    ) -> Option<Packet> {
        let own = self.addresses.of_link(link).map(|own| own.addr).find(IpAddr::is_ipv4);
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
        with_header(&cx.pool, packet, V4_ALERT_LEN, write).ok()
    }

    /// RFC 3810, 5 and 5.2.13: from the link's link-local address, or none where it has none yet.
    fn with_alert_v6(
        &self,
        cx: &mut Context,
        link: LinkId,
        dst: IpAddr,
        mut packet: Packet,
        len: usize,
    ) -> Option<Packet> {
        let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let own = self.addresses.of_link(link).map(|own| own.addr).find(is_local);
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
        with_header(&cx.pool, packet, header_len, write).ok()
    }
}

/// Whether a valid IPv6 header is followed by a hop-by-hop header with Router Alert (RFC 2711, 2.1).
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
