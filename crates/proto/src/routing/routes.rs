//! Contact graph routing: the route with the earliest projected arrival (CCSDS 734.3-B-1 §3.2),
//! given the contact volume reserved for other bundles.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use engine::Time;

use super::contacts::{Contact, ContactPlan, NodeNumber};

/// Class of service of version 6 bundles; all version 7 bundles are normal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Lowest.
    Bulk,
    /// Above bulk.
    #[default]
    Normal,
    /// Highest.
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

/// Index of a contact in [`ContactPlan::contacts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContactId(u32);

/// Requirements of a route.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Destination node.
    pub destination: NodeNumber,
    /// Length of the bundle in bytes, with the overhead of lower layers.
    pub bytes: u64,
    /// Priority of the bundle.
    pub priority: Priority,
    /// Expiry of the bundle.
    pub expires: Time,
    /// Nodes that it must not visit.
    pub excluded: &'a BTreeSet<NodeNumber>,
}

/// Route through the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Next hop.
    pub next_hop: NodeNumber,
    /// Contacts from this node to the destination.
    pub contacts: Vec<ContactId>,
    /// Departure of the first byte from this node.
    pub leaves: Time,
    /// Arrival of the last byte at the destination.
    pub arrives: Time,
}

/// Bounds of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Contacts between two nodes examined for one bundle; full ones are skipped.
    pub lookahead: usize,
    /// Most hops of a route.
    pub hops: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lookahead: 1000, hops: 64 }
    }
}

/// Contacts from one node to another, in order.
#[derive(Clone, Debug, Default)]
struct Neighbour {
    contacts: Vec<ContactId>,
    /// Index of the first that is not over.
    first: usize,
}

/// Router of a node, which also tracks reserved contact volume.
#[derive(Clone, Debug)]
pub struct Router {
    local: NodeNumber,
    plan: ContactPlan,
    limits: Limits,
    neighbours: BTreeMap<NodeNumber, BTreeMap<NodeNumber, Neighbour>>,
    /// Bytes reserved of each contact, by priority.
    promised: Vec<[u64; Priority::COUNT]>,
    /// Failed contacts.
    failed: BTreeSet<ContactId>,
}

/// Earliest arrival at a node.
#[derive(Clone, Copy, Debug)]
struct Reached {
    at: Time,
    hops: usize,
    by: Option<(ContactId, Time)>,
}

impl Router {
    /// Router of node `local`.
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

    /// Contact plan.
    #[must_use]
    pub fn plan(&self) -> &ContactPlan {
        &self.plan
    }

    /// A contact of the plan.
    #[must_use]
    pub fn contact(&self, id: ContactId) -> Option<&Contact> {
        self.plan.contacts().get(id.0 as usize)
    }

    /// Current or next contact of this node with a neighbour.
    #[must_use]
    pub fn next_contact(&self, now: Time, neighbour: NodeNumber) -> Option<&Contact> {
        let of = self.neighbours.get(&self.local)?.get(&neighbour)?;
        let next = of.contacts.partition_point(|id| self.ends(*id) <= now);
        self.contact(*of.contacts.get(next)?)
    }

    /// Route with the earliest arrival; ties go to the route with fewer contacts, then to the lower
    /// node number.
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

    /// Reserves volume for a bundle in the contacts of its route.
    pub fn promise(&mut self, route: &Route, bytes: u64, priority: Priority) {
        for id in &route.contacts {
            if let Some(promised) = self.promised.get_mut(id.0 as usize) {
                let of = &mut promised[priority.index()];
                *of = of.saturating_add(bytes);
            }
        }
    }

    /// Releases the volume of a bundle that does not take this route.
    pub fn release(&mut self, route: &Route, bytes: u64, priority: Priority) {
        for id in &route.contacts {
            if let Some(promised) = self.promised.get_mut(id.0 as usize) {
                let of = &mut promised[priority.index()];
                *of = of.saturating_sub(bytes);
            }
        }
    }

    /// Marks the current contact of this node with a neighbour as failed or working. Routes
    /// computed from here on avoid failed contacts.
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

    /// Skips ended contacts in later searches.
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

    /// First contact that carries the bundle, with its departure and arrival.
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

    /// Transmission time reserved for this and higher priorities.
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
