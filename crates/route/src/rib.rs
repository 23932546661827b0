//! The routes of one family, as the writer keeps them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::fib::{Entry, Fib, FibWriter, NOTHING, Prefixes};
use crate::key::Key;
use crate::limits::MULTIPATH_LIMIT;
use crate::prefix::{LinkId, Prefix};
use crate::route::Route;

/// Where a prefix has several routes: the rest of its number is a place in `Family::several`.
const SEVERAL: u32 = 1 << 31;
/// A new table is built where more than one prefix in so many changed; else those are changed.
const REBUILD_ONE_IN: usize = 16;

/// The route or routes that a number stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Hops {
    One(Route),
    /// Routes by their numbers, among which flows are shared.
    Several(Box<[u32]>),
}

/// Distinct routes, and several as one, by number, each kept once however many prefixes have it.
///
/// A number stands for the same as long as the readers' table lasts: one that nobody holds any more
/// is found again by the same route, and free for another when a new table is built.
#[derive(Default)]
struct Numbers {
    by_hops: HashMap<Hops, u32>,
    /// By number, with how many hold it; the first is nobody's. Several as one hold each.
    held: Vec<(Hops, u32)>,
    /// Given out since readers were last told what numbers stand for.
    new: Vec<u32>,
    free: Vec<u32>,
}

impl Numbers {
    fn hold(&mut self, hops: Hops) -> u32 {
        let nobodys = || (Hops::Several(Box::default()), 0);
        if self.held.is_empty() {
            self.held.push(nobodys());
        }
        if let Some(&number) = self.by_hops.get(&hops) {
            self.held[number as usize].1 += 1;
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.held.push(nobodys());
            self.held.len() as u32 - 1
        });
        self.new.push(number);
        if let Hops::Several(members) = &hops {
            members.iter().for_each(|&member| self.held[member as usize].1 += 1);
        }
        self.by_hops.insert(hops.clone(), number);
        self.held[number as usize] = (hops, 1);
        number
    }

    /// Takes one holder off a number.
    fn let_go(&mut self, number: u32) {
        self.held[number as usize].1 -= 1;
    }

    /// Frees the numbers that nobody holds, for a table that knows none of them.
    fn collect(&mut self) {
        self.free.clear();
        // Several first: each lets go of its routes.
        for is_several in [true, false] {
            for number in 1..self.held.len() {
                let (hops, holders) = &self.held[number];
                if *holders != 0 || matches!(hops, Hops::Several(_)) != is_several {
                    continue;
                }
                if let Hops::Several(members) = self.take(number) {
                    members.iter().for_each(|&member| self.let_go(member));
                }
            }
        }
        let numbers = (1..).zip(&self.held[1.min(self.held.len())..]);
        let free = numbers.filter(|(_, (_, holders))| *holders == 0).map(|(number, _)| number);
        self.free.extend(free);
    }

    /// Forgets what a number stands for.
    fn take(&mut self, number: usize) -> Hops {
        let hops = std::mem::replace(&mut self.held[number].0, Hops::Several(Box::default()));
        self.by_hops.remove(&hops);
        hops
    }

    /// Returns the route of this number.
    fn get(&self, number: u32) -> Route {
        match &self.held[number as usize].0 {
            Hops::One(route) => *route,
            Hops::Several(members) => self.get(members[0]),
        }
    }

    fn in_use(&self) -> impl Iterator<Item = u32> {
        let numbered = (0..).zip(&self.held);
        numbered.filter(|(_, (_, holders))| *holders > 0).map(|(number, _)| number)
    }

    /// Writes what a number stands for into a table.
    fn write<K: Key>(&self, number: u32, fib: &mut FibWriter<K>) {
        match &self.held[number as usize].0 {
            Hops::One(route) => fib.set_route(number, route),
            Hops::Several(members) => {
                fib.set_several(number, members, |member| self.get(member).weight);
            }
        }
    }
}

/// The routes of a prefix.
#[derive(Default)]
struct Several {
    /// Sorted by metric.
    numbers: Vec<u32>,
    /// The number that stands for the routes that share its flows.
    sharers: Option<u32>,
}

/// Every prefix with the number of its route, or of its routes.
struct Map<K> {
    by_prefix: BTreeMap<(K, u8), u32>,
    /// Routes of prefixes that have more than one.
    several: Vec<Several>,
    several_free: Vec<u32>,
    /// The count of prefixes of each length.
    lengths: Vec<u32>,
}

impl<K: Key> Map<K> {
    /// Returns the numbers of a prefix's routes, the one in force first.
    fn numbers<'a>(&'a self, value: &'a u32) -> &'a [u32] {
        match value & SEVERAL {
            0 => core::slice::from_ref(value),
            _ => &self.several[(value & !SEVERAL) as usize].numbers,
        }
    }

    /// Returns the number that readers are to find: of a route, or of several.
    fn in_force(&self, value: u32) -> u32 {
        if value & SEVERAL == 0 {
            return value;
        }
        let Several { numbers, sharers } = &self.several[(value & !SEVERAL) as usize];
        sharers.unwrap_or(numbers[0])
    }

    /// Returns the same for a prefix, if it has a route.
    fn in_force_of(&self, key: K, len: u8) -> Option<u32> {
        self.by_prefix.get(&(key, len)).map(|&value| self.in_force(value))
    }

    fn get(&self, key: K, len: u8) -> &[u32] {
        self.by_prefix.get(&(key, len)).map_or(&[], |value| self.numbers(value))
    }

    /// Puts a prefix's routes, none to remove it, and what stands for those that share its flows;
    /// gives back what did.
    fn set(&mut self, key: K, len: u8, numbers: &[u32], sharers: Option<u32>) -> Option<u32> {
        let old = self.by_prefix.get(&(key, len)).copied();
        let mut former = None;
        if let Some(old) = old.filter(|old| old & SEVERAL != 0) {
            let several = &mut self.several[(old & !SEVERAL) as usize];
            several.numbers.clear();
            former = several.sharers.take();
            self.several_free.push(old & !SEVERAL);
        }
        let value = match *numbers {
            [] => {
                self.by_prefix.remove(&(key, len));
                self.lengths[len as usize] -= u32::from(old.is_some());
                return former;
            }
            [only] => only,
            _ => {
                let place = self.several_free.pop().unwrap_or_else(|| {
                    self.several.push(Several::default());
                    self.several.len() as u32 - 1
                });
                let several = &mut self.several[place as usize];
                several.numbers.extend_from_slice(numbers);
                several.sharers = sharers;
                place | SEVERAL
            }
        };
        self.by_prefix.insert((key, len), value);
        self.lengths[len as usize] += u32::from(old.is_none());
        former
    }

    fn entry(&self, (&(key, len), value): (&(K, u8), &u32)) -> Entry<K> {
        Entry { key, len, value: self.in_force(*value) }
    }
}

impl<K: Key> Prefixes<K> for Map<K> {
    fn within(&self, first: K, last: K) -> impl Iterator<Item = Entry<K>> {
        self.by_prefix.range((first, 1)..=(last, u8::MAX)).map(|found| self.entry(found))
    }

    fn covering(&self, key: K, len: u8) -> u32 {
        let used = (1..len).rev().filter(|&len| self.lengths[len as usize] > 0);
        used.filter_map(|len| self.in_force_of(key.network(len), len)).next().unwrap_or(NOTHING)
    }
}

/// The routes of one family and the table that readers have of them.
pub(crate) struct Family<K> {
    map: Map<K>,
    numbers: Numbers,
    fib: FibWriter<K>,
    /// Prefixes that changed and that readers have not seen.
    changed: Vec<(K, u8)>,
    /// Routes held, alternatives included.
    len: usize,
    /// Routes of the lowest metric through gateways share flows.
    multipath: bool,
}

/// The outcome of [`Family::publish`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    Nothing,
    /// The table that readers have was changed.
    InPlace,
    /// There is a new table.
    Anew,
}

impl<K: Key> Family<K> {
    pub fn new() -> Self {
        Self {
            map: Map {
                by_prefix: BTreeMap::new(),
                several: Vec::new(),
                several_free: Vec::new(),
                lengths: vec![0; K::BITS as usize + 1],
            },
            numbers: Numbers::default(),
            fib: FibWriter::build(&[], 8),
            changed: Vec::new(),
            len: 0,
            multipath: false,
        }
    }

    pub fn fib(&self) -> &Arc<Fib<K>> {
        self.fib.fib()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a route, or replaces the one by the same link and gateway, which is given back. `None`
    /// where it is one more and there is no room for that.
    pub fn insert(&mut self, key: K, len: u8, route: Route, room: bool) -> Option<Option<Route>> {
        let key = key.network(len);
        let mut numbers = self.map.get(key, len).to_vec();
        let same = |number: &u32| {
            let held = self.numbers.get(*number);
            (held.link, held.gateway) == (route.link, route.gateway)
        };
        let old = numbers.iter().position(same).map(|at| numbers.remove(at));
        if old.is_none() && !room {
            return None;
        }
        let metric = |number: &u32| self.numbers.get(*number).metric;
        let at = numbers.partition_point(|number| metric(number) <= route.metric);
        numbers.insert(at, self.numbers.hold(Hops::One(route)));
        let old = old.map(|number| (self.numbers.get(number), self.numbers.let_go(number)).0);
        self.set(key, len, &numbers);
        self.len += usize::from(old.is_none());
        Some(old)
    }

    /// Sets if flows are shared from now on.
    pub fn set_multipath(&mut self, on: bool) {
        if std::mem::replace(&mut self.multipath, on) == on {
            return;
        }
        let several = self.map.by_prefix.iter().filter(|(_, value)| **value & SEVERAL != 0);
        for (key, len) in several.map(|(&prefix, _)| prefix).collect::<Vec<_>>() {
            let numbers = self.map.get(key, len).to_vec();
            self.set(key, len, &numbers);
        }
    }

    /// Puts a prefix's routes.
    fn set(&mut self, key: K, len: u8, numbers: &[u32]) {
        let sharing = self.sharing(numbers);
        let sharers = sharing.map(|members| self.numbers.hold(Hops::Several(members)));
        let former = self.map.set(key, len, numbers, sharers);
        if let Some(former) = former {
            self.numbers.let_go(former);
        }
        self.changed.push((key, len));
    }

    /// Returns the routes of a prefix among which its flows are shared, if there are several.
    fn sharing(&self, numbers: &[u32]) -> Option<Box<[u32]>> {
        let first = self.numbers.get(*numbers.first()?);
        let is_one = |number: &&u32| {
            let route = self.numbers.get(**number);
            route.metric == first.metric && route.gateway.is_some()
        };
        let members = numbers.iter().filter(is_one).take(MULTIPATH_LIMIT).copied();
        let members: Box<[u32]> = members.collect();
        (self.multipath && first.gateway.is_some() && members.len() > 1).then_some(members)
    }

    /// Removes the route of a prefix by this link and gateway, and gives it back.
    pub fn remove(&mut self, key: K, len: u8, is: impl Fn(&Route) -> bool) -> Option<Route> {
        let key = key.network(len);
        let mut numbers = self.map.get(key, len).to_vec();
        let at = numbers.iter().position(|number| is(&self.numbers.get(*number)))?;
        let number = numbers.remove(at);
        let route = self.numbers.get(number);
        self.numbers.let_go(number);
        self.set(key, len, &numbers);
        self.len -= 1;
        Some(route)
    }

    /// Removes every route by a link.
    pub fn remove_link(&mut self, link: LinkId) {
        let by_link = |value: &u32| {
            self.map.numbers(value).iter().any(|number| self.numbers.get(*number).link == link)
        };
        let prefixes = self.map.by_prefix.iter().filter(|(_, value)| by_link(value));
        for (key, len) in prefixes.map(|(&prefix, _)| prefix).collect::<Vec<_>>() {
            while self.remove(key, len, |route| route.link == link).is_some() {}
        }
    }

    /// Returns all routes from one of a prefix on, the one in force being the first: with its place
    /// among those of its prefix.
    pub fn iter_from(
        &self,
        (key, len): (K, u8),
        place: usize,
    ) -> impl Iterator<Item = (Prefix, usize, Route)> + '_ {
        let key = key.network(len);
        self.map.by_prefix.range((key, len)..).flat_map(move |(&(found, found_len), value)| {
            let skipped = if (found, found_len) == (key, len) { place } else { 0 };
            let prefix = Prefix { addr: found.addr(), len: found_len };
            let numbers = self.map.numbers(value).get(skipped..).unwrap_or_default();
            let routes = numbers.iter().map(|number| self.numbers.get(*number));
            (skipped..).zip(routes).map(move |(place, route)| (prefix, place, route))
        })
    }

    /// Returns all routes with their prefixes, by prefix and then metric.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, Route)> + '_ {
        self.map.by_prefix.iter().flat_map(move |((key, len), value)| {
            let prefix = Prefix { addr: key.addr(), len: *len };
            self.map.numbers(value).iter().map(move |n| (prefix, self.numbers.get(*n)))
        })
    }

    /// Lets readers see what changed.
    pub fn publish(&mut self) -> Published {
        if self.changed.is_empty() {
            return Published::Nothing;
        }
        let changed = core::mem::take(&mut self.changed);
        let few = changed.len() * REBUILD_ONE_IN <= self.map.by_prefix.len().max(REBUILD_ONE_IN);
        let in_place = few && self.change(&changed);
        if !in_place {
            self.build();
        }
        self.numbers.new.clear();
        if in_place { Published::InPlace } else { Published::Anew }
    }

    /// Changes the table that readers have. Returns true if it had room for that.
    fn change(&mut self, changed: &[(K, u8)]) -> bool {
        if self.numbers.held.len() > self.fib.routes() {
            return false;
        }
        for &number in &self.numbers.new {
            self.numbers.write(number, &mut self.fib);
        }
        for &(key, len) in changed {
            let value = self.map.in_force_of(key, len);
            match len {
                0 => self.fib.set_default(value.unwrap_or(NOTHING)),
                _ if self.fib.update(key, len, &self.map).is_err() => return false,
                _ => {}
            }
        }
        true
    }

    fn build(&mut self) {
        self.numbers.collect();
        let entries: Vec<_> =
            self.map.by_prefix.iter().map(|found| self.map.entry(found)).collect();
        // The prefix of length 0 sorts first.
        let (default, entries) = match entries.split_first() {
            Some((first, rest)) if first.len == 0 => (first.value, rest),
            _ => (NOTHING, &entries[..]),
        };
        let numbers = self.numbers.held.len().max(1);
        // Room for routes to come: when it is used up, a table is built anew.
        let room = 64 + numbers / 8 + entries.len() / 128;
        let mut fib = FibWriter::build(entries, numbers + room);
        for number in self.numbers.in_use() {
            self.numbers.write(number, &mut fib);
        }
        fib.set_default(default);
        self.fib = fib;
    }

    /// Returns the memory that the writer needs beside that of the readers, in bytes, estimated
    /// from the number of entries: a B-tree's nodes are two thirds full.
    pub fn memory_bytes(&self) -> usize {
        let Map { by_prefix, several, several_free, .. } = &self.map;
        let Numbers { by_hops, held, new, free } = &self.numbers;
        by_prefix.len() * (size_of::<(K, u8)>() + size_of::<u32>()) * 3 / 2
            + several
                .iter()
                .map(|of| of.numbers.capacity() * 4 + size_of::<Several>())
                .sum::<usize>()
            + by_hops.capacity() * (size_of::<(Hops, u32)>() + 1)
            + held.capacity() * size_of::<(Hops, u32)>()
            + (several_free.capacity() + new.capacity() + free.capacity()) * 4
            + self.fib.memory_bytes()
    }
}
