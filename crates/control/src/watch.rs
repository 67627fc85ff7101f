//! Events without a request: outages that start and end, and doubts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::Time;

use crate::model::What;
use crate::state::State;

/// Interval of lateness checks while there are listeners.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum reported changes of one link per check, and minimum time between two checks.
const EDGES_MAX: usize = 100;
const REST: Duration = Duration::from_millis(1);

/// Reports when outages start and end.
pub(crate) async fn outages(state: Arc<State>) {
    let mut last = state.now();
    let (mut were_up, mut plans) = (BTreeMap::new(), BTreeMap::new());
    for (name, plan) in state.outages() {
        were_up.insert(name.clone(), plan.is_up(last));
        plans.insert(name, plan);
    }
    loop {
        let now = state.now();
        let mut next: Option<Time> = None;
        for (link, plan) in state.outages() {
            let was_up = were_up.entry(link.clone()).or_insert(true);
            // Every change since the last check, up to the maximum; for a new plan, the state from
            // now on.
            let is_new = plans.get(&link) != Some(&plan);
            let mut at = if is_new { now } else { last };
            for _ in 0..EDGES_MAX {
                let Some(edge) = plan.next_change(at).filter(|edge| *edge <= now) else { break };
                turned(&state, &link, was_up, plan.is_up(edge), edge);
                at = edge;
            }
            turned(&state, &link, was_up, plan.is_up(now), now);
            next = next.into_iter().chain(plan.next_change(now)).min();
            plans.insert(link, plan);
        }
        last = now;
        let Some(next) = next else {
            state.changed.notified().await;
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep(next.since(state.now()).max(REST)) => {}
            () = state.changed.notified() => {}
        }
    }
}

fn turned(state: &State, link: &str, was_up: &mut bool, is_up: bool, at: Time) {
    if *was_up == is_up {
        return;
    }
    *was_up = is_up;
    let link = link.to_owned();
    state
        .log_event(at, if is_up { What::OutageEnded { link } } else { What::OutageBegan { link } });
}

/// Reports each doubt once.
pub(crate) async fn doubts(state: Arc<State>) {
    let mut reported = Vec::new();
    loop {
        tokio::time::sleep(LOOK).await;
        // A check delays the links for a moment.
        if !state.has_listeners() {
            continue;
        }
        let Ok(report) = state.report() else { return };
        let kinds = report.doubts(&state.bounds);
        for (kind, (link, reason)) in kinds.iter().zip(state.doubts(&report)) {
            // The lateness changes; an exceeded bound is reported once.
            let new = (std::mem::discriminant(kind), link.clone());
            if !reported.contains(&new) {
                reported.push(new);
                state.log_event(state.now(), What::Doubt { link, reason });
            }
        }
    }
}
