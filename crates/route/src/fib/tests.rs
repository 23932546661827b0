use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::limits::WEIGHT_LIMIT;
use crate::prefix::LinkId;
use crate::route::Reject;

/// The prefixes of a test; a prefix's value is its route's number.
#[derive(Clone, Default)]
struct Model<K: Ord>(BTreeMap<(K, u8), u32>);

impl<K: Key> Prefixes<K> for Model<K> {
    fn within(&self, first: K, last: K) -> impl Iterator<Item = Entry<K>> {
        let range = self.0.range((first, 1)..=(last, u8::MAX));
        range.map(|(&(key, len), &value)| Entry { key, len, value })
    }

    fn covering(&self, key: K, len: u8) -> u32 {
        (1..len).rev().find_map(|len| self.0.get(&(key.network(len), len))).copied().unwrap_or(0)
    }
}

impl<K: Key> Model<K> {
    /// The value of the longest prefix, by trying every length.
    fn longest(&self, key: K) -> Option<u32> {
        (0..=K::BITS as u8).rev().find_map(|len| self.0.get(&(key.network(len), len))).copied()
    }

    fn build(&self, routes: u32) -> FibWriter<K> {
        let entries: Vec<_> = self.within(K::ZERO, K::ZERO.last(0)).collect();
        let mut writer = FibWriter::build(&entries, routes as usize);
        for number in 1..routes {
            writer.set_route(number, &route(number));
        }
        writer
    }
}

fn route(number: u32) -> Route {
    let gateway = match number % 3 {
        0 => None,
        1 => Some(IpAddr::from([10, 0, 0, number as u8])),
        _ => Some(IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, number as u16])),
    };
    let mtu = number.is_multiple_of(2).then_some(1280 + number as u16);
    let reject = match number {
        3 => Some(Reject::Blackhole),
        4 => Some(Reject::Unreachable),
        5 => Some(Reject::Prohibit),
        _ => None,
    };
    let weight = 1 + number as u16 % WEIGHT_LIMIT;
    Route { link: LinkId(number as u16), gateway, mtu, metric: number << 20, reject, weight }
}

const ROUTES: u32 = 6;

/// Changes a table in place, a new one where it is full, and compares every answer with the model.
fn follow<K: Key>(start: Model<K>, changes: &[(K, u8, Option<u32>)], probes: &[K]) {
    let (mut model, mut writer) = (start.clone(), start.build(ROUTES));
    let mut found = vec![None; probes.len()];
    for &(key, len, value) in changes {
        let key = key.network(len);
        match value {
            Some(value) => model.0.insert((key, len), value),
            None => model.0.remove(&(key, len)),
        };
        // A reader shares the table, so it can't grow.
        let _reader = writer.fib().clone();
        match len {
            0 => writer.set_default(value.unwrap_or(NOTHING)),
            _ if writer.update(key, len, &model).is_err() => {
                writer = model.build(ROUTES);
                writer.set_default(model.0.get(&(K::ZERO, 0)).copied().unwrap_or(NOTHING));
            }
            _ => {}
        }
        let fib = writer.fib();
        fib.lookup_bulk(probes, |key| key, |_| 0, |at, route| found[at] = route.copied());
        let near = [key, key.last(len)];
        for key in probes.iter().copied().chain(near) {
            let wanted = model.longest(key).map(route);
            assert_eq!(
                writer.fib().lookup(key).copied(),
                wanted,
                "{} after {}/{len}",
                key.addr(),
                key.addr()
            );
        }
        for (key, found) in probes.iter().zip(&found) {
            assert_eq!(*found, model.longest(*key).map(route));
        }
    }
    // A table built at once answers as the changed one does, and nothing leaks: with all prefixes
    // gone, all leaves and nodes are free.
    for (key, len) in model.0.keys().copied().collect::<Vec<_>>() {
        model.0.remove(&(key, len));
        if len > 0 && writer.update(key, len, &model).is_err() {
            return;
        }
    }
    assert!(writer.is_empty(), "something is left of an empty table");
}

/// Few distinct bits, near the nodes' borders, so that prefixes nest and meet.
fn any_v4() -> impl Strategy<Value = u32> {
    prop_oneof![
        (0_u32..4, 0_u32..4, 0_u32..4).prop_map(|(a, b, c)| a << 30 | b << 7 | c),
        any::<u32>(),
    ]
}

fn any_v6() -> impl Strategy<Value = u128> {
    (0_u128..4, 0_u128..4, 0_u128..4, 0_u128..4)
        .prop_map(|(a, b, c, d)| a << 126 | b << 103 | c << 78 | d)
}

fn any_change<K: Key + core::fmt::Debug>(
    key: impl Strategy<Value = K>,
) -> impl Strategy<Value = (K, u8, Option<u32>)> {
    (key, 0..=K::BITS as u8, prop::option::weighted(0.7, 1..ROUTES))
}

/// Enough prefixes for a root of 16 bits.
fn many() -> Model<u32> {
    Model((0..100_u32).map(|n| ((n << 25 | n << 11, 21), 1 + n % (ROUTES - 1))).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn small_tables_follow_every_change(
        changes in prop::collection::vec(any_change(any_v4()), 0..60),
        probes in prop::collection::vec(any_v4(), 20),
    ) {
        follow(Model::default(), &changes, &probes);
    }

    #[test]
    fn larger_tables_follow_every_change(
        changes in prop::collection::vec(any_change(any_v4()), 0..60),
        probes in prop::collection::vec(any_v4(), 20),
    ) {
        follow(many(), &changes, &probes);
    }

    #[test]
    fn deep_tables_follow_every_change(
        changes in prop::collection::vec(any_change(any_v6()), 0..60),
        probes in prop::collection::vec(any_v6(), 10),
    ) {
        follow(Model::default(), &changes, &probes);
    }
}

#[test]
fn a_root_of_24_bits_follows_changes_of_every_length() {
    let start = Model(
        (0..9_000_u32).map(|n| ((n.wrapping_mul(0x9e37_79b1) & !0xff, 24), 1 + n % 5)).collect(),
    );
    let deep = 0x0a01_0203;
    let lens = [1, 8, 16, 19, 20, 23, 24, 25, 27, 28, 31, 32];
    let there = lens.map(|len| (deep, len, Some(1 + u32::from(len) % 5)));
    let gone = lens.map(|len| (deep, len, None));
    let probes: Vec<_> = (0..200_u32).map(|n| deep ^ 1_u32.rotate_left(n % 32) ^ n << 3).collect();
    let mut changes = there.to_vec();
    changes.extend(gone);
    changes.extend(there.iter().rev());
    follow(start, &changes, &probes);
}

/// Two states of the table, told apart by every field of a route, and nothing but these is ever
/// read, whoever uses the blocks, nodes and numbers in between.
#[test]
fn a_reader_meets_no_state_in_between() {
    const ROUNDS: u32 = if cfg!(miri) { 30 } else { 3_000 };
    let mut model = many();
    let mut writer = model.build(4);
    let mut whole = vec![];
    for key in [0x0a01_0203_u32, 0x0a01_0290, 0x0a01_8000] {
        whole.push((key, 32));
        whole.push((key.network(25), 25));
    }
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (fib, keys) = (writer.fib().clone(), whole.clone());
            std::thread::spawn(move || {
                let allowed = [1, 2, 3].map(route);
                let keys: Vec<u32> = keys.iter().map(|(key, _)| *key).collect();
                let mut found = vec![None; keys.len()];
                let mut seen = 0_u64;
                // Until the writer drops its handle.
                while std::sync::Arc::strong_count(&fib) > 2 {
                    fib.lookup_bulk(&keys, |key| key, |_| 0, |at, route| found[at] = route);
                    let single = keys.iter().map(|key| fib.lookup(*key));
                    for route in single.chain(found.iter().copied()).flatten() {
                        assert!(allowed.contains(route), "{route:?}");
                        seen += 1;
                    }
                }
                seen
            })
        })
        .collect();
    for round in 0..ROUNDS {
        for (n, &(key, len)) in whole.iter().enumerate() {
            match (round + n as u32) % 4 {
                3 => model.0.remove(&(key.network(len), len)),
                value => model.0.insert((key.network(len), len), value + 1),
            };
            if writer.update(key.network(len), len, &model).is_err() {
                break;
            }
        }
    }
    drop(writer);
    for reader in readers {
        reader.join().expect("a reader");
    }
}

/// A prefix that comes and goes moves the values of all behind it in their line. Whoever reads a
/// line half written finds a neighbour's.
#[test]
fn the_neighbours_of_a_change_are_always_found() {
    const ROUNDS: u32 = if cfg!(miri) { 20 } else { 60_000 };
    let slots: Vec<u32> = (1..9).map(|n| n * 12).collect();
    let prefixes = slots.iter().zip(1..).map(|(slot, number)| ((slot << 24, 8), number));
    let mut model: Model<u32> = Model(prefixes.collect());
    let mut writer = model.build(10);
    let fib = writer.fib().clone();
    let reader = std::thread::spawn(move || {
        let keys: Vec<u32> = slots.iter().map(|slot| slot << 24 | 5).collect();
        // Until the writer drops its handle.
        while std::sync::Arc::strong_count(&fib) > 1 {
            for (key, number) in keys.iter().zip(1..) {
                assert_eq!(fib.lookup(*key), Some(&route(number)));
            }
            let found = |at, it: Option<&Route>| assert_eq!(it, Some(&route(at as u32 + 1)));
            fib.lookup_bulk(&keys, |key| key, |_| 0, found);
        }
    });
    for round in 0..ROUNDS {
        match round % 2 {
            0 => model.0.insert((2 << 24, 8), 9),
            _ => model.0.remove(&(2 << 24, 8)),
        };
        writer.update(2 << 24, 8, &model).expect("room");
    }
    drop(writer);
    reader.join().expect("the reader");
}

/// A reader's copy of a line does not hold once the line has changed, were it to the same again.
#[test]
fn a_line_that_changed_and_changed_back_is_told() {
    let mut model = Model(BTreeMap::from([((12_u32 << 24, 8), 1)]));
    let mut writer = model.build(4);
    let fib = writer.fib().clone();
    let seen = Seen::read(&fib.words, ROOT).expect("a line");
    assert!(seen.is_still());
    assert_eq!(seen.value::<u32>(&fib.words, 12), Some(1));
    for value in [Some(2), None] {
        match value {
            Some(value) => model.0.insert((2 << 24, 8), value),
            None => model.0.remove(&(2 << 24, 8)),
        };
        writer.update(2 << 24, 8, &model).expect("room");
        assert!(!seen.is_still());
    }
}

#[cfg(loom)]
mod loom_tests {
    use super::*;

    /// Looks `probe` up once while prefixes change, one after the other. With two preemptions at
    /// most it finds what the prefixes of some moment say, or that it has to begin again.
    fn look_up_beside(
        start: impl IntoIterator<Item = (u32, u8, u32)>,
        changes: &'static [(u32, u8, Option<u32>)],
        probe: u32,
    ) {
        let start = Model(start.into_iter().map(|(key, len, value)| ((key, len), value)).collect());
        let mut every = loom::model::Builder::new();
        every.max_branches = 100_000;
        every.preemption_bound = Some(2);
        every.check(move || {
            let (mut model, mut writer) = (start.clone(), start.build(ROUTES));
            let fib = writer.fib().clone();
            let reader = loom::thread::spawn(move || fib.attempt(probe));
            let mut answers = vec![model.longest(probe).unwrap_or(NOTHING)];
            for &(key, len, value) in changes {
                match value {
                    Some(value) => model.0.insert((key, len), value),
                    None => model.0.remove(&(key, len)),
                };
                writer.update(key, len, &model).expect("room");
                answers.push(model.longest(probe).unwrap_or(NOTHING));
            }
            let found = reader.join().expect("the reader");
            assert!(found.is_none_or(|found| answers.contains(&found)), "{found:?}: {answers:?}");
            assert_eq!(writer.fib().attempt(probe), answers.last().copied());
        });
    }

    /// Another prefix of the same line moves the bits and the values that the look-up reads.
    #[test]
    fn loom_a_line_is_read_whole() {
        look_up_beside([(10 << 24, 8, 1)], &[(5 << 24, 8, Some(2))], 10 << 24);
    }

    /// The node below goes, and is emptied at once.
    #[test]
    fn loom_a_node_that_went_is_not_believed() {
        let start = [(10 << 24, 8, 1), (10 << 24, 16, 2)];
        look_up_beside(start, &[(10 << 24, 16, None)], 10 << 24);
    }

    /// More values than a line has room for: their block goes, and is the next one's.
    #[test]
    fn loom_a_block_of_other_values_is_not_believed() {
        let start = (10..24).map(|at| (2 * at << 24, 8, 1 + at % 2));
        let changes = &[(2 << 24, 8, Some(3)), (4 << 24, 8, Some(4)), (6 << 24, 8, Some(5))];
        look_up_beside(start, changes, 40 << 24);
    }
}
