//! Bundle protocol agent (RFC 9171 §3.1, §5): accepts bundles from users and neighbours, stores
//! them until they can be forwarded, and delivers those for local endpoints.
//!
//! The agent has no paths. It reaches neighbours over convergence [layers](super::layer): commands
//! go out by [`Agent::poll_command`], events come in by [`Agent::handle_event`]. Its effects are
//! its store's. With [`Config::persistent`] a bundle is acknowledged only when its record is
//! synced. A discarded bundle is remembered until it expires, so that no crash causes a second
//! delivery.

mod admission;
mod clock;
mod config;
mod contacts;
mod custody;
mod deliver;
mod forward;
mod forwarder;
mod gone;
mod head;
mod held;
mod indication;
mod intake;
mod inventory;
mod join;
mod next_hop;
mod numbers;
mod outgoing;
mod receive;
mod record;
mod reload;
mod reports;
mod requests;
mod restart;
mod secure;
mod source;
mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};

use engine::{
    Deadline, Effect, EffectError, EffectResult, Engine, IndexRequest, Input, Rng, Time, Timers,
    Transmit, TxBuf,
};
use session::User;

pub use self::config::{
    Acceptance, Believe, Boot, By, COPIES, Checks, Config, Custody, Entry, Limits, LinkRef,
    Reports, Routing, Version,
};
pub use self::indication::{DeliveryId, Indication, Limit, RequestError, Statistics};
pub use self::inventory::{NeighbourTraffic, Received, State, Summary};
pub use self::source::SendRequest;
pub use crate::pattern::Pattern;

use self::admission::Shares;
use self::clock::Clock;
use self::config::millis;
use self::custody::Custodies;
use self::deliver::Users;
use self::forwarder::Forwarder;
use self::gone::{Gone, Left};
use self::head::Key;
use self::held::Held;
use self::intake::{Giver, Intakes};
use self::join::Joins;
use self::next_hop::Planned;
use self::numbers::Numbers;
use self::outgoing::Summing;
use self::record::{HeldRecord, Payload, Record};
use self::reports::Discards;
use self::requests::Requests;
use self::restart::Restart;
use self::store::{Apart, Job, Store};
use super::layer::{Command, Content, Refusal, Tag};
use super::routes::Priority;
use super::security::Vectors;
use crate::codec::bp7::{BundleFlags, BundleId, Eid, Reason};

/// The agent's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Expiry of the next bundle.
    Expiry,
    /// Expiry of the next remembered bundle.
    Gone,
    /// A contact of the plan begins, ends or is missed.
    Contact,
    /// Bundles without a route are routed again.
    Dispatch,
    /// More of the bundles that are routed again have their turn.
    Turn,
    /// End of the back-off of a neighbour without room, or of a failed layer.
    Rest,
    /// End of the back-off after the store had no room for a reassembled bundle.
    Join,
    /// End of the back-off after the store did not record discarded bundles.
    Record,
    /// Custody timeout.
    Custody,
    /// Aggregate custody signals are due.
    Signals,
    /// The clocks are recorded again.
    Clocks,
}

/// Reply to the giver of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// It is in the store.
    Safe,
    /// Not needed here; the giver may discard it.
    NotNeeded,
    /// Not accepted.
    Refused(Refusal),
}

/// A bundle protocol agent.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    store: Store,
    restart: Restart,
    bundles: BTreeMap<u64, Box<Held>>,
    by_key: BTreeMap<Key, u64>,
    by_expiry: BTreeSet<(Time, u64)>,
    gone: Gone,
    discards: Discards,
    intakes: Intakes,
    shares: Shares,
    joins: Joins,
    /// Parts of files that are sent once their CRC is computed.
    summing: BTreeMap<Tag, Summing>,
    custodies: Custodies,
    vectors: Vectors,
    forwarder: Forwarder,
    planned: Planned,
    users: Users,
    requests: Requests,
    /// Bytes in the store; bytes in memory.
    bytes: u64,
    memory: usize,
    numbers: Numbers,
    commands: VecDeque<(usize, Command)>,
    user: User<Indication, Limit>,
    timers: Timers<Alarm>,
    statistics: Statistics,
}

impl Agent {
    /// An agent with these settings. Without a clock, sequence numbers begin at a random number, so
    /// that bundles of two runs differ.
    #[must_use]
    pub fn new(config: Config, mut rng: Rng) -> Self {
        let mut store = Store::new(config.directory.clone());
        store.list();
        if config.persistent {
            store.effects.index(Job::Load, IndexRequest::Load);
        }
        let planned = Planned::new(&config);
        let first = if config.clock.is_some() { 0 } else { rng.next_u64() >> 16 };
        Self {
            custodies: Custodies::new(&mut rng),
            vectors: Vectors::new(&mut rng),
            restart: Restart::new(&config, rng.next_u64()),
            store,
            config,
            bundles: BTreeMap::new(),
            by_key: BTreeMap::new(),
            by_expiry: BTreeSet::new(),
            gone: Gone::default(),
            discards: Discards::default(),
            intakes: Intakes::default(),
            shares: Shares::default(),
            joins: Joins::default(),
            summing: BTreeMap::new(),
            forwarder: Forwarder::default(),
            planned,
            users: Users::default(),
            requests: Requests::default(),
            bytes: 0,
            memory: 0,
            numbers: Numbers::new(first),
            commands: VecDeque::new(),
            user: User::new(),
            timers: Timers::new(),
            statistics: Statistics::default(),
        }
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { bundles: self.bundles.len(), bytes: self.bytes, ..self.statistics }
    }

    /// Whether the records of an earlier run are read, so that bundles are accepted.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.restart.is_ready
    }

    /// Next command, and the index of its layer.
    pub fn poll_command(&mut self) -> Option<(usize, Command)> {
        self.commands.pop_front()
    }

    /// Whether an endpoint belongs to this node.
    #[must_use]
    pub fn is_ours(&self, eid: &Eid) -> bool {
        let node = eid.node();
        node == self.config.node || self.config.aliases.contains(&node) || eid.is_local()
    }

    fn command(&mut self, layer: usize, command: Command) {
        self.commands.push_back((layer, command));
    }

    /// Next number for a bundle, its file and its record.
    fn number(&mut self) -> u64 {
        self.numbers.next()
    }

    const fn clock(&self) -> Clock {
        Clock { dtn: self.config.clock, kept: self.restart.life.kept }
    }

    /// Whether bundles for an endpoint are delivered here.
    fn is_for_us(&self, eid: &Eid) -> bool {
        self.is_ours(eid) || self.users.is_registered(eid)
    }

    /// Replies to the giver of a bundle.
    fn reply(&mut self, giver: Giver, id: Option<BundleId>, reply: Reply) {
        match giver {
            Giver::Layer { layer, link, transfer } => {
                let command = match reply {
                    Reply::Safe | Reply::NotNeeded => Command::Accept { link, transfer },
                    Reply::Refused(why) => {
                        self.intakes.transfers.remove(&(layer, transfer));
                        self.statistics.refused += 1;
                        Command::Refuse { link, transfer, why }
                    }
                };
                self.command(layer, command);
            }
            Giver::User { .. } => {
                let Some(id) = id else { return };
                self.user.indicate(match reply {
                    Reply::Safe => Indication::Stored { id },
                    Reply::NotNeeded => return,
                    Reply::Refused(Refusal::NoResources) => {
                        Indication::Deleted { id, reason: Reason::DepletedStorage }
                    }
                    // Its file is shorter than requested.
                    Reply::Refused(_) => {
                        Indication::Deleted { id, reason: Reason::BlockUnintelligible }
                    }
                });
            }
            Giver::Agent | Giver::Remains | Giver::Fragments => {}
        }
    }

    /// Bundles that take room in the store, including those whose end is not recorded yet.
    fn kept(&self) -> usize {
        self.bundles.len() + self.store.refused.len()
    }

    /// Whether there is room for `bytes` more bytes.
    fn check_room(&mut self, bytes: u64) -> bool {
        let limits = self.config.limits;
        if self.kept() >= limits.bundles {
            self.user.limit_reached(Limit::Bundles);
            return false;
        }
        let taken = self.bytes.saturating_add(self.shares.reserved());
        if taken.saturating_add(bytes) > limits.bytes {
            self.user.limit_reached(Limit::Bytes);
            return false;
        }
        true
    }

    /// Accepts a valid bundle and stores it.
    fn admit(&mut self, now: Time, number: u64, mut held: Box<Held>, giver: Giver) {
        if giver != Giver::Fragments {
            self.take_custody(number, &mut held);
        }
        held.copies = self.copies_of(&held, giver.is_here());
        held.storing = self.config.persistent;
        if let Giver::User { key: Some(key), .. } = giver {
            self.note_request(number, key, held.id());
        }
        let is_safe = !held.storing;
        if !is_safe {
            self.intakes.givers.insert(number, vec![giver]);
            let record = Record::Held(self.record(&held)).encode();
            if let (Content::Bytes(payload), Some(Apart::Record)) = (&held.payload, held.apart()) {
                self.store.put_payload(number, payload.clone());
            }
            self.store.put(Job::Put { number }, number, record);
        }
        self.insert(number, held);
        self.statistics.bundles_peak = self.statistics.bundles_peak.max(self.bundles.len());
        self.statistics.bytes_peak = self.statistics.bytes_peak.max(self.bytes);
        self.arm_expiry();
        self.watch_clocks(now);
        if is_safe {
            self.safe_for(now, number, &[giver]);
        }
    }

    fn record(&self, held: &Held) -> HeldRecord {
        HeldRecord {
            head: held.head.encode().into(),
            tail: held.tail.clone(),
            payload: match held.apart() {
                Some(Apart::Record) => Payload::Apart(held.payload.len()),
                Some(Apart::File(_)) | None => Payload::Here(held.payload.clone()),
            },
            owns_file: held.owns_file,
            received_ms: self.clock().kept_ms(held.received),
            expires_ms: self.clock().kept_ms(held.expires),
            age_ms: held.age_ms,
            priority: held.priority as u8,
            sent: held.sent.iter().cloned().collect(),
            by: held.arrival.by.clone(),
            returns: held.arrival.returns,
            verified: held.arrival.verified.clone(),
        }
    }

    /// A bundle is in the store: replies to its givers and dispatches it.
    fn safe(&mut self, now: Time, number: u64) {
        let givers = self.intakes.givers.remove(&number).unwrap_or_default();
        self.safe_for(now, number, &givers);
    }

    fn safe_for(&mut self, now: Time, number: u64, givers: &[Giver]) {
        let Some(held) = self.bundles.get_mut(&number) else { return };
        held.storing = false;
        let id = held.id();
        for &giver in givers {
            self.reply(giver, Some(id.clone()), Reply::Safe);
            if matches!(giver, Giver::Layer { .. }) {
                let flag = BundleFlags::REPORT_RECEPTION;
                self.report(now, number, flag, Reason::NoInformation);
            }
        }
        self.signal_predecessor(now, number);
        self.dispatch(now, number);
    }

    /// The store failed: drops the bundle as if it had never arrived.
    fn unsafe_to_keep(&mut self, now: Time, number: u64) {
        let givers = self.intakes.givers.remove(&number).unwrap_or_default();
        let Some(held) = self.forget(number) else { return };
        self.forget_request(number);
        self.store.delete_payload(number, held.apart());
        for giver in givers {
            self.reply(giver, Some(held.id()), Reply::Refused(Refusal::NoResources));
            if giver == Giver::Fragments {
                self.join_failed(now, number);
            }
        }
        self.arm_expiry();
        self.pump_all(now);
    }

    /// Dispatches a bundle (RFC 9171 §5.3).
    fn dispatch(&mut self, now: Time, number: u64) {
        let Some(held) = self.bundles.get(&number) else { return };
        if self.is_for_us(held.destination()) {
            self.deliver(now, number);
        } else {
            self.route(now, number);
        }
    }

    /// Lets a bundle go if no processing of it is left.
    fn settle(&mut self, number: u64) {
        if self.bundles.get(&number).is_some_and(|held| held.is_done()) {
            self.let_go(number);
        }
    }

    /// Removes a bundle; remembers it until it expires.
    fn let_go(&mut self, number: u64) {
        let Some(held) = self.forget(number) else { return };
        // A bundle without a source is not recognized: it only keeps its request.
        let key = if held.head.is_anonymous() {
            Key::of_number(held.head.version(), number)
        } else {
            held.key()
        };
        let expires = held.expires;
        // Of copies others may come.
        let left = if self.is_copying() { Left::Here } else { held.left(&self.config.limits.head) };
        if self.config.persistent {
            if let Some(before) = self.gone.number(&key) {
                self.store.remove(before);
            }
            let expires_ms = self.clock().kept_ms(expires);
            let record = Record::Gone { key: key.clone(), expires_ms, left: left.clone() };
            let record = record.encode();
            self.store.put_gone(number, record, held.apart());
        } else {
            self.leave_content(&held);
        }
        let max = self.config.limits.gone;
        if let Some(oldest) = self.gone.insert(max, key, number, &left, expires) {
            self.forget_request(oldest);
            if self.config.persistent {
                self.store.remove(oldest);
            }
        }
        self.arm_expiry();
    }

    /// Adds a bundle to the lists.
    fn insert(&mut self, number: u64, held: Box<Held>) {
        self.bytes = self.bytes.saturating_add(held.bytes());
        if let Content::Bytes(bytes) = &held.payload {
            self.memory += bytes.len();
        }
        let (account, rule) = self.share_of(&held);
        self.shares.hold(account, rule, held.bytes());
        self.by_key.entry(held.key()).or_insert(number);
        self.by_expiry.insert((held.expires, number));
        self.bundles.insert(number, held);
    }

    /// Removes a bundle from all lists.
    fn forget(&mut self, number: u64) -> Option<Box<Held>> {
        let held = self.bundles.remove(&number)?;
        if let btree_map::Entry::Occupied(known) = self.by_key.entry(held.key())
            && *known.get() == number
        {
            known.remove();
        }
        self.leave_fragments(number, &held);
        self.custodies.forget(number, held.custody.as_ref());
        self.by_expiry.remove(&(held.expires, number));
        self.forwarder.forget(number);
        self.bytes = self.bytes.saturating_sub(held.bytes());
        let (account, rule) = self.share_of(&held);
        self.shares.release(&account, rule, held.bytes());
        if let Content::Bytes(bytes) = &held.payload {
            self.memory = self.memory.saturating_sub(bytes.len());
        }
        for (node, route) in &held.queued {
            self.forwarder.dequeue(node, held.priority, number);
            self.give_back(route.as_ref(), held.bytes(), held.priority);
        }
        for (link, tag) in held.sending.keys() {
            self.forwarder.abort(*link, *tag);
        }
        self.users.forget(held.destination(), number);
        self.user.limit_left(Limit::Bundles);
        self.user.limit_left(Limit::Bytes);
        self.user.limit_left(Limit::Share);
        Some(held)
    }

    fn leave_content(&mut self, held: &Held) {
        if let Some(name) = held.own_file() {
            self.store.delete(name.clone());
        }
    }

    /// Deletes a bundle that was not delivered or forwarded (RFC 9171 §5.10).
    fn delete(&mut self, now: Time, number: u64, reason: Reason) {
        let Some(held) = self.bundles.get(&number) else { return };
        let id = held.id();
        self.cancel_sending(number);
        match reason {
            Reason::LifetimeExpired | Reason::TrafficPared => self.statistics.expired += 1,
            _ => self.statistics.deleted += 1,
        }
        self.report_deletion(now, number, reason);
        self.user.indicate(Indication::Deleted { id, reason });
        self.let_go(number);
    }

    fn arm_expiry(&mut self) {
        let expiry = self.by_expiry.first().map(|(at, _)| *at);
        self.timers.set_or_cancel(Alarm::Expiry, expiry, "a bundle's expiry");
        let gone = self.gone.next();
        self.timers.set_or_cancel(Alarm::Gone, gone, "the expiry of a remembered bundle");
    }

    /// Reason of an expiry: a bundle's own lifetime is over, or only the bound of this node (RFC
    /// 9171 §5.5).
    fn end_of_life(&self, now: Time, held: &Held) -> Reason {
        let made_ms = held.head.creation().time_ms;
        let by_clock = self.clock().dtn_time(now).filter(|_| made_ms > 0);
        let age_ms = by_clock.map_or_else(|| held.age_ms(now), |ms| ms.saturating_sub(made_ms));
        if age_ms >= held.head.lifetime_ms() {
            Reason::LifetimeExpired
        } else {
            Reason::TrafficPared
        }
    }

    fn expire(&mut self, now: Time) {
        while let Some(&(at, number)) = self.by_expiry.first() {
            if at > now {
                break;
            }
            // Bundles with pending effects wait for their completion.
            if self.bundles.get(&number).is_some_and(|held| held.storing) {
                self.by_expiry.remove(&(at, number));
                let later = now + millis(1000);
                self.by_expiry.insert((later, number));
                if let Some(held) = self.bundles.get_mut(&number) {
                    held.expires = later;
                }
                continue;
            }
            let Some(held) = self.bundles.get(&number) else {
                self.by_expiry.remove(&(at, number));
                continue;
            };
            let reason = self.end_of_life(now, held);
            self.delete(now, number, reason);
        }
        self.arm_expiry();
        self.pump_freed(now);
    }

    fn forget_gone(&mut self, now: Time) {
        while let Some(number) = self.gone.pop_expired(now) {
            self.forget_request(number);
            if self.config.persistent {
                self.store.remove(number);
            }
        }
        self.arm_expiry();
    }

    /// Starts the back-off after the store did not record a discarded bundle.
    fn on_unrecorded(&mut self, now: Time, error: EffectError) {
        if self.store.refused.len() == 1 {
            self.user.indicate(Indication::StoreFailed(error));
            let at = now + self.store.rest();
            self.timers.set(Alarm::Record, at, "a retry of unstored records");
        }
    }

    fn effect_done(&mut self, now: Time, job: &Job, result: EffectResult) {
        match *job {
            Job::Load | Job::List => self.found(now, job, result),
            Job::Open { intake } => self.intake_opened(now, intake, result),
            Job::Write { intake, bytes } => self.intake_written(now, intake, bytes, result),
            Job::Sync { intake } => match result {
                Ok(_) => self.finish_intake(now, intake),
                Err(error) => self.fail_intake(now, intake, error),
            },
            Job::Part { intake } => self.part_done(now, intake, result),
            Job::Sum { tag } => self.summed(now, tag, result),
            Job::Payload { number } => {
                if let Err(error) = result {
                    self.store.unstored.insert(number, error);
                }
            }
            Job::Put { number } => match self.store.put_done(number, result) {
                Ok(_) => {
                    self.statistics.stored += 1;
                    self.safe(now, number);
                }
                Err(error) => {
                    self.unsafe_to_keep(now, number);
                    // After it: a bundle that leaves ends the limit.
                    self.on_store_failure(error);
                }
            },
            Job::Gone { number } => {
                if let Err(error) = self.store.gone_effect_done(number, result) {
                    self.on_unrecorded(now, error);
                }
            }
            Job::Empty { number } => self.store.emptied(number, &result),
            Job::Used => {
                if result.is_err() {
                    self.numbers.on_unrecorded();
                }
            }
            Job::Forget => {}
        }
    }
}

impl Engine for Agent {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Done(ticket, result) => {
                if let Some(job) = self.store.effects.take(ticket) {
                    self.effect_done(now, &job, result);
                }
            }
            // An agent has no paths.
            Input::Receive(_) | Input::Path(..) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(alarm) = self.timers.pop_due(now) {
            match alarm {
                Alarm::Expiry => self.expire(now),
                Alarm::Gone => self.forget_gone(now),
                Alarm::Contact => self.contacts(now),
                Alarm::Dispatch => self.dispatch_waiting(now),
                Alarm::Turn => self.dispatch_again(now),
                Alarm::Rest => self.rested(now),
                Alarm::Join => self.join_others(now),
                Alarm::Record => self.store.record_refused(),
                Alarm::Custody => self.custody_due(now),
                Alarm::Signals => self.send_signals(now),
                Alarm::Clocks => self.note_clocks(now),
            }
        }
    }

    fn poll_transmit(&mut self, _now: Time, _tx: &mut TxBuf) -> Option<Transmit> {
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.store.effects.poll()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.user.pop()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}
