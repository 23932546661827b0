//! The forwarding table that look-ups read: one body for both families, one writer, any number of
//! readers who write nothing and wait for nobody.
//!
//! A multibit trie with compressed nodes. The root resolves the first 24 bits (fewer in a small
//! table), every node below it 8 more. The slots of a node are kept by groups of 32, and a group is
//! one word: a bit for every slot that differs from the one before it, and where the group's values
//! begin. A look-up therefore takes two loads for each node: the word, and the value found by
//! counting bits.
//!
//! ```text
//!   groups: [word, word, …]              leaves: [0, 1, 2, … | values of groups, block by block]
//!     word = bits 32 | base 27 | version 5 ──base──►  route, or the first group of a node below
//!                                        routes: [what a look-up gives, four words each]
//! ```
//!
//! Where all 32 slots of a group have one value, which is so for most, the word points into the
//! front of `leaves`, where entry n holds n: such a group has no block of its own.
//!
//! **Changes in place.** The writer makes a new block for a group and publishes it by one store of
//! the group's word; only then is the old block free for another group. A reader holds nothing, so
//! it may read a block, a node or a route that has another use by now. It finds out by reading the
//! word again: what a word points to is not reused while the word stands. A word that was changed
//! and changed back would deceive it, which is why a word has a version and the table a count of
//! changes: a reader that finds the count far ahead begins again. No reader ever waits: the writer
//! has no state in between that a reader could meet.

mod leaves;
mod slots;
mod writer;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use writer::{Entry, FibWriter, Prefixes};

use crate::key::Key;
use crate::prefix::LinkId;
use crate::route::Route;
use slots::RouteSlot;

/// Slots of a group.
const GROUP: usize = 32;
/// Bits that a node below the root resolves.
const STRIDE: u32 = 8;
/// Groups of a node below the root.
const NODE_GROUPS: usize = (1 << STRIDE) / GROUP;
/// In a value: the first group of a node, rather than a route.
const CHILD: u32 = 1 << 31;
/// The value that stands for "no prefix covers this".
pub(crate) const NOTHING: u32 = 0;

const BASE_BITS: u32 = 27;
const VERSION_BITS: u32 = 5;
/// Where a word's values can begin at most, and how many routes there can be.
pub(crate) const LEAVES_LIMIT: usize = 1 << BASE_BITS;
/// Changes during a look-up from which on a word's version may have come round.
const CHANGES_LIMIT: u32 = (1 << VERSION_BITS) - 2;
/// Addresses that are looked up side by side.
const BULK: usize = 32;

/// The table that look-ups of one family read.
pub(crate) struct Fib<K> {
    /// Bits that the root resolves: 8, 16 or 24.
    root_bits: u32,
    groups: Vec<AtomicU64>,
    leaves: Vec<AtomicU32>,
    /// By value; the first stands for [`NOTHING`] and is never read.
    routes: Vec<RouteSlot>,
    /// The route of what no prefix covers but the one of length 0, with a version like a word's.
    default: AtomicU64,
    /// Counts every change, before it is made.
    changes: AtomicU32,
    family: core::marker::PhantomData<K>,
}

/// A group's word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    /// The bits that say where values change, where they begin, and the version after `old`'s.
    fn after(old: Self, bits: u32, base: u32) -> Self {
        let version = (old.0 >> (32 + BASE_BITS)).wrapping_add(1);
        Self(version << (32 + BASE_BITS) | u64::from(base) << 32 | u64::from(bits))
    }

    fn bits(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    fn base(self) -> usize {
        (self.0 >> 32) as usize & (LEAVES_LIMIT - 1)
    }

    /// Returns how many values the group has.
    fn values(self) -> usize {
        self.bits().count_ones() as usize + 1
    }

    /// Where the value of a slot is. Bit 0 is never set.
    #[inline(always)]
    fn leaf(self, slot: usize) -> usize {
        let upto = ((2_u64 << (slot % GROUP)) - 1) as u32;
        self.base() + (self.bits() & upto).count_ones() as usize
    }
}

impl<K: Key> Fib<K> {
    /// The route of the longest prefix that covers `key`, of several that share its flows the
    /// first. The answer was right at some moment between call and return.
    #[inline]
    pub fn lookup(&self, key: K) -> Option<Route> {
        self.lookup_flow(key, || 0)
    }

    /// The same for a flow of this hash, which is asked for where several routes share flows.
    #[inline]
    pub fn lookup_flow(&self, key: K, hash: impl Fn() -> u32) -> Option<Route> {
        self.lookup_with(key, |routes, value| RouteSlot::pick(routes, value, &hash))
    }

    /// The same, of several routes that share flows the one that leads by `link`, else the first.
    pub fn lookup_by(&self, key: K, link: LinkId) -> Option<Route> {
        self.lookup_with(key, |routes, value| RouteSlot::by_link(routes, value, link))
    }

    #[inline(always)]
    fn lookup_with(
        &self,
        key: K,
        pick: impl Fn(&[RouteSlot], u32) -> Option<Route>,
    ) -> Option<Route> {
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            if let Some(found) = self.attempt(key, &pick)
                && self.changes.load(Ordering::Relaxed).wrapping_sub(changes) < CHANGES_LIMIT
            {
                return found;
            }
        }
    }

    /// Looks every key up; the answers go to the same places of `found`. Loads of several keys are
    /// on their way at once, which is what this has over one after the other. `hash` is asked for
    /// that of the flow at a place where several routes share flows.
    #[inline]
    pub fn lookup_bulk<A: Copy>(
        &self,
        addrs: &[A],
        key: impl Fn(A) -> K,
        hash: impl Fn(usize) -> u32,
        found: &mut [Option<Route>],
    ) {
        let chunks = addrs.chunks(BULK).zip(found.chunks_mut(BULK));
        for (start, (addrs, found)) in (0..).step_by(BULK).zip(chunks) {
            let mut keys = [K::ZERO; BULK];
            for (key_of, addr) in keys.iter_mut().zip(addrs) {
                *key_of = key(*addr);
            }
            let keys = &keys[..addrs.len()];
            let changes = self.changes.load(Ordering::Acquire);
            let mut leaf = [0; BULK];
            for (leaf, key) in leaf.iter_mut().zip(keys) {
                let slot = key.bits(0, self.root_bits);
                *leaf = Word(self.groups[slot / GROUP].load(Ordering::Acquire)).leaf(slot);
            }
            let mut value = [0; BULK];
            for (value, leaf) in value[..keys.len()].iter_mut().zip(leaf) {
                *value = self.leaves[leaf].load(Ordering::Relaxed);
            }
            let mut depth = self.root_bits;
            // Level by level, all that are not at their end; few addresses need more than two.
            while depth < K::BITS && value[..keys.len()].iter().any(|value| value & CHILD != 0) {
                for (value, key) in value.iter_mut().zip(keys) {
                    if *value & CHILD != 0 {
                        let slot = key.bits(depth, STRIDE);
                        let group = (*value & !CHILD) as usize + slot / GROUP;
                        let leaf = Word(self.groups[group].load(Ordering::Acquire)).leaf(slot);
                        *value = self.leaves[leaf].load(Ordering::Relaxed);
                    }
                }
                depth += STRIDE;
            }
            let default = self.default.load(Ordering::Acquire) as u32;
            for (at, (found, value)) in (start..).zip(found.iter_mut().zip(value)) {
                let value = if value == NOTHING { default } else { value & !CHILD };
                *found = match value {
                    NOTHING => None,
                    value => RouteSlot::pick(&self.routes, value, &|| hash(at)),
                };
            }
            fence(Ordering::Acquire);
            if self.changes.load(Ordering::Relaxed) != changes {
                for (at, (found, key)) in (start..).zip(found.iter_mut().zip(keys)) {
                    *found = self.lookup_flow(*key, || hash(at));
                }
            }
        }
    }

    /// One walk; `None` where something that it read was changed meanwhile.
    #[inline(always)]
    fn attempt(
        &self,
        key: K,
        pick: &impl Fn(&[RouteSlot], u32) -> Option<Route>,
    ) -> Option<Option<Route>> {
        let mut slot = key.bits(0, self.root_bits);
        let mut group = &self.groups[slot / GROUP];
        let mut word = Word(group.load(Ordering::Acquire));
        let mut depth = self.root_bits;
        let value = loop {
            let value = self.leaves[word.leaf(slot)].load(Ordering::Relaxed);
            if value & CHILD == 0 {
                break value;
            }
            if depth >= K::BITS {
                return None;
            }
            slot = key.bits(depth, STRIDE);
            depth += STRIDE;
            let below = &self.groups[(value & !CHILD) as usize + slot / GROUP];
            let next = Word(below.load(Ordering::Acquire));
            // The node was still this group's when its word was read.
            fence(Ordering::Acquire);
            if group.load(Ordering::Relaxed) != word.0 {
                return None;
            }
            (group, word) = (below, next);
        };
        let default = self.default.load(Ordering::Acquire);
        let found = match if value == NOTHING { default as u32 } else { value } {
            NOTHING => None,
            value => pick(&self.routes, value),
        };
        fence(Ordering::Acquire);
        let same = group.load(Ordering::Relaxed) == word.0
            && self.default.load(Ordering::Relaxed) == default;
        same.then_some(found)
    }

    /// Memory that readers of this table share, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.groups) + size_of_val(&*self.leaves) + size_of_val(&*self.routes)
    }
}

#[cfg(test)]
mod tests;
