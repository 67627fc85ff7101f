//! The links of an agent, and the bundles that wait for the neighbours behind them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::Time;
use wire::bp7::Eid;

use super::LinkRef;
use crate::bp::layer::{Neighbour, Tag};
use crate::bp::routes::Priority;

/// First and longest rest of a neighbour that has no room or whose layer failed, and of a store
/// that did not record that a bundle is gone.
pub(super) const REST: Duration = Duration::from_secs(1);
pub(super) const REST_MAX: Duration = Duration::from_secs(60);

/// Place of a bundle in a queue, the urgent ones first.
pub(super) type Place = (Reverse<Priority>, u64);

/// A neighbour over a layer.
#[derive(Debug, Default)]
struct Link {
    node: Option<Eid>,
    /// The neighbour, while it can be reached.
    up: Option<Neighbour>,
    /// Bundles on their way to it.
    sending: UnderWay,
    /// Rest after it refused a bundle for want of room, or its layer failed: its end and length.
    rests: Option<(Time, Duration)>,
}

/// Bundles on their way to a neighbour.
#[derive(Debug, Default)]
struct UnderWay {
    /// Their numbers and bytes.
    bundles: BTreeMap<Tag, (u64, u64)>,
    bytes: u64,
}

impl UnderWay {
    fn insert(&mut self, tag: Tag, number: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bundles.insert(tag, (number, bytes));
    }

    /// Returns the number of the bundle.
    fn remove(&mut self, tag: Tag) -> Option<u64> {
        let (number, bytes) = self.bundles.remove(&tag)?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(number)
    }

    /// Whether one more may be on its way.
    fn has_room(&self, up: &Neighbour) -> bool {
        self.bundles.len() < up.window || self.bytes < up.window_bytes
    }
}

/// Result of a transmission, as far as it decides when the neighbour is next sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reception {
    Accepted,
    /// It will never take the bundle, but others.
    Declined,
    NoRoom,
    Failed,
}

/// A link that went down.
#[derive(Debug)]
pub(super) struct Down {
    pub(super) node: Option<Eid>,
    /// The bundles that were on their way.
    pub(super) bundles: Vec<(Tag, u64)>,
}

/// Links, and bundles that wait for neighbours.
#[derive(Debug, Default)]
pub(super) struct Forwarder {
    links: BTreeMap<LinkRef, Link>,
    /// Links whose contact goes on.
    open: BTreeSet<LinkRef>,
    /// Bundles that wait for a neighbour.
    queues: BTreeMap<Eid, BTreeSet<Place>>,
    /// Bundles for which there is no route.
    waiting: BTreeSet<u64>,
    /// Neighbours of which fewer bundles are under way than were, so that others may go.
    freed: BTreeSet<Eid>,
    next_tag: u64,
}

impl Forwarder {
    /// Notes that a link is up to a neighbour, which has this name or says one. Returns the name,
    /// and whether it was down.
    pub(super) fn link_up(
        &mut self,
        at: LinkRef,
        configured: Option<Eid>,
        neighbour: Neighbour,
    ) -> (Option<Eid>, bool) {
        let link = self.links.entry(at).or_default();
        let is_new = link.up.is_none();
        link.node = configured.or_else(|| neighbour.node.as_ref().map(Eid::node));
        link.up = Some(neighbour);
        (link.node.clone(), is_new)
    }

    /// Forgets a link.
    pub(super) fn link_down(&mut self, at: LinkRef) -> Option<Down> {
        let Link { node, sending, .. } = self.links.remove(&at)?;
        let bundles = sending.bundles.into_iter().map(|(tag, (number, _))| (tag, number));
        Some(Down { node, bundles: bundles.collect() })
    }

    /// The neighbours for which bundles wait, or to which they are on their way.
    pub(super) fn wanted(&self) -> BTreeSet<Eid> {
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let sending = self.links.values().filter(|link| !link.sending.bundles.is_empty());
        let sending = sending.filter_map(|link| link.node.clone());
        waiting.map(|(node, _)| node.clone()).chain(sending).collect()
    }

    /// The links that can be used, and their neighbours.
    pub(super) fn up(&self) -> impl Iterator<Item = (LinkRef, Option<&Eid>)> {
        let up = self.links.iter().filter(|(_, link)| link.up.is_some());
        up.map(|(at, link)| (*at, link.node.as_ref()))
    }

    /// A link to a neighbour that takes one more bundle now, and the most bytes of one there.
    pub(super) fn free_link(&self, now: Time, node: &Eid) -> Option<(LinkRef, u64)> {
        let (at, link) = self.links.iter().find(|(_, link)| {
            link.node.as_ref() == Some(node)
                && link.rests.is_none_or(|(until, _)| until <= now)
                && link.up.as_ref().is_some_and(|up| link.sending.has_room(up))
        })?;
        Some((*at, link.up.as_ref().map_or(0, |up| up.bundle_max)))
    }

    /// Puts a bundle into the queue of a neighbour.
    pub(super) fn enqueue(&mut self, node: &Eid, priority: Priority, number: u64) {
        self.queues.entry(node.clone()).or_default().insert((Reverse(priority), number));
    }

    /// Takes a bundle out of the queue of a neighbour.
    pub(super) fn dequeue(&mut self, node: &Eid, place: Place) {
        if let Some(queue) = self.queues.get_mut(node) {
            queue.remove(&place);
        }
    }

    /// The bundles that wait for a neighbour.
    pub(super) fn queue(&self, node: &Eid) -> impl Iterator<Item = Place> + '_ {
        self.queues.get(node).into_iter().flatten().copied()
    }

    /// Takes out all bundles that wait for a neighbour.
    pub(super) fn take_queue(&mut self, node: &Eid) -> BTreeSet<Place> {
        self.queues.remove(node).unwrap_or_default()
    }

    /// Notes that there is no route for a bundle.
    pub(super) fn wait(&mut self, number: u64) {
        self.waiting.insert(number);
    }

    /// Notes that a bundle waits for a route no longer.
    pub(super) fn wait_no_longer(&mut self, number: u64) {
        self.waiting.remove(&number);
    }

    /// Bundles for which there is no route.
    pub(super) fn waiting(&self) -> Vec<u64> {
        self.waiting.iter().copied().collect()
    }

    /// The tag of a transmission that is about to begin.
    pub(super) fn new_tag(&mut self) -> Tag {
        self.next_tag += 1;
        Tag(self.next_tag - 1)
    }

    /// Notes that a bundle is on its way, with so many bytes.
    pub(super) fn begin(&mut self, at: LinkRef, tag: Tag, number: u64, bytes: u64) {
        if let Some(link) = self.links.get_mut(&at) {
            link.sending.insert(tag, number, bytes);
        }
    }

    /// Notes that a layer reports on a transmission. Returns the bundle, and its neighbour.
    pub(super) fn end(&mut self, at: LinkRef, tag: Tag) -> Option<(u64, Option<Eid>)> {
        let link = self.links.get_mut(&at)?;
        let number = link.sending.remove(tag)?;
        Some((number, link.node.clone()))
    }

    /// Ends a transmission on which its layer did not report.
    pub(super) fn abort(&mut self, at: LinkRef, tag: Tag) {
        let Some(link) = self.links.get_mut(&at) else { return };
        if link.sending.remove(tag).is_some() {
            self.freed.extend(link.node.clone());
        }
    }

    /// The next neighbour of which fewer bundles are under way than were.
    pub(super) fn pop_freed(&mut self) -> Option<Eid> {
        self.freed.pop_first()
    }

    /// Lets a neighbour rest, if the result of a transmission is a reason for that; whether it is.
    pub(super) fn rest(&mut self, now: Time, at: LinkRef, result: Reception) -> bool {
        let Some(link) = self.links.get_mut(&at) else { return false };
        match result {
            Reception::Accepted => {
                link.rests = None;
                false
            }
            Reception::Declined => false,
            Reception::NoRoom => {
                let long = link.rests.map_or(REST, |(_, long)| (2 * long).min(REST_MAX));
                link.rests = Some((now + long, long));
                true
            }
            // A layer whose link breaks says so next. Until it does it would fail whatever it is
            // given, at once and without end.
            Reception::Failed => {
                link.rests = Some((now + REST, link.rests.map_or(REST, |(_, long)| long)));
                true
            }
        }
    }

    /// Notes that neighbours have rested.
    pub(super) fn rested(&mut self, now: Time) {
        let waits = |link: &&mut Link| link.rests.is_some_and(|(until, _)| until <= now);
        for link in self.links.values_mut().filter(waits) {
            // The time is kept, for a refusal that comes next is not the first.
            let long = link.rests.map_or(REST, |(_, long)| long);
            link.rests = Some((Time::ZERO, long));
        }
    }

    /// When the next neighbour has rested.
    pub(super) fn rests_until(&self) -> Option<Time> {
        let until = self.links.values().filter_map(|link| link.rests);
        until.map(|(until, _)| until).filter(|until| *until > Time::ZERO).min()
    }

    /// Notes whether the contact of a link goes on. Returns whether that is a change.
    pub(super) fn set_open(&mut self, at: LinkRef, is_open: bool) -> bool {
        if is_open { self.open.insert(at) } else { self.open.remove(&at) }
    }
}
