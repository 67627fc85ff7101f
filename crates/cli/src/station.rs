//! A CFDP entity on a socket, whatever carries its PDUs.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use engine::{Deadline, Effect, Engine, Input, Rng, Time, Transmit, TxBuf};
use proto::cfdp::{self, Entity, Indication, PutRequest, RequestError};
use proto::ut::{self, Order, OverService, ServiceLayer};
use transport::engines::{AnyEngine, AnyIndication, EngineConfig};
use wire::cfdp::TransactionId;

use crate::beside;

/// An entity whose PDUs are datagrams, blocks of LTP, or bundles.
#[derive(Debug)]
pub(crate) struct Station {
    engine: Over,
    /// Why a PDU was not carried, if one was not.
    lost: Option<&'static str>,
}

#[derive(Debug)]
enum Over {
    Socket(Box<AnyEngine>),
    Node(Box<OverService>),
}

impl Station {
    /// An entity beside a bundle node.
    pub(crate) fn beside(entity: OverService) -> Self {
        Self { engine: Over::Node(Box::new(entity)), lost: None }
    }

    /// An entity so configured; `None` if these are not settings of one.
    pub(crate) fn new(config: &EngineConfig, rng: Rng) -> Option<Self> {
        let engine = config.build(rng);
        let is_one = engine.entity().is_some();
        is_one.then(|| Self { engine: Over::Socket(Box::new(engine)), lost: None })
    }

    /// The entity, to look at.
    pub(crate) fn entity(&self) -> &Entity {
        match &self.engine {
            Over::Socket(engine) => engine.entity().expect("it was made with one"),
            Over::Node(entity) => entity.entity(),
        }
    }

    /// Tells the layer below an entity what happened at its node, if it is beside one.
    pub(crate) fn at_node<T>(
        &mut self,
        now: Time,
        told: impl FnOnce(&mut ServiceLayer) -> T,
    ) -> Option<T> {
        match &mut self.engine {
            Over::Socket(_) => None,
            Over::Node(entity) => Some(entity.with_below(now, told)),
        }
    }

    /// Whether an entity beside a node takes more of what comes.
    pub(crate) fn takes_more(&self) -> bool {
        match &self.engine {
            Over::Socket(_) => false,
            Over::Node(entity) => entity.below().takes_more(),
        }
    }

    /// What an entity beside a node wants of it next.
    pub(crate) fn poll_order(&mut self) -> Option<Order> {
        match &mut self.engine {
            Over::Socket(_) => None,
            Over::Node(entity) => entity.poll_order(),
        }
    }

    /// Sends a file.
    pub(crate) fn put(
        &mut self,
        now: Time,
        request: PutRequest,
    ) -> Result<TransactionId, RequestError> {
        match &mut self.engine {
            Over::Socket(engine) => engine.put(now, request),
            Over::Node(entity) => entity.put(now, request),
        }
    }

    /// Datagrams that were sent and received; PDUs beside a node.
    pub(crate) fn counts(&self) -> (u64, u64) {
        if let Over::Socket(engine) = &self.engine
            && let AnyEngine::CfdpLtp(node) = engine.as_ref()
        {
            let stats = node.ltp().stats();
            return (stats.sent.total(), stats.received.total());
        }
        let stats = self.entity().stats();
        (stats.sent.total(), stats.received.total())
    }

    /// Whether what carries its PDUs answers, too, and is to be left time to.
    pub(crate) fn is_answered_below(&self) -> bool {
        matches!(&self.engine, Over::Socket(engine) if matches!(**engine, AnyEngine::CfdpLtp(_)))
    }

    /// Whether a bundle node carries its PDUs, which goes on when this program has ended.
    pub(crate) fn is_beside_node(&self) -> bool {
        matches!(self.engine, Over::Node(_))
    }

    /// Why a PDU was not carried, if one was not.
    pub(crate) fn why_lost(&self) -> Option<&'static str> {
        self.lost
    }
}

/// What an observer of a station is told, and says.
pub(crate) type Observer<'a> =
    dyn FnMut(Time, &mut Station, rt::Event<Indication>) -> rt::Control + 'a;

/// Runs a station in the calling thread.
#[derive(Debug)]
pub(crate) enum Driver {
    /// Over UDP.
    Socket(Box<rt::Driver<Station>>),
    /// Beside a bundle node.
    Node(Box<beside::Driver>),
}

impl Driver {
    /// Runs until `stop` is set or `on` says so.
    pub(crate) fn run(&mut self, stop: &AtomicBool, on: &mut Observer<'_>) -> Result<()> {
        match self {
            Self::Socket(driver) => driver.run(stop, on).map_err(Into::into),
            Self::Node(driver) => driver.run(stop, on),
        }
    }
}

/// What the entity of a station is told.
pub(crate) fn of_entity(config: &EngineConfig) -> Option<&cfdp::Config> {
    match config {
        EngineConfig::Cfdp(config) => Some(config),
        EngineConfig::CfdpLtp(told) => Some(&told.cfdp),
        EngineConfig::Ltp(_)
        | EngineConfig::Saratoga(_)
        | EngineConfig::Norm(_)
        | EngineConfig::OverTcp(_)
        | EngineConfig::Bundles(_) => None,
    }
}

/// The rate at which it sends to another entity, if its settings say one.
pub(crate) fn rate_to(config: &EngineConfig, remote: Option<u64>) -> Option<u64> {
    match config {
        EngineConfig::Cfdp(config) => {
            remote.map_or(&config.default_remote, |remote| config.remote(remote)).rate_bps
        }
        EngineConfig::CfdpLtp(told) => {
            let ltp = &told.below.ltp;
            remote.map_or(&ltp.default_remote, |remote| ltp.remote(remote)).rate_bps
        }
        EngineConfig::Ltp(_)
        | EngineConfig::Saratoga(_)
        | EngineConfig::Norm(_)
        | EngineConfig::OverTcp(_)
        | EngineConfig::Bundles(_) => None,
    }
}

impl Engine for Station {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match &mut self.engine {
            Over::Socket(engine) => engine.handle_input(now, input),
            Over::Node(entity) => entity.handle_input(now, input),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match &mut self.engine {
            Over::Socket(engine) => engine.handle_timeout(now),
            Over::Node(entity) => entity.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        match &mut self.engine {
            Over::Socket(engine) => engine.poll_transmit(now, tx),
            Over::Node(entity) => entity.poll_transmit(now, tx),
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        match &mut self.engine {
            Over::Socket(engine) => engine.poll_effect(),
            Over::Node(entity) => entity.poll_effect(),
        }
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        loop {
            let told = match &mut self.engine {
                Over::Node(entity) => entity.poll_indication()?,
                Over::Socket(engine) => {
                    if let AnyEngine::CfdpLtp(node) = engine.as_mut() {
                        node.poll_indication()?
                    } else if let AnyIndication::Cfdp(told) = engine.poll_indication()? {
                        ut::Indication::Cfdp(told)
                    } else {
                        continue;
                    }
                }
            };
            match told {
                ut::Indication::Cfdp(told) => return Some(told),
                ut::Indication::Lost { why, .. } => self.lost = Some(why),
                ut::Indication::Noted(note) => tracing::warn!("{note}"),
            }
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        match &self.engine {
            Over::Socket(engine) => engine.poll_timeout(),
            Over::Node(entity) => entity.poll_timeout(),
        }
    }
}
