//! Where a poller hears of news of its sockets.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use millstream_link::sys::EventFd;

use super::ready::ReadySet;
use super::waiter::Waiter;

/// The sockets of a poller that have news, by index, and the thread that waits for some.
pub struct Target {
    pub set: ReadySet,
    pub waiter: Waiter,
    /// A wait is to end without news.
    pub is_woken: AtomicBool,
    event: OnceLock<EventFd>,
    /// The event has been signalled since it was cleared last.
    is_signalled: AtomicBool,
}

impl Target {
    pub fn new() -> Self {
        Self {
            set: ReadySet::new(ReadySet::LIMIT),
            waiter: Waiter::default(),
            is_woken: AtomicBool::new(false),
            event: OnceLock::new(),
            is_signalled: AtomicBool::new(false),
        }
    }

    /// Returns a descriptor that is readable while there is something to be told. Without a call of
    /// this there is none.
    pub fn descriptor(&self) -> std::io::Result<BorrowedFd<'_>> {
        if self.event.get().is_none() {
            let _ = self.event.set(EventFd::new()?);
            // Signalled, as something may have come before.
            self.signal();
        }
        Ok(self.event.get().ok_or(crate::Error::WouldBlock)?.as_fd())
    }

    /// There is news: wakes who waits.
    pub fn ring(&self) {
        self.waiter.ring();
        self.signal();
    }

    fn signal(&self) {
        if let Some(event) = self.event.get()
            && !self.is_signalled.swap(true, Ordering::SeqCst)
        {
            event.signal();
        }
    }

    /// All there is to tell is about to be taken. In this order: who tells from now on signals
    /// again. A signal that is late is one for nothing.
    pub fn clear(&self) {
        if let Some(event) = self.event.get() {
            event.clear();
            self.is_signalled.store(false, Ordering::SeqCst);
        }
    }
}

/// Where one socket's news go.
pub struct PollTarget {
    pub target: Arc<Target>,
    pub index: u32,
}

impl PollTarget {
    pub fn tell(&self) {
        if self.target.set.add(self.index) {
            self.target.ring();
        }
    }
}
