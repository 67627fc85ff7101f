//! Choice of a bundle's next hop.

use std::collections::BTreeSet;

use engine::Time;

use super::super::routes::{Route, Wanted};
use super::config::{Entry, Routing};
use super::forwarder::Forwarder;
use super::planned::{Planned, node};
use super::{Agent, Held};
use crate::codec::bp7::Eid;

impl Agent {
    /// Next hop of a bundle, and its route through the contact plan. Volume is reserved for it.
    pub(super) fn next_hop(&mut self, now: Time, number: u64) -> Option<(Eid, Option<Route>)> {
        let held = self.bundles.get(&number)?;
        let (forwarder, planned) = (&self.forwarder, &self.planned);
        match &mut self.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => None,
            Routing::Static(entries) => by_entries(entries, forwarder, number, held)
                .or_else(|| discovered(forwarder, number, held)),
            Routing::ContactGraph(router, entries) => {
                let Some(destination) = planned_destination(planned, held) else {
                    return by_entries(entries, forwarder, number, held)
                        .or_else(|| discovered(forwarder, number, held));
                };
                let excluded = excluded(forwarder, number, held);
                let wanted = Wanted {
                    destination,
                    bytes: held.bytes(),
                    priority: held.priority,
                    expires: held.expires,
                    excluded: &excluded,
                };
                let Some(route) = router.best(now, &wanted) else {
                    return unplanned(now, forwarder, number, held);
                };
                router.promise(&route, held.bytes(), held.priority);
                Some((node(route.next_hop), Some(route)))
            }
        }
    }
}

/// Number of the destination if the plan has contacts with it.
fn planned_destination(planned: &Planned, held: &Held) -> Option<u64> {
    let Eid::Ipn { node, .. } = held.destination() else { return None };
    planned.leads_to(*node).then_some(*node)
}

/// Nodes that a bundle must not visit: the one it came from, and those that declined it (CCSDS
/// 734.3-B-1 §3.2.5.2).
fn excluded(forwarder: &Forwarder, number: u64, held: &Held) -> BTreeSet<u64> {
    let nodes = held.from.iter().chain(forwarder.declined_by(number));
    nodes
        .filter_map(|node| if let Eid::Ipn { node, .. } = node { Some(*node) } else { None })
        .collect()
}

/// The destination itself if its link is up and idle, for a bundle without a route in the plan. No
/// other bundle is queued for it, so no promised volume is lost.
fn unplanned(
    now: Time,
    forwarder: &Forwarder,
    number: u64,
    held: &Held,
) -> Option<(Eid, Option<Route>)> {
    let node = held.destination().node();
    let is_idle = forwarder.queue(&node).next().is_none()
        && !forwarder.free_links(now, &node).is_empty()
        && !forwarder.has_declined(&node, number)
        && held.from.as_ref() != Some(&node);
    is_idle.then_some((node, None))
}

/// The destination itself if it announced itself and its link is up, for a bundle without another
/// route.
fn discovered(forwarder: &Forwarder, number: u64, held: &Held) -> Option<(Eid, Option<Route>)> {
    let node = held.destination().node();
    let is_hop = forwarder.reaches_discovered(&node)
        && !forwarder.has_declined(&node, number)
        && !held.avoids(&node);
    is_hop.then_some((node, None))
}

/// Next hop of the first matching entry with one that may take the bundle: its first one that is
/// up; if none is, its first that has not failed, or else its first.
fn by_entries(
    entries: &[Entry],
    forwarder: &Forwarder,
    number: u64,
    held: &Held,
) -> Option<(Eid, Option<Route>)> {
    let may_take = |node: &&Eid| !forwarder.has_declined(node, number) && !held.avoids(node);
    let next_hop = |entry: &Entry| {
        if let [via] = &entry.via[..] {
            return may_take(&via).then(|| via.clone());
        }
        let nodes: Vec<&Eid> = entry.via.iter().filter(may_take).collect();
        let up = nodes.iter().find(|node| forwarder.reaches(node));
        let up = up.or_else(|| nodes.iter().find(|node| !forwarder.failed.contains(node)));
        up.or(nodes.first()).map(|node| (*node).clone())
    };
    let mut fitting = entries.iter().filter(|entry| entry.to.matches(held.destination()));
    Some((fitting.find_map(next_hop)?, None))
}
