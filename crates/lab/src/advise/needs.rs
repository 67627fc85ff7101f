//! Candidates for a question, and the order of equally good ones.

use transport::contract::Feature;
use transport::protocol::{ContentKind, Kind, Protocol};
use transport::text::SpecError;

use super::Question;
use crate::scenario::Scenario;
use crate::topology::Topology;

/// Returns the transports that meet the requirements. On a shared path these include those without
/// congestion control, which are simulated to name the best of them but are not recommended.
///
/// # Errors
///
/// No transport meets them.
pub fn candidates(question: &Question) -> Result<Vec<Protocol>, SpecError> {
    let Question { has_return, receivers, relay, .. } = *question;
    // Without a return link a transport cannot retransmit, and one that tries never ends; parity
    // needs none.
    let is_whole = |kind: &Kind| kind.is_reliable() == has_return || kind.has(Feature::Coded);
    let forwards = |kind: &Kind| !relay || kind.hands_on();
    // The transports below CFDP are candidates themselves, and CFDP only adds its headers, except
    // via relays.
    let is_plain = |kind: &Kind| relay || !kind.is_entity_in_bundles();
    let all: Vec<_> = Kind::all()
        .filter(|kind| sends_files_to(*kind, receivers))
        .filter(|kind| is_whole(kind) && forwards(kind) && is_plain(kind))
        .flat_map(|kind| profiles(kind, question.is_controlled()))
        .collect();
    if all.is_empty() {
        return Err(SpecError::invalid("no transport here has all that is needed"));
    }
    Ok(all)
}

/// Returns the transports that a comparison tries if none is named: the candidates for a dedicated
/// path with a return link.
#[must_use]
pub fn contenders(receivers: u32) -> Vec<Protocol> {
    Kind::all()
        .filter(|kind| sends_files_to(*kind, receivers))
        .filter(|kind| kind.is_reliable() && !kind.is_entity_in_bundles())
        .flat_map(|kind| profiles(kind, false))
        .collect()
}

/// Returns the transport that codes whole files, for links without return.
pub(super) fn coded() -> Option<Protocol> {
    Kind::all().flat_map(|kind| profiles(kind, false)).find(Protocol::codes_files)
}

/// Whether a transport carries files to this number of receivers.
fn sends_files_to(kind: Kind, receivers: u32) -> bool {
    // Bundles and blocks go to one receiver at a time, over configured paths.
    let to_many = receivers == 1 || !kind.has(Feature::Nodes);
    kind.top().carries == ContentKind::File && !kind.has(Feature::Typed) && to_many
}

/// Returns those of `all` that the links of their worlds support.
///
/// # Errors
///
/// The links contradict themselves, or support none.
pub fn possible(
    all: Vec<Protocol>,
    scenario: impl Fn(&Protocol) -> Result<Scenario, SpecError>,
) -> Result<Vec<Protocol>, SpecError> {
    let (mut left, mut first) = (Vec::new(), None);
    for protocol in all {
        let scenario = scenario(&protocol)?;
        match crate::plan::check_ways(&scenario, &Topology::new(&scenario)?) {
            Ok(()) => left.push(protocol),
            Err(error) => first = first.or(Some(error)),
        }
    }
    match first {
        Some(error) if left.is_empty() => Err(error),
        Some(_) | None => Ok(left),
    }
}

/// Returns the candidate profiles of a protocol: for FTP the two congestion controls of kernels,
/// and on shared paths the rate control of protocols that have one.
fn profiles(kind: Kind, is_shared: bool) -> Vec<Protocol> {
    let with = |profile: Option<&str>| match profile {
        Some(profile) => Protocol::with_profile(kind, profile),
        None => Protocol::plain(kind),
    };
    kind.tried_profiles(is_shared).into_iter().map(with).collect()
}

/// Whether a transport has congestion control.
#[must_use]
pub fn is_controlled(protocol: &Protocol) -> bool {
    protocol.is_controlled()
}

/// Whether its receiver can deliver the bytes of a file in order while they arrive.
#[must_use]
pub fn streams(protocol: &Protocol) -> bool {
    protocol.kind.has(Feature::InOrder)
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

/// Returns the means to run this transport between real hosts, some of which store and forward if
/// `relay`.
#[must_use]
pub fn deployment(protocol: &Protocol, relay: bool) -> Deployment {
    let kind = protocol.kind;
    if kind.has(Feature::Nodes) {
        Deployment::Nodes
    } else if !kind.has_sockets() || relay && kind.has_overlay() {
        // No command starts a transfer by CFDP's store-and-forward overlay.
        Deployment::Simulator
    } else {
        Deployment::Commands
    }
}

/// Order of equally good transports: first the transports of `slowlight send`, then fewer layers,
/// put before get, nodes before models, retransmission before coding, default before profiles.
pub(super) fn simplicity(protocol: &Protocol, relay: bool) -> impl Ord {
    let kind = protocol.kind;
    // Every host has TCP.
    let layers = kind.layers().len() - usize::from(kind.has(Feature::Tcp));
    let layers = if kind.has(Feature::Nodes) {
        2 + usize::from(kind.is_entity_in_bundles())
    } else {
        layers - 1
    };
    let deployment = deployment(protocol, relay);
    let coded = kind.has(Feature::Coded) && kind.is_reliable();
    let place = Kind::all().position(|known| known == kind);
    let is_plain = protocol.profile.is_none();
    let other = deployment != Deployment::Commands;
    (other, layers, kind.top().is_fetched, deployment, coded, place, !is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_prefer_protocols_that_send_supports() {
        let first = |names: [&str; 2], relay| {
            let both: [Protocol; 2] = names.map(|name| name.parse().expect("a protocol"));
            let [a, b] = &both;
            assert!(simplicity(a, relay) < simplicity(b, relay), "{names:?}");
            assert!(simplicity(b, relay) > simplicity(a, relay), "{names:?}");
        };
        first(["cfdp", "ftp"], false);
        first(["cfdp-ltp", "ftp"], false);
        first(["saratoga-get", "scp"], false);
        first(["cfdp", "cfdp-ltp"], false);
        first(["ltp", "ltp-t"], false);
        first(["saratoga", "saratoga-get"], false);
        first(["saratoga", "bp-saratoga"], false);
        first(["bp-ltp", "cfdp-bp-ltp"], false);
        first(["ftp", "bp-tcpcl"], false);
        first(["norm", "norm-fec"], false);
        first(["norm", "norm/coded"], false);
        first(["ltp-t", "cfdp"], true);
        first(["bp-ltp", "cfdp-bp-ltp"], true);
    }
}
