//! Binding a socket the best way that can be had.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use millstream_packet::Extent;

use super::socket::{Memory, Socket};
use super::{BusyPoll, XdpConfig};
use crate::raw::socket::join;
use crate::sys::check;
use crate::{LinkError, limits};

/// The extent that all frames are in.
#[derive(Clone, Copy)]
pub(super) struct OneExtent(pub Extent);

// SAFETY: only where the memory is, and how much; nobody reads or writes through it here.
unsafe impl Send for OneExtent {}
// SAFETY: as above.
unsafe impl Sync for OneExtent {}

/// A socket bound to `queue`, zero-copy if that can be had, and what is to be said about it.
pub(super) fn bind(
    config: &XdpConfig,
    index: u32,
    queue: u32,
    extent: OneExtent,
    first: Option<RawFd>,
    has_fragments: bool,
) -> Result<(Socket, Vec<String>), LinkError> {
    let XdpConfig { interface, ring, copy, busy_poll, .. } = config;
    let size = ring.unwrap_or(limits::XDP_RING).next_power_of_two();
    let memory = first.map_or(Memory::Own(extent.0), |_| Memory::Shared);
    let common = libc::XDP_USE_NEED_WAKEUP | if has_fragments { libc::XDP_USE_SG } else { 0 };
    let attempts: &[u16] = match (first, copy) {
        (Some(_), _) => &[libc::XDP_SHARED_UMEM],
        (None, true) => &[libc::XDP_COPY],
        (None, false) => &[libc::XDP_ZEROCOPY, libc::XDP_COPY],
    };
    let mut notes = Vec::new();
    let mut last = None;
    for mode in attempts {
        let socket = Socket::open(memory, size)?;
        if let Some(BusyPoll { time, budget }) = *busy_poll
            && let Err(error) = socket.set_busy_poll(time, budget)
        {
            notes.push(format!("{interface}: no busy polling: {error}"));
        }
        // The mode of shared memory is that of the first socket.
        let flags = if first.is_some() { *mode } else { mode | common };
        match socket.bind(index, queue, flags, first.unwrap_or(0)) {
            Ok(()) => return Ok((socket, notes)),
            Err(error) => {
                if *mode == libc::XDP_ZEROCOPY {
                    notes.push(format!("{interface}: no zero-copy, frames are copied: {error}"));
                }
                last = Some(error);
            }
        }
    }
    let hint = last.as_ref().map_or("", |error| why(error, first.is_some(), has_fragments));
    let what = format!("bind an AF_XDP socket to queue {queue} of {interface}{hint}");
    Err(last.map_or_else(|| LinkError::last(&*what), |error| LinkError::from_io(&*what, error)))
}

/// What most likely stands behind a refusal: the kernel itself says no more than a number.
pub(super) fn why(error: &io::Error, is_shared: bool, has_fragments: bool) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => " (another socket has it)",
        Some(libc::EINVAL) if is_shared => {
            " (is there such a queue? several of them need the shared memory of Linux 5.10)"
        }
        Some(libc::EINVAL | libc::EOPNOTSUPP) if has_fragments => {
            " (is there such a queue? an MTU beyond one frame needs the multi-buffer of Linux 6.6)"
        }
        Some(libc::EINVAL) => " (is there such a queue?)",
        _ => "",
    }
}

/// A packet socket that receives nothing: while it is open the interface passes every group, or
/// every station.
pub(super) fn filter(name: &str, promiscuous: bool) -> Result<OwnedFd, LinkError> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers. With protocol 0 it receives nothing.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })
        .map_err(|e| LinkError::from_io(format!("open a packet socket on {name}"), e))?;
    // SAFETY: `fd` was just opened and is owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    join(fd.as_raw_fd(), name, promiscuous)?;
    Ok(fd)
}
