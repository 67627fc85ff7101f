//! What users of an agent hear.

use engine::EffectError;
use thiserror::Error;
use wire::bp7::{BundleId, Eid, Reason, StatusReport};

use super::super::layer::Content;

/// A delivery, as it is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub u64);

/// What users of an agent hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A bundle for an endpoint that is registered. It stays until it is confirmed
    /// ([`Agent::confirm`](super::Agent::confirm)), over a restart, too.
    Delivered {
        /// What confirms it.
        delivery: DeliveryId,
        /// The endpoint.
        endpoint: Eid,
        /// Which bundle.
        id: BundleId,
        /// What it carries.
        payload: Content,
    },
    /// A bundle that was handed in here is safe: it is in the store.
    Stored {
        /// Which.
        id: BundleId,
    },
    /// A bundle has left for a neighbour.
    Forwarded {
        /// Which.
        id: BundleId,
        /// Whereto.
        to: Eid,
    },
    /// Another node has taken custody of a bundle that this one had, of version 6, which is gone from here.
    CustodyTaken {
        /// Which.
        id: BundleId,
        /// Who.
        by: Eid,
    },
    /// A bundle was deleted before it went where it should.
    Deleted {
        /// Which.
        id: BundleId,
        /// Why.
        reason: Reason,
    },
    /// Another node tells what became of a bundle.
    Report {
        /// Who.
        from: Eid,
        /// What.
        report: StatusReport,
    },
    /// A neighbour can be reached.
    Up {
        /// Which, if it said.
        node: Option<Eid>,
    },
    /// A neighbour cannot be reached.
    Down {
        /// Which, if it said.
        node: Option<Eid>,
        /// Why, for people.
        why: &'static str,
    },
    /// A bound was reached: what comes on top is refused.
    LimitReached(Limit),
    /// The store failed: what is not safe is refused.
    StoreFailed(EffectError),
}

impl From<Limit> for Indication {
    fn from(limit: Limit) -> Self {
        Self::LimitReached(limit)
    }
}

/// A bound of [`Limits`](super::Limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// [`Limits::bundles`](super::Limits::bundles).
    Bundles,
    /// [`Limits::bytes`](super::Limits::bytes), or the store itself is full.
    Bytes,
    /// [`Limits::incoming`](super::Limits::incoming).
    Incoming,
    /// [`Limits::fragments`](super::Limits::fragments).
    Fragments,
}

/// Why an agent does not take a bundle from a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// There is no room.
    #[error("the store is full; wait until bundles have gone, or raise its limits")]
    Full,
    /// It would be refused however much room there is.
    #[error("no bundle here may have more than {most} bytes; send it in parts, or raise the limit")]
    TooLong {
        /// Bytes of the longest payload.
        most: u64,
    },
    /// What an earlier run left is not known yet, and so not which bundles there were.
    #[error("the store is being read; try again when that is over")]
    NotReady,
    /// Nobody is there.
    #[error("a bundle goes to an endpoint, not to dtn:none")]
    NoDestination,
    /// The source is another node's.
    #[error("the source is not an endpoint of this node")]
    NotOurs,
    /// The endpoint is registered.
    #[error("the endpoint is registered already")]
    Taken,
    /// It has gone, or never was.
    #[error("there is no such bundle here")]
    NoBundle,
    /// It was confirmed, or expired.
    #[error("there is no such delivery")]
    NoDelivery,
    /// What is asked for contradicts itself.
    #[error("{0}")]
    Conflict(&'static str),
}

/// What was counted since the agent began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bundles that users handed in.
    pub sourced: u64,
    /// Bundles that came whole, those included that were here before.
    pub received: u64,
    /// Of these, those that had been here.
    pub duplicates: u64,
    /// Bundles that were refused.
    pub refused: u64,
    /// What came and was no bundle, or damaged.
    pub malformed: u64,
    /// Bundles that neighbours took.
    pub forwarded: u64,
    /// Bundles that users confirmed.
    pub delivered: u64,
    /// Bundles that expired.
    pub expired: u64,
    /// Bundles that were deleted for another reason.
    pub deleted: u64,
    /// Bundles that were sent again, because nobody had taken custody of them.
    pub resent: u64,
    /// Attempts to forward that failed.
    pub failed: u64,
    /// Bundles that are held.
    pub bundles: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// The most bundles that were held.
    pub bundles_peak: usize,
    /// The most bytes that were held.
    pub bytes_peak: u64,
}
