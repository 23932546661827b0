//! How long the calls of a socket wait. What is set holds from the next call that must wait on, also while one waits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use super::waiter::{Waiter, deadline};
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

/// One call's wait, which may have many parts and one end.
pub struct Wait<'a> {
    nonblocking: &'a AtomicBool,
    timeout: &'a Timeout,
    waiter: &'a Waiter,
    /// Found when it first waits.
    until: Option<Option<StdInstant>>,
}

impl Patience {
    /// Whether calls return at once when they would block.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// The wait of a call that reads.
    pub fn to_read<'a>(&'a self, waiter: &'a Waiter) -> Wait<'a> {
        Wait { nonblocking: &self.nonblocking, timeout: &self.read, waiter, until: None }
    }

    /// The wait of a call that writes.
    pub fn to_write<'a>(&'a self, waiter: &'a Waiter) -> Wait<'a> {
        Wait { nonblocking: &self.nonblocking, timeout: &self.write, waiter, until: None }
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

impl Wait<'_> {
    /// Waits until `ready`; `WouldBlock` where the call may not wait, or no longer.
    pub fn until(&mut self, ready: impl FnMut() -> bool) -> io::Result<()> {
        if self.nonblocking.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let until = *self.until.get_or_insert_with(|| deadline(self.timeout.get()));
        match self.waiter.wait(until, ready) {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}
