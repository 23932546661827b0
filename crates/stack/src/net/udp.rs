//! UDP in the style of `std::net`, through rings.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_packet::Packet;
use millstream_route::LinkId;

use super::datagrams::{Incoming, Outgoing};
use super::mailbox::Mailbox;
use super::metered::{Giver, Taker};
use super::shared::{CLOSE, CONNECTED, CUT_READ, READ_END, Shared};
use super::side::{Side, Tried};
use super::sockets::Sockets;
use super::stack::{Handle, Stack};
use super::timeouts::Timeouts;
use crate::engine::{copy_many, datagrams_of};
use crate::tuning::HEADROOM_BYTES;
use crate::{
    DatagramInfo, DatagramToSend, Engine, Error, Fragmentation, GroupFilter, ReceivedDatagram,
    SendOptions, SocketId,
};

/// Most bytes of a datagram's payload: UDP's length field allows no more (RFC 768). Over IPv4 it is
/// 20 less, as the length field of its header counts that, too.
const DATAGRAM_LIMIT_BYTES: usize = 65_527;

/// A UDP socket. Sending never waits for the network: a datagram that finds no room there is lost,
/// and counted. An error of a datagram that was sent, or that the peer's host reported, is returned
/// by the next call, once. When links have failed, or were removed, and none leads to the connected
/// peer any more, or none is left, a receive that has to wait fails once with
/// [`NetworkDown`](io::ErrorKind::NetworkDown).
pub struct UdpSocket {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpSocket").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

/// State that all clones of a socket share.
struct Inner {
    handle: Arc<Handle>,
    id: SocketId,
    shared: Arc<Shared>,
    tx: Side<Giver<Outgoing>>,
    rx: Side<Reading>,
    timeouts: Timeouts,
}

struct Reading {
    ring: Taker<Incoming>,
    /// Taken from the ring, and left for the next call.
    left: Option<Incoming>,
}

impl Reading {
    fn has_some(&self) -> bool {
        self.left.is_some() || !self.ring.is_empty()
    }

    /// Takes the next datagram, if it has at most `room` bytes; else it stays.
    fn take(&mut self, room: usize) -> Option<Incoming> {
        let next = self.left.take().or_else(|| self.ring.pop())?;
        if next.0.len() > room {
            self.left = Some(next);
            return None;
        }
        Some(next)
    }
}

impl UdpSocket {
    /// Opens a socket on `addr`; see [`crate::SocketsHandle::udp_bind`].
    pub fn bind(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        Self::bind_as(stack, addr, false)
    }

    /// The same on an address that it shares with others; see
    /// [`crate::SocketsHandle::udp_bind_shared`].
    pub fn bind_shared(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        Self::bind_as(stack, addr, true)
    }

    fn bind_as(stack: &Stack, addr: SocketAddr, shares: bool) -> io::Result<Self> {
        let (id, (shared, tx, rx)) = stack.handle.mailbox.ask(move |sockets| {
            let Sockets { engine, datagrams, .. } = &mut *sockets;
            let bind = |engine: &mut Engine| engine.sockets().udp_bind_as(addr, shares);
            let id = datagrams.bind(engine, bind)?;
            let parts = datagrams.attach(id);
            sockets.look_at_new(id);
            Ok::<_, Error>((id, parts))
        })??;
        let inner = Inner {
            handle: Arc::clone(&stack.handle),
            id,
            shared,
            tx: Side::new(tx),
            rx: Side::new(Reading { ring: rx, left: None }),
            timeouts: Timeouts::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns another handle of the same socket, like a duplicated file descriptor: each datagram
    /// is received by one of them, and settings of either hold for both.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { inner: Arc::clone(&self.inner) })
    }

    /// Takes the error that the next call would return.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.inner.shared.take_error().map(io::Error::from))
    }

    /// Sets the hop limit (TTL) of datagrams to one host, 64 at first, and to groups, 1 at first;
    /// `None` leaves it. Not 0 ([`UdpHandle::set_hop_limits`](crate::UdpHandle::set_hop_limits)).
    /// Holds for datagrams sent after the call.
    pub fn set_hop_limits(&self, to_hosts: Option<u8>, to_groups: Option<u8>) -> io::Result<()> {
        let id = self.inner.id;
        let set = move |sockets: &mut Sockets| {
            sockets.datagrams.send_left(&mut sockets.engine, id);
            sockets.engine.udp(id).set_hop_limits(to_hosts, to_groups)
        };
        Ok(self.mailbox().ask(set)??)
    }

    /// Sets the traffic class of its datagrams; see
    /// [`UdpHandle::set_traffic_class`](crate::UdpHandle::set_traffic_class). Holds for datagrams
    /// sent after the call.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        let id = self.inner.id;
        let set = move |sockets: &mut Sockets| {
            sockets.datagrams.send_left(&mut sockets.engine, id);
            sockets.engine.udp(id).set_traffic_class(class)
        };
        Ok(self.mailbox().ask(set)??)
    }

    /// Allows it to send to broadcast addresses, or not; see
    /// [`UdpHandle::set_broadcast`](crate::UdpHandle::set_broadcast). Holds for datagrams sent
    /// after the call.
    pub fn set_broadcast(&self, may: bool) -> io::Result<()> {
        let id = self.inner.id;
        let set = move |sockets: &mut Sockets| {
            sockets.datagrams.send_left(&mut sockets.engine, id);
            sockets.engine.udp(id).set_broadcast(may)
        };
        Ok(self.mailbox().ask(set)??)
    }

    /// Sets who may fragment its datagrams; see
    /// [`UdpHandle::set_fragmentation`](crate::UdpHandle::set_fragmentation). Holds for datagrams
    /// sent after the call.
    pub fn set_fragmentation(&self, fragmentation: Fragmentation) -> io::Result<()> {
        let id = self.inner.id;
        let set = move |sockets: &mut Sockets| {
            sockets.datagrams.send_left(&mut sockets.engine, id);
            sockets.engine.udp(id).set_fragmentation(fragmentation)
        };
        Ok(self.mailbox().ask(set)??)
    }

    /// The way to the engine.
    fn mailbox(&self) -> &Mailbox {
        &self.inner.handle.mailbox
    }

    /// Fixes the peer for [`UdpSocket::send`]; datagrams of others are not received any more.
    pub fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        let id = self.inner.id;
        let connect = move |sockets: &mut Sockets| {
            // What was sent before is for who was the peer then.
            sockets.datagrams.send_left(&mut sockets.engine, id);
            sockets.engine.udp(id).connect(addr)?;
            sockets.look_at_new(id);
            Ok::<_, Error>(())
        };
        self.mailbox().ask(connect)??;
        self.inner.shared.set_state(CONNECTED);
        Ok(())
    }

    fn transmit(
        &self,
        data: &[u8],
        to: Option<SocketAddr>,
        size: Option<u16>,
        options: SendOptions,
    ) -> io::Result<usize> {
        let packet = self.packet_of(data, size)?;
        if let Some(error) = self.inner.shared.take_passing_error() {
            return Err(error.into());
        }
        self.has_peer(to)?;
        let mut packet = Some(packet);
        let is_due = self.send_when_room(|tx| {
            let pushed = packet.take().map(|packet| tx.push((packet, (to, options))));
            pushed.unwrap_or(Ok(false)).map_err(|_| Error::WouldBlock)
        })?;
        if is_due {
            self.nudge();
        }
        Ok(data.len())
    }

    /// Fails for a datagram to the connected peer if there is none.
    fn has_peer(&self, to: Option<SocketAddr>) -> Result<(), Error> {
        let has_peer = to.is_some() || self.inner.shared.has(CONNECTED);
        if has_peer { Ok(()) } else { Err(Error::NotConnected) }
    }

    /// Tells the engine to look at the socket.
    fn nudge(&self) {
        self.mailbox().nudge(&self.mailbox().datagrams, self.inner.id.slot());
    }

    /// Returns a packet of the pool with a copy of `data`, as datagrams of `size` bytes or as one.
    fn packet_of(&self, data: &[u8], size: Option<u16>) -> Result<Packet, Error> {
        if data.len() > DATAGRAM_LIMIT_BYTES {
            return Err(Error::MessageTooLong);
        }
        let mailbox = self.mailbox();
        let mut packet = Packet::from_slice(&mailbox.pool, HEADROOM_BYTES, data)
            .map_err(|_| mailbox.exhausted())?;
        packet.meta_mut().segmentation = size.map(datagrams_of);
        Ok(packet)
    }

    /// Puts something in once the ring has room for one; waits for that as long as the socket may.
    fn send_when_room<R>(
        &self,
        mut put: impl FnMut(&mut Giver<Outgoing>) -> Result<R, Error>,
    ) -> io::Result<R> {
        let Inner { shared, timeouts, tx, .. } = &*self.inner;
        let is_ready = |tx: &Giver<Outgoing>| tx.has_room() || shared.has(READ_END);
        let attempt = |tx: &mut Giver<Outgoing>| {
            if shared.has(READ_END) {
                Tried::Done(Err(Error::EngineGone.into()))
            } else if tx.has_room_or_stalls(&shared.tx_stalled) {
                Tried::Done(put(tx).map_err(io::Error::from))
            } else {
                Tried::Blocked
            }
        };
        tx.run(&shared.writer, || timeouts.to_write(), is_ready, attempt)
    }

    /// Sends the datagrams of `list` in order, with one signal to the engine. Returns how many it
    /// has taken: one at least, unless `list` is empty. The error of a later one is returned by the
    /// call that begins with it.
    pub fn send_many(&self, list: &[DatagramToSend<'_>]) -> io::Result<usize> {
        if let Some(error) = self.inner.shared.take_passing_error() {
            return Err(error.into());
        }
        if list.is_empty() {
            return Ok(0);
        }
        let (sent, is_due) = self.send_when_room(|tx| self.put_many(tx, list))?;
        if is_due {
            self.nudge();
        }
        Ok(sent)
    }

    /// Puts in as many as there is room for. Returns their number, and whether the engine is to be
    /// told.
    fn put_many(
        &self,
        tx: &mut Giver<Outgoing>,
        list: &[DatagramToSend<'_>],
    ) -> Result<(usize, bool), Error> {
        let (mut sent, mut is_due) = (0, false);
        for datagram in list {
            if !tx.has_room() {
                break;
            }
            let packet =
                self.has_peer(datagram.to).and_then(|()| self.packet_of(datagram.data, None));
            let packet = match packet {
                Ok(packet) => packet,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            };
            let Ok(wakes) = tx.push((packet, (datagram.to, SendOptions::default()))) else { break };
            is_due |= wakes;
            sent += 1;
        }
        Ok((sent, is_due))
    }

    /// Sends a datagram to `addr`.
    pub fn send_to(&self, data: &[u8], addr: SocketAddr) -> io::Result<usize> {
        self.transmit(data, Some(addr), None, SendOptions::default())
    }

    /// Sends a datagram to `to`, or to the connected peer, by those `options` that are set; see
    /// [`UdpHandle::send_with`](crate::UdpHandle::send_with). Invalid options are reported by a
    /// later call.
    pub fn send_with(
        &self,
        data: &[u8],
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> io::Result<usize> {
        self.transmit(data, to, None, *options)
    }

    /// Sends a datagram to the connected peer.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.transmit(data, None, None, SendOptions::default())
    }

    /// Sends `data` to `addr` as datagrams of `size` bytes each, see
    /// [`UdpHandle::send_segmented`](crate::UdpHandle::send_segmented).
    pub fn send_segmented_to(&self, data: &[u8], size: u16, addr: SocketAddr) -> io::Result<usize> {
        if size == 0 {
            return Err(Error::Invalid("datagrams of no bytes").into());
        }
        self.transmit(data, Some(addr), Some(size), SendOptions::default())
    }

    /// Runs `take` once there is a datagram; fails if there is an error to report.
    fn receive<R>(&self, mut take: impl FnMut(&mut Reading) -> R) -> io::Result<R> {
        let Inner { shared, timeouts, rx, .. } = &*self.inner;
        let is_ready = |rx: &Reading| rx.has_some() || shared.has_error() || shared.has(CUT_READ);
        let mut take = |rx: &mut Reading| {
            let taken = take(rx);
            Tried::Done(Ok((taken, rx.ring.is_half_empty())))
        };
        let attempt = |rx: &mut Reading| {
            if rx.has_some() {
                return take(rx);
            }
            let is_cut = shared.has(CUT_READ);
            // What was put before that was announced.
            if is_cut && rx.has_some() {
                return take(rx);
            }
            let cut = || if is_cut { shared.take_cut(CUT_READ) } else { None };
            Tried::of(shared.take_error().or_else(cut).map(|error| Err(error.into())))
        };
        let (taken, is_half_empty) =
            rx.run(&shared.reader, || timeouts.to_read(), is_ready, attempt)?;
        if is_half_empty && shared.takes_stall() {
            self.nudge();
        }
        Ok(taken)
    }

    fn take_one(&self) -> io::Result<Incoming> {
        Ok(self.receive(|rx| rx.take(usize::MAX))?.ok_or(Error::WouldBlock)?)
    }

    /// Copies the next datagram, cut to `buffer`; returns its length, its sender, and what its
    /// headers and its link say of it.
    pub fn recv_with_info(
        &self,
        buffer: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, DatagramInfo)> {
        let (packet, (from, info)) = self.take_one()?;
        Ok((packet.copy_to(0, buffer), from, info))
    }

    /// Returns the next datagram as it came, and its sender.
    pub fn recv_packet(&self) -> io::Result<(Packet, SocketAddr)> {
        self.take_one().map(|(packet, (from, _))| (packet, from))
    }

    /// Copies the next datagram, cut to `buffer`; returns its length and its sender.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (packet, from) = self.recv_packet()?;
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
        list.clear();
        self.receive(|rx| {
            copy_many(buffer, list, |room| rx.take(room).map(|(packet, (from, _))| (packet, from)));
        })?;
        Ok(list.len())
    }

    /// Copies the next datagram, cut to `buffer`; returns its length.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buffer).map(|(len, _)| len)
    }

    /// Its own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let id = self.inner.id;
        Ok(self.mailbox().ask(move |sockets| sockets.engine.udp(id).addresses())??.0)
    }

    /// Returns the address of the connected peer; fails with
    /// [`NotConnected`](io::ErrorKind::NotConnected) without one.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let id = self.inner.id;
        let (_, peer) = self.mailbox().ask(move |sockets| sockets.engine.udp(id).addresses())??;
        Ok(peer.ok_or(Error::NotConnected)?)
    }

    /// Joins a group on a link; see [`UdpHandle::join_group`](crate::UdpHandle::join_group).
    pub fn join_group(&self, group: IpAddr, link: Option<LinkId>) -> io::Result<()> {
        let id = self.inner.id;
        Ok(self.mailbox().ask(move |sockets| sockets.engine.udp(id).join_group(group, link))??)
    }

    /// Leaves a group; see [`UdpHandle::leave_group`](crate::UdpHandle::leave_group).
    pub fn leave_group(&self, group: IpAddr, link: Option<LinkId>) -> io::Result<()> {
        let id = self.inner.id;
        Ok(self.mailbox().ask(move |sockets| sockets.engine.udp(id).leave_group(group, link))??)
    }

    /// Sets the sources from which it receives datagrams to a group; see
    /// [`UdpHandle::set_group_filter`](crate::UdpHandle::set_group_filter).
    pub fn set_group_filter(
        &self,
        group: IpAddr,
        link: Option<LinkId>,
        filter: GroupFilter,
    ) -> io::Result<()> {
        let id = self.inner.id;
        let set = move |sockets: &mut Sockets| {
            sockets.engine.udp(id).set_group_filter(group, link, filter)
        };
        Ok(self.mailbox().ask(set)??)
    }

    /// Sets the link by which it sends to groups; see
    /// [`UdpHandle::set_group_link`](crate::UdpHandle::set_group_link).
    pub fn set_group_link(&self, link: Option<LinkId>) -> io::Result<()> {
        let id = self.inner.id;
        let set = move |sockets: &mut Sockets| {
            sockets.datagrams.send_left(&mut sockets.engine, id);
            sockets.engine.udp(id).set_group_link(link)
        };
        Ok(self.mailbox().ask(set)??)
    }

    /// Lets sockets of this engine get what it sends to their groups, or not; see
    /// [`UdpHandle::set_group_loop`](crate::UdpHandle::set_group_loop).
    pub fn set_group_loop(&self, loops: bool) -> io::Result<()> {
        let id = self.inner.id;
        let set = move |sockets: &mut Sockets| {
            sockets.datagrams.send_left(&mut sockets.engine, id);
            sockets.engine.udp(id).set_group_loop(loops)
        };
        Ok(self.mailbox().ask(set)??)
    }

    /// Makes calls return at once, with `WouldBlock`, instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.inner.timeouts.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Sets the longest time that a receive waits before it fails with `WouldBlock`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.timeouts.read.set(timeout)
    }

    /// Returns the longest time that a receive waits.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.timeouts.read.get())
    }

    /// Sets the longest time that a send waits for room in the ring to the engine. Then it fails
    /// with `WouldBlock`, and nothing was sent.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.timeouts.write.set(timeout)
    }

    /// Returns the longest time that a send waits.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.timeouts.write.get())
    }

    /// Sets the memory in bytes that received datagrams may hold, beside those already in the ring
    /// (256, and 1 MiB).
    pub fn set_receive_limit(&self, limit_bytes: usize) -> io::Result<()> {
        let id = self.inner.id;
        Ok(self.mailbox().ask(move |sockets| sockets.engine.udp(id).set_limit(limit_bytes))??)
    }

    /// Its name in the engine.
    pub fn id(&self) -> SocketId {
        self.inner.id
    }
}

impl UdpSocket {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.wishes.fetch_or(CLOSE, Ordering::AcqRel);
        self.handle.mailbox.nudge(&self.handle.mailbox.datagrams, self.id.slot());
    }
}
