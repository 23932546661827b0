//! The application's handle of an engine that has a thread of its own.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream_link::sys::IdleLatencyState;
use millstream_packet::Pool;

use super::engine_task::EngineTask;
use super::mailbox::{Mailbox, enter_engine, may_wait, question};
use super::ready::ReadySet;
use super::worker::Worker;
use crate::stats::Undelivered;
use crate::{Engine, EngineStats, Error, LinkInfo, LiveConfig, SocketInfo, WakeStats};

/// Where the thread of an engine runs and how it waits, as [`std::thread::Builder`] has it for any
/// thread.
///
/// ```
/// use std::time::Duration;
///
/// use millstream::net::StackBuilder;
/// use millstream::{Engine, EngineConfig};
///
/// # fn main() -> std::io::Result<()> {
/// let stack = StackBuilder::new()
///     .busy_poll(Duration::from_micros(50))
///     .linger(Duration::from_secs(2))
///     .spawn(|| Engine::new(EngineConfig::default()))?;
/// assert_eq!(stack.sockets()?.len(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct StackBuilder {
    cpu: Option<usize>,
    busy_poll: Option<Duration>,
    idle_latency: Option<Duration>,
    linger: Option<Duration>,
    live: Option<LiveConfig>,
}

impl StackBuilder {
    /// Leaves all to the system and to the engine that will be made.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds the engine's thread to a CPU; `None` leaves it to the system.
    #[must_use]
    pub fn cpu(mut self, cpu: impl Into<Option<usize>>) -> Self {
        self.cpu = cpu.into();
        self
    }

    /// Sets the engine's longest busy-poll time, in place of the one it was made with.
    #[must_use]
    pub fn busy_poll(mut self, busy_poll: Duration) -> Self {
        self.busy_poll = Some(busy_poll);
        self
    }

    /// Asks the kernel for CPUs that wake up within this time, in place of the one it was made with
    /// ([`Engine::set_idle_latency`]).
    #[must_use]
    pub fn idle_latency(mut self, limit: Duration) -> Self {
        self.idle_latency = Some(limit);
        self
    }

    /// Bounds the time for which unsent data is still delivered to its peers when the engine ends
    /// ([`Stack::shutdown`]).
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = Some(linger);
        self
    }

    /// Names the counters that other processes read, instead of the engine's own ([`LiveConfig`]).
    #[must_use]
    pub fn live(mut self, config: impl Into<LiveConfig>) -> Self {
        self.live = Some(config.into());
        self
    }

    /// Starts a thread that makes an engine by `build` and runs it. Fails as `build` does, where
    /// the engine's [`Limits`](crate::Limits) allow more than 262,144 sockets of a kind, and inside
    /// of [`with_engine`](Stack::with_engine), as it waits for the engine.
    pub fn spawn(
        self,
        build: impl FnOnce() -> io::Result<Engine> + Send + 'static,
    ) -> io::Result<Stack> {
        may_wait()?;
        let (asked, started) = question();
        let body = move || match self.start(build) {
            Ok(worker) => {
                enter_engine();
                asked.answer(Ok(Arc::clone(&worker.mailbox)));
                worker.run()
            }
            Err(error) => {
                asked.answer(Err(error));
                Undelivered::default()
            }
        };
        let thread = thread::Builder::new().name("millstream".into()).spawn(body)?;
        let mailbox = started.wait()??;
        let (thread, undelivered) = (Mutex::new(Some(thread)), OnceLock::new());
        Ok(Stack { handle: Arc::new(Handle { mailbox, thread, undelivered }) })
    }

    fn start(self, build: impl FnOnce() -> io::Result<Engine>) -> io::Result<Worker> {
        if let Some(cpu) = self.cpu {
            let named = |error: io::Error| {
                let text = format!("put the engine's thread on CPU {cpu}: {error}");
                io::Error::new(error.kind(), text)
            };
            millstream_link::sys::pin_current_thread(cpu).map_err(named)?;
        }
        let mut engine = build()?;
        if let Some(busy_poll) = self.busy_poll {
            engine.set_busy_poll(busy_poll);
        }
        if self.idle_latency.is_some() {
            engine.set_idle_latency(self.idle_latency);
        }
        if self.live.is_some() {
            engine.set_live(self.live.as_ref());
        }
        let worker = worker(engine)?;
        worker.mailbox.linger.put(self.linger);
        Ok(worker)
    }
}

/// Ends the engine's thread when the last handle goes.
pub struct Handle {
    pub mailbox: Arc<Mailbox>,
    thread: Mutex<Option<JoinHandle<Undelivered>>>,
    /// The data that the engine had not delivered when it ended.
    undelivered: OnceLock<Undelivered>,
}

impl Handle {
    fn stop(&self) -> Undelivered {
        self.mailbox.stop();
        if may_wait().is_err() {
            // It ends by itself: behind the call that this is part of, where that is its own.
            return Undelivered::default();
        }
        // The lock is kept: whoever else stops it finds it gone.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // Nobody knows how much a thread that has panicked left undelivered.
            let _ = self.undelivered.set(thread.join().unwrap_or_default());
        }
        self.undelivered.get().copied().unwrap_or_default()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An engine that runs in its own thread. Clones name the same one; it ends with
/// [`Stack::shutdown`], or when the last clone and the last socket are gone.
///
/// A call that asks the engine waits for the end of its turn. It fails with `BrokenPipe` when the
/// engine has ended, and with `Deadlock` inside of [`with_engine`](Self::with_engine).
///
/// ```
/// use millstream::link::{PairConfig, pair};
/// use millstream::net::{Stack, UdpSocket};
/// use millstream::{Engine, EngineConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (near, far) = pair(PairConfig::default())?;
/// let stack = Stack::spawn(|| {
///     let mut engine = Engine::new(EngineConfig::default())?;
///     let link = engine.add_link(Box::new(near))?;
///     engine.add_address(link, "10.9.0.1/24".parse().map_err(std::io::Error::other)?)?;
///     Ok(engine)
/// })?;
/// let socket = UdpSocket::bind(&stack, "10.9.0.1:53")?;
/// assert_eq!(stack.sockets()?.len(), 1);
/// # drop((socket, far));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stack {
    pub(super) handle: Arc<Handle>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").finish_non_exhaustive()
    }
}

impl Stack {
    /// Starts a thread that makes an engine by `build` and runs it, as [`StackBuilder::spawn`] of a
    /// new one does.
    pub fn spawn(build: impl FnOnce() -> io::Result<Engine> + Send + 'static) -> io::Result<Self> {
        StackBuilder::new().spawn(build)
    }

    /// Returns the handle of an engine that has no thread, and the engine as the work of a task.
    /// Fails where the engine's [`Limits`](crate::Limits) allow more than 262,144 sockets of a kind.
    ///
    /// A call that waits for the engine in the thread that runs the task waits for ever: there the
    /// calls that a task waits for are to be used. [`shutdown`](Self::shutdown) tells the task to end, and
    /// does not wait for it.
    pub fn in_task(mut engine: Engine) -> io::Result<(Self, EngineTask)> {
        // Others are to have the thread while there is nothing to do.
        engine.set_busy_poll(Duration::ZERO);
        let worker = worker(engine)?;
        let (mailbox, undelivered) = (Arc::clone(&worker.mailbox), OnceLock::new());
        let handle = Arc::new(Handle { mailbox, thread: Mutex::new(None), undelivered });
        Ok((Self { handle }, EngineTask::new(worker)))
    }

    /// Ends the engine: open connections are shut down, and those that nobody accepted are reset.
    /// Written data is still delivered to its peers, for [`StackBuilder::linger`] at most; where that
    /// is not set, for as long as one of them acknowledges something every five seconds. Then peers
    /// get half a second to end their sides, and datagrams to leave; connections that are not at
    /// their end after that are reset, and the thread is joined. Returns the data that was not
    /// delivered. (Inside of [`with_engine`](Self::with_engine) the thread ends by itself, and the
    /// result is empty.) The same happens when the last clone and the last socket are gone.
    ///
    /// Afterwards data that had reached a stream's ring can still be read: up to 2 MiB. The first
    /// call on a stream that was open fails with `BrokenPipe`, as the first call after any end of a
    /// connection reports it. From then on reads return the end (0), and writes fail with
    /// `BrokenPipe`. A stream that had ended before behaves as before. Listeners, UDP sockets and
    /// calls that ask the engine fail with `BrokenPipe`. The same holds when the engine's thread
    /// ends by a panic.
    pub fn shutdown(&self) -> Undelivered {
        self.handle.stop()
    }

    /// Ends the engine as [`shutdown`](Self::shutdown) does, but delivers written data for `linger`
    /// at most. The time counts from the beginning of the end, also if another thread waits for
    /// that already.
    pub fn shutdown_within(&self, linger: Duration) -> Undelivered {
        self.handle.mailbox.linger.put(Some(linger));
        self.handle.stop()
    }

    /// Returns the engine's counters.
    pub fn stats(&self) -> io::Result<EngineStats> {
        Ok(self.handle.mailbox.ask(|sockets| sockets.engine.stats().clone())?)
    }

    /// Returns how often the application's threads told the engine's of news, and how often they
    /// woke it.
    pub fn wakeup_stats(&self) -> WakeStats {
        self.handle.mailbox.waker.stats()
    }

    /// Returns the wake-up time of CPUs that was asked for, and the one in force now
    /// ([`Inspect::idle_latency`](crate::Inspect::idle_latency)).
    pub fn idle_latency(&self) -> io::Result<Option<IdleLatencyState>> {
        Ok(self.handle.mailbox.ask(|sockets| sockets.engine.inspect().idle_latency())?)
    }

    /// Returns the engine's links: their counters, the state of their interfaces, and why one is
    /// not used any more.
    pub fn links(&self) -> io::Result<Vec<LinkInfo>> {
        Ok(self.handle.mailbox.ask(|sockets| sockets.engine.inspect().links().collect())?)
    }

    /// Returns all sockets of the engine.
    pub fn sockets(&self) -> io::Result<Vec<SocketInfo>> {
        Ok(self.handle.mailbox.ask(|sockets| sockets.engine.inspect().sockets().collect())?)
    }

    /// Runs `call` on the engine, in its thread, between turns. The engine does nothing else
    /// meanwhile. Inside of `call` no call may wait for an engine, this one or another: calls of a
    /// stack, of its sockets and of pollers that would have to wait fail with
    /// [`Deadlock`](io::ErrorKind::Deadlock), as two engines that ask each other would wait for
    /// ever. Use the `Engine` that `call` is given, or another thread. Calls that need not wait
    /// work as ever: reads of data that has come, writes that have room, all non-blocking calls.
    pub fn with_engine<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> io::Result<T> {
        Ok(self.handle.mailbox.ask(|sockets| call(&mut sockets.engine))?)
    }

    /// The pool that packets for [`TcpStream::write_packet`](super::TcpStream::write_packet) come
    /// from.
    pub fn pool(&self) -> &Pool {
        &self.handle.mailbox.pool
    }
}

fn worker(engine: Engine) -> io::Result<Worker> {
    let limits = engine.inspect().limits();
    let datagrams = limits.udp_sockets.saturating_add(limits.udp_flows);
    if limits.connection_slots().max(datagrams).max(limits.listeners) > ReadySet::LIMIT {
        return Err(Error::Invalid("more sockets than an engine in its own thread can have").into());
    }
    Ok(Worker::new(engine))
}
