//! Indications and errors for users of an agent.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{EffectError, Time};
use thiserror::Error;

use super::super::layer::Content;
use super::Version;
use crate::codec::bp7::{BundleId, Eid, Reason, StatusReport};

/// Identifier of a delivery, used to confirm it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub u64);

/// Indication to users of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A bundle for a registered endpoint. It is kept, also over a restart, until confirmed by
    /// [`Agent::confirm`](super::Agent::confirm).
    Delivered {
        /// Identifier for the confirmation.
        delivery: DeliveryId,
        /// The endpoint.
        endpoint: Eid,
        /// The bundle.
        id: BundleId,
        /// Its version.
        version: Version,
        /// Numbers of the security rules, from 1 on, whose operations the bundle passed here.
        verified: Vec<u32>,
        /// Its payload.
        payload: Content,
    },
    /// A bundle sent from here is safe in the store.
    Stored {
        /// The bundle.
        id: BundleId,
    },
    /// A bundle was sent to a neighbour.
    Forwarded {
        /// The bundle.
        id: BundleId,
        /// The neighbour.
        to: Eid,
    },
    /// Another node has accepted custody of a version 6 bundle, which was deleted here.
    CustodyTaken {
        /// The bundle.
        id: BundleId,
        /// The new custodian.
        by: Eid,
    },
    /// A custody signal was not believed. Indicated at the first, second, fourth, eighth and so on.
    SignalIgnored {
        /// Its source.
        source: Eid,
        /// Neighbour over whose link it came, if known.
        by: Option<Eid>,
        /// Reason as text.
        why: &'static str,
        /// Number of such signals.
        count: u64,
    },
    /// A bundle was deleted before it was delivered or forwarded.
    Deleted {
        /// The bundle.
        id: BundleId,
        /// The reason.
        reason: Reason,
    },
    /// A bundle of a neighbour was deleted when it came. Indicated once a minute for each rule and
    /// reason.
    Discarded {
        /// The bundle.
        id: BundleId,
        /// Neighbour over whose link it came, if known.
        by: Option<Eid>,
        /// Number of the security rule that it violated, from 1 on.
        rule: Option<u32>,
        /// The reason.
        reason: Reason,
        /// Number of such bundles since the last indication.
        count: u64,
    },
    /// A status report from another node.
    Report {
        /// The reporting node.
        from: Eid,
        /// The report.
        report: StatusReport,
    },
    /// A neighbour can be reached.
    Up {
        /// The neighbour, if known.
        node: Option<Eid>,
    },
    /// A neighbour can no longer be reached.
    Down {
        /// The neighbour, if known.
        node: Option<Eid>,
        /// Reason as text.
        why: &'static str,
    },
    /// A peer violated a protocol, or did something else that an operator should know.
    Notice {
        /// The peer, if it is a known neighbour.
        node: Option<Eid>,
        /// Description as text.
        what: &'static str,
    },
    /// A bound was reached: further bundles are refused.
    LimitReached(Limit),
    /// The store failed: bundles that are not safe are refused.
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
    /// [`Limits::share`](super::Limits::share) of a neighbour or of strangers, or all that
    /// [`Limits::reserve`](super::Limits::reserve) leaves.
    Share,
}

/// Error of a user's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// There is no room.
    #[error("the store is full; wait until bundles have left, or raise its limits")]
    Full,
    /// It exceeds the bound on its own.
    #[error("no bundle here may have more than {most} bytes; send it in parts, or raise the limit")]
    TooLong {
        /// Longest payload, in bytes.
        most: u64,
    },
    /// The records of an earlier run are not read yet.
    #[error("the store is being read; retry later")]
    NotReady,
    /// The null endpoint is no destination.
    #[error("a bundle goes to an endpoint, not to dtn:none")]
    NoDestination,
    /// The source is an endpoint of another node.
    #[error("the source is not an endpoint of this node")]
    NotOurs,
    /// The endpoint is already registered.
    #[error("the endpoint is registered already")]
    Taken,
    /// No such bundle, or it was discarded.
    #[error("there is no such bundle here")]
    NoBundle,
    /// No such delivery: it was confirmed, or has expired.
    #[error("there is no such delivery")]
    NoDelivery,
    /// The request contradicts itself.
    #[error("{0}")]
    Conflict(&'static str),
}

/// Counters since the agent began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bundles sent by users.
    pub sourced: u64,
    /// Bundles received whole, duplicates included.
    pub received: u64,
    /// Duplicates among them.
    pub duplicates: u64,
    /// Bundles that came back from neighbours to which they were forwarded.
    pub returned: u64,
    /// Bundles refused.
    pub refused: u64,
    /// Damaged bundles, and data that were no bundle.
    pub malformed: u64,
    /// Bundles accepted by neighbours.
    pub forwarded: u64,
    /// Bundles confirmed by users.
    pub delivered: u64,
    /// Bundles expired.
    pub expired: u64,
    /// Bundles deleted for another reason.
    pub deleted: u64,
    /// Bundles among them that violated a security rule.
    pub insecure: u64,
    /// Bundles retransmitted because no custody signal came.
    pub resent: u64,
    /// Custody signals that were not believed.
    pub signals_ignored: u64,
    /// Failed transmissions.
    pub failed: u64,
    /// Records of bundles that were synced.
    pub stored: u64,
    /// Bundles in the store.
    pub bundles: usize,
    /// Bytes in the store.
    pub bytes: u64,
    /// Most bundles in the store at one time.
    pub bundles_peak: usize,
    /// Most bytes in the store at one time.
    pub bytes_peak: u64,
}

/// Time between two indications of a kind.
const PERIOD: Duration = Duration::from_secs(60);

/// Bundles that ended, by kind.
#[derive(Debug, Default)]
pub(super) struct Discards {
    /// Time of the last indication, and bundles since, by security rule and reason.
    by_kind: BTreeMap<(Option<u32>, Reason), (Time, u64)>,
}

impl Discards {
    /// Counts a bundle; returns the number to indicate, if one is due.
    pub(super) fn count(&mut self, now: Time, rule: Option<u32>, reason: Reason) -> Option<u64> {
        let kind = (rule, reason);
        let Some((last, count)) = self.by_kind.get_mut(&kind) else {
            self.by_kind.insert(kind, (now, 0));
            return Some(1);
        };
        *count += 1;
        (now.since(*last) >= PERIOD).then(|| {
            *last = now;
            std::mem::take(count)
        })
    }
}
