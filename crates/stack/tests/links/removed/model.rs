//! Any order of links that come, fail and go, beside a list of what should be there.

use std::collections::BTreeMap;

use millstream::link::Medium;
use millstream::route::{LinkId, Prefix, Route};
use proptest::prelude::*;

use super::wire::Wire;
use super::{NOT_THERE, engine, prefix};

#[derive(Clone, Debug)]
enum Step {
    Add(bool),
    /// The one at this place of those that are there.
    Fail(usize),
    Remove(usize),
    /// By number, there or not.
    RemoveNumber(u16),
    Address(usize, u8),
    Route(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<bool>().prop_map(Step::Add),
        2 => (0..8_usize).prop_map(Step::Fail),
        2 => (0..8_usize).prop_map(Step::Remove),
        1 => (0..10_u16).prop_map(Step::RemoveNumber),
        2 => ((0..8_usize), 1..20_u8).prop_map(|(at, host)| Step::Address(at, host)),
        1 => ((0..8_usize), 0..4_u32).prop_map(|(at, metric)| Step::Route(at, metric)),
    ]
}

/// A link that should be there.
struct Known {
    wire: Wire,
    has_failed: bool,
}

fn lowest_free(known: &BTreeMap<u16, Known>) -> u16 {
    (0..).find(|number| !known.contains_key(number)).expect("few")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn links_come_and_go_in_any_order(steps in prop::collection::vec(step(), 1..60)) {
        let mut engine = engine();
        let mut known = BTreeMap::<u16, Known>::new();
        for step in steps {
            let number = |at: usize| known.keys().nth(at).copied();
            match step {
                Step::Add(is_ethernet) => {
                    let medium = if is_ethernet { Medium::Ethernet } else { Medium::Ip };
                    let wire = Wire::new(medium);
                    let id = engine.add_link(Box::new(wire.clone())).expect("a link");
                    prop_assert_eq!(id.0, lowest_free(&known));
                    known.insert(id.0, Known { wire, has_failed: false });
                }
                Step::Fail(at) => {
                    if let Some(known) = number(at).and_then(|number| known.get_mut(&number)) {
                        known.wire.break_it();
                        known.has_failed = true;
                    }
                }
                Step::Remove(at) => {
                    let Some(number) = number(at) else { continue };
                    let removed = engine.links().remove(LinkId(number)).expect("there");
                    let gone = known.remove(&number).expect("there");
                    prop_assert_eq!(removed.error.is_some(), gone.has_failed);
                }
                Step::RemoveNumber(number) => {
                    let removed = engine.links().remove(LinkId(number)).map(drop);
                    let expected = known.remove(&number).map(drop).ok_or(NOT_THERE);
                    prop_assert_eq!(removed, expected);
                }
                Step::Address(at, host) => {
                    let Some(number) = number(at) else { continue };
                    let added =
                        engine.add_address(LinkId(number), prefix(&format!("10.0.0.{host}/24")));
                    prop_assert!(added.is_ok() || !known[&number].has_failed || added.is_err());
                }
                Step::Route(at, metric) => {
                    let Some(number) = number(at) else { continue };
                    let route = Route { metric, ..Route::on_link(LinkId(number)) };
                    let added = engine.routes().add(Prefix::DEFAULT_V4, route);
                    prop_assert_eq!(added.is_ok(), !known[&number].has_failed);
                }
            }
            // Those that are broken are found to be.
            engine.turn(engine.now());
            let there: Vec<_> = engine.inspect().links().map(|link| (link.id.0, link.error.is_some())).collect();
            let expected: Vec<_> =
                known.iter().map(|(&number, known)| (number, known.has_failed)).collect();
            prop_assert_eq!(there, expected);
            let works = |link: LinkId| known.get(&link.0).is_some_and(|known| !known.has_failed);
            prop_assert!(engine.routes().table().expect("its own").iter().all(|(_, route)| works(route.link)));
            for (link, own) in engine.inspect().addresses() {
                prop_assert!(link.is_none_or(|link| known.contains_key(&link.0)), "{own}");
                let is_bound = own.addr.to_string().starts_with("fe80");
                prop_assert!(!is_bound || link.is_some_and(works), "{own}");
            }
            for number in 0..10 {
                let is_there = engine.inspect().link_stats(LinkId(number)).is_some();
                prop_assert_eq!(is_there, known.contains_key(&number));
            }
        }
    }
}
