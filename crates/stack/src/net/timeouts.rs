//! The times that the calls of a socket wait. A new setting holds from the next call that has to
//! wait.
//!
//! The thread of an engine may not wait for any engine. For its own it would wait for ever; another
//! one may be about to wait for this one, or for packets that only this one delivers. So engines
//! cannot come to wait for each other in a circle, and which calls are refused depends on no
//! timing.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use super::waiter::deadline;
use crate::Error;
use crate::error::nonzero;

/// The times of one socket; at first, calls wait as long as it takes.
#[derive(Default)]
pub struct Timeouts {
    nonblocking: AtomicBool,
    pub read: Timeout,
    pub write: Timeout,
}

/// The longest time that a call waits; `None` is no limit.
#[derive(Default)]
pub struct Timeout(Mutex<Option<Duration>>);

impl Timeouts {
    /// Makes calls return at once instead of waiting.
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
        if self.nonblocking.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        may_wait()?;
        Ok(deadline(timeout.get()))
    }
}

thread_local! {
    static RUNS_AN_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread runs an engine.
pub fn enter_engine() {
    RUNS_AN_ENGINE.set(true);
}

/// Refuses a wait in a thread that runs an engine.
pub fn may_wait() -> Result<(), Error> {
    if RUNS_AN_ENGINE.get() { Err(Error::EngineThread) } else { Ok(()) }
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
