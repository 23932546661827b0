//! TCP in the style of `std::net`, in the engine's thread.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::iter::FusedIterator;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use millstream_packet::Packet;
use millstream_tcp::{Config, TcpInfo};

use super::Stack;
use super::mode::{Mode, Modes};
use crate::error::nonzero;
use crate::{Error, SocketId, TcpSocketOptions};

/// A TCP listener. Dropping it resets the connections that nobody accepted.
pub struct TcpListener {
    stack: Stack,
    id: SocketId,
    mode: Modes,
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpListener").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TcpListener {
    /// Listens on `addr`; see [`crate::SocketsHandle::tcp_listen_with`].
    pub fn bind(stack: &Stack, addr: SocketAddr, backlog: usize) -> io::Result<Self> {
        let config = stack.engine().inspect().tcp_config().clone();
        Self::bind_with(stack, addr, backlog, &config)
    }

    /// Listens on `addr`; its connections get `config`.
    pub fn bind_with(
        stack: &Stack,
        addr: SocketAddr,
        backlog: usize,
        config: &Config,
    ) -> io::Result<Self> {
        let id = stack.engine().sockets().tcp_listen_with(addr, backlog, config)?;
        Ok(Self { stack: stack.clone(), id, mode: Modes::default() })
    }

    /// The next connection, and its peer.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (id, peer) = self
            .stack
            .block(self.mode.get(), self.id, |engine| engine.listener(self.id).accept())?;
        Ok((TcpStream::new(&self.stack, id), peer))
    }

    /// The connections as they come: [`accept`](Self::accept), without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// None: a listener has no error that is not told by the call that meets it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }

    /// Makes `accept` return at once, with `WouldBlock`, when there is no connection.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.mode.set_nonblocking(nonblocking);
        Ok(())
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.stack.engine().listener(self.id).addr()?)
    }

    /// Its name in events.
    pub fn id(&self) -> SocketId {
        self.id
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.stack.let_go(self.id);
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

/// A TCP connection. Dropping it closes it: what was written is still sent in later turns. What
/// ended it, if not in order, is told by the first call that meets it, and after that reads say the
/// end and writes `BrokenPipe`.
pub struct TcpStream {
    stack: Stack,
    id: SocketId,
    read_mode: Modes,
    write_mode: Modes,
    /// The reading side was shut down.
    read_shut: Cell<bool>,
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpStream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TcpStream {
    fn new(stack: &Stack, id: SocketId) -> Self {
        let (read_mode, write_mode, read_shut) = Default::default();
        Self { stack: stack.clone(), id, read_mode, write_mode, read_shut }
    }

    /// Opens a connection and waits until it stands.
    pub fn connect(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        let config = stack.engine().inspect().tcp_config().clone();
        Self::connect_with(stack, addr, &config)
    }

    /// Opens a connection with a configuration and waits until it stands.
    pub fn connect_with(stack: &Stack, addr: SocketAddr, config: &Config) -> io::Result<Self> {
        let stream = Self::connect_start(stack, addr, config)?;
        stream.wait_connected(None)?;
        Ok(stream)
    }

    /// Opens a connection and waits until it stands, `timeout` at most, which is not zero.
    pub fn connect_timeout(stack: &Stack, addr: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let timeout = nonzero(Some(timeout))?;
        let config = stack.engine().inspect().tcp_config().clone();
        let stream = Self::connect_start(stack, addr, &config)?;
        match stream.wait_connected(timeout) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.stack.engine().tcp(stream.id).abort();
                Err(io::ErrorKind::TimedOut.into())
            }
            result => result.map(|()| stream),
        }
    }

    /// Begins to open a connection; it is writable once it stands.
    pub fn connect_start(stack: &Stack, addr: SocketAddr, config: &Config) -> io::Result<Self> {
        let mut engine = stack.engine();
        engine.refresh_time();
        let id = engine.sockets().tcp_connect_with(addr, None, config)?;
        engine.flush();
        drop(engine);
        Ok(Self::new(stack, id))
    }

    fn wait_connected(&self, timeout: Option<Duration>) -> io::Result<()> {
        let mode = Mode { nonblocking: false, timeout };
        self.stack.block(mode, self.id, |engine| match engine.tcp(self.id).connected()? {
            true => Ok(()),
            false => Err(Error::WouldBlock),
        })
    }

    /// Has `call` read. Where the reading side was shut down, it does not wait, but comes to the
    /// end.
    fn reading<T: Default>(&self, call: impl FnOnce(Mode) -> io::Result<T>) -> io::Result<T> {
        let mode = self.read_mode.get();
        if !self.read_shut.get() {
            return call(mode);
        }
        match call(Mode { nonblocking: true, ..mode }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(T::default()),
            result => result,
        }
    }

    /// Up to `max` received bytes as they lie in their frames; `None` is the orderly end.
    pub fn read_packet(&self, max: usize) -> io::Result<Option<Packet>> {
        self.reading(|mode| {
            self.stack.block(mode, self.id, |engine| engine.tcp(self.id).read_packet(max))
        })
    }

    /// Copies what comes next into `buffer` and leaves it to be read: as much as has come and fits.
    /// It waits as a read does while nothing has come, and says 0 at the orderly end.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.reading(|mode| {
            self.stack.block(mode, self.id, |engine| engine.tcp(self.id).peek(buffer))
        })
    }

    /// Sends a packet's bytes without copying them; waits for room unless the stream is
    /// non-blocking. With an error the packet is lost; [`TcpStream::try_write_packet`] gives it
    /// back.
    pub fn write_packet(&self, packet: Packet) -> io::Result<()> {
        let mut waiting = Some(packet);
        self.stack.block(self.write_mode.get(), self.id, |engine| {
            let Some(packet) = waiting.take() else { return Ok(()) };
            engine.refresh_time();
            match engine.tcp(self.id).write_packet(packet) {
                Ok(()) => {
                    engine.flush();
                    Ok(())
                }
                Err((packet, error)) => {
                    waiting = Some(packet);
                    Err(error)
                }
            }
        })
    }

    /// Bytes that a block of a packet holds best:
    /// [`TcpHandle::bulk_bytes`](crate::TcpHandle::bulk_bytes). 0 where frames are as good, and of
    /// a connection that is gone.
    pub fn bulk_bytes(&self) -> usize {
        self.stack.engine().tcp(self.id).bulk_bytes().unwrap_or(0)
    }

    /// As [`TcpStream::write_packet`] without waiting; gives the packet back when it is not taken.
    pub fn try_write_packet(&self, packet: Packet) -> Result<(), (Packet, Error)> {
        let mut engine = self.stack.engine();
        engine.refresh_time();
        engine.tcp(self.id).write_packet(packet)?;
        engine.flush();
        Ok(())
    }

    /// Ends one direction or both. Writes fail with `BrokenPipe` from then on; reads say the end
    /// once all that has come is read. Ending the reading side alone does nothing on the wire.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let mut engine = self.stack.engine();
        engine.refresh_time();
        if how != Shutdown::Read {
            engine.tcp(self.id).shutdown_write()?;
            engine.flush();
        }
        if how != Shutdown::Write {
            self.read_shut.set(true);
        }
        Ok(())
    }

    /// Sends small segments at once.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        Ok(self.stack.engine().tcp(self.id).set_nodelay(nodelay)?)
    }

    /// The options as they are; see also [`TcpStream::set_options`].
    pub fn options(&self) -> io::Result<TcpSocketOptions> {
        Ok(self.stack.engine().tcp(self.id).options()?)
    }

    /// Sets the options, as far as they differ: read them, change some, set them.
    pub fn set_options(&self, options: &TcpSocketOptions) -> io::Result<()> {
        Ok(self.stack.engine().tcp(self.id).set_options(options)?)
    }

    /// Acknowledges what waits at once, and the next segments as they come.
    pub fn quick_ack(&self) -> io::Result<()> {
        Ok(self.stack.engine().tcp(self.id).quick_ack()?)
    }

    /// Writes and announces what was taken as urgent (RFC 6093: not for new applications). Does not
    /// wait for room.
    pub fn write_urgent(&self, data: &[u8]) -> io::Result<usize> {
        let mut engine = self.stack.engine();
        engine.refresh_time();
        let written = engine.tcp(self.id).write_urgent(data)?;
        engine.tcp(self.id).push_written(written);
        Ok(written)
    }

    /// Bytes to read up to the end of the peer's urgent data, which lie in the stream like all
    /// others. None where none was announced, or it was read.
    pub fn urgent(&self) -> io::Result<Option<u64>> {
        Ok(self.stack.engine().tcp(self.id).urgent()?)
    }

    /// Lets [`Stack::wait_read`] take its data, into the memory given there, or not. Off at first.
    pub fn set_wait_read(&self, on: bool) -> io::Result<()> {
        Ok(self.stack.engine().tcp(self.id).set_wait_read(on)?)
    }

    /// Makes reads and writes return at once, with `WouldBlock`, instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.read_mode.set_nonblocking(nonblocking);
        self.write_mode.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Sets the longest time that a read waits before it fails with `WouldBlock`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_mode.set_timeout(timeout)
    }

    /// Returns the longest time that a read waits.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.read_mode.get().timeout)
    }

    /// Sets the longest time that a write waits before it fails with `WouldBlock`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_mode.set_timeout(timeout)
    }

    /// Returns the longest time that a write waits.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.write_mode.get().timeout)
    }

    /// Why the connection ended, if not in order and no other call has told yet.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.stack.engine().tcp(self.id).take_error()?.map(io::Error::from))
    }

    /// Counters and estimates.
    pub fn info(&self) -> io::Result<TcpInfo> {
        Ok(self.stack.engine().tcp(self.id).info()?)
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.stack.engine().tcp(self.id).addresses()?.remote)
    }

    /// Its own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.stack.engine().tcp(self.id).addresses()?.local)
    }

    /// Its name in events.
    pub fn id(&self) -> SocketId {
        self.id
    }

    /// The stack it belongs to.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Closes with a reset.
    pub fn abort(self) {
        let mut engine = self.stack.engine();
        engine.refresh_time();
        engine.tcp(self.id).abort();
        engine.flush();
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.reading(|mode| self.stack.read(mode, self.id, buffer))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        self.stack.block(self.write_mode.get(), self.id, |engine| {
            engine.refresh_time();
            engine.tcp(self.id).send(data)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        self.stack.let_go(self.id);
    }
}
