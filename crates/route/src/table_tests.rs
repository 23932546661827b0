use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::route::Reject;

fn p(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn a(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link(n: u16) -> Route {
    Route::on_link(LinkId(n))
}

#[test]
fn default_routes_of_both_families() {
    let mut table = RouteTable::new();
    assert_eq!(table.lookup(a("8.8.8.8")), None);
    table.insert(Prefix::DEFAULT_V4, Route::via(LinkId(0), a("10.0.0.1"))).unwrap();
    table.insert(p("10.0.0.0/24"), link(0)).unwrap();
    let far = table.lookup(a("8.8.8.8")).unwrap();
    assert_eq!(far.next_hop(a("8.8.8.8")), a("10.0.0.1"));
    let near = table.lookup(a("10.0.0.9")).unwrap();
    assert_eq!(near.next_hop(a("10.0.0.9")), a("10.0.0.9"));
    assert_eq!(table.lookup(a("2001:db8::1")), None);
    table.insert(Prefix::DEFAULT_V6, Route::via(LinkId(1), a("fe80::1"))).unwrap();
    assert_eq!(table.lookup(a("2001:db8::1")).unwrap().link, LinkId(1));
}

#[test]
fn the_lowest_metric_is_in_force_and_the_first_among_equals() {
    let mut table = RouteTable::new();
    let with = |n, metric| Route { metric, ..link(n) };
    table.insert(p("10.0.0.0/8"), with(1, 20)).unwrap();
    table.insert(p("10.0.0.0/8"), with(2, 10)).unwrap();
    table.insert(p("10.1.1.1/8"), with(3, 10)).unwrap();
    let found = |table: &RouteTable| table.lookup(a("10.1.1.1")).map(|r| r.link.0);
    assert_eq!(found(&table), Some(2));
    // The same link and gateway again is a change of metric, not another route.
    assert_eq!(table.insert(p("10.0.0.0/8"), with(2, 30)), Ok(Some(with(2, 10))));
    assert_eq!((found(&table), table.len()), (Some(3), 3));
    assert_eq!(table.remove(p("10.0.0.0/8"), LinkId(3), None), Some(with(3, 10)));
    assert_eq!(found(&table), Some(1));
    assert_eq!(table.remove_link(LinkId(1)), 1);
    assert_eq!(found(&table), Some(2));
    assert_eq!(table.remove(p("10.0.0.0/8"), LinkId(2), Some(a("10.0.0.1"))), None);
    assert_eq!(table.remove_link(LinkId(2)), 1);
    assert_eq!((found(&table), table.is_empty()), (None, true));
}

#[test]
fn a_full_table_refuses_and_stays_as_it_was() {
    let mut table = RouteTable::with_limit(1);
    table.insert(p("10.0.0.0/8"), link(1)).unwrap();
    let generation = table.generation();
    assert_eq!(table.insert(p("11.0.0.0/8"), link(1)), Err(RouteError::Full { limit: 1 }));
    assert_eq!(table.insert(p("10.0.0.0/8"), link(2)), Err(RouteError::Full { limit: 1 }));
    assert_eq!((table.generation(), table.iter().count()), (generation, 1));
    // Replacing takes no room.
    table.insert(p("10.0.0.0/8"), Route { metric: 7, ..link(1) }).unwrap();
    assert_eq!(table.lookup(a("10.0.0.1")).unwrap().metric, 7);
}

#[test]
fn refuses_what_cannot_be_a_route() {
    let mut table = RouteTable::new();
    let long = Prefix { addr: a("10.0.0.0"), len: 33 };
    assert_eq!(table.insert(long, link(0)), Err(RouteError::PrefixLength(long)));
    for gateway in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "ff02::1", "::"] {
        let route = Route::via(LinkId(0), a(gateway));
        let error = Err(RouteError::Gateway(a(gateway)));
        assert_eq!(table.insert(Prefix::DEFAULT_V4, route), error, "{gateway}");
    }
    let v4_for_v6 = Route::via(LinkId(0), a("10.0.0.1"));
    assert!(table.insert(Prefix::DEFAULT_V6, v4_for_v6).is_err());
    // RFC 8950.
    assert!(table.insert(Prefix::DEFAULT_V4, Route::via(LinkId(0), a("fe80::1"))).is_ok());
}

#[test]
fn a_reader_sees_few_changes_at_once_and_many_when_it_refreshes() {
    let mut table = RouteTable::new();
    let mut reader = table.reader();
    table.change(|table| {
        for n in 0..1000 {
            table.insert(p(&format!("11.{}.{}.0/24", n / 256, n % 256)), link(2)).unwrap();
        }
        table.insert(p("10.0.0.0/8"), link(1)).unwrap();
    });
    // A table built anew.
    assert_eq!(reader.lookup(a("10.0.0.1")), None);
    assert!(reader.refresh());
    assert!(!reader.refresh());
    assert_eq!(reader.lookup(a("10.0.0.1")), Some(&link(1)));
    assert_eq!(reader.generation(), table.generation());
    // A change of one route is made in the table that the reader has.
    table.insert(p("10.1.0.0/16"), link(3)).unwrap();
    assert_eq!(reader.lookup(a("10.1.0.1")), Some(&link(3)));
    assert!(reader.refresh());
}

#[test]
fn many_changes_are_published_once() {
    let mut table = RouteTable::new();
    let mut reader = table.reader();
    table.change(|table| {
        for n in 0..100 {
            table.insert(p(&format!("10.{n}.0.0/16")), link(n)).unwrap();
        }
        assert_eq!(table.lookup(a("10.7.0.1")), None);
    });
    assert_eq!(table.generation(), 1);
    reader.refresh();
    assert_eq!(reader.lookup(a("10.7.0.1")), Some(&link(7)));
}

#[test]
fn a_large_table_agrees_with_a_search_by_length() {
    // Enough to have the array in front; addresses from a fixed multiplicative sequence.
    let mut table = RouteTable::new();
    let mut model = BTreeMap::new();
    let mut x = 1_u32;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        x
    };
    table.change(|table| {
        for n in 0..5000_u32 {
            let addr = IpAddr::V4((next() ^ next() >> 16).into());
            let prefix = Prefix { addr, len: 8 + (next() >> 24) as u8 % 25 }.network();
            table.insert(prefix, link(n as u16)).unwrap();
            model.entry(prefix).or_insert(link(n as u16));
        }
    });
    let probes: Vec<IpAddr> = (0..20_000).map(|_| IpAddr::V4(next().into())).collect();
    for addr in probes {
        let longest = (0..=32).rev().find_map(|len| model.get(&Prefix { addr, len }.network()));
        assert_eq!(table.lookup(addr), longest, "{addr}");
    }
}

#[test]
fn readers_on_other_threads_follow_the_writer() {
    let mut table = RouteTable::new();
    table.insert(p("10.0.0.0/8"), link(0)).unwrap();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let mut reader = table.reader();
            std::thread::spawn(move || {
                let mut last = 0;
                while last < 500 {
                    reader.refresh();
                    let now = *reader.lookup(a("10.0.0.1")).unwrap();
                    assert!(now.metric >= last && now.mtu.unwrap_or(0) == now.metric as u16);
                    last = now.metric;
                }
            })
        })
        .collect();
    for metric in 1..=500 {
        table.change(|table| {
            let mtu = Some(metric as u16);
            table.insert(p("10.0.0.0/8"), Route { metric, mtu, ..link(0) }).unwrap();
        });
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Prefix, Route),
    Remove(Prefix, LinkId),
    RemoveLink(LinkId),
}

fn any_addr() -> impl Strategy<Value = IpAddr> {
    // Few distinct high bits, so that prefixes nest and meet again.
    prop_oneof![
        (0_u32..4, 0_u32..4).prop_map(|(h, l)| IpAddr::V4((h << 24 | l).into())),
        (0_u128..4, 0_u128..4).prop_map(|(h, l)| IpAddr::V6((h << 112 | l).into())),
    ]
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    (any_addr(), any::<u8>())
        .prop_map(|(addr, len)| Prefix { addr, len: len % (Prefix::host(addr).len + 1) })
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (any_prefix(), 0_u16..3, 0_u32..3)
            .prop_map(|(p, n, metric)| Op::Insert(p, Route { metric, ..link(n) })),
        3 => (any_prefix(), 0_u16..3).prop_map(|(p, n)| Op::Remove(p, LinkId(n))),
        1 => (0_u16..3).prop_map(|n| Op::RemoveLink(LinkId(n))),
    ]
}

proptest! {
    #[test]
    fn any_sequence_of_changes_agrees_with_a_plain_list(
        ops in prop::collection::vec(any_op(), 0..40),
        probes in prop::collection::vec(any_addr(), 10),
    ) {
        let mut table = RouteTable::new();
        let mut reader = table.reader();
        let mut model: Vec<(Prefix, Route)> = Vec::new();
        for op in ops {
            match op {
                Op::Insert(prefix, route) => {
                    table.insert(prefix, route).unwrap();
                    model.retain(|(p, r)| (*p, r.link) != (prefix.network(), route.link));
                    model.push((prefix.network(), route));
                }
                Op::Remove(prefix, link) => {
                    table.remove(prefix, link, None);
                    model.retain(|(p, r)| (*p, r.link) != (prefix.network(), link));
                }
                Op::RemoveLink(link) => {
                    table.remove_link(link);
                    model.retain(|(_, r)| r.link != link);
                }
            }
            prop_assert_eq!(table.len(), model.len());
            reader.refresh();
            for addr in &probes {
                // The longest prefix, of those the lowest metric, of those the first.
                let mut best: Option<&(Prefix, Route)> = None;
                for candidate in model.iter().filter(|(p, _)| p.contains(*addr)) {
                    let rank = |(p, r): &(Prefix, Route)| (p.len, u32::MAX - r.metric);
                    if best.is_none_or(|b| rank(candidate) > rank(b)) {
                        best = Some(candidate);
                    }
                }
                prop_assert_eq!(table.lookup(*addr), best.map(|(_, r)| r));
                prop_assert_eq!(reader.lookup(*addr), best.map(|(_, r)| r));
            }
        }
    }
}

/// Which links the flows of some hashes to `addr` leave by.
fn shared(routes: &Routes, addr: &str) -> BTreeMap<u16, usize> {
    let mut found = BTreeMap::new();
    for flow in 0..6000_u32 {
        let hash = flow.wrapping_mul(0x9e37_79b1);
        let route = routes.lookup_flow(a(addr), || hash).expect("a route");
        assert_eq!(Some(route), routes.lookup_flow(a(addr), || hash), "a flow keeps its way");
        *found.entry(route.link.0).or_default() += 1;
    }
    together_as_one_by_one(routes, a(addr));
    found
}

/// Many flows to `addr` that are looked up together have the routes that they have one by one.
fn together_as_one_by_one(routes: &Routes, addr: IpAddr) {
    const FLOWS: usize = 100;
    let hash = |flow: usize| (flow as u32).wrapping_mul(0x9e37_79b1);
    let mut found = [None; FLOWS];
    match addr {
        IpAddr::V4(addr) => routes.lookup_v4(&[addr; FLOWS], hash, |at, route| found[at] = route),
        IpAddr::V6(addr) => routes.lookup_v6(&[addr; FLOWS], hash, |at, route| found[at] = route),
    }
    for (flow, found) in found.into_iter().enumerate() {
        assert_eq!(found, routes.lookup_flow(addr, || hash(flow)), "flow {flow}");
    }
}

#[test]
fn flows_are_shared_among_gateways_of_the_lowest_metric_where_that_is_asked_for() {
    for (prefix, to, gateway, far) in [
        ("10.0.0.0/8", "10.1.2.3", "192.0.2.1", "192.0.2.9"),
        ("0.0.0.0/0", "10.1.2.3", "192.0.2.1", "fe80::9"),
        ("fd00::/16", "fd00::7", "fe80::1", "fe80::9"),
    ] {
        let mut table = RouteTable::new();
        let mut routes = table.reader();
        let via = |n| Route::via(LinkId(n), a(gateway));
        let mut sharing = |table: &RouteTable| {
            routes.refresh();
            assert_eq!(table.lookup(a(to)), routes.lookup(a(to)));
            shared(&routes, to)
        };
        for n in 1..=3 {
            table.insert(p(prefix), via(n)).unwrap();
        }
        assert_eq!(sharing(&table), BTreeMap::from([(1, 6000)]), "not at first");
        table.set_multipath(true);
        let found = sharing(&table);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(found.values().all(|count| (1900..=2100).contains(count)), "{found:?}");
        // One of a higher metric waits; one to what is on a link itself has no part.
        table.insert(p(prefix), Route { metric: 9, ..Route::via(LinkId(4), a(far)) }).unwrap();
        table.insert(p(prefix), link(5)).unwrap();
        assert_eq!(sharing(&table).len(), 3);
        // Another metric of one is another route for all.
        table.insert(p(prefix), Route { metric: 9, ..via(2) }).unwrap();
        assert_eq!(sharing(&table).into_keys().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(table.remove_link(LinkId(1)), 1);
        assert_eq!(sharing(&table), BTreeMap::from([(3, 6000)]));
        assert_eq!(table.remove_link(LinkId(3)), 1);
        table.remove_link(LinkId(5));
        assert_eq!(sharing(&table).into_keys().collect::<Vec<_>>(), [2, 4]);
        for n in 10..20 {
            table.insert(p(prefix), via(n)).unwrap();
        }
        let found = sharing(&table);
        assert_eq!(found.len(), crate::limits::MULTIPATH_LIMIT, "{found:?}");
        table.set_multipath(false);
        assert_eq!(sharing(&table), BTreeMap::from([(10, 6000)]));
    }
}

/// Links that flows leave by, when the routes by them have these weights.
fn weighted(weights: &[u16]) -> Vec<usize> {
    let mut table = RouteTable::new();
    table.set_multipath(true);
    for (n, &weight) in (0..).zip(weights) {
        let route = Route { weight, ..Route::via(LinkId(n), a("192.0.2.1")) };
        table.insert(p("10.0.0.0/8"), route).unwrap();
        assert_eq!(table.iter().last().map(|(_, route)| route.weight), Some(weight));
    }
    let found = shared(&table.reader(), "10.1.2.3");
    (0..weights.len() as u16).map(|n| found.get(&n).copied().unwrap_or(0)).collect()
}

#[test]
fn flows_are_shared_by_weight() {
    for (weights, parts) in [
        (&[1, 2, 3][..], &[1000, 2000, 3000][..]),
        (&[3, 1], &[4500, 1500]),
        (&[7, 7, 7, 7, 7, 7], &[1000; 6]),
        (&[256, 128, 64, 32, 16, 16], &[3000, 1500, 750, 375, 188, 188]),
    ] {
        let found = weighted(weights);
        let near = |(found, part): (&usize, &usize)| found.abs_diff(*part) <= 60;
        assert!(found.iter().zip(parts).all(near), "{weights:?}: {found:?}");
    }
    // However small a part is, it is one.
    for weights in
        [[1, 256, 256, 256, 256, 256], [256, 1, 1, 256, 256, 256], [256, 256, 256, 256, 1, 1]]
    {
        let found = weighted(&weights);
        assert!(found.iter().all(|&found| found > 0), "{weights:?}: {found:?}");
    }
}

#[test]
fn a_weight_changes_and_what_is_none_is_refused() {
    let mut table = RouteTable::new();
    table.set_multipath(true);
    let via = |n, weight| Route { weight, ..Route::via(LinkId(n), a("192.0.2.1")) };
    let mut routes = table.reader();
    for n in 0..2 {
        table.insert(p("0.0.0.0/0"), via(n, 1)).unwrap();
    }
    let mut part = |table: &RouteTable| {
        assert_eq!(table.len(), 2);
        routes.refresh();
        shared(&routes, "10.1.2.3")[&1]
    };
    assert!(part(&table).abs_diff(3000) < 60);
    let old = table.insert(p("0.0.0.0/0"), via(1, 5)).unwrap();
    assert_eq!(old, Some(via(1, 1)));
    assert!(part(&table).abs_diff(5000) < 60);
    for weight in [0, 257, u16::MAX] {
        assert_eq!(table.insert(p("0.0.0.0/0"), via(1, weight)), Err(RouteError::Weight(weight)));
    }
    assert!(part(&table).abs_diff(5000) < 60);
}

proptest! {
    /// After any change a flow leaves by one of those routes that share it, and all of them have a
    /// part.
    #[test]
    fn what_shares_flows_is_what_a_list_of_routes_says(
        changes in prop::collection::vec((0..4_u8, 0..6_u16, 0..3_u32, any::<bool>(), 0..8_u8), 1..60)
    ) {
        let prefixes = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "0.0.0.0/0"].map(p);
        let mut table = RouteTable::new();
        let mut routes = table.reader();
        let mut multipath = false;
        for (prefix, n, metric, is_via, what) in changes {
            let gateway = is_via.then(|| a("192.0.2.1"));
            let route = Route { gateway, metric, ..link(n) };
            match what {
                0 => drop(table.remove(prefixes[usize::from(prefix)], LinkId(n), gateway)),
                1 => drop(table.remove_link(LinkId(n))),
                2 => {
                    multipath = !multipath;
                    table.set_multipath(multipath);
                }
                _ => drop(table.insert(prefixes[usize::from(prefix)], route)),
            }
            routes.refresh();
            for addr in ["10.1.2.3", "10.1.9.9", "10.9.9.9", "11.1.1.1"].map(a) {
                let covering = table.iter().filter(|(prefix, _)| prefix.contains(addr));
                let longest = covering.map(|(prefix, _)| prefix.len).max();
                let list: Vec<Route> = table.iter()
                    .filter(|(prefix, _)| prefix.contains(addr) && Some(prefix.len) == longest)
                    .map(|(_, route)| route)
                    .collect();
                let first = list.first().copied();
                let is_shared = multipath && first.is_some_and(|first| first.gateway.is_some());
                let expected: Vec<Option<Route>> = match first {
                    Some(first) if is_shared => list.iter()
                        .filter(|route| route.metric == first.metric && route.gateway.is_some())
                        .take(crate::limits::MULTIPATH_LIMIT)
                        .map(|route| Some(*route))
                        .collect(),
                    first => vec![first],
                };
                let count = expected.len() as u64;
                for (at, route) in expected.into_iter().enumerate() {
                    let hash = (((at as u64) << 32) / count + 1) as u32;
                    prop_assert_eq!(routes.lookup_flow(addr, || hash), route.as_ref());
                }
            }
        }
    }
}

#[test]
fn a_route_that_leads_nowhere_hides_shorter_prefixes_and_has_no_link() {
    let mut table = RouteTable::new();
    let nowhere = Route::rejecting(Reject::Unreachable);
    table.insert(p("10.0.0.0/8"), link(1)).unwrap();
    table.insert(p("10.1.0.0/16"), nowhere).unwrap();
    assert_eq!(table.lookup(a("10.1.2.3")), Some(&nowhere));
    assert_eq!(table.lookup(a("10.2.2.3")), Some(&link(1)));
    // It is no link's, and a better one takes its place.
    table.remove_link(LinkId(0));
    table.insert(p("10.1.0.0/16"), Route { metric: 9, ..nowhere }).unwrap();
    table.insert(p("10.1.0.0/16"), Route { metric: 5, ..link(2) }).unwrap();
    assert_eq!(table.lookup(a("10.1.2.3")), Some(&Route { metric: 5, ..link(2) }));
    assert!(table.remove(p("10.1.0.0/16"), LinkId::NONE, None).is_some());
    let half = [
        Route { reject: None, ..nowhere },
        Route { reject: Some(Reject::Prohibit), ..link(1) },
        Route { gateway: Some(a("10.0.0.1")), ..nowhere },
    ];
    for route in half {
        let refused = table.insert(p("10.3.0.0/16"), route);
        assert_eq!(refused, Err(RouteError::Link(route.link)));
    }
}

#[test]
fn a_walk_goes_on_at_any_route() {
    let mut table = RouteTable::new();
    for number in 0..20u8 {
        table.insert(p(&format!("10.{number}.0.0/16")), link(1)).unwrap();
        table.insert(p(&format!("fd00:{number}::/32")), link(1)).unwrap();
    }
    for metric in 1..9 {
        table.insert(p("10.7.0.0/16"), Route { metric, ..link(metric as u16 + 1) }).unwrap();
    }
    table.insert(Prefix::DEFAULT_V4, link(0)).unwrap();
    let all: Vec<_> = table.iter_from(Prefix::DEFAULT_V4, 0).collect();
    let routes: Vec<_> = all.iter().map(|&(prefix, _, route)| (prefix, route)).collect();
    assert_eq!(routes, table.iter().collect::<Vec<_>>());
    for (at, &(prefix, place, _)) in all.iter().enumerate() {
        assert!(table.iter_from(prefix, place).eq(all[at..].iter().copied()), "{prefix} {place}");
    }
    // One that has gone: the next that there is.
    table.remove(p("10.7.0.0/16"), LinkId(9), None).unwrap();
    let next = table.iter_from(p("10.7.0.0/16"), 8).next().unwrap();
    assert_eq!((next.0, next.1), (p("10.8.0.0/16"), 0));
}
