//! The tables of the host that are read as a whole.

use millstream_netlink::packet::address::AddressMessage;
use millstream_netlink::packet::neighbour::NeighbourMessage;
use millstream_netlink::packet::route::RouteMessage;
use millstream_netlink::packet::{AddressFamily, RouteNetlinkMessage};

/// Tables that are read as a whole, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dump {
    Addresses,
    RoutesV4,
    RoutesV6,
    Neighbors,
}

impl Dump {
    pub const ALL: [Self; 4] = [Self::Addresses, Self::RoutesV4, Self::RoutesV6, Self::Neighbors];

    /// Returns the request for all of it.
    pub fn request(self) -> RouteNetlinkMessage {
        let routes = |family| {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            RouteNetlinkMessage::GetRoute(message)
        };
        match self {
            Self::Addresses => RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            Self::RoutesV4 => routes(AddressFamily::Inet),
            Self::RoutesV6 => routes(AddressFamily::Inet6),
            Self::Neighbors => RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
        }
    }
}
