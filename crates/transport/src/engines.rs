//! The engines a simulated host can run, behind one type.

mod indication;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use engine::{Deadline, Effect, Engine, FileName, Input, PathId, Rng, Time, Transmit, TxBuf};
use proto::ut::OverLtp;
use proto::{cfdp, ltp, ltpt, norm, saratoga};

use crate::bundles::{self, BundlesConfig, BundlesEngine};
use crate::carried::{
    CfdpLtpConfig, carried_told, carried_under_way, cfdp_ltp_config, put_request, transactions,
};
use crate::mib::{Class, Mib};
use crate::over_tcp::{self, BufferLimits, OverTcpConfig, OverTcpEngine};
use crate::overlay::Overlay;
use crate::protocol::{Family, Kind, Protocol};
use crate::quantity::Span;
use crate::records::Record;
use crate::settings::{
    BundlesSettings, CfdpLtpSettings, LtpSettings, NormSettings, OverTcpSettings, SaratogaSettings,
    Settings,
};
use crate::text::{self, SpecError};

pub use indication::{AnyIndication, End};

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
    OverTcp(Box<OverTcpEngine>),
    /// A bundle node.
    Bundles(Box<BundlesEngine>),
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
            Self::Bundles(node) => node.poll_indication().map(|told| match told {
                bundles::Told::Files(told) => AnyIndication::Bundles(Box::new(told)),
                bundles::Told::Cfdp(told) => AnyIndication::Cfdp(told),
            }),
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

/// What a NORM node is told.
#[derive(Clone, Debug, Default)]
pub struct NormConfig {
    /// What it is told.
    pub config: norm::Config,
    /// The paths to others, by their numbers in the scenario.
    pub paths: BTreeMap<u64, PathId>,
}

/// Settings for other peers, by name.
pub type Remotes = BTreeMap<String, saratoga::Remote>;

/// What a Saratoga peer is told, and of others what it is not told before there are paths to them.
#[derive(Clone, Debug, Default)]
pub struct SaratogaConfig {
    /// What it is told.
    pub config: saratoga::Config,
    /// Settings for others, by what they are called: in a scenario their numbers.
    pub remotes: Remotes,
    /// The paths to others, by their numbers in the scenario.
    pub paths: BTreeMap<u64, PathId>,
}

impl SaratogaConfig {
    /// Says over which path the peer of this name is reached.
    pub fn set_path(&mut self, name: &str, path: PathId) {
        if let Some(remote) = self.remotes.get(name) {
            self.config.remotes.insert(path, remote.clone());
        }
        if let Some(beacons) = &mut self.config.beacons {
            beacons.paths.push(path);
        }
    }
}

impl EngineConfig {
    /// The configuration of entity `entity` under `protocol`, changed by `settings`.
    ///
    /// # Errors
    ///
    /// When the profile does not exist or the settings are out of range.
    pub fn new(
        protocol: &Protocol,
        entity: u64,
        settings: Option<&Settings>,
    ) -> Result<Self, SpecError> {
        let mut config = match protocol.kind.family() {
            Family::Cfdp => Self::Cfdp(Box::new(cfdp_config(protocol)?)),
            Family::Ltp => Self::Ltp(Box::new(ltp_config(protocol)?)),
            Family::CfdpLtp => Self::CfdpLtp(Box::new(cfdp_ltp_config(protocol)?)),
            Family::Saratoga => {
                let mut config = saratoga_config(protocol)?;
                config.eid = format!("ipn:{entity}.0");
                // In a world of their own, all may ask for files.
                config.permissions.get = true;
                Self::Saratoga(Box::new(SaratogaConfig { config, ..SaratogaConfig::default() }))
            }
            Family::Norm => {
                let config = norm_config(protocol)?;
                Self::Norm(Box::new(NormConfig { config, ..NormConfig::default() }))
            }
            Family::OverTcp => Self::OverTcp(Box::new(over_tcp::config(protocol)?)),
            Family::Bundles => Self::Bundles(Box::new(bundles::config(protocol)?)),
        };
        if let Some(settings) = settings {
            config.apply(settings)?;
        }
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

    /// Bytes of the least datagram over which it sends a file of this name and size to an entity,
    /// where that is known.
    ///
    /// # Errors
    ///
    /// When its settings contradict each other.
    pub fn least_datagram(
        &self,
        destination: u64,
        name: &str,
        size: u64,
    ) -> Result<Option<u64>, SpecError> {
        match self {
            Self::Ltp(config) => Ok(Some(config.least_datagram(destination, name, size))),
            Self::Norm(node) => {
                let least = node.config.least_datagram().map_err(SpecError::invalid)?;
                Ok(Some(least as u64))
            }
            Self::Cfdp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(_)
            | Self::OverTcp(_)
            | Self::Bundles(_) => Ok(None),
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

    /// Changes it to what `settings` say.
    ///
    /// # Errors
    ///
    /// When they are for another protocol or out of range.
    pub fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        match (settings, self) {
            (Settings::Cfdp(mib), Self::Cfdp(config)) => mib.apply(config),
            (Settings::Ltp(settings), Self::Ltp(config)) => settings.apply(config),
            (Settings::CfdpLtp(settings), Self::CfdpLtp(config)) => settings.apply(config),
            (Settings::Saratoga(settings), Self::Saratoga(peer)) => settings.apply(peer),
            (Settings::Norm(settings), Self::Norm(node)) => settings.apply(&mut node.config),
            (Settings::OverTcp(settings), Self::OverTcp(node)) => settings.apply(node),
            (Settings::Bundles(settings), Self::Bundles(node)) => settings.apply(node),
            (settings, config) => {
                // Either it is not for this protocol, or it was not known to be.
                let settings = settings.clone().interpreted(config.family())?;
                config.apply(&settings)
            }
        }
    }

    /// Changes it to what the file at `path` says.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn apply_file(&mut self, path: &Path) -> Result<(), SpecError> {
        let settings = Settings::read(path, self.family())?;
        self.apply(&settings).map_err(|error| error.within(path))
    }

    /// Says by whom what is for others goes on, where that is told: the next engine, by the last one, and that of
    /// all others.
    pub fn set_routes(&mut self, to: BTreeMap<u64, u64>, otherwise: ltpt::Otherwise) {
        if let Self::Ltp(config) = self
            && let Some(transport) = config.transport.as_mut()
        {
            transport.routing = ltpt::Routing::Static { to, otherwise };
        }
    }

    /// Gives it its number, where it has one.
    pub fn set_entity(&mut self, entity: u64) {
        match self {
            Self::Cfdp(config) => {
                config.entity = entity;
                tell_of_ends(config);
            }
            Self::Ltp(config) => config.engine = entity,
            Self::CfdpLtp(config) => {
                config.cfdp.entity = entity;
                config.below.ltp.engine = entity;
                tell_of_ends(&mut config.cfdp);
            }
            Self::Saratoga(_) | Self::OverTcp(_) => {}
            Self::Bundles(node) => {
                node.entity = entity;
                if let Some(user) = &mut node.cfdp {
                    user.cfdp.entity = entity;
                    tell_of_ends(&mut user.cfdp);
                }
            }
            Self::Norm(node) => node.config.node = norm_node(entity),
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
            Self::OverTcp(told) => AnyEngine::OverTcp(Box::new(told.build(rng))),
            Self::Bundles(told) => AnyEngine::Bundles(Box::new(told.build(rng))),
        }
    }

    /// The settings written out, but for keys, which are not told again.
    #[must_use]
    pub fn settings(&self) -> Settings {
        match self {
            Self::Cfdp(config) => Mib::of(config).into(),
            Self::Ltp(config) => LtpSettings::of(config).into(),
            Self::CfdpLtp(config) => CfdpLtpSettings::of(config).into(),
            Self::Saratoga(peer) => SaratogaSettings::of(peer).into(),
            Self::Norm(node) => NormSettings::of(&node.config).into(),
            Self::OverTcp(node) => OverTcpSettings::of(node).into(),
            Self::Bundles(node) => BundlesSettings::of(node).into(),
        }
    }

    /// Says what a file is called that comes without a name of its own.
    pub fn set_file_name(&mut self, file: &str) {
        match self {
            Self::Cfdp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(_)
            | Self::Norm(_)
            | Self::OverTcp(_)
            | Self::Bundles(_) => {}
            Self::Ltp(config) => {
                if let ltp::Format::Raw { name } = &mut config.format {
                    file.clone_into(name);
                }
            }
        }
    }

    /// Says after which silence a transfer is given up, whoever the peer is; as it was, if nothing
    /// is said.
    pub fn set_inactivity(&mut self, silence: Option<Span>) {
        let Some(silence) = silence.map(Span::duration) else { return };
        match self {
            Self::Cfdp(config) => {
                let remotes = config.remotes.values_mut().chain([&mut config.default_remote]);
                remotes.for_each(|remote| remote.inactivity = cfdp::Timer::Fixed(silence));
            }
            Self::Ltp(config) => {
                let remotes = config.remotes.values_mut().chain([&mut config.default_remote]);
                remotes.for_each(|remote| remote.inactivity = ltp::Timer::Fixed(silence));
            }
            Self::CfdpLtp(config) => {
                // The entity's timers follow those of LTP.
                let ltp = &mut config.below.ltp;
                let remotes = ltp.remotes.values_mut().chain([&mut ltp.default_remote]);
                remotes.for_each(|remote| remote.inactivity = ltp::Timer::Fixed(silence));
            }
            Self::Saratoga(peer) => {
                let SaratogaConfig { config, remotes, .. } = peer.as_mut();
                let known = config.remotes.values_mut().chain(remotes.values_mut());
                let all = known.chain([&mut config.default_remote]);
                let silence = saratoga::Timer::Fixed(silence);
                all.for_each(|remote| remote.inactivity = silence);
            }
            Self::Norm(node) => {
                node.config.receiver.inactivity = norm::Timer::Fixed(silence);
                node.config.sender.patience = norm::Timer::Fixed(silence);
            }
            Self::OverTcp(node) => node.set_inactivity(silence),
            // Neighbours may be silent for long: what is given up is the bundle.
            Self::Bundles(node) => node.set_lifetime(silence),
        }
    }

    /// Lets it make up for so much of its rate, at least, when its driver comes late: that of a
    /// simulator never does.
    pub fn allow_catch_up(&mut self, least: Duration) {
        let catch_up = match self {
            Self::Cfdp(config) => &mut config.catch_up,
            Self::Ltp(config) => &mut config.catch_up,
            Self::CfdpLtp(config) => &mut config.below.ltp.catch_up,
            Self::Saratoga(peer) => &mut peer.config.catch_up,
            Self::Norm(node) => &mut node.config.catch_up,
            // TCP's window makes up for what was not sent.
            Self::OverTcp(_) | Self::Bundles(_) => return,
        };
        *catch_up = least.max(*catch_up);
    }

    /// Makes it a member of the group that a path stands for. Engines that treat a group as they
    /// treat any path need not know.
    pub fn add_group(&mut self, path: PathId) {
        match self {
            Self::Cfdp(_)
            | Self::Ltp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(_)
            | Self::OverTcp(_)
            | Self::Bundles(_) => {}
            Self::Norm(node) => node.config.groups.push(path),
        }
    }

    /// Tells a sender how many receivers its group has, so far as `settings` do not speak of that:
    /// whom to wait for, and as how large a group they act.
    pub fn set_receivers(&mut self, count: u32, settings: Option<&Settings>) {
        let Self::Norm(node) = self else { return };
        let is_given = |key: &str| match settings {
            Some(Settings::Norm(settings)) => settings.get(&["sender", key]).is_some(),
            Some(
                Settings::Unread(_)
                | Settings::Cfdp(_)
                | Settings::Ltp(_)
                | Settings::CfdpLtp(_)
                | Settings::Saratoga(_)
                | Settings::OverTcp(_)
                | Settings::Bundles(_),
            )
            | None => false,
        };
        let sender = &mut node.config.sender;
        if !is_given("receivers") {
            sender.receivers = count;
        }
        if !is_given("group_size") {
            sender.group_size = Some(sender.group_size.unwrap_or_default().max(count));
        }
    }

    /// Says over which path `entity` is reached.
    pub fn set_path(&mut self, entity: u64, path: PathId) {
        match self {
            Self::Cfdp(config) => {
                let remote = config.remote(entity).clone();
                config.remotes.entry(entity).or_insert(remote).path = Some(path);
            }
            Self::Ltp(config) => {
                let remote = config.remote(entity).clone();
                config.remotes.entry(entity).or_insert(remote).path = Some(path);
            }
            Self::CfdpLtp(config) => {
                let ltp = &mut config.below.ltp;
                let remote = ltp.remote(entity).clone();
                ltp.remotes.entry(entity).or_insert(remote).path = Some(path);
                config.ut.peers.insert(entity);
            }
            Self::Saratoga(peer) => {
                peer.paths.insert(entity, path);
                peer.set_path(&entity.to_string(), path);
            }
            Self::Norm(node) => {
                node.paths.insert(entity, path);
            }
            Self::OverTcp(node) => {
                node.paths.insert(entity, path);
            }
            Self::Bundles(node) => {
                node.paths.insert(entity, path);
            }
        }
    }

    /// Says where it is, where it is a node over TCP, and over which interfaces it reaches others.
    pub fn set_own(&mut self, place: (Ipv4Addr, u16), interfaces: &[PathId]) {
        let (address, port) = place;
        match self {
            Self::OverTcp(node) => node.set_own(address, port),
            Self::Bundles(node) => {
                node.set_own(address, port);
                node.interfaces = interfaces.iter().copied().collect();
            }
            Self::Cfdp(_) | Self::Ltp(_) | Self::CfdpLtp(_) | Self::Saratoga(_) | Self::Norm(_) => {
            }
        }
    }

    /// Says where the peer of a path is, and over which interface it is reached, where it is a node over TCP.
    pub fn set_peer(&mut self, path: PathId, remote: (Ipv4Addr, u16), by: PathId) {
        match self {
            Self::OverTcp(node) => node.set_peer(path, remote, by),
            Self::Bundles(node) => node.set_peer(path, remote, by),
            Self::Cfdp(_) | Self::Ltp(_) | Self::CfdpLtp(_) | Self::Saratoga(_) | Self::Norm(_) => {
            }
        }
    }

    /// Whether its paths are IP interfaces.
    pub fn has_interfaces(&self) -> bool {
        match self {
            Self::OverTcp(_) => true,
            Self::Bundles(node) => node.carrier == bundles::Carrier::Tcp,
            Self::Cfdp(_) | Self::Ltp(_) | Self::CfdpLtp(_) | Self::Saratoga(_) | Self::Norm(_) => {
                false
            }
        }
    }
}

/// The profiles of CFDP.
pub const CFDP_PROFILES: &[&str] = &["default", "gsfc-2007", "extended-b3"];

/// The CFDP configuration of a profile, slowlight's own if none is named.
///
/// # Errors
///
/// When there is no such profile.
pub fn cfdp_config(protocol: &Protocol) -> Result<cfdp::Config, SpecError> {
    let Some(name) = &protocol.profile else { return Ok(cfdp::Config::default()) };
    cfdp::profile(name).ok_or_else(|| no_profile(protocol, name, CFDP_PROFILES))
}

/// Has an entity tell of the end of each transaction, whatever its MIB says: nothing else tells a
/// command what became of a file.
pub fn tell_of_ends(config: &mut cfdp::Config) {
    config.indications.transaction_finished = true;
}

/// The profiles of LTP.
pub const LTP_PROFILES: &[&str] =
    &["default", "checkpoints", "async-reports", "ltplib-2011", "ltplib-2007"];

/// The LTP configuration of a profile, slowlight's own if none is named.
///
/// # Errors
///
/// When there is no such profile.
pub fn ltp_config(protocol: &Protocol) -> Result<ltp::Config, SpecError> {
    let config = match &protocol.profile {
        Some(name) => ltp::profile(name).ok_or_else(|| no_profile(protocol, name, LTP_PROFILES))?,
        None => ltp::Config::default(),
    };
    let transport = ltpt::Config { clock: bundles::EPOCH, ..ltpt::Config::default() };
    let transport = (protocol.kind == Kind::LtpT).then_some(transport);
    Ok(ltp::Config { transport, ..config })
}

/// The profiles of Saratoga.
pub const SARATOGA_PROFILES: &[&str] = &["default", "deferred", "sha1", "tfrc", "grc-perl-2011"];

/// The Saratoga configuration of a profile, slowlight's own if none is named.
///
/// # Errors
///
/// When there is no such profile.
pub fn saratoga_config(protocol: &Protocol) -> Result<saratoga::Config, SpecError> {
    let Some(name) = &protocol.profile else { return Ok(saratoga::Config::default()) };
    let config = saratoga::profile(name);
    let config = config.ok_or_else(|| no_profile(protocol, name, SARATOGA_PROFILES))?;
    check_version(protocol, config.version)?;
    Ok(config)
}

/// The number of a NORM node. The highest stands for any.
pub(crate) fn norm_node(entity: u64) -> u32 {
    u32::try_from(entity).unwrap_or(0).min(u32::MAX - 1)
}

/// The profiles of NORM.
pub const NORM_PROFILES: &[&str] = &["default", "cc", "nrl-2011"];

/// The NORM configuration of a profile, slowlight's own if none is named.
///
/// # Errors
///
/// When there is no such profile.
pub fn norm_config(protocol: &Protocol) -> Result<norm::Config, SpecError> {
    let name = protocol.profile.as_deref().unwrap_or("default");
    let config = norm::profile(name);
    let mut config = config.ok_or_else(|| no_profile(protocol, name, NORM_PROFILES))?;
    if protocol.kind == Kind::NormFec {
        config.send_parity_unasked();
    }
    Ok(config)
}

fn check_version(protocol: &Protocol, version: saratoga::Version) -> Result<(), SpecError> {
    if version == saratoga::Version::V1 || protocol.kind == Kind::SaratogaGet {
        return Ok(());
    }
    let get = Protocol { kind: Kind::SaratogaGet, profile: protocol.profile.clone() };
    Err(SpecError::invalid(format!("version 0 of Saratoga knows no put: write \"{get}\"")))
}

/// Whether the profile of a protocol exists.
///
/// # Errors
///
/// When it does not.
pub fn check_profile(protocol: &Protocol) -> Result<(), SpecError> {
    match protocol.kind.family() {
        Family::Cfdp => cfdp_config(protocol).map(drop),
        Family::Ltp => ltp_config(protocol).map(drop),
        Family::CfdpLtp => cfdp_ltp_config(protocol).map(drop),
        Family::Saratoga => saratoga_config(protocol).map(drop),
        Family::Norm => norm_config(protocol).map(drop),
        Family::OverTcp => over_tcp::config(protocol).map(drop),
        Family::Bundles => bundles::config(protocol).map(drop),
    }
}

pub(crate) fn no_profile(protocol: &Protocol, name: &str, known: &[&str]) -> SpecError {
    let near = text::did_you_mean(name, known.iter().copied());
    SpecError::invalid(format!(
        "{} has no profile {name:?}{near} (profiles: {})",
        protocol.kind.name(),
        known.join(", ")
    ))
}

/// A request to send a file, whatever the protocol.
#[derive(Clone, Debug)]
pub struct Send {
    /// The file in the sender's store.
    pub source: FileName,
    /// Its name at the receiver.
    pub name: String,
    /// The entity number of the other end: of the receiver, or of the sender when the file is
    /// fetched.
    pub destination: u64,
    /// The path of the group that it is sent to, in place of `destination`.
    pub group: Option<PathId>,
    /// The protocol.
    pub kind: Kind,
    /// Which octets of the file are read, where not all of it is.
    pub records: Vec<Record>,
    /// The transmission class, where the protocol is CFDP.
    pub class: Class,
    /// How waypoints hand it on, if there are any.
    pub overlay: Option<Overlay>,
}

impl AnyEngine {
    /// The transfers it has under way, of which it will do more by itself: not those that are
    /// suspended, which wait for their user.
    #[must_use]
    pub fn under_way(&self) -> usize {
        match self {
            Self::Cfdp(entity) => transactions(entity),
            Self::CfdpLtp(node) => carried_under_way(node),
            // Blocks for others wait without a session.
            Self::Ltp(node) => node.sessions().count().max(node.transfers()),
            Self::Saratoga(node, _) => node.sessions().count(),
            Self::Norm(node, _) => node.objects().count(),
            Self::OverTcp(node) => node.under_way(),
            Self::Bundles(node) => node.under_way(),
        }
    }

    /// What it sent again or as parity because receivers lacked something, in segments, and how
    /// often it asked others for such; `None` of engines that do not count it.
    #[must_use]
    pub fn repairs(&self) -> Option<(u64, u64)> {
        match self {
            Self::Cfdp(_)
            | Self::Ltp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(..)
            | Self::Bundles(_) => None,
            Self::Norm(node, _) => {
                let stats = node.stats();
                Some((stats.parity_repairs + stats.explicit_repairs, stats.sent.nacks))
            }
            // Acknowledgments ask for nothing.
            Self::OverTcp(node) => Some((node.counts().retransmissions, 0)),
        }
    }

    /// Times for which the peers' receive windows and its send buffers stopped its connections;
    /// `None` of engines that do not count them.
    #[must_use]
    pub fn buffer_limits(&self) -> Option<BufferLimits> {
        match self {
            Self::Cfdp(_)
            | Self::Ltp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(..)
            | Self::Norm(..)
            | Self::Bundles(_) => None,
            Self::OverTcp(node) => Some(BufferLimits::of(&node.counts())),
        }
    }

    /// Whether it can be asked for a transfer: not while it takes up the records of an earlier run.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Cfdp(entity) => entity.is_restored(),
            Self::Ltp(_) | Self::Norm(..) | Self::OverTcp(_) => true,
            Self::Saratoga(node, _) => node.is_restored(),
            Self::CfdpLtp(node) => node.entity().is_restored(),
            Self::Bundles(node) => node.is_ready(),
        }
    }

    /// Asks for a transfer.
    ///
    /// # Errors
    ///
    /// Why the engine refuses.
    pub fn send(&mut self, now: Time, send: &Send) -> Result<(), String> {
        match self {
            Self::Cfdp(entity) if send.overlay == Some(Overlay::Sfo) => {
                let request = cfdp::SfoPutRequest {
                    destination: send.destination,
                    source: Some(send.source.clone()),
                    destination_name: send.name.clone(),
                    label: send.name.clone().into(),
                    trace: cfdp::TraceControl::Source,
                    mode: send.class.into(),
                    ..cfdp::SfoPutRequest::default()
                };
                entity.sfo_put(now, &request).map(|_| ()).map_err(|error| error.to_string())
            }
            Self::Cfdp(entity) => {
                let put = entity.put(now, put_request(send));
                put.map(drop).map_err(|error| error.to_string())
            }
            Self::CfdpLtp(node) => {
                let put = node.put(now, put_request(send));
                put.map(drop).map_err(|error| error.to_string())
            }
            Self::Ltp(node) => {
                let request = ltp::SendRequest {
                    destination: send.destination,
                    source: send.source.clone(),
                    name: send.name.clone(),
                    red: send.kind.red(),
                };
                node.send(now, request).map(|_| ()).map_err(|error| error.to_string())
            }
            Self::Saratoga(node, paths) => {
                let known = send.group.or_else(|| paths.get(&send.destination).copied());
                let peer = known.ok_or_else(|| no_path(send.destination))?;
                ask_saratoga(node, now, peer, send).map_err(|error| error.to_string())
            }
            Self::Norm(node, paths) => {
                let known = send.group.or_else(|| paths.get(&send.destination).copied());
                let peer = known.ok_or_else(|| no_path(send.destination))?;
                let request = norm::SendRequest {
                    peer,
                    content: norm::Content::File(send.source.clone()),
                    info: send.name.clone().into(),
                };
                node.send(now, request).map(|_| ()).map_err(|error| error.to_string())
            }
            Self::OverTcp(node) => node.send(now, send),
            Self::Bundles(node) => node.send(now, send),
        }
    }
}

pub(crate) fn no_path(entity: u64) -> String {
    format!("there is no path to {entity}")
}

fn ask_saratoga(
    node: &mut saratoga::Node,
    now: Time,
    peer: PathId,
    send: &Send,
) -> Result<(), saratoga::RequestError> {
    if send.kind.is_fetched() {
        let request = saratoga::GetRequest {
            peer,
            name: send.name.clone(),
            destination: send.source.clone(),
            delete: false,
        };
        return node.get(now, request).map(drop);
    }
    let request = saratoga::PutRequest {
        peer,
        source: send.source.clone(),
        name: send.name.clone(),
        put: send.kind.put(),
        delete: false,
        stream: false,
    };
    node.put(now, request).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_profile_exists() {
        for name in CFDP_PROFILES {
            assert!(cfdp::profile(name).is_some(), "{name}");
        }
        for name in LTP_PROFILES {
            assert!(ltp::profile(name).is_some(), "{name}");
        }
        for name in NORM_PROFILES {
            assert!(norm::profile(name).is_some(), "{name}");
        }
        for name in OverTcpConfig::profiles() {
            assert!(OverTcpConfig::of_profile(Some(name)).is_some(), "{name}");
        }
        for name in SARATOGA_PROFILES {
            assert!(saratoga::profile(name).is_some(), "{name}");
        }
    }
}
