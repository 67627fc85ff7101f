//! A CFDP entity beside a bundle node: an application whose PDUs are payloads of bundles.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use engine::{Effect, Engine as _, Input, Time};
use proto::ut::{Arrival, Order, OverService, ServiceLayer, Unit};
use service::api::model::{Delivery, Node};
use service::api::{Courier, CourierConfig, Handed, News, NodeClient, Outcome, Outgoing};
use transport::bundles::CfdpUser;
use transport::quantity::Span;
use transport::settings::CfdpUserSettings;
use wire::bp7::Eid;
use wire::cfdp::{Body, Direction, Header, Pdu};

use crate::scope;
use crate::station::{Observer, Station};
use crate::transfer::Options;

/// How long bundles are of use if nothing is said: a day.
const LIFETIME: Duration = Duration::from_secs(86_400);

/// How long what was begun may take after the end: words of the entity that the node has not, and the disk.
const SETTLE: Duration = Duration::from_secs(10);

/// Options of an entity beside a node.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = scope::CFDP_IN_BUNDLES)]
pub(crate) struct NodeOptions {
    /// The socket of the bundle node of this end, as its configuration says; PDUs are
    /// payloads of its bundles, and the entity has its number
    #[arg(long, value_name = "SOCKET")]
    pub(crate) node: Option<PathBuf>,

    /// Lifetime of the bundles [default: 1 d]
    #[arg(long, value_name = "TIME", requires = "node")]
    lifetime: Option<Span>,
}

/// What of that which comes to its endpoint is for an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hears {
    /// Nothing: somebody else may have the endpoint.
    Nothing,
    /// What is said of its puts. All else is left to whoever comes next.
    Answers,
    /// Everything.
    All,
}

/// An entity beside a node that runs.
#[derive(Debug)]
pub(crate) struct Beside {
    /// The number of both.
    pub(crate) entity: u64,
    told: CfdpUser,
    socket: PathBuf,
    lifetime: Duration,
}

impl NodeOptions {
    /// The entity beside the node, if there is to be one.
    ///
    /// # Errors
    /// Something does not go with it, or the node does not answer.
    pub(crate) fn beside(&self, options: &Options, entity: Option<u64>) -> Result<Option<Beside>> {
        let Some(socket) = &self.node else { return Ok(None) };
        let protocol = options.full_protocol()?;
        ensure!(
            protocol.profile.is_none(),
            "--node is for CFDP without a profile, not for {protocol}"
        );
        for (is_given, option) in [
            (options.rate.is_some(), "--rate"),
            (options.return_rate.is_some(), "--return-rate"),
            (options.delay.is_some(), "--delay"),
            (options.udp_lite, "--udp-lite"),
            (options.datagram.is_some(), "--datagram"),
        ] {
            ensure!(
                !is_given,
                "{option} is for datagrams; the layers of the node at --node have theirs"
            );
        }
        let mut client = NodeClient::connect(socket).map_err(|error| {
            anyhow!("{error}; is the node running? `slowlight node CONFIG.toml` starts it")
        })?;
        let node: Node = client.get("/node", &[])?;
        let number = match node.id.parse() {
            Ok(Eid::Ipn { node, .. }) => node,
            Ok(_) | Err(_) => bail!(
                "the node at --node is {}; entities have the number of their node, so it has to be one like ipn:1.0",
                node.id
            ),
        };
        let given = entity.unwrap_or(number);
        ensure!(
            given == number,
            "--entity is {given}, and the node at --node is {}; an entity has the number of its node",
            node.id
        );
        let mut told = CfdpUser::default();
        told.cfdp.sequence_width = wire::cfdp::Width::FOUR;
        if let Some(path) = &options.mib {
            CfdpUserSettings::apply_file(path, &mut told)?;
        }
        told.cfdp.entity = number;
        let lifetime = self.lifetime.map_or(LIFETIME, Span::duration);
        ensure!(!lifetime.is_zero(), "--lifetime is 0: a bundle would be of use to nobody");
        // However it is written, it is the same node.
        let socket = socket.canonicalize().with_context(|| socket.display().to_string())?;
        Ok(Some(Beside { entity: number, told, socket, lifetime }))
    }
}

impl Beside {
    /// The socket of its node.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What its entity is told, to look at and to change.
    pub(crate) fn cfdp(&mut self) -> &mut proto::cfdp::Config {
        &mut self.told.cfdp
    }

    /// How many entities it hears that it was not told of.
    pub(crate) fn set_strangers(&mut self, most: usize) {
        self.told.ut.limits.strangers = most;
    }

    /// An entity with a store.
    pub(crate) fn run_with(
        self,
        store: rt::FileStore,
        waker: rt::Waker,
        (tick, hears): (Duration, Hears),
    ) -> Result<Driver> {
        let Self { entity, told: CfdpUser { cfdp, ut, service }, socket, lifetime } = self;
        let mut rng = rt::entropy().context("no entropy")?;
        let endpoint = |entity| Eid::Ipn { node: entity, service }.to_string();
        let takes = hears != Hears::Nothing;
        let config = CourierConfig { socket, endpoint: endpoint(entity), takes, lifetime };
        let courier = Courier::start(config, waker.clone()).context("cannot start")?;
        let clock = rt::Clock::start();
        Ok(Driver {
            station: Station::beside(OverService::over_service(cfdp, ut, lifetime, &mut rng)),
            courier,
            hears,
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
}

/// Runs an entity beside a node in the calling thread.
#[derive(Debug)]
pub(crate) struct Driver {
    station: Station,
    courier: Courier,
    hears: Hears,
    service: u64,
    /// What the node handed over and was not told to forget.
    deliveries: BTreeMap<Arrival, Delivery>,
    /// Whether nothing new is handed in.
    is_ending: bool,
    store: rt::FileStore,
    waker: rt::Waker,
    clock: rt::Clock,
    tick: Duration,
    next_tick: Time,
    /// Why the node does not let this application have its endpoint.
    refusal: Option<anyhow::Error>,
}

impl Driver {
    /// The time as the entity knows it.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Runs until `stop` is set or `on` says so, as [`rt::Driver::run`] does.
    pub(crate) fn run(&mut self, stop: &AtomicBool, on: &mut Observer<'_>) -> Result<()> {
        let mut stopping = false;
        while !stopping {
            stopping = stop.load(Ordering::Relaxed);
            let some = self.round(&mut |now, station, event| {
                let told = on(now, station, event);
                stopping |= told == rt::Control::Stop;
                told
            });
            if let Some(why) = self.refusal.take() {
                bail!(
                    "the node: {why}; does another entity run beside it? A file of class 1 can be sent all the same"
                );
            }
            if !stopping && !some {
                self.wait(self.next_tick)?;
            }
        }
        self.settle(on)
    }

    /// Takes up what happened, and all that the entity wants and says; whether there was anything.
    fn round(&mut self, on: &mut Observer<'_>) -> bool {
        let now = self.clock.now();
        if self.station.poll_timeout().is_some_and(|deadline| deadline.at <= now) {
            self.station.handle_timeout(now);
        }
        let mut some = self.hear();
        some |= self.work();
        while let Some(told) = self.station.poll_indication() {
            some = true;
            on(self.clock.now(), &mut self.station, rt::Event::Indication(told));
        }
        let now = self.clock.now();
        if now >= self.next_tick {
            self.next_tick = now + self.tick;
            some = true;
            on(now, &mut self.station, rt::Event::Tick);
        }
        some
    }

    /// What the store and the node tell.
    fn hear(&mut self) -> bool {
        let mut some = false;
        while let Some((ticket, answer)) = self.store.poll() {
            some = true;
            self.station.handle_input(self.clock.now(), Input::Done(ticket, answer));
        }
        while let Some(Outcome { number, refused }) = self.courier.outcome() {
            some = true;
            let unit = Unit(number);
            self.station.at_node(self.clock.now(), |layer| match refused {
                None => layer.sent(unit),
                Some(why) => {
                    tracing::warn!(why, "the node does not take a bundle");
                    layer.not_sent(unit, "the bundle node does not take a bundle");
                }
            });
        }
        while let Some(news) = self.courier.news() {
            some = true;
            self.heard(news);
        }
        while self.is_open()
            && let Some(handed) = self.courier.bundle()
        {
            some = true;
            self.take(handed);
        }
        some
    }

    /// Whether bundles are to be handed up: not at the end, nor before it is known what they may be about.
    fn is_open(&self) -> bool {
        let is_known = match self.hears {
            Hears::Nothing => false,
            Hears::Answers => self.station.entity().transactions().next().is_some(),
            Hears::All => true,
        };
        is_known && !self.is_ending && self.station.takes_more()
    }

    fn heard(&mut self, news: News) {
        let now = self.clock.now();
        match news {
            News::There => {
                self.station.at_node(now, ServiceLayer::is_there);
            }
            News::Gone(why) => {
                tracing::warn!(why, "the node is gone; trying on");
                self.deliveries.clear();
                self.station.at_node(now, ServiceLayer::is_gone);
            }
            News::Refused { is_taken: true, why } => {
                let hint = "another entity runs beside it. End that one first; files of class 1 without closure can be sent all the same";
                self.refusal = Some(anyhow!("the node says: {why}; {hint}"));
            }
            News::Refused { is_taken: false, why } => {
                self.refusal = Some(anyhow!("the node says: {why}"));
            }
        }
    }

    fn take(&mut self, Handed { delivery, payload, .. }: Handed) {
        let Some(payload) = payload else {
            if self.hears == Hears::All {
                tracing::warn!(id = delivery.id, "a bundle is longer than PDUs are; it is dropped");
                self.courier.confirm(delivery);
            }
            return;
        };
        if self.hears == Hears::Answers && !self.is_answer(&payload) {
            return;
        }
        // The entity at a node that is called by a name is known by what its PDUs say, and heard as 0.
        let from = match delivery.source.parse() {
            Ok(Eid::Ipn { node, .. }) => node,
            Ok(_) | Err(_) => 0,
        };
        let now = self.clock.now();
        let arrival = self.station.at_node(now, |layer| layer.came(now, from, payload));
        // It may be accepted already: orders are carried out later.
        self.deliveries.extend(arrival.map(|arrival| (arrival, delivery)));
    }

    /// Whether PDUs answer to this entity: of an earlier put, too, for who goes on with that one is answered once more.
    fn is_answer(&self, pdus: &[u8]) -> bool {
        Header::decode(pdus).is_ok_and(|header| {
            header.direction == Direction::TowardSender
                && header.source.0 == self.station.entity().config().entity
        })
    }

    /// What the entity wants of the store and of the node.
    fn work(&mut self) -> bool {
        let mut some = false;
        while !self.store.is_full() {
            let Some(effect) = self.station.poll_effect() else { break };
            some = true;
            if let Effect::Store(effect) = effect {
                self.store.submit(effect);
            }
        }
        while let Some(order) = self.station.poll_order() {
            some = true;
            match order {
                // Whoever stops a transfer wants it to stop; what was to be answered is answered.
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

    /// After the end: what is on its way to the disk and to the node gets there, if it does so soon.
    fn settle(&mut self, on: &mut Observer<'_>) -> Result<()> {
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

    fn wait(&self, latest: Time) -> Result<()> {
        let deadline = self.station.poll_timeout().map_or(latest, |deadline| deadline.at);
        let (until, now) = (latest.min(deadline).min(self.next_tick), self.clock.now());
        if until > now {
            self.waker.wait_alone(Some(until.since(now)))?;
        }
        Ok(())
    }
}

/// Whether a PDU is a part of a file.
fn is_data(pdu: &[u8]) -> bool {
    Pdu::decode(pdu).is_ok_and(|pdu| matches!(pdu.body, Body::FileData(_)))
}
