//! The sink of events: layers tell it what happens to packets and connections, and it tells those
//! who subscribe.
//!
//! Subscribers are the traces of sampled packets and the events of watched connections; others read
//! both by the control socket (docs/trace.md). No layer knows a subscriber, and the sink knows no
//! layer. While nobody subscribes a batch costs one comparison, and so does a connection that is
//! served.

pub(in crate::engine) mod connections;
pub(in crate::engine) mod packet_trace;

use millstream_packet::Instant;
use millstream_tcp::Connection;

use crate::socket::SocketId;
use connections::ConnectionEvents;
use packet_trace::PacketTraces;

/// See the module text.
#[derive(Default)]
pub(in crate::engine) struct EventSink {
    pub packets: PacketTraces,
    pub connections: ConnectionEvents,
}

/// A connection as subscribers see it.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Observed<'a> {
    pub id: SocketId,
    pub conn: &'a Connection,
    /// The application may read what it has received.
    pub is_read: bool,
}

impl EventSink {
    /// Returns whether anybody subscribes.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.packets.is_on() || self.connections.is_on()
    }

    /// Returns whether a subscriber may follow the socket in this slot.
    #[inline]
    pub fn follows(&self, slot: u32) -> bool {
        self.packets.follows(slot) || self.connections.watches(slot)
    }

    /// A connection may have changed: by a segment, a timer, a call of the application, or what it
    /// has sent.
    #[cold]
    pub fn connection_changed(&mut self, socket: Observed<'_>, now: Instant) {
        if self.packets.follows(socket.id.slot()) {
            self.packets.progress(socket.id, &socket.into());
        }
        if self.connections.watches(socket.id.slot()) {
            self.connections.look(socket, now);
        }
    }
}
