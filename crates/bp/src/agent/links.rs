//! Links of an agent and contacts of its plan, the queues of bundles for the neighbours behind
//! them, and the choice of a bundle's next hop.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::Time;

use super::config::{Entry, Routing};
use super::{Config, Held, LinkRef, NeighbourTraffic};
use crate::codec::bp7::Eid;
use crate::contacts::NodeNumber;
use crate::layer::{Neighbour, Tag};
use crate::routes::{Priority, Route, Router, Wanted};

/// First and longest back-off after a neighbour had no room, a layer failed, or the store did not
/// record the end of a bundle.
pub(super) const BACK_OFF: Duration = Duration::from_secs(1);
pub(super) const BACK_OFF_MAX: Duration = Duration::from_secs(60);

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
    back_off: Option<(Time, Duration)>,
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
pub(super) enum Receipt {
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
    /// Transmissions that it had.
    pub(super) bundles: Vec<Transmission>,
}

/// Transmission of a bundle over a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transmission {
    pub(super) at: LinkRef,
    pub(super) tag: Tag,
    /// Number of the bundle.
    pub(super) number: u64,
}

impl Transmission {
    pub(super) const fn key(self) -> (LinkRef, Tag) {
        (self.at, self.tag)
    }
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
    pub(super) to_reroute: BTreeSet<u64>,
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
    pub(super) fn on_link_up(
        &mut self,
        at: LinkRef,
        configured: Option<Eid>,
        neighbour: Neighbour,
    ) -> Up {
        let link = self.by_ref.entry(at).or_default();
        let is_new = link.up.is_none();
        let is_changed = link.up.as_ref().is_none_or(|up| up.bundle_max != neighbour.bundle_max);
        link.is_stranger = self.discovered.contains(&at) && neighbour.node.is_none();
        // A link that is no longer configured keeps its name until it is down: some protocols do
        // not announce one.
        let announced = || neighbour.node.as_ref().map(Eid::node);
        link.node = configured.or_else(announced).or_else(|| link.node.take());
        link.up = Some(neighbour);
        Up { node: link.node.clone(), is_new, is_changed }
    }

    /// Removes a link.
    pub(super) fn on_link_down(&mut self, at: LinkRef) -> Option<Down> {
        self.ending.remove(&at);
        let Link { node, sending, .. } = self.by_ref.remove(&at)?;
        let bundles = sending.bundles.into_iter();
        let bundles = bundles.map(|(tag, (number, _))| Transmission { at, tag, number });
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
            self.to_reroute.extend(queue.into_iter().flatten().map(|(_, number)| *number));
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
    pub(super) fn is_unreachable(&self, node: &Eid) -> bool {
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
            let is_free = link.back_off.is_none_or(|(until, _)| until <= now);
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
    pub(super) fn mark_queued(&mut self, node: &Eid) {
        let queue = self.queues.get(node).into_iter().flatten();
        self.to_reroute.extend(queue.map(|(_, number)| *number));
    }

    /// Has the bundles without a route routed again.
    pub(super) fn mark_waiting(&mut self) {
        self.has_spare_volume = false;
        self.to_reroute.extend(&self.waiting);
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
    pub(super) fn mark_declined(&mut self, node: &Eid) {
        self.to_reroute.extend(self.declined.remove(node).unwrap_or_default());
    }

    /// Records whether a neighbour is down after a failure. Returns whether that is a change.
    pub(super) fn set_failed(&mut self, node: &Eid, has_failed: bool) -> bool {
        if has_failed { self.failed.insert(node.clone()) } else { self.failed.remove(node) }
    }

    /// Bundles in transit over a link that have at least so many bytes.
    pub(super) fn count_at_least(&self, at: LinkRef, bytes: u64) -> usize {
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
        self.to_reroute.remove(&number);
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

    /// Records a transmission of a bundle with `bytes` bytes.
    pub(super) fn begin(&mut self, at: LinkRef, number: u64, bytes: u64) -> Transmission {
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        if let Some(link) = self.by_ref.get_mut(&at) {
            link.sending.insert(tag, number, bytes);
        }
        Transmission { at, tag, number }
    }

    /// Removes a transmission on which its layer reported. Returns it and its neighbour.
    pub(super) fn end(&mut self, at: LinkRef, tag: Tag) -> Option<(Transmission, Option<Eid>)> {
        let link = self.by_ref.get_mut(&at)?;
        let number = link.sending.remove(tag)?;
        Some((Transmission { at, tag, number }, link.node.clone()))
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
    pub(super) fn update_back_off(&mut self, now: Time, at: LinkRef, result: Receipt) -> bool {
        let Some(link) = self.by_ref.get_mut(&at) else { return false };
        match result {
            Receipt::Accepted => {
                link.back_off = None;
                false
            }
            Receipt::Declined => false,
            Receipt::NoRoom => {
                let long = link.back_off.map_or(BACK_OFF, |(_, long)| (2 * long).min(BACK_OFF_MAX));
                link.back_off = Some((now + long, long));
                true
            }
            // A layer whose link breaks reports that next. Until then it would fail every bundle at
            // once, without end.
            Receipt::Failed => {
                link.back_off =
                    Some((now + BACK_OFF, link.back_off.map_or(BACK_OFF, |(_, long)| long)));
                true
            }
        }
    }

    /// Ends the back-off of neighbours whose time has come.
    pub(super) fn end_back_offs(&mut self, now: Time) {
        let waits = |link: &&mut Link| link.back_off.is_some_and(|(until, _)| until <= now);
        for link in self.by_ref.values_mut().filter(waits) {
            // The length stays, because an immediate refusal is not the first.
            let long = link.back_off.map_or(BACK_OFF, |(_, long)| long);
            link.back_off = Some((Time::ZERO, long));
        }
    }

    /// End of the next back-off.
    pub(super) fn back_off_ends(&self) -> Option<Time> {
        let until = self.by_ref.values().filter_map(|link| link.back_off);
        until.map(|(until, _)| until).filter(|until| *until > Time::ZERO).min()
    }

    /// Records whether the contact of a link is current. Returns whether that is a change.
    pub(super) fn set_open(&mut self, at: LinkRef, is_open: bool) -> bool {
        if is_open { self.open.insert(at) } else { self.open.remove(&at) }
    }
}

/// State of a current contact with a neighbour.
#[derive(Clone, Copy, Debug)]
struct Current {
    begins: Time,
    /// Time at which the contact counts as missed unless the link is up.
    due: Time,
}

/// Neighbours and destinations of the contact plan, and the current contacts.
#[derive(Debug, Default)]
pub(super) struct Planned {
    neighbours: BTreeSet<NodeNumber>,
    destinations: BTreeSet<NodeNumber>,
    current: BTreeMap<NodeNumber, Current>,
}

/// Changes of contacts.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Neighbours whose contact began.
    pub(super) started: Vec<NodeNumber>,
    /// Neighbours whose contact ended.
    pub(super) over: Vec<NodeNumber>,
    /// Neighbours that are not reached in time.
    pub(super) missed: Vec<NodeNumber>,
    /// Time of the next change.
    pub(super) next: Option<Time>,
}

/// Administrative endpoint of a node.
pub(super) const fn node(number: NodeNumber) -> Eid {
    Eid::Ipn { node: number, service: 0 }
}

impl Planned {
    /// Neighbours and destinations of the plan in these settings.
    pub(super) fn new(config: &Config) -> Self {
        let mut planned = Self::default();
        if let (Routing::ContactGraph(router, _), Eid::Ipn { node, .. }) =
            (&config.routing, &config.node)
        {
            for contact in router.plan().contacts() {
                planned.destinations.insert(contact.to);
                if contact.from == *node {
                    planned.neighbours.insert(contact.to);
                }
            }
        }
        planned
    }

    /// Whether contacts lead to a node.
    pub(super) fn leads_to(&self, number: NodeNumber) -> bool {
        self.destinations.contains(&number)
    }

    /// Whether there is a current contact with a neighbour.
    pub(super) fn has_contact(&self, of: &Eid) -> bool {
        of.ipn_node().is_some_and(|node| self.current.contains_key(&node))
    }

    /// Whether the plan has contacts with a neighbour, but no current one.
    pub(super) fn is_between_contacts(&self, of: &Eid) -> bool {
        let is_planned = of.ipn_node().is_some_and(|node| self.neighbours.contains(&node));
        is_planned && !self.has_contact(of)
    }

    /// Compares the plan with the contacts known so far. `is_up` returns whether a neighbour is
    /// reached, `timeout` is the longest wait for that.
    pub(super) fn advance(
        &mut self,
        now: Time,
        router: &Router,
        timeout: Duration,
        is_up: impl Fn(&Eid) -> bool,
    ) -> Changes {
        let mut changes = Changes::default();
        for &number in &self.neighbours {
            let contact = router.next_contact(now, number);
            let current = contact.filter(|contact| contact.start <= now);
            let change = contact.map(|c| if c.start <= now { c.end } else { c.start });
            let known = self.current.get(&number).map(|known| known.begins);
            if known != current.map(|contact| contact.start) {
                if known.is_some() {
                    self.current.remove(&number);
                    changes.over.push(number);
                }
                if let Some(contact) = current {
                    let begins = contact.start;
                    self.current.insert(number, Current { begins, due: now + timeout });
                    changes.started.push(number);
                }
            }
            let mut due = None;
            if let Some(current) = self.current.get_mut(&number)
                && current.due < Time::MAX
            {
                if current.due > now {
                    due = Some(current.due);
                } else {
                    current.due = Time::MAX;
                    if !is_up(&node(number)) {
                        changes.missed.push(number);
                    }
                }
            }
            changes.next = [changes.next, change, due].into_iter().flatten().min();
        }
        changes
    }
}

/// Next hop of a bundle, and its route through the contact plan.
#[derive(Debug)]
pub(super) struct Hop {
    pub(super) node: Eid,
    pub(super) route: Option<Route>,
}

/// Next hop of a bundle. Volume is reserved for its route.
pub(super) fn next_hop(
    routing: &mut Routing,
    links: &Links,
    planned: &Planned,
    now: Time,
    held: &Held,
) -> Option<Hop> {
    let entries = match routing {
        Routing::Epidemic | Routing::Spray { .. } => return None,
        Routing::Static(entries) => entries,
        Routing::ContactGraph(router, entries) => {
            let destination = held.destination().ipn_node();
            let Some(destination) = destination.filter(|node| planned.leads_to(*node)) else {
                return by_entries(entries, links, held).or_else(|| discovered(links, held));
            };
            let excluded = excluded(links, held);
            let wanted = Wanted {
                destination,
                bytes: held.bytes(),
                priority: held.priority,
                expires: held.expires,
                excluded: &excluded,
            };
            let Some(route) = router.best(now, &wanted) else {
                return unplanned(now, links, held);
            };
            router.promise(&route, held.bytes(), held.priority);
            return Some(Hop { node: node(route.next_hop), route: Some(route) });
        }
    };
    by_entries(entries, links, held).or_else(|| discovered(links, held))
}

/// Nodes that a bundle must not visit: the one it came from, and those that declined it (CCSDS
/// 734.3-B-1 §3.2.5.2).
fn excluded(links: &Links, held: &Held) -> BTreeSet<u64> {
    let nodes = held.from.iter().chain(links.declined_by(held.number));
    nodes.filter_map(Eid::ipn_node).collect()
}

/// The destination itself if its link is up and idle, for a bundle without a route in the plan. No
/// other bundle is queued for it, so no promised volume is lost.
fn unplanned(now: Time, links: &Links, held: &Held) -> Option<Hop> {
    let node = held.destination().node();
    let is_free = links.queue(&node).next().is_none()
        && !links.free_links(now, &node).is_empty()
        && !links.has_declined(&node, held.number)
        && held.from.as_ref() != Some(&node);
    is_free.then_some(Hop { node, route: None })
}

/// The destination itself if it announced itself and its link is up, for a bundle without another
/// route.
fn discovered(links: &Links, held: &Held) -> Option<Hop> {
    let node = held.destination().node();
    let is_hop = links.reaches_discovered(&node)
        && !links.has_declined(&node, held.number)
        && !held.avoids(&node);
    is_hop.then_some(Hop { node, route: None })
}

/// Next hop of the first matching entry with one that may take the bundle: its first one that is
/// up; if none is, its first that has not failed, or else its first.
fn by_entries(entries: &[Entry], links: &Links, held: &Held) -> Option<Hop> {
    let may_take = |node: &&Eid| !links.has_declined(node, held.number) && !held.avoids(node);
    let next_hop = |entry: &Entry| {
        if let [via] = &entry.via[..] {
            return may_take(&via).then(|| via.clone());
        }
        let nodes: Vec<&Eid> = entry.via.iter().filter(may_take).collect();
        let up = nodes.iter().find(|node| links.reaches(node));
        let up = up.or_else(|| nodes.iter().find(|node| !links.failed.contains(node)));
        up.or(nodes.first()).map(|node| (*node).clone())
    };
    let mut fitting = entries.iter().filter(|entry| entry.to.matches(held.destination()));
    fitting.find_map(next_hop).map(|node| Hop { node, route: None })
}
