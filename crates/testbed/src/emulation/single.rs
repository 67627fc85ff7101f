//! Single transfer in a running world.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use emu::World;
use engine::Time;
use lab::groups::Receivers;
use lab::metrics::TransferMetrics;
use lab::plan;
use lab::run;
use lab::scenario::{Capture, Limits, Node, Scenario, Transfer};
use lab::topology::Topology;
use lab::ways::Ways;
use transport::protocol::Protocol;
use transport::quantity::{Size, Span};
use transport::text::SpecError;

use super::error::TransfersError;
use super::tools::Ports;
use super::transfers::{self, Progress};

/// UDP ports of engines: above the ephemeral ports, and reused so late that nothing of one
/// transfer reaches another.
const PORTS: std::ops::Range<u16> = 61_000..65_000;
/// Time from request to start of a transfer, in which its engines open their sockets.
const LEAD: Duration = Duration::from_millis(50);

/// A requested transfer.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Protocol, with its settings in the world's scenario; default: the hosts' protocol, or CFDP.
    pub protocol: Option<Protocol>,
    /// Tool, in place of a protocol.
    pub tool: Option<String>,
    /// File; default: generated content of `size`.
    pub file: Option<PathBuf>,
    /// Size of the generated content.
    pub size: Option<Size>,
}

/// Returns the scenario of one transfer in a running world, based on the world's resolved scenario
/// with its links as they are now. `number` distinguishes transfers in one world.
///
/// # Errors
///
/// The request is invalid, or something is missing on this machine.
pub fn scenario(base: &Scenario, wish: Wish, number: u64) -> Result<Scenario, SpecError> {
    let Wish { from, to, protocol, tool, file, size } = wish;
    if base.groups.contains_key(&to) {
        let message = format!("to: {to} is a group, and a transfer is for one host");
        return Err(SpecError::invalid(message));
    }
    let spoken = |name: &String| base.nodes.get(name).and_then(|node| node.protocol.clone());
    let by_engine = || protocol.or_else(|| spoken(&from)).or_else(|| spoken(&to));
    let protocol = match &tool {
        Some(_) => None,
        None => Some(by_engine().unwrap_or_default()),
    };
    let (name, content, records, start, overlay, group) = (None, None, None, None, None, None);
    let (receivers, via) = (Receivers::from(to.as_str()), Vec::new());
    let nodes = base.nodes.iter().map(|(name, node)| {
        let takes_part = protocol.is_some() && [&from, &to].contains(&name);
        let node = guest(node, takes_part.then_some(protocol.as_ref()).flatten(), number);
        (name.clone(), node)
    });
    let scenario = Scenario {
        seed: base.seed.wrapping_add(number),
        about: String::new(),
        limits: Limits::default(),
        capture: Capture::default(),
        nodes: nodes.collect(),
        groups: base.groups.clone(),
        links: base.links.clone(),
        transfers: vec![Transfer {
            from: from.clone(),
            to: receivers,
            group,
            via,
            overlay,
            protocol: protocol.clone(),
            tool,
            file,
            size,
            content,
            records,
            name,
            start,
        }],
    };
    let scenario = scenario.resolved()?;
    // A waypoint of the world never forwards.
    let (world, transfer) = (Topology::new(base)?, &scenario.transfers[0]);
    Ways::new(&scenario, &world).check(transfer)?;
    super::tools::check(&scenario)?;
    Ok(scenario)
}

/// Returns a node for one transfer, with the settings of the protocol in the world's scenario.
fn guest(node: &Node, protocol: Option<&Protocol>, number: u64) -> Node {
    let ports = u64::from(PORTS.end - PORTS.start);
    let port = PORTS.start + u16::try_from(number % ports).unwrap_or_default();
    let like = protocol.is_some() && node.protocol.as_ref() == protocol;
    Node {
        address: node.address,
        port: Some(port),
        entity: node.entity,
        protocol: protocol.cloned(),
        mib: node.mib.clone().filter(|_| like),
        inactivity: node.inactivity.filter(|_| like),
        pep: None,
        store: node.store.clone().filter(|_| protocol.is_some()),
        crashes: Vec::new(),
    }
}

/// Runs the transfer of a [`scenario`] in a world made from its base. Returns its result and how
/// it ended. Runs for `limit` at most, and reads at most `most` bytes of a file. All transfers of
/// a world share `ports`.
///
/// # Errors
///
/// [`TransfersError`] gives the reason.
pub fn run(
    world: &World,
    ports: &Ports,
    mut scenario: Scenario,
    limit: Duration,
    most: u64,
    cancelled: &AtomicBool,
) -> Result<(TransferMetrics, String), TransfersError> {
    let contents = run::contents_within(&scenario, most)?;
    let start = world.links().now() + LEAD;
    for transfer in &mut scenario.transfers {
        transfer.start = Some(Span(start.since(Time::ZERO)));
    }
    scenario.limits.time = Some(Span((start + limit).since(Time::ZERO)));
    let progress = |_: Progress| {};
    let run = transfers::run_in(world, ports, &scenario, &contents, cancelled, progress)?;
    let mut transfer =
        run.transfers.into_iter().next().ok_or_else(|| plan::unresolved("transfers"))?;
    // The first link also carried other traffic.
    transfer.traffic.throughput_bps = None;
    Ok((transfer, run.ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        let (from, to) = ("a".to_owned(), "b".to_owned());
        Wish { from, to, protocol: None, tool: None, file: None, size: Some(Size(1000)) }
    }

    fn base() -> Scenario {
        let text = r#"
            seed = 5
            groups.fleet.count = 2
            nodes.a = { inactivity = "7 s", crashes = [{ at = "1 s" }] }
            links = [
                { from = "a", to = "b" }, { from = "b", to = "a" },
                { from = "b", to = "fleet" }, { from = "fleet", to = "b" },
            ]
            transfers = [{ from = "a", to = "b", protocol = "ltp" }]
        "#;
        Scenario::parse(text, "base").unwrap().resolved().unwrap()
    }

    #[test]
    fn a_transfer_has_the_settings_of_the_protocol_in_the_worlds_scenario() {
        let base = base();
        let of = |protocol: Option<&str>| {
            let protocol = protocol.map(|name| name.parse().unwrap());
            scenario(&base, Wish { protocol, ..wish() }, 3).unwrap()
        };
        let same = of(None);
        assert_eq!(same.transfers[0].carrier(), "ltp");
        assert_eq!(same.nodes["a"].mib, base.nodes["a"].mib);
        assert_eq!(same.nodes["a"].inactivity, base.nodes["a"].inactivity);
        assert_eq!((same.seed, same.nodes["b"].port), (8, Some(61_003)));
        assert!(same.nodes["a"].crashes.is_empty() && same.nodes["fleet-1"].protocol.is_none());
        let other = of(Some("cfdp"));
        assert_eq!(other.nodes["a"].inactivity, None);
        assert_eq!(other.nodes["b"].address, base.nodes["b"].address);
    }

    #[test]
    fn invalid_transfers_are_refused() {
        for (wish, why) in [
            (Wish { to: "fleet".to_owned(), ..wish() }, "is a group"),
            (Wish { to: "bb".to_owned(), ..wish() }, "did you mean \"b\"?"),
            (Wish { to: "a".to_owned(), ..wish() }, "cannot send to itself"),
            (Wish { tool: Some("spc".to_owned()), ..wish() }, "did you mean \"scp\"?"),
            (Wish { file: Some("x".into()), ..wish() }, "not both"),
        ] {
            let error = scenario(&base(), wish, 1).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
