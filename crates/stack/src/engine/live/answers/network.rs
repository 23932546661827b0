//! `links`, `neigh`, `route` and `groups`: where packets go and come from.

use std::net::{IpAddr, Ipv4Addr};

use millstream_live::Fields;
use millstream_route::{LinkId, Prefix, Reject, Route};

use super::{Done, Page, Pages, SLOT_STEPS, Table, Walk, Written, put_link, us};
use crate::engine::Engine;
use crate::engine::ip::reach::group_filter::GroupFilter;
use crate::engine::live::id::Id;
use crate::socket::SocketId;

/// The links, those that have failed too, until they are removed.
pub(super) struct Links(Walk);

impl Default for Links {
    fn default() -> Self {
        Self(Walk::over(&[Table::Links]))
    }
}

impl Pages for Links {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let engine = &*engine;
        Ok(self.0.look(engine, page, |_, number, page| {
            link(engine, LinkId(number as u16), page);
        }))
    }
}

fn link(engine: &Engine, id: LinkId, page: &mut Page) -> Option<()> {
    let slot = engine.ip.reach.links.get(id)?;
    let (capabilities, stats) = (&slot.capabilities, slot.link.stats());
    let mut line = page.line("link");
    put_link(&mut line, engine, id);
    match slot.error() {
        Some(error) => line.put("state", "failed").put("why", error),
        None if slot.link.is_down() => line.put("state", "down"),
        None => line.put("state", "up"),
    };
    line.put("mtu_bytes", capabilities.mtu);
    for (key, packets) in [("rx_ring", capabilities.rx_ring), ("tx_ring", capabilities.tx_ring)] {
        // 0 where the link does not know.
        if packets != 0 {
            line.put(key, packets);
        }
    }
    line.put("queued_packets", slot.queue.len());
    for (name, value) in stats.counters() {
        line.put(name, value);
    }
    for (cause, count) in stats.drops_by_name() {
        line.put(&format!("drop_{cause}"), count);
    }
    for (name, value) in slot.link.details() {
        line.put(name, value);
    }
    line.end();
    for (_, one) in engine.ip.reach.addresses.prefixes.iter().filter(|(of, _)| *of == id) {
        let mut line = page.line("prefix");
        put_link(&mut line, engine, id);
        line.put("prefix", one.prefix).put("may_send_from", u8::from(one.may_send_from));
        line.put("answers_echo", u8::from(one.answers_echo));
        line.put("answers_neighbors", u8::from(one.answers_neighbors));
        line.end();
    }
    Some(())
}

/// The neighbours, and what their table has done.
pub(super) struct Neighbors(Walk);

impl Default for Neighbors {
    fn default() -> Self {
        Self(Walk::over(&[Table::Neighbors]))
    }
}

impl Pages for Neighbors {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let engine = &*engine;
        let done = self.0.look(engine, page, |_, slot, page| {
            neighbor(engine, slot as usize, page);
        });
        if done == Done::Last {
            let (table, stats) = (&engine.ip.reach.neighbors, engine.ip.reach.neighbors.stats());
            let mut line = page.line("neighbors");
            line.put("entries", table.len()).put("pending_packets", stats.pending_packets);
            line.put("pending_bytes", stats.pending_bytes).put("unreachable", stats.unreachable);
            line.put("evicted", stats.evicted).put("pending_dropped", stats.pending_dropped);
            line.put("refused", stats.refused).put("moved", stats.moved);
            line.put("restored", stats.restored).put("claims_refused", stats.claims_refused);
            line.end();
        }
        Ok(done)
    }
}

fn neighbor(engine: &Engine, slot: usize, page: &mut Page) -> Option<()> {
    let (now, one) = (engine.cx.now, engine.ip.reach.neighbors.in_slot(slot)?);
    let mut line = page.line("neighbor");
    line.put("address", one.ip);
    put_link(&mut line, engine, one.link);
    if let Some(mac) = one.mac {
        line.put("lladdr", mac);
    }
    line.put("state", one.state.name()).put("router", u8::from(one.router));
    line.put("used_us", us(one.used, now)).put("confirmed_us", us(one.heard, now));
    line.put("probes", one.solicits);
    if let Some(until) = one.until {
        line.put("due_us", us(now, until));
    }
    line.put("pending_packets", one.pending_packets).put("pending_bytes", one.pending_bytes);
    line.end();
    Some(())
}

/// The routes, or those to a part of the addresses.
pub(super) struct Routes {
    /// The route that comes next: its prefix, and its place among those of the prefix.
    next: (Prefix, usize),
    /// Only routes inside it are shown.
    within: Option<Prefix>,
}

impl Default for Routes {
    fn default() -> Self {
        Self { next: (Prefix::DEFAULT_V4, 0), within: None }
    }
}

impl Routes {
    pub fn within(prefix: Prefix) -> Box<dyn Pages> {
        let prefix = prefix.network();
        Box::new(Self { next: (prefix, 0), within: Some(prefix) })
    }
}

impl Pages for Routes {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let routes = engine.ip.reach.routing.iter_from(self.next.0, self.next.1);
        let routes = routes
            .ok_or("the route table is another's, who has the list: ask for one by `route get`")?;
        for (prefix, place, route) in routes {
            // By prefix: the others lie behind.
            if self.within.is_some_and(|all| !all.contains(prefix.addr)) {
                break;
            }
            if !page.is_left() {
                self.next = (prefix, place);
                return Ok(Done::More);
            }
            page.spend(SLOT_STEPS);
            let mut line = page.line("route");
            line.put("prefix", prefix);
            put_route(&mut line, engine, &route);
            line.put("metric", route.metric).put("place", place);
            line.end();
        }
        Ok(Done::Last)
    }
}

fn put_route(line: &mut Fields<'_>, engine: &Engine, route: &Route) {
    if let Some(reject) = route.reject {
        let kind = match reject {
            Reject::Blackhole => "blackhole",
            Reject::Unreachable => "unreachable",
            Reject::Prohibit => "prohibit",
        };
        line.put("type", kind);
        return;
    }
    if let Some(gateway) = route.gateway {
        line.put("gateway", gateway);
    }
    put_link(line, engine, route.link);
    if let Some(mtu) = route.mtu {
        line.put("mtu_bytes", mtu);
    }
    if route.weight != 1 {
        line.put("weight", route.weight);
    }
}

/// The route that packets to an address take.
pub(super) struct RouteTo(IpAddr);

impl RouteTo {
    pub fn boxed(address: IpAddr) -> Box<dyn Pages> {
        Box::new(Self(address))
    }
}

impl Pages for RouteTo {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let route = engine.ip.reach.routing.lookup(self.0).ok_or("no route")?;
        let mut line = page.line("route");
        line.put("destination", self.0);
        put_route(&mut line, engine, &route);
        if let Some(mac) = engine.ip.reach.neighbors.lookup(route.link, route.next_hop(self.0)) {
            line.put("lladdr", mac);
        }
        line.put("metric", route.metric);
        line.end();
        Ok(Done::Last)
    }
}

/// The multicast groups, by link, and who listens to them.
pub(super) struct Groups {
    /// The group that comes next, and the place among its sockets.
    next: (LinkId, IpAddr, usize),
}

impl Default for Groups {
    fn default() -> Self {
        Self { next: (LinkId(0), Ipv4Addr::UNSPECIFIED.into(), 0) }
    }
}

impl Pages for Groups {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let engine = &*engine;
        let (link, first, mut place) = self.next;
        for (link, group, is_own, sockets) in
            engine.ip.reach.addresses.groups.iter_from(link, first)
        {
            // The one that is begun may have gone meanwhile.
            place = if group == first && link == self.next.0 { place } else { 0 };
            // Nobody but an address of ours has one line, too.
            while place < sockets.len().max(1) {
                if !page.is_left() {
                    self.next = (link, group, place);
                    return Ok(Done::More);
                }
                page.spend(SLOT_STEPS);
                show_group(engine, (link, group, is_own), sockets.get(place), page);
                place += 1;
            }
        }
        Ok(Done::Last)
    }
}

fn show_group(
    engine: &Engine,
    (link, group, is_own): (LinkId, IpAddr, bool),
    socket: Option<&(SocketId, GroupFilter)>,
    page: &mut Page,
) {
    let mut line = page.line("group");
    line.put("group", group);
    put_link(&mut line, engine, link);
    line.put("own", u8::from(is_own));
    if let Some((id, filter)) = socket {
        let (mode, sources) = match filter {
            GroupFilter::Include(sources) => ("include", sources),
            GroupFilter::Exclude(sources) => ("exclude", sources),
        };
        let sources: Vec<String> = sources.iter().map(IpAddr::to_string).collect();
        line.put("socket", Id(*id)).put("mode", mode).put("sources", sources.join(","));
    }
    line.end();
}
