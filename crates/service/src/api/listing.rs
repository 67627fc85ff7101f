//! List of held bundles, and their deletion.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bp::agent::{Agent, Pattern, RequestError, Summary};
use bp::codec::bp7::Eid;
use engine::Time;

use super::Shared;
use super::model::{Bundle, Purged, Which};
use super::request::{Answer, Queried, Running, query, refused};
use crate::http::Refusal;

/// Maximum number of listed bundles, and of bundles that are deleted at a time.
const LISTED: usize = 10_000;
/// States of bundles.
const STATES: [&str; 5] = ["storing", "delivering", "sending", "queued", "waiting"];

/// Selected bundles.
struct Filter {
    id: Option<String>,
    source: Pattern,
    destination: Pattern,
    state: Option<String>,
}

impl Filter {
    fn new(which: &Which) -> Answer<Self> {
        let state = which.state.clone();
        if let Some(state) = &state
            && !STATES.contains(&state.as_str())
        {
            let all = STATES.join(", ");
            return Err(Refusal::wrong(format!("state: {state:?} is none of {all}")));
        }
        Ok(Self {
            id: which.id.clone(),
            source: pattern("source", which.source.as_deref())?,
            destination: pattern("destination", which.destination.as_deref())?,
            state,
        })
    }

    fn selects(&self, bundle: &Summary) -> bool {
        self.source.matches(&bundle.id.source)
            && self.destination.matches(&bundle.destination)
            && self.state.as_ref().is_none_or(|state| state == bundle.state.name())
            && self.id.as_ref().is_none_or(|id| *id == bundle.id.to_string())
    }
}

/// Parses a set of endpoints, by default all.
fn pattern(key: &str, text: Option<&str>) -> Answer<Pattern> {
    let Some(text) = text else { return Ok(Pattern::Any) };
    text.parse().map_err(|error| Refusal::wrong(format!("{key}: {error}")))
}

/// GET: held bundles, oldest first.
pub(super) async fn bundles(
    State(shared): Running,
    request: Queried<Which>,
) -> Answer<Json<Vec<Bundle>>> {
    let which = query(request)?;
    let filter = Filter::new(&which)?;
    let limit = which.limit.unwrap_or(LISTED).min(LISTED);
    let listed = shared.ask(move |now, agent| {
        let later = agent.bundles_after(which.after.unwrap_or(0));
        let selected = later.filter(|bundle| filter.selects(bundle)).take(limit);
        let listed = selected.map(|bundle| Bundle {
            number: bundle.number,
            source: bundle.id.source.to_string(),
            id: bundle.id.to_string(),
            destination: bundle.destination.to_string(),
            next_hops: bundle.next_hops.iter().map(Eid::to_string).collect(),
            bytes: bundle.bytes,
            here: now.since(bundle.received).as_secs_f64(),
            left: bundle.expires.since(now).as_secs_f64(),
            state: bundle.state.name().to_owned(),
            priority: bundle.priority.name().to_owned(),
            custody: bundle.has_custody,
            sent: bundle.sent,
            next_contact: next_contact(now, agent, &bundle),
        });
        listed.collect::<Vec<_>>()
    });
    listed.await.map(Json)
}

/// Seconds until the first contact with a next hop of a bundle.
fn next_contact(now: Time, agent: &Agent, bundle: &Summary) -> Option<f64> {
    let contacts = bundle.next_hops.iter().filter_map(|hop| agent.next_contact(now, hop));
    contacts.min().map(|wait| wait.as_secs_f64())
}

/// DELETE: one bundle by its ID, or all that a filter selects.
pub(super) async fn remove(State(shared): Running, request: Queried<Which>) -> Answer<Response> {
    let which = query(request)?;
    let has_filter = which.source.is_some() || which.destination.is_some() || which.state.is_some();
    match (which.id.clone(), has_filter) {
        (Some(id), false) => cancel(&shared, id).await.map(IntoResponse::into_response),
        (_, true) => {
            let deleted = purge(&shared, &which).await?;
            Ok(Json(Purged { deleted }).into_response())
        }
        (None, false) => Err(Refusal::wrong(
            "which bundles? give `id`, or `destination`, `source` or `state`; destination=* is all",
        )),
    }
}

async fn cancel(shared: &Shared, wanted: String) -> Answer<StatusCode> {
    let cancelled = shared.ask(move |now, agent| {
        let id = agent.bundles().map(|bundle| bundle.id).find(|id| id.to_string() == wanted);
        id.map_or(Err(RequestError::NoBundle), |id| agent.cancel(now, &id))
    });
    cancelled.await?.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes bundles, some at a time, so that the node does its other work in between.
async fn purge(shared: &Shared, which: &Which) -> Answer<u64> {
    let most = which.limit.unwrap_or(usize::MAX);
    let mut after = which.after.unwrap_or(0);
    let mut deleted = 0;
    while deleted < most {
        let filter = Filter::new(which)?;
        let part = LISTED.min(most - deleted);
        let purged = shared
            .ask(move |now, agent| agent.purge(now, after, part, |bundle| filter.selects(bundle)));
        let purged = purged.await?;
        deleted += purged.len();
        // Bundles before it are not looked at again.
        after = purged.last().copied().unwrap_or(after);
        if purged.len() < part {
            break;
        }
    }
    Ok(deleted as u64)
}
