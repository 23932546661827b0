//! The one who changes a forwarding table: all of it at first, then line by line.

use core::ops::Range;
use std::sync::{Arc, OnceLock};

use millstream_packet::BitInstructions;

use super::hops::{Hops, Several};
use super::line::{Contents, Header, LINES_LIMIT, SLOTS, Seen, values};
use super::space::Space;
use super::sync::{AtomicU32, Ordering, Words, fence};
use super::{ASIDE, CHILD, Fib, NODE_LINES, NOTHING, ROOT, STRIDE};
use crate::key::Key;
use crate::route::Route;

/// From this many prefixes on the root resolves 16 and 24 bits, for 32 KiB and 8 MiB.
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
    /// Returns all entries between two keys, both included, sorted by key and then length, but
    /// those of length 0.
    fn within(&self, first: K, last: K) -> impl Iterator<Item = Entry<K>>;

    /// Returns the value of the longest prefix that covers `key` and is shorter than `len` bits,
    /// the one of length 0 left out.
    fn covering(&self, key: K, len: u8) -> u32;
}

/// There is no room left in the arrays, which readers use: a new table has to be built.
#[derive(Debug)]
pub(crate) struct Full;

/// Where a node is, and which bits it resolves.
#[derive(Clone, Copy)]
struct Node {
    /// Its first line.
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
    space: Space,
    /// Nobody shares the table yet.
    is_building: bool,
}

impl<K: Key> FibWriter<K> {
    /// Returns a table of `entries`, which are sorted by key and then length, none of them of
    /// length 0, with room for `routes` numbers of routes.
    pub fn build(entries: &[Entry<K>], routes: usize) -> Self {
        let root_bits = match entries.len() {
            ROOT_24_FROM_PREFIXES.. => 24,
            ROOT_16_FROM_PREFIXES.. => 16,
            _ => 8,
        };
        let begin = ROOT + (1 << root_bits) / SLOTS;
        let fib = Fib {
            root_bits,
            behind_root: begin,
            words: Words::zeroed(begin),
            bits: BitInstructions::detect(),
            routes: core::iter::repeat_with(OnceLock::new).take(routes).collect(),
            default: AtomicU32::new(NOTHING),
            family: core::marker::PhantomData,
        };
        let space = Space::new(begin, begin);
        let mut writer = Self { fib: Arc::new(fib), space, is_building: true };
        // The table grows while it is filled.
        let filled = writer.fill(writer.root(), 0..1 << root_bits, entries, NOTHING);
        debug_assert!(filled.is_ok());
        writer.leave_room();
        writer.is_building = false;
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

    /// Returns the memory that the writer alone needs, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.space.memory_bytes()
    }

    /// Says what a number stands for, once for all the time of this table.
    pub fn set_route(&mut self, number: u32, route: &Route) {
        let first = self.fib.routes[number as usize].set(Hops::One(*route));
        debug_assert!(first.is_ok(), "number {number} was another's");
    }

    /// Sets the routes that a number stands for, which share flows by their weights.
    pub fn set_several(&mut self, number: u32, members: &[u32], weight: impl Fn(u32) -> u16) {
        let several = Hops::Several(Several::new(members, weight).into());
        let first = self.fib.routes[number as usize].set(several);
        debug_assert!(first.is_ok(), "number {number} was another's");
    }

    /// Sets the route of everything that no entry covers; [`NOTHING`] for none.
    pub fn set_default(&mut self, value: u32) {
        self.fib.default.store(value, Ordering::Release);
    }

    /// Shows readers what became of the prefix of `len` bits, which is not 0.
    ///
    /// Where it is [`Full`], readers see a part of the change, and a new table has to be built.
    pub fn update(&mut self, key: K, len: u8, prefixes: &impl Prefixes<K>) -> Result<(), Full> {
        let mut node = self.root();
        loop {
            let depth = node.depth() as u8;
            let is_deeper = |entry: Entry<K>| entry.len > depth;
            if len > depth
                && let Some(first) = self.below(node, key)
                && prefixes.within(key.network(depth), key.last(depth)).any(is_deeper)
            {
                node = Node { first, offset: depth.into(), width: STRIDE };
                continue;
            }
            // The slots that the prefix covers, or the one that it is in.
            let whole = len.min(depth);
            let (first, last) = (key.network(whole), key.last(whole));
            let slots = node.slot(first)..node.slot(last) + 1;
            let entries: Vec<_> =
                prefixes.within(first, last).filter(|entry| entry.len >= whole).collect();
            return self.fill(node, slots, &entries, prefixes.covering(first, whole));
        }
    }

    fn root(&self) -> Node {
        Node { first: ROOT, offset: 0, width: self.fib.root_bits }
    }

    /// Returns the node below the slot of a key.
    fn below(&self, node: Node, key: K) -> Option<usize> {
        let slot = node.slot(key);
        let words = &*self.fib.words;
        let value = Seen::read(words, node.first + slot / SLOTS)?.value::<K>(words, slot)?;
        (value & CHILD != 0).then(|| self.fib.first_of(value))
    }

    /// Works out some slots of a node anew and publishes the lines that changed. `entries` are all
    /// that lie in them and are longer than what `inherited` is the value of.
    fn fill(
        &mut self,
        node: Node,
        slots: Range<usize>,
        entries: &[Entry<K>],
        inherited: u32,
    ) -> Result<(), Full> {
        // Prefixes that reach over several lines, each within the one before it: end and value.
        let mut covers = vec![(slots.end, inherited)];
        let mut left = entries;
        for line in slots.start / SLOTS..slots.end.div_ceil(SLOTS) {
            let begin = slots.start.max(line * SLOTS);
            let end = slots.end.min((line + 1) * SLOTS);
            while covers.last().is_some_and(|&(end, _)| end <= begin) {
                covers.pop();
            }
            let old = values::<K>(&self.fib.words, node.first + line);
            let mut new = old;
            let cover = covers.last().map_or(NOTHING, |&(_, value)| value);
            new[begin % SLOTS..][..end - begin].fill(cover);
            while let Some(entry) = left.first()
                && node.slot(entry.key) < end
            {
                let slot = node.slot(entry.key);
                let at = slot % SLOTS;
                let Some(free_bits) = node.depth().checked_sub(u32::from(entry.len)) else {
                    // Everything longer than this node's depth in this slot; what is shorter
                    // sorts before it.
                    let deeper = left.iter().take_while(|e| node.slot(e.key) == slot).count();
                    let (deeper, behind) = left.split_at(deeper);
                    new[at] = self.fill_below(node, old[at], deeper, new[at])?;
                    left = behind;
                    continue;
                };
                let upto = slot + (1 << free_bits);
                new[at..][..upto.min(end) - slot].fill(entry.value);
                if upto > end {
                    covers.push((upto, entry.value));
                }
                left = &left[1..];
            }
            self.set_line(node.first + line, &old, &new)?;
        }
        Ok(())
    }

    /// Fills the node below a slot whose value was `old`, or a new one where there was none.
    /// Returns its value.
    fn fill_below(
        &mut self,
        node: Node,
        old: u32,
        entries: &[Entry<K>],
        inherited: u32,
    ) -> Result<u32, Full> {
        let first = match old & CHILD {
            0 => self.take(|space| space.take_node())? as usize,
            _ => self.fib.first_of(old),
        };
        let below = Node { first, offset: node.depth(), width: STRIDE };
        self.fill(below, 0..1 << STRIDE, entries, inherited)?;
        Ok(!(((first - self.fib.behind_root) / NODE_LINES) as u32))
    }

    /// Publishes the values of a line, and frees what is not reached any more.
    fn set_line(&mut self, at: usize, old: &[u32; SLOTS], new: &[u32; SLOTS]) -> Result<(), Full> {
        if old == new {
            return Ok(());
        }
        let contents = Contents::new::<K>(new);
        let block = match contents.outside() {
            0 => 0,
            lines => self.take(|space| space.take_block(lines))?,
        };
        // The lines written from here on may have been another block's: readers that still read
        // them as such find that the header has changed.
        fence(Ordering::Release);
        let words = &*self.fib.words;
        contents.write_block(words, block);
        let (to, aside) = (&words[at], &words[ASIDE]);
        let was = Header::read(to, Ordering::Relaxed);
        let former = was.block::<K>(to, at);
        let mut last = was;
        if !self.is_building {
            contents.write(aside);
            contents.header(ASIDE, block).write(aside, Ordering::Relaxed);
            last = Header::moved(ASIDE).after(was);
            last.write(to, Ordering::Release);
            fence(Ordering::Release);
        }
        contents.write(to);
        contents.header(at, block).after(last).write(to, Ordering::Release);
        if let Some((block, lines)) = former {
            self.space.give_block(block, lines);
        }
        for (old, new) in old.iter().zip(new) {
            if old & CHILD != 0 && old != new {
                self.free_node(self.fib.first_of(*old))?;
            }
        }
        Ok(())
    }

    /// Empties a node that no slot leads to, with all below it.
    fn free_node(&mut self, first: usize) -> Result<(), Full> {
        for line in first..first + NODE_LINES {
            self.set_line(line, &values::<K>(&self.fib.words, line), &[NOTHING; SLOTS])?;
        }
        self.space.give_node(first as u32);
        Ok(())
    }

    /// Takes lines; while nobody shares the table there are more where these are too few.
    fn take(&mut self, of: impl Fn(&mut Space) -> Option<u32>) -> Result<u32, Full> {
        loop {
            if let Some(first) = of(&mut self.space) {
                return Ok(first);
            }
            self.resize(self.space.fresh() / 2 * 3 + 64)?;
        }
    }

    fn resize(&mut self, lines: usize) -> Result<(), Full> {
        let fib = Arc::get_mut(&mut self.fib).filter(|_| self.is_building).ok_or(Full)?;
        debug_assert!(lines <= LINES_LIMIT);
        fib.words.resize(lines);
        self.space.resized(lines);
        Ok(())
    }

    /// Leaves room for changes: a sixteenth of what is there beside the root, and some for a small
    /// table.
    fn leave_room(&mut self) {
        let used = self.space.fresh();
        let _ = self.resize(used + (used - self.fib.behind_root) / 16 + 64);
    }

    /// Returns true if no prefix is in the table, and all of it is free.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let behind_root = self.fib.behind_root;
        self.space.free_lines() == self.fib.words.len() - behind_root
            && (ROOT..behind_root)
                .all(|line| values::<K>(&self.fib.words, line) == [NOTHING; SLOTS])
    }
}
