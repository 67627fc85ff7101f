//! What others may ask of this entity, and what it holds for them.

use std::collections::BTreeMap;

/// Whose transactions another entity may look at or act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// None.
    Nothing,
    /// Those between it and this entity.
    Own,
    /// All.
    All,
}

/// What one remote entity may ask for (CCSDS 727.0-B-5 §6). What is not permitted is refused with
/// the response the book has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Have files of this entity sent to any entity (§6.2). Off by default.
    pub proxy_put: bool,
    /// Have filestore requests carried out that come with a file (§4.9): create, delete, rename,
    /// append. On by default, as is sending files.
    pub filestore: bool,
    /// List directories below the root (§6.3). On by default.
    pub directory_listing: bool,
    /// Ask for the state of transactions (§6.4). All of them by default.
    pub status_report: Access,
    /// Suspend and resume transactions (§6.5, §6.6). Its own by default.
    pub suspend: Access,
    /// Have files stored here and handed on (store-and-forward overlay). Off by default.
    pub store_and_forward: bool,
    /// Have PDUs of classes 3 and 4 handed on (extended procedures). Off by default.
    pub relay: bool,
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            proxy_put: false,
            filestore: true,
            directory_listing: true,
            status_report: Access::All,
            suspend: Access::Own,
            store_and_forward: false,
            relay: false,
        }
    }
}

/// What the entity does for others, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserOperations {
    /// The next entity on the way to one that is not reached directly.
    pub routes: BTreeMap<u64, u64>,
    /// Waypoints a file may pass; one that passed more is refused.
    pub waypoints_max: u8,
    /// Files stored to be handed on. One more is refused.
    pub stored_files: usize,
    /// Bytes of those files. A file that would exceed it is refused.
    pub stored_bytes: u64,
    /// Requests of others that are being served. One more is refused with an indication.
    pub pending: usize,
    /// Bytes of a directory listing; a longer one is refused.
    pub listing_bytes: usize,
    /// Transactions of class 3 whose PDUs are handed on. The oldest is forgotten for one more.
    pub flows: usize,
}

impl Default for UserOperations {
    fn default() -> Self {
        Self {
            routes: BTreeMap::new(),
            waypoints_max: 16,
            stored_files: 64,
            stored_bytes: 1 << 30,
            pending: 256,
            listing_bytes: 1 << 20,
            flows: 1024,
        }
    }
}

impl UserOperations {
    /// The entity to which what is meant for `destination` is sent next.
    #[must_use]
    pub fn next_hop(&self, destination: u64) -> u64 {
        self.routes.get(&destination).copied().unwrap_or(destination)
    }
}
