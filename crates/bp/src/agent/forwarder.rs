//! Forwarding of bundles (RFC 9171 §5.4): their next hops and queues, and transmissions. Bundles
//! are routed again when links and contacts begin, end or fail, and forwarding is no longer
//! contraindicated.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::time::Duration;

use engine::{EffectResult, Time};

use super::config::Routing;
use super::held::{Held, Sending};
use super::intake::Giver;
use super::links::{Down, Hop, Links, Planned, Receipt, Transmission, Up, next_hop, node};
use super::outgoing::{Load, Loader, Unfit, load};
use super::stock::Core;
use super::{Alarm, Config, Indication, LinkRef};
use crate::codec::bp7::{Eid, Reason};
use crate::layer::{Command, LinkId, Neighbour, Outcome, Refusal, Tag};
use crate::routes::{Priority, Route};

/// Bundles in a queue that are passed over for one that can be sent now, for example because the
/// link that takes their length is busy.
const SKIPPED_MAX: usize = 64;

/// Bundles routed again in one turn; the next turn follows after [`TURN`].
const BATCH: usize = 1024;
const TURN: Duration = Duration::from_millis(1);
/// Wait from the release of contact volume until bundles are routed again, so that many releases
/// cause one search.
const VOLUME: Duration = Duration::from_secs(1);
/// Interval in which bundles without a route are routed again in any case.
const WAITING: Duration = Duration::from_secs(60);

/// Fragments of [`Config::fragment`](super::Config::fragment) in transit over a link at one time.
/// The next one waits for the end of one of them, and bundles of higher priority go first.
const FRAGMENTS: usize = 2;

/// Bundles of one turn without a route: destination, giver and priority, with length and expiry. A
/// longer one that expires no later has no route either, because a turn only reserves volume.
type Misses = BTreeMap<(Eid, Option<Eid>, Priority), (u64, Time)>;

/// Links, contacts and transmissions of an agent.
#[derive(Debug)]
pub(super) struct Forwarder {
    pub(super) links: Links,
    planned: Planned,
    loader: Loader,
}

/// Next attempt to send a bundle whose transmission failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    /// At once, by the best route.
    Now,
    /// At once by another neighbour; by this one in its next session.
    NextSession,
    /// When bundles without a route are routed again.
    Later,
}

impl Forwarder {
    /// No links, and the contacts of the plan in these settings.
    pub(super) fn new(config: &Config) -> Self {
        let (links, loader) = (Links::default(), Loader::default());
        Self { links, planned: Planned::new(config), loader }
    }

    /// Whether bundles for an endpoint of another node can be forwarded now or later.
    pub(super) fn leads_to(&self, config: &Config, to: &Eid) -> bool {
        let is_routed = match &config.routing {
            Routing::Epidemic | Routing::Spray { .. } => true,
            Routing::Static(entries) => entries.iter().any(|entry| entry.to.matches(to)),
            Routing::ContactGraph(_, entries) => {
                to.ipn_node().is_some_and(|node| self.planned.leads_to(node))
                    || entries.iter().any(|entry| entry.to.matches(to))
            }
        };
        is_routed || self.links.reaches_discovered(&to.node())
    }

    /// Neighbour over whose link a bundle came.
    pub(super) fn giver_node(&self, giver: Giver) -> Option<Eid> {
        let Giver::Layer { at, .. } = giver else { return None };
        self.links.known(at).cloned()
    }

    /// Reports something of a peer that an operator should know.
    pub(super) fn note(&self, core: &mut Core, at: LinkRef, what: &'static str) {
        let node = self.links.node(at).cloned();
        core.user.indicate(Indication::Notice { node, what });
    }

    /// Reports once a minute that bundles come for which there never is room.
    pub(super) fn note_too_long(&self, core: &mut Core, now: Time, at: LinkRef) {
        if core.discards.count(now, None, Reason::DepletedStorage).is_some() {
            let what = "a bundle is longer than the store, or than its neighbour's share of it";
            self.note(core, at, what);
        }
    }

    /// Removes a bundle that is gone from the queues, and ends its transmissions.
    pub(super) fn forget(&mut self, core: &mut Core, held: &Held) {
        let number = held.number;
        self.links.forget(number);
        for (node, route) in &held.queued {
            self.links.dequeue(node, held.priority, number);
            self.release_volume(&mut core.config.routing, route.as_ref(), held);
        }
        for (link, tag) in held.sending.keys() {
            self.links.abort(*link, *tag);
        }
    }

    /// Routes a bundle.
    pub(super) fn route(&mut self, core: &mut Core, now: Time, number: u64) {
        let Some(held) = core.stock.get_mut(number) else { return };
        match &mut core.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => {
                held.waits = true;
                self.links.waiting.insert(number);
                for node in self.links.nodes_up() {
                    self.queue_copy(core, number, &node);
                    self.pump(core, now, &node);
                }
            }
            routing @ (Routing::Static(_) | Routing::ContactGraph(..)) => {
                match next_hop(routing, &self.links, &self.planned, now, held) {
                    Some(hop) => self.enqueue(core, now, number, hop),
                    None => self.wait(core, now, number),
                }
            }
        }
    }

    /// Keeps a bundle that has no route now.
    fn wait(&mut self, core: &mut Core, now: Time, number: u64) {
        if let Some(held) = core.stock.get_mut(number) {
            held.waits = true;
            self.links.waiting.insert(number);
            self.arm_reroute(core, now);
        }
    }

    fn enqueue(&mut self, core: &mut Core, now: Time, number: u64, Hop { node, route }: Hop) {
        let Some(held) = core.stock.get_mut(number) else { return };
        held.waits = false;
        self.links.waiting.remove(&number);
        // Parts of it may have failed one after the other.
        if let Some(before) = held.queued.insert(node.clone(), route).flatten() {
            let (bytes, priority) = (held.bytes(), held.priority);
            if let Routing::ContactGraph(router, _) = &mut core.config.routing {
                router.release(&before, bytes, priority);
            }
        }
        let Some(held) = core.stock.get(number) else { return };
        self.links.enqueue(&node, held.priority, number);
        self.pump(core, now, &node);
    }

    /// Releases the contact volume reserved for a bundle.
    fn release_volume(&mut self, routing: &mut Routing, route: Option<&Route>, held: &Held) {
        if let (Some(route), Routing::ContactGraph(router, _)) = (route, routing) {
            router.release(route, held.bytes(), held.priority);
            self.links.has_spare_volume = true;
        }
    }

    pub(super) fn pump_all(&mut self, core: &mut Core, now: Time) {
        for node in self.links.nodes_up() {
            self.pump(core, now, &node);
        }
    }

    /// Sends bundles to neighbours with freed transmission slots.
    pub(super) fn pump_freed(&mut self, core: &mut Core, now: Time) {
        while let Some(node) = self.links.freed.pop_first() {
            self.pump(core, now, &node);
        }
        self.arm_reroute_for_volume(core, now);
    }

    /// Sends queued bundles to a node, as far as its links accept them.
    fn pump(&mut self, core: &mut Core, now: Time, node: &Eid) {
        while let Some((at, number, load)) = self.next_load(core, now, node) {
            self.send_next(core, at, node, number, load);
        }
    }

    /// Next bundle for a node, and the link that takes it.
    fn next_load(
        &mut self,
        core: &mut Core,
        now: Time,
        node: &Eid,
    ) -> Option<(LinkRef, u64, Load)> {
        let free = self.links.free_links(now, node);
        let longest = free.iter().map(|(_, most)| *most).max()?;
        let (mut next, mut too_long, mut skipped) = (None, Vec::new(), 0);
        for number in self.links.queue(node) {
            let over = |link: &(LinkRef, u64)| {
                let is_free = !self.is_busy(core, number, link.0);
                let load = is_free.then(|| load(core, now, number, node, link.1).ok()).flatten();
                Some((link.0, load?))
            };
            if let Some((at, load)) = free.iter().find_map(over) {
                next = Some((at, number, load));
                break;
            }
            match load(core, now, number, node, longest.max(self.links.bundle_max(node))) {
                Err(Unfit::TooLong) => too_long.push(number),
                // It waits for a link that is busy, or for the end of another transmission.
                Ok(_) | Err(Unfit::NotNow) => skipped += 1,
            }
            if skipped >= SKIPPED_MAX {
                break;
            }
        }
        for number in too_long {
            self.unqueue(core, number, node);
            self.links.decline(node, number);
            if !core.config.routing.is_copying() {
                self.route(core, now, number);
            }
        }
        next
    }

    /// Whether a link has enough fragments in transit, and a bundle would be fragmented.
    fn is_busy(&self, core: &Core, number: u64, at: LinkRef) -> bool {
        let len = core.stock.get(number).map_or(0, |held| held.payload.len());
        // Half of a fragment: the last one may be shorter.
        core.config.fragment.is_some_and(|fragment| {
            len > fragment && self.links.count_at_least(at, fragment / 2) >= FRAGMENTS
        })
    }

    fn send_next(&mut self, core: &mut Core, at: LinkRef, node: &Eid, number: u64, load: Load) {
        let copy_for = core.config.routing.copy_for(node).cloned();
        let Some(held) = core.stock.get_mut(number) else { return };
        let (part, head_len) = (load.part, load.head.encoded_len());
        let (start, end) = part.unwrap_or((0, held.payload.len()));
        let bytes = (end - start).saturating_add(head_len as u64);
        let sent = self.links.begin(at, number, bytes);
        let sending =
            Sending { to: node.clone(), route: None, part, head_len, hops: held.arrival.hops };
        if let Some(custody) = &mut held.custody {
            custody.given.insert(node.clone());
        }
        held.sending.insert(sent.key(), sending);
        held.arrival.is_tried = true;
        if part.is_none() || held.gap(copy_for.as_ref()).is_none() {
            let route = held.queued.remove(node).flatten();
            if let Some(sending) = held.sending.get_mut(&sent.key()) {
                sending.route = route;
            }
            self.links.dequeue(node, held.priority, number);
        }
        self.count_given_copies(core, number, node, load.copies);
        self.loader.send(core, sent, load);
    }

    /// Handles a layer's report that a transmission ended. Returns the
    /// neighbour to which all of the bundle was forwarded. Then [`Self::proceed`] is due.
    pub(super) fn on_sent(
        &mut self,
        core: &mut Core,
        now: Time,
        sent: Transmission,
        outcome: Outcome,
    ) -> Option<Eid> {
        let result = match outcome {
            Outcome::Acknowledged | Outcome::Left | Outcome::Refused(Refusal::Completed) => {
                Receipt::Accepted
            }
            Outcome::Refused(Refusal::NotAcceptable) => Receipt::Declined,
            Outcome::Refused(Refusal::NoResources | Refusal::Retransmit) => Receipt::NoRoom,
            Outcome::Failed { .. } => Receipt::Failed,
        };
        if self.links.update_back_off(now, sent.at, result) {
            self.arm_back_off(core);
        }
        if let Outcome::Failed { acknowledged } = outcome
            && let Some(held) = core.stock.get_mut(sent.number)
        {
            held.keep_acknowledged(sent.at, sent.tag, acknowledged);
        }
        let retry = match result {
            Receipt::Accepted if !is_overtaken(core, sent) => {
                return self.on_accepted(core, now, sent);
            }
            Receipt::Declined => Retry::NextSession,
            Receipt::Accepted | Receipt::NoRoom | Receipt::Failed => Retry::Now,
        };
        self.reroute(core, now, sent, retry);
        None
    }

    /// Sends the next bundles after a transmission to a neighbour ended.
    pub(super) fn proceed(&mut self, core: &mut Core, now: Time, node: Option<Eid>) {
        if let Some(node) = node {
            self.pump(core, now, &node);
            if self.links.queue(&node).next().is_none() {
                // It may take a bundle for which the plan has no route.
                self.links.has_spare_volume = true;
            }
        }
        self.arm_reroute_for_volume(core, now);
    }

    /// Resumes transmission to neighbours whose back-off has ended.
    pub(super) fn on_back_off_end(&mut self, core: &mut Core, now: Time) {
        self.pump_all(core, now);
        self.links.end_back_offs(now);
        self.arm_back_off(core);
    }

    fn arm_back_off(&mut self, core: &mut Core) {
        let until = self.links.back_off_ends();
        core.timers.set_or_cancel(Alarm::BackOff, until, "a neighbour's back-off");
    }

    /// Neighbour to which all of a bundle was forwarded now.
    fn on_accepted(&mut self, core: &mut Core, now: Time, sent: Transmission) -> Option<Eid> {
        let copies = core.config.routing.is_copying();
        let held = core.stock.get_mut(sent.number)?;
        let sending = held.sending.remove(&sent.key())?;
        let node = sending.to;
        if let Some((start, end)) = sending.part {
            held.parts.entry(node.clone()).or_default().insert(start, end);
            let copy_for = copies.then_some(&node);
            if !held.has_gone(copy_for) {
                let is_under_way = held.queued.contains_key(&node)
                    || held.sending.values().any(|sending| sending.to == node);
                // Parts failed while others were in transit.
                if !is_under_way && held.gap(copy_for).is_some() {
                    self.route(core, now, sent.number);
                }
                return None;
            }
        }
        if copies {
            held.parts.remove(&node);
        } else {
            held.parts.clear();
        }
        held.sent.insert(node.clone());
        // The destination received it: no more copies are needed.
        if copies && held.destination().node() == node && self.links.reaches_known(&node) {
            held.waits = false;
            self.links.waiting.remove(&sent.number);
            self.withdraw(core, sent.number, |_| false);
        }
        core.statistics.forwarded += 1;
        Some(node)
    }

    /// Routes a bundle again after a failed transmission.
    fn reroute(&mut self, core: &mut Core, now: Time, sent: Transmission, retry: Retry) {
        core.statistics.failed += 1;
        let Some(held) = core.stock.get_mut(sent.number) else { return };
        let Some(sending) = held.sending.remove(&sent.key()) else { return };
        held.reclaim_copies(&sending.to);
        self.release_volume(&mut core.config.routing, sending.route.as_ref(), held);
        match retry {
            Retry::Now => self.route(core, now, sent.number),
            Retry::NextSession => {
                self.links.decline(&sending.to, sent.number);
                self.unqueue(core, sent.number, &sending.to);
                self.route(core, now, sent.number);
            }
            Retry::Later => {
                self.unqueue(core, sent.number, &sending.to);
                self.wait(core, now, sent.number);
                self.arm_reroute_at(core, now + WAITING);
            }
        }
    }

    /// Takes a bundle out of the queue of a neighbour, and releases the volume reserved for it.
    fn unqueue(&mut self, core: &mut Core, number: u64, node: &Eid) {
        let Some(held) = core.stock.get_mut(number) else { return };
        let Some(route) = held.queued.remove(node) else { return };
        self.links.dequeue(node, held.priority, number);
        self.release_volume(&mut core.config.routing, route.as_ref(), held);
    }

    /// Queues copies for a new neighbour.
    fn spread_to(&mut self, core: &mut Core, node: &Eid) {
        let waiting: Vec<_> = self.links.waiting.iter().copied().collect();
        for number in waiting {
            self.queue_copy(core, number, node);
        }
    }

    fn queue_copy(&mut self, core: &mut Core, number: u64, node: &Eid) {
        let Some(held) = core.stock.get_mut(number) else { return };
        let is_for_it = held.destination().node() == *node;
        let has = held.sent.contains(node)
            || !is_for_it && !self.links.reaches_known(node)
            || self.links.has_declined(node, number)
            || held.from.as_ref() == Some(node)
            || held.queued.contains_key(node)
            || held.sending.values().any(|sending| sending.to == *node)
            || held.head.source().node() == *node;
        let has_spare = match core.config.routing {
            Routing::Spray { .. } => held.copies > 1 || is_for_it,
            // Nodes would not recognize copies of a bundle without a source.
            Routing::Epidemic => is_for_it || !held.head.is_anonymous(),
            Routing::Static(_) | Routing::ContactGraph(..) => true,
        };
        if !has && has_spare {
            held.queued.insert(node.clone(), None);
            self.links.enqueue(node, held.priority, number);
        }
    }

    pub(super) fn on_link_up(
        &mut self,
        core: &mut Core,
        now: Time,
        at: LinkRef,
        neighbour: Neighbour,
    ) {
        let configured = core.config.links.get(&at).cloned();
        let has_no_name = configured.is_none() && neighbour.node.is_none();
        if has_no_name && at.link < LinkId::CAME && !self.links.is_up(at) {
            // It was removed while it came up, and goes down soon.
            return;
        }
        let Up { node, is_new, is_changed } = self.links.on_link_up(at, configured, neighbour);
        if is_new {
            core.user.indicate(Indication::Up { node: node.clone() });
        }
        let Some(node) = node else { return };
        let had_failed = self.set_failed(core, now, &node, false);
        if !is_changed {
            return self.pump(core, now, &node);
        }
        self.links.mark_declined(&node);
        if core.config.routing.is_copying() {
            self.spread_to(core, &node);
            return self.pump(core, now, &node);
        }
        self.pump(core, now, &node);
        self.links.mark_waiting();
        self.reroute_to(core, &node, had_failed);
        self.reroute_marked(core, now);
    }

    pub(super) fn on_link_down(
        &mut self,
        core: &mut Core,
        now: Time,
        at: LinkRef,
        why: &'static str,
    ) {
        let Some(Down { node, bundles }) = self.links.on_link_down(at) else {
            return self.on_unconnected(core, now, at);
        };
        let is_lost = node.as_ref().is_some_and(|node| !self.links.reaches(node));
        if let Some(node) = node.as_ref().filter(|_| is_lost) {
            self.set_failed(core, now, node, true);
        }
        // The layer will not report on unreported transmissions any more.
        for sent in bundles {
            self.reroute(core, now, sent, Retry::Now);
        }
        core.user.indicate(Indication::Down { node: node.clone(), why });
        if let Some(node) = node {
            self.links.mark_declined(&node);
            self.reroute_from(core, now, &node);
        }
    }

    /// Handles the failure of a layer to connect to a neighbour.
    fn on_unconnected(&mut self, core: &mut Core, now: Time, at: LinkRef) {
        let Some(node) = core.config.links.get(&at).cloned() else { return };
        if !self.links.reaches(&node) && self.set_failed(core, now, &node, true) {
            self.reroute_from(core, now, &node);
        }
    }

    /// Records whether a neighbour is down after a failure, and reports it to the router. Returns
    /// whether that is a change.
    fn set_failed(&mut self, core: &mut Core, now: Time, node: &Eid, has_failed: bool) -> bool {
        if let (Routing::ContactGraph(router, _), Some(node)) =
            (&mut core.config.routing, node.ipn_node())
        {
            router.set_failed(now, node, has_failed);
        }
        self.links.set_failed(node, has_failed)
    }

    /// Routes bundles again that are queued for a neighbour, where there may be other routes.
    fn reroute_from(&mut self, core: &mut Core, now: Time, node: &Eid) {
        let has_others = match &core.config.routing {
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
            self.links.mark_queued(node);
        }
        self.reroute_marked(core, now);
    }

    /// Routes bundles again that are queued for neighbours that are down, if one that is up now may
    /// take them instead.
    fn reroute_to(&mut self, core: &mut Core, up: &Eid, had_failed: bool) {
        let from: Vec<Eid> = match &core.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => return,
            Routing::Static(entries) => {
                let others = entries.iter().filter(|entry| entry.via.contains(up));
                let others: BTreeSet<&Eid> = others.flat_map(|entry| &entry.via).collect();
                self.links.queued().filter(|node| others.contains(node)).cloned().collect()
            }
            // They were routed while its contact counted as failed.
            Routing::ContactGraph(..) if had_failed => self.links.queued().cloned().collect(),
            Routing::ContactGraph(..) => return,
        };
        for node in from {
            if node != *up && !self.links.reaches(&node) {
                self.links.mark_queued(&node);
            }
        }
    }

    /// Routes bundles without a route again. While the noted ones take turns, it waits: those
    /// behind them would never have a turn.
    pub(super) fn reroute_waiting(&mut self, core: &mut Core, now: Time) {
        if core.config.routing.is_copying() {
            return self.spread(core, now);
        }
        if !self.links.to_reroute.is_empty() {
            return self.arm_reroute_at(core, now + VOLUME);
        }
        self.links.mark_waiting();
        self.reroute_marked(core, now);
    }

    /// Queues copies for all neighbours that are up.
    fn spread(&mut self, core: &mut Core, now: Time) {
        for node in self.links.nodes_up() {
            self.spread_to(core, &node);
            self.pump(core, now, &node);
        }
    }

    /// Routes bundles again because of released volume, soon.
    fn arm_reroute_for_volume(&mut self, core: &mut Core, now: Time) {
        if self.links.may_use_volume() && core.config.routing.is_planned() {
            self.arm_reroute_at(core, now + VOLUME);
        }
    }

    /// Routes the noted bundles again, in turns.
    pub(super) fn reroute_marked(&mut self, core: &mut Core, now: Time) {
        let mut misses = Misses::new();
        // Taken before the first is routed: bundles that wait again must not start another turn.
        let turn = iter::from_fn(|| self.links.to_reroute.pop_first()).take(BATCH);
        let turn: Vec<u64> = turn.collect();
        for number in turn {
            self.route_again(core, now, number, &mut misses);
        }
        self.arm_reroute(core, now);
    }

    fn route_again(&mut self, core: &mut Core, now: Time, number: u64, misses: &mut Misses) {
        let Some(held) = core.stock.get(number) else { return };
        if held.storing || core.config.routing.is_copying() {
            return;
        }
        let has_no_link =
            |node: &&Eid| self.links.is_unreachable(node) || self.planned.is_between_contacts(node);
        let idle: Vec<Eid> = held.queued.keys().filter(has_no_link).cloned().collect();
        if !held.waits && idle.is_empty() {
            return;
        }
        let key = (held.destination().clone(), held.from.clone(), held.priority);
        let (bytes, expires) = (held.bytes(), held.expires);
        let is_no_easier = |least: &(u64, Time)| bytes >= least.0 && expires <= least.1;
        let is_declined = self.links.declined_by(number).next().is_some();
        if held.waits && !is_declined && misses.get(&key).is_some_and(is_no_easier) {
            return;
        }
        for node in idle {
            self.unqueue(core, number, &node);
        }
        self.route(core, now, number);
        if !is_declined && core.stock.get(number).is_some_and(|held| held.waits) {
            misses.insert(key, (bytes, expires));
        }
    }

    /// Sets the timers of the next turn, and of the next search for bundles without a route.
    fn arm_reroute(&mut self, core: &mut Core, now: Time) {
        if self.links.to_reroute.is_empty() {
            core.timers.cancel(Alarm::Turn);
        } else if core.timers.get(Alarm::Turn).is_none() {
            core.timers.set(Alarm::Turn, now + TURN, "another turn of searches for routes");
        }
        if self.links.waiting.is_empty() {
            core.timers.cancel(Alarm::Reroute);
        } else if core.config.routing.is_planned() {
            let wait = if self.links.may_use_volume() { VOLUME } else { WAITING };
            self.arm_reroute_at(core, now + wait);
        }
    }

    /// Has bundles without a route routed again at a time, whatever happens until then.
    fn arm_reroute_at(&mut self, core: &mut Core, at: Time) {
        if core.timers.get(Alarm::Reroute).is_none_or(|deadline| deadline.at > at) {
            core.timers.set(Alarm::Reroute, at, "another search for routes of bundles");
        }
    }

    /// Opens the links of contacts that begin, closes those of contacts that are over, and sets the
    /// timer for the next change.
    pub(super) fn update_contacts(&mut self, core: &mut Core, now: Time) {
        self.apply_contact_changes(core, now);
        self.reroute_marked(core, now);
    }

    /// Handles contacts that begin, end or are missed, without routing bundles again.
    fn apply_contact_changes(&mut self, core: &mut Core, now: Time) {
        let Routing::ContactGraph(router, _) = &mut core.config.routing else { return };
        router.forget_before(now);
        let (links, timeout) = (&self.links, core.config.contact_timeout);
        let changes = self.planned.advance(now, router, timeout, |node| links.reaches(node));
        for (at, node) in &core.config.links {
            let is_open = self.planned.has_contact(node) || self.links.discovered.contains(at);
            let link = at.link;
            if self.links.set_open(*at, is_open) {
                let command =
                    if is_open { Command::Open { link } } else { Command::Close { link } };
                core.commands.push_back((at.layer, command));
            }
        }
        for node in changes.started.iter().map(|number| node(*number)) {
            self.links.set_failed(&node, false);
        }
        for number in changes.missed {
            self.set_failed(core, now, &node(number), true);
            self.links.mark_queued(&node(number));
        }
        for number in &changes.over {
            self.links.mark_queued(&node(*number));
        }
        if !changes.started.is_empty() || !changes.over.is_empty() {
            self.links.mark_waiting();
        }
        let why = "a contact begins, ends or is missed";
        core.timers.set_or_cancel(Alarm::Contact, changes.next, why);
    }

    /// Takes all bundles out of the queues, so that they wait for a route. Transmissions go on.
    pub(super) fn unqueue_all(&mut self, core: &mut Core) {
        for number in core.stock.numbers(..) {
            let Some(held) = core.stock.get_mut(number) else { continue };
            for (_, sending) in held.sending.iter_mut() {
                sending.route = None;
            }
            if held.queued.is_empty() {
                continue;
            }
            let nodes: Vec<_> = held.queued.keys().cloned().collect();
            // Before it leaves its last queue, so that it is never without a purpose.
            held.waits = true;
            self.links.waiting.insert(number);
            for node in nodes {
                self.unqueue(core, number, &node);
            }
        }
    }

    /// Opens all links if no plan does that any more; notes that they are open if a plan begins.
    pub(super) fn open_links(&mut self, core: &mut Core, was_planned: bool) {
        if was_planned && core.config.routing.is_planned() {
            return;
        }
        for at in core.config.links.keys() {
            if self.links.set_open(*at, true) && was_planned {
                core.commands.push_back((at.layer, Command::Open { link: at.link }));
            }
        }
    }

    pub(super) fn on_plan_changed(&mut self, core: &mut Core, now: Time) {
        self.planned = Planned::new(&core.config);
        let failed = self.links.failed.clone();
        self.apply_contact_changes(core, now);
        for node in failed {
            self.set_failed(core, now, &node, true);
        }
        self.links.mark_waiting();
        self.reroute_marked(core, now);
        if core.config.routing.is_copying() {
            self.spread(core, now);
        }
    }

    /// Counts the copies being given to a neighbour.
    fn count_given_copies(&mut self, core: &mut Core, number: u64, node: &Eid, copies: u32) {
        let Routing::Spray { .. } = core.config.routing else { return };
        let Some(held) = core.stock.get_mut(number) else { return };
        if !held.shares.contains_key(node) {
            held.shares.insert(node.clone(), copies);
            held.copies = held.copies.saturating_sub(copies);
        }
        if held.copies < 2 {
            let destination = held.destination().node();
            let is_cut = held.is_cut();
            self.withdraw(core, number, |of| *of == destination || (is_cut && of == node));
        }
    }

    /// Removes a bundle from the queues of all neighbours but these.
    fn withdraw(&mut self, core: &mut Core, number: u64, stays: impl Fn(&Eid) -> bool) {
        let Some(held) = core.stock.get_mut(number) else { return };
        let priority = held.priority;
        held.queued.retain(|node, _| {
            let stays = stays(node);
            if !stays {
                self.links.dequeue(node, priority, number);
            }
            stays
        });
    }

    /// Handles an opened file of an outgoing part, or a piece read from it.
    pub(super) fn on_crc_read(
        &mut self,
        core: &mut Core,
        now: Time,
        tag: Tag,
        result: EffectResult,
    ) {
        if let Some(sent) = self.loader.on_crc_read(core, tag, result) {
            self.links.abort(sent.at, tag);
            self.reroute(core, now, sent, Retry::Later);
            self.pump_freed(core, now);
        }
    }
}

/// Whether a copy came back during a transmission: its neighbour may have discarded the bundle as
/// a repetition.
fn is_overtaken(core: &Core, sent: Transmission) -> bool {
    let Some(held) = core.stock.get(sent.number) else { return false };
    let sending = held.sending.get(&sent.key()).filter(|sending| sending.part.is_none());
    sending.is_some_and(|sending| sending.hops < held.arrival.hops)
}
