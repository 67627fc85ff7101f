//! Static routes of a node.

use serde::{Deserialize, Deserializer, Serialize};

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
