//! Learning what happens to the interface while nothing is received or sent.
//!
//! The kernel unbinds an AF_XDP socket whose interface is removed and wakes who sleeps on it; but
//! poll(2) then says nothing of the socket, and the sleep goes on. Of a packet socket on the
//! interface it says that something happened, when the interface goes down as well as when it is
//! removed. To sleep on both takes a quarter of a microsecond more each time, so that is for links
//! to which nothing has come for a while.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use millstream_packet::Instant;

use crate::kernel::raw::socket::{bind_closed, join, take_error};
use crate::sys::WaitSet;
use crate::{LinkError, limits};

/// A packet socket beside the AF_XDP socket of a link.
#[derive(Debug)]
pub(super) struct Watch {
    /// Receives nothing. While it is open the interface passes every group, or every station.
    socket: OwnedFd,
    /// It and the AF_XDP socket.
    both: WaitSet,
    /// Sleeps are on both.
    is_on: bool,
    /// When to look, or to begin with it.
    next: Instant,
}

impl Watch {
    /// On interface `name`, which passes frames of every group, or (`promiscuous`) to every
    /// station.
    pub fn open(name: &str, promiscuous: bool, xdp: RawFd) -> Result<Self, LinkError> {
        let socket = bind_closed(name)?;
        join(socket.as_raw_fd(), name, promiscuous)?;
        let both = WaitSet::new(socket.as_raw_fd(), Some(xdp))
            .map_err(|error| LinkError::from_io(format!("watch {name}"), error))?;
        Ok(Self { socket, both, is_on: false, next: Instant::ZERO })
    }

    /// The packet socket.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Packets came: the interface is there.
    #[inline(always)]
    pub fn came(&mut self, now: Instant) {
        self.is_on = false;
        self.next = now + limits::XDP_QUIET;
    }

    /// Returns whether something happened to the interface, asked after every vain look for
    /// packets; for one who looks all the time the kernel is asked now and then.
    #[inline(always)]
    pub fn is_troubled(&mut self, now: Instant) -> bool {
        now >= self.next && self.looks_again(now)
    }

    #[cold]
    fn looks_again(&mut self, now: Instant) -> bool {
        self.is_on = true;
        self.next = now + limits::XDP_QUIET;
        self.has_error()
    }

    /// The same before a sleep on [`wait_fd`](Self::wait_fd), for writing, too, if that is wanted.
    pub fn prepare_sleep(&mut self, wants_write: bool) -> io::Result<bool> {
        if !self.is_on {
            return Ok(false);
        }
        self.both.want_write(wants_write)?;
        Ok(self.has_error())
    }

    /// Returns the descriptor to sleep on; `None`: the AF_XDP socket alone.
    pub fn wait_fd(&self) -> Option<RawFd> {
        self.is_on.then(|| self.both.as_raw_fd())
    }

    /// When a sleep is to end for the next ones to be on both.
    #[inline(always)]
    pub fn next_look(&self) -> Option<Instant> {
        (!self.is_on).then_some(self.next)
    }

    fn has_error(&self) -> bool {
        take_error(self.socket.as_raw_fd()) != 0
    }
}
