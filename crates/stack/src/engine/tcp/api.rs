//! TCP as the application calls it, in the engine's thread. Nothing here blocks.

use std::net::{IpAddr, SocketAddr};

use millstream_packet::{Packet, Pool};
use millstream_tcp::{Config, ConnError, Connection, FourTuple};

use super::segment::with_mss;
use super::writes::Room;
use crate::demux::plain;
use crate::engine::Account;
use crate::engine::context::Context;
use crate::engine::ip::reach::IpReach;
use crate::engine::ip::reach::addresses::{Destination, TO_ITSELF};
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::listener::{Listener, ListenerSlot};
use crate::engine::tcp::table::{TcpSocket, TcpTable};
use crate::error::Error;
use crate::socket::{EventQueue, Readiness, SocketId};
use crate::stages::Stage;

impl TcpLayer {
    /// See [`SocketsHandle::tcp_listen_with`](crate::SocketsHandle::tcp_listen_with).
    pub(in crate::engine) fn listen_with(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        addr: SocketAddr,
        backlog: usize,
        config: &Config,
    ) -> Result<SocketId, Error> {
        let mut local = plain(addr);
        if !local.ip().is_unspecified() && !reach.addresses.is_local(local.ip()) {
            return Err(Error::AddrNotAvailable);
        }
        if local.port() == 0 {
            let mut own = (0..cx.share.own_ports()).map(|n| cx.share.own_port(n));
            let free = own.find(|&port| !self.table.listeners.uses_port(port));
            local.set_port(free.ok_or(Error::AddrNotAvailable)?);
        }
        cx.check_share(local.port())?;
        if self.table.listeners.conflicts(local) {
            return Err(Error::AddrInUse);
        }
        let backlog = backlog.clamp(1, cx.limits.backlog);
        self.table.listeners.insert(Listener::new(local, config.clone(), backlog))
    }

    /// See [`SocketsHandle::tcp_connect_with`](crate::SocketsHandle::tcp_connect_with).
    pub(in crate::engine) fn connect_with(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        config: &Config,
    ) -> Result<SocketId, Error> {
        let scope = reach.links.named(remote)?;
        let remote = plain(remote);
        if remote.port() == 0 || remote.ip().is_unspecified() || remote.ip().is_multicast() {
            return Err(Error::Invalid("not an address to connect to"));
        }
        let hop = reach.next_hop(remote.ip(), scope);
        let hop = hop.ok_or_else(|| reach.why_no_hop(remote.ip()))?;
        match reach.addresses.classify(hop.link, remote.ip()) {
            Destination::Other | Destination::Forwarded => {}
            Destination::Own if reach.addresses.lacks_loopback_to(remote.ip()) => {
                return Err(Error::Invalid(TO_ITSELF));
            }
            Destination::Own => {}
            Destination::Group => return Err(Error::Invalid("not an address to connect to")),
        }
        let source = || reach.addresses.source(hop.link, hop.address, remote.ip());
        let local = match local.map(plain) {
            Some(local) if !local.ip().is_unspecified() => local,
            Some(local) => SocketAddr::new(source().ok_or(Error::AddrNotAvailable)?, local.port()),
            None => SocketAddr::new(source().ok_or(Error::AddrNotAvailable)?, 0),
        };
        reach.addresses.check_local(local.ip())?;
        reach.addresses.check_way(local.ip(), hop.link)?;
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Invalid("an own address of the other family than the peer's"));
        }
        if self.table.is_full() && !self.make_room(cx, reach, 0) {
            return Err(Error::Limit("connections"));
        }
        let now = cx.now;
        let port = match local.port() {
            0 => self
                .table
                .choose_port(cx.share, local.ip(), remote, now)
                .ok_or(Error::AddrNotAvailable)?,
            port => {
                cx.check_share(port)?;
                port
            }
        };
        let tuple = FourTuple { local: SocketAddr::new(local.ip(), port), remote };
        let hash = self.table.hash(&tuple);
        let isn = self.table.take_ends(hash, &tuple, now).ok_or(Error::AddrInUse)?;
        let config = self.table.configs.shared(with_mss(config.clone(), hop.mtu, &tuple));
        let fast_open = config.fast_open;
        let mut conn =
            Connection::connect(config, tuple, isn, self.table.isn.timestamp_offset(&tuple), now);
        if fast_open {
            self.table.fast_open.offer(now, &mut conn);
        }
        let scope = reach.links[hop.link.index()].serial;
        let slot = self.table.insert(conn, scope, None).ok_or(Error::Limit("connections"))?;
        cx.stats.tcp_active_opens += 1;
        self.table.mark_dirty(slot);
        self.table.sockets.get(slot).map(|socket| socket.id).ok_or(Error::NoSuchSocket)
    }

    /// Resets the connections from addresses that are ours no more (RFC 5227, 2.4).
    pub(in crate::engine) fn reset_from(&mut self, cx: &mut Context, lost: &[IpAddr]) {
        let sockets = self.table.sockets.iter();
        let ids: Vec<SocketId> = sockets
            .filter(|(_, socket)| lost.contains(&socket.conn.ends().local.ip()))
            .map(|(_, socket)| socket.id)
            .collect();
        for id in ids {
            let _ = self.with_conn(cx, id, |socket, _| socket.conn.abort());
        }
    }

    pub(in crate::engine) fn with_conn<T>(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        call: impl FnOnce(&mut TcpSocket, &Pool) -> T,
    ) -> Result<T, Error> {
        let (slot, socket) = self.table.by_id(id).ok_or(Error::NoSuchSocket)?;
        let result = call(socket, &cx.pool);
        socket.settle_memory(&mut cx.account);
        socket.tell(&mut cx.sink, cx.now);
        // A connection for which a call may arm a timer has output, too.
        if !socket.dirty && socket.conn.has_output() {
            socket.dirty = true;
            self.table.dirty.push_back(slot);
        }
        Ok(result)
    }

    /// See [`TcpHandle::read`](crate::TcpHandle::read).
    #[inline]
    pub(in crate::engine) fn read(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        cx.stats.stages.mark(Stage::Application, 0);
        let (slot, socket) = self.table.by_id(id).ok_or(Error::NoSuchSocket)?;
        let result = socket.conn.read(buffer);
        socket.settle_memory(&mut cx.account);
        socket.tell(&mut cx.sink, cx.now);
        // A connection for which a call may arm a timer has output, too.
        if !socket.dirty && socket.conn.has_output_after_read() {
            socket.dirty = true;
            self.table.dirty.push_back(slot);
        }
        cx.stats.stages.mark(Stage::Read, 1);
        result.map_err(read_error)
    }

    /// See [`TcpHandle::read_packet`](crate::TcpHandle::read_packet).
    #[inline]
    pub(in crate::engine) fn read_packet(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        max: usize,
    ) -> Result<Option<Packet>, Error> {
        let result = self.with_conn(cx, id, |socket, pool| socket.conn.read_packet(max, pool))?;
        result.map_err(read_error)
    }

    /// See [`TcpHandle::write`](crate::TcpHandle::write).
    #[inline]
    pub(in crate::engine) fn write(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        data: &[u8],
    ) -> Result<usize, Error> {
        self.write_by(cx, id, (data, false), Connection::write)
    }

    /// Writes what may be written now of `data` by a call of the connection. Unless the caller
    /// pushes what was written ([`push_written`](Self::push_written)), it goes in a turn.
    #[inline(always)]
    pub(in crate::engine) fn write_by(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        (data, is_pushed): (&[u8], bool),
        write: impl FnOnce(&mut Connection, &Pool, &[u8]) -> Result<usize, ConnError>,
    ) -> Result<usize, Error> {
        cx.stats.stages.mark(Stage::Application, 0);
        let (slot, socket) = self.table.by_id(id).ok_or(Error::NoSuchSocket)?;
        let limit = cx.unsent_limit();
        let room = Room { account: &mut cx.account, stats: &mut cx.stats, now: cx.now };
        let admitted = self.writes.admit(socket, data.len(), limit, room);
        if admitted == 0 && !data.is_empty() {
            return Err(Error::WouldBlock);
        }
        let result = write(&mut socket.conn, &cx.pool, &data[..admitted]);
        socket.settle_memory(&mut cx.account);
        let written = *result.as_ref().unwrap_or(&0);
        self.writes.charge(socket, written, data.len());
        cx.sink.written(socket.observed(), written);
        if matches!(result, Err(ConnError::NoMemory)) {
            self.writes.wait_for_frames(socket, &mut cx.stats);
        }
        // The written bytes are to be sent; then it shows whether they can be.
        let waits = if written == 0 { socket.conn.has_output() } else { !is_pushed };
        if waits && !socket.dirty {
            socket.dirty = true;
            self.table.dirty.push_back(slot);
        }
        cx.stats.stages.mark(Stage::Write, 1);
        result.map_err(write_error)
    }

    /// See [`TcpHandle::write_packet`](crate::TcpHandle::write_packet).
    #[inline]
    pub(in crate::engine) fn write_packet(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        packet: Packet,
    ) -> Result<(), (Packet, Error)> {
        let len = packet.len();
        let Some((slot, socket)) = self.table.by_id(id) else {
            return Err((packet, Error::NoSuchSocket));
        };
        let limit = cx.unsent_limit();
        let room = Room { account: &mut cx.account, stats: &mut cx.stats, now: cx.now };
        if self.writes.admit(socket, len, limit, room) == 0 && len != 0 {
            return Err((packet, Error::WouldBlock));
        }
        let result = socket.conn.write_packet(packet);
        socket.settle_memory(&mut cx.account);
        match &result {
            Ok(()) => {
                self.writes.charge(socket, len, len);
                cx.sink.written(socket.observed(), len);
            }
            Err(refused) if refused.why == ConnError::NoMemory => {
                self.writes.wait_for_frames(socket, &mut cx.stats);
            }
            Err(_) => {}
        }
        self.table.touch(slot);
        result.map_err(|refused| (refused.packet, write_error(refused.why)))
    }

    /// See [`TcpHandle::close`](crate::TcpHandle::close).
    pub(in crate::engine) fn close(&mut self, cx: &mut Context, reach: &mut IpReach, id: SocketId) {
        let _ = self.with_conn(cx, id, |socket, _| {
            socket.detached = true;
            socket.conn.close();
        });
        self.note_orphan(cx, reach, id);
    }

    /// See [`TcpHandle::abort`](crate::TcpHandle::abort).
    pub(in crate::engine) fn abort(&mut self, cx: &mut Context, id: SocketId) {
        let _ = self.with_conn(cx, id, |socket, _| {
            socket.detached = true;
            socket.conn.abort();
        });
    }
}

impl TcpTable {
    /// See [`ListenerHandle::accept`](crate::ListenerHandle::accept).
    pub fn accept(
        &mut self,
        events: &mut EventQueue,
        id: SocketId,
    ) -> Result<(SocketId, SocketAddr), Error> {
        let slot = loop {
            let next = self.listeners.by_id(id)?.ready.pop_front().ok_or(Error::WouldBlock)?;
            // One that gave way to another meanwhile is gone.
            if let Some((slot, _)) = self.by_id(next) {
                break slot;
            }
        };
        self.end_waiting(slot);
        let socket = self.sockets.get_mut(slot).ok_or(Error::WouldBlock)?;
        let (id, conn) = (socket.id, &socket.conn);
        let remote = conn.ends().remote;
        // Nobody was to hear of earlier events.
        let state = Readiness {
            readable: conn.is_readable(),
            writable: conn.is_writable(),
            closed: conn.is_closed(),
        };
        events.push(id, &mut socket.pending, state);
        Ok((id, remote))
    }

    /// See [`ListenerHandle::close`](crate::ListenerHandle::close).
    pub fn close_listener(&mut self, account: &mut Account, id: SocketId) {
        if self.listeners.by_id(id).is_err() {
            return;
        }
        let unfinished = self.half_open.iter();
        let unfinished = unfinished.filter(|(_, request)| request.value.listener == id.slot());
        let unfinished: Vec<u32> = unfinished.map(|(entry, _)| entry).collect();
        unfinished.into_iter().for_each(|entry| self.remove_half_open(entry));
        let orphans: Vec<u32> = self
            .sockets
            .iter()
            .filter(|(_, socket)| socket.listener == Some(ListenerSlot::new(id.slot())))
            .map(|(slot, _)| slot)
            .collect();
        for slot in orphans {
            self.end_waiting(slot);
            if let Some(socket) = self.sockets.get_mut(slot) {
                socket.listener = None;
                socket.half_open = false;
                socket.detached = true;
                socket.conn.abort();
                socket.settle_memory(account);
            }
            self.mark_dirty(slot);
        }
        self.listeners.remove(id.slot());
    }
}

pub(in crate::engine) fn conn_error(error: ConnError) -> Error {
    match error {
        ConnError::WouldBlock => Error::WouldBlock,
        ConnError::NotConnected => Error::NotConnected,
        ConnError::Closed => Error::NotConnected,
        ConnError::Reset => Error::ConnectionReset,
        ConnError::Refused => Error::ConnectionRefused,
        ConnError::TimedOut => Error::TimedOut,
        ConnError::Aborted => Error::ConnectionAborted,
        ConnError::HostUnreachable => Error::HostUnreachable,
        ConnError::NetworkUnreachable => Error::NetworkUnreachable,
        ConnError::Prohibited => Error::Prohibited,
        ConnError::BadHeader => Error::BadHeader,
        ConnError::NoMemory => Error::Exhausted,
        ConnError::Evicted => Error::Evicted,
    }
}

/// Before the handshake is done a read waits.
pub(in crate::engine) fn read_error(error: ConnError) -> Error {
    match error {
        ConnError::NotConnected => Error::WouldBlock,
        error => conn_error(error),
    }
}

/// Before the handshake is done a write waits; without a free frame, too.
pub(in crate::engine) fn write_error(error: ConnError) -> Error {
    match error {
        ConnError::NotConnected | ConnError::NoMemory => Error::WouldBlock,
        ConnError::Closed => Error::BrokenPipe,
        error => conn_error(error),
    }
}
