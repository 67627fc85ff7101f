//! An application of a node that hands in many bundles and takes those of one endpoint, while the node comes and goes.
//!
//! A thread asks the node. Bundles that are handed in are tried until the node has them, or says that it never will; what was not
//! confirmed when the node ended is handed over again when it is there.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool, AtomicUsize};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::future::join_all;
use hyper::Method;
use rt::Waker;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};
use tokio::sync::{Mutex, oneshot};

use super::client::{Coming, Connection, uri, whole};
use super::model::Delivery;
use crate::http::ClientError;

/// Connections over which bundles are handed in: each waits for the node's disk.
const SENDERS: usize = 8;

/// How long a node that does not answer, or has no room, is left alone.
const PAUSE: Duration = Duration::from_millis(200);

/// How often an endpoint is asked for that somebody has: it may be what this application was before, which was killed just now.
const TAKEN_TRIES: u32 = 15;

/// Bytes of the longest payload that is taken.
const PAYLOAD_MAX: u64 = 1 << 20;

/// Bundles that were read and nobody has taken yet.
const READ_AHEAD: usize = 8;

/// What a [`Courier`] is told.
#[derive(Clone, Debug)]
pub struct CourierConfig {
    /// The node's socket.
    pub socket: PathBuf,
    /// The endpoint from which bundles come, and to which they are to come.
    pub endpoint: String,
    /// Whether those that come to it are taken.
    pub takes: bool,
    /// How long bundles are of use.
    pub lifetime: Duration,
}

/// A bundle to hand in.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// What its end is told by.
    pub number: u64,
    /// The endpoint for which it is.
    pub to: String,
    /// Its payload.
    pub payload: Bytes,
}

/// What became of a bundle that was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its number.
    pub number: u64,
    /// Why the node does not take it, if it does not; it is in the node's store otherwise.
    pub refused: Option<String>,
}

/// What happens at the endpoint.
#[derive(Clone, Debug)]
pub enum News {
    /// The node is there, and hands over what comes.
    There,
    /// It is gone, for this reason, and is tried again. What it handed over comes again.
    Gone(String),
    /// It does not let this application have the endpoint. Nothing more comes.
    Refused {
        /// Whether another application has it.
        is_taken: bool,
        /// What it says.
        why: String,
    },
}

/// A bundle that was handed over.
#[derive(Clone, Debug)]
pub struct Handed {
    /// What confirms it, as long as the node is there that was there when it came.
    pub delivery: Delivery,
    /// Its payload; `None` if that is longer than any that is taken.
    pub payload: Option<Bytes>,
    /// How often the node had been found to be there.
    session: u64,
}

/// The application's side. When it goes, so does what was not handed in.
#[derive(Debug)]
pub struct Courier {
    outgoing: UnboundedSender<Outgoing>,
    confirmed: UnboundedSender<Delivery>,
    news: UnboundedReceiver<News>,
    bundles: Receiver<Handed>,
    outcomes: UnboundedReceiver<Outcome>,
    /// What was handed over to the thread and is not done.
    pending: Arc<AtomicUsize>,
    /// Whether the node did not answer when it was asked last.
    is_away: Arc<AtomicBool>,
    /// How often the node was said to be there.
    session: u64,
    /// A bundle that came before the news that the node is there.
    early: Option<Handed>,
    /// Ends the thread when it is dropped.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Courier {
    /// Begins; `waker` is woken by all that happens.
    ///
    /// # Errors
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

    /// Hands a bundle in.
    pub fn send(&self, bundle: Outgoing) {
        self.pending.fetch_add(1, atomic::Ordering::Relaxed);
        // The thread lives as long as this.
        let _ = self.outgoing.send(bundle);
    }

    /// Tells the node that a bundle need not be handed over again.
    pub fn confirm(&self, delivery: Delivery) {
        self.pending.fetch_add(1, atomic::Ordering::Relaxed);
        let _ = self.confirmed.send(delivery);
    }

    /// Whether all that was handed in and confirmed is done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.load(atomic::Ordering::Acquire) == 0
    }

    /// Whether the node did not answer when it was asked last.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away.load(atomic::Ordering::Acquire)
    }

    /// What happened at the endpoint, if something did. It is to be asked for before bundles are.
    pub fn news(&mut self) -> Option<News> {
        let news = self.news.try_recv().ok()?;
        self.session += u64::from(matches!(news, News::There));
        Some(news)
    }

    /// A bundle that came, if there is one.
    pub fn bundle(&mut self) -> Option<Handed> {
        loop {
            let handed = self.early.take().or_else(|| self.bundles.try_recv().ok())?;
            match handed.session.cmp(&self.session) {
                // The node that handed it over has gone, and hands it over again.
                Ordering::Less => {}
                Ordering::Equal => return Some(handed),
                // The news that the node is there came after news were asked for, and before this.
                Ordering::Greater => {
                    self.early = Some(handed);
                    return None;
                }
            }
        }
    }

    /// What became of a bundle, if that is known of one.
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

/// What the thread does.
struct Rounds {
    config: CourierConfig,
    tells: UnboundedSender<News>,
    hands: Sender<Handed>,
    answers: UnboundedSender<Outcome>,
    pending: Arc<AtomicUsize>,
    is_away: Arc<AtomicBool>,
    waker: Waker,
}

fn run(
    runtime: &Runtime,
    rounds: &Rounds,
    (to_send, to_confirm): (UnboundedReceiver<Outgoing>, UnboundedReceiver<Delivery>),
    ends: oneshot::Receiver<()>,
) {
    let to_send = Arc::new(Mutex::new(to_send));
    runtime.block_on(async {
        let senders = join_all((0..SENDERS).map(|_| rounds.send(&to_send)));
        let work = async { tokio::join!(senders, rounds.confirm(to_confirm), rounds.take()) };
        tokio::select! {
            _ = work => {}
            _ = ends => {}
        }
    });
}

impl Rounds {
    /// Hands in one bundle after the other.
    async fn send(&self, bundles: &Mutex<UnboundedReceiver<Outgoing>>) {
        let mut connection = Connection::new(&self.config.socket);
        let lifetime = self.config.lifetime.as_millis().to_string();
        loop {
            let next = bundles.lock().await.recv().await;
            let Some(Outgoing { number, to, payload }) = next else { return };
            let query =
                [("to", to.as_str()), ("from", &self.config.endpoint), ("lifetime_ms", &lifetime)];
            let uri = uri("/bundles", &query);
            let refused = loop {
                let posted = post(&mut connection, &uri, payload.clone()).await;
                let is_away = matches!(posted, Err(ClientError::Unreachable { .. }));
                self.is_away.store(is_away, atomic::Ordering::Release);
                match posted {
                    Ok(()) => break None,
                    // The node has no room now, or is beginning or ending.
                    Err(ClientError::Refused { status, .. }) if status >= 500 => {}
                    Err(ClientError::Refused { error, .. }) => break Some(error),
                    // If it was taken and the answer was lost, it goes twice.
                    Err(error) => tracing::debug!(%error, "a bundle is handed in again"),
                }
                tokio::time::sleep(PAUSE).await;
            };
            // Who hears of it may have gone.
            let _ = self.answers.send(Outcome { number, refused });
            self.is_done();
        }
    }

    /// Confirms one delivery after the other.
    async fn confirm(&self, mut deliveries: UnboundedReceiver<Delivery>) {
        let mut connection = Connection::new(&self.config.socket);
        while let Some(delivery) = deliveries.recv().await {
            let mut confirmed = connection.confirm(&delivery).await;
            // A connection that nothing went over for long is closed by the node.
            if !matches!(confirmed, Ok(()) | Err(ClientError::Refused { .. })) {
                confirmed = connection.confirm(&delivery).await;
            }
            if let Err(error) = confirmed {
                // It has expired; or the node has ended, and hands it over again.
                tracing::debug!(id = delivery.id, %error, "a delivery is not confirmed");
            }
            self.is_done();
        }
    }

    fn is_done(&self) {
        self.pending.fetch_sub(1, atomic::Ordering::Release);
        self.waker.wake();
    }

    /// Takes what comes, as long as the endpoint is to be had.
    async fn take(&self) {
        if !self.config.takes {
            return self.tell(News::There);
        }
        let (mut session, mut taken) = (0, 0);
        loop {
            let before = session;
            match self.take_from(&mut session).await {
                Err(ClientError::Refused { status: 409, .. }) if taken < TAKEN_TRIES => taken += 1,
                // It is beginning or ending.
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
                // It was not there.
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
            // Who is told of them may have gone.
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

async fn post(connection: &mut Connection, uri: &str, payload: Bytes) -> Result<(), ClientError> {
    let answer = connection.exchange(Method::POST, uri, Body::from(payload)).await?;
    whole(answer).await.map(|_| ())
}

/// A payload, unless it is too long: then it is read and nothing kept.
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
        let delivery = Delivery { delivery: session, id, source, bytes: 0 };
        Handed { delivery, payload: Some(Bytes::new()), session }
    }

    /// A thread of a courier tells of a node, and hands a bundle over, between any two questions.
    #[test]
    fn a_bundle_that_comes_before_the_news_of_its_node_is_kept() {
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
        // Its node has been there again since: it hands this one over once more.
        hands.try_send(handed(3)).unwrap();
        tells.send(News::There).unwrap();
        tells.send(News::There).unwrap();
        while courier.news().is_some() {}
        assert_eq!(next(&mut courier), None);
    }
}
