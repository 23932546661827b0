//! The times that the calls of a socket wait. A new setting holds from the next call that has to
//! wait.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::nonzero;

/// The times of one socket; at first, calls wait as long as it takes.
#[derive(Debug, Default)]
pub struct Timeouts {
    nonblocking: AtomicBool,
    pub read: Timeout,
    pub write: Timeout,
}

/// The longest time that a call waits, in nanoseconds; [`NO_LIMIT`] stands for none.
#[derive(Debug)]
pub struct Timeout(AtomicU64);

/// See [`Timeout`].
const NO_LIMIT: u64 = u64::MAX;

impl Default for Timeout {
    fn default() -> Self {
        Self(AtomicU64::new(NO_LIMIT))
    }
}

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
        self.put(nonzero(timeout)?);
        Ok(())
    }

    /// Sets any time; one of more than 584 years is cut to that.
    pub fn put(&self, timeout: Option<Duration>) {
        let ns = |timeout: Duration| u64::try_from(timeout.as_nanos()).unwrap_or(NO_LIMIT - 1);
        self.0.store(timeout.map_or(NO_LIMIT, ns), Ordering::Relaxed);
    }

    pub fn get(&self) -> Option<Duration> {
        let ns = self.0.load(Ordering::Relaxed);
        (ns != NO_LIMIT).then_some(Duration::from_nanos(ns))
    }
}
