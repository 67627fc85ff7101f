//! Requests that change a node's settings.

use std::sync::Arc;

use axum::extract::rejection::{QueryRejection, StringRejection};
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::StatusCode;
use axum::routing::{post, put};
use axum::{Json, Router};
use bp::agent::Routing;
use serde::Deserialize;
use transport::contact_plan::{self, Format};
use transport::text::SpecError;

use super::Shared;
use super::model::{PlanChanged, Reloaded, SkippedLine};
use crate::http::Refusal;
use crate::node::{CHANGES_MAX, Changed};

/// Longest plan, and longest list of routes, in bytes.
const BODY_MAX: usize = 64 << 20;
/// Attempts to change a plan while the clock is being set.
const ATTEMPTS: usize = 5;

type Body = Result<String, StringRejection>;
type Running = State<Arc<Shared>>;

/// Form of a contact plan in a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanForm {
    format: Option<String>,
    epoch: Option<String>,
}

pub(super) fn router() -> Router<Arc<Shared>> {
    let changes = post(plan_changes).layer(DefaultBodyLimit::max(CHANGES_MAX));
    Router::new()
        .route("/reload", post(reload))
        .route("/routes", put(routes).layer(DefaultBodyLimit::max(BODY_MAX)))
        .route(
            "/plan",
            put(plan).layer(DefaultBodyLimit::max(BODY_MAX)).merge(changes).get(plan_in_force),
        )
}

/// Body of a request, of at most `most` bytes.
fn text(body: Body, most: usize, remedy: &str) -> Result<String, Refusal> {
    body.map_err(|rejection| match rejection.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => {
            Refusal::new(status, format!("a request here has at most {most} bytes{remedy}"))
        }
        status => Refusal::new(status, rejection.body_text()),
    })
}

/// Runs work that takes long in another thread, while other requests are served.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpecError> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    let failed = |_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the request has failed");
    done.map_err(failed)?.map_err(refused)
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
fn refused(error: SpecError) -> Refusal {
    Refusal::wrong(error.to_string())
}

/// POST: reads the node's file again.
async fn reload(State(shared): Running) -> Result<Json<Reloaded>, Refusal> {
    let restart = apart(move || shared.reload.read()).await?;
    Ok(Json(Reloaded { restart: restart.into_iter().map(str::to_owned).collect() }))
}

/// PUT: replaces the static routes.
async fn routes(State(shared): Running, toml: Body) -> Result<(), Refusal> {
    let toml = text(toml, BODY_MAX, "")?;
    apart(move || shared.reload.set_routes(&toml)).await
}

/// PUT: replaces the contact plan.
async fn plan(
    State(shared): Running,
    form: Result<Query<PlanForm>, QueryRejection>,
    plan: Body,
) -> Result<(), Refusal> {
    let Query(PlanForm { format, epoch }) =
        form.map_err(|rejection| Refusal::wrong(rejection.body_text()))?;
    let plan = text(plan, BODY_MAX, "")?;
    apart(move || shared.reload.set_plan(&plan, format, epoch)).await
}

/// GET: the contact plan in force, with its changes, in TOML.
async fn plan_in_force(State(shared): Running) -> Result<String, Refusal> {
    let reload = Arc::clone(&shared.reload);
    let plan = shared.ask(move |_, agent| match &agent.config().routing {
        Routing::ContactGraph(router, _) => Some((router.plan().clone(), reload.plan_zero()?)),
        Routing::Static(_) | Routing::Epidemic | Routing::Spray { .. } => None,
    });
    let none = || Refusal::new(StatusCode::NOT_FOUND, "the node has no contact plan");
    let (plan, zero) = plan.await?.ok_or_else(none)?;
    let epoch = humantime::format_rfc3339_nanos(zero);
    let text = contact_plan::write(Format::Toml, &plan).text;
    Ok(format!("epoch = \"{epoch}\"\n\n{text}"))
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
    commands: Body,
) -> Result<Json<PlanChanged>, Refusal> {
    let Query(ChangesForm { epoch }) =
        form.map_err(|rejection| Refusal::wrong(rejection.body_text()))?;
    let commands: Arc<str> = text(commands, CHANGES_MAX, "; replace the plan with PUT")?.into();
    for _ in 0..ATTEMPTS {
        let (reload, commands) = (Arc::clone(&shared.reload), Arc::clone(&commands));
        let epoch = epoch.clone();
        let changes = apart(move || reload.plan_changes(commands, epoch)).await?;
        let changed = shared.ask(changes).await?;
        let changed = changed.map_err(|error| Refusal::new(StatusCode::CONFLICT, error))?;
        if let Some(Changed { applied, skipped, more }) = changed {
            let skipped = skipped.into_iter().map(|(line, why)| SkippedLine { line, why });
            return Ok(Json(PlanChanged { applied, skipped: skipped.collect(), more }));
        }
    }
    let error = "the clock was set several times meanwhile; send the request again";
    Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error))
}
