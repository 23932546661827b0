//! Reasons why a socket call fails.

use std::fmt;
use std::io;
use std::time::Duration;

/// Why a socket operation failed. Converts to [`io::Error`] with the kind that `std::net` would
/// give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Nothing to read, no room to write, no connection to accept yet.
    WouldBlock,
    /// The socket was closed or never existed.
    NoSuchSocket,
    /// The operation does not fit this kind of socket or its state.
    Invalid(&'static str),
    /// The connection is not (or no longer) open.
    NotConnected,
    /// The peer reset the connection.
    ConnectionReset,
    /// The peer refused the connection, or its host said that nobody is there (ICMP port or
    /// protocol unreachable).
    ConnectionRefused,
    /// The connection was given up here.
    ConnectionAborted,
    /// The peer did not answer in time.
    TimedOut,
    /// Writing after the write side was shut down.
    BrokenPipe,
    /// Another socket has this address.
    AddrInUse,
    /// Not an address of this engine, or no free port.
    AddrNotAvailable,
    /// No route to the destination, here or at a router that said so.
    NetworkUnreachable,
    /// No link leads there any more, as links have failed or were removed. A call that has to wait
    /// then is told, of
    /// [`net`](crate::net) once; the socket stays as it is.
    NetworkDown,
    /// A router or the neighbour look-up says that the host is not there.
    HostUnreachable,
    /// Somebody on the way has orders to let nothing through, and said so (ICMPv6; in IPv4 that is
    /// [`HostUnreachable`](Self::HostUnreachable) or [`NetworkUnreachable`](Self::NetworkUnreachable), as in Linux).
    Prohibited,
    /// To all of a network, by a socket that may not
    /// ([`UdpHandle::set_broadcast`](crate::UdpHandle::set_broadcast)).
    Broadcast,
    /// Somebody on the way, or the peer's host, found fault with the headers (ICMP parameter
    /// problem).
    BadHeader,
    /// Longer than the protocol or the path can carry.
    MessageTooLong,
    /// A limit of [`crate::Limits`], or that of the route table, is reached; the name of the limit.
    Limit(&'static str),
    /// The pool has no frame left.
    Exhausted,
    /// The connection was reset here: memory was short, and for long nothing of what the connection
    /// held went on, to the peer or to the application.
    Evicted,
    /// The engine has ended.
    EngineGone,
    /// A call that an engine's thread runs ([`with_engine`](crate::net::Stack::with_engine)) would
    /// wait for an engine: for its own for ever, and for another as long as that may wait for this
    /// one.
    EngineThread,
}

impl Error {
    /// The matching kind of [`io::Error`].
    pub fn kind(self) -> io::ErrorKind {
        match self {
            Self::WouldBlock => io::ErrorKind::WouldBlock,
            Self::NoSuchSocket | Self::NotConnected => io::ErrorKind::NotConnected,
            Self::Invalid(_) => io::ErrorKind::InvalidInput,
            Self::ConnectionReset => io::ErrorKind::ConnectionReset,
            Self::ConnectionRefused => io::ErrorKind::ConnectionRefused,
            Self::ConnectionAborted => io::ErrorKind::ConnectionAborted,
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::BrokenPipe | Self::EngineGone => io::ErrorKind::BrokenPipe,
            Self::AddrInUse => io::ErrorKind::AddrInUse,
            Self::AddrNotAvailable => io::ErrorKind::AddrNotAvailable,
            Self::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
            Self::NetworkDown => io::ErrorKind::NetworkDown,
            Self::HostUnreachable => io::ErrorKind::HostUnreachable,
            Self::Prohibited | Self::Broadcast => io::ErrorKind::PermissionDenied,
            Self::BadHeader => io::ErrorKind::Other,
            Self::MessageTooLong => io::ErrorKind::InvalidInput,
            Self::Limit(_) => io::ErrorKind::QuotaExceeded,
            Self::Exhausted | Self::Evicted => io::ErrorKind::OutOfMemory,
            Self::EngineThread => io::ErrorKind::Deadlock,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::WouldBlock => "the operation would block",
            Self::NoSuchSocket => "no such socket",
            Self::Invalid(what) => what,
            Self::NotConnected => "not connected",
            Self::ConnectionReset => "connection reset by the peer",
            Self::ConnectionRefused => "connection refused",
            Self::ConnectionAborted => "connection aborted",
            Self::TimedOut => "timed out",
            Self::BrokenPipe => "the write side is shut down",
            Self::AddrInUse => "address in use",
            Self::AddrNotAvailable => "not an address of this engine, or no free port",
            Self::NetworkUnreachable => "no route to the destination, here or on the way",
            Self::NetworkDown => "the network is down: no link leads there any more",
            Self::HostUnreachable => "host unreachable",
            Self::Prohibited => "prohibited on the way",
            Self::Broadcast => "the socket may not send to broadcast addresses",
            Self::BadHeader => "the headers were found faulty on the way",
            Self::MessageTooLong => "message too long",
            Self::Limit(limit) => return write!(f, "limit reached: {limit}"),
            Self::Exhausted => "no free frame in the pool",
            Self::Evicted => {
                "reset here, as memory was short and little of what the connection held moved"
            }
            Self::EngineGone => "the engine has ended",
            Self::EngineThread => {
                "a call inside with_engine would wait for an engine: use the Engine it is given, or another thread"
            }
        };
        f.write_str(text)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        // Would-block is the common answer of a non-blocking call: without an allocation.
        if error == Error::WouldBlock {
            return io::ErrorKind::WouldBlock.into();
        }
        Self::new(error.kind(), error)
    }
}

/// Checks the timeout of a call as `std::net` does: zero fails with `InvalidInput`.
pub(crate) fn nonzero(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    match timeout {
        Some(Duration::ZERO) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a timeout of zero"))
        }
        timeout => Ok(timeout),
    }
}
