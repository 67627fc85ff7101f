//! Neighbours of a layer whose bundles go in sessions of an engine below, which stand still while a path is down.
//!
//! So a neighbour stays up through an outage, and a contact that ends lets what is under way end first, both as long as the
//! layer's patience lasts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{Deadline, PathEvent, Time, Timers};

use super::layer::{Event, LinkId, Neighbour, Outcome, Tag};
use crate::timer::TICK;

/// A neighbour.
#[derive(Debug, Default)]
struct Link {
    /// The agent wants it to be reached.
    is_wanted: bool,
    /// The agent knows that it can be.
    is_up: bool,
    path_is_up: bool,
    /// The agent wants nothing of it for now.
    is_held: bool,
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
        | PathEvent::Secured(_)
        | PathEvent::ReturnDown
        | PathEvent::ReturnUp => None,
    }
}

/// What all neighbours have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How long one may be away before what is under way is given up.
    pub(super) patience: Duration,
    /// Bundles under way to one.
    pub(super) window: usize,
    /// Bytes of the longest bundle.
    pub(super) bundle_max: u64,
    /// How many of those that came by themselves are remembered.
    pub(super) strangers: usize,
}

/// The neighbours of a layer, known by addresses `A`, and what is under way to them in sessions named by `K`.
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
    /// With those that the layer was told of.
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

    /// The neighbour at an address.
    pub(super) fn at(&self, address: A) -> Option<LinkId> {
        self.by_address.get(&address).copied()
    }

    /// The neighbour from which something came. One that nobody told of comes by itself, nothing is sent to it, and it is
    /// forgotten for another when the agent owes it no answer: so it comes again, as a new one. `None` if there are too many to
    /// which something is owed.
    pub(super) fn met(&mut self, address: A, is_owed: impl Fn(LinkId) -> bool) -> Option<LinkId> {
        if let Some(id) = self.at(address) {
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

    /// Bytes of memory held on account of those that came by themselves.
    pub(super) fn memory(&self) -> usize {
        let each = size_of::<(LinkId, Link)>() + size_of::<(A, LinkId)>();
        self.links.range(LinkId::CAME..).count() * each
    }

    /// Whether bundles may go to a neighbour.
    pub(super) fn is_open(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| link.is_up && link.is_wanted)
    }

    /// Whether the agent wants nothing of a neighbour for now.
    pub(super) fn is_held(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| link.is_held)
    }

    /// The agent wants to hear of a neighbour, or not.
    pub(super) fn hold(&mut self, id: LinkId, is_held: bool) {
        if let Some(link) = self.links.get_mut(&id) {
            link.is_held = is_held;
        }
    }

    /// A contact begins or ends.
    pub(super) fn want(&mut self, now: Time, id: LinkId, is_wanted: bool) {
        if let Some(link) = self.links.get_mut(&id) {
            link.is_wanted = is_wanted;
            self.look_at(now, id);
        }
    }

    /// The path to a neighbour comes up or goes down, if that is what happened to it.
    pub(super) fn path(&mut self, now: Time, id: LinkId, change: Option<bool>) {
        if let (Some(link), Some(is_up)) = (self.links.get_mut(&id), change) {
            link.path_is_up = is_up;
            self.look_at(now, id);
        }
    }

    /// Looks whether a neighbour can be reached now, or is away.
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
                self.timers.set(id, now + patience.max(TICK), "a neighbour that is away");
            }
            self.down_if_over(id);
        }
    }

    /// The contact with a neighbour is over once nothing is under way.
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
        let to_it = self.sending.iter().filter(|(_, sending)| sending.link == id);
        to_it.map(|(session, _)| *session).collect()
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
