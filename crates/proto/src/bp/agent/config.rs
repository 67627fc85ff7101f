//! The settings of an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::FileName;
use wire::bp7::{Bounds, CrcType, Eid};

use super::super::layer::LinkId;
use super::super::routes::Router;
use super::super::security::Policy;
use crate::{numbers, settings};

/// A neighbour over one of the agent's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkRef {
    /// Which layer, in the order in which the agent has them.
    pub layer: usize,
    /// Which neighbour of it.
    pub link: LinkId,
}

/// A version of the Bundle Protocol. Nothing is translated from one to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// RFC 5050.
    Six,
    /// RFC 9171.
    #[default]
    Seven,
}

numbers!(Version, "bundles are of version 6 or 7" { 6 = Version::Six, 7 = Version::Seven });

settings! {
    /// Settings of an [`Agent`](super::Agent).
    #[derive(Clone, Debug)]
    pub struct Config {
        /// The node's administrative endpoint, by which it is known: `ipn:1.0`, `dtn://node/`.
        pub node: Eid = Eid::None,
        /// Other nodes whose endpoints are this node's, too.
        pub aliases: BTreeSet<Eid> = BTreeSet::new(),
        /// Milliseconds from the beginning of 2000 to [`engine::Time::ZERO`] (RFC 9171 §4.2.6).
        /// `None` without a clock that is right: bundles carry their age.
        pub clock: Option<u64> = None,
        /// Whether bundles survive the end of the process: nothing is acknowledged that is not synced.
        pub persistent: bool as Flag = true,
        /// Directory of the working files in the store, and beginning of the keys of records. Files
        /// that an earlier run left there and no record names are removed, those of layers, too.
        pub directory: FileName = FileName::spool("bp").expect("letters"),
        /// Nodes behind links, where nodes do not name themselves.
        pub links: BTreeMap<LinkRef, Eid> = BTreeMap::new(),
        /// Routes of bundles.
        pub routing: Routing = Routing::Static(Vec::new()),
        /// Checks that bundles from here carry.
        pub crc: Checks = Checks::default(),
        /// Hops that a bundle from here may take, or `off`.
        pub hop_limit: Option<u8> as Off<Number> [Least(1)] = Some(30),
        /// Status reports on bundles that request them.
        pub reports: Reports = Reports::default(),
        /// Custody of bundles of version 6.
        pub custody: Custody = Custody::default(),
        /// Security of bundles of version 7.
        pub security: Policy = Policy::default(),
        /// Bounds on what the agent holds.
        pub limits: Limits as Table = Limits::default(),
    }
}

/// Where bundles go that are not for this node.
#[derive(Clone, Debug)]
pub enum Routing {
    /// To the neighbour of the first entry that fits.
    Static(Vec<Entry>),
    /// By the contact plan; entries are for destinations that it does not know.
    ContactGraph(Box<Router>, Vec<Entry>),
    /// A copy to every neighbour that has not had one (Vahdat and Becker 2000).
    Epidemic,
    /// So many copies of each bundle from here: who has several gives half of them to each neighbour that has none, who has one
    /// gives it to the destination (Spyropoulos et al. 2005, binary spray and wait). How many a neighbour has been given stands in a
    /// block of this project's, type [`COPIES`]; of version 6 it is given one.
    Spray {
        /// Copies of a bundle that is made here, 1 at least.
        copies: u32,
    },
}

/// The block that says how many copies a node has been given, an unsigned number. Types from 192 on are for private and
/// experimental use (RFC 9171 §9.1).
pub const COPIES: u64 = 222;

/// Bundles for these go to that neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// For whom.
    pub to: Pattern,
    /// The neighbour's administrative endpoint.
    pub via: Eid,
}

/// Some endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All.
    Any,
    /// Those of this node.
    Node(Eid),
    /// This one.
    Endpoint(Eid),
}

impl Pattern {
    /// Whether an endpoint is one of them.
    #[must_use]
    pub fn matches(&self, eid: &Eid) -> bool {
        match self {
            Self::Any => true,
            Self::Node(node) => eid.node() == *node,
            Self::Endpoint(endpoint) => eid == endpoint,
        }
    }
}

/// Checks of blocks that are made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Of the primary block, which must have one where no security block protects it.
    pub primary: CrcType,
    /// Of the payload block.
    pub payload: CrcType,
}

impl Default for Checks {
    fn default() -> Self {
        Self { primary: CrcType::Crc32c, payload: CrcType::Crc32c }
    }
}

/// Which status reports are written, of bundles that ask for them (RFC 9171 §5.1: a node's own policy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reports {
    /// Of reception.
    pub reception: bool,
    /// Of forwarding.
    pub forwarding: bool,
    /// Of delivery.
    pub delivery: bool,
    /// Of deletion.
    pub deletion: bool,
    /// Of custody that was taken, in version 6.
    pub custody: bool,
}

impl Default for Reports {
    /// Reports cost more than they tell, and can be asked for by anybody: none but of delivery.
    fn default() -> Self {
        Self {
            reception: false,
            forwarding: false,
            delivery: true,
            deletion: false,
            custody: false,
        }
    }
}

/// What a node does about custody (RFC 5050 §5.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Custody {
    /// Whether it takes custody of bundles that ask for it.
    pub accept: bool,
    /// How long it waits for the next custodian to say so, before it sends a bundle again. Longer than signals take, at
    /// best: each time that is too short costs a copy.
    pub retransmit_after: Duration,
    /// Bundles that it has custody of carry a number, and it tells custodians of bundles with numbers of several at one time,
    /// no later than this; `None`: of each at once, and without numbers. (CCSDS 734.2-B, aggregate custody signals.)
    pub aggregate_after: Option<Duration>,
}

impl Default for Custody {
    fn default() -> Self {
        Self { accept: true, retransmit_after: Duration::from_secs(60), aggregate_after: None }
    }
}

settings! {
    /// Bounds on what an agent holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Bundles in the store.
        pub bundles: usize as Number [Least(1)] = 1_000_000,
        /// Bytes of all payloads in the store.
        pub bytes: u64 as Size = 1 << 40,
        /// Bytes of a payload up to which it is held in memory and in a record; longer ones are files.
        pub inline: usize = 4096,
        /// Bytes of all payloads in memory; beyond that, shorter ones are files, too.
        pub memory: usize = 256 << 20,
        /// Bundles that arrive at one time.
        pub incoming: usize = 1024,
        /// Bytes of pieces of one bundle that wait for the store, before its peer is held back.
        pub write_ahead: usize = 1 << 20,
        /// Bundles that are remembered when they are gone, until they expire: copies of them are not
        /// taken.
        pub gone: usize as Number = 1_000_000,
        /// Deliveries that an endpoint's user has not confirmed.
        pub delivering: usize = 1024,
        /// Fragments of one bundle that are held until it is whole, at its destination.
        pub fragments: usize = 1 << 17,
        /// Least bytes of payload in a fragment that is made here; neighbours that take less get no
        /// fragments.
        pub fragment_min: u64 = 64,
        /// Most milliseconds that a bundle lives, whatever it says. The default is ten years.
        pub lifetime_ms: u64 = 315_360_000_000,
        /// Bounds on the head of a bundle.
        pub head: Bounds = Bounds::default(),
    }
}

/// A span of milliseconds.
pub(super) const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
