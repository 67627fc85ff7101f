//! Neighbours of a layer whose bundles go in sessions of an engine below, which stand still while a path is down.
//!
//! So a neighbour stays up through an outage, and a contact that ends lets what is under way end first, both as long as the
//! layer's patience lasts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::{Deadline, PathEvent, PathId, Time, Timers};

use super::layer::{Event, LinkId, Neighbour, Outcome, Tag};
use crate::timer::TICK;

/// A neighbour.
#[derive(Debug)]
pub(super) struct Link<K> {
    pub(super) path: PathId,
    /// The agent wants it to be reached.
    pub(super) is_wanted: bool,
    /// The agent knows that it can be.
    pub(super) is_up: bool,
    path_is_up: bool,
    /// The agent wants nothing of it for now.
    pub(super) is_held: bool,
    /// Sessions to it.
    sessions: BTreeSet<K>,
}

/// A session that sends.
#[derive(Debug)]
struct Sending {
    link: LinkId,
    tags: Vec<Tag>,
    /// The agent wants it no longer.
    is_cancelled: bool,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bundles that neighbours have.
    pub sent: u64,
    /// Bundles that have left, of which nobody tells whether they arrive.
    pub left: u64,
    /// Bundles that were not sent to their end.
    pub failed: u64,
    /// Bundles that came whole.
    pub received: u64,
    /// What came and was no bundle, and sessions that broke the protocol.
    pub faults: u64,
}

/// Whether an event of a path says that it is up, or that it is not.
pub(super) const fn is_up(event: &PathEvent) -> Option<bool> {
    match event {
        PathEvent::Up(_) => Some(true),
        PathEvent::Down => Some(false),
        PathEvent::Blocked
        | PathEvent::Writable
        | PathEvent::ReadClosed
        | PathEvent::Missing { .. }
        | PathEvent::Secured(_) => None,
    }
}

/// The neighbours of a layer, and what is under way to them in sessions named by `K`.
#[derive(Debug)]
pub(super) struct Neighbours<K> {
    links: BTreeMap<LinkId, Link<K>>,
    sending: BTreeMap<K, Sending>,
    patience: Duration,
    window: usize,
    bundle_max: u64,
    strangers: usize,
    next_came: u32,
    timers: Timers<LinkId>,
    pub(super) events: VecDeque<Event>,
    pub(super) statistics: Statistics,
}

impl<K: Copy + Ord> Neighbours<K> {
    pub(super) fn new(
        patience: Duration,
        window: usize,
        bundle_max: u64,
        strangers: usize,
    ) -> Self {
        Self {
            links: BTreeMap::new(),
            sending: BTreeMap::new(),
            patience,
            window,
            bundle_max,
            strangers,
            next_came: LinkId::CAME.0,
            timers: Timers::new(),
            events: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    /// A neighbour that the layer was told of.
    pub(super) fn add(&mut self, id: LinkId, path: PathId) {
        let (is_wanted, is_up, path_is_up, is_held) = (false, false, false, false);
        let sessions = BTreeSet::new();
        let link = Link { path, is_wanted, is_up, path_is_up, is_held, sessions };
        self.links.insert(id, link);
    }

    /// A neighbour that came by itself, to which nothing is sent; `None` if there are too many.
    pub(super) fn come(&mut self, path: PathId) -> Option<LinkId> {
        if self.links.range(LinkId::CAME..).count() >= self.strangers {
            return None;
        }
        self.next_came = self.next_came.wrapping_add(1).max(LinkId::CAME.0);
        let id = LinkId(self.next_came);
        self.add(id, path);
        Some(id)
    }

    pub(super) fn get(&self, id: LinkId) -> Option<&Link<K>> {
        self.links.get(&id)
    }

    /// A neighbour to which bundles may go.
    pub(super) fn open(&self, id: LinkId) -> Option<&Link<K>> {
        self.links.get(&id).filter(|link| link.is_up && link.is_wanted)
    }

    /// The agent wants to hear of a neighbour, or not; whether there is one.
    pub(super) fn hold(&mut self, id: LinkId, is_held: bool) -> bool {
        let Some(link) = self.links.get_mut(&id) else { return false };
        link.is_held = is_held;
        true
    }

    /// A contact begins or ends.
    pub(super) fn want(&mut self, now: Time, id: LinkId, is_wanted: bool) {
        if let Some(link) = self.links.get_mut(&id) {
            link.is_wanted = is_wanted;
            self.look_at(now, id);
        }
    }

    /// A path comes up or goes down.
    pub(super) fn path(&mut self, now: Time, path: PathId, change: Option<bool>) {
        let Some(is_up) = change else { return };
        let of_path = self.links.iter_mut().filter(|(_, link)| link.path == path);
        let mut changed = Vec::new();
        for (id, link) in of_path {
            link.path_is_up = is_up;
            changed.push(*id);
        }
        for id in changed {
            self.look_at(now, id);
        }
    }

    /// Looks whether a neighbour can be reached now, or is away.
    fn look_at(&mut self, now: Time, id: LinkId) {
        let (bundle_max, window) = (self.bundle_max, self.window.max(1));
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.is_wanted && link.path_is_up {
            self.timers.cancel(id);
            if !std::mem::replace(&mut link.is_up, true) {
                let neighbour =
                    Neighbour { node: None, is_authenticated: false, bundle_max, window };
                self.events.push_back(Event::Up { link: id, neighbour });
            }
        } else if link.is_up {
            if self.timers.get(id).is_none() {
                self.timers.set(id, now + self.patience.max(TICK), "a neighbour that is away");
            }
            self.down_if_over(id);
        }
    }

    /// The contact with a neighbour is over once nothing is under way.
    fn down_if_over(&mut self, id: LinkId) {
        let is_over = |link: &Link<K>| link.is_up && !link.is_wanted && link.sessions.is_empty();
        if self.links.get(&id).is_some_and(is_over) {
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

    /// A neighbour that was away for too long: what is under way to it is to be cancelled, and then it is down.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<LinkId> {
        self.timers.pop_due(now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }

    /// Bundles are under way.
    pub(super) fn begun(&mut self, id: LinkId, session: K, tags: Vec<Tag>) {
        self.sending.insert(session, Sending { link: id, tags, is_cancelled: false });
        if let Some(link) = self.links.get_mut(&id) {
            link.sessions.insert(session);
        }
    }

    /// The session in which a bundle goes alone.
    pub(super) fn session_of(&self, id: LinkId, tag: Tag) -> Option<K> {
        let is_it = |sending: &Sending| {
            sending.link == id && sending.tags == [tag] && !sending.is_cancelled
        };
        self.sending.iter().find(|(_, sending)| is_it(sending)).map(|(session, _)| *session)
    }

    /// The sessions to a neighbour.
    pub(super) fn sessions_to(&self, id: LinkId) -> Vec<K> {
        self.links.get(&id).map(|link| link.sessions.iter().copied().collect()).unwrap_or_default()
    }

    /// A session is being cancelled here.
    pub(super) fn cancelled(&mut self, session: K) {
        if let Some(sending) = self.sending.get_mut(&session) {
            sending.is_cancelled = true;
        }
    }

    /// A session is over; one that was cancelled here has failed, however it ended.
    pub(super) fn ended(&mut self, session: K, outcome: Outcome) {
        let Some(Sending { link, tags, is_cancelled }) = self.sending.remove(&session) else {
            return;
        };
        let failed = Outcome::Failed { acknowledged: 0 };
        let is_there = outcome == Outcome::Acknowledged;
        self.tell(link, tags, if is_cancelled && !is_there { failed } else { outcome });
        if let Some(known) = self.links.get_mut(&link) {
            known.sessions.remove(&session);
        }
        self.down_if_over(link);
    }

    /// Tells how sending bundles ended.
    pub(super) fn tell(&mut self, link: LinkId, tags: Vec<Tag>, outcome: Outcome) {
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

    /// Bundles could not be sent.
    pub(super) fn fail(&mut self, link: LinkId, tags: Vec<Tag>) {
        self.tell(link, tags, Outcome::Failed { acknowledged: 0 });
    }
}
