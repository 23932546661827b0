//! Calls on UDP sockets.

use std::net::{IpAddr, SocketAddr};

use millstream_packet::Packet;
use millstream_route::LinkId;

use crate::engine::Engine;
use crate::engine::{
    DatagramInfo, DatagramToSend, Fragmentation, GroupFilter, ReceivedDatagram, SendOptions,
    UdpSocketOptions,
};
use crate::error::Error;
use crate::socket::SocketId;

/// A UDP socket of an engine ([`Engine::udp`](crate::Engine::udp)).
#[derive(Debug)]
pub struct UdpHandle<'a> {
    pub(in crate::engine) engine: &'a mut Engine,
    pub(in crate::engine) id: SocketId,
}

impl UdpHandle<'_> {
    /// Counts a datagram that a caller lost who cannot wait for room.
    pub(crate) fn count_drop(&mut self, reason: crate::DropReason) {
        self.engine.cx.stats.drop(reason);
    }

    /// Sends as [`UdpHandle::send`](crate::UdpHandle::send) does, by those `options` that are set.
    /// Its headers are built anew each time.
    ///
    /// # Errors
    /// Also [`Error::AddrNotAvailable`] for a source that is not the engine's, and
    /// [`Error::Invalid`] for one of the other version of IP, for a hop limit of 0 and for a link
    /// that is not in use; [`Error::NetworkUnreachable`] where the routes lead to another link.
    pub fn send_with(
        &mut self,
        data: &[u8],
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        let Engine { udp, cx, ip, .. } = &mut *self.engine;
        udp.send_with(cx, ip, self.id, data, to, options)
    }

    /// Sends as [`UdpHandle::send_packet`](crate::UdpHandle::send_packet) does, by `options` as
    /// [`UdpHandle::send_with`](crate::UdpHandle::send_with).
    pub fn send_packet_with(
        &mut self,
        packet: Packet,
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        let Engine { udp, cx, ip, .. } = &mut *self.engine;
        udp.send_packet_with(cx, ip, self.id, packet, to, options)
    }

    /// Receives as [`UdpHandle::recv`](crate::UdpHandle::recv) does, with information about the
    /// datagram.
    pub fn recv_with_info(
        &mut self,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr, DatagramInfo), Error> {
        self.engine.udp.recv_with_info(&mut self.engine.cx, self.id, buffer)
    }

    /// Receives as [`UdpHandle::recv_packet`](crate::UdpHandle::recv_packet) does, with information
    /// about the datagram.
    pub fn recv_packet_with_info(&mut self) -> Result<(Packet, SocketAddr, DatagramInfo), Error> {
        self.engine.udp.recv_packet_with_info(&mut self.engine.cx, self.id)
    }

    /// Sends a copy of each datagram in `list`, in order, as
    /// [`UdpHandle::send`](crate::UdpHandle::send) does. Returns how many it has sent: fewer than
    /// there are when one could not be sent. A run to the same peer looks its route up once. When
    /// the link's queue is full, its packets are handed to the link at once; the rest leaves at the
    /// end of the turn.
    ///
    /// # Errors
    /// As [`UdpHandle::send`](crate::UdpHandle::send), of the first datagram. The error of a later
    /// one is returned by the call that begins with it.
    pub fn send_many(&mut self, list: &[DatagramToSend<'_>]) -> Result<usize, Error> {
        self.engine.udp.send_many(&mut self.engine.cx, &mut self.engine.ip, self.id, list)
    }

    /// Fixes the peer: datagrams of others are not for this socket any more, and ICMP errors are
    /// reported.
    pub fn connect(&mut self, remote: SocketAddr) -> Result<(), Error> {
        self.engine.udp.set_peer(&self.engine.ip.reach, self.id, remote)
    }

    /// The socket's own address, and its peer's when it is connected.
    pub fn addresses(&mut self) -> Result<(SocketAddr, Option<SocketAddr>), Error> {
        self.engine.udp.by_id(self.id).map(|socket| (socket.local, socket.remote))
    }

    /// Sets the hop limit (TTL) of datagrams to one host, 64 at first, and to groups, 1 at first
    /// (RFC 1112 section 6.1, RFC 3493 section 5.2); `None` leaves it. [`Error::Invalid`] for 0:
    /// such a datagram reaches nobody.
    pub fn set_hop_limits(
        &mut self,
        to_hosts: Option<u8>,
        to_groups: Option<u8>,
    ) -> Result<(), Error> {
        self.engine.udp.by_id(self.id)?.set_hop_limits(to_hosts, to_groups)
    }

    /// Sets who may fragment the socket's datagrams; at first the engine alone. Super-segments
    /// ([`UdpHandle::send_segmented`](crate::UdpHandle::send_segmented)) are never fragmented.
    pub fn set_fragmentation(&mut self, fragmentation: Fragmentation) -> Result<(), Error> {
        self.engine.udp.by_id(self.id)?.set_fragmentation(fragmentation);
        Ok(())
    }

    /// Sets the traffic class field of the socket's datagrams (`IP_TOS`, `IPV6_TCLASS`), 0 at
    /// first: differentiated services in the upper six bits (RFC 2474), ECN in the lower two (RFC
    /// 3168).
    pub fn set_traffic_class(&mut self, class: u8) -> Result<(), Error> {
        self.engine.udp.by_id(self.id)?.set_traffic_class(class);
        Ok(())
    }

    /// Allows the socket to send to broadcast addresses, 255.255.255.255 and those of the links'
    /// networks (`SO_BROADCAST`), or not. At first it may not: a send fails with
    /// [`Error::Broadcast`].
    pub fn set_broadcast(&mut self, may: bool) -> Result<(), Error> {
        self.engine.udp.by_id(self.id)?.set_broadcast(may);
        Ok(())
    }

    /// Returns the socket's options as they are.
    pub fn options(&mut self) -> Result<UdpSocketOptions, Error> {
        self.engine.udp.options(&self.engine.ip.reach, self.id)
    }

    /// Sets the socket's options; all or, with an error, none. Each also has a call of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a hop limit of 0, and for a link that is not in use.
    pub fn set_options(&mut self, options: &UdpSocketOptions) -> Result<(), Error> {
        self.engine.udp.set_options(&mut self.engine.ip.reach, self.id, options)
    }

    /// Sends a datagram with a copy of `data`; `None` sends to the connected peer. It leaves at the
    /// end of the turn. Datagrams longer than the MTU to their peer (link, route, or what a router
    /// said of the path,
    /// [`Inspect::path_mtu`](crate::Inspect::path_mtu)) are sent in fragments, unless the socket has
    /// [`Fragmentation::Never`](Self::set_fragmentation): then they are refused with [`Error::MessageTooLong`], as
    /// are those longer than 65,507 bytes over IPv4, 65,527 over IPv6. A writable event follows
    /// [`Error::WouldBlock`], which says that the link's queue has no room.
    pub fn send(&mut self, data: &[u8], to: Option<SocketAddr>) -> Result<(), Error> {
        self.engine.udp.send(&mut self.engine.cx, &mut self.engine.ip, self.id, data, to)
    }

    /// Takes the error that the next call on the socket would fail with.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.engine.udp.by_id(self.id).ok()?.error.take()
    }

    /// Sends a packet's bytes as a datagram, without copying them; as several where its
    /// [`Meta::segmentation`](millstream_packet::Meta) is that of UDP, see
    /// [`UdpHandle::send_segmented`](crate::UdpHandle::send_segmented).
    pub fn send_packet(&mut self, packet: Packet, to: Option<SocketAddr>) -> Result<(), Error> {
        self.engine.udp.send_packet(&mut self.engine.cx, &mut self.engine.ip, self.id, packet, to)
    }

    /// Copies the next datagram into `buffer` and returns its length and sender. Bytes that do not
    /// fit are lost, as with `recvfrom`.
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        self.engine.udp.recv(&mut self.engine.cx, self.id, buffer)
    }

    /// Copies waiting datagrams into `buffer`, one behind the other, as many as it has room for,
    /// and lists them in `list`, which is cleared before. Returns their number. A datagram longer
    /// than all of `buffer` is cut, as by [`UdpHandle::recv`](crate::UdpHandle::recv); another that
    /// finds no room left stays.
    ///
    /// # Errors
    /// As [`UdpHandle::recv`](crate::UdpHandle::recv): [`Error::WouldBlock`] when none waits.
    pub fn recv_many(
        &mut self,
        buffer: &mut [u8],
        list: &mut Vec<ReceivedDatagram>,
    ) -> Result<usize, Error> {
        self.engine.udp.recv_many(&mut self.engine.cx, self.id, buffer, list)
    }

    /// Returns the next datagram as it came, and its sender.
    pub fn recv_packet(&mut self) -> Result<(Packet, SocketAddr), Error> {
        self.engine.udp.recv_packet(&mut self.engine.cx, self.id)
    }

    /// Sets how much memory the socket's received datagrams may hold.
    pub fn set_limit(&mut self, limit_bytes: usize) -> Result<(), Error> {
        self.engine.udp.by_id(self.id)?.limit_bytes = limit_bytes;
        Ok(())
    }

    /// Sends a copy of `data` as datagrams of `size` bytes each, of which the last may be shorter:
    /// as one packet over a link that cuts it itself, else one by one. `None` sends to the
    /// connected peer. They leave at the end of the turn; those that find no room on the link are
    /// dropped and counted.
    ///
    /// # Errors
    /// As [`UdpHandle::send`](crate::UdpHandle::send), and when `data` is more than 65,507 bytes,
    /// or `size` is 0; then none is sent.
    pub fn send_segmented(
        &mut self,
        data: &[u8],
        size: u16,
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let Engine { udp, cx, ip, .. } = &mut *self.engine;
        udp.send_segmented(cx, ip, self.id, data, size, to)
    }

    /// Joins a group: a socket that is bound to any address gets datagrams to `group` on a link,
    /// from all sources; without a link on the first in use. Multicast routers there are told
    /// (IGMPv3, MLDv2, or the version they speak). Datagrams to a group go to those sockets of
    /// their port that have joined it, to each of them.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] when it is in the group; else as
    /// [`UdpHandle::set_group_filter`](crate::UdpHandle::set_group_filter).
    pub fn join_group(&mut self, group: IpAddr, link: Option<LinkId>) -> Result<(), Error> {
        let Engine { udp, cx, ip, .. } = &mut *self.engine;
        udp.join_group(cx, &mut ip.reach, self.id, group, link)
    }

    /// Leaves a group that [`UdpHandle::join_group`](crate::UdpHandle::join_group) joined; without
    /// a link on the first where the socket is in the group. Closing a socket does it, too.
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when it is not in the group there.
    pub fn leave_group(&mut self, group: IpAddr, link: Option<LinkId>) -> Result<(), Error> {
        let Engine { udp, cx, ip, .. } = &mut *self.engine;
        udp.leave_group(cx, &mut ip.reach, self.id, group, link)
    }

    /// Sets the sources of `group` on a link from which a socket that is bound to any address gets
    /// datagrams (RFC 3678, 4.2.1); without a link on the first in use. By that the socket joins
    /// the group, leaves it, or changes its sources.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that is no group, or not of the socket's version of IP,
    /// for sources that are not of the group's version or that no host has, for a socket with an
    /// address of its own, and for a link that is not in use; [`Error::Limit`] beyond
    /// [`Limits::groups`](crate::Limits::groups), and for more than 64 sources that this socket
    /// names, or that all sockets on the link together make of the group;
    /// [`Error::NetworkUnreachable`] without a link. On an error nothing has changed.
    pub fn set_group_filter(
        &mut self,
        group: IpAddr,
        link: Option<LinkId>,
        filter: GroupFilter,
    ) -> Result<(), Error> {
        let Engine { udp, cx, ip, .. } = &mut *self.engine;
        udp.set_group_filter(cx, &mut ip.reach, self.id, group, link, filter)
    }

    /// Sets the link by which the socket sends to groups (`IP_MULTICAST_IF`). Without one it is the
    /// link of the address that the socket is bound to, of the datagram that it received last, or
    /// the first in use. An address that names a link goes before. [`Error::Invalid`] for a link
    /// that is not in use.
    pub fn set_group_link(&mut self, link: Option<LinkId>) -> Result<(), Error> {
        self.engine.udp.set_group_link(&mut self.engine.ip.reach, self.id, link)
    }

    /// Lets sockets of this engine get datagrams that the socket sends to groups that they have
    /// joined on the link these leave by, itself among them, or not. This is `IP_MULTICAST_LOOP`,
    /// but of the sender, as on Linux; on at first.
    pub fn set_group_loop(&mut self, loops: bool) -> Result<(), Error> {
        self.engine.udp.by_id(self.id)?.group_loop = loops;
        Ok(())
    }
}
