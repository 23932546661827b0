//! Listeners.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use millstream::{TcpSocketOptions, net};
use tokio::net::ToSocketAddrs;

use crate::turns::Turns;
use crate::{Stack, TcpStream, with_each};

/// Connections that wait to be accepted, as tokio has it.
const BACKLOG: usize = 1024;

/// A TCP listener. Dropped, it resets the connections that nobody accepted.
///
/// ```
/// use millstream_tokio::TcpListener;
///
/// # use millstream_tokio::Stack;
/// # async fn example(stack: Stack) -> std::io::Result<()> {
///
/// let listener = TcpListener::bind(&stack, "10.70.0.2:80").await?;
/// loop {
///     let (mut stream, _peer) = listener.accept().await?;
///     tokio::spawn(async move {
///         let (mut reader, mut writer) = stream.split();
///         tokio::io::copy(&mut reader, &mut writer).await
///     });
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct TcpListener {
    inner: net::TcpListener,
    turns: Turns,
}

impl TcpListener {
    /// Listens on `addr`, an own address or an unspecified one for all. Up to 1,024 connections
    /// wait to be accepted.
    ///
    /// Cancelled, nobody listens.
    pub async fn bind(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with(stack, addr, BACKLOG).await
    }

    /// Listens as [`bind`](Self::bind) does; up to `backlog` connections wait to be accepted.
    ///
    /// Cancelled, nobody listens.
    pub async fn bind_with(
        stack: &Stack,
        addr: impl ToSocketAddrs,
        backlog: usize,
    ) -> io::Result<Self> {
        let bind = |addr| net::TcpListener::bind_async(stack, addr, backlog);
        let inner = with_each(addr, bind).await?;
        Ok(Self { inner, turns: Turns::default() })
    }

    /// Waits for the next connection; returns it and its peer. Several tasks may wait.
    ///
    /// Cancelled, no connection is lost.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accept = || self.inner.accept();
        let accepted = self.turns.run(accept, |context| self.inner.poll_readable(context)).await;
        accepted.and_then(made)
    }

    /// Accepts the next connection, or has the task woken when there is one: the one that asked
    /// last, and no other.
    pub fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        loop {
            match self.inner.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                accepted => return Poll::Ready(accepted.and_then(made)),
            }
            ready!(self.inner.poll_readable(context));
        }
    }

    /// Stops listening: no connection is taken any more, and those that nobody accepted are reset.
    /// An accept fails with `InvalidInput`, also one that waits in another task.
    ///
    /// Cancelled, it has stopped all the same.
    pub async fn shutdown(&self) -> io::Result<()> {
        self.inner.shutdown_async().await
    }

    /// Returns the options that its connections begin with.
    ///
    /// Cancelled, nothing has happened.
    pub async fn options(&self) -> io::Result<TcpSocketOptions> {
        self.inner.ask_async(|listener| listener.options()).await
    }

    /// Sets the options of connections whose handshake is finished from now on.
    ///
    /// Cancelled, they may be set or not.
    pub async fn set_options(&self, options: &TcpSocketOptions) -> io::Result<()> {
        let options = *options;
        self.inner.ask_async(move |listener| listener.set_options(&options)).await
    }

    /// Returns the address it listens on, with the port that was chosen where it asked for a free
    /// one.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// Its connections as they come, without end; see [`poll_accept`](TcpListener::poll_accept).
impl Stream for TcpListener {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_accept(context).map_ok(|(stream, _)| stream).map(Some)
    }
}

fn made((stream, peer): (net::TcpStream, SocketAddr)) -> io::Result<(TcpStream, SocketAddr)> {
    Ok((TcpStream::new(stream)?, peer))
}
