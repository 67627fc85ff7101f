//! An application of a node that hands in many bundles and takes those of one endpoint, while the node comes and goes.
//!
//! A thread asks the node. Bundles that are handed in are tried until the node has them, or says that it never will; what was not
//! confirmed when the node ended is handed over again when it is there.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
use crate::client::ClientError;

/// Connections over which bundles are handed in: each waits for the node's disk.
const SENDERS: usize = 8;

/// How long a node that does not answer, or has no room, is left alone.
const PAUSE: Duration = Duration::from_millis(200);

/// Octets of the longest payload that is taken.
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
    /// It is gone, for this reason, and is tried again.
    Gone(String),
    /// It does not let this application have the endpoint. Nothing more comes.
    Refused(String),
    /// A bundle came.
    Came(Delivery, Bytes),
    /// One came whose payload is longer than any that is taken.
    TooLong(Delivery),
}

/// The application's side. When it goes, so does what was not handed in.
#[derive(Debug)]
pub struct Courier {
    outgoing: UnboundedSender<Outgoing>,
    confirmed: UnboundedSender<Delivery>,
    news: Receiver<News>,
    outcomes: UnboundedReceiver<Outcome>,
    /// What was handed over to the thread and is not done.
    pending: Arc<AtomicUsize>,
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
        let (tells, news) = channel(READ_AHEAD);
        let (answers, outcomes) = unbounded_channel();
        let (end, ends) = oneshot::channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let rounds = Rounds { config, tells, answers, pending: Arc::clone(&pending), waker };
        let work = move || run(&runtime, &rounds, (to_send, to_confirm), ends);
        let thread = std::thread::Builder::new().name("courier".to_owned()).spawn(work)?;
        let (end, thread) = (Some(end), Some(thread));
        Ok(Self { outgoing, confirmed, news, outcomes, pending, end, thread })
    }

    /// Hands a bundle in.
    pub fn send(&self, bundle: Outgoing) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        // The thread lives as long as this.
        let _ = self.outgoing.send(bundle);
    }

    /// Tells the node that a bundle need not be handed over again.
    pub fn confirm(&self, delivery: Delivery) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let _ = self.confirmed.send(delivery);
    }

    /// Whether all that was handed in and confirmed is done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// What happened at the endpoint, if something did.
    pub fn news(&mut self) -> Option<News> {
        self.news.try_recv().ok()
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
    tells: Sender<News>,
    answers: UnboundedSender<Outcome>,
    pending: Arc<AtomicUsize>,
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
            let asked =
                [("to", to.as_str()), ("from", &self.config.endpoint), ("lifetime_ms", &lifetime)];
            let uri = uri("/bundles", &asked);
            let refused = loop {
                match post(&mut connection, &uri, payload.clone()).await {
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
        self.pending.fetch_sub(1, Ordering::Release);
        self.waker.wake();
    }

    /// Takes what comes, as long as the endpoint is to be had.
    async fn take(&self) {
        if !self.config.takes {
            return self.tell(News::There).await;
        }
        let mut was_there = false;
        loop {
            let mut is_there = false;
            let why = match self.take_from(&mut is_there).await {
                Ok(()) => "the node has ended".to_owned(),
                // After a restart the place of this application may still be taken by what it was before.
                Err(ClientError::Refused { status, error })
                    if status < 500 && !(was_there && status == 409) =>
                {
                    return self.tell(News::Refused(error)).await;
                }
                Err(error) => error.to_string(),
            };
            if is_there {
                was_there = true;
                self.tell(News::Gone(why)).await;
            } else {
                tracing::debug!(why, "the node does not answer");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn take_from(&self, is_there: &mut bool) -> Result<(), ClientError> {
        let mut connection = Connection::new(&self.config.socket);
        let mut coming = connection.take(&[("endpoint", &self.config.endpoint)]).await?;
        *is_there = true;
        self.tell(News::There).await;
        while let Some(delivery) = coming.next().await? {
            let news = match payload(&mut coming, delivery.octets).await? {
                Some(payload) => News::Came(delivery, payload),
                None => News::TooLong(delivery),
            };
            self.tell(news).await;
        }
        Ok(())
    }

    async fn tell(&self, news: News) {
        let _ = self.tells.send(news).await;
        self.waker.wake();
    }
}

async fn post(connection: &mut Connection, uri: &str, payload: Bytes) -> Result<(), ClientError> {
    let answer = connection.exchange(Method::POST, uri, Body::from(payload)).await?;
    whole(answer).await.map(|_| ())
}

/// A payload, unless it is too long: then it is read and nothing kept.
async fn payload(coming: &mut Coming, octets: u64) -> Result<Option<Bytes>, ClientError> {
    let mut payload = BytesMut::new();
    let mut left = octets;
    while left > 0 {
        let piece = coming.piece(left).await?;
        left -= piece.len() as u64;
        if octets <= PAYLOAD_MAX {
            payload.extend_from_slice(&piece);
        }
    }
    Ok((octets <= PAYLOAD_MAX).then(|| payload.freeze()))
}
