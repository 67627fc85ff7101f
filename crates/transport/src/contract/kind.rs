//! Stacks of layers, and the properties derived from them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use ltp::Red;

use super::{Adapter, Convergence, Feature, Layer};
use crate::dissect::Dissector;
use crate::mib::Class;

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
    pub fn family(self) -> String {
        let family = self.top().family;
        if self.has(Feature::Nodes) { format!("{family} in bundles") } else { family.to_owned() }
    }

    /// Layers, top to bottom.
    #[must_use]
    pub fn layers(self) -> &'static [&'static Layer] {
        &self.0.layers
    }

    /// The top layer, which users see.
    #[must_use]
    pub fn top(self) -> &'static Layer {
        self.layers()[0]
    }

    fn bottom(self) -> &'static Layer {
        self.layers()[self.layers().len() - 1]
    }

    /// Whether it has a property: of any layer, or of the top if layers above hide the property.
    #[must_use]
    pub fn has(self, feature: Feature) -> bool {
        let layers = if feature.is_of_top() { &self.layers()[..1] } else { self.layers() };
        layers.iter().any(|layer| layer.has(feature))
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
    pub fn below_bundles(self) -> Option<&'static Layer> {
        let bundles = self.layers().iter().position(|layer| layer.has(Feature::Nodes))?;
        self.layers().get(bundles + 1).copied()
    }

    /// Convergence layer, if bundles carry it.
    pub(crate) fn convergence(self) -> Option<Convergence> {
        self.below_bundles()?.convergence
    }

    /// Port of its servers in a scenario, if fixed.
    #[must_use]
    pub fn port(self) -> Option<u16> {
        self.layers().iter().find_map(|layer| layer.port)
    }

    /// Whether its transport is a CFDP entity, over datagrams or blocks.
    #[must_use]
    pub fn is_entity(self) -> bool {
        self.has(Feature::Entity) && self.has_sockets()
    }

    /// Whether a CFDP entity sends its PDUs as datagrams, so that its overlay can forward files.
    #[must_use]
    pub fn has_overlay(self) -> bool {
        self.bottom().has(Feature::Entity)
    }

    /// Whether CFDP is in bundles.
    #[must_use]
    pub fn is_entity_in_bundles(self) -> bool {
        self.has(Feature::Entity) && self.has(Feature::Nodes)
    }

    /// Whether engines over sockets identify peers by numbers.
    #[must_use]
    pub fn has_peer_numbers(self) -> bool {
        self.has(Feature::PeerNumbers) && self.has_sockets()
    }

    /// Whether it runs over sockets, instead of only in the simulator or on bundle nodes.
    #[must_use]
    pub fn has_sockets(self) -> bool {
        !self.has(Feature::Tcp) && !self.has(Feature::Nodes)
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

    /// Whether it retransmits lost data.
    #[must_use]
    pub fn is_reliable(self) -> bool {
        matches!(self.red(), Red::All)
    }

    /// Whether hosts on the path store and forward it, instead of routing its packets.
    #[must_use]
    pub fn hands_on(self) -> bool {
        self.bottom().has(Feature::Forwards) || self.has(Feature::Routes)
    }

    /// Profiles that advice tries; on shared paths also those with congestion control.
    #[must_use]
    pub fn tried_profiles(self, is_shared: bool) -> Vec<Option<&'static str>> {
        let top = self.top();
        let (all, shared) =
            if self.has(Feature::Nodes) { (&[None][..], &[][..]) } else { top.tried };
        let shared = shared.iter().filter(|_| is_shared);
        all.iter().copied().chain(shared.copied().map(Some)).collect()
    }
}
