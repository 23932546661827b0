//! The host's routes, and what an engine is to have of them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use millstream::route::{LinkId, Prefix, Reject, Route, WEIGHT_LIMIT};

use crate::config::Unmapped;
use crate::host::{Hop, HostRoute};

/// Which of the host's interfaces are which of the engine's links.
pub(crate) type Links = HashMap<u32, LinkId>;

/// Where a route goes among those of the same prefix and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Behind those that have been read in this generation, as it comes in a dump.
    Read,
    Last,
    /// Before them. IPv6 puts such a route last all the same.
    First,
    /// In the place of the one that there is.
    Replace,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// There is no room for it.
    Full,
    /// It does not fit what is known: all is to be read anew.
    Unclear,
    /// The first of several IPv6 routes that share flows has gone. The kernel's dump leaves out
    /// routes between those, which may count from now on.
    Uncovered,
}

/// The routes that the engine has of a prefix that has changed.
struct Changed {
    has: Vec<Route>,
    /// It may have others than it was given.
    is_unclear: bool,
}

struct Held {
    route: HostRoute,
    /// When it was last heard of.
    generation: u32,
    /// It was read then, rather than told as news.
    is_read: bool,
}

impl Held {
    /// Returns its share of the limit: one for each next hop, at least 1.
    fn size(&self) -> usize {
        self.route.hops.len().max(1)
    }

    fn is_read_in(&self, generation: u32) -> bool {
        self.is_read && self.generation == generation
    }
}

/// Every route of the host's table.
pub(crate) struct HostRoutes {
    /// Sorted by metric, equal ones in the kernel's order. Each hop of a multipath route of IPv6 is
    /// a route, as in the kernel.
    by_prefix: BTreeMap<Prefix, Vec<Held>>,
    len: usize,
    limit: usize,
    /// Prefixes that changed.
    changed: HashMap<Prefix, Changed>,
    links: Links,
    unmapped: Unmapped,
}

impl HostRoutes {
    pub fn new(limit: usize, links: Links, unmapped: Unmapped) -> Self {
        let (by_prefix, changed) = (BTreeMap::new(), HashMap::new());
        Self { by_prefix, len: 0, limit, changed, links, unmapped }
    }

    /// Returns the number of routes held, each hop for itself.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Maps an interface to this link, or to none. All that is known is looked at again.
    pub fn set_link(&mut self, interface: u32, link: Option<LinkId>) {
        let prefixes: Vec<Prefix> = self.by_prefix.keys().copied().collect();
        prefixes.into_iter().for_each(|prefix| self.touch(prefix));
        match link {
            Some(link) => self.links.insert(interface, link),
            None => self.links.remove(&interface),
        };
    }

    /// Removes all routes: the kernel has none any more.
    pub fn clear(&mut self) {
        let prefixes: Vec<Prefix> = self.by_prefix.keys().copied().collect();
        prefixes.into_iter().for_each(|prefix| self.touch(prefix));
        self.by_prefix.clear();
        self.len = 0;
    }

    /// Notes that the engine may have these routes of a prefix, and may have lost those that it was
    /// given.
    pub fn found(&mut self, prefix: Prefix, more: &[Route]) {
        self.touch(prefix);
        if let Some(changed) = self.changed.get_mut(&prefix) {
            changed.is_unclear = true;
            changed.has.extend(more);
        }
    }

    /// Returns whether this is all that its prefix has.
    pub fn has_alone(&self, route: &HostRoute) -> bool {
        let held = self.by_prefix.get(&route.prefix).map_or(&[][..], |held| &held[..]);
        matches!(held, [only] if only.route == *route)
    }

    /// Adds a route that the kernel has.
    pub fn add(&mut self, route: HostRoute, how: How, generation: u32) -> Outcome {
        let prefix = route.prefix;
        let grows = route.hops.len().max(1);
        let held = self.by_prefix.get_mut(&prefix).map_or(&mut [][..], |held| &mut held[..]);
        // Mostly there is one, which is read again.
        if let [only] = held
            && only.route == route
            && !(how == How::Read && only.is_read_in(generation))
        {
            (only.generation, only.is_read) = (generation, how == How::Read);
            return Outcome::Done;
        }
        if how != How::Replace && self.len + grows > self.limit {
            let is_new = |route: &HostRoute| find(held, route).is_none();
            let more = match prefix.addr.is_ipv4() {
                true => usize::from(is_new(&route)) * grows,
                false => split(&route).filter(is_new).map(|route| route.hops.len().max(1)).sum(),
            };
            if self.len + more > self.limit && more > 0 {
                return Outcome::Full;
            }
        }
        self.touch(prefix);
        let held = self.by_prefix.entry(prefix).or_default();
        let before = size(held);
        let outcome = match (how, prefix.addr.is_ipv4()) {
            (How::Read, true) => read(held, route, generation),
            (How::Read, false) => {
                split(&route).fold(Outcome::Done, |_, route| read(held, route, generation))
            }
            (_, true) => add_v4(held, route, how, generation),
            (_, false) => add_v6(held, route, how, generation),
        };
        self.len = self.len + size(held) - before;
        outcome
    }

    /// Removes a route that the kernel does not have any more.
    pub fn remove(&mut self, route: &HostRoute) -> Outcome {
        let prefix = route.prefix;
        if !self.by_prefix.contains_key(&prefix) {
            return Outcome::Done;
        }
        self.touch(prefix);
        let held = self.by_prefix.entry(prefix).or_default();
        let before = size(held);
        let outcome = match prefix.addr.is_ipv4() {
            true => remove_v4(held, route),
            false => remove_v6(held, route),
        };
        self.len = self.len + size(held) - before;
        if held.is_empty() {
            self.by_prefix.remove(&prefix);
        }
        outcome
    }

    /// Removes the routes of a family that were not heard of in this generation, when all were
    /// read.
    pub fn sweep(&mut self, v4: bool, generation: u32) {
        let stale = |held: &Held| held.generation != generation;
        let prefixes = self
            .by_prefix
            .iter()
            .filter(|(prefix, held)| prefix.addr.is_ipv4() == v4 && held.iter().any(stale));
        for prefix in prefixes.map(|(&prefix, _)| prefix).collect::<Vec<_>>() {
            self.touch(prefix);
            let Some(held) = self.by_prefix.get_mut(&prefix) else { continue };
            let before = size(held);
            held.retain(|held| !stale(held));
            self.len = self.len + size(held) - before;
            if held.is_empty() {
                self.by_prefix.remove(&prefix);
            }
        }
    }

    /// Returns the prefixes of which the engine should have other routes than it has, as changed
    /// since the last call: the routes that it has, and those that it should have.
    pub fn take_changed(&mut self) -> impl Iterator<Item = (Prefix, Vec<Route>, Vec<Route>)> + '_ {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().filter_map(|(prefix, Changed { has, is_unclear })| {
            let wanted = self.wanted(prefix);
            (is_unclear || has != wanted).then_some((prefix, has, wanted))
        })
    }

    /// Remembers what the engine has of a prefix that is about to change.
    fn touch(&mut self, prefix: Prefix) {
        if !self.changed.contains_key(&prefix) {
            let has = self.wanted(prefix);
            self.changed.insert(prefix, Changed { has, is_unclear: false });
        }
    }

    /// Returns the routes that the engine should have of a prefix, the best first.
    fn wanted(&self, prefix: Prefix) -> Vec<Route> {
        let mut wanted: Vec<Route> = Vec::new();
        let held = self.by_prefix.get(&prefix).map_or(&[][..], |held| &held[..]);
        for equals in held.chunk_by(|one, other| one.route.metric == other.route.metric) {
            let Some((used, mtu)) = in_force(equals) else { continue };
            let before = wanted.len();
            for route in used.iter().flat_map(|route| self.by_links(route, mtu)) {
                let same = |had: &Route| (had.link, had.gateway) == (route.link, route.gateway);
                match wanted.iter().position(same) {
                    None => wanted.push(route),
                    // The same way twice has as much of the flows as both.
                    Some(at) if at >= before => {
                        wanted[at].weight = (wanted[at].weight + route.weight).min(WEIGHT_LIMIT);
                    }
                    Some(_) => {}
                }
            }
            if wanted.len() == before
                && let Some(nowhere) = self.leads_nowhere(used[0])
                && !wanted.iter().any(|had| had.reject.is_some())
            {
                wanted.push(nowhere);
            }
        }
        wanted
    }

    /// Returns a route for each usable hop by an interface that is mapped.
    fn by_links(&self, route: &HostRoute, mtu: Option<u16>) -> impl Iterator<Item = Route> {
        let HostRoute { metric, ref hops, reject, .. } = *route;
        let alive = hops.iter().filter(move |hop| reject.is_none() && !hop.is_dead);
        alive.filter_map(move |hop| {
            let link = *self.links.get(&hop.interface)?;
            Some(Route {
                mtu,
                metric,
                weight: hop.weight,
                gateway: hop.gateway,
                ..Route::on_link(link)
            })
        })
    }

    /// Returns the rejecting route for one of whose interfaces none is mapped; `None` where such
    /// routes are left out.
    fn leads_nowhere(&self, route: &HostRoute) -> Option<Route> {
        let reject = match route.reject {
            None if self.unmapped == Unmapped::LeftOut => return None,
            None => Reject::Unreachable,
            Some(reject) => reject,
        };
        Some(Route { metric: route.metric, ..Route::rejecting(reject) })
    }
}

/// Returns those of one metric that the kernel uses, the decisive one first, and their MTU: the
/// first that it can use, for IPv6 one of the highest preference, and those that share its flows.
/// The kernel tells preference and MTU of the first sharer alone, so they count for all sharers.
fn in_force(equals: &[Held]) -> Option<(Vec<&HostRoute>, Option<u16>)> {
    let sharing = equals.iter().map(|held| &held.route).find(|route| route.shares);
    let told = |route: &HostRoute| match sharing.filter(|_| route.shares) {
        Some(first) => (first.preference, first.mtu),
        None => (route.preference, route.mtu),
    };
    let alive = || equals.iter().map(|held| &held.route).filter(|route| route.is_alive());
    let highest = alive().map(|route| told(route).0).max()?;
    let first = alive().find(|route| told(route).0 == highest)?;
    let used = alive().filter(|&route| std::ptr::eq(route, first) || first.shares && route.shares);
    let mut used: Vec<_> = used.collect();
    // It decides where all lead nowhere.
    used.sort_by_key(|&route| !std::ptr::eq(route, first));
    Some((used, told(first).1))
}

/// Returns the places of the routes of a metric.
fn class(held: &[Held], metric: u32) -> Range<usize> {
    held.partition_point(|held| held.route.metric < metric)
        ..held.partition_point(|held| held.route.metric <= metric)
}

/// Returns whether the kernel takes both for one route, be its hops dead or alive.
fn is_same(one: &HostRoute, other: &HostRoute) -> bool {
    if (one.metric, one.object) != (other.metric, other.object) {
        return false;
    }
    let same_hops = || {
        let same = |(one, other): (&Hop, &Hop)| one.is_same_way(other);
        one.hops.len() == other.hops.len() && one.hops.iter().zip(&other.hops).all(same)
    };
    if one.prefix.addr.is_ipv6() {
        return one.object.is_some() || one.reject == other.reject && same_hops();
    }
    let same_weights = || one.hops.iter().zip(&other.hops).all(|(a, b)| a.weight == b.weight);
    (one.reject, one.mtu, one.apart) == (other.reject, other.mtu, other.apart)
        && same_hops()
        && same_weights()
}

fn find(held: &[Held], route: &HostRoute) -> Option<usize> {
    held.iter().position(|held| is_same(&held.route, route))
}

/// Takes a route in as a dump has it, behind the equals that came before it. The same may come
/// twice: the kernel replaces a route by one that it has already.
fn read(held: &mut Vec<Held>, route: HostRoute, generation: u32) -> Outcome {
    let is_it = |held: &Held| !held.is_read_in(generation) && is_same(&held.route, &route);
    held.iter().position(is_it).map(|at| held.remove(at));
    let Range { start, end } = class(held, route.metric);
    let before = held[start..end].iter().filter(|held| held.generation == generation).count();
    held.insert(start + before, Held { route, generation, is_read: true });
    Outcome::Done
}

/// Adds a route as fib_table_insert of the kernel does.
fn add_v4(held: &mut Vec<Held>, route: HostRoute, how: How, generation: u32) -> Outcome {
    let metric = route.metric;
    let Range { start, end } = class(held, metric);
    let known = find(held, &route);
    let route = Held { route, generation, is_read: false };
    match (how, known) {
        (_, Some(at)) => held[at] = route,
        (How::Replace, None) if start < end => held[start] = route,
        (How::Last, None) => held.insert(end, route),
        (_, None) => held.insert(start, route),
    }
    Outcome::Done
}

fn remove_v4(held: &mut Vec<Held>, route: &HostRoute) -> Outcome {
    let equals = class(held, route.metric);
    match find(held, route) {
        Some(at) => drop(held.remove(at)),
        None if equals.is_empty() => {}
        // It has changed silently, with what its hops are.
        None if equals.len() == 1 => drop(held.remove(equals.start)),
        None => return Outcome::Unclear,
    }
    Outcome::Done
}

/// Adds a route as fib6_add_rt2node of the kernel does, which has each hop as a route, and tells of
/// all that share flows in one message.
fn add_v6(held: &mut Vec<Held>, route: HostRoute, how: How, generation: u32) -> Outcome {
    let (metric, shares) = (route.metric, route.shares);
    let parts = || split(&route).map(|route| Held { route, generation, is_read: false });
    let mut outcome = Outcome::Done;
    let equals = class(held, metric);
    let first_like = held[equals.clone()].iter().position(|held| held.route.shares == shares);
    let mut at = None;
    if how == How::Replace && !equals.is_empty() {
        let replaced = equals.start + first_like.unwrap_or(0);
        at = Some(replaced);
        if route.object.is_some()
            && let Some(known) = find(held, &route)
            && known != replaced
        {
            // It is this one, of which the object has changed, or that one became the same.
            held[known] = Held { route, generation, is_read: false };
            return Outcome::Unclear;
        }
        if held[replaced].route.shares {
            let before = held.len();
            held.retain(|held| held.route.metric != metric || !held.route.shares);
            if before > held.len() + 1 {
                outcome = Outcome::Uncovered;
            }
        } else {
            held.remove(replaced);
        }
    } else if shares {
        let is_told = |held: &Held| parts().any(|part| is_same(&part.route, &held.route));
        held.retain(|held| held.route.metric != metric || !held.route.shares || is_told(held));
    }
    for (place, part) in parts().enumerate() {
        match (at.take(), find(held, &part.route)) {
            (Some(at), _) => held.insert(at, part),
            // The rest of what the message says is the first one's.
            (None, Some(known)) if place > 0 => held[known].route.hops = part.route.hops,
            (None, Some(known)) => held[known] = part,
            (None, None) => held.insert(class(held, metric).end, part),
        }
    }
    outcome
}

fn remove_v6(held: &mut Vec<Held>, route: &HostRoute) -> Outcome {
    let mut outcome = Outcome::Done;
    for part in split(route) {
        let Some(at) = find(held, &part) else { continue };
        let equals = class(held, route.metric);
        let mut sharing = equals.filter(|&at| held[at].route.shares);
        if sharing.next() == Some(at) && sharing.next().is_some() {
            outcome = Outcome::Uncovered;
        }
        held.remove(at);
    }
    outcome
}

/// Returns the kernel's routes of IPv6 that one message tells of.
fn split(route: &HostRoute) -> impl Iterator<Item = HostRoute> + '_ {
    let several = route.object.is_none() && route.hops.len() > 1;
    let whole = (!several).then(|| route.clone());
    let hops = if several { &route.hops[..] } else { &[] };
    let one = |hop: &Hop| HostRoute { hops: vec![*hop], ..route.clone() };
    whole.into_iter().chain(hops.iter().map(one))
}

fn size(held: &[Held]) -> usize {
    held.iter().map(Held::size).sum()
}
