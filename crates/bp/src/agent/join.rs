//! Reassembly of fragments for this node (RFC 9171 §5.9, RFC 5050 §5.9).
//!
//! Until then fragments are bundles with their own records and are found again after a restart.
//! The reassembled bundle is a new one; the fragments are deleted when it is safe. Where fragments
//! overlap, the one with the lower offset counts. Fragments of different total lengths belong to
//! different bundles, of which the first complete one counts: a forged fragment cannot prevent
//! reassembly.
//!
//! Fragments of each neighbour are kept apart, and those of all strangers together. A neighbour's
//! own fragments are joined first, if they are complete, then those of all neighbours; those of
//! strangers are never joined with others. A bundle that then fails a security rule does not
//! count, and only its own fragments are dropped: first one without which it is still complete.
//! Fragments of several neighbours are kept then, until those of one are complete.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::Time;
use session::ranges::Ranges;

use super::super::layer::Content;
use super::head::Key;
use super::intake::{Intake, Parts};
use super::{Agent, Alarm, Held, Limit};
use crate::codec::bp7::Eid;

/// Back-off after the store had no room for a reassembled bundle.
const REST: Duration = Duration::from_secs(60);

/// Reassemblies of a bundle that may fail its security because of one spare fragment. Beyond that,
/// all fragments of a failed one are dropped: each takes as long as a bundle.
const SPARES_MAX: u8 = 8;

/// Start of a fragment, and its number.
type Start = (u64, u64);

/// The fragments of one bundle.
#[derive(Debug, Default)]
struct Fragments {
    /// Ends of the fragments, and indices of their givers.
    parts: BTreeMap<Start, (u64, usize)>,
    givers: Vec<Given>,
    /// Bytes of all neighbours.
    together: Ranges,
    /// The bundle they are being reassembled into.
    joining: Option<u64>,
    /// Fragments of which it consists, each with bytes that those before do not have.
    made_of: Vec<Start>,
    /// Whether it consists of the fragments of several neighbours.
    is_mixed: bool,
    /// Whether such a bundle failed its security.
    has_failed_mixed: bool,
    /// Reassemblies that failed, perhaps because of a spare fragment.
    spares: u8,
}

/// Fragments of one neighbour, or of all strangers.
#[derive(Debug)]
struct Given {
    by: Option<Eid>,
    count: usize,
    have: Ranges,
}

/// Fragments that make a complete bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// Fragments of one giver.
    Of(usize),
    /// Fragments of all neighbours.
    Neighbours,
}

impl Fragments {
    fn given(&self, by: Option<&Eid>) -> Option<&Given> {
        self.givers.iter().find(|given| given.by.as_ref() == by)
    }

    fn add(&mut self, start: Start, end: u64, by: Option<&Eid>) {
        let known = self.givers.iter().position(|given| given.by.as_ref() == by);
        let giver = known.unwrap_or_else(|| {
            self.givers.push(Given { by: by.cloned(), count: 0, have: Ranges::new() });
            self.givers.len() - 1
        });
        self.parts.insert(start, (end, giver));
        self.givers[giver].count += 1;
        self.count_in(start.0, end, giver);
    }

    fn count_in(&mut self, start: u64, end: u64, giver: usize) {
        let Some(given) = self.givers.get_mut(giver) else { return };
        given.have.insert(start, end);
        if given.by.is_some() {
            self.together.insert(start, end);
        }
    }

    /// Removes a fragment; returns whether it was there. Other fragments of its giver may cover some
    /// of it; bytes only it had are missing in any case.
    fn remove(&mut self, start: Start) -> bool {
        let Some((end, giver)) = self.parts.remove(&start) else { return false };
        let (begin, _) = start;
        self.together.remove(begin, end);
        for (at, given) in self.givers.iter_mut().enumerate() {
            if at == giver {
                given.count = given.count.saturating_sub(1);
                given.have.remove(begin, end);
            } else if given.by.is_some() {
                let mut from = begin;
                for (gap, next) in given.have.gaps(begin, end).chain([(end, end)]) {
                    if from < gap {
                        self.together.insert(from, gap);
                    }
                    from = next;
                }
            }
        }
        true
    }

    /// Counts all fragments again: removed ones may have covered bytes of others.
    fn recount(&mut self) {
        let parts: Vec<_> = self.parts.iter().map(|(start, part)| (*start, *part)).collect();
        for ((start, _), (end, giver)) in parts {
            self.count_in(start, end, giver);
        }
    }

    /// Fragments that are complete.
    fn complete(&self, total: u64) -> Option<Set> {
        let is_whole = |have: &Ranges| have.gaps(0, total).next().is_none();
        let of = |is_known: bool| {
            let is_it = |given: &Given| {
                given.by.is_some() == is_known && given.count > 0 && is_whole(&given.have)
            };
            self.givers.iter().position(is_it).map(Set::Of)
        };
        let has_known = || self.givers.iter().any(|given| given.by.is_some() && given.count > 0);
        let mixes = || !self.has_failed_mixed && has_known() && is_whole(&self.together);
        let all = || mixes().then_some(Set::Neighbours);
        of(true).or_else(all).or_else(|| of(false))
    }

    /// Fragments of a set, in order.
    fn in_set(&self, set: Set) -> impl Iterator<Item = (Start, u64)> {
        let is_in = move |giver: usize| match set {
            Set::Of(only) => only == giver,
            Set::Neighbours => self.givers.get(giver).is_some_and(|given| given.by.is_some()),
        };
        let parts = self.parts.iter().filter(move |(_, (_, giver))| is_in(*giver));
        parts.map(|(start, (end, _))| (*start, *end))
    }

    /// Takes the fragments to drop of a bundle that failed its security: the latest of those without
    /// which it is still complete, or all. None if they are of several neighbours, of which one may
    /// be true.
    fn suspects(&mut self) -> Vec<Start> {
        let made_of = std::mem::take(&mut self.made_of);
        if self.is_mixed {
            self.has_failed_mixed = true;
            return Vec::new();
        }
        let end = |start: &Start| self.parts.get(start).map_or(0, |(end, _)| *end);
        let is_spare = |at: usize| {
            let before = at.checked_sub(1).and_then(|at| made_of.get(at)).map_or(0, end);
            made_of.get(at + 1).is_some_and(|(next, _)| *next <= before)
        };
        let spare = (0..made_of.len()).filter(|at| is_spare(*at)).map(|at| made_of[at]);
        let latest = spare.max_by_key(|(_, number)| *number);
        match latest.filter(|_| self.spares < SPARES_MAX) {
            Some(latest) => {
                self.spares += 1;
                vec![latest]
            }
            None => made_of,
        }
    }
}

/// Original bundle, and its length in bytes.
type Whole = (Key, u64);

fn whole_of(held: &Held) -> Option<Whole> {
    let total = held.head.fragment()?.total;
    Some((held.key().whole(), total))
}

/// Fragments for this node, and their reassembly.
#[derive(Debug, Default)]
pub(super) struct Joins {
    /// Fragments by original bundle.
    fragments: BTreeMap<Whole, Fragments>,
    /// Bundles being reassembled, by the numbers of the wholes.
    joining: BTreeMap<u64, Whole>,
    /// Bundles whose reassembly is postponed.
    later: BTreeSet<Whole>,
}

impl Joins {
    /// Records that a bundle being reassembled has another number.
    pub(super) fn renumber(&mut self, from: u64, to: u64) {
        let Some(whole) = self.joining.remove(&from) else { return };
        if let Some(fragments) = self.fragments.get_mut(&whole) {
            fragments.joining = Some(to);
        }
        self.joining.insert(to, whole);
    }

    /// Ends a reassembly; returns the bundle.
    fn ends(&mut self, number: u64) -> Option<Whole> {
        let whole = self.joining.remove(&number)?;
        self.fragments.get_mut(&whole)?.joining = None;
        Some(whole)
    }

    /// Whether there are no fragments.
    pub(super) fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }
}

impl Agent {
    /// Whether a fragment for this node has no bytes that are missing here.
    pub(super) fn is_redundant(&self, held: &Held) -> bool {
        let (Some(whole), true) = (whole_of(held), self.core.is_for_us(held.destination())) else {
            return false;
        };
        if self.core.stock.knows(&whole.0) {
            return true;
        }
        let Some(fragments) = self.joins.fragments.get(&whole) else { return false };
        let Some((offset, len)) = held.key().fragment else { return false };
        let given = fragments.given(held.arrival.by.as_ref());
        let end = offset.saturating_add(len);
        given.is_some_and(|given| given.count > 0 && given.have.gaps(offset, end).next().is_none())
    }

    /// Number of the held bundle that an arriving one repeats. A fragment for this node does not
    /// repeat that of another neighbour: one of them may be forged. A bundle without a source repeats
    /// none.
    pub(super) fn repeats(&self, held: &Held) -> Option<u64> {
        let number =
            *self.core.stock.by_key.get(&held.key()).filter(|_| !held.head.is_anonymous())?;
        let is_apart =
            held.head.fragment().is_some() && self.core.is_for_us(held.destination()) && {
                let known = self.core.stock.get(number);
                known.is_some_and(|known| known.arrival.by != held.arrival.by)
            };
        (!is_apart).then_some(number)
    }

    /// Whether one more fragment of a bundle for this node is kept.
    pub(super) fn check_place(&mut self, held: &Held) -> bool {
        let Some(whole) = whole_of(held) else { return true };
        let fragments = self.joins.fragments.get(&whole);
        let given = fragments.and_then(|fragments| fragments.given(held.arrival.by.as_ref()));
        let has_place = given.map_or(0, |given| given.count) < self.core.config.limits.fragments;
        if !has_place {
            self.core.user.limit_reached(Limit::Fragments);
        }
        has_place
    }

    /// Adds a fragment for this node, and reassembles the bundle if it is complete.
    pub(super) fn collect(&mut self, now: Time, number: u64) {
        let Some(held) = self.core.stock.get(number) else { return };
        if self.is_redundant(held) {
            // Another giver's fragment with the same bounds is no duplicate of it.
            self.drop_unremembered(number);
            return self.core.arm_expiry();
        }
        let (Some(whole), Some((offset, len))) = (whole_of(held), held.key().fragment) else {
            return;
        };
        let end = offset.saturating_add(len);
        let by = held.arrival.by.clone();
        let fragments = self.joins.fragments.entry(whole.clone()).or_default();
        fragments.add((offset, number), end, by.as_ref());
        if let Some(held) = self.core.stock.get_mut(number) {
            held.waits = true;
        }
        self.join(now, &whole);
    }

    /// Reassembles a bundle if it is complete and there is room.
    fn join(&mut self, now: Time, whole: &Whole) {
        let Some(fragments) = self.joins.fragments.get(whole) else { return };
        let Some(set) = fragments.complete(whole.1).filter(|_| fragments.joining.is_none()) else {
            return;
        };
        // One reassembly may exceed the bound: otherwise fragments that fill the store would stay
        // for ever.
        let fits = self.core.stock.bytes.saturating_add(whole.1) <= self.core.config.limits.bytes;
        let is_full = !fits || self.intakes.len() >= self.core.config.limits.incoming;
        if is_full && !self.joins.joining.is_empty() {
            self.joins.later.insert(whole.clone());
            return;
        }
        let (mut parts, mut made_of) = (VecDeque::new(), Vec::new());
        let mut at = 0;
        let mut ends = (None, None);
        for ((offset, number), end) in fragments.in_set(set) {
            let Some(held) = self.core.stock.get(number) else { continue };
            if offset == 0 && ends.0.is_none() {
                ends.0 = Some(held);
            }
            if end == whole.1 && ends.1.is_none() {
                ends.1 = Some(held);
            }
            if end > at {
                parts.push_back(part(&held.payload, at - offset, end - at));
                made_of.push((offset, number));
                at = end;
            }
        }
        let (Some(first), Some(last)) = ends else { return };
        let Ok(head) = first.head.of_whole(!last.tail.is_empty()) else { return };
        let by = first.arrival.by.clone();
        let tail = match head.version() {
            super::Version::Six => last.tail.to_vec(),
            super::Version::Seven => Vec::new(),
        };
        let number = self.core.number();
        if let Some(fragments) = self.joins.fragments.get_mut(whole) {
            (fragments.joining, fragments.made_of) = (Some(number), made_of);
            fragments.is_mixed = set == Set::Neighbours;
            self.joins.joining.insert(number, whole.clone());
        }
        let parts = Parts { left: parts, ..Parts::default() };
        let mut intake = Intake::of_fragments(head, parts, tail);
        intake.by = by;
        self.intakes.insert(number, intake);
        self.place(number);
        self.read_parts(now, number);
    }

    /// Deletes the fragments of a reassembled bundle, which is safe.
    pub(super) fn joined(&mut self, now: Time, key: &Key) {
        let first = (key.clone(), 0);
        let wholes: Vec<Whole> = self
            .joins
            .fragments
            .range(first..)
            .map(|(whole, _)| whole.clone())
            .take_while(|(of, _)| of == key)
            .collect();
        if wholes.is_empty() {
            return;
        }
        for whole in wholes {
            let Some(fragments) = self.joins.fragments.remove(&whole) else { continue };
            if let Some(joining) = fragments.joining {
                self.joins.joining.remove(&joining);
                self.drop_intake(joining);
            }
            for (_, number) in fragments.parts.into_keys() {
                self.let_go(number);
            }
        }
        self.join_others(now);
    }

    /// Drops fragments of a reassembled bundle that fails its security. They are not remembered: one
    /// of them was forged, and the others may come again.
    pub(super) fn join_refused(&mut self, now: Time, number: u64) {
        let Some(whole) = self.joins.ends(number) else { return };
        let suspects = self.joins.fragments.get_mut(&whole).map(Fragments::suspects);
        for (_, number) in suspects.unwrap_or_default() {
            self.drop_unremembered(number);
        }
        if let Some(fragments) = self.joins.fragments.get_mut(&whole) {
            fragments.recount();
        }
        self.core.arm_expiry();
        self.join(now, &whole);
        self.join_others(now);
    }

    /// Removes a bundle, its record and its file, as if it had never arrived.
    fn drop_unremembered(&mut self, number: u64) {
        if let Some(held) = self.forget(number) {
            self.core.drop_content(number, &held);
        }
    }

    /// Postpones the reassembly of a bundle that could not be stored.
    pub(super) fn join_failed(&mut self, now: Time, number: u64) {
        if let Some(whole) = self.joins.ends(number) {
            self.joins.later.insert(whole);
        }
        self.core.timers.set(Alarm::Join, now + REST, "fragments to reassemble");
    }

    /// Retries postponed reassemblies, until one is postponed again.
    pub(super) fn join_others(&mut self, now: Time) {
        while let Some(whole) = self.joins.later.pop_first() {
            self.join(now, &whole);
            if self.joins.later.contains(&whole) {
                return;
            }
        }
    }

    /// Removes a fragment from reassembly.
    pub(super) fn leave_fragments(&mut self, number: u64, held: &Held) {
        let Some(whole) = whole_of(held) else { return };
        let Some(fragments) = self.joins.fragments.get_mut(&whole) else { return };
        let Some((offset, _)) = held.key().fragment else { return };
        if !fragments.remove((offset, number)) {
            return;
        }
        let joining = fragments.joining.take();
        if fragments.parts.is_empty() {
            self.joins.fragments.remove(&whole);
        }
        if let Some(joining) = joining {
            self.joins.joining.remove(&joining);
            self.drop_intake(joining);
        }
        self.core.user.limit_left(Limit::Fragments);
    }
}

/// Part of a payload.
pub(super) fn part(content: &Content, start: u64, len: u64) -> Content {
    match content {
        Content::Bytes(bytes) => {
            let start = usize::try_from(start).unwrap_or(usize::MAX).min(bytes.len());
            let end = start.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
            Content::Bytes(bytes.slice(start..end.min(bytes.len())))
        }
        Content::File { name, offset, .. } => {
            Content::File { name: name.clone(), offset: offset + start, len }
        }
    }
}
