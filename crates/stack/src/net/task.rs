//! Calls that a task waits for, not a thread: what sockets for a runtime are made of.
//!
//! The task's waker stands where a thread's handle would ([`Waiter`](super::waiter::Waiter)), so an
//! engine does the same for both: it wakes whoever waits once, after an edge. Sockets that are
//! opened here are non-blocking.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use millstream_route::Prefix;
use millstream_tcp::Config;

use super::flows::{UdpFlow, UdpFlows};
use super::listener::shut_down;
use super::mailbox::Answer;
use super::requests::{TcpRequest, TcpRequests};
use super::shared::{CONNECTED, READ_END};
use super::socket::{Ends, RingSocket};
use super::tcp::TcpEnds;
use super::{Stack, TcpListener, TcpStream, UdpSocket};
use crate::{Engine, Error, ListenerHandle, SocketId, TcpHandle, UdpHandle};

impl<E: Ends> RingSocket<E> {
    /// Opens a socket in the engine's thread. It closes there when nobody takes it.
    pub fn open_later(
        stack: &Stack,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error> + Send + 'static,
    ) -> Answer<Result<Self, Error>> {
        let own = stack.clone();
        stack.handle.mailbox.ask_later(move |sockets| {
            let socket = Self::new(&own, E::open(sockets, open)?);
            Ok(socket)
        })
    }

    async fn open_async(
        stack: &Stack,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error> + Send + 'static,
    ) -> io::Result<Self> {
        let socket = Self::open_later(stack, open).await??;
        socket.base.timeouts.set_nonblocking(true);
        Ok(socket)
    }

    async fn ask_async<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Engine) -> Result<T, Error> + Send + 'static,
    ) -> io::Result<T> {
        Ok(self.mailbox().ask_later(self.in_order(call)).await??)
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_readable = || self.ends.is_readable(&self.shared);
        ready(self.shared.reader.poll(context.waker(), is_readable))
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_writable = || self.ends.is_writable(&self.shared);
        ready(self.shared.writer.poll(context.waker(), is_writable))
    }
}

fn ready(is_ready: bool) -> Poll<()> {
    if is_ready { Poll::Ready(()) } else { Poll::Pending }
}

/// Waits until a connection stands, and makes it a stream.
async fn connected(socket: RingSocket<TcpEnds>) -> io::Result<TcpStream> {
    socket.base.timeouts.set_nonblocking(true);
    let shared = &socket.shared;
    let is_done = || shared.has(CONNECTED | READ_END);
    poll_fn(|context| ready(shared.reader.poll(context.waker(), is_done))).await;
    match shared.take_error() {
        Some(error) => Err(error.into()),
        None => Ok(TcpStream::new(socket)),
    }
}

impl Stack {
    /// Runs `call` as [`with_engine`](Self::with_engine) does; a task waits for the answer.
    pub async fn with_engine_async<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> io::Result<T> {
        Ok(self.handle.mailbox.ask_later(|sockets| call(&mut sockets.engine)).await?)
    }
}

impl TcpStream {
    /// Opens a connection as [`connect`](Self::connect) does, from an own address and port if one is
    /// given; a task waits for it. Without a configuration it has the engine's.
    pub async fn connect_async(
        stack: &Stack,
        addr: SocketAddr,
        from: Option<SocketAddr>,
        config: Option<Config>,
    ) -> io::Result<Self> {
        let open = move |engine: &mut Engine| {
            let config = config.clone().unwrap_or_else(|| engine.inspect().tcp_config().clone());
            engine.sockets().tcp_connect_with(addr, from, &config)
        };
        connected(RingSocket::open_later(stack, open).await??).await
    }

    /// Makes a call on the connection in the engine's thread, behind what was sent before; a task waits
    /// for the answer.
    pub async fn ask_async<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut TcpHandle<'_>) -> Result<T, Error> + Send + 'static,
    ) -> io::Result<T> {
        let id = self.id();
        self.socket.ask_async(move |engine| call(&mut engine.tcp(id))).await
    }

    /// Closes with a reset as [`abort`](Self::abort) does, and waits for nothing.
    pub fn abort_async(self) {
        self.socket.abort_later();
    }

    /// Has the task woken when a read that would block may go on; the one that asked last.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_readable(context)
    }

    /// Has the task woken when a write that would block may go on; the one that asked last.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_writable(context)
    }
}

impl TcpListener {
    /// Listens as [`bind`](Self::bind) does; a task waits for that.
    pub async fn bind_async(stack: &Stack, addr: SocketAddr, backlog: usize) -> io::Result<Self> {
        let open = move |engine: &mut Engine| engine.sockets().tcp_listen(addr, backlog);
        Ok(Self { socket: Arc::new(RingSocket::open_async(stack, open).await?) })
    }

    /// Stops listening as [`shutdown`](Self::shutdown) does; a task waits for that.
    pub async fn shutdown_async(&self) -> io::Result<()> {
        Ok(shut_down(&self.socket).await?)
    }

    /// Makes a call on the listener in the engine's thread, behind what was sent before; a task waits
    /// for the answer.
    pub async fn ask_async<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut ListenerHandle<'_>) -> Result<T, Error> + Send + 'static,
    ) -> io::Result<T> {
        let id = self.id();
        self.socket.ask_async(move |engine| call(&mut engine.listener(id))).await
    }

    /// Has the task woken when an accept that would block may go on; the one that asked last.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_readable(context)
    }
}

impl UdpSocket {
    /// Opens a socket as [`bind`](Self::bind) does; a task waits for that.
    pub async fn bind_async(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        let open = move |engine: &mut Engine| engine.sockets().udp_bind(addr);
        Ok(Self { socket: Arc::new(RingSocket::open_async(stack, open).await?) })
    }

    /// Connects the socket as [`connect`](Self::connect) does; a task waits for that.
    pub async fn connect_async(&self, addr: SocketAddr) -> io::Result<()> {
        self.socket.connecting(addr).await??;
        self.socket.shared.set_state(CONNECTED);
        Ok(())
    }

    /// Makes a call on the socket in the engine's thread, behind what was sent before; a task waits
    /// for the answer.
    pub async fn ask_async<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut UdpHandle<'_>) -> Result<T, Error> + Send + 'static,
    ) -> io::Result<T> {
        let id = self.id();
        self.socket.ask_async(move |engine| call(&mut engine.udp(id))).await
    }

    /// Has the task woken when a receive that would block may go on; the one that asked last.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_readable(context)
    }

    /// Has the task woken when a send that would block may go on; the one that asked last.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_writable(context)
    }
}

impl TcpRequests {
    /// Intercepts as [`open`](Self::open) does; a task waits for that.
    pub async fn open_async(
        stack: &Stack,
        to: Prefix,
        port: u16,
        within: Duration,
    ) -> io::Result<Self> {
        let socket = RingSocket::open_async(stack, Self::opening(to, port, within)).await?;
        Ok(Self { socket })
    }

    /// Has the task woken when there is a request; the one that asked last.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_readable(context)
    }
}

impl UdpFlows {
    /// Intercepts as [`open`](Self::open) does; a task waits for that.
    pub async fn open_async(
        stack: &Stack,
        to: Prefix,
        port: u16,
        idle: Duration,
    ) -> io::Result<Self> {
        let socket = RingSocket::open_async(stack, Self::opening(to, port, idle)).await?;
        Ok(Self { socket })
    }

    /// Has the task woken when there is a flow; the one that asked last.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_readable(context)
    }
}

impl UdpFlow {
    /// Takes it as [`accept`](Self::accept) does; a task waits for that.
    pub async fn accept_async(self) -> io::Result<UdpSocket> {
        let socket = self.accepting().await??;
        socket.base.timeouts.set_nonblocking(true);
        Ok(UdpSocket { socket: Arc::new(socket) })
    }
}

impl TcpRequest {
    /// Accepts it as [`accept`](Self::accept) does; a task waits for that.
    pub async fn accept_async(self) -> io::Result<TcpStream> {
        connected(self.accepting().await??).await
    }
}
