//! Listeners in the style of `std::net`.

use std::io;
use std::iter::FusedIterator;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use millstream_tcp::Config;

use super::driver::ListenerDriver;
use super::tcp::TcpStream;
use super::with_each;
use crate::{SocketId, TcpSocketOptions};

/// A TCP listener. Dropping it, and all that [`TcpListener::try_clone`] made of it, resets the
/// connections that nobody accepted.
///
/// ```
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
/// let client = TcpStream::connect(&near, "10.0.0.2:80")?;
/// let server = listener.incoming().next().expect("a connection")?;
/// assert_eq!(server.peer_addr()?, client.local_addr()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TcpListener<D: ListenerDriver> {
    pub(crate) socket: Arc<D>,
}

impl<D: ListenerDriver> TcpListener<D> {
    /// Listens on `addr`; see [`crate::SocketsHandle::tcp_listen_with`]. Up to `backlog`
    /// connections wait to be accepted, in [`net`](crate::net) two where it is one. Fails with
    /// `AddrInUse`, with `AddrNotAvailable` where the address is not the engine's, and with
    /// `QuotaExceeded` at a bound of [`Limits`](crate::Limits).
    pub fn bind(stack: &D::Stack, addr: impl ToSocketAddrs, backlog: usize) -> io::Result<Self> {
        Self::open(stack, addr, backlog, None)
    }

    /// Listens on `addr` as [`bind`](Self::bind) does; its connections get `config`.
    pub fn bind_with(
        stack: &D::Stack,
        addr: impl ToSocketAddrs,
        backlog: usize,
        config: &Config,
    ) -> io::Result<Self> {
        Self::open(stack, addr, backlog, Some(config.clone()))
    }

    fn open(
        stack: &D::Stack,
        addr: impl ToSocketAddrs,
        backlog: usize,
        config: Option<Config>,
    ) -> io::Result<Self> {
        let socket = with_each(addr, |addr| {
            let config = config.clone();
            D::open(stack, move |engine| match &config {
                Some(config) => engine.sockets().tcp_listen_with(addr, backlog, config),
                None => engine.sockets().tcp_listen(addr, backlog),
            })
        })?;
        Ok(Self { socket: Arc::new(socket) })
    }

    /// Returns another handle of the same listener: each connection is accepted by one of them.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: Arc::clone(&self.socket) })
    }

    /// Waits for the next connection; returns it and its peer. Fails with
    /// [`NetworkDown`](io::ErrorKind::NetworkDown) instead of waiting where all links of the engine
    /// have failed or were removed: in [`net`](crate::net) once, also where it waits already.
    pub fn accept(&self) -> io::Result<(TcpStream<D::Stream>, SocketAddr)> {
        let (stream, peer) = self.socket.accept()?;
        Ok((TcpStream::new(stream), peer))
    }

    /// Returns the connections as they come: [`accept`](Self::accept), without end.
    pub fn incoming(&self) -> Incoming<'_, D> {
        Incoming { listener: self }
    }

    /// Takes the error of an engine that is gone, in [`net`](crate::net); a listener has no other
    /// that is not told by the call that meets it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Stops listening: no connection is taken any more, and those that nobody accepted are reset.
    /// An accept fails with `InvalidInput`, also one that waits in another thread.
    pub fn shutdown(&self) -> io::Result<()> {
        self.socket.shutdown()
    }

    /// Returns the options that its connections begin with.
    pub fn options(&self) -> io::Result<TcpSocketOptions> {
        let id = self.id();
        self.socket.ask(move |engine| engine.listener(id).options())
    }

    /// Sets the options of connections whose handshake is finished from now on.
    pub fn set_options(&self, options: &TcpSocketOptions) -> io::Result<()> {
        let (id, options) = (self.id(), *options);
        self.socket.ask(move |engine| engine.listener(id).set_options(&options))
    }

    /// Makes `accept` return at once, with `WouldBlock`, when there is no connection.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.base().timeouts.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Returns the address it listens on, with the port that was chosen where it asked for a free
    /// one.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the stack that it belongs to.
    pub fn stack(&self) -> &D::Stack {
        &self.socket.base().stack
    }

    /// Returns its name in the engine, which events carry.
    pub fn id(&self) -> SocketId {
        self.socket.base().id
    }
}

/// The connections of a listener, see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a, D: ListenerDriver> {
    listener: &'a TcpListener<D>,
}

impl<D: ListenerDriver> Iterator for Incoming<'_, D> {
    type Item = io::Result<TcpStream<D::Stream>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl<D: ListenerDriver> FusedIterator for Incoming<'_, D> {}
