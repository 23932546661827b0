//! Connections.

use std::borrow::Borrow;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use millstream::tcp::{Config, TcpInfo};
use millstream::{TcpSocketOptions, net};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::ToSocketAddrs;

use crate::turns::poll_call;
use crate::{Stack, with_each};

/// A TCP connection; see [`net::TcpStream`](millstream::net::TcpStream) for what it does when
/// links fail and when the engine ends.
///
/// `shutdown` of [`AsyncWriteExt`](https://docs.rs/tokio/latest/tokio/io/trait.AsyncWriteExt.html)
/// ends the writing side: the peer reads the end, behind all that was written. Reading goes on.
/// Dropped, the connection is closed in order: what was written is still sent; where received data
/// was not read the peer is reset, as by the kernel.
///
/// Reads and writes are cancel-safe: one that is dropped while it waits has taken or written
/// nothing.
///
/// ```
/// use millstream_tokio::TcpStream;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # use millstream_tokio::Stack;
/// # async fn example(stack: Stack) -> std::io::Result<()> {
///
/// let mut stream = TcpStream::connect(&stack, "10.70.0.1:80").await?;
/// stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
/// let mut answer = Vec::new();
/// stream.read_to_end(&mut answer).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TcpStream {
    inner: net::TcpStream,
}

impl TcpStream {
    pub(crate) fn new(inner: net::TcpStream) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self { inner })
    }

    /// Opens a connection, and waits until it stands.
    ///
    /// Cancelled, the connection is closed, whether it stands or not.
    pub async fn connect(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let connect = |addr| net::TcpStream::connect_async(stack, addr, None, None);
        Self::new(with_each(addr, connect).await?)
    }

    /// Opens a connection as [`connect`](Self::connect) does, from an own address and port, or with
    /// port 0 from a free one.
    ///
    /// Cancelled, the connection is closed, whether it stands or not.
    pub async fn connect_from(
        stack: &Stack,
        addr: impl ToSocketAddrs,
        from: SocketAddr,
    ) -> io::Result<Self> {
        let connect = |addr| net::TcpStream::connect_async(stack, addr, Some(from), None);
        Self::new(with_each(addr, connect).await?)
    }

    /// Opens a connection with a configuration, as [`connect`](Self::connect) does.
    ///
    /// Cancelled, the connection is closed, whether it stands or not.
    pub async fn connect_with(
        stack: &Stack,
        addr: impl ToSocketAddrs,
        config: Config,
    ) -> io::Result<Self> {
        let connect = |addr| net::TcpStream::connect_async(stack, addr, None, Some(config.clone()));
        Self::new(with_each(addr, connect).await?)
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// Returns its own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Waits for data, and copies what fits to `buffer`; it is still to be read. Returns 0 at the
    /// end of the stream.
    ///
    /// Cancelled, nothing has happened.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| {
            let peek = || self.inner.peek(buffer);
            poll_call(context, peek, |context| self.inner.poll_readable(context))
        })
        .await
    }

    /// Turns Nagle's rule off or on: without it small segments are sent at once.
    ///
    /// Cancelled, it may be set or not.
    pub async fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.inner.ask_async(move |tcp| tcp.set_nodelay(nodelay)).await
    }

    /// Returns true where Nagle's rule is off.
    ///
    /// Cancelled, nothing has happened.
    pub async fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options().await?.nodelay)
    }

    /// Returns the options as they are.
    ///
    /// Cancelled, nothing has happened.
    pub async fn options(&self) -> io::Result<TcpSocketOptions> {
        self.inner.ask_async(|tcp| tcp.options()).await
    }

    /// Sets the options, as far as they differ: read them, change some, set them.
    ///
    /// Cancelled, they may be set or not.
    pub async fn set_options(&self, options: &TcpSocketOptions) -> io::Result<()> {
        let options = *options;
        self.inner.ask_async(move |tcp| tcp.set_options(&options)).await
    }

    /// Acknowledges data at once if its ACK waits, and the next segments as they come.
    ///
    /// Cancelled, it may be done or not.
    pub async fn quick_ack(&self) -> io::Result<()> {
        self.inner.ask_async(|tcp| tcp.quick_ack()).await
    }

    /// Returns true while the connection stands: until it is over in both directions, in order or
    /// not.
    pub fn is_connected(&self) -> bool {
        self.inner.is_connected()
    }

    /// Returns counters and estimates of the connection.
    ///
    /// Cancelled, nothing has happened.
    pub async fn info(&self) -> io::Result<TcpInfo> {
        self.inner.ask_async(|tcp| tcp.info()).await
    }

    /// Takes the reason why the connection ended, if it was not in order and no other call has
    /// reported it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }

    /// Closes with a reset; written data that is not acknowledged is lost.
    pub fn abort(self) {
        self.inner.abort_async();
    }

    /// Borrows a half for reading and one for writing.
    pub fn split(&mut self) -> (ReadHalf<&net::TcpStream>, WriteHalf<&net::TcpStream>) {
        (ReadHalf(&self.inner), WriteHalf(&self.inner))
    }

    /// Parts it into a half for reading and one for writing, for two tasks. The connection closes
    /// with the last of them.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let inner = Arc::new(self.inner);
        (ReadHalf(Arc::clone(&inner)), WriteHalf(EndsWriting(inner)))
    }
}

/// The half of a [`TcpStream`] that reads: borrowed ([`TcpStream::split`]) or owned
/// ([`OwnedReadHalf`]).
#[derive(Debug)]
pub struct ReadHalf<S>(S);

/// The half that reads, for a task of its own ([`TcpStream::into_split`]).
pub type OwnedReadHalf = ReadHalf<Arc<net::TcpStream>>;

/// The half of a [`TcpStream`] that writes: borrowed ([`TcpStream::split`]) or owned
/// ([`OwnedWriteHalf`]).
#[derive(Debug)]
pub struct WriteHalf<S>(S);

/// The half that writes, for a task of its own ([`TcpStream::into_split`]). Dropped, it ends the
/// writing side.
pub type OwnedWriteHalf = WriteHalf<EndsWriting>;

/// The connection of an [`OwnedWriteHalf`].
#[derive(Debug)]
pub struct EndsWriting(Arc<net::TcpStream>);

impl Borrow<net::TcpStream> for EndsWriting {
    fn borrow(&self) -> &net::TcpStream {
        &self.0
    }
}

impl Drop for EndsWriting {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

impl<S: Borrow<net::TcpStream> + Unpin> AsyncRead for ReadHalf<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut stream = self.0.borrow();
        let read = || stream.read(buffer.initialize_unfilled());
        let read = poll_call(context, read, |context| self.0.borrow().poll_readable(context));
        buffer.advance(ready!(read)?);
        Poll::Ready(Ok(()))
    }
}

impl<S: Borrow<net::TcpStream> + Unpin> AsyncWrite for WriteHalf<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut stream = self.0.borrow();
        let write = || stream.write_vectored(slices);
        poll_call(context, write, |context| self.0.borrow().poll_writable(context))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Waits for nothing: all that was written is on its way.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the writing side, behind all that was written; waits for nothing.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.borrow().shutdown(Shutdown::Write))
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.split().0).poll_read(context, buffer)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.split().1).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.split().1).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.split().1).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.split().1).poll_shutdown(context)
    }
}
