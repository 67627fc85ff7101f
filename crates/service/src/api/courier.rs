//! An application that sends many bundles through a node and receives the bundles of one endpoint,
//! across restarts of the node.
//!
//! A thread talks to the node. It sends the bundles in order, in one stream with many in progress,
//! and retries each until the node has stored it or permanently refuses it. Deliveries not
//! confirmed when the node ended are delivered again when it is back.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool, AtomicUsize};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use hyper::Method;
use rt::Waker;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};
use tokio::sync::oneshot;

use super::client::{Coming, Connection, uri};
use super::model::{Delivery, Send, StreamSent};
use crate::http::{ClientError, wrong};

/// Maximum number of bundles that wait for the node's disk.
const IN_PROGRESS: usize = 64;

/// Pause before retrying a node that does not reply, or has no room.
const PAUSE: Duration = Duration::from_millis(200);

/// Attempts to get an endpoint that is in use: a killed predecessor of this application may still
/// hold it.
const TAKEN_TRIES: u32 = 15;

/// Maximum length of a received payload in bytes.
const PAYLOAD_MAX: u64 = 1 << 20;

/// Bundles read ahead of the application.
const READ_AHEAD: usize = 8;

/// Configuration of a [`Courier`].
#[derive(Clone, Debug)]
pub struct CourierConfig {
    /// Socket of the node.
    pub socket: PathBuf,
    /// Endpoint that bundles are sent from and received at.
    pub endpoint: String,
    /// Whether bundles to it are received.
    pub takes: bool,
    /// Lifetime of bundles.
    pub lifetime: Duration,
}

/// A bundle to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Number that identifies its outcome.
    pub number: u64,
    /// Destination endpoint.
    pub to: String,
    /// Payload.
    pub payload: Bytes,
}

/// Outcome of a bundle that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Number of the bundle.
    pub number: u64,
    /// Reason if the node refused it; otherwise it is in the node's store.
    pub refused: Option<String>,
}

/// Event at the endpoint.
#[derive(Clone, Debug)]
pub enum News {
    /// The node is reachable and delivers bundles.
    There,
    /// The node is unreachable for this reason, and is retried. Its deliveries are repeated.
    Gone(String),
    /// The node refuses this application the endpoint. Nothing is delivered any more.
    Refused {
        /// Whether another application has it.
        is_taken: bool,
        /// Message of the node.
        why: String,
    },
}

/// A delivered bundle.
#[derive(Clone, Debug)]
pub struct Handed {
    /// Delivery to confirm, valid while its node runs.
    pub delivery: Delivery,
    /// Payload; `None` if it is longer than the maximum.
    pub payload: Option<Bytes>,
    /// Session of the node, counted by reconnections.
    session: u64,
}

/// The application's side. Dropping it drops bundles not sent yet.
#[derive(Debug)]
pub struct Courier {
    outgoing: UnboundedSender<Outgoing>,
    confirmed: UnboundedSender<Delivery>,
    news: UnboundedReceiver<News>,
    bundles: Receiver<Handed>,
    outcomes: UnboundedReceiver<Outcome>,
    /// Bundles and confirmations passed to the thread and not done.
    pending: Arc<AtomicUsize>,
    /// Whether the node did not reply to the last request.
    is_away: Arc<AtomicBool>,
    /// Sessions of the node reported so far.
    session: u64,
    /// A bundle that arrived before the event of its session.
    early: Option<Handed>,
    /// Ends the thread when it is dropped.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Courier {
    /// Starts the thread; `waker` is called for every event.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn start(config: CourierConfig, waker: Waker) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (outgoing, to_send) = unbounded_channel();
        let (confirmed, to_confirm) = unbounded_channel();
        let (tells, news) = unbounded_channel();
        let (hands, bundles) = channel(READ_AHEAD);
        let (answers, outcomes) = unbounded_channel();
        let (end, ends) = oneshot::channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let is_away = Arc::new(AtomicBool::new(false));
        let rounds = Rounds {
            config,
            tells,
            hands,
            answers,
            pending: Arc::clone(&pending),
            is_away: Arc::clone(&is_away),
            waker,
            run: rt::entropy()?.next_u64(),
        };
        let work = move || run(&runtime, &rounds, (to_send, to_confirm), ends);
        let thread = std::thread::Builder::new().name("courier".to_owned()).spawn(work)?;
        let (end, thread) = (Some(end), Some(thread));
        Ok(Self {
            outgoing,
            confirmed,
            news,
            bundles,
            outcomes,
            pending,
            is_away,
            session: 0,
            early: None,
            end,
            thread,
        })
    }

    /// Sends a bundle.
    pub fn send(&self, bundle: Outgoing) {
        self.pending.fetch_add(1, atomic::Ordering::Relaxed);
        // The thread lives as long as this.
        let _ = self.outgoing.send(bundle);
    }

    /// Confirms a delivery, so that the node does not repeat it.
    pub fn confirm(&self, delivery: Delivery) {
        self.pending.fetch_add(1, atomic::Ordering::Relaxed);
        let _ = self.confirmed.send(delivery);
    }

    /// Whether all bundles and confirmations are done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.load(atomic::Ordering::Acquire) == 0
    }

    /// Whether the node did not reply to the last request.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away.load(atomic::Ordering::Acquire)
    }

    /// Returns the next event, if any. Must be called before [`Courier::bundle`].
    pub fn news(&mut self) -> Option<News> {
        let news = self.news.try_recv().ok()?;
        self.session += u64::from(matches!(news, News::There));
        Some(news)
    }

    /// Returns the next delivered bundle, if any.
    pub fn bundle(&mut self) -> Option<Handed> {
        loop {
            let handed = self.early.take().or_else(|| self.bundles.try_recv().ok())?;
            match handed.session.cmp(&self.session) {
                // The node of this delivery has ended, and will deliver it again.
                Ordering::Less => {}
                Ordering::Equal => return Some(handed),
                // The event of its session came after the last call of `news`.
                Ordering::Greater => {
                    self.early = Some(handed);
                    return None;
                }
            }
        }
    }

    /// Returns the next outcome, if any.
    pub fn outcome(&mut self) -> Option<Outcome> {
        self.outcomes.try_recv().ok()
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct Rounds {
    config: CourierConfig,
    tells: UnboundedSender<News>,
    hands: Sender<Handed>,
    answers: UnboundedSender<Outcome>,
    pending: Arc<AtomicUsize>,
    is_away: Arc<AtomicBool>,
    waker: Waker,
    /// Number of this run, in the keys of its requests.
    run: u64,
}

fn run(
    runtime: &Runtime,
    rounds: &Rounds,
    (to_send, to_confirm): (UnboundedReceiver<Outgoing>, UnboundedReceiver<Delivery>),
    ends: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        let work =
            async { tokio::join!(rounds.send(to_send), rounds.confirm(to_confirm), rounds.take()) };
        tokio::select! {
            _ = work => {}
            _ = ends => {}
        }
    });
}

impl Rounds {
    /// Sends bundles, in as many streams as it takes.
    async fn send(&self, mut bundles: UnboundedReceiver<Outgoing>) {
        let mut unstored = VecDeque::new();
        loop {
            if unstored.is_empty() {
                let Some(bundle) = bundles.recv().await else { return };
                unstored.push_back(bundle);
            }
            let ended = self.send_stream(&mut bundles, &mut unstored).await;
            let is_away = matches!(ended, Err(ClientError::Unreachable { .. }));
            self.is_away.store(is_away, atomic::Ordering::Release);
            match ended {
                Ok(()) => {}
                // The node has no room now, or is starting or stopping.
                Err(ClientError::Refused { status, .. }) if status >= 500 => {}
                Err(error) => tracing::debug!(%error, "bundles are sent to the node again"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends bundles in one stream: first those that the node has not stored, `unstored`, then new
    /// ones, which are added to them.
    async fn send_stream(
        &self,
        bundles: &mut UnboundedReceiver<Outgoing>,
        unstored: &mut VecDeque<Outgoing>,
    ) -> Result<(), ClientError> {
        let (pieces, sent) = unbounded_channel();
        let body = stream::unfold(sent, async |mut sent: UnboundedReceiver<Bytes>| {
            Some((Ok::<_, std::io::Error>(sent.recv().await?), sent))
        });
        let mut connection = Connection::new(&self.config.socket);
        let uri = uri("/bundles/stream", &[("ordered", "true")]);
        let mut replies = connection.stream(Method::POST, &uri, Body::from_stream(body)).await?;
        self.is_away.store(false, atomic::Ordering::Release);
        // The thread of the connection lives as long as this.
        let pass = |bundle: &Outgoing| {
            let _ =
                pieces.send(self.line(bundle)).and_then(|()| pieces.send(bundle.payload.clone()));
        };
        unstored.iter().for_each(pass);
        loop {
            tokio::select! {
                line = replies.line() => match line? {
                    Some(line) => self.settle(&line, unstored)?,
                    None => return Ok(()),
                },
                Some(bundle) = bundles.recv(), if unstored.len() < IN_PROGRESS => {
                    pass(&bundle);
                    unstored.push_back(bundle);
                }
            }
        }
    }

    /// Line of a bundle in a stream.
    fn line(&self, bundle: &Outgoing) -> Bytes {
        let send = Send {
            to: bundle.to.clone(),
            from: Some(self.config.endpoint.clone()),
            lifetime_ms: Some(u64::try_from(self.config.lifetime.as_millis()).unwrap_or(u64::MAX)),
            // If the bundle was stored and the response was lost, it is not sent twice.
            key: Some(format!("{:016x}-{}", self.run, bundle.number)),
            bytes: Some(bundle.payload.len() as u64),
            ..Send::default()
        };
        let mut line = serde_json::to_vec(&send).expect("texts and numbers are JSON");
        line.push(b'\n');
        line.into()
    }

    /// Handles the node's reply to the first of the bundles that are not stored.
    fn settle(&self, line: &[u8], unstored: &mut VecDeque<Outgoing>) -> Result<(), ClientError> {
        let reply: StreamSent = serde_json::from_slice(line).map_err(|error| wrong(&error))?;
        let refused = match (reply.status, reply.error.unwrap_or_default()) {
            (None, _) => None,
            (Some(status), error) if status >= 500 => {
                return Err(ClientError::Refused { status, error });
            }
            (Some(_), error) => Some(error),
        };
        let Some(Outgoing { number, .. }) = unstored.pop_front() else {
            return Err(ClientError::Answer("a reply without a bundle".to_owned()));
        };
        // The application may have ended.
        let _ = self.answers.send(Outcome { number, refused });
        self.is_done();
        Ok(())
    }

    /// Confirms one delivery after the other.
    async fn confirm(&self, mut deliveries: UnboundedReceiver<Delivery>) {
        let mut connection = Connection::new(&self.config.socket);
        while let Some(delivery) = deliveries.recv().await {
            let mut confirmed = connection.confirm(&delivery).await;
            // The node closes idle connections: retry once.
            if !matches!(confirmed, Ok(()) | Err(ClientError::Refused { .. })) {
                confirmed = connection.confirm(&delivery).await;
            }
            if let Err(error) = confirmed {
                // It has expired; or the node has ended, and will deliver it again.
                tracing::debug!(id = delivery.id, %error, "a delivery is not confirmed");
            }
            self.is_done();
        }
    }

    fn is_done(&self) {
        self.pending.fetch_sub(1, atomic::Ordering::Release);
        self.waker.wake();
    }

    /// Receives bundles while the endpoint is available.
    async fn take(&self) {
        if !self.config.takes {
            return self.tell(News::There);
        }
        let (mut session, mut taken) = (0, 0);
        loop {
            let before = session;
            match self.take_from(&mut session).await {
                Err(ClientError::Refused { status: 409, .. }) if taken < TAKEN_TRIES => taken += 1,
                // The node is starting or stopping.
                Err(ClientError::Refused { status, .. }) if status >= 500 => {}
                Err(ClientError::Refused { status, error: why }) => {
                    return self.tell(News::Refused { is_taken: status == 409, why });
                }
                ended if session > before => {
                    taken = 0;
                    let why =
                        ended.err().map_or("it has ended".to_owned(), |error| error.to_string());
                    self.tell(News::Gone(why));
                }
                // The node was not reachable.
                Ok(()) | Err(ClientError::Unreachable { .. } | ClientError::Answer(_)) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn take_from(&self, session: &mut u64) -> Result<(), ClientError> {
        let mut connection = Connection::new(&self.config.socket);
        let mut coming = connection.take(&[("endpoint", &self.config.endpoint)]).await?;
        *session += 1;
        self.tell(News::There);
        while let Some(delivery) = coming.next().await? {
            let payload = payload(&mut coming, delivery.bytes).await?;
            // The application may have ended.
            let _ = self.hands.send(Handed { delivery, payload, session: *session }).await;
            self.waker.wake();
        }
        Ok(())
    }

    fn tell(&self, news: News) {
        let _ = self.tells.send(news);
        self.waker.wake();
    }
}

/// Reads a payload; one that is too long is read and dropped.
async fn payload(coming: &mut Coming, bytes: u64) -> Result<Option<Bytes>, ClientError> {
    let mut payload = BytesMut::new();
    let mut left = bytes;
    while left > 0 {
        let piece = coming.piece(left).await?;
        left -= piece.len() as u64;
        if bytes <= PAYLOAD_MAX {
            payload.extend_from_slice(&piece);
        }
    }
    Ok((bytes <= PAYLOAD_MAX).then(|| payload.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(session: u64) -> Handed {
        let (id, source) = (format!("bundle of session {session}"), "ipn:1.9".to_owned());
        let delivery = Delivery { delivery: session, id, source, ..Delivery::default() };
        Handed { delivery, payload: Some(Bytes::new()), session }
    }

    /// The courier's thread may report a session and deliver a bundle between any two calls.
    #[test]
    fn bundles_before_the_announcement_of_their_node_are_kept() {
        let (outgoing, _to_send) = unbounded_channel();
        let (confirmed, _to_confirm) = unbounded_channel();
        let (tells, news) = unbounded_channel();
        let (hands, bundles) = channel(READ_AHEAD);
        let (_answers, outcomes) = unbounded_channel();
        let mut courier = Courier {
            outgoing,
            confirmed,
            news,
            bundles,
            outcomes,
            pending: Arc::default(),
            is_away: Arc::default(),
            session: 0,
            early: None,
            end: None,
            thread: None,
        };
        let next = |courier: &mut Courier| courier.bundle().map(|handed| handed.session);
        for session in 1..=2 {
            assert!(courier.news().is_none());
            tells.send(News::There).unwrap();
            hands.try_send(handed(session)).unwrap();
            assert_eq!(next(&mut courier), None, "the news come first");
            assert!(matches!(courier.news(), Some(News::There)));
            assert_eq!(next(&mut courier), Some(session));
            tells.send(News::Gone("it ended".to_owned())).unwrap();
            assert!(matches!(courier.news(), Some(News::Gone(_))));
        }
        // The node has restarted since: it delivers this one again.
        hands.try_send(handed(3)).unwrap();
        tells.send(News::There).unwrap();
        tells.send(News::There).unwrap();
        while courier.news().is_some() {}
        assert_eq!(next(&mut courier), None);
    }
}
