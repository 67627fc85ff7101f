//! Runs of a study in real time, over emulated links.
//!
//! External programs replace the simulator's models of them, where an adapter exists. Engines are
//! the same in both. A run has the machine to itself, so runs are sequential.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use emu::World;
use lab::adapter;
use lab::run;
use lab::scenario::{Node, Scenario};
use transport::contract::Feature;
use transport::quantity::Span;
use transport::text::SpecError;

use super::{Done, StudyError};
use crate::account::{self, Account};
use crate::emulation;
use crate::emulation::{TransfersError, transfers};

/// A world of a study for the emulator.
#[derive(Debug)]
pub(super) struct Emulated {
    pub(super) scenario: Scenario,
    /// Maximum send and receive buffers of the hosts whose settings limit them, in bytes.
    buffers: BTreeMap<String, (u64, u64)>,
}

impl Emulated {
    /// Suffix that distinguishes the world from the same one with other buffers; empty if none is
    /// limited.
    pub(super) fn suffix(&self) -> String {
        let limits = self.buffers.iter();
        limits.map(|(host, (send, receive))| format!("-{host}:{send}:{receive}")).collect()
    }
}

/// Replaces models by programs; `None` if no program exists: slowlight's own TCP, bundles, and
/// gateways that split connections are not part of real hosts.
pub(super) fn emulated(mut scenario: Scenario, limit: Span) -> Result<Option<Emulated>, SpecError> {
    if scenario.nodes.values().any(|node| node.pep.is_some()) {
        return Ok(None);
    }
    // Drops the settings of models, except buffers, which apply to the kernel's TCP as well.
    let limits = scenario.nodes.iter().map(|(name, node)| (name.clone(), most(Some(node))));
    let buffers = limits.filter(|(_, limit)| *limit != most(None)).collect();
    for transfer in &mut scenario.transfers {
        let Some(protocol) = &transfer.protocol else { continue };
        if protocol.kind.has_sockets() {
            continue;
        }
        if protocol.kind.has(Feature::Nodes) {
            return Ok(None);
        }
        let name = protocol.kind.name();
        if adapter::named(name).is_err() {
            return Ok(None);
        }
        transfer.tool = Some(name.to_owned());
        transfer.protocol = None;
        for node in scenario.nodes.values_mut() {
            (node.protocol, node.mib, node.port) = (None, None, None);
        }
    }
    scenario.limits.time = Some(limit);
    Ok(Some(Emulated { scenario: scenario.resolved()?, buffers }))
}

/// Maximum buffers of a host's TCP, in bytes.
fn most(node: Option<&Node>) -> (u64, u64) {
    emulation::most_tcp_buffers(node, None)
}

/// Runs a world in real time; `None` if it was cancelled.
pub(super) fn once(
    emulated: &Emulated,
    world: String,
    cancelled: &AtomicBool,
) -> Result<Option<Done>, StudyError> {
    let scenario = &emulated.scenario;
    let contents = run::contents(scenario)?;
    let links = World::start(&emulation::plan(scenario)?)?;
    for host in links.hosts() {
        let name = &host.plan().name;
        let (send, receive) = emulated.buffers.get(name).copied().unwrap_or_else(|| most(None));
        host.set_tcp_buffers(send, receive)
            .map_err(|error| TransfersError::Host { host: name.clone(), error })?;
    }
    let ran = transfers::run(&links, scenario, &contents, cancelled, |_| {})?;
    let report = links.stop().map_err(TransfersError::Links)?;
    if cancelled.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let account = Account::new(scenario, &report, &account::bounds(scenario));
    let mut done = Done::from_run(world, ran);
    done.trusted = Some(account.trusted);
    Ok(Some(done))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use transport::settings::tcp::TcpBuffers;

    fn of(buffers: &str) -> Emulated {
        let text = format!(
            r#"
            seed = 1
            links = [{{ from = "a", to = "b" }}, {{ from = "b", to = "a" }}]
            transfers = [{{ from = "a", to = "b", protocol = "ftp" }}]
            [nodes.a.mib.tcp]
            {buffers}
            "#
        );
        let scenario = Scenario::parse(&text, "test").unwrap().resolved().unwrap();
        emulated(scenario, Span(Duration::from_secs(60))).unwrap().unwrap()
    }

    /// Runs with other buffers are other runs in the journal.
    #[test]
    fn model_buffers_apply_to_the_program() {
        let linux = of("buffers = \"linux\"");
        assert_eq!(linux.buffers, BTreeMap::from([("a".to_owned(), TcpBuffers::Linux.most())]));
        let unlimited = of("");
        assert_eq!((unlimited.buffers.len(), unlimited.suffix()), (0, String::new()));
        assert_ne!(linux.suffix(), unlimited.suffix());
        assert!(linux.scenario.nodes.values().all(|node| node.mib.is_none()));
    }
}
