//! The engine's routes: the table that is changed, which may be another's, and what look-ups go by.

use std::net::IpAddr;

use millstream_route::{LinkId, Prefix, Route, RouteError, RouteTable, Routes};
use millstream_wire::ip::{IpHeader, Protocol};

use crate::engine::NO_PREFIX;
use crate::error::Error;

/// The error for a change of routes that belong to another's table.
const SHARED: Error =
    Error::Invalid("the engine goes by a route table that another owns: change that one");

/// See the module text.
pub(crate) struct Routing {
    /// `None` where another owns the table.
    own: Option<RouteTable>,
    routes: Routes,
    /// Times that a link came, went, or changed what it can do.
    link_changes: u32,
    /// The key of flow hashes: nobody else can tell which way a flow goes.
    key: u64,
}

impl Routing {
    /// Goes by another's table, `shared`, or by an empty one of its own, for at most the default
    /// number of routes.
    pub fn new(key: u64, shared: Option<Routes>) -> Self {
        match shared {
            Some(mut routes) => {
                routes.refresh();
                Self { own: None, routes, link_changes: 0, key }
            }
            None => Self { key, ..Self::over(RouteTable::new()) },
        }
    }

    /// Looks routes up in `table`, which is the engine's own.
    pub fn over(table: RouteTable) -> Self {
        Self { routes: table.reader(), own: Some(table), link_changes: 0, key: 0 }
    }

    /// Returns true if the table is the engine's own.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Routes that there are.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// All routes from one on, as [`RouteTable::iter_from`]. Readers of another's table cannot
    /// tell.
    pub fn iter_from(
        &self,
        prefix: Prefix,
        place: usize,
    ) -> Option<impl Iterator<Item = (Prefix, usize, Route)> + '_> {
        self.own.as_ref().map(|table| table.iter_from(prefix, place))
    }

    /// The route to a destination; of several that share flows the one for this destination.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<Route> {
        self.routes.lookup_flow(destination, || hash(self.key, &[words(destination)])).copied()
    }

    /// The route of a packet that is handed on, `packet` from its IP header on; of several that
    /// share flows the one for its flow: addresses, protocol, and what tells flows apart (RFC 2991;
    /// of IPv6 the flow label where there is one, RFC 6438). Of fragments, which do not all have
    /// ports, only the former.
    #[inline]
    pub fn lookup_packet(&self, ip: &IpHeader, packet: &[u8]) -> Option<Route> {
        self.routes.lookup_flow(ip.dst, || self.flow_hash(ip, packet)).copied()
    }

    /// Returns the hash that chooses among several routes for such a packet.
    #[cold]
    pub fn flow_hash(&self, ip: &IpHeader, packet: &[u8]) -> u32 {
        let mut flow = [0; 2];
        flow[0] = u64::from(ip.protocol.0) << 32 | u64::from(ip.flow_label);
        let has_ports = matches!(ip.protocol, Protocol::TCP | Protocol::UDP);
        if ip.flow_label == 0 && ip.fragment.is_none() && has_ports {
            let ports = packet.get(ip.header_len..).and_then(<[u8]>::first_chunk::<4>);
            flow[1] = ports.map_or(0, |ports| u32::from_be_bytes(*ports).into());
        }
        hash(self.key, &[words(ip.src), words(ip.dst), flow])
    }

    /// Returns the reader of the table, for look-ups of many at a time.
    #[inline]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Look-ups go by what the table has become.
    #[inline]
    pub fn refresh(&mut self) {
        self.routes.refresh();
    }

    /// As [`RouteTable::insert`].
    pub fn insert(&mut self, prefix: Prefix, route: Route) -> Result<(), Error> {
        let added = self.table()?.insert(prefix, route);
        self.refresh();
        added.map(drop).map_err(|error| match error {
            RouteError::Full { .. } => Error::Limit("routes"),
            RouteError::PrefixLength(_) => Error::Invalid(NO_PREFIX),
            RouteError::Gateway(_) => Error::Invalid("not a gateway for this prefix"),
            RouteError::Link(_) => Error::Invalid("a route that leads nowhere by a link"),
            RouteError::Weight(_) => Error::Invalid("a weight of 0, or beyond 256"),
        })
    }

    /// A link has no address in this network any more: the route to it goes, if it is ours.
    pub fn remove_network(&mut self, network: Prefix, link: LinkId) {
        if let Some(table) = &mut self.own {
            table.remove(network, link, None);
            self.refresh();
        }
    }

    /// A link is over, and those of our routes with it that lead there.
    pub fn remove_link(&mut self, link: LinkId) {
        if let Some(table) = &mut self.own {
            table.remove_link(link);
            self.refresh();
        }
        // Also for those that go by no route, or by another's.
        self.note_link_change();
    }

    /// A link has come or changed, or an address has gone: whoever keeps a next hop looks it up
    /// anew.
    pub fn note_link_change(&mut self) {
        self.link_changes = self.link_changes.wrapping_add(1);
    }

    /// Changes whenever a next hop may have.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.routes.generation().wrapping_add(self.link_changes)
    }

    /// The same, told apart: of the routes, and of the links.
    #[inline]
    pub fn generations(&self) -> (u32, u32) {
        (self.routes.generation(), self.link_changes)
    }

    /// The engine's own table, for changes of any kind. They hold from the next
    /// [`refresh`](Self::refresh) on.
    pub fn table(&mut self) -> Result<&mut RouteTable, Error> {
        self.own.as_mut().ok_or(SHARED)
    }
}

fn words(ip: IpAddr) -> [u64; 2] {
    match ip {
        IpAddr::V4(ip) => [0, ip.to_bits().into()],
        IpAddr::V6(ip) => [(ip.to_bits() >> 64) as u64, ip.to_bits() as u64],
    }
}

/// 32 bits that depend on all bits of what is hashed, evenly spread.
#[cold]
fn hash(key: u64, list: &[[u64; 2]]) -> u32 {
    let fold = |hash: u64, word: u64| {
        // An odd constant with as many ones as zeros (the golden ratio's).
        let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
        (product >> 64) as u64 ^ product as u64
    };
    let all = list.iter().flatten().fold(key, |hash, &word| fold(hash, word).wrapping_add(key));
    (fold(all, key.rotate_left(32)) >> 32) as u32
}
