//! Admission of peers, configured by TOML.

use std::collections::BTreeMap;

use proto::bp::admission::{Admission, Network};
use serde::{Deserialize, Serialize};
use transport::text::SpecError;
use wire::bp7::Eid;

use super::{Neighbour, NodeSpec, node};

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

impl From<Strangers> for proto::bp::admission::Strangers {
    fn from(strangers: Strangers) -> Self {
        match strangers {
            Strangers::Refuse => Self::Refuse,
            Strangers::Receive => Self::Receive,
            Strangers::Both => Self::Both,
        }
    }
}

impl Neighbour {
    /// Networks from which its name counts without a proof: by default its address.
    fn networks(&self) -> Result<Vec<Network>, SpecError> {
        if self.from.is_empty() {
            return Ok(self.address.map(|address| address.ip().into()).into_iter().collect());
        }
        let parse = |text: &String| {
            text.parse::<Network>().map_err(|error| {
                SpecError::invalid(format!("neighbour {}: from: {error}", self.node))
            })
        };
        self.from.iter().map(parse).collect()
    }
}

impl NodeSpec {
    /// Returns the admission of peers.
    ///
    /// # Errors
    ///
    /// A network cannot be read, or a neighbour could not prove its name in any way.
    pub(super) fn admission(&self) -> Result<Admission, SpecError> {
        let mut neighbours: BTreeMap<Eid, Vec<Network>> = BTreeMap::new();
        let layers = || self.layers.iter().map(super::Layer::spec);
        let has_listener = layers().any(|layer| layer.listens_for_names());
        let has_proof = layers().any(|layer| layer.proves_names());
        for neighbour in &self.neighbours {
            let mut networks = neighbour.networks()?;
            if networks.is_empty() && self.limits.strangers == Strangers::Both {
                networks = Network::ALL.to_vec();
            }
            if networks.is_empty() && has_listener && !has_proof {
                return Err(SpecError::invalid(format!(
                    "neighbour {}: its name would count from no address; write from = \
                     [\"192.0.2.0/24\"] with its networks, or secure a layer with `tls`",
                    neighbour.node
                )));
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
