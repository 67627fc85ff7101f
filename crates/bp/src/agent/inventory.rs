//! Inventory of an agent's bundles, and their cancellation by users.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{FileName, Time};
use session::ranges::Ranges;

use super::super::routes::{Priority, Wanted};
use super::head::Key;
use super::{Agent, DeliveryId, Held, Limit, LinkRef, RequestError, Routing, Version};
use crate::codec::bp7::{BundleId, Eid, HopCount, Reason};

/// Summary of a bundle in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number in the store, in order of arrival.
    pub number: u64,
    /// Identity.
    pub id: BundleId,
    /// Destination.
    pub destination: Eid,
    /// Bytes in the store.
    pub bytes: u64,
    /// Time of arrival.
    pub received: Time,
    /// Time of expiry.
    pub expires: Time,
    /// Neighbours in whose queues it is, or to which it is being sent.
    pub next_hops: BTreeSet<Eid>,
    /// Class of service in this node's queues.
    pub priority: Priority,
    /// Whether this node has custody of it.
    pub has_custody: bool,
    /// Most bytes of its payload that a neighbour without the complete bundle has.
    pub sent: u64,
    /// State.
    pub state: State,
}

/// Facts about a delivered bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Destination.
    pub destination: Eid,
    /// Lifetime that its source gave it, in milliseconds.
    pub lifetime_ms: u64,
    /// Age, in milliseconds.
    pub age_ms: u64,
    /// Time until it expires.
    pub left: Duration,
    /// Hop limit and hop count, if it has them.
    pub hops: Option<HopCount>,
}

/// Traffic with a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourTraffic {
    /// Links that are up.
    pub links: usize,
    /// Bundles queued for it.
    pub queued: usize,
    /// Bundles in transit to it, and their bytes.
    pub sending: (usize, u64),
}

/// Event a bundle waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Record in the store.
    Storing,
    /// Confirmation by its user.
    Delivering,
    /// Acknowledgment by a neighbour.
    Sending,
    /// Contact with a neighbour.
    Queued,
    /// A route, or a user.
    Waiting,
}

impl State {
    /// Name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Storing => "storing",
            Self::Delivering => "delivering",
            Self::Sending => "sending",
            Self::Queued => "queued",
            Self::Waiting => "waiting",
        }
    }
}

impl Agent {
    /// Bundles in the store, in order of arrival.
    pub fn bundles(&self) -> impl Iterator<Item = Summary> + '_ {
        self.bundles_after(0)
    }

    /// Bundles in the store with a number above `after`, in order of arrival.
    pub fn bundles_after(&self, after: u64) -> impl Iterator<Item = Summary> + '_ {
        let later = self.core.stock.bundles.range(after.saturating_add(1)..);
        later.map(|(number, held)| held.summary(*number))
    }

    /// Deletes up to `most` bundles with a number above `after` that `selects` chooses, on a user's
    /// request. Bundles that are just being stored stay. Returns the numbers of the deleted bundles,
    /// in order of arrival.
    pub fn purge(
        &mut self,
        now: Time,
        (after, most): (u64, usize),
        selects: impl Fn(&Summary) -> bool,
    ) -> Vec<u64> {
        let later = self.core.stock.bundles.range(after.saturating_add(1)..);
        let free = later.filter(|(_, held)| !held.storing);
        let chosen = free.filter(|(number, held)| selects(&held.summary(**number)));
        let numbers: Vec<u64> = chosen.map(|(number, _)| *number).take(most).collect();
        for number in &numbers {
            self.delete(now, *number, Reason::TransmissionCanceled);
        }
        self.forwarder.pump_freed(&mut self.core, now);
        numbers
    }

    /// Time until the next contact with a neighbour begins by the contact plan, zero during one.
    #[must_use]
    pub fn next_contact(&self, now: Time, neighbour: &Eid) -> Option<Duration> {
        let Routing::ContactGraph(router, _) = &self.core.config.routing else { return None };
        Some(router.next_contact(now, neighbour.ipn_node()?)?.start.since(now))
    }

    /// Time until a short bundle arrives at a node by the contact plan.
    #[must_use]
    pub fn projected_arrival(&self, now: Time, to: &Eid) -> Option<Duration> {
        let Routing::ContactGraph(router, _) = &self.core.config.routing else { return None };
        let wanted = Wanted {
            destination: to.ipn_node()?,
            bytes: 0,
            priority: Priority::Expedited,
            expires: Time::MAX,
            excluded: &BTreeSet::new(),
        };
        let route = router.routes(now, &wanted, 1).pop()?;
        Some(route.arrives.since(now))
    }

    /// Facts about a bundle that was delivered and is not confirmed.
    #[must_use]
    pub fn received(&self, now: Time, delivery: DeliveryId) -> Option<Received> {
        let held = self.core.stock.get(delivery.0).filter(|held| held.delivering)?;
        Some(Received {
            destination: held.destination().clone(),
            lifetime_ms: held.head.lifetime_ms(),
            age_ms: held.age_ms(now),
            left: held.expires.since(now),
            hops: held.head.hop_count(&self.core.config.limits.head),
        })
    }

    /// Whether a bundle of version 7 that is no fragment is in the store.
    #[must_use]
    pub fn holds(&self, id: &BundleId) -> bool {
        let BundleId { source, creation, .. } = id.clone();
        let key = Key { version: Version::Seven, source, creation, fragment: None };
        self.core.stock.by_key.contains_key(&key)
    }

    /// Whether a bound was reached, and nothing has left since.
    #[must_use]
    pub fn is_at(&self, limit: Limit) -> bool {
        self.core.user.is_at(limit)
    }

    /// Time of arrival of the oldest bundle in the store.
    #[must_use]
    pub fn oldest(&self) -> Option<Time> {
        self.core.stock.bundles.values().next().map(|held| held.received)
    }

    /// Traffic with each neighbour that is up, or for which bundles are queued.
    #[must_use]
    pub fn traffic(&self) -> BTreeMap<Eid, NeighbourTraffic> {
        self.forwarder.links.traffic()
    }

    /// Neighbours with queued bundles or bundles in transit, to which an on-demand driver opens
    /// links.
    #[must_use]
    pub fn wanted(&self) -> BTreeSet<Eid> {
        self.forwarder.links.wanted()
    }

    /// Neighbours that can be reached.
    #[must_use]
    pub fn nodes_up(&self) -> BTreeSet<Eid> {
        self.forwarder.links.nodes_up()
    }

    /// Links that can be used.
    pub fn links_up(&self) -> impl Iterator<Item = LinkRef> {
        self.forwarder.links.up().map(|(at, _)| at)
    }

    /// Whether a neighbour can be reached.
    #[must_use]
    pub fn reaches(&self, node: &Eid) -> bool {
        self.forwarder.links.reaches(node)
    }

    /// Number of bundles without a route.
    #[must_use]
    pub fn unrouted(&self) -> usize {
        self.forwarder.links.waiting.len()
    }

    /// Deletes a bundle on a user's request.
    ///
    /// # Errors
    ///
    /// There is no such bundle, or it is just being stored.
    pub fn cancel(&mut self, now: Time, id: &BundleId) -> Result<(), RequestError> {
        let number = self.number_of(id).ok_or(RequestError::NoBundle)?;
        if self.core.stock.get(number).is_some_and(|held| held.storing) {
            return Err(RequestError::NotReady);
        }
        self.delete(now, number, Reason::TransmissionCanceled);
        self.forwarder.pump_freed(&mut self.core, now);
        Ok(())
    }

    fn number_of(&self, id: &BundleId) -> Option<u64> {
        let is_it = |(key, _): &(&Key, &u64)| {
            key.source == id.source
                && key.creation == id.creation
                && key.fragment.map(|(offset, _)| offset) == id.offset
        };
        self.core.stock.by_key.iter().find(is_it).map(|(_, number)| *number)
    }

    /// Name of a new file in the store to which a user writes a payload before sending it. Files
    /// that are never sent are removed at the next start.
    pub fn working_file(&mut self) -> FileName {
        let number = self.core.number();
        self.core.stock.store.file_name(number)
    }
}

impl Held {
    fn summary(&self, number: u64) -> Summary {
        let queued = self.queued.keys().cloned();
        let sending = self.sending.values().map(|sending| sending.to.clone());
        Summary {
            number,
            id: self.id(),
            destination: self.destination().clone(),
            bytes: self.bytes(),
            received: self.received,
            expires: self.expires,
            next_hops: queued.chain(sending).collect(),
            priority: self.priority,
            has_custody: self.custody.is_some(),
            sent: self.parts.values().map(Ranges::covered).max().unwrap_or(0),
            state: if self.storing {
                State::Storing
            } else if self.delivering {
                State::Delivering
            } else if !self.sending.is_empty() {
                State::Sending
            } else if self.queued.is_empty() {
                State::Waiting
            } else {
                State::Queued
            },
        }
    }
}
