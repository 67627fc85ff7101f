//! Protocols: stacks of layers with their profiles.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use super::{Feature, Kind, Layer};

/// A protocol with its profiles, like `cfdp/gsfc-2007`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol {
    /// The stack.
    pub kind: Kind,
    /// Named settings of the lowest layer that has any; `None` for slowlight's defaults.
    pub profile: Option<String>,
    /// Profiles of other layers.
    pub layers: BTreeMap<&'static str, String>,
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

    /// Whether it slows down on a shared path.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        let top = self.kind.top();
        self.kind.has(Feature::Controlled) || self.is_profile_of(top.controlled_profiles)
    }

    /// Whether it codes whole files.
    #[must_use]
    pub fn codes_files(&self) -> bool {
        self.is_profile_of(self.kind.top().coded_profiles)
    }

    fn is_profile_of(&self, names: &[&str]) -> bool {
        self.profile.as_deref().is_some_and(|name| names.contains(&name))
    }
}

/// Separator of layers in the name of a stack.
pub(crate) const SEPARATOR: &str = "+";

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.kind.is_short() || !self.layers.is_empty() {
            return f.write_str(&written(self));
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

/// Name of a stack by its layers.
pub(crate) fn compose(layers: &[&Layer]) -> String {
    layers.iter().map(|layer| layer.name).collect::<Vec<_>>().join(SEPARATOR)
}

/// The stack by its layers, each with its profile.
fn written(protocol: &Protocol) -> String {
    let layers = protocol.kind.layers();
    let home = layers.iter().rposition(|layer| !(layer.profiles)().is_empty());
    let part = |(place, layer): (usize, &&Layer)| {
        let own = protocol.layers.get(layer.name);
        match own.or(protocol.profile.as_ref().filter(|_| Some(place) == home)) {
            Some(profile) => format!("{}/{profile}", layer.name),
            None => layer.name.to_owned(),
        }
    };
    layers.iter().enumerate().map(part).collect::<Vec<_>>().join(SEPARATOR)
}
