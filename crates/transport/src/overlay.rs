//! Procedures by which waypoints of CFDP forward a file.

use serde::{Deserialize, Serialize};

/// Procedure by which waypoints forward a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlay {
    /// Store-and-forward overlay: each hop is a separate transaction.
    Sfo,
    /// Extended procedures, classes 3 and 4: one transaction over all hops.
    Extended,
}

impl Overlay {
    /// Profile of a transfer without one: the extended procedures need PDUs of version 000.
    #[must_use]
    pub fn profile(self) -> Option<&'static str> {
        match self {
            Self::Sfo => None,
            Self::Extended => Some("extended-b3"),
        }
    }
}
