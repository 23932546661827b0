//! The application's side of a socket: the ends of its rings, and the state that it shares with the
//! engine.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant as StdInstant};

use super::mailbox::{Mailbox, may_wait};
use super::shared::{CUT_READ, Shared, TAKEN};
use super::side::{Side, Tried};
use super::sockets::Sockets;
use super::stack::Stack;
use super::waiter::deadline;
use crate::door::driver::{Base, SocketDriver};
use crate::{Engine, Error, SocketId};

/// A socket with rings of which `E` has the ends.
pub struct RingSocket<E: Ends> {
    pub base: Base<Stack>,
    pub shared: Arc<Shared>,
    pub ends: E,
}

/// A socket that the engine has made rings for.
pub type Parts<E> = (SocketId, Arc<Shared>, E);

/// The application's ends of a socket's rings.
pub trait Ends: Sized + Send + 'static {
    /// Has `open` open a socket, and makes rings for it, in the engine's thread.
    fn open(
        sockets: &mut Sockets,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error>,
    ) -> Result<Parts<Self>, Error>;

    /// The application lets go of the socket.
    fn close(socket: &mut RingSocket<Self>);

    /// Returns true if a call that takes something would not wait.
    fn is_readable(&self, shared: &Shared) -> bool;

    /// Returns true if a call that puts something in would not wait.
    fn is_writable(&self, shared: &Shared) -> bool;
}

/// The end of a ring that the application takes from.
pub trait Reader {
    /// Returns true if there is something to take.
    fn is_ready(&self) -> bool;

    /// Does the same, and has it at hand.
    fn has_some(&mut self) -> bool {
        self.is_ready()
    }

    /// Returns true if an engine that waits for room is to be told of some, as a sequentially
    /// consistent operation has told what was taken.
    fn is_half_empty(&self) -> bool;
}

impl<E: Ends> RingSocket<E> {
    pub fn new(stack: &Stack, (id, shared, ends): Parts<E>) -> Self {
        shared.set_state(TAKEN);
        Self { base: Base::new(stack, id), shared, ends }
    }

    /// Returns the way to the engine.
    pub fn mailbox(&self) -> &Mailbox {
        &self.base.stack.handle.mailbox
    }

    /// Tells the engine to look at the socket.
    pub fn nudge(&self) {
        self.mailbox().nudge(self.base.id);
    }

    /// Tells the engine what the application wants.
    pub fn wish(&self, bits: u8) {
        self.shared.wishes.fetch_or(bits, Ordering::AcqRel);
        self.nudge();
    }

    /// Returns a call that the engine's thread makes behind what the socket has sent before.
    pub fn in_order<T>(
        &self,
        call: impl FnOnce(&mut Engine) -> Result<T, Error> + Send + 'static,
    ) -> impl FnOnce(&mut Sockets) -> Result<T, Error> + Send + 'static {
        let id = self.base.id;
        move |sockets| {
            let Sockets { engine, datagrams, streams, .. } = sockets;
            datagrams.send_left(engine, id);
            streams.write_left(engine, id);
            call(engine)
        }
    }

    /// Waits for something in a ring, then runs `take`, for which `rx` has it at hand. When nothing
    /// more comes, as one of the bits `ends` says, returns what `end` does, if anything.
    #[inline]
    pub fn receive<T: Reader, R>(
        &self,
        rx: &Side<T>,
        ends: u32,
        mut take: impl FnMut(&mut T) -> io::Result<R>,
        end: impl Fn() -> Option<io::Result<R>>,
    ) -> io::Result<R> {
        let Self { shared, base, .. } = self;
        let (taken, is_half_empty) = rx.run(
            &shared.reader,
            || until(base.timeouts.to_read()),
            |rx| rx.is_ready() || shared.has(ends | CUT_READ),
            |rx| {
                if !rx.has_some() {
                    let state = shared.state.load(Ordering::Acquire) & (ends | CUT_READ);
                    if state == 0 {
                        return Tried::Blocked;
                    }
                    // Something may have been put in before the end was announced.
                    if !rx.has_some() {
                        return match state & ends {
                            0 => self.blocked(CUT_READ),
                            _ => Tried::of(end().map(|end| end.map(|end| (end, false)))),
                        };
                    }
                }
                Tried::Done(take(rx).map(|taken| (taken, rx.is_half_empty())))
            },
        )?;
        if is_half_empty && shared.takes_stall() {
            self.nudge();
        }
        Ok(taken)
    }

    /// Fails once with `NetworkDown` if no link leads to the peer; otherwise the call has to wait.
    #[cold]
    pub fn blocked<R>(&self, side: u32) -> Tried<io::Result<R>> {
        Tried::of(self.shared.take_cut(side).map(|error| Err(error.into())))
    }
}

/// Returns the moment until which a call waits that may wait for so long.
pub fn until(timeout: io::Result<Option<Duration>>) -> io::Result<Option<StdInstant>> {
    let timeout = timeout?;
    may_wait()?;
    Ok(deadline(timeout))
}

impl<E: Ends> SocketDriver for RingSocket<E> {
    type Stack = Stack;

    fn base(&self) -> &Base<Stack> {
        &self.base
    }

    fn open(
        stack: &Stack,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error> + Send + 'static,
    ) -> io::Result<Self> {
        let parts = stack.handle.mailbox.ask(move |sockets| E::open(sockets, open))??;
        Ok(Self::new(stack, parts))
    }

    fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Engine) -> Result<T, Error> + Send + 'static,
    ) -> io::Result<T> {
        Ok(self.mailbox().ask(self.in_order(call))??)
    }

    fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.shared.take_error().map(io::Error::from))
    }
}

impl<E: Ends> fmt::Debug for RingSocket<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingSocket").field("id", &self.base.id).finish_non_exhaustive()
    }
}

impl<E: Ends> Drop for RingSocket<E> {
    fn drop(&mut self) {
        E::close(self);
    }
}
