//! CRC of the primary blocks of bundles from this node.

use bp::agent::Checks;
use bp::codec::bp7::CrcType;
use serde::{Deserialize, Serialize};

/// CRC of the primary block, in version 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Crc {
    /// CRC-16 of X.25.
    #[serde(rename = "crc-16")]
    Crc16,
    /// CRC-32C.
    #[default]
    #[serde(rename = "crc-32c")]
    Crc32c,
}

impl From<Crc> for Checks {
    fn from(crc: Crc) -> Self {
        let primary = match crc {
            Crc::Crc16 => CrcType::Crc16,
            Crc::Crc32c => CrcType::Crc32c,
        };
        Self { primary, ..Self::default() }
    }
}
