//! Requests to the interface.

use std::convert::Infallible;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State as Shared};
use axum::http::StatusCode;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::{Json, Router};
use futures_util::stream::{self, Stream};
use serde_json::{Map, Value};
use service::http::{Metrics, Problem, Refusal, with_fallbacks};
use tokio::sync::broadcast::error::RecvError;
use transport::quantity::Size;
use transport::quantity::Window;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::model::{
    Capture, CaptureReport, CaptureRequest, Command, CommandRequest, Event, Host, Link,
    OutageRequest, Transfer, TransferRequest, What, World,
};
use crate::state::{State, locked};
use crate::{commands, metrics, transfers};

/// Maximum length of a request's body in bytes.
const BODY_MAX: usize = 64 << 10;
/// Interval of keep-alives in a silent stream of events.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

type Running = Shared<Arc<State>>;
type Submitted<T> = Result<Json<T>, JsonRejection>;
type Answer<T> = Result<Json<T>, Refusal>;

/// Description of the interface.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "slowlight emulator",
        description = "Control and observation of an emulated world while it runs."
    ),
    components(schemas(Event))
)]
struct Document;

/// Returns every path with its handlers, and their description.
fn described() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(get_world, end_world))
        .routes(routes!(get_hosts))
        .routes(routes!(get_links))
        .routes(routes!(get_link, change_link))
        .routes(routes!(add_outage))
        .routes(routes!(get_capture, start_capture, stop_capture))
        .routes(routes!(get_commands, start_command))
        .routes(routes!(get_command, end_command))
        .routes(routes!(get_transfers, start_transfer))
        .routes(routes!(get_transfer, end_transfer))
        .routes(routes!(get_events))
        .routes(routes!(get_metrics))
        .routes(routes!(get_openapi))
}

pub(crate) fn router(state: Arc<State>) -> Router {
    let (router, _) = described().split_for_parts();
    let no_path = "there is no such path; /openapi.json lists all";
    let no_method = "this path has other methods; /openapi.json lists them";
    let router = with_fallbacks(router, no_path, no_method);
    router.layer(DefaultBodyLimit::max(BODY_MAX)).with_state(state)
}

fn body<T>(request: Submitted<T>) -> Result<T, Refusal> {
    let Json(request) =
        request.map_err(|rejection| Refusal::new(rejection.status(), rejection.body_text()))?;
    Ok(request)
}

/// The world: hosts, links, counters.
#[utoipa::path(get, path = "/world", responses((status = 200, body = World)))]
async fn get_world(Shared(state): Running) -> Answer<World> {
    state.world().map(Json)
}

/// Ends the world and all programs in it.
#[utoipa::path(delete, path = "/world", responses((status = 202)))]
async fn end_world(Shared(state): Running) -> StatusCode {
    state.end.notify_one();
    StatusCode::ACCEPTED
}

/// The hosts.
#[utoipa::path(get, path = "/hosts", responses((status = 200, body = Vec<Host>)))]
async fn get_hosts(Shared(state): Running) -> Json<Vec<Host>> {
    Json(state.hosts())
}

/// The links, one for each direction.
#[utoipa::path(get, path = "/links", responses((status = 200, body = Vec<Link>)))]
async fn get_links(Shared(state): Running) -> Answer<Vec<Link>> {
    Ok(Json(state.links_of(&state.report()?)))
}

/// One direction of a link, `from:to`.
#[utoipa::path(get, path = "/links/{link}", params(("link" = String, Path)), responses(
    (status = 200, body = Link), (status = 404, body = Problem)
))]
async fn get_link(Shared(state): Running, Path(name): Path<String>) -> Answer<Link> {
    shown_link(&state, state.link(&name)?).map(Json)
}

fn shown_link(state: &State, index: usize) -> Result<Link, Refusal> {
    Ok(state.links_of(&state.report()?).swap_remove(index))
}

/// Changes a link from now on: keys and values of a link in a scenario, `null` to remove one.
/// Packets in flight keep their fate. Times of `outages`, `contacts`, `rate_steps` and
/// `delay_points` count from the world's start.
#[utoipa::path(patch, path = "/links/{link}", params(("link" = String, Path)),
    request_body = Object, responses(
    (status = 200, body = Link), (status = 404, body = Problem), (status = 422, body = Problem)
))]
async fn change_link(
    Shared(state): Running,
    Path(name): Path<String>,
    request: Submitted<Map<String, Value>>,
) -> Answer<Link> {
    let index = state.link(&name)?;
    state.change(index, body(request)?)?;
    shown_link(&state, index).map(Json)
}

/// Adds an outage, from now on.
#[utoipa::path(post, path = "/links/{link}/outages", params(("link" = String, Path)),
    request_body = OutageRequest, responses(
    (status = 201, body = Link), (status = 404, body = Problem),
    (status = 409, body = Problem, description = "The link goes by a plan that none can be added to"),
    (status = 422, body = Problem)
))]
async fn add_outage(
    Shared(state): Running,
    Path(name): Path<String>,
    request: Submitted<OutageRequest>,
) -> Result<(StatusCode, Json<Link>), Refusal> {
    let index = state.link(&name)?;
    let OutageRequest { at, lasts } = body(request)?;
    let window: Window =
        format!("{at}+{lasts}").parse().map_err(|error| Refusal::wrong(format!("{error}")))?;
    state.add_outage(index, window)?;
    Ok((StatusCode::CREATED, Json(shown_link(&state, index)?)))
}

/// The running capture, if any.
#[utoipa::path(get, path = "/capture", responses((status = 200, body = Capture)))]
async fn get_capture(Shared(state): Running) -> Json<Capture> {
    Json(Capture { running: locked(&state.capture).clone() })
}

/// Starts a capture of hosts' packets, one pcapng file per host.
#[utoipa::path(post, path = "/capture", request_body = CaptureRequest, responses(
    (status = 201, body = Capture),
    (status = 409, body = Problem, description = "One runs already"),
    (status = 422, body = Problem)
))]
async fn start_capture(
    Shared(state): Running,
    request: Submitted<CaptureRequest>,
) -> Result<(StatusCode, Json<Capture>), Refusal> {
    let request = body(request)?;
    if !FilePath::new(&request.folder).is_absolute() {
        let error = format!("folder: {:?} does not begin at the root", request.folder);
        return Err(Refusal::wrong(error));
    }
    let mut limits = emu::CaptureLimits::default();
    if let Some(size) = &request.file_size {
        let size: Size =
            size.parse().map_err(|error| Refusal::wrong(format!("file_size: {error}")))?;
        limits.file = size.bytes();
    }
    if let Some(files) = request.files {
        limits.files = usize::from(files).max(1);
    }
    let mut capture = locked(&state.capture);
    let started =
        state.world.links().capture(request.hosts.clone(), FilePath::new(&request.folder), limits);
    started.map_err(|error| refused(&error))?;
    *capture = Some(request.clone());
    state.log_event(state.now(), What::CaptureStarted { folder: request.folder.clone() });
    Ok((StatusCode::CREATED, Json(Capture { running: Some(request) })))
}

fn refused(error: &emu::CaptureError) -> Refusal {
    let status = match error {
        emu::CaptureError::Running | emu::CaptureError::None => StatusCode::CONFLICT,
        emu::CaptureError::Host(_) | emu::CaptureError::Files(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        emu::CaptureError::Stopped => StatusCode::SERVICE_UNAVAILABLE,
    };
    Refusal::new(status, error.to_string())
}

/// Stops the capture, and waits until it is written.
#[utoipa::path(delete, path = "/capture", responses(
    (status = 200, body = CaptureReport),
    (status = 409, body = Problem, description = "None runs")
))]
async fn stop_capture(Shared(state): Running) -> Answer<CaptureReport> {
    // Cleared before it ends: a capture that starts meanwhile is another one.
    *locked(&state.capture) = None;
    let links = state.world.links();
    let ended = tokio::task::spawn_blocking(move || links.end_capture()).await;
    let ended = ended.map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "it failed"))?;
    let report = ended.map_err(|error| refused(&error))?;
    state.log_event(state.now(), What::CaptureStopped { packets: report.packets });
    Ok(Json(CaptureReport {
        files: report.files.iter().map(|file| file.display().to_string()).collect(),
        packets: report.packets,
        missed: report.missed,
    }))
}

/// Commands started by the interface, the latest 256.
#[utoipa::path(get, path = "/commands", responses((status = 200, body = Vec<Command>)))]
async fn get_commands(Shared(state): Running) -> Json<Vec<Command>> {
    Json(locked(&state.commands).all())
}

/// Starts a command on a host.
#[utoipa::path(post, path = "/commands", request_body = CommandRequest, responses(
    (status = 201, body = Command), (status = 404, body = Problem), (status = 422, body = Problem),
    (status = 429, body = Problem, description = "Too many run")
))]
async fn start_command(
    Shared(state): Running,
    request: Submitted<CommandRequest>,
) -> Result<(StatusCode, Json<Command>), Refusal> {
    let id = commands::start(&state, body(request)?)?;
    Ok((StatusCode::CREATED, Json(locked(&state.commands).shown(id)?)))
}

fn number(kind: &str, id: &str) -> Result<u64, Refusal> {
    let none = |_| Refusal::new(StatusCode::NOT_FOUND, format!("there is no {kind} {id:?}"));
    id.parse().map_err(none)
}

/// The state of a command.
#[utoipa::path(get, path = "/commands/{id}", params(("id" = u64, Path)), responses(
    (status = 200, body = Command), (status = 404, body = Problem)
))]
async fn get_command(Shared(state): Running, Path(id): Path<String>) -> Answer<Command> {
    locked(&state.commands).shown(number("command", &id)?).map(Json)
}

/// Kills a command and its children, even if it has ended before.
#[utoipa::path(delete, path = "/commands/{id}", params(("id" = u64, Path)), responses(
    (status = 202), (status = 404, body = Problem)
))]
async fn end_command(
    Shared(state): Running,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    locked(&state.commands).end(number("command", &id)?)?;
    Ok(StatusCode::ACCEPTED)
}

/// Transfers requested over the interface, the latest 256.
#[utoipa::path(get, path = "/transfers", responses((status = 200, body = Vec<Transfer>)))]
async fn get_transfers(Shared(state): Running) -> Json<Vec<Transfer>> {
    Json(locked(&state.transfers).all())
}

/// Starts to transfer a file from one host to another, by a protocol of slowlight or by a tool.
/// The received file is compared with the sent one, and not kept.
#[utoipa::path(post, path = "/transfers", request_body = TransferRequest, responses(
    (status = 201, body = Transfer), (status = 404, body = Problem), (status = 422, body = Problem),
    (status = 429, body = Problem, description = "Too many are under way, or too much")
))]
async fn start_transfer(
    Shared(state): Running,
    request: Submitted<TransferRequest>,
) -> Result<(StatusCode, Json<Transfer>), Refusal> {
    let id = transfers::start(&state, body(request)?)?;
    Ok((StatusCode::CREATED, Json(locked(&state.transfers).shown(id)?)))
}

/// The state of a transfer, or its result.
#[utoipa::path(get, path = "/transfers/{id}", params(("id" = u64, Path)), responses(
    (status = 200, body = Transfer), (status = 404, body = Problem)
))]
async fn get_transfer(Shared(state): Running, Path(id): Path<String>) -> Answer<Transfer> {
    locked(&state.transfers).shown(number("transfer", &id)?).map(Json)
}

/// Stops a transfer.
#[utoipa::path(delete, path = "/transfers/{id}", params(("id" = u64, Path)), responses(
    (status = 202), (status = 404, body = Problem)
))]
async fn end_transfer(
    Shared(state): Running,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    locked(&state.transfers).stop(number("transfer", &id)?)?;
    Ok(StatusCode::ACCEPTED)
}

/// Events from now on, as server-sent events; the data of each is an `Event`.
#[utoipa::path(get, path = "/events", responses(
    (status = 200, content_type = "text/event-stream", body = String)
))]
async fn get_events(
    Shared(state): Running,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let events = state.listen();
    let stream = stream::unfold((state, events), |(state, mut events)| async {
        let event = match events.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(events)) => {
                Event { at: state.now().as_secs_f64(), what: What::Missed { events } }
            }
            Err(RecvError::Closed) => return None,
        };
        let data = serde_json::to_string(&event).unwrap_or_default();
        let event = sse::Event::default().event(event.what.name()).data(data);
        Some((Ok(event), (state, events)))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// Counters and gauges of all links, in the format of Prometheus.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, content_type = "application/openmetrics-text", body = String)
))]
async fn get_metrics(Shared(state): Running) -> Result<Metrics, Refusal> {
    Ok(metrics::metrics(&state.world()?))
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, body = Object)))]
async fn get_openapi() -> Json<Value> {
    Json(serde_json::to_value(described().into_openapi()).unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod tests;
