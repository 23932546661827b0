//! What a call on a connection can answer besides success.

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
    /// The peer refused it: RST in answer to our SYN.
    Refused,
    /// Retransmissions, probes or the user timeout gave up.
    TimedOut,
    /// The application aborted it.
    Aborted,
    /// A router or the peer's host reported that it cannot be reached.
    Unreachable,
    /// No frame is free; try later.
    NoMemory,
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
            ConnError::Unreachable => "unreachable",
            ConnError::NoMemory => "no free frame",
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
