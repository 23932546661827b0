//! Options of a UDP socket.

use millstream_route::LinkId;

use super::udp_table::{Fragmentation, UdpLayer};
use crate::engine::ip::reach::IpReach;
use crate::error::Error;
use crate::socket::SocketId;

/// Options of one UDP socket. The engine applies them to datagrams sent or received afterwards.
///
/// ```
/// use millstream::Fragmentation;
/// use millstream::local::UdpSocket;
///
/// # use millstream::link::Faults;
/// # use millstream::sim::Simulation;
/// # fn main() -> std::io::Result<()> {
/// # let simulation = Simulation::new(7)?;
/// # let (near, far) = (simulation.host()?, simulation.host()?);
/// # simulation.join((&near, "10.0.0.1/24"), (&far, "10.0.0.2/24"), Faults::default())?;
///
/// let socket = UdpSocket::bind(&near, "10.0.0.1:0")?;
/// let mut options = socket.options()?;
/// options.broadcast = true;
/// options.fragmentation = Fragmentation::Never;
/// socket.set_options(&options)?;
/// assert_eq!(socket.options()?, options);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpSocketOptions {
    /// Hop limit (TTL) of datagrams to one host, 64 at first; not 0.
    pub hop_limit: u8,
    /// The same of datagrams to groups, 1 at first (`IP_MULTICAST_TTL`).
    pub group_hop_limit: u8,
    /// Traffic class field (`IP_TOS`, `IPV6_TCLASS`), 0 at first.
    pub traffic_class: u8,
    /// It may send to broadcast addresses (`SO_BROADCAST`).
    pub broadcast: bool,
    /// The parties that may fragment what it sends (`IP_MTU_DISCOVER`).
    pub fragmentation: Fragmentation,
    /// The link by which it sends to groups (`IP_MULTICAST_IF`).
    pub group_link: Option<LinkId>,
    /// Sockets of this engine get what it sends to their groups (`IP_MULTICAST_LOOP`).
    pub group_loop: bool,
    /// Bytes of memory that received datagrams may hold (`SO_RCVBUF`).
    pub receive_limit_bytes: usize,
}

impl UdpLayer {
    /// See [`UdpHandle::options`](crate::UdpHandle::options).
    pub(in crate::engine) fn options(
        &mut self,
        reach: &IpReach,
        id: SocketId,
    ) -> Result<UdpSocketOptions, Error> {
        let socket = self.by_id(id)?;
        let [hop_limit, group_hop_limit] = socket.hop_limits;
        Ok(UdpSocketOptions {
            hop_limit,
            group_hop_limit,
            traffic_class: socket.traffic_class,
            broadcast: socket.broadcast,
            fragmentation: socket.fragmentation,
            group_link: socket.group_link.and_then(|serial| reach.links.by_serial(serial)),
            group_loop: socket.group_loop,
            receive_limit_bytes: socket.limit_bytes,
        })
    }

    /// See [`UdpHandle::set_options`](crate::UdpHandle::set_options).
    pub(in crate::engine) fn set_options(
        &mut self,
        reach: &mut IpReach,
        id: SocketId,
        options: &UdpSocketOptions,
    ) -> Result<(), Error> {
        if let Some(link) = options.group_link {
            reach.links.check(link)?;
        }
        let hop_limits = [options.hop_limit, options.group_hop_limit].map(Some);
        self.by_id(id)?.set_hop_limits(hop_limits[0], hop_limits[1])?;
        self.set_group_link(reach, id, options.group_link)?;
        let socket = self.by_id(id)?;
        socket.set_traffic_class(options.traffic_class);
        socket.set_broadcast(options.broadcast);
        socket.set_fragmentation(options.fragmentation);
        socket.group_loop = options.group_loop;
        socket.limit_bytes = options.receive_limit_bytes;
        Ok(())
    }
}
