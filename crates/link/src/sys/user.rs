//! The user of this process, and the one at the other end of a Unix socket; the thread that asks.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The user that this process acts as.
pub fn effective_uid() -> u32 {
    // SAFETY: it only returns a number.
    unsafe { libc::geteuid() }
}

/// Returns the number of the thread that asks, as `/proc` has it.
pub fn thread_id() -> u32 {
    // SAFETY: it only returns a number.
    unsafe { libc::gettid() as u32 }
}

/// The user that the process at the other end acted as when it connected (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// The system's answer.
pub fn peer_uid(socket: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `peer`, which has as many.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    match done {
        0 => Ok(peer.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "no Unix sockets there")]
    fn the_other_end_of_a_pair_is_this_user() {
        let (one, other) = UnixStream::pair().expect("a pair");
        assert_eq!(peer_uid(&one).expect("known"), effective_uid());
        assert_eq!(peer_uid(&other).expect("known"), effective_uid());
    }
}
