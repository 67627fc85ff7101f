//! Bundles that are gone: those that come again are not taken again.

use std::collections::{BTreeMap, BTreeSet};

use super::head::Key;
use engine::Time;

/// Bundles that are gone, until they expire.
#[derive(Debug, Default)]
pub(super) struct Gone {
    by_key: BTreeMap<Key, (Time, u64)>,
    by_expiry: BTreeSet<(Time, u64, Key)>,
}

impl Gone {
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// Remembers a bundle of this number. What is forgotten for it, if there are more than `max`: the number of
    /// the one that expires first.
    pub(super) fn insert(
        &mut self,
        max: usize,
        key: Key,
        number: u64,
        expires: Time,
    ) -> Option<u64> {
        if let Some((at, old)) = self.by_key.insert(key.clone(), (expires, number)) {
            self.by_expiry.remove(&(at, old, key.clone()));
        }
        self.by_expiry.insert((expires, number, key));
        (self.by_key.len() > max).then(|| self.pop()).flatten()
    }

    /// When the next one expires.
    pub(super) fn next(&self) -> Option<Time> {
        self.by_expiry.first().map(|(at, ..)| *at)
    }

    /// Forgets one that has expired.
    pub(super) fn pop_expired(&mut self, now: Time) -> Option<u64> {
        if self.next()? > now {
            return None;
        }
        self.pop()
    }

    fn pop(&mut self) -> Option<u64> {
        let (_, number, key) = self.by_expiry.pop_first()?;
        self.by_key.remove(&key);
        Some(number)
    }
}
