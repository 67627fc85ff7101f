//! Contacts of the plan between this node and its neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::Time;

use super::{Config, Routing};
use crate::codec::bp7::Eid;
use crate::contacts::NodeNumber;
use crate::routes::Router;

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
        if let Eid::Ipn { node, .. } = of { self.current.contains_key(node) } else { false }
    }

    /// Whether the plan has contacts with a neighbour, but no current one.
    pub(super) fn is_over(&self, of: &Eid) -> bool {
        let Eid::Ipn { node, .. } = of else { return false };
        self.neighbours.contains(node) && !self.current.contains_key(node)
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
