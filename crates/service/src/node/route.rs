//! Static routes of a node.

use std::collections::BTreeSet;

use bp::agent::{Entry, Pattern};
use bp::codec::bp7::Eid;
use serde::{Deserialize, Deserializer, Serialize};
use transport::text::SpecError;

use super::{Neighbour, node, pattern};

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// Destination: a node (`ipn:3.0`, `dtn://c/`), one endpoint of it, or `*` for all.
    pub to: String,
    /// Administrative endpoint of the next hop, or a list of them in order of preference.
    #[serde(deserialize_with = "one_or_more")]
    pub via: Vec<String>,
}

/// Reads one text, or a list of them.
fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        One(String),
        More(Vec<String>),
    }
    Ok(match Given::deserialize(deserializer)? {
        Given::One(text) => vec![text],
        Given::More(texts) => texts,
    })
}

/// Returns the configured routes, and those to neighbours.
pub(super) fn entries(
    routes: &[RouteSpec],
    neighbours: &[Neighbour],
) -> Result<Vec<Entry>, SpecError> {
    let mut entries = Vec::new();
    let neighbours: BTreeSet<Eid> = neighbours
        .iter()
        .map(|neighbour| node("neighbour.node", &neighbour.node))
        .collect::<Result<_, _>>()?;
    for route in routes {
        let to = pattern("route.to", &route.to)?;
        let via: Vec<Eid> =
            route.via.iter().map(|via| node("route.via", via)).collect::<Result<_, _>>()?;
        if via.is_empty() {
            return Err(SpecError::invalid(format!(
                "route to {}: `via` is empty; write a neighbour, or a list of them",
                route.to
            )));
        }
        if let Some(via) = via.iter().find(|via| !neighbours.contains(via)) {
            return Err(SpecError::invalid(format!(
                "route to {}: unknown neighbour {via}; add [[neighbour]] with node = \"{via}\"",
                route.to
            )));
        }
        entries.push(Entry { to, via });
    }
    // Configured routes come first, so that they may lead around a neighbour.
    entries.extend(
        neighbours
            .into_iter()
            .map(|node| Entry { to: Pattern::Node(node.clone()), via: vec![node] }),
    );
    Ok(entries)
}
