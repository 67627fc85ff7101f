//! The commands that run a recommended transport between real hosts.

use lab::advise::{self, Advice, Candidate, Deployment, Question};
use lab::protocol::{Family, Kind, Protocol};
use lab::quantity::{Rate, Span};

use crate::show;

/// Rates are given with so many digits, rounded down.
const DIGITS: u32 = 3;
/// A light time worth naming.
const DELAY_MIN_S: f64 = 0.01;

/// Layers of a bundle node, by the protocols that they carry bundles in.
const LAYERS: [(Kind, &str); 8] = [
    (Kind::BpTcpcl, "tcpcl4"),
    (Kind::BpTcpcl3, "tcpcl3"),
    (Kind::BpMtcp, "mtcp"),
    (Kind::BpStcp, "stcp"),
    (Kind::BpUdp, "udpcl"),
    (Kind::BpLtp, "ltpcl"),
    (Kind::BpSaratoga, "saratoga"),
    (Kind::BpNorm, "norm"),
];

/// Commands to type on both sides, or the reason why there are none.
pub(super) fn lines(question: &Question, advice: &Advice, best: &Candidate) -> Vec<String> {
    if best.success == Some(0.0) && question.deadline.is_none() {
        return Vec::new();
    }
    if advise::deployment(&best.protocol) != Deployment::Simulator {
        return commands(question, advice, &best.protocol);
    }
    let mut lines = vec![simulator_only(best)];
    let runs = |other: &&Candidate| {
        advise::deployment(&other.protocol) != Deployment::Simulator && other.success != Some(0.0)
    };
    match advice.ranking.iter().find(runs) {
        Some(other) => {
            let time =
                other.mean_s.map_or(String::new(), |mean| format!(", {}", show::seconds(mean)));
            lines.push(format!(
                "The best that slowlight runs between hosts is {}{time}:",
                other.protocol
            ));
            lines.extend(commands(question, advice, &other.protocol));
        }
        None => lines.push("No other transport delivers the file.".to_owned()),
    }
    lines
}

fn simulator_only(best: &Candidate) -> String {
    let name = &best.protocol;
    let profile = name.profile.as_deref().unwrap_or("cubic");
    match name.kind.family() {
        Family::OverTcp => format!(
            "{name} runs in the simulator only. A TCP program with the kernel's {profile} \
             (sysctl net.ipv4.tcp_congestion_control={profile}) does alike."
        ),
        Family::Cfdp
        | Family::Ltp
        | Family::CfdpLtp
        | Family::Saratoga
        | Family::Norm
        | Family::Bundles => format!("{name} runs in the simulator only."),
    }
}

fn commands(question: &Question, advice: &Advice, protocol: &Protocol) -> Vec<String> {
    let mut lines = match protocol.kind.family() {
        Family::Bundles => nodes(advice, protocol),
        Family::Saratoga if protocol.kind.is_fetched() => vec![
            format!(
                "  sender:   slowlight recv --protocol {protocol} --listen :2500 --root DIR --serve"
            ),
            format!(
                "  receiver: slowlight get --protocol {protocol} SENDER:2500 FILE{}",
                delay(advice)
            ),
        ],
        Family::Norm if question.receivers > 1 => vec![
            format!(
                "  receivers: slowlight recv --protocol {protocol} --listen :0 --root inbox \
                 --group 224.1.2.3"
            ),
            format!(
                "  sender:    slowlight send --protocol {protocol} FILE --group 224.1.2.3{}",
                pace(question, advice, protocol)
            ),
        ],
        Family::Cfdp
        | Family::Ltp
        | Family::CfdpLtp
        | Family::Saratoga
        | Family::Norm
        | Family::OverTcp => vec![
            format!(
                "  receiver: slowlight recv --protocol {protocol} --listen :2500 --root inbox{}",
                delay(advice)
            ),
            format!(
                "  sender:   slowlight send --protocol {protocol} FILE RECEIVER:2500{}",
                pace(question, advice, protocol)
            ),
        ],
    };
    if question.relay && protocol.kind.family() != Family::Bundles {
        lines.push("  relays:   slowlight recv with a --peer for each neighbour".to_owned());
    }
    lines
}

/// Commands of two bundle nodes.
fn nodes(advice: &Advice, protocol: &Protocol) -> Vec<String> {
    let carrier = protocol.kind.carried().unwrap_or(protocol.kind);
    let named = LAYERS.iter().find(|(kind, _)| *kind == carrier);
    let layer = named.map_or("tcpcl4", |(_, layer)| layer);
    let rate = match (advise::is_controlled(protocol), rate(advice, 1)) {
        (false, Some(rate)) => format!(", rate = \"{rate}\""),
        (true | false, _) => String::new(),
    };
    let mut lines = vec![format!(
        "  each host: slowlight node NODE.toml, with [[layer]] kind = \"{layer}\"{rate} \
         (docs/guides/run-a-node.md)"
    )];
    if protocol.kind.carried().is_some() {
        lines.push("  receiver:  slowlight recv --node NODE.sock --root inbox".to_owned());
        lines
            .push("  sender:    slowlight send --node NODE.sock FILE --remote-entity 2".to_owned());
    } else {
        lines.push("  receiver:  slowlight bp recv 1 inbox --node NODE.sock".to_owned());
        lines.push("  sender:    slowlight bp send ipn:2.1 FILE --node NODE.sock".to_owned());
    }
    lines
}

/// Options of a sender: rate, unless a congestion control finds it, and light time.
fn pace(question: &Question, advice: &Advice, protocol: &Protocol) -> String {
    let share = if protocol.kind.is_multicast() { 1 } else { question.receivers.max(1) };
    let rate = match (advise::is_controlled(protocol), rate(advice, share)) {
        (false, Some(rate)) => format!(" --rate \"{rate}\""),
        (true | false, _) => String::new(),
    };
    rate + &delay(advice)
}

fn delay(advice: &Advice) -> String {
    if advice.delay_s < DELAY_MIN_S {
        return String::new();
    }
    let nanos = (advice.delay_s * 1e6).round() as u64;
    format!(" --delay \"{}\"", Span(std::time::Duration::from_micros(nanos)))
}

/// The rate of the path as senders count it, shared by so many transfers.
fn rate(advice: &Advice, share: u32) -> Option<Rate> {
    let bps = (advice.rate_bps? as f64 / f64::from(share)).floor() as u64;
    let step = 10_u64.pow((bps.max(1).ilog10() + 1).saturating_sub(DIGITS));
    Some(Rate(bps / step * step))
}
