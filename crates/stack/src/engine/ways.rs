//! Whether a link leads to where a socket's packets go, for who tells those that wait.

use super::Engine;
use crate::socket::SocketId;

impl Engine {
    /// Changes when ways may have: with the routes, and when a link fails.
    #[inline]
    pub(crate) fn ways_state(&self) -> (u32, usize) {
        (self.out.routes.generation(), self.out.failed_links)
    }

    /// Whether links have failed.
    pub(crate) fn has_failed_links(&self) -> bool {
        self.out.failed_links != 0
    }

    /// Whether there is a link.
    pub(crate) fn has_links(&self) -> bool {
        self.out.usable_links().next().is_some()
    }

    /// Whether a connection has a way to its peer, or is over.
    pub(crate) fn tcp_has_way(&mut self, id: SocketId) -> bool {
        let Some((_, socket)) = self.tcp.by_id(id) else { return true };
        let way = self.out.way(socket.conn.ends().remote.ip(), socket.scope);
        socket.conn.is_closed() || way.is_some()
    }

    /// Whether a datagram socket has a way to its peer, or to anybody where it has none.
    pub(crate) fn udp_has_way(&mut self, id: SocketId) -> bool {
        let Ok(socket) = self.udp.by_id(id) else { return true };
        let (remote, scope) = (socket.remote, socket.scope);
        remote.map_or_else(|| self.has_links(), |peer| self.out.way(peer.ip(), scope).is_some())
    }
}
