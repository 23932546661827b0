//! Whether a link leads to where a socket's packets go, for who tells those that wait.

use crate::engine::Engine;
use crate::socket::{SocketId, SocketKind};

impl Engine {
    /// Changes when reachability may have: with the routes, and when a link comes or goes.
    #[inline]
    pub(crate) fn reachability(&self) -> (u32, u32) {
        self.ip.routing.generations()
    }

    /// Whether a link is in use.
    pub(crate) fn has_links(&self) -> bool {
        self.ip.links.used_count() != 0
    }

    /// Whether links have failed or were removed, ever.
    #[inline]
    pub(crate) fn has_lost_links(&self) -> bool {
        self.ip.links.has_lost()
    }

    /// Whether a link leads to the socket's peer, or there is one where it has none. So it is of one that is over.
    pub(crate) fn is_reachable(&mut self, id: SocketId) -> bool {
        let (remote, scope) = match id.kind() {
            SocketKind::Tcp => match self.tcp.by_id(id) {
                Some((_, socket)) if !socket.conn.is_closed() => {
                    (Some(socket.conn.ends().remote), Some(socket.scope))
                }
                _ => return true,
            },
            SocketKind::Udp => match self.udp.by_id(id) {
                Ok(socket) => (socket.remote, socket.scope),
                Err(_) => return true,
            },
            SocketKind::Listener | SocketKind::Icmp => (None, None),
        };
        match remote {
            Some(peer) => self.ip.next_hop(peer.ip(), scope).is_some(),
            None => self.ip.links.used_count() != 0,
        }
    }
}
