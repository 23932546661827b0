//! Names of sockets, and the events that happen to them.

use std::net::SocketAddr;

/// The name of a socket of one engine. A name outlives its socket and then finds nothing: it
/// carries the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(u64);

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SocketKind {
    /// A TCP connection.
    Tcp = 0,
    /// A TCP listener.
    Listener = 1,
    /// A UDP socket.
    Udp = 2,
    /// An ICMP echo socket.
    Icmp = 3,
}

impl SocketId {
    pub(crate) const fn new(kind: SocketKind, slot: u32, generation: u32) -> Self {
        Self((kind as u64) << 62 | ((generation & 0x3fff_ffff) as u64) << 32 | slot as u64)
    }

    /// Returns the kind of the socket.
    pub fn kind(self) -> SocketKind {
        match self.0 >> 62 {
            0 => SocketKind::Tcp,
            1 => SocketKind::Listener,
            2 => SocketKind::Udp,
            _ => SocketKind::Icmp,
        }
    }

    /// How often its slot was used before.
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & 0x3fff_ffff
    }

    /// The slot number: small, and used again after the socket is gone.
    pub fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// Changes of a socket since its last event: edges, which may be stale when they are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A connection to accept, data or a datagram to read, or the end of the stream.
    pub readable: bool,
    /// Room to write; for a connect under way: it is open.
    pub writable: bool,
    /// The connection is over, orderly or not.
    pub closed: bool,
}

impl Readiness {
    /// There is room again for who was refused.
    pub(crate) const WRITABLE: Self = Self { readable: false, writable: true, closed: false };

    /// Nothing happened.
    #[inline]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Both together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            readable: self.readable | other.readable,
            writable: self.writable | other.writable,
            closed: self.closed | other.closed,
        }
    }
}

/// Sockets with unseen events, each at most once.
#[derive(Default)]
pub(crate) struct EventQueue {
    queue: std::collections::VecDeque<SocketId>,
    /// How often there was something to tell, of whom it had been told before or not.
    told: u64,
}

impl EventQueue {
    /// Adds `what` to the socket's unseen events; `pending` is the socket's own field for them.
    #[inline]
    pub(crate) fn push(&mut self, id: SocketId, pending: &mut Readiness, what: Readiness) {
        if what.is_empty() {
            return;
        }
        self.told += 1;
        if pending.is_empty() {
            self.queue.push_back(id);
        }
        *pending = pending.union(what);
    }

    pub(crate) fn pop(&mut self) -> Option<SocketId> {
        self.queue.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// See the field.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Forgets those of which `lives` says no.
    pub(crate) fn retain(&mut self, lives: impl FnMut(&SocketId) -> bool) {
        self.queue.retain(lives);
        self.queue.shrink_to(2 * self.queue.len());
    }
}

/// One line about a socket, for showing.
#[derive(Clone, Debug)]
pub struct SocketInfo {
    /// Its name.
    pub id: SocketId,
    /// Its kind.
    pub kind: SocketKind,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's, when it has one.
    pub remote: Option<SocketAddr>,
    /// The state of a connection as `ss` names it; `LISTEN` and `UNCONN` for others.
    pub state: &'static str,
    /// Received and not yet read: bytes, or connections to accept, or datagrams; what lies in the
    /// rings of a `net` socket is read already.
    pub receive_queue: usize,
    /// Written and not yet acknowledged, in bytes; of a listener its backlog.
    pub send_queue: usize,
}
