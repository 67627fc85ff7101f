//! Requests to a node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream};
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use bytes::Bytes;
use engine::Time;
use futures_util::stream::{self, Stream};
use proto::bp::agent::{Agent, DeliveryId, RequestError, SendRequest, Version};
use proto::bp::layer::Content;
use proto::bp::routes::Priority;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use wire::bp7::{BundleFlags, BundleId, Eid, Reason, StatusReport};

use super::hub::{Delivered, Reported};
use super::model::{
    Bundle, Confirm, Counts, Delivery, Node, PingRequest, Pong, Report, Send, Sent, Take,
    TraceRequest, Which,
};
use super::payload::{self, Fault, Pieces, Place};
use super::{Shared, metrics};
use crate::http::{METRICS_TYPE, Problem, Refusal};

/// Maximum number of listed bundles.
const LISTED: usize = 10_000;
/// Default lifetime of a bundle: a day.
const LIFETIME_MS: u64 = 86_400_000;
/// Minimum length of a ping's payload: magic, number, run.
const PING_MIN: usize = 16;
/// Maximum length of a ping's payload.
const PING_MAX: usize = 1 << 20;

type Running = State<Arc<Shared>>;
type Queried<T> = Result<Query<T>, QueryRejection>;
type Answer<T> = Result<T, Refusal>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/node", get(node))
        .route("/bundles", get(bundles).post(send).delete(cancel))
        .route("/deliveries", get(deliveries))
        .route("/deliveries/{number}", delete(confirm))
        .route("/ping", post(ping))
        .route("/trace", post(trace))
        .route("/metrics", get(prometheus))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::disable())
        .with_state(shared)
}

async fn no_such_path() -> Refusal {
    let error =
        "there is no such path; there are /node, /bundles, /deliveries, /ping, /trace and /metrics";
    Refusal::new(StatusCode::NOT_FOUND, error)
}

async fn no_such_method() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path has other methods; docs/node.md lists them",
    )
}

fn query<T>(request: Queried<T>) -> Answer<T> {
    let Query(request) = request.map_err(|rejection| Refusal::wrong(rejection.body_text()))?;
    Ok(request)
}

fn eid(key: &str, text: &str) -> Answer<Eid> {
    text.parse().map_err(|error| Refusal::wrong(format!("{key}: {error}")))
}

/// Parses an endpoint: in full, or a service of this node.
fn endpoint(node: &Eid, text: &str) -> Answer<Eid> {
    node.endpoint(text).map_err(|error| Refusal::wrong(format!("endpoint: {error}")))
}

fn refused(error: RequestError) -> Refusal {
    let status = match error {
        RequestError::Full => StatusCode::INSUFFICIENT_STORAGE,
        RequestError::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        RequestError::NotReady => StatusCode::SERVICE_UNAVAILABLE,
        RequestError::Taken => StatusCode::CONFLICT,
        RequestError::NoBundle | RequestError::NoDelivery => StatusCode::NOT_FOUND,
        RequestError::NoDestination | RequestError::NotOurs | RequestError::Conflict(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    Refusal::new(status, error.to_string())
}

impl Shared {
    /// Runs a request in the agent's thread, and waits for the reply.
    async fn ask<T: std::marker::Send + 'static>(
        &self,
        request: impl FnOnce(Time, &mut Agent) -> T + std::marker::Send + 'static,
    ) -> Answer<T> {
        let (answer, answered) = oneshot::channel();
        self.handle.ask(move |now, agent| {
            // The client may have gone.
            let _ = answer.send(request(now, agent));
        });
        answered
            .await
            .map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the node is being stopped"))
    }

    async fn report(&self) -> Answer<Node> {
        let request = self.ask(|now, agent| {
            let (config, is_ready) = (agent.config(), agent.is_ready());
            let neighbours = agent.nodes_up().iter().map(Eid::to_string).collect();
            (now, config.persistent, is_ready, neighbours, agent.statistics())
        });
        let (now, is_persistent, is_ready, neighbours, counts) = request.await?;
        let (endpoints, trouble) = self.hub.state();
        Ok(Node {
            id: self.node.to_string(),
            pid: std::process::id(),
            seconds: now.as_secs_f64(),
            is_ready,
            is_persistent,
            layers: self.layers.clone(),
            neighbours,
            endpoints: endpoints.iter().map(Eid::to_string).collect(),
            counts: Counts {
                sourced: counts.sourced,
                received: counts.received,
                duplicates: counts.duplicates,
                returned: counts.returned,
                refused: counts.refused,
                malformed: counts.malformed,
                forwarded: counts.forwarded,
                delivered: counts.delivered,
                expired: counts.expired,
                deleted: counts.deleted,
                signals_ignored: counts.signals_ignored,
                failed: counts.failed,
                bundles: counts.bundles as u64,
                bytes: counts.bytes,
                bundles_peak: counts.bundles_peak as u64,
                bytes_peak: counts.bytes_peak,
            },
            trouble,
        })
    }

    /// Passes a bundle to the agent, and waits until it is stored.
    async fn send(&self, request: SendRequest) -> Answer<BundleId> {
        let (stored, is_stored) = oneshot::channel();
        let hub = Arc::clone(&self.hub);
        let request = self.ask(move |now, agent| {
            let sent = agent.send(now, request);
            if let Ok(id) = &sent {
                // The agent's indication comes after this.
                hub.wait_for_store(id.clone(), stored);
            }
            sent
        });
        let id = request.await?.map_err(refused)?;
        let (status, why) = match is_stored.await {
            Ok(Ok(())) => return Ok(id),
            // Only a full store may be worth a retry.
            Ok(Err(reason)) if reason != Reason::DepletedStorage => {
                (StatusCode::UNPROCESSABLE_ENTITY, reason.to_string())
            }
            Ok(Err(_)) | Err(_) => {
                let (_, trouble) = self.hub.state();
                let why = trouble.unwrap_or_else(|| "the node did not keep it".to_owned());
                (StatusCode::INSUFFICIENT_STORAGE, why)
            }
        };
        Err(Refusal::new(status, format!("the bundle was not stored: {why}")))
    }
}

/// GET: state and counters of the node.
async fn node(State(shared): Running) -> Answer<Json<Node>> {
    shared.report().await.map(Json)
}

async fn prometheus(State(shared): Running) -> Answer<Response> {
    let text = metrics::encoded(&shared.report().await?);
    let text =
        text.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response())
}

/// GET: the held bundles, oldest first.
async fn bundles(State(shared): Running) -> Answer<Json<Vec<Bundle>>> {
    let listed = shared.ask(|now, agent| {
        let bundles = agent.bundles().take(LISTED).map(|bundle| Bundle {
            id: bundle.id.to_string(),
            destination: bundle.destination.to_string(),
            bytes: bundle.bytes,
            here: now.since(bundle.received).as_secs_f64(),
            left: bundle.expires.since(now).as_secs_f64(),
            state: bundle.state.name().to_owned(),
        });
        bundles.collect::<Vec<_>>()
    });
    listed.await.map(Json)
}

/// POST: sends a bundle, whose payload is the body. Responds when it is stored.
async fn send(State(shared): Running, request: Queried<Send>, body: Body) -> Answer<Response> {
    let mut payload = body.into_data_stream();
    let sent = take(&shared, request, &mut payload).await;
    if sent.is_err() {
        payload::skip(&mut payload).await;
    }
    sent
}

async fn take(
    shared: &Shared,
    request: Queried<Send>,
    payload: &mut BodyDataStream,
) -> Answer<Response> {
    let request = query(request)?;
    let to = eid("to", &request.to)?;
    let from = request.from.as_deref().map(|text| endpoint(&shared.node, text)).transpose()?;
    let priority = match request.priority.as_deref() {
        Some("bulk") => Priority::Bulk,
        None | Some("normal") => Priority::Normal,
        Some("expedited") => Priority::Expedited,
        Some(other) => {
            return Err(Refusal::wrong(format!(
                "priority: {other:?} is none of bulk, normal, expedited"
            )));
        }
    };
    let version = match request.version {
        Some(6) => Version::Six,
        None | Some(7) => Version::Seven,
        Some(other) => {
            return Err(Refusal::wrong(format!(
                "version: there is no version {other}, but 6 and 7"
            )));
        }
    };
    let place = async || {
        let spool = shared.spool.clone()?;
        let name = shared.ask(|_, agent| agent.working_file()).await.ok()?;
        Some(Place { path: spool.join(name.path()), name })
    };
    let limits = (shared.limits.inline, shared.limits.payload);
    let payload = payload::take(payload, limits, place).await.map_err(|fault| match fault {
        Fault::TooLong(_) => Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, fault.to_string()),
        Fault::Cut(_) => Refusal::new(StatusCode::BAD_REQUEST, fault.to_string()),
        Fault::Store(_) => Refusal::new(StatusCode::INSUFFICIENT_STORAGE, fault.to_string()),
    })?;
    let file = match &payload {
        Content::File { name, .. } => shared.spool.as_ref().map(|spool| spool.join(name.path())),
        Content::Bytes(_) => None,
    };
    let lifetime = Duration::from_millis(request.lifetime_ms.unwrap_or(LIFETIME_MS));
    let request = SendRequest {
        source: from,
        lifetime,
        priority,
        version,
        custody: request.custody,
        payload,
        owns_file: file.is_some(),
        ..SendRequest::new(to, Bytes::new())
    };
    match shared.send(request).await {
        Ok(id) => Ok((StatusCode::CREATED, Json(Sent { id: id.to_string() })).into_response()),
        Err(refusal) => {
            if let Some(file) = file {
                let _ = std::fs::remove_file(file);
            }
            Err(refusal)
        }
    }
}

/// DELETE: a bundle.
async fn cancel(State(shared): Running, request: Queried<Which>) -> Answer<StatusCode> {
    let Which { id: wanted } = query(request)?;
    let cancelled = shared.ask(move |now, agent| {
        let id = agent.bundles().map(|bundle| bundle.id).find(|id| id.to_string() == wanted);
        id.map_or(Err(RequestError::NoBundle), |id| agent.cancel(now, &id))
    });
    cancelled.await?.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// POST: confirms a delivery.
async fn confirm(
    State(shared): Running,
    Path(number): Path<u64>,
    request: Queried<Confirm>,
) -> Answer<StatusCode> {
    let Confirm { id: wanted } = query(request)?;
    let confirmed = shared.ask(move |now, agent| {
        let delivery = DeliveryId(number);
        let found = agent.delivery(delivery).ok_or(RequestError::NoDelivery)?;
        if wanted.is_some_and(|wanted| wanted != found.to_string()) {
            return Err(RequestError::NoDelivery);
        }
        agent.confirm(now, delivery)
    });
    confirmed.await?.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// An application's endpoint, until it is dropped.
struct Registered {
    shared: Arc<Shared>,
    endpoint: Eid,
    bundles: UnboundedReceiver<Delivered>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.hub.remove_user(&self.endpoint);
        let endpoint = self.endpoint.clone();
        self.shared.handle.ask(move |_, agent| agent.deregister(&endpoint));
    }
}

async fn register(shared: &Arc<Shared>, endpoint: Eid) -> Answer<Registered> {
    let (user, bundles) = unbounded_channel();
    let taken = Arc::clone(shared);
    // The client may have disconnected meanwhile: then its bundle is dropped, and the endpoint is
    // free again.
    let registered = shared.ask(move |_, agent| {
        agent.register(&endpoint)?;
        // Waiting bundles are indicated after this.
        taken.hub.add_user(endpoint.clone(), user);
        Ok(Registered { shared: taken, endpoint, bundles })
    });
    registered.await?.map_err(refused)
}

/// A delivery in progress.
struct HandingOver {
    from: Registered,
    pieces: Option<(DeliveryId, Pieces)>,
    confirm: bool,
}

/// GET: bundles for an endpoint as they arrive, each a line of JSON followed by its payload.
/// Deliveries not confirmed when the client disconnects are repeated to the next.
async fn deliveries(State(shared): Running, request: Queried<Take>) -> Answer<Response> {
    let Take { endpoint: text, confirm } = query(request)?;
    let endpoint = endpoint(&shared.node, &text)?;
    let from = register(&shared, endpoint).await?;
    let over = HandingOver { from, pieces: None, confirm };
    let body = Body::from_stream(handed_over(over));
    Ok(([(header::CONTENT_TYPE, "application/x-slowlight-bundles")], body).into_response())
}

fn handed_over(over: HandingOver) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::unfold(over, |mut over| async move {
        loop {
            if let Some((delivery, pieces)) = &mut over.pieces {
                if let Some(piece) = pieces.next().await {
                    return Some((piece, over));
                }
                let delivery = *delivery;
                over.pieces = None;
                if over.confirm {
                    over.from.shared.handle.ask(move |now, agent| {
                        // It may have expired meanwhile.
                        let _ = agent.confirm(now, delivery);
                    });
                }
            }
            let Delivered { delivery, id, version, verified, payload, .. } =
                over.from.bundles.recv().await?;
            let line = Delivery {
                delivery: delivery.0,
                id: id.to_string(),
                source: id.source.to_string(),
                version: match version {
                    Version::Six => 6,
                    Version::Seven => 7,
                },
                verified,
                bytes: payload.len(),
            };
            match Pieces::open(payload, over.from.shared.spool.as_deref()) {
                Ok(pieces) => over.pieces = Some((delivery, pieces)),
                Err(error) => {
                    // It has expired, or the store is damaged: continue with the others.
                    tracing::warn!(%id, %error, "a bundle cannot be delivered");
                    continue;
                }
            }
            return Some((Ok(line_of(&line)), over));
        }
    })
}

/// Formats one line of JSON.
fn line_of(value: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(value).expect("it has names and numbers only");
    line.push(b'\n');
    line.into()
}

/// Chooses an unused service of this node.
fn own_service(node: &Eid) -> Answer<Eid> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    match node {
        // Far beyond the service numbers that people choose.
        Eid::Ipn { .. } => endpoint(node, &(0x4000_0000 + number).to_string()),
        Eid::Dtn(_) | Eid::None | Eid::Uri(_) | Eid::Unknown { .. } => {
            endpoint(node, &format!("ask-{}-{number}", std::process::id()))
        }
    }
}

/// GET: sends bundles to an echo, one after the other, with a line for each result.
async fn ping(State(shared): Running, request: Queried<PingRequest>) -> Answer<Response> {
    let request = query(request)?;
    let to = eid("to", &request.to)?;
    if request.bytes > PING_MAX {
        return Err(Refusal::wrong(format!("bytes: a ping has {PING_MAX} at most")));
    }
    let from = register(&shared, own_service(&shared.node)?).await?;
    let failed =
        |error: std::io::Error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let run = rt::entropy().map_err(failed)?.next_u64();
    let start = (from, request, to, 0);
    let lines = stream::unfold(start, move |(mut from, request, to, number)| async move {
        if number >= request.count {
            return None;
        }
        if number > 0 && request.interval_ms > 0 {
            tokio::time::sleep(Duration::from_millis(request.interval_ms)).await;
        }
        let line = match ping_once(&mut from, &request, &to, (run, number)).await {
            Ok(pong) => line_of(&pong),
            Err(refusal) => line_of(&Problem { error: refusal.error }),
        };
        Some((Ok::<_, std::io::Error>(line), (from, request, to, number + 1)))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

async fn ping_once(
    from: &mut Registered,
    request: &PingRequest,
    to: &Eid,
    (run, number): (u64, u32),
) -> Answer<Pong> {
    let mut bytes = vec![0; request.bytes.max(PING_MIN)];
    bytes[..4].copy_from_slice(b"ping");
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    // Echoes of earlier runs, also from before a restart of the node, may still arrive here.
    bytes[8..PING_MIN].copy_from_slice(&run.to_be_bytes());
    let expected = bytes.clone();
    let lifetime = Duration::from_millis(request.timeout_ms);
    let source = Some(from.endpoint.clone());
    let request = SendRequest { source, lifetime, ..SendRequest::new(to.clone(), bytes) };
    let reply = from.shared.ask(move |now, agent| {
        let started = Instant::now();
        agent.send(now, request).map(|_| started)
    });
    let started = reply.await?.map_err(refused)?;
    let until = tokio::time::Instant::from_std(started + lifetime);
    loop {
        let Ok(Some(delivered)) = tokio::time::timeout_at(until, from.bundles.recv()).await else {
            return Ok(Pong { number, rtt_us: None });
        };
        let Delivered { delivery, payload, at, .. } = delivered;
        from.shared.handle.ask(move |now, agent| {
            let _ = agent.confirm(now, delivery);
        });
        // A late echo belongs to an earlier ping.
        if payload == Content::Bytes(expected.clone().into()) {
            let rtt = at.saturating_duration_since(started);
            return Ok(Pong { number, rtt_us: Some(rtt.as_secs_f64() * 1e6) });
        }
    }
}

/// GET: sends a bundle that requests all status reports, with a line for each report.
async fn trace(State(shared): Running, request: Queried<TraceRequest>) -> Answer<Response> {
    let request = query(request)?;
    let to = eid("to", &request.to)?;
    let lifetime = Duration::from_millis(request.timeout_ms);
    let flags = BundleFlags::REPORTS.with(BundleFlags::STATUS_TIME);
    let request = SendRequest { lifetime, flags, ..SendRequest::new(to, &b"trace"[..]) };
    let (follower, reports) = unbounded_channel();
    let hub = Arc::clone(&shared.hub);
    let started = Instant::now();
    let reply = shared.ask(move |now, agent| {
        let id = agent.send(now, request)?;
        hub.follow(id.clone(), follower);
        Ok(id)
    });
    let id = reply.await?.map_err(refused)?;
    let until = tokio::time::Instant::from_std(started + lifetime);
    let following = Following { shared, id, reports, started, seen: BTreeSet::new() };
    let lines = stream::unfold(following, move |mut following| async move {
        loop {
            let next = tokio::time::timeout_at(until, following.reports.recv()).await;
            let (from, report) = next.ok().flatten()?;
            let what = asserted(&report);
            // A report may arrive twice, over two paths.
            if following.seen.insert((from.clone(), what.clone())) {
                let seconds = following.started.elapsed().as_secs_f64();
                let reason = report.reason.to_string();
                let line = line_of(&Report { from: from.to_string(), what, reason, seconds });
                return Some((Ok::<_, std::io::Error>(line), following));
            }
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// A traced bundle, until it is dropped.
struct Following {
    shared: Arc<Shared>,
    id: BundleId,
    reports: UnboundedReceiver<Reported>,
    started: Instant,
    seen: BTreeSet<(Eid, Vec<String>)>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.shared.hub.unfollow(&self.id);
    }
}

fn asserted(report: &StatusReport) -> Vec<String> {
    let all = [
        ("received", report.received),
        ("forwarded", report.forwarded),
        ("delivered", report.delivered),
        ("deleted", report.deleted),
    ];
    let asserted = all.into_iter().filter(|(_, status)| status.is_asserted());
    asserted.map(|(name, _)| name.to_owned()).collect()
}
