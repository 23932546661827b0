//! Next hops of packets handed on, with the link header that leads to each, as they were when last
//! looked up.

use std::net::IpAddr;

use millstream_link::Medium;
use millstream_packet::Instant;
use millstream_route::{LinkId, Route};
use millstream_wire::ethernet::{self, EtherType, EthernetHeader};

use crate::engine::ip::reach::{Generations, IpReach};

/// Hops that are remembered. Of two in the same place the one looked up last is.
const HOPS: usize = 64;

/// The link header of a hop: none on a link that carries IP packets without one.
pub(super) type LinkHeader = Option<[u8; ethernet::HEADER_LEN]>;

/// Where packets go, and what is put before them.
pub(super) struct Hop {
    key: Key,
    /// Generations of the routes and neighbours that it was made from; they may have changed since.
    generations: Generations,
    pub link: LinkId,
    /// Largest IP packet, in bytes.
    pub mtu: usize,
    pub header: LinkHeader,
}

/// The key of a hop: next address, link, MTU and families.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    address: u128,
    /// Link, MTU and families.
    rest: u64,
}

impl Key {
    /// Returns the key of packets of one family that go by `route`.
    #[inline]
    fn new(route: &Route, address: IpAddr, v6: bool) -> Self {
        let (address, by_v6) = match address {
            IpAddr::V4(address) => (address.to_bits().into(), false),
            IpAddr::V6(address) => (address.to_bits(), true),
        };
        // An MTU of 0 limits, too.
        let mtu = route.mtu.map_or(0, |mtu| 1 << 16 | u64::from(mtu));
        let families = u64::from(v6) | u64::from(by_v6) << 1;
        Self { address, rest: families << 48 | mtu << 16 | u64::from(route.link.0) }
    }

    #[inline]
    fn place(&self) -> usize {
        let mixed = (self.address as u64 ^ self.rest.rotate_left(8))
            // An odd constant with as many ones as zeros (the golden ratio's).
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % HOPS
    }
}

/// See the module text.
pub(super) struct Hops([Option<Hop>; HOPS]);

impl Hops {
    pub fn new() -> Self {
        Self([const { None }; HOPS])
    }

    /// The hop of a packet to `dst` that goes by `route`. `None` where its link is not in use, or
    /// where something is to be done before a packet goes there: its link address is not known, or
    /// it is no host's.
    #[inline]
    pub fn find(
        &mut self,
        reach: &mut IpReach,
        now: Instant,
        route: &Route,
        dst: IpAddr,
    ) -> Option<&Hop> {
        let key = Key::new(route, route.next_hop(dst), dst.is_ipv6());
        let generations = reach.generations();
        let place = &mut self.0[key.place()];
        let is_it = |hop: &Hop| hop.key == key && hop.generations == generations;
        if !place.as_ref().is_some_and(is_it) {
            *place = look_up(reach, now, key, route, dst);
        }
        place.as_ref()
    }
}

#[inline(never)]
fn look_up(reach: &mut IpReach, now: Instant, key: Key, route: &Route, dst: IpAddr) -> Option<Hop> {
    let hop = reach.hop_by(*route, dst)?;
    let capabilities = &reach.links[hop.link.index()].capabilities;
    let src = capabilities.mac;
    let header = match capabilities.medium {
        Medium::Ip => None,
        Medium::Ethernet if reach.addresses.is_broadcast_of(hop.link, hop.address) => return None,
        Medium::Ethernet => {
            let mac = reach.neighbors.usable(now, hop.link, hop.address)?;
            let mut header = [0; ethernet::HEADER_LEN];
            EthernetHeader::new(mac, src, EtherType::of(&dst)).emit(&mut header);
            Some(header)
        }
    };
    // The neighbour's use may have changed them.
    let generations = reach.generations();
    Some(Hop { key, generations, link: hop.link, mtu: hop.mtu, header })
}
