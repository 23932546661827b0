//! One side of a socket: state that one thread at a time uses, and none while it sleeps.
//!
//! ```text
//!   lock      for the moment of an attempt; nobody sleeps with it
//!   watch     the one sleeping thread that the engine wakes (`waiter`)
//!   queue     the others: a thread that leaves wakes one, unless somebody keeps watch
//! ```
//! The engine knows of the watch alone, and rings it once an edge, however many wait. While a
//! thread is in the queue, another keeps watch, or is awake and on its way to the lock; a thread
//! that leaves ensures that.

#[cfg(all(loom, test))]
use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicU32, Ordering},
};
use std::io;
#[cfg(not(all(loom, test)))]
use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicU32, Ordering},
};
use std::sync::{PoisonError, TryLockError};
use std::time::Instant as StdInstant;

use super::waiter::Waiter;

/// See the module text.
pub struct Side<T> {
    turn: Mutex<Turn<T>>,
    queue: Condvar,
    /// Threads that wait for the lock or in the queue.
    others: AtomicU32,
}

/// The state that the lock guards.
struct Turn<T> {
    value: T,
    /// Threads in the queue, including those that were woken and do not have the lock yet.
    queued: u32,
    /// True while a thread keeps watch.
    is_watched: bool,
}

/// The outcome of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum Tried<R> {
    Done(R),
    /// There is nothing to take, or no room.
    Blocked,
    /// It could go on, but lets waiting threads go first. It has made some progress.
    GivesWay,
}

impl<R> Tried<R> {
    /// Returns `Done` for a result, and `Blocked` for none.
    pub fn of(result: Option<R>) -> Self {
        result.map_or(Self::Blocked, Self::Done)
    }
}

/// The lock, for a moment.
type Held<'a, T> = MutexGuard<'a, Turn<T>>;

impl<T> Side<T> {
    pub fn new(value: T) -> Self {
        let turn = Mutex::new(Turn { value, queued: 0, is_watched: false });
        Self { turn, queue: Condvar::new(), others: AtomicU32::new(0) }
    }

    /// Runs a call that does not wait.
    pub fn with<R>(&self, call: impl FnOnce(&mut T) -> R) -> R {
        let mut turn = self.lock();
        let result = call(&mut turn.value);
        self.leave(turn);
        result
    }

    /// Returns true while other threads wait for this side.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.others.load(Ordering::Relaxed) != 0
    }

    /// Attempts until it is done. Between attempts it sleeps until `is_ready`, a change of which
    /// rings `waiter`. It fails with `WouldBlock` at the moment that `deadline` returns, which is
    /// called when it first has to wait.
    #[inline]
    pub fn run<R>(
        &self,
        waiter: &Waiter,
        deadline: impl FnOnce() -> io::Result<Option<StdInstant>>,
        is_ready: impl Fn(&T) -> bool,
        mut attempt: impl FnMut(&mut T) -> Tried<io::Result<R>>,
    ) -> io::Result<R> {
        let mut turn = self.lock();
        let gives_way = match attempt(&mut turn.value) {
            Tried::Done(result) => {
                self.leave(turn);
                return result;
            }
            Tried::Blocked => false,
            Tried::GivesWay => true,
        };
        let deadline = match deadline() {
            Ok(deadline) => deadline,
            Err(error) => {
                self.leave(turn);
                return Err(error);
            }
        };
        let mut done = None;
        let mut again = |value: &mut T| match attempt(value) {
            Tried::Done(result) => {
                done = Some(result);
                Tried::Done(())
            }
            Tried::Blocked => Tried::Blocked,
            Tried::GivesWay => Tried::GivesWay,
        };
        self.wait(turn, gives_way, waiter, deadline, &is_ready, &mut again);
        done.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    /// The rest of [`run`](Self::run), where there is nothing to be had at first.
    #[cold]
    fn wait<'a>(
        &'a self,
        mut turn: Held<'a, T>,
        mut gives_way: bool,
        waiter: &Waiter,
        deadline: Option<StdInstant>,
        is_ready: &dyn Fn(&T) -> bool,
        attempt: &mut dyn FnMut(&mut T) -> Tried<()>,
    ) {
        loop {
            let is_in_time;
            (turn, is_in_time) = if gives_way || turn.is_watched {
                self.stand_in_queue(turn, deadline)
            } else {
                self.keep_watch(turn, waiter, deadline, is_ready)
            };
            let tried = attempt(&mut turn.value);
            if tried == Tried::Done(()) || !is_in_time {
                return self.leave(turn);
            }
            gives_way = tried == Tried::GivesWay;
        }
    }

    /// Sleeps until the engine rings and something is ready. Returns false when the time is over.
    fn keep_watch<'a>(
        &'a self,
        mut turn: Held<'a, T>,
        waiter: &Waiter,
        deadline: Option<StdInstant>,
        is_ready: &dyn Fn(&T) -> bool,
    ) -> (Held<'a, T>, bool) {
        turn.is_watched = true;
        let mut held = Some(turn);
        let is_in_time = waiter.wait(deadline, || {
            let turn = held.take().unwrap_or_else(|| self.lock());
            let is_ready = is_ready(&turn.value);
            held = is_ready.then_some(turn);
            is_ready
        });
        let mut turn = held.unwrap_or_else(|| self.lock());
        turn.is_watched = false;
        (turn, is_in_time)
    }

    /// Sleeps until another thread leaves. Returns false when the time is over.
    fn stand_in_queue<'a>(
        &'a self,
        mut turn: Held<'a, T>,
        deadline: Option<StdInstant>,
    ) -> (Held<'a, T>, bool) {
        let left = deadline.map(|it| it.saturating_duration_since(StdInstant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return (turn, false);
        }
        if turn.queued != 0 && !turn.is_watched {
            self.queue.notify_one();
        }
        turn.queued += 1;
        self.others.fetch_add(1, Ordering::Relaxed);
        let mut turn = match left {
            None => self.queue.wait(turn).unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                let waited = self.queue.wait_timeout(turn, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        self.others.fetch_sub(1, Ordering::Relaxed);
        turn.queued -= 1;
        (turn, deadline.is_none_or(|deadline| StdInstant::now() < deadline))
    }

    /// Locks. A poisoned lock is taken too: the value is plain data, which is whole even if a
    /// holder panicked.
    #[inline]
    fn lock(&self) -> Held<'_, T> {
        match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => self.wait_for_lock(),
        }
    }

    #[cold]
    fn wait_for_lock(&self) -> Held<'_, T> {
        self.others.fetch_add(1, Ordering::Relaxed);
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.others.fetch_sub(1, Ordering::Relaxed);
        turn
    }

    /// Gives the lock back, and the turn to the next in the queue unless somebody keeps watch.
    #[inline]
    fn leave(&self, turn: Held<'_, T>) {
        let hands_over = turn.queued != 0 && !turn.is_watched;
        drop(turn);
        if hands_over {
            self.queue.notify_one();
        }
    }
}

#[cfg(all(loom, test))]
mod loom_tests {
    use super::*;

    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// Counts of what an engine has given, and of how much of it threads have taken.
    struct Socket {
        given: AtomicUsize,
        taken: Side<usize>,
        waiter: Waiter,
    }

    impl Socket {
        fn new() -> Arc<Self> {
            let (taken, waiter) = (Side::new(0), Waiter::default());
            Arc::new(Self { given: AtomicUsize::new(0), taken, waiter })
        }

        /// The engine's side.
        fn give(&self) {
            self.given.fetch_add(1, Ordering::Release);
            self.waiter.ring();
        }

        fn take(&self, until: io::Result<Option<StdInstant>>) -> bool {
            let has_some = |taken: &usize| self.given.load(Ordering::Acquire) > *taken;
            let attempt = |taken: &mut usize| Tried::of(has_some(taken).then(|| Ok(*taken += 1)));
            self.taken.run(&self.waiter, || until, has_some, attempt).is_ok()
        }

        /// Takes two, and lets others go first between them.
        fn take_two(&self) {
            let mut left = 2;
            let has_some = |taken: &usize| self.given.load(Ordering::Acquire) > *taken;
            let attempt = |taken: &mut usize| {
                while has_some(taken) {
                    *taken += 1;
                    left -= 1;
                    if left == 0 {
                        return Tried::Done(Ok(()));
                    }
                    if self.taken.is_wanted() {
                        return Tried::GivesWay;
                    }
                }
                Tried::Blocked
            };
            assert!(self.taken.run(&self.waiter, || Ok(None), has_some, attempt).is_ok());
        }
    }

    fn model(body: impl Fn(&Arc<Socket>) + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let socket = Socket::new();
            body(&socket);
            // One wake-up an edge, however many wait.
            let stats = socket.waiter.stats();
            assert!(stats.wakes <= stats.sleeps && stats.wakes <= stats.edges, "{stats:?}");
        });
    }

    fn spawn(socket: &Arc<Socket>, call: impl FnOnce(&Socket) + 'static) -> thread::JoinHandle<()> {
        let socket = socket.clone();
        thread::spawn(move || call(&socket))
    }

    /// Two threads wait for two things. One that waits for ever is a deadlock, which loom reports.
    #[test]
    fn each_of_those_who_wait_gets_something() {
        model(|socket| {
            let others = [(); 2].map(|()| spawn(socket, |it| assert!(it.take(Ok(None)))));
            socket.give();
            socket.give();
            for other in others {
                other.join().unwrap();
            }
        });
    }

    /// A thread that leaves hands over its duty. As much comes as both want.
    #[test]
    fn who_gives_up_leaves_nobody_asleep() {
        for is_nonblocking in [false, true] {
            model(move |socket| {
                let until = move || match is_nonblocking {
                    true => Err(io::ErrorKind::WouldBlock.into()),
                    false => Ok(Some(StdInstant::now())),
                };
                let patient = spawn(socket, |it| assert!(it.take(Ok(None))));
                let other = spawn(socket, move |it| {
                    let _ = it.take(until());
                });
                socket.give();
                socket.give();
                patient.join().unwrap();
                other.join().unwrap();
            });
        }
    }

    #[test]
    fn who_gives_way_goes_on() {
        model(|socket| {
            let large = spawn(socket, Socket::take_two);
            let small = spawn(socket, |it| assert!(it.take(Ok(None))));
            for _ in 0..3 {
                socket.give();
            }
            large.join().unwrap();
            small.join().unwrap();
        });
    }
}
