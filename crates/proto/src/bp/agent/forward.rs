//! Forwarding of bundles (RFC 9171 §5.4).

use std::collections::BTreeSet;

use engine::Time;
use wire::bp7::{BundleFlags, Eid, Reason};

use super::super::layer::{Command, Neighbour, Outcome, Refusal, Tag};
use super::super::routes::{Priority, Route, Wanted};
use super::config::{Entry, Routing};
use super::forwarder::{Down, Place, Reception};
use super::held::Sending;
use super::outgoing::Load;
use super::{Agent, Alarm, Held, Indication, LinkRef};

/// Next hop of a bundle, and its route through the contact plan.
fn next_hop(routing: &mut Routing, now: Time, held: &Held) -> Option<(Eid, Option<Route>)> {
    let destination = held.destination();
    let entries = match routing {
        Routing::Epidemic | Routing::Spray { .. } => return None,
        Routing::Static(entries) => entries,
        Routing::ContactGraph(router, entries) => {
            if let Eid::Ipn { node, .. } = destination {
                let mut excluded = BTreeSet::new();
                if let Some(Eid::Ipn { node, .. }) = held.from {
                    excluded.insert(node);
                }
                let wanted = Wanted {
                    destination: *node,
                    bytes: held.bytes(),
                    priority: held.priority,
                    expires: held.expires,
                    excluded: &excluded,
                };
                if let Some(route) = router.best(now, &wanted) {
                    router.promise(&route, held.bytes(), held.priority);
                    let via = Eid::Ipn { node: route.next_hop, service: 0 };
                    return Some((via, Some(route)));
                }
            }
            entries
        }
    };
    let fits = |entry: &&Entry| entry.to.matches(destination) && !held.avoids(&entry.via);
    let entry = entries.iter().find(fits)?;
    Some((entry.via.clone(), None))
}

impl Agent {
    pub(super) fn link_up(&mut self, now: Time, at: LinkRef, neighbour: Neighbour) {
        let configured = self.config.links.get(&at).cloned();
        let (node, is_new) = self.forwarder.link_up(at, configured, neighbour);
        if is_new {
            self.user.indicate(Indication::Up { node: node.clone() });
        }
        self.inform_router(now, node.as_ref(), false);
        if let Some(node) = node {
            if is_new && self.is_copying() {
                self.spread_to(&node);
            }
            self.pump(now, &node);
        }
    }

    pub(super) fn link_down(&mut self, now: Time, at: LinkRef, why: &'static str) {
        let Some(Down { node, bundles }) = self.forwarder.link_down(at) else { return };
        self.inform_router(now, node.as_ref(), true);
        // The layer will not report on unreported transmissions any more.
        for (tag, number) in bundles {
            self.not_sent(now, at, tag, number, true);
        }
        self.user.indicate(Indication::Down { node: node.clone(), why });
        if let Some(node) = &node {
            self.reroute(now, node);
        }
    }

    /// Reports to the router whether the current planned contact with a node works.
    fn inform_router(&mut self, now: Time, node: Option<&Eid>, has_failed: bool) {
        if let (Routing::ContactGraph(router, _), Some(Eid::Ipn { node, .. })) =
            (&mut self.config.routing, node)
        {
            router.set_failed(now, *node, has_failed);
        }
    }

    /// Routes a bundle.
    pub(super) fn route(&mut self, now: Time, number: u64) {
        let bounds = self.config.limits.head;
        let Some(held) = self.bundles.get(&number) else { return };
        if held.is_at_its_hop_limit(&bounds) {
            self.delete(now, number, Reason::HopLimitExceeded);
            return;
        }
        match &self.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => {
                if let Some(held) = self.bundles.get_mut(&number) {
                    held.waits = true;
                }
                self.forwarder.wait(number);
                let nodes: BTreeSet<Eid> = self.nodes_up();
                for node in nodes {
                    self.offer_copy(number, &node);
                    self.pump(now, &node);
                }
            }
            Routing::Static(_) | Routing::ContactGraph(..) => {
                match next_hop(&mut self.config.routing, now, held) {
                    Some((node, route)) => self.enqueue(now, number, &node, route),
                    None => self.wait(number),
                }
            }
        }
    }

    /// Whether each neighbour gets a copy.
    pub(super) const fn is_copying(&self) -> bool {
        match self.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => true,
            Routing::Static(_) | Routing::ContactGraph(..) => false,
        }
    }

    /// Returns the node if it gets its own copy.
    pub(super) fn copy_for<'a>(&self, node: &'a Eid) -> Option<&'a Eid> {
        self.is_copying().then_some(node)
    }

    fn wait(&mut self, number: u64) {
        if let Some(held) = self.bundles.get_mut(&number) {
            held.waits = true;
            self.forwarder.wait(number);
        }
    }

    fn enqueue(&mut self, now: Time, number: u64, node: &Eid, route: Option<Route>) {
        let Some(held) = self.bundles.get_mut(&number) else { return };
        held.waits = false;
        self.forwarder.wait_no_longer(number);
        // Parts of it may have failed one after the other.
        if let Some(before) = held.queued.insert(node.clone(), route).flatten() {
            let (bytes, priority) = (held.bytes(), held.priority);
            if let Routing::ContactGraph(router, _) = &mut self.config.routing {
                router.release(&before, bytes, priority);
            }
        }
        let Some(held) = self.bundles.get(&number) else { return };
        self.forwarder.enqueue(node, held.priority, number);
        self.pump(now, node);
    }

    /// Releases the contact volume reserved for a bundle.
    pub(super) fn give_back(&mut self, route: Option<&Route>, (bytes, priority): (u64, Priority)) {
        if let (Some(route), Routing::ContactGraph(router, _)) = (route, &mut self.config.routing) {
            router.release(route, bytes, priority);
        }
    }

    pub(super) fn pump_all(&mut self, now: Time) {
        for node in self.nodes_up() {
            self.pump(now, &node);
        }
    }

    /// Sends bundles to neighbours with freed transmission slots.
    pub(super) fn pump_freed(&mut self, now: Time) {
        while let Some(node) = self.forwarder.pop_freed() {
            self.pump(now, &node);
        }
    }

    /// Cancels the transmissions of a bundle.
    pub(super) fn cancel_sending(&mut self, number: u64) {
        let Some(held) = self.bundles.get(&number) else { return };
        for (at, tag) in held.sending.keys() {
            self.commands.push_back((at.layer, Command::Cancel { link: at.link, tag: *tag }));
        }
    }

    /// Sends queued bundles to a node, as far as its links accept them.
    fn pump(&mut self, now: Time, node: &Eid) {
        loop {
            let Some((at, most)) = self.forwarder.free_link(now, node) else { return };
            let mut loads = self.forwarder.queue(node).filter_map(|place| {
                let load = self.load(now, place.1, node, most)?;
                Some((place, load))
            });
            let Some((place, load)) = loads.next() else { return };
            drop(loads);
            self.send_next(at, node, place, load);
        }
    }

    fn send_next(&mut self, at: LinkRef, node: &Eid, place: Place, load: Load) {
        let (_, number) = place;
        let copy_for = self.copy_for(node).cloned();
        let tag = self.forwarder.new_tag();
        let Some(held) = self.bundles.get_mut(&number) else { return };
        let (part, head_len) = (load.part, load.head.encoded_len());
        let (start, end) = part.unwrap_or((0, held.payload.len()));
        let bytes = (end - start).saturating_add(head_len as u64);
        let sending = Sending { to: node.clone(), route: None, part, head_len };
        held.sending.insert((at, tag), sending);
        if part.is_none() || held.gap(copy_for.as_ref()).is_none() {
            let route = held.queued.remove(node).flatten();
            if let Some(sending) = held.sending.get_mut(&(at, tag)) {
                sending.route = route;
            }
            self.forwarder.dequeue(node, place);
        }
        self.forwarder.begin(at, tag, number, bytes);
        self.give(number, node, load.copies);
        self.load_up(at, tag, number, load);
    }

    /// Handles a layer's report that a transmission ended.
    pub(super) fn sent(&mut self, now: Time, at: LinkRef, tag: Tag, outcome: Outcome) {
        let Some((number, node)) = self.forwarder.end(at, tag) else { return };
        let result = match outcome {
            Outcome::Acknowledged | Outcome::Left | Outcome::Refused(Refusal::Completed) => {
                Reception::Accepted
            }
            Outcome::Refused(Refusal::NotAcceptable) => Reception::Declined,
            Outcome::Refused(Refusal::NoResources | Refusal::Retransmit) => Reception::NoRoom,
            Outcome::Failed { .. } => Reception::Failed,
        };
        if self.forwarder.rest(now, at, result) {
            self.arm_rests();
        }
        if let Outcome::Failed { acknowledged } = outcome {
            self.is_kept(at, tag, number, acknowledged);
        }
        match result {
            Reception::Accepted => self.is_sent(now, at, tag, number),
            Reception::Declined => self.not_sent(now, at, tag, number, false),
            Reception::NoRoom | Reception::Failed => {
                self.not_sent(now, at, tag, number, true);
            }
        }
        if let Some(node) = node {
            self.pump(now, &node);
        }
    }

    /// Resumes transmission to neighbours whose back-off has ended.
    pub(super) fn rested(&mut self, now: Time) {
        self.pump_all(now);
        self.forwarder.rested(now);
        self.arm_rests();
    }

    fn arm_rests(&mut self) {
        match self.forwarder.rests_until() {
            Some(at) => self.timers.set(Alarm::Rest, at, "a neighbour's back-off"),
            None => {
                self.timers.cancel(Alarm::Rest);
            }
        }
    }

    fn is_sent(&mut self, now: Time, at: LinkRef, tag: Tag, number: u64) {
        let copies = self.is_copying();
        let Some(held) = self.bundles.get_mut(&number) else { return };
        let Some(sending) = held.sending.remove(&(at, tag)) else { return };
        let node = sending.to;
        if let Some((start, end)) = sending.part {
            held.parts.entry(node.clone()).or_default().insert(start, end);
            let copy_for = copies.then_some(&node);
            if !held.has_gone(copy_for) {
                let is_under_way = held.queued.contains_key(&node)
                    || held.sending.values().any(|sending| sending.to == node);
                // Parts failed while others were in transit.
                if !is_under_way && held.gap(copy_for).is_some() {
                    self.route(now, number);
                }
                return;
            }
        }
        if copies {
            held.parts.remove(&node);
        } else {
            held.parts.clear();
        }
        held.sent.insert(node.clone());
        let id = held.id();
        // The destination received it: no more copies are needed.
        if copies && held.destination().node() == node {
            held.waits = false;
            self.forwarder.wait_no_longer(number);
            self.withdraw(number, |_| false);
        }
        self.statistics.forwarded += 1;
        self.has_left(now, number);
        self.report(now, number, BundleFlags::REPORT_FORWARDING, Reason::NoInformation);
        self.user.indicate(Indication::Forwarded { id, to: node });
        self.settle(number);
    }

    /// Routes a bundle again after a failed transmission; a neighbour that will never accept it is
    /// excluded.
    pub(super) fn not_sent(&mut self, now: Time, at: LinkRef, tag: Tag, number: u64, again: bool) {
        self.statistics.failed += 1;
        let Some(held) = self.bundles.get_mut(&number) else { return };
        let Some(sending) = held.sending.remove(&(at, tag)) else { return };
        let promised = (held.bytes(), held.priority);
        self.give_back(sending.route.as_ref(), promised);
        self.take_again(number, &sending.to);
        if again {
            self.route(now, number);
        } else {
            self.wait(number);
        }
    }

    /// Reroutes the bundles queued for a node whose link broke, if there is a contact plan.
    fn reroute(&mut self, now: Time, node: &Eid) {
        if !matches!(self.config.routing, Routing::ContactGraph(..)) {
            return;
        }
        for (_, number) in self.forwarder.take_queue(node) {
            let Some(held) = self.bundles.get_mut(&number) else { continue };
            let Some(route) = held.queued.remove(node) else { continue };
            let promised = (held.bytes(), held.priority);
            self.give_back(route.as_ref(), promised);
            self.route(now, number);
        }
    }

    /// Queues copies for a new neighbour.
    fn spread_to(&mut self, node: &Eid) {
        for number in self.forwarder.waiting() {
            self.offer_copy(number, node);
        }
    }

    fn offer_copy(&mut self, number: u64, node: &Eid) {
        let Some(held) = self.bundles.get_mut(&number) else { return };
        let has = held.sent.contains(node)
            || held.from.as_ref() == Some(node)
            || held.queued.contains_key(node)
            || held.sending.values().any(|sending| sending.to == *node)
            || held.head.source().node() == *node;
        let has_spare = match self.config.routing {
            Routing::Spray { .. } => held.copies > 1 || held.destination().node() == *node,
            Routing::Static(_) | Routing::ContactGraph(..) | Routing::Epidemic => true,
        };
        if !has && has_spare {
            held.queued.insert(node.clone(), None);
            self.forwarder.enqueue(node, held.priority, number);
        }
    }

    /// Opens the links of contacts that begin, closes the links of ended contacts, and sets the
    /// timer for the next change.
    pub(super) fn contacts(&mut self, now: Time) {
        let Routing::ContactGraph(router, _) = &mut self.config.routing else { return };
        router.forget_before(now);
        let mut next: Option<Time> = None;
        let mut commands = Vec::new();
        let mut over = Vec::new();
        for (at, node) in &self.config.links {
            let Eid::Ipn { node: number, .. } = node else { continue };
            let contact = router.next_contact(now, *number);
            let is_open = contact.is_some_and(|contact| contact.start <= now);
            let link = at.link;
            if self.forwarder.set_open(*at, is_open) {
                let command =
                    if is_open { Command::Open { link } } else { Command::Close { link } };
                commands.push((at.layer, command));
                over.extend((!is_open).then(|| node.clone()));
            }
            let change = contact.map(|contact| if is_open { contact.end } else { contact.start });
            next = [next, change].into_iter().flatten().min();
        }
        self.commands.extend(commands);
        for node in over {
            self.reroute(now, &node);
        }
        match next {
            Some(at) => self.timers.set(Alarm::Contact, at, "a contact begins or ends"),
            None => {
                self.timers.cancel(Alarm::Contact);
            }
        }
    }
}
