//! TCP connections in the style of `std::net`.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use millstream_packet::Packet;
use millstream_tcp::{Config, TcpInfo};

use super::driver::TcpDriver;
use super::with_each;
use crate::error::nonzero;
use crate::{Error, SocketId, TcpHandle, TcpSocketOptions};

/// A TCP connection. Dropping the stream, and all that [`TcpStream::try_clone`] made of it, closes
/// it in order: written data is still sent. If it does not end in order, the first call that meets
/// that reports the error; after that reads return the end and writes fail with `BrokenPipe`.
///
/// Where links have failed, or were removed, and none leads to the peer any more, a read that has
/// to wait and a write fail with [`NetworkDown`](io::ErrorKind::NetworkDown): in
/// [`net`](crate::net) once each, also those that wait already. The connection does not end by
/// that: it goes on when a link leads there again, or times out.
///
/// In [`net`](crate::net) one thread may read while another writes, and several may do either:
/// each waits by itself and no longer than it may, whatever the others wait for. The bytes of one
/// write lie together, unless it has to wait for room or has more than 512 KiB: between its parts
/// those of other writes may come, as with the kernel's sockets. There the end of the engine counts
/// as an error that ends the connection ([`Stack::shutdown`](crate::net::Stack::shutdown)).
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
///
/// use millstream::local::{TcpListener, TcpStream};
///
/// # use millstream::link::Faults;
/// # use millstream::sim::Simulation;
/// # fn main() -> std::io::Result<()> {
/// # let simulation = Simulation::new(7)?;
/// # let (near, far) = (simulation.host()?, simulation.host()?);
/// # simulation.join((&near, "10.0.0.1/24"), (&far, "10.0.0.2/24"), Faults::default())?;
///
/// let listener = TcpListener::bind(&far, "10.0.0.2:80", 16)?;
/// let mut client = TcpStream::connect(&near, "10.0.0.2:80")?;
/// client.set_nodelay(true)?;
/// client.write_all(b"a question")?;
/// client.shutdown(Shutdown::Write)?;
/// let (mut server, _) = listener.accept()?;
/// let mut question = String::new();
/// server.read_to_string(&mut question)?;
/// assert_eq!(question, "a question");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TcpStream<D: TcpDriver> {
    pub(crate) socket: Arc<D>,
}

impl<D: TcpDriver> TcpStream<D> {
    pub(crate) fn new(socket: D) -> Self {
        Self { socket: Arc::new(socket) }
    }

    /// Opens a connection and waits until it stands. Fails with `ConnectionRefused` where nobody
    /// listens, with `HostUnreachable` or `NetworkUnreachable` where no way leads there, with
    /// `TimedOut` when the peer does not answer in the time that the engine's [`Config`] says, and
    /// with `QuotaExceeded` at a bound of [`Limits`](crate::Limits).
    pub fn connect(stack: &D::Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        with_each(addr, |addr| Self::open(stack, addr, None)?.wait_connected(None))
    }

    /// Opens a connection as [`connect`](Self::connect) does, from an own address and port, or with
    /// port 0 from a free one. Fails with `AddrInUse` where another connection has both ends.
    pub fn connect_from(
        stack: &D::Stack,
        addr: impl ToSocketAddrs,
        from: SocketAddr,
    ) -> io::Result<Self> {
        with_each(addr, |addr| {
            let socket = D::open(stack, move |engine| {
                let config = engine.inspect().tcp_config().clone();
                engine.sockets().tcp_connect_with(addr, Some(from), &config)
            })?;
            Self::new(socket).wait_connected(None)
        })
    }

    /// Opens a connection with a configuration and waits until it stands, as
    /// [`connect`](Self::connect) does.
    pub fn connect_with(
        stack: &D::Stack,
        addr: impl ToSocketAddrs,
        config: &Config,
    ) -> io::Result<Self> {
        let open = |addr| Self::open(stack, addr, Some(config.clone()));
        with_each(addr, |addr| open(addr)?.wait_connected(None))
    }

    /// Opens a connection and waits until it stands, `timeout` at most: then it fails with
    /// `TimedOut`. A time of zero is refused with `InvalidInput`.
    pub fn connect_timeout(
        stack: &D::Stack,
        addr: SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        let timeout = nonzero(Some(timeout))?;
        Self::open(stack, addr, None)?.wait_connected(timeout)
    }

    /// Begins to open a connection; it is writable once it stands.
    pub fn connect_nonblocking(
        stack: &D::Stack,
        addr: SocketAddr,
        config: &Config,
    ) -> io::Result<Self> {
        Self::open(stack, addr, Some(config.clone()))
    }

    fn open(stack: &D::Stack, addr: SocketAddr, config: Option<Config>) -> io::Result<Self> {
        let socket = D::open(stack, move |engine| match &config {
            Some(config) => engine.sockets().tcp_connect_with(addr, None, config),
            None => engine.sockets().tcp_connect(addr),
        })?;
        Ok(Self::new(socket))
    }

    fn wait_connected(self, timeout: Option<Duration>) -> io::Result<Self> {
        self.socket.wait_connected(timeout)?;
        Ok(self)
    }

    /// Returns another handle of the same connection, like a duplicated file descriptor: reads,
    /// writes, ends and settings of either hold for both.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: Arc::clone(&self.socket) })
    }

    /// Waits for data and returns up to `max` bytes as they lie in their frames; `None` is the
    /// orderly end.
    pub fn read_packet(&self, max: usize) -> io::Result<Option<Packet>> {
        self.socket.read_packet(max)
    }

    /// Copies the next bytes into `buffer` and leaves them to be read: as much as has come and
    /// fits. It waits as a read does while nothing has come, and returns 0 at the orderly end.
    /// Called again, it shows the same bytes and those that came behind them. In
    /// [`net`](crate::net) it shows up to 2 MiB, of bytes or of memory held: the rest stays in the
    /// connection, where it counts against the receive window.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() { Ok(0) } else { self.socket.peek(buffer) }
    }

    /// Sends a packet's bytes without copying them; waits for room unless the stream is
    /// non-blocking. On an error the packet is lost; [`TcpStream::try_write_packet`] gives it back.
    /// The packet must come from the engine's pool or another that outlives the engine.
    pub fn write_packet(&self, packet: Packet) -> io::Result<()> {
        self.socket.write_packet(packet)
    }

    /// As [`TcpStream::write_packet`] without waiting; gives the packet back when it is not taken.
    pub fn try_write_packet(&self, packet: Packet) -> Result<(), (Packet, Error)> {
        self.socket.try_write_packet(packet)
    }

    /// Returns the bytes that a block of a packet holds best
    /// ([`TcpHandle::bulk_bytes`](crate::TcpHandle::bulk_bytes)), as the engine found when it last
    /// took data to send; 0 where frames are as good, until then, and of a connection that is gone.
    pub fn bulk_bytes(&self) -> usize {
        self.socket.bulk_bytes()
    }

    /// Ends one direction or both, also for calls that wait now. Writes fail with `BrokenPipe` from
    /// then on; reads return the end once all received data is read. Ending the reading side alone
    /// does nothing on the wire.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut TcpHandle<'_>) -> Result<T, Error> + Send + 'static,
    ) -> io::Result<T> {
        let id = self.id();
        self.socket.ask(move |engine| call(&mut engine.tcp(id)))
    }

    /// Turns Nagle's rule off or on: without it small segments are sent at once.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.ask(move |tcp| tcp.set_nodelay(nodelay))
    }

    /// Returns true where Nagle's rule is off.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options()?.nodelay)
    }

    /// Returns the options as they are; see also [`TcpStream::set_options`].
    pub fn options(&self) -> io::Result<TcpSocketOptions> {
        self.ask(move |tcp| tcp.options())
    }

    /// Sets the options, as far as they differ: read them, change some, set them.
    pub fn set_options(&self, options: &TcpSocketOptions) -> io::Result<()> {
        let options = *options;
        self.ask(move |tcp| tcp.set_options(&options))
    }

    /// Acknowledges data at once if its ACK waits, and the next segments as they come.
    pub fn quick_ack(&self) -> io::Result<()> {
        self.ask(move |tcp| tcp.quick_ack())
    }

    /// Appends data and announces the bytes that were taken, which it returns, as urgent (RFC 6093:
    /// not for new applications). Does not wait for room: fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) while the connection has not taken all that was
    /// written before.
    pub fn write_urgent(&self, data: &[u8]) -> io::Result<usize> {
        self.socket.write_urgent(data)
    }

    /// Returns the bytes to read up to the end of the peer's urgent data, which lie in the stream
    /// like all others; `None` if none was announced, or it was read.
    pub fn urgent(&self) -> io::Result<Option<u64>> {
        self.socket.urgent()
    }

    /// Makes reads and writes return at once, with `WouldBlock`, instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.base().timeouts.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Sets the longest time that a read waits before it fails with `WouldBlock`; `None`, as at
    /// first, is no limit. A time of zero is refused with `InvalidInput`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.base().timeouts.read.set(timeout)
    }

    /// Returns the longest time that a read waits.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.base().timeouts.read.get())
    }

    /// Sets the longest time that a write waits before it fails with `WouldBlock`; `None`, as at
    /// first, is no limit. A time of zero is refused with `InvalidInput`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.base().timeouts.write.set(timeout)
    }

    /// Returns the longest time that a write waits.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.base().timeouts.write.get())
    }

    /// Takes the reason why the connection ended, if it was not in order and no other call has
    /// reported it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Returns true while the connection stands: from the end of its handshake until it is over in
    /// both directions, in order or not. It asks nobody, so that who has called
    /// [`connect_nonblocking`](Self::connect_nonblocking) may call it again and again.
    pub fn is_connected(&self) -> bool {
        self.socket.is_connected()
    }

    /// Returns the bytes that can be read without waiting (`SIOCINQ`).
    pub fn readable_bytes(&self) -> io::Result<usize> {
        self.socket.readable_bytes()
    }

    /// Returns counters and estimates of the connection.
    pub fn info(&self) -> io::Result<TcpInfo> {
        self.ask(move |tcp| tcp.info())
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.addresses()?.remote)
    }

    /// Returns its own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.addresses()?.local)
    }

    /// Returns its name in the engine, which events carry.
    pub fn id(&self) -> SocketId {
        self.socket.base().id
    }

    /// Returns the stack that it belongs to.
    pub fn stack(&self) -> &D::Stack {
        &self.socket.base().stack
    }

    /// Closes with a reset; written data that is not acknowledged is lost. Other handles of the
    /// connection are told that it is gone.
    pub fn abort(self) {
        self.socket.abort();
    }
}

impl<D: TcpDriver> Read for &TcpStream<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() { Ok(0) } else { self.socket.read(buffer) }
    }
}

impl<D: TcpDriver> Write for &TcpStream<D> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() { Ok(0) } else { self.socket.write(data) }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.write_slices(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<D: TcpDriver> Read for TcpStream<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl<D: TcpDriver> Write for TcpStream<D> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
