//! Listeners in the style of `std::net`, through a ring.

use std::io;
use std::iter::FusedIterator;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use millstream_packet::ring::{Consumer, spsc};
use millstream_tcp::Config;

use super::mailbox::Mailbox;
use super::shared::{CUT_READ, READ_END, Shared};
use super::side::{Side, Tried};
use super::sockets::ListenerParts;
use super::stack::{Handle, Stack};
use super::stream::StreamParts;
use super::tcp::TcpStream;
use super::timeouts::Timeouts;
use crate::{Error, SocketId};

/// A TCP listener. Dropping it, and all that [`TcpListener::try_clone`] made of it, resets the
/// connections that nobody accepted.
pub struct TcpListener {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpListener")
            .field("id", &self.inner.id)
            .field("local", &self.inner.local)
            .finish_non_exhaustive()
    }
}

/// State that all clones of a listener share.
struct Inner {
    handle: Arc<Handle>,
    id: SocketId,
    local: SocketAddr,
    shared: Arc<Shared>,
    accepted: Side<Consumer<StreamParts>>,
    timeouts: Timeouts,
}

impl TcpListener {
    /// Listens on `addr`; see [`crate::SocketsHandle::tcp_listen_with`]. Up to `backlog`
    /// connections wait to be accepted, and two where it is one.
    pub fn bind(stack: &Stack, addr: SocketAddr, backlog: usize) -> io::Result<Self> {
        Self::open(stack, addr, backlog, None)
    }

    /// Listens on `addr`; its connections get `config`.
    pub fn bind_with(
        stack: &Stack,
        addr: SocketAddr,
        backlog: usize,
        config: &Config,
    ) -> io::Result<Self> {
        Self::open(stack, addr, backlog, Some(config.clone()))
    }

    fn open(
        stack: &Stack,
        addr: SocketAddr,
        backlog: usize,
        config: Option<Config>,
    ) -> io::Result<Self> {
        let parts = stack.handle.mailbox.ask(move |sockets| {
            let engine = &mut sockets.engine;
            let config = config.unwrap_or_else(|| engine.inspect().tcp_config().clone());
            let id = engine.sockets().tcp_listen_with(addr, backlog, &config)?;
            sockets.attach_listener(id)
        })??;
        let ListenerParts { id, shared, accepted, local } = parts;
        let inner = Inner {
            handle: Arc::clone(&stack.handle),
            id,
            local,
            shared,
            accepted: Side::new(accepted),
            timeouts: Timeouts::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Another handle of the same listener, as a duplicated file descriptor is one: each connection
    /// is accepted by one of them, and what either sets is set for both.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { inner: Arc::clone(&self.inner) })
    }

    /// The way to the engine.
    fn mailbox(&self) -> &Mailbox {
        &self.inner.handle.mailbox
    }

    /// The connections as they come: [`accept`](Self::accept), without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// The error of an engine that is gone; a listener has no other that is not told by the call
    /// that meets it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.inner.shared.error().map(io::Error::from))
    }

    /// The next connection, and its peer. Where all links of the engine have failed, or were
    /// removed, it fails with
    /// [`NetworkDown`](io::ErrorKind::NetworkDown), once, also where it waits already.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let Inner { shared, timeouts, accepted, handle, .. } = &*self.inner;
        let is_ready = |ring: &Consumer<_>| !ring.is_empty() || shared.has(READ_END | CUT_READ);
        let taken = |ring: &Consumer<_>, parts| {
            let is_half_empty = 2 * ring.len() <= ring.capacity();
            (parts, is_half_empty)
        };
        let attempt = |ring: &mut Consumer<StreamParts>| {
            // What was put before this was announced comes first.
            let is_cut = shared.has(CUT_READ);
            match ring.pop() {
                Some(parts) => Tried::Done(Ok(taken(ring, parts))),
                None if !shared.has(READ_END) => {
                    let cut = if is_cut { shared.take_cut(CUT_READ) } else { None };
                    Tried::of(cut.map(|error| Err(error.into())))
                }
                // What was put before the end was announced.
                None => Tried::Done(match ring.pop() {
                    Some(parts) => Ok(taken(ring, parts)),
                    None => Err(shared.error().unwrap_or(Error::EngineGone).into()),
                }),
            }
        };
        let (parts, is_half_empty) =
            accepted.run(&shared.reader, || timeouts.to_read(), is_ready, attempt)?;
        // What left the ring is seen by who sees no stall here.
        fence(Ordering::SeqCst);
        if is_half_empty && shared.rx_stalled.swap(false, Ordering::SeqCst) {
            self.mailbox().nudge(&self.mailbox().listeners, self.inner.id.slot());
        }
        let peer = parts.remote;
        Ok((TcpStream::new(handle, parts), peer))
    }

    /// Makes `accept` return at once, with `WouldBlock`, when there is no connection.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.inner.timeouts.set_nonblocking(nonblocking);
        Ok(())
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.inner.local)
    }

    /// Its name in the engine.
    pub fn id(&self) -> SocketId {
        self.inner.id
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

/// The connections of a listener, see [`TcpListener::incoming`].
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl std::fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}

impl Drop for Inner {
    fn drop(&mut self) {
        let (id, mailbox) = (self.id, &self.handle.mailbox);
        let accepted = self.accepted.with(|ring| std::mem::replace(ring, spsc(1).1));
        mailbox.post(move |sockets| sockets.close_listener(id, accepted));
    }
}
