//! What others may ask of this entity, and what it holds for them.

use std::collections::BTreeMap;

use crate::{settings, words};

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

words!(Access { "nothing" = Self::Nothing, "own" = Self::Own, "all" = Self::All });

settings! {
    /// Requests of one remote entity that are served (CCSDS 727.0-B-5 §6). What is not permitted is
    /// refused with the response the book has for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Permissions {
        /// Send files of this entity to any entity (§6.2).
        pub proxy_put: bool as Flag = false,
        /// Filestore requests with a file (§4.9): create, delete, rename, append.
        pub filestore: bool as Flag = true,
        /// List directories below the root (§6.3).
        pub directory_listing: bool as Flag = true,
        /// Report the state of transactions (§6.4): `all`, its `own`, or `nothing`.
        pub status_report: Access as Word = Access::All,
        /// Suspend and resume transactions (§6.5, §6.6): `all`, its `own`, or `nothing`.
        pub suspend: Access as Word = Access::Own,
        /// Store files here and forward them (store-and-forward overlay).
        pub store_and_forward: bool as Flag = false,
        /// Forward PDUs of classes 3 and 4 (extended procedures).
        pub relay: bool as Flag = false,
    }
}

settings! {
    /// Services of the entity for others, with their bounds.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct UserOperations {
        /// Next entities on the way to those that are not reached directly: `{ 3 = 2 }` sends by
        /// entity 2 what is for entity 3.
        pub routes: BTreeMap<u64, u64> as Routes = BTreeMap::new(),
        /// Waypoints a file may pass; one that passed more is refused.
        pub waypoints_max: u8 as Number = 16,
        /// Files stored to be forwarded. One more is refused.
        pub stored_files: usize as Number = 64,
        /// Bytes of those files. A file that would exceed it is refused.
        pub stored_bytes: u64 as Size = 1 << 30,
        /// Requests of others that are being served. One more is refused with an indication.
        pub pending: usize as Number = 256,
        /// Bytes of a directory listing; a longer one is refused.
        pub listing_bytes: usize as Size = 1 << 20,
        /// Transactions of class 3 whose PDUs are forwarded. The oldest is forgotten for one more.
        pub flows: usize as Number = 1024,
    }
}

impl UserOperations {
    /// The entity to which what is meant for `destination` is sent next.
    #[must_use]
    pub fn next_hop(&self, destination: u64) -> u64 {
        self.routes.get(&destination).copied().unwrap_or(destination)
    }
}
