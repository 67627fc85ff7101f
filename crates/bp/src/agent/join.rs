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
use super::stock::Core;
use super::{Alarm, Held, Limit, Version};
use crate::codec::bp7::Eid;

/// Back-off after the store had no room for a reassembled bundle.
const BACK_OFF: Duration = Duration::from_secs(60);

/// Reassemblies of a bundle that may fail its security because of one spare fragment. Beyond that,
/// all fragments of a failed one are dropped: each takes as long as a bundle.
const SPARES_MAX: u8 = 8;

/// Start of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    offset: u64,
    number: u64,
}

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
        self.count_in(start.offset, end, giver);
    }

    fn count_in(&mut self, start: u64, end: u64, giver: usize) {
        let Some(given) = self.givers.get_mut(giver) else { return };
        given.have.insert(start, end);
        if given.by.is_some() {
            self.together.insert(start, end);
        }
    }

    /// Removes a fragment; returns whether it was there. Other fragments of its giver may cover
    /// some of it; bytes only it had are missing in any case.
    fn remove(&mut self, start: Start) -> bool {
        let Some((end, giver)) = self.parts.remove(&start) else { return false };
        let begin = start.offset;
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
        for (Start { offset: start, .. }, (end, giver)) in parts {
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

    /// Takes the fragments to drop of a bundle that failed its security: the latest of those
    /// without which it is still complete, or all. None if they are of several neighbours, of which
    /// one may be true.
    fn suspects(&mut self) -> Vec<Start> {
        let made_of = std::mem::take(&mut self.made_of);
        if self.is_mixed {
            self.has_failed_mixed = true;
            return Vec::new();
        }
        let end = |start: &Start| self.parts.get(start).map_or(0, |(end, _)| *end);
        let is_spare = |at: usize| {
            let before = at.checked_sub(1).and_then(|at| made_of.get(at)).map_or(0, end);
            made_of.get(at + 1).is_some_and(|next| next.offset <= before)
        };
        let spare = (0..made_of.len()).filter(|at| is_spare(*at)).map(|at| made_of[at]);
        let latest = spare.max_by_key(|start| start.number);
        match latest.filter(|_| self.spares < SPARES_MAX) {
            Some(latest) => {
                self.spares += 1;
                vec![latest]
            }
            None => made_of,
        }
    }
}

/// Original bundle of fragments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Whole {
    key: Key,
    /// Its length in bytes.
    total: u64,
}

impl Whole {
    fn new(held: &Held) -> Option<Self> {
        Some(Self { total: held.head.fragment()?.total, key: held.key().whole() })
    }
}

/// Fragments for this node, and their reassembly.
#[derive(Debug, Default)]
pub(super) struct Joins {
    /// Fragments by original bundle.
    fragments: BTreeMap<Whole, Fragments>,
    /// Bundles being reassembled, by the numbers of the wholes.
    joining: BTreeMap<u64, Whole>,
    /// Bundles whose reassembly is postponed.
    pub(super) later: BTreeSet<Whole>,
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

    /// Whether a fragment for this node has no bytes that are missing here.
    pub(super) fn is_redundant(&self, core: &Core, held: &Held) -> bool {
        let whole = Whole::new(held).filter(|_| core.is_for_us(held.destination()));
        let Some(whole) = whole else { return false };
        if core.stock.knows(&whole.key) {
            return true;
        }
        let Some(fragments) = self.fragments.get(&whole) else { return false };
        let Some((offset, len)) = held.key().fragment else { return false };
        let given = fragments.given(held.arrival.by.as_ref());
        let end = offset.saturating_add(len);
        given.is_some_and(|given| given.count > 0 && given.have.gaps(offset, end).next().is_none())
    }

    /// Whether one more fragment of a bundle for this node is kept.
    pub(super) fn check_place(&self, core: &mut Core, held: &Held) -> bool {
        let Some(whole) = Whole::new(held) else { return true };
        let fragments = self.fragments.get(&whole);
        let given = fragments.and_then(|fragments| fragments.given(held.arrival.by.as_ref()));
        let has_place = given.map_or(0, |given| given.count) < core.config.limits.fragments;
        if !has_place {
            core.user.limit_reached(Limit::Fragments);
        }
        has_place
    }

    /// Adds a fragment for this node, and returns its bundle; none if the fragment is redundant.
    pub(super) fn collect(&mut self, core: &mut Core, number: u64) -> Option<Whole> {
        let held = core.stock.get(number)?;
        if self.is_redundant(core, held) {
            return None;
        }
        let (whole, (offset, len)) = (Whole::new(held)?, held.key().fragment?);
        let by = held.arrival.by.as_ref();
        let fragments = self.fragments.entry(whole.clone()).or_default();
        fragments.add(Start { offset, number }, offset.saturating_add(len), by);
        if let Some(held) = core.stock.get_mut(number) {
            held.waits = true;
        }
        Some(whole)
    }

    /// Reassembles a bundle if it is complete and there is room: its number and reception. Without
    /// a place for one more reception it is postponed.
    pub(super) fn join(
        &mut self,
        core: &mut Core,
        whole: &Whole,
        has_place: bool,
    ) -> Option<(u64, Intake)> {
        let fragments = self.fragments.get_mut(whole)?;
        let set = fragments.complete(whole.total).filter(|_| fragments.joining.is_none())?;
        // One reassembly may exceed the bound: otherwise fragments that fill the store would stay
        // for ever.
        let fits = core.stock.bytes.saturating_add(whole.total) <= core.config.limits.bytes;
        let is_full = !fits || !has_place;
        if is_full && !self.joining.is_empty() {
            self.later.insert(whole.clone());
            return None;
        }
        let (mut parts, mut made_of) = (VecDeque::new(), Vec::new());
        let (mut at, mut first, mut last) = (0, None, None);
        for (start, end) in fragments.in_set(set) {
            let Some(held) = core.stock.get(start.number) else { continue };
            if start.offset == 0 {
                first = first.or(Some(held));
            }
            if end == whole.total {
                last = last.or(Some(held));
            }
            if end > at {
                parts.push_back(part(&held.payload, at - start.offset, end - at));
                made_of.push(start);
                at = end;
            }
        }
        let (first, last) = (first?, last?);
        let head = first.head.reassembled(!last.tail.is_empty()).ok()?;
        let tail = match head.version() {
            Version::Six => last.tail.to_vec(),
            Version::Seven => Vec::new(),
        };
        let parts = Parts { left: parts, ..Parts::default() };
        let mut intake = Intake::of_fragments(head, parts, tail);
        intake.by.clone_from(&first.arrival.by);
        let number = core.allocate_number();
        (fragments.joining, fragments.made_of) = (Some(number), made_of);
        fragments.is_mixed = set == Set::Neighbours;
        self.joining.insert(number, whole.clone());
        Some((number, intake))
    }

    /// Removes the fragments of a bundle that is whole here: their numbers, and those of receptions
    /// that reassemble it.
    pub(super) fn joined(&mut self, key: &Key) -> (Vec<u64>, Vec<u64>) {
        let first = Whole { key: key.clone(), total: 0 };
        let wholes = self.fragments.range(first..).map(|(whole, _)| whole);
        let wholes: Vec<Whole> = wholes.take_while(|whole| whole.key == *key).cloned().collect();
        let (mut numbers, mut joining) = (Vec::new(), Vec::new());
        for fragments in wholes.iter().filter_map(|whole| self.fragments.remove(whole)) {
            joining.extend(fragments.joining);
            numbers.extend(fragments.parts.into_keys().map(|start| start.number));
        }
        joining.iter().for_each(|number| drop(self.joining.remove(number)));
        (numbers, joining)
    }

    /// Handles that a reassembled bundle failed its security. Returns it, and the fragments to
    /// drop. They are not remembered: one of them was forged, and the others may come again.
    pub(super) fn refused(&mut self, number: u64) -> Option<(Whole, Vec<u64>)> {
        let whole = self.ends(number)?;
        let suspects = self.fragments.get_mut(&whole).map(Fragments::suspects);
        let numbers = suspects.into_iter().flatten().map(|start| start.number);
        Some((whole, numbers.collect()))
    }

    /// Counts the fragments of a bundle again: dropped ones may have covered bytes of others.
    pub(super) fn recount(&mut self, whole: &Whole) {
        if let Some(fragments) = self.fragments.get_mut(whole) {
            fragments.recount();
        }
    }

    /// Postpones the reassembly of a bundle that could not be stored.
    pub(super) fn failed(&mut self, core: &mut Core, now: Time, number: u64) {
        if let Some(whole) = self.ends(number) {
            self.later.insert(whole);
        }
        core.timers.set(Alarm::Join, now + BACK_OFF, "fragments to reassemble");
    }

    /// Removes a fragment. Returns the reception that reassembled it.
    pub(super) fn leave(&mut self, core: &mut Core, held: &Held) -> Option<u64> {
        let (whole, (offset, _)) = (Whole::new(held)?, held.key().fragment?);
        let fragments = self.fragments.get_mut(&whole)?;
        if !fragments.remove(Start { offset, number: held.number }) {
            return None;
        }
        let joining = fragments.joining.take();
        if fragments.parts.is_empty() {
            self.fragments.remove(&whole);
        }
        joining.iter().for_each(|joining| drop(self.joining.remove(joining)));
        core.user.limit_left(Limit::Fragments);
        joining
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
