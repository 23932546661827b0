//! Calls on TCP connections and listeners.

use std::net::SocketAddr;

use millstream_packet::Packet;
use millstream_tcp::{Config, FourTuple, State, TcpInfo};

use crate::engine::{Engine, TcpSocketOptions};
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::{ListenerStats, Undelivered};

impl Engine {
    /// Listens on `addr` with the engine's TCP configuration. See [`Engine::tcp_listen_with`].
    pub fn tcp_listen(&mut self, addr: SocketAddr, backlog: usize) -> Result<SocketId, Error> {
        self.tcp.listen(&mut self.cx, &mut self.ip, addr, backlog)
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
        self.tcp.listen_with(&mut self.cx, &mut self.ip, addr, backlog, config)
    }

    /// The address of a listener.
    pub fn tcp_listener_addr(&mut self, id: SocketId) -> Result<SocketAddr, Error> {
        self.tcp.listener_addr(id)
    }

    /// The state of a listener's queues, and what it counted.
    pub fn tcp_listener_stats(&mut self, id: SocketId) -> Result<ListenerStats, Error> {
        self.tcp.listener_stats(id)
    }

    /// So many of the listener's backlog wait elsewhere at most, after an accept that nobody asked for.
    pub(crate) fn tcp_listener_shares(
        &mut self,
        id: SocketId,
        elsewhere: usize,
    ) -> Result<(), Error> {
        self.tcp.listener_shares(id, elsewhere)
    }

    /// The oldest finished connection, and its peer's address. [`Error::WouldBlock`] when there is none.
    pub fn tcp_accept(&mut self, id: SocketId) -> Result<(SocketId, SocketAddr), Error> {
        self.tcp.accept(&mut self.cx, id)
    }

    /// Stops listening. Connections that nobody accepted are reset.
    pub fn tcp_close_listener(&mut self, id: SocketId) {
        self.tcp.close_listener(&mut self.cx, id)
    }

    /// Opens a connection to `remote` from an address and port of the engine's choice; the handshake
    /// begins in the next turn. `remote` is another host, unless the engine has a loopback link
    /// ([`Engine::add_loopback`]): without one 127.0.0.1 and ::1 are [`Error::NetworkUnreachable`].
    pub fn tcp_connect(&mut self, remote: SocketAddr) -> Result<SocketId, Error> {
        self.tcp.connect(&mut self.cx, &mut self.ip, remote)
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
        self.tcp.connect_with(&mut self.cx, &mut self.ip, remote, local, config)
    }

    /// Copies received bytes into `buffer`; 0 is the orderly end of the stream. What ended it otherwise is told once,
    /// by the first call that meets it, as the kernel does: after that reads come to the end, and writes fail with
    /// [`Error::BrokenPipe`].
    #[inline]
    pub fn tcp_read(&mut self, id: SocketId, buffer: &mut [u8]) -> Result<usize, Error> {
        self.tcp.read(&mut self.cx, id, buffer)
    }

    /// As [`tcp_read`](Self::tcp_read), and the bytes stay to be read.
    pub fn tcp_peek(&mut self, id: SocketId, buffer: &mut [u8]) -> Result<usize, Error> {
        self.tcp.peek(id, buffer)
    }

    /// Takes up to `max` received bytes as they lie in their frames; `None` is the orderly end.
    #[inline]
    pub fn tcp_read_packet(&mut self, id: SocketId, max: usize) -> Result<Option<Packet>, Error> {
        self.tcp.read_packet(&mut self.cx, id, max)
    }

    /// Copies bytes into the send queue, as many as it takes and as the connection may write before the
    /// next turn (256 KiB, and as much of all connections together). A writable event
    /// follows [`Error::WouldBlock`], and a call that took less than all.
    #[inline]
    pub fn tcp_write(&mut self, id: SocketId, data: &[u8]) -> Result<usize, Error> {
        self.tcp.write(&mut self.cx, id, data)
    }

    /// Appends a packet's bytes to the send queue without copying them, or gives it back; when it may
    /// write is said at [`Engine::tcp_write`], but the last packet may go beyond.
    #[inline]
    pub fn tcp_write_packet(
        &mut self,
        id: SocketId,
        packet: Packet,
    ) -> Result<(), (Packet, Error)> {
        self.tcp.write_packet(&mut self.cx, id, packet)
    }

    /// Bytes that a block of a packet for [`tcp_write_packet`](Self::tcp_write_packet) holds best, as the link takes
    /// that many at once ([`Packet::bulk_from_slice`]). 0 where frames are as good, and until the connection has sent.
    pub fn tcp_bulk_bytes(&mut self, id: SocketId) -> Result<usize, Error> {
        self.tcp.bulk_bytes(id)
    }

    /// Ends the writing side: a FIN follows what was written.
    pub fn tcp_shutdown_write(&mut self, id: SocketId) -> Result<(), Error> {
        self.tcp.shutdown_write(&mut self.cx, id)
    }

    /// Lets go of the connection: it ends in order by itself, or with a reset when there is unread data.
    pub fn tcp_close(&mut self, id: SocketId) {
        self.tcp.close(&mut self.cx, &mut self.ip, id)
    }

    /// The connection is to be closed when what the application wrote has been handed over ([`Connection::orphan`]).
    pub(crate) fn tcp_orphan(&mut self, id: SocketId) {
        self.tcp.orphan(&mut self.cx, id)
    }

    /// Lets go of the connection with a reset.
    pub fn tcp_abort(&mut self, id: SocketId) {
        self.tcp.abort(&mut self.cx, id)
    }

    /// Whether small segments are sent at once (Nagle's rule off).
    pub fn tcp_set_nodelay(&mut self, id: SocketId, nodelay: bool) -> Result<(), Error> {
        self.tcp.set_nodelay(&mut self.cx, id, nodelay)
    }

    /// Says whether its data may go into the buffer of who waits for many ([`crate::local::Stack::wait_read`]).
    pub(crate) fn tcp_set_wait_read(&mut self, id: SocketId, on: bool) -> Result<(), Error> {
        self.tcp.set_wait_read(id, on)
    }

    /// The state of a connection.
    pub fn tcp_state(&mut self, id: SocketId) -> Result<State, Error> {
        self.tcp.state(id)
    }

    /// Whether a connect is done; its failure as an error. One that waits for data to go with its SYN counts as
    /// done.
    pub fn tcp_connected(&mut self, id: SocketId) -> Result<bool, Error> {
        self.tcp.connected(id)
    }

    /// Why the connection ended, if not in order and no call has told yet ([`Connection::take_error`]).
    pub fn tcp_take_error(&mut self, id: SocketId) -> Result<Option<Error>, Error> {
        self.tcp.take_error(id)
    }

    /// Returns whether the peer has ended its side in order, and all that it sent has come.
    pub(crate) fn tcp_has_peer_ended(&mut self, id: SocketId) -> bool {
        self.tcp.has_peer_ended(id)
    }

    /// Both ends of a connection.
    pub fn tcp_addresses(&mut self, id: SocketId) -> Result<FourTuple, Error> {
        self.tcp.addresses(id)
    }

    /// The connection's counters and estimates.
    pub fn tcp_info(&mut self, id: SocketId) -> Result<TcpInfo, Error> {
        self.tcp.info(id)
    }

    /// Returns the bytes that a connection has still to deliver, or had when it ended.
    pub(crate) fn tcp_undelivered(&mut self, id: SocketId) -> Option<u64> {
        self.tcp.undelivered(id)
    }

    /// What open connections have still to deliver, and what those had that have ended and are not gone. Looks at each
    /// of them.
    pub(crate) fn to_deliver(&self) -> (Undelivered, Undelivered) {
        self.tcp.to_deliver()
    }

    /// A connection's options as they are.
    pub fn tcp_options(&mut self, id: SocketId) -> Result<TcpSocketOptions, Error> {
        self.tcp.options(id)
    }

    /// Sets a connection's options, as far as they differ from what they are; all or, with an error, none.
    pub fn tcp_set_options(
        &mut self,
        id: SocketId,
        options: &TcpSocketOptions,
    ) -> Result<(), Error> {
        self.tcp.set_options(&mut self.cx, id, options)
    }

    /// Acknowledges what waits at once, and the next segments as they come, until data goes the other way.
    pub fn tcp_quick_ack(&mut self, id: SocketId) -> Result<(), Error> {
        self.tcp.quick_ack(&mut self.cx, id)
    }

    /// As [`Engine::tcp_write`]; what was taken is announced as urgent (RFC 6093). Not for new applications.
    pub fn tcp_write_urgent(&mut self, id: SocketId, data: &[u8]) -> Result<usize, Error> {
        self.tcp.write_urgent(&mut self.cx, id, data)
    }

    /// Where the peer's urgent data ends, in bytes from the start of its stream, whether or not it was read.
    pub(crate) fn tcp_urgent_end(&mut self, id: SocketId) -> Result<Option<u64>, Error> {
        self.tcp.urgent_end(id)
    }

    /// Bytes to read up to the end of the peer's urgent data; none where none was announced or it was read. A new
    /// mark makes the socket readable.
    pub fn tcp_urgent(&mut self, id: SocketId) -> Result<Option<u64>, Error> {
        self.tcp.urgent(id)
    }

    /// Sends what a write of `written` bytes has made ready: everything when nothing was under way, else
    /// only what fills segments. The rest waits for the next write or turn, so that a stream of large
    /// writes does not end each with a small segment; so does that of a connection which was granted more. All
    /// writes between two turns together send as much as one turn does: who writes on and on must not keep what
    /// arrives from being taken.
    pub(crate) fn push_written(&mut self, id: SocketId, written: usize) {
        self.tcp.push_written(&mut self.cx, &mut self.ip, id, written)
    }
}
