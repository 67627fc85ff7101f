//! Indications of all engines, behind one type.

use proto::{cfdp, ltp, norm, saratoga};

use crate::event::Event;

/// Indication of any engine to its user.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyIndication {
    /// A CFDP entity's indication.
    Cfdp(cfdp::Indication),
    /// An LTP engine's indication.
    Ltp(ltp::Indication),
    /// A Saratoga peer's indication.
    Saratoga(saratoga::Indication),
    /// A NORM node's indication.
    Norm(norm::Indication),
    /// Indication of a node over TCP.
    OverTcp(Event),
    /// Indication to the user of a bundle node.
    Bundles(Event),
}
