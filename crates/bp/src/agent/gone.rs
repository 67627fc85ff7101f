//! Discarded bundles, remembered to drop duplicates.
//!
//! There may be a million of them, so the keys are short: sources are numbered, and fragments are
//! stored apart from whole bundles.

use std::collections::{BTreeMap, BTreeSet};

use engine::Time;

use super::config::Version;
use super::head::Key;
use crate::codec::bp7::{CreationTimestamp, Eid};

/// Most neighbours that are remembered with bundles.
const NEIGHBOURS_MAX: usize = 1 << 16;

/// Way in which a bundle left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It was delivered or deleted, or copies of it were forwarded.
    Here,
    /// It was forwarded.
    Forwarded {
        /// Neighbour that gave it, if known.
        giver: Option<Eid>,
        /// Its hop count when it came, if it has one.
        hops: Option<u8>,
        /// Number of times that the bundle had come back.
        returns: u8,
    },
}

/// Discarded bundles, until they expire.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Neighbours that gave bundles, numbered from 1 on.
    neighbours: BTreeMap<Eid, u32>,
    sources: Sources,
    wholes: Remembered<()>,
    /// Fragments, by offset and length.
    fragments: Remembered<(u64, u64)>,
}

/// Sources of the remembered bundles.
#[derive(Debug, Default)]
struct Sources {
    numbers: BTreeMap<(Version, Eid), u64>,
    /// Source and number of remembered bundles, by the source's number.
    names: BTreeMap<u64, ((Version, Eid), usize)>,
    next: u64,
}

/// Number of the source, creation timestamp, and part.
type Short<P> = (u64, CreationTimestamp, P);

/// End of a remembered bundle.
#[derive(Clone, Copy, Debug)]
struct End {
    expires: Time,
    /// Number of its record.
    number: u64,
    /// Number of the neighbour that gave it, or 0, its hop count then, and how often it had come
    /// back; none if it was not forwarded.
    forwarded: Option<(u32, Option<u8>, u8)>,
}

/// Remembered bundles of a kind.
#[derive(Debug)]
struct Remembered<P> {
    by_key: BTreeMap<Short<P>, End>,
    by_expiry: BTreeSet<(Time, u64, Short<P>)>,
}

impl<P> Default for Remembered<P> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), by_expiry: BTreeSet::new() }
    }
}

impl Gone {
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.end(key).is_some()
    }

    fn end(&self, key: &Key) -> Option<&End> {
        // A bundle without a source has no identity.
        if key.source.is_none() {
            return None;
        }
        let source = *self.sources.numbers.get(&(key.version, key.source.clone()))?;
        match key.fragment {
            None => self.wholes.by_key.get(&(source, key.creation, ())),
            Some(part) => self.fragments.by_key.get(&(source, key.creation, part)),
        }
    }

    /// Number of the record of a bundle.
    pub(super) fn number(&self, key: &Key) -> Option<u64> {
        self.end(key).map(|end| end.number)
    }

    /// Number of times that a bundle came back, if it was forwarded, and its giver does not merely
    /// repeat it: a bundle that was elsewhere has a higher hop count.
    pub(super) fn returns(&self, key: &Key, by: &Eid, hops: Option<u8>) -> Option<u8> {
        let (giver, before, returns) = self.end(key)?.forwarded?;
        let is_giver = giver > 0 && self.neighbours.get(by) == Some(&giver);
        let repeats = is_giver && hops.zip(before).is_some_and(|(now, before)| now <= before);
        (!repeats).then_some(returns)
    }

    /// Number of a neighbour, unless there are too many.
    fn neighbour(&mut self, node: &Eid) -> Option<u32> {
        let next = self.neighbours.len();
        let known = self.neighbours.get(node).copied();
        known.or_else(|| {
            let number = (next < NEIGHBOURS_MAX).then_some(next as u32 + 1)?;
            self.neighbours.insert(node.clone(), number);
            Some(number)
        })
    }

    /// Remembers a bundle under this number. Beyond `max`, forgets the bundle that expires first
    /// and returns its number.
    pub(super) fn insert(
        &mut self,
        max: usize,
        key: Key,
        number: u64,
        left: &Left,
        expires: Time,
    ) -> Option<u64> {
        let forwarded = match left {
            Left::Here => None,
            Left::Forwarded { giver: None, hops, returns } => Some((0, *hops, *returns)),
            Left::Forwarded { giver: Some(giver), hops, returns } => {
                self.neighbour(giver).map(|giver| (giver, *hops, *returns))
            }
        };
        let end = End { expires, number, forwarded };
        let Key { version, source, creation, fragment } = key;
        let source = self.sources.counted(version, source);
        let was_known = match fragment {
            None => self.wholes.insert((source, creation, ()), end),
            Some(part) => self.fragments.insert((source, creation, part), end),
        };
        if was_known {
            self.sources.forget(source);
        }
        (self.len() > max).then(|| self.pop()).flatten()
    }

    fn len(&self) -> usize {
        self.wholes.by_key.len() + self.fragments.by_key.len()
    }

    /// Expiry of the next bundle.
    pub(super) fn next(&self) -> Option<Time> {
        let first = [self.wholes.first(), self.fragments.first()];
        first.into_iter().flatten().min().map(|(at, _)| at)
    }

    /// Forgets a bundle that has expired and returns its number.
    pub(super) fn pop_expired(&mut self, now: Time) -> Option<u64> {
        if self.next()? > now {
            return None;
        }
        self.pop()
    }

    fn pop(&mut self) -> Option<u64> {
        let (whole, part) = (self.wholes.first(), self.fragments.first());
        let is_part = part.is_some_and(|part| whole.is_none_or(|whole| part < whole));
        let popped = if is_part { self.fragments.pop() } else { self.wholes.pop() };
        let (number, source) = popped?;
        self.sources.forget(source);
        Some(number)
    }
}

impl Sources {
    /// Number of a source, of which one more bundle is remembered.
    fn counted(&mut self, version: Version, source: Eid) -> u64 {
        let source = (version, source);
        let number = self.numbers.get(&source).copied();
        let number = number.unwrap_or_else(|| {
            let number = self.next;
            self.next += 1;
            self.numbers.insert(source.clone(), number);
            self.names.insert(number, (source, 0));
            number
        });
        if let Some((_, count)) = self.names.get_mut(&number) {
            *count += 1;
        }
        number
    }

    /// Counts one remembered bundle less of a source.
    fn forget(&mut self, number: u64) {
        let Some((_, count)) = self.names.get_mut(&number) else { return };
        *count -= 1;
        if *count == 0
            && let Some((source, _)) = self.names.remove(&number)
        {
            self.numbers.remove(&source);
        }
    }
}

impl<P: Copy + Ord> Remembered<P> {
    /// Remembers a bundle until it expires. Returns whether it was remembered already.
    fn insert(&mut self, key: Short<P>, end: End) -> bool {
        let before = self.by_key.insert(key, end);
        if let Some(End { expires, number, .. }) = before {
            self.by_expiry.remove(&(expires, number, key));
        }
        self.by_expiry.insert((end.expires, end.number, key));
        before.is_some()
    }

    /// Expiry and number of the bundle that expires first.
    fn first(&self) -> Option<(Time, u64)> {
        self.by_expiry.first().map(|(at, number, _)| (*at, *number))
    }

    /// Forgets the bundle that expires first. Returns its number and its source.
    fn pop(&mut self) -> Option<(u64, u64)> {
        let (_, number, key) = self.by_expiry.pop_first()?;
        self.by_key.remove(&key);
        let (source, ..) = key;
        Some((number, source))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Insert { key: Key, expires: u64 },
        Expire(u64),
    }

    fn key() -> impl Strategy<Value = Key> {
        let versions = prop_oneof![Just(Version::Six), Just(Version::Seven)];
        let fragments = proptest::option::of((0..2u64, 1..3u64));
        (versions, 1..4u32, 0..3u64, 0..3u64, fragments).prop_map(
            |(version, node, time_ms, sequence, fragment)| Key {
                version,
                source: Eid::ipn(node, 1),
                creation: CreationTimestamp { time_ms, sequence },
                fragment,
            },
        )
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (key(), 0..50u64).prop_map(|(key, expires)| Op::Insert { key, expires }),
            1 => (0..50u64).prop_map(Op::Expire),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_plain_list(ops in prop::collection::vec(op(), 0..200)) {
            const MAX: usize = 10;
            let mut gone = Gone::default();
            let mut model: Vec<(Time, u64, Key)> = Vec::new();
            for (number, op) in (0..).zip(ops) {
                match op {
                    Op::Insert { key, expires } => {
                        let expires = Time::from_nanos(expires);
                        model.retain(|(.., known)| *known != key);
                        model.push((expires, number, key.clone()));
                        model.sort();
                        let oldest = (model.len() > MAX).then(|| model.remove(0).1);
                        let left = Left::Forwarded {
                            giver: Some(Eid::ipn(7, 0)),
                            hops: Some(3),
                            returns: 1,
                        };
                        let popped = gone.insert(MAX, key.clone(), number, &left, expires);
                        prop_assert_eq!(popped, oldest);
                        if oldest != Some(number) {
                            let of = |node, hops| gone.returns(&key, &Eid::ipn(node, 0), hops);
                            prop_assert_eq!([of(7, Some(3)), of(7, Some(2))], [None; 2]);
                            prop_assert_eq!([of(7, Some(4)), of(7, None)], [Some(1); 2]);
                            prop_assert_eq!(of(8, Some(3)), Some(1));
                        }
                    }
                    Op::Expire(now) => {
                        let now = Time::from_nanos(now);
                        let is_due = model.first().is_some_and(|(at, ..)| *at <= now);
                        let oldest = is_due.then(|| model.remove(0).1);
                        prop_assert_eq!(gone.pop_expired(now), oldest);
                    }
                }
                prop_assert_eq!(gone.next(), model.first().map(|(at, ..)| *at));
                prop_assert!(model.iter().all(|(.., key)| gone.contains(key)));
                prop_assert_eq!(gone.len(), model.len());
                let sources: BTreeSet<_> =
                    model.iter().map(|(.., key)| (key.version, key.source.clone())).collect();
                prop_assert_eq!(gone.sources.numbers.len(), sources.len());
                prop_assert_eq!(gone.sources.names.len(), sources.len());
            }
        }
    }
}
