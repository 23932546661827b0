//! The routes of one family, as the writer keeps them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::fib::{Entry, Fib, FibWriter, NOTHING, Prefixes};
use crate::key::Key;
use crate::prefix::{LinkId, Prefix};
use crate::table::Route;

/// Where a prefix has several routes: the rest of its number is a place in `Family::several`.
const SEVERAL: u32 = 1 << 31;
/// A new table is built where more than one prefix in so many changed; else those are changed.
const REBUILD_ONE_IN: usize = 16;

/// Distinct routes by number, each kept once however many prefixes have it.
#[derive(Default)]
struct Numbers {
    by_route: HashMap<Route, u32>,
    /// By number, with how many hold it; the first is nobody's.
    held: Vec<(Route, u32)>,
    /// Given out since readers were last told what numbers stand for.
    new: Vec<u32>,
    free: Vec<u32>,
    /// Held by nobody any more; free once readers no longer find them.
    retired: Vec<u32>,
}

impl Numbers {
    fn hold(&mut self, route: Route) -> u32 {
        if self.held.is_empty() {
            self.held.push((Route::on_link(LinkId(0)), 0));
        }
        let number = *self.by_route.entry(route).or_insert_with(|| {
            let number = self.free.pop().unwrap_or_else(|| {
                self.held.push((route, 0));
                self.held.len() as u32 - 1
            });
            self.new.push(number);
            number
        });
        let (what, holders) = &mut self.held[number as usize];
        *what = route;
        *holders += 1;
        number
    }

    /// Whether nobody else holds this one.
    fn let_go(&mut self, number: u32) {
        let (route, holders) = &mut self.held[number as usize];
        *holders -= 1;
        if *holders == 0 {
            self.by_route.remove(route);
            self.retired.push(number);
        }
    }

    fn get(&self, number: u32) -> Route {
        self.held[number as usize].0
    }

    fn in_use(&self) -> impl Iterator<Item = (u32, Route)> {
        let numbered = (0..).zip(&self.held);
        numbered
            .filter(|(_, (_, holders))| *holders > 0)
            .map(|(number, (route, _))| (number, *route))
    }
}

/// Every prefix with the number of its route, or of its routes.
struct Map<K> {
    by_prefix: BTreeMap<(K, u8), u32>,
    /// Routes of prefixes that have more than one, sorted by metric.
    several: Vec<Vec<u32>>,
    several_free: Vec<u32>,
    /// How many prefixes there are of each length.
    lengths: Vec<u32>,
}

impl<K: Key> Map<K> {
    /// The numbers of a prefix's routes, the one in force first.
    fn numbers<'a>(&'a self, value: &'a u32) -> &'a [u32] {
        match value & SEVERAL {
            0 => core::slice::from_ref(value),
            _ => &self.several[(value & !SEVERAL) as usize],
        }
    }

    fn get(&self, key: K, len: u8) -> &[u32] {
        self.by_prefix.get(&(key, len)).map_or(&[], |value| self.numbers(value))
    }

    /// Puts a prefix's routes, none to remove it.
    fn set(&mut self, key: K, len: u8, numbers: &[u32]) {
        let old = self.by_prefix.get(&(key, len)).copied();
        if let Some(old) = old.filter(|old| old & SEVERAL != 0) {
            self.several[(old & !SEVERAL) as usize].clear();
            self.several_free.push(old & !SEVERAL);
        }
        let value = match *numbers {
            [] => {
                self.by_prefix.remove(&(key, len));
                self.lengths[len as usize] -= u32::from(old.is_some());
                return;
            }
            [only] => only,
            _ => {
                let place = self.several_free.pop().unwrap_or_else(|| {
                    self.several.push(Vec::new());
                    self.several.len() as u32 - 1
                });
                self.several[place as usize].extend_from_slice(numbers);
                place | SEVERAL
            }
        };
        self.by_prefix.insert((key, len), value);
        self.lengths[len as usize] += u32::from(old.is_none());
    }

    fn entry(&self, (&(key, len), value): (&(K, u8), &u32)) -> Entry<K> {
        Entry { key, len, value: self.numbers(value)[0] }
    }
}

impl<K: Key> Prefixes<K> for Map<K> {
    fn within(&self, first: K, last: K) -> impl Iterator<Item = Entry<K>> {
        self.by_prefix.range((first, 1)..=(last, u8::MAX)).map(|found| self.entry(found))
    }

    fn covering(&self, key: K, len: u8) -> u32 {
        let used = (1..len).rev().filter(|&len| self.lengths[len as usize] > 0);
        used.filter_map(|len| self.get(key.network(len), len).first().copied())
            .next()
            .unwrap_or(NOTHING)
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
}

/// What [`Family::publish`] did.
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
        numbers.insert(at, self.numbers.hold(route));
        let old = old.map(|number| (self.numbers.get(number), self.numbers.let_go(number)).0);
        self.map.set(key, len, &numbers);
        self.len += usize::from(old.is_none());
        self.changed.push((key, len));
        Some(old)
    }

    /// Removes the route of a prefix by this link and gateway, and gives it back.
    pub fn remove(&mut self, key: K, len: u8, is: impl Fn(&Route) -> bool) -> Option<Route> {
        let key = key.network(len);
        let mut numbers = self.map.get(key, len).to_vec();
        let at = numbers.iter().position(|number| is(&self.numbers.get(*number)))?;
        let number = numbers.remove(at);
        let route = self.numbers.get(number);
        self.numbers.let_go(number);
        self.map.set(key, len, &numbers);
        self.len -= 1;
        self.changed.push((key, len));
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

    /// All routes with their prefixes, by prefix and then metric.
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
        let Numbers { new, free, retired, .. } = &mut self.numbers;
        new.clear();
        free.append(retired);
        if in_place { Published::InPlace } else { Published::Anew }
    }

    /// Changes the table that readers have; whether it had room for that.
    fn change(&mut self, changed: &[(K, u8)]) -> bool {
        if self.numbers.held.len() > self.fib.routes() {
            return false;
        }
        for &number in &self.numbers.new {
            self.fib.set_route(number, &self.numbers.get(number));
        }
        for &(key, len) in changed {
            let value = self.map.get(key, len).first().copied();
            match len {
                0 => self.fib.set_default(value.unwrap_or(NOTHING)),
                _ if self.fib.update(key, len, &self.map).is_err() => return false,
                _ => {}
            }
        }
        true
    }

    fn build(&mut self) {
        let entries: Vec<_> =
            self.map.by_prefix.iter().map(|found| self.map.entry(found)).collect();
        // The prefix of length 0 sorts first.
        let (default, entries) = match entries.split_first() {
            Some((first, rest)) if first.len == 0 => (first.value, rest),
            _ => (NOTHING, &entries[..]),
        };
        let numbers = self.numbers.held.len().max(1);
        let mut fib = FibWriter::build(entries, numbers + numbers / 8 + 8);
        for (number, route) in self.numbers.in_use() {
            fib.set_route(number, &route);
        }
        fib.set_default(default);
        self.fib = fib;
    }

    /// Memory that the writer needs beside what readers use, in bytes, estimated from the number of
    /// entries: a B-tree's nodes are two thirds full.
    pub fn memory_bytes(&self) -> usize {
        let Map { by_prefix, several, several_free, .. } = &self.map;
        let Numbers { by_route, held, new, free, retired } = &self.numbers;
        by_prefix.len() * (size_of::<(K, u8)>() + size_of::<u32>()) * 3 / 2
            + several.iter().map(|list| list.capacity() * 4 + size_of::<Vec<u32>>()).sum::<usize>()
            + by_route.capacity() * (size_of::<(Route, u32)>() + 1)
            + held.capacity() * size_of::<(Route, u32)>()
            + (several_free.capacity() + new.capacity() + free.capacity() + retired.capacity()) * 4
            + self.fib.memory_bytes()
    }
}
