//! Hands what an agent says to whoever waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Instant;

use engine::Time;
use proto::bp::agent::{Agent, DeliveryId, Indication, SendRequest};
use proto::bp::layer::Content;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use wire::bp7::{BundleId, Eid, StatusReport};

use crate::state::locked;

/// The endpoint that sends back what comes to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo(pub Eid);

/// A bundle for an application.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) delivery: DeliveryId,
    pub(crate) id: BundleId,
    pub(crate) payload: Content,
    pub(crate) at: Instant,
}

/// What another node says.
pub(crate) type Told = (Eid, StatusReport);

#[derive(Default)]
struct Waiting {
    /// By endpoint.
    users: BTreeMap<Eid, UnboundedSender<Delivered>>,
    /// Who wants to know that a bundle is safe.
    stored: BTreeMap<BundleId, oneshot::Sender<()>>,
    /// Who wants to know what others say of a bundle.
    reports: BTreeMap<BundleId, UnboundedSender<Told>>,
    neighbours: BTreeMap<Eid, usize>,
    trouble: Option<String>,
}

/// Hands what an agent says to whoever waits for it.
pub struct Hub {
    echo: Option<Echo>,
    waiting: Mutex<Waiting>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("echo", &self.echo).finish_non_exhaustive()
    }
}

impl Hub {
    /// One for an agent, whose endpoint for echoes it has.
    #[must_use]
    pub fn new(echo: Option<Echo>) -> Self {
        Self { echo, waiting: Mutex::default() }
    }

    /// Takes the echo's endpoint for itself: once, when the agent begins.
    pub fn begin(&self, agent: &mut Agent) {
        if let Some(Echo(endpoint)) = &self.echo
            && let Err(error) = agent.register(endpoint)
        {
            tracing::warn!(%endpoint, %error, "there is no echo");
        }
    }

    /// Takes what the agent has to say, in the agent's thread.
    pub fn hear(&self, now: Time, agent: &mut Agent, indication: Indication) {
        match indication {
            Indication::Delivered { delivery, endpoint, id, payload } => {
                if self.echo.as_ref().is_some_and(|Echo(echo)| *echo == endpoint) {
                    self.send_back(now, agent, delivery, &id, payload);
                    return;
                }
                let delivered = Delivered { delivery, id, payload, at: Instant::now() };
                if let Some(user) = locked(&self.waiting).users.get(&endpoint) {
                    // One who has gone is deregistered, and then it waits for the next.
                    let _ = user.send(delivered);
                }
            }
            Indication::Stored { id } => {
                if let Some(stored) = locked(&self.waiting).stored.remove(&id) {
                    let _ = stored.send(());
                }
            }
            Indication::Report { from, report } => {
                let about =
                    |id: &&BundleId| id.source == report.source && id.creation == report.creation;
                let waiting = locked(&self.waiting);
                let found = waiting.reports.iter().find(|(id, _)| about(id));
                if let Some((_, follower)) = found {
                    let _ = follower.send((from, report));
                }
            }
            Indication::Up { node } => {
                if let Some(node) = node {
                    *locked(&self.waiting).neighbours.entry(node).or_default() += 1;
                }
            }
            Indication::Down { node, why } => {
                tracing::info!(?node, why, "a neighbour cannot be reached");
                let mut waiting = locked(&self.waiting);
                if let Some(node) = node
                    && let Some(links) = waiting.neighbours.get_mut(&node)
                {
                    *links = links.saturating_sub(1);
                    waiting.neighbours.retain(|_, links| *links > 0);
                }
            }
            Indication::LimitReached(limit) => {
                self.trouble(format!(
                    "the bound on {limit:?} is reached: what comes on top is refused"
                ));
            }
            Indication::StoreFailed(error) => {
                self.trouble(format!("the store failed: {error}; what is not safe is refused"));
            }
            Indication::Deleted { id, reason } => {
                tracing::info!(%id, %reason, "a bundle was deleted");
            }
            Indication::Forwarded { .. } | Indication::CustodyTaken { .. } => {}
        }
    }

    fn trouble(&self, what: String) {
        tracing::warn!("{what}");
        locked(&self.waiting).trouble = Some(what);
    }

    /// An echo. What is a file stays here: nobody needs to ping with so much.
    fn send_back(
        &self,
        now: Time,
        agent: &mut Agent,
        delivery: DeliveryId,
        id: &BundleId,
        payload: Content,
    ) {
        let Some(Echo(endpoint)) = &self.echo else { return };
        // Two echoes would never end.
        let is_echo = service(&id.source).is_some_and(|of| service(endpoint) == Some(of));
        if let Content::Octets(octets) = payload
            && !id.source.is_none()
            && !is_echo
        {
            let source = Some(endpoint.clone());
            let request = SendRequest { source, ..SendRequest::new(id.source.clone(), octets) };
            if let Err(error) = agent.send(now, request) {
                tracing::debug!(%error, "an echo is not sent");
            }
        }
        let confirmed = agent.confirm(now, delivery);
        debug_assert!(confirmed.is_ok(), "it was handed over just now: {confirmed:?}");
    }

    pub(crate) fn add_user(&self, endpoint: Eid, user: UnboundedSender<Delivered>) {
        locked(&self.waiting).users.insert(endpoint, user);
    }

    pub(crate) fn remove_user(&self, endpoint: &Eid) {
        locked(&self.waiting).users.remove(endpoint);
    }

    pub(crate) fn wait_for_store(&self, id: BundleId, stored: oneshot::Sender<()>) {
        locked(&self.waiting).stored.insert(id, stored);
    }

    pub(crate) fn forget(&self, id: &BundleId) {
        let mut waiting = locked(&self.waiting);
        waiting.stored.remove(id);
        waiting.reports.remove(id);
    }

    pub(crate) fn follow(&self, id: BundleId, follower: UnboundedSender<Told>) {
        locked(&self.waiting).reports.insert(id, follower);
    }

    /// Neighbours that can be reached, endpoints with users, and what was wrong last.
    pub(crate) fn state(&self) -> (BTreeSet<Eid>, Vec<Eid>, Option<String>) {
        let waiting = locked(&self.waiting);
        let neighbours = waiting.neighbours.keys().cloned().collect();
        (neighbours, waiting.users.keys().cloned().collect(), waiting.trouble.clone())
    }
}

/// What an endpoint of a node is called there.
fn service(eid: &Eid) -> Option<String> {
    let text = eid.to_string();
    let node = eid.node().to_string();
    match eid {
        Eid::Ipn { service, .. } => Some(service.to_string()),
        Eid::Dtn(_) => text.strip_prefix(&node).map(str::to_owned),
        Eid::None | Eid::Uri(_) | Eid::Unknown { .. } => None,
    }
}
