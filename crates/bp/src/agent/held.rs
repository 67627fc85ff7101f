//! A bundle in the store and its state of processing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::{FileName, Time};
use litemap::LiteMap;
use session::ranges::Ranges;

use super::super::layer::{Content, Tag};
use super::super::routes::{Priority, Route};
use super::config::LinkRef;
use super::gone::Left;
use super::head::{Head, Key};
use crate::codec::bp7::{Bounds, BundleFlags, BundleId, Eid};

/// Longest payload in the record of its bundle. Longer ones have a record of their own.
const PAYLOAD_MAX: usize = 4096;

/// Whether a payload of this length has a record of its own.
pub(super) const fn is_apart(len: usize) -> bool {
    len > PAYLOAD_MAX
}

/// Place of a payload that is not in the record of its bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Apart {
    /// In a file of the bundle.
    File(FileName),
    /// In a record of its own, so that the bundle's can change without it.
    Record,
}

/// A bundle and its state of processing.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Number in the store, of its file and of its record.
    pub(super) number: u64,
    pub(super) head: Head,
    pub(super) tail: Bytes,
    pub(super) payload: Content,
    pub(super) owns_file: bool,
    pub(super) received: Time,
    /// Its age on arrival, in milliseconds.
    pub(super) age_ms: u64,
    pub(super) expires: Time,
    pub(super) priority: Priority,
    /// Node it came from.
    pub(super) from: Option<Eid>,
    /// Nodes in whose queues it waits, with its route if there is a contact plan.
    pub(super) queued: LiteMap<Eid, Option<Route>>,
    /// Transmissions of it, or of parts of it.
    pub(super) sending: LiteMap<(LinkRef, Tag), Sending>,
    /// Parts of its payload at nodes without the complete bundle.
    pub(super) parts: BTreeMap<Eid, Ranges>,
    /// Nodes that have it.
    pub(super) sent: BTreeSet<Eid>,
    /// Copies at this node, which it may share.
    pub(super) copies: u32,
    /// Copies given to nodes, transmissions included.
    pub(super) shares: BTreeMap<Eid, u32>,
    /// Custody by this node.
    pub(super) custody: Option<Custody>,
    /// Arrival at this node.
    pub(super) arrival: Arrival,
    /// Whether it was delivered to a user that has not confirmed.
    pub(super) delivering: bool,
    /// Whether it waits for a route, or for neighbours without a copy.
    pub(super) waits: bool,
    /// Whether an effect of the store is pending.
    pub(super) storing: bool,
    /// Whether an earlier run stored it.
    pub(super) is_restored: bool,
}

/// Arrival of a bundle at this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Neighbour over whose link it came, if known.
    pub(super) by: Option<Eid>,
    /// Number of times that it came back after it was forwarded.
    pub(super) returns: u8,
    /// Previous custodian to signal, with the number it gave the bundle.
    pub(super) predecessor: Option<(Eid, Option<u64>)>,
    /// Whether its security was processed.
    pub(super) is_secured: bool,
    /// Numbers of the security rules whose operations it passed.
    pub(super) verified: Vec<u32>,
    /// Hops added because copies came back that were elsewhere.
    pub(super) hops: u8,
    /// Whether it was transmitted since hops were last added.
    pub(super) is_tried: bool,
}

/// Transmission to a neighbour.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) to: Eid,
    pub(super) route: Option<Route>,
    /// Start and end of the sent part, unless it is the whole payload.
    pub(super) part: Option<(u64, u64)>,
    /// Bytes before the payload.
    pub(super) head_len: usize,
    /// Added hops, as in [`Arrival`].
    pub(super) hops: u8,
}

/// Custody of a bundle, until others accept it.
#[derive(Clone, Debug, Default)]
pub(super) struct Custody {
    /// Number under which custodians may acknowledge it, if it was sent with one.
    pub(super) number: Option<u64>,
    /// Nodes to which it was sent, or is being sent.
    pub(super) given: BTreeSet<Eid>,
    /// Parts of the payload of which others have accepted custody.
    pub(super) taken: Ranges,
    /// Time of the next retransmission, once it was sent.
    pub(super) retransmit_at: Option<Time>,
}

impl Held {
    /// A bundle that is not queued or delivered yet.
    pub(super) fn new(
        number: u64,
        head: Head,
        tail: Bytes,
        payload: Content,
        owns_file: bool,
    ) -> Self {
        Self {
            number,
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
            arrival: Arrival::default(),
            delivering: false,
            waits: false,
            storing: false,
            is_restored: false,
        }
    }

    pub(super) fn key(&self) -> Key {
        self.head.key()
    }

    pub(super) fn id(&self) -> BundleId {
        self.key().id()
    }

    /// Place of a payload that a store on disk has apart from the record.
    pub(super) fn apart(&self) -> Option<Apart> {
        match &self.payload {
            Content::Bytes(bytes) => is_apart(bytes.len()).then_some(Apart::Record),
            Content::File { .. } => self.own_file().cloned().map(Apart::File),
        }
    }

    /// The file that is deleted with the bundle.
    pub(super) fn own_file(&self) -> Option<&FileName> {
        match &self.payload {
            Content::File { name, .. } if self.owns_file => Some(name),
            Content::File { .. } | Content::Bytes(_) => None,
        }
    }

    pub(super) const fn destination(&self) -> &Eid {
        self.head.destination()
    }

    pub(super) const fn requests(&self, flag: BundleFlags) -> bool {
        self.head.flags().contains(flag)
    }

    /// Bytes that it takes in the store.
    pub(super) fn bytes(&self) -> u64 {
        self.payload.len().saturating_add(self.head.encoded_len() as u64)
    }

    /// Whether no processing of it is left.
    pub(super) fn is_done(&self) -> bool {
        self.queued.is_empty()
            && self.sending.is_empty()
            && self.custody.is_none()
            && !self.delivering
            && !self.waits
            && !self.storing
    }

    /// Age in milliseconds.
    pub(super) fn age_ms(&self, now: Time) -> u64 {
        let here = now.since(self.received).as_millis();
        self.age_ms.saturating_add(u64::try_from(here).unwrap_or(u64::MAX))
    }

    /// Whether it must not go to a neighbour: it came back from there. One without a source cannot
    /// be recognized when it comes back, so it never goes back.
    pub(super) fn avoids(&self, node: &Eid) -> bool {
        let is_from = self.from.as_ref() == Some(node);
        if self.head.is_anonymous() {
            is_from || self.arrival.by.as_ref() == Some(node)
        } else {
            self.arrival.returns > 0 && is_from
        }
    }

    /// Hop count with which it came, if it has one.
    pub(super) fn hops(&self, bounds: &Bounds) -> Option<u8> {
        let hops = self.head.hop_count(bounds)?;
        Some(u8::try_from(hops.count).unwrap_or(u8::MAX))
    }

    /// Whether its hop count is below its hop limit, if it has one.
    pub(super) fn has_hops_left(&self, bounds: &Bounds) -> bool {
        self.head.hop_count(bounds).is_none_or(|hops| hops.count < hops.limit)
    }

    /// Whether a copy of it was at other nodes since this node has it. Its hop count is higher
    /// then. Without a hop count a copy that comes during a transmission may have been there;
    /// custody outlasts the transmission.
    pub(super) fn was_elsewhere(&self, copy: &Self, bounds: &Bounds) -> bool {
        match (copy.hops(bounds), self.hops(bounds)) {
            (Some(hops), before) => hops > before.unwrap_or(0).saturating_add(self.arrival.hops),
            (None, _) => self.custody.is_none() && !self.sending.is_empty(),
        }
    }

    /// Way in which it leaves.
    pub(super) fn left(&self, bounds: &Bounds) -> Left {
        if self.sent.is_empty() {
            return Left::Here;
        }
        let giver = self.arrival.by.as_ref().or(self.from.as_ref());
        let (giver, hops) = (giver.cloned(), self.hops(bounds));
        Left::Forwarded { giver, hops, returns: self.arrival.returns }
    }

    /// Whether only a part of it was sent or is in transit.
    pub(super) fn is_cut(&self) -> bool {
        !self.parts.is_empty() || self.sending.values().any(|sending| sending.part.is_some())
    }

    /// First part of the payload that was neither sent nor is in transit: to this node if each
    /// gets its own copy, otherwise to any.
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

    /// Whether all parts were sent: to this node, or to all together.
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

    /// Takes back copies that a neighbour did not receive.
    pub(super) fn reclaim_copies(&mut self, node: &Eid) {
        let has_some = self.parts.contains_key(node)
            || self.sending.values().any(|sending| sending.to == *node);
        if !has_some && let Some(copies) = self.shares.remove(node) {
            self.copies = self.copies.saturating_add(copies);
        }
    }

    /// Records the part a neighbour acknowledged and keeps after its link broke (RFC 5050 §5.8, RFC
    /// 7242 §3.2): it is not retransmitted.
    pub(super) fn keep_acknowledged(&mut self, at: LinkRef, tag: Tag, acknowledged: u64) {
        let len = self.payload.len();
        let may_be_cut = matches!(self.head, Head::Six(_)) && self.head.may_be_cut();
        let Some(sending) = self.sending.get(&(at, tag)).filter(|_| may_be_cut) else { return };
        let (start, end) = sending.part.unwrap_or((0, len));
        // If only the blocks behind the payload are missing, the last byte is sent with them.
        let kept = acknowledged.saturating_sub(sending.head_len as u64);
        let kept = kept.min((end - start).saturating_sub(1));
        if kept > 0 {
            let node = sending.to.clone();
            self.parts.entry(node).or_default().insert(start, start + kept);
        }
    }
}
