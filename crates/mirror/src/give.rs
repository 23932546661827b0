//! What has changed is given to the engine.

use std::collections::HashSet;
use std::net::IpAddr;

use millstream::route::{LinkId, Prefix, Route, RouteTable};
use millstream::wire::ethernet::MacAddr;
use millstream::{Engine, Error};

use crate::known::Known;
use crate::mirror::MirrorStats;
use crate::routes::{HostRoutes, Links};

/// An interface, and an address on it.
pub(crate) type Station = (u32, IpAddr);

/// Addresses that the engine got from here, rather than from the application.
pub(crate) type Given = HashSet<(LinkId, IpAddr)>;

/// Gives and takes addresses, and says which prefixes' routes the engine has added or removed with them.
pub(crate) fn addresses(
    engine: &mut Engine,
    known: &mut Known<Station, Prefix>,
    links: &Links,
    given: &mut Given,
    stats: &mut MirrorStats,
) -> Vec<(Prefix, Vec<Route>)> {
    let mut routes = Vec::new();
    for ((interface, ip), told, now) in known.take_changed() {
        let Some(&link) = links.get(&interface) else { continue };
        if told == now {
            continue;
        }
        if let Some(told) = told
            && given.remove(&(link, ip))
            && engine.remove_address(link, ip).is_ok()
        {
            routes.push((told.network(), Vec::new()));
        }
        let Some(now) = now else { continue };
        match engine.add_address(link, now) {
            Ok(()) => {
                given.insert((link, ip));
                routes.push((now.network(), vec![Route::on_link(link)]));
            }
            // It has it already, as its own link-local one.
            Err(Error::AddrInUse) => {}
            Err(_) => stats.addresses_refused += 1,
        }
    }
    routes
}

/// Gives and takes routes, all at once.
pub(crate) fn routes(table: &mut RouteTable, routes: &mut HostRoutes, stats: &mut MirrorStats) {
    table.change(|table| {
        table.set_multipath(true);
        for (prefix, had, wanted) in routes.take_changed() {
            // Readers see nothing of this before the end. So those that stay get their order anew, too.
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
    for ((interface, ip), told, now) in known.take_changed() {
        let Some(&link) = links.get(&interface) else { continue };
        if told == now {
            continue;
        }
        let was_by_hand = told.is_some_and(|(_, by_hand)| by_hand);
        if was_by_hand || told.is_some() && now.is_none() {
            // The engine may have forgotten it by itself.
            let _ = engine.remove_neighbor(link, ip);
        }
        let taken = match now {
            None => Ok(()),
            Some((mac, true)) => engine.add_neighbor(link, ip, mac),
            Some((mac, false)) => engine.suggest_neighbor(link, ip, mac),
        };
        stats.neighbors_refused += u64::from(taken.is_err());
    }
}
