//! Sets of endpoints.

use std::str::FromStr;

use crate::codec::eid::{Eid, ParseEidError};

/// Set of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All endpoints.
    Any,
    /// All endpoints of this node.
    Node(Eid),
    /// This endpoint.
    Endpoint(Eid),
}

impl FromStr for Pattern {
    type Err = ParseEidError;

    /// Parses a node (`ipn:3.0`, `dtn://c/`) or its endpoints (`ipn:3.*`, `dtn://c/*`), one endpoint,
    /// or `*` for all.
    fn from_str(text: &str) -> Result<Self, ParseEidError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let of_node = text.strip_suffix('*').and_then(|node| match node.strip_suffix('.') {
            Some(number) if number.starts_with("ipn:") => Some(format!("{number}.0")),
            _ => {
                node.strip_prefix("dtn://")?.strip_suffix('/').map(|name| format!("dtn://{name}/"))
            }
        });
        let eid: Eid = of_node.as_deref().unwrap_or(text).parse()?;
        Ok(if eid == eid.node() { Self::Node(eid) } else { Self::Endpoint(eid) })
    }
}

impl Pattern {
    /// Whether the set contains an endpoint.
    #[must_use]
    pub fn matches(&self, eid: &Eid) -> bool {
        match self {
            Self::Any => true,
            Self::Node(node) => eid.node() == *node,
            Self::Endpoint(endpoint) => eid == endpoint,
        }
    }

    /// Whether the set contains all of another set. Two sets of which neither contains the other
    /// have nothing in common.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        match other {
            Self::Any => *self == Self::Any,
            Self::Node(_) => matches!(self, Self::Any) || self == other,
            Self::Endpoint(endpoint) => self.matches(endpoint),
        }
    }
}
