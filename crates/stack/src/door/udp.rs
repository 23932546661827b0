//! UDP sockets in the style of `std::net`.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use millstream_packet::Packet;
use millstream_route::LinkId;

use super::driver::{How, UdpDriver};
use super::with_each;
use crate::{
    DatagramInfo, DatagramToSend, Error, Fragmentation, GroupFilter, ReceivedDatagram, SendOptions,
    SocketId, UdpHandle, UdpSocketOptions,
};

/// A UDP socket. Sending never waits for the network. An error of a datagram that was sent, or that
/// the peer's host reported, is returned by the next call, once. Settings hold for datagrams sent
/// after the call.
///
/// In [`local`](crate::local) a send waits while the link has no room. In [`net`](crate::net) it
/// waits for room in the ring to the engine alone: a datagram that finds none on the link is lost,
/// and counted; and options that are invalid are reported by a later call.
///
/// When links have failed, or were removed, and none leads to the connected peer any more, or none
/// is left, a receive that has to wait fails with [`NetworkDown`](io::ErrorKind::NetworkDown): in
/// [`net`](crate::net) once.
///
/// ```
/// use millstream::local::UdpSocket;
///
/// # use millstream::link::Faults;
/// # use millstream::sim::Simulation;
/// # fn main() -> std::io::Result<()> {
/// # let simulation = Simulation::new(7)?;
/// # let (near, far) = (simulation.host()?, simulation.host()?);
/// # simulation.join((&near, "10.0.0.1/24"), (&far, "10.0.0.2/24"), Faults::default())?;
///
/// let server = UdpSocket::bind(&far, "10.0.0.2:53")?;
/// let client = UdpSocket::bind(&near, "10.0.0.1:0")?;
/// client.send_to(b"a question", "10.0.0.2:53")?;
/// let mut bytes = [0; 64];
/// let (length, from) = server.recv_from(&mut bytes)?;
/// assert_eq!((&bytes[..length], from), (&b"a question"[..], client.local_addr()?));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UdpSocket<D: UdpDriver> {
    pub(crate) socket: Arc<D>,
}

impl<D: UdpDriver> UdpSocket<D> {
    /// Opens a socket on `addr`; see [`crate::SocketsHandle::udp_bind`]. Fails with `AddrInUse`,
    /// with `AddrNotAvailable` where the address is not the engine's, and with `QuotaExceeded` at a
    /// bound of [`Limits`](crate::Limits).
    pub fn bind(stack: &D::Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let socket =
            with_each(addr, |addr| D::open(stack, move |engine| engine.sockets().udp_bind(addr)))?;
        Ok(Self { socket: Arc::new(socket) })
    }

    /// Opens a socket on an address that it shares with others; see
    /// [`crate::SocketsHandle::udp_bind_shared`].
    pub fn bind_shared(stack: &D::Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let socket = with_each(addr, |addr| {
            D::open(stack, move |engine| engine.sockets().udp_bind_shared(addr))
        })?;
        Ok(Self { socket: Arc::new(socket) })
    }

    /// Returns another handle of the same socket, like a duplicated file descriptor: each datagram
    /// is received by one of them, and settings of either hold for both.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: Arc::clone(&self.socket) })
    }

    /// Fixes the peer for [`UdpSocket::send`]; datagrams of others are not received any more.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        with_each(addr, |addr| self.socket.connect(addr))
    }

    /// Sends a datagram to `addr`, the first where there are several; returns its length. Longer than 65,507 bytes over IPv4, 65,527
    /// over IPv6, it fails with `InvalidInput`; see [`UdpHandle::send`](crate::UdpHandle::send).
    pub fn send_to(&self, data: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let addr = addr.to_socket_addrs()?.next().ok_or(Error::Invalid("no address"))?;
        self.socket.transmit(data, Some(addr), How::Whole)
    }

    /// Sends a datagram to the connected peer, as [`UdpSocket::send_to`] does;
    /// [`NotConnected`](io::ErrorKind::NotConnected) without one.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.socket.transmit(data, None, How::Whole)
    }

    /// Sends `data` to `addr` as datagrams of `size` bytes each, see
    /// [`UdpHandle::send_segmented`](crate::UdpHandle::send_segmented).
    pub fn send_segmented_to(&self, data: &[u8], size: u16, addr: SocketAddr) -> io::Result<usize> {
        if size == 0 {
            return Err(Error::Invalid("datagrams of no bytes").into());
        }
        self.socket.transmit(data, Some(addr), How::Segmented(size))
    }

    /// Sends a datagram to `to`, or to the connected peer, by those `options` that are set; see
    /// [`UdpHandle::send_with`](crate::UdpHandle::send_with).
    pub fn send_with(
        &self,
        data: &[u8],
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> io::Result<usize> {
        self.socket.transmit(data, to, How::With(options))
    }

    /// Sends the datagrams of `list` in order, see
    /// [`UdpHandle::send_many`](crate::UdpHandle::send_many). Returns how many were sent: one at
    /// least, unless `list` is empty. The error of a later one is returned by the call that begins
    /// with it.
    pub fn send_many(&self, list: &[DatagramToSend<'_>]) -> io::Result<usize> {
        self.socket.send_many(list)
    }

    /// Copies the next datagram, cut to `buffer`; returns its length, its sender, and what its
    /// headers and its link say of it.
    pub fn recv_with_info(
        &self,
        buffer: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, DatagramInfo)> {
        let (packet, from, info) = self.socket.receive()?;
        Ok((packet.copy_to(0, buffer), from, info))
    }

    /// Returns the next datagram as it came, and its sender.
    pub fn recv_packet(&self) -> io::Result<(Packet, SocketAddr)> {
        self.socket.receive().map(|(packet, from, _)| (packet, from))
    }

    /// Copies the next datagram, cut to `buffer`; returns its length and its sender.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (packet, from, _) = self.socket.receive()?;
        Ok((packet.copy_to(0, buffer), from))
    }

    /// Copies as many datagrams as wait and have room in `buffer`, one behind the other, listed in
    /// `list`; see [`UdpHandle::recv_many`](crate::UdpHandle::recv_many). Returns their number: one
    /// at least.
    pub fn recv_many(
        &self,
        buffer: &mut [u8],
        list: &mut Vec<ReceivedDatagram>,
    ) -> io::Result<usize> {
        self.socket.recv_many(buffer, list)
    }

    /// Copies the next datagram, cut to `buffer`; returns its length.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buffer).map(|(len, _)| len)
    }

    /// Returns its own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addresses()?.0)
    }

    /// Returns the address of the connected peer; fails with
    /// [`NotConnected`](io::ErrorKind::NotConnected) without one.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addresses()?.1.ok_or(Error::NotConnected)?)
    }

    fn addresses(&self) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
        self.ask(move |udp| udp.addresses())
    }

    fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut UdpHandle<'_>) -> Result<T, Error> + Send + 'static,
    ) -> io::Result<T> {
        let id = self.id();
        self.socket.ask(move |engine| call(&mut engine.udp(id)))
    }

    /// Returns the options as they are.
    pub fn options(&self) -> io::Result<UdpSocketOptions> {
        self.ask(|udp| udp.options())
    }

    /// Sets the options: read them, change some, set them. All are set or, with an error, none.
    pub fn set_options(&self, options: &UdpSocketOptions) -> io::Result<()> {
        let options = *options;
        self.ask(move |udp| udp.set_options(&options))
    }

    /// Returns true if it may send to broadcast addresses.
    pub fn broadcast(&self) -> io::Result<bool> {
        Ok(self.options()?.broadcast)
    }

    /// Sets the hop limit (TTL) of datagrams to one host, 64 at first, and to groups, 1 at first;
    /// `None` leaves it. Not 0 ([`UdpHandle::set_hop_limits`](crate::UdpHandle::set_hop_limits)).
    pub fn set_hop_limits(&self, to_hosts: Option<u8>, to_groups: Option<u8>) -> io::Result<()> {
        self.ask(move |udp| udp.set_hop_limits(to_hosts, to_groups))
    }

    /// Sets the traffic class of its datagrams; see
    /// [`UdpHandle::set_traffic_class`](crate::UdpHandle::set_traffic_class).
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.ask(move |udp| udp.set_traffic_class(class))
    }

    /// Allows it to send to broadcast addresses, or not; see
    /// [`UdpHandle::set_broadcast`](crate::UdpHandle::set_broadcast).
    pub fn set_broadcast(&self, may: bool) -> io::Result<()> {
        self.ask(move |udp| udp.set_broadcast(may))
    }

    /// Sets who may fragment its datagrams; see
    /// [`UdpHandle::set_fragmentation`](crate::UdpHandle::set_fragmentation).
    pub fn set_fragmentation(&self, fragmentation: Fragmentation) -> io::Result<()> {
        self.ask(move |udp| udp.set_fragmentation(fragmentation))
    }

    /// Joins a group on a link; see [`UdpHandle::join_group`](crate::UdpHandle::join_group).
    pub fn join_group(&self, group: IpAddr, link: Option<LinkId>) -> io::Result<()> {
        self.ask(move |udp| udp.join_group(group, link))
    }

    /// Leaves a group; see [`UdpHandle::leave_group`](crate::UdpHandle::leave_group).
    pub fn leave_group(&self, group: IpAddr, link: Option<LinkId>) -> io::Result<()> {
        self.ask(move |udp| udp.leave_group(group, link))
    }

    /// Sets the sources from which it receives datagrams to a group; see
    /// [`UdpHandle::set_group_filter`](crate::UdpHandle::set_group_filter).
    pub fn set_group_filter(
        &self,
        group: IpAddr,
        link: Option<LinkId>,
        filter: GroupFilter,
    ) -> io::Result<()> {
        self.ask(move |udp| udp.set_group_filter(group, link, filter))
    }

    /// Sets the link by which it sends to groups; see
    /// [`UdpHandle::set_group_link`](crate::UdpHandle::set_group_link).
    pub fn set_group_link(&self, link: Option<LinkId>) -> io::Result<()> {
        self.ask(move |udp| udp.set_group_link(link))
    }

    /// Lets sockets of this engine get what it sends to their groups, or not; see
    /// [`UdpHandle::set_group_loop`](crate::UdpHandle::set_group_loop).
    pub fn set_group_loop(&self, loops: bool) -> io::Result<()> {
        self.ask(move |udp| udp.set_group_loop(loops))
    }

    /// Makes calls return at once, with `WouldBlock`, instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.base().timeouts.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Sets the longest time that a receive waits before it fails with `WouldBlock`; `None`, as at
    /// first, is no limit. A time of zero is refused with `InvalidInput`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.base().timeouts.read.set(timeout)
    }

    /// Returns the longest time that a receive waits.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.base().timeouts.read.get())
    }

    /// Sets the longest time that a send waits for room: then it fails with `WouldBlock`, and
    /// nothing was sent. `None`, as at first, is no limit; a time of zero is refused with
    /// `InvalidInput`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.base().timeouts.write.set(timeout)
    }

    /// Returns the longest time that a send waits.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.base().timeouts.write.get())
    }

    /// Takes the error that the next call would return.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Sets the memory in bytes that received datagrams may hold; in [`net`](crate::net) beside
    /// those already in the ring (256, and 1 MiB).
    pub fn set_receive_limit(&self, limit_bytes: usize) -> io::Result<()> {
        self.ask(move |udp| udp.set_limit(limit_bytes))
    }

    /// Returns the stack that it belongs to.
    pub fn stack(&self) -> &D::Stack {
        &self.socket.base().stack
    }

    /// Returns its name in the engine, which events carry.
    pub fn id(&self) -> SocketId {
        self.socket.base().id
    }
}
