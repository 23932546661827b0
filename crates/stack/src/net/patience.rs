//! How long the calls of a socket wait. What is set holds from the next call that must wait on, also while one waits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant as StdInstant};

use super::waiter::deadline;
use crate::Error;
use crate::error::nonzero;

/// Of one socket; at first, calls wait as long as it takes.
pub struct Patience {
    nonblocking: AtomicBool,
    /// That of the engine, which cannot wait for itself.
    engine: ThreadId,
    pub read: Timeout,
    pub write: Timeout,
}

/// What a call waits at most.
#[derive(Default)]
pub struct Timeout(Mutex<Option<Duration>>);

impl Patience {
    /// Of a socket whose engine runs in the thread `engine`.
    pub fn new(engine: ThreadId) -> Self {
        let (nonblocking, read, write) = Default::default();
        Self { nonblocking, engine, read, write }
    }

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
        if self.nonblocking.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        may_wait_for(self.engine)?;
        Ok(deadline(timeout.get()))
    }
}

/// Refuses a wait for the engine of the thread `engine` in that thread itself.
pub fn may_wait_for(engine: ThreadId) -> Result<(), Error> {
    if thread::current().id() == engine { Err(Error::OwnThread) } else { Ok(()) }
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
