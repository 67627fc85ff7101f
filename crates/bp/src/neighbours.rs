//! Neighbours of a layer whose bundles travel in sessions of an engine below. Sessions are
//! suspended while a path is down.
//!
//! A neighbour therefore stays up through an outage, and a contact that ends lets sessions
//! complete, both for at most the layer's patience.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::{Deadline, PathEvent, Time, Timers};
use session::timer::TICK;

use super::layer::{Event, LinkId, Neighbour, Outcome, Tag};

/// A neighbour.
#[derive(Debug, Default)]
struct Link {
    /// Whether the agent has opened it.
    is_wanted: bool,
    /// Whether it was reported to the agent as up.
    is_up: bool,
    path_is_up: bool,
    /// Whether the agent has paused it.
    is_held: bool,
}

/// A sending session.
#[derive(Debug)]
struct Sending {
    link: LinkId,
    tags: Vec<Tag>,
    /// Whether the agent cancelled it.
    is_cancelled: bool,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bundles acknowledged by neighbours.
    pub sent: u64,
    /// Bundles sent without confirmation.
    pub left: u64,
    /// Bundles not sent completely.
    pub failed: u64,
    /// Bundles received whole.
    pub received: u64,
    /// Received data that were no bundle, and sessions that violated the protocol.
    pub faults: u64,
}

/// Whether a path event means up or down; `None` if neither.
pub(super) const fn is_up(event: &PathEvent) -> Option<bool> {
    match event {
        PathEvent::Up(_) => Some(true),
        PathEvent::Down => Some(false),
        PathEvent::Blocked
        | PathEvent::Writable
        | PathEvent::Unsent
        | PathEvent::ReadClosed
        | PathEvent::Missing { .. }
        | PathEvent::Secured(_)
        | PathEvent::ReturnDown
        | PathEvent::ReturnUp => None,
    }
}

/// Settings common to all neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Longest outage before the bundles in transit are given up.
    pub(super) patience: Duration,
    /// Bundles in transit to one neighbour.
    pub(super) window: usize,
    /// Longest bundle, in bytes.
    pub(super) bundle_max: u64,
    /// Unconfigured neighbours that are remembered.
    pub(super) strangers: usize,
}

/// Neighbours of a layer by addresses `A`, and bundles in transit to them by sessions `K`.
#[derive(Debug)]
pub(super) struct Neighbours<K, A> {
    links: BTreeMap<LinkId, Link>,
    by_address: BTreeMap<A, LinkId>,
    sending: BTreeMap<K, Sending>,
    bounds: Bounds,
    next_came: u32,
    timers: Timers<LinkId>,
    pub(super) events: VecDeque<Event>,
    pub(super) statistics: Statistics,
}

impl<K: Copy + Ord, A: Copy + Ord> Neighbours<K, A> {
    /// The configured neighbours.
    pub(super) fn new(bounds: Bounds, configured: impl Iterator<Item = (LinkId, A)>) -> Self {
        let (links, by_address) =
            configured.map(|(id, address)| ((id, Link::default()), (address, id))).unzip();
        Self {
            links,
            by_address,
            sending: BTreeMap::new(),
            bounds,
            next_came: LinkId::CAME.0,
            timers: Timers::new(),
            events: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    /// Replaces the configured neighbours. The caller has cancelled the sessions to those that are
    /// left out; the result of these does not matter any more.
    pub(super) fn configure(&mut self, configured: &BTreeMap<LinkId, A>) {
        let known = self.links.range(..LinkId::CAME).map(|(id, _)| *id);
        let over: BTreeSet<LinkId> = known.filter(|id| !configured.contains_key(id)).collect();
        let to_them = self.sending.iter().filter(|(_, sending)| over.contains(&sending.link));
        for session in to_them.map(|(session, _)| *session).collect::<Vec<_>>() {
            if let Some(Sending { link, tags, .. }) = self.sending.remove(&session) {
                self.fail(link, tags);
            }
        }
        for id in &over {
            self.down(*id, "it is no neighbour any more");
            self.links.remove(id);
        }
        self.by_address.retain(|_, id| !over.contains(id));
        for (id, address) in configured {
            if self.links.contains_key(id) {
                continue;
            }
            self.links.insert(*id, Link::default());
            if let Some(stranger) = self.by_address.insert(*address, *id) {
                self.links.remove(&stranger);
            }
        }
    }

    /// Neighbour at an address.
    pub(super) fn link_at(&self, address: A) -> Option<LinkId> {
        self.by_address.get(&address).copied()
    }

    /// Neighbour from which data came. An unconfigured one is added. Nothing is sent to it. It is
    /// forgotten for another when no reply of the agent is pending; later it counts as a new one.
    /// `None` if too many have pending replies.
    pub(super) fn met(&mut self, address: A, is_owed: impl Fn(LinkId) -> bool) -> Option<LinkId> {
        if let Some(id) = self.link_at(address) {
            return Some(id);
        }
        let mut strangers = self.links.range(LinkId::CAME..);
        if strangers.clone().count() >= self.bounds.strangers {
            let (first, _) = strangers.find(|(id, link)| !link.is_held && !is_owed(**id))?;
            let first = *first;
            self.links.remove(&first);
            self.by_address.retain(|_, id| *id != first);
        }
        self.next_came = self.next_came.wrapping_add(1).max(LinkId::CAME.0);
        let id = LinkId(self.next_came);
        self.links.insert(id, Link::default());
        self.by_address.insert(address, id);
        Some(id)
    }

    /// Whether bundles may be sent to a neighbour.
    pub(super) fn is_open(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| link.is_up && link.is_wanted)
    }

    /// Whether the agent has paused a neighbour.
    pub(super) fn is_held(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| link.is_held)
    }

    /// Pauses or resumes a neighbour.
    pub(super) fn hold(&mut self, id: LinkId, is_held: bool) {
        if let Some(link) = self.links.get_mut(&id) {
            link.is_held = is_held;
        }
    }

    /// Opens or closes a neighbour: a contact begins or ends.
    pub(super) fn want(&mut self, now: Time, id: LinkId, is_wanted: bool) {
        if let Some(link) = self.links.get_mut(&id) {
            link.is_wanted = is_wanted;
            self.look_at(now, id);
        }
    }

    /// Handles the change of a neighbour's path, if it went up or down.
    pub(super) fn path(&mut self, now: Time, id: LinkId, change: Option<bool>) {
        if let (Some(link), Some(is_up)) = (self.links.get_mut(&id), change) {
            link.path_is_up = is_up;
            self.look_at(now, id);
        }
    }

    /// Updates whether a neighbour can be reached.
    fn look_at(&mut self, now: Time, id: LinkId) {
        let Bounds { patience, window, bundle_max, .. } = self.bounds;
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.is_wanted && link.path_is_up {
            self.timers.cancel(id);
            if !std::mem::replace(&mut link.is_up, true) {
                let window = window.max(1);
                let neighbour = Neighbour {
                    node: None,
                    is_authenticated: false,
                    bundle_max,
                    window,
                    window_bytes: 0,
                };
                self.events.push_back(Event::Up { link: id, neighbour });
            }
        } else if link.is_up {
            if self.timers.get(id).is_none() {
                self.timers.set(id, now + patience.max(TICK), "a neighbour with an outage");
            }
            self.down_if_over(id);
        }
    }

    /// Reports the end of a contact once no bundle is in transit.
    fn down_if_over(&mut self, id: LinkId) {
        let is_ending = self.links.get(&id).is_some_and(|link| link.is_up && !link.is_wanted);
        if is_ending && !self.sending.values().any(|sending| sending.link == id) {
            self.down(id, "the contact ended");
        }
    }

    pub(super) fn down(&mut self, id: LinkId, why: &'static str) {
        self.timers.cancel(id);
        if let Some(link) = self.links.get_mut(&id)
            && std::mem::take(&mut link.is_up)
        {
            self.events.push_back(Event::Down { link: id, why });
        }
    }

    /// Neighbour whose outage lasted too long: the caller cancels its sessions, after which it is
    /// down.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<LinkId> {
        self.timers.pop_due(now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }

    /// Records bundles in transit.
    pub(super) fn started(&mut self, id: LinkId, session: K, tags: Vec<Tag>) {
        self.sending.insert(session, Sending { link: id, tags, is_cancelled: false });
    }

    /// Session that carries this bundle alone.
    pub(super) fn session_of(&self, id: LinkId, tag: Tag) -> Option<K> {
        let is_it = |sending: &Sending| {
            sending.link == id && sending.tags == [tag] && !sending.is_cancelled
        };
        self.sending.iter().find(|(_, sending)| is_it(sending)).map(|(session, _)| *session)
    }

    /// Bundles in transit to a neighbour.
    pub(super) fn in_transit(&self, id: LinkId) -> usize {
        let to_it = self.sending.values().filter(|sending| sending.link == id);
        to_it.map(|sending| sending.tags.len()).sum()
    }

    /// Sessions to a neighbour.
    pub(super) fn sessions_to(&self, id: LinkId) -> Vec<K> {
        let to_it = self.sending.iter().filter(|(_, sending)| sending.link == id);
        to_it.map(|(session, _)| *session).collect()
    }

    /// Marks a session as cancelled by the agent.
    pub(super) fn cancelled(&mut self, session: K) {
        if let Some(sending) = self.sending.get_mut(&session) {
            sending.is_cancelled = true;
        }
    }

    /// Handles the end of a session; a cancelled one has failed, with any result.
    pub(super) fn ended(&mut self, session: K, outcome: Outcome) {
        let Some(Sending { link, tags, is_cancelled }) = self.sending.remove(&session) else {
            return;
        };
        let failed = Outcome::Failed { acknowledged: 0 };
        let is_there = outcome == Outcome::Acknowledged;
        self.report(link, tags, if is_cancelled && !is_there { failed } else { outcome });
        self.down_if_over(link);
    }

    /// Reports the result of bundles.
    pub(super) fn report(&mut self, link: LinkId, tags: Vec<Tag>, outcome: Outcome) {
        let count = tags.len() as u64;
        match outcome {
            Outcome::Acknowledged => self.statistics.sent += count,
            Outcome::Left => self.statistics.left += count,
            Outcome::Refused(_) | Outcome::Failed { .. } => self.statistics.failed += count,
        }
        for tag in tags {
            self.events.push_back(Event::Sent { link, tag, outcome });
        }
    }

    /// Counts a fault, and reports it if its neighbour is known.
    pub(super) fn report_fault(&mut self, link: Option<LinkId>, what: &'static str) {
        self.statistics.faults += 1;
        self.events.extend(link.map(|link| Event::PeerFault { link, what }));
    }

    /// Reports that bundles could not be sent.
    pub(super) fn fail(&mut self, link: LinkId, tags: Vec<Tag>) {
        self.report(link, tags, Outcome::Failed { acknowledged: 0 });
    }
}
