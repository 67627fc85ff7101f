//! The commands that run a recommended transport between real hosts.

use std::collections::BTreeMap;

use lab::advise::{self, Advice, Basis, Candidate, Deployment};
use lab::link_spec::LinkSpec;
use transport::contract::Feature;
use transport::protocol::Protocol;
use transport::quantity::{Rate, Span};

use super::outages::{self, End, Request};
use crate::compute::show;

/// Rates are given with so many digits, rounded down.
const DIGITS: u32 = 3;
/// File with the loss that a sender without return assumes.
const LOSS_FILE: &str = "loss.toml";
/// A light time worth naming.
const DELAY_MIN_S: f64 = 0.01;

/// Commands to type on both sides, or the reason why there are none.
pub(super) fn lines(request: &Request<'_>, advice: &Advice, best: &Candidate) -> Vec<String> {
    if advice.runs == 0 || !best.delivers() {
        return Vec::new();
    }
    let has_commands = |candidate: &Candidate| has_commands(request, candidate);
    if has_commands(best) {
        return commands(request, advice, best);
    }
    let mut lines = vec![simulator_only(best)];
    let runs = |other: &&Candidate| has_commands(other) && other.delivers();
    match advice.ranking.iter().find(runs) {
        Some(other) => {
            let about = if other.basis == Basis::Simulated { "" } else { "an estimated " };
            let time = other.mean_s.map(|mean| format!(", {about}{}", show::duration(mean)));
            let time = time.unwrap_or_default();
            lines.push(format!(
                "The best that slowlight runs between hosts is {}{time}:",
                other.title()
            ));
            lines.extend(commands(request, advice, other));
        }
        None => lines.push("No other transport delivers the file.".to_owned()),
    }
    lines
}

/// Commands of every transport that has some, by its title.
pub(super) fn all(request: &Request<'_>, advice: &Advice) -> BTreeMap<String, Vec<String>> {
    let runs = advice.ranking.iter().filter(|candidate| has_commands(request, candidate));
    runs.map(|candidate| (candidate.title(), commands(request, advice, candidate))).collect()
}

/// Whether commands run a transport between hosts.
fn has_commands(request: &Request<'_>, candidate: &Candidate) -> bool {
    advise::deployment(&candidate.protocol, request.question.relay) != Deployment::Simulator
}

fn simulator_only(best: &Candidate) -> String {
    let name = &best.protocol;
    let profile = name.profile.as_deref().unwrap_or("cubic");
    if let Some(command) = name.kind.top().command {
        return format!("{name} is simulated as a model of the program: {command}");
    }
    if !name.kind.has(Feature::Tcp) || name.kind.has(Feature::Nodes) {
        return format!("{name} runs in the simulator only.");
    }
    format!(
        "{name} runs in the simulator only. A TCP program with the kernel's {profile} \
         (sysctl net.ipv4.tcp_congestion_control={profile}) performs similarly."
    )
}

fn commands(request: &Request<'_>, advice: &Advice, candidate: &Candidate) -> Vec<String> {
    let protocol = &candidate.protocol;
    let pace = || pace(request, advice, candidate);
    let replies = |advice| replies(request, advice);
    let kind = protocol.kind;
    if kind.has(Feature::Nodes) {
        return nodes(request, advice, protocol);
    }
    if kind.has(Feature::Relays) && request.question.relay {
        return relayed(request, advice, protocol);
    }
    if kind.top().is_fetched && kind.has(Feature::Directories) {
        return vec![
            format!(
                "  sender:   slowlight recv --protocol {protocol} --listen :2500 --root DIR \
                 --serve{}",
                pace()
            ),
            format!(
                "  receiver: slowlight get --protocol {protocol} SENDER:2500 FILE{}",
                replies(advice)
            ),
        ];
    }
    let mut lines = if kind.has(Feature::Groups) && request.question.receivers > 1 {
        vec![
            format!(
                "  receivers: slowlight recv --protocol {protocol} --listen :0 --root inbox \
                 --group 224.1.2.3{}",
                outages::options(request, End::Receiver)
            ),
            format!(
                "  sender:    slowlight send --protocol {protocol} FILE --group 224.1.2.3{}",
                pace()
            ),
        ]
    } else {
        vec![
            format!(
                "  receiver: slowlight recv --protocol {protocol} --listen :2500 --root inbox{}",
                replies(advice)
            ),
            format!(
                "  sender:   slowlight send --protocol {protocol} FILE RECEIVER:2500{}",
                pace()
            ),
        ]
    };
    lines.extend(outages::notes(request));
    lines.extend(
        candidate.one_way.map(|mode| format!("  {LOSS_FILE}: sender.loss = \"{}\"", mode.loss)),
    );
    lines
}

/// Commands of LTP-T: engine 1 sends to engine 2 over those between the hops, from 3 on.
fn relayed(request: &Request<'_>, advice: &Advice, protocol: &Protocol) -> Vec<String> {
    let hops = &request.question.link.hops;
    let light = |hop: Option<&LinkSpec>| {
        let known = hop.and_then(|hop| hop.delay);
        known.map_or(String::new(), |span| delay(span.duration().as_secs_f64()))
    };
    let rate = rate_option(advice, 1);
    let mut lines = vec![format!(
        "  receiver: slowlight recv --protocol {protocol} --entity 2 --listen :2500 --root inbox{}",
        light(hops.last())
    )];
    let relays = hops.len().saturating_sub(1);
    for relay in (1..=relays).rev() {
        let number = relay + 2;
        let name = |relay| if relays == 1 { "RELAY".to_owned() } else { format!("RELAY{relay}") };
        let next = if relay == relays {
            "--peer 2=RECEIVER:2500".to_owned()
        } else {
            let (next, address) = (number + 1, name(relay + 1));
            format!("--peer {next}={address}:2500 --route 2={next}")
        };
        lines.push(format!(
            "  {}: slowlight recv --protocol {protocol} --entity {number} --listen :2500 \
             --root spool {next}{rate}{}",
            name(relay).to_lowercase(),
            light(hops.get(relay))
        ));
    }
    let first = if relays == 1 { "RELAY" } else { "RELAY1" };
    lines.push(format!(
        "  sender:   slowlight send --protocol {protocol} FILE {first}:2500 --via 3 \
         --remote-entity 2{rate}{}",
        light(hops.first())
    ));
    lines
}

/// Commands of bundle nodes.
fn nodes(request: &Request<'_>, advice: &Advice, protocol: &Protocol) -> Vec<String> {
    let layer = protocol.kind.below_bundles().and_then(|layer| layer.node_layer);
    let layer = layer.unwrap_or("tcpcl4");
    let mut keys = String::new();
    if !advise::is_controlled(protocol) {
        keys += &rate(advice, 1).map_or(String::new(), |rate| format!(", rate = \"{rate}\""));
        let size = request.question.datagram();
        keys += &size.map_or(String::new(), |size| format!(", datagram = \"{size}\""));
    }
    let is_gated = request.question.link.hops.iter().any(LinkSpec::is_gated);
    let mut lines = vec![
        "  each host: slowlight node NODE.toml".to_owned(),
        format!("  NODE.toml: [[layer]] kind = \"{layer}\"{keys}; see docs/guides/run-a-node.md"),
    ];
    if is_gated {
        let plan = "  NODE.toml: contact_plan = \"PLAN.toml\" with the link's contacts; see docs/routing.md";
        lines.push(plan.to_owned());
    }
    if protocol.kind.is_entity_in_bundles() {
        lines.push("  receiver:  slowlight recv --node NODE.sock --root inbox".to_owned());
        lines
            .push("  sender:    slowlight send --node NODE.sock FILE --remote-entity 2".to_owned());
    } else {
        lines.push("  receiver:  slowlight bp recv 1 inbox --node NODE.sock".to_owned());
        let part = request.question.part();
        let part = part.map_or(String::new(), |size| format!(" --part \"{size}\""));
        lines.push(format!("  sender:    slowlight bp send ipn:2.1 FILE --node NODE.sock{part}"));
    }
    lines
}

/// Options of a sender: rate, unless a congestion control finds it, and light time.
fn pace(request: &Request<'_>, advice: &Advice, candidate: &Candidate) -> String {
    let protocol = &candidate.protocol;
    let share =
        if protocol.kind.has(Feature::Multicast) { 1 } else { request.question.receivers.max(1) };
    let rate = if advise::is_controlled(protocol) {
        String::new()
    } else {
        rate_option(advice, share) + &return_rate(advice, "--return-rate")
    };
    rate + &both(request, advice, End::Sender) + &one_way(candidate)
}

/// Options of a receiver: rate of its replies, if it matters, and light time.
fn replies(request: &Request<'_>, advice: &Advice) -> String {
    return_rate(advice, "--rate") + &both(request, advice, End::Receiver)
}

/// Options of both ends: light time, datagrams and outages.
fn both(request: &Request<'_>, advice: &Advice, end: End) -> String {
    delay(advice.delay_s) + &datagram(request) + &outages::options(request, end)
}

/// Option of the largest datagram, where the link gives it.
fn datagram(request: &Request<'_>) -> String {
    request.question.datagram().map_or(String::new(), |size| format!(" --datagram \"{size}\""))
}

/// Options of a sender that receives no replies.
fn one_way(candidate: &Candidate) -> String {
    let Some(mode) = candidate.one_way else { return String::new() };
    let rounds = mode.carousel.map_or(String::new(), |time| format!(" --carousel \"{time}\""));
    format!(" --confidence {}{rounds} --mib {LOSS_FILE}", mode.confidence)
}

/// An option with the rate of a thin return link.
fn return_rate(advice: &Advice, option: &str) -> String {
    advice.return_bps.map_or(String::new(), |bps| format!(" {option} \"{}\"", Rate(bps)))
}

fn rate_option(advice: &Advice, share: u32) -> String {
    rate(advice, share).map_or(String::new(), |rate| format!(" --rate \"{rate}\""))
}

fn delay(seconds: f64) -> String {
    if seconds < DELAY_MIN_S {
        return String::new();
    }
    let micros = (seconds * 1e6).round() as u64;
    format!(" --delay \"{}\"", Span(std::time::Duration::from_micros(micros)))
}

/// The rate of the path as senders count it, shared by so many transfers.
fn rate(advice: &Advice, share: u32) -> Option<Rate> {
    let bps = (advice.rate_bps? as f64 / f64::from(share)).floor() as u64;
    let step = 10_u64.pow((bps.max(1).ilog10() + 1).saturating_sub(DIGITS));
    Some(Rate(bps / step * step))
}
