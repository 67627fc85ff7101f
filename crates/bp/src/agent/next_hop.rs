//! Choice of a bundle's next hop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::Time;

use super::super::routes::{Route, Router, Wanted};
use super::config::{Entry, Routing};
use super::links::Links;
use super::{Config, Held};
use crate::codec::bp7::Eid;
use crate::contacts::NodeNumber;

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
    pub(super) fn is_over(&self, of: &Eid) -> bool {
        let is_planned = of.ipn_node().is_some_and(|node| self.neighbours.contains(&node));
        is_planned && !self.has_contact(of)
    }

    /// Compares the plan with the contacts known so far. `is_up` returns whether a neighbour is
    /// reached, `timeout` is the longest wait for that.
    pub(super) fn look(
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

/// Next hop of a bundle, and its route through the contact plan. Volume is reserved for it.
pub(super) fn next_hop(
    routing: &mut Routing,
    links: &Links,
    planned: &Planned,
    now: Time,
    number: u64,
    held: &Held,
) -> Option<(Eid, Option<Route>)> {
    let entries = match routing {
        Routing::Epidemic | Routing::Spray { .. } => return None,
        Routing::Static(entries) => entries,
        Routing::ContactGraph(router, entries) => {
            let Some(destination) = planned_destination(planned, held) else {
                return by_entries(entries, links, number, held)
                    .or_else(|| discovered(links, number, held));
            };
            let excluded = excluded(links, number, held);
            let wanted = Wanted {
                destination,
                bytes: held.bytes(),
                priority: held.priority,
                expires: held.expires,
                excluded: &excluded,
            };
            let Some(route) = router.best(now, &wanted) else {
                return unplanned(now, links, number, held);
            };
            router.promise(&route, held.bytes(), held.priority);
            return Some((node(route.next_hop), Some(route)));
        }
    };
    by_entries(entries, links, number, held).or_else(|| discovered(links, number, held))
}

/// Number of the destination if the plan has contacts with it.
fn planned_destination(planned: &Planned, held: &Held) -> Option<u64> {
    held.destination().ipn_node().filter(|node| planned.leads_to(*node))
}

/// Nodes that a bundle must not visit: the one it came from, and those that declined it (CCSDS
/// 734.3-B-1 §3.2.5.2).
fn excluded(links: &Links, number: u64, held: &Held) -> BTreeSet<u64> {
    let nodes = held.from.iter().chain(links.declined_by(number));
    nodes.filter_map(Eid::ipn_node).collect()
}

/// The destination itself if its link is up and idle, for a bundle without a route in the plan. No
/// other bundle is queued for it, so no promised volume is lost.
fn unplanned(now: Time, links: &Links, number: u64, held: &Held) -> Option<(Eid, Option<Route>)> {
    let node = held.destination().node();
    let is_idle = links.queue(&node).next().is_none()
        && !links.free_links(now, &node).is_empty()
        && !links.has_declined(&node, number)
        && held.from.as_ref() != Some(&node);
    is_idle.then_some((node, None))
}

/// The destination itself if it announced itself and its link is up, for a bundle without another
/// route.
fn discovered(links: &Links, number: u64, held: &Held) -> Option<(Eid, Option<Route>)> {
    let node = held.destination().node();
    let is_hop = links.reaches_discovered(&node)
        && !links.has_declined(&node, number)
        && !held.avoids(&node);
    is_hop.then_some((node, None))
}

/// Next hop of the first matching entry with one that may take the bundle: its first one that is
/// up; if none is, its first that has not failed, or else its first.
fn by_entries(
    entries: &[Entry],
    links: &Links,
    number: u64,
    held: &Held,
) -> Option<(Eid, Option<Route>)> {
    let may_take = |node: &&Eid| !links.has_declined(node, number) && !held.avoids(node);
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
    Some((fitting.find_map(next_hop)?, None))
}
