//! Longest-prefix match: the read-only structure, one body for both families.
//!
//! A multiway trie of six bits a step whose nodes keep, instead of 64 pointers, two bit vectors
//! and two base indices, so that a child is found by counting bits (Asai and Ohara, "Poptrie",
//! SIGCOMM 2015). Children of a node lie side by side, and a run of slots with the same answer
//! is one leaf. A large table gets its first 16 bits resolved by one array read.

/// Bits a node resolves.
const STRIDE: u32 = 6;
const SLOTS: usize = 1 << STRIDE;
/// Bits the array in front of a large trie resolves.
const DIRECT_BITS: u32 = 16;
/// From this many prefixes on, the array (256 KiB) pays.
const DIRECT_FROM_PREFIXES: usize = 2048;
/// In the array in front: the rest is a leaf's value, not a node's index.
const IS_LEAF: u32 = 1 << 31;

/// The value that stands for "no prefix covers this".
pub(crate) const NOTHING: u32 = 0;
/// Values must be below this.
pub(crate) const VALUES_LIMIT: u32 = IS_LEAF;

/// An address as a number whose first bit is its most significant one.
pub(crate) trait Key: Copy + Ord {
    /// Bits of an address.
    const BITS: u32;

    /// `width` bits from bit `offset` on, counted from the front; what lies beyond the end is
    /// zero. `offset` is below [`Self::BITS`], `width` between 1 and 16.
    fn bits(self, offset: u32, width: u32) -> usize;
}

impl Key for u32 {
    const BITS: u32 = 32;

    #[inline(always)]
    fn bits(self, offset: u32, width: u32) -> usize {
        ((self << offset) >> (32 - width)) as usize
    }
}

impl Key for u128 {
    const BITS: u32 = 128;

    #[inline(always)]
    fn bits(self, offset: u32, width: u32) -> usize {
        ((self << offset) >> (128 - width)) as usize
    }
}

/// A prefix to build from. `key` has no bits set behind `len`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<K> {
    pub key: K,
    pub len: u8,
    /// What a look-up gives: at least 1, below [`VALUES_LIMIT`].
    pub value: u32,
}

/// Six bits' worth of trie. A slot is either a child or a leaf.
#[derive(Clone, Copy, Default)]
struct Node {
    /// Slots that go on to a child.
    children: u64,
    /// Slots at which another leaf's value begins; it holds up to the next such slot.
    leaf_starts: u64,
    first_child: u32,
    first_leaf: u32,
}

const _: () = assert!(size_of::<Node>() == 24);

/// The trie. Immutable: built aside, then published whole.
pub(crate) struct Trie<K> {
    nodes: Vec<Node>,
    leaves: Vec<u32>,
    /// Empty, or one word for each value of the first [`DIRECT_BITS`].
    direct: Vec<u32>,
    /// Where a look-up begins when there is no array in front: as a word of that array.
    root: u32,
    key: core::marker::PhantomData<K>,
}

impl<K: Key> Trie<K> {
    /// Builds from prefixes sorted by `(key, len)`, none twice. Takes time linear in their number.
    pub(crate) fn build(entries: &[Entry<K>]) -> Self {
        Self::build_with(entries, entries.len() >= DIRECT_FROM_PREFIXES)
    }

    fn build_with(entries: &[Entry<K>], direct: bool) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| (a.key, a.len) < (b.key, b.len)));
        let mut trie = Self {
            nodes: Vec::new(),
            leaves: Vec::new(),
            direct: Vec::new(),
            root: IS_LEAF | NOTHING,
            key: core::marker::PhantomData,
        };
        // A prefix of no bits is what everything inherits; it sorts first.
        let (inherited, entries) = match entries.split_first() {
            Some((first, rest)) if first.len == 0 => (first.value, rest),
            _ => (NOTHING, entries),
        };
        trie.root = IS_LEAF | inherited;
        if direct {
            trie.build_direct(entries, inherited);
        } else if !entries.is_empty() {
            trie.root = 0;
            trie.nodes.push(Node::default());
            trie.build_node(0, entries, 0, inherited);
        }
        trie.nodes.shrink_to_fit();
        trie.leaves.shrink_to_fit();
        trie
    }

    fn build_direct(&mut self, entries: &[Entry<K>], inherited: u32) {
        let mut words = vec![IS_LEAF | inherited; 1 << DIRECT_BITS];
        let mut below = Vec::new();
        split(entries, 0, DIRECT_BITS, |slots, part| match part {
            Part::Leaf(value) => words[slots].fill(IS_LEAF | value),
            Part::Below(entries) => below.push((slots.start, entries)),
        });
        for (slot, entries) in below {
            let inherited = words[slot] & !IS_LEAF;
            let node = self.nodes.len();
            self.nodes.push(Node::default());
            self.build_node(node, entries, DIRECT_BITS, inherited);
            words[slot] = node as u32;
        }
        self.direct = words;
    }

    /// Fills node `at`, which resolves the bits from `offset` on, and everything below it. Every
    /// entry is longer than `offset` and agrees with the others in the bits before it.
    fn build_node(&mut self, at: usize, entries: &[Entry<K>], offset: u32, inherited: u32) {
        let mut values = [inherited; SLOTS];
        let mut below: [&[Entry<K>]; SLOTS] = [&[]; SLOTS];
        split(entries, offset, STRIDE, |slots, part| match part {
            Part::Leaf(value) => values[slots].fill(value),
            Part::Below(entries) => below[slots.start] = entries,
        });
        let mut node = Node {
            first_child: self.nodes.len() as u32,
            first_leaf: self.leaves.len() as u32,
            ..Node::default()
        };
        let mut last = None;
        for slot in 0..SLOTS {
            if !below[slot].is_empty() {
                node.children |= 1 << slot;
                self.nodes.push(Node::default());
            } else if last != Some(values[slot]) {
                node.leaf_starts |= 1 << slot;
                self.leaves.push(values[slot]);
                last = Some(values[slot]);
            }
        }
        self.nodes[at] = node;
        let mut child = node.first_child as usize;
        for slot in 0..SLOTS {
            if !below[slot].is_empty() {
                self.build_node(child, below[slot], offset + STRIDE, values[slot]);
                child += 1;
            }
        }
    }

    /// The value of the longest prefix that covers `key`, or [`NOTHING`]. Reads only.
    #[inline]
    pub(crate) fn lookup(&self, key: K) -> u32 {
        let (mut word, mut offset) = if self.direct.is_empty() {
            (self.root, 0)
        } else {
            (self.direct[key.bits(0, DIRECT_BITS)], DIRECT_BITS)
        };
        if word & IS_LEAF != 0 {
            return word & !IS_LEAF;
        }
        loop {
            let node = &self.nodes[word as usize];
            let slot = key.bits(offset, STRIDE);
            // The slot's own bit and all before it; for slot 63 the shift falls off the end.
            let upto = (2_u64 << slot).wrapping_sub(1);
            if node.children >> slot & 1 == 0 {
                let leaf = node.first_leaf + (node.leaf_starts & upto).count_ones() - 1;
                return self.leaves[leaf as usize];
            }
            word = node.first_child + (node.children & upto).count_ones() - 1;
            offset += STRIDE;
        }
    }
}

/// What the entries of some slots come to.
enum Part<'a, K> {
    /// A prefix that ends within these slots and gives them their value. Parts come in an order
    /// in which a later one is the longer prefix.
    Leaf(u32),
    /// Prefixes that go on below this one slot.
    Below(&'a [Entry<K>]),
}

/// Deals sorted entries out to the slots of `width` bits at `offset`.
fn split<'a, K: Key>(
    entries: &'a [Entry<K>],
    offset: u32,
    width: u32,
    mut deal: impl FnMut(core::ops::Range<usize>, Part<'a, K>),
) {
    let mut at = 0;
    while let Some(entry) = entries.get(at) {
        let slot = entry.key.bits(offset, width);
        let len = u32::from(entry.len);
        debug_assert!(len > offset && len <= K::BITS);
        if len <= offset + width {
            deal(slot..slot + (1 << (offset + width - len)), Part::Leaf(entry.value));
            at += 1;
        } else {
            // A prefix that ends here has only zeros behind the slot, so it came before these.
            let rest = &entries[at..];
            let run = rest.partition_point(|e| e.key.bits(offset, width) <= slot);
            deal(slot..slot + 1, Part::Below(&rest[..run]));
            at += run;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mask<K: Key + Into<u128>>(len: u8) -> u128 {
        if len == 0 { 0 } else { u128::MAX << (K::BITS - u32::from(len)) }
    }

    /// Sorted entries of the last value given for each prefix.
    fn entries<K: Key + Into<u128>>(
        raw: &[(u128, u8)],
        narrow: impl Fn(u128) -> K,
    ) -> Vec<Entry<K>> {
        let mut map = std::collections::BTreeMap::new();
        for (i, &(key, len)) in raw.iter().enumerate() {
            let len = (u32::from(len) % (K::BITS + 1)) as u8;
            map.insert((narrow(key & mask::<K>(len)), len), i as u32 + 1);
        }
        map.into_iter().map(|((key, len), value)| Entry { key, len, value }).collect()
    }

    fn naive<K: Key + Into<u128>>(entries: &[Entry<K>], key: u128) -> u32 {
        let covers = |e: &&Entry<K>| e.key.into() == key & mask::<K>(e.len);
        entries.iter().filter(covers).max_by_key(|e| e.len).map_or(NOTHING, |e| e.value)
    }

    fn agrees<K: Key + Into<u128>>(
        raw: &[(u128, u8)],
        probes: &[u128],
        direct: bool,
        narrow: impl Fn(u128) -> K,
    ) {
        let entries = entries(raw, &narrow);
        let trie = Trie::build_with(&entries, direct);
        // Both edges of every prefix and their neighbours, and addresses at random.
        let edges = entries.iter().flat_map(|e| {
            let first: u128 = e.key.into();
            let last = first | !mask::<K>(e.len);
            [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
        });
        for probe in edges.chain(probes.iter().copied()) {
            let probe = narrow(probe);
            assert_eq!(trie.lookup(probe), naive(&entries, probe.into()));
        }
    }

    /// Prefixes that share their front with each other often enough to nest.
    fn nested() -> impl Strategy<Value = Vec<(u128, u8)>> {
        let key = prop_oneof![
            any::<u128>(),
            any::<u32>().prop_map(u128::from),
            (0_u128..8, 0_u32..128).prop_map(|(bits, at)| bits.rotate_right(at + 3)),
        ];
        prop::collection::vec((key, any::<u8>()), 0..80)
    }

    proptest! {
        #[test]
        fn longest_match_as_a_naive_search_v4(
            raw in nested(), probes in prop::collection::vec(any::<u128>(), 40), direct: bool,
        ) {
            // The top and the bottom 32 bits both, so that keys nest and spread.
            agrees::<u32>(&raw, &probes, direct, |k| k as u32);
            let high: Vec<_> = raw.iter().map(|&(k, len)| (k >> 96, len)).collect();
            agrees::<u32>(&high, &probes, direct, |k| k as u32);
        }

        #[test]
        fn longest_match_as_a_naive_search_v6(
            raw in nested(), probes in prop::collection::vec(any::<u128>(), 40), direct: bool,
        ) {
            agrees::<u128>(&raw, &probes, direct, |k| k);
        }
    }

    #[test]
    fn an_empty_trie_finds_nothing() {
        for direct in [false, true] {
            let trie = Trie::<u32>::build_with(&[], direct);
            assert_eq!(trie.lookup(0), NOTHING);
            assert_eq!(trie.lookup(u32::MAX), NOTHING);
        }
    }
}
