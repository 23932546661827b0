//! What a socket has been given and its peer has not acknowledged.

use std::io::Result;
use std::os::fd::AsRawFd;

mod ask {
    nix::ioctl_read_bad!(bytes_queued, libc::TIOCOUTQ, libc::c_int);
}

/// Bytes in the send queue of a connection (`SIOCOUTQ`, tcp(7)).
pub fn unacknowledged(socket: &impl AsRawFd) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: the kernel writes one int to the pointer, which is to a live one.
    unsafe { ask::bytes_queued(socket.as_raw_fd(), &raw mut bytes)? };
    Ok(u64::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_the_peer_does_not_take_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged(&stream).unwrap(), 0);
        stream.set_nonblocking(true).unwrap();
        let mut given = 0;
        while let Ok(len) = stream.write(&[0; 65_536]) {
            given += len as u64;
        }
        let waits = unacknowledged(&stream).unwrap();
        assert!(0 < waits && waits < given, "{waits} of {given}");
    }
}
