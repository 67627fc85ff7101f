//! Bundles that are gone: those that come again are not taken again.

use std::collections::{BTreeMap, BTreeSet};

use engine::Time;
use wire::bp7::BundleId;

/// Bundles that are gone, until they expire.
#[derive(Debug, Default)]
pub(super) struct Gone {
    by_id: BTreeMap<BundleId, (Time, u64)>,
    by_expiry: BTreeSet<(Time, u64, BundleId)>,
}

impl Gone {
    pub(super) fn contains(&self, id: &BundleId) -> bool {
        self.by_id.contains_key(id)
    }

    /// Remembers a bundle of this number. What is forgotten for it, if there are more than `max`: the number of
    /// the one that expires first.
    pub(super) fn insert(
        &mut self,
        max: usize,
        id: BundleId,
        number: u64,
        expires: Time,
    ) -> Option<u64> {
        if let Some((at, old)) = self.by_id.insert(id.clone(), (expires, number)) {
            self.by_expiry.remove(&(at, old, id.clone()));
        }
        self.by_expiry.insert((expires, number, id));
        (self.by_id.len() > max).then(|| self.pop()).flatten()
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
        let (_, number, id) = self.by_expiry.pop_first()?;
        self.by_id.remove(&id);
        Some(number)
    }
}
