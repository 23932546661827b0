//! The event that a thread sleeps on, as those see it who wake it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

use crate::sys::EventFd;

/// A count that a sleeper waits for: an [`EventFd`], or a model of one in tests.
pub trait Event {
    /// Adds one to the count, waking who sleeps on it.
    fn signal(&self);
    /// Returns the count and sets it to zero, without waiting.
    fn clear(&self) -> u64;
}

impl Event for EventFd {
    fn signal(&self) {
        EventFd::signal(self);
    }

    fn clear(&self) -> u64 {
        EventFd::clear(self)
    }
}

/// An [`EventFd`] that is opened before the first sleep on it: a sleeper that never sleeps has no
/// descriptor.
#[derive(Debug, Default)]
pub struct LateEvent(OnceLock<EventFd>);

impl LateEvent {
    /// Returns the descriptor to sleep on. The sleeper asks for it before it announces a sleep.
    ///
    /// # Errors
    /// When the process has no free descriptor.
    pub fn descriptor(&self) -> io::Result<RawFd> {
        if self.0.get().is_none() {
            // Of two that open one at once the other's stays.
            let _ = self.0.set(EventFd::new()?);
        }
        Ok(self.0.get().map_or(-1, |event| event.as_raw_fd()))
    }
}

impl Event for LateEvent {
    fn signal(&self) {
        if let Some(event) = self.0.get() {
            event.signal();
        }
    }

    fn clear(&self) -> u64 {
        self.0.get().map_or(0, EventFd::clear)
    }
}

/// An eventfd whose reader can block, for loom: a sleeper that nobody wakes is a deadlock, which
/// loom reports.
#[cfg(loom)]
#[derive(Default)]
pub struct EventModel {
    count: loom::sync::Mutex<u64>,
    rung: loom::sync::Condvar,
}

#[cfg(loom)]
impl EventModel {
    /// Waits until the count is above zero.
    pub fn sleep(&self) {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            count = self.rung.wait(count).unwrap();
        }
    }
}

#[cfg(loom)]
impl Event for EventModel {
    fn signal(&self) {
        *self.count.lock().unwrap() += 1;
        self.rung.notify_one();
    }

    fn clear(&self) -> u64 {
        std::mem::take(&mut *self.count.lock().unwrap())
    }
}
