//! The IP layer: addresses, routes, neighbours, groups, fragments, ICMP, packets for others.

pub(in crate::engine) mod addresses;
pub(in crate::engine) mod announce;
pub(in crate::engine) mod arrival;
pub(in crate::engine) mod claims;
pub(in crate::engine) mod follow;
mod forward;
pub(in crate::engine) mod fragments;
mod group_filter;
mod group_member;
mod groups;
pub(in crate::engine) mod icmp;
pub(in crate::engine) mod icmp_meaning;
pub(in crate::engine) mod input;
pub(in crate::engine) mod local_prefixes;
mod membership;
pub(in crate::engine) mod neighbor;
pub(in crate::engine) mod output;
pub(in crate::engine) mod path_mtus;
pub(in crate::engine) mod rate;
pub(in crate::engine) mod reassembly;
pub(in crate::engine) mod reserved;
pub(in crate::engine) mod reverse_path;
pub(in crate::engine) mod routing;
pub(in crate::engine) mod sent_lately;
pub(in crate::engine) mod source;

use std::net::IpAddr;

use millstream_link::Medium;
use millstream_packet::Instant;
use millstream_route::{Generations, LinkId, NeighborConfig, NeighborTable, Reject, Route, Routes};
use millstream_wire::ethernet::{EtherType, EthernetHeader};

use crate::engine::ip::addresses::{Addresses, is_link_local};
use crate::engine::ip::claims::{AddressConfig, Claims};
use crate::engine::ip::follow::Follow;
use crate::engine::ip::forward::Runs;
use crate::engine::ip::fragments::Identifications;
use crate::engine::ip::membership::Membership;
use crate::engine::ip::path_mtus::PathMtus;
use crate::engine::ip::rate::AnswerLimit;
use crate::engine::ip::reassembly::Reassembly;
use crate::engine::ip::reserved::is_no_destination;
use crate::engine::ip::routing::Routing;
use crate::engine::ip::sent_lately::SentLately;
use crate::engine::links::{Links, Serial};
use crate::engine::words;
use crate::error::Error;
use crate::limits::Limits;
use crate::tuning::Tuning;

pub use group_filter::GroupFilter;

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

/// Everything between links and transport protocols: addresses, routes, neighbours, groups,
/// fragments, packets for others.
pub(in crate::engine) struct IpLayer {
    pub links: Links,
    pub routing: Routing,
    pub neighbors: NeighborTable,
    pub addresses: Addresses,
    /// Path MTUs of datagrams and echo requests.
    pub path_mtus: PathMtus,
    /// Path MTUs of echo replies, apart: whoever asks knows their contents and could forge a quote.
    pub reply_mtus: PathMtus,
    /// The echo replies that were lately sent.
    pub sent: SentLately,
    /// The identifications of packets that may be fragmented.
    pub identifications: Identifications,
    /// Datagrams of which fragments have come.
    pub reassembly: Reassembly,
    /// Packets for others are handed on.
    pub forwards: bool,
    /// Where those are handed on many at a time, with the fast path; away while they are.
    pub runs: Option<Box<Runs>>,
    /// Links whose interfaces somebody sets.
    pub follow: Follow,
    /// Changes that the layers above have not followed yet.
    pub changes: Changes,
    /// Packets may wait for a link.
    pub waiting: bool,
    /// The link whose queue was last found to have no room.
    pub full: Option<LinkId>,
    pub icmp_errors: AnswerLimit,
    /// The limit on resets for segments without a connection.
    pub resets: AnswerLimit,
}

/// Changes of addresses and links, for those who go by them.
#[derive(Default)]
pub(in crate::engine) struct Changes {
    /// The headers of known flows may be others now.
    pub flows: bool,
    /// Addresses that are ours no more: connections from them are reset (RFC 5227, 2.4).
    pub lost: Vec<IpAddr>,
}

impl IpLayer {
    /// Without links, and by another's `routes` or none yet; by secrets that come from the engine's
    /// seed.
    pub fn new(
        now: Instant,
        addresses: AddressConfig,
        routes: Option<Routes>,
        limits: &Limits,
        seed: &[u8; 32],
    ) -> Self {
        let [key0, key1, ..] = words(seed, 0);
        let (random, answers) = (words(seed, 2), words(seed, 6));
        let [claims_key, groups_key, ..] = words(seed, 4);
        let path_mtus = (answers[3] ^ key1, answers[1] ^ key0);
        let Tuning { icmp_errors_per_s, icmp_errors_per_address_s, .. } = limits.tuning;
        let Tuning { resets_per_s, resets_per_address_s, .. } = limits.tuning;
        Self {
            links: Default::default(),
            routing: Routing::new((answers[2] ^ key0) | 1, routes),
            neighbors: NeighborTable::new(NeighborConfig::default(), [key0, key1]),
            addresses: Addresses::new(
                Claims::new(addresses, claims_key),
                Membership::new(limits.groups, groups_key),
            ),
            path_mtus: PathMtus::new(path_mtus),
            reply_mtus: PathMtus::new((path_mtus.1, path_mtus.0)),
            sent: SentLately::new((answers[0] ^ key1, answers[3] ^ key0)),
            identifications: Identifications::new((answers[1] ^ key1, answers[0] ^ key0)),
            reassembly: Reassembly::new(
                limits.fragments_bytes,
                (random[0] ^ key0, random[1] ^ key1),
            ),
            forwards: false,
            runs: None,
            follow: Follow::new(now),
            changes: Changes::default(),
            waiting: false,
            full: None,
            icmp_errors: AnswerLimit::new(
                icmp_errors_per_s,
                icmp_errors_per_address_s,
                (answers[0], answers[1]),
            ),
            resets: AnswerLimit::new(resets_per_s, resets_per_address_s, (answers[2], answers[3])),
        }
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

    /// As [`next_hop`](Self::next_hop), for datagrams: their size is that of the path, as far as it
    /// is known.
    pub fn datagram_next_hop(
        &self,
        now: Instant,
        destination: IpAddr,
        scope: Option<Serial>,
    ) -> Option<NextHop> {
        let hop = self.next_hop(destination, scope)?;
        Some(hop.within(self.path_mtus.get(now, destination)))
    }

    /// The generations that cached routes are compared with. What changes a link counts as a change
    /// of the routes over it.
    #[inline]
    pub fn generations(&self) -> Generations {
        let routes = self.routing.generation();
        Generations::new(routes, self.neighbors.generation())
    }

    /// The same for datagrams, whose next hop also changes with what routers said of their size.
    #[inline]
    pub fn datagram_generations(&self) -> Generations {
        let routes = self.routing.generation();
        let routes = routes.wrapping_add(self.path_mtus.generation);
        Generations::new(routes, self.neighbors.generation())
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
}

pub(in crate::engine) fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}

/// Returns whether the next hop to `remote` depends on more than the routes.
pub(in crate::engine) fn is_scoped(remote: IpAddr) -> bool {
    is_link_local(remote) || remote.is_multicast() || is_broadcast(remote)
}

#[cfg(test)]
pub(in crate::engine) mod tests;
