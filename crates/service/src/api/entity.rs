//! A CFDP entity that uses a node elsewhere: its PDUs are payloads of bundles sent through a
//! [`Courier`].

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bp::codec::bp7::Eid;
use cfdp::pdu::{Body, Direction, Header, Pdu};
use engine::{Effect, Engine as _, Input, Rng, Time};
use thiserror::Error;
use transport::{CfdpOverService, Event, Transport};
use ut::{self, Arrival, Order, OverService, ServiceLayer, Unit};

use super::courier::{Courier, CourierConfig, Handed, News, Outcome, Outgoing};
use super::model::Delivery;

/// Time limit for work in progress at the end: PDUs not sent yet, and the disk.
const SETTLE: Duration = Duration::from_secs(10);

/// Bundles to its endpoint that an entity receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    /// None: another entity may use the endpoint.
    Nothing,
    /// Replies to its puts. The next entity receives the other PDUs.
    Answers,
    /// All.
    All,
}

/// Configuration of an entity at a node.
#[derive(Debug)]
pub struct EntityConfig {
    /// The entity, which has the number of the node.
    pub cfdp: cfdp::Config,
    /// Its PDUs.
    pub ut: ut::Config,
    /// Service number of its endpoint.
    pub service: u64,
    /// Socket of the node.
    pub socket: PathBuf,
    /// Lifetime of bundles.
    pub lifetime: Duration,
    /// Bundles that it receives.
    pub receives: Receives,
    /// Time between calls of the observer without an event.
    pub tick: Duration,
}

/// Reason why an entity at a node ends early.
#[derive(Debug, Error)]
pub enum EntityError {
    /// The node refuses it its endpoint.
    #[error("the node: {0}")]
    Refused(String),
    /// The system refuses to wait.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Observer of an entity that runs.
pub type Observer<'a> = dyn FnMut(Time, &mut dyn Transport, rt::Event<Event>) -> rt::Control + 'a;

/// Driver of an entity at a node, in the calling thread.
#[derive(Debug)]
pub struct EntityDriver {
    entity: CfdpOverService,
    courier: Courier,
    receives: Receives,
    service: u64,
    /// Deliveries of the node that are not confirmed.
    deliveries: BTreeMap<Arrival, Delivery>,
    /// Whether no new PDUs are sent.
    is_ending: bool,
    store: rt::FileStore,
    waker: rt::Waker,
    clock: rt::Clock,
    tick: Duration,
    next_tick: Time,
    /// Reason why the node refuses this application its endpoint.
    refusal: Option<String>,
}

impl EntityDriver {
    /// Starts an entity at a node, with a store.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn start(
        config: EntityConfig,
        store: rt::FileStore,
        waker: rt::Waker,
        mut rng: Rng,
    ) -> io::Result<Self> {
        let EntityConfig { cfdp, ut, service, socket, lifetime, receives, tick } = config;
        let endpoint = Eid::Ipn { node: cfdp.entity, service }.to_string();
        let takes = receives != Receives::Nothing;
        let courier = CourierConfig { socket, endpoint, takes, lifetime };
        let courier = Courier::start(courier, waker.clone())?;
        let clock = rt::Clock::start();
        Ok(Self {
            entity: CfdpOverService::new(OverService::over_service(cfdp, ut, lifetime, &mut rng)),
            courier,
            receives,
            service,
            deliveries: BTreeMap::new(),
            is_ending: false,
            store,
            waker,
            next_tick: clock.now() + tick,
            clock,
            tick,
            refusal: None,
        })
    }

    /// Returns the time of the entity's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Runs until `stop` is set or `on` returns [`rt::Control::Stop`], as [`rt::Driver::run`] does.
    ///
    /// # Errors
    ///
    /// The node refuses this entity its endpoint, or the system refuses to wait.
    pub fn run(&mut self, stop: &AtomicBool, on: &mut Observer<'_>) -> Result<(), EntityError> {
        let mut stopping = false;
        while !stopping {
            stopping = stop.load(Ordering::Relaxed);
            let some = self.round(&mut |now, transport, event| {
                let control = on(now, transport, event);
                stopping |= control == rt::Control::Stop;
                control
            });
            if let Some(why) = self.refusal.take() {
                return Err(EntityError::Refused(why));
            }
            if !stopping && !some {
                self.wait(self.next_tick)?;
            }
        }
        self.settle(on)
    }

    /// Handles all input and output of the entity. Returns whether there was any.
    fn round(&mut self, on: &mut Observer<'_>) -> bool {
        let now = self.clock.now();
        if self.entity.poll_timeout().is_some_and(|deadline| deadline.at <= now) {
            self.entity.handle_timeout(now);
        }
        let mut some = self.receive();
        some |= self.carry_out();
        while let Some(event) = self.entity.poll_indication() {
            some = true;
            on(self.clock.now(), &mut self.entity, rt::Event::Indication(event));
        }
        let now = self.clock.now();
        if now >= self.next_tick {
            self.next_tick = now + self.tick;
            some = true;
            on(now, &mut self.entity, rt::Event::Tick);
        }
        some
    }

    /// Passes the results of the store and the node to the entity.
    fn receive(&mut self) -> bool {
        let mut some = false;
        while let Some((ticket, answer)) = self.store.poll() {
            some = true;
            self.entity.handle_input(self.clock.now(), Input::Done(ticket, answer));
        }
        while let Some(Outcome { number, refused }) = self.courier.outcome() {
            some = true;
            let unit = Unit(number);
            self.entity.inner_mut().with_below(self.clock.now(), |layer| match refused {
                None => layer.sent(unit),
                Some(why) => {
                    tracing::warn!(why, "the node does not take a bundle");
                    layer.not_sent(unit, "the bundle node does not take a bundle");
                }
            });
        }
        while let Some(news) = self.courier.news() {
            some = true;
            self.node_changed(news);
        }
        while self.is_open()
            && let Some(handed) = self.courier.bundle()
        {
            some = true;
            self.take(handed);
        }
        some
    }

    /// Whether bundles may be delivered: not at the end, and not before the entity's state has been
    /// loaded.
    fn is_open(&self) -> bool {
        let is_known = match self.receives {
            Receives::Nothing => false,
            Receives::Answers => self.entity.inner().entity().transactions().next().is_some(),
            Receives::All => true,
        };
        is_known && !self.is_ending && self.entity.inner().below().takes_more()
    }

    fn node_changed(&mut self, news: News) {
        let now = self.clock.now();
        match news {
            News::There => {
                self.entity.inner_mut().with_below(now, ServiceLayer::is_there);
            }
            News::Gone(why) => {
                tracing::warn!(why, "the node is gone; still trying");
                self.deliveries.clear();
                self.entity.inner_mut().with_below(now, ServiceLayer::is_gone);
            }
            News::Refused { is_taken: true, why } => {
                self.refusal = Some(format!(
                    "{why}; another entity runs beside it. End that one first; files of class 1 \
                     without closure can be sent all the same"
                ));
            }
            News::Refused { is_taken: false, why } => self.refusal = Some(why),
        }
    }

    fn take(&mut self, Handed { delivery, payload, .. }: Handed) {
        let Some(payload) = payload else {
            if self.receives == Receives::All {
                tracing::warn!(id = delivery.id, "a bundle is longer than PDUs are; it is dropped");
                self.courier.confirm(delivery);
            }
            return;
        };
        if self.receives == Receives::Answers && !self.is_answer(&payload) {
            return;
        }
        // A node with a name in place of a number counts as entity 0; its PDUs have its number.
        let from = match delivery.source.parse() {
            Ok(Eid::Ipn { node, .. }) => node,
            Ok(_) | Err(_) => 0,
        };
        let now = self.clock.now();
        let below = self.entity.inner_mut();
        let arrival = below.with_below(now, |layer| layer.came(now, from, payload));
        // It may be accepted already: orders are carried out later.
        self.deliveries.insert(arrival, delivery);
    }

    /// Whether PDUs reply to this entity, including to an earlier put: a resumed one gets another
    /// reply.
    fn is_answer(&self, pdus: &[u8]) -> bool {
        Header::decode(pdus).is_ok_and(|header| {
            header.direction == Direction::TowardSender
                && header.source.0 == self.entity.inner().entity().config().entity
        })
    }

    /// Carries out the effects and orders of the entity.
    fn carry_out(&mut self) -> bool {
        let mut some = false;
        while !self.store.is_full() {
            let Some(effect) = self.entity.poll_effect() else { break };
            some = true;
            if let Effect::Store(effect) = effect {
                self.store.submit(effect);
            }
        }
        while let Some(order) = self.entity.inner_mut().poll_order() {
            some = true;
            match order {
                // A stopped transfer should stop; replies are still sent.
                Order::Send { pdu, .. } if self.is_ending && is_data(&pdu) => {}
                Order::Send { unit: Unit(number), to, pdu: payload } => {
                    let to = Eid::Ipn { node: to, service: self.service }.to_string();
                    self.courier.send(Outgoing { number, to, payload });
                }
                Order::Confirm(arrival) => {
                    if let Some(delivery) = self.deliveries.remove(&arrival) {
                        self.courier.confirm(delivery);
                    }
                }
            }
        }
        some
    }

    /// Finishes writes to the disk and PDUs to the node after the end, if they complete soon.
    fn settle(&mut self, on: &mut Observer<'_>) -> Result<(), EntityError> {
        self.is_ending = true;
        let end = self.clock.now() + SETTLE;
        while self.clock.now() < end {
            let some = self.round(on);
            let is_idle = self.courier.is_idle() || self.courier.is_away();
            if !some && self.store.pending() == 0 && is_idle {
                return Ok(());
            }
            if !some {
                self.wait(end)?;
            }
        }
        tracing::warn!("stopped while the disk or the node was still busy");
        Ok(())
    }

    fn wait(&self, latest: Time) -> io::Result<()> {
        let deadline = self.entity.poll_timeout().map_or(latest, |deadline| deadline.at);
        let (until, now) = (latest.min(deadline).min(self.next_tick), self.clock.now());
        if until > now {
            self.waker.wait_alone(Some(until.since(now)))?;
        }
        Ok(())
    }
}

/// Whether a PDU is file data.
fn is_data(pdu: &[u8]) -> bool {
    Pdu::decode(pdu).is_ok_and(|pdu| matches!(pdu.body, Body::FileData(_)))
}
