//! How a destination is reached: whose it is, the next hop, its link, the headers before a packet,
//! and the queue that it leaves by.
//!
//! This is the lower half of the layer: links, routes, neighbours and addresses. It tells of what
//! arrives no more than for whom it is.

pub(in crate::engine) mod addresses;
pub(in crate::engine) mod claims;
pub(in crate::engine) mod fragments;
pub(in crate::engine) mod group_filter;
pub(in crate::engine) mod group_member;
pub(in crate::engine) mod local_prefixes;
pub(in crate::engine) mod membership;
mod neighbor;
pub(in crate::engine) mod output;
pub(in crate::engine) mod reserved;
mod reverse_path;
pub(in crate::engine) mod routing;
pub(in crate::engine) mod source;

use std::net::IpAddr;

use millstream_link::{LinkError, Medium};
use millstream_packet::Instant;
use millstream_route::{LinkId, NeighborConfig, NeighborTable, Prefix, Reject, Route, Routes};
use millstream_wire::ethernet::{EtherType, EthernetHeader};

use crate::engine::context::Context;
use crate::engine::ip::reach::addresses::Addresses;
use crate::engine::ip::reach::claims::{AddressConfig, Claims};
use crate::engine::ip::reach::fragments::Identifications;
use crate::engine::ip::reach::membership::Membership;
use crate::engine::ip::reach::reserved::{is_link_local, is_no_destination};
use crate::engine::ip::reach::routing::Routing;
use crate::engine::links::{Links, RemovedLink, ReversePath, Serial};
use crate::engine::words;
use crate::error::Error;
use crate::limits::Limits;
use crate::stats::DropReason;

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextHop {
    pub link: LinkId,
    pub address: IpAddr,
    pub mtu: usize,
}

impl NextHop {
    /// Returns the same with no more than the path behind it carries, as far as that is known.
    pub fn within(self, path_mtu: Option<usize>) -> Self {
        Self { mtu: path_mtu.map_or(self.mtu, |mtu| mtu.min(self.mtu)), ..self }
    }
}

/// Generations of routes and neighbours: whoever keeps a next hop, or headers for it, looks it up
/// anew when they are others. Caches of received flows go by [`Changes`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Generations {
    pub routes: u32,
    pub neighbors: u32,
}

/// Changes of addresses and links, for those who go by them.
#[derive(Default)]
pub(in crate::engine) struct Changes {
    /// The headers of known flows may be others now.
    pub flows: bool,
    /// Addresses that are ours no more: connections from them are reset (RFC 5227, 2.4).
    pub lost: Vec<IpAddr>,
}

/// See the module text.
pub(in crate::engine) struct IpReach {
    pub links: Links,
    pub routing: Routing,
    pub neighbors: NeighborTable,
    pub addresses: Addresses,
    /// The identifications of packets that may be fragmented.
    pub identifications: Identifications,
    /// Changes that the layers above have not followed yet.
    pub changes: Changes,
    /// The filter of links for which none was set.
    pub reverse_path: ReversePath,
    /// Packets may wait for a link.
    pub waiting: bool,
    /// The link whose queue was last found to have no room.
    pub full: Option<LinkId>,
}

impl IpReach {
    /// Without links, and by another's `routes` or none yet; by secrets that come from the engine's
    /// seed.
    pub fn new(
        addresses: AddressConfig,
        routes: Option<Routes>,
        limits: &Limits,
        seed: &[u8; 32],
    ) -> Self {
        let [key0, key1, ..] = words(seed, 0);
        let [claims_key, groups_key, ..] = words(seed, 4);
        let answers = words(seed, 6);
        Self {
            links: Default::default(),
            routing: Routing::new((answers[2] ^ key0) | 1, routes),
            neighbors: NeighborTable::new(NeighborConfig::default(), [key0, key1]),
            addresses: Addresses::new(
                Claims::new(addresses, claims_key),
                Membership::new(limits.groups, groups_key),
            ),
            identifications: Identifications::new((answers[1] ^ key1, answers[0] ^ key0)),
            changes: Changes::default(),
            reverse_path: ReversePath::Off,
            waiting: false,
            full: None,
        }
    }

    /// The link said that it is broken: of it stays what it was and counted, until it is removed.
    #[cold]
    pub fn fail(&mut self, cx: &mut Context, link: LinkId, error: LinkError) {
        if self.links.used_slot(link).is_none() {
            return;
        }
        let waited = self.links.fail(link, error, cx.stats.turns);
        cx.stats.drop_many(DropReason::LinkFailed, waited as u64);
        self.end_link(cx, link, DropReason::LinkFailed);
        // The next flush looks for packets that are put into its queue yet.
        self.waiting = true;
    }

    /// Gives a link back that there is, when what waits for it has been offered to it once more.
    pub fn remove(&mut self, cx: &mut Context, link: LinkId) -> RemovedLink {
        let Self { links, .. } = self;
        let Context { now, stats, pool, .. } = cx;
        let slot = &mut links[link.index()];
        if slot.is_used()
            && !slot.queue.is_empty()
            && let Err(error) = slot.flush(*now, pool, stats)
        {
            self.fail(cx, link, error);
        }
        let has_failed = self.links.used_slot(link).is_none();
        let why = if has_failed { DropReason::LinkFailed } else { DropReason::LinkRemoved };
        self.end_link(cx, link, why);
        self.addresses.forget_link(link);
        let (removed, waited) = self.links.remove(link);
        cx.stats.drop_many(why, waited as u64);
        removed
    }

    /// A link is over. Its routes go with it, so that those by other links take their place, and
    /// what was known of its neighbours; connections look their routes up anew when they send. Its
    /// addresses stay, for the connections that have them and that other links may reach, until
    /// another link gets them, or room is needed for others; but those that only mean something on
    /// the link go.
    fn end_link(&mut self, cx: &mut Context, link: LinkId, why: DropReason) {
        self.routing.remove_link(link);
        self.addresses.end_link(link);
        self.changes.flows = true;
        let waited = self.neighbors.stats().pending_packets;
        self.neighbors.remove_link(link);
        let dropped = waited - self.neighbors.stats().pending_packets;
        cx.stats.drop_many(why, dropped as u64);
    }

    /// Charges what waits for neighbours. Where that is more than it may be now, the oldest packets
    /// are dropped.
    #[inline]
    pub fn settle_neighbors(&mut self, cx: &mut Context) {
        let limit = cx.account.settle_neighbors(self.neighbors.pending_bytes());
        let dropped = self.neighbors.limit_pending(limit);
        cx.stats.drop_many(DropReason::NeighborQueueFull, dropped);
    }

    /// The next hop to `destination`. For link-local and multicast destinations it is `scope`'s
    /// link, or the first one. There is none over a link that is not in use, nor to an address that
    /// no other host has.
    pub fn next_hop(&self, destination: IpAddr, scope: Option<Serial>) -> Option<NextHop> {
        if let Some(link) = self.addresses.loopback_to(destination) {
            let mtu = self.links.used_slot(link)?.capabilities.mtu;
            return Some(NextHop { link, address: destination, mtu });
        }
        if is_no_destination(destination) {
            return None;
        }
        if is_link_local(destination) || destination.is_multicast() || is_broadcast(destination) {
            let link = self.link_to(destination, scope)?;
            let mtu = self.links.used_slot(link)?.capabilities.mtu;
            return Some(NextHop { link, address: destination, mtu });
        }
        self.hop_by(self.routing.lookup(destination)?, destination)
    }

    /// Where a route leads; nowhere over a link that is not in use.
    #[inline]
    pub fn hop_by(&self, route: Route, destination: IpAddr) -> Option<NextHop> {
        let mtu = self.links.used_slot(route.link)?.capabilities.mtu;
        let mtu = route.mtu.map_or(mtu, |limit| mtu.min(usize::from(limit)));
        Some(NextHop { link: route.link, address: route.next_hop(destination), mtu })
    }

    /// Why there is no next hop to `destination`: the route leads nowhere, or there is none. As in
    /// Linux, a blackhole is no valid destination.
    #[cold]
    pub fn why_no_hop(&self, destination: IpAddr) -> Error {
        match self.routing.lookup(destination).and_then(|route| route.reject) {
            None => Error::NetworkUnreachable,
            Some(Reject::Blackhole) => Error::Invalid("a blackhole route leads there"),
            Some(Reject::Unreachable) => Error::HostUnreachable,
            Some(Reject::Prohibit) => Error::Prohibited,
        }
    }

    /// Returns the generations now. A change of a link counts as one of the routes over it.
    #[inline]
    pub fn generations(&self) -> Generations {
        Generations { routes: self.routing.generation(), neighbors: self.neighbors.generation() }
    }

    /// The link header to `dst` by `hop`, if its link has one (inner `None` otherwise). `None`
    /// while the neighbour is not known.
    pub fn ethernet(
        &mut self,
        now: Instant,
        hop: NextHop,
        dst: IpAddr,
    ) -> Option<Option<EthernetHeader>> {
        let capabilities = &self.links[hop.link.index()].capabilities;
        let mac = capabilities.mac;
        if capabilities.medium == Medium::Ip {
            return Some(None);
        }
        let to = self.neighbors.usable(now, hop.link, hop.address)?;
        Some(Some(EthernetHeader::new(to, mac, EtherType::of(&dst))))
    }

    /// The link of a datagram to a peer that no route leads to and whose address names none: that
    /// of the address it is sent from, or the one that its socket's `last` datagram came from.
    pub fn datagram_scope(
        &self,
        local: IpAddr,
        remote: IpAddr,
        last: Option<Serial>,
    ) -> Option<Serial> {
        if !is_scoped(remote) || local.is_unspecified() {
            return last;
        }
        let own = self.addresses.iter().find(|(_, own)| own.addr == local);
        let link = own.and_then(|(link, _)| link).and_then(|link| self.links.used_slot(link));
        link.map(|slot| slot.serial).or(last)
    }

    /// The link to a destination that no route leads to: `scope`'s, or the first one. A group has
    /// members on others, too, where that is gone; one station has not.
    fn link_to(&self, destination: IpAddr, scope: Option<Serial>) -> Option<LinkId> {
        let is_sole = is_link_local(destination) && !destination.is_multicast();
        match scope.map(|serial| self.links.by_serial(serial)) {
            Some(Some(link)) if !self.addresses.is_loopback(link) => Some(link),
            Some(None) if is_sole => None,
            _ => self.first_link(),
        }
    }

    /// The first link in use that leads to others.
    pub fn first_link(&self) -> Option<LinkId> {
        self.links.used().find(|&link| !self.addresses.is_loopback(link))
    }

    /// The link that a call about groups means.
    pub(in crate::engine) fn group_link(&self, link: Option<LinkId>) -> Result<LinkId, Error> {
        match link {
            Some(link) => self.links.check(link).map(|()| link),
            None => self.first_link().ok_or(Error::NetworkUnreachable),
        }
    }

    /// See [`RoutesHandle::add`](crate::RoutesHandle::add).
    pub(in crate::engine) fn add_route(
        &mut self,
        prefix: Prefix,
        route: Route,
    ) -> Result<(), Error> {
        if route.reject.is_none() {
            self.links.check(route.link)?;
        }
        self.routing.insert(prefix, route)
    }

    /// Returns the reverse-path filter of a link.
    #[inline]
    pub(in crate::engine) fn reverse_path(&self, link: LinkId) -> ReversePath {
        self.links[link.index()].reverse_path.unwrap_or(self.reverse_path)
    }

    /// Returns whether that filter takes a packet from `src`.
    #[inline]
    pub(in crate::engine) fn has_way_back(&self, link: LinkId, src: IpAddr) -> bool {
        let filter = self.reverse_path(link);
        filter == ReversePath::Off
            || self.addresses.is_loopback(link)
            || filter.takes(&self.routing, link, src)
    }
}

pub(in crate::engine) fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}

/// Returns whether the next hop to `remote` depends on more than the routes.
pub(in crate::engine) fn is_scoped(remote: IpAddr) -> bool {
    is_link_local(remote) || remote.is_multicast() || is_broadcast(remote)
}
