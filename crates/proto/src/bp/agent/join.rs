//! Fragments of bundles for this node, until they are whole (RFC 9171 §5.9, RFC 5050 §5.9).
//!
//! Fragments are bundles like others until then, with a record of their own: after a restart they are found again. What they
//! are joined to is a new bundle, and they go when that one is safe. Where they overlap, the one counts that begins
//! first. Those of different totals are of different wholes, of which the first that is complete counts: who makes up a fragment
//! keeps no other from being joined.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::{Completion, EffectError, OpenMode, Time};

use super::super::layer::Content;
use super::head::Key;
use super::intake::{Fed, Intake, Join, READ};
use super::store::Job;
use super::{Agent, Alarm, Answer, Held, Limit};
use crate::ranges::Ranges;

/// How long the store is left alone that had no room for what was joined.
const REST: Duration = Duration::from_secs(60);

/// The fragments of one bundle.
#[derive(Debug, Default)]
struct Fragments {
    /// By where they begin: their ends.
    parts: BTreeMap<(u64, u64), u64>,
    have: Ranges,
    /// The bundle that they are being joined to.
    joining: Option<u64>,
}

/// The whole, and its bytes.
type Whole = (Key, u64);

fn whole_of(held: &Held) -> Option<Whole> {
    let total = held.head.fragment()?.total;
    Some((held.key().whole(), total))
}

/// Fragments for this node, and what is joined of them.
#[derive(Debug, Default)]
pub(super) struct Joins {
    /// Fragments, those of a bundle together.
    fragments: BTreeMap<Whole, Fragments>,
    /// Bundles that are joined later.
    later: BTreeSet<Whole>,
}

impl Joins {
    /// Whether there are no fragments.
    pub(super) fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }
}

impl Agent {
    /// Whether a fragment for this node has nothing that is not here.
    pub(super) fn is_redundant(&self, held: &Held) -> bool {
        let (Some(whole), true) = (whole_of(held), self.is_for_us(held.destination())) else {
            return false;
        };
        if self.by_key.contains_key(&whole.0) || self.gone.contains(&whole.0) {
            return true;
        }
        let Some(fragments) = self.joins.fragments.get(&whole) else { return false };
        let Some((offset, len)) = held.key().fragment else { return false };
        fragments.have.gaps(offset, offset.saturating_add(len)).next().is_none()
    }

    /// Whether one more fragment of a bundle for this node is kept.
    pub(super) fn has_place(&mut self, held: &Held) -> bool {
        let Some(whole) = whole_of(held) else { return true };
        let held = self.joins.fragments.get(&whole).map_or(0, |fragments| fragments.parts.len());
        let has_place = held < self.config.limits.fragments;
        if !has_place {
            self.user.limit_reached(Limit::Fragments);
        }
        has_place
    }

    /// Puts a fragment for this node to the others, and joins them if they are complete.
    pub(super) fn collect(&mut self, now: Time, number: u64) {
        let Some(held) = self.bundles.get(&number) else { return };
        if self.is_redundant(held) {
            return self.let_go(number);
        }
        let (Some(whole), Some((offset, len))) = (whole_of(held), held.key().fragment) else {
            return;
        };
        let end = offset.saturating_add(len);
        let fragments = self.joins.fragments.entry(whole.clone()).or_default();
        fragments.parts.insert((offset, number), end);
        fragments.have.insert(offset, end);
        if let Some(held) = self.bundles.get_mut(&number) {
            held.waits = true;
        }
        self.join(now, &whole);
    }

    /// Joins fragments, if they are complete and there is room.
    fn join(&mut self, now: Time, whole: &Whole) {
        let Some(fragments) = self.joins.fragments.get(whole) else { return };
        let is_complete = fragments.have.gaps(0, whole.1).next().is_none();
        if !is_complete || fragments.joining.is_some() {
            return;
        }
        // One may exceed the bound, or what fills the store with its own fragments would stay there for ever.
        let fits = self.bytes.saturating_add(whole.1) <= self.config.limits.bytes;
        let is_full = !fits || self.intakes.len() >= self.config.limits.incoming;
        if is_full && self.joins.fragments.values().any(|others| others.joining.is_some()) {
            self.joins.later.insert(whole.clone());
            return;
        }
        let mut parts = VecDeque::new();
        let mut at = 0;
        let mut ends = (None, None);
        for (&(offset, number), &end) in &fragments.parts {
            let Some(held) = self.bundles.get(&number) else { continue };
            if offset == 0 && ends.0.is_none() {
                ends.0 = Some(held);
            }
            if end == whole.1 && ends.1.is_none() {
                ends.1 = Some(held);
            }
            if end > at {
                parts.push_back(part(&held.payload, at - offset, end - at));
                at = end;
            }
        }
        let (Some(first), Some(last)) = ends else { return };
        let Ok(head) = first.head.of_whole(!last.tail.is_empty()) else { return };
        let tail = match head.version() {
            super::Version::Six => last.tail.to_vec(),
            super::Version::Seven => Vec::new(),
        };
        let number = self.number();
        if let Some(fragments) = self.joins.fragments.get_mut(whole) {
            fragments.joining = Some(number);
        }
        let join = Join { parts, ..Join::default() };
        self.intakes.insert(number, Intake::of_fragments(head, join, tail));
        self.place(number);
        self.join_on(now, number);
    }

    /// Takes the next part, unless one is being read or the store has not kept up.
    pub(super) fn join_on(&mut self, now: Time, number: u64) {
        let bounds = self.config.limits.head;
        let most = self.config.limits.write_ahead;
        loop {
            let Some(intake) = self.intakes.get_mut(number) else { return };
            let is_behind = intake.unwritten() > most;
            let Some(join) = &mut intake.join else { return };
            if join.asks || is_behind {
                return;
            }
            let bytes = match join.parts.front() {
                None => {
                    intake.is_whole = true;
                    intake.join = None;
                    return self.finish_if_written(now, number);
                }
                Some(Content::Bytes(bytes)) => bytes.clone(),
                Some(Content::File { name, offset, len }) => {
                    join.asks = true;
                    match join.reading {
                        None => self.store.open(
                            Job::Part { intake: number },
                            name.clone(),
                            OpenMode::Read,
                        ),
                        Some((file, at)) => {
                            let left = (offset + len).saturating_sub(at);
                            let len = usize::try_from(left).unwrap_or(READ).min(READ);
                            self.store.read(Job::Part { intake: number }, file, at, len);
                        }
                    }
                    return;
                }
            };
            join.parts.pop_front();
            if let Fed::Payload(Some((offset, piece))) = intake.feed(&bytes, &bounds) {
                self.keep(number, offset, piece);
            }
        }
    }

    /// The store has opened the file of a part, or read a piece of it.
    pub(super) fn part_answered(
        &mut self,
        now: Time,
        number: u64,
        answer: Result<Completion, EffectError>,
    ) {
        let Some(intake) = self.intakes.get_mut(number).filter(|intake| intake.join.is_some())
        else {
            if let Ok(Completion::Opened { file, .. }) = answer {
                self.store.close(file);
            }
            return;
        };
        let Some(join) = &mut intake.join else { return };
        join.asks = false;
        let Some(Content::File { offset, len, .. }) = join.parts.front() else { return };
        match answer {
            Ok(Completion::Opened { file, .. }) => join.reading = Some((file, *offset)),
            Ok(Completion::Read(bytes)) => {
                let Some((file, at)) = &mut join.reading else { return };
                *at += bytes.len() as u64;
                let (file, is_read) = (*file, *at >= offset + len);
                if bytes.is_empty() && !is_read {
                    return self.fail_intake(now, number, EffectError::NotFound);
                }
                if is_read {
                    join.reading = None;
                    join.parts.pop_front();
                    self.store.close(file);
                }
                let bounds = self.config.limits.head;
                if let Fed::Payload(Some((offset, piece))) = intake.feed(&bytes, &bounds) {
                    self.keep(number, offset, piece);
                }
            }
            Ok(_) => return,
            Err(error) => return self.fail_intake(now, number, error),
        }
        self.join_on(now, number);
    }

    /// Whether what was joined is wanted still.
    pub(super) fn weigh_joined(&self, held: &Held) -> Result<(), Option<Answer>> {
        let key = held.key();
        let is_known = self.by_key.contains_key(&key) || self.gone.contains(&key);
        if is_known { Err(None) } else { Ok(()) }
    }

    /// What was joined is safe: its fragments are needed no longer.
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
                self.drop_intake(joining);
            }
            for (_, number) in fragments.parts.into_keys() {
                self.let_go(number);
            }
        }
        self.join_others(now);
    }

    /// What was joined could not be stored: it is tried again when the store has rested.
    pub(super) fn join_failed(&mut self, now: Time, number: u64) {
        for (whole, fragments) in &mut self.joins.fragments {
            if fragments.joining == Some(number) {
                fragments.joining = None;
                self.joins.later.insert(whole.clone());
            }
        }
        self.timers.set(Alarm::Join, now + REST, "fragments that are to be joined");
    }

    /// Joins what had to wait.
    pub(super) fn join_others(&mut self, now: Time) {
        for whole in std::mem::take(&mut self.joins.later) {
            self.join(now, &whole);
        }
    }

    /// A fragment goes: nothing is joined of it any more.
    pub(super) fn leave_fragments(&mut self, number: u64, held: &Held) {
        let Some(whole) = whole_of(held) else { return };
        let Some(fragments) = self.joins.fragments.get_mut(&whole) else { return };
        let Some((offset, _)) = held.key().fragment else { return };
        let Some(end) = fragments.parts.remove(&(offset, number)) else { return };
        // Others may have some of it, too; what only this one had is missing in any case.
        fragments.have.remove(offset, end);
        let joining = fragments.joining.take();
        if fragments.parts.is_empty() {
            self.joins.fragments.remove(&whole);
        }
        if let Some(joining) = joining {
            self.drop_intake(joining);
        }
        self.user.limit_left(Limit::Fragments);
    }
}

/// A part of bytes.
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
