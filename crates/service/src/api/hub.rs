//! Dispatch of an agent's indications to applications.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::Time;
use proto::bp::agent::{Agent, DeliveryId, Indication, SendRequest, Version};
use proto::bp::layer::Content;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use wire::bp7::{BundleId, Eid, Reason, StatusReport};

/// A bundle for an application.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) delivery: DeliveryId,
    pub(crate) id: BundleId,
    pub(crate) version: Version,
    /// Numbers of the security rules whose operations it passed.
    pub(crate) verified: Vec<u32>,
    pub(crate) payload: Content,
    pub(crate) at: Instant,
}

/// Status report with the node that sent it.
pub(crate) type Reported = (Eid, StatusReport);

#[derive(Default)]
struct Waiting {
    /// Applications by endpoint.
    users: BTreeMap<Eid, UnboundedSender<Delivered>>,
    /// Requests that wait for a bundle to be stored, or the reason of its deletion.
    stored: BTreeMap<BundleId, oneshot::Sender<Result<(), Reason>>>,
    /// Requests that wait for status reports of a bundle.
    reports: BTreeMap<BundleId, UnboundedSender<Reported>>,
    trouble: Option<String>,
    notices: Notices,
}

/// Notices per minute that are logged.
const NOTICES: u32 = 20;

/// Count of the notices of a minute.
#[derive(Default)]
struct Notices {
    since: Time,
    logged: u32,
    unlogged: u64,
}

impl Notices {
    /// Number of notices that were not logged, if the next one is to be.
    fn take(&mut self, now: Time) -> Option<u64> {
        if now.since(self.since) >= Duration::from_secs(60) {
            (self.since, self.logged) = (now, 0);
        }
        if self.logged >= NOTICES {
            self.unlogged += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// Dispatcher of an agent's indications.
pub struct Hub {
    echo: Option<Eid>,
    waiting: Mutex<Waiting>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("echo", &self.echo).finish_non_exhaustive()
    }
}

impl Hub {
    /// Creates the hub of an agent; bundles to the endpoint `echo` are sent back.
    #[must_use]
    pub fn new(echo: Option<Eid>) -> Self {
        Self { echo, waiting: Mutex::default() }
    }

    /// Locks the state; no holder can leave a partial change.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the echo's endpoint, once when the agent starts.
    pub fn begin(&self, agent: &mut Agent) {
        if let Some(endpoint) = &self.echo
            && let Err(error) = agent.register(endpoint)
        {
            tracing::warn!(%endpoint, %error, "there is no echo");
        }
    }

    /// Handles an indication of the agent, in the agent's thread.
    pub fn hear(&self, now: Time, agent: &mut Agent, indication: Indication) {
        match indication {
            Indication::Delivered { delivery, endpoint, id, version, verified, payload } => {
                if self.echo.as_ref() == Some(&endpoint) {
                    self.send_back(now, agent, delivery, &id, payload);
                    return;
                }
                let at = Instant::now();
                let delivered = Delivered { delivery, id, version, verified, payload, at };
                if let Some(user) = self.waiting().users.get(&endpoint) {
                    // A vanished user is deregistered, and the bundle waits for the next.
                    let _ = user.send(delivered);
                }
            }
            Indication::Stored { id } => {
                if let Some(stored) = self.waiting().stored.remove(&id) {
                    let _ = stored.send(Ok(()));
                }
            }
            Indication::Report { from, report } => {
                let about =
                    |id: &&BundleId| id.source == report.source && id.creation == report.creation;
                let waiting = self.waiting();
                let found = waiting.reports.iter().find(|(id, _)| about(id));
                if let Some((_, follower)) = found {
                    let _ = follower.send((from, report));
                }
            }
            Indication::Down { node, why } => {
                tracing::info!(?node, why, "a neighbour cannot be reached");
            }
            Indication::Notice { node, what } => self.notice(now, node.as_ref(), what),
            Indication::LimitReached(limit) => {
                self.trouble(format!(
                    "the bound on {limit:?} is reached: what comes on top is refused"
                ));
            }
            Indication::StoreFailed(error) => {
                self.trouble(format!(
                    "the store failed: {error}; bundles that are not stored are refused"
                ));
            }
            Indication::Deleted { id, reason } => {
                tracing::info!(%id, %reason, "a bundle was deleted");
                // A request that waits for storage fails without any.
                if let Some(stored) = self.waiting().stored.remove(&id) {
                    let _ = stored.send(Err(reason));
                }
            }
            Indication::SignalIgnored { source, by, why, count } => {
                tracing::warn!(%source, ?by, why, count, "a custody signal was ignored");
            }
            Indication::Up { .. }
            | Indication::Forwarded { .. }
            | Indication::CustodyTaken { .. } => {}
        }
    }

    /// Logs what a peer did, so often that a flood of it does not fill the log.
    fn notice(&self, now: Time, node: Option<&Eid>, what: &str) {
        let Some(unlogged) = self.waiting().notices.take(now) else { return };
        match node {
            Some(node) => tracing::warn!(%node, unlogged, "{what}"),
            None => tracing::warn!(unlogged, "{what}"),
        }
    }

    fn trouble(&self, what: String) {
        tracing::warn!("{what}");
        self.waiting().trouble = Some(what);
    }

    /// Sends an echo. A payload in a file is not sent back: no ping is that long.
    fn send_back(
        &self,
        now: Time,
        agent: &mut Agent,
        delivery: DeliveryId,
        id: &BundleId,
        payload: Content,
    ) {
        let Some(endpoint) = &self.echo else { return };
        // Two echoes would never end.
        let is_echo = id.source.service().is_some_and(|of| endpoint.service() == Some(of));
        if let Content::Bytes(bytes) = payload
            && !id.source.is_none()
            && !is_echo
        {
            let source = Some(endpoint.clone());
            let request = SendRequest { source, ..SendRequest::new(id.source.clone(), bytes) };
            if let Err(error) = agent.send(now, request) {
                tracing::debug!(%error, "an echo is not sent");
            }
        }
        let confirmed = agent.confirm(now, delivery);
        debug_assert!(confirmed.is_ok(), "it was handed over just now: {confirmed:?}");
    }

    pub(crate) fn add_user(&self, endpoint: Eid, user: UnboundedSender<Delivered>) {
        self.waiting().users.insert(endpoint, user);
    }

    pub(crate) fn remove_user(&self, endpoint: &Eid) {
        self.waiting().users.remove(endpoint);
    }

    pub(crate) fn wait_for_store(&self, id: BundleId, stored: oneshot::Sender<Result<(), Reason>>) {
        self.waiting().stored.insert(id, stored);
    }

    pub(crate) fn unfollow(&self, id: &BundleId) {
        self.waiting().reports.remove(id);
    }

    pub(crate) fn follow(&self, id: BundleId, follower: UnboundedSender<Reported>) {
        self.waiting().reports.insert(id, follower);
    }

    /// Returns endpoints with users, and the last failure.
    pub(crate) fn state(&self) -> (Vec<Eid>, Option<String>) {
        let waiting = self.waiting();
        (waiting.users.keys().cloned().collect(), waiting.trouble.clone())
    }
}
