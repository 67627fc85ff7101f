//! Bounded memory of recent items.

use std::collections::{BTreeMap, VecDeque};

/// Values by keys, forgotten in order of insertion.
#[derive(Debug)]
pub struct Recent<K, V> {
    values: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Copy + Ord, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy + Ord, V> Recent<K, V> {
    /// No entries.
    pub const fn new() -> Self {
        Self { values: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key)
    }

    /// Whether there is a key.
    pub fn contains(&self, key: &K) -> bool {
        self.values.contains_key(key)
    }

    /// Values, the oldest first.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values()
    }

    /// Inserts a value; one with the same key is replaced and returned, and the new one inherits
    /// its age.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.values.insert(key, value);
        if before.is_none() {
            self.order.push_back(key);
        }
        before
    }

    /// Inserts a value, and forgets the oldest if there are then more than `max`.
    pub fn insert_within(&mut self, max: usize, key: K, value: V) {
        self.insert(key, value);
        while self.len() > max {
            self.forget_oldest();
        }
    }

    /// Key of the oldest value.
    pub fn oldest(&self) -> Option<K> {
        self.order.front().copied()
    }

    /// Removes the oldest entry.
    pub fn forget_oldest(&mut self) -> Option<(K, V)> {
        let key = self.order.pop_front()?;
        self.values.remove_entry(&key)
    }

    /// Removes an entry.
    pub fn forget(&mut self, key: &K) -> Option<V> {
        let value = self.values.remove(key)?;
        self.order.retain(|other| other != key);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut recent = Recent::new();
        for key in [3, 1, 2] {
            recent.insert_within(2, key, ());
        }
        assert!(!recent.contains(&3));
        // A repeated key keeps its age.
        assert_eq!(recent.insert(1, ()), Some(()));
        assert_eq!(recent.forget_oldest(), Some((1, ())));
    }

    #[test]
    fn a_forgotten_key_is_young_when_reinserted() {
        let mut recent = Recent::new();
        for key in [1, 2] {
            recent.insert(key, ());
        }
        assert_eq!(recent.forget(&1), Some(()));
        recent.insert(1, ());
        assert_eq!(recent.forget_oldest(), Some((2, ())));
        assert_eq!(recent.len(), 1);
    }
}
