//! Calls on ICMP echo sockets.

use std::net::IpAddr;

use millstream_packet::Packet;

use crate::engine::Engine;
use crate::error::Error;
use crate::socket::SocketId;

impl Engine {
    /// Opens an echo socket; identifier 0 asks for a free one.
    pub fn icmp_bind(&mut self, identifier: u16) -> Result<SocketId, Error> {
        self.echo.open(&mut self.cx, identifier)
    }

    /// Sends an echo request with `data`, in fragments where that is longer than the path carries.
    /// [`Error::NetworkUnreachable`] where no route leads, as to loopback addresses; [`Error::MessageTooLong`] for more
    /// than 65,507 bytes over IPv4, 65,527 over IPv6.
    pub fn icmp_send_echo(
        &mut self,
        id: SocketId,
        to: IpAddr,
        seq: u16,
        data: &[u8],
    ) -> Result<(), Error> {
        self.echo.send(&mut self.cx, &mut self.ip, id, to, seq, data)
    }

    /// The next echo reply: who sent it, its sequence number, its data.
    pub fn icmp_recv(&mut self, id: SocketId) -> Result<(IpAddr, u16, Packet), Error> {
        self.echo.receive(&mut self.cx, id)
    }
}
