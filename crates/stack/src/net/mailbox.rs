//! The application's way to the engine: calls, sets of sockets with work, the waker.
//!
//! The thread of an engine may not wait for any engine. For its own it would wait for ever; another
//! one may be about to wait for this one, or for packets that only this one delivers. So engines
//! cannot come to wait for each other in a circle, and which calls are refused depends on no
//! timing.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

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
            datagrams: ReadySet::new(limits.udp_sockets),
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

    /// Leaves a call for the engine's thread.
    pub fn post(&self, call: impl FnOnce(&mut Sockets) + Send + 'static) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(call));
        self.has_calls.store(true, Ordering::SeqCst);
        self.waker.wake();
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
        if self.ended.load(Ordering::SeqCst) {
            return Err(Error::EngineGone);
        }
        may_wait()?;
        let reply = Reply::new();
        let answer = Arc::clone(&reply);
        self.post(move |sockets| answer.set(call(sockets)));
        reply.wait(|| self.ended.load(Ordering::SeqCst)).ok_or(Error::EngineGone)
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

/// An answer that crosses threads once.
pub struct Reply<T> {
    value: Mutex<Option<T>>,
    waiter: Waiter,
}

impl<T> Reply<T> {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { value: Mutex::new(None), waiter: Waiter::default() })
    }

    pub fn set(&self, value: T) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        self.waiter.ring();
    }

    /// Waits for the answer; `gone` is asked whether one can still come.
    pub fn wait(&self, gone: impl Fn() -> bool) -> Option<T> {
        let take = || self.value.lock().unwrap_or_else(PoisonError::into_inner).take();
        loop {
            let mut value = None;
            let deadline = StdInstant::now() + Duration::from_millis(100);
            self.waiter.wait(Some(deadline), || {
                value = take();
                value.is_some()
            });
            if value.is_some() {
                return value;
            }
            if gone() {
                return take();
            }
        }
    }
}
