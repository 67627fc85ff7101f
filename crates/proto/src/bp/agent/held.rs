//! A bundle that the agent holds, and what is to become of it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::{FileName, Time};
use wire::bp7::{
    BUNDLE_AGE, BlockFlags, Bounds, BundleFlags, BundleId, CrcType, Eid, Extension, HOP_COUNT,
    Head, HopCount, PREVIOUS_NODE,
};

use super::super::layer::{Content, Outgoing, Tag};
use super::super::routes::{Priority, Route};
use super::config::{LinkRef, dtn_time};

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
    pub(super) queued: BTreeMap<Eid, Option<Route>>,
    /// It is on its way there.
    pub(super) sending: BTreeMap<(LinkRef, Tag), (Eid, Option<Route>)>,
    /// Nodes that have it.
    pub(super) sent: BTreeSet<Eid>,
    /// It was handed to a user, who has not confirmed.
    pub(super) delivering: bool,
    /// It waits for a route, or for those who have not had it.
    pub(super) waits: bool,
    /// The store is being told.
    pub(super) storing: bool,
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
            queued: BTreeMap::new(),
            sending: BTreeMap::new(),
            sent: BTreeSet::new(),
            delivering: false,
            waits: false,
            storing: false,
        }
    }

    pub(super) fn id(&self) -> BundleId {
        self.head.primary().id()
    }

    /// The file that goes with the bundle.
    pub(super) fn own_file(&self) -> Option<&FileName> {
        match &self.payload {
            Content::File { name, .. } if self.owns_file => Some(name),
            Content::File { .. } | Content::Octets(_) => None,
        }
    }

    pub(super) fn destination(&self) -> &Eid {
        &self.head.primary().destination
    }

    pub(super) fn asks(&self, flag: BundleFlags) -> bool {
        self.head.primary().flags.contains(flag)
    }

    /// Octets that it takes in the store.
    pub(super) fn octets(&self) -> u64 {
        self.payload.len() + self.head.encoded_len() as u64
    }

    /// Nobody wants anything of it any more.
    pub(super) fn is_done(&self) -> bool {
        self.queued.is_empty()
            && self.sending.is_empty()
            && !self.delivering
            && !self.waits
            && !self.storing
    }

    /// Milliseconds from its making on.
    fn age_ms(&self, now: Time) -> u64 {
        let here = now.since(self.received).as_millis();
        self.age_ms.saturating_add(u64::try_from(here).unwrap_or(u64::MAX))
    }

    /// Whether it was forwarded as often as it may be.
    pub(super) fn is_at_its_hop_limit(&self, bounds: &Bounds) -> bool {
        self.hop_count(bounds).is_some_and(|hops| hops.count >= hops.limit)
    }

    fn hop_count(&self, bounds: &Bounds) -> Option<HopCount> {
        match self.head.block_of(HOP_COUNT)?.extension(bounds) {
            Ok(Extension::HopCount(hops)) => Some(hops),
            Ok(_) | Err(_) => None,
        }
    }

    /// The bundle as it leaves this node (RFC 9171 §5.4): previous node, hop count and age are this node's.
    pub(super) fn outgoing(&self, now: Time, node: &Eid, bounds: &Bounds) -> Outgoing {
        let mut head = self.head.clone();
        replace(&mut head, PREVIOUS_NODE, &Extension::PreviousNode(node.clone()), true);
        let age_ms = self.age_ms(now);
        replace(&mut head, BUNDLE_AGE, &Extension::BundleAge { age_ms }, false);
        if let Some(HopCount { limit, count }) = self.hop_count(bounds) {
            let hops = HopCount { limit, count: count.saturating_add(1) };
            replace(&mut head, HOP_COUNT, &Extension::HopCount(hops), false);
        }
        Outgoing {
            head: head.encode().into(),
            payload: self.payload.clone(),
            tail: self.tail.clone(),
            reliable: true,
        }
    }
}

/// Puts an extension in the place of the one of its type; where there is none, only if it belongs there `always`.
fn replace(head: &mut Head, kind: u64, extension: &Extension, always: bool) {
    let old = head.block_of(kind).map(|block| (block.number(), block.flags(), block.crc()));
    if old.is_none() && !always {
        return;
    }
    let new = (head.free_number(), BlockFlags::default(), CrcType::Crc16);
    let (number, flags, crc) = old.unwrap_or(new);
    if let Ok(block) = extension.to_block(number, flags, crc) {
        head.put_block(block);
    }
}

/// Who sent a bundle here, as it says.
pub(super) fn previous_node(head: &Head, bounds: &Bounds) -> Option<Eid> {
    match head.block_of(PREVIOUS_NODE)?.extension(bounds) {
        Ok(Extension::PreviousNode(node)) => Some(node),
        Ok(_) | Err(_) => None,
    }
}

/// How old a bundle is that comes now, in milliseconds, and when it expires (RFC 9171 §5.5). One without a
/// time of its making, or that comes to a node without a clock, is as old as it says.
pub(super) fn ages(
    head: &Head,
    now: Time,
    clock: Option<u64>,
    lifetime_max_ms: u64,
    bounds: &Bounds,
) -> (u64, Time) {
    let primary = head.primary();
    let said = match head.block_of(BUNDLE_AGE).map(|block| block.extension(bounds)) {
        Some(Ok(Extension::BundleAge { age_ms })) => Some(age_ms),
        Some(Ok(_) | Err(_)) | None => None,
    };
    let by_clock = dtn_time(clock, now)
        .filter(|_| primary.creation.time_ms > 0)
        .map(|now_ms| now_ms.saturating_sub(primary.creation.time_ms));
    let age_ms = by_clock.or(said).unwrap_or(0);
    let lifetime_ms = primary.lifetime_ms.min(lifetime_max_ms);
    let left = super::config::millis(lifetime_ms.saturating_sub(age_ms));
    (said.unwrap_or(age_ms), now + left)
}
