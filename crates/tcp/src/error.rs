//! Errors of calls on a connection.

use core::fmt;
use millstream_packet::Packet;

/// Why a call failed, or how the connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnError {
    /// Nothing to read, or no room to write, now.
    WouldBlock,
    /// The handshake is not done yet.
    NotConnected,
    /// This direction was shut, or the connection is closed.
    Closed,
    /// The peer reset the connection.
    Reset,
    /// The peer refused it: RST in answer to our SYN, or its host said that nobody is there (ICMP
    /// port or protocol unreachable).
    Refused,
    /// Retransmissions, probes or the user timeout gave up.
    TimedOut,
    /// The application aborted it.
    Aborted,
    /// A router, or the look-up of the neighbour, said that the peer's host cannot be reached.
    HostUnreachable,
    /// A router said that the peer's network cannot be reached.
    NetworkUnreachable,
    /// Somebody on the way has orders to let nothing through.
    Prohibited,
    /// Somebody on the way, or the peer's host, found fault with the headers (ICMP parameter
    /// problem).
    BadHeader,
    /// No frame is free; try later.
    NoMemory,
    /// Reset here, as memory was short and nothing of what it held went on for long.
    Evicted,
}

impl ConnError {
    /// Short lower-case name, for counters and messages.
    pub fn name(self) -> &'static str {
        match self {
            ConnError::WouldBlock => "would block",
            ConnError::NotConnected => "not connected",
            ConnError::Closed => "closed",
            ConnError::Reset => "connection reset by peer",
            ConnError::Refused => "connection refused",
            ConnError::TimedOut => "timed out",
            ConnError::Aborted => "aborted",
            ConnError::HostUnreachable => "host unreachable",
            ConnError::NetworkUnreachable => "network unreachable",
            ConnError::Prohibited => "prohibited on the way",
            ConnError::BadHeader => "headers found faulty on the way",
            ConnError::NoMemory => "no free frame",
            ConnError::Evicted => "evicted: memory was short and little moved",
        }
    }
}

impl fmt::Display for ConnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for ConnError {}

/// A packet that was not taken, given back with the reason.
pub struct Refused {
    /// The packet, unchanged.
    pub packet: Packet,
    /// Why it was not taken.
    pub why: ConnError,
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refused({})", self.why)
    }
}
