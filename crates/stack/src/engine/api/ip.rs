//! Calls on addresses, routes and paths.

use std::net::IpAddr;

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Bytes of the longest IP packet that a datagram or an echo request to `destination` may be: the MTU of its link or
    /// route, or less where a router has said so in the last ten minutes, of a packet that one of this engine's sockets
    /// sent in the seconds before. As many destinations as [`PATH_MTUS`](crate::tuning::PATH_MTUS) are remembered. TCP
    /// connections know their own: [`TcpInfo::path_mtu_bytes`](millstream_tcp::TcpInfo).
    pub fn path_mtu(&self, destination: IpAddr) -> Result<usize, Error> {
        self.ip.path_mtu(&self.cx, destination)
    }
}
