//! Forwarding of bundles (RFC 9171 §5.4).

use std::collections::BTreeSet;

use engine::Time;

use super::super::layer::{Command, Outcome, Refusal, Tag};
use super::super::routes::{Priority, Route};
use super::config::Routing;
use super::contacts::WAITING;
use super::forwarder::Reception;
use super::held::Sending;
use super::outgoing::{Load, Retry, Unfit};
use super::{Agent, Alarm, Indication, LinkRef};
use crate::codec::bp7::{BundleFlags, Eid, Reason};

/// Bundles in a queue that are passed over for one that can be sent now, for example because the
/// link that takes their length is busy.
const SKIPPED_MAX: usize = 64;

impl Agent {
    /// Routes a bundle.
    pub(super) fn route(&mut self, now: Time, number: u64) {
        let bounds = self.core.config.limits.head;
        let Some(held) = self.core.stock.get(number) else { return };
        if held.head.hop_count(&bounds).is_some_and(|hops| hops.count >= hops.limit) {
            self.delete(now, number, Reason::HopLimitExceeded);
            return;
        }
        match &self.core.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => {
                if let Some(held) = self.core.stock.get_mut(number) {
                    held.waits = true;
                }
                self.forwarder.waiting.insert(number);
                let nodes: BTreeSet<Eid> = self.nodes_up();
                for node in nodes {
                    self.offer_copy(number, &node);
                    self.pump(now, &node);
                }
            }
            Routing::Static(_) | Routing::ContactGraph(..) => match self.next_hop(now, number) {
                Some((node, route)) => self.enqueue(now, number, &node, route),
                None => self.wait(now, number),
            },
        }
    }

    /// Whether each neighbour gets a copy.
    pub(super) const fn is_copying(&self) -> bool {
        match self.core.config.routing {
            Routing::Epidemic | Routing::Spray { .. } => true,
            Routing::Static(_) | Routing::ContactGraph(..) => false,
        }
    }

    /// Returns the node if it gets its own copy.
    pub(super) fn copy_for<'a>(&self, node: &'a Eid) -> Option<&'a Eid> {
        self.is_copying().then_some(node)
    }

    /// Keeps a bundle that has no route now.
    fn wait(&mut self, now: Time, number: u64) {
        if let Some(held) = self.core.stock.get_mut(number) {
            held.waits = true;
            self.forwarder.waiting.insert(number);
            self.arm_dispatch(now);
        }
    }

    fn enqueue(&mut self, now: Time, number: u64, node: &Eid, route: Option<Route>) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        held.waits = false;
        self.forwarder.waiting.remove(&number);
        // Parts of it may have failed one after the other.
        if let Some(before) = held.queued.insert(node.clone(), route).flatten() {
            let (bytes, priority) = (held.bytes(), held.priority);
            if let Routing::ContactGraph(router, _) = &mut self.core.config.routing {
                router.release(&before, bytes, priority);
            }
        }
        let Some(held) = self.core.stock.get(number) else { return };
        self.forwarder.enqueue(node, held.priority, number);
        self.pump(now, node);
    }

    /// Releases the contact volume reserved for a bundle.
    pub(super) fn give_back(&mut self, route: Option<&Route>, bytes: u64, priority: Priority) {
        if let (Some(route), Routing::ContactGraph(router, _)) =
            (route, &mut self.core.config.routing)
        {
            router.release(route, bytes, priority);
            self.forwarder.has_spare_volume = true;
        }
    }

    pub(super) fn pump_all(&mut self, now: Time) {
        for node in self.nodes_up() {
            self.pump(now, &node);
        }
    }

    /// Sends bundles to neighbours with freed transmission slots.
    pub(super) fn pump_freed(&mut self, now: Time) {
        while let Some(node) = self.forwarder.freed.pop_first() {
            self.pump(now, &node);
        }
        self.use_volume(now);
    }

    /// Cancels the transmissions of a bundle.
    pub(super) fn cancel_sending(&mut self, number: u64) {
        let Some(held) = self.core.stock.get(number) else { return };
        for (at, tag) in held.sending.keys() {
            self.core.commands.push_back((at.layer, Command::Cancel { link: at.link, tag: *tag }));
        }
    }

    /// Sends queued bundles to a node, as far as its links accept them.
    pub(super) fn pump(&mut self, now: Time, node: &Eid) {
        while let Some((at, number, load)) = self.next_load(now, node) {
            self.send_next(at, node, number, load);
        }
    }

    /// Next bundle for a node, and the link that takes it.
    fn next_load(&mut self, now: Time, node: &Eid) -> Option<(LinkRef, u64, Load)> {
        let free = self.forwarder.free_links(now, node);
        let longest = free.iter().map(|(_, most)| *most).max()?;
        let (mut next, mut too_long, mut skipped) = (None, Vec::new(), 0);
        for number in self.forwarder.queue(node) {
            let load = |link: &(LinkRef, u64)| {
                Some((link.0, self.load_over(now, number, node, link.0, link.1).ok()?))
            };
            if let Some((at, load)) = free.iter().find_map(load) {
                next = Some((at, number, load));
                break;
            }
            match self.load(now, number, node, longest.max(self.forwarder.bundle_max(node))) {
                Err(Unfit::TooLong) => too_long.push(number),
                // It waits for a link that is busy, or for the end of another transmission.
                Ok(_) | Err(Unfit::NotNow) => skipped += 1,
            }
            if skipped >= SKIPPED_MAX {
                break;
            }
        }
        for number in too_long {
            self.unqueue(number, node);
            self.forwarder.decline(node, number);
            if !self.is_copying() {
                self.route(now, number);
            }
        }
        next
    }

    fn send_next(&mut self, at: LinkRef, node: &Eid, number: u64, load: Load) {
        let copy_for = self.copy_for(node).cloned();
        let Some(held) = self.core.stock.get_mut(number) else { return };
        let (part, head_len) = (load.part, load.head.encoded_len());
        let (start, end) = part.unwrap_or((0, held.payload.len()));
        let bytes = (end - start).saturating_add(head_len as u64);
        let tag = self.forwarder.begin(at, number, bytes);
        let sending =
            Sending { to: node.clone(), route: None, part, head_len, hops: held.arrival.hops };
        if let Some(custody) = &mut held.custody {
            custody.given.insert(node.clone());
        }
        held.sending.insert((at, tag), sending);
        held.arrival.is_tried = true;
        if part.is_none() || held.gap(copy_for.as_ref()).is_none() {
            let route = held.queued.remove(node).flatten();
            if let Some(sending) = held.sending.get_mut(&(at, tag)) {
                sending.route = route;
            }
            self.forwarder.dequeue(node, held.priority, number);
        }
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
            self.keep_acknowledged(at, tag, number, acknowledged);
        }
        match result {
            Reception::Accepted if !self.is_overtaken(at, tag, number) => {
                self.on_sent(now, at, tag, number);
            }
            Reception::Declined => self.reroute(now, at, tag, number, Retry::NextSession),
            Reception::Accepted | Reception::NoRoom | Reception::Failed => {
                self.reroute(now, at, tag, number, Retry::Now);
            }
        }
        if let Some(node) = node {
            self.pump(now, &node);
            if self.forwarder.queue(&node).next().is_none() {
                // It may take a bundle for which the plan has no route.
                self.forwarder.has_spare_volume = true;
            }
        }
        self.use_volume(now);
    }

    /// Whether a copy came back during a transmission: its neighbour may have discarded the bundle
    /// as a repetition.
    fn is_overtaken(&self, at: LinkRef, tag: Tag, number: u64) -> bool {
        let Some(held) = self.core.stock.get(number) else { return false };
        let sending = held.sending.get(&(at, tag)).filter(|sending| sending.part.is_none());
        sending.is_some_and(|sending| sending.hops < held.arrival.hops)
    }

    /// Resumes transmission to neighbours whose back-off has ended.
    pub(super) fn rested(&mut self, now: Time) {
        self.pump_all(now);
        self.forwarder.rested(now);
        self.arm_rests();
    }

    fn arm_rests(&mut self) {
        let until = self.forwarder.rests_until();
        self.core.timers.set_or_cancel(Alarm::Rest, until, "a neighbour's back-off");
    }

    fn on_sent(&mut self, now: Time, at: LinkRef, tag: Tag, number: u64) {
        let copies = self.is_copying();
        let Some(held) = self.core.stock.get_mut(number) else { return };
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
        if copies && held.destination().node() == node && self.forwarder.reaches_known(&node) {
            held.waits = false;
            self.forwarder.waiting.remove(&number);
            self.withdraw(number, |_| false);
        }
        self.core.statistics.forwarded += 1;
        self.await_custody(now, number);
        self.report(now, number, BundleFlags::REPORT_FORWARDING, Reason::NoInformation);
        self.core.user.indicate(Indication::Forwarded { id, to: node });
        self.settle(number);
    }

    /// Routes a bundle again after a failed transmission.
    pub(super) fn reroute(&mut self, now: Time, at: LinkRef, tag: Tag, number: u64, retry: Retry) {
        self.core.statistics.failed += 1;
        let Some(held) = self.core.stock.get_mut(number) else { return };
        let Some(sending) = held.sending.remove(&(at, tag)) else { return };
        let (bytes, priority) = (held.bytes(), held.priority);
        self.give_back(sending.route.as_ref(), bytes, priority);
        self.take_again(number, &sending.to);
        match retry {
            Retry::Now => self.route(now, number),
            Retry::NextSession => {
                self.forwarder.decline(&sending.to, number);
                self.unqueue(number, &sending.to);
                self.route(now, number);
            }
            Retry::Later => {
                self.unqueue(number, &sending.to);
                self.wait(now, number);
                self.arm_dispatch_at(now + WAITING);
            }
        }
    }

    /// Takes a bundle out of the queue of a neighbour, and releases the volume reserved for it.
    pub(super) fn unqueue(&mut self, number: u64, node: &Eid) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        let Some(route) = held.queued.remove(node) else { return };
        let (bytes, priority) = (held.bytes(), held.priority);
        self.forwarder.dequeue(node, priority, number);
        self.give_back(route.as_ref(), bytes, priority);
    }

    /// Queues copies for a new neighbour.
    pub(super) fn spread_to(&mut self, node: &Eid) {
        let waiting: Vec<_> = self.forwarder.waiting.iter().copied().collect();
        for number in waiting {
            self.offer_copy(number, node);
        }
    }

    fn offer_copy(&mut self, number: u64, node: &Eid) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        let is_for_it = held.destination().node() == *node;
        let has = held.sent.contains(node)
            || !is_for_it && !self.forwarder.reaches_known(node)
            || self.forwarder.has_declined(node, number)
            || held.from.as_ref() == Some(node)
            || held.queued.contains_key(node)
            || held.sending.values().any(|sending| sending.to == *node)
            || held.head.source().node() == *node;
        let has_spare = match self.core.config.routing {
            Routing::Spray { .. } => held.copies > 1 || is_for_it,
            // Nodes would not recognize copies of a bundle without a source.
            Routing::Epidemic => is_for_it || !held.head.is_anonymous(),
            Routing::Static(_) | Routing::ContactGraph(..) => true,
        };
        if !has && has_spare {
            held.queued.insert(node.clone(), None);
            self.forwarder.enqueue(node, held.priority, number);
        }
    }
}
