//! Indications about forwarded blocks.

use std::time::Duration;

use thiserror::Error;

use crate::segment::CancelReason;
use crate::segment::ltpt::End;

/// Identity of a transfer on every hop: its origin and number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId {
    /// Origin of the block.
    pub source: End,
    /// Number of the first session at the origin.
    pub number: u64,
}

/// Indication to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A block for another engine started to arrive.
    Relaying(Transfer),
    /// The red part of the block is completely stored here, and the previous engine may forget it.
    Kept(Transfer),
    /// The next engine accepted the block; it is no longer stored here.
    Forwarded(Transfer),
    /// A stored block is given up.
    Undeliverable {
        /// The block.
        transfer: Transfer,
        /// Reason.
        reason: Undeliverable,
    },
    /// The next engine has no room, and is retried later.
    Congested {
        /// The block.
        transfer: Transfer,
        /// Time until the retry.
        retry_after: Duration,
    },
    /// A block was refused for lack of room.
    Refused {
        /// The block.
        transfer: Transfer,
    },
    /// Blocks stored by an earlier run are forwarded.
    Restored {
        /// Number of blocks.
        blocks: usize,
    },
}

/// Block being forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Transfer to which the block belongs.
    pub flow: FlowId,
    /// Destination engine.
    pub destination: u64,
}

/// Reason why a stored block is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Undeliverable {
    /// The block's lifetime has expired.
    #[error("its lifetime is over")]
    Expired,
    /// There is no route to its destination.
    #[error("no way leads there")]
    NoRoute,
    /// A later engine cancelled it.
    #[error("an engine on the way ended it: {0}")]
    Cancelled(CancelReason),
}
