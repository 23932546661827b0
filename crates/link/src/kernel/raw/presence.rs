//! Looks whether the interface of a packet socket is still there.
//!
//! A socket is told once that its interface went down, by an error that a ring never reads and that
//! has it look ready until somebody does. Nothing is told when the interface is removed after that:
//! the socket stays silent.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use millstream_packet::Instant;

use super::socket;
use crate::netdev::live::Interface;
use crate::sys::check;
use crate::{LinkError, limits};

/// The state of the interface, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// It went down and was not seen up since: when to look again.
    look_at: Option<Instant>,
    /// When to ask a socket with a ring for its error again.
    ask_at: Instant,
}

impl Presence {
    /// The kernel said that it is down, or gone.
    pub fn went_down(&mut self) {
        self.look_at.get_or_insert(Instant::ZERO);
    }

    /// Asks a socket with a ring, which has given nothing, for the error that no read tells of, if
    /// it is time to. Who sleeps asks before each sleep; who never does hears of it here.
    pub fn ask(&mut self, now: Instant, fd: &OwnedFd) {
        if now < self.ask_at {
            return;
        }
        self.ask_at = now + limits::ERROR_PAUSE;
        if socket::take_error(fd.as_raw_fd()) != 0 {
            self.went_down();
        }
    }

    /// As far as is known.
    #[inline(always)]
    pub fn is_down(&self) -> bool {
        self.look_at.is_some()
    }

    /// When [`look`](Self::look) is of use; `None` while the interface is up.
    pub fn next_look(&self) -> Option<Instant> {
        self.look_at
    }

    /// Looks what became of an interface that went down, if it is time to. One that is down may
    /// come up again.
    ///
    /// # Errors
    /// When it is gone for good: one of the same name is another.
    pub fn look(&mut self, now: Instant, fd: &OwnedFd, name: &str) -> Result<(), LinkError> {
        if self.look_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        match is_up(fd.as_raw_fd()) {
            Ok(true) => self.look_at = None,
            Ok(false) => self.look_at = Some(now + limits::DOWN_PAUSE),
            Err(_) => return Err(LinkError::gone(name)),
        }
        Ok(())
    }
}

/// Returns whether the interface that `fd` is bound to is up, under whatever name; `ENODEV` when it
/// is there no more.
fn is_up(fd: RawFd) -> io::Result<bool> {
    // SAFETY: a sockaddr_ll is plain data, for which all zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointers are to a live address and its size.
    check(unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut size) })?;
    match u32::try_from(address.sll_ifindex) {
        Ok(index @ 1..) => Interface::find(fd, index)?.is_up(),
        _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
    }
}
