//! An engine in its application's thread.

use std::cell::{RefCell, RefMut};
use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;

use millstream_packet::Instant;

use crate::engine::{Reader, Received};
use crate::stats::Undelivered;
use crate::tuning::GOODBYE;
use crate::{Engine, Readiness, SocketId, SocketKind, Turn};

/// The longest time for which a simulated host's end sees through what was written.
const SIMULATED_LINGER: Duration = Duration::from_secs(600);

/// A socket and what happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The socket: compare with `id()` of listeners, streams and sockets.
    pub id: SocketId,
    /// Edges: read, write or accept until it would block.
    pub readiness: Readiness,
}

/// An engine in its application's thread. Clones share the engine. Calls that take turns fail where
/// the system refuses to let the thread sleep, with what it says.
///
/// ```
/// use std::time::Duration;
///
/// use millstream::local::{Stack, UdpSocket};
/// use millstream::{Engine, EngineConfig};
///
/// # fn main() -> std::io::Result<()> {
/// let stack = Stack::new(Engine::new(EngineConfig::default())?);
/// let socket = UdpSocket::bind(&stack, "0.0.0.0:53")?;
/// socket.set_read_timeout(Some(Duration::from_millis(1)))?;
/// assert!(socket.recv_from(&mut [0; 64]).is_err(), "nothing has come");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stack {
    shared: Rc<Shared>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").finish_non_exhaustive()
    }
}

/// State that all handles of one engine share.
struct Shared {
    engine: RefCell<Engine>,
    /// Sockets whose handle was dropped while the engine was borrowed.
    dropped: RefCell<Vec<SocketId>>,
    drive: Option<Rc<dyn Drive>>,
}

/// Takes turns of an engine in a time that is not the machine's.
pub(crate) trait Drive {
    /// Takes a turn; when there was nothing to do, has time pass, `most` at most.
    fn run(
        &self,
        engine: &mut Engine,
        most: Option<Duration>,
        read: Option<&mut Reader<'_>>,
    ) -> io::Result<Turn>;
}

/// A stack that may be gone.
pub(crate) struct WeakStack(Weak<Shared>);

impl WeakStack {
    pub fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub fn get(&self) -> Option<Stack> {
        self.0.upgrade().map(|shared| Stack { shared })
    }
}

impl Drop for Shared {
    /// Delivers written data to its peers when the last of all handles goes.
    fn drop(&mut self) {
        let engine = self.engine.get_mut();
        self.dropped.get_mut().drain(..).for_each(|id| engine.close(id));
        if !std::thread::panicking() && self.drive.is_none() {
            end(engine, None);
        }
    }
}

impl Stack {
    /// Takes an engine with its links. When the last clone and the last socket are gone, it ends as
    /// by [`shutdown`](Self::shutdown).
    pub fn new(engine: Engine) -> Self {
        Self::of(engine, None)
    }

    /// Takes an engine whose turns are taken by `drive`, and which nobody sees through at its end.
    pub(crate) fn driven(engine: Engine, drive: Rc<dyn Drive>) -> Self {
        Self::of(engine, Some(drive))
    }

    fn of(engine: Engine, drive: Option<Rc<dyn Drive>>) -> Self {
        let (engine, dropped) = (RefCell::new(engine), RefCell::default());
        Self { shared: Rc::new(Shared { engine, dropped, drive }) }
    }

    pub(crate) fn downgrade(&self) -> WeakStack {
        WeakStack(Rc::downgrade(&self.shared))
    }

    /// Takes a turn, unless a call has the engine.
    pub(crate) fn try_turn(&self, now: Instant) -> Option<Turn> {
        let mut engine = self.shared.engine.try_borrow_mut().ok()?;
        self.close_dropped(&mut engine);
        Some(engine.turn(now))
    }

    /// Takes a turn of the engine, for a read that waits if there is one; sleeps, at most `most`,
    /// when there was nothing to do.
    pub(super) fn run(
        &self,
        engine: &mut Engine,
        most: Option<Duration>,
        read: Option<&mut Reader<'_>>,
    ) -> io::Result<Turn> {
        match &self.shared.drive {
            None => engine.run_once_for(most, read),
            Some(drive) => drive.run(engine, most, read),
        }
    }

    /// Borrows the engine.
    ///
    /// # Panics
    /// When a former result of this method is still held.
    pub fn engine(&self) -> RefMut<'_, Engine> {
        let mut engine = self.shared.engine.borrow_mut();
        self.close_dropped(&mut engine);
        engine
    }

    /// Closes a socket of which the handle is dropped: at once, or when the engine is asked for
    /// next.
    pub(super) fn let_go(&self, id: SocketId) {
        self.shared.dropped.borrow_mut().push(id);
        if let Ok(mut engine) = self.shared.engine.try_borrow_mut() {
            self.close_dropped(&mut engine);
        }
    }

    #[inline]
    fn close_dropped(&self, engine: &mut Engine) {
        let mut dropped = self.shared.dropped.borrow_mut();
        if dropped.is_empty() {
            return;
        }
        engine.refresh_time();
        dropped.drain(..).for_each(|id| engine.close(id));
        engine.flush();
    }

    /// Takes one turn; sleeps, at most `max_sleep`, when there was nothing to do.
    pub fn run_once(&self, max_sleep: Option<Duration>) -> io::Result<Turn> {
        self.run(&mut self.engine(), max_sleep, None)
    }

    /// Takes turns until a socket has news or `timeout` is over (`None`: for ever), and adds all
    /// news to `events`. Also returns, without any, when another thread used the engine's waker, or
    /// when a link has failed ([`Inspect::link_error`](crate::Inspect::link_error)).
    pub fn wait(&self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.wait_for(timeout, events, None)
    }

    /// Waits as [`Stack::wait`] does, and reads: while bulk comes, the link puts the data of
    /// streams that have [`set_wait_read`](super::TcpStream::set_wait_read) on straight into
    /// `memory`. The pieces are added to `received`: for each stream in order, and before all data
    /// that a read of it returns from now on. That is one copy less than a read after an event,
    /// however many streams there are.
    ///
    /// All else (small packets, data out of order or of other streams, ends and errors, and data
    /// behind others that were not read yet) is told by `events` as ever. One call takes at most as
    /// many bytes as `memory` has: 256 KiB are a good size, and less than 64 KiB fit no
    /// super-segment. Bytes of `memory` outside the pieces have no meaning.
    ///
    /// ```no_run
    /// # use std::io::Read;
    /// # use millstream::local::{Stack, TcpStream};
    /// # fn serve(stack: &Stack, streams: &[TcpStream], take: impl Fn(&TcpStream, &[u8])) -> std::io::Result<()> {
    /// for stream in streams {
    ///     stream.set_nonblocking(true)?;
    ///     stream.set_wait_read(true)?;
    /// }
    /// let (mut memory, mut events, mut received) = (vec![0; 256 << 10], Vec::new(), Vec::new());
    /// let find = |id| streams.iter().find(|stream| stream.id() == id);
    /// loop {
    ///     stack.wait_read(None, &mut memory, &mut events, &mut received)?;
    ///     for piece in received.drain(..) {
    ///         find(piece.id).inspect(|stream| take(stream, &memory[piece.range.clone()]));
    ///     }
    ///     for mut stream in events.drain(..).filter_map(|event| find(event.id)) {
    ///         while let Ok(len @ 1..) = stream.read(&mut memory) {
    ///             take(stream, &memory[..len]);
    ///         }
    ///     }
    /// }
    /// # }
    /// ```
    pub fn wait_read(
        &self,
        timeout: Option<Duration>,
        memory: &mut [u8],
        events: &mut Vec<Event>,
        received: &mut Vec<Received>,
    ) -> io::Result<()> {
        self.wait_for(timeout, events, Some((memory, received)))
    }

    fn wait_for(
        &self,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
        mut into: Option<(&mut [u8], &mut Vec<Received>)>,
    ) -> io::Result<()> {
        let mut engine = self.engine();
        let deadline = timeout.map(|timeout| engine.refresh_time() + timeout);
        let before = events.len();
        loop {
            // News from calls made meanwhile keep the turn from sleeping.
            let left = match engine.has_events() {
                true => Some(Duration::ZERO),
                false => deadline.map(|at| at.saturating_duration_since(engine.now())),
            };
            let mut has_read = false;
            match &mut into {
                None => self.run(&mut engine, left, None)?,
                Some((memory, received)) => {
                    let mut read = Reader::of_any(memory, received);
                    let turn = self.run(&mut engine, left, Some(&mut read))?;
                    has_read = read.filled() > 0;
                    turn
                }
            };
            let woken = engine.take_woken();
            while let Some((id, readiness)) = engine.next_event() {
                events.push(Event { id, readiness });
            }
            let over = deadline.is_some_and(|at| engine.now() >= at);
            if has_read || events.len() > before || over || woken {
                return Ok(());
            }
        }
    }

    /// Lets the stack work for `time`.
    pub fn sleep(&self, time: Duration) -> io::Result<()> {
        let mut engine = self.engine();
        let until = engine.refresh_time() + time;
        turns_until(&mut engine, until, |engine, left| self.run(engine, left, None), |_| true)
    }

    /// Ends all connections, as [`net::Stack::shutdown`](crate::net::Stack::shutdown) does:
    /// listeners are closed, open connections are shut down, and those that nobody accepted are
    /// reset. Written data is still delivered to its peers, for as long as one of them acknowledges
    /// something every five seconds. Then peers get half a second to end their sides, and datagrams
    /// to leave; connections that are not at their end after that are reset. Returns the data that
    /// was not delivered. The same happens when the last clone and the last socket are gone.
    ///
    /// The engine stays, to be looked at. Calls on streams and listeners that are over fail with
    /// [`NotConnected`](io::ErrorKind::NotConnected).
    pub fn shutdown(&self) -> Undelivered {
        self.end(None)
    }

    /// Ends all connections as [`shutdown`](Self::shutdown) does, but delivers written data for
    /// `linger` at most.
    pub fn shutdown_within(&self, linger: Duration) -> Undelivered {
        self.end(Some(linger))
    }

    fn end(&self, linger: Option<Duration>) -> Undelivered {
        let mut engine = self.engine();
        if self.shared.drive.is_none() {
            return end(&mut engine, linger);
        }
        let before = close_all(&mut engine);
        let until = engine.now() + linger.unwrap_or(SIMULATED_LINGER);
        let run = |engine: &mut Engine, left| self.run(engine, left, None);
        let is_undelivered = |engine: &Engine| !engine.inspect().to_deliver().0.is_none();
        // Where nothing is left to do, it is over, too.
        let _ = turns_until(&mut engine, until, run, is_undelivered);
        let until = engine.now() + GOODBYE;
        let _ = turns_until(&mut engine, until, run, is_unfinished);
        engine.sockets().reset_all();
        engine.inspect().undelivered().since(before)
    }
}

/// Closes all sockets. Returns the data that was not delivered before.
fn close_all(engine: &mut Engine) -> Undelivered {
    let before = engine.inspect().undelivered();
    engine.refresh_time();
    let ids: Vec<SocketId> = engine.inspect().sockets().map(|socket| socket.id).collect();
    for id in ids {
        match id.kind() {
            // A close would reset it where not all data was read, and lose what was written.
            SocketKind::Tcp if engine.tcp(id).connected() == Ok(true) => {
                let _ = engine.tcp(id).shutdown_write();
            }
            SocketKind::Tcp | SocketKind::Listener => engine.close(id),
            SocketKind::Udp | SocketKind::Icmp => {}
        }
    }
    before
}

fn is_unfinished(engine: &Engine) -> bool {
    engine.inspect().has_waiting() || engine.inspect().has_unfinished()
}

fn end(engine: &mut Engine, linger: Option<Duration>) -> Undelivered {
    let before = close_all(engine);
    let _ = engine.deliver(linger).and_then(|_| {
        let until = engine.now() + GOODBYE;
        turns_until(engine, until, Engine::run_once, is_unfinished)
    });
    engine.sockets().reset_all();
    engine.inspect().undelivered().since(before)
}

/// Takes turns while `goes_on`, at most until the moment `until`.
fn turns_until(
    engine: &mut Engine,
    until: Instant,
    run: impl Fn(&mut Engine, Option<Duration>) -> io::Result<Turn>,
    goes_on: impl Fn(&Engine) -> bool,
) -> io::Result<()> {
    while engine.now() < until && goes_on(engine) {
        let left = until.saturating_duration_since(engine.now());
        run(engine, Some(left))?;
    }
    Ok(())
}
