//! The engine's own addresses.

use std::net::{IpAddr, Ipv4Addr};

use millstream_route::{LinkId, Prefix};

use super::claims::Claims;
use super::is_broadcast;
use super::local_prefixes::LocalPrefixes;
use super::membership::Membership;
pub(crate) use super::reserved::is_link_local;
use super::reserved::{is_no_source, is_plain_host, means_this_host};
use super::source::{AddressUse, Candidate, choose};
use crate::error::Error;

/// Why no socket has a peer at one of the engine's own addresses.
pub(crate) const TO_ITSELF: &str = "an engine does not talk to itself: no peer has its own address";

/// The meaning of a destination address to this engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// One of its own.
    Own,
    /// A broadcast or a multicast group it belongs to.
    Group,
    /// Somebody else's.
    Other,
    /// The same, of a packet that was to be handed on.
    Forwarded,
}

/// The addresses of all links. Any own address is accepted on any link (the weak model of RFC 1122,
/// 3.3.4.2).
#[derive(Default)]
pub(crate) struct Addresses {
    /// Addresses, each with its link; none if that link was removed.
    list: Vec<(Option<LinkId>, Prefix)>,
    /// As many at its end are of links that are over.
    over: usize,
    /// Sorted, for look-ups, each family by itself.
    own_v4: Vec<u32>,
    own_v6: Vec<u128>,
    /// Sorted: those of IPv4, and the first and last ones of networks that links are in or were in.
    known_v4: Vec<u32>,
    /// A filter of these and of IPv6's own addresses, for a quick no.
    sieve: Sieve,
    /// The state of addresses of links in use, also of those not used yet, or not any more.
    pub claims: Claims,
    /// The groups that sockets have joined.
    pub groups: Membership,
    /// Addresses that are delivered as if they were ours.
    pub prefixes: LocalPrefixes,
    /// Uses as a source, of addresses that are not used as most are.
    uses: Vec<(IpAddr, AddressUse)>,
    /// The link by which the engine talks to itself, if it has one.
    loopback: Option<LinkId>,
}

impl Addresses {
    /// Refuses what is no own address, none that sockets may send from as if it were, or an
    /// unspecified one.
    pub fn check_local(&self, ip: IpAddr) -> Result<(), Error> {
        let may_send = |ip| self.is_here(ip) || self.prefixes.may_send_from(ip);
        match ip.is_unspecified() || may_send(ip) {
            true => Ok(()),
            false => Err(Error::AddrNotAvailable),
        }
    }

    /// Returns whether what goes to `remote` by this link is for all of a network.
    pub fn is_broadcast_by(&self, link: LinkId, remote: IpAddr) -> bool {
        is_broadcast(remote) || self.is_broadcast_of(link, remote)
    }

    pub fn new(claims: Claims, groups: Membership) -> Self {
        Self { claims, groups, ..Self::default() }
    }

    /// Gives up an address of a link in use.
    pub fn lose(&mut self, link: LinkId, ip: IpAddr) {
        let end = self.list.len() - self.over;
        let is_it = |(of, own): &(_, Prefix)| *of == Some(link) && own.addr == ip;
        if let Some(at) = self.list[..end].iter().position(is_it) {
            let (_, own) = self.list.remove(at);
            self.disown(own);
        }
    }

    /// Adds an address; false when another link has it. One that is over gives it up.
    pub fn add(&mut self, link: LinkId, prefix: Prefix) -> bool {
        let is_new = match prefix.addr {
            IpAddr::V4(ip) => insert(&mut self.own_v4, ip.to_bits()),
            IpAddr::V6(ip) => insert(&mut self.own_v6, ip.to_bits()),
        };
        let end = self.list.len() - self.over;
        if !is_new {
            let same = |(_, own): &(_, Prefix)| own.addr == prefix.addr;
            let Some(at) = self.list[end..].iter().position(same) else { return false };
            self.list.remove(end + at);
            self.over -= 1;
        }
        self.list.insert(end, (Some(link), prefix));
        self.find_known();
        true
    }

    /// A link is over: what means something on it alone goes, its other addresses are the last to
    /// send from.
    pub fn end_link(&mut self, link: LinkId) {
        self.claims.end_link(link);
        self.groups.end_link(link);
        self.prefixes.end_link(link);
        let link = Some(link);
        self.loopback = self.loopback.filter(|_| self.loopback != link);
        let is_bound = |(of, own): &(_, Prefix)| *of == link && is_link_local(own.addr);
        while let Some(at) = self.list.iter().position(is_bound) {
            let (_, own) = self.list.remove(at);
            self.disown(own);
        }
        let end = self.list.len() - self.over;
        self.list[..end].sort_by_key(|(of, _)| *of == link);
        self.over += self.list[..end].iter().filter(|(of, _)| *of == link).count();
    }

    /// The number of a link that is over may be another's: its addresses are of no link.
    pub fn forget_link(&mut self, link: LinkId) {
        let of_it = self.list.iter_mut().filter(|(of, _)| *of == Some(link));
        of_it.for_each(|(of, _)| *of = None);
    }

    /// Makes room by an address of the link that is over for longest, if one is.
    pub fn forget_one(&mut self) {
        if self.over != 0
            && let Some((_, own)) = self.list.pop()
        {
            self.over -= 1;
            self.disown(own);
        }
    }

    /// It is in the list no more.
    fn disown(&mut self, prefix: Prefix) {
        self.set_use(prefix.addr, AddressUse::default());
        match prefix.addr {
            IpAddr::V4(ip) => self.own_v4.retain(|&own| own != ip.to_bits()),
            IpAddr::V6(ip) => self.own_v6.retain(|&own| own != ip.to_bits()),
        }
        self.find_known();
    }

    fn find_known(&mut self) {
        let ends = self.list.iter().flat_map(|(_, own)| ends_of(*own)).map(Ipv4Addr::to_bits);
        self.known_v4.clear();
        self.known_v4.extend(ends.chain(self.own_v4.iter().copied()));
        self.known_v4.sort_unstable();
        self.sieve = Sieve::default();
        self.known_v4.iter().for_each(|&ip| self.sieve.add(ip));
        self.own_v6.iter().for_each(|&ip| self.sieve.add(folded(ip)));
    }

    /// Returns true where `ip` is one of ours, or the first or last one of a network that we are
    /// in.
    #[inline(always)]
    fn is_known(&self, ip: IpAddr) -> bool {
        let bits = match ip {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => folded(ip.to_bits()),
        };
        self.sieve.may_have(bits) && self.is_known_for_sure(ip)
    }

    #[inline(never)]
    fn is_known_for_sure(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.known_v4.binary_search(&ip.to_bits()).is_ok(),
            ip => self.owns(ip),
        }
    }

    /// Returns true if a link that is not over has `ip`.
    pub fn is_held(&self, ip: IpAddr) -> bool {
        let end = self.list.len() - self.over;
        self.list[..end].iter().any(|(_, own)| own.addr == ip)
    }

    /// Returns how many addresses belong to links that are over.
    pub fn over_count(&self) -> usize {
        self.over
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// All, in the order they were added; those of links that are over come last.
    pub fn iter(&self) -> impl Iterator<Item = (Option<LinkId>, Prefix)> {
        self.list.iter().copied()
    }

    /// Returns true if `ip` is one of them.
    #[inline]
    pub fn owns(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.own_v4.binary_search(&ip.to_bits()).is_ok(),
            IpAddr::V6(ip) => self.own_v6.binary_search(&ip.to_bits()).is_ok(),
        }
    }

    /// From now on the engine talks to itself by this link.
    pub fn set_loopback(&mut self, link: LinkId) {
        self.loopback = Some(link);
    }

    /// Returns true if the engine talks to itself by this link.
    #[inline]
    pub fn is_loopback(&self, link: LinkId) -> bool {
        self.loopback == Some(link)
    }

    /// Returns true if the engine has a link by which it talks to itself.
    pub fn has_loopback(&self) -> bool {
        self.loopback.is_some()
    }

    /// Returns the link by which the engine talks to itself, if `destination` is here.
    #[inline]
    pub fn loopback_to(&self, destination: IpAddr) -> Option<LinkId> {
        self.loopback.filter(|_| self.is_here(destination))
    }

    /// Returns true if `ip` is one of them, or, with a loopback link, means this host.
    #[inline]
    pub fn is_here(&self, ip: IpAddr) -> bool {
        self.owns(ip) || self.loopback.is_some() && means_this_host(ip)
    }

    /// Returns whether packets from `ip` are ours: it is here, or delivered as if it were.
    #[inline]
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.is_here(ip) || self.prefixes.find(None, ip).is_some()
    }

    /// Returns true if `ip` is one of them, and there is no loopback link that leads there.
    pub fn lacks_loopback_to(&self, ip: IpAddr) -> bool {
        self.loopback.is_none() && self.owns(ip)
    }

    /// RFC 1122, 3.2.1.3 (g); RFC 4291, 2.5.3: what means this host never leaves it.
    pub fn check_way(&self, source: IpAddr, link: LinkId) -> Result<(), Error> {
        match means_this_host(source) && !self.is_loopback(link) {
            true => Err(Error::NetworkUnreachable),
            false => Ok(()),
        }
    }

    /// Returns true if `ip` is the broadcast address of a network that the link is in (RFC 1122
    /// section 3.2.1.3).
    pub fn is_broadcast_of(&self, link: LinkId, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip else { return false };
        self.of_link(link).any(|prefix| prefix.broadcast() == Some(ip))
    }

    /// Returns whether `ip` stands for a whole network that some link in use is in: its broadcast,
    /// or the network itself (RFC 1122, 3.2.1.3; RFC 1812, 5.3.7).
    fn is_networks(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(v4) = ip else { return false };
        let in_use = &self.list[..self.list.len() - self.over];
        self.is_known(ip) && in_use.iter().any(|(_, own)| ends_of(*own).any(|end| end == v4))
    }

    /// Returns what the destination `ip` of a packet from `link` means to this engine.
    #[inline]
    pub fn classify(&self, link: LinkId, ip: IpAddr) -> Destination {
        if self.owns(ip) || self.is_loopback(link) && means_this_host(ip) {
            return Destination::Own;
        }
        let group = match ip {
            IpAddr::V4(ip) => {
                ip.is_broadcast()
                    || ip == Ipv4Addr::new(224, 0, 0, 1)
                    || self.of_link(link).any(|prefix| prefix.broadcast() == Some(ip))
            }
            IpAddr::V6(ip) => {
                ip == millstream_route::ALL_NODES
                    || self.prefixes.hears_solicitation(link, ip)
                    || (ip.is_multicast()
                        && self
                            .of_link(link)
                            .map(|prefix| prefix.addr)
                            .chain(self.claims.tentative_of(link))
                            .any(|own| match own {
                                IpAddr::V6(own) => millstream_route::solicited_node(own) == ip,
                                IpAddr::V4(_) => false,
                            }))
            }
        };
        match group || ip.is_multicast() && self.groups.has(link, ip) {
            true => Destination::Group,
            false if self.is_in_prefix(Some(link), ip) => Destination::Own,
            false => Destination::Other,
        }
    }

    /// Returns whether `ip`, which is no address of the engine, is in a prefix of the link, or of
    /// any.
    #[inline]
    fn is_in_prefix(&self, link: Option<LinkId>, ip: IpAddr) -> bool {
        self.prefixes.find(link, ip).is_some() && !self.is_networks(ip)
    }

    /// Returns true if packets from `src` to `dst` are nothing to us, whichever link they come by,
    /// and may be forwarded: both are plain addresses of other hosts. `false` also where a closer
    /// look may find that it is so.
    #[inline(always)]
    pub fn are_others(&self, src: IpAddr, dst: IpAddr) -> bool {
        [src, dst].into_iter().all(|ip| is_plain_host(ip) && !self.is_known(ip))
            && !self.is_in_prefix(None, dst)
    }

    /// Returns true if no other host may send from `src` to us on this link, to such a
    /// `destination`: `src` is ours, a whole network's, whose answer would be everybody's, or
    /// nobody's (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2 and 2.5.3). A host without an address yet
    /// speaks to groups alone. Packets from the loopback link are our own.
    #[inline]
    pub fn is_martian(&self, link: LinkId, src: IpAddr, destination: Destination) -> bool {
        if self.is_loopback(link) {
            return false;
        }
        is_no_source(src)
            || src.is_unspecified() && destination == Destination::Own
            || self.owns(src)
            || self.is_networks(src)
    }

    /// The addresses of one link.
    pub fn of_link(&self, link: LinkId) -> impl Iterator<Item = Prefix> {
        self.list.iter().filter(move |(of, _)| *of == Some(link)).map(|(_, prefix)| *prefix)
    }

    /// Returns the address to send from by `link` to `destination`. Link-local ones are of the link
    /// alone; those of links that are over come last.
    pub fn source(&self, link: LinkId, next_hop: IpAddr, destination: IpAddr) -> Option<IpAddr> {
        if self.is_loopback(link) {
            return Some(destination);
        }
        let is_bound = is_link_local(destination);
        let in_use = self.list.len() - self.over;
        let candidates = self.list.iter().enumerate().map(|(at, (of, own))| {
            let AddressUse { deprecated, temporary } = self.use_of(own.addr);
            Candidate {
                own: *own,
                is_on_link: *of == Some(link),
                is_deprecated: deprecated || at >= in_use,
                is_temporary: temporary,
            }
        });
        let may_be = |one: &Candidate| one.is_on_link || !is_bound && !is_link_local(one.own.addr);
        choose(destination, next_hop, candidates.filter(may_be))
    }

    fn use_of(&self, ip: IpAddr) -> AddressUse {
        let found = self.uses.iter().find(|(of, _)| *of == ip);
        found.map_or(AddressUse::default(), |(_, usage)| *usage)
    }

    /// From now on `ip` is used so as a source.
    pub fn set_use(&mut self, ip: IpAddr, usage: AddressUse) {
        self.uses.retain(|(of, _)| *of != ip);
        if usage != AddressUse::default() {
            self.uses.push((ip, usage));
        }
    }
}

/// Returns the first and the last address of an IPv4 network that has a broadcast, which are no
/// host's.
fn ends_of(own: Prefix) -> impl Iterator<Item = Ipv4Addr> {
    let first = |last| match own.network().addr {
        IpAddr::V4(first) => Some([first, last]),
        IpAddr::V6(_) => None,
    };
    own.broadcast().and_then(first).into_iter().flatten()
}

/// Tells of most addresses at once that they are none of a few.
#[derive(Default)]
struct Sieve([u64; SIEVE_WORDS]);

const SIEVE_WORDS: usize = 32;

impl Sieve {
    /// The word and the bit of an address.
    #[inline(always)]
    fn place(bits: u32) -> (usize, u64) {
        // An odd constant with as many ones as zeros (the golden ratio's).
        let mixed = bits.wrapping_mul(0x9e37_79b1) >> 16;
        ((mixed / 64) as usize % SIEVE_WORDS, 1 << (mixed % 64))
    }

    fn add(&mut self, bits: u32) {
        let (word, bit) = Self::place(bits);
        self.0[word] |= bit;
    }

    #[inline(always)]
    fn may_have(&self, bits: u32) -> bool {
        let (word, bit) = Self::place(bits);
        self.0[word] & bit != 0
    }
}

/// All bits of an address of IPv6 in 32.
#[inline(always)]
fn folded(bits: u128) -> u32 {
    let half = (bits >> 64) as u64 ^ bits as u64;
    (half >> 32) as u32 ^ half as u32
}

/// Puts `value` into a sorted list; false when it was there.
fn insert<T: Ord>(list: &mut Vec<T>, value: T) -> bool {
    let place = list.binary_search(&value);
    if let Err(place) = place {
        list.insert(place, value);
    }
    place.is_err()
}

#[cfg(test)]
mod tests {
    use millstream_link::{Medium, PairConfig, pair};
    use millstream_packet::{Pool, PoolConfig};
    use millstream_route::{Route, RouteTable};

    use super::*;
    use crate::engine::Engine;
    use crate::engine::ip::reach::routing::Routing;
    use crate::{EngineConfig, Limits};

    fn addresses() -> Addresses {
        let mut addresses = Addresses::default();
        for (link, prefix) in
            [(0, "10.0.0.2/24"), (0, "fe80::1/64"), (0, "fd00::2/64"), (1, "10.1.0.2/16")]
        {
            assert!(addresses.add(LinkId(link), prefix.parse().expect("a prefix")));
        }
        addresses
    }

    #[test]
    fn tells_own_groups_and_others() {
        let addresses = addresses();
        let class =
            |link, ip: &str| addresses.classify(LinkId(link), ip.parse().expect("an address"));
        assert_eq!(class(0, "10.0.0.2"), Destination::Own);
        assert_eq!(class(1, "10.0.0.2"), Destination::Own);
        assert_eq!(class(0, "10.0.0.255"), Destination::Group);
        assert_eq!(class(1, "10.0.0.255"), Destination::Other);
        assert_eq!(class(0, "255.255.255.255"), Destination::Group);
        assert_eq!(class(0, "ff02::1"), Destination::Group);
        assert_eq!(class(0, "ff02::1:ff00:2"), Destination::Group);
        assert_eq!(class(0, "ff02::1:ff00:3"), Destination::Other);
        assert_eq!(class(0, "10.0.0.3"), Destination::Other);
    }

    #[test]
    fn a_link_that_is_over_sends_last_and_gives_its_addresses_up() {
        let mut addresses = addresses();
        let list = |addresses: &Addresses| -> Vec<String> {
            let number =
                |link: Option<LinkId>| link.map_or("none".into(), |link| link.0.to_string());
            addresses.iter().map(|(link, own)| format!("{}: {own}", number(link))).collect()
        };
        let prefix = |text: &str| text.parse().expect("a prefix");
        assert!(!addresses.add(LinkId(2), prefix("10.0.0.2/24")));
        addresses.end_link(LinkId(0));
        assert_eq!(list(&addresses), ["1: 10.1.0.2/16", "0: 10.0.0.2/24", "0: fd00::2/64"]);
        assert!(!addresses.owns("fe80::1".parse().expect("an address")));
        assert!(addresses.add(LinkId(2), prefix("10.2.0.2/16")));
        let to = "8.8.8.8".parse().expect("an address");
        let source = addresses.source(LinkId(3), to, to).expect("a source");
        assert_eq!(source.to_string(), "10.1.0.2");
        assert!(addresses.add(LinkId(2), prefix("10.0.0.2/25")));
        addresses.end_link(LinkId(1));
        assert_eq!(
            list(&addresses),
            ["2: 10.2.0.2/16", "2: 10.0.0.2/25", "1: 10.1.0.2/16", "0: fd00::2/64"]
        );
        addresses.forget_link(LinkId(0));
        assert_eq!(list(&addresses)[2..], ["1: 10.1.0.2/16", "none: fd00::2/64"]);
        assert_eq!(addresses.of_link(LinkId(0)).count(), 0);
        assert!(addresses.owns("fd00::2".parse().expect("an address")));
        for left in [3, 2, 2] {
            addresses.forget_one();
            assert_eq!(addresses.len(), left);
        }
        assert!(!addresses.owns("10.1.0.2".parse().expect("an address")));
    }

    /// An engine with so few routes and addresses, and with two links.
    fn engine(routes: usize, addresses: usize) -> Engine {
        let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
        let limits = Limits { addresses, ..Limits::default() };
        let mut engine =
            Engine::new(EngineConfig { limits, ..EngineConfig::new(pool) }).expect("an engine");
        engine.ip.reach.routing = Routing::over(RouteTable::with_limit(routes));
        let (near, far) =
            pair(PairConfig { medium: Medium::Ip, ..PairConfig::default() }).expect("a pair");
        for (number, end) in [near, far].into_iter().enumerate() {
            assert_eq!(engine.add_link(Box::new(end)), Ok(LinkId(number as u16)));
        }
        engine
    }

    fn add(engine: &mut Engine, link: u16, prefix: &str) -> Result<(), Error> {
        engine.add_address(LinkId(link), prefix.parse().expect("a prefix"))
    }

    #[test]
    fn an_address_whose_route_finds_no_room_is_not_added() {
        let mut engine = engine(1, 8);
        assert_eq!(add(&mut engine, 0, "10.0.0.2/24"), Ok(()));
        for _ in 0..2 {
            assert_eq!(add(&mut engine, 1, "10.1.0.2/24"), Err(Error::Limit("routes")));
        }
        assert_eq!((engine.ip.reach.addresses.len(), engine.ip.reach.routing.len()), (1, 1));
        assert!(!engine.ip.reach.addresses.owns("10.1.0.2".parse().expect("an address")));
        // One that needs no further route.
        assert_eq!(add(&mut engine, 0, "10.0.0.3/24"), Ok(()));
        assert_eq!(add(&mut engine, 1, "10.0.0.3/24"), Err(Error::AddrInUse));
        engine.routes().table().expect("its own").remove_link(LinkId(0));
        assert_eq!(add(&mut engine, 1, "10.1.0.2/24"), Ok(()));
    }

    #[test]
    fn an_address_of_a_link_that_is_over_stays_when_another_is_refused() {
        let mut engine = engine(1, 2);
        assert_eq!(add(&mut engine, 0, "10.0.0.2/24"), Ok(()));
        assert_eq!(add(&mut engine, 0, "10.0.0.3/24"), Ok(()));
        engine.links().remove(LinkId(0)).expect("removed");
        let route = Route::on_link(LinkId(1));
        engine.routes().add("10.9.0.0/24".parse().expect("a prefix"), route).expect("a route");
        let before: Vec<_> = engine.ip.reach.addresses.iter().collect();
        // It had taken one's place, and had taken one over.
        for prefix in ["10.1.0.2/24", "10.0.0.2/24"] {
            assert_eq!(add(&mut engine, 1, prefix), Err(Error::Limit("routes")));
            assert_eq!(engine.ip.reach.addresses.iter().collect::<Vec<_>>(), before);
        }
    }

    #[test]
    fn sends_from_an_address_that_fits() {
        let addresses = addresses();
        let from = |link, to: &str| {
            let to = to.parse().expect("an address");
            addresses.source(LinkId(link), to, to).map(|ip| ip.to_string())
        };
        assert_eq!(from(0, "10.0.0.9").as_deref(), Some("10.0.0.2"));
        assert_eq!(from(1, "8.8.8.8").as_deref(), Some("10.1.0.2"));
        assert_eq!(from(0, "fe80::9").as_deref(), Some("fe80::1"));
        assert_eq!(from(0, "2001:db8::1").as_deref(), Some("fd00::2"));
        assert_eq!(from(1, "fd00::9").as_deref(), Some("fd00::2"));
    }
}
