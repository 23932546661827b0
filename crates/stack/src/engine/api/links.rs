//! Calls on links, with their addresses and neighbours.

use std::net::IpAddr;

use millstream_link::Loopback;
use millstream_route::LinkId;
use millstream_wire::ethernet::MacAddr;

use crate::engine::links::NO_SUCH_LINK;
use crate::engine::{AddressUse, Engine, RemovedLink, ReversePath};
use crate::error::Error;

/// The links of an engine, with their addresses and neighbours ([`Engine::links`]).
#[derive(Debug)]
pub struct LinksHandle<'a> {
    pub(in crate::engine) engine: &'a mut Engine,
}

impl LinksHandle<'_> {
    /// Adds a link by which the engine talks to itself: what its sockets send to own addresses, to
    /// 127.0.0.0/8 and to ::1 (which sockets may be bound to from then on) lies in its queue until
    /// the next turn, which takes a batch as from any link. It is an ordinary link otherwise, and
    /// can be removed ([`LinksHandle::remove`](crate::LinksHandle::remove)). What comes by others
    /// for or from such addresses is dropped all the same.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] when there is one; [`Error::Limit`] as for [`Engine::add_link`].
    pub fn add_loopback(&mut self) -> Result<LinkId, Error> {
        if self.engine.ip.reach.addresses.has_loopback() {
            return Err(Error::AddrInUse);
        }
        let link = self.engine.add_link(Box::new(Loopback::new()))?;
        self.engine.ip.reach.addresses.set_loopback(link);
        // Next hops to own addresses are others now.
        self.engine.ip.reach.routing.note_link_change();
        Ok(link)
    }

    /// Takes a link out, at any time, and gives it back: one in use, or one that has failed, of
    /// which nothing is left then. By `net` it is reached through
    /// [`Stack::with_engine`](crate::net::Stack::with_engine).
    ///
    /// Packets that wait for a link in use are offered to it once more; those that it does not take
    /// are dropped and counted ([`DropReason::LinkRemoved`](crate::DropReason)), as are packets
    /// that wait for neighbours on it. Packets that have come by it are received. Then all is as
    /// when a link fails ([`Inspect::link_error`](crate::Inspect::link_error)): routes, neighbours
    /// and addresses that mean something on this link alone are gone; other addresses stay the
    /// engine's until another link gets them or room is needed; no socket is closed. Connections go
    /// on by the links that are left, or wait for one. A call that waits for a peer that no link
    /// leads to any more fails with [`Error::NetworkDown`]. A socket that talks to a link-local
    /// address of this link has no way any more, whatever link is added.
    ///
    /// Its number is free: the next link that is added may get it, and an id that was kept names
    /// that one then. It costs a look at every route, neighbour and address, once.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such link, or not any more.
    pub fn remove(&mut self, link: LinkId) -> Result<RemovedLink, Error> {
        if self.engine.ip.reach.links.get(link).is_none() {
            return Err(NO_SUCH_LINK);
        }
        let removed = self.engine.ip.reach.remove(&mut self.engine.cx, link);
        self.engine.follow_addresses();
        Ok(removed)
    }

    /// Filters what comes by the link by its source from now on; packets of flows that are known
    /// already are not looked at again. What is dropped is counted
    /// ([`DropReason::ReversePath`](crate::DropReason::ReversePath)).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a link that is not in use.
    pub fn set_reverse_path(&mut self, link: LinkId, filter: ReversePath) -> Result<(), Error> {
        self.engine.ip.reach.links.check(link)?;
        self.engine.ip.reach.links[link.index()].reverse_path = Some(filter);
        Ok(())
    }

    /// Has an address of the link used as a source as `usage` says, beside others (RFC 6724 section
    /// 5). At first none is deprecated or temporary. Connections and bound sockets keep the address
    /// that they have.
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when the link has no such address.
    pub fn set_address_use(
        &mut self,
        link: LinkId,
        ip: std::net::IpAddr,
        usage: AddressUse,
    ) -> Result<(), Error> {
        self.engine.ip.set_address_use(link, ip, usage)
    }

    /// Takes an address from a link, be it used, checked yet, or found to be another's; its
    /// connections are reset, and the route to its prefix that came with it goes unless the link
    /// has another address in it. Sockets that are bound to it stay, and can send again when it
    /// comes back.
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when the link has no such address; [`Error::Invalid`] for a link that is not in use.
    pub fn remove_address(&mut self, link: LinkId, ip: IpAddr) -> Result<(), Error> {
        let changed = self.engine.ip.remove_address(&mut self.engine.cx, link, ip);
        self.engine.follow_addresses();
        changed
    }

    /// Sets a neighbour by hand: it is never asked, nobody else may claim its address, and it never
    /// gives way to others. Packets that waited for it are sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a link that is not in use, for addresses that no single station has, and for one of the
    /// engine's own; [`Error::Limit`] when the table is full of neighbours that were set by hand.
    pub fn add_neighbor(&mut self, link: LinkId, ip: IpAddr, mac: MacAddr) -> Result<(), Error> {
        self.engine.ip.reach.add_neighbor(&mut self.engine.cx, link, ip, mac)
    }

    /// Tells the engine of a neighbour that somebody else has learnt, as the host's kernel: it is
    /// taken in as if it had asked for an address of ours (RFC 826; RFC 4861, 7.2.3), and is asked
    /// itself soon after its first use. It changes nothing of one that was set by hand.
    ///
    /// # Errors
    /// As [`add_neighbor`](Self::add_neighbor), but where no other gives way it is not taken in.
    pub fn suggest_neighbor(
        &mut self,
        link: LinkId,
        ip: IpAddr,
        mac: MacAddr,
    ) -> Result<(), Error> {
        self.engine.ip.reach.suggest_neighbor(&mut self.engine.cx, link, ip, mac)
    }

    /// Forgets a neighbour, set by hand or not; it is asked for anew with its next use. What waited
    /// for it is dropped and counted
    /// ([`DropReason::NeighborUnreachable`](crate::DropReason::NeighborUnreachable)).
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when it is not known.
    pub fn remove_neighbor(&mut self, link: LinkId, ip: IpAddr) -> Result<(), Error> {
        self.engine.ip.reach.remove_neighbor(&mut self.engine.cx, link, ip)
    }
}
