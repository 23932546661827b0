//! UDP in the style of `std::net`, in the engine's thread.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream_packet::Packet;
use millstream_route::LinkId;

use super::Stack;
use super::mode::Modes;
use crate::{
    DatagramInfo, DatagramToSend, Error, Fragmentation, GroupFilter, ReceivedDatagram, SendOptions,
    SocketId,
};

/// A UDP socket.
pub struct UdpSocket {
    stack: Stack,
    id: SocketId,
    read_mode: Modes,
    write_mode: Modes,
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpSocket").field("id", &self.id).finish_non_exhaustive()
    }
}

impl UdpSocket {
    /// Opens a socket on `addr`; see [`crate::SocketsHandle::udp_bind`].
    pub fn bind(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        let id = stack.engine().sockets().udp_bind(addr)?;
        Ok(Self::with_id(stack, id))
    }

    /// The same on an address that it shares with others; see
    /// [`crate::SocketsHandle::udp_bind_shared`].
    pub fn bind_shared(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        let id = stack.engine().sockets().udp_bind_shared(addr)?;
        Ok(Self::with_id(stack, id))
    }

    fn with_id(stack: &Stack, id: SocketId) -> Self {
        let (read_mode, write_mode) = Default::default();
        Self { stack: stack.clone(), id, read_mode, write_mode }
    }

    /// Fixes the peer for [`UdpSocket::send`]; datagrams of others are not received any more.
    pub fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).connect(addr)?)
    }

    fn transmit(&self, data: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        self.stack.block(self.write_mode.get(), self.id, |engine| {
            engine.refresh_time();
            engine.udp(self.id).send(data, to)?;
            engine.flush();
            Ok(data.len())
        })
    }

    /// Sends a datagram to `addr`.
    pub fn send_to(&self, data: &[u8], addr: SocketAddr) -> io::Result<usize> {
        self.transmit(data, Some(addr))
    }

    /// Sends a datagram to the connected peer.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.transmit(data, None)
    }

    /// Sends `data` to `addr` as datagrams of `size` bytes each, see
    /// [`UdpHandle::send_segmented`](crate::UdpHandle::send_segmented).
    pub fn send_segmented_to(&self, data: &[u8], size: u16, addr: SocketAddr) -> io::Result<usize> {
        self.stack.block(self.write_mode.get(), self.id, |engine| {
            engine.refresh_time();
            engine.udp(self.id).send_segmented(data, size, Some(addr))?;
            engine.flush();
            Ok(data.len())
        })
    }

    /// Sends the datagrams of `list` in order, see
    /// [`UdpHandle::send_many`](crate::UdpHandle::send_many). How many were sent: one at least,
    /// unless there is none.
    pub fn send_many(&self, list: &[DatagramToSend<'_>]) -> io::Result<usize> {
        self.stack.block(self.write_mode.get(), self.id, |engine| {
            engine.refresh_time();
            let sent = engine.udp(self.id).send_many(list);
            engine.flush();
            sent
        })
    }

    /// Sends a datagram to `to`, or to the connected peer, by `options` where they say something;
    /// see
    /// [`UdpHandle::send_with`](crate::UdpHandle::send_with).
    pub fn send_with(
        &self,
        data: &[u8],
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> io::Result<usize> {
        self.stack.block(self.write_mode.get(), self.id, |engine| {
            engine.refresh_time();
            engine.udp(self.id).send_with(data, to, options)?;
            engine.flush();
            Ok(data.len())
        })
    }

    /// The next datagram, cut to `buffer`, who sent it, and what its headers and its link say of
    /// it.
    pub fn recv_with_info(
        &self,
        buffer: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, DatagramInfo)> {
        self.stack.block(self.read_mode.get(), self.id, |engine| {
            engine.udp(self.id).recv_with_info(buffer)
        })
    }

    /// The next datagram as it came, and who sent it.
    pub fn recv_packet(&self) -> io::Result<(Packet, SocketAddr)> {
        self.stack.block(self.read_mode.get(), self.id, |engine| engine.udp(self.id).recv_packet())
    }

    /// The next datagram, cut to `buffer`, and who sent it.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.stack.block(self.read_mode.get(), self.id, |engine| engine.udp(self.id).recv(buffer))
    }

    /// As many datagrams as wait and have room in `buffer`, one behind the other, listed in `list`;
    /// see
    /// [`UdpHandle::recv_many`](crate::UdpHandle::recv_many). How many there are: one at least.
    pub fn recv_many(
        &self,
        buffer: &mut [u8],
        list: &mut Vec<ReceivedDatagram>,
    ) -> io::Result<usize> {
        self.stack.recv_many(self.read_mode.get(), self.id, buffer, list)
    }

    /// The next datagram, cut to `buffer`.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buffer).map(|(len, _)| len)
    }

    /// Its own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.stack.engine().udp(self.id).addresses()?.0)
    }

    /// The address of the connected peer; [`NotConnected`](io::ErrorKind::NotConnected) without
    /// one.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.stack.engine().udp(self.id).addresses()?.1.ok_or(Error::NotConnected)?)
    }

    /// The hop limit (TTL) of what it sends to one host, 64 at first, and to groups, 1 at first,
    /// where that is given; not 0
    /// ([`UdpHandle::set_hop_limits`](crate::UdpHandle::set_hop_limits)).
    pub fn set_hop_limits(&self, to_hosts: Option<u8>, to_groups: Option<u8>) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).set_hop_limits(to_hosts, to_groups)?)
    }

    /// The traffic class of what it sends; see
    /// [`UdpHandle::set_traffic_class`](crate::UdpHandle::set_traffic_class).
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).set_traffic_class(class)?)
    }

    /// Allows it to send to broadcast addresses, or not; see
    /// [`UdpHandle::set_broadcast`](crate::UdpHandle::set_broadcast).
    pub fn set_broadcast(&self, may: bool) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).set_broadcast(may)?)
    }

    /// Sets who may fragment its datagrams; see
    /// [`UdpHandle::set_fragmentation`](crate::UdpHandle::set_fragmentation).
    pub fn set_fragmentation(&self, fragmentation: Fragmentation) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).set_fragmentation(fragmentation)?)
    }

    /// Gets what is sent to a group on a link; see
    /// [`UdpHandle::join_group`](crate::UdpHandle::join_group).
    pub fn join_group(&self, group: IpAddr, link: Option<LinkId>) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).join_group(group, link)?)
    }

    /// Gets it no more; see [`UdpHandle::leave_group`](crate::UdpHandle::leave_group).
    pub fn leave_group(&self, group: IpAddr, link: Option<LinkId>) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).leave_group(group, link)?)
    }

    /// From which sources it gets what is sent to a group; see
    /// [`UdpHandle::set_group_filter`](crate::UdpHandle::set_group_filter).
    pub fn set_group_filter(
        &self,
        group: IpAddr,
        link: Option<LinkId>,
        filter: GroupFilter,
    ) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).set_group_filter(group, link, filter)?)
    }

    /// By which link it sends to groups; see
    /// [`UdpHandle::set_group_link`](crate::UdpHandle::set_group_link).
    pub fn set_group_link(&self, link: Option<LinkId>) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).set_group_link(link)?)
    }

    /// Lets sockets of this engine get what it sends to their groups, or not; see
    /// [`UdpHandle::set_group_loop`](crate::UdpHandle::set_group_loop).
    pub fn set_group_loop(&self, loops: bool) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).set_group_loop(loops)?)
    }

    /// Makes calls return at once, with `WouldBlock`, instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.read_mode.set_nonblocking(nonblocking);
        self.write_mode.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Sets the longest time that a receive waits before it fails with `WouldBlock`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_mode.set_timeout(timeout)
    }

    /// Returns the longest time that a receive waits.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.read_mode.get().timeout)
    }

    /// Sets the longest time that a send waits for room on the link. Then it fails with
    /// `WouldBlock`, and nothing was sent.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_mode.set_timeout(timeout)
    }

    /// Returns the longest time that a send waits.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.write_mode.get().timeout)
    }

    /// The error of a datagram that was sent before, if no other call has told it yet.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.stack.engine().udp(self.id).take_error().map(io::Error::from))
    }

    /// Sets the memory in bytes that received datagrams may hold.
    pub fn set_receive_limit(&self, limit_bytes: usize) -> io::Result<()> {
        Ok(self.stack.engine().udp(self.id).set_limit(limit_bytes)?)
    }

    /// Its name in events.
    pub fn id(&self) -> SocketId {
        self.id
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.stack.let_go(self.id);
    }
}
