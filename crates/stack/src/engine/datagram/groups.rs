//! Groups that sockets are in: joined, left, sent to, and what comes to them.

use std::net::{IpAddr, SocketAddr};

use millstream_packet::Packet;
use millstream_route::LinkId;
use millstream_wire::ip::{IpHeader, Protocol};

use crate::engine::context::Context;
use crate::engine::datagram::super_datagrams::datagram_size;
use crate::engine::datagram::udp_table::Datagram;
use crate::engine::datagram::udp_table::UdpLayer;
use crate::engine::datagram::{DatagramInfo, Sending, on_link};
use crate::engine::ip::IpLayer;
use crate::engine::ip::reach::IpReach;
use crate::engine::ip::reach::group_filter::GroupFilter;
use crate::engine::ip::reach::reserved::is_no_host;
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::DropReason;

impl UdpLayer {
    /// See [`UdpHandle::join_group`](crate::UdpHandle::join_group).
    pub(in crate::engine) fn join_group(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        id: SocketId,
        group: IpAddr,
        link: Option<LinkId>,
    ) -> Result<(), Error> {
        let group = group.to_canonical();
        let at = reach.group_link(link)?;
        if reach.addresses.groups.filter(at, group, id).is_some() {
            return Err(Error::AddrInUse);
        }
        self.set_group_filter(cx, reach, id, group, Some(at), GroupFilter::ALL)
    }

    /// See [`UdpHandle::leave_group`](crate::UdpHandle::leave_group).
    pub(in crate::engine) fn leave_group(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        id: SocketId,
        group: IpAddr,
        link: Option<LinkId>,
    ) -> Result<(), Error> {
        let group = group.to_canonical();
        self.by_id(id)?;
        let groups = &reach.addresses.groups;
        let link = link.or_else(|| groups.link_of(group, id)).ok_or(Error::AddrNotAvailable)?;
        if groups.filter(link, group, id).is_none() {
            return Err(Error::AddrNotAvailable);
        }
        self.set_group_filter(cx, reach, id, group, Some(link), GroupFilter::NONE)
    }

    /// See [`UdpHandle::set_group_filter`](crate::UdpHandle::set_group_filter).
    pub(in crate::engine) fn set_group_filter(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        id: SocketId,
        group: IpAddr,
        link: Option<LinkId>,
        filter: GroupFilter,
    ) -> Result<(), Error> {
        let group = group.to_canonical();
        let socket = self.by_id(id)?;
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
        let link = reach.group_link(link)?;
        if !reach.addresses.groups.set(cx.now, link, group, id, filter.sorted()) {
            return Err(Error::Limit("groups"));
        }
        // Datagrams may go to others from cx.now on.
        self.flows.forget(None);
        Ok(())
    }

    /// See [`UdpHandle::set_group_link`](crate::UdpHandle::set_group_link).
    pub(in crate::engine) fn set_group_link(
        &mut self,
        reach: &mut IpReach,
        id: SocketId,
        link: Option<LinkId>,
    ) -> Result<(), Error> {
        if let Some(link) = link {
            reach.links.check(link)?;
        }
        let serial = link.map(|link| reach.links[link.index()].serial);
        self.by_id(id)?.group_link = serial;
        Ok(())
    }

    /// Sends a datagram to a group, and to the sockets here that have joined it.
    pub(in crate::engine) fn send_to_group(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        sending: Sending,
    ) -> Result<(), Error> {
        let Sending { id, packet, remote, named, options } = sending;
        let socket = self.by_id(id)?;
        let (port, last, loops) = (socket.local.port(), socket.scope, socket.group_loop);
        let local = options.from.unwrap_or(socket.local.ip());
        // A link that is over leaves the choice to the engine.
        let chosen = socket.group_link.filter(|&chosen| ip.reach.links.by_serial(chosen).is_some());
        let marks = options.marks(socket.marks(remote.ip()));
        let named = named.or(chosen).or_else(|| ip.reach.datagram_scope(local, remote.ip(), last));
        let hop = ip.reach.next_hop(remote.ip(), named);
        let groups = &ip.reach.addresses.groups;
        let Some(hop) = hop.filter(|hop| loops && groups.has(hop.link, remote.ip())) else {
            let sending = Sending { id, packet, remote, named, options };
            return self.send_uncached(cx, ip, sending);
        };
        // Each part of a super-segment is sent, and comes back, by itself.
        if let Some(size) = datagram_size(&packet) {
            let remote = on_link(remote, hop.link);
            return self.send_parts(cx, ip, id, (&packet, size), remote, &options);
        }
        let source = match local {
            any if any.is_unspecified() => {
                ip.reach.addresses.source(hop.link, hop.address, remote.ip())
            }
            ip => Some(ip),
        };
        let copy = self.copy_of(cx, &packet, 0, packet.len());
        self.send_uncached(cx, ip, Sending { id, packet, remote, named, options })?;
        match (source, copy) {
            (Some(source), Ok(copy)) => {
                let mut header = IpHeader::new(source, remote.ip(), Protocol::UDP, 0);
                marks.write(&mut header);
                let info = DatagramInfo::new(&header, hop.link);
                let from = SocketAddr::new(source, port);
                self.deliver_to_group(cx, &ip.reach, (remote, from), info, copy, None);
            }
            _ => cx.stats.drop(DropReason::PoolExhausted),
        }
        Ok(())
    }

    /// Gives a datagram's data, or those of `size` bytes each, to the sockets of its port that have
    /// joined the group, to each a view.
    pub(in crate::engine) fn deliver_to_group(
        &mut self,
        cx: &mut Context,
        reach: &IpReach,
        (to, from): (SocketAddr, SocketAddr),
        info: DatagramInfo,
        packet: Packet,
        size: Option<usize>,
    ) {
        let (groups, link) = (&reach.addresses.groups, info.link);
        let found = self.members(to, |id| groups.admits(link, to.ip(), id, from.ip()));
        let from = on_link(from, link);
        let Some((&last, others)) = found.split_last() else {
            return cx.stats.drop(DropReason::UdpNoSocket);
        };
        for &slot in others {
            match self.copy_of(cx, &packet, 0, packet.len()) {
                Ok(copy) => self.deliver_one(cx, reach, slot, (from, info), copy, size),
                Err(_) => cx.stats.drop(DropReason::PoolExhausted),
            }
        }
        self.deliver_one(cx, reach, last, (from, info), packet, size);
    }

    fn deliver_one(
        &mut self,
        cx: &mut Context,
        reach: &IpReach,
        slot: u32,
        (from, info): (SocketAddr, DatagramInfo),
        mut packet: Packet,
        size: Option<usize>,
    ) {
        let link = reach.links[info.link.index()].serial;
        if let Some(size) = size {
            return self.deliver_parts(cx, slot, (from, info), (packet, size), link);
        }
        packet.meta_mut().segmentation = None;
        let datagram = Datagram { from, info, packet };
        match self.deliver(slot, datagram, link, &mut cx.account, &mut cx.events) {
            Ok(()) => cx.stats.udp_rx += 1,
            Err(_) => cx.stats.drop(DropReason::UdpQueueFull),
        }
    }
}
