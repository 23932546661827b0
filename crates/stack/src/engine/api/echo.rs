//! Calls on ICMP echo sockets.

use std::net::IpAddr;

use millstream_packet::Packet;

use crate::engine::Engine;
use crate::error::Error;
use crate::socket::SocketId;

/// An ICMP echo socket of an engine ([`Engine::echo`](crate::Engine::echo)).
#[derive(Debug)]
pub struct EchoHandle<'a> {
    pub(in crate::engine) engine: &'a mut Engine,
    pub(in crate::engine) id: SocketId,
}

impl EchoHandle<'_> {
    /// Sends an echo request with `data`, in fragments where that is longer than the path carries.
    /// [`Error::NetworkUnreachable`] where no route leads, as to loopback addresses; [`Error::MessageTooLong`] for more
    /// than 65,507 bytes over IPv4, 65,527 over IPv6.
    pub fn send(&mut self, to: IpAddr, seq: u16, data: &[u8]) -> Result<(), Error> {
        self.engine.echo.send(&mut self.engine.cx, &mut self.engine.ip, self.id, to, seq, data)
    }

    /// The next echo reply: who sent it, its sequence number, its data.
    pub fn recv(&mut self) -> Result<(IpAddr, u16, Packet), Error> {
        self.engine.echo.receive(&mut self.engine.cx, self.id)
    }
}
