//! How long the calls of a socket wait. What is set holds from the next call that must wait on, also while one waits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use super::waiter::deadline;
use crate::error::nonzero;

/// Of one socket; at first, calls wait as long as it takes.
#[derive(Default)]
pub struct Patience {
    nonblocking: AtomicBool,
    pub read: Timeout,
    pub write: Timeout,
}

/// What a call waits at most.
#[derive(Default)]
pub struct Timeout(Mutex<Option<Duration>>);

impl Patience {
    /// Whether calls return at once when they would block.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Until when a call waits that reads and comes to wait now; asked once a call.
    pub fn to_read(&self) -> io::Result<Option<StdInstant>> {
        self.until(&self.read)
    }

    /// The same of a call that writes.
    pub fn to_write(&self) -> io::Result<Option<StdInstant>> {
        self.until(&self.write)
    }

    fn until(&self, timeout: &Timeout) -> io::Result<Option<StdInstant>> {
        match self.nonblocking.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => Ok(deadline(timeout.get())),
        }
    }
}

impl Timeout {
    /// No time at all is refused.
    pub fn set(&self, timeout: Option<Duration>) -> io::Result<()> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = nonzero(timeout)?;
        Ok(())
    }

    pub fn get(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
