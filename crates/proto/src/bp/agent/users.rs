//! Endpoints with users, and the bundles that wait for these.

use std::collections::{BTreeMap, BTreeSet};

use wire::bp7::Eid;

/// Endpoints with users, and the bundles that wait for these.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Endpoints with users, and what was handed to them and not confirmed.
    endpoints: BTreeMap<Eid, BTreeSet<u64>>,
    /// Bundles for endpoints of this node that were not handed to a user.
    undelivered: BTreeMap<Eid, BTreeSet<u64>>,
}

impl Users {
    /// Whether an endpoint has a user.
    pub(super) fn is_registered(&self, endpoint: &Eid) -> bool {
        self.endpoints.contains_key(endpoint)
    }

    /// Gives an endpoint a user.
    pub(super) fn register(&mut self, endpoint: &Eid) {
        self.endpoints.insert(endpoint.clone(), BTreeSet::new());
    }

    /// Takes the user away. Returns what was handed over and not confirmed.
    pub(super) fn deregister(&mut self, endpoint: &Eid) -> BTreeSet<u64> {
        self.endpoints.remove(endpoint).unwrap_or_default()
    }

    /// Whether an endpoint has a user who takes more than the unconfirmed bundles, of which there
    /// are at most `most`.
    pub(super) fn takes(&self, endpoint: &Eid, most: usize) -> bool {
        self.endpoints.get(endpoint).is_some_and(|delivering| delivering.len() < most)
    }

    /// Notes that a bundle is handed to the user of an endpoint; `false` if there is none.
    pub(super) fn hand_over(&mut self, endpoint: &Eid, number: u64) -> bool {
        let Some(delivering) = self.endpoints.get_mut(endpoint) else { return false };
        delivering.insert(number);
        true
    }

    /// Notes that the user confirmed a bundle.
    pub(super) fn confirm(&mut self, endpoint: &Eid, number: u64) {
        if let Some(delivering) = self.endpoints.get_mut(endpoint) {
            delivering.remove(&number);
        }
    }

    /// Has a bundle wait for a user.
    pub(super) fn wait(&mut self, endpoint: &Eid, number: u64) {
        self.undelivered.entry(endpoint.clone()).or_default().insert(number);
    }

    /// Whether bundles wait for the user of an endpoint.
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

    /// Forgets a bundle for an endpoint.
    pub(super) fn forget(&mut self, endpoint: &Eid, number: u64) {
        for of in [&mut self.endpoints, &mut self.undelivered] {
            if let Some(numbers) = of.get_mut(endpoint) {
                numbers.remove(&number);
            }
        }
    }
}
