//! The times that the calls of a socket wait. A new setting holds from the next call that has to
//! wait.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::nonzero;

/// The times of one socket; at first, calls wait as long as it takes.
#[derive(Debug, Default)]
pub struct Timeouts {
    nonblocking: AtomicBool,
    pub read: Timeout,
    pub write: Timeout,
}

/// The longest time that a call waits; `None` is no limit.
#[derive(Debug, Default)]
pub struct Timeout(Mutex<Option<Duration>>);

impl Timeouts {
    /// Makes calls return at once instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Returns how long a call may wait that reads and comes to wait now; asked once a call.
    pub fn to_read(&self) -> io::Result<Option<Duration>> {
        self.to_wait(&self.read)
    }

    /// The same of a call that writes.
    pub fn to_write(&self) -> io::Result<Option<Duration>> {
        self.to_wait(&self.write)
    }

    fn to_wait(&self, timeout: &Timeout) -> io::Result<Option<Duration>> {
        match self.nonblocking.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => Ok(timeout.get()),
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
