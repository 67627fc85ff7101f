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
use bp::agent::Version;
use bp::app::{NodeFacts, Outgoing, Piece};
use bp::codec::bp7::BundleFlags;
use bp::layer::Content;
use bp::routes::Priority;
use bytes::{Bytes, BytesMut};
use hyper::Method;
use rt::Waker;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};
use tokio::sync::oneshot;

use super::client::{Coming, confirm, uri};
use super::model::{Delivery, Node, REPORTS, Send, StreamSent};
pub use super::upload::Outcome;
use super::upload::{Faults, Load, Upload, stream_of};
use crate::http::{ClientError, Connection, request, wrong};

/// Maximum number of bundles that wait for the node's disk.
const IN_PROGRESS: usize = 64;

/// Pause before retrying a node that does not reply, or has no room.
const PAUSE: Duration = Duration::from_millis(200);

/// Longest pause before a long payload is sent again to a node without room.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Attempts to get an endpoint that is in use: a killed predecessor of this application may still
/// hold it.
const TAKEN_TRIES: u32 = 15;

/// Bytes of a payload that are read at a time.
const PIECE: usize = 256 << 10;

/// Pieces read ahead of the application.
const READ_AHEAD: usize = 8;

/// HTTP status of a node whose store has no room.
const NO_ROOM: u16 = 507;

/// Configuration of a [`Courier`].
#[derive(Clone, Debug)]
pub struct CourierConfig {
    /// Socket of the node.
    pub socket: PathBuf,
    /// Reader of the files that excerpts are from, if there are any.
    pub files: Option<rt::Reader>,
    /// Endpoint at which bundles are received, if any.
    pub endpoint: Option<String>,
    /// Use of the endpoint together with other applications.
    pub share: Option<&'static str>,
    /// Whether a node that does not reply is tried again.
    pub persists: bool,
}

/// Event at the node.
#[derive(Clone, Debug)]
pub enum News {
    /// The node is reachable and delivers bundles.
    There(NodeFacts),
    /// The node is unreachable for this reason. Its deliveries are repeated when it is back.
    Gone(String),
    /// The node refuses this application the endpoint. Nothing is delivered any more.
    Refused {
        /// Whether another application has it.
        is_taken: bool,
        /// Message of the node.
        why: String,
    },
}

/// Part of a delivery.
#[derive(Clone, Debug)]
pub enum Handed {
    /// The next delivery, valid while its node runs, with its first bytes.
    Came(Delivery, Piece),
    /// More bytes of it.
    More(Piece),
}

/// The application's side. Dropping it drops bundles not sent yet.
#[derive(Debug)]
pub struct Courier {
    outgoing: UnboundedSender<Box<Outgoing>>,
    confirmed: UnboundedSender<Delivery>,
    news: UnboundedReceiver<News>,
    /// Deliveries, with the session of their node, counted by reconnections.
    bundles: Receiver<(u64, Handed)>,
    outcomes: UnboundedReceiver<Outcome>,
    /// Bundles and confirmations passed to the thread and not done.
    pending: Arc<AtomicUsize>,
    /// Whether the node did not reply to the last request.
    is_away: Arc<AtomicBool>,
    /// Sessions of the node reported so far, and whether the last one goes on.
    session: u64,
    is_live: bool,
    /// A delivery that arrived before the event of its session.
    early: Option<(u64, Handed)>,
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
        let work = move || run(&runtime, &rounds, to_send, to_confirm, ends);
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
            is_live: false,
            early: None,
            end,
            thread,
        })
    }

    /// Sends a bundle.
    pub fn send(&self, bundle: Box<Outgoing>) {
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
        self.is_live = matches!(news, News::There(_));
        self.session += u64::from(self.is_live);
        Some(news)
    }

    /// Returns the next part of a delivery, if any.
    pub fn bundle(&mut self) -> Option<Handed> {
        loop {
            let (session, handed) = self.early.take().or_else(|| self.bundles.try_recv().ok())?;
            match session.cmp(&self.session) {
                Ordering::Equal if self.is_live => return Some(handed),
                // The node of this delivery has ended, and will deliver it again.
                Ordering::Less | Ordering::Equal => {}
                // The event of its session came after the last call of `news`.
                Ordering::Greater => {
                    self.early = Some((session, handed));
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
    hands: Sender<(u64, Handed)>,
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
    to_send: UnboundedReceiver<Box<Outgoing>>,
    to_confirm: UnboundedReceiver<Delivery>,
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
    async fn send(&self, mut bundles: UnboundedReceiver<Box<Outgoing>>) {
        let mut unstored = VecDeque::new();
        let mut pause = PAUSE;
        loop {
            if unstored.is_empty() {
                let Some(bundle) = bundles.recv().await else { return };
                unstored.push_back(bundle);
                pause = PAUSE;
            }
            let faults = Faults::default();
            let before = unstored.len();
            let ended = self.send_stream(&mut bundles, &mut unstored, &faults).await;
            self.refuse_broken(&mut unstored, &faults);
            let is_away = matches!(ended, Err(ClientError::Unreachable { .. }));
            self.is_away.store(is_away, atomic::Ordering::Release);
            match ended {
                Ok(()) => {}
                Err(_) if unstored.is_empty() => continue,
                Err(ClientError::Refused { status: NO_ROOM, error }) => {
                    let first = unstored.front();
                    if let Some(Outgoing { id, .. }) = first.map(|bundle| &**bundle) {
                        self.answer(Outcome::Waiting(*id, error));
                    }
                    // While there is no room, a long payload is sent for nothing.
                    let is_long = first.is_some_and(|bundle| bundle.excerpt.is_some());
                    let has_advanced = unstored.len() < before;
                    pause = if is_long && !has_advanced { pause * 2 } else { PAUSE }.min(PAUSE_MAX);
                }
                Err(error) if !self.config.persists => {
                    return self.notify(News::Gone(error.to_string()));
                }
                // The node is starting or stopping.
                Err(ClientError::Refused { status, .. }) if status >= 500 => {}
                Err(error) => tracing::debug!(%error, "bundles are sent to the node again"),
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Refuses bundles whose files cannot be read, or have changed.
    fn refuse_broken(&self, unstored: &mut VecDeque<Box<Outgoing>>, faults: &Faults) {
        for (id, why) in faults.take() {
            if let Some(at) = unstored.iter().position(|bundle| bundle.id == id) {
                unstored.remove(at);
                self.answer(Outcome::Refused(id, why));
                self.finish_one();
            }
        }
    }

    /// Sends bundles in one stream: first those that the node has not stored, `unstored`, then new
    /// ones, which are added to them.
    async fn send_stream(
        &self,
        bundles: &mut UnboundedReceiver<Box<Outgoing>>,
        unstored: &mut VecDeque<Box<Outgoing>>,
        faults: &Faults,
    ) -> Result<(), ClientError> {
        let (loads, to_send) = unbounded_channel();
        let body = Body::from_stream(stream_of(to_send));
        let mut connection = Connection::new(&self.config.socket);
        let request = request(Method::POST, &uri("/bundles/stream", &[("ordered", "true")]));
        let mut replies = Coming::open(&mut connection, request, body).await?;
        self.is_away.store(false, atomic::Ordering::Release);
        // The thread of the connection lives as long as this.
        let pass = |bundle: &Outgoing| {
            let _ = loads.send(Load::Bytes(self.line(bundle)));
            if let Content::Bytes(bytes) = &bundle.request.payload {
                let _ = loads.send(Load::Bytes(bytes.clone()));
            }
            if let Some(excerpt) = &bundle.excerpt {
                let _ = loads.send(Load::Excerpt(Box::new(Upload {
                    id: bundle.id,
                    files: self.config.files.clone(),
                    excerpt: excerpt.clone(),
                    answers: self.answers.clone(),
                    waker: self.waker.clone(),
                    faults: faults.clone(),
                })));
            }
        };
        unstored.iter().for_each(|bundle| pass(bundle));
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
        let request = &bundle.request;
        let has = |flag| request.flags.contains(flag);
        let reports = REPORTS.iter().filter(|(flag, _)| has(*flag)).map(|(_, name)| *name);
        let reports = reports.collect::<Vec<_>>().join(",");
        // If the bundle was stored and the response was lost, it is not sent twice.
        let key = match request.key {
            Some(key) => format!("{key:032x}"),
            None => format!("{:016x}-{}", self.run, bundle.id.0),
        };
        let send = Send {
            to: request.destination.to_string(),
            from: request.source.as_ref().map(ToString::to_string),
            lifetime_ms: Some(u64::try_from(request.lifetime.as_millis()).unwrap_or(u64::MAX)),
            priority: match request.priority {
                Priority::Bulk => Some("bulk".to_owned()),
                Priority::Normal => None,
                Priority::Expedited => Some("expedited".to_owned()),
            },
            report_to: request.report_to.as_ref().map(ToString::to_string),
            reports: Some(reports).filter(|reports| !reports.is_empty()),
            report_times: has(BundleFlags::STATUS_TIME),
            must_not_fragment: has(BundleFlags::MUST_NOT_FRAGMENT),
            hop_limit: request.hop_limit,
            key: Some(key),
            bytes: Some(bundle.payload_len()),
            version: (request.version == Version::Six).then_some(6),
            custody: request.custody,
        };
        let mut line = serde_json::to_vec(&send).expect("texts and numbers are JSON");
        line.push(b'\n');
        line.into()
    }

    /// Handles the node's reply to the first of the bundles that are not stored.
    fn settle(
        &self,
        line: &[u8],
        unstored: &mut VecDeque<Box<Outgoing>>,
    ) -> Result<(), ClientError> {
        let reply: StreamSent = serde_json::from_slice(line).map_err(|error| wrong(&error))?;
        let refused = match (reply.status, reply.error.unwrap_or_default()) {
            (None, _) => None,
            (Some(status), error) if status >= 500 => {
                return Err(ClientError::Refused { status, error });
            }
            (Some(_), error) => Some(error),
        };
        let Some(bundle) = unstored.pop_front() else {
            return Err(ClientError::Answer("a reply without a bundle".to_owned()));
        };
        self.answer(match refused {
            None => Outcome::Stored(bundle.id),
            Some(why) => Outcome::Refused(bundle.id, why),
        });
        self.finish_one();
        Ok(())
    }

    fn answer(&self, outcome: Outcome) {
        // The application may have ended.
        let _ = self.answers.send(outcome);
        self.waker.wake();
    }

    /// Confirms one delivery after the other.
    async fn confirm(&self, mut deliveries: UnboundedReceiver<Delivery>) {
        let mut connection = Connection::new(&self.config.socket);
        while let Some(delivery) = deliveries.recv().await {
            let mut confirmed = confirm(&mut connection, &delivery).await;
            // The node closes idle connections: retry once.
            if !matches!(confirmed, Ok(()) | Err(ClientError::Refused { .. })) {
                confirmed = confirm(&mut connection, &delivery).await;
            }
            if let Err(error) = confirmed {
                // It has expired; or the node has ended, and will deliver it again.
                tracing::debug!(id = delivery.id, %error, "a delivery is not confirmed");
            }
            self.finish_one();
        }
    }

    /// Notes that an order was carried out.
    fn finish_one(&self) {
        self.pending.fetch_sub(1, atomic::Ordering::Release);
        self.waker.wake();
    }

    /// Reports the node, and receives bundles while the endpoint is available.
    async fn take(&self) {
        let (mut session, mut taken) = (0, 0);
        loop {
            let before = session;
            match self.take_from(&mut session).await {
                Ok(()) if self.config.endpoint.is_none() => return,
                Err(ClientError::Refused { status: 409, .. }) if taken < TAKEN_TRIES => taken += 1,
                Err(ClientError::Refused { status, error: why }) if status < 500 => {
                    return self.notify(News::Refused { is_taken: status == 409, why });
                }
                ended if session > before => {
                    taken = 0;
                    let why =
                        ended.err().map_or("it has ended".to_owned(), |error| error.to_string());
                    self.notify(News::Gone(why));
                }
                Err(error) if !self.config.persists => {
                    return self.notify(News::Gone(error.to_string()));
                }
                // The node is not reachable, or is starting or stopping.
                Ok(()) | Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn take_from(&self, session: &mut u64) -> Result<(), ClientError> {
        let mut connection = Connection::new(&self.config.socket);
        let node: Node = connection.json(request(Method::GET, "/node"), Body::empty()).await?;
        let memory_of = (!node.is_persistent).then_some(node.pid);
        let there = News::There(NodeFacts { memory_of, follows: false });
        let Some(endpoint) = &self.config.endpoint else {
            self.notify(there);
            return Ok(());
        };
        let share = self.config.share.map(|share| ("share", share));
        let query: Vec<_> = [("endpoint", endpoint.as_str())].into_iter().chain(share).collect();
        let mut coming = Coming::take(&mut connection, &query).await?;
        *session += 1;
        self.notify(there);
        while let Some(delivery) = coming.next().await? {
            let mut left = delivery.bytes;
            let first = piece(&mut coming, &mut left).await?;
            self.hand(*session, Handed::Came(delivery, first)).await;
            while left > 0 {
                let more = piece(&mut coming, &mut left).await?;
                self.hand(*session, Handed::More(more)).await;
            }
        }
        Ok(())
    }

    async fn hand(&self, session: u64, handed: Handed) {
        // The application may have ended.
        let _ = self.hands.send((session, handed)).await;
        self.waker.wake();
    }

    fn notify(&self, news: News) {
        let _ = self.tells.send(news);
        self.waker.wake();
    }
}

/// Reads the next piece of a payload of which `left` bytes are to come.
async fn piece(coming: &mut Coming, left: &mut u64) -> Result<Piece, ClientError> {
    let mut bytes = BytesMut::new();
    while *left > 0 && bytes.len() < PIECE {
        let next = coming.piece((*left).min((PIECE - bytes.len()) as u64)).await?;
        *left -= next.len() as u64;
        if *left == 0 && bytes.is_empty() {
            return Ok(Piece { bytes: next, is_last: true });
        }
        bytes.extend_from_slice(&next);
    }
    Ok(Piece { bytes: bytes.freeze(), is_last: *left == 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(session: u64) -> (u64, Handed) {
        let (id, source) = (format!("bundle of session {session}"), "ipn:1.9".to_owned());
        let delivery = Delivery { delivery: session, id, source, ..Delivery::default() };
        (session, Handed::Came(delivery, Piece::default()))
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
            is_live: false,
            early: None,
            end: None,
            thread: None,
        };
        let next = |courier: &mut Courier| match courier.bundle()? {
            Handed::Came(delivery, _) => Some(delivery.delivery),
            Handed::More(_) => None,
        };
        for session in 1..=2 {
            assert!(courier.news().is_none());
            tells.send(News::There(NodeFacts::default())).unwrap();
            hands.try_send(handed(session)).unwrap();
            assert_eq!(next(&mut courier), None, "the news come first");
            assert!(matches!(courier.news(), Some(News::There(_))));
            assert_eq!(next(&mut courier), Some(session));
            tells.send(News::Gone("it ended".to_owned())).unwrap();
            assert!(matches!(courier.news(), Some(News::Gone(_))));
        }
        // The node has restarted since: it delivers this one again.
        hands.try_send(handed(3)).unwrap();
        tells.send(News::There(NodeFacts::default())).unwrap();
        tells.send(News::There(NodeFacts::default())).unwrap();
        while courier.news().is_some() {}
        assert_eq!(next(&mut courier), None);
    }
}
