//! Which transports serve a question, and what distinguishes those that do it equally well.

use super::Question;
use crate::protocol::{Carried, Family, Kind, Protocol};
use crate::text::SpecError;

/// Transports that the needs admit. On a shared path these include those without congestion
/// control, which are simulated to name the best of them but are not recommended.
///
/// # Errors
///
/// When none is left.
pub fn candidates(question: &Question) -> Result<Vec<Protocol>, SpecError> {
    let Question { has_return, receivers, relay, .. } = question;
    let admits = |kind: &Kind| {
        let is_file = kind.carries() == Carried::File && *kind != Kind::Telnet;
        // Without a return link none can retransmit, and one that tries never ends; parity needs none.
        let is_whole = kind.is_reliable() == *has_return || *kind == Kind::NormFec;
        let forwards = !relay || kind.hands_on();
        // What carries CFDP below it is compared by itself, and this adds only CFDP's headers; over
        // relays it is another story.
        let is_plain = *relay || !kind.name().starts_with("cfdp-bp");
        // Bundles and blocks go to one receiver at a time, over paths that are made for it.
        let to_many = *receivers == 1 || kind.family() != Family::Bundles;
        is_file && is_whole && forwards && is_plain && to_many
    };
    let all: Vec<_> = Kind::ALL
        .iter()
        .copied()
        .filter(admits)
        .flat_map(|kind| profiles(kind, question.is_controlled()))
        .collect();
    if all.is_empty() {
        return Err(SpecError::invalid("no transport here has all that is needed"));
    }
    Ok(all)
}

/// The profiles of a protocol that are candidates: of FTP the two congestion controls that kernels
/// have, and on shared paths the rate control of protocols that have one.
fn profiles(kind: Kind, is_shared: bool) -> Vec<Protocol> {
    let with = |profile: &str| Protocol { kind, profile: Some(profile.to_owned()) };
    let plain = Protocol::plain(kind);
    if kind == Kind::Ftp {
        vec![with("cubic"), with("bbr")]
    } else if kind == Kind::Norm && is_shared {
        vec![plain, with("cc")]
    } else if kind == Kind::Saratoga && is_shared {
        vec![plain, with("tfrc")]
    } else {
        vec![plain]
    }
}

/// Whether a transport slows down where others use the path too.
#[must_use]
pub fn is_controlled(protocol: &Protocol) -> bool {
    let profile = protocol.profile.as_deref();
    match protocol.kind.family() {
        Family::OverTcp => true,
        Family::Bundles => protocol.kind.runs_over_tcp(),
        Family::Norm => profile == Some("cc"),
        Family::Saratoga => profile == Some("tfrc"),
        Family::Cfdp | Family::Ltp | Family::CfdpLtp => false,
    }
}

/// Whether its receiver can hand over the bytes of a file in their order while they arrive.
#[must_use]
pub fn streams(protocol: &Protocol) -> bool {
    matches!(protocol.kind.family(), Family::OverTcp | Family::Norm)
}

/// Means to run a transport between real hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deployment {
    /// `slowlight recv` at the receiver, `slowlight send` at the sender.
    Commands,
    /// A bundle node at each host, `slowlight node`.
    Nodes,
    /// In the simulator only.
    Simulator,
}

/// Means to run this transport between real hosts.
#[must_use]
pub fn deployment(protocol: &Protocol) -> Deployment {
    match protocol.kind.family() {
        // Its hosts need routes to each other.
        Family::Ltp if protocol.kind == Kind::LtpT => Deployment::Simulator,
        Family::Cfdp | Family::Ltp | Family::CfdpLtp | Family::Saratoga | Family::Norm => {
            Deployment::Commands
        }
        Family::Bundles => Deployment::Nodes,
        Family::OverTcp => Deployment::Simulator,
    }
}

/// Order of transports that do equally well: fewer layers first, then put before fetched, those
/// that can be run before models, retransmission before coding.
pub(super) fn simplicity(protocol: &Protocol) -> impl Ord {
    let kind = protocol.kind;
    let layers = match kind.family() {
        Family::CfdpLtp => 1,
        Family::Bundles if kind.carried().is_some() => 3,
        Family::Bundles => 2,
        Family::Cfdp | Family::Ltp | Family::Saratoga | Family::Norm | Family::OverTcp => 0,
    };
    let coded = kind == Kind::NormFec && kind.is_reliable();
    let place = Kind::ALL.iter().position(|known| *known == kind);
    (layers, kind.is_fetched(), deployment(protocol), coded, place)
}
