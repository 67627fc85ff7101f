//! Links and contacts that begin, end or fail, and the bundles that are routed again because of
//! them: processing proceeds when forwarding is no longer contraindicated (RFC 9171 §5.4).

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::time::Duration;

use engine::Time;

use super::super::layer::{Command, LinkId, Neighbour};
use super::config::Routing;
use super::forwarder::{Down, Up};
use super::next_hop::node;
use super::outgoing::Retry;
use super::{Agent, Alarm, Indication, LinkRef};
use crate::codec::bp7::Eid;
use crate::routes::Priority;

/// Bundles routed again in one turn; the next turn follows after [`TURN`].
const BATCH: usize = 1024;
const TURN: Duration = Duration::from_millis(1);
/// Wait from the release of contact volume until bundles are routed again, so that many releases
/// cause one search.
const VOLUME: Duration = Duration::from_secs(1);
/// Interval in which bundles without a route are routed again in any case.
pub(super) const WAITING: Duration = Duration::from_secs(60);

/// Bundles of one turn without a route: destination, giver and priority, with length and expiry. A
/// longer one that expires no later has no route either, because a turn only reserves volume.
type Misses = BTreeMap<(Eid, Option<Eid>, Priority), (u64, Time)>;

impl Agent {
    /// Neighbours with queued bundles or bundles in transit, to which an on-demand driver opens
    /// links.
    #[must_use]
    pub fn wanted(&self) -> BTreeSet<Eid> {
        self.forwarder.wanted()
    }

    /// Neighbours that can be reached.
    #[must_use]
    pub fn nodes_up(&self) -> BTreeSet<Eid> {
        self.forwarder.up().filter_map(|(_, node)| node.cloned()).collect()
    }

    /// Links that can be used.
    pub fn links_up(&self) -> impl Iterator<Item = LinkRef> {
        self.forwarder.up().map(|(at, _)| at)
    }

    /// Whether a neighbour can be reached.
    #[must_use]
    pub fn reaches(&self, node: &Eid) -> bool {
        self.forwarder.reaches(node)
    }

    pub(super) fn link_up(&mut self, now: Time, at: LinkRef, neighbour: Neighbour) {
        let configured = self.core.config.links.get(&at).cloned();
        let has_no_name = configured.is_none() && neighbour.node.is_none();
        if has_no_name && at.link < LinkId::CAME && !self.forwarder.is_up(at) {
            // It was removed while it came up, and goes down soon.
            return;
        }
        let Up { node, is_new, is_changed } = self.forwarder.link_up(at, configured, neighbour);
        if is_new {
            self.core.user.indicate(Indication::Up { node: node.clone() });
        }
        let Some(node) = node else { return };
        let had_failed = self.set_failed(now, &node, false);
        if !is_changed {
            return self.pump(now, &node);
        }
        self.forwarder.offer_again(&node);
        if self.is_copying() {
            self.spread_to(&node);
            return self.pump(now, &node);
        }
        self.pump(now, &node);
        self.forwarder.wait_again();
        self.take_over(&node, had_failed);
        self.dispatch_again(now);
    }

    pub(super) fn link_down(&mut self, now: Time, at: LinkRef, why: &'static str) {
        let Some(Down { node, bundles }) = self.forwarder.link_down(at) else {
            return self.on_unconnected(now, at);
        };
        let is_lost = node.as_ref().is_some_and(|node| !self.forwarder.reaches(node));
        if let Some(node) = node.as_ref().filter(|_| is_lost) {
            self.set_failed(now, node, true);
        }
        // The layer will not report on unreported transmissions any more.
        for (tag, number) in bundles {
            self.reroute(now, at, tag, number, Retry::Now);
        }
        self.core.user.indicate(Indication::Down { node: node.clone(), why });
        if let Some(node) = node {
            self.forwarder.offer_again(&node);
            self.leave(now, &node);
        }
    }

    /// Handles the failure of a layer to connect to a neighbour.
    fn on_unconnected(&mut self, now: Time, at: LinkRef) {
        let Some(node) = self.core.config.links.get(&at).cloned() else { return };
        if !self.forwarder.reaches(&node) && self.set_failed(now, &node, true) {
            self.leave(now, &node);
        }
    }

    /// Records whether a neighbour is down after a failure, and reports it to the router. Returns
    /// whether that is a change.
    pub(super) fn set_failed(&mut self, now: Time, node: &Eid, has_failed: bool) -> bool {
        if let (Routing::ContactGraph(router, _), Some(node)) =
            (&mut self.core.config.routing, node.ipn_node())
        {
            router.set_failed(now, node, has_failed);
        }
        self.forwarder.set_failed(node, has_failed)
    }

    /// Routes bundles again that are queued for a neighbour, where there may be other routes.
    fn leave(&mut self, now: Time, node: &Eid) {
        let has_others = match &self.core.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => false,
            Routing::Static(entries) => {
                let mut with_it = entries.iter().filter(|entry| entry.via.contains(node));
                let first = with_it.next();
                // Without a route it was a node that announced itself.
                first.is_none_or(|first| first.via.len() > 1 || with_it.any(|it| it.via.len() > 1))
            }
            Routing::ContactGraph(..) => true,
        };
        if has_others {
            self.forwarder.queue_again(node);
        }
        self.dispatch_again(now);
    }

    /// Routes bundles again that are queued for neighbours that are down, if one that is up now may
    /// take them instead.
    fn take_over(&mut self, up: &Eid, had_failed: bool) {
        let from: Vec<Eid> = match &self.core.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => return,
            Routing::Static(entries) => {
                let others = entries.iter().filter(|entry| entry.via.contains(up));
                let others: BTreeSet<&Eid> = others.flat_map(|entry| &entry.via).collect();
                self.forwarder.queued().filter(|node| others.contains(node)).cloned().collect()
            }
            // They were routed while its contact counted as failed.
            Routing::ContactGraph(..) if had_failed => self.forwarder.queued().cloned().collect(),
            Routing::ContactGraph(..) => return,
        };
        for node in from {
            if node != *up && !self.forwarder.reaches(&node) {
                self.forwarder.queue_again(&node);
            }
        }
    }

    /// Routes bundles without a route again. While the noted ones take turns, it waits: those
    /// behind them would never have a turn.
    pub(super) fn dispatch_waiting(&mut self, now: Time) {
        if self.is_copying() {
            return self.spread(now);
        }
        if !self.forwarder.again.is_empty() {
            return self.arm_dispatch_at(now + VOLUME);
        }
        self.forwarder.wait_again();
        self.dispatch_again(now);
    }

    /// Queues copies for all neighbours that are up.
    pub(super) fn spread(&mut self, now: Time) {
        for node in self.nodes_up() {
            self.spread_to(&node);
            self.pump(now, &node);
        }
    }

    /// Routes bundles again because of released volume, soon.
    pub(super) fn use_volume(&mut self, now: Time) {
        if self.forwarder.may_use_volume() && self.is_planned() {
            self.arm_dispatch_at(now + VOLUME);
        }
    }

    /// Routes the noted bundles again, in turns.
    pub(super) fn dispatch_again(&mut self, now: Time) {
        let mut misses = Misses::new();
        // Taken before the first is routed: bundles that wait again must not start another turn.
        let turn = iter::from_fn(|| self.forwarder.again.pop_first()).take(BATCH);
        let turn: Vec<u64> = turn.collect();
        for number in turn {
            self.route_again(now, number, &mut misses);
        }
        self.arm_dispatch(now);
    }

    fn route_again(&mut self, now: Time, number: u64, misses: &mut Misses) {
        let Some(held) = self.core.stock.get(number) else { return };
        if held.storing || self.is_copying() {
            return;
        }
        let is_idle = |node: &&Eid| self.forwarder.is_idle(node) || self.planned.is_over(node);
        let idle: Vec<Eid> = held.queued.keys().filter(is_idle).cloned().collect();
        if !held.waits && idle.is_empty() {
            return;
        }
        let key = (held.destination().clone(), held.from.clone(), held.priority);
        let (bytes, expires) = (held.bytes(), held.expires);
        let is_no_easier = |least: &(u64, Time)| bytes >= least.0 && expires <= least.1;
        let is_declined = self.forwarder.declined_by(number).next().is_some();
        if held.waits && !is_declined && misses.get(&key).is_some_and(is_no_easier) {
            return;
        }
        for node in idle {
            self.unqueue(number, &node);
        }
        self.route(now, number);
        if !is_declined && self.core.stock.get(number).is_some_and(|held| held.waits) {
            misses.insert(key, (bytes, expires));
        }
    }

    /// Sets the timers of the next turn, and of the next search for bundles without a route.
    pub(super) fn arm_dispatch(&mut self, now: Time) {
        if self.forwarder.again.is_empty() {
            self.core.timers.cancel(Alarm::Turn);
        } else if self.core.timers.get(Alarm::Turn).is_none() {
            self.core.timers.set(Alarm::Turn, now + TURN, "another turn of searches for routes");
        }
        if self.forwarder.waiting.is_empty() {
            self.core.timers.cancel(Alarm::Dispatch);
        } else if self.is_planned() {
            let wait = if self.forwarder.may_use_volume() { VOLUME } else { WAITING };
            self.arm_dispatch_at(now + wait);
        }
    }

    /// Has bundles without a route routed again at a time, whatever happens until then.
    pub(super) fn arm_dispatch_at(&mut self, at: Time) {
        if self.core.timers.get(Alarm::Dispatch).is_none_or(|deadline| deadline.at > at) {
            self.core.timers.set(Alarm::Dispatch, at, "another search for routes of bundles");
        }
    }

    /// Opens the links of contacts that begin, closes those of contacts that are over, and sets the
    /// timer for the next change.
    pub(super) fn contacts(&mut self, now: Time) {
        self.look_at_plan(now);
        self.dispatch_again(now);
    }

    /// Handles contacts that begin, end or are missed, without routing bundles again.
    pub(super) fn look_at_plan(&mut self, now: Time) {
        let Routing::ContactGraph(router, _) = &mut self.core.config.routing else { return };
        router.forget_before(now);
        let (forwarder, timeout) = (&self.forwarder, self.core.config.contact_timeout);
        let changes = self.planned.look(now, router, timeout, |node| forwarder.reaches(node));
        for (at, node) in &self.core.config.links {
            let is_open = self.planned.has_contact(node) || self.forwarder.discovered.contains(at);
            let link = at.link;
            if self.forwarder.set_open(*at, is_open) {
                let command =
                    if is_open { Command::Open { link } } else { Command::Close { link } };
                self.core.commands.push_back((at.layer, command));
            }
        }
        for node in changes.started.iter().map(|number| node(*number)) {
            self.forwarder.set_failed(&node, false);
        }
        for number in changes.missed {
            self.set_failed(now, &node(number), true);
            self.forwarder.queue_again(&node(number));
        }
        for number in &changes.over {
            self.forwarder.queue_again(&node(*number));
        }
        if !changes.started.is_empty() || !changes.over.is_empty() {
            self.forwarder.wait_again();
        }
        let why = "a contact begins, ends or is missed";
        self.core.timers.set_or_cancel(Alarm::Contact, changes.next, why);
    }
}
