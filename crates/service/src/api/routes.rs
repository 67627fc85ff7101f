//! Requests to a node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use bp::agent::{Agent, NeighbourTraffic, SendRequest, Version};
use bp::codec::bp7::{BundleFlags, BundleId, Eid, StatusReport};
use bp::layer::Content;
use bytes::Bytes;
use engine::Time;
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::hub::{Reported, subject};
use super::listing::{bundles, remove};
use super::model::{
    Beacons, Confirm, Counts, Delivery, Discovered, Hops, Node, PingRequest, Pong, Report,
    ReportsRequest, Share, StatusLine, Take, TraceRequest, Traffic,
};
use super::payload::Pieces;
use super::receivers::{Delivered, Receiver};
use super::request::{Answer, Queried, Running, eid, endpoint, query, refused};
use super::sending::{send, send_stream};
use super::{Shared, metrics};
use crate::http::{Metrics, Problem, Refusal, with_fallbacks};
use crate::node::Listed;

/// Minimum length of a ping's payload: magic, number, run.
const PING_MIN: usize = 16;
/// Limits of the timeout of a ping or trace that gives none.
const TIMEOUT_MIN: Duration = Duration::from_secs(10);
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// Minimum lifetime of the bundle of a ping or trace: it may need longer than its user waits.
const LIFETIME_MIN: Duration = Duration::from_secs(3600);
/// Maximum length of a ping's payload.
const PING_MAX: usize = 1 << 20;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    let router = Router::new()
        .route("/node", get(node))
        .route("/bundles", get(bundles).post(send).delete(remove))
        .route("/bundles/stream", post(send_stream))
        .route("/reports", get(reports))
        .route("/deliveries", get(deliveries))
        .route("/deliveries/{number}", delete(confirm))
        .route("/ping", post(ping))
        .route("/trace", post(trace))
        .route("/metrics", get(prometheus))
        .merge(super::settings::router());
    let no_path = "there is no such path; there are /node, /bundles, /bundles/stream, /deliveries, \
                   /reports, /ping, /trace, /metrics, /reload, /plan and /routes";
    let no_method = "this path has other methods; docs/node.md lists them";
    with_fallbacks(router, no_path, no_method).layer(DefaultBodyLimit::disable()).with_state(shared)
}

/// Error of a request that the agent has not processed.
const STOPPED: &str = "the node is being stopped";

impl Shared {
    /// Runs a request in the agent's thread, and waits for the reply.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(Time, &mut Agent) -> T + Send + 'static,
    ) -> Answer<T> {
        let (answer, answered) = oneshot::channel();
        self.handle.ask(move |now, agent| {
            // The client may have gone.
            let _ = answer.send(request(now, agent));
        });
        answered.await.map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, STOPPED))
    }

    async fn report(&self) -> Answer<Node> {
        let hub = Arc::clone(&self.hub);
        let request = self.ask(move |now, agent| {
            hub.watch(now, agent);
            let (config, is_ready) = (agent.config(), agent.is_ready());
            let neighbours = agent.nodes_up().iter().map(Eid::to_string).collect();
            let held = (agent.traffic(), agent.unrouted(), agent.oldest());
            (now, (config.persistent, is_ready), neighbours, held, agent.statistics())
        });
        let (now, (is_persistent, is_ready), neighbours, held, counts) = request.await?;
        let (traffic, unrouted, oldest) = held;
        let (discovered, beacons) = self.reload.discovered();
        let (endpoints, trouble) = self.hub.state();
        Ok(Node {
            id: self.node.to_string(),
            pid: std::process::id(),
            seconds: now.as_secs_f64(),
            is_ready,
            is_persistent,
            layers: self.layers.clone(),
            neighbours,
            traffic: traffic.into_iter().map(|(node, with)| traffic_of(&node, &with)).collect(),
            discovered: discovered.into_iter().map(discovered_of).collect(),
            beacons: Beacons {
                sent: beacons.sent,
                received: beacons.received,
                malformed: beacons.malformed,
                ignored: beacons.ignored,
            },
            unrouted: unrouted as u64,
            oldest: oldest.map(|oldest| now.since(oldest).as_secs_f64()),
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
                insecure: counts.insecure,
                signals_ignored: counts.signals_ignored,
                resent: counts.resent,
                failed: counts.failed,
                bundles: counts.bundles as u64,
                bytes: counts.bytes,
                bundles_peak: counts.bundles_peak as u64,
                bytes_peak: counts.bytes_peak,
            },
            trouble,
        })
    }
}

fn traffic_of(node: &Eid, with: &NeighbourTraffic) -> Traffic {
    let (sending, sending_bytes) = with.sending;
    Traffic {
        node: node.to_string(),
        links: with.links as u64,
        queued: with.queued as u64,
        sending: sending as u64,
        sending_bytes,
    }
}

fn discovered_of(Listed { found, layer }: Listed) -> Discovered {
    let (node, interface) = (found.node.to_string(), found.interface);
    Discovered { node, address: found.address, interface, layer }
}

/// GET: state and counters of the node.
async fn node(State(shared): Running) -> Answer<Json<Node>> {
    shared.report().await.map(Json)
}

async fn prometheus(State(shared): Running) -> Answer<Metrics> {
    Ok(metrics::metrics(&shared.report().await?))
}

/// POST: confirms a delivery.
async fn confirm(
    State(shared): Running,
    Path(number): Path<u64>,
    request: Queried<Confirm>,
) -> Answer<StatusCode> {
    let Confirm { id: wanted } = query(request)?;
    let hub = Arc::clone(&shared.hub);
    let confirmed =
        shared.ask(move |now, agent| hub.confirm(now, agent, number, wanted.as_deref()));
    confirmed.await?.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// An application's endpoint, until it is dropped.
struct Registered {
    _place: OwnedSemaphorePermit,
    shared: Arc<Shared>,
    endpoint: Eid,
    receiver: Receiver,
    bundles: UnboundedReceiver<Delivered>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let (hub, endpoint) = (Arc::clone(&self.shared.hub), self.endpoint.clone());
        let receiver = self.receiver;
        self.shared.handle.ask(move |now, agent| hub.leave(now, agent, &endpoint, receiver));
    }
}

/// Takes a place for a stream.
fn place(shared: &Shared) -> Answer<OwnedSemaphorePermit> {
    let error = "there are too many streams of deliveries, results and reports; end some";
    shared.hub.stream().ok_or_else(|| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error))
}

async fn register(shared: &Arc<Shared>, endpoint: Eid, share: Share) -> Answer<Registered> {
    let (user, bundles) = unbounded_channel();
    let _place = place(shared)?;
    let taken = Arc::clone(shared);
    // The client may have disconnected meanwhile: then its bundle is dropped, and the endpoint is
    // free again.
    let registered = shared.ask(move |_, agent| {
        let receiver = taken.hub.join(agent, &endpoint, share, user)?;
        Ok(Registered { _place, shared: taken, endpoint, receiver, bundles })
    });
    registered.await?.map_err(refused)
}

/// A delivery in progress.
struct HandingOver {
    from: Registered,
    pieces: Option<(u64, Pieces)>,
    confirm: bool,
}

/// GET: bundles for an endpoint as they arrive, each a line of JSON followed by its payload.
/// Deliveries not confirmed when the client disconnects are repeated to the next.
async fn deliveries(State(shared): Running, request: Queried<Take>) -> Answer<Response> {
    let Take { endpoint: text, confirm, share } = query(request)?;
    let endpoint = endpoint(&shared.node, &text)?;
    let from = register(&shared, endpoint, share).await?;
    let over = HandingOver { from, pieces: None, confirm };
    let body = Body::from_stream(handed_over(over));
    Ok(([(header::CONTENT_TYPE, "application/x-slowlight-bundles")], body).into_response())
}

fn handed_over(over: HandingOver) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::unfold(over, |mut over| async move {
        loop {
            if let Some((number, pieces)) = &mut over.pieces {
                if let Some(piece) = pieces.next().await {
                    return Some((piece, over));
                }
                let number = *number;
                over.pieces = None;
                if over.confirm {
                    let hub = Arc::clone(&over.from.shared.hub);
                    over.from.shared.handle.ask(move |now, agent| {
                        // It may have expired meanwhile.
                        let _ = hub.confirm(now, agent, number, None);
                    });
                }
            }
            let delivered = over.from.bundles.recv().await?;
            let line = line_before(&delivered);
            let Delivered { number, id, payload, .. } = delivered;
            match Pieces::open(payload, over.from.shared.spool.as_deref()) {
                Ok(pieces) => over.pieces = Some((number, pieces)),
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

/// Line before the payload of a bundle.
fn line_before(delivered: &Delivered) -> Delivery {
    let facts = delivered.facts.as_ref();
    let hops = facts.and_then(|facts| facts.hops);
    Delivery {
        delivery: delivered.number,
        id: delivered.id.to_string(),
        source: delivered.id.source.to_string(),
        version: match delivered.version {
            Version::Six => 6,
            Version::Seven => 7,
        },
        verified: delivered.verified.clone(),
        destination: facts.map(|facts| facts.destination.to_string()).unwrap_or_default(),
        lifetime_ms: facts.map_or(0, |facts| facts.lifetime_ms),
        age_ms: facts.map_or(0, |facts| facts.age_ms),
        hops: hops.map(|hops| Hops { limit: hops.limit, count: hops.count }),
        bytes: delivered.payload.len(),
    }
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
    let from = register(&shared, own_service(&shared.node)?, Share::No).await?;
    let failed =
        |error: std::io::Error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let run = rt::entropy().map_err(failed)?.next_u64();
    let times = Times::to(&shared, &to, request.timeout_ms).await?;
    let start = (from, request, to, 0);
    let lines = stream::unfold(start, move |(mut from, request, to, number)| async move {
        if number >= request.count {
            return None;
        }
        if number > 0 && request.interval_ms > 0 {
            tokio::time::sleep(Duration::from_millis(request.interval_ms)).await;
        }
        let line = match ping_once(&mut from, &request, &to, times, run, number).await {
            Ok(pong) => line_of(&pong),
            Err(refusal) => line_of(&Problem { error: refusal.error }),
        };
        Some((Ok::<_, std::io::Error>(line), (from, request, to, number + 1)))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Times of a ping or trace.
#[derive(Clone, Copy)]
struct Times {
    /// Wait for replies.
    timeout: Duration,
    /// Lifetime of the bundle.
    lifetime: Duration,
}

impl Times {
    /// Times for an endpoint: the given timeout, or one by the contact plan.
    async fn to(shared: &Shared, to: &Eid, given_ms: Option<u64>) -> Answer<Self> {
        let to = to.clone();
        let arrival = shared.ask(move |now, agent| agent.projected_arrival(now, &to)).await?;
        let known = arrival.unwrap_or_default().saturating_mul(3);
        let by_plan = known.clamp(TIMEOUT_MIN, TIMEOUT_MAX);
        let timeout = given_ms.map_or(by_plan, Duration::from_millis);
        Ok(Self { timeout, lifetime: timeout.max(known).max(LIFETIME_MIN) })
    }
}

async fn ping_once(
    from: &mut Registered,
    request: &PingRequest,
    to: &Eid,
    times: Times,
    run: u64,
    number: u32,
) -> Answer<Pong> {
    let mut bytes = vec![0; request.bytes.max(PING_MIN)];
    bytes[..4].copy_from_slice(b"ping");
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    // Echoes of earlier runs, also from before a restart of the node, may still arrive here.
    bytes[8..PING_MIN].copy_from_slice(&run.to_be_bytes());
    let expected = bytes.clone();
    let Times { timeout, lifetime } = times;
    let source = Some(from.endpoint.clone());
    let request = SendRequest { source, lifetime, ..SendRequest::new(to.clone(), bytes) };
    let (answer, answered) = oneshot::channel();
    from.shared.handle.ask(move |now, agent| {
        let started = Instant::now();
        let sent = agent.send(now, request).map(|id| (started, id));
        if let Err(Ok((_, id))) = answer.send(sent) {
            // The client is gone already.
            let _ = agent.cancel(now, &id);
        }
    });
    let stopped = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, STOPPED);
    let (started, id) = answered.await.map_err(stopped)?.map_err(refused)?;
    let unanswered = Unanswered { shared: Arc::clone(&from.shared), id: Some(id) };
    let until = tokio::time::Instant::from_std(started + timeout);
    let timeout_ms = timeout.as_millis() as u64;
    loop {
        let Ok(Some(delivered)) = tokio::time::timeout_at(until, from.bundles.recv()).await else {
            return Ok(Pong { number, rtt_us: None, timeout_ms });
        };
        let Delivered { delivery, payload, at, .. } = delivered;
        // A late echo belongs to an earlier ping.
        let is_it = is_equal(&from.shared, payload, &expected).await;
        from.shared.handle.ask(move |now, agent| {
            let _ = agent.confirm(now, delivery);
        });
        if is_it {
            unanswered.end();
            let rtt = at.saturating_duration_since(started);
            let rtt_us = Some(rtt.as_secs_f64() * 1e6);
            return Ok(Pong { number, rtt_us, timeout_ms });
        }
    }
}

/// A ping without an echo. When it is dropped, after its time or because the client is gone, its
/// bundle is cancelled: if it has not left, its echo would be for nobody.
struct Unanswered {
    shared: Arc<Shared>,
    id: Option<BundleId>,
}

impl Unanswered {
    /// The echo is there.
    fn end(mut self) {
        self.id = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        self.shared.handle.ask(move |now, agent| {
            let _ = agent.cancel(now, &id);
        });
    }
}

/// Whether a payload has these bytes.
async fn is_equal(shared: &Shared, payload: Content, expected: &[u8]) -> bool {
    if payload.len() != expected.len() as u64 {
        return false;
    }
    let Ok(mut pieces) = Pieces::open(payload, shared.spool.as_deref()) else { return false };
    let mut rest = expected;
    while let Some(piece) = pieces.next().await {
        match piece.ok().and_then(|piece| rest.strip_prefix(&piece[..])) {
            Some(left) => rest = left,
            None => return false,
        }
    }
    rest.is_empty()
}

/// GET: sends a bundle that requests all status reports, with a line for each report.
async fn trace(State(shared): Running, request: Queried<TraceRequest>) -> Answer<Response> {
    let request = query(request)?;
    let to = eid("to", &request.to)?;
    let Times { timeout, lifetime } = Times::to(&shared, &to, request.timeout_ms).await?;
    let flags = BundleFlags::REPORTS.with(BundleFlags::STATUS_TIME);
    let request = SendRequest { lifetime, flags, ..SendRequest::new(to, &b"trace"[..]) };
    let (follower, reports) = unbounded_channel();
    let _place = place(&shared)?;
    let hub = Arc::clone(&shared.hub);
    let started = Instant::now();
    let reply = shared.ask(move |now, agent| {
        let id = agent.send(now, request)?;
        hub.follow(id.clone(), follower);
        Ok(id)
    });
    let id = reply.await?.map_err(refused)?;
    let until = tokio::time::Instant::from_std(started + timeout);
    let following = Following { _place, shared, id, reports, started, seen: BTreeSet::new() };
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

/// GET: status reports on the bundles of an application: those kept, and with `follow` later ones.
async fn reports(State(shared): Running, request: Queried<ReportsRequest>) -> Answer<Response> {
    let ReportsRequest { source, id, follow } = query(request)?;
    let source = source.as_deref().map(|text| endpoint(&shared.node, text)).transpose()?;
    let place = place(&shared)?;
    let (kept, later) = shared.hub.reports(source, id, follow);
    let line = |(from, report): Reported| {
        let id = subject(&report).to_string();
        let (what, reason) = (asserted(&report), report.reason.to_string());
        Ok::<_, std::io::Error>(line_of(&StatusLine { id, from: from.to_string(), what, reason }))
    };
    let later = later.map(|later| (later, place));
    let later = stream::unfold(later, move |later| async move {
        let (mut later, place) = later?;
        let report = later.recv().await?;
        Some((line(report), Some((later, place))))
    });
    let lines = stream::iter(kept).map(line).chain(later);
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// A traced bundle, until it is dropped.
struct Following {
    _place: OwnedSemaphorePermit,
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
