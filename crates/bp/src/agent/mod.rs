//! Bundle protocol agent (RFC 9171 §3.1, §5): accepts bundles from users and neighbours, stores
//! them until they can be forwarded, and delivers those for local endpoints.
//!
//! The agent has no paths. It reaches neighbours over convergence [layers](super::layer): commands
//! go out by [`Agent::poll_command`], events come in by [`Agent::handle_event`]. Its effects are
//! its store's. With [`Config::persistent`] a bundle is acknowledged only when its record is
//! synced. A discarded bundle is remembered until it expires, so that no crash causes a second
//! delivery.

mod admission;
mod api;
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
mod join;
mod links;
mod numbers;
mod outgoing;
mod receive;
mod restart;
mod shares;
mod source;
mod stock;
mod store;
mod users;

use engine::{
    Deadline, Effect, EffectResult, Engine, IndexRequest, Input, Rng, Time, Transmit, TxBuf,
};

pub use self::api::{NeighbourTraffic, Received, State, Summary};
pub use self::config::{
    Acceptance, Believe, Boot, By, COPIES, Checks, Config, Custody, Entry, Limits, LinkRef,
    Reports, Routing, Version,
};
pub use self::indication::{DeliveryId, Indication, Limit, RequestError, Statistics};
pub use self::source::SendRequest;
pub use crate::pattern::Pattern;

use self::admission::{
    Admission, Consequence, Denial, RECEPTION, Rejection, Reply, Secured, fault_in_version_six,
    is_to_be_secured, note_copy,
};
use self::config::millis;
use self::custody::Custodian;
use self::forwarder::Forwarder;
use self::gone::Left;
use self::head::Head;
use self::held::Held;
use self::intake::Giver;
use self::receive::{Arrived, Reception};
use self::restart::Restart;
use self::source::status_report;
use self::stock::Core;
use self::store::{Job, Store};
use super::layer::{Content, Event, Outcome, Refusal, Tag};
use super::routes::Priority;
use crate::codec::bp6::CustodyReason;
use crate::codec::bp7::{BundleFlags, Reason};

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
    Reroute,
    /// More of the bundles that are routed again have their turn.
    Turn,
    /// End of the back-off of a neighbour without room, or of a failed layer.
    BackOff,
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

/// A bundle protocol agent.
#[derive(Debug)]
pub struct Agent {
    core: Core,
    reception: Reception,
    admission: Admission,
    custodian: Custodian,
    forwarder: Forwarder,
    restart: Restart,
}

impl Agent {
    /// An agent with these settings. Without a clock, sequence numbers begin at a random number, so
    /// that bundles of two runs differ.
    #[must_use]
    pub fn new(config: Config, mut rng: Rng) -> Self {
        let first = if config.clock.is_some() { 0 } else { rng.next_u64() >> 16 };
        let custodian = Custodian::new(&mut rng);
        let admission = Admission::new(&mut rng);
        let mut store = Store::new(config.directory.clone(), rng.next_u64());
        store.list();
        if config.persistent {
            let prefix = format!("{}-", config.directory.path());
            store.effects.index(Job::Load, IndexRequest::Load { prefix });
        }
        Self {
            reception: Reception::default(),
            admission,
            custodian,
            forwarder: Forwarder::new(&config),
            restart: Restart::new(&config),
            core: Core::new(config, store, first),
        }
    }

    /// Handles an event of a layer. Layers are numbered as in [`LinkRef`].
    pub fn handle_event(&mut self, now: Time, layer: usize, event: Event) {
        let core = &mut self.core;
        let link_ref = |link| LinkRef { layer, link };
        match event {
            Event::Up { link, neighbour } => {
                self.forwarder.on_link_up(core, now, link_ref(link), neighbour);
            }
            Event::Down { link, why } => {
                self.forwarder.on_link_down(core, now, link_ref(link), why);
            }
            Event::Begins { link, transfer, bytes } => {
                self.reception.on_begin(
                    core,
                    &self.forwarder,
                    now,
                    link_ref(link),
                    transfer,
                    bytes,
                );
            }
            Event::Piece { link, transfer, bytes } => {
                self.reception.on_piece(
                    core,
                    &self.forwarder,
                    now,
                    link_ref(link),
                    transfer,
                    &bytes,
                );
            }
            Event::Whole { link, transfer, file } => {
                let received = self.reception.on_whole(core, link_ref(link), transfer, file);
                self.receive(now, received);
            }
            Event::Broken { transfer, keep, .. } => {
                let received = self.reception.on_broken(core, layer, transfer, keep);
                self.receive(now, received);
            }
            Event::Sent { link, tag, outcome } => {
                self.on_sent(now, link_ref(link), tag, outcome);
            }
            Event::PeerFault { link, what } => {
                core.statistics.malformed += 1;
                self.forwarder.note(core, link_ref(link), what);
            }
            Event::Refused { link, why } => {
                core.statistics.refused += 1;
                match why {
                    Refusal::NotAcceptable => {
                        self.forwarder.note_too_long(core, now, link_ref(link));
                    }
                    Refusal::NoResources | Refusal::Completed | Refusal::Retransmit => {
                        core.user.limit_reached(Limit::Bytes);
                    }
                }
            }
            Event::Notice { link, what } => {
                self.forwarder.note(core, link_ref(link), what);
            }
        }
    }

    /// Takes a bundle from its reception to the store: processes its security, and decides whether
    /// it is accepted.
    fn receive(&mut self, now: Time, mut received: Option<Arrived>) {
        loop {
            let core = &mut self.core;
            let (giver, mut held) = match received {
                None => return,
                Some(Arrived::Failed(giver, number)) => {
                    if giver == Giver::Fragments {
                        self.admission.joins.failed(core, now, number);
                    }
                    return self.forwarder.pump_all(core, now);
                }
                Some(Arrived::Complete(giver, held)) => (giver, held),
            };
            let by = held.arrival.by.take();
            held.arrival.by = by.or_else(|| self.forwarder.giver_node(giver));
            if held.arrival.is_secured || !is_to_be_secured(core, &held.head) {
                return self.admit(now, giver, held);
            }
            received = match self.admission.secure(core, giver, held) {
                Secured::Passed(number, intake, payload) => {
                    self.reception.begin_under(core, number, intake, &payload)
                }
                Secured::NeedsPayload(number, intake) => self.reception.read(core, number, intake),
                Secured::Rejected(held, rejection) => {
                    self.reject(now, giver, &held, rejection);
                    return self.join_refused(now, held.number);
                }
            };
        }
    }

    /// Stores a bundle if it is accepted.
    fn admit(&mut self, now: Time, giver: Giver, mut held: Box<Held>) {
        let core = &mut self.core;
        match self.admission.judge(core, &self.forwarder, now, &mut held, giver) {
            Ok(consequences) => {
                self.carry_out(now, &held, consequences);
                self.store(now, giver, held);
            }
            Err(Denial::Duplicate) => {
                let signals = self.custodian.signal_redundant(core, now, &held);
                self.send_records(now, signals);
                let reply = note_copy(&mut self.core, &held);
                let consequences =
                    if reply == Reply::NotNeeded { vec![RECEPTION] } else { Vec::new() };
                self.reject(now, giver, &held, Rejection { reply: Some(reply), consequences });
            }
            Err(Denial::Rejected(rejection)) => self.reject(now, giver, &held, rejection),
        }
    }

    /// Ends a bundle that is not accepted.
    fn reject(&mut self, now: Time, giver: Giver, held: &Held, rejection: Rejection) {
        self.carry_out(now, held, rejection.consequences);
        self.core.delete_own_file(held);
        if let Some(reply) = rejection.reply {
            self.reception.reply(&mut self.core, giver, Some(held.id()), reply);
        }
    }

    /// Carries out the consequences of a decision about a bundle.
    fn carry_out(&mut self, now: Time, held: &Held, consequences: Vec<Consequence>) {
        for step in consequences {
            match step {
                Consequence::Report(flag, reason) => {
                    if held.requests(flag) {
                        self.report(now, held, flag, reason);
                    }
                }
                Consequence::ReportBlock => {
                    let (flag, reason) = (BundleFlags::REPORT_RECEPTION, Reason::BlockUnsupported);
                    self.report(now, held, flag, reason);
                }
                Consequence::IndicateDiscard(rule, reason) => {
                    if let Some(count) = self.core.discards.count(now, rule, reason) {
                        let (id, by) = (held.id(), held.arrival.by.clone());
                        let discarded = Indication::Discarded { id, by, rule, reason, count };
                        self.core.user.indicate(discarded);
                    }
                }
                Consequence::Deleted(reason) => {
                    self.core.user.indicate(Indication::Deleted { id: held.id(), reason });
                }
            }
        }
    }

    /// Stores an accepted bundle.
    fn store(&mut self, now: Time, giver: Giver, mut held: Box<Held>) {
        let number = held.number;
        if giver != Giver::Fragments {
            self.custodian.take_custody(&self.core, &mut held);
        }
        let core = &mut self.core;
        held.copies = core.config.routing.first_copies(held.head.copies(), giver.is_here());
        held.storing = core.config.persistent;
        if let Giver::User { key: Some(key), .. } = giver {
            core.note_request(number, key, held.id());
        }
        let is_safe = !held.storing;
        if !is_safe {
            self.admission.givers.insert(number, vec![giver]);
            core.put(&held);
        }
        core.insert(held);
        let (stock, peaks) = (&core.stock, &mut core.statistics);
        peaks.bundles_peak = peaks.bundles_peak.max(stock.bundles.len());
        peaks.bytes_peak = peaks.bytes_peak.max(stock.bytes);
        core.arm_expiry();
        core.arm_clock_record(now);
        if is_safe {
            self.on_safe(now, number, &[giver]);
        }
    }

    /// Handles the result of storing a bundle. If the store failed it is dropped, as if it had
    /// never arrived.
    fn on_stored(&mut self, now: Time, number: u64, result: EffectResult) {
        let givers = self.admission.givers.remove(&number).unwrap_or_default();
        let Err(error) = self.core.stock.store.on_put_done(number, result) else {
            self.core.statistics.stored += 1;
            return self.on_safe(now, number, &givers);
        };
        if let Some(held) = self.forget(number) {
            let core = &mut self.core;
            core.forget_request(number);
            core.stock.store.delete_payload(number, held.apart());
            for giver in givers {
                let reply = Reply::Refused(Refusal::NoResources);
                self.reception.reply(core, giver, Some(held.id()), reply);
                if giver == Giver::Fragments {
                    self.admission.joins.failed(core, now, number);
                }
            }
            core.arm_expiry();
            self.forwarder.pump_all(core, now);
        }
        // After it: a bundle that leaves ends the limit.
        self.core.on_store_failure(error);
    }

    /// A bundle is in the store: replies to its givers and dispatches it.
    fn on_safe(&mut self, now: Time, number: u64, givers: &[Giver]) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        held.storing = false;
        let (id, predecessor) = (held.id(), held.arrival.predecessor.take());
        for &giver in givers {
            self.reception.reply(&mut self.core, giver, Some(id.clone()), Reply::Safe);
            if matches!(giver, Giver::Layer { .. }) {
                self.report_held(now, number, BundleFlags::REPORT_RECEPTION);
            }
        }
        if let Some((custodian, custody_number)) = predecessor {
            self.report_held(now, number, BundleFlags::REPORT_CUSTODY);
            let (core, reason) = (&mut self.core, CustodyReason::NoInformation);
            let Some(held) = core.stock.get(number).cloned() else { return };
            let signals =
                self.custodian.signal(core, now, custodian, custody_number, &held, reason);
            self.send_records(now, signals);
        }
        self.dispatch(now, number);
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
        let Some((sent, node)) = self.forwarder.links.end(at, tag) else { return };
        let forwarded = self.forwarder.on_sent(core, now, sent, outcome);
        if let Some((to, held)) = forwarded.zip(core.stock.get(sent.number)) {
            let id = held.id();
            self.custodian.await_custody(core, now, sent.number);
            self.report_held(now, sent.number, BundleFlags::REPORT_FORWARDING);
            self.core.user.indicate(Indication::Forwarded { id, to });
            self.discard_if_done(sent.number);
        }
        self.forwarder.proceed(&mut self.core, now, node);
    }

    /// Lets a bundle go if no processing of it is left.
    fn discard_if_done(&mut self, number: u64) {
        if self.core.stock.get(number).is_some_and(Held::is_done) {
            self.discard(number);
        }
    }

    /// Removes a bundle; remembers it until it expires.
    fn discard(&mut self, number: u64) {
        let Some(held) = self.forget(number) else { return };
        let config = &self.core.config;
        // Other copies may arrive.
        let is_copying = config.routing.is_copying();
        let left = if is_copying { Left::Here } else { held.left(&config.limits.head) };
        self.core.remember(&held, &left);
    }

    /// Removes a bundle from all lists.
    fn forget(&mut self, number: u64) -> Option<Box<Held>> {
        let core = &mut self.core;
        let held = core.remove(number)?;
        if let Some(joining) = self.admission.joins.leave(core, &held) {
            self.reception.discard(core, joining);
        }
        self.custodian.forget(&held);
        self.forwarder.forget(core, &held);
        for limit in [Limit::Bundles, Limit::Bytes, Limit::Share] {
            core.user.limit_left(limit);
        }
        Some(held)
    }

    /// Deletes a bundle that was not delivered or forwarded (RFC 9171 §5.10). That is reported, if
    /// requested or if this node has custody (RFC 5050 §5.13).
    fn delete(&mut self, now: Time, number: u64, reason: Reason) {
        let Some(held) = self.core.stock.get(number) else { return };
        let (id, flag) = (held.id(), BundleFlags::REPORT_DELETION);
        let is_reported = held.custody.is_some() || held.requests(flag);
        let reported = is_reported.then(|| held.clone());
        self.core.cancel_sending(number);
        match reason {
            Reason::LifetimeExpired | Reason::TrafficPared => self.core.statistics.expired += 1,
            _ => self.core.statistics.deleted += 1,
        }
        if let Some(held) = reported {
            self.report(now, &held, flag, reason);
        }
        self.core.user.indicate(Indication::Deleted { id, reason });
        self.discard(number);
    }

    fn expire(&mut self, now: Time) {
        while let Some(number) = self.core.stock.next_expired(now) {
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

    /// Reports on a held bundle, if requested.
    fn report_held(&mut self, now: Time, number: u64, flag: BundleFlags) {
        let Some(held) = self.core.stock.get(number) else { return };
        if held.requests(flag) {
            let held = held.clone();
            self.report(now, &held, flag, Reason::NoInformation);
        }
    }

    /// Reports on a bundle.
    fn report(&mut self, now: Time, held: &Held, flag: BundleFlags, reason: Reason) {
        if let Some(request) = status_report(&self.core, now, held, flag, reason) {
            self.send_record(now, request);
        }
    }

    fn send_records(&mut self, now: Time, requests: Vec<SendRequest>) {
        requests.into_iter().for_each(|request| self.send_record(now, request));
    }

    /// Sends an administrative record, if there is room.
    fn send_record(&mut self, now: Time, request: SendRequest) {
        let core = &mut self.core;
        if !core.check_room(request.payload.len() + 256) {
            return;
        }
        if let Ok(head) = request.head(core, now)
            && fault_in_version_six(core, &head, true).is_none()
        {
            self.begin(now, Giver::Agent, head, request.payload, false);
        }
    }

    /// Receives a bundle created here.
    fn begin(&mut self, now: Time, giver: Giver, head: Head, payload: Content, owns: bool) {
        let received = self.reception.begin(&mut self.core, giver, head, payload, owns);
        self.receive(now, received);
    }

    fn on_effect_done(&mut self, now: Time, job: &Job, result: EffectResult) {
        let core = &mut self.core;
        let store = &mut core.stock.store;
        match *job {
            Job::Load | Job::List => self.on_loaded(now, job, result),
            Job::Intake { number, step } => {
                let received = self.reception.on_effect(core, number, step, result);
                self.receive(now, received);
            }
            Job::Crc { tag } => self.forwarder.on_crc_read(core, now, tag, result),
            Job::Payload { number } => {
                store.unstored.extend(result.err().map(|error| (number, error)));
            }
            Job::Put { number } => self.on_stored(now, number, result),
            Job::Gone { number } => {
                if let Err(error) = store.on_gone_effect_done(number, result) {
                    core.on_unrecorded(now, error);
                }
            }
            Job::Empty { number } => store.on_emptied(number, &result),
            Job::Used => {
                if result.is_err() {
                    core.stock.assigned.on_unrecorded();
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
                    self.on_effect_done(now, &job, result);
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
                Alarm::Contact => self.forwarder.update_contacts(&mut self.core, now),
                Alarm::Reroute => self.forwarder.reroute_waiting(&mut self.core, now),
                Alarm::Turn => self.forwarder.reroute_marked(&mut self.core, now),
                Alarm::BackOff => self.forwarder.on_back_off_end(&mut self.core, now),
                Alarm::Join => self.join_others(now),
                Alarm::Record => self.core.stock.store.record_refused(),
                Alarm::Custody => {
                    for number in self.custodian.take_due_bundles(&mut self.core, now) {
                        self.forwarder.route(&mut self.core, now, number);
                    }
                }
                Alarm::Signals => {
                    let signals = self.custodian.take_due_signals(&mut self.core);
                    self.send_records(now, signals);
                }
                Alarm::Clocks => self.core.note_clocks(now),
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
