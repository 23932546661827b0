//! The route table: one writer, any number of readers who write nothing.
//!
//! ```text
//!   RouteTable (writer, control path)            Routes (reader, one per engine)
//!   ├ every prefix with its alternatives         ├ its own Arc of a snapshot ──┐
//!   └ Shared ── generation: AtomicU32  ◄─reads── └ refresh(): one load         │
//!              └ current: Mutex<Arc<Snapshot>> ─────► cloned when it changed   ▼
//!                                                              Snapshot (never written)
//! ```
//!
//! The writer alone stores `generation` and `current`, the latter first. A reader takes the mutex
//! only when the generation has moved; a look-up touches its own snapshot and nothing else, not
//! even a reference count.

use core::fmt;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::ROUTES_LIMIT;
use crate::prefix::{LinkId, Prefix};
use crate::trie::{Entry, NOTHING, Trie, VALUES_LIMIT};

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
}

impl Route {
    /// A route to what is on the link itself.
    pub const fn on_link(link: LinkId) -> Self {
        Self { link, gateway: None, mtu: None, metric: 0 }
    }

    /// A route through a router.
    pub const fn via(link: LinkId, gateway: IpAddr) -> Self {
        Self { link, gateway: Some(gateway), mtu: None, metric: 0 }
    }

    /// The neighbour that a packet for `destination` is handed to on this route.
    pub fn next_hop(&self, destination: IpAddr) -> IpAddr {
        self.gateway.unwrap_or(destination)
    }
}

/// Why a route was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// The table holds its limit of routes.
    Full {
        /// That limit.
        limit: usize,
    },
    /// The prefix is longer than an address of its family.
    PrefixLength(Prefix),
    /// The gateway is no unicast address, or an IPv4 one for an IPv6 prefix. (An IPv6 gateway for
    /// an IPv4 prefix is fine: RFC 8950.)
    Gateway(IpAddr),
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit } => write!(f, "the route table holds its limit of {limit} routes"),
            Self::PrefixLength(p) => write!(f, "{p} is longer than an address"),
            Self::Gateway(g) => write!(f, "{g} cannot be the gateway of this route"),
        }
    }
}

impl std::error::Error for RouteError {}

/// What look-ups read. Never written after it is published.
struct Snapshot {
    v4: Arc<Trie<u32>>,
    v6: Arc<Trie<u128>>,
    /// Indexed by a trie's value less one.
    routes_v4: Arc<[Route]>,
    routes_v6: Arc<[Route]>,
    generation: u32,
}

impl Snapshot {
    #[inline]
    fn lookup(&self, addr: IpAddr) -> Option<Route> {
        let (value, routes) = match addr {
            IpAddr::V4(a) => (self.v4.lookup(a.to_bits()), &self.routes_v4),
            IpAddr::V6(a) => (self.v6.lookup(a.to_bits()), &self.routes_v6),
        };
        if value == NOTHING { None } else { Some(routes[value as usize - 1]) }
    }
}

struct Shared {
    generation: AtomicU32,
    current: Mutex<Arc<Snapshot>>,
}

impl Shared {
    fn current(&self) -> Arc<Snapshot> {
        // The lock guards one pointer, which is whole even if a holder panicked.
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A reader: looks up in the snapshot it holds until told to [`refresh`](Self::refresh).
///
/// Cheap to clone; one per thread. All look-ups between two refreshes see one state of the table.
#[derive(Clone)]
pub struct Routes {
    snapshot: Arc<Snapshot>,
    shared: Arc<Shared>,
}

impl Routes {
    /// The route of the longest prefix that covers `addr`. Reads only what this handle holds;
    /// allocates nothing.
    #[inline]
    pub fn lookup(&self, addr: IpAddr) -> Option<Route> {
        self.snapshot.lookup(addr)
    }

    /// The generation of the snapshot held; goes into a header template.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.snapshot.generation
    }

    /// Takes over what the writer has published since; `true` when that was something. One load
    /// when it was nothing. Call it once a turn.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        let changed = self.shared.generation.load(Ordering::Acquire) != self.snapshot.generation;
        if changed {
            self.snapshot = self.shared.current();
        }
        changed
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

/// The writer's side: all routes, and what readers see of them.
///
/// Several routes for one prefix are kept as alternatives; the lowest metric is in force, among
/// equals the one inserted first. Every change builds the family's look-up structure anew, in time
/// linear in its prefixes, and publishes it whole; many changes at once belong into
/// [`change`](Self::change), which publishes once.
pub struct RouteTable {
    /// By the network; alternatives sorted by metric, never empty.
    prefixes: BTreeMap<Prefix, Vec<Route>>,
    len: usize,
    limit: usize,
    dirty_v4: bool,
    dirty_v6: bool,
    /// Set while [`Self::change`] runs.
    held_back: bool,
    snapshot: Arc<Snapshot>,
    shared: Arc<Shared>,
}

impl Default for RouteTable {
    fn default() -> Self {
        Self::new()
    }
}

impl RouteTable {
    /// An empty table with the usual limit, [`ROUTES_LIMIT`].
    pub fn new() -> Self {
        Self::with_limit(ROUTES_LIMIT)
    }

    /// An empty table that holds at most `limit` routes, alternatives included.
    pub fn with_limit(limit: usize) -> Self {
        let snapshot = Arc::new(Snapshot {
            v4: Arc::new(Trie::build(&[])),
            v6: Arc::new(Trie::build(&[])),
            routes_v4: Arc::new([]),
            routes_v6: Arc::new([]),
            generation: 0,
        });
        let shared =
            Shared { generation: AtomicU32::new(0), current: Mutex::new(Arc::clone(&snapshot)) };
        Self {
            prefixes: BTreeMap::new(),
            len: 0,
            limit: limit.min(VALUES_LIMIT as usize - 1),
            dirty_v4: false,
            dirty_v6: false,
            held_back: false,
            snapshot,
            shared: Arc::new(shared),
        }
    }

    /// A reader that sees the table as it is now.
    pub fn reader(&self) -> Routes {
        Routes { snapshot: Arc::clone(&self.snapshot), shared: Arc::clone(&self.shared) }
    }

    /// Adds a route, or replaces the metric and MTU of the one for the same prefix by the same link
    /// and gateway, which is then given back. Host bits of the prefix do not count.
    pub fn insert(&mut self, prefix: Prefix, route: Route) -> Result<Option<Route>, RouteError> {
        check(&prefix, &route)?;
        let network = prefix.network();
        let full = self.len >= self.limit;
        let alternatives = self.prefixes.entry(network).or_default();
        let same = |r: &Route| r.link == route.link && r.gateway == route.gateway;
        let old = alternatives.iter().position(same).map(|at| alternatives.remove(at));
        if old.is_none() && full {
            if alternatives.is_empty() {
                self.prefixes.remove(&network);
            }
            return Err(RouteError::Full { limit: self.limit });
        }
        let at = alternatives.partition_point(|r| r.metric <= route.metric);
        alternatives.insert(at, route);
        self.len += usize::from(old.is_none());
        self.touched(network);
        Ok(old)
    }

    /// Removes the route for a prefix by this link and gateway and gives it back.
    pub fn remove(
        &mut self,
        prefix: Prefix,
        link: LinkId,
        gateway: Option<IpAddr>,
    ) -> Option<Route> {
        let network = prefix.network();
        let alternatives = self.prefixes.get_mut(&network)?;
        let at = alternatives.iter().position(|r| r.link == link && r.gateway == gateway)?;
        let route = alternatives.remove(at);
        if alternatives.is_empty() {
            self.prefixes.remove(&network);
        }
        self.len -= 1;
        self.touched(network);
        Some(route)
    }

    /// Removes all routes by a link, as when it goes away; how many those were.
    pub fn remove_link(&mut self, link: LinkId) -> usize {
        let before = self.len;
        let Self { prefixes, len, dirty_v4, dirty_v6, .. } = self;
        prefixes.retain(|prefix, alternatives| {
            let had = alternatives.len();
            alternatives.retain(|r| r.link != link);
            if had != alternatives.len() {
                *len -= had - alternatives.len();
                *(if prefix.addr.is_ipv4() { &mut *dirty_v4 } else { &mut *dirty_v6 }) = true;
            }
            !alternatives.is_empty()
        });
        self.publish();
        before - self.len
    }

    /// Makes many changes and publishes them once, together.
    pub fn change<T>(&mut self, changes: impl FnOnce(&mut Self) -> T) -> T {
        let outer = core::mem::replace(&mut self.held_back, true);
        let result = changes(self);
        self.held_back = outer;
        self.publish();
        result
    }

    /// The route of the longest prefix that covers `addr`, as readers see it: inside
    /// [`change`](Self::change), as before it.
    #[inline]
    pub fn lookup(&self, addr: IpAddr) -> Option<Route> {
        self.snapshot.lookup(addr)
    }

    /// Changes with every publication, and only then.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.snapshot.generation
    }

    /// All routes with their prefixes, by prefix and then metric: the first of a prefix is in force.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, Route)> + '_ {
        self.prefixes.iter().flat_map(|(p, routes)| routes.iter().map(|r| (*p, *r)))
    }

    /// Routes held, alternatives included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn touched(&mut self, network: Prefix) {
        match network.addr {
            IpAddr::V4(_) => self.dirty_v4 = true,
            IpAddr::V6(_) => self.dirty_v6 = true,
        }
        self.publish();
    }

    /// Builds what changed aside, then lets readers see it.
    fn publish(&mut self) {
        if self.held_back || !(self.dirty_v4 || self.dirty_v6) {
            return;
        }
        let old = &self.snapshot;
        let (mut v4, mut routes_v4) = (Arc::clone(&old.v4), Arc::clone(&old.routes_v4));
        let (mut v6, mut routes_v6) = (Arc::clone(&old.v6), Arc::clone(&old.routes_v6));
        // Prefixes sort IPv4 first, then by address and length: the order a trie is built from.
        if self.dirty_v4 {
            (v4, routes_v4) = build(&self.prefixes, |addr| match addr {
                IpAddr::V4(a) => Some(a.to_bits()),
                IpAddr::V6(_) => None,
            });
        }
        if self.dirty_v6 {
            (v6, routes_v6) = build(&self.prefixes, |addr| match addr {
                IpAddr::V6(a) => Some(a.to_bits()),
                IpAddr::V4(_) => None,
            });
        }
        (self.dirty_v4, self.dirty_v6) = (false, false);
        let generation = old.generation.wrapping_add(1);
        self.snapshot = Arc::new(Snapshot { v4, v6, routes_v4, routes_v6, generation });
        let mut current = self.shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::clone(&self.snapshot);
        self.shared.generation.store(generation, Ordering::Release);
    }
}

impl fmt::Debug for RouteTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

fn check(prefix: &Prefix, route: &Route) -> Result<(), RouteError> {
    if !prefix.is_valid() {
        return Err(RouteError::PrefixLength(*prefix));
    }
    match (route.gateway, prefix.addr) {
        (None, _) => Ok(()),
        (Some(g @ IpAddr::V4(_)), IpAddr::V6(_)) => Err(RouteError::Gateway(g)),
        (Some(g), _) if g.is_multicast() || g.is_unspecified() => Err(RouteError::Gateway(g)),
        (Some(IpAddr::V4(g)), _) if g.is_broadcast() => Err(RouteError::Gateway(g.into())),
        (Some(_), _) => Ok(()),
    }
}

/// The trie of one family, and the distinct routes its values stand for.
fn build<K: crate::trie::Key>(
    prefixes: &BTreeMap<Prefix, Vec<Route>>,
    key: impl Fn(IpAddr) -> Option<K>,
) -> (Arc<Trie<K>>, Arc<[Route]>) {
    let mut routes = Vec::new();
    let mut values = HashMap::new();
    let mut entries = Vec::new();
    for (prefix, alternatives) in prefixes {
        let (Some(key), Some(route)) = (key(prefix.addr), alternatives.first()) else { continue };
        let value = *values.entry(*route).or_insert_with(|| {
            routes.push(*route);
            routes.len() as u32
        });
        entries.push(Entry { key, len: prefix.len, value });
    }
    (Arc::new(Trie::build(&entries)), routes.into())
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
