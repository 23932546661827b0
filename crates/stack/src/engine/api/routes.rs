//! Calls on routes.

use std::net::IpAddr;

use millstream_route::{LinkId, Prefix, Route, RouteTable};

use crate::engine::Engine;
use crate::error::Error;

/// The routes of an engine ([`RoutesHandle::table`](crate::RoutesHandle::table)).
#[derive(Debug)]
pub struct RoutesHandle<'a> {
    pub(in crate::engine) engine: &'a mut Engine,
}

impl<'a> RoutesHandle<'a> {
    /// Adds a route. Of several for the same prefix the one with the lowest metric is in force;
    /// when its link fails it goes, and the next one takes its place
    /// ([`Inspect::link_error`](crate::Inspect::link_error)).
    ///
    /// # Errors
    /// [`Error::Limit`] when the table has no room for one more; [`Error::Invalid`] for a prefix, a gateway or a weight
    /// that cannot be one, for a link that is not in use, and where the table is another's
    /// ([`EngineConfig::routes`](crate::EngineConfig::routes)). Nothing has changed then.
    pub fn add(&mut self, prefix: Prefix, route: Route) -> Result<(), Error> {
        self.engine.ip.reach.add_route(prefix, route)
    }

    /// Adds the default route of the gateway's family through a gateway on `link`.
    ///
    /// # Errors
    /// As [`RoutesHandle::add`](crate::RoutesHandle::add).
    pub fn add_gateway(&mut self, link: LinkId, gateway: IpAddr) -> Result<(), Error> {
        let all = if gateway.is_ipv4() { Prefix::DEFAULT_V4 } else { Prefix::DEFAULT_V6 };
        self.add(all, Route::via(link, gateway))
    }

    /// The engine's route table, for changes beyond
    /// [`RoutesHandle::add`](crate::RoutesHandle::add). They hold from the next turn on.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the table is another's ([`EngineConfig::routes`](crate::EngineConfig::routes)).
    pub fn table(self) -> Result<&'a mut RouteTable, Error> {
        self.engine.ip.reach.routing.table()
    }

    /// Turns forwarding of packets for others between the engine's links, by its routes, on or off;
    /// it is off at first. Packets for groups, broadcasts and link-local addresses are not
    /// forwarded, and source routes are not followed. A forwarding engine answers packets that it
    /// cannot forward by ICMP errors ([`Limits::icmp_errors_per_s`](crate::Limits)).
    pub fn set_forwarding(&mut self, on: bool) {
        self.engine.ip.set_forwarding(&self.engine.cx, on)
    }
}
