//! One ordered set of timers per engine.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Deadline, Time};

/// Timers by key, at most one per key, ordered by time and then by key.
#[derive(Clone, Debug)]
pub struct Timers<K> {
    order: BTreeSet<(Time, K)>,
    armed: BTreeMap<K, Deadline>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { order: BTreeSet::new(), armed: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Arms `key` for `at`, replacing its earlier deadline.
    pub fn set(&mut self, key: K, at: Time, why: &'static str) {
        if let Some(old) = self.armed.insert(key, Deadline { at, why }) {
            if old.at == at {
                return;
            }
            self.order.remove(&(old.at, key));
        }
        self.order.insert((at, key));
    }

    /// Arms `key` for `at`, or disarms it without a time.
    pub fn set_or_cancel(&mut self, key: K, at: Option<Time>, why: &'static str) {
        match at {
            Some(at) => self.set(key, at, why),
            None => drop(self.cancel(key)),
        }
    }

    /// Disarms `key` and returns its deadline.
    pub fn cancel(&mut self, key: K) -> Option<Deadline> {
        let old = self.armed.remove(&key)?;
        self.order.remove(&(old.at, key));
        Some(old)
    }

    /// Returns the deadline of `key`.
    #[must_use]
    pub fn get(&self, key: K) -> Option<Deadline> {
        self.armed.get(&key).copied()
    }

    /// Returns the earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Deadline> {
        self.order.first().map(|(_, key)| self.armed[key])
    }

    /// Removes and returns the earliest timer that is due at `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<K> {
        let &(at, key) = self.order.first()?;
        if at > now {
            return None;
        }
        self.order.pop_first();
        self.armed.remove(&key);
        Some(key)
    }

    /// Number of armed timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.armed.len()
    }

    /// Whether no timer is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.armed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rearming_moves_a_timer() {
        let mut timers = Timers::new();
        timers.set('a', Time::from_secs(5), "a");
        timers.set('b', Time::from_secs(3), "b");
        timers.set('b', Time::from_secs(9), "b again");
        assert_eq!(timers.next(), Some(Deadline { at: Time::from_secs(5), why: "a" }));
        assert_eq!(timers.pop_due(Time::from_secs(4)), None);
        assert_eq!(timers.pop_due(Time::from_secs(9)), Some('a'));
        assert_eq!(timers.pop_due(Time::from_secs(9)), Some('b'));
        assert!(timers.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Op {
        Set(u8, u64),
        Cancel(u8),
        Pop(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..8u8, 0..50u64).prop_map(|(key, at)| Op::Set(key, at)),
            (0..8u8).prop_map(Op::Cancel),
            (0..50u64).prop_map(Op::Pop),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_plain_map(ops in prop::collection::vec(op(), 0..200)) {
            let mut timers = Timers::new();
            let mut model: BTreeMap<u8, u64> = BTreeMap::new();
            for op in ops {
                match op {
                    Op::Set(key, at) => {
                        timers.set(key, Time::from_nanos(at), "op");
                        model.insert(key, at);
                    }
                    Op::Cancel(key) => {
                        let was = timers.cancel(key).map(|deadline| deadline.at.as_nanos());
                        prop_assert_eq!(was, model.remove(&key));
                    }
                    Op::Pop(now) => {
                        let due = model.iter().map(|(k, at)| (*at, *k)).min();
                        let due = due.filter(|(at, _)| *at <= now).map(|(_, key)| key);
                        prop_assert_eq!(timers.pop_due(Time::from_nanos(now)), due);
                        due.map(|key| model.remove(&key));
                    }
                }
                let next = model.values().min().copied();
                prop_assert_eq!(timers.next().map(|d| d.at.as_nanos()), next);
                prop_assert_eq!(timers.len(), model.len());
            }
        }
    }
}
