//! The one who changes a forwarding table: all of it at first, then group by group.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::Arc;

use super::leaves::Leaves;
use super::slots::RouteSlot;
use super::{CHILD, Fib, GROUP, LEAVES_LIMIT, NODE_GROUPS, NOTHING, STRIDE, Word};
use crate::key::Key;
use crate::route::Route;

/// From this many prefixes on the root resolves 16 and 24 bits, for 16 KiB and 4 MiB.
const ROOT_16_FROM_PREFIXES: usize = 64;
const ROOT_24_FROM_PREFIXES: usize = 8192;

/// A prefix with the value that a look-up gives. `key` has no bits set behind `len`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<K> {
    pub key: K,
    pub len: u8,
    /// The route's number: at least 1.
    pub value: u32,
}

/// Where the writer of a table finds the prefixes that it is made of.
pub(crate) trait Prefixes<K> {
    /// All entries between two keys, both included, sorted by key and then length, but those of
    /// length 0.
    fn within(&self, first: K, last: K) -> impl Iterator<Item = Entry<K>>;

    /// The value of the longest prefix that covers `key` and is shorter than `len` bits, the one of
    /// length 0 left out.
    fn covering(&self, key: K, len: u8) -> u32;
}

/// There is no room left in the arrays, which readers use: a new table has to be built.
#[derive(Debug)]
pub(crate) struct Full;

/// Where a node is, and which bits it resolves.
#[derive(Clone, Copy)]
struct Node {
    /// Its first group.
    first: usize,
    /// The bits in front of those that it resolves.
    offset: u32,
    /// Bits that it resolves.
    width: u32,
}

impl Node {
    fn depth(self) -> u32 {
        self.offset + self.width
    }

    fn slot(self, key: impl Key) -> usize {
        key.bits(self.offset, self.width)
    }
}

/// A forwarding table with what its writer knows of it.
pub(crate) struct FibWriter<K> {
    fib: Arc<Fib<K>>,
    leaves: Leaves,
    /// First groups of nodes that are free.
    nodes: Vec<u32>,
    /// Groups in use or free: the nodes' end.
    groups: usize,
}

impl<K: Key> FibWriter<K> {
    /// A table of `entries`, which are sorted by key and then length, none of them of length 0,
    /// with room for `routes` numbers of routes.
    pub fn build(entries: &[Entry<K>], routes: usize) -> Self {
        let root_bits = match entries.len() {
            ROOT_24_FROM_PREFIXES.. => 24,
            ROOT_16_FROM_PREFIXES.. => 16,
            _ => 8,
        };
        let groups = (1_usize << root_bits) / GROUP;
        let fib = Fib {
            root_bits,
            groups: fresh(groups, AtomicU64::default),
            leaves: (0..routes as u32).map(AtomicU32::new).collect(),
            routes: fresh(routes, RouteSlot::default),
            default: AtomicU64::new(0),
            changes: AtomicU32::new(0),
            family: core::marker::PhantomData,
        };
        let leaves = Leaves::new(routes as u32, routes as u32);
        let mut writer = Self { fib: Arc::new(fib), leaves, nodes: Vec::new(), groups };
        // Nobody shares the table yet: what it lacks is added.
        let filled = writer.fill(writer.root(), 0..groups, entries, NOTHING);
        debug_assert!(filled.is_ok());
        writer.leave_room();
        writer
    }

    /// Returns the table that readers share.
    pub fn fib(&self) -> &Arc<Fib<K>> {
        &self.fib
    }

    /// Returns how many numbers of routes there is room for, 0 included, which is none.
    pub fn routes(&self) -> usize {
        self.fib.routes.len()
    }

    /// Memory that the writer alone needs, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.leaves.memory_bytes() + self.nodes.capacity() * size_of::<u32>()
    }

    /// Says what a number stands for. No value may be this number.
    pub fn set_route(&mut self, number: u32, route: &Route) {
        self.begin();
        self.fib.routes[number as usize].write(route);
    }

    /// The same for a number that stands for several routes, which share flows by their weights.
    pub fn set_several(&mut self, number: u32, members: &[u32], weight: impl Fn(u32) -> u16) {
        self.begin();
        self.fib.routes[number as usize].write_several(members, weight);
    }

    /// The route of everything that no entry covers; [`NOTHING`] for none.
    pub fn set_default(&mut self, value: u32) {
        self.begin();
        let version = (self.fib.default.load(Ordering::Relaxed) >> 32).wrapping_add(1) & 0x1f;
        self.fib.default.store(version << 32 | u64::from(value), Ordering::Release);
    }

    /// Shows readers what became of the prefix of `len` bits, which is not 0.
    ///
    /// Where it is [`Full`], readers see a part of the change, and a new table has to be built.
    pub fn update(&mut self, key: K, len: u8, prefixes: &impl Prefixes<K>) -> Result<(), Full> {
        let len = u32::from(len);
        let mut node = self.root();
        loop {
            let depth = node.depth();
            let is_deeper = |entry: Entry<K>| u32::from(entry.len) > depth;
            if len > depth
                && let Some(first) = self.below(node, key)
                && prefixes.within(key.network(depth as u8), key.last(depth as u8)).any(is_deeper)
            {
                node = Node { first, offset: depth, width: STRIDE };
                continue;
            }
            // All slots of the groups that the prefix covers, or of the one that it is in.
            let whole = len.min(depth - GROUP.ilog2()) as u8;
            let (first, last) = (key.network(whole), key.last(whole));
            let groups = node.slot(first) / GROUP..node.slot(last) / GROUP + 1;
            let entries: Vec<_> =
                prefixes.within(first, last).filter(|entry| entry.len >= whole).collect();
            return self.fill(node, groups, &entries, prefixes.covering(first, whole));
        }
    }

    fn root(&self) -> Node {
        Node { first: 0, offset: 0, width: self.fib.root_bits }
    }

    /// The node below the slot of a key.
    fn below(&self, node: Node, key: K) -> Option<usize> {
        let slot = node.slot(key);
        let word = self.word(node.first + slot / GROUP);
        let value = self.fib.leaves[word.leaf(slot)].load(Ordering::Relaxed);
        (value & CHILD != 0).then_some((value & !CHILD) as usize)
    }

    fn word(&self, group: usize) -> Word {
        Word(self.fib.groups[group].load(Ordering::Relaxed))
    }

    /// Works out some groups of a node anew and publishes those that changed. `entries` are all
    /// that lie in them and are longer than what `inherited` is the value of.
    fn fill(
        &mut self,
        node: Node,
        groups: Range<usize>,
        entries: &[Entry<K>],
        inherited: u32,
    ) -> Result<(), Full> {
        // Prefixes of several whole groups, each within the one before it: their end and value.
        let mut covers = vec![(groups.end, inherited)];
        let mut left = entries;
        for group in groups {
            while covers.last().is_some_and(|&(end, _)| end <= group) {
                covers.pop();
            }
            let mut values = [covers.last().map_or(NOTHING, |&(_, value)| value); GROUP];
            let old = self.values(node.first + group);
            while let Some(entry) = left.first()
                && node.slot(entry.key) / GROUP == group
            {
                let slot = node.slot(entry.key);
                let at = slot % GROUP;
                let Some(free_bits) = node.depth().checked_sub(u32::from(entry.len)) else {
                    // Everything longer than this node's depth in this slot; what is shorter
                    // sorts before it.
                    let deeper = left.iter().take_while(|e| node.slot(e.key) == slot).count();
                    let (deeper, behind) = left.split_at(deeper);
                    values[at] = self.fill_below(node, old[at], deeper, values[at])?;
                    left = behind;
                    continue;
                };
                let slots = 1_usize << free_bits;
                if slots >= GROUP {
                    values = [entry.value; GROUP];
                    covers.push((group + slots / GROUP, entry.value));
                } else {
                    values[at..at + slots].fill(entry.value);
                }
                left = &left[1..];
            }
            self.set_group(node.first + group, &old, &values)?;
        }
        Ok(())
    }

    /// The node below a slot whose value was `old`; a new one where there was none.
    fn fill_below(
        &mut self,
        node: Node,
        old: u32,
        entries: &[Entry<K>],
        inherited: u32,
    ) -> Result<u32, Full> {
        let first = if old & CHILD != 0 { old & !CHILD } else { self.take_node()? };
        let below = Node { first: first as usize, offset: node.depth(), width: STRIDE };
        self.fill(below, 0..NODE_GROUPS, entries, inherited)?;
        Ok(first | CHILD)
    }

    /// The values of a group's slots.
    fn values(&self, group: usize) -> [u32; GROUP] {
        let word = self.word(group);
        core::array::from_fn(|slot| self.fib.leaves[word.leaf(slot)].load(Ordering::Relaxed))
    }

    /// Publishes the values of a group, and frees what is not reached any more.
    fn set_group(
        &mut self,
        group: usize,
        old: &[u32; GROUP],
        values: &[u32; GROUP],
    ) -> Result<(), Full> {
        if old == values {
            return Ok(());
        }
        self.begin();
        let (mut bits, mut runs, mut block) = (0, 1, [values[0]; GROUP]);
        for slot in 1..GROUP {
            if values[slot] != values[slot - 1] {
                bits |= 1 << slot;
                block[runs] = values[slot];
                runs += 1;
            }
        }
        // One route for all slots: the front of the array has it.
        let base = if runs == 1 && (values[0] as usize) < self.routes() {
            values[0]
        } else {
            let base = self.take_leaves(runs)?;
            for (leaf, value) in self.fib.leaves[base as usize..].iter().zip(&block[..runs]) {
                leaf.store(*value, Ordering::Relaxed);
            }
            base
        };
        let was = self.word(group);
        self.fib.groups[group].store(Word::after(was, bits, base).0, Ordering::Release);
        if was.base() >= self.routes() {
            self.leaves.give_back(was.base() as u32, was.values());
        }
        for &value in old {
            if value & CHILD != 0 && !values.contains(&value) {
                self.free_node((value & !CHILD) as usize)?;
            }
        }
        Ok(())
    }

    /// Empties a node that no slot leads to, with all below it.
    fn free_node(&mut self, first: usize) -> Result<(), Full> {
        for group in first..first + NODE_GROUPS {
            self.set_group(group, &self.values(group), &[NOTHING; GROUP])?;
        }
        self.nodes.push(first as u32);
        Ok(())
    }

    /// Counts a change before anything of it is stored. Whoever reads what follows sees the count,
    /// and everything that was stored before it.
    fn begin(&mut self) {
        let changes = self.fib.changes.load(Ordering::Relaxed);
        self.fib.changes.store(changes.wrapping_add(1), Ordering::Release);
        fence(Ordering::Release);
    }

    fn take_leaves(&mut self, values: usize) -> Result<u32, Full> {
        loop {
            if let Some(block) = self.leaves.take(values) {
                return Ok(block);
            }
            let more = self.fib.leaves.len() / 16 + GROUP;
            self.grow_leaves(more)?;
        }
    }

    fn take_node(&mut self) -> Result<u32, Full> {
        if let Some(first) = self.nodes.pop() {
            return Ok(first);
        }
        if self.groups == self.fib.groups.len() {
            let more = (self.fib.groups.len() / 16 / NODE_GROUPS + 1) * NODE_GROUPS;
            self.grow_groups(more)?;
        }
        self.groups += NODE_GROUPS;
        Ok((self.groups - NODE_GROUPS) as u32)
    }

    /// More values, which is possible while nobody shares the table.
    fn grow_leaves(&mut self, more: usize) -> Result<(), Full> {
        let fib = Arc::get_mut(&mut self.fib).ok_or(Full)?;
        let end = fib.leaves.len() + more;
        debug_assert!(end <= LEAVES_LIMIT);
        fib.leaves.reserve_exact(more);
        fib.leaves.resize_with(end, AtomicU32::default);
        self.leaves.grown(end as u32);
        Ok(())
    }

    fn grow_groups(&mut self, more: usize) -> Result<(), Full> {
        let fib = Arc::get_mut(&mut self.fib).ok_or(Full)?;
        let end = fib.groups.len() + more;
        fib.groups.reserve_exact(more);
        fib.groups.resize_with(end, AtomicU64::default);
        Ok(())
    }

    /// Leaves room for changes: a sixteenth of what is there, and some for a small table.
    fn leave_room(&mut self) {
        let leaves = self.fib.leaves.len() / 16 + 8 * GROUP;
        let nodes = (self.groups - self.root_groups()) / NODE_GROUPS;
        let groups = (nodes / 16 + 8) * NODE_GROUPS;
        let here = self.leaves.fresh() as usize;
        let _ = self.grow_leaves(leaves.saturating_sub(here));
        let here = self.fib.groups.len() - self.groups;
        let _ = self.grow_groups(groups.saturating_sub(here));
    }

    /// Returns true if no prefix is in the table, and all of it is free.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let nodes = (self.groups - self.root_groups()) / NODE_GROUPS;
        self.leaves.free_values() as usize == self.fib.leaves.len() - self.routes()
            && self.nodes.len() == nodes
            && (0..self.groups).all(|group| self.values(group) == [NOTHING; GROUP])
    }

    fn root_groups(&self) -> usize {
        (1 << self.fib.root_bits) / GROUP
    }
}

fn fresh<T>(count: usize, new: impl FnMut() -> T) -> Vec<T> {
    core::iter::repeat_with(new).take(count).collect()
}
