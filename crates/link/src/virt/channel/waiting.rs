//! An end of a channel that waits for the link: a task or a thread, woken once for each wait.
//!
//! It says that it waits, with a fence, and looks at its ring again. Whoever changes the ring does
//! so first, and looks after a fence whether somebody waits. So one of them sees the other.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// See the module text.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    is_armed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Waiting {
    /// Announces that the task waits. Its end looks at the ring after this.
    pub fn arm(&self, waker: &Waker) {
        let mut known = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *known {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        drop(known);
        self.is_armed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Wakes the one that waits, if there is one: after a change of the ring and a fence. Takes the
    /// lock for that alone.
    pub fn notify(&self) -> bool {
        if !self.is_armed.load(Ordering::Relaxed) || !self.is_armed.swap(false, Ordering::AcqRel) {
            return false;
        }
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        waker.inspect(Waker::wake_by_ref).is_some()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until there is an answer; the thread sleeps in between.
pub(super) fn block<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(answer) = poll(&mut context) {
            return answer;
        }
        thread::park();
    }
}
