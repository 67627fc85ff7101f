//! Bundles for others (RFC 9171 §5.4).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::Time;
use wire::bp7::{BundleFlags, Eid, Reason};

use super::super::layer::{Command, Neighbour, Outcome, Refusal, Tag};
use super::super::routes::{Priority, Route, Wanted};
use super::config::Routing;
use super::held::Sending;
use super::outgoing::Load;
use super::{Agent, Alarm, Held, Indication, LinkRef};

/// A neighbour over a layer.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) node: Option<Eid>,
    /// What is known of it while it can be reached.
    pub(super) up: Option<Neighbour>,
    /// What is on its way to it.
    pub(super) sending: UnderWay,
    /// It refused a bundle for want of room, or its layer failed: it is left alone until then, and how long that is.
    pub(super) rests: Option<(Time, Duration)>,
}

/// Bundles on their way to a neighbour.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// Which they are, and their octets.
    bundles: BTreeMap<Tag, (u64, u64)>,
    octets: u64,
}

impl UnderWay {
    fn insert(&mut self, tag: Tag, number: u64, octets: u64) {
        self.octets = self.octets.saturating_add(octets);
        self.bundles.insert(tag, (number, octets));
    }

    /// Which bundle it was.
    fn remove(&mut self, tag: Tag) -> Option<u64> {
        let (number, octets) = self.bundles.remove(&tag)?;
        self.octets = self.octets.saturating_sub(octets);
        Some(number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bundles.is_empty()
    }

    /// Whether one more may be on its way.
    fn has_room(&self, up: &Neighbour) -> bool {
        self.bundles.len() < up.window || self.octets < up.window_octets
    }
}

/// First and longest rest of a neighbour that has no room or whose layer failed, and of a store
/// that did not record that a bundle is gone.
pub(super) const REST: Duration = Duration::from_secs(1);
pub(super) const REST_MAX: Duration = Duration::from_secs(60);

/// The neighbour to which a bundle goes, and by which contacts.
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
                    octets: held.octets(),
                    priority: held.priority,
                    expires: held.expires,
                    excluded: &excluded,
                };
                if let Some(route) = router.best(now, &wanted) {
                    router.promise(&route, held.octets(), held.priority);
                    let via = Eid::Ipn { node: route.next_hop, service: 0 };
                    return Some((via, Some(route)));
                }
            }
            entries
        }
    };
    let entry = entries.iter().find(|entry| entry.to.matches(destination))?;
    Some((entry.via.clone(), None))
}

impl Agent {
    pub(super) fn link_up(&mut self, now: Time, at: LinkRef, neighbour: Neighbour) {
        let configured = self.config.links.get(&at).cloned();
        let link = self.links.entry(at).or_default();
        let is_new = link.up.is_none();
        link.node = configured.or_else(|| neighbour.node.as_ref().map(Eid::node));
        link.up = Some(neighbour);
        let node = link.node.clone();
        if is_new {
            self.user.indicate(Indication::Up { node: node.clone() });
        }
        self.tell_router(now, node.as_ref(), false);
        if let Some(node) = node {
            if is_new && self.is_copying() {
                self.spread_to(&node);
            }
            self.pump(now, &node);
        }
    }

    pub(super) fn link_down(&mut self, now: Time, at: LinkRef, why: &'static str) {
        let Some(mut link) = self.links.remove(&at) else { return };
        self.tell_router(now, link.node.as_ref(), true);
        // What a layer did not answer for, it does not answer any more.
        for (tag, (number, _)) in std::mem::take(&mut link.sending.bundles) {
            self.not_sent(now, at, tag, number, true);
        }
        self.user.indicate(Indication::Down { node: link.node.clone(), why });
        if let Some(node) = &link.node {
            self.reroute(now, node);
        }
    }

    /// Whether the contact with a node that goes on now, by the plan, does.
    fn tell_router(&mut self, now: Time, node: Option<&Eid>, has_failed: bool) {
        if let (Routing::ContactGraph(router, _), Some(Eid::Ipn { node, .. })) =
            (&mut self.config.routing, node)
        {
            router.set_failed(now, *node, has_failed);
        }
    }

    /// Finds where a bundle goes next.
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
                self.waiting.insert(number);
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

    /// Whether nodes get copies of their own.
    pub(super) const fn is_copying(&self) -> bool {
        match self.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => true,
            Routing::Static(_) | Routing::ContactGraph(..) => false,
        }
    }

    /// The node, if it gets a copy of its own.
    pub(super) fn copy_for<'a>(&self, node: &'a Eid) -> Option<&'a Eid> {
        self.is_copying().then_some(node)
    }

    fn wait(&mut self, number: u64) {
        if let Some(held) = self.bundles.get_mut(&number) {
            held.waits = true;
            self.waiting.insert(number);
        }
    }

    fn enqueue(&mut self, now: Time, number: u64, node: &Eid, route: Option<Route>) {
        let Some(held) = self.bundles.get_mut(&number) else { return };
        held.waits = false;
        self.waiting.remove(&number);
        // Its parts may have failed one after the other.
        if let Some(before) = held.queued.insert(node.clone(), route).flatten() {
            let (octets, priority) = (held.octets(), held.priority);
            if let Routing::ContactGraph(router, _) = &mut self.config.routing {
                router.release(&before, octets, priority);
            }
        }
        let Some(held) = self.bundles.get(&number) else { return };
        let place = (Reverse(held.priority), number);
        self.queues.entry(node.clone()).or_default().insert(place);
        self.pump(now, node);
    }

    /// Gives back what contacts were promised to a bundle of so many octets.
    pub(super) fn give_back(&mut self, route: Option<&Route>, (octets, priority): (u64, Priority)) {
        if let (Some(route), Routing::ContactGraph(router, _)) = (route, &mut self.config.routing) {
            router.release(route, octets, priority);
        }
    }

    pub(super) fn pump_all(&mut self, now: Time) {
        for node in self.nodes_up() {
            self.pump(now, &node);
        }
    }

    /// Sends what waits for those who have had a place freed.
    pub(super) fn pump_freed(&mut self, now: Time) {
        while let Some(node) = self.freed.pop_first() {
            self.pump(now, &node);
        }
    }

    /// A bundle is under way no longer, without the layer having said so.
    pub(super) fn free(&mut self, at: LinkRef, tag: Tag) {
        let Some(link) = self.links.get_mut(&at) else { return };
        if link.sending.remove(tag).is_some() {
            self.freed.extend(link.node.clone());
        }
    }

    /// Whoever sends a bundle need not any more.
    pub(super) fn cancel_sending(&mut self, number: u64) {
        let Some(held) = self.bundles.get(&number) else { return };
        for (at, tag) in held.sending.keys() {
            self.commands.push_back((at.layer, Command::Cancel { link: at.link, tag: *tag }));
        }
    }

    /// Sends what waits for a node, as far as its links take it.
    fn pump(&mut self, now: Time, node: &Eid) {
        loop {
            let free = self.links.iter().find(|(_, link)| {
                link.node.as_ref() == Some(node)
                    && link.rests.is_none_or(|(until, _)| until <= now)
                    && link.up.as_ref().is_some_and(|up| link.sending.has_room(up))
            });
            let Some((&at, link)) = free else { return };
            let most = link.up.as_ref().map_or(0, |up| up.bundle_max);
            let Some(queue) = self.queues.get(node) else { return };
            let mut loads = queue.iter().filter_map(|place| {
                let load = self.load(now, place.1, node, most)?;
                Some((*place, load))
            });
            let Some((place, load)) = loads.next() else { return };
            drop(loads);
            self.send_next(at, node, place, load);
        }
    }

    fn send_next(&mut self, at: LinkRef, node: &Eid, place: (Reverse<Priority>, u64), load: Load) {
        let (_, number) = place;
        let copy_for = self.copy_for(node).cloned();
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        let Some(held) = self.bundles.get_mut(&number) else { return };
        let (part, head_len) = (load.part, load.head.encoded_len());
        let (start, end) = part.unwrap_or((0, held.payload.len()));
        let octets = (end - start).saturating_add(head_len as u64);
        let sending = Sending { to: node.clone(), route: None, part, head_len };
        held.sending.insert((at, tag), sending);
        if part.is_none() || held.gap(copy_for.as_ref()).is_none() {
            let route = held.queued.remove(node).flatten();
            if let Some(sending) = held.sending.get_mut(&(at, tag)) {
                sending.route = route;
            }
            if let Some(queue) = self.queues.get_mut(node) {
                queue.remove(&place);
            }
        }
        if let Some(link) = self.links.get_mut(&at) {
            link.sending.insert(tag, number, octets);
        }
        self.give(number, node, load.copies);
        self.load_up(at, tag, number, load);
    }

    /// A layer tells how sending a bundle ended.
    pub(super) fn sent(&mut self, now: Time, at: LinkRef, tag: Tag, outcome: Outcome) {
        let Some(link) = self.links.get_mut(&at) else { return };
        let node = link.node.clone();
        let Some(number) = link.sending.remove(tag) else { return };
        match outcome {
            Outcome::Acknowledged | Outcome::Left | Outcome::Refused(Refusal::Completed) => {
                link.rests = None;
                self.is_sent(now, at, tag, number);
            }
            Outcome::Refused(Refusal::NotAcceptable) => self.not_sent(now, at, tag, number, false),
            Outcome::Refused(Refusal::NoResources | Refusal::Retransmit) => {
                let long = link.rests.map_or(REST, |(_, long)| (2 * long).min(REST_MAX));
                link.rests = Some((now + long, long));
                self.arm_rests();
                self.not_sent(now, at, tag, number, true);
            }
            Outcome::Failed { acknowledged } => {
                // A layer whose link breaks says so next. Until it does it would fail whatever it is given,
                // at once and without end.
                link.rests = Some((now + REST, link.rests.map_or(REST, |(_, long)| long)));
                self.arm_rests();
                self.is_kept(at, tag, number, acknowledged);
                self.not_sent(now, at, tag, number, true);
            }
        }
        if let Some(node) = node {
            self.pump(now, &node);
        }
    }

    /// A neighbour has rested.
    pub(super) fn rested(&mut self, now: Time) {
        self.pump_all(now);
        let waits = |link: &&mut Link| link.rests.is_some_and(|(until, _)| until <= now);
        for link in self.links.values_mut().filter(waits) {
            // The time is kept, for a refusal that comes next is not the first.
            let long = link.rests.map_or(REST, |(_, long)| long);
            link.rests = Some((Time::ZERO, long));
        }
        self.arm_rests();
    }

    fn arm_rests(&mut self) {
        let until = self.links.values().filter_map(|link| link.rests);
        match until.map(|(until, _)| until).filter(|until| *until > Time::ZERO).min() {
            Some(at) => self.timers.set(Alarm::Rest, at, "a neighbour that rests"),
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
                // Parts that failed meanwhile, which others were under way then.
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
        // What is there needs no more copies from here.
        if copies && held.destination().node() == node {
            held.waits = false;
            self.waiting.remove(&number);
            self.withdraw(number, |_| false);
        }
        self.statistics.forwarded += 1;
        self.has_left(now, number);
        self.report(now, number, BundleFlags::REPORT_FORWARDING, Reason::NoInformation);
        self.user.indicate(Indication::Forwarded { id, to: node });
        self.settle(number);
    }

    /// It goes another way, or the same one again; a neighbour that will never take it is not asked again.
    pub(super) fn not_sent(&mut self, now: Time, at: LinkRef, tag: Tag, number: u64, again: bool) {
        self.statistics.failed += 1;
        let Some(held) = self.bundles.get_mut(&number) else { return };
        let Some(sending) = held.sending.remove(&(at, tag)) else { return };
        let promised = (held.octets(), held.priority);
        self.give_back(sending.route.as_ref(), promised);
        self.take_again(number, &sending.to);
        if again {
            self.route(now, number);
        } else {
            self.wait(number);
        }
    }

    /// Bundles that wait for a node whose link broke go by other contacts, if there is a plan.
    fn reroute(&mut self, now: Time, node: &Eid) {
        if !matches!(self.config.routing, Routing::ContactGraph(..)) {
            return;
        }
        let Some(queue) = self.queues.remove(node) else { return };
        for (_, number) in queue {
            let Some(held) = self.bundles.get_mut(&number) else { continue };
            let Some(route) = held.queued.remove(node) else { continue };
            let promised = (held.octets(), held.priority);
            self.give_back(route.as_ref(), promised);
            self.route(now, number);
        }
    }

    /// Copies for a neighbour that came.
    fn spread_to(&mut self, node: &Eid) {
        let numbers: Vec<u64> = self.waiting.iter().copied().collect();
        for number in numbers {
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
            let place = (Reverse(held.priority), number);
            self.queues.entry(node.clone()).or_default().insert(place);
        }
    }

    /// Other routes from now on.
    pub fn set_routing(&mut self, now: Time, routing: Routing) {
        self.config.routing = routing;
        let queues = std::mem::take(&mut self.queues);
        let mut numbers: BTreeSet<u64> = self.waiting.clone();
        for (node, queue) in queues {
            for (_, number) in queue {
                if let Some(held) = self.bundles.get_mut(&number) {
                    held.queued.remove(&node);
                }
                numbers.insert(number);
            }
        }
        for number in numbers {
            self.dispatch(now, number);
        }
        self.contacts(now);
    }

    /// Opens the links of contacts that begin, closes those of contacts that are over, and looks when the next one does
    /// either.
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
            if is_open && self.open.insert(*at) {
                commands.push((at.layer, Command::Open { link }));
            } else if !is_open && self.open.remove(at) {
                commands.push((at.layer, Command::Close { link }));
                over.push(node.clone());
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
