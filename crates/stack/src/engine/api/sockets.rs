//! Sockets are opened here.

use std::net::SocketAddr;

use millstream_tcp::Config;

use crate::engine::Engine;
use crate::error::Error;
use crate::socket::SocketId;

/// The sockets of an engine ([`Engine::sockets`]), for opening one more.
#[derive(Debug)]
pub struct SocketsHandle<'a> {
    pub(in crate::engine) engine: &'a mut Engine,
}

impl SocketsHandle<'_> {
    /// Listens on `addr` with the engine's TCP configuration. See
    /// [`SocketsHandle::tcp_listen_with`](crate::SocketsHandle::tcp_listen_with).
    pub fn tcp_listen(&mut self, addr: SocketAddr, backlog: usize) -> Result<SocketId, Error> {
        let config = self.engine.tcp.config.clone();
        self.tcp_listen_with(addr, backlog, &config)
    }

    /// Listens on `addr` with `config` for its connections: an own address, or an unspecified one
    /// for all (the IPv6 one takes IPv4 as well). Port 0 asks for a free one. At most `backlog`
    /// connections wait to be accepted; what happens beyond is described at
    /// [`crate::Limits::syn_queue`].
    pub fn tcp_listen_with(
        &mut self,
        addr: SocketAddr,
        backlog: usize,
        config: &Config,
    ) -> Result<SocketId, Error> {
        let Engine { tcp, cx, ip, .. } = &mut *self.engine;
        tcp.listen_with(cx, &mut ip.reach, addr, backlog, config)
    }

    /// Opens a connection to `remote` from an address and port of the engine's choice; the
    /// handshake begins in the next turn. `remote` is another host, unless the engine has a
    /// loopback link ([`LinksHandle::add_loopback`](crate::LinksHandle::add_loopback)): without one
    /// 127.0.0.1 and ::1 are [`Error::NetworkUnreachable`].
    pub fn tcp_connect(&mut self, remote: SocketAddr) -> Result<SocketId, Error> {
        let config = self.engine.tcp.config.clone();
        self.tcp_connect_with(remote, None, &config)
    }

    /// Opens a connection to `remote`, from `local` when given (its port may be 0). With
    /// `Config::fast_open`, where a cookie is known, it waits for the first write or read, 50 ms at
    /// most, to send what was written with the SYN (RFC 7413); it counts as connected meanwhile,
    /// and failure shows in what is called later.
    pub fn tcp_connect_with(
        &mut self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        config: &Config,
    ) -> Result<SocketId, Error> {
        let Engine { tcp, cx, ip, .. } = &mut *self.engine;
        tcp.connect_with(cx, &mut ip.reach, remote, local, config)
    }

    /// Opens a UDP socket. Port 0 asks for a free ephemeral one; an unspecified address takes
    /// datagrams for any own address, the IPv6 one those of IPv4 as well.
    pub fn udp_bind(&mut self, addr: SocketAddr) -> Result<SocketId, Error> {
        self.engine.udp.open(&mut self.engine.cx, &self.engine.ip.reach, addr, false)
    }

    /// The same for an address that other sockets have which were opened so, too (as with
    /// SO_REUSEADDR in Linux): 64 on a port. Each of them gets the datagrams to a group that it has
    /// joined; those to the engine itself the one that was opened last.
    ///
    /// # Errors
    /// As [`udp_bind`](Self::udp_bind); also [`Error::Limit`] when as many have the port.
    pub fn udp_bind_shared(&mut self, addr: SocketAddr) -> Result<SocketId, Error> {
        self.engine.udp.open(&mut self.engine.cx, &self.engine.ip.reach, addr, true)
    }

    /// Opens an echo socket; identifier 0 asks for a free one.
    pub fn icmp_bind(&mut self, identifier: u16) -> Result<SocketId, Error> {
        self.engine.echo.open(&mut self.engine.cx, identifier)
    }

    /// Resets all connections that are left: nobody answers for them any more.
    pub(crate) fn reset_all(&mut self) {
        let ids: Vec<SocketId> =
            self.engine.tcp.table.sockets.iter().map(|(_, socket)| socket.id).collect();
        ids.into_iter().for_each(|id| self.engine.tcp.abort(&mut self.engine.cx, id));
        while self.engine.flush_if_due() {}
    }
}
