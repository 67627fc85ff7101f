//! Runs of a study in real time, over emulated links.
//!
//! What the simulator has as a model of a program is that program here, where an adapter describes
//! it. Engines are the same in both. A run has the machine for itself, so runs are one after another.

use std::sync::atomic::{AtomicBool, Ordering};

use emu::World;

use super::{Done, StudyError};
use crate::account::{self, Account};
use crate::emulation::{self, transfers};
use crate::protocol::Family;
use crate::quantity::Span;
use crate::run;
use crate::scenario::Scenario;
use crate::{adapter, text::SpecError};

/// The same world with programs in place of their models; `None` where there is no such program: TCP
/// of slowlight's own, bundles, and gateways that split connections are no part of real hosts.
pub(super) fn emulated(mut scenario: Scenario, limit: Span) -> Result<Option<Scenario>, SpecError> {
    if scenario.nodes.values().any(|node| node.pep.is_some()) {
        return Ok(None);
    }
    for transfer in &mut scenario.transfers {
        let Some(protocol) = &transfer.protocol else { continue };
        match protocol.kind.family() {
            Family::Cfdp | Family::Ltp | Family::CfdpLtp | Family::Saratoga | Family::Norm => {
                continue;
            }
            Family::Bundles => return Ok(None),
            Family::OverTcp => {}
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
    scenario.resolved().map(Some)
}

/// Runs a world in real time; `None` if it was cancelled.
pub(super) fn once(
    scenario: &Scenario,
    world: String,
    cancelled: &AtomicBool,
) -> Result<Option<Done>, StudyError> {
    let contents = run::contents(scenario)?;
    let links = World::start(&emulation::plan(scenario)?)?;
    let ran = transfers::run(&links, scenario, &contents, cancelled, |_| {})?;
    let report = links.stop().map_err(transfers::TransfersError::Links)?;
    if cancelled.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let account = Account::new(scenario, &report, &account::bounds(&scenario.limits));
    let mut done = Done::of(world, ran);
    done.trusted = Some(account.trusted);
    Ok(Some(done))
}
