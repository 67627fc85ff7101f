//! Applications at the endpoints of a node, and the bundles that those of a shared endpoint have
//! not confirmed.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use bp::agent::{Agent, DeliveryId, Received, RequestError, Version};
use bp::codec::bp7::{BundleId, Eid};
use bp::layer::Content;
use engine::Time;
use tokio::sync::mpsc::UnboundedSender;

use super::model::Share;

/// First number of copies, beyond the numbers of deliveries. Many readers of JSON have exact
/// numbers below 2^53 only.
const COPIES: u64 = 1 << 52;

/// A bundle for an application.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) delivery: DeliveryId,
    /// Number by which the application confirms it.
    pub(crate) number: u64,
    pub(crate) id: BundleId,
    pub(crate) version: Version,
    /// Numbers of the security rules whose operations it passed.
    pub(crate) verified: Vec<u32>,
    pub(crate) facts: Option<Received>,
    pub(crate) payload: Content,
    pub(crate) at: Instant,
}

/// Number of an application, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Receiver(u64);

#[derive(Debug)]
struct Member {
    user: UnboundedSender<Delivered>,
    /// Bundles that it has not confirmed.
    unconfirmed: usize,
    /// Number of the last bundle for it.
    served: u64,
}

/// Applications at an endpoint.
#[derive(Debug)]
struct Group {
    share: Share,
    members: BTreeMap<Receiver, Member>,
}

/// A bundle with applications of a shared endpoint.
#[derive(Debug)]
struct Held {
    endpoint: Eid,
    delivered: Delivered,
    /// Applications that have not confirmed it, and the numbers of its deliveries to them.
    with: BTreeMap<Receiver, u64>,
    /// Whether one has confirmed it.
    is_confirmed: bool,
}

/// Applications at the endpoints of a node.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    groups: BTreeMap<Eid, Group>,
    held: BTreeMap<DeliveryId, Held>,
    /// Deliveries of copies by their numbers.
    copies: BTreeMap<u64, DeliveryId>,
    next_copy: u64,
    next: u64,
}

impl Receivers {
    /// Endpoints with applications.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Eid> {
        self.groups.keys()
    }

    /// Adds an application to an endpoint. Waiting bundles are indicated after this.
    pub(super) fn join(
        &mut self,
        agent: &mut Agent,
        endpoint: &Eid,
        share: Share,
        user: UnboundedSender<Delivered>,
    ) -> Result<Receiver, RequestError> {
        if let Some(group) = self.groups.get(endpoint) {
            if share == Share::No || share != group.share {
                return Err(RequestError::Taken);
            }
        } else {
            agent.register(endpoint)?;
            let group = Group { share, members: BTreeMap::new() };
            self.groups.insert(endpoint.clone(), group);
        }
        self.next += 1;
        let receiver = Receiver(self.next);
        if let Some(group) = self.groups.get_mut(endpoint) {
            group.members.insert(receiver, Member { user, unconfirmed: 0, served: 0 });
        }
        Ok(receiver)
    }

    /// Removes an application. What it has not confirmed is delivered again, unless it was a copy
    /// that another has confirmed.
    pub(super) fn leave(
        &mut self,
        now: Time,
        agent: &mut Agent,
        endpoint: &Eid,
        receiver: Receiver,
    ) {
        let Some(group) = self.groups.get_mut(endpoint) else { return };
        group.members.remove(&receiver);
        let is_empty = group.members.is_empty();
        let has = |(_, held): &(&DeliveryId, &Held)| held.with.contains_key(&receiver);
        let its: Vec<DeliveryId> = self.held.iter().filter(has).map(|(id, _)| *id).collect();
        for delivery in its {
            let Some(held) = self.held.get_mut(&delivery) else { continue };
            if let Some(number) = held.with.remove(&receiver) {
                self.copies.remove(&number);
            }
            if !held.with.is_empty() {
                continue;
            }
            let Some(held) = self.held.remove(&delivery) else { continue };
            if held.is_confirmed {
                // It may have expired.
                let _ = agent.confirm(now, delivery);
            } else if !is_empty && agent.delivery(delivery).is_some() {
                let facts = agent.received(now, delivery);
                self.hand_out(held.endpoint, Delivered { facts, ..held.delivered });
            }
        }
        if is_empty {
            self.groups.remove(endpoint);
            agent.deregister(endpoint);
        }
    }

    /// Delivers a bundle. Without an application it waits for the next. One that was confirmed or
    /// has expired since the agent indicated it is not delivered.
    pub(super) fn deliver(&mut self, agent: &Agent, endpoint: Eid, delivered: Delivered) {
        if agent.delivery(delivered.delivery).as_ref() != Some(&delivered.id) {
            return;
        }
        let Some(group) = self.groups.get(&endpoint) else { return };
        if group.share != Share::No {
            return self.hand_out(endpoint, delivered);
        }
        if let Some(member) = group.members.values().next() {
            // A vanished user is removed, and the bundle waits for the next.
            let _ = member.user.send(delivered);
        }
    }

    /// Delivers a bundle to the applications of a shared endpoint.
    fn hand_out(&mut self, endpoint: Eid, delivered: Delivered) {
        let Some(group) = self.groups.get_mut(&endpoint) else { return };
        let delivery = delivered.delivery;
        let idle = |members: &BTreeMap<Receiver, Member>| {
            let idlest =
                members.iter().min_by_key(|(_, member)| (member.unconfirmed, member.served));
            idlest.map(|(receiver, _)| *receiver)
        };
        let to: Vec<Receiver> = match group.share {
            Share::Copies => group.members.keys().copied().collect(),
            Share::No | Share::Turns => idle(&group.members).into_iter().collect(),
        };
        let mut with = BTreeMap::new();
        for receiver in to {
            let Some(member) = group.members.get_mut(&receiver) else { continue };
            let number = match group.share {
                Share::No | Share::Turns => delivery.0,
                Share::Copies => {
                    self.next_copy += 1;
                    let number = COPIES + self.next_copy;
                    self.copies.insert(number, delivery);
                    number
                }
            };
            self.next += 1;
            (member.unconfirmed, member.served) = (member.unconfirmed + 1, self.next);
            with.insert(receiver, number);
            let _ = member.user.send(Delivered { number, ..delivered.clone() });
        }
        self.held.insert(delivery, Held { endpoint, delivered, with, is_confirmed: false });
    }

    /// Confirms a delivery by its number, if it is of the bundle `wanted`. The agent may delete the
    /// bundle as soon as all its applications have confirmed it.
    pub(super) fn confirm(
        &mut self,
        now: Time,
        agent: &mut Agent,
        number: u64,
        wanted: Option<&str>,
    ) -> Result<(), RequestError> {
        let delivery = self.copies.get(&number).copied().unwrap_or(DeliveryId(number));
        let found = agent.delivery(delivery).ok_or(RequestError::NoDelivery)?;
        if wanted.is_some_and(|wanted| wanted != found.to_string()) {
            return Err(RequestError::NoDelivery);
        }
        if let Some(held) = self.held.get_mut(&delivery) {
            let by = held.with.iter().find(|(_, its)| **its == number).map(|(by, _)| *by);
            let by = by.ok_or(RequestError::NoDelivery)?;
            held.with.remove(&by);
            held.is_confirmed = true;
            self.copies.remove(&number);
            count_down(&mut self.groups, &held.endpoint, by);
            if !held.with.is_empty() {
                return Ok(());
            }
            self.held.remove(&delivery);
        }
        agent.confirm(now, delivery)
    }

    /// Forgets bundles that have expired, or were deleted.
    pub(super) fn sweep(&mut self, agent: &Agent) {
        let over = self.held.keys().filter(|delivery| agent.delivery(**delivery).is_none());
        for delivery in over.copied().collect::<Vec<_>>() {
            let Some(Held { endpoint, with, .. }) = self.held.remove(&delivery) else { continue };
            for (receiver, number) in with {
                self.copies.remove(&number);
                count_down(&mut self.groups, &endpoint, receiver);
            }
        }
    }
}

/// Removes one bundle from the count of those that an application has not confirmed.
fn count_down(groups: &mut BTreeMap<Eid, Group>, endpoint: &Eid, receiver: Receiver) {
    let group = groups.get_mut(endpoint);
    if let Some(member) = group.and_then(|group| group.members.get_mut(&receiver)) {
        member.unconfirmed = member.unconfirmed.saturating_sub(1);
    }
}
