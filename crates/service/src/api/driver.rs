//! Driver of an application whose node is another program, reached through a [`Courier`].

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bp::app::{Application, ArrivalId, Event, Order};
use bp::codec::bp7::Eid;
use engine::{Engine, Time};
use rt::{Pump, Step};
use thiserror::Error;

use super::courier::{Courier, CourierConfig, Handed, News, Outcome};
use super::model::Delivery;

/// Time limit for work in progress at the end: bundles not sent yet, and the disk.
const SETTLE: Duration = Duration::from_secs(10);

/// Configuration of an application of a node.
#[derive(Debug)]
pub struct DriverConfig {
    /// Socket of the node.
    pub socket: PathBuf,
    /// Use of the endpoint together with other applications: the node's parameter `share`.
    pub share: Option<&'static str>,
    /// Whether a node that does not reply is tried again.
    pub persists: bool,
    /// Time between calls of the observer without an event.
    pub tick: Duration,
}

/// Reason why an application ends early.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The node refuses it its endpoint.
    #[error("the node: {why}")]
    Refused {
        /// Whether another application has it.
        is_taken: bool,
        /// Message of the node.
        why: String,
    },
    /// The node no longer replies.
    #[error("the node: {0}")]
    Gone(String),
    /// The system refuses to wait.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Observer of an application that runs.
pub type Observer<'a, A> =
    dyn FnMut(Time, &mut A, rt::Event<<A as Engine>::Indication>) -> rt::Control + 'a;

/// Driver of an application at a node, in the calling thread.
#[derive(Debug)]
pub struct ApplicationDriver<A> {
    pump: Pump<A>,
    courier: Courier,
    persists: bool,
    /// Deliveries of the node that are not confirmed.
    deliveries: BTreeMap<ArrivalId, Delivery>,
    next_arrival: u64,
    /// The delivery of which more bytes come, and whether the application has asked for them.
    open: Option<(ArrivalId, bool)>,
    is_ending: bool,
    waker: rt::Waker,
    tick: Duration,
    next_tick: Time,
    /// Reason to end early.
    fault: Option<DriverError>,
}

impl<A: Application> ApplicationDriver<A> {
    /// Starts an application at a node, with a store.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn start(
        application: A,
        config: DriverConfig,
        store: rt::FileStore,
        waker: rt::Waker,
    ) -> io::Result<Self> {
        let DriverConfig { socket, share, persists, tick } = config;
        let files = store.reader();
        let endpoint = application.endpoint().map(|endpoint| endpoint.to_string());
        let courier = CourierConfig { socket, files, endpoint, share, persists };
        let courier = Courier::start(courier, waker.clone())?;
        let pump = Pump::new(application, Some(store));
        Ok(Self {
            courier,
            persists,
            deliveries: BTreeMap::new(),
            next_arrival: 0,
            open: None,
            is_ending: false,
            waker,
            next_tick: pump.now() + tick,
            pump,
            tick,
            fault: None,
        })
    }

    /// Returns the time of the application's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.pump.now()
    }

    /// Calls the application with a request, before or between runs.
    pub fn with_application<T>(&mut self, request: impl FnOnce(Time, &mut A) -> T) -> T {
        request(self.pump.now(), &mut self.pump.engine)
    }

    /// Runs until `stop` is set or `on` returns [`rt::Control::Stop`], as [`rt::Driver::run`] does.
    ///
    /// # Errors
    ///
    /// See [`DriverError`].
    pub fn run(&mut self, stop: &AtomicBool, on: &mut Observer<'_, A>) -> Result<(), DriverError> {
        let mut stopping = false;
        while !stopping {
            stopping = stop.load(Ordering::Relaxed);
            let some = self.round(&mut |now, application, event| {
                let control = on(now, application, event);
                stopping |= control == rt::Control::Stop;
                control
            });
            if let Some(fault) = self.fault.take() {
                self.settle(on, false)?;
                return Err(fault);
            }
            if !stopping && !some {
                self.wait(self.next_tick)?;
            }
        }
        Ok(self.settle(on, true)?)
    }

    /// Handles all input and output of the application. Returns whether there was any.
    fn round(&mut self, on: &mut Observer<'_, A>) -> bool {
        let now = self.pump.now();
        self.pump.expire(now);
        let mut some = self.receive();
        while let Some(event) = self.pump.engine.poll_indication() {
            some = true;
            on(self.pump.now(), &mut self.pump.engine, rt::Event::Indication(event));
        }
        some |= self.carry_out();
        let now = self.pump.now();
        if now >= self.next_tick {
            self.next_tick = now + self.tick;
            some = true;
            on(now, &mut self.pump.engine, rt::Event::Tick);
        }
        some
    }

    fn notify(&mut self, event: Event) {
        self.pump.engine.handle_event(self.pump.now(), event);
    }

    /// Passes the results of the store and the node to the application.
    fn receive(&mut self) -> bool {
        let mut some = self.pump.pass_results();
        while let Some(outcome) = self.courier.outcome() {
            some = true;
            self.notify(match outcome {
                Outcome::Stored(id) => Event::Stored(id),
                Outcome::Waiting(id, why) => Event::Waiting { id, why },
                Outcome::Passed(id, bytes) => Event::Passed { id, bytes },
                Outcome::Refused(id, why) => Event::Refused { id, why },
            });
        }
        while let Some(news) = self.courier.news() {
            some = true;
            self.node_changed(news);
        }
        while let Some(handed) = self.next_handed() {
            some = true;
            self.take(handed);
        }
        some
    }

    /// Next bytes that the application wants, or next delivery that it accepts.
    fn next_handed(&mut self) -> Option<Handed> {
        let is_wanted = match self.open {
            Some((_, is_asked)) => is_asked,
            None => !self.is_ending && self.pump.engine.takes_more(),
        };
        if is_wanted { self.courier.bundle() } else { None }
    }

    fn node_changed(&mut self, news: News) {
        match news {
            News::There(facts) => self.notify(Event::Up(facts)),
            News::Gone(why) if self.persists => {
                tracing::warn!(why, "the node is gone; still trying");
                self.deliveries.clear();
                self.open = None;
                self.notify(Event::Down);
            }
            News::Gone(why) => self.fault = Some(DriverError::Gone(why)),
            News::Refused { is_taken, why } => {
                self.fault = Some(DriverError::Refused { is_taken, why });
            }
        }
    }

    fn take(&mut self, handed: Handed) {
        match (handed, self.open) {
            (Handed::Came(delivery, first), _) => {
                let arrival = ArrivalId(self.next_arrival);
                self.next_arrival += 1;
                let open = (!first.is_last).then_some((arrival, false));
                if let Some((unfinished, _)) = std::mem::replace(&mut self.open, open) {
                    self.notify(Event::Expired(unfinished));
                }
                let source = delivery.source.parse().unwrap_or(Eid::None);
                let (bundle, len) = (delivery.id.clone(), delivery.bytes);
                // It may be confirmed at once: orders are carried out later.
                self.deliveries.insert(arrival, delivery);
                self.notify(Event::Came(bp::app::Delivery { arrival, bundle, source, len, first }));
            }
            (Handed::More(piece), Some((arrival, _))) => {
                self.open = (!piece.is_last).then_some((arrival, false));
                self.notify(Event::Read { arrival, piece });
            }
            // The application has left it.
            (Handed::More(_), None) => {}
        }
    }

    /// Carries out the effects and orders of the application.
    fn carry_out(&mut self) -> bool {
        let mut some = false;
        while let Some(step) = self.pump.next_step() {
            some = true;
            // An application has no paths.
            if let Step::Stream(effect) = step {
                self.pump.refuse(&effect);
            }
        }
        while let Some(order) = self.pump.engine.poll_order() {
            some = true;
            match order {
                Order::Send(outgoing) => self.courier.send(outgoing),
                Order::Read(arrival) => match &mut self.open {
                    Some((open, is_asked)) if *open == arrival => *is_asked = true,
                    Some(_) | None => self.notify(Event::Expired(arrival)),
                },
                Order::Confirm(arrival) => {
                    if let Some(delivery) = self.drop_arrival(arrival) {
                        self.courier.confirm(delivery);
                    }
                }
                Order::Leave(arrival) => drop(self.drop_arrival(arrival)),
                // The node tells no more.
                Order::Forget(_) => {}
            }
        }
        some
    }

    fn drop_arrival(&mut self, arrival: ArrivalId) -> Option<Delivery> {
        self.open = self.open.filter(|(open, _)| *open != arrival);
        self.deliveries.remove(&arrival)
    }

    /// Finishes writes to the disk, and bundles to a node that `is_there`, if they complete soon.
    fn settle(&mut self, on: &mut Observer<'_, A>, is_there: bool) -> io::Result<()> {
        self.is_ending = true;
        self.pump.engine.stop();
        let end = self.pump.now() + SETTLE;
        while self.pump.now() < end {
            let some = self.round(on);
            let is_idle = !is_there || self.courier.is_idle() || self.courier.is_away();
            if !some && self.pump.store_is_idle() && is_idle {
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
        let deadline = self.pump.next_timeout().unwrap_or(latest);
        let (until, now) = (latest.min(deadline).min(self.next_tick), self.pump.now());
        if until > now {
            self.waker.wait_alone(Some(until.since(now)))?;
        }
        Ok(())
    }
}
