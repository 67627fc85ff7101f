//! A bundle that the agent holds, and what is to become of it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::{FileName, Time};
use litemap::LiteMap;
use wire::bp7::{Bounds, BundleFlags, BundleId, Eid};

use super::super::layer::{Content, Tag};
use super::super::routes::{Priority, Route};
use super::clock::Clock;
use super::config::LinkRef;
use super::head::{Head, Key};
use crate::ranges::Ranges;

/// A bundle, and what is to become of it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) head: Head,
    pub(super) tail: Bytes,
    pub(super) payload: Content,
    pub(super) owns_file: bool,
    pub(super) received: Time,
    /// Its age when it came, in milliseconds.
    pub(super) age_ms: u64,
    pub(super) expires: Time,
    pub(super) priority: Priority,
    /// Who sent it here.
    pub(super) from: Option<Eid>,
    /// Nodes in whose queues it waits, with the way by which it is to go, if there is a plan.
    pub(super) queued: LiteMap<Eid, Option<Route>>,
    /// It is on its way there, or a part of it.
    pub(super) sending: LiteMap<(LinkRef, Tag), Sending>,
    /// Which parts of its payload nodes have, that do not have all of it.
    pub(super) parts: BTreeMap<Eid, Ranges>,
    /// Nodes that have it.
    pub(super) sent: BTreeSet<Eid>,
    /// Copies of it that are here, of which others may be given some.
    pub(super) copies: u32,
    /// Copies that nodes were given, or are being given.
    pub(super) shares: BTreeMap<Eid, u32>,
    /// This node has custody.
    pub(super) custody: Option<Custody>,
    /// Who had custody before, and is to be told that it is here, with the number that it gave the bundle.
    pub(super) predecessor: Option<(Eid, Option<u64>)>,
    /// It was handed to a user, who has not confirmed.
    pub(super) delivering: bool,
    /// It waits for a route, or for those who have not had it.
    pub(super) waits: bool,
    /// The store is being told.
    pub(super) storing: bool,
}

/// A bundle on its way to a neighbour.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) to: Eid,
    pub(super) route: Option<Route>,
    /// Where the part begins and ends that goes, if it is not all of the payload.
    pub(super) part: Option<(u64, u64)>,
    /// Bytes before the payload.
    pub(super) head_len: usize,
}

/// Custody of a bundle, until others have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Custody {
    /// The parts of the payload of which others have taken custody.
    pub(super) taken: Ranges,
    /// When it is sent again, once it has been sent.
    pub(super) again: Option<Time>,
}

impl Held {
    /// A bundle of which nothing is wanted yet.
    pub(super) fn new(head: Head, tail: Bytes, (payload, owns_file): (Content, bool)) -> Self {
        Self {
            head,
            tail,
            payload,
            owns_file,
            received: Time::ZERO,
            age_ms: 0,
            expires: Time::MAX,
            priority: Priority::Normal,
            from: None,
            queued: LiteMap::new(),
            sending: LiteMap::new(),
            parts: BTreeMap::new(),
            sent: BTreeSet::new(),
            copies: 1,
            shares: BTreeMap::new(),
            custody: None,
            predecessor: None,
            delivering: false,
            waits: false,
            storing: false,
        }
    }

    pub(super) fn key(&self) -> Key {
        self.head.key()
    }

    pub(super) fn id(&self) -> BundleId {
        self.key().id()
    }

    /// The file that goes with the bundle.
    pub(super) fn own_file(&self) -> Option<&FileName> {
        match &self.payload {
            Content::File { name, .. } if self.owns_file => Some(name),
            Content::File { .. } | Content::Bytes(_) => None,
        }
    }

    pub(super) const fn destination(&self) -> &Eid {
        self.head.destination()
    }

    pub(super) const fn asks(&self, flag: BundleFlags) -> bool {
        self.head.flags().contains(flag)
    }

    /// Bytes that it takes in the store.
    pub(super) fn bytes(&self) -> u64 {
        self.payload.len().saturating_add(self.head.encoded_len() as u64)
    }

    /// Nobody wants anything of it any more.
    pub(super) fn is_done(&self) -> bool {
        self.queued.is_empty()
            && self.sending.is_empty()
            && self.custody.is_none()
            && !self.delivering
            && !self.waits
            && !self.storing
    }

    /// Milliseconds from its making on.
    pub(super) fn age_ms(&self, now: Time) -> u64 {
        let here = now.since(self.received).as_millis();
        self.age_ms.saturating_add(u64::try_from(here).unwrap_or(u64::MAX))
    }

    /// Whether it was forwarded as often as it may be.
    pub(super) fn is_at_its_hop_limit(&self, bounds: &Bounds) -> bool {
        self.head.hop_count(bounds).is_some_and(|hops| hops.count >= hops.limit)
    }

    /// Whether a part of it has gone, or is going, and the rest has not.
    pub(super) fn is_cut(&self) -> bool {
        !self.parts.is_empty() || self.sending.values().any(|sending| sending.part.is_some())
    }

    /// The first part of the payload that has not gone and is not going: to this node, if each gets a copy of its
    /// own, or else to anybody.
    pub(super) fn gap(&self, copy_for: Option<&Eid>) -> Option<(u64, u64)> {
        let len = self.payload.len();
        let counts = |node: &Eid| copy_for.is_none_or(|copy| copy == node);
        let mut gone = self.gone(copy_for);
        for sending in self.sending.values().filter(|sending| counts(&sending.to)) {
            let (start, end) = sending.part.unwrap_or((0, len));
            gone.insert(start, end);
        }
        gone.gaps(0, len).next()
    }

    /// Whether nodes have all parts: this one, or all together.
    pub(super) fn has_gone(&self, copy_for: Option<&Eid>) -> bool {
        self.gone(copy_for).covered() == self.payload.len()
    }

    fn gone(&self, copy_for: Option<&Eid>) -> Ranges {
        let mut gone = Ranges::new();
        let counts = |node: &Eid| copy_for.is_none_or(|copy| copy == node);
        for (_, parts) in self.parts.iter().filter(|(node, _)| counts(node)) {
            parts.iter().for_each(|(start, end)| gone.insert(start, end));
        }
        gone
    }
}

/// How old a bundle is that comes now, in milliseconds, and when it expires (RFC 9171 §5.5). One without a
/// time of its making, or that comes to a node without a clock, is as old as it says.
pub(super) fn ages(
    head: &Head,
    now: Time,
    clock: Clock,
    lifetime_max_ms: u64,
    bounds: &Bounds,
) -> (u64, Time) {
    let made_ms = head.creation().time_ms;
    let age = head.age_ms(bounds);
    let by_clock =
        clock.dtn_time(now).filter(|_| made_ms > 0).map(|now_ms| now_ms.saturating_sub(made_ms));
    let age_ms = by_clock.or(age).unwrap_or(0);
    let lifetime_ms = head.lifetime_ms().min(lifetime_max_ms);
    let left = super::config::millis(lifetime_ms.saturating_sub(age_ms));
    (age.unwrap_or(age_ms), now + left)
}
