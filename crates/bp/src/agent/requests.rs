//! Keys of users' requests, by which a repeated request sends no second bundle.
//!
//! A key is kept as long as its bundle is held or remembered, so these bounds are also those of
//! keys. In a persistent store it has a record of its own, written before that of the bundle.

use std::collections::BTreeMap;

use crate::codec::bp7::BundleId;

use super::record::RequestRecord;

/// A request that sent a bundle.
#[derive(Clone, Debug)]
struct Done {
    id: BundleId,
    /// Number of the bundle.
    bundle: u64,
}

/// Keys of requests whose bundles are in the store, or were.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_key: BTreeMap<u128, Done>,
    /// Key and number of its record, by the number of the bundle.
    by_bundle: BTreeMap<u64, (u128, u64)>,
}

impl Requests {
    /// Records the bundle of a request.
    pub(super) fn insert(&mut self, record: u64, request: RequestRecord) {
        let RequestRecord { key, bundle, id } = request;
        self.by_key.insert(key, Done { id, bundle });
        self.by_bundle.insert(bundle, (key, record));
    }

    /// Forgets the request of a bundle. Returns the number of its record.
    pub(super) fn forget(&mut self, bundle: u64) -> Option<u64> {
        let (key, record) = self.by_bundle.remove(&bundle)?;
        if self.by_key.get(&key).is_some_and(|done| done.bundle == bundle) {
            self.by_key.remove(&key);
        }
        Some(record)
    }

    /// Bundle of the request with this key.
    pub(super) fn sent_for(&self, key: u128) -> Option<&BundleId> {
        self.by_key.get(&key).map(|done| &done.id)
    }
}
