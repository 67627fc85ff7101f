//! Requests that change a node's settings.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::StatusCode;
use axum::routing::{post, put};
use axum::{Json, Router};
use serde::Deserialize;
use transport::text::SpecError;

use super::Shared;
use super::model::{PlanChanged, Reloaded, SkippedLine};
use crate::http::Refusal;
use crate::node::CHANGES_MAX;

/// Longest plan, and longest list of routes, in bytes.
const BODY_MAX: usize = 64 << 20;

type Running = State<Arc<Shared>>;

/// Form of a contact plan in a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanForm {
    format: Option<String>,
    epoch: Option<String>,
}

pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/reload", post(reload))
        .route("/routes", put(routes))
        .route("/plan", put(plan).post(plan_changes))
        .layer(DefaultBodyLimit::max(BODY_MAX))
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
fn refused(error: SpecError) -> Refusal {
    Refusal::wrong(error.to_string())
}

/// POST: reads the node's file again.
async fn reload(State(shared): Running) -> Result<Json<Reloaded>, Refusal> {
    let restart = shared.reload.read().map_err(refused)?;
    Ok(Json(Reloaded { restart: restart.into_iter().map(str::to_owned).collect() }))
}

/// PUT: replaces the static routes.
async fn routes(State(shared): Running, toml: String) -> Result<(), Refusal> {
    shared.reload.set_routes(&toml).map_err(refused)
}

/// PUT: replaces the contact plan.
async fn plan(
    State(shared): Running,
    form: Result<Query<PlanForm>, QueryRejection>,
    plan: String,
) -> Result<(), Refusal> {
    let Query(PlanForm { format, epoch }) =
        form.map_err(|rejection| Refusal::wrong(rejection.body_text()))?;
    shared.reload.set_plan(&plan, format, epoch).map_err(refused)
}

/// Reference of relative times in a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangesForm {
    epoch: Option<String>,
}

/// POST: changes the contact plan by commands of ION.
async fn plan_changes(
    State(shared): Running,
    form: Result<Query<ChangesForm>, QueryRejection>,
    commands: String,
) -> Result<Json<PlanChanged>, Refusal> {
    let Query(ChangesForm { epoch }) =
        form.map_err(|rejection| Refusal::wrong(rejection.body_text()))?;
    if commands.len() > CHANGES_MAX {
        let long =
            format!("the changes of a plan have at most {CHANGES_MAX} bytes; replace it with PUT");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, long));
    }
    let changes = shared.reload.plan_changes(commands, epoch).map_err(refused)?;
    let changed = shared.ask(changes).await?;
    let changed = changed.map_err(|error| Refusal::new(StatusCode::CONFLICT, error))?;
    let skipped = changed.skipped.into_iter().map(|(line, why)| SkippedLine { line, why });
    Ok(Json(PlanChanged { applied: changed.applied, skipped: skipped.collect() }))
}
