//! Datagrams.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use millstream::{Error, UdpSocketOptions, net};
use tokio::net::{ToSocketAddrs, lookup_host};

use crate::turns::{Turns, poll_call};
use crate::{Stack, with_each};

/// A UDP socket. Several tasks may send and receive at once.
///
/// ```
/// use millstream_tokio::UdpSocket;
///
/// # use millstream_tokio::Stack;
/// # async fn example(stack: Stack) -> std::io::Result<()> {
///
/// let socket = UdpSocket::bind(&stack, "10.70.0.2:7").await?;
/// let mut datagram = [0; 2048];
/// let (length, from) = socket.recv_from(&mut datagram).await?;
/// socket.send_to(&datagram[..length], from).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UdpSocket {
    inner: net::UdpSocket,
    readers: Turns,
    writers: Turns,
}

impl UdpSocket {
    /// Opens a socket on `addr`: port 0 asks for a free one.
    ///
    /// Cancelled, the socket is closed.
    pub async fn bind(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let bind = |addr| net::UdpSocket::bind_async(stack, addr);
        Ok(Self::of(with_each(addr, bind).await?))
    }

    pub(crate) fn of(inner: net::UdpSocket) -> Self {
        Self { inner, readers: Turns::default(), writers: Turns::default() }
    }

    /// Sends to `addr` from now on, and receives from there alone.
    ///
    /// Cancelled, it may be connected or not.
    pub async fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        with_each(addr, |addr| self.inner.connect_async(addr)).await
    }

    /// Sends a datagram to `addr`, the first where there are several; waits for room in the
    /// socket's ring.
    ///
    /// Cancelled while it waits, nothing is sent.
    pub async fn send_to(&self, data: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let addr = lookup_host(addr).await?.next().ok_or(Error::Invalid("no address"))?;
        self.write(|| self.inner.send_to(data, addr)).await
    }

    /// Sends a datagram to the connected peer, as [`send_to`](Self::send_to) does.
    ///
    /// Cancelled while it waits, nothing is sent.
    pub async fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.write(|| self.inner.send(data)).await
    }

    /// Waits for a datagram, and copies to `buffer` as much of it as fits. Returns its length there
    /// and its sender.
    ///
    /// Cancelled, no datagram is lost.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.read(|| self.inner.recv_from(buffer)).await
    }

    /// Waits for a datagram, as [`recv_from`](Self::recv_from) does.
    ///
    /// Cancelled, no datagram is lost.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(|| self.inner.recv(buffer)).await
    }

    /// Receives as [`recv_from`](Self::recv_from) does, or has the task woken when there is a
    /// datagram: the one that asked last, and no other.
    pub fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        poll_call(
            context,
            || self.inner.recv_from(buffer),
            |context| self.inner.poll_readable(context),
        )
    }

    /// Sends as [`send_to`](Self::send_to) does, or has the task woken when there is room: the one
    /// that asked last, and no other.
    pub fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        data: &[u8],
        addr: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        poll_call(
            context,
            || self.inner.send_to(data, addr),
            |context| self.inner.poll_writable(context),
        )
    }

    async fn read<T>(&self, call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        self.readers.run(call, |context| self.inner.poll_readable(context)).await
    }

    async fn write<T>(&self, call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        self.writers.run(call, |context| self.inner.poll_writable(context)).await
    }

    /// Returns its own address.
    ///
    /// Cancelled, nothing has happened.
    pub async fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.inner.ask_async(|udp| udp.addresses()).await?.0)
    }

    /// Returns the address of the connected peer.
    ///
    /// Cancelled, nothing has happened.
    pub async fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.inner.ask_async(|udp| udp.addresses()).await?.1.ok_or(Error::NotConnected)?)
    }

    /// Returns the options as they are.
    ///
    /// Cancelled, nothing has happened.
    pub async fn options(&self) -> io::Result<UdpSocketOptions> {
        self.inner.ask_async(|udp| udp.options()).await
    }

    /// Sets the options: read them, change some, set them. All are set or, with an error, none.
    ///
    /// Cancelled, they may be set or not.
    pub async fn set_options(&self, options: &UdpSocketOptions) -> io::Result<()> {
        let options = *options;
        self.inner.ask_async(move |udp| udp.set_options(&options)).await
    }

    /// Returns true if it may send to broadcast addresses.
    ///
    /// Cancelled, nothing has happened.
    pub async fn broadcast(&self) -> io::Result<bool> {
        Ok(self.options().await?.broadcast)
    }

    /// Allows it to send to broadcast addresses, or not.
    ///
    /// Cancelled, it may be set or not.
    pub async fn set_broadcast(&self, may: bool) -> io::Result<()> {
        self.inner.ask_async(move |udp| udp.set_broadcast(may)).await
    }
}
