//! Settings of an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::FileName;
use session::settings;
use session::settings::form::{Leaf, Word};
use session::settings::{Kind, Value};
use session::{numbers, words};

use super::super::layer::LinkId;
use super::super::routes::Router;
use super::super::security::Policy;
use crate::codec::bp7::{Bounds, CrcType, Eid};
use crate::pattern::Pattern;

/// A neighbour over one of the agent's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkRef {
    /// Index of the layer, in the agent's order.
    pub layer: usize,
    /// Neighbour within the layer.
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
        /// The node's administrative endpoint, which identifies it: `ipn:1.0`, `dtn://node/`.
        pub node: Eid = Eid::None,
        /// Node IDs of other nodes whose endpoints are local here.
        pub aliases: BTreeSet<Eid> = BTreeSet::new(),
        /// Versions of the bundles that the node accepts and sends.
        pub versions: BTreeSet<Version> = [Version::Six, Version::Seven].into(),
        /// Milliseconds from the beginning of 2000 to [`engine::Time::ZERO`] (RFC 9171 §4.2.6).
        /// `None` without an accurate clock: bundles then carry their age.
        pub clock: Option<u64> = None,
        /// Boot of the machine, if known: it tells how much time passed between two runs, whatever
        /// happened to the clock.
        pub boot: Option<Boot> = None,
        /// Whether bundles survive the end of the process: nothing is acknowledged before it is
        /// synced.
        pub persistent: bool = true,
        /// Directory of the working files in the store, and prefix of record keys. Files of an
        /// earlier run without a record are removed, including files of layers.
        pub directory: FileName = FileName::spool("bp").expect("letters"),
        /// Node IDs of neighbours whose protocol does not announce them.
        pub links: BTreeMap<LinkRef, Eid> = BTreeMap::new(),
        /// Longest bundle that is sent whole if it may be fragmented, or `off`. Longer ones are
        /// sent as fragments of this length, so that bundles of higher priority wait less for a
        /// link.
        pub fragment: Option<u64> as Off<Size> [Least(1024)] = None,
        /// Wait for the link to a neighbour from the start of a contact of the plan. Beyond it the
        /// contact counts as missed until the link is up, and bundles take other routes.
        pub contact_timeout: Duration as Span [Interval] = Duration::from_secs(30),
        /// Routes of bundles.
        pub routing: Routing = Routing::Static(Vec::new()),
        /// CRC of the primary blocks of bundles of version 7 created here.
        pub crc: Checks as PrimaryCrc = Checks::default(),
        /// Hop limit of bundles created here, or `off`.
        pub hop_limit: Option<u8> as Off<Number> [Least(1)] = Some(30),
        /// Status reports on bundles that request them.
        pub reports: Reports as Table = Reports::default(),
        /// Custody of bundles of version 6.
        pub custody: Custody as Table = Custody::default(),
        /// Security of bundles of version 7.
        pub security: Policy = Policy::default(),
        /// Rules for bundles of neighbours; the first that matches applies.
        pub accept: Vec<Acceptance> = Vec::new(),
        /// Bounds on the state of the agent.
        pub limits: Limits as Table = Limits::default(),
    }
}

/// Boot of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Number that differs between boots.
    pub id: u64,
    /// Milliseconds from the boot to [`engine::Time::ZERO`], time in suspension included.
    pub ms: u64,
}

/// Forwarding of bundles that are not for this node.
#[derive(Clone, Debug)]
pub enum Routing {
    /// Static routes: the first matching entry is used.
    Static(Vec<Entry>),
    /// Contact graph routing; the entries serve destinations to which the plan has no contacts.
    ContactGraph(Box<Router>, Vec<Entry>),
    /// Epidemic routing: a copy to every neighbour without one (Vahdat and Becker 2000).
    Epidemic,
    /// Binary spray and wait (Spyropoulos et al. 2005). A node with several copies gives half of
    /// them to each neighbour without one. A node with one copy gives it only to the destination.
    /// The number of copies travels in a block of this project, type [`COPIES`]; bundles of version
    /// 6 carry one copy.
    Spray {
        /// Copies of a bundle created here, at least 1.
        copies: u32,
    },
}

impl Routing {
    /// Whether each neighbour gets a copy.
    pub(super) const fn is_copying(&self) -> bool {
        match self {
            Self::Epidemic | Self::Spray { .. } => true,
            Self::Static(_) | Self::ContactGraph(..) => false,
        }
    }

    /// Returns the node if it gets its own copy.
    pub(super) fn copy_for<'a>(&self, node: &'a Eid) -> Option<&'a Eid> {
        self.is_copying().then_some(node)
    }

    /// Whether there is a contact plan.
    pub(super) const fn is_planned(&self) -> bool {
        matches!(self, Self::ContactGraph(..))
    }

    /// Copies a bundle starts with at this node, which came with `copies`.
    pub(super) fn first_copies(&self, copies: Option<u32>, is_here: bool) -> u32 {
        match self {
            Self::Spray { copies: first } if is_here => (*first).max(1),
            Self::Static(_) | Self::ContactGraph(..) | Self::Epidemic | Self::Spray { .. } => {
                copies.unwrap_or(1).max(1)
            }
        }
    }
}

/// Type of the block with the number of copies, an unsigned integer. Types from 192 on are for
/// private and experimental use (RFC 9171 §9.1).
pub const COPIES: u64 = 222;

/// Static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Destinations.
    pub to: Pattern,
    /// Next hops, as administrative endpoints of neighbours. The first one that is up is used; if
    /// none is, bundles wait for the first that has not failed.
    pub via: Vec<Eid>,
}

/// Rule for the acceptance of bundles of neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// Neighbours that hand them in.
    pub by: By,
    /// Sources.
    pub from: Pattern,
    /// Destinations.
    pub to: Pattern,
    /// Whether such bundles are refused.
    pub refuse: bool,
    /// Bundles in the store under this rule.
    pub bundles: usize,
    /// Bytes in the store under this rule.
    pub bytes: u64,
    /// Bytes of one bundle.
    pub bundle: u64,
    /// Longest lifetime in milliseconds.
    pub lifetime_ms: u64,
}

impl Acceptance {
    /// Whether the rule is about a bundle of a neighbour.
    pub(super) fn matches(&self, source: &Eid, destination: &Eid, by: Option<&Eid>) -> bool {
        let is_of_it = match &self.by {
            By::Any => true,
            By::Neighbour(node) => by == Some(node),
            By::Strangers => by.is_none(),
        };
        is_of_it && self.from.matches(source) && self.to.matches(destination)
    }

    fn contains(&self, other: &Self) -> bool {
        (self.by == By::Any || self.by == other.by)
            && self.from.contains(&other.from)
            && self.to.contains(&other.to)
    }

    fn meets(&self, other: &Self) -> bool {
        (self.by == By::Any || other.by == By::Any || self.by == other.by)
            && (self.from.contains(&other.from) || other.from.contains(&self.from))
            && (self.to.contains(&other.to) || other.to.contains(&self.to))
    }

    /// Whether this rule takes the effect of a later one: the later one never applies, or does not
    /// refuse bundles that this one accepts. A rule that is an exception from a later one does not.
    #[must_use]
    pub fn shadows(&self, later: &Self) -> bool {
        let accepts = later.refuse && !self.refuse;
        self.contains(later) || accepts && self.meets(later) && !later.contains(self)
    }
}

/// Set of neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// All of them, and unknown peers.
    Any,
    /// This node.
    Neighbour(Eid),
    /// Unknown peers.
    Strangers,
}

/// CRC types of blocks created here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// CRC of the primary block, mandatory unless a security block protects it.
    pub primary: CrcType,
    /// CRC of the payload block.
    pub payload: CrcType,
}

impl Default for Checks {
    fn default() -> Self {
        Self { primary: CrcType::Crc32c, payload: CrcType::Crc32c }
    }
}

/// Form of the CRC of primary blocks.
struct PrimaryCrc;

impl Leaf<Checks> for PrimaryCrc {
    fn kind() -> Kind {
        <Word as Leaf<CrcType>>::kind()
    }

    fn get(place: &Checks) -> Option<Value> {
        Word::get(&place.primary)
    }

    fn set(place: &mut Checks, value: Value) -> Result<(), String> {
        Word::set(&mut place.primary, value)
    }
}

words!(CrcType { "crc-16" = CrcType::Crc16, "crc-32c" = CrcType::Crc32c });

settings! {
    /// Status reports sent, for bundles that request them (RFC 9171 §5.1 leaves this to the node).
    /// By default delivery reports only: any source can request reports, and the others cost more
    /// traffic than they are worth.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Reports {
        /// Whether receptions are reported.
        pub reception: bool as Flag = false,
        /// Whether forwarding is reported.
        pub forwarding: bool as Flag = false,
        /// Whether deliveries are reported.
        pub delivery: bool as Flag = true,
        /// Whether deletions are reported.
        pub deletion: bool as Flag = false,
        /// Whether acceptances of custody are reported, in version 6.
        pub custody: bool as Flag = false,
    }
}

settings! {
    /// Custody transfer (RFC 5050 §5.10).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Custody {
        /// Whether the node accepts custody of bundles that request it.
        pub accept: bool as Flag = true,
        /// Timeout for the custody signal of the next custodian, after which the bundle is
        /// retransmitted. Should exceed the delay of signals: each early expiry costs a copy.
        pub retransmit_after: Duration as Span [Interval] = Duration::from_secs(60),
        /// Custody signals that are believed: over links of neighbours, or by their sources.
        pub believe: Believe as Word = Believe::Links,
        /// Longest wait of aggregate custody signals (CCSDS 734.2-B), or `off`. Bundles in custody
        /// carry a number, and one signal acknowledges several. `off` signals each bundle at once,
        /// without numbers.
        pub aggregate_after: Option<Duration> as Off<Span> = None,
    }
}

/// Custody signals that are believed. Signals are not authenticated: one that is believed ends the
/// custody of a bundle, and with it the bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Believe {
    /// Signals that come over the link of a neighbour to which the bundle was sent; over links of
    /// other known neighbours also those whose source is such a neighbour or the destination.
    #[default]
    Links,
    /// Also signals over links of unknown nodes, by their source alone. Anybody can forge a source:
    /// for layers that do not show whose a link is.
    Sources,
}

words!(Believe { "links" = Believe::Links, "sources" = Believe::Sources });

settings! {
    /// Bounds on what an agent holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Bundles in the store.
        pub bundles: usize as Number [Least(1)] = 1_000_000,
        /// Bytes of all payloads in the store.
        pub bytes: u64 as Size = 1 << 40,
        /// Longest payload held in memory and in a record; longer ones are files.
        pub inline: usize as Size = 4096,
        /// Bytes of all payloads in memory; beyond that, shorter ones are files, too.
        pub inline_total: usize as Size = 256 << 20,
        /// Bundles received at one time.
        pub incoming: usize as Number = 1024,
        /// Bytes of one bundle waiting for the store before its peer is paused.
        pub write_ahead: usize = 1 << 20,
        /// Bundles remembered after their end until they expire, to discard duplicates.
        pub gone: usize as Number = 1_000_000,
        /// Whether bundles of version 7 are accepted whose primary block has neither a CRC nor a
        /// signature, which RFC 9171 §4.3.1 forbids.
        pub unchecked: bool as Flag = false,
        /// Times that a bundle that was forwarded and comes back is accepted again.
        pub returns: u8 as Number = 8,
        /// Unconfirmed deliveries of an endpoint.
        pub delivering: usize as Number = 1024,
        /// Fragments of one bundle from one neighbour, held for reassembly at its destination.
        pub fragments: usize = 1 << 17,
        /// Shortest payload of a fragment created here, in bytes; neighbours that take less get no
        /// fragments.
        pub fragment_min: u64 = 64,
        /// Part of the store that bundles of one neighbour may take, in percent.
        pub share: u8 as Number [Most(100)] = 100,
        /// Part of the store that bundles of all unknown peers may take, in percent.
        pub strangers_share: u8 as Number [Most(100)] = 100,
        /// Part of the store that is kept for users of this node, in percent.
        pub reserve: u8 as Number [Most(100)] = 0,
        /// Whether bundles are accepted that have no route, or no registered endpoint here.
        pub unrouted: bool as Flag = true,
        /// Longest lifetime of a bundle, whatever it requests. The default is ten years.
        pub lifetime: Duration as Span = Duration::from_secs(315_360_000),
        /// Bounds on the head of a bundle.
        pub head: Bounds = Bounds::default(),
    }
}

impl Limits {
    /// Longest lifetime in milliseconds.
    pub(super) fn lifetime_ms(&self) -> u64 {
        u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Duration in milliseconds.
pub(super) const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
