//! A CFDP entity on a socket, whatever carries its PDUs.

use engine::{Deadline, Effect, Engine, Input, Rng, Time, Transmit, TxBuf};
use lab::engines::{AnyEngine, AnyIndication, EngineConfig};
use proto::cfdp::{self, Entity, Indication, PutRequest, RequestError};
use proto::ut;
use wire::cfdp::TransactionId;

/// An entity whose PDUs are datagrams, or blocks of LTP.
#[derive(Debug)]
pub(crate) struct Station {
    engine: AnyEngine,
    /// Why a PDU was not carried, if one was not.
    lost: Option<&'static str>,
}

impl Station {
    /// An entity so configured; `None` if these are not settings of one.
    pub(crate) fn new(config: &EngineConfig, rng: Rng) -> Option<Self> {
        let engine = config.build(rng);
        engine.entity().is_some().then_some(Self { engine, lost: None })
    }

    /// The entity, to look at.
    pub(crate) fn entity(&self) -> &Entity {
        self.engine.entity().expect("it was made with one")
    }

    /// Sends a file.
    pub(crate) fn put(
        &mut self,
        now: Time,
        request: PutRequest,
    ) -> Result<TransactionId, RequestError> {
        self.engine.put(now, request)
    }

    /// Datagrams that were sent and received.
    pub(crate) fn counts(&self) -> (u64, u64) {
        match &self.engine {
            AnyEngine::CfdpLtp(node) => {
                let stats = node.ltp().stats();
                (stats.sent.total(), stats.received.total())
            }
            AnyEngine::Cfdp(_)
            | AnyEngine::Ltp(_)
            | AnyEngine::Saratoga(..)
            | AnyEngine::Norm(..)
            | AnyEngine::OverTcp(_)
            | AnyEngine::Bundles(_) => {
                let stats = self.entity().stats();
                (stats.sent.total(), stats.received.total())
            }
        }
    }

    /// Whether what carries its PDUs answers, too, and is to be left time to.
    pub(crate) fn is_answered_below(&self) -> bool {
        matches!(self.engine, AnyEngine::CfdpLtp(_))
    }

    /// Why a PDU was not carried, if one was not.
    pub(crate) fn why_lost(&self) -> Option<&'static str> {
        self.lost
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
        self.engine.handle_input(now, input);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.engine.poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.engine.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        loop {
            if let AnyEngine::CfdpLtp(node) = &mut self.engine {
                match node.poll_indication()? {
                    ut::Indication::Cfdp(told) => return Some(told),
                    ut::Indication::Lost { why, .. } => self.lost = Some(why),
                }
            } else if let AnyIndication::Cfdp(told) = self.engine.poll_indication()? {
                return Some(told);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.engine.poll_timeout()
    }
}
