//! Contact graph routing: the best route by the keys of CCSDS 734.3-B-1 §3.2.8.1.4, given the
//! contact volume booked for other bundles.

use std::collections::BTreeSet;

use engine::Time;

use super::booking::Bookings;
pub use super::booking::Priority;
pub use super::contacts::ContactId;
use super::contacts::{Contact, ContactPlan, NodeNumber};
use super::graph::{Graph, Load, NodeIndex};
use super::list::{EXAMINED_MAX, Routes};
use super::search::{Source, follow};
use super::selection::Found;
use super::settings::{Exclusion, List, Settings};
use super::trees::Trees;

/// Requirements of a route.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Destination node.
    pub destination: NodeNumber,
    /// Length of the bundle in bytes; the settings add the overhead of lower layers. 0 for a
    /// search by time alone.
    pub bytes: u64,
    /// Priority of the bundle.
    pub priority: Priority,
    /// Expiry of the bundle.
    pub expires: Time,
    /// Nodes that are not the next hop, or not visited at all, by the settings.
    pub excluded: &'a BTreeSet<NodeNumber>,
}

/// Passage of a bundle over a contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// Contact.
    pub contact: ContactId,
    /// Departure of the first byte.
    pub first: Time,
    /// Departure of the last byte.
    pub last: Time,
    /// Arrival of the last byte, with the margin.
    pub arrives: Time,
}

/// Route through the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Next hop: the entry node of the route.
    pub next_hop: NodeNumber,
    /// Contacts from this node to the destination.
    pub legs: Vec<Leg>,
    /// Departure of the first byte from this node.
    pub leaves: Time,
    /// Projected arrival of the last byte at the destination.
    pub arrives: Time,
    /// Termination: the earliest end of its contacts.
    pub terminates: Time,
}

impl Route {
    /// Its contacts.
    pub fn contacts(&self) -> impl Iterator<Item = ContactId> {
        self.legs.iter().map(|leg| leg.contact)
    }
}

/// Router of a node, which also tracks booked contact volume.
#[derive(Clone, Debug)]
pub struct Router {
    pub(super) local: NodeNumber,
    pub(super) plan: ContactPlan,
    pub(super) settings: Settings,
    pub(super) graph: Graph,
    pub(super) next_id: u32,
    pub(super) trees: Trees,
}

impl Router {
    /// Router of node `local`.
    #[must_use]
    pub fn new(local: NodeNumber, plan: ContactPlan, settings: Settings) -> Self {
        let next_id = plan.contacts().len() as u32;
        let ids: Vec<ContactId> = (0..next_id).map(ContactId).collect();
        let graph = Graph::new(&plan, &ids, &settings);
        Self { local, plan, settings, graph, next_id, trees: Trees::default() }
    }

    /// Contact plan.
    #[must_use]
    pub fn plan(&self) -> &ContactPlan {
        &self.plan
    }

    /// Settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A contact of the plan.
    #[must_use]
    pub fn contact(&self, id: ContactId) -> Option<&Contact> {
        let slot = self.graph.by_id(id)?;
        self.plan.contacts().get(self.graph.slot(slot).rank as usize)
    }

    /// Current or next contact of this node with a neighbour.
    #[must_use]
    pub fn next_contact(&self, now: Time, neighbour: NodeNumber) -> Option<&Contact> {
        let slot = self.next_slot(now, neighbour)?;
        self.plan.contacts().get(self.graph.slot(slot).rank as usize)
    }

    fn next_slot(&self, now: Time, neighbour: NodeNumber) -> Option<u32> {
        let pair = self.graph.pair(self.graph.node(self.local)?, self.graph.node(neighbour)?)?;
        self.graph.next(pair, now.as_nanos())
    }

    /// Best route: earliest projected arrival, fewest contacts, latest termination, smallest number
    /// of the next hop (CCSDS 734.3-B-1 §3.2.8.1.4).
    pub fn best(&mut self, now: Time, wanted: &Wanted<'_>) -> Option<Route> {
        match self.settings.list {
            List::First => self.routes(now, wanted, 1).pop(),
            List::Complete => {
                let (source, load, target) = self.search(now, wanted)?;
                let found = self.trees.best(
                    &self.graph,
                    &source,
                    &load,
                    target,
                    self.settings.ties,
                    self.settings.hops,
                )?;
                (found.arrives() <= wanted.expires.as_nanos()).then(|| self.route(&found))
            }
        }
    }

    /// The best routes, at most `most`, the best first. None visits a node twice, unless the
    /// settings allow it.
    #[must_use]
    pub fn routes(&self, now: Time, wanted: &Wanted<'_>, most: usize) -> Vec<Route> {
        let Some((source, load, target)) = self.search(now, wanted) else { return Vec::new() };
        let expires = wanted.expires.as_nanos();
        let in_time = |found: &Found| found.arrives() <= expires;
        let list = |load| Routes::new(&self.graph, &source, load, target, &self.settings);
        match self.settings.list {
            List::Complete => {
                list(&load).take_while(in_time).take(most).map(|found| self.route(&found)).collect()
            }
            List::First => {
                let by_time = Load { volume: 0, ..load };
                let candidate = |found: Found| {
                    let passages = follow(&self.graph, &source, &load, &found.slots)?;
                    Some(Found { passages, ..found })
                };
                let routes = list(&by_time).take_while(in_time).take(EXAMINED_MAX);
                let candidates = routes.filter_map(candidate).filter(in_time);
                candidates.take(most).map(|found| self.route(&found)).collect()
            }
        }
    }

    /// Source, load and target of a search.
    fn search(&self, now: Time, wanted: &Wanted<'_>) -> Option<(Source, Load, NodeIndex)> {
        let node = self.graph.node(self.local)?;
        let target = self.graph.node(wanted.destination)?;
        let mut closed = vec![false; self.graph.nodes.len()];
        // A contact does not lead back here, unless this is the destination (§3.2.6.9 c).
        if let Some(closed) = closed.get_mut(node as usize) {
            *closed = node != target;
        }
        let excluded = wanted.excluded.iter().filter_map(|number| self.graph.node(*number));
        let banned_nodes: Vec<NodeIndex> = excluded.collect();
        if self.settings.exclusion == Exclusion::Everywhere {
            for node in &banned_nodes {
                if let Some(closed) = closed.get_mut(*node as usize) {
                    *closed = true;
                }
            }
        }
        let at = now.as_nanos();
        let (is_first, banned, end_min) = (true, Vec::new(), u64::MAX);
        let source = Source { node, at, is_first, banned, banned_nodes, closed, end_min };
        let load = Load {
            volume: self.settings.volume(wanted.bytes),
            level: wanted.priority.index(),
            partial: self.settings.partial,
            queues: self.settings.queueing,
        };
        Some((source, load, target))
    }

    fn route(&self, found: &Found) -> Route {
        let legs = found.slots.iter().zip(&found.passages).map(|(&slot, passage)| Leg {
            contact: self.graph.slot(slot).id,
            first: Time::from_nanos(passage.first),
            last: Time::from_nanos(passage.last),
            arrives: Time::from_nanos(passage.arrives),
        });
        let entry = found.slots.first().map(|&slot| self.graph.pair_of(slot).to);
        let next_hop = entry.and_then(|entry| self.graph.nodes.get(entry as usize));
        Route {
            next_hop: next_hop.copied().unwrap_or(self.local),
            legs: legs.collect(),
            leaves: Time::from_nanos(found.passages.first().map_or(0, |passage| passage.first)),
            arrives: Time::from_nanos(found.arrives()),
            terminates: Time::from_nanos(found.terminates(&self.graph)),
        }
    }

    /// Volume of a contact that a bundle on this route may use at most: the effective volume limit
    /// (CCSDS 734.3-B-1 §3.2.6.8.9), in bytes by contact.
    #[must_use]
    pub fn volume_limits(&self, route: &Route, priority: Priority) -> Vec<u64> {
        let mut stop = u64::MAX;
        let mut limits: Vec<u64> = Vec::new();
        for leg in route.legs.iter().rev() {
            let Some(slot) = self.graph.by_id(leg.contact).map(|slot| self.graph.slot(slot)) else {
                continue;
            };
            stop = stop.min(slot.end);
            let first = leg.first.as_nanos();
            let free = match &slot.bookings {
                Some(bookings) => bookings.free(priority.index(), first, stop),
                None => stop.saturating_sub(first),
            };
            limits.push(slot.volume_left(priority.index()).min(slot.bytes_in(free)));
        }
        limits.reverse();
        limits
    }

    /// Best-case delivery time of a route: its arrival by time alone (CCSDS 734.3-B-1 §3.2.4).
    #[must_use]
    pub fn best_case(&self, now: Time, route: &Route) -> Option<Time> {
        let slots: Option<Vec<u32>> = route.contacts().map(|id| self.graph.by_id(id)).collect();
        let wanted = Wanted {
            destination: self.local,
            bytes: 0,
            priority: Priority::Normal,
            expires: Time::MAX,
            excluded: &BTreeSet::new(),
        };
        let (source, load, _) = self.search(now, &wanted)?;
        let passages = follow(&self.graph, &source, &load, &slots?)?;
        passages.last().map(|passage| Time::from_nanos(passage.arrives))
    }

    /// Books volume for a bundle in the contacts of its route.
    pub fn promise(&mut self, route: &Route, bytes: u64, priority: Priority) {
        let volume = self.settings.volume(bytes);
        for leg in &route.legs {
            if let Some(slot) = self.graph.by_id_mut(leg.contact) {
                let length = slot.duration(volume);
                let bookings = slot.bookings.get_or_insert_with(Box::<Bookings>::default);
                bookings.book(priority, volume, leg.first.as_nanos(), length);
            }
        }
    }

    /// Releases the volume of a bundle that does not take this route.
    pub fn release(&mut self, route: &Route, bytes: u64, priority: Priority) {
        let volume = self.settings.volume(bytes);
        for leg in &route.legs {
            if let Some(slot) = self.graph.by_id_mut(leg.contact) {
                let length = slot.duration(volume);
                if let Some(bookings) = &mut slot.bookings {
                    bookings.cancel(priority, volume, leg.first.as_nanos(), length);
                }
                slot.bookings.take_if(|bookings| bookings.is_empty());
            }
        }
        self.trees.clear();
    }

    /// Marks the current contact of this node with a neighbour as failed or working. Routes
    /// computed from here on avoid failed contacts.
    pub fn set_failed(&mut self, now: Time, neighbour: NodeNumber, has_failed: bool) {
        let Some(slot) = self.next_slot(now, neighbour) else { return };
        let Some(slot) = self.graph.slots.get_mut(slot as usize) else { return };
        let fails = has_failed && slot.start <= now.as_nanos();
        if slot.has_failed && !fails {
            self.trees.clear();
        }
        slot.has_failed = fails;
    }

    /// Skips ended contacts in later searches.
    pub fn forget_before(&mut self, now: Time) {
        self.graph.forget_before(now.as_nanos());
    }
}
