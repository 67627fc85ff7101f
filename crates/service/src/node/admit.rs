//! Admission of peers, configured by TOML.

use std::collections::BTreeMap;
use std::fmt;

use bp::admission::{Admission, Network};
use bp::agent::{Acceptance, By};
use bp::codec::bp7::Eid;
use serde::{Deserialize, Serialize};
use transport::quantity::{Size, Span};
use transport::text::SpecError;

use super::{NodeSpec, node, pattern};

/// Rights of strangers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strangers {
    /// None: their sessions end, and their datagrams are dropped.
    Refuse,
    /// They may hand in bundles, but get none.
    #[default]
    Receive,
    /// They also get bundles, under names that are not in this file.
    Both,
}

impl From<Strangers> for bp::admission::Strangers {
    fn from(strangers: Strangers) -> Self {
        match strangers {
            Strangers::Refuse => Self::Refuse,
            Strangers::Receive => Self::Receive,
            Strangers::Both => Self::Both,
        }
    }
}

/// Rule for the acceptance of bundles of neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptRule {
    /// Peer that hands them in: a neighbour, `strangers`, or `*` for all.
    #[serde(default = "all")]
    pub neighbour: String,
    /// Sources: a node, an endpoint, or `*` for all.
    #[serde(default = "all")]
    pub from: String,
    /// Destinations, likewise.
    #[serde(default = "all")]
    pub to: String,
    /// Whether such bundles are refused.
    #[serde(default)]
    pub refuse: bool,
    /// Maximum bundles in the store under this rule.
    pub bundles: Option<usize>,
    /// Maximum bytes in the store under this rule.
    pub bytes: Option<Size>,
    /// Maximum bytes of one bundle.
    pub bundle: Option<Size>,
    /// Maximum remaining lifetime of a bundle.
    pub lifetime: Option<Span>,
}

fn all() -> String {
    "*".to_owned()
}

impl fmt::Display for AcceptRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { neighbour, from, to, refuse, .. } = self;
        let refuse = if *refuse { ", refuse" } else { "" };
        write!(f, "neighbour {neighbour}, from {from}, to {to}{refuse}")
    }
}

impl AcceptRule {
    fn rule(&self) -> Result<Acceptance, SpecError> {
        let by = match self.neighbour.as_str() {
            "*" => By::Any,
            "strangers" => By::Strangers,
            name => By::Neighbour(node("limits.accept.neighbour", name)?),
        };
        let lifetime_ms = self.lifetime.map_or(u128::MAX, |span| span.duration().as_millis());
        let bytes = |size: Option<Size>| size.map_or(u64::MAX, Size::bytes);
        Ok(Acceptance {
            by,
            from: pattern("limits.accept.from", &self.from)?,
            to: pattern("limits.accept.to", &self.to)?,
            refuse: self.refuse,
            bundles: self.bundles.unwrap_or(usize::MAX),
            bytes: bytes(self.bytes),
            bundle: bytes(self.bundle),
            lifetime_ms: u64::try_from(lifetime_ms).unwrap_or(u64::MAX),
        })
    }
}

impl super::Limits {
    /// Returns the rules for bundles of neighbours.
    ///
    /// # Errors
    ///
    /// A rule names no node or endpoint.
    pub(super) fn rules(&self) -> Result<Vec<Acceptance>, SpecError> {
        self.accept.iter().map(AcceptRule::rule).collect()
    }

    /// Returns warnings about rules that earlier ones shadow.
    pub(super) fn shadows(&self) -> Vec<String> {
        let rules: Vec<_> = self.accept.iter().filter_map(|rule| rule.rule().ok()).collect();
        let mut warnings = Vec::new();
        for (at, later) in rules.iter().enumerate() {
            let Some(first) = rules[..at].iter().position(|earlier| earlier.shadows(later)) else {
                continue;
            };
            warnings.push(format!(
                "limits.accept: rule {} ({}) has no effect on bundles of rule {} ({}), which comes first; \
                 write it before",
                at + 1,
                self.accept[at],
                first + 1,
                self.accept[first]
            ));
        }
        warnings
    }

    /// Logs which rules earlier ones shadow.
    pub(super) fn warn_of_shadows(&self) {
        self.shadows().iter().for_each(|warning| tracing::warn!("{warning}"));
    }
}

impl NodeSpec {
    pub(super) fn check_admission(&self) -> Result<(), SpecError> {
        self.admission()?;
        self.check_proofs()?;
        self.limits.rules().map(drop)
    }

    /// Checks that every neighbour can prove its name in some way.
    fn check_proofs(&self) -> Result<(), SpecError> {
        let layers = || self.layers.iter().map(super::Layer::spec);
        let has_listener = layers().any(|layer| layer.listens_for_names());
        let has_proof = layers().any(|layer| layer.proves_names());
        if !has_listener || has_proof || self.limits.strangers == Strangers::Both {
            return Ok(());
        }
        // One with a host name is reached by connections of this node.
        let lost = self.neighbours.iter().find(|neighbour| neighbour.lacks_address());
        let Some(neighbour) = lost else { return Ok(()) };
        Err(SpecError::invalid(format!(
            "neighbour {}: its name would count from no address; write from = \
             [\"192.0.2.0/24\"] with its networks, or secure a layer with `tls`",
            neighbour.node
        )))
    }

    /// Returns the admission of peers.
    ///
    /// # Errors
    ///
    /// A network cannot be read.
    pub(super) fn admission(&self) -> Result<Admission, SpecError> {
        let mut neighbours: BTreeMap<Eid, Vec<Network>> = BTreeMap::new();
        for neighbour in &self.neighbours {
            let mut networks = neighbour.networks()?;
            // An address that is a host name admits nobody.
            if neighbour.lacks_address() && self.limits.strangers == Strangers::Both {
                networks = Network::ALL.to_vec();
            }
            neighbours
                .entry(node("neighbour.node", &neighbour.node)?)
                .or_default()
                .extend(networks);
        }
        let aliases = self.aliases.iter().map(|alias| node("aliases", alias));
        Ok(Admission {
            neighbours,
            aliases: aliases.collect::<Result<_, _>>()?,
            strangers: self.limits.strangers.into(),
        })
    }
}
