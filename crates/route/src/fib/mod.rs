//! The forwarding table that look-ups read: one body for both families, one writer, any number of
//! readers who write nothing and wait for nobody.
//!
//! A multibit trie whose nodes are lines of the cache. The root resolves the first 24 bits (fewer
//! in a small table), every node below it 8 more. A line has 128 slots: bits that say where their
//! values change, and the values ([`line`]). So a look-up loads one line for each node; only where
//! the values of a line are too many for it does it load a second one. Root, nodes and values lie
//! in one array, on huge pages where the system has those. [Why this
//! form](../../../../docs/notes/look-up.md).
//!
//! ```text
//!   lines:  [ one of zeros, one to write in | root | nodes of two lines, blocks of values ]
//!   value:  the number of a route, or the complement of that of a node
//!   routes: by number; one that stands there stays until the table goes
//! ```
//!
//! **Changes in place.** The writer makes the new line in another place, says so in the header of
//! the old one, writes the old one, and says in its header that it is whole again. A reader reads
//! the header, the line (or what is in the other place), and the header again: if that is the same,
//! so was all that it read, since each change of a line changes the version in its header first. A
//! block or a node that has another use by now had the header changed that led to it. No reader
//! waits: whatever the header says, there is a whole line to be read. It begins again when the line
//! was changed meanwhile; a version comes round after 2^23 changes of one line within one look-up.

mod hops;
mod line;
mod space;
mod sync;
mod writer;

use std::sync::OnceLock;

use millstream_packet::BitInstructions;
pub(crate) use writer::{Entry, FibWriter, Prefixes};

use crate::key::Key;
use crate::prefix::LinkId;
use crate::route::Route;
use hops::Hops;
use line::{LINES_LIMIT, SLOTS, Seen};
use sync::{AtomicU32, Ordering, Words, fence};

/// Bits that a node below the root resolves.
const STRIDE: u32 = 8;
/// Lines of a node below the root.
const NODE_LINES: usize = (1 << STRIDE) / SLOTS;
/// In a value: a node, whose number is the complement of the value, rather than a route. So 16 bits
/// become 32 by their sign.
const CHILD: u32 = 1 << 31;
/// The value that stands for "no prefix covers this".
pub(crate) const NOTHING: u32 = 0;
/// Prefixes of one table at most: each may need a node for every 8 bits of an IPv6 address, with
/// its values.
pub(crate) const PREFIXES_LIMIT: usize = LINES_LIMIT / (NODE_LINES * 32);
/// The line in which another is written, behind one that stays zero.
const ASIDE: usize = 1;
/// The first line of the root.
const ROOT: usize = NODE_LINES;
/// Addresses that are looked up side by side.
const BULK: usize = 32;

/// The table that look-ups of one family read.
pub(crate) struct Fib<K> {
    /// Bits that the root resolves: 8, 16 or 24.
    root_bits: u32,
    /// The line behind the root.
    behind_root: usize,
    words: Words,
    bits: Option<BitInstructions>,
    /// By value; the first stands for [`NOTHING`].
    routes: Vec<OnceLock<Hops>>,
    /// The route of what no prefix covers but the one of length 0.
    default: AtomicU32,
    family: core::marker::PhantomData<K>,
}

impl<K: Key> Fib<K> {
    /// Returns the route of the longest prefix that covers `key`, of several that share its flows
    /// the first. The answer was right at some moment between call and return.
    #[inline]
    pub fn lookup(&self, key: K) -> Option<&Route> {
        self.lookup_flow(key, || 0)
    }

    /// Returns the same for a flow of this hash, which is asked for where several routes share
    /// flows.
    #[inline]
    pub fn lookup_flow(&self, key: K, hash: impl Fn() -> u32) -> Option<&Route> {
        match self.bits {
            Some(bits) => bits.call(
                #[inline(always)]
                || self.answer(key, &hash),
            ),
            None => self.answer_slowly(key, &hash),
        }
    }

    /// Returns the same, of several routes that share flows the one that leads by `link`, else the
    /// first.
    pub fn lookup_by(&self, key: K, link: LinkId) -> Option<&Route> {
        let number = loop {
            if let Some(number) = self.attempt(key) {
                break number as usize;
            }
        };
        match self.routes.get(number)?.get()? {
            Hops::One(route) => Some(route),
            Hops::Several(several) => {
                let routes = || several.members().iter().map(|&number| self.route(number, &|| 0));
                let by_link = |route: &Option<&Route>| route.is_some_and(|it| it.link == link);
                routes().find(by_link).or_else(|| routes().next())?
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn answer_slowly(&self, key: K, hash: &impl Fn() -> u32) -> Option<&Route> {
        self.answer(key, hash)
    }

    #[inline(always)]
    fn answer(&self, key: K, hash: &impl Fn() -> u32) -> Option<&Route> {
        loop {
            if let Some(number) = self.attempt(key) {
                return self.route(number, hash);
            }
        }
    }

    /// Looks every key up and gives the answers to `found`, with their places. Loads of several
    /// keys are on their way at once, which is what this has over one after the other. `hash` is
    /// asked for that of the flow at a place where several routes share flows.
    #[inline]
    pub fn lookup_bulk<'a, A: Copy>(
        &'a self,
        addrs: &[A],
        key: impl Fn(A) -> K,
        hash: impl Fn(usize) -> u32,
        mut found: impl FnMut(usize, Option<&'a Route>),
    ) {
        for (start, addrs) in (0..).step_by(BULK).zip(addrs.chunks(BULK)) {
            match self.bits {
                Some(bits) => bits.call(
                    #[inline(always)]
                    || self.lookup_chunk(start, addrs, &key, &hash, &mut found),
                ),
                None => self.lookup_chunk(start, addrs, &key, &hash, &mut found),
            }
        }
    }

    /// Looks up [`BULK`] addresses at most, the first of them in place `start`.
    #[inline(always)]
    fn lookup_chunk<'a, A: Copy>(
        &'a self,
        start: usize,
        addrs: &[A],
        key: &impl Fn(A) -> K,
        hash: &impl Fn(usize) -> u32,
        found: &mut impl FnMut(usize, Option<&'a Route>),
    ) {
        let words = &*self.words;
        // An address whose words cannot be read, or were changed meanwhile, is looked up again.
        // (Closures would be compiled for any processor: there are none.)
        let mut seen = [None::<Seen>; BULK];
        let mut value = [CHILD; BULK];
        // All headers first: they are on their way at once, and the lines with them.
        for (seen, addr) in seen.iter_mut().zip(addrs) {
            *seen = Seen::read(words, ROOT + self.root_slot(key(*addr)) / SLOTS);
        }
        let mut deeper = 0_u32;
        for (place, addr) in addrs.iter().enumerate() {
            value[place] = value_of::<K>(&seen[place], words, self.root_slot(key(*addr)));
            deeper |= (value[place] >> 31) << place;
        }
        let mut depth = self.root_bits;
        // Level by level, those that are not at their end.
        while deeper != 0 && depth < K::BITS {
            let mut below = [None::<Seen>; BULK];
            for place in Places(deeper) {
                let slot = key(addrs[place]).byte(depth);
                below[place] = Seen::read(words, self.below(value[place], slot));
            }
            // The nodes were still those lines' when their headers were read.
            fence(Ordering::Acquire);
            for place in Places(core::mem::take(&mut deeper)) {
                let slot = key(addrs[place]).byte(depth);
                seen[place] = match &seen[place] {
                    Some(above) if above.is_still() => below[place],
                    _ => None,
                };
                value[place] = value_of::<K>(&seen[place], words, slot);
                deeper |= (value[place] >> 31) << place;
            }
            depth += STRIDE;
        }
        let default = self.default.load(Ordering::Acquire);
        fence(Ordering::Acquire);
        for (place, addr) in addrs.iter().enumerate() {
            let (value, seen) = (value[place], &seen[place]);
            let number = if value == NOTHING { default } else { value };
            let route = match seen {
                Some(seen) if value & CHILD == 0 && seen.is_still() => {
                    self.route(number, &|| hash(start + place))
                }
                _ => self.answer_slowly(key(*addr), &|| hash(start + place)),
            };
            found(start + place, route);
        }
    }

    /// Walks the table once; `None` where something that it read was changed meanwhile.
    #[inline(always)]
    fn attempt(&self, key: K) -> Option<u32> {
        let words = &*self.words;
        let slot = self.root_slot(key);
        let mut seen = Seen::read(words, ROOT + slot / SLOTS)?;
        let mut value = seen.value::<K>(words, slot)?;
        let mut depth = self.root_bits;
        while value & CHILD != 0 {
            if depth >= K::BITS {
                return None;
            }
            let slot = key.byte(depth);
            depth += STRIDE;
            let below = Seen::read(words, self.below(value, slot))?;
            value = below.value::<K>(words, slot)?;
            // The node was still this line's when its header was read.
            fence(Ordering::Acquire);
            if !seen.is_still() {
                return None;
            }
            seen = below;
        }
        let default = self.default.load(Ordering::Acquire);
        fence(Ordering::Acquire);
        let number = if value == NOTHING { default } else { value };
        seen.is_still().then_some(number)
    }

    /// Returns the slot of a key in the root.
    #[inline(always)]
    fn root_slot(&self, key: K) -> usize {
        (key.front() >> (u32::BITS - self.root_bits)) as usize
    }

    /// Returns the line of a slot of the node that `value` leads to.
    #[inline(always)]
    fn below(&self, value: u32, slot: usize) -> usize {
        self.first_of(value) + slot / SLOTS
    }

    /// Returns the first line of the node that a value leads to. Nodes are numbered by pairs of
    /// lines.
    #[inline(always)]
    fn first_of(&self, value: u32) -> usize {
        self.behind_root + NODE_LINES * !value as usize
    }

    #[inline(always)]
    fn route(&self, number: u32, hash: &impl Fn() -> u32) -> Option<&Route> {
        match self.routes.get(number as usize)?.get()? {
            Hops::One(route) => Some(route),
            Hops::Several(several) => {
                match self.routes.get(several.pick(hash())? as usize)?.get()? {
                    Hops::One(route) => Some(route),
                    Hops::Several(_) => None,
                }
            }
        }
    }

    /// Returns the memory that readers of this table share, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.routes)
    }
}

/// Returns the value of a slot of a line; [`CHILD`] if it cannot be read.
#[inline(always)]
fn value_of<K: Key>(seen: &Option<Seen>, words: &[line::Line], slot: usize) -> u32 {
    match seen {
        Some(seen) => match seen.value::<K>(words, slot) {
            Some(value) => value,
            None => CHILD,
        },
        None => CHILD,
    }
}

/// The places of the bits that are set.
struct Places(u32);

impl Iterator for Places {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let place = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(place % BULK)
    }
}

#[cfg(test)]
mod tests;
