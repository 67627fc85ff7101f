//! Users of an agent: registered endpoints, and bundles for them.

use std::collections::{BTreeMap, BTreeSet};

use crate::codec::bp7::Eid;

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

    /// Takes the bundle that waited longest, if the endpoint is registered and has fewer than
    /// `most` unconfirmed deliveries.
    pub(super) fn take_next(&mut self, endpoint: &Eid, most: usize) -> Option<u64> {
        let delivering = self.endpoints.get_mut(endpoint).filter(|it| it.len() < most)?;
        let undelivered = self.undelivered.get_mut(endpoint)?;
        let next = undelivered.pop_first();
        delivering.extend(next);
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
