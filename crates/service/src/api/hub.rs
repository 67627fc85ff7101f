//! Dispatch of an agent's indications to applications.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bp::agent::{Agent, Indication, Limit, RequestError, SendRequest};
use bp::codec::bp7::{BundleId, Eid, Reason, StatusReport};
use engine::Time;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::echo::Echo;
use super::log::{Kind, Log};
use super::model::Share;
use super::receivers::{Delivered, Receiver, Receivers};

/// Maximum concurrent streams of deliveries, results and reports.
const STREAMS_MAX: usize = 1024;
/// Status reports that are kept for applications.
const REPORTS_KEPT: usize = 10_000;

/// Status report with the node that sent it.
pub(crate) type Reported = (Eid, StatusReport);

/// Outcome of a bundle that an application sends.
#[derive(Clone, Debug)]
pub(crate) enum Submitted {
    /// It is in the store.
    Stored(BundleId),
    /// An earlier request with the same key sent it.
    Repeated(BundleId),
    /// The agent did not accept it.
    Refused(RequestError),
    /// It was deleted before it was stored.
    Deleted(Reason),
    /// There was no room for a bundle before it in an ordered stream.
    Halted,
}

/// Requests that wait for a bundle to be stored.
#[derive(Default)]
struct Storing {
    key: Option<u128>,
    first: Option<oneshot::Sender<Submitted>>,
    /// Repeated requests.
    others: Vec<oneshot::Sender<Submitted>>,
}

/// Reader of status reports.
struct Follower {
    source: Option<Eid>,
    id: Option<String>,
    reports: mpsc::Sender<Reported>,
}

impl Follower {
    fn wants(&self, report: &StatusReport) -> bool {
        self.source.as_ref().is_none_or(|source| *source == report.source)
            && self.id.as_ref().is_none_or(|id| *id == subject(report).to_string())
    }
}

/// Bundle of a status report.
pub(crate) fn subject(report: &StatusReport) -> BundleId {
    let offset = report.fragment.map(|(offset, _)| offset);
    BundleId { source: report.source.clone(), creation: report.creation, offset }
}

/// A fault that lasts until its cause has gone.
struct Trouble {
    what: String,
    cause: Cause,
}

enum Cause {
    Limit(Limit),
    /// The store failed; the number of records that were synced before.
    Store(u64),
}

#[derive(Default)]
struct Waiting {
    receivers: Receivers,
    storing: BTreeMap<BundleId, Storing>,
    /// Bundles that are being stored, by the key of their request.
    keys: BTreeMap<u128, BundleId>,
    /// Requests that wait for status reports of a bundle.
    reports: BTreeMap<BundleId, UnboundedSender<Reported>>,
    /// Status reports that came last, and readers of those to come.
    kept: VecDeque<Reported>,
    followers: Vec<Follower>,
    trouble: Option<Trouble>,
    echo: Option<Echo>,
    log: Log,
}

/// Dispatcher of an agent's indications.
pub struct Hub {
    echo: Option<Eid>,
    waiting: Mutex<Waiting>,
    streams: Arc<Semaphore>,
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
        let of_echo = echo.clone().map(Echo::new);
        let waiting = Waiting { echo: of_echo, ..Waiting::default() };
        Self { echo, waiting: waiting.into(), streams: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }

    /// Logs nothing but faults.
    pub fn set_quiet(&self) {
        self.waiting().log.set_quiet();
    }

    /// Takes a place for a stream, while one is free.
    pub(crate) fn stream(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().ok()
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
                let facts = agent.received(now, delivery);
                let at = Instant::now();
                let number = delivery.0;
                let delivered =
                    Delivered { delivery, number, id, version, verified, facts, payload, at };
                if self.echo.as_ref() == Some(&endpoint) {
                    if let Some(echo) = &mut self.waiting().echo {
                        echo.send_back(now, agent, delivered);
                    }
                } else {
                    self.waiting().receivers.deliver(agent, endpoint, delivered);
                }
            }
            Indication::Stored { id } => {
                self.settle(&id, |is_first| {
                    if is_first {
                        Submitted::Stored(id.clone())
                    } else {
                        Submitted::Repeated(id.clone())
                    }
                });
            }
            Indication::Report { from, report } => self.report(from, report),
            Indication::Up { node } => self.waiting().log.neighbour(now, node.as_ref(), None),
            Indication::Down { node, why } => {
                self.waiting().log.neighbour(now, node.as_ref(), Some(why));
            }
            Indication::Notice { node, what } => {
                let node = node.map(|node| format!("{node}: ")).unwrap_or_default();
                self.waiting().log.fault(now, Kind::Malformed, &format!("{node}{what}"));
            }
            Indication::LimitReached(limit) => {
                let reached = match limit {
                    // The agent does not distinguish them: in both cases there is no room.
                    Limit::Bytes => "limits.bytes is reached, or no space left on the disk".into(),
                    limit => format!("the bound on {limit:?} is reached"),
                };
                let what = format!("{reached}: what comes on top is refused");
                self.trouble(now, what, Cause::Limit(limit));
            }
            Indication::StoreFailed(error) => {
                let what =
                    format!("the store failed: {error}; bundles that are not stored are refused");
                self.trouble(now, what, Cause::Store(agent.statistics().stored));
            }
            Indication::Deleted { id, reason } => {
                self.waiting().log.deleted(now, &id, reason);
                // A request that waits for storage fails without any.
                self.settle(&id, |_| Submitted::Deleted(reason));
            }
            Indication::Discarded { id, by, rule, reason, count } => {
                let by = by.map_or_else(|| "an unnamed neighbour".to_owned(), |by| by.to_string());
                let rule = rule.map(|rule| format!(" by security rule {rule}")).unwrap_or_default();
                let what = format!(
                    "{id} of {by} was deleted{rule}: {reason}; {count} since the last such line"
                );
                self.waiting().log.fault(now, Kind::Discarded, &what);
            }
            Indication::SignalIgnored { source, by, why, count } => {
                let by = by.map_or_else(|| "an unnamed neighbour".to_owned(), |by| by.to_string());
                let what = format!(
                    "a custody signal of {source} by {by} is ignored: {why}; {count} in all"
                );
                self.waiting().log.fault(now, Kind::Refused, &what);
            }
            Indication::Forwarded { .. } | Indication::CustodyTaken { .. } => {}
        }
    }

    /// Logs neighbours that were discovered or lost.
    pub(crate) fn discovered(&self, now: Time, lines: &[String]) {
        let mut waiting = self.waiting();
        lines.iter().for_each(|line| waiting.log.notice(now, Kind::Discovery, line));
    }

    /// Replies to the requests that wait for a bundle to be stored.
    fn settle(&self, id: &BundleId, reply: impl Fn(bool) -> Submitted) {
        let mut waiting = self.waiting();
        let Some(Storing { key, first, others }) = waiting.storing.remove(id) else { return };
        if let Some(key) = key {
            waiting.keys.remove(&key);
        }
        drop(waiting);
        // A client may have gone.
        let _ = first.map(|first| first.send(reply(true)));
        for other in others {
            let _ = other.send(reply(false));
        }
    }

    /// Sends a bundle of an application, unless an earlier request with its key did. Returns whether
    /// there is room for bundles.
    pub(crate) fn submit(
        &self,
        now: Time,
        agent: &mut Agent,
        request: SendRequest,
        answer: oneshot::Sender<Submitted>,
    ) -> bool {
        let key = request.key;
        let mut waiting = self.waiting();
        let known = key.and_then(|key| waiting.keys.get(&key).cloned());
        if let Some(storing) = known.and_then(|id| waiting.storing.get_mut(&id)) {
            storing.others.push(answer);
            return true;
        }
        let submitted = match key.and_then(|key| agent.sent_for(key)) {
            Some(id) => Submitted::Repeated(id),
            None => match agent.send(now, request) {
                Ok(id) => {
                    if let Some(key) = key {
                        waiting.keys.insert(key, id.clone());
                    }
                    let storing = Storing { key, first: Some(answer), others: Vec::new() };
                    // The agent's indication comes after this.
                    waiting.storing.insert(id, storing);
                    return true;
                }
                Err(error) => Submitted::Refused(error),
            },
        };
        let has_room =
            !matches!(submitted, Submitted::Refused(RequestError::Full | RequestError::NotReady));
        // The client may have gone.
        let _ = answer.send(submitted);
        has_room
    }

    /// Passes a status report to its readers, and keeps it for later ones.
    fn report(&self, from: Eid, report: StatusReport) {
        let mut waiting = self.waiting();
        let id = subject(&report);
        let of_bundle = BundleId { offset: None, ..id };
        if let Some(follower) = waiting.reports.get(&of_bundle) {
            let _ = follower.send((from.clone(), report.clone()));
        }
        // A reader that is slow misses some, and finds them among those kept.
        waiting.followers.retain(|follower| {
            let reported = || (from.clone(), report.clone());
            !follower.reports.is_closed()
                && (!follower.wants(&report) || follower.reports.try_send(reported()).is_ok())
        });
        if waiting.kept.len() >= REPORTS_KEPT {
            waiting.kept.pop_front();
        }
        waiting.kept.push_back((from, report));
    }

    /// Returns the status reports kept for a reader, and those to come if it follows.
    pub(crate) fn reports(
        &self,
        source: Option<Eid>,
        id: Option<String>,
        follow: bool,
    ) -> (Vec<Reported>, Option<mpsc::Receiver<Reported>>) {
        let (reports, follower) = mpsc::channel(REPORTS_KEPT);
        let follows = Follower { source, id, reports };
        let mut waiting = self.waiting();
        let wanted = waiting.kept.iter().filter(|(_, report)| follows.wants(report));
        let kept = wanted.cloned().collect();
        if !follow {
            return (kept, None);
        }
        // Without reports nothing else removes the readers that have gone.
        waiting.followers.retain(|follower| !follower.reports.is_closed());
        waiting.followers.push(follows);
        (kept, Some(follower))
    }

    fn trouble(&self, now: Time, what: String, cause: Cause) {
        let mut waiting = self.waiting();
        waiting.log.fault(now, Kind::Trouble, &what);
        waiting.trouble = Some(Trouble { what, cause });
    }

    /// Looks at the agent from time to time: ends a trouble whose cause has gone, and logs counters
    /// that have risen.
    pub(crate) fn watch(&self, now: Time, agent: &mut Agent) {
        let mut waiting = self.waiting();
        if let Some(echo) = &mut waiting.echo {
            echo.sweep(now, agent);
        }
        waiting.receivers.sweep(agent);
        let statistics = agent.statistics();
        let is_over = waiting.trouble.as_ref().is_some_and(|trouble| match trouble.cause {
            Cause::Limit(limit) => !agent.is_at(limit),
            Cause::Store(stored) => statistics.stored > stored,
        });
        if is_over && let Some(Trouble { what, .. }) = waiting.trouble.take() {
            waiting.log.notice(now, Kind::Trouble, &format!("no longer so: {what}"));
        }
        waiting.log.counted(now, &statistics);
    }

    /// Adds an application to an endpoint, in the agent's thread.
    pub(super) fn join(
        &self,
        agent: &mut Agent,
        endpoint: &Eid,
        share: Share,
        user: UnboundedSender<Delivered>,
    ) -> Result<Receiver, RequestError> {
        self.waiting().receivers.join(agent, endpoint, share, user)
    }

    /// Removes an application, likewise.
    pub(super) fn leave(&self, now: Time, agent: &mut Agent, endpoint: &Eid, receiver: Receiver) {
        self.waiting().receivers.leave(now, agent, endpoint, receiver);
    }

    /// Confirms a delivery of the bundle `wanted`, likewise.
    pub(super) fn confirm(
        &self,
        now: Time,
        agent: &mut Agent,
        number: u64,
        wanted: Option<&str>,
    ) -> Result<(), RequestError> {
        self.waiting().receivers.confirm(now, agent, number, wanted)
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
        let trouble = waiting.trouble.as_ref().map(|trouble| trouble.what.clone());
        (waiting.receivers.endpoints().cloned().collect(), trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_do_not_follow_are_not_kept() {
        let hub = Hub::new(None);
        for _ in 0..100 {
            let (kept, later) = hub.reports(None, None, false);
            assert!(kept.is_empty() && later.is_none());
            let (_, later) = hub.reports(Some(Eid::ipn(1, 9)), None, true);
            assert!(later.is_some());
        }
        assert_eq!(hub.waiting().followers.len(), 1, "the last one");
    }
}
