//! Calls on addresses, routes, neighbours and paths.

use std::net::IpAddr;

use millstream_link::Loopback;
use millstream_route::{LinkId, Prefix, Route, RouteTable};
use millstream_wire::ethernet::MacAddr;

use crate::engine::{AddressUse, Engine, ReversePath};
use crate::error::Error;

impl Engine {
    /// Has an address of the link used as a source as `usage` says, beside others (RFC 6724 section 5). At first none is
    /// deprecated or temporary. Connections and bound sockets keep the address that they have.
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when the link has no such address.
    pub fn set_address_use(
        &mut self,
        link: LinkId,
        ip: std::net::IpAddr,
        usage: AddressUse,
    ) -> Result<(), Error> {
        self.ip.set_address_use(link, ip, usage)
    }

    /// Gives the link an address, with the route to its prefix where the route table is the engine's own
    /// ([`EngineConfig::routes`](crate::EngineConfig::routes)). The prefix keeps its host bits. An address of a link that
    /// has failed or was removed goes over to this one, with the connections that have it.
    ///
    /// Where there may be other stations on the link it is announced, and checked, as
    /// [`EngineConfig::addresses`](crate::EngineConfig) says: mostly it can be used at once.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] when another link has it, or this one; [`Error::Limit`] when there is no room for one more
    /// ([`Limits::addresses`](crate::Limits)) or for its route; [`Error::Invalid`] for what is no prefix, for an address
    /// that no host has on a link (loopback, a group, 0/8, 240/4, IPv4 in the form of IPv6), and for a link that is not in
    /// use. Nothing has changed then. That somebody else has it shows later ([`Inspect::address_infos`](crate::Inspect::address_infos)).
    pub fn add_address(&mut self, link: LinkId, prefix: Prefix) -> Result<(), Error> {
        let changed = self.ip.add_address(&mut self.cx, link, prefix);
        self.follow_addresses();
        changed
    }

    /// Takes an address from a link, be it used, checked yet, or found to be another's; its connections are reset, and the
    /// route to its prefix that came with it goes unless the link has another address in it. Sockets that are bound to it stay, and can send
    /// again when it comes back.
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when the link has no such address; [`Error::Invalid`] for a link that is not in use.
    pub fn remove_address(&mut self, link: LinkId, ip: IpAddr) -> Result<(), Error> {
        let changed = self.ip.remove_address(&mut self.cx, link, ip);
        self.follow_addresses();
        changed
    }

    /// Whether packets for others are handed on between the engine's links, by its routes; they are not at first. Groups,
    /// broadcasts and link-local addresses are not handed on, and source routes are not followed. An engine that hands
    /// on answers what it cannot by ICMP errors ([`Limits::icmp_errors_per_s`](crate::Limits)).
    pub fn set_forwarding(&mut self, on: bool) {
        self.ip.set_forwarding(&self.cx, on)
    }

    /// Sets a neighbour by hand: it is never asked, nobody else may claim its address, and it never gives way to others.
    /// What waited for it is sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a link that is not in use, for addresses that no single station has, and for one of the
    /// engine's own; [`Error::Limit`] when the table is full of neighbours that were set by hand.
    pub fn add_neighbor(&mut self, link: LinkId, ip: IpAddr, mac: MacAddr) -> Result<(), Error> {
        self.ip.add_neighbor(&mut self.cx, link, ip, mac)
    }

    /// Tells the engine of a neighbour that somebody else has learnt, as the host's kernel: it is taken in as if it had
    /// asked for an address of ours (RFC 826; RFC 4861, 7.2.3), and is asked itself soon after its first use. It changes
    /// nothing of one that was set by hand.
    ///
    /// # Errors
    /// As [`add_neighbor`](Self::add_neighbor), but where no other gives way it is not taken in.
    pub fn suggest_neighbor(
        &mut self,
        link: LinkId,
        ip: IpAddr,
        mac: MacAddr,
    ) -> Result<(), Error> {
        self.ip.suggest_neighbor(&mut self.cx, link, ip, mac)
    }

    /// Forgets a neighbour, set by hand or not; it is asked for anew with its next use. What waited for it is dropped and
    /// counted ([`DropReason::NeighborUnreachable`](crate::DropReason::NeighborUnreachable)).
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when it is not known.
    pub fn remove_neighbor(&mut self, link: LinkId, ip: IpAddr) -> Result<(), Error> {
        self.ip.remove_neighbor(&mut self.cx, link, ip)
    }

    /// Filters what comes by the link by its source from now on; packets of flows that are known already are not
    /// looked at again. What is dropped is counted ([`DropReason::ReversePath`](crate::DropReason::ReversePath)).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a link that is not in use.
    pub fn set_reverse_path(&mut self, link: LinkId, filter: ReversePath) -> Result<(), Error> {
        self.ip.set_reverse_path(link, filter)
    }

    /// Adds a route. Of several for the same prefix the one with the lowest metric is in force; when its link fails it
    /// goes, and the next one takes its place ([`Inspect::link_error`](crate::Inspect::link_error)).
    ///
    /// # Errors
    /// [`Error::Limit`] when the table has no room for one more; [`Error::Invalid`] for a prefix, a gateway or a weight
    /// that cannot be one, for a link that is not in use, and where the table is another's
    /// ([`EngineConfig::routes`](crate::EngineConfig::routes)). Nothing has changed then.
    pub fn add_route(&mut self, prefix: Prefix, route: Route) -> Result<(), Error> {
        self.ip.add_route(prefix, route)
    }

    /// Adds the default route of the gateway's family through a gateway on `link`.
    ///
    /// # Errors
    /// As [`Engine::add_route`].
    pub fn add_gateway(&mut self, link: LinkId, gateway: IpAddr) -> Result<(), Error> {
        self.ip.add_gateway(link, gateway)
    }

    /// The engine's route table, for changes beyond [`Engine::add_route`]. They hold from the next turn on.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the table is another's ([`EngineConfig::routes`](crate::EngineConfig::routes)).
    pub fn routes(&mut self) -> Result<&mut RouteTable, Error> {
        self.ip.routes()
    }

    /// Adds a link by which the engine talks to itself: what its sockets send to own addresses, to 127.0.0.0/8 and to ::1
    /// (which sockets may be bound to from then on) lies in its queue until the next turn, which takes a batch as from any
    /// link. It is an ordinary link otherwise, and can be removed ([`Engine::remove_link`]). What comes by others for or
    /// from such addresses is dropped all the same.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] when there is one; [`Error::Limit`] as for [`Engine::add_link`].
    pub fn add_loopback(&mut self) -> Result<LinkId, Error> {
        if self.ip.addresses.has_loopback() {
            return Err(Error::AddrInUse);
        }
        let link = self.add_link(Box::new(Loopback::new()))?;
        self.ip.addresses.set_loopback(link);
        // Next hops to own addresses are others now.
        self.ip.routing.note_link_change();
        Ok(link)
    }
}
