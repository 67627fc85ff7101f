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
mod custody;
mod deliver;
mod forwarder;
mod gone;
mod head;
mod held;
mod indication;
mod intake;
mod inventory;
mod join;
mod links;
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
mod shares;
mod source;
mod stock;
mod store;

use engine::{
    Deadline, Effect, EffectError, EffectResult, Engine, IndexRequest, Input, Rng, Time, Transmit,
    TxBuf,
};

pub use self::config::{
    Acceptance, Believe, Boot, By, COPIES, Checks, Config, Custody, Entry, Limits, LinkRef,
    Reports, Routing, Version,
};
pub use self::indication::{DeliveryId, Indication, Limit, RequestError, Statistics};
pub use self::inventory::{NeighbourTraffic, Received, State, Summary};
pub use self::source::SendRequest;
pub use crate::pattern::Pattern;

use self::config::millis;
use self::custody::{Custodian, Signal};
use self::forwarder::{Ended, Forwarder};
use self::gone::Left;
use self::held::Held;
use self::intake::{Giver, Intakes};
use self::join::Joins;
use self::reports::Discards;
use self::restart::Restart;
use self::stock::Core;
use self::store::{Job, Store};
use super::layer::{Command, Content, Outcome, Refusal, Tag};
use super::routes::Priority;
use super::security::Vectors;
use crate::codec::bp6::CustodyReason;
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
    core: Core,
    restart: Restart,
    discards: Discards,
    intakes: Intakes,
    joins: Joins,
    custodian: Custodian,
    vectors: Vectors,
    forwarder: Forwarder,
}

impl Agent {
    /// An agent with these settings. Without a clock, sequence numbers begin at a random number, so
    /// that bundles of two runs differ.
    #[must_use]
    pub fn new(config: Config, mut rng: Rng) -> Self {
        let first = if config.clock.is_some() { 0 } else { rng.next_u64() >> 16 };
        let custodian = Custodian::new(&mut rng);
        let vectors = Vectors::new(&mut rng);
        let mut store = Store::new(config.directory.clone(), rng.next_u64());
        store.list();
        if config.persistent {
            store.effects.index(Job::Load, IndexRequest::Load);
        }
        Self {
            custodian,
            vectors,
            restart: Restart::new(&config),
            forwarder: Forwarder::new(&config),
            core: Core::new(config, store, first),
            intakes: Intakes::default(),
            joins: Joins::default(),
            discards: Discards::default(),
        }
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            bundles: self.core.stock.bundles.len(),
            bytes: self.core.stock.bytes,
            ..self.core.statistics
        }
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

    /// Replies to the giver of a bundle.
    fn reply(&mut self, giver: Giver, id: Option<BundleId>, reply: Reply) {
        match giver {
            Giver::Layer { layer, link, transfer } => {
                let command = match reply {
                    Reply::Safe | Reply::NotNeeded => Command::Accept { link, transfer },
                    Reply::Refused(why) => {
                        self.intakes.transfers.remove(&(layer, transfer));
                        self.core.statistics.refused += 1;
                        Command::Refuse { link, transfer, why }
                    }
                };
                self.core.command(layer, command);
            }
            Giver::User { .. } => {
                let Some(id) = id else { return };
                self.core.user.indicate(match reply {
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

    /// Accepts a valid bundle and stores it.
    fn admit(&mut self, now: Time, number: u64, mut held: Box<Held>, giver: Giver) {
        if giver != Giver::Fragments {
            self.custodian.take_custody(&self.core, number, &mut held);
        }
        held.copies = self.core.config.routing.first_copies(&held.head, giver.is_here());
        held.storing = self.core.config.persistent;
        if let Giver::User { key: Some(key), .. } = giver {
            self.core.note_request(number, key, held.id());
        }
        let is_safe = !held.storing;
        if !is_safe {
            self.intakes.givers.insert(number, vec![giver]);
            self.core.put(number, &held);
        }
        self.core.insert(number, held);
        let (stock, peaks) = (&self.core.stock, &mut self.core.statistics);
        peaks.bundles_peak = peaks.bundles_peak.max(stock.bundles.len());
        peaks.bytes_peak = peaks.bytes_peak.max(stock.bytes);
        self.core.arm_expiry();
        self.watch_clocks(now);
        if is_safe {
            self.safe_for(now, number, &[giver]);
        }
    }

    /// A bundle is in the store: replies to its givers and dispatches it.
    fn safe(&mut self, now: Time, number: u64) {
        let givers = self.intakes.givers.remove(&number).unwrap_or_default();
        self.safe_for(now, number, &givers);
    }

    fn safe_for(&mut self, now: Time, number: u64, givers: &[Giver]) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        held.storing = false;
        let id = held.id();
        for &giver in givers {
            self.reply(giver, Some(id.clone()), Reply::Safe);
            if matches!(giver, Giver::Layer { .. }) {
                let flag = BundleFlags::REPORT_RECEPTION;
                self.report(now, number, flag, Reason::NoInformation);
            }
        }
        let Some(held) = self.core.stock.get_mut(number) else { return };
        if let Some((custodian, custody_number)) = held.arrival.predecessor.take() {
            let (held, reason) = (held.clone(), CustodyReason::NoInformation);
            self.report_of(now, &held, BundleFlags::REPORT_CUSTODY, Reason::NoInformation);
            let core = &mut self.core;
            let signals =
                self.custodian.signal(core, now, custodian, custody_number, &held, reason);
            self.send_signals(now, signals);
        }
        self.dispatch(now, number);
    }

    fn send_signals(&mut self, now: Time, signals: Vec<Signal>) {
        for Signal { to, lifetime_ms, record } in signals {
            self.send_record_six(now, &to, lifetime_ms, &record);
        }
    }

    /// The store failed: drops the bundle as if it had never arrived.
    fn unsafe_to_keep(&mut self, now: Time, number: u64) {
        let givers = self.intakes.givers.remove(&number).unwrap_or_default();
        let Some(held) = self.forget(number) else { return };
        self.core.forget_request(number);
        self.core.stock.store.delete_payload(number, held.apart());
        for giver in givers {
            self.reply(giver, Some(held.id()), Reply::Refused(Refusal::NoResources));
            if giver == Giver::Fragments {
                self.join_failed(now, number);
            }
        }
        self.core.arm_expiry();
        self.forwarder.pump_all(&mut self.core, now);
    }

    /// Dispatches a bundle (RFC 9171 §5.3).
    fn dispatch(&mut self, now: Time, number: u64) {
        let Some(held) = self.core.stock.get(number) else { return };
        if self.core.is_for_us(held.destination()) {
            self.deliver(now, number);
        } else if held.has_hops_left(&self.core.config.limits.head) {
            self.forwarder.route(&mut self.core, now, number);
        } else {
            self.delete(now, number, Reason::HopLimitExceeded);
        }
    }

    /// Handles the end of a transmission.
    fn on_sent(&mut self, now: Time, at: LinkRef, tag: Tag, outcome: Outcome) {
        let core = &mut self.core;
        let Some(Ended { number, node, forwarded }) =
            self.forwarder.on_sent(core, now, at, tag, outcome)
        else {
            return;
        };
        if let Some((to, held)) = forwarded.zip(core.stock.get(number)) {
            let id = held.id();
            self.custodian.await_custody(&mut self.core, now, number);
            self.report(now, number, BundleFlags::REPORT_FORWARDING, Reason::NoInformation);
            self.core.user.indicate(Indication::Forwarded { id, to });
            self.settle(number);
        }
        self.forwarder.proceed(&mut self.core, now, node);
    }

    /// Lets a bundle go if no processing of it is left.
    fn settle(&mut self, number: u64) {
        if self.core.stock.get(number).is_some_and(|held| held.is_done()) {
            self.let_go(number);
        }
    }

    /// Removes a bundle; remembers it until it expires.
    fn let_go(&mut self, number: u64) {
        let Some(held) = self.forget(number) else { return };
        // Other copies may arrive.
        let bounds = &self.core.config.limits.head;
        let left =
            if self.core.config.routing.is_copying() { Left::Here } else { held.left(bounds) };
        self.core.remember(number, &held, &left);
    }

    /// Removes a bundle from all lists.
    fn forget(&mut self, number: u64) -> Option<Box<Held>> {
        let held = self.core.remove(number)?;
        self.leave_fragments(number, &held);
        self.custodian.forget(number, held.custody.as_ref());
        self.forwarder.forget(&mut self.core, number, &held);
        self.core.user.limit_left(Limit::Bundles);
        self.core.user.limit_left(Limit::Bytes);
        self.core.user.limit_left(Limit::Share);
        Some(held)
    }

    /// Deletes a bundle that was not delivered or forwarded (RFC 9171 §5.10).
    fn delete(&mut self, now: Time, number: u64, reason: Reason) {
        let Some(held) = self.core.stock.get(number) else { return };
        let id = held.id();
        self.core.cancel_sending(number);
        match reason {
            Reason::LifetimeExpired | Reason::TrafficPared => self.core.statistics.expired += 1,
            _ => self.core.statistics.deleted += 1,
        }
        self.report_deletion(now, number, reason);
        self.core.user.indicate(Indication::Deleted { id, reason });
        self.let_go(number);
    }

    fn expire(&mut self, now: Time) {
        while let Some((_, number)) = self.core.stock.next_expiry().filter(|(at, _)| *at <= now) {
            let Some(held) = self.core.stock.get(number) else { break };
            // Bundles with pending effects wait for their completion.
            if held.storing {
                self.core.stock.expire_at(number, now + millis(1000));
                continue;
            }
            let reason = self.core.end_of_life(now, held);
            self.delete(now, number, reason);
        }
        self.core.arm_expiry();
        self.forwarder.pump_freed(&mut self.core, now);
    }

    /// Starts the back-off after the store did not record a discarded bundle.
    fn on_unrecorded(&mut self, now: Time, error: EffectError) {
        if self.core.stock.store.refused.len() == 1 {
            self.core.user.indicate(Indication::StoreFailed(error));
            let at = now + self.core.stock.store.rest();
            self.core.timers.set(Alarm::Record, at, "a retry of unstored records");
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
            Job::Sum { tag } => self.forwarder.summed(&mut self.core, now, tag, result),
            Job::Payload { number } => {
                if let Err(error) = result {
                    self.core.stock.store.unstored.insert(number, error);
                }
            }
            Job::Put { number } => match self.core.stock.store.put_done(number, result) {
                Ok(_) => {
                    self.core.statistics.stored += 1;
                    self.safe(now, number);
                }
                Err(error) => {
                    self.unsafe_to_keep(now, number);
                    // After it: a bundle that leaves ends the limit.
                    self.on_store_failure(error);
                }
            },
            Job::Gone { number } => {
                if let Err(error) = self.core.stock.store.gone_effect_done(number, result) {
                    self.on_unrecorded(now, error);
                }
            }
            Job::Empty { number } => self.core.stock.store.emptied(number, &result),
            Job::Used => {
                if result.is_err() {
                    self.core.stock.numbers.on_unrecorded();
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
                if let Some(job) = self.core.stock.store.effects.take(ticket) {
                    self.effect_done(now, &job, result);
                }
            }
            // An agent has no paths.
            Input::Receive(_) | Input::Path(..) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(alarm) = self.core.timers.pop_due(now) {
            match alarm {
                Alarm::Expiry => self.expire(now),
                Alarm::Gone => self.core.forget_gone(now),
                Alarm::Contact => self.forwarder.contacts(&mut self.core, now),
                Alarm::Dispatch => self.forwarder.dispatch_waiting(&mut self.core, now),
                Alarm::Turn => self.forwarder.dispatch_again(&mut self.core, now),
                Alarm::Rest => self.forwarder.rested(&mut self.core, now),
                Alarm::Join => self.join_others(now),
                Alarm::Record => self.core.stock.store.record_refused(),
                Alarm::Custody => {
                    for number in self.custodian.due_bundles(&mut self.core, now) {
                        self.forwarder.route(&mut self.core, now, number);
                    }
                }
                Alarm::Signals => {
                    let signals = self.custodian.due_signals(&mut self.core);
                    self.send_signals(now, signals);
                }
                Alarm::Clocks => self.note_clocks(now),
            }
        }
    }

    fn poll_transmit(&mut self, _now: Time, _tx: &mut TxBuf) -> Option<Transmit> {
        None
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.stock.store.effects.poll()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.core.user.pop()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.core.timers.next()
    }
}
