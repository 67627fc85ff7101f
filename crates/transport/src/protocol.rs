//! Protocols by the names of the command line: stacks of layers, each with its profile.
//!
//! A name is either short, with the profile behind a slash, like `bp-ltp/checkpoints`, or composed
//! of layers from top to bottom, like `cfdp/gsfc-2007+bp+ltp/checkpoints` (ADR 5).

pub mod layers;
mod stack;

use std::str::FromStr;

use serde::{Deserialize, Deserializer};

pub use self::layers::register;
use self::stack::STACKS;
use crate::adapter;
use crate::contract::Spool;
pub use crate::contract::{Kind, Protocol};
pub use crate::records::ContentKind;
use crate::text::{self, SpecError};

impl Kind {
    /// Stacks with a short name, in the order of lists.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        STACKS.iter().filter(|stack| stack.is_short).map(Self)
    }

    /// Stack of a short name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.name() == name)
    }

    /// Working files that layers of bundle nodes leave in a node's store after a crash.
    pub fn node_spools() -> impl Iterator<Item = &'static Spool> {
        // Several layers are of one protocol.
        let mut spools: Vec<_> = layers::all().flat_map(|layer| layer.node_spools).collect();
        spools.dedup();
        spools.into_iter()
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
        return Err(SpecError::invalid(format!(
            "there is no protocol {:?}{near} (`slowlight compare --help` lists all)",
            wire::excerpt(name)
        )));
    };
    Ok(Protocol { profile, ..Protocol::plain(kind) })
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Feature, Layer, Service};
    use crate::mib::Class;

    #[test]
    fn cfdp_in_bundles_is_as_reliable_as_they_are() {
        let in_bundles: Vec<_> = Kind::all().filter(|kind| kind.is_entity_in_bundles()).collect();
        assert_eq!(in_bundles.len(), 8);
        for kind in in_bundles {
            let name = kind.name().strip_prefix("cfdp-").unwrap();
            let below = Kind::named(name).unwrap();
            assert_eq!((kind.red(), kind.dissector()), (below.red(), below.dissector()));
            assert_eq!(kind.class(), Class::Unacknowledged);
            assert!(below.has(Feature::Nodes));
        }
    }

    #[test]
    fn layers_are_registered_before_any_use_under_their_own_names() {
        const TAKEN: &[Layer] = &[Layer::new("ltp", &[Service::Datagrams], &[Service::Files])];
        const LATE: &[Layer] = &[Layer::new("late", &[Service::Datagrams], &[Service::Files])];
        assert!(register(TAKEN).unwrap_err().to_string().contains("another layer ltp"));
        assert!(Kind::named("ltp").is_some());
        assert!(register(LATE).unwrap_err().to_string().contains("before any protocol is used"));
    }

    #[test]
    fn names_parse_with_profiles() {
        let parsed = |text: &str| text.parse::<Protocol>();
        for text in ["cfdp", "cfdp-1", "cfdp/gsfc-2007", "ltp", "ltp-green/ltplib-2011"] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
        assert!(parsed("cfpd").unwrap_err().to_string().contains("did you mean \"cfdp\"?"));
        assert!(parsed("cfdp/gsfc-1807").unwrap_err().to_string().contains("gsfc-2007"));
    }
}
