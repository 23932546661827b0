//! The host's routes, and what an engine is to have of them.

use std::collections::{BTreeMap, HashMap};

use millstream::route::{LinkId, Prefix, Reject, Route};

use crate::config::Unmapped;
use crate::host::{Hop, HostRoute};

/// Which of the host's interfaces are which of the engine's links.
pub(crate) type Links = HashMap<u32, LinkId>;

/// Where a route goes among those of the same prefix and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Behind them, as they come in a dump, or are appended.
    Last,
    First,
    /// In the place of the one that there is.
    Replace,
}

/// What a change came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// There is no room for it.
    Full,
    /// It does not fit what is known: all is to be read anew.
    Unclear,
}

/// What the engine has of a prefix that has changed.
struct Changed {
    has: Vec<Route>,
    /// It may have others than it was given.
    is_unclear: bool,
}

struct Held {
    route: HostRoute,
    /// When it was last heard of.
    generation: u32,
}

impl Held {
    /// What it counts as against the limit.
    fn size(&self) -> usize {
        self.route.hops.len().max(1)
    }
}

/// Every route of the host's table.
pub(crate) struct HostRoutes {
    /// Sorted by metric; of equal ones in the kernel's order.
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

    /// Routes that are held, each hop for itself.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn links(&self) -> &Links {
        &self.links
    }

    /// From now on the interface is this link; all that is known is looked at again.
    pub fn set_link(&mut self, interface: u32, link: Option<LinkId>) {
        let prefixes: Vec<Prefix> = self.by_prefix.keys().copied().collect();
        prefixes.into_iter().for_each(|prefix| self.touch(prefix));
        match link {
            Some(link) => self.links.insert(interface, link),
            None => self.links.remove(&interface),
        };
    }

    /// The kernel has none any more.
    pub fn clear(&mut self) {
        let prefixes: Vec<Prefix> = self.by_prefix.keys().copied().collect();
        prefixes.into_iter().for_each(|prefix| self.touch(prefix));
        self.by_prefix.clear();
        self.len = 0;
    }

    /// The engine may have these of a prefix, and may have lost what it was given.
    pub fn found(&mut self, prefix: Prefix, more: &[Route]) {
        self.touch(prefix);
        if let Some(changed) = self.changed.get_mut(&prefix) {
            changed.is_unclear = true;
            changed.has.extend(more);
        }
    }

    /// The kernel has this route.
    pub fn add(&mut self, route: HostRoute, how: How, generation: u32) -> Outcome {
        let prefix = route.prefix;
        let held = self.by_prefix.get(&prefix).map_or(&[][..], |held| &held[..]);
        let same = held.iter().position(|held| held.route == route);
        if let Some(at) = same {
            if let Some(held) = self.by_prefix.get_mut(&prefix) {
                held[at].generation = generation;
            }
            return Outcome::Done;
        }
        let grows = route.hops.len().max(1);
        if self.len + grows > self.limit && how != How::Replace {
            return Outcome::Full;
        }
        self.touch(prefix);
        let is_v4 = prefix.addr.is_ipv4();
        let held = self.by_prefix.entry(prefix).or_default();
        let before = size(held);
        let metric = route.metric;
        let equal = |held: &Held| held.route.metric == metric;
        let mut outcome = Outcome::Done;
        match (how, is_v4) {
            (How::Replace, true) => {
                if let Some(at) = held.iter().position(equal) {
                    held.remove(at);
                }
            }
            (How::Replace, false) => {
                // Which of several the kernel takes depends on what they are.
                if held.iter().filter(|held| equal(held)).count() > 1 {
                    outcome = Outcome::Unclear;
                }
                held.retain(|held| !equal(held));
            }
            // Of IPv6 a message has all hops that share a metric through gateways.
            (_, false) => held.iter_mut().filter(|held| equal(held)).for_each(|held| {
                held.route.hops.retain(|hop| !leads_there(&route, hop));
            }),
            (_, true) => {}
        }
        held.retain(|held| !held.is_empty());
        let at = match how {
            How::Last => held.partition_point(|held| held.route.metric <= metric),
            How::First | How::Replace => held.partition_point(|held| held.route.metric < metric),
        };
        held.insert(at, Held { route, generation });
        self.len = self.len + size(held) - before;
        outcome
    }

    /// The kernel does not have it any more.
    pub fn remove(&mut self, route: &HostRoute) -> Outcome {
        let Some(held) = self.by_prefix.get(&route.prefix) else { return Outcome::Done };
        let equal = |held: &&Held| held.route.metric == route.metric;
        let exact = held.iter().position(|held| {
            equal(&held) && held.route.reject == route.reject && held.route.hops == route.hops
        });
        let is_v6 = route.prefix.addr.is_ipv6();
        let equals = held.iter().filter(equal).count();
        // A hop less of a route of IPv6.
        let is_part = is_v6 && exact.is_none() && !route.hops.is_empty();
        if exact.is_none() && !is_part && equals != 1 {
            return if equals == 0 { Outcome::Done } else { Outcome::Unclear };
        }
        self.touch(route.prefix);
        let held = self.by_prefix.entry(route.prefix).or_default();
        let before = size(held);
        match exact {
            Some(at) => drop(held.remove(at)),
            None if is_part => {
                for held in held.iter_mut().filter(|held| held.route.metric == route.metric) {
                    held.route.hops.retain(|hop| !leads_there(route, hop));
                }
                held.retain(|held| !held.is_empty());
            }
            // Its hops have died since.
            None => held.retain(|held| held.route.metric != route.metric),
        }
        self.len = self.len + size(held) - before;
        if held.is_empty() {
            self.by_prefix.remove(&route.prefix);
        }
        Outcome::Done
    }

    /// All routes of a family were read: those that were not heard of in this generation are gone.
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

    /// Prefixes of which the engine is to have other routes than it has since this was last asked: what it has, and what
    /// it is to have.
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

    /// What the engine is to have of a prefix: the best first.
    fn wanted(&self, prefix: Prefix) -> Vec<Route> {
        let mut wanted: Vec<Route> = Vec::new();
        let held = self.by_prefix.get(&prefix).map_or(&[][..], |held| &held[..]);
        for equals in held.chunk_by(|one, other| one.route.metric == other.route.metric) {
            // Of IPv4 the first of equals alone is used; of IPv6 they share flows.
            let used = if prefix.addr.is_ipv4() { &equals[..1] } else { equals };
            let before = wanted.len();
            for route in used.iter().flat_map(|held| self.by_links(&held.route)) {
                let same = |had: &Route| (had.link, had.gateway) == (route.link, route.gateway);
                if !wanted.iter().any(same) {
                    wanted.push(route);
                }
            }
            let nowhere = used.iter().filter(|_| wanted.len() == before);
            let nowhere = nowhere.filter_map(|held| self.leads_nowhere(&held.route)).next();
            if let Some(nowhere) =
                nowhere.filter(|_| !wanted.iter().any(|had| had.reject.is_some()))
            {
                wanted.push(nowhere);
            }
        }
        wanted
    }

    /// Its hops by interfaces that are mapped.
    fn by_links(&self, route: &HostRoute) -> impl Iterator<Item = Route> {
        let HostRoute { metric, mtu, ref hops, .. } = *route;
        hops.iter().filter_map(move |hop| {
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

    /// What it is where none of its interfaces is mapped.
    fn leads_nowhere(&self, route: &HostRoute) -> Option<Route> {
        let reject = match route.reject {
            None if route.hops.is_empty() || self.unmapped == Unmapped::LeftOut => return None,
            None => Reject::Unreachable,
            Some(reject) => reject,
        };
        Some(Route { metric: route.metric, ..Route::rejecting(reject) })
    }
}

impl Held {
    /// It had hops, and they have become another's.
    fn is_empty(&self) -> bool {
        self.route.hops.is_empty() && self.route.reject.is_none()
    }
}

/// Whether a route has a hop that leads the same way.
fn leads_there(route: &HostRoute, hop: &Hop) -> bool {
    route.hops.iter().any(|other| other.is_same_way(hop))
}

fn size(held: &[Held]) -> usize {
    held.iter().map(Held::size).sum()
}
