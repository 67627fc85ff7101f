//! Requests to an agent: by users, who send, receive and cancel bundles, and by operators, who
//! list bundles and change settings.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{FileName, Time};
use session::ranges::Ranges;

use super::super::layer::Command;
use super::super::routes::{Priority, Router, Wanted};
use super::admission::{fault_in_version_six, is_to_be_secured};
use super::clock::Clock;
use super::config::{Config, Entry, millis};
use super::deliver::deliver_waiting;
use super::head::{Head, Key};
use super::intake::Giver;
use super::shares::Account;
use super::source::SendRequest;
use super::stock::{Core, Stock};
use super::{
    Agent, DeliveryId, Held, Indication, Limit, LinkRef, RequestError, Routing, Statistics, Version,
};
use crate::codec::bp7::{BundleFlags, BundleId, Eid, HopCount, Reason};

/// Difference to a bundle's creation time that is no error of this node's clock.
const TOLERANCE_MS: u64 = 1000;

/// Summary of a bundle in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number in the store, in order of arrival.
    pub number: u64,
    /// Identity.
    pub id: BundleId,
    /// Destination.
    pub destination: Eid,
    /// Bytes in the store.
    pub bytes: u64,
    /// Time of arrival.
    pub received: Time,
    /// Time of expiry.
    pub expires: Time,
    /// Neighbours in whose queues it is, or to which it is being sent.
    pub next_hops: BTreeSet<Eid>,
    /// Class of service in this node's queues.
    pub priority: Priority,
    /// Whether this node has custody of it.
    pub has_custody: bool,
    /// Most bytes of its payload that a neighbour without the complete bundle has.
    pub sent: u64,
    /// State.
    pub state: State,
}

/// Facts about a delivered bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Destination.
    pub destination: Eid,
    /// Lifetime that its source gave it, in milliseconds.
    pub lifetime_ms: u64,
    /// Age, in milliseconds.
    pub age_ms: u64,
    /// Time until it expires.
    pub left: Duration,
    /// Hop limit and hop count, if it has them.
    pub hops: Option<HopCount>,
}

/// Traffic with a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourTraffic {
    /// Links that are up.
    pub links: usize,
    /// Bundles queued for it.
    pub queued: usize,
    /// Bundles in transit to it, and their bytes.
    pub sending: (usize, u64),
}

/// Event a bundle waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Record in the store.
    Storing,
    /// Confirmation by its user.
    Delivering,
    /// Acknowledgment by a neighbour.
    Sending,
    /// Contact with a neighbour.
    Queued,
    /// A route, or a user.
    Waiting,
}

impl State {
    /// Name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Storing => "storing",
            Self::Delivering => "delivering",
            Self::Sending => "sending",
            Self::Queued => "queued",
            Self::Waiting => "waiting",
        }
    }
}

impl Agent {
    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let Stock { bundles, bytes, .. } = &self.core.stock;
        Statistics { bundles: bundles.len(), bytes: *bytes, ..self.core.statistics }
    }

    /// Whether the records of an earlier run are read, so that bundles are accepted.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.core.stock.is_ready
    }

    /// Next command, and the index of its layer.
    pub fn poll_command(&mut self) -> Option<(usize, Command)> {
        self.core.commands.pop_front()
    }

    /// Whether an endpoint belongs to this node.
    #[must_use]
    pub fn is_ours(&self, eid: &Eid) -> bool {
        self.core.is_ours(eid)
    }

    /// Sends a bundle. [`Indication::Stored`] reports that it is safe.
    ///
    /// # Errors
    ///
    /// There is no room, or the request contradicts itself; nothing was sent.
    pub fn send(&mut self, now: Time, request: SendRequest) -> Result<BundleId, RequestError> {
        if request.destination.is_none() {
            return Err(RequestError::NoDestination);
        }
        let source = request.source(&self.core);
        if !source.is_none() && !self.core.is_ours(&source) {
            return Err(RequestError::NotOurs);
        }
        let local = [&source, request.report_to.as_ref().unwrap_or(&Eid::None)];
        if local.into_iter().any(Eid::is_local) && !request.destination.is_local() {
            let why = "ipn:!.N is an endpoint of any node, and leaves none";
            return Err(RequestError::Conflict(why));
        }
        if !self.core.config.versions.contains(&request.version) {
            return Err(RequestError::Conflict("this node has no bundles of this version"));
        }
        if !self.core.stock.is_ready {
            return Err(RequestError::NotReady);
        }
        if !self.reception.has_place(&self.core) {
            self.core.user.limit_reached(Limit::Incoming);
            return Err(RequestError::Full);
        }
        let head = request.head(&mut self.core, now)?;
        if fault_in_version_six(&self.core, &head, true).is_some() {
            let why = "a security rule applies, and version 6 has no such security";
            return Err(RequestError::Conflict(why));
        }
        self.check_length(&head, &request)?;
        if !self.core.check_room(request.payload.len()) {
            return Err(RequestError::Full);
        }
        let id = head.key().id();
        let giver = Giver::User { priority: request.priority, key: request.key };
        self.core.statistics.sourced += 1;
        self.begin(now, giver, head, request.payload, request.owns_file);
        Ok(id)
    }

    /// Whether there is room for a bundle with a payload of `len` bytes now.
    pub fn takes(&self, len: u64) -> bool {
        let (stock, limits) = (&self.core.stock, self.core.config.limits);
        let has_place = stock.is_ready && self.reception.has_place(&self.core);
        has_place
            && stock.kept() < limits.bundles
            && stock.taken().saturating_add(len) <= limits.bytes
    }

    /// Whether such a bundle could ever be held, including in memory for its security.
    fn check_length(&self, head: &Head, request: &SendRequest) -> Result<(), RequestError> {
        let is_read = is_to_be_secured(&self.core, head);
        let secured = if is_read { self.core.config.security.payload_max } else { u64::MAX };
        let held = self.core.config.limits.bytes.saturating_sub(head.encoded_len() as u64);
        let most = secured.min(held);
        if request.payload.len() > most {
            return Err(RequestError::TooLong { most });
        }
        Ok(())
    }

    /// Bundles in the store, in order of arrival.
    pub fn bundles(&self) -> impl Iterator<Item = Summary> + '_ {
        self.bundles_after(0)
    }

    /// Bundles in the store with a number above `after`, in order of arrival.
    pub fn bundles_after(&self, after: u64) -> impl Iterator<Item = Summary> + '_ {
        let later = self.core.stock.bundles.range(after.saturating_add(1)..);
        later.map(|(_, held)| held.summary())
    }

    /// Deletes up to `most` bundles with a number above `after` that `selects` chooses, on a user's
    /// request. Bundles that are just being stored stay. Returns the numbers of the deleted
    /// bundles, in order of arrival.
    pub fn purge(
        &mut self,
        now: Time,
        after: u64,
        most: usize,
        selects: impl Fn(&Summary) -> bool,
    ) -> Vec<u64> {
        let later = self.core.stock.bundles.range(after.saturating_add(1)..);
        let free = later.filter(|(_, held)| !held.storing);
        let chosen = free.filter(|(_, held)| selects(&held.summary()));
        let numbers: Vec<u64> = chosen.map(|(number, _)| *number).take(most).collect();
        for number in &numbers {
            self.delete(now, *number, Reason::TransmissionCanceled);
        }
        self.forwarder.pump_freed(&mut self.core, now);
        numbers
    }

    /// Registers a user for an endpoint. Bundles that wait for it are delivered.
    ///
    /// # Errors
    ///
    /// The endpoint is null or already registered.
    pub fn register(&mut self, endpoint: &Eid) -> Result<(), RequestError> {
        if endpoint.is_none() {
            return Err(RequestError::NoDestination);
        }
        if endpoint.is_singleton() && !self.core.is_ours(endpoint) {
            return Err(RequestError::NotOurs);
        }
        if self.core.users.is_registered(endpoint) {
            return Err(RequestError::Taken);
        }
        self.core.users.register(endpoint);
        deliver_waiting(&mut self.core, endpoint);
        Ok(())
    }

    /// Deregisters an endpoint. Unconfirmed bundles wait for the next registration.
    pub fn deregister(&mut self, endpoint: &Eid) {
        // The next user gets an indication of its own.
        self.core.user.withdraw(|indication| match indication {
            Indication::Delivered { endpoint: of, .. } => of == endpoint,
            _ => false,
        });
        for number in self.core.users.deregister(endpoint) {
            if let Some(held) = self.core.stock.get_mut(number) {
                (held.delivering, held.waits) = (false, true);
                self.core.users.wait(endpoint, number);
            }
        }
    }

    /// Identity of the bundle of a delivery. After a restart the same number may belong to another
    /// bundle.
    #[must_use]
    pub fn delivery(&self, delivery: DeliveryId) -> Option<BundleId> {
        let held = self.core.stock.get(delivery.0).filter(|held| held.delivering);
        held.map(|held| held.id())
    }

    /// Confirms a delivery: the agent may delete the bundle.
    ///
    /// # Errors
    ///
    /// No such delivery: it was confirmed, or has expired.
    pub fn confirm(&mut self, now: Time, delivery: DeliveryId) -> Result<(), RequestError> {
        let DeliveryId(number) = delivery;
        let held = self.core.stock.get_mut(number).filter(|held| held.delivering);
        let held = held.ok_or(RequestError::NoDelivery)?;
        held.delivering = false;
        let endpoint = held.destination().clone();
        self.core.statistics.delivered += 1;
        self.report_held(now, number, BundleFlags::REPORT_DELIVERY);
        self.core.users.confirm(&endpoint, number);
        self.discard_if_done(number);
        deliver_waiting(&mut self.core, &endpoint);
        Ok(())
    }

    /// Replaces the settings, and routes all bundles again. The node, the clock, the store and the
    /// links stay as they are.
    pub fn reload(&mut self, now: Time, config: Config) {
        let was_planned = self.core.config.routing.is_planned();
        self.forwarder.unqueue_all(&mut self.core);
        // Rules and aliases decide whose share a bundle takes.
        for ((account, rule), bytes) in self.shares_held() {
            self.core.stock.shares.release(&account, rule, bytes);
        }
        let before = &mut self.core.config;
        *before = Config {
            node: before.node.clone(),
            clock: before.clock,
            boot: before.boot,
            persistent: before.persistent,
            directory: before.directory.clone(),
            links: std::mem::take(&mut before.links),
            ..config
        };
        for ((account, rule), bytes) in self.shares_held() {
            self.core.stock.shares.hold(account, rule, bytes);
        }
        self.forwarder.open_links(&mut self.core, was_planned);
        self.forwarder.on_plan_changed(&mut self.core, now);
    }

    /// Replaces the links to neighbours: configured ones, and `discovered` ones, which announced
    /// themselves. The layers got them before. Links that are left out go down by themselves.
    pub fn set_links(
        &mut self,
        now: Time,
        links: BTreeMap<LinkRef, Eid>,
        discovered: BTreeSet<LinkRef>,
    ) {
        let former = std::mem::replace(&mut self.core.config.links, links);
        for at in former.keys().filter(|&at| !self.core.config.links.contains_key(at)) {
            self.forwarder.links.set_open(*at, false);
        }
        self.forwarder.links.set_discovered(discovered);
        if self.core.config.routing.is_planned() {
            return self.forwarder.update_contacts(&mut self.core, now);
        }
        for at in self.core.config.links.keys().filter(|&at| !former.contains_key(at)) {
            self.forwarder.links.set_open(*at, true);
            self.core.commands.push_back((at.layer, Command::Open { link: at.link }));
        }
        self.forwarder.reroute_marked(&mut self.core, now);
    }

    /// Replaces the static routes, and routes all bundles again; no effect where bundles are
    /// copied.
    pub fn set_routes(&mut self, now: Time, entries: Vec<Entry>) {
        self.forwarder.unqueue_all(&mut self.core);
        match &mut self.core.config.routing {
            Routing::Static(before) | Routing::ContactGraph(_, before) => *before = entries,
            Routing::Epidemic | Routing::Spray { .. } => {}
        }
        self.forwarder.on_plan_changed(&mut self.core, now);
    }

    /// Changes the contact plan, if there is one, and routes all bundles again.
    pub fn change_plan<T>(
        &mut self,
        now: Time,
        change: impl FnOnce(&mut Router) -> T,
    ) -> Option<T> {
        if !self.core.config.routing.is_planned() {
            return None;
        }
        self.forwarder.unqueue_all(&mut self.core);
        let Routing::ContactGraph(router, _) = &mut self.core.config.routing else { return None };
        let result = change(router);
        self.forwarder.on_plan_changed(&mut self.core, now);
        Some(result)
    }

    fn shares_held(&self) -> Vec<((Account, Option<usize>), u64)> {
        let bundles = self.core.stock.bundles.values();
        bundles.map(|held| (self.core.share_of(held), held.bytes())).collect()
    }

    /// Sets the wall clock: milliseconds from the beginning of 2000 to [`Time::ZERO`], or `None`
    /// if they are not known.
    ///
    /// Bundles keep their ages and remaining lifetimes. Those of other nodes, however, expire by
    /// the new clock if that is earlier and the clock was behind when they arrived: there was
    /// none, or their creation times were in the future. Contacts of a plan do not change.
    pub fn set_clock(&mut self, now: Time, clock: Option<u64>) {
        let core = &mut self.core;
        let before = core.clock();
        core.config.clock = clock;
        let dtn_ms = core.clock().dtn_time(now);
        if let Some((missing_ms, first)) = core.stock.life.fill_gap(now, dtn_ms) {
            for number in core.stock.numbers(..first) {
                let Some(held) = core.stock.get_mut(number) else { continue };
                held.age_ms = held.age_ms.saturating_add(missing_ms);
                let expires = now + held.expires.since(now).saturating_sub(millis(missing_ms));
                core.stock.expire_at(number, expires);
            }
            // Records of this run have times before the shift.
            core.stock.numbers(first..).into_iter().for_each(|number| core.record_again(number));
        }
        if let Some(dtn_ms) = dtn_ms {
            let wrong = core.stock.bundles.iter().filter_map(|(number, held)| {
                let expires = earlier_expiry(core, before, now, dtn_ms, held)?;
                Some((*number, expires))
            });
            for (number, expires) in wrong.collect::<Vec<_>>() {
                core.stock.expire_at(number, expires);
                core.record_again(number);
            }
        }
        core.note_clocks(now);
        self.expire(now);
    }

    /// Time until the next contact with a neighbour begins by the contact plan, zero during one.
    #[must_use]
    pub fn next_contact(&self, now: Time, neighbour: &Eid) -> Option<Duration> {
        let Routing::ContactGraph(router, _) = &self.core.config.routing else { return None };
        Some(router.next_contact(now, neighbour.ipn_node()?)?.start.since(now))
    }

    /// Time until a short bundle arrives at a node by the contact plan.
    #[must_use]
    pub fn projected_arrival(&self, now: Time, to: &Eid) -> Option<Duration> {
        let Routing::ContactGraph(router, _) = &self.core.config.routing else { return None };
        let wanted = Wanted {
            destination: to.ipn_node()?,
            bytes: 0,
            priority: Priority::Expedited,
            expires: Time::MAX,
            excluded: &BTreeSet::new(),
        };
        let route = router.routes(now, &wanted, 1).pop()?;
        Some(route.arrives.since(now))
    }

    /// Facts about a bundle that was delivered and is not confirmed.
    #[must_use]
    pub fn received(&self, now: Time, delivery: DeliveryId) -> Option<Received> {
        let held = self.core.stock.get(delivery.0).filter(|held| held.delivering)?;
        Some(Received {
            destination: held.destination().clone(),
            lifetime_ms: held.head.lifetime_ms(),
            age_ms: held.age_ms(now),
            left: held.expires.since(now),
            hops: held.head.hop_count(&self.core.config.limits.head),
        })
    }

    /// Whether a bundle of version 7 that is no fragment is in the store.
    #[must_use]
    pub fn holds(&self, id: &BundleId) -> bool {
        let BundleId { source, creation, .. } = id.clone();
        let key = Key { version: Version::Seven, source, creation, fragment: None };
        self.core.stock.by_key.contains_key(&key)
    }

    /// Whether a bound was reached, and nothing has left since.
    #[must_use]
    pub fn is_at(&self, limit: Limit) -> bool {
        self.core.user.is_at(limit)
    }

    /// Time of arrival of the oldest bundle in the store.
    #[must_use]
    pub fn oldest(&self) -> Option<Time> {
        self.core.stock.bundles.values().next().map(|held| held.received)
    }

    /// Traffic with each neighbour that is up, or for which bundles are queued.
    #[must_use]
    pub fn traffic(&self) -> BTreeMap<Eid, NeighbourTraffic> {
        self.forwarder.links.traffic()
    }

    /// Neighbours with queued bundles or bundles in transit, to which an on-demand driver opens
    /// links.
    #[must_use]
    pub fn wanted(&self) -> BTreeSet<Eid> {
        self.forwarder.links.wanted()
    }

    /// Neighbours that can be reached.
    #[must_use]
    pub fn nodes_up(&self) -> BTreeSet<Eid> {
        self.forwarder.links.nodes_up()
    }

    /// Links that can be used.
    pub fn links_up(&self) -> impl Iterator<Item = LinkRef> {
        self.forwarder.links.up().map(|(at, _)| at)
    }

    /// Whether a neighbour can be reached.
    #[must_use]
    pub fn reaches(&self, node: &Eid) -> bool {
        self.forwarder.links.reaches(node)
    }

    /// Number of bundles without a route.
    #[must_use]
    pub fn unrouted(&self) -> usize {
        self.forwarder.links.waiting.len()
    }

    /// Bundle that an earlier request with this key sent, as long as it is held or remembered.
    #[must_use]
    pub fn sent_for(&self, key: u128) -> Option<BundleId> {
        self.core.stock.requests.sent_for(key).cloned()
    }

    /// Deletes a bundle on a user's request.
    ///
    /// # Errors
    ///
    /// There is no such bundle, or it is just being stored.
    pub fn cancel(&mut self, now: Time, id: &BundleId) -> Result<(), RequestError> {
        let number = self.number_of(id).ok_or(RequestError::NoBundle)?;
        if self.core.stock.get(number).is_some_and(|held| held.storing) {
            return Err(RequestError::NotReady);
        }
        self.delete(now, number, Reason::TransmissionCanceled);
        self.forwarder.pump_freed(&mut self.core, now);
        Ok(())
    }

    fn number_of(&self, id: &BundleId) -> Option<u64> {
        let is_it = |(key, _): &(&Key, &u64)| {
            key.source == id.source
                && key.creation == id.creation
                && key.fragment.map(|(offset, _)| offset) == id.offset
        };
        self.core.stock.by_key.iter().find(is_it).map(|(_, number)| *number)
    }

    /// Name of a new file in the store to which a user writes a payload before sending it. Files
    /// that are never sent are removed at the next start.
    pub fn working_file(&mut self) -> FileName {
        let number = self.core.allocate_number();
        self.core.stock.store.file_name(number)
    }
}

impl Held {
    fn summary(&self) -> Summary {
        let queued = self.queued.keys().cloned();
        let sending = self.sending.values().map(|sending| sending.to.clone());
        Summary {
            number: self.number,
            id: self.id(),
            destination: self.destination().clone(),
            bytes: self.bytes(),
            received: self.received,
            expires: self.expires,
            next_hops: queued.chain(sending).collect(),
            priority: self.priority,
            has_custody: self.custody.is_some(),
            sent: self.parts.values().map(Ranges::covered).max().unwrap_or(0),
            state: if self.storing {
                State::Storing
            } else if self.delivering {
                State::Delivering
            } else if !self.sending.is_empty() {
                State::Sending
            } else if self.queued.is_empty() {
                State::Waiting
            } else {
                State::Queued
            },
        }
    }
}

/// Expiry of a bundle by the present clock, if that is earlier, and the clock `before` was
/// behind when it arrived.
fn earlier_expiry(core: &Core, before: Clock, now: Time, dtn_ms: u64, held: &Held) -> Option<Time> {
    let made_ms = held.head.creation().time_ms;
    if made_ms == 0 || core.is_ours(held.head.source()) {
        return None;
    }
    let was_behind = match before.dtn_time(held.received) {
        Some(then_ms) => made_ms > then_ms.saturating_add(TOLERANCE_MS),
        None => true,
    };
    let age_ms = dtn_ms.checked_sub(made_ms).filter(|_| was_behind)?;
    let lifetime_ms = held.head.lifetime_ms().min(core.config.limits.lifetime_ms());
    let expires = now + millis(lifetime_ms.saturating_sub(age_ms));
    (expires < held.expires).then_some(expires)
}
