//! Events that nobody causes: outages that begin and end, doubts that arise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::Time;

use crate::model::What;
use crate::state::State;

/// How often lateness is looked at while somebody listens.
const LOOK: Duration = Duration::from_secs(1);

/// The most edges of one link that are told of at a time, and the least time between two looks.
const EDGES_MAX: usize = 100;
const REST: Duration = Duration::from_millis(1);

/// Tells when outages begin and end.
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
            // Every edge since the last look, as long as they are events and no noise; of a plan
            // that is new what holds from now on.
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
    state.tell(at, if is_up { What::OutageEnded { link } } else { What::OutageBegan { link } });
}

/// Tells once of each doubt there is about what is measured.
pub(crate) async fn doubts(state: Arc<State>) {
    let mut reported = Vec::new();
    loop {
        tokio::time::sleep(LOOK).await;
        // To look costs the links a moment.
        if !state.has_listeners() {
            continue;
        }
        let Ok(report) = state.report() else { return };
        let kinds = report.doubts(&state.bounds);
        for (kind, (link, reason)) in kinds.iter().zip(state.doubts(&report)) {
            // How late it was changes; that it was does not.
            let new = (std::mem::discriminant(kind), link.clone());
            if !reported.contains(&new) {
                reported.push(new);
                state.tell(state.now(), What::Doubt { link, reason });
            }
        }
    }
}
