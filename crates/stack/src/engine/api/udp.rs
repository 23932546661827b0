//! Calls on UDP sockets.

use std::net::{IpAddr, SocketAddr};

use millstream_packet::Packet;
use millstream_route::LinkId;

use crate::engine::Engine;
use crate::engine::{
    DatagramInfo, DatagramToSend, Fragmentation, GroupFilter, ReceivedDatagram, SendOptions,
};
use crate::error::Error;
use crate::socket::SocketId;

impl Engine {
    /// As [`udp_send`](Self::udp_send), by `options` where they say something. Its headers are built anew each time.
    ///
    /// # Errors
    /// Also [`Error::AddrNotAvailable`] for a source that is not the engine's, and [`Error::Invalid`] for one of the other
    /// version of IP, for a hop limit of 0 and for a link that is not in use; [`Error::NetworkUnreachable`] where the routes
    /// lead to another link.
    pub fn udp_send_with(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        self.udp.send_with(&mut self.cx, &mut self.ip, id, data, to, options)
    }

    /// As [`udp_send_packet`](Self::udp_send_packet), by `options` as [`udp_send_with`](Self::udp_send_with).
    pub fn udp_send_packet_with(
        &mut self,
        id: SocketId,
        packet: Packet,
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        self.udp.send_packet_with(&mut self.cx, &mut self.ip, id, packet, to, options)
    }

    /// As [`udp_recv`](Self::udp_recv), with what is known of the datagram.
    pub fn udp_recv_with_info(
        &mut self,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr, DatagramInfo), Error> {
        self.udp.recv_with_info(&mut self.cx, id, buffer)
    }

    /// As [`udp_recv_packet`](Self::udp_recv_packet), with what is known of the datagram.
    pub fn udp_recv_packet_with_info(
        &mut self,
        id: SocketId,
    ) -> Result<(Packet, SocketAddr, DatagramInfo), Error> {
        self.udp.recv_packet_with_info(&mut self.cx, id)
    }

    /// Sends a copy of each datagram in `list`, in order, as [`Engine::udp_send`] does; how many, which is fewer than
    /// there are when one could not be sent. A run to the same peer looks its route up once. What the link's queue has no
    /// room for is handed to the link at once; the rest leaves at the end of the turn.
    ///
    /// # Errors
    /// As [`Engine::udp_send`], of the first datagram. That of a later one is told by the call that begins with it.
    pub fn udp_send_many(
        &mut self,
        id: SocketId,
        list: &[DatagramToSend<'_>],
    ) -> Result<usize, Error> {
        self.udp.send_many(&mut self.cx, &mut self.ip, id, list)
    }

    /// Opens a UDP socket. Port 0 asks for a free ephemeral one; an unspecified address takes datagrams
    /// for any own address, the IPv6 one those of IPv4 as well.
    pub fn udp_bind(&mut self, addr: SocketAddr) -> Result<SocketId, Error> {
        self.udp.open(&mut self.cx, &mut self.ip, addr)
    }

    /// The same for an address that other sockets have which were opened so, too (as with SO_REUSEADDR in Linux): 64 on a
    /// port. Each of them gets the datagrams to a group that it has joined; those to the engine itself the one that was
    /// opened last.
    ///
    /// # Errors
    /// As [`udp_bind`](Self::udp_bind); also [`Error::Limit`] when as many have the port.
    pub fn udp_bind_shared(&mut self, addr: SocketAddr) -> Result<SocketId, Error> {
        self.udp.open_shared(&mut self.cx, &mut self.ip, addr)
    }

    pub(crate) fn udp_bind_as(
        &mut self,
        addr: SocketAddr,
        shared: bool,
    ) -> Result<SocketId, Error> {
        self.udp.open_as(&mut self.cx, &mut self.ip, addr, shared)
    }

    /// Fixes the peer: datagrams of others are not for this socket any more, and ICMP errors are told.
    pub fn udp_connect(&mut self, id: SocketId, remote: SocketAddr) -> Result<(), Error> {
        self.udp.set_peer(&mut self.ip, id, remote)
    }

    /// The socket's own address, and its peer's when it is connected.
    pub fn udp_addresses(
        &mut self,
        id: SocketId,
    ) -> Result<(SocketAddr, Option<SocketAddr>), Error> {
        self.udp.by_id(id).map(|socket| (socket.local, socket.remote))
    }

    /// The hop limit (TTL) of what the socket sends to one host, 64 at first, and to groups, 1 at first (RFC 1112 section
    /// 6.1, RFC 3493 section 5.2), where that is set. [`Error::Invalid`] for 0: what goes nowhere has nobody here.
    pub fn udp_set_hop_limits(
        &mut self,
        id: SocketId,
        to_hosts: Option<u8>,
        to_groups: Option<u8>,
    ) -> Result<(), Error> {
        self.udp.by_id(id)?.set_hop_limits(to_hosts, to_groups)
    }

    /// Who may cut what the socket sends: the engine alone, where nothing else is said. Super-segments
    /// ([`udp_send_segmented`](Self::udp_send_segmented)) are never fragmented.
    pub fn udp_set_fragmentation(
        &mut self,
        id: SocketId,
        fragmentation: Fragmentation,
    ) -> Result<(), Error> {
        self.udp.by_id(id)?.set_fragmentation(fragmentation);
        Ok(())
    }

    /// What the socket's datagrams have in the traffic class field (`IP_TOS`, `IPV6_TCLASS`), 0 at first: differentiated
    /// services in the upper six bits (RFC 2474), ECN in the lower two (RFC 3168).
    pub fn udp_set_traffic_class(&mut self, id: SocketId, class: u8) -> Result<(), Error> {
        self.udp.by_id(id)?.set_traffic_class(class);
        Ok(())
    }

    /// Whether the socket may send to broadcast addresses, 255.255.255.255 and those of the links' networks
    /// (`SO_BROADCAST`); at first it may not, and is refused with [`Error::Broadcast`].
    pub fn udp_set_broadcast(&mut self, id: SocketId, may: bool) -> Result<(), Error> {
        self.udp.by_id(id)?.set_broadcast(may);
        Ok(())
    }

    /// The hop limits of what the socket sends to one host, and to groups.
    pub fn udp_hop_limits(&mut self, id: SocketId) -> Result<[u8; 2], Error> {
        Ok(self.udp.by_id(id)?.hop_limits)
    }

    /// Sends a datagram with a copy of `data`; `None` sends to the connected peer. It leaves at the end
    /// of the turn. Datagrams longer than the MTU to their peer (link, route, or what a router said of the path,
    /// [`Engine::path_mtu`]) are sent in fragments, unless the socket has
    /// [`Fragmentation::Never`](Engine::udp_set_fragmentation): then they are refused with [`Error::MessageTooLong`], as
    /// are those longer than 65,507 bytes over IPv4, 65,527 over IPv6. A writable event follows
    /// [`Error::WouldBlock`], which says that the link's queue has no room.
    pub fn udp_send(
        &mut self,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        self.udp.send(&mut self.cx, &mut self.ip, id, data, to)
    }

    /// What the next call on the socket would fail with, once.
    pub(crate) fn udp_take_error(&mut self, id: SocketId) -> Option<Error> {
        self.udp.by_id(id).ok()?.error.take()
    }

    /// Sends a packet's bytes as a datagram, without copying them; as several where its
    /// [`Meta::segmentation`](millstream_packet::Meta) is that of UDP, see
    /// [`udp_send_segmented`](Self::udp_send_segmented).
    pub fn udp_send_packet(
        &mut self,
        id: SocketId,
        packet: Packet,
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        self.udp.send_packet(&mut self.cx, &mut self.ip, id, packet, to)
    }

    /// Copies the next datagram into `buffer` and tells its length and sender. What does not fit is lost,
    /// as with `recvfrom`.
    pub fn udp_recv(
        &mut self,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr), Error> {
        self.udp.recv(&mut self.cx, id, buffer)
    }

    /// Copies the datagrams that wait into `buffer`, one behind the other, as many as it has room for, and lists them
    /// in `list`, which is cleared before; how many those are. One that is longer than all of `buffer` is cut, as by
    /// [`Engine::udp_recv`]; another for which no room is left stays.
    ///
    /// # Errors
    /// As [`Engine::udp_recv`]: [`Error::WouldBlock`] when none waits.
    pub fn udp_recv_many(
        &mut self,
        id: SocketId,
        buffer: &mut [u8],
        list: &mut Vec<ReceivedDatagram>,
    ) -> Result<usize, Error> {
        self.udp.recv_many(&mut self.cx, id, buffer, list)
    }

    /// The next datagram as it came, and its sender.
    pub fn udp_recv_packet(&mut self, id: SocketId) -> Result<(Packet, SocketAddr), Error> {
        self.udp.recv_packet(&mut self.cx, id)
    }

    /// Sets how much memory the socket's received datagrams may hold.
    pub fn udp_set_limit(&mut self, id: SocketId, limit_bytes: usize) -> Result<(), Error> {
        self.udp.by_id(id)?.limit_bytes = limit_bytes;
        Ok(())
    }

    /// Sends a copy of `data` as datagrams of `size` bytes each, of which the last may be shorter: as one packet over a
    /// link that cuts it itself, else one by one. `None` sends to the connected peer. They leave at the end of the
    /// turn; those that find no room on the link are dropped and counted.
    ///
    /// # Errors
    /// As [`udp_send`](Self::udp_send), and when `data` is more than 65,507 bytes, or `size` is 0; then none is sent.
    pub fn udp_send_segmented(
        &mut self,
        id: SocketId,
        data: &[u8],
        size: u16,
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        self.udp.send_segmented(&mut self.cx, &mut self.ip, id, data, size, to)
    }

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
        self.udp.join_group(&mut self.cx, &mut self.ip, id, group, link)
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
        self.udp.leave_group(&mut self.cx, &mut self.ip, id, group, link)
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
        self.udp.set_group_filter(&mut self.cx, &mut self.ip, id, group, link, filter)
    }

    /// The link by which the socket sends to groups (`IP_MULTICAST_IF`); none: that of the address it is bound to, of what
    /// it received last, or the first in use. An address that names a link goes before. [`Error::Invalid`] for a link
    /// that is not in use.
    pub fn udp_set_group_link(&mut self, id: SocketId, link: Option<LinkId>) -> Result<(), Error> {
        self.udp.set_group_link(&mut self.ip, id, link)
    }

    /// Whether sockets of this engine get what the socket sends to groups that they have joined on the link it leaves by
    /// (`IP_MULTICAST_LOOP`, but of the sender, as on Linux), itself among them; at first they do.
    pub fn udp_set_group_loop(&mut self, id: SocketId, loops: bool) -> Result<(), Error> {
        self.udp.by_id(id)?.group_loop = loops;
        Ok(())
    }

    /// Counts what a caller lost who cannot wait for room.
    pub(crate) fn count_drop(&mut self, reason: crate::DropReason) {
        self.cx.stats.drop(reason);
    }
}
