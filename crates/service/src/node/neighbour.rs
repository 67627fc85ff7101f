//! A neighbour of a node, configured by TOML.

use bp::admission::Network;
use rt::Destination;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use transport::text::SpecError;

/// A neighbour of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// Administrative endpoint.
    pub node: String,
    /// Layer by which it is reached; without one it connects to this node.
    pub layer: Option<String>,
    /// IP address or host name, and port.
    #[serde(default, deserialize_with = "read_destination", serialize_with = "write_destination")]
    pub address: Option<Destination>,
    /// Networks from which it connects: without a proof its name counts from there only. Default:
    /// its address.
    #[serde(default)]
    pub from: Vec<String>,
    /// LTP engine number, if it differs from the node number.
    pub engine: Option<u64>,
    /// DNS name that its certificate must also carry, if streams to it are secured.
    pub name: Option<String>,
}

/// Reads an address with a port; errors quote it.
fn read_destination<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Destination>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|error| de::Error::custom(format!("address: {error}")))
}

fn write_destination<S: Serializer>(
    address: &Option<Destination>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    address.as_ref().map(Destination::to_string).serialize(serializer)
}

impl Neighbour {
    /// Whether it has neither networks nor an address.
    pub(super) const fn lacks_address(&self) -> bool {
        self.from.is_empty() && self.address.is_none()
    }

    /// Networks from which its name counts without a proof: by default its address.
    pub(super) fn networks(&self) -> Result<Vec<Network>, SpecError> {
        if self.from.is_empty() {
            // The address of a name is that of its next connection, and proves nothing.
            let address = self.address.as_ref().and_then(Destination::address);
            return Ok(address.map(|address| address.ip().into()).into_iter().collect());
        }
        let parse = |text: &String| {
            text.parse::<Network>().map_err(|error| {
                SpecError::invalid(format!("neighbour {}: from: {error}", self.node))
            })
        };
        self.from.iter().map(parse).collect()
    }
}
