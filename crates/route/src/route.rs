//! Routes: where packets for a prefix go.

use std::net::IpAddr;

use crate::prefix::LinkId;

/// The fate of packets that a route leads nowhere; the names are those of Linux (ip-route(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// They are dropped, and nobody is told.
    Blackhole,
    /// They are dropped, and their sender is told that the host is unreachable.
    Unreachable,
    /// They are dropped, and their sender is told that it is forbidden.
    Prohibit,
}

/// Where packets for a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The link they leave by.
    pub link: LinkId,
    /// The router they are handed to; `None` when the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Largest IP packet on this way in bytes, when it is below the link's.
    pub mtu: Option<u16>,
    /// Which of several routes for the same prefix wins: the lowest.
    pub metric: u32,
    /// They go nowhere: then `link` is [`LinkId::NONE`], and there is no gateway.
    pub reject: Option<Reject>,
    /// Its part of the flows of its prefix, beside that of others where several share them
    /// ([`RouteTable::set_multipath`](crate::RouteTable::set_multipath)): 1 to
    /// [`WEIGHT_LIMIT`](crate::limits::WEIGHT_LIMIT).
    pub weight: u16,
}

impl Route {
    /// Returns a route to what is on the link itself.
    pub const fn on_link(link: LinkId) -> Self {
        Self { link, gateway: None, mtu: None, metric: 0, reject: None, weight: 1 }
    }

    /// Returns a route through a router.
    pub const fn via(link: LinkId, gateway: IpAddr) -> Self {
        Self { gateway: Some(gateway), ..Self::on_link(link) }
    }

    /// Returns a route that leads nowhere, so that no route for a shorter prefix is taken.
    pub const fn rejecting(reject: Reject) -> Self {
        Self { reject: Some(reject), ..Self::on_link(LinkId::NONE) }
    }

    /// Returns the neighbour that a packet for `destination` is handed to on this route.
    pub fn next_hop(&self, destination: IpAddr) -> IpAddr {
        self.gateway.unwrap_or(destination)
    }
}
