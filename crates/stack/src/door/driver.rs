//! The work of a door for its sockets: asks the engine, and waits.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use millstream_packet::Packet;
use millstream_tcp::FourTuple;

use super::timeouts::Timeouts;
use crate::{DatagramInfo, DatagramToSend, Engine, Error, ReceivedDatagram, SendOptions, SocketId};

/// The part of a socket that is the same in both doors.
#[derive(Debug)]
pub struct Base<S> {
    pub stack: S,
    pub id: SocketId,
    pub timeouts: Timeouts,
}

impl<S: Clone> Base<S> {
    pub fn new(stack: &S, id: SocketId) -> Self {
        Self { stack: stack.clone(), id, timeouts: Timeouts::default() }
    }
}

/// A socket of a door. It closes when it is dropped.
pub trait SocketDriver: Sized {
    /// The stack that has it.
    type Stack;

    fn base(&self) -> &Base<Self::Stack>;

    /// Has `open` open a socket in the engine.
    fn open(
        stack: &Self::Stack,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error> + Send + 'static,
    ) -> io::Result<Self>;

    /// Runs `call` with the engine; it comes after what the socket has sent before.
    fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Engine) -> Result<T, Error> + Send + 'static,
    ) -> io::Result<T>;

    fn take_error(&self) -> io::Result<Option<io::Error>>;
}

/// A TCP connection of a door, which [`TcpStream`](super::TcpStream) is the handle of.
pub trait TcpDriver: SocketDriver {
    fn wait_connected(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn is_connected(&self) -> bool;
    fn addresses(&self) -> io::Result<FourTuple>;
    fn readable_bytes(&self) -> io::Result<usize>;
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn peek(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn read_packet(&self, max: usize) -> io::Result<Option<Packet>>;
    fn write(&self, data: &[u8]) -> io::Result<usize>;
    fn write_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    fn write_packet(&self, packet: Packet) -> io::Result<()>;
    fn try_write_packet(&self, packet: Packet) -> Result<(), (Packet, Error)>;
    fn bulk_bytes(&self) -> usize;
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
    fn urgent(&self) -> io::Result<Option<u64>>;
    fn write_urgent(&self, data: &[u8]) -> io::Result<usize>;
    fn abort(self: Arc<Self>);
}

/// The error of an accept after [`ListenerDriver::shutdown`].
pub const NOT_LISTENING: Error = Error::Invalid("the listener has been shut down");

/// A TCP listener of a door, which [`TcpListener`](super::TcpListener) is the handle of.
pub trait ListenerDriver: SocketDriver {
    /// Its connections.
    type Stream: TcpDriver<Stack = Self::Stack>;

    fn local_addr(&self) -> io::Result<SocketAddr>;
    fn accept(&self) -> io::Result<(Self::Stream, SocketAddr)>;
    fn shutdown(&self) -> io::Result<()>;
}

/// The way in which data leaves as datagrams.
#[derive(Clone, Copy, Debug)]
pub enum How<'a> {
    /// As one.
    Whole,
    /// As several of so many bytes.
    Segmented(u16),
    /// As one, by these options.
    With(&'a SendOptions),
}

/// A UDP socket of a door, which [`UdpSocket`](super::UdpSocket) is the handle of.
pub trait UdpDriver: SocketDriver {
    fn connect(&self, addr: SocketAddr) -> io::Result<()>;
    fn transmit(&self, data: &[u8], to: Option<SocketAddr>, how: How<'_>) -> io::Result<usize>;
    fn send_many(&self, list: &[DatagramToSend<'_>]) -> io::Result<usize>;
    fn receive(&self) -> io::Result<(Packet, SocketAddr, DatagramInfo)>;
    fn recv_many(&self, buffer: &mut [u8], list: &mut Vec<ReceivedDatagram>) -> io::Result<usize>;
}
