//! A map in key order whose nodes live in one vector: a treap. Every operation is O(log n)
//! expected; the vector keeps freed nodes, so that a steady state allocates nothing.

const NIL: u32 = u32::MAX;

struct Node<V> {
    key: u64,
    priority: u32,
    left: u32,
    right: u32,
    value: Option<V>,
}

/// Keys in order, each with a value. Priorities come from a seeded generator: equal seeds behave
/// equally, and a stranger who does not know the seed cannot shape the tree.
pub(crate) struct OrderedMap<V> {
    nodes: Vec<Node<V>>,
    root: u32,
    free: u32,
    len: usize,
    random: u32,
}

/// Nodes that the vector grows by at least.
const STEP: usize = 16;

impl<V> OrderedMap<V> {
    /// Bytes of memory of one node.
    pub(crate) const NODE_BYTES: usize = size_of::<Node<V>>();

    /// Nodes for which there is room with the first key.
    pub(crate) const STEP_NODES: usize = STEP;

    pub(crate) fn new(seed: u32) -> Self {
        OrderedMap { nodes: Vec::new(), root: NIL, free: NIL, len: 0, random: seed | 1 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Nodes that the vector has with one key more.
    pub(crate) fn capacity_with_one_more(&self) -> usize {
        match self.nodes.capacity() {
            capacity if self.free != NIL || self.nodes.len() < capacity => capacity,
            capacity => capacity + STEP.max(capacity / 4),
        }
    }

    /// Gives memory back that is kept for many more keys than there are. Linear in these.
    pub(crate) fn shrink(&mut self) {
        if self.nodes.capacity() <= STEP + 2 * self.len {
            return;
        }
        let mut fresh = OrderedMap::new(self.random);
        fresh.nodes.reserve_exact(self.len);
        while let Some((key, _)) = self.first()
            && let Some(value) = self.remove(key)
        {
            fresh.insert(key, value);
        }
        *self = fresh;
    }

    fn node(&self, at: u32) -> &Node<V> {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node<V> {
        &mut self.nodes[at as usize]
    }

    /// Adds `key`, which must not be present.
    pub(crate) fn insert(&mut self, key: u64, value: V) {
        // xorshift32
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let priority = self.random;
        let node = Node { key, priority, left: NIL, right: NIL, value: Some(value) };
        let new = if self.free != NIL {
            let at = self.free;
            self.free = self.node(at).left;
            *self.node_mut(at) = node;
            at
        } else {
            if self.nodes.len() == self.nodes.capacity() {
                self.nodes.reserve_exact(self.capacity_with_one_more() - self.nodes.len());
            }
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        };
        self.len += 1;
        let (mut parent, mut to_right, mut at) = (NIL, false, self.root);
        while at != NIL && self.node(at).priority >= priority {
            debug_assert_ne!(self.node(at).key, key);
            parent = at;
            to_right = self.node(at).key < key;
            at = if to_right { self.node(at).right } else { self.node(at).left };
        }
        let (left, right) = self.split(at, key);
        self.node_mut(new).left = left;
        self.node_mut(new).right = right;
        self.hang(parent, to_right, new);
    }

    fn hang(&mut self, parent: u32, to_right: bool, child: u32) {
        if parent == NIL {
            self.root = child;
        } else if to_right {
            self.node_mut(parent).right = child;
        } else {
            self.node_mut(parent).left = child;
        }
    }

    /// Splits the tree under `at` into keys below `key` and the others.
    fn split(&mut self, at: u32, key: u64) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        if self.node(at).key < key {
            let (left, right) = self.split(self.node(at).right, key);
            self.node_mut(at).right = left;
            (at, right)
        } else {
            let (left, right) = self.split(self.node(at).left, key);
            self.node_mut(at).left = right;
            (left, at)
        }
    }

    /// Joins two trees, every key of `left` being below every key of `right`.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL {
            return right;
        }
        if right == NIL {
            return left;
        }
        if self.node(left).priority >= self.node(right).priority {
            let joined = self.merge(self.node(left).right, right);
            self.node_mut(left).right = joined;
            left
        } else {
            let joined = self.merge(left, self.node(right).left);
            self.node_mut(right).left = joined;
            right
        }
    }

    /// Takes `key` out.
    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let (mut parent, mut to_right, mut at) = (NIL, false, self.root);
        while at != NIL && self.node(at).key != key {
            parent = at;
            to_right = self.node(at).key < key;
            at = if to_right { self.node(at).right } else { self.node(at).left };
        }
        if at == NIL {
            return None;
        }
        let joined = self.merge(self.node(at).left, self.node(at).right);
        self.hang(parent, to_right, joined);
        self.len -= 1;
        let free = self.free;
        let node = self.node_mut(at);
        node.left = free;
        self.free = at;
        self.node_mut(at).value.take()
    }

    fn floor_index(&self, key: u64) -> u32 {
        let (mut best, mut at) = (NIL, self.root);
        while at != NIL {
            let node = self.node(at);
            if node.key <= key {
                best = at;
                at = node.right;
            } else {
                at = node.left;
            }
        }
        best
    }

    /// The greatest key not above `key`.
    pub(crate) fn floor(&self, key: u64) -> Option<(u64, &V)> {
        let at = self.floor_index(key);
        (at != NIL).then(|| self.node(at)).and_then(|n| Some((n.key, n.value.as_ref()?)))
    }

    /// As [`floor`](Self::floor), to change the value.
    pub(crate) fn floor_mut(&mut self, key: u64) -> Option<(u64, &mut V)> {
        let at = self.floor_index(key);
        (at != NIL).then(|| self.node_mut(at)).and_then(|n| Some((n.key, n.value.as_mut()?)))
    }

    /// The least key not below `key`.
    pub(crate) fn ceiling(&self, key: u64) -> Option<(u64, &V)> {
        let (mut best, mut at) = (NIL, self.root);
        while at != NIL {
            let node = self.node(at);
            if node.key >= key {
                best = at;
                at = node.left;
            } else {
                at = node.right;
            }
        }
        (best != NIL).then(|| self.node(best)).and_then(|n| Some((n.key, n.value.as_ref()?)))
    }

    /// The least key.
    pub(crate) fn first(&self) -> Option<(u64, &V)> {
        self.ceiling(0)
    }

    /// The greatest key.
    pub(crate) fn last(&self) -> Option<(u64, &V)> {
        self.floor(u64::MAX)
    }

    /// Removes everything and gives the memory back.
    pub(crate) fn clear(&mut self) {
        self.nodes = Vec::new();
        self.root = NIL;
        self.free = NIL;
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn behaves_as_a_btree(ops in proptest::collection::vec((0u8..3, 0u64..200), 1..600)) {
            let mut map = OrderedMap::new(12345);
            let mut model = BTreeMap::new();
            for (op, key) in ops {
                match op {
                    0 => if let std::collections::btree_map::Entry::Vacant(e) = model.entry(key) {
                        e.insert(key * 3);
                        map.insert(key, key * 3);
                    },
                    1 => prop_assert_eq!(map.remove(key), model.remove(&key)),
                    _ => {
                        prop_assert_eq!(map.floor(key), model.range(..=key).next_back().map(|(k, v)| (*k, v)));
                        prop_assert_eq!(map.ceiling(key), model.range(key..).next().map(|(k, v)| (*k, v)));
                    }
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.first(), model.iter().next().map(|(k, v)| (*k, v)));
                prop_assert_eq!(map.last(), model.iter().next_back().map(|(k, v)| (*k, v)));
            }
        }
    }

    #[test]
    fn keys_in_order_do_not_make_it_deep() {
        let mut map = OrderedMap::new(99);
        for key in 0..100_000u64 {
            map.insert(key, ());
        }
        fn depth(map: &OrderedMap<()>, at: u32) -> usize {
            if at == NIL {
                0
            } else {
                1 + depth(map, map.node(at).left).max(depth(map, map.node(at).right))
            }
        }
        assert!(depth(&map, map.root) < 64);
    }
}
