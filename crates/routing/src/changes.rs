//! Changes of a contact plan while routes are computed from it.

use std::collections::BTreeMap;

use engine::Time;
use thiserror::Error;

use super::contacts::{Begin, Contact, ContactPlan, NodeNumber, PlanError, Range, Started};
use super::graph::{Graph, Slot, SlotIndex};
use super::routes::{ContactId, Router};

/// Change of a contact plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Adds a contact.
    AddContact(Contact),
    /// Adds a contact that began before [`Time::ZERO`].
    AddStartedContact(Contact, Begin),
    /// Changes rate and confidence of the contact that begins at a time.
    ModifyContact {
        /// Sending node.
        from: NodeNumber,
        /// Receiving node.
        to: NodeNumber,
        /// Begin.
        start: Begin,
        /// New rate in bit/s.
        rate_bps: u64,
        /// New confidence, if it changes.
        confidence: Option<f64>,
    },
    /// Deletes the contact that begins at a time, or all of a pair.
    DeleteContacts {
        /// Sending node.
        from: NodeNumber,
        /// Receiving node.
        to: NodeNumber,
        /// Begin; `None` for all.
        start: Option<Begin>,
    },
    /// Adds a range.
    AddRange(Range),
    /// Adds a range that began before [`Time::ZERO`].
    AddStartedRange(Range, Begin),
    /// Deletes the range that begins at a time, or all of a pair.
    DeleteRanges {
        /// Sending node.
        from: NodeNumber,
        /// Receiving node.
        to: NodeNumber,
        /// Begin; `None` for all.
        start: Option<Begin>,
    },
}

impl Change {
    /// Adds a contact that begins at a time, perhaps before [`Time::ZERO`].
    #[must_use]
    pub fn contact(contact: Contact, begin: Begin) -> Self {
        let contact = Contact { start: begin.time(), ..contact };
        if begin.0 < 0 {
            Self::AddStartedContact(contact, begin)
        } else {
            Self::AddContact(contact)
        }
    }

    /// Adds a range, likewise.
    #[must_use]
    pub fn range(range: Range, begin: Begin) -> Self {
        let range = Range { start: begin.time(), ..range };
        if begin.0 < 0 { Self::AddStartedRange(range, begin) } else { Self::AddRange(range) }
    }
}

/// Error of a change, which then has no effect.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum ChangeError {
    /// The contact overlaps another of its pair.
    #[error("contact {from} to {to} overlaps the one that begins at {start} s", from = .0.from, to = .0.to, start = .0.start.as_secs_f64())]
    ContactOverlaps(Contact),
    /// The range overlaps another of its pair.
    #[error("range {from} to {to} overlaps the one that begins at {start} s", from = .0.from, to = .0.to, start = .0.start.as_secs_f64())]
    RangeOverlaps(Range),
    /// There is no such contact.
    #[error("no contact of {from} with {to} to change")]
    NoContact {
        /// Sending node.
        from: NodeNumber,
        /// Receiving node.
        to: NodeNumber,
    },
    /// There is no such range.
    #[error("no range from {from} to {to} to delete")]
    NoRange {
        /// Sending node.
        from: NodeNumber,
        /// Receiving node.
        to: NodeNumber,
    },
    /// The contact or range does not end after its begin.
    #[error("it ends before it begins")]
    Empty,
    /// The contact joins a node with itself.
    #[error("it joins a node with itself")]
    OfOne,
    /// The contact has rate 0.
    #[error("it has no rate")]
    WithoutRate,
}

type Begins = BTreeMap<(NodeNumber, NodeNumber), Begin>;
type Pairs<T> = BTreeMap<(NodeNumber, NodeNumber), BTreeMap<Time, T>>;

/// A contact plan that is being changed.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    contacts: Pairs<Contact>,
    ranges: Pairs<Range>,
    started: Started,
}

impl Draft {
    /// Draft with the content of a plan.
    #[must_use]
    pub fn new(plan: &ContactPlan) -> Self {
        let mut draft = Self { started: plan.started().clone(), ..Self::default() };
        for contact in plan.contacts() {
            let of = draft.contacts.entry((contact.from, contact.to)).or_default();
            of.insert(contact.start, *contact);
        }
        for range in plan.ranges() {
            draft.ranges.entry((range.from, range.to)).or_default().insert(range.start, *range);
        }
        draft
    }

    /// Applies a change.
    ///
    /// # Errors
    ///
    /// It contradicts the draft, which stays as it was.
    pub fn apply(&mut self, change: &Change) -> Result<(), ChangeError> {
        match *change {
            Change::AddContact(new) => self.add_contact(new),
            Change::AddStartedContact(new, begin) => {
                self.add_contact(new)?;
                self.started.contacts.insert((new.from, new.to), begin);
                Ok(())
            }
            Change::ModifyContact { from, to, start, rate_bps, confidence } => {
                let start = named(&self.started.contacts, from, to, start);
                let of = self.contacts.get_mut(&(from, to));
                let known = of.and_then(|of| of.get_mut(&start?));
                let contact = known.ok_or(ChangeError::NoContact { from, to })?;
                if rate_bps == 0 {
                    return Err(ChangeError::WithoutRate);
                }
                contact.rate_bps = rate_bps;
                contact.confidence = confidence.unwrap_or(contact.confidence);
                Ok(())
            }
            Change::DeleteContacts { from, to, start } => {
                let started = &mut self.started.contacts;
                let found = delete(&mut self.contacts, started, from, to, start);
                found.then_some(()).ok_or(ChangeError::NoContact { from, to })
            }
            Change::AddRange(new) => self.add_range(new),
            Change::AddStartedRange(new, begin) => {
                self.add_range(new)?;
                self.started.ranges.insert((new.from, new.to), begin);
                Ok(())
            }
            Change::DeleteRanges { from, to, start } => {
                let started = &mut self.started.ranges;
                let found = delete(&mut self.ranges, started, from, to, start);
                found.then_some(()).ok_or(ChangeError::NoRange { from, to })
            }
        }
    }

    fn add_contact(&mut self, new: Contact) -> Result<(), ChangeError> {
        check(&new)?;
        let of = self.contacts.entry((new.from, new.to)).or_default();
        if let Some(other) = overlap(of, new.start, new.end, |contact| contact.end) {
            return Err(ChangeError::ContactOverlaps(other));
        }
        of.insert(new.start, new);
        Ok(())
    }

    fn add_range(&mut self, new: Range) -> Result<(), ChangeError> {
        if new.start >= new.end {
            return Err(ChangeError::Empty);
        }
        let of = self.ranges.entry((new.from, new.to)).or_default();
        if let Some(other) = overlap(of, new.start, new.end, |range| range.end) {
            return Err(ChangeError::RangeOverlaps(other));
        }
        of.insert(new.start, new);
        Ok(())
    }

    /// The plan.
    ///
    /// # Errors
    ///
    /// Never: every change was checked.
    pub fn plan(&self) -> Result<ContactPlan, PlanError> {
        let contacts = self.contacts.values().flat_map(BTreeMap::values).copied().collect();
        let ranges: Vec<Range> = self.ranges.values().flat_map(BTreeMap::values).copied().collect();
        Ok(ContactPlan::new(contacts, &ranges)?.with_started(self.started.clone()))
    }
}

fn check(contact: &Contact) -> Result<(), ChangeError> {
    if contact.start >= contact.end {
        return Err(ChangeError::Empty);
    }
    if contact.from == contact.to {
        return Err(ChangeError::OfOne);
    }
    if contact.rate_bps == 0 {
        return Err(ChangeError::WithoutRate);
    }
    Ok(())
}

/// Entry that a new one overlaps.
fn overlap<T: Copy>(
    of: &BTreeMap<Time, T>,
    start: Time,
    end: Time,
    ends: impl Fn(&T) -> Time,
) -> Option<T> {
    let (_, last) = of.range(..end).next_back()?;
    (ends(last) > start).then_some(*last)
}

/// Time in the draft of what begins at `start`. What began before [`Time::ZERO`] is there, and has
/// only its own begin as its name.
fn named(started: &Begins, from: NodeNumber, to: NodeNumber, start: Begin) -> Option<Time> {
    let time = start.time();
    let known = started.get(&(from, to)).copied().filter(|_| time == Time::ZERO);
    (known.unwrap_or_else(|| time.into()) == start).then_some(time)
}

fn delete<T>(
    pairs: &mut Pairs<T>,
    started: &mut Begins,
    from: NodeNumber,
    to: NodeNumber,
    start: Option<Begin>,
) -> bool {
    let pair = (from, to);
    let Some(start) = start else {
        started.remove(&pair);
        return pairs.remove(&pair).is_some_and(|of| !of.is_empty());
    };
    let Some(time) = named(started, from, to, start) else { return false };
    if time == Time::ZERO {
        started.remove(&pair);
    }
    pairs.get_mut(&pair).is_some_and(|of| of.remove(&time).is_some())
}

impl Router {
    /// Changes the plan. Contacts that stay keep their bookings and failures. All changes are made,
    /// or none.
    ///
    /// # Errors
    ///
    /// Number of the change that contradicts the plan, from 0, and the reason.
    pub fn change(&mut self, changes: &[Change]) -> Result<(), (usize, ChangeError)> {
        self.replace_plan(self.changed(changes)?);
        Ok(())
    }

    /// Returns the plan with changes.
    ///
    /// # Errors
    ///
    /// As for [`Router::change`].
    pub fn changed(&self, changes: &[Change]) -> Result<ContactPlan, (usize, ChangeError)> {
        let mut draft = Draft::new(&self.plan);
        for (number, change) in changes.iter().enumerate() {
            draft.apply(change).map_err(|error| (number, error))?;
        }
        draft.plan().map_err(|_| (0, ChangeError::Empty))
    }

    /// Replaces the plan. A contact keeps the identifier, the bookings and the failure of the one
    /// of its pair that began at the same time, or else of one that it overlaps.
    pub fn replace_plan(&mut self, plan: ContactPlan) {
        let ids = plan.contacts().iter().map(|contact| self.former(contact));
        let mut ids: Vec<Option<SlotIndex>> = ids.collect();
        // Each is the successor of one, and the one that began at the same time comes first.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        let is_same = |n: usize, former: Option<SlotIndex>| {
            let start = former.map(|slot| self.graph.slot(slot).start);
            start == plan.contacts().get(n).map(|contact| contact.start.as_nanos())
        };
        order.sort_by_key(|&n| !is_same(n, ids[n]));
        let mut taken = vec![false; self.graph.slots.len()];
        for n in order {
            if let Some(slot) = ids[n]
                && std::mem::replace(&mut taken[slot as usize], true)
            {
                ids[n] = None;
            }
        }
        let mut next_id = self.next_id;
        let new_ids: Vec<ContactId> = ids
            .iter()
            .map(|former| match former {
                Some(slot) => self.graph.slot(*slot).id,
                None => {
                    next_id += 1;
                    ContactId(next_id - 1)
                }
            })
            .collect();
        let mut graph = Graph::new(&plan, &new_ids, &self.settings);
        for former in ids.into_iter().flatten() {
            let Slot { id, has_failed, bookings, .. } = self.graph.slot(former).clone();
            if let Some(slot) = graph.by_id_mut(id) {
                let (start, end) = (slot.start, slot.end);
                slot.has_failed = has_failed;
                slot.bookings = bookings;
                if let Some(bookings) = &mut slot.bookings {
                    bookings.clip(start, end);
                }
            }
        }
        self.graph = graph;
        self.plan = plan;
        self.next_id = next_id;
        self.trees.clear();
    }

    /// Contact of the present plan whose successor this one is.
    fn former(&self, contact: &Contact) -> Option<SlotIndex> {
        let (from, to) = (self.graph.node(contact.from)?, self.graph.node(contact.to)?);
        let pair = self.graph.pair(from, to)?;
        let (start, end) = (contact.start.as_nanos(), contact.end.as_nanos());
        let mut overlapping = None;
        for index in self.graph.slots_after(pair, start.saturating_add(1)) {
            let slot = self.graph.slot(index);
            if slot.start >= end {
                break;
            }
            if slot.start == start {
                return Some(index);
            }
            overlapping = overlapping.or(Some(index));
        }
        overlapping
    }
}
