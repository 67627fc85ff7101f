//! Bundles of applications: one in a request, or many in a stream.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use bp::agent::{SendRequest, Version};
use bp::codec::bp7::{BundleFlags, Eid, Reason};
use bp::layer::Content;
use bp::routes::Priority;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::hub::Submitted;
use super::model::{Send, SendStream, Sent, StreamSent, report_flags};
use super::payload::{self, Fault, Place};
use super::request::{Answer, Queried, Running, eid, endpoint, query, refused};
use crate::http::{Pause, Refusal};
use crate::node::ApplicationLimits;

/// Default lifetime of a bundle: a day.
const LIFETIME_MS: u64 = 86_400_000;
/// Header with the key of a request.
const KEY: &str = "idempotency-key";
/// Maximum length of a key.
const KEY_MAX: usize = 255;
/// Bundles of a stream that are being stored at a time.
const IN_PROGRESS: usize = 1024;
/// Bundles of a stream that are passed to the agent at a time.
const BATCH: usize = 64;
/// Maximum length of a line before a payload.
const LINE_MAX: usize = 64 << 10;
/// Bytes of replies that are sent at a time.
const REPLIES: usize = 64 << 10;

/// POST: sends a bundle, whose payload is the body. Responds when it is stored.
pub(super) async fn send(
    State(shared): Running,
    request: Queried<Send>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let mut payload = body.into_data_stream();
    let sent = take(&shared, request, &headers, &mut payload).await;
    if sent.is_err() {
        payload::skip(&mut payload).await;
    }
    sent
}

async fn take(
    shared: &Shared,
    request: Queried<Send>,
    headers: &HeaderMap,
    payload: &mut BodyDataStream,
) -> Answer<Response> {
    let mut request = query(request)?;
    if let Some(key) = headers.get(KEY) {
        let key = key.to_str().map_err(|_| Refusal::wrong(format!("{KEY}: not text")))?;
        request.key = Some(key.to_owned());
    }
    let expected = request.bytes;
    let mut request = self::request(shared, &request)?;
    request.payload = content(shared, payload).await?;
    let file = owned(shared, &mut request);
    let len = request.payload.len();
    let is_other = expected.is_some_and(|bytes| bytes != len);
    let sent = if is_other {
        Err(Refusal::wrong(format!("bytes: the payload has {len}")))
    } else {
        let (answer, answered) = oneshot::channel();
        submit(shared, vec![(request, answer)], &Halt::default());
        outcome(shared, answered.await.ok())
    };
    match sent {
        Ok((id, is_new)) => {
            if !is_new {
                remove(file);
            }
            let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
            Ok((status, Json(Sent { id })).into_response())
        }
        Err(refusal) => {
            remove(file);
            Err(refusal)
        }
    }
}

/// Reads a payload of any length.
async fn content<S>(shared: &Shared, payload: &mut S) -> Answer<Content>
where
    S: Stream<Item = Result<Bytes, axum::Error>> + Unpin,
{
    let place = async || {
        let spool = shared.spool.clone()?;
        let name = shared.ask(|_, agent| agent.working_file()).await.ok()?;
        Some(Place { path: spool.join(name.path()), name })
    };
    let ApplicationLimits { inline, payload: most } = shared.reload.limits();
    payload::take(payload, inline, most, place).await.map_err(|fault| match fault {
        Fault::TooLong(_) => Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, fault.to_string()),
        Fault::Cut(_) => Refusal::new(StatusCode::BAD_REQUEST, fault.to_string()),
        Fault::Store(_) => Refusal::new(StatusCode::INSUFFICIENT_STORAGE, fault.to_string()),
    })
}

/// Gives the file of a payload to its bundle. Returns its path.
fn owned(shared: &Shared, request: &mut SendRequest) -> Option<PathBuf> {
    let file = match &request.payload {
        Content::File { name, .. } => shared.spool.as_ref().map(|spool| spool.join(name.path())),
        Content::Bytes(_) => None,
    };
    request.owns_file = file.is_some();
    file
}

/// Removes the file of a payload that no bundle has.
fn remove(file: Option<PathBuf>) {
    if let Some(file) = file {
        // If that fails, it is removed at the node's next start.
        let _ = std::fs::remove_file(file);
    }
}

/// Parses a request, without its payload.
fn request(shared: &Shared, send: &Send) -> Answer<SendRequest> {
    let to = eid("to", &send.to)?;
    let source = send.from.as_deref().map(|text| endpoint(&shared.node, text)).transpose()?;
    let report_to = send.report_to.as_deref().map(|text| eid("report_to", text)).transpose()?;
    let priority = match send.priority.as_deref() {
        Some("bulk") => Priority::Bulk,
        None | Some("normal") => Priority::Normal,
        Some("expedited") => Priority::Expedited,
        Some(other) => {
            return Err(Refusal::wrong(format!(
                "priority: {other:?} is none of bulk, normal, expedited"
            )));
        }
    };
    let version = match send.version {
        Some(6) => Version::Six,
        None | Some(7) => Version::Seven,
        Some(other) => {
            return Err(Refusal::wrong(format!(
                "version: there is no version {other}, but 6 and 7"
            )));
        }
    };
    if send.hop_limit == Some(0) {
        return Err(Refusal::wrong("hop_limit: it is 0; write 1 or more"));
    }
    let key = send.key.as_deref().map(|key| digest(key, send)).transpose()?;
    Ok(SendRequest {
        flags: flags(send, source.as_ref())?,
        source,
        report_to,
        lifetime: Duration::from_millis(send.lifetime_ms.unwrap_or(LIFETIME_MS)),
        priority,
        version,
        custody: send.custody,
        hop_limit: send.hop_limit,
        key,
        ..SendRequest::new(to, Bytes::new())
    })
}

fn flags(send: &Send, source: Option<&Eid>) -> Answer<BundleFlags> {
    let mut flags = match &send.reports {
        Some(names) => report_flags(names).map_err(Refusal::wrong)?,
        None => BundleFlags::default(),
    };
    if send.report_times {
        flags = flags.with(BundleFlags::STATUS_TIME);
    }
    // RFC 9171 §4.2.3: a bundle without source must not be fragmented.
    if send.must_not_fragment || source.is_some_and(Eid::is_none) {
        flags = flags.with(BundleFlags::MUST_NOT_FRAGMENT);
    }
    Ok(flags)
}

/// Digest of a key, and of the endpoints: the same key of another application is another.
fn digest(key: &str, send: &Send) -> Answer<u128> {
    if key.is_empty() || key.len() > KEY_MAX {
        return Err(Refusal::wrong(format!("key: it has 1 to {KEY_MAX} bytes")));
    }
    let mut hash = Sha256::new();
    for part in [key, &send.to, send.from.as_deref().unwrap_or_default()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    Ok(hash[..16].iter().fold(0, |key, byte| key << 8 | u128::from(*byte)))
}

type Request = (SendRequest, oneshot::Sender<Submitted>);

/// Switch that keeps the order of a stream: once there was no room for a bundle, those behind it
/// are refused.
#[derive(Clone, Debug, Default)]
struct Halt {
    is_ordered: bool,
    is_halted: Arc<AtomicBool>,
}

impl Halt {
    fn is_on(&self) -> bool {
        self.is_ordered && self.is_halted.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.is_halted.store(true, Ordering::Relaxed);
    }
}

/// Passes bundles to the agent.
fn submit(shared: &Shared, requests: Vec<Request>, halt: &Halt) {
    let (hub, halt) = (Arc::clone(&shared.hub), halt.clone());
    shared.handle.ask(move |now, agent| {
        for (request, answer) in requests {
            if halt.is_on() {
                // The client may have gone.
                let _ = answer.send(Submitted::Halted);
            } else if !hub.submit(now, agent, request, answer) {
                halt.set();
            }
        }
    });
}

/// Bundle ID, and whether the bundle is new.
fn outcome(shared: &Shared, submitted: Option<Submitted>) -> Answer<(String, bool)> {
    let stopped = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the node is being stopped");
    let (status, why) = match submitted.ok_or_else(stopped)? {
        Submitted::Stored(id) => return Ok((id.to_string(), true)),
        Submitted::Repeated(id) => return Ok((id.to_string(), false)),
        Submitted::Refused(error) => return Err(refused(error)),
        // Only a full store may be worth a retry.
        Submitted::Deleted(Reason::DepletedStorage) => {
            let (_, trouble) = shared.hub.state();
            let why = trouble.unwrap_or_else(|| "the node did not keep it".to_owned());
            (StatusCode::INSUFFICIENT_STORAGE, why)
        }
        Submitted::Deleted(reason) => (StatusCode::UNPROCESSABLE_ENTITY, reason.to_string()),
        Submitted::Halted => {
            let why = "there was no room for a bundle before it".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, why)
        }
    };
    Err(Refusal::new(status, format!("the bundle was not stored: {why}")))
}

/// POST: sends bundles, each a line of JSON followed by its payload. Responds with a line for
/// each, in the same order, when it is stored.
pub(super) async fn send_stream(
    State(shared): Running,
    Extension(pause): Extension<Pause>,
    stream: Queried<SendStream>,
    body: Body,
) -> Answer<Response> {
    let halt = Halt { is_ordered: query(stream)?.ordered, ..Halt::default() };
    let (reply, replies) = mpsc::channel(IN_PROGRESS);
    let input = Input { body: body.into_data_stream(), bytes: BytesMut::new(), is_over: false };
    let reader =
        Reader { shared: Arc::clone(&shared), input, pause, halt, batch: Vec::new(), reply };
    tokio::spawn(reader.run());
    let replies = Replies { shared, replies, next: None, number: 0 };
    let lines = stream::unfold(replies, |mut replies| async move {
        let lines = replies.lines().await?;
        Some((Ok::<_, std::io::Error>(lines), replies))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// A bundle of a stream whose reply is due.
enum Due {
    /// It was passed to the agent; the file of its payload.
    Submitted(oneshot::Receiver<Submitted>, Option<PathBuf>),
    Refused(Refusal),
}

/// Body of a stream of bundles.
struct Input {
    body: BodyDataStream,
    bytes: BytesMut,
    is_over: bool,
}

impl Input {
    /// Reads more bytes; returns `false` at the end.
    async fn more(&mut self) -> Result<bool, axum::Error> {
        match self.body.next().await.transpose()? {
            Some(piece) => self.bytes.extend_from_slice(&piece),
            None => self.is_over = true,
        }
        Ok(!self.is_over)
    }

    /// Takes the next line, if all of it has been read.
    fn line(&mut self) -> Option<BytesMut> {
        let at = self.bytes.iter().position(|byte| *byte == b'\n')?;
        Some(self.bytes.split_to(at + 1))
    }

    /// Next bytes of a payload of which `left` are to come.
    async fn piece(&mut self, left: u64) -> Result<Bytes, axum::Error> {
        while self.bytes.is_empty() {
            if !self.more().await? {
                return Err(axum::Error::new("the stream ends within a payload"));
            }
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        Ok(self.bytes.split_to(most.min(self.bytes.len())).freeze())
    }

    /// A payload in pieces.
    fn payload(&mut self, left: u64) -> impl Stream<Item = Result<Bytes, axum::Error>> {
        stream::unfold((self, left), |(input, left)| async move {
            if left == 0 {
                return None;
            }
            let piece = input.piece(left).await;
            let read = piece.as_ref().map_or(left, |piece| piece.len() as u64);
            Some((piece, (input, left - read)))
        })
    }
}

/// Reads a stream of bundles.
struct Reader {
    shared: Arc<Shared>,
    input: Input,
    pause: Pause,
    halt: Halt,
    batch: Vec<Request>,
    reply: mpsc::Sender<Due>,
}

impl Reader {
    /// Reads to the end; a fault of the stream is the last reply.
    async fn run(mut self) {
        loop {
            match self.next().await {
                Ok(true) => {}
                Ok(false) => return self.flush(),
                Err(refusal) => {
                    self.flush();
                    // The client may have gone.
                    let _ = self.reply.send(Due::Refused(refusal)).await;
                    // A client that still sends when the connection ends never reads the replies.
                    return payload::skip(&mut self.input.body).await;
                }
            }
        }
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            submit(&self.shared, std::mem::take(&mut self.batch), &self.halt);
        }
    }

    /// Reads a bundle; returns `false` at the end, or when the client has gone.
    async fn next(&mut self) -> Answer<bool> {
        let cut = |error: axum::Error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string());
        let line = loop {
            if let Some(line) = self.input.line() {
                break line;
            }
            if self.input.bytes.len() > LINE_MAX {
                return Err(Refusal::wrong(format!("a line has more than {LINE_MAX} bytes")));
            }
            // The client may wait for replies before it sends more.
            self.flush();
            self.pause.set(self.input.bytes.is_empty());
            let is_more = self.input.more().await.map_err(cut)?;
            self.pause.set(false);
            if !is_more {
                let is_cut = !self.input.bytes.is_empty();
                return if is_cut {
                    Err(cut(axum::Error::new("the last line is cut")))
                } else {
                    Ok(false)
                };
            }
        };
        let wrong = |error: serde_json::Error| Refusal::wrong(format!("a bundle's line: {error}"));
        let send: Send = serde_json::from_slice(&line).map_err(wrong)?;
        let bytes = send.bytes.ok_or_else(|| Refusal::wrong("a bundle's line has no `bytes`"))?;
        let due = match self.bundle(&send, bytes).await? {
            Ok(due) => due,
            Err(refusal) => {
                if refusal.status.is_server_error() {
                    self.halt.set();
                }
                Due::Refused(refusal)
            }
        };
        if self.batch.len() >= BATCH || self.reply.capacity() == 0 {
            self.flush();
        }
        Ok(self.reply.send(due).await.is_ok())
    }

    /// Reads a payload and passes the bundle to the agent. The outer error is one of the stream.
    async fn bundle(&mut self, send: &Send, bytes: u64) -> Answer<Answer<Due>> {
        let cut = |error: axum::Error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string());
        let shared = Arc::clone(&self.shared);
        let ApplicationLimits { inline, payload: most } = shared.reload.limits();
        let parsed = request(&shared, send);
        let mut request = match parsed {
            Ok(request) if bytes <= most => request,
            other => {
                let mut left = bytes;
                while left > 0 {
                    left -= self.input.piece(left).await.map_err(cut)?.len() as u64;
                }
                let long = Fault::TooLong(most).to_string();
                let long = Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, long);
                return Ok(other.and(Err(long)));
            }
        };
        if bytes <= inline as u64 {
            let len = usize::try_from(bytes).unwrap_or(usize::MAX);
            while self.input.bytes.len() < len {
                self.flush();
                if !self.input.more().await.map_err(cut)? {
                    return Err(cut(axum::Error::new("the stream ends within a payload")));
                }
            }
            request.payload = Content::Bytes(self.input.bytes.split_to(len).freeze());
        } else {
            self.flush();
            // It is read to its end, and then what a fault left of it.
            let mut payload = Box::pin(self.input.payload(bytes).fuse());
            let content = content(&shared, &mut payload).await;
            while let Some(piece) = payload.next().await {
                piece.map_err(cut)?;
            }
            drop(payload);
            match content {
                Ok(content) => request.payload = content,
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        let file = owned(&shared, &mut request);
        let (answer, answered) = oneshot::channel();
        self.batch.push((request, answer));
        Ok(Ok(Due::Submitted(answered, file)))
    }
}

/// Replies of a stream of bundles, in order.
struct Replies {
    shared: Arc<Shared>,
    replies: mpsc::Receiver<Due>,
    /// Reply that was not ready when the others were sent.
    next: Option<Due>,
    number: u64,
}

impl Replies {
    /// Waits for a reply, and collects those that are ready behind it.
    async fn lines(&mut self) -> Option<Bytes> {
        let first = match self.next.take() {
            Some(due) => due,
            None => self.replies.recv().await?,
        };
        let mut lines = Vec::new();
        let result = match first {
            Due::Refused(refusal) => Err(refusal),
            Due::Submitted(answered, file) => self.settle(answered.await.ok(), file),
        };
        self.line(result, &mut lines);
        while lines.len() < REPLIES
            && let Ok(due) = self.replies.try_recv()
        {
            let result = match due {
                Due::Refused(refusal) => Err(refusal),
                Due::Submitted(mut answered, file) => match answered.try_recv() {
                    Err(oneshot::error::TryRecvError::Empty) => {
                        self.next = Some(Due::Submitted(answered, file));
                        break;
                    }
                    submitted => self.settle(submitted.ok(), file),
                },
            };
            self.line(result, &mut lines);
        }
        Some(lines.into())
    }

    fn settle(&self, submitted: Option<Submitted>, file: Option<PathBuf>) -> Answer<String> {
        let settled = outcome(&self.shared, submitted);
        if !matches!(settled, Ok((_, true))) {
            remove(file);
        }
        settled.map(|(id, _)| id)
    }

    fn line(&mut self, result: Answer<String>, lines: &mut Vec<u8>) {
        let number = self.number;
        self.number += 1;
        let line = match result {
            Ok(id) => StreamSent { number, id: Some(id), ..StreamSent::default() },
            Err(Refusal { status, error }) => {
                let (status, error) = (Some(status.as_u16()), Some(error));
                StreamSent { number, id: None, status, error }
            }
        };
        // Writing to memory cannot fail.
        if serde_json::to_writer(&mut *lines, &line).is_ok() {
            lines.push(b'\n');
        }
    }
}
