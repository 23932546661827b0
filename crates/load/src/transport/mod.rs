//! One face over the kernel's sockets and over Millstream, so that both are
//! measured by the same code.

mod datagrams;
mod info;
mod kernel;
mod local;
mod message;
mod slots;
mod threaded;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use info::{bare_link_record, engine_record};
pub use kernel::KernelNetwork;
pub use local::LocalNetwork;
pub use threaded::ThreadedNetwork;

use millstream_record::EngineRecord;

/// Bytes that a link of Millstream carried, link headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkBytes {
    /// Received by this end.
    pub rx_bytes: u64,
    /// Frames received; a super-segment counts as one.
    pub rx_packets: u64,
    /// Sent by this end.
    pub tx_bytes: u64,
    /// Frames sent; a super-segment counts as one.
    pub tx_packets: u64,
}

/// A connection of a [`Network`].
pub type ConnId = usize;
/// A listener of a [`Network`].
pub type ListenerId = usize;

/// A socket for datagrams of a [`Network`].
pub type DatagramId = usize;

/// The calls of a connection that would not block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The connection.
    pub conn: ConnId,
    /// A read would not block (data, end of stream or an error).
    pub readable: bool,
    /// A write would not block.
    pub writable: bool,
}

/// State of a connection: names as in Linux's `tcp_info`, the unit at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnInfo {
    /// Congestion control, when known.
    pub congestion: Option<String>,
    /// The numbers.
    pub fields: BTreeMap<String, f64>,
}

/// See [`Network::another`].
pub type Another = Box<dyn FnOnce() -> io::Result<Box<dyn Network>> + Send>;

/// A TCP/IP stack as a workload sees it: one per thread, no locks.
///
/// Connections block until [`Network::watch`] is called for them; from then on
/// their reads and writes give `WouldBlock`, and [`Network::wait`] tells when
/// they are ready.
pub trait Network {
    /// Listens on `address` (port 0: any) and gives the address really taken.
    fn listen(
        &mut self,
        address: SocketAddr,
        backlog: usize,
    ) -> io::Result<(ListenerId, SocketAddr)>;

    /// The next connection of a listener, and whose it is; blocks.
    fn accept(&mut self, listener: ListenerId) -> io::Result<(ConnId, SocketAddr)>;

    /// As `accept`, and `None` where there is none now.
    fn accept_now(&mut self, listener: ListenerId) -> io::Result<Option<(ConnId, SocketAddr)>>;

    /// Connects; blocks until the handshake is over.
    fn connect(&mut self, address: SocketAddr) -> io::Result<ConnId>;

    /// Reads some bytes; 0 is the orderly end of the stream.
    fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<usize>;

    /// As `read` of a connection that blocks, and `None` where there is nothing now.
    fn read_now(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Writes some bytes, at least one.
    fn write(&mut self, conn: ConnId, data: &[u8]) -> io::Result<usize>;

    /// As `write`, from memory of the stack's own (packets, or pages of a file) that holds the
    /// bytes of `data` since the first call and is sent as it is; always the same `data`. Where the
    /// stack has no such call, as `write`.
    fn write_shared(&mut self, conn: ConnId, data: &[u8]) -> io::Result<usize> {
        self.write(conn, data)
    }

    /// As `read`, for as many bytes as `buffer` has room, left in the packets that they came in.
    /// Where the stack has no such call, as `read`.
    fn read_shared(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(conn, buffer)
    }

    /// Makes the connection non-blocking and says what `wait` is to report.
    fn watch(&mut self, conn: ConnId, readable: bool, writable: bool) -> io::Result<()>;

    /// Sleeps until a watched connection is ready or the time is over, and
    /// replaces `ready` by those that are.
    fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()>;

    /// As `wait`, and reads: bulk of watched connections that want to read may come straight into
    /// `memory`, each piece of it told in `received` by its connection and place, before what a
    /// read of that connection gives. Where the stack has no such call, as `wait`.
    fn wait_read(
        &mut self,
        timeout: Duration,
        _memory: &mut [u8],
        ready: &mut Vec<Ready>,
        received: &mut Vec<(ConnId, Range<usize>)>,
    ) -> io::Result<()> {
        received.clear();
        self.wait(timeout, ready)
    }

    /// Ends the sending direction after what was written.
    fn shutdown_write(&mut self, conn: ConnId) -> io::Result<()>;

    /// Closes the connection; what was written is still delivered.
    fn close(&mut self, conn: ConnId);

    /// Opens a socket for datagrams at `address` (port 0: any) and gives the address really taken.
    fn bind_datagrams(&mut self, address: SocketAddr) -> io::Result<(DatagramId, SocketAddr)>;

    /// Fixes the peer of a socket.
    fn connect_datagrams(&mut self, socket: DatagramId, peer: SocketAddr) -> io::Result<()>;

    /// Sends datagrams to the peer. How many were taken; none where there was no room, or where the
    /// peer has gone.
    fn send_datagrams(&mut self, socket: DatagramId, list: &[&[u8]]) -> io::Result<usize>;

    /// The next datagram, cut to `buffer`, and who sent it; `None` if none comes within `wait`.
    fn receive_datagram_from(
        &mut self,
        socket: DatagramId,
        buffer: &mut [u8],
        wait: Duration,
    ) -> io::Result<Option<(usize, SocketAddr)>>;

    /// As `receive_datagram_from`, without the sender.
    fn receive_datagram(
        &mut self,
        socket: DatagramId,
        buffer: &mut [u8],
        wait: Duration,
    ) -> io::Result<Option<usize>> {
        Ok(self.receive_datagram_from(socket, buffer, wait)?.map(|(bytes, _)| bytes))
    }

    /// Datagrams that have come, the first within `wait`: how many, and how many bytes they have.
    /// `memory` is where they are put, and means nothing after.
    fn receive_datagrams(
        &mut self,
        socket: DatagramId,
        memory: &mut [u8],
        wait: Duration,
    ) -> io::Result<(usize, usize)>;

    /// Datagrams that have come, the first within `wait`, each given to `each`: how many. `memory`
    /// is where they are put, each in an equal part of it, and cut to that.
    fn receive_each(
        &mut self,
        socket: DatagramId,
        memory: &mut [u8],
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        let Some(bytes) = self.receive_datagram(socket, memory, wait)? else { return Ok(0) };
        each(&memory[..bytes.min(memory.len())]);
        Ok(1)
    }

    /// Returns a function that makes a handle for another thread. Called in that thread, it gives a
    /// handle that has the socket, too, under the same number.
    fn another(&mut self, socket: DatagramId) -> io::Result<Another>;

    /// The state of each of `conns`, as far as the stack tells.
    fn tcp_info(&mut self, conns: &[ConnId]) -> Vec<Option<ConnInfo>>;

    /// Sends small writes at once (no Nagle).
    fn set_nodelay(&mut self, conn: ConnId, on: bool) -> io::Result<()>;

    /// Buffers of listeners and connections made from now on, bytes; `None`
    /// leaves them to the stack.
    fn set_buffers(&mut self, bytes: Option<usize>);

    /// Congestion control of listeners and connections made from now on, as Linux spells it.
    fn set_congestion(&mut self, name: &str) -> io::Result<()>;

    /// Gives the stack time for what it still has to say after the last close.
    fn finish(&mut self, timeout: Duration);

    /// Returns the bytes and packets that the stack's own link carried; `None` where the kernel
    /// counts.
    fn link_bytes(&self) -> Option<LinkBytes> {
        None
    }

    /// Returns the counters and times of the stack's engine; `None` where there is none.
    fn engine(&mut self) -> Option<EngineRecord> {
        None
    }

    /// Remarks of the stack for the record.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Writes all of `data` to a connection that blocks.
pub(crate) fn write_all(
    network: &mut dyn Network,
    conn: ConnId,
    mut data: &[u8],
) -> io::Result<()> {
    while !data.is_empty() {
        let written = network.write(conn, data)?;
        data = &data[written..];
    }
    Ok(())
}

/// Fills the buffer; false when the stream ended before its first byte.
pub(crate) fn read_exact(
    network: &mut dyn Network,
    conn: ConnId,
    buffer: &mut [u8],
) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match network.read(conn, &mut buffer[filled..])? {
            0 if filled == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            taken => filled += taken,
        }
    }
    Ok(true)
}

/// Does a call on a socket that blocks, and must not now: `None` where it would have.
fn without_waiting<S, T>(
    socket: &mut S,
    set_nonblocking: fn(&S, bool) -> io::Result<()>,
    call: impl FnOnce(&mut S) -> io::Result<T>,
) -> io::Result<Option<T>> {
    set_nonblocking(socket, true)?;
    let done = call(socket);
    set_nonblocking(socket, false)?;
    match done {
        // One that went before it was accepted.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
        done => unless_late(done),
    }
}

/// The answer of a receive that may have waited in vain: `None` also where the peer has gone.
fn unless_late<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.kind() {
            WouldBlock | TimedOut | Interrupted | ConnectionRefused => Ok(None),
            _ => Err(error),
        },
    }
}
