//! Stacks of layers, and the properties derived from them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use ltp::Red;
use models::programs::Tool;
use saratoga::Put;

use super::{Adapter, Convergence, Feature, Layer, Spool};
use crate::dissect::Dissector;
use crate::mib::Class;
use crate::records::ContentKind;

/// Stack of layers that fit, top to bottom.
#[derive(Debug)]
pub(crate) struct Stack {
    /// Short name of the stack, or the name composed of its layers.
    pub(crate) name: String,
    pub(crate) layers: Vec<&'static Layer>,
    /// Index among all stacks.
    pub(crate) place: usize,
    /// Whether its name is a short one.
    pub(crate) is_short: bool,
}

/// Stacks are ordered by their index.
impl Ord for Stack {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place.cmp(&other.place)
    }
}

impl PartialOrd for Stack {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Stack {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Stack {}

impl Hash for Stack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place.hash(state);
    }
}

/// A stack of layers without settings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub(crate) &'static Stack);

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a protocol belongs to a family.
type Belongs = fn(Kind) -> bool;

impl Kind {
    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// Whether the name is a short one.
    pub(super) fn is_short(self) -> bool {
        self.0.is_short
    }

    /// Name of the group in which lists of protocols have it.
    #[must_use]
    pub fn family(self) -> &'static str {
        // The first that matches.
        let families: [(Belongs, &str); 8] = [
            (Self::is_entity_in_bundles, "CFDP in bundles"),
            (Self::has_nodes, "files in bundles"),
            (|kind| kind.is(Feature::Entity), "CFDP"),
            (|kind| kind.is(Feature::PeerNumbers), "LTP"),
            (Self::has_directories, "Saratoga"),
            (Self::has_groups, "NORM"),
            (Self::is_scps_fp, "SCPS-FP over TCP"),
            (|kind| kind.program().is_some(), "programs over TCP"),
        ];
        let found = families.iter().find(|(is_of, _)| is_of(self));
        found.map_or("FTP over TCP", |(_, family)| family)
    }

    /// Layers, top to bottom.
    #[must_use]
    pub fn layers(self) -> &'static [&'static Layer] {
        &self.0.layers
    }

    pub(super) fn top(self) -> &'static Layer {
        self.layers()[0]
    }

    fn bottom(self) -> &'static Layer {
        self.layers()[self.layers().len() - 1]
    }

    /// Whether any layer has a property.
    pub(super) fn is(self, feature: Feature) -> bool {
        self.layers().iter().any(|layer| layer.has(feature))
    }

    /// Operations on its settings, and its configuration.
    #[must_use]
    pub fn adapter(self) -> &'static dyn Adapter {
        let below = self.layers()[1..].iter().find_map(|layer| layer.adapter_above);
        below.or(self.top().adapter).expect("each top layer has a transport, or one below it has")
    }

    /// Reader of its packets: the reader of the lowest layer that has one.
    #[must_use]
    pub fn dissector(self) -> Option<&'static Dissector> {
        self.layers().iter().rev().find_map(|layer| layer.dissector)
    }

    /// Layer below bundles, if bundles carry it.
    #[must_use]
    pub fn convergence(self) -> Option<Convergence> {
        let bundles = self.layers().iter().position(|layer| layer.has(Feature::Nodes))?;
        self.layers().get(bundles + 1)?.convergence
    }

    /// Name of the layer below bundles in the configuration of a node.
    #[must_use]
    pub fn node_layer(self) -> Option<&'static str> {
        let bundles = self.layers().iter().position(|layer| layer.has(Feature::Nodes))?;
        self.layers().get(bundles + 1)?.node_layer
    }

    /// Port of its servers in a scenario, if fixed.
    #[must_use]
    pub fn port(self) -> Option<u16> {
        self.layers().iter().find_map(|layer| layer.port)
    }

    /// Whether its transport is a CFDP entity, over datagrams or blocks.
    #[must_use]
    pub fn is_entity(self) -> bool {
        self.is(Feature::Entity) && self.has_sockets()
    }

    /// Whether a CFDP entity sends its PDUs as datagrams, so that its overlay can forward files.
    #[must_use]
    pub fn has_overlay(self) -> bool {
        self.bottom().has(Feature::Entity)
    }

    /// Whether CFDP is in bundles.
    #[must_use]
    pub fn is_entity_in_bundles(self) -> bool {
        self.is(Feature::Entity) && self.is(Feature::Nodes)
    }

    /// Whether bundle nodes carry it.
    #[must_use]
    pub fn has_nodes(self) -> bool {
        self.is(Feature::Nodes)
    }

    /// Whether it supports multicast groups, streams, and messages to applications.
    #[must_use]
    pub fn has_groups(self) -> bool {
        self.top().has(Feature::Groups)
    }

    /// Whether peers fetch, list and delete files, send beacons, and may use UDP-Lite.
    #[must_use]
    pub fn has_directories(self) -> bool {
        self.top().has(Feature::Directories)
    }

    /// Whether engines over sockets identify peers by numbers.
    #[must_use]
    pub fn has_peer_numbers(self) -> bool {
        self.is(Feature::PeerNumbers) && self.has_sockets()
    }

    /// Whether other engines relay its blocks, by routes.
    #[must_use]
    pub fn has_relays(self) -> bool {
        self.is(Feature::Relays)
    }

    /// Whether the MIB, instead of the name, sets the transmission class.
    #[must_use]
    pub fn leaves_class_to_mib(self) -> bool {
        self.is(Feature::ClassOfMib)
    }

    /// Whether it runs over sockets, instead of only in the simulator or on bundle nodes.
    #[must_use]
    pub fn has_sockets(self) -> bool {
        !self.is(Feature::Simulated) && !self.is(Feature::Nodes)
    }

    /// Whether it sends parity that no receiver requested.
    #[must_use]
    pub fn is_coded(self) -> bool {
        self.is(Feature::Coded)
    }

    /// Whether it carries keystrokes instead of files.
    #[must_use]
    pub fn is_typed(self) -> bool {
        self.is(Feature::Typed)
    }

    /// Whether a receiver can use the bytes of a file in order while they arrive.
    #[must_use]
    pub fn is_in_order(self) -> bool {
        self.top().has(Feature::InOrder)
    }

    /// Transmission class, in CFDP's terms.
    #[must_use]
    pub fn class(self) -> Class {
        // The layer below retransmits lost data.
        let is_carried = self.top().has(Feature::Entity) && self.layers().len() > 1;
        if self.is_reliable() && !is_carried { Class::Acknowledged } else { Class::Unacknowledged }
    }

    /// Retransmitted part of a block, in LTP's terms.
    #[must_use]
    pub fn red(self) -> Red {
        self.bottom().red
    }

    /// Whether TCP carries it.
    #[must_use]
    pub fn runs_over_tcp(self) -> bool {
        self.is(Feature::Simulated)
    }

    /// Whether it retransmits lost data.
    #[must_use]
    pub fn is_reliable(self) -> bool {
        matches!(self.red(), Red::All)
    }

    /// Kind of put, in Saratoga's terms.
    #[must_use]
    pub fn put(self) -> Put {
        if self.is_reliable() { Put::Push } else { Put::Blind }
    }

    /// Whether one transmission to a group reaches all its members. Other protocols send a file to
    /// each receiver separately.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.top().has(Feature::Multicast)
    }

    /// Whether hosts on the path store and forward it, instead of routing its packets.
    #[must_use]
    pub fn hands_on(self) -> bool {
        self.bottom().has(Feature::Forwards) || self.is(Feature::Routes)
    }

    /// Command of the modelled program, for people.
    #[must_use]
    pub fn command(self) -> Option<&'static str> {
        self.top().command
    }

    /// Name in comparisons with others, for programs that most people have.
    #[must_use]
    pub fn familiar(self) -> Option<&'static str> {
        self.top().familiar
    }

    /// Modelled program, or program that types.
    #[must_use]
    pub fn program(self) -> Option<Tool> {
        self.top().program
    }

    /// Whether it is SCPS-FP, with any of its commands.
    #[must_use]
    pub fn is_scps_fp(self) -> bool {
        self.top().has(Feature::Scps)
    }

    /// Content of its transfers.
    #[must_use]
    pub fn carries(self) -> ContentKind {
        self.top().carries
    }

    /// Working files in a store.
    #[must_use]
    pub fn spools(self) -> &'static [Spool] {
        self.adapter().spools()
    }

    /// Whether the same request resumes an interrupted transfer.
    #[must_use]
    pub fn resumes(self) -> bool {
        self.adapter().resumes(self)
    }

    /// Whether the receiver requests the file.
    #[must_use]
    pub fn is_fetched(self) -> bool {
        self.top().is_fetched
    }

    /// Profiles that advice tries; on shared paths also those with congestion control.
    #[must_use]
    pub fn tried_profiles(self, is_shared: bool) -> Vec<Option<&'static str>> {
        let top = self.top();
        let (all, shared) = if self.has_nodes() { (&[None][..], &[][..]) } else { top.tried };
        let shared = shared.iter().filter(|_| is_shared);
        all.iter().copied().chain(shared.copied().map(Some)).collect()
    }
}
