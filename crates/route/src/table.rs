//! The route table: one writer, any number of readers who write nothing and wait for nobody.
//!
//! ```text
//!   RouteTable (writer, control path)         Routes (reader, one per engine)
//!   ├ Family<u32>  every prefix, its routes   ├ its own Arc of both tables ────┐
//!   ├ Family<u128>                            └ refresh(): one load            │
//!   │   └ FibWriter ── changes in place ──► Fib ◄───────── look-ups ───────────┘
//!   └ Shared ── generation, replaced ◄─────── read by refresh()
//!            └ current: Mutex<Tables> ──────► cloned where a table was replaced
//! ```
//!
//! A change of a few prefixes is made in the table that readers have, line by line (module
//! `fib`). A change of many, or one that has no room there, makes a new table, which
//! readers take at their next refresh; until then they see the old one as it was.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::fib::{Fib, PREFIXES_LIMIT};
use crate::limits::{ROUTES_LIMIT, WEIGHT_LIMIT};
use crate::prefix::{LinkId, Prefix};
use crate::rib::{Family, Published};
use crate::route::Route;

/// Why a route was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// The table holds its limit of routes.
    Full {
        /// The limit that was reached.
        limit: usize,
    },
    /// The prefix is longer than an address of its family.
    PrefixLength(Prefix),
    /// The gateway is no unicast address, or an IPv4 one for an IPv6 prefix. (An IPv6 gateway for
    /// an IPv4 prefix is fine: RFC 8950.)
    Gateway(IpAddr),
    /// It leads nowhere and has a link or a gateway, or it leads somewhere and has no link.
    Link(LinkId),
    /// The weight is 0, or beyond [`WEIGHT_LIMIT`].
    Weight(u16),
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit } => write!(f, "the route table holds its limit of {limit} routes"),
            Self::PrefixLength(p) => write!(f, "{p} is longer than an address"),
            Self::Gateway(g) => write!(f, "{g} cannot be the gateway of this route"),
            Self::Link(LinkId::NONE) => f.write_str("a route that leads somewhere needs a link"),
            Self::Link(_) => f.write_str("a route that leads nowhere has no link and no gateway"),
            Self::Weight(weight) => write!(f, "a weight is from 1 to {WEIGHT_LIMIT}, not {weight}"),
        }
    }
}

impl std::error::Error for RouteError {}

/// The tables of both families, for readers.
#[derive(Clone)]
struct Tables {
    v4: Arc<Fib<u32>>,
    v6: Arc<Fib<u128>>,
}

impl Tables {
    #[inline]
    fn lookup_flow(&self, addr: IpAddr, hash: impl Fn() -> u32) -> Option<&Route> {
        match addr {
            IpAddr::V4(addr) => self.v4.lookup_flow(addr.to_bits(), hash),
            IpAddr::V6(addr) => self.v6.lookup_flow(addr.to_bits(), hash),
        }
    }
}

struct Shared {
    /// Moves with every publication, after it.
    generation: AtomicU32,
    /// Number of times that a table was replaced.
    replaced: AtomicU32,
    /// Routes held at the last publication, for statistics.
    len: AtomicUsize,
    current: Mutex<Tables>,
    #[cfg(feature = "clogs")]
    lock: std::sync::OnceLock<Arc<crate::clogs::SharedLock>>,
}

/// A reader.
///
/// Cheap to clone; one per thread. A look-up gives what was right at some moment between call and
/// return: a change of a few routes is seen at once, prefix by prefix; one of many after the next
/// [`refresh`](Self::refresh), whole.
#[derive(Clone)]
pub struct Routes {
    tables: Tables,
    generation: u32,
    replaced: u32,
    shared: Arc<Shared>,
}

impl Routes {
    /// Returns the route of the longest prefix that covers `addr`; of several that share its flows
    /// ([`RouteTable::set_multipath`]) the first. Writes nothing, allocates nothing and waits for
    /// nobody.
    #[inline]
    pub fn lookup(&self, addr: IpAddr) -> Option<&Route> {
        self.lookup_flow(addr, || 0)
    }

    /// Returns the same for a flow with this hash, evenly spread over 32 bits: of several routes
    /// that share flows the same one each time. It is asked for only where there are several.
    #[inline]
    pub fn lookup_flow(&self, addr: IpAddr, hash: impl Fn() -> u32) -> Option<&Route> {
        #[cfg(feature = "clogs")]
        if let Some(lock) = self.shared.lock.get() {
            return lock.around(|| self.tables.lookup_flow(addr, hash));
        }
        self.tables.lookup_flow(addr, hash)
    }

    /// Returns the route of the longest prefix that covers `addr`; of several that share its flows
    /// the one that leads by `link`, where there is one, else the first.
    pub fn lookup_by(&self, addr: IpAddr, link: LinkId) -> Option<&Route> {
        match addr {
            IpAddr::V4(addr) => self.tables.v4.lookup_by(addr.to_bits(), link),
            IpAddr::V6(addr) => self.tables.v6.lookup_by(addr.to_bits(), link),
        }
    }

    /// Looks up many addresses, whose routes go to `found` with their places, in no order. Faster
    /// than one after the other. `hash` gives the hash of the flow at a place, as in
    /// [`lookup_flow`](Self::lookup_flow).
    #[inline]
    pub fn lookup_v4<'a>(
        &'a self,
        addrs: &[Ipv4Addr],
        hash: impl Fn(usize) -> u32,
        found: impl FnMut(usize, Option<&'a Route>),
    ) {
        self.tables.v4.lookup_bulk(
            addrs,
            #[inline(always)]
            |addr| addr.to_bits(),
            hash,
            found,
        );
    }

    /// Does the same for IPv6.
    #[inline]
    pub fn lookup_v6<'a>(
        &'a self,
        addrs: &[Ipv6Addr],
        hash: impl Fn(usize) -> u32,
        found: impl FnMut(usize, Option<&'a Route>),
    ) {
        self.tables.v6.lookup_bulk(
            addrs,
            #[inline(always)]
            |addr| addr.to_bits(),
            hash,
            found,
        );
    }

    /// Returns the generation of the table at the last [`refresh`](Self::refresh); goes into a
    /// header template. Routes that are looked up are of this generation or newer.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Takes over what the writer has published since; `true` when that was something. One load
    /// when it was nothing. Call it once a turn.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        let generation = self.shared.generation.load(Ordering::Acquire);
        let changed = generation != self.generation;
        if changed {
            self.generation = generation;
            let replaced = self.shared.replaced.load(Ordering::Acquire);
            if replaced != self.replaced {
                self.replaced = replaced;
                // The lock guards pointers, which are whole even if a holder panicked.
                let current = self.shared.current.lock().unwrap_or_else(PoisonError::into_inner);
                self.tables = current.clone();
            }
        }
        changed
    }

    /// Returns the number of routes that the writer held when it last published, alternatives
    /// included.
    pub fn len(&self) -> usize {
        self.shared.len.load(Ordering::Relaxed)
    }

    /// Returns true if there was none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of the tables of IPv4 and of IPv6, which all readers share, in bytes.
    pub fn memory_bytes(&self) -> (usize, usize) {
        (self.tables.v4.memory_bytes(), self.tables.v6.memory_bytes())
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
/// equals the one inserted first, or several that share flows
/// ([`set_multipath`](Self::set_multipath)). A change costs what the prefix covers. Many changes at
/// once belong into [`change`](Self::change): where they are a sixteenth of the table, it is built
/// anew, once.
///
/// ```
/// use millstream_route::{LinkId, Prefix, Route, RouteTable};
///
/// let mut table = RouteTable::new();
/// table.insert(Prefix::DEFAULT_V4, Route::via(LinkId(0), [10, 0, 0, 1].into()))?;
/// table.insert("10.8.0.0/16".parse().expect("a prefix"), Route::on_link(LinkId(1)))?;
/// let route = table.lookup([10, 8, 1, 1].into()).expect("a route");
/// assert_eq!(route.link, LinkId(1));
/// # Ok::<(), millstream_route::RouteError>(())
/// ```
pub struct RouteTable {
    v4: Family<u32>,
    v6: Family<u128>,
    limit: usize,
    /// Set while [`Self::change`] runs.
    held_back: bool,
    generation: u32,
    shared: Arc<Shared>,
}

impl Default for RouteTable {
    fn default() -> Self {
        Self::new()
    }
}

impl RouteTable {
    /// Returns an empty table with the usual limit, [`ROUTES_LIMIT`].
    pub fn new() -> Self {
        Self::with_limit(ROUTES_LIMIT)
    }

    /// Returns an empty table that holds at most `limit` routes, alternatives included; four
    /// million at most, which is what its arrays can number.
    pub fn with_limit(limit: usize) -> Self {
        let (v4, v6) = (Family::new(), Family::new());
        let current = Tables { v4: Arc::clone(v4.fib()), v6: Arc::clone(v6.fib()) };
        let shared = Shared {
            generation: AtomicU32::new(0),
            replaced: AtomicU32::new(0),
            len: AtomicUsize::new(0),
            current: Mutex::new(current),
            #[cfg(feature = "clogs")]
            lock: Default::default(),
        };
        let limit = limit.min(PREFIXES_LIMIT);
        Self { v4, v6, limit, held_back: false, generation: 0, shared: Arc::new(shared) }
    }

    /// Makes every reader's look-ups under `lock` from now on; the first one given stays.
    #[cfg(feature = "clogs")]
    pub fn look_up_under(&self, lock: &Arc<crate::clogs::SharedLock>) {
        let _ = self.shared.lock.set(Arc::clone(lock));
    }

    /// Returns a reader that sees the table as it is now.
    pub fn reader(&self) -> Routes {
        Routes {
            tables: self.tables(),
            generation: self.generation,
            replaced: self.shared.replaced.load(Ordering::Relaxed),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Adds a route, or replaces metric, MTU, weight and rejection of the one for the same prefix
    /// by the same link and gateway, which is then given back. Host bits of the prefix do not
    /// count.
    pub fn insert(&mut self, prefix: Prefix, route: Route) -> Result<Option<Route>, RouteError> {
        check(&prefix, &route)?;
        let room = self.len() < self.limit;
        let old = match prefix.addr {
            IpAddr::V4(addr) => self.v4.insert(addr.to_bits(), prefix.len, route, room),
            IpAddr::V6(addr) => self.v6.insert(addr.to_bits(), prefix.len, route, room),
        };
        let old = old.ok_or(RouteError::Full { limit: self.limit })?;
        self.publish();
        Ok(old)
    }

    /// Removes the route for a prefix by this link and gateway and gives it back.
    pub fn remove(
        &mut self,
        prefix: Prefix,
        link: LinkId,
        gateway: Option<IpAddr>,
    ) -> Option<Route> {
        if !prefix.is_valid() {
            return None;
        }
        let is = |route: &Route| (route.link, route.gateway) == (link, gateway);
        let route = match prefix.addr {
            IpAddr::V4(addr) => self.v4.remove(addr.to_bits(), prefix.len, is),
            IpAddr::V6(addr) => self.v6.remove(addr.to_bits(), prefix.len, is),
        }?;
        self.publish();
        Some(route)
    }

    /// Removes all routes by a link, as when it goes away; how many those were.
    pub fn remove_link(&mut self, link: LinkId) -> usize {
        let before = self.len();
        self.v4.remove_link(link);
        self.v6.remove_link(link);
        self.publish();
        before - self.len()
    }

    /// Sets if flows are shared among the routes of a prefix that have its lowest metric, if they
    /// go through gateways: among the first [`MULTIPATH_LIMIT`](crate::limits::MULTIPATH_LIMIT) of
    /// them, by hash ([`Routes::lookup_flow`]; RFC 2991, RFC 2992) and by their weights, to a
    /// thousandth of all flows. They are not at first: then the one inserted first is in force.
    pub fn set_multipath(&mut self, on: bool) {
        self.v4.set_multipath(on);
        self.v6.set_multipath(on);
        self.publish();
    }

    /// Makes many changes and publishes them once, together.
    pub fn change<T>(&mut self, changes: impl FnOnce(&mut Self) -> T) -> T {
        let outer = core::mem::replace(&mut self.held_back, true);
        let result = changes(self);
        self.held_back = outer;
        self.publish();
        result
    }

    /// Returns the route of the longest prefix that covers `addr`, as readers see it: inside
    /// [`change`](Self::change), as before it.
    #[inline]
    pub fn lookup(&self, addr: IpAddr) -> Option<&Route> {
        match addr {
            IpAddr::V4(addr) => self.v4.fib().lookup(addr.to_bits()),
            IpAddr::V6(addr) => self.v6.fib().lookup(addr.to_bits()),
        }
    }

    /// Returns a number that changes with every publication, and only then.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns all routes with their prefixes, by prefix and then metric: the first of a prefix is
    /// in force.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, Route)> + '_ {
        self.v4.iter().chain(self.v6.iter())
    }

    /// Returns the same from one on, for a caller that walks the table a part at a time: the route
    /// of this `prefix` in this `place` among its routes, or the next one there is. Each comes with
    /// its place. Finding the first takes logarithmic time.
    pub fn iter_from(
        &self,
        prefix: Prefix,
        place: usize,
    ) -> impl Iterator<Item = (Prefix, usize, Route)> + '_ {
        let len = prefix.len.min(prefix.max_len());
        let (v4, v6) = match prefix.addr {
            IpAddr::V4(addr) => (Some((addr.to_bits(), len)), ((0, 0), 0)),
            IpAddr::V6(addr) => (None, ((addr.to_bits(), len), place)),
        };
        let v4 = v4.into_iter().flat_map(move |first| self.v4.iter_from(first, place));
        v4.chain(self.v6.iter_from(v6.0, v6.1))
    }

    /// Returns the number of routes held, alternatives included.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns true if there is no route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory that the writer needs beside the tables of the readers, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.v4.memory_bytes() + self.v6.memory_bytes()
    }

    fn tables(&self) -> Tables {
        Tables { v4: Arc::clone(self.v4.fib()), v6: Arc::clone(self.v6.fib()) }
    }

    /// Lets readers see what changed.
    fn publish(&mut self) {
        if self.held_back {
            return;
        }
        let published = [self.v4.publish(), self.v6.publish()];
        if published.contains(&Published::Anew) {
            let tables = self.tables();
            *self.shared.current.lock().unwrap_or_else(PoisonError::into_inner) = tables;
            self.shared.replaced.fetch_add(1, Ordering::Release);
        }
        if published != [Published::Nothing; 2] {
            self.shared.len.store(self.len(), Ordering::Relaxed);
            self.generation = self.generation.wrapping_add(1);
            self.shared.generation.store(self.generation, Ordering::Release);
        }
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
    let leads_nowhere = route.link == LinkId::NONE && route.gateway.is_none();
    if route.reject.is_some() != leads_nowhere {
        return Err(RouteError::Link(route.link));
    }
    if !(1..=WEIGHT_LIMIT).contains(&route.weight) {
        return Err(RouteError::Weight(route.weight));
    }
    match (route.gateway, prefix.addr) {
        (None, _) => Ok(()),
        (Some(g @ IpAddr::V4(_)), IpAddr::V6(_)) => Err(RouteError::Gateway(g)),
        (Some(g), _) if g.is_multicast() || g.is_unspecified() => Err(RouteError::Gateway(g)),
        (Some(IpAddr::V4(g)), _) if g.is_broadcast() => Err(RouteError::Gateway(g.into())),
        (Some(_), _) => Ok(()),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
