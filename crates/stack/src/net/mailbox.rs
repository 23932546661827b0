//! The application's way to the engine: calls, sets of sockets with work, the waker.
//!
//! The thread of an engine may not wait for any engine. For its own it would wait for ever; another
//! one may be about to wait for this one, or for packets that only this one delivers. So engines
//! cannot come to wait for each other in a circle, and which calls are refused depends on no
//! timing.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use millstream_packet::Pool;

use super::ready::ReadySet;
use super::sockets::Sockets;
use super::waiter::Waiter;
use crate::door::timeouts::Timeout;
use crate::{Engine, Error, SocketId, SocketKind, Waker};

/// See the module text.
pub struct Mailbox {
    calls: Mutex<Vec<Call>>,
    has_calls: AtomicBool,
    /// TCP sockets, by slot, whose rings or wishes the engine must look at.
    pub streams: ReadySet,
    /// UDP sockets likewise.
    pub datagrams: ReadySet,
    /// Listeners likewise.
    pub listeners: ReadySet,
    pub waker: Waker,
    pub pool: Pool,
    stop: AtomicBool,
    ended: AtomicBool,
    /// The time for which connections are still served at the end; without one, as long as peers
    /// take something.
    pub linger: Timeout,
}

type Call = Box<dyn FnOnce(&mut Sockets) + Send>;

impl Mailbox {
    pub fn new(engine: &Engine) -> Self {
        let limits = engine.inspect().limits();
        Self {
            calls: Mutex::new(Vec::new()),
            has_calls: AtomicBool::new(false),
            streams: ReadySet::new(limits.connection_slots()),
            datagrams: ReadySet::new(limits.udp_sockets.saturating_add(limits.udp_flows)),
            listeners: ReadySet::new(limits.listeners),
            waker: engine.waker(),
            pool: engine.pool().clone(),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            linger: Timeout::default(),
        }
    }

    /// Tells the engine to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Returns true if the engine has been told to end.
    pub fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The engine has ended. Calls that came in meanwhile are answered by their being dropped.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        drop(self.take_calls());
    }

    /// Returns true if the engine's thread must not sleep.
    pub fn is_busy(&self) -> bool {
        self.has_calls.load(Ordering::SeqCst)
            || !self.streams.is_empty()
            || !self.datagrams.is_empty()
            || !self.listeners.is_empty()
            || self.has_stopped()
    }

    /// Has the engine look at a socket; wakes it if that is news.
    pub fn nudge(&self, id: SocketId) {
        let set = match id.kind() {
            SocketKind::Tcp => &self.streams,
            SocketKind::Listener => &self.listeners,
            SocketKind::Udp | SocketKind::Icmp => &self.datagrams,
        };
        if set.add(id.slot()) {
            self.waker.wake();
        }
    }

    /// Returns the error for a call that found no frame or view. Wakes the engine when the pool
    /// wants to grow: only an engine lets it grow, between turns, and a sleeping one does not know
    /// of the need.
    #[cold]
    pub fn exhausted(&self) -> Error {
        if self.pool.growth_wanted() {
            self.waker.wake();
        }
        Error::Exhausted
    }

    /// Leaves a call for the engine's thread; drops it where that has ended.
    pub fn post(&self, call: impl FnOnce(&mut Sockets) + Send + 'static) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(call));
        self.has_calls.store(true, Ordering::SeqCst);
        self.waker.wake();
        if self.ended.load(Ordering::SeqCst) {
            drop(self.take_calls());
        }
    }

    pub fn take_calls(&self) -> Vec<Call> {
        if !self.has_calls.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a question in the engine's thread and waits for the answer.
    pub fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Sockets) -> T + Send + 'static,
    ) -> Result<T, Error> {
        // A thread that may not wait need not for an engine that has ended.
        if self.ended.load(Ordering::SeqCst) {
            return Err(Error::EngineGone);
        }
        may_wait()?;
        self.ask_later(call).wait()
    }

    /// Runs a question in the engine's thread, for whoever takes the answer there later.
    pub fn ask_later<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Sockets) -> T + Send + 'static,
    ) -> Answer<T> {
        let (asked, answer) = question();
        self.post(move |sockets| asked.answer(call(sockets)));
        answer
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

/// Returns the two ends of an answer that crosses threads once.
pub fn question<T>() -> (Asked<T>, Answer<T>) {
    let reply = Arc::new(Reply { said: Mutex::new(None), waiter: Waiter::default() });
    (Asked(Arc::clone(&reply)), Answer(reply))
}

struct Reply<T> {
    /// The answer, or that there will be none.
    said: Mutex<Option<Result<T, Error>>>,
    waiter: Waiter,
}

impl<T> Reply<T> {
    fn say(&self, answer: Result<T, Error>) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(answer);
        self.waiter.ring();
    }

    fn take(&self) -> Option<Result<T, Error>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The end of whoever is asked. Dropped without an answer, it tells that there is none.
pub struct Asked<T>(Arc<Reply<T>>);

impl<T> Asked<T> {
    pub fn answer(self, answer: T) {
        self.0.say(Ok(answer));
    }
}

impl<T> Drop for Asked<T> {
    fn drop(&mut self) {
        self.0.say(Err(Error::EngineGone));
    }
}

/// The end of whoever asks: a thread that waits, or a task.
pub struct Answer<T>(Arc<Reply<T>>);

impl<T> Answer<T> {
    /// Waits for the answer. Fails when the engine ends without one.
    pub fn wait(self) -> Result<T, Error> {
        let mut answer = None;
        self.0.waiter.wait(None, || {
            answer = self.0.take();
            answer.is_some()
        });
        answer.unwrap_or(Err(Error::EngineGone))
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = None;
        self.0.waiter.poll(context.waker(), || {
            answer = self.0.take();
            answer.is_some()
        });
        answer.map_or(Poll::Pending, Poll::Ready)
    }
}
