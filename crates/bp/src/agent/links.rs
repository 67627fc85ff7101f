//! Links of an agent, and the queues of bundles for the neighbours behind them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::Time;

use super::{LinkRef, NeighbourTraffic};
use crate::codec::bp7::Eid;
use crate::layer::{Neighbour, Tag};
use crate::routes::Priority;

/// First and longest back-off after a neighbour had no room, a layer failed, or the store did not
/// record the end of a bundle.
pub(super) const REST: Duration = Duration::from_secs(1);
pub(super) const REST_MAX: Duration = Duration::from_secs(60);

/// Position of a bundle in a queue, by descending priority.
type Place = (Reverse<Priority>, u64);

/// A neighbour over a layer.
#[derive(Debug, Default)]
struct Link {
    node: Option<Eid>,
    /// Whether the name does not count for the node's rights: it was only announced.
    is_stranger: bool,
    /// State of the neighbour, while it can be reached.
    up: Option<Neighbour>,
    /// Bundles in transit to it.
    sending: UnderWay,
    /// Back-off after it refused a bundle for want of room, or its layer failed: end and length.
    rests: Option<(Time, Duration)>,
}

/// Bundles in transit to a neighbour.
#[derive(Debug, Default)]
struct UnderWay {
    /// Number and bytes of each.
    bundles: BTreeMap<Tag, (u64, u64)>,
    bytes: u64,
}

impl UnderWay {
    fn insert(&mut self, tag: Tag, number: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bundles.insert(tag, (number, bytes));
    }

    /// Removes a transmission and returns the number of its bundle.
    fn remove(&mut self, tag: Tag) -> Option<u64> {
        let (number, bytes) = self.bundles.remove(&tag)?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(number)
    }

    /// Whether the window admits one more bundle.
    fn has_room(&self, up: &Neighbour) -> bool {
        self.bundles.len() < up.window || self.bytes < up.window_bytes
    }
}

/// Result of a transmission, as far as it determines the back-off of the neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reception {
    Accepted,
    /// The neighbour will never take this bundle, but may take others.
    Declined,
    NoRoom,
    Failed,
}

/// Link that is up.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) node: Option<Eid>,
    /// Whether it was down.
    pub(super) is_new: bool,
    /// Whether it is new, or takes bundles of another length than before.
    pub(super) is_changed: bool,
}

/// Link that went down.
#[derive(Debug)]
pub(super) struct Down {
    pub(super) node: Option<Eid>,
    /// Bundles that were in transit.
    pub(super) bundles: Vec<(Tag, u64)>,
}

/// Links and queues of bundles.
#[derive(Debug, Default)]
pub(super) struct Links {
    by_ref: BTreeMap<LinkRef, Link>,
    /// Links with a current contact.
    open: BTreeSet<LinkRef>,
    /// Links to nodes that announced themselves.
    pub(super) discovered: BTreeSet<LinkRef>,
    /// Links of lost ones, until they are down.
    ending: BTreeSet<LinkRef>,
    /// Bundles queued for each neighbour.
    queues: BTreeMap<Eid, BTreeSet<Place>>,
    /// Bundles for which there is no route.
    pub(super) waiting: BTreeSet<u64>,
    /// Bundles to route again, although they wait or are queued.
    pub(super) again: BTreeSet<u64>,
    /// Bundles that a neighbour does not take in its current session: it refused them, or they are
    /// too long.
    declined: BTreeMap<Eid, BTreeSet<u64>>,
    /// Neighbours that are down after a failure: their contact was missed, their link broke, or no
    /// connection was established.
    pub(super) failed: BTreeSet<Eid>,
    /// Neighbours with freed transmission slots.
    pub(super) freed: BTreeSet<Eid>,
    /// Whether contact volume was released since bundles were last routed again.
    pub(super) has_spare_volume: bool,
    next_tag: u64,
}

impl Links {
    /// Records that a link is up to a neighbour with this configured or announced name.
    pub(super) fn link_up(
        &mut self,
        at: LinkRef,
        configured: Option<Eid>,
        neighbour: Neighbour,
    ) -> Up {
        let link = self.by_ref.entry(at).or_default();
        let is_new = link.up.is_none();
        let is_changed = link.up.as_ref().is_none_or(|up| up.bundle_max != neighbour.bundle_max);
        link.is_stranger = self.discovered.contains(&at) && neighbour.node.is_none();
        // A link that is no longer configured keeps its name until it is down: some protocols do not
        // announce one.
        let announced = || neighbour.node.as_ref().map(Eid::node);
        link.node = configured.or_else(announced).or_else(|| link.node.take());
        link.up = Some(neighbour);
        Up { node: link.node.clone(), is_new, is_changed }
    }

    /// Removes a link.
    pub(super) fn link_down(&mut self, at: LinkRef) -> Option<Down> {
        self.ending.remove(&at);
        let Link { node, sending, .. } = self.by_ref.remove(&at)?;
        let bundles = sending.bundles.into_iter().map(|(tag, (number, _))| (tag, number));
        Some(Down { node, bundles: bundles.collect() })
    }

    /// Neighbours with queued bundles or bundles in transit.
    pub(super) fn wanted(&self) -> BTreeSet<Eid> {
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let sending = self.by_ref.values().filter(|link| !link.sending.bundles.is_empty());
        let sending = sending.filter_map(|link| link.node.clone());
        waiting.map(|(node, _)| node.clone()).chain(sending).collect()
    }

    /// Links that can be used, and their neighbours.
    pub(super) fn up(&self) -> impl Iterator<Item = (LinkRef, Option<&Eid>)> {
        let up = self.by_ref.iter().filter(|(_, link)| link.up.is_some());
        up.map(|(at, link)| (*at, link.node.as_ref()))
    }

    /// Neighbours that can be reached.
    pub(super) fn nodes_up(&self) -> BTreeSet<Eid> {
        self.up().filter_map(|(_, node)| node.cloned()).collect()
    }

    /// Whether a link is up.
    pub(super) fn is_up(&self, at: LinkRef) -> bool {
        self.by_ref.get(&at).is_some_and(|link| link.up.is_some())
    }

    /// Neighbour of a link.
    pub(super) fn node(&self, at: LinkRef) -> Option<&Eid> {
        self.by_ref.get(&at)?.node.as_ref()
    }

    /// Neighbour of a link, if its name counts.
    pub(super) fn known(&self, at: LinkRef) -> Option<&Eid> {
        self.by_ref.get(&at).filter(|link| !link.is_stranger)?.node.as_ref()
    }

    /// Replaces the links to nodes that announced themselves. Bundles queued for lost ones are
    /// routed again, whenever the links are down.
    pub(super) fn set_discovered(&mut self, links: BTreeSet<LinkRef>) {
        let former = std::mem::replace(&mut self.discovered, links);
        for at in former.difference(&self.discovered) {
            let Some(link) = self.by_ref.get(at) else { continue };
            self.ending.insert(*at);
            let queue = link.node.as_ref().and_then(|node| self.queues.get(node));
            self.again.extend(queue.into_iter().flatten().map(|(_, number)| *number));
        }
    }

    /// Whether a node that announced itself can be reached.
    pub(super) fn reaches_discovered(&self, node: &Eid) -> bool {
        self.up().any(|(at, other)| other == Some(node) && self.discovered.contains(&at))
    }

    /// Whether a neighbour is up whose name counts: it may have bundles for others.
    pub(super) fn reaches_known(&self, node: &Eid) -> bool {
        let up = self.by_ref.values().filter(|link| link.up.is_some() && !link.is_stranger);
        up.filter_map(|link| link.node.as_ref()).any(|other| other == node)
    }

    /// Whether no link to a neighbour is up, or only one that is about to end.
    pub(super) fn is_idle(&self, node: &Eid) -> bool {
        !self.up().any(|(at, other)| other == Some(node) && !self.ending.contains(&at))
    }

    /// Whether a neighbour can be reached.
    pub(super) fn reaches(&self, node: &Eid) -> bool {
        self.up().any(|(_, other)| other == Some(node))
    }

    /// Links to a neighbour that take one more bundle now, and the longest bundle in bytes that
    /// each takes.
    pub(super) fn free_links(&self, now: Time, node: &Eid) -> Vec<(LinkRef, u64)> {
        let free = self.by_ref.iter().filter_map(|(at, link)| {
            let up = link.up.as_ref().filter(|_| link.node.as_ref() == Some(node))?;
            let is_free = link.rests.is_none_or(|(until, _)| until <= now);
            (is_free && link.sending.has_room(up)).then_some((*at, up.bundle_max))
        });
        free.collect()
    }

    /// Longest bundle in bytes that a neighbour takes over any of its links.
    pub(super) fn bundle_max(&self, node: &Eid) -> u64 {
        let links = self.by_ref.values().filter(|link| link.node.as_ref() == Some(node));
        links.filter_map(|link| Some(link.up.as_ref()?.bundle_max)).max().unwrap_or(0)
    }

    /// Puts a bundle into the queue of a neighbour.
    pub(super) fn enqueue(&mut self, node: &Eid, priority: Priority, number: u64) {
        self.queues.entry(node.clone()).or_default().insert((Reverse(priority), number));
    }

    /// Takes a bundle out of the queue of a neighbour.
    pub(super) fn dequeue(&mut self, node: &Eid, priority: Priority, number: u64) {
        if let Some(queue) = self.queues.get_mut(node) {
            queue.remove(&(Reverse(priority), number));
        }
    }

    /// Bundles queued for a neighbour.
    pub(super) fn queue(&self, node: &Eid) -> impl Iterator<Item = u64> + '_ {
        self.queues.get(node).into_iter().flatten().map(|(_, number)| *number)
    }

    /// Neighbours with queued bundles.
    pub(super) fn queued(&self) -> impl Iterator<Item = &Eid> {
        self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(node, _)| node)
    }

    /// Has the bundles queued for a neighbour routed again.
    pub(super) fn queue_again(&mut self, node: &Eid) {
        let queue = self.queues.get(node).into_iter().flatten();
        self.again.extend(queue.map(|(_, number)| *number));
    }

    /// Has the bundles without a route routed again.
    pub(super) fn wait_again(&mut self) {
        self.has_spare_volume = false;
        self.again.extend(&self.waiting);
    }

    /// Records that a neighbour does not take a bundle in its current session.
    pub(super) fn decline(&mut self, node: &Eid, number: u64) {
        self.declined.entry(node.clone()).or_default().insert(number);
    }

    /// Whether a neighbour does not take a bundle in its current session.
    pub(super) fn has_declined(&self, node: &Eid, number: u64) -> bool {
        self.declined.get(node).is_some_and(|numbers| numbers.contains(&number))
    }

    /// Neighbours that do not take a bundle in their current sessions.
    pub(super) fn declined_by(&self, number: u64) -> impl Iterator<Item = &Eid> {
        let by = self.declined.iter().filter(move |(_, numbers)| numbers.contains(&number));
        by.map(|(node, _)| node)
    }

    /// Begins or ends a session of a neighbour: declined bundles may be offered once more.
    pub(super) fn offer_again(&mut self, node: &Eid) {
        self.again.extend(self.declined.remove(node).unwrap_or_default());
    }

    /// Records whether a neighbour is down after a failure. Returns whether that is a change.
    pub(super) fn set_failed(&mut self, node: &Eid, has_failed: bool) -> bool {
        if has_failed { self.failed.insert(node.clone()) } else { self.failed.remove(node) }
    }

    /// Bundles in transit over a link that have at least so many bytes.
    pub(super) fn long_ones(&self, at: LinkRef, bytes: u64) -> usize {
        let sending = self.by_ref.get(&at).map(|link| &link.sending.bundles);
        sending.map_or(0, |of| of.values().filter(|(_, len)| *len >= bytes).count())
    }

    /// Whether bundles wait for a route, and contact volume was released.
    pub(super) fn may_use_volume(&self) -> bool {
        self.has_spare_volume && !self.waiting.is_empty()
    }

    /// Removes a bundle that is gone.
    pub(super) fn forget(&mut self, number: u64) {
        self.waiting.remove(&number);
        self.again.remove(&number);
        self.declined.retain(|_, numbers| {
            numbers.remove(&number);
            !numbers.is_empty()
        });
    }

    /// Traffic with each neighbour that is up, or for which bundles are queued.
    pub(super) fn traffic(&self) -> BTreeMap<Eid, NeighbourTraffic> {
        let mut traffic: BTreeMap<Eid, NeighbourTraffic> = BTreeMap::new();
        for link in self.by_ref.values().filter(|link| link.up.is_some()) {
            let Some(node) = &link.node else { continue };
            let with = traffic.entry(node.clone()).or_default();
            with.links += 1;
            with.sending.0 += link.sending.bundles.len();
            with.sending.1 = with.sending.1.saturating_add(link.sending.bytes);
        }
        for (node, queue) in self.queues.iter().filter(|(_, queue)| !queue.is_empty()) {
            traffic.entry(node.clone()).or_default().queued = queue.len();
        }
        traffic
    }

    /// Records a transmission of a bundle with `bytes` bytes. Returns its tag.
    pub(super) fn begin(&mut self, at: LinkRef, number: u64, bytes: u64) -> Tag {
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        if let Some(link) = self.by_ref.get_mut(&at) {
            link.sending.insert(tag, number, bytes);
        }
        tag
    }

    /// Removes a transmission on which its layer reported. Returns the bundle and its neighbour.
    pub(super) fn end(&mut self, at: LinkRef, tag: Tag) -> Option<(u64, Option<Eid>)> {
        let link = self.by_ref.get_mut(&at)?;
        let number = link.sending.remove(tag)?;
        Some((number, link.node.clone()))
    }

    /// Removes a transmission without a report of its layer.
    pub(super) fn abort(&mut self, at: LinkRef, tag: Tag) {
        let Some(link) = self.by_ref.get_mut(&at) else { return };
        if link.sending.remove(tag).is_some() {
            self.freed.extend(link.node.clone());
        }
    }

    /// Starts the back-off of a neighbour if the result of a transmission calls for it; returns
    /// whether it does.
    pub(super) fn rest(&mut self, now: Time, at: LinkRef, result: Reception) -> bool {
        let Some(link) = self.by_ref.get_mut(&at) else { return false };
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
            // A layer whose link breaks reports that next. Until then it would fail every bundle at
            // once, without end.
            Reception::Failed => {
                link.rests = Some((now + REST, link.rests.map_or(REST, |(_, long)| long)));
                true
            }
        }
    }

    /// Ends the back-off of neighbours whose time has come.
    pub(super) fn rested(&mut self, now: Time) {
        let waits = |link: &&mut Link| link.rests.is_some_and(|(until, _)| until <= now);
        for link in self.by_ref.values_mut().filter(waits) {
            // The length stays, because an immediate refusal is not the first.
            let long = link.rests.map_or(REST, |(_, long)| long);
            link.rests = Some((Time::ZERO, long));
        }
    }

    /// End of the next back-off.
    pub(super) fn rests_until(&self) -> Option<Time> {
        let until = self.by_ref.values().filter_map(|link| link.rests);
        until.map(|(until, _)| until).filter(|until| *until > Time::ZERO).min()
    }

    /// Records whether the contact of a link is current. Returns whether that is a change.
    pub(super) fn set_open(&mut self, at: LinkRef, is_open: bool) -> bool {
        if is_open { self.open.insert(at) } else { self.open.remove(&at) }
    }
}
