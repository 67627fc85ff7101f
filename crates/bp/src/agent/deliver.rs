//! Delivery of bundles to the users of this node (RFC 9171 §5.7).

use std::collections::{BTreeMap, BTreeSet};

use engine::Time;

use super::super::layer::Content;
use super::custody::Signaller;
use super::head::Head;
use super::{Agent, DeliveryId, Indication, RequestError};
use crate::codec::bp6;
use crate::codec::bp7::{AdministrativeRecord, BundleFlags, BundleId, Eid, Reason};

/// Registered endpoints, and bundles waiting for their users.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Registered endpoints, and their unconfirmed deliveries.
    endpoints: BTreeMap<Eid, BTreeSet<u64>>,
    /// Undelivered bundles for endpoints of this node.
    undelivered: BTreeMap<Eid, BTreeSet<u64>>,
}

impl Users {
    /// Whether an endpoint is registered.
    pub(super) fn is_registered(&self, endpoint: &Eid) -> bool {
        self.endpoints.contains_key(endpoint)
    }

    /// Registers an endpoint.
    pub(super) fn register(&mut self, endpoint: &Eid) {
        self.endpoints.insert(endpoint.clone(), BTreeSet::new());
    }

    /// Deregisters an endpoint. Returns the unconfirmed deliveries.
    pub(super) fn deregister(&mut self, endpoint: &Eid) -> BTreeSet<u64> {
        self.endpoints.remove(endpoint).unwrap_or_default()
    }

    /// Whether an endpoint is registered and has fewer than `most` unconfirmed deliveries.
    pub(super) fn takes(&self, endpoint: &Eid, most: usize) -> bool {
        self.endpoints.get(endpoint).is_some_and(|delivering| delivering.len() < most)
    }

    /// Records a delivery to the user of an endpoint; `false` without a user.
    pub(super) fn hand_over(&mut self, endpoint: &Eid, number: u64) -> bool {
        let Some(delivering) = self.endpoints.get_mut(endpoint) else { return false };
        delivering.insert(number);
        true
    }

    /// Records the confirmation of a delivery.
    pub(super) fn confirm(&mut self, endpoint: &Eid, number: u64) {
        if let Some(delivering) = self.endpoints.get_mut(endpoint) {
            delivering.remove(&number);
        }
    }

    /// Queues a bundle for a user.
    pub(super) fn wait(&mut self, endpoint: &Eid, number: u64) {
        self.undelivered.entry(endpoint.clone()).or_default().insert(number);
    }

    /// Whether bundles are queued for an endpoint.
    pub(super) fn has_waiting(&self, endpoint: &Eid) -> bool {
        self.undelivered.contains_key(endpoint)
    }

    /// Takes the bundle that waited longest.
    pub(super) fn pop_waiting(&mut self, endpoint: &Eid) -> Option<u64> {
        let undelivered = self.undelivered.get_mut(endpoint)?;
        let next = undelivered.pop_first();
        if undelivered.is_empty() {
            self.undelivered.remove(endpoint);
        }
        next
    }

    /// Removes a bundle for an endpoint.
    pub(super) fn forget(&mut self, endpoint: &Eid, number: u64) {
        for of in [&mut self.endpoints, &mut self.undelivered] {
            if let Some(numbers) = of.get_mut(endpoint) {
                numbers.remove(&number);
            }
        }
    }
}

impl Agent {
    /// Registers a user for an endpoint. Bundles that wait for it are delivered.
    ///
    /// # Errors
    ///
    /// The endpoint is null or already registered.
    pub fn register(&mut self, endpoint: &Eid) -> Result<(), RequestError> {
        if endpoint.is_none() {
            return Err(RequestError::NoDestination);
        }
        if endpoint.is_singleton() && !self.core.is_ours(endpoint) {
            return Err(RequestError::NotOurs);
        }
        if self.core.users.is_registered(endpoint) {
            return Err(RequestError::Taken);
        }
        self.core.users.register(endpoint);
        self.offer(endpoint);
        Ok(())
    }

    /// Deregisters an endpoint. Unconfirmed bundles wait for the next registration.
    pub fn deregister(&mut self, endpoint: &Eid) {
        // The next user gets an indication of its own.
        self.core.user.withdraw(|indication| match indication {
            Indication::Delivered { endpoint: of, .. } => of == endpoint,
            _ => false,
        });
        for number in self.core.users.deregister(endpoint) {
            if let Some(held) = self.core.stock.get_mut(number) {
                (held.delivering, held.waits) = (false, true);
                self.core.users.wait(endpoint, number);
            }
        }
    }

    /// Identity of the bundle of a delivery. After a restart the same number may belong to another
    /// bundle.
    #[must_use]
    pub fn delivery(&self, delivery: DeliveryId) -> Option<BundleId> {
        let held = self.core.stock.get(delivery.0).filter(|held| held.delivering);
        held.map(|held| held.id())
    }

    /// Confirms a delivery: the agent may delete the bundle.
    ///
    /// # Errors
    ///
    /// No such delivery: it was confirmed, or has expired.
    pub fn confirm(&mut self, now: Time, delivery: DeliveryId) -> Result<(), RequestError> {
        let DeliveryId(number) = delivery;
        let held = self.core.stock.get_mut(number).filter(|held| held.delivering);
        let held = held.ok_or(RequestError::NoDelivery)?;
        held.delivering = false;
        let endpoint = held.destination().clone();
        self.core.statistics.delivered += 1;
        self.report(now, number, BundleFlags::REPORT_DELIVERY, Reason::NoInformation);
        self.core.users.confirm(&endpoint, number);
        self.settle(number);
        self.offer(&endpoint);
        Ok(())
    }

    /// Delivers a bundle to its user, or keeps it until there is one.
    pub(super) fn deliver(&mut self, now: Time, number: u64) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        if held.head.fragment().is_some() {
            return self.collect(now, number);
        }
        if !self.joins.is_empty() {
            let key = held.key();
            self.joined(now, &key);
        }
        let Some(held) = self.core.stock.get_mut(number) else { return };
        if held.requests(BundleFlags::ADMINISTRATIVE) {
            self.administrative(now, number);
            return;
        }
        let endpoint = held.destination().clone();
        if !self.core.users.has_waiting(&endpoint) && self.user_takes(&endpoint) {
            self.hand_to_user(&endpoint, number);
            return;
        }
        let Some(held) = self.core.stock.get_mut(number) else { return };
        held.waits = true;
        self.core.users.wait(&endpoint, number);
        self.offer(&endpoint);
    }

    /// Delivers the bundles waiting for an endpoint in order of arrival, as long as its user takes
    /// more.
    fn offer(&mut self, endpoint: &Eid) {
        while self.user_takes(endpoint) {
            let Some(number) = self.core.users.pop_waiting(endpoint) else { return };
            self.hand_to_user(endpoint, number);
        }
    }

    /// Whether an endpoint has a user that takes more deliveries.
    fn user_takes(&self, endpoint: &Eid) -> bool {
        self.core.users.takes(endpoint, self.core.config.limits.delivering)
    }

    /// Delivers a bundle to the user of an endpoint.
    fn hand_to_user(&mut self, endpoint: &Eid, number: u64) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        if !self.core.users.hand_over(endpoint, number) {
            return;
        }
        (held.waits, held.delivering) = (false, true);
        self.core.user.indicate(Indication::Delivered {
            delivery: DeliveryId(number),
            endpoint: endpoint.clone(),
            id: held.id(),
            version: held.head.version(),
            verified: held.arrival.verified.clone(),
            payload: held.payload.clone(),
        });
    }

    /// Handles an administrative record for this node.
    fn administrative(&mut self, now: Time, number: u64) {
        let bounds = self.core.config.limits.head;
        let Some(held) = self.core.stock.get(number) else { return };
        let from = held.head.source().clone();
        let signaller = Signaller { source: from.clone(), by: held.arrival.by.clone() };
        let (bytes, head) = match &held.payload {
            Content::Bytes(bytes) => (bytes.clone(), held.head.clone()),
            // No record is that long.
            Content::File { .. } => return self.no_record(number),
        };
        let mut taken = Vec::new();
        match head {
            Head::Seven(_) => match AdministrativeRecord::decode(&bytes, &bounds) {
                Ok(AdministrativeRecord::StatusReport(report)) => {
                    self.core.user.indicate(Indication::Report { from, report });
                }
                Ok(AdministrativeRecord::Other { .. }) | Err(_) => return self.no_record(number),
            },
            Head::Six(_) => match bp6::AdministrativeRecord::decode(&bytes, &bounds) {
                Ok(bp6::AdministrativeRecord::StatusReport(report)) => {
                    let report = super::reports::of_six(&report);
                    self.core.user.indicate(Indication::Report { from, report });
                }
                Ok(bp6::AdministrativeRecord::CustodySignal(signal)) => {
                    taken = self.custodian.on_signal(&mut self.core, &signaller, &signal);
                }
                Ok(bp6::AdministrativeRecord::AggregateCustodySignal(signal)) => {
                    taken = self.custodian.on_aggregate_signal(&mut self.core, &signaller, &signal);
                }
                Ok(bp6::AdministrativeRecord::Other { .. }) | Err(_) => {
                    return self.no_record(number);
                }
            },
        }
        for number in taken {
            self.let_go(number);
        }
        self.settle(number);
        self.forwarder.pump_freed(&mut self.core, now);
    }

    fn no_record(&mut self, number: u64) {
        self.core.statistics.malformed += 1;
        self.settle(number);
    }
}
