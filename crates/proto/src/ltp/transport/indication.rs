//! What an engine tells its user of blocks that it passes on.

use std::time::Duration;

use thiserror::Error;
use wire::ltp::CancelReason;
use wire::ltpt::End;

/// A transfer, whatever hop it is on: who began it, and the number it has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId {
    /// Where the block comes from.
    pub source: End,
    /// The number of the first session there.
    pub number: u64,
}

/// A notice to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A block for another engine began to arrive.
    Relaying(Transfer),
    /// All of its red part is safe here, and whoever sent it may forget it.
    Kept(Transfer),
    /// The next engine has it; it is not kept any more.
    Forwarded(Transfer),
    /// It was kept and is given up.
    Undeliverable {
        /// The block.
        transfer: Transfer,
        /// Why.
        reason: Undeliverable,
    },
    /// The next engine has no room: it is asked again after this time.
    Congested {
        /// The block.
        transfer: Transfer,
        /// How long.
        retry_after: Duration,
    },
    /// There was no room for a block here.
    Refused {
        /// The block.
        transfer: Transfer,
    },
    /// Blocks that an earlier run kept go on.
    Restored {
        /// How many.
        blocks: usize,
    },
}

/// A block on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which.
    pub flow: FlowId,
    /// The engine that shall have it.
    pub destination: u64,
}

/// Why a block that was kept is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Undeliverable {
    /// Nobody needs it any more.
    #[error("its lifetime is over")]
    Expired,
    /// There is no way to where it goes.
    #[error("no way leads there")]
    NoRoute,
    /// An engine behind this one ended it.
    #[error("an engine on the way ended it: {0}")]
    Cancelled(CancelReason),
}
