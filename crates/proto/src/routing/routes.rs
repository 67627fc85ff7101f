//! Routes through a contact plan: the one by which a bundle is there first (CCSDS 734.3-B-1 §3.2,
//! earliest projected arrival), with what was promised to other bundles taken off each contact.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use engine::Time;

use super::contacts::{Contact, ContactPlan, NodeNumber};

/// Classes of service, as bundles of version 6 have them; those of version 7 are all normal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Last.
    Bulk,
    /// Before bulk.
    #[default]
    Normal,
    /// First.
    Expedited,
}

impl Priority {
    const COUNT: usize = 3;

    const fn index(self) -> usize {
        match self {
            Self::Bulk => 0,
            Self::Normal => 1,
            Self::Expedited => 2,
        }
    }
}

/// A contact, by its place in [`ContactPlan::contacts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContactId(u32);

/// What a route is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Whereto.
    pub destination: NodeNumber,
    /// The bundle's length, with what lower layers add to it.
    pub bytes: u64,
    /// What it yields to.
    pub priority: Priority,
    /// When it is of no use any more.
    pub expires: Time,
    /// Nodes that it must not go to.
    pub excluded: &'a BTreeSet<NodeNumber>,
}

/// A way through the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The neighbour to send to.
    pub next_hop: NodeNumber,
    /// The contacts, from here to the destination.
    pub contacts: Vec<ContactId>,
    /// When the first byte leaves this node.
    pub leaves: Time,
    /// When the last byte is at the destination.
    pub arrives: Time,
}

/// Bounds of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Contacts of the same two nodes that are looked at for one bundle: those that are full are
    /// passed over.
    pub lookahead: usize,
    /// Nodes on a way.
    pub hops: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lookahead: 1000, hops: 64 }
    }
}

/// The contacts from one node to another, in order.
#[derive(Clone, Debug, Default)]
struct Neighbour {
    contacts: Vec<ContactId>,
    /// Those before are over.
    first: usize,
}

/// Finds routes from one node, and keeps account of what was promised.
#[derive(Clone, Debug)]
pub struct Router {
    local: NodeNumber,
    plan: ContactPlan,
    limits: Limits,
    neighbours: BTreeMap<NodeNumber, BTreeMap<NodeNumber, Neighbour>>,
    /// Bytes promised of each contact, by priority.
    promised: Vec<[u64; Priority::COUNT]>,
    /// Contacts that did not come about.
    failed: BTreeSet<ContactId>,
}

/// How a node is reached first.
#[derive(Clone, Copy, Debug)]
struct Reached {
    at: Time,
    hops: usize,
    by: Option<(ContactId, Time)>,
}

impl Router {
    /// The routes of `local` through a plan.
    #[must_use]
    pub fn new(local: NodeNumber, plan: ContactPlan, limits: Limits) -> Self {
        let mut neighbours: BTreeMap<_, BTreeMap<_, Neighbour>> = BTreeMap::new();
        for (contact, id) in plan.contacts().iter().zip(0..) {
            let of = neighbours.entry(contact.from).or_default().entry(contact.to).or_default();
            of.contacts.push(ContactId(id));
        }
        let promised = vec![[0; Priority::COUNT]; plan.contacts().len()];
        Self { local, plan, limits, neighbours, promised, failed: BTreeSet::new() }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &ContactPlan {
        &self.plan
    }

    /// A contact of the plan.
    #[must_use]
    pub fn contact(&self, id: ContactId) -> Option<&Contact> {
        self.plan.contacts().get(id.0 as usize)
    }

    /// The contact of this node with a neighbour that goes on now, or the next one.
    #[must_use]
    pub fn next_contact(&self, now: Time, neighbour: NodeNumber) -> Option<&Contact> {
        let of = self.neighbours.get(&self.local)?.get(&neighbour)?;
        let next = of.contacts.partition_point(|id| self.ends(*id) <= now);
        self.contact(*of.contacts.get(next)?)
    }

    /// The way by which a bundle is there first; of two that are there at once the one with fewer
    /// contacts, then the one over the lower node.
    #[must_use]
    pub fn best(&self, now: Time, wanted: &Wanted<'_>) -> Option<Route> {
        let mut reached: BTreeMap<NodeNumber, Reached> = BTreeMap::new();
        let mut done: BTreeSet<NodeNumber> = BTreeSet::new();
        let mut open = BinaryHeap::new();
        reached.insert(self.local, Reached { at: now, hops: 0, by: None });
        open.push(Reverse((now, 0, self.local)));
        while let Some(Reverse((at, hops, node))) = open.pop() {
            if node == wanted.destination {
                return self.route(&reached, node);
            }
            if !done.insert(node) || hops >= self.limits.hops {
                continue;
            }
            for (&next, neighbour) in self.neighbours.get(&node).into_iter().flatten() {
                if done.contains(&next) || wanted.excluded.contains(&next) {
                    continue;
                }
                let Some((id, leaves, arrives)) = self.first_fit(neighbour, at, wanted) else {
                    continue;
                };
                let better = reached
                    .get(&next)
                    .is_none_or(|known| (arrives, hops + 1) < (known.at, known.hops));
                if better {
                    let by = Some((id, leaves));
                    reached.insert(next, Reached { at: arrives, hops: hops + 1, by });
                    open.push(Reverse((arrives, hops + 1, next)));
                }
            }
        }
        None
    }

    /// Takes a bundle off what the contacts of its route have room for.
    pub fn promise(&mut self, route: &Route, bytes: u64, priority: Priority) {
        for id in &route.contacts {
            if let Some(promised) = self.promised.get_mut(id.0 as usize) {
                let of = &mut promised[priority.index()];
                *of = of.saturating_add(bytes);
            }
        }
    }

    /// Gives back what was promised to a bundle that does not go this way.
    pub fn release(&mut self, route: &Route, bytes: u64, priority: Priority) {
        for id in &route.contacts {
            if let Some(promised) = self.promised.get_mut(id.0 as usize) {
                let of = &mut promised[priority.index()];
                *of = of.saturating_sub(bytes);
            }
        }
    }

    /// The contact of this node with a neighbour that goes on now has failed, or has come back: what is routed from
    /// here on goes around it, or not.
    pub fn set_failed(&mut self, now: Time, neighbour: NodeNumber, has_failed: bool) {
        let Some(of) = self.neighbours.get(&self.local).and_then(|of| of.get(&neighbour)) else {
            return;
        };
        let next = of.contacts.partition_point(|id| self.ends(*id) <= now);
        let Some(&id) = of.contacts.get(next) else { return };
        if has_failed && self.contact(id).is_some_and(|contact| contact.start <= now) {
            self.failed.insert(id);
        } else {
            self.failed.remove(&id);
        }
    }

    /// Forgets where contacts are over, so that they are not looked at again.
    pub fn forget_before(&mut self, now: Time) {
        let plan = self.plan.contacts();
        for neighbour in self.neighbours.values_mut().flat_map(BTreeMap::values_mut) {
            let over = |id: &ContactId| plan.get(id.0 as usize).is_none_or(|c| c.end <= now);
            while neighbour.contacts.get(neighbour.first).is_some_and(over) {
                neighbour.first += 1;
            }
        }
        self.failed.retain(|id| plan.get(id.0 as usize).is_some_and(|c| c.end > now));
    }

    fn ends(&self, id: ContactId) -> Time {
        self.contact(id).map_or(Time::ZERO, |contact| contact.end)
    }

    /// The first contact that carries it, when it leaves and when it arrives.
    fn first_fit(
        &self,
        neighbour: &Neighbour,
        at: Time,
        wanted: &Wanted<'_>,
    ) -> Option<(ContactId, Time, Time)> {
        let rest = neighbour.contacts.get(neighbour.first..)?;
        let next = rest.partition_point(|id| self.ends(*id) <= at);
        for &id in rest[next..].iter().take(self.limits.lookahead) {
            let contact = self.contact(id)?;
            if self.failed.contains(&id) {
                continue;
            }
            if contact.start > wanted.expires {
                return None;
            }
            let free = contact.start + self.taken(id, contact, wanted.priority);
            let leaves = at.max(free);
            let sent = leaves + contact.transmission_time(wanted.bytes);
            if sent > contact.end {
                continue;
            }
            let arrives = sent + self.plan.owlt(contact.from, contact.to, leaves);
            return (arrives <= wanted.expires).then_some((id, leaves, arrives));
        }
        None
    }

    /// The time that is promised to what this priority yields to.
    fn taken(&self, id: ContactId, contact: &Contact, priority: Priority) -> Duration {
        let promised = self.promised.get(id.0 as usize).map_or(0, |promised| {
            promised[priority.index()..].iter().fold(0, |sum: u64, of| sum.saturating_add(*of))
        });
        contact.transmission_time(promised)
    }

    fn route(&self, reached: &BTreeMap<NodeNumber, Reached>, to: NodeNumber) -> Option<Route> {
        let arrives = reached.get(&to)?.at;
        let mut contacts = Vec::new();
        let (mut node, mut leaves) = (to, arrives);
        let mut next_hop = to;
        while let Some((id, at)) = reached.get(&node)?.by {
            contacts.push(id);
            (next_hop, leaves) = (node, at);
            node = self.contact(id)?.from;
        }
        contacts.reverse();
        Some(Route { next_hop, contacts, leaves, arrives })
    }
}
