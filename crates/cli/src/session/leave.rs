//! The last words of a command: nothing of its session outlives the process.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use engine::PathId;
use proto::norm;
use transport::engines::{AnyEngine, AnyIndication};

use super::{Id, LINGER, cancel, under_way};

/// Lets the only peer know that nothing more comes; `id` is what was still under way. Returns once
/// that is said, or as much of it as fits the time that is sensible to wait, with light on its way
/// for `light`.
pub(super) fn leave(
    driver: &mut rt::Driver<AnyEngine>,
    id: Option<Id>,
    light: Duration,
) -> Result<()> {
    let now = driver.now();
    let engine = driver.engine_mut();
    if let Some(id) = id {
        cancel(engine, now, id);
    }
    let is_told = match engine {
        // Receivers have state of a sender, whether or not its file came.
        AnyEngine::Norm(node, _) => node.end(now, PathId(0)),
        AnyEngine::Ltp(_)
        | AnyEngine::Saratoga(..)
        | AnyEngine::Cfdp(_)
        | AnyEngine::CfdpLtp(_)
        | AnyEngine::OverTcp(_)
        | AnyEngine::Bundles(_) => false,
    };
    if id.is_none() && !is_told {
        return Ok(());
    }
    let until = now + LINGER.max(6 * light);
    let mut is_over = false;
    driver.run(&AtomicBool::new(false), |now, engine, event| {
        is_over |= match event {
            rt::Event::Indication(AnyIndication::Norm(norm::Indication::SessionEnded {
                ..
            })) => true,
            rt::Event::Indication(_) | rt::Event::Tick | rt::Event::Refused(_) => {
                !is_told && under_way(engine).is_empty()
            }
        };
        if is_over || now >= until { rt::Control::Stop } else { rt::Control::Continue }
    })?;
    Ok(())
}
