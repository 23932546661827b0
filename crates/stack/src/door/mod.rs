//! Sockets by the names of `std::net`, written once for both doors.
//!
//! [`local`](crate::local) and [`net`](crate::net) each name the sockets of their own:
//! `net::TcpStream` is a [`TcpStream`] that [`net`](crate::net) drives. All calls mean the same in
//! both, and fail with the same kinds of error. Handles that [`TcpStream::try_clone`] made are one
//! socket, like duplicated file descriptors: settings of one hold for all, and it closes with the
//! last of them.
//!
//! A call that has to wait does so for as long as the time-out of its socket says, and fails with
//! [`WouldBlock`](std::io::ErrorKind::WouldBlock) then, or at once where the socket is
//! non-blocking.

pub(crate) mod driver;
mod listener;
mod tcp;
pub(crate) mod timeouts;
mod udp;

pub use listener::{Incoming, TcpListener};
pub use tcp::TcpStream;
pub use udp::UdpSocket;
