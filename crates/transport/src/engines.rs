//! Engines behind one enumeration: what the command line matches on until it uses
//! [`Transport`](crate::Transport).

mod indication;

use std::collections::BTreeMap;
use std::path::Path;

use engine::{Deadline, Effect, Engine, Input, PathId, Rng, Time, Transmit, TxBuf};
use proto::ut::OverLtp;
use proto::{cfdp, ltp, ltpt, norm, saratoga};

pub use crate::adapter::cfdp::{cfdp_config, tell_of_ends};
use crate::adapter::ltp::ltp_config;
use crate::adapter::norm::{NormConfig, norm_config};
use crate::adapter::saratoga::{SaratogaConfig, check_version, saratoga_config};
use crate::bundles::{self, BundlesConfig};
use crate::carried::{CfdpLtpConfig, carried_told, cfdp_ltp_config};
use crate::contract::{Configuration, Transport};
use crate::over_tcp::{self, OverTcpConfig};
use crate::protocol::{Family, Protocol};
use crate::settings::Mib;
use crate::text::SpecError;

pub use indication::AnyIndication;

/// Any engine.
#[derive(Debug)]
pub enum AnyEngine {
    /// A CFDP entity.
    Cfdp(Box<cfdp::Entity>),
    /// An LTP engine.
    Ltp(Box<ltp::Node>),
    /// A CFDP entity over LTP.
    CfdpLtp(Box<OverLtp>),
    /// A Saratoga peer, and the paths to the others by their numbers in the scenario.
    Saratoga(Box<saratoga::Node>, BTreeMap<u64, PathId>),
    /// A NORM node, and the paths to the others by their numbers in the scenario.
    Norm(Box<norm::Node>, BTreeMap<u64, PathId>),
    /// FTP, or a program that is modelled, over TCP.
    OverTcp(Box<dyn Transport>),
    /// A bundle node.
    Bundles(Box<dyn Transport>),
}

impl Engine for AnyEngine {
    type Indication = AnyIndication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match self {
            Self::Cfdp(entity) => entity.handle_input(now, input),
            Self::Ltp(node) => node.handle_input(now, input),
            Self::CfdpLtp(node) => node.handle_input(now, input),
            Self::Saratoga(node, _) => node.handle_input(now, input),
            Self::Norm(node, _) => node.handle_input(now, input),
            Self::OverTcp(node) => node.handle_input(now, input),
            Self::Bundles(node) => node.handle_input(now, input),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Cfdp(entity) => entity.handle_timeout(now),
            Self::Ltp(node) => node.handle_timeout(now),
            Self::CfdpLtp(node) => node.handle_timeout(now),
            Self::Saratoga(node, _) => node.handle_timeout(now),
            Self::Norm(node, _) => node.handle_timeout(now),
            Self::OverTcp(node) => node.handle_timeout(now),
            Self::Bundles(node) => node.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        match self {
            Self::Cfdp(entity) => entity.poll_transmit(now, tx),
            Self::Ltp(node) => node.poll_transmit(now, tx),
            Self::CfdpLtp(node) => node.poll_transmit(now, tx),
            Self::Saratoga(node, _) => node.poll_transmit(now, tx),
            Self::Norm(node, _) => node.poll_transmit(now, tx),
            Self::OverTcp(node) => node.poll_transmit(now, tx),
            Self::Bundles(node) => node.poll_transmit(now, tx),
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        match self {
            Self::Cfdp(entity) => entity.poll_effect(),
            Self::Ltp(node) => node.poll_effect(),
            Self::CfdpLtp(node) => node.poll_effect(),
            Self::Saratoga(node, _) => node.poll_effect(),
            Self::Norm(node, _) => node.poll_effect(),
            Self::OverTcp(node) => node.poll_effect(),
            Self::Bundles(node) => node.poll_effect(),
        }
    }

    fn poll_indication(&mut self) -> Option<AnyIndication> {
        match self {
            Self::Cfdp(entity) => entity.poll_indication().map(AnyIndication::Cfdp),
            Self::Ltp(node) => node.poll_indication().map(AnyIndication::Ltp),
            Self::CfdpLtp(node) => carried_told(node).map(AnyIndication::Cfdp),
            Self::Saratoga(node, _) => node.poll_indication().map(AnyIndication::Saratoga),
            Self::Norm(node, _) => node.poll_indication().map(AnyIndication::Norm),
            Self::OverTcp(node) => node.poll_indication().map(AnyIndication::OverTcp),
            Self::Bundles(node) => node.poll_indication().map(AnyIndication::Bundles),
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        match self {
            Self::Cfdp(entity) => entity.poll_timeout(),
            Self::Ltp(node) => node.poll_timeout(),
            Self::CfdpLtp(node) => node.poll_timeout(),
            Self::Saratoga(node, _) => node.poll_timeout(),
            Self::Norm(node, _) => node.poll_timeout(),
            Self::OverTcp(node) => node.poll_timeout(),
            Self::Bundles(node) => node.poll_timeout(),
        }
    }
}

impl AnyEngine {
    /// Whether it takes requests: not while it reads the records of an earlier run.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Cfdp(entity) => entity.is_restored(),
            Self::Ltp(_) | Self::Norm(..) => true,
            Self::Saratoga(node, _) => node.is_restored(),
            Self::CfdpLtp(node) => node.entity().is_restored(),
            Self::OverTcp(node) | Self::Bundles(node) => node.is_ready(),
        }
    }
}

/// What a node of the simulator is told to be.
#[derive(Clone, Debug)]
pub enum EngineConfig {
    /// A CFDP entity.
    Cfdp(Box<cfdp::Config>),
    /// An LTP engine.
    Ltp(Box<ltp::Config>),
    /// A CFDP entity over LTP.
    CfdpLtp(Box<CfdpLtpConfig>),
    /// A Saratoga peer.
    Saratoga(Box<SaratogaConfig>),
    /// A NORM node.
    Norm(Box<NormConfig>),
    /// A node over TCP.
    OverTcp(Box<OverTcpConfig>),
    /// A bundle node.
    Bundles(Box<BundlesConfig>),
}

impl EngineConfig {
    /// The configuration of entity `entity` under `protocol`.
    ///
    /// # Errors
    ///
    /// When the profile does not exist.
    pub fn new(protocol: &Protocol, entity: u64) -> Result<Self, SpecError> {
        let mut config = match protocol.kind.family() {
            Family::Cfdp => Self::Cfdp(Box::new(cfdp_config(protocol)?)),
            Family::Ltp => Self::Ltp(Box::new(ltp_config(protocol)?)),
            Family::CfdpLtp => Self::CfdpLtp(Box::new(cfdp_ltp_config(protocol)?)),
            Family::Saratoga => {
                let mut config = saratoga_config(protocol)?;
                config.eid = format!("ipn:{entity}.0");
                Self::Saratoga(Box::new(SaratogaConfig { config, ..SaratogaConfig::default() }))
            }
            Family::Norm => {
                let config = norm_config(protocol)?;
                Self::Norm(Box::new(NormConfig { config, ..NormConfig::default() }))
            }
            Family::OverTcp => Self::OverTcp(Box::new(over_tcp::config(protocol)?)),
            Family::Bundles => Self::Bundles(Box::new(bundles::config(protocol)?)),
        };
        config.set_entity(entity);
        config.check(protocol)?;
        Ok(config)
    }

    /// Whether it can speak `protocol`.
    ///
    /// # Errors
    ///
    /// When its settings say otherwise.
    pub fn check(&self, protocol: &Protocol) -> Result<(), SpecError> {
        match self {
            Self::Saratoga(peer) => check_version(protocol, peer.config.version),
            Self::Cfdp(_)
            | Self::Ltp(_)
            | Self::CfdpLtp(_)
            | Self::Norm(_)
            | Self::OverTcp(_)
            | Self::Bundles(_) => Ok(()),
        }
    }

    /// The protocol it is for.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::Cfdp(_) => Family::Cfdp,
            Self::Ltp(_) => Family::Ltp,
            Self::CfdpLtp(_) => Family::CfdpLtp,
            Self::Saratoga(_) => Family::Saratoga,
            Self::Norm(_) => Family::Norm,
            Self::OverTcp(_) => Family::OverTcp,
            Self::Bundles(_) => Family::Bundles,
        }
    }

    /// The same behind one type, but for a CFDP entity.
    fn configuration(&mut self) -> Option<&mut dyn Configuration> {
        match self {
            Self::Cfdp(_) => None,
            Self::Ltp(config) => Some(config.as_mut()),
            Self::CfdpLtp(config) => Some(config.as_mut()),
            Self::Saratoga(config) => Some(config.as_mut()),
            Self::Norm(config) => Some(config.as_mut()),
            Self::OverTcp(config) => Some(config.as_mut()),
            Self::Bundles(config) => Some(config.as_mut()),
        }
    }

    /// Changes it to what the file at `path` says.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn apply_file(&mut self, path: &Path) -> Result<(), SpecError> {
        if let Self::Cfdp(config) = self {
            return Mib::apply_file(path, config);
        }
        self.configuration().map_or(Ok(()), |config| config.apply_file(path))
    }

    /// Sets routes by the last engine, and what holds for all others.
    pub fn set_routes(&mut self, to: BTreeMap<u64, u64>, otherwise: ltpt::Otherwise) {
        if let Some(config) = self.configuration() {
            config.set_routes(to, otherwise);
        }
    }

    /// Gives it its number, where it has one.
    pub fn set_entity(&mut self, entity: u64) {
        if let Self::Cfdp(config) = self {
            config.entity = entity;
            tell_of_ends(config);
        } else if let Some(config) = self.configuration() {
            config.set_entity(entity);
        }
    }

    /// Sets the path over which `entity` is reached.
    pub fn set_path(&mut self, entity: u64, path: PathId) {
        if let Self::Cfdp(config) = self {
            let remote = config.remote(entity).clone();
            config.remotes.entry(entity).or_insert(remote).path = Some(path);
        } else if let Some(config) = self.configuration() {
            config.set_path(entity, path);
        }
    }

    /// An engine so configured.
    #[must_use]
    pub fn build(&self, rng: Rng) -> AnyEngine {
        match self {
            Self::Cfdp(config) => {
                AnyEngine::Cfdp(Box::new(cfdp::Entity::new(config.as_ref().clone(), rng)))
            }
            Self::Ltp(config) => {
                AnyEngine::Ltp(Box::new(ltp::Node::new(config.as_ref().clone(), rng)))
            }
            Self::CfdpLtp(told) => {
                let CfdpLtpConfig { cfdp, ut, below } = told.as_ref();
                let entity = OverLtp::over_ltp(cfdp.clone(), ut.clone(), below, rng);
                AnyEngine::CfdpLtp(Box::new(entity))
            }
            Self::Saratoga(peer) => {
                let node = saratoga::Node::new(peer.config.clone(), rng);
                AnyEngine::Saratoga(Box::new(node), peer.paths.clone())
            }
            Self::Norm(told) => {
                let node = norm::Node::new(told.config.clone(), rng);
                AnyEngine::Norm(Box::new(node), told.paths.clone())
            }
            Self::OverTcp(told) => AnyEngine::OverTcp(Configuration::build(told.as_ref(), rng)),
            Self::Bundles(told) => AnyEngine::Bundles(Configuration::build(told.as_ref(), rng)),
        }
    }
}
