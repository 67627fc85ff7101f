//! Protocols by the names of the command line: stacks of layers, each with its profile.
//!
//! A name is either short, with the profile behind a slash, like `bp-ltp/checkpoints`, or composed
//! of layers from top to bottom, like `cfdp/gsfc-2007+bp+ltp/checkpoints` (ADR 5).

pub mod layers;
mod stack;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use proto::ltp::Red;
use proto::programs::Tool;
use proto::saratoga::Put;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::layers::{Feature, LAYERS, Layer, SHORT};
use self::stack::{STACKS, Stack};
use crate::adapter::bundles::config::Convergence;
use crate::adapter::{self, Adapter, Spool};
use crate::dissect::Dissector;
use crate::mib::Class;
pub use crate::records::ContentKind;
use crate::text::{self, SpecError};

/// A protocol with its profiles, like `cfdp/gsfc-2007`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol {
    /// The stack.
    pub kind: Kind,
    /// Settings with a name, of the lowest layer that has such; `None` for slowlight's defaults.
    pub profile: Option<String>,
    /// Profiles of other layers.
    pub layers: BTreeMap<&'static str, String>,
}

/// A stack of layers without settings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(&'static Stack);

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Kind {
    /// Stacks with a short name, in the order in which they are listed.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        STACKS.iter().take(SHORT.len()).map(Self)
    }

    /// Stack of a short name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.name() == name)
    }

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// Whether the name is a short one.
    fn is_short(self) -> bool {
        self.0.is_short
    }

    /// Layers, top to bottom.
    #[must_use]
    pub fn layers(self) -> &'static [&'static Layer] {
        &self.0.layers
    }

    fn top(self) -> &'static Layer {
        self.layers()[0]
    }

    fn bottom(self) -> &'static Layer {
        self.layers()[self.layers().len() - 1]
    }

    /// Whether any layer has a property.
    fn is(self, feature: Feature) -> bool {
        self.layers().iter().any(|layer| layer.has(feature))
    }

    /// Operations on its settings, and its configuration.
    #[must_use]
    pub fn adapter(self) -> &'static dyn Adapter {
        let below = self.layers()[1..].iter().find_map(|layer| layer.adapter_above);
        below.or(self.top().adapter).expect("each top layer has a transport, or one below it has")
    }

    /// Reader of its packets: that of the lowest layer that has one.
    #[must_use]
    pub fn dissector(self) -> Option<&'static Dissector> {
        self.layers().iter().rev().find_map(|layer| layer.dissector)
    }

    /// Layer below bundles, if they carry it.
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

    /// Port at which its servers listen in a scenario, where that is not any.
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

    /// Whether it sends to multicast groups, streams, and messages to applications.
    #[must_use]
    pub fn has_groups(self) -> bool {
        self.top().has(Feature::Groups)
    }

    /// Whether peers fetch, list and delete files, announce themselves by beacons, and may use
    /// UDP-Lite.
    #[must_use]
    pub fn has_directories(self) -> bool {
        self.top().has(Feature::Directories)
    }

    /// Whether engines over sockets have numbers by which peers are known.
    #[must_use]
    pub fn has_peer_numbers(self) -> bool {
        self.is(Feature::PeerNumbers) && self.has_sockets()
    }

    /// Whether blocks pass over other engines, by routes.
    #[must_use]
    pub fn has_relays(self) -> bool {
        self.is(Feature::Relays)
    }

    /// Whether the MIB, and not the name, sets the transmission class.
    #[must_use]
    pub fn leaves_class_to_mib(self) -> bool {
        self.is(Feature::ClassOfMib)
    }

    /// Whether it runs over sockets, rather than in the simulator or on bundle nodes only.
    #[must_use]
    pub fn has_sockets(self) -> bool {
        !self.is(Feature::Simulated) && !self.is(Feature::Nodes)
    }

    /// Whether it sends parity that no receiver requested.
    #[must_use]
    pub fn is_coded(self) -> bool {
        self.is(Feature::Coded)
    }

    /// Whether it carries keys, and no file.
    #[must_use]
    pub fn is_typed(self) -> bool {
        self.is(Feature::Typed)
    }

    /// Whether a receiver can use the bytes of a file in their order while they arrive.
    #[must_use]
    pub fn is_in_order(self) -> bool {
        self.top().has(Feature::InOrder)
    }

    /// Transmission class, in CFDP's words.
    #[must_use]
    pub fn class(self) -> Class {
        // The layer below retransmits what is lost.
        let is_carried = self.top().has(Feature::Entity) && self.layers().len() > 1;
        if self.is_reliable() && !is_carried { Class::Acknowledged } else { Class::Unacknowledged }
    }

    /// Part of a block that is retransmitted, in LTP's words.
    #[must_use]
    pub fn red(self) -> Red {
        self.bottom().red
    }

    /// Whether TCP carries it.
    #[must_use]
    pub fn runs_over_tcp(self) -> bool {
        self.is(Feature::Simulated)
    }

    /// Whether it retransmits what is lost.
    #[must_use]
    pub fn is_reliable(self) -> bool {
        matches!(self.red(), Red::All)
    }

    /// Kind of put, in Saratoga's words.
    #[must_use]
    pub fn put(self) -> Put {
        if self.is_reliable() { Put::Push } else { Put::Blind }
    }

    /// Whether what is sent once to a group is for all its members. Other protocols send a file to
    /// each receiver by itself.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.top().has(Feature::Multicast)
    }

    /// Whether hosts on the way store and forward it, rather than routing its packets.
    #[must_use]
    pub fn hands_on(self) -> bool {
        self.bottom().has(Feature::Forwards) || self.is(Feature::Routes)
    }

    /// Command of the program that it is a model of, for people.
    #[must_use]
    pub fn command(self) -> Option<&'static str> {
        self.top().command
    }

    /// Name in texts that compare others with it, because most people have it.
    #[must_use]
    pub fn familiar(self) -> Option<&'static str> {
        self.top().familiar
    }

    /// Program that it is a model of, or that types.
    #[must_use]
    pub fn program(self) -> Option<Tool> {
        self.top().program
    }

    /// Whether it is SCPS-FP, whichever of its commands.
    #[must_use]
    pub fn is_scps_fp(self) -> bool {
        self.top().has(Feature::Scps)
    }

    /// Content that it transfers.
    #[must_use]
    pub fn carries(self) -> ContentKind {
        self.top().carries
    }

    /// Working files in a store.
    #[must_use]
    pub fn spools(self) -> &'static [Spool] {
        self.adapter().spools()
    }

    /// Whether a transfer that was interrupted is resumed by the same request.
    #[must_use]
    pub fn resumes(self) -> bool {
        self.adapter().resumes(self)
    }

    /// Working files that layers of bundle nodes leave in a node's store after a crash.
    pub fn node_spools() -> impl Iterator<Item = &'static Spool> {
        // Several layers are of one protocol.
        let mut spools: Vec<_> = LAYERS.iter().flat_map(|layer| layer.node_spools).collect();
        spools.dedup();
        spools.into_iter()
    }

    /// Whether the receiver requests the file.
    #[must_use]
    pub fn is_fetched(self) -> bool {
        self.top().is_fetched
    }

    /// Profiles that advice tries: on shared paths those with congestion control, too.
    #[must_use]
    pub fn tried_profiles(self, is_shared: bool) -> Vec<Option<&'static str>> {
        let top = self.top();
        let (instead, shared) = if self.has_nodes() { (&[][..], &[][..]) } else { top.tried };
        let plain = instead.is_empty().then_some(None);
        let shared = shared.iter().filter(|_| is_shared);
        plain.into_iter().chain(instead.iter().chain(shared).copied().map(Some)).collect()
    }
}

impl Protocol {
    /// A protocol with slowlight's defaults.
    #[must_use]
    pub fn plain(kind: Kind) -> Self {
        Self { kind, profile: None, layers: BTreeMap::new() }
    }

    /// A protocol with a profile.
    #[must_use]
    pub fn with_profile(kind: Kind, profile: &str) -> Self {
        Self { profile: Some(profile.to_owned()), ..Self::plain(kind) }
    }

    /// Whether it slows down where others use the path too.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        let top = self.kind.top();
        let by_profile =
            top.controlled_profile.is_some_and(|profile| self.profile.as_deref() == Some(profile));
        self.kind.is(Feature::Controlled) || by_profile
    }
}

impl Default for Protocol {
    /// CFDP, the first of all.
    fn default() -> Self {
        Self::plain(Kind(&STACKS[0]))
    }
}

impl FromStr for Protocol {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let protocol = match stack::parse(text)? {
            Some(protocol) => protocol,
            None => short(text)?,
        };
        adapter::check_profile(&protocol)?;
        Ok(protocol)
    }
}

/// The protocol of a short name with its profile.
fn short(text: &str) -> Result<Protocol, SpecError> {
    let (name, profile) = match text.split_once('/') {
        Some((name, profile)) => (name, Some(profile.to_owned())),
        None => (text, None),
    };
    let Some(kind) = Kind::named(name) else {
        let near = text::did_you_mean(name, Kind::all().map(Kind::name));
        let known = Kind::all().map(Kind::name).collect::<Vec<_>>().join(", ");
        return Err(SpecError::invalid(format!(
            "there is no protocol {name:?}{near} (protocols: {known})"
        )));
    };
    Ok(Protocol { profile, ..Protocol::plain(kind) })
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.kind.is_short() || !self.layers.is_empty() {
            return f.write_str(&stack::written(self));
        }
        f.write_str(self.kind.name())?;
        match &self.profile {
            Some(profile) => write!(f, "/{profile}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cfdp_in_bundles_is_as_reliable_as_they_are() {
        let in_bundles: Vec<_> = Kind::all().filter(|kind| kind.is_entity_in_bundles()).collect();
        assert_eq!(in_bundles.len(), 8);
        for kind in in_bundles {
            let name = kind.name().strip_prefix("cfdp-").unwrap();
            let below = Kind::named(name).unwrap();
            assert_eq!((kind.red(), kind.dissector()), (below.red(), below.dissector()));
            assert_eq!(kind.class(), Class::Unacknowledged);
            assert!(below.has_nodes());
        }
    }

    #[test]
    fn names_and_profiles() {
        let parsed = |text: &str| text.parse::<Protocol>();
        for text in ["cfdp", "cfdp-1", "cfdp/gsfc-2007", "ltp", "ltp-green/ltplib-2011"] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
        assert!(parsed("cfpd").unwrap_err().to_string().contains("did you mean \"cfdp\"?"));
        assert!(parsed("cfdp/gsfc-1807").unwrap_err().to_string().contains("gsfc-2007"));
    }
}
