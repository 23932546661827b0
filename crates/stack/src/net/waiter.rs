//! A thread or a task that waits for the engine: woken once, and only when it sleeps.
//!
//! ```text
//!             waiting thread                      ringing thread
//!   writes    armed: true; then asks              what is asked for; then armed: false (swap)
//! ```
//! Both have a sequentially consistent fence between their two steps, so either the one sees that
//! it is there, or the other that it waits. The loom test at the end tries every order of events
//! (`make loom`).

#[cfg(all(loom, test))]
use loom::{
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
};
#[cfg(all(loom, test))]
use parking as thread;
#[cfg(all(loom, test))]
use parking::Thread;
use std::cell::Cell;
use std::sync::PoisonError;
#[cfg(not(all(loom, test)))]
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};
use std::task::Waker;
#[cfg(not(all(loom, test)))]
use std::thread::{self, Thread};
use std::time::{Duration, Instant as StdInstant};

use crate::WakeStats;

thread_local! {
    static WOKE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the calling thread has woken another since its last call.
pub fn take_woke() -> bool {
    WOKE.replace(false)
}

/// Returns the moment when a wait of `timeout` is over; `None` is never, also for a moment that the
/// clock cannot express.
pub fn deadline(timeout: Option<Duration>) -> Option<StdInstant> {
    timeout.and_then(|timeout| StdInstant::now().checked_add(timeout))
}

/// The one that a ring wakes.
#[derive(Clone)]
enum Sleeper {
    Thread(Thread),
    Task(Waker),
}

/// A thread that waits for the engine, or a task: one at a time, the one that keeps watch at its
/// [`Side`](super::side::Side), or the one that asked last.
#[derive(Default)]
pub struct Waiter {
    armed: AtomicBool,
    /// Written by the engine's thread alone.
    edges: AtomicU64,
    wakes: AtomicU64,
    /// Written by the waiting thread alone.
    sleeps: AtomicU64,
    sleeper: Mutex<Option<Sleeper>>,
}

impl Waiter {
    /// Sleeps until `ready` or the deadline; returns false when the time is over. `ready` is asked
    /// after the waiter is armed, so that a later change rings it.
    pub fn wait(&self, deadline: Option<StdInstant>, mut ready: impl FnMut() -> bool) -> bool {
        self.wakes(Sleeper::Thread(thread::current()));
        loop {
            if self.is_ready_when_armed(&mut ready) {
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
                    // no time passes in loom
                    #[cfg(all(loom, test))]
                    thread::park();
                    #[cfg(not(all(loom, test)))]
                    thread::park_timeout(left);
                }
            }
        }
    }

    /// Has the next ring wake a task; returns true, and wakes nobody, if it is `ready`, which is
    /// asked as in [`wait`](Self::wait).
    pub fn poll(&self, task: &Waker, ready: impl FnMut() -> bool) -> bool {
        self.wakes(Sleeper::Task(task.clone()));
        self.is_ready_when_armed(ready)
    }

    fn wakes(&self, sleeper: Sleeper) {
        // Dropped behind the lock: with the last waker of a task things may go that wait here, too.
        let _before = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner).replace(sleeper);
    }

    fn is_ready_when_armed(&self, mut ready: impl FnMut() -> bool) -> bool {
        add_one(&self.sleeps);
        // An exchange, as `ring`'s is: they are in one order, whichever of them a load finds. It
        // costs what a store with this ordering costs.
        self.armed.swap(true, Ordering::SeqCst);
        // Pairs with the fence in `ring`.
        fence(Ordering::SeqCst);
        let is_ready = ready();
        if is_ready {
            self.armed.store(false, Ordering::Relaxed);
        }
        is_ready
    }

    /// Returns how often it was rung, was woken and had armed itself.
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
            WOKE.set(true);
            // Not under the lock: who is woken may run before this thread goes on, and takes the
            // lock to sleep again.
            let sleeper = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match sleeper {
                Some(Sleeper::Thread(thread)) => thread.unpark(),
                Some(Sleeper::Task(task)) => task.wake(),
                None => {}
            }
        }
    }
}

/// Adds one to a count that one thread alone writes: without an atomic read-modify-write.
fn add_one(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn who_rings_learns_whether_that_woke_somebody() {
        let waiter = Arc::new(Waiter::default());
        waiter.ring();
        assert!(!take_woke(), "nobody slept");
        let said = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let (waiter, said) = (waiter.clone(), said.clone());
            thread::spawn(move || assert!(waiter.wait(None, || said.load(Ordering::SeqCst))))
        };
        while !waiter.armed.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        said.store(true, Ordering::SeqCst);
        waiter.ring();
        sleeper.join().unwrap();
        assert_eq!(take_woke(), waiter.stats().wakes == 1);
        assert!(!take_woke(), "told once");
    }
}

/// Replaces loom's parking, which also wakes a thread that waits for a lock.
#[cfg(all(loom, test))]
mod parking {
    use loom::sync::{Arc, Condvar, Mutex};

    loom::thread_local! {
        static CURRENT: Thread = Thread(Arc::new((Mutex::new(false), Condvar::new())));
    }

    #[derive(Clone)]
    pub struct Thread(Arc<(Mutex<bool>, Condvar)>);

    impl Thread {
        pub fn unpark(&self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_one();
        }
    }

    pub fn current() -> Thread {
        CURRENT.with(Clone::clone)
    }

    pub fn park() {
        let Thread(own) = current();
        let mut token = own.0.lock().unwrap();
        while !*token {
            token = own.1.wait(token).unwrap();
        }
        *token = false;
    }
}

#[cfg(all(loom, test))]
mod loom_tests {
    use super::*;
    use std::time::Duration;

    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    /// The engine announces two things, one after the other; the thread waits for each. If it waits
    /// for one that is there already, that is a deadlock, which loom reports.
    fn each_is_heard_of(deadline: Option<StdInstant>) {
        let waiter = Arc::new(Waiter::default());
        let said = Arc::new(AtomicUsize::new(0));
        let engine = {
            let (waiter, said) = (waiter.clone(), said.clone());
            loom::thread::spawn(move || {
                for count in 1..=2 {
                    said.store(count, Ordering::Release);
                    waiter.ring();
                }
            })
        };
        let mut heard = 0;
        while heard < 2 {
            assert!(waiter.wait(deadline, || said.load(Ordering::Acquire) > heard));
            heard = said.load(Ordering::Acquire);
        }
        engine.join().unwrap();
        let stats = waiter.stats();
        assert!(stats.wakes <= stats.sleeps && stats.wakes <= stats.edges, "{stats:?}");
        assert_eq!(stats.edges, 2);
    }

    #[test]
    fn no_ring_is_lost() {
        let later = StdInstant::now() + Duration::from_secs(86_400);
        for deadline in [None, Some(later)] {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(3);
            model.check(move || each_is_heard_of(deadline));
        }
    }
}
