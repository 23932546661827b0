//! A thread that waits for the engine, or an engine for a thread: woken once, and only when it sleeps.
//!
//! ```text
//!             who waits                           who rings
//!   writes    armed: true; then asks              what is asked for; then armed: false (swap)
//! ```
//! Both have a sequentially consistent fence between their two steps, so either the one sees that it is
//! there, or the other that it waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant as StdInstant;

use crate::WakeStats;

/// A thread that waits for the engine. One at a time: callers hold their side's lock.
#[derive(Default)]
pub struct Waiter {
    armed: AtomicBool,
    /// Written by the engine's thread alone.
    edges: AtomicU64,
    wakes: AtomicU64,
    /// Written by the waiting thread alone.
    sleeps: AtomicU64,
    thread: Mutex<Option<Thread>>,
}

impl Waiter {
    /// Sleeps until `ready` or the deadline; false when the time is over. `ready` is asked after the
    /// waiter is armed, so that what changes afterwards rings it.
    pub fn wait(&self, deadline: Option<StdInstant>, mut ready: impl FnMut() -> bool) -> bool {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        loop {
            add_one(&self.sleeps);
            self.armed.store(true, Ordering::SeqCst);
            // Pairs with the fence in `ring`.
            fence(Ordering::SeqCst);
            if ready() {
                self.armed.store(false, Ordering::Relaxed);
                return true;
            }
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(StdInstant::now());
                    if left.is_zero() {
                        self.armed.store(false, Ordering::Relaxed);
                        return false;
                    }
                    thread::park_timeout(left);
                }
            }
        }
    }

    /// How often it was rung, woken and had armed itself.
    pub fn stats(&self) -> WakeStats {
        WakeStats {
            edges: self.edges.load(Ordering::Relaxed),
            wakes: self.wakes.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
        }
    }

    /// Wakes the waiter if there is one: one system call for each time that it went to sleep.
    pub fn ring(&self) {
        add_one(&self.edges);
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            add_one(&self.wakes);
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(thread) = &*thread {
                thread.unpark();
            }
        }
    }
}

/// Counts where one thread alone writes: without a read-modify-write of the bus.
fn add_one(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
