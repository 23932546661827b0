//! Gives the engine the addresses, routes and neighbours that have changed.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use millstream::route::{LinkId, Prefix, Route, RouteTable, State};
use millstream::wire::ethernet::MacAddr;
use millstream::{AddressUse, Engine, Error};

use crate::known::Known;
use crate::routes::{HostRoutes, Links};
use crate::stats::MirrorStats;

/// An interface, and an address on it.
pub(crate) type Station = (u32, IpAddr);

/// An address that an interface has, with its prefix: the same may be in several.
pub(crate) type Own = (u32, Prefix);

/// Addresses that the engine got from here, rather than from the application.
pub(crate) type Given = HashMap<IpAddr, (LinkId, Prefix)>;

/// Gives and takes addresses, and says which prefixes' routes the engine has added or removed with
/// them.
pub(crate) fn addresses(
    engine: &mut Engine,
    known: &mut Known<Own, AddressUse>,
    neighbors: &mut Known<Station, (MacAddr, bool)>,
    links: &Links,
    given: &mut Given,
    stats: &mut MirrorStats,
) -> Vec<(Prefix, Vec<Route>)> {
    let mut routes = Vec::new();
    let (mut new, mut freed) = (Vec::new(), HashSet::new());
    let changed: Vec<_> = known.take_changed().collect();
    for ((interface, own), told, now) in changed {
        match (told, now) {
            (None, Some(_)) => new.push((interface, own)),
            (Some(_), Some(_)) => set_use(engine, known, given, links, (interface, own)),
            (Some(_), None) => {
                if let Some(&link) = links.get(&interface)
                    && take_back(engine, given, link, own)
                {
                    routes.push((own.network(), Vec::new()));
                    freed.insert(own.addr);
                }
            }
            _ => {}
        }
    }
    // Another interface, or another prefix of the same, may have it, too.
    new.extend(known.iter().map(|(own, _)| own).filter(|(_, own)| freed.contains(&own.addr)));
    new.sort_unstable();
    if !freed.is_empty() {
        // The engine took no neighbour at an address of its own.
        neighbors.tell_again(|(_, ip)| freed.contains(ip));
    }
    for (interface, own) in new {
        let Some(&link) = links.get(&interface) else { continue };
        match engine.add_address(link, own) {
            Ok(()) => {
                given.insert(own.addr, (link, own));
                set_use(engine, known, given, links, (interface, own));
                routes.push((own.network(), vec![Route::on_link(link)]));
            }
            // It has it already, as its own link-local one, or as another interface's.
            Err(Error::AddrInUse) => {}
            Err(_) => stats.addresses_refused += 1,
        }
    }
    routes
}

/// Has the engine use an address that it got from here as a source as the kernel does.
fn set_use(
    engine: &mut Engine,
    known: &Known<Own, AddressUse>,
    given: &Given,
    links: &Links,
    (interface, own): Own,
) {
    if let Some(&link) = links.get(&interface)
        && given.get(&own.addr) == Some(&(link, own))
        && let Some(usage) = known.get((interface, own))
    {
        // The link may have failed meanwhile, and its addresses with it.
        let _ = engine.links().set_address_use(link, own.addr, usage);
    }
}

/// Takes an address back, if the engine got it from here. Returns whether it did.
pub(crate) fn take_back(engine: &mut Engine, given: &mut Given, link: LinkId, own: Prefix) -> bool {
    let is_given = given.get(&own.addr) == Some(&(link, own));
    if is_given {
        given.remove(&own.addr);
        // The link may have failed meanwhile, and its addresses with it.
        let _ = engine.links().remove_address(link, own.addr);
    }
    is_given
}

/// Gives and takes routes, all at once.
pub(crate) fn routes(table: &mut RouteTable, routes: &mut HostRoutes, stats: &mut MirrorStats) {
    table.change(|table| {
        table.set_multipath(true);
        for (prefix, had, wanted) in routes.take_changed() {
            // Readers see nothing of this before the end. So those that stay get their order anew,
            // too.
            for route in &had {
                table.remove(prefix, route.link, route.gateway);
            }
            for route in wanted {
                stats.routes_refused += u64::from(table.insert(prefix, route).is_err());
            }
        }
    });
}

/// Gives and takes neighbours.
pub(crate) fn neighbors(
    engine: &mut Engine,
    known: &mut Known<Station, (MacAddr, bool)>,
    links: &Links,
    stats: &mut MirrorStats,
) {
    let mut by_hand: Option<HashSet<_>> = None;
    for ((interface, ip), told, now) in known.take_changed() {
        let Some(&link) = links.get(&interface) else { continue };
        if told == now && now.is_some() {
            continue;
        }
        let was_by_hand = told.is_some_and(|(_, by_hand)| by_hand);
        // An entry that the host has not told may have been found by the engine itself; the
        // application's own stays.
        let is_applications = told.is_none() && now.is_none() && {
            let by_hand = by_hand.get_or_insert_with(|| {
                let by_hand =
                    engine.inspect().neighbors().filter(|known| known.state == State::Static);
                by_hand.map(|known| (known.link, known.ip)).collect()
            });
            by_hand.contains(&(link, ip))
        };
        if was_by_hand || now.is_none() && !is_applications {
            // The engine may have forgotten it by itself.
            let _ = engine.links().remove_neighbor(link, ip);
        }
        let taken = match now {
            None => Ok(()),
            Some((mac, true)) => engine.links().add_neighbor(link, ip, mac),
            Some((mac, false)) => engine.links().suggest_neighbor(link, ip, mac),
        };
        stats.neighbors_refused += u64::from(taken.is_err());
    }
}
