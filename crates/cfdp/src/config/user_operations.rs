//! Permissions of remote entities, and limits on the files stored for them.

use std::collections::BTreeMap;

use session::settings;
use session::words;

/// Transactions that another entity may inspect or control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// No transactions.
    Nothing,
    /// Transactions between it and this entity.
    Own,
    /// All transactions.
    All,
}

words!(Access { "nothing" = Self::Nothing, "own" = Self::Own, "all" = Self::All });

settings! {
    /// Permitted requests of one remote entity (CCSDS 727.0-B-5 §6). Others are refused with the
    /// response defined in the book.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Permissions {
        /// Whether it may have files of this entity sent to any entity (§6.2).
        pub proxy_put: bool as Flag = false,
        /// Whether its files may carry filestore requests (§4.9): create, delete, rename, append.
        pub filestore: bool as Flag = true,
        /// Whether it may list directories below the root (§6.3).
        pub directory_listing: bool as Flag = true,
        /// Transactions whose state it may request (§6.4): `all`, its `own`, or `nothing`.
        pub status_report: Access as Word = Access::All,
        /// Transactions that it may suspend and resume (§6.5, §6.6): `all`, its `own`, or
        /// `nothing`.
        pub suspend: Access as Word = Access::Own,
        /// Whether it may have files stored and forwarded here (store-and-forward overlay).
        pub store_and_forward: bool as Flag = false,
        /// Whether it may have PDUs of classes 3 and 4 forwarded (extended procedures).
        pub relay: bool as Flag = false,
    }
}

settings! {
    /// Services of the entity for others, with their limits.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct UserOperations {
        /// Next hops of entities that are not reached directly: `{ 3 = 2 }` sends files for entity
        /// 3 to entity 2.
        pub routes: BTreeMap<u64, u64> as Routes = BTreeMap::new(),
        /// Maximum number of waypoints of a file; beyond it the file is refused.
        pub waypoints_max: u8 as Number = 16,
        /// Number of files stored for forwarding. Further files are refused.
        pub stored_files: usize as Number = 64,
        /// Bytes of those files. A file that would exceed it is refused.
        pub stored_bytes: u64 as Size = 1 << 30,
        /// Requests of others being served. Further ones are refused, with an indication.
        pub pending: usize as Number = 256,
        /// Bytes of a directory listing; longer ones are refused.
        pub listing_bytes: usize as Size = 1 << 20,
        /// Number of class 3 transactions being forwarded. Beyond it the oldest is forgotten.
        pub flows: usize as Number = 1024,
    }
}

impl UserOperations {
    /// Next hop to `destination`.
    #[must_use]
    pub fn next_hop(&self, destination: u64) -> u64 {
        self.routes.get(&destination).copied().unwrap_or(destination)
    }
}
