//! TCP as the application calls it, in the engine's thread. Nothing here blocks.

use std::net::{IpAddr, SocketAddr};

use millstream_packet::{Packet, Pool};
use millstream_tcp::{Config, ConnError, Connection, FourTuple, State, TcpInfo};

use super::input::with_mss;
use super::writes::Room;
use crate::engine::Engine;
use crate::engine::ip::IpLayer;
use crate::engine::ip::addresses::{Destination, TO_ITSELF};
use crate::engine::tcp::listener::{Listener, ListenerSlot};
use crate::engine::tcp::table::{TcpSocket, plain};
use crate::error::Error;
use crate::socket::{Readiness, SocketId, SocketKind};
use crate::stages::Stage;
use crate::stats::ListenerStats;

impl IpLayer {
    /// An own address, or an unspecified one.
    pub(in crate::engine) fn check_local(&self, ip: IpAddr) -> Result<(), Error> {
        match ip.is_unspecified() || self.addresses.is_here(ip) {
            true => Ok(()),
            false => Err(Error::AddrNotAvailable),
        }
    }
}

impl Engine {
    /// Listens on `addr` with the engine's TCP configuration. See [`Engine::tcp_listen_with`].
    pub fn tcp_listen(&mut self, addr: SocketAddr, backlog: usize) -> Result<SocketId, Error> {
        let config = self.config.clone();
        self.tcp_listen_with(addr, backlog, &config)
    }

    /// Listens on `addr` with `config` for its connections: an own address, or an unspecified one for all (the IPv6 one
    /// takes IPv4 as well). Port 0 asks for a free one. At most `backlog` connections wait to be accepted; what happens
    /// beyond is described at [`crate::Limits::syn_queue`].
    pub fn tcp_listen_with(
        &mut self,
        addr: SocketAddr,
        backlog: usize,
        config: &Config,
    ) -> Result<SocketId, Error> {
        let mut local = plain(addr);
        self.ip.check_local(local.ip())?;
        if local.port() == 0 {
            let mut own = (0..self.cx.share.own_ports()).map(|n| self.cx.share.own_port(n));
            let free = own.find(|&port| !self.tcp.listeners.uses_port(port));
            local.set_port(free.ok_or(Error::AddrNotAvailable)?);
        }
        self.cx.check_share(local.port())?;
        if self.tcp.listeners.conflicts(local) {
            return Err(Error::AddrInUse);
        }
        let listener = Listener {
            id: SocketId::new(SocketKind::Listener, 0, 0),
            local,
            config: config.clone(),
            backlog: backlog.clamp(1, self.cx.limits.backlog),
            elsewhere: 0,
            half_open: 0,
            cookies_until: None,
            stats: ListenerStats::default(),
            ready: Default::default(),
            waiting: 0,
            turned_away_until: None,
            pending: Readiness::default(),
            early: 0,
            early_resets: Default::default(),
        };
        let slot = self.tcp.listeners.insert(listener).ok_or(Error::Limit("listeners"))?;
        let generation = self.tcp.listeners.slots.generation(slot);
        let id = SocketId::new(SocketKind::Listener, slot, generation);
        if let Some(listener) = self.tcp.listeners.slots.get_mut(slot) {
            listener.id = id;
        }
        Ok(id)
    }

    fn listener(&mut self, id: SocketId) -> Result<&mut Listener, Error> {
        let listener = self.tcp.listeners.slots.get_mut(id.slot());
        listener.filter(|listener| listener.id == id).ok_or(Error::NoSuchSocket)
    }

    /// The address of a listener.
    pub fn tcp_listener_addr(&mut self, id: SocketId) -> Result<SocketAddr, Error> {
        self.listener(id).map(|listener| listener.local)
    }

    /// The state of a listener's queues, and what it counted.
    pub fn tcp_listener_stats(&mut self, id: SocketId) -> Result<ListenerStats, Error> {
        self.listener(id).map(|listener| ListenerStats {
            half_open: listener.half_open,
            ready: listener.waiting,
            backlog: listener.backlog,
            ..listener.stats
        })
    }

    /// So many of the listener's backlog wait elsewhere at most, after an accept that nobody asked for.
    pub(crate) fn tcp_listener_shares(
        &mut self,
        id: SocketId,
        elsewhere: usize,
    ) -> Result<(), Error> {
        self.listener(id).map(|listener| listener.elsewhere = elsewhere)
    }

    /// The oldest finished connection, and its peer's address. [`Error::WouldBlock`] when there is none.
    pub fn tcp_accept(&mut self, id: SocketId) -> Result<(SocketId, SocketAddr), Error> {
        let slot = loop {
            let next = self.listener(id)?.ready.pop_front().ok_or(Error::WouldBlock)?;
            // One that gave way to another meanwhile is gone.
            if let Some((slot, _)) = self.tcp.by_id(next) {
                break slot;
            }
        };
        self.tcp.end_waiting(slot);
        let socket = self.tcp.sockets.get_mut(slot).ok_or(Error::WouldBlock)?;
        let (id, conn) = (socket.id, &socket.conn);
        let remote = conn.ends().remote;
        // What came before was nobody's to hear.
        let state = Readiness {
            readable: conn.is_readable(),
            writable: conn.is_writable(),
            closed: conn.is_closed(),
        };
        self.cx.events.push(id, &mut socket.pending, state);
        Ok((id, remote))
    }

    /// Stops listening. Connections that nobody accepted are reset.
    pub fn tcp_close_listener(&mut self, id: SocketId) {
        if self.listener(id).is_err() {
            return;
        }
        let unfinished = self.tcp.half_open.iter();
        let unfinished = unfinished.filter(|(_, request)| request.value.listener == id.slot());
        let unfinished: Vec<u32> = unfinished.map(|(entry, _)| entry).collect();
        unfinished.into_iter().for_each(|entry| self.tcp.remove_half_open(entry));
        let orphans: Vec<u32> = self
            .tcp
            .sockets
            .iter()
            .filter(|(_, socket)| socket.listener == Some(ListenerSlot::new(id.slot())))
            .map(|(slot, _)| slot)
            .collect();
        for slot in orphans {
            self.tcp.end_waiting(slot);
            if let Some(socket) = self.tcp.sockets.get_mut(slot) {
                socket.listener = None;
                socket.half_open = false;
                socket.detached = true;
                socket.conn.abort();
                socket.settle_memory(&mut self.cx.account);
            }
            self.tcp.mark_dirty(slot);
        }
        self.tcp.listeners.remove(id.slot());
    }

    /// Opens a connection to `remote` from an address and port of the engine's choice; the handshake
    /// begins in the next turn. `remote` is another host, unless the engine has a loopback link
    /// ([`Engine::add_loopback`]): without one 127.0.0.1 and ::1 are [`Error::NetworkUnreachable`].
    pub fn tcp_connect(&mut self, remote: SocketAddr) -> Result<SocketId, Error> {
        let config = self.config.clone();
        self.tcp_connect_with(remote, None, &config)
    }

    /// Opens a connection to `remote`, from `local` when given (its port may be 0). With `Config::fast_open`, where
    /// a cookie is known, it waits for the first write or read, 50 ms at most, to send what was written with the
    /// SYN (RFC 7413); it counts as connected meanwhile, and failure shows in what is called later.
    pub fn tcp_connect_with(
        &mut self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        config: &Config,
    ) -> Result<SocketId, Error> {
        let scope = self.ip.named_link(remote)?;
        let remote = plain(remote);
        if remote.port() == 0 || remote.ip().is_unspecified() || remote.ip().is_multicast() {
            return Err(Error::Invalid("not an address to connect to"));
        }
        let hop = self.ip.next_hop(remote.ip(), scope);
        let hop = hop.ok_or_else(|| self.ip.why_no_hop(remote.ip()))?;
        match self.ip.addresses.classify(hop.link, remote.ip()) {
            Destination::Other | Destination::Forwarded => {}
            Destination::Own if self.ip.addresses.lacks_loopback_to(remote.ip()) => {
                return Err(Error::Invalid(TO_ITSELF));
            }
            Destination::Own => {}
            Destination::Group => return Err(Error::Invalid("not an address to connect to")),
        }
        let source = || self.ip.addresses.source(hop.link, hop.address, remote.ip());
        let local = match local.map(plain) {
            Some(local) if !local.ip().is_unspecified() => local,
            Some(local) => SocketAddr::new(source().ok_or(Error::AddrNotAvailable)?, local.port()),
            None => SocketAddr::new(source().ok_or(Error::AddrNotAvailable)?, 0),
        };
        self.ip.check_local(local.ip())?;
        self.ip.addresses.check_way(local.ip(), hop.link)?;
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Invalid("an own address of the other family than the peer's"));
        }
        if self.tcp.is_full() && !self.make_room(self.now(), 0) {
            return Err(Error::Limit("connections"));
        }
        let now = self.now();
        let port = match local.port() {
            0 => self
                .tcp
                .choose_port(self.cx.share, local.ip(), remote, now)
                .ok_or(Error::AddrNotAvailable)?,
            port => {
                self.cx.check_share(port)?;
                port
            }
        };
        let tuple = FourTuple { local: SocketAddr::new(local.ip(), port), remote };
        let hash = self.tcp.hash(&tuple);
        let isn = self.tcp.take_ends(hash, &tuple, now).ok_or(Error::AddrInUse)?;
        let config = self.tcp.configs.shared(with_mss(config.clone(), hop.mtu, &tuple));
        let fast_open = config.fast_open;
        let mut conn =
            Connection::connect(config, tuple, isn, self.tcp.isn.timestamp_offset(&tuple), now);
        if fast_open {
            self.tcp.fast_open.offer(now, &mut conn);
        }
        let scope = self.ip.links[hop.link.index()].serial;
        let slot = self.tcp.insert(conn, scope, None).ok_or(Error::Limit("connections"))?;
        self.cx.stats.tcp_active_opens += 1;
        self.tcp.mark_dirty(slot);
        self.tcp.sockets.get(slot).map(|socket| socket.id).ok_or(Error::NoSuchSocket)
    }

    pub(in crate::engine) fn with_conn<T>(
        &mut self,
        id: SocketId,
        call: impl FnOnce(&mut TcpSocket, &Pool) -> T,
    ) -> Result<T, Error> {
        let (slot, socket) = self.tcp.by_id(id).ok_or(Error::NoSuchSocket)?;
        let result = call(socket, &self.cx.pool);
        socket.settle_memory(&mut self.cx.account);
        // What a call may arm a timer for has output too.
        if !socket.dirty && socket.conn.has_output() {
            socket.dirty = true;
            self.tcp.dirty.push_back(slot);
        }
        Ok(result)
    }

    /// Copies received bytes into `buffer`; 0 is the orderly end of the stream. What ended it otherwise is told once,
    /// by the first call that meets it, as the kernel does: after that reads come to the end, and writes fail with
    /// [`Error::BrokenPipe`].
    #[inline]
    pub fn tcp_read(&mut self, id: SocketId, buffer: &mut [u8]) -> Result<usize, Error> {
        self.cx.stats.stages.mark(Stage::Application, 0);
        let (slot, socket) = self.tcp.by_id(id).ok_or(Error::NoSuchSocket)?;
        let result = socket.conn.read(buffer);
        socket.settle_memory(&mut self.cx.account);
        // What a call may arm a timer for has output too.
        if !socket.dirty && socket.conn.has_output_after_read() {
            socket.dirty = true;
            self.tcp.dirty.push_back(slot);
        }
        self.cx.stats.stages.mark(Stage::Read, 1);
        self.trace_progress(id);
        result.map_err(read_error)
    }

    /// As [`tcp_read`](Self::tcp_read), and the bytes stay to be read.
    pub fn tcp_peek(&mut self, id: SocketId, buffer: &mut [u8]) -> Result<usize, Error> {
        let (_, socket) = self.tcp.by_id(id).ok_or(Error::NoSuchSocket)?;
        socket.conn.peek(buffer).map_err(read_error)
    }

    /// Takes up to `max` received bytes as they lie in their frames; `None` is the orderly end.
    #[inline]
    pub fn tcp_read_packet(&mut self, id: SocketId, max: usize) -> Result<Option<Packet>, Error> {
        let result = self.with_conn(id, |socket, pool| socket.conn.read_packet(max, pool))?;
        self.trace_progress(id);
        result.map_err(read_error)
    }

    /// Copies bytes into the send queue, as many as it takes and as the connection may write before the
    /// next turn (256 KiB, and as much of all connections together). A writable event
    /// follows [`Error::WouldBlock`], and a call that took less than all.
    #[inline]
    pub fn tcp_write(&mut self, id: SocketId, data: &[u8]) -> Result<usize, Error> {
        self.write_by(id, data, Connection::write)
    }

    /// Writes what may be written now by a call of the connection.
    #[inline(always)]
    pub(in crate::engine) fn write_by(
        &mut self,
        id: SocketId,
        data: &[u8],
        write: impl FnOnce(&mut Connection, &Pool, &[u8]) -> Result<usize, ConnError>,
    ) -> Result<usize, Error> {
        self.cx.stats.stages.mark(Stage::Application, 0);
        let (slot, socket) = self.tcp.by_id(id).ok_or(Error::NoSuchSocket)?;
        let room =
            Room { account: &mut self.cx.account, stats: &mut self.cx.stats, now: self.cx.now };
        let admitted =
            self.writes.admit(socket, data.len(), self.cx.limits.tuning.unsent_bytes, room);
        if admitted == 0 && !data.is_empty() {
            return Err(Error::WouldBlock);
        }
        let result = write(&mut socket.conn, &self.cx.pool, &data[..admitted]);
        socket.settle_memory(&mut self.cx.account);
        self.writes.charge(socket, *result.as_ref().unwrap_or(&0), data.len());
        if matches!(result, Err(ConnError::NoMemory)) {
            self.writes.wait_for_frames(socket, &mut self.cx.stats);
        }
        // What was written is to be sent, and then it shows whether it can be.
        if !socket.dirty && (matches!(result, Ok(1..)) || socket.conn.has_output()) {
            socket.dirty = true;
            self.tcp.dirty.push_back(slot);
        }
        self.cx.stats.stages.mark(Stage::Write, 1);
        self.trace_written(id, *result.as_ref().unwrap_or(&0));
        result.map_err(write_error)
    }

    /// Appends a packet's bytes to the send queue without copying them, or gives it back; when it may
    /// write is said at [`Engine::tcp_write`], but the last packet may go beyond.
    #[inline]
    pub fn tcp_write_packet(
        &mut self,
        id: SocketId,
        packet: Packet,
    ) -> Result<(), (Packet, Error)> {
        let len = packet.len();
        if self.admit_write(id, len) == 0 && len != 0 {
            return Err((packet, Error::WouldBlock));
        }
        let Some((slot, socket)) = self.tcp.by_id(id) else {
            return Err((packet, Error::NoSuchSocket));
        };
        let result = socket.conn.write_packet(packet);
        socket.settle_memory(&mut self.cx.account);
        match &result {
            Ok(()) => self.writes.charge(socket, len, len),
            Err(refused) if refused.why == ConnError::NoMemory => {
                self.writes.wait_for_frames(socket, &mut self.cx.stats);
            }
            Err(_) => {}
        }
        self.tcp.touch(slot);
        if result.is_ok() {
            self.trace_written(id, len);
        }
        result.map_err(|refused| (refused.packet, write_error(refused.why)))
    }

    /// Bytes that a block of a packet for [`tcp_write_packet`](Self::tcp_write_packet) holds best, as the link takes
    /// that many at once ([`Packet::bulk_from_slice`]). 0 where frames are as good, and until the connection has sent.
    pub fn tcp_bulk_bytes(&mut self, id: SocketId) -> Result<usize, Error> {
        self.tcp.by_id(id).map(|(_, socket)| socket.conn.bulk_bytes()).ok_or(Error::NoSuchSocket)
    }

    /// Ends the writing side: a FIN follows what was written.
    pub fn tcp_shutdown_write(&mut self, id: SocketId) -> Result<(), Error> {
        self.with_conn(id, |socket, _| socket.conn.shutdown_write())
    }

    /// Lets go of the connection: it ends in order by itself, or with a reset when there is unread data.
    pub fn tcp_close(&mut self, id: SocketId) {
        let _ = self.with_conn(id, |socket, _| {
            socket.detached = true;
            socket.conn.close();
        });
        self.note_orphan(id);
    }

    /// The connection is to be closed when what the application wrote has been handed over ([`Connection::orphan`]).
    pub(crate) fn tcp_orphan(&mut self, id: SocketId) {
        let _ = self.with_conn(id, |socket, _| socket.conn.orphan());
    }

    /// Lets go of the connection with a reset.
    pub fn tcp_abort(&mut self, id: SocketId) {
        let _ = self.with_conn(id, |socket, _| {
            socket.detached = true;
            socket.conn.abort();
        });
    }

    /// Whether small segments are sent at once (Nagle's rule off).
    pub fn tcp_set_nodelay(&mut self, id: SocketId, nodelay: bool) -> Result<(), Error> {
        self.with_conn(id, |socket, _| socket.conn.set_nodelay(nodelay))
    }

    /// Whether its data may go into the buffer of who waits for many ([`crate::local::Stack::wait_read`]).
    pub(crate) fn tcp_set_wait_read(&mut self, id: SocketId, on: bool) -> Result<(), Error> {
        let (_, socket) = self.tcp.by_id(id).ok_or(Error::NoSuchSocket)?;
        socket.wait_read = on;
        Ok(())
    }

    /// The state of a connection.
    pub fn tcp_state(&mut self, id: SocketId) -> Result<State, Error> {
        self.tcp.by_id(id).map(|(_, socket)| socket.conn.state()).ok_or(Error::NoSuchSocket)
    }

    /// Whether a connect is done; its failure as an error. One that waits for data to go with its SYN counts as
    /// done.
    pub fn tcp_connected(&mut self, id: SocketId) -> Result<bool, Error> {
        let (_, socket) = self.tcp.by_id(id).ok_or(Error::NoSuchSocket)?;
        if let Some(error) = socket.conn.error() {
            return Err(conn_error(error));
        }
        match socket.conn.state() {
            State::SynSent => Ok(socket.conn.is_deferred()),
            State::SynReceived => Ok(socket.conn.is_early()),
            _ => Ok(true),
        }
    }

    /// Why the connection ended, if not in order and no call has told yet ([`Connection::take_error`]).
    pub fn tcp_take_error(&mut self, id: SocketId) -> Result<Option<Error>, Error> {
        let (_, socket) = self.tcp.by_id(id).ok_or(Error::NoSuchSocket)?;
        Ok(socket.conn.take_error().map(write_error))
    }

    /// Whether the peer has ended its side in order, and all that it sent has come.
    pub(crate) fn tcp_has_peer_ended(&mut self, id: SocketId) -> bool {
        self.tcp.by_id(id).is_some_and(|(_, socket)| socket.conn.has_peer_ended())
    }

    /// Both ends of a connection.
    pub fn tcp_addresses(&mut self, id: SocketId) -> Result<FourTuple, Error> {
        self.tcp.by_id(id).map(|(_, socket)| socket.conn.tuple()).ok_or(Error::NoSuchSocket)
    }

    /// The connection's counters and estimates.
    pub fn tcp_info(&mut self, id: SocketId) -> Result<TcpInfo, Error> {
        self.tcp.by_id(id).map(|(_, socket)| socket.conn.info()).ok_or(Error::NoSuchSocket)
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
fn read_error(error: ConnError) -> Error {
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
