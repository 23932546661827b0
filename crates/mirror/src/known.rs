//! Entries of one kind (addresses, or neighbours), and changes that the engine has not been told.

use std::collections::HashMap;
use std::hash::Hash;

/// Entries by their keys, each with the generation in which it was heard of.
pub(crate) struct Known<K, V> {
    by_key: HashMap<K, (V, u32)>,
    limit: usize,
    /// Keys that changed, each with the value that the engine was told last.
    changed: HashMap<K, Option<V>>,
}

impl<K: Copy + Eq + Hash, V: Copy + PartialEq> Known<K, V> {
    pub fn new(limit: usize) -> Self {
        Self { by_key: HashMap::new(), limit, changed: HashMap::new() }
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn get(&self, key: K) -> Option<V> {
        self.by_key.get(&key).map(|(value, _)| *value)
    }

    /// Notes the value of a key, as it was heard in this generation. Returns false where there is
    /// no room for it.
    pub fn put(&mut self, key: K, value: V, generation: u32) -> bool {
        let before = self.by_key.get(&key).map(|(before, _)| *before);
        if before.is_none() && self.by_key.len() >= self.limit {
            return false;
        }
        self.by_key.insert(key, (value, generation));
        if before != Some(value) {
            self.changed.entry(key).or_insert(before);
        }
        true
    }

    /// Removes an entry that the kernel does not have any more.
    pub fn remove(&mut self, key: K) {
        if let Some((before, _)) = self.by_key.remove(&key) {
            self.changed.entry(key).or_insert(Some(before));
        }
    }

    /// Removes it, and has the engine told even if it was never told of it: it may have found it by
    /// itself.
    pub fn revoke(&mut self, key: K) {
        self.remove(key);
        if self.changed.len() < self.limit {
            self.changed.entry(key).or_insert(None);
        }
    }

    /// Removes the entries that were not heard of in this generation, when all were read.
    pub fn sweep(&mut self, generation: u32) {
        self.remove_if(|_, heard| heard != generation);
    }

    pub fn clear(&mut self) {
        self.remove_if(|_, _| true);
    }

    fn remove_if(&mut self, is_gone: impl Fn(&K, u32) -> bool) {
        let Self { by_key, changed, .. } = self;
        by_key.retain(|key, (value, heard)| {
            let gone = is_gone(key, *heard);
            if gone {
                changed.entry(*key).or_insert(Some(*value));
            }
            !gone
        });
    }

    /// Marks the entries that `is_one` accepts as changed, as if the engine had never been told of
    /// them.
    pub fn tell_again(&mut self, is_one: impl Fn(&K) -> bool) {
        for key in self.by_key.keys().filter(|key| is_one(key)) {
            self.changed.insert(*key, None);
        }
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.by_key.iter().map(|(key, (value, _))| (*key, *value))
    }

    /// Returns the changes since the last call: the key, the value that the engine was told, and
    /// the value now.
    pub fn take_changed(&mut self) -> impl Iterator<Item = (K, Option<V>, Option<V>)> + '_ {
        let changed = std::mem::take(&mut self.changed);
        let now = |key: &K| self.by_key.get(key).map(|(value, _)| *value);
        changed.into_iter().map(move |(key, told)| (key, told, now(&key)))
    }
}
