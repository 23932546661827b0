//! Sockets by the names of `std::net`, written once for both doors.
//!
//! [`local`](crate::local) and [`net`](crate::net) each name the sockets of their own:
//! `net::TcpStream` is a [`TcpStream`] that [`net`](crate::net) drives. All calls mean the same in
//! both, and fail with the same kinds of error. Handles that [`TcpStream::try_clone`] made are one
//! socket, like duplicated file descriptors: settings of one hold for all, and it closes with the
//! last of them.
//!
//! An address is anything that [`ToSocketAddrs`] takes. Where it stands for several, they are tried
//! in order until one succeeds, and the error is that of the last. Names are looked up by the
//! system.
//!
//! A call that has to wait does so for as long as the time-out of its socket says, and fails with
//! [`WouldBlock`](std::io::ErrorKind::WouldBlock) then, or at once where the socket is
//! non-blocking.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::Error;

pub(crate) mod driver;
mod listener;
mod tcp;
pub(crate) mod timeouts;
mod udp;

pub use listener::{Incoming, TcpListener};
pub use tcp::TcpStream;
pub use udp::UdpSocket;

/// Makes a call with one address after the other until one succeeds. Returns the last error
/// otherwise.
fn with_each<T>(
    addr: impl ToSocketAddrs,
    mut call: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut result = Err(Error::Invalid("no address").into());
    for addr in addr.to_socket_addrs()? {
        result = call(addr);
        if result.is_ok() {
            break;
        }
    }
    result
}
