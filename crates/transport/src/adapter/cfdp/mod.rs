//! CFDP: an entity whose PDUs are datagrams or blocks of LTP. In bundles it is an application of a
//! [node](super::bundles).

mod report;
mod settings;
mod transport;

use std::time::Duration;

use cfdp::pdu::{ConditionCode, FaultHandler, TransmissionMode, Width};
use cfdp::{self, Entity};
use engine::{PathId, Rng};
use ut::OverLtp;

pub(crate) use self::settings::Ut;
pub use self::transport::{CfdpOverService, CfdpTransport, EntityEngine, Layer};
pub(crate) use self::transport::{carried_under_way, put_request, sent};
use super::ltp::ltp_config;
use super::no_profile;
use crate::contract::{
    Adapter, Configuration, Kind, Process, Protocol, Role as ProcessRole, Spool, Transport,
};
use crate::mib::Class;
use crate::overlay::Overlay;
use crate::settings::{Schema, Settings};
use crate::text::SpecError;

/// Configuration of an entity.
#[derive(Clone, Debug)]
struct CfdpConfig {
    entity: cfdp::Config,
    /// Whether a profile sets the width of transaction numbers.
    has_width: bool,
    carrier: Carrier,
}

/// Protocol that carries the PDUs of an entity.
#[derive(Clone, Debug)]
enum Carrier {
    /// UDP.
    Datagrams,
    /// LTP.
    Ltp {
        /// Settings for the PDUs.
        ut: ut::Config,
        /// LTP.
        below: Box<ut::LtpConfig>,
    },
}

/// Profiles of CFDP.
pub const CFDP_PROFILES: &[&str] = &["default", "gsfc-2007", "extended-b3"];

/// Makes an entity indicate the end of each transaction, regardless of its MIB: a command has no
/// other report of a file.
pub(crate) fn tell_of_ends(config: &mut cfdp::Config) {
    config.indications.transaction_finished = true;
}

/// Entity whose PDUs are carried by a protocol that retransmits lost data, so that class 1
/// suffices.
pub(crate) fn carried_cfdp() -> cfdp::Config {
    of_class_1(cfdp::Config::default())
}

fn of_class_1(mut config: cfdp::Config) -> cfdp::Config {
    config.default_remote.mode = TransmissionMode::Unacknowledged;
    config
}

/// Such an entity with the profile that a stack gives to CFDP.
pub(crate) fn profiled_cfdp(protocol: &Protocol) -> cfdp::Config {
    let profile = protocol.layers.get(protocol.kind.top().name);
    of_class_1(profile.and_then(|name| cfdp::profile(name)).unwrap_or_default())
}

impl CfdpConfig {
    fn over_datagrams(protocol: &Protocol) -> Result<Self, SpecError> {
        let profile = protocol.profile.as_deref();
        let entity = profile.map_or(Ok(cfdp::Config::default()), |name| {
            let unknown = || no_profile(protocol.kind.name(), name, CFDP_PROFILES);
            cfdp::profile(name).ok_or_else(unknown)
        })?;
        Ok(Self { entity, has_width: profile.is_some(), carrier: Carrier::Datagrams })
    }

    /// With the profiles of LTP.
    fn over_ltp(protocol: &Protocol) -> Result<Self, SpecError> {
        let mut ltp = ltp_config(protocol)?;
        // The PDUs of a window in each direction.
        let ut::Config { pdu_max, limits, .. } = ut::Config::default();
        ltp.limits.units_total = ltp.limits.units_total.max(2 * pdu_max * limits.window);
        let mut below = ut::LtpConfig { ltp, ..ut::LtpConfig::default() };
        if !protocol.kind.is_reliable() {
            below.color = ut::Color::Green;
        }
        let carrier = Carrier::Ltp { ut: ut::Config::default(), below: Box::new(below) };
        Ok(Self { entity: profiled_cfdp(protocol), has_width: false, carrier })
    }
}

/// Working files of an entity.
const SPOOL: Spool = Spool { prefix: cfdp::SPOOL_PREFIX, record_prefix: cfdp::RECORD_PREFIX };

/// Adapter of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cfdp {
    /// Over UDP.
    OverDatagrams,
    /// Over LTP.
    OverLtp,
}

impl Schema for Cfdp {
    fn title(&self) -> &'static str {
        match self {
            Self::OverDatagrams => "CFDP",
            Self::OverLtp => "CFDP over LTP",
        }
    }

    fn settings(&self) -> Box<dyn session::settings::Settings> {
        match self {
            Self::OverDatagrams => Box::new(cfdp::Config::default()),
            Self::OverLtp => {
                let carrier = Carrier::Ltp { ut: ut::Config::default(), below: Box::default() };
                Box::new(CfdpConfig { entity: carried_cfdp(), has_width: false, carrier })
            }
        }
    }
}

impl Adapter for Cfdp {
    fn spools(&self) -> &'static [Spool] {
        match self {
            Self::OverDatagrams => &[SPOOL],
            Self::OverLtp => const { &[SPOOL, Spool::with_prefix(ltp::SPOOL_PREFIX)] },
        }
    }

    fn record_prefixes(&self) -> &'static [&'static str] {
        match self {
            Self::OverDatagrams => &[cfdp::RECORD_PREFIX],
            Self::OverLtp => &[cfdp::RECORD_PREFIX, ltp::RECORD_PREFIX],
        }
    }

    fn resumes(&self, _kind: Kind) -> bool {
        true
    }

    fn configuration(
        &self,
        protocol: &Protocol,
        _entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError> {
        Ok(Box::new(match self {
            Self::OverDatagrams => CfdpConfig::over_datagrams(protocol)?,
            Self::OverLtp => CfdpConfig::over_ltp(protocol)?,
        }))
    }

    fn class(&self, settings: &Settings, remote: Option<u64>) -> Option<Class> {
        match self {
            Self::OverDatagrams => Class::towards(settings, remote),
            Self::OverLtp => Class::towards(&settings.below("cfdp")?, remote),
        }
    }

    fn add_route(
        &self,
        settings: &mut Settings,
        to: u64,
        next: u64,
    ) -> Result<Option<u64>, SpecError> {
        // Only a stack with datagrams has waypoints.
        let too_large = |_| SpecError::invalid(format!("{next} is too large for a number"));
        let next = i64::try_from(next).map_err(too_large)?;
        let known = settings.set(&["user_operations", "routes", &to.to_string()], next);
        Ok(known.and_then(|known| u64::try_from(known.as_integer()?).ok()))
    }

    fn permit(
        &self,
        settings: &mut Settings,
        from: u64,
        overlay: Overlay,
    ) -> Result<(), SpecError> {
        let key = match overlay {
            Overlay::Sfo => "store_and_forward",
            Overlay::Extended => "relay",
        };
        let path = ["remotes", &from.to_string(), "permissions", key];
        if settings.get(&path).is_none() {
            settings.set(&path, true);
        }
        Ok(())
    }
}

impl Configuration for CfdpConfig {
    fn build(&self, rng: Rng) -> Box<dyn Transport> {
        let entity = self.entity.clone();
        match &self.carrier {
            Carrier::Datagrams => Box::new(CfdpTransport::new(Entity::new(entity, rng))),
            Carrier::Ltp { ut, below } => {
                Box::new(CfdpTransport::new(OverLtp::over_ltp(entity, ut.clone(), below, rng)))
            }
        }
    }

    fn adapter(&self) -> &'static dyn Adapter {
        match self.carrier {
            Carrier::Datagrams => &Cfdp::OverDatagrams,
            Carrier::Ltp { .. } => &Cfdp::OverLtp,
        }
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        settings.apply(self)
    }

    fn settings(&self) -> Settings {
        Settings::from_config(self)
    }

    fn number(&self) -> Option<u64> {
        Some(self.entity.entity)
    }

    fn set_entity(&mut self, entity: u64) {
        self.entity.entity = entity;
        if let Carrier::Ltp { below, .. } = &mut self.carrier {
            below.ltp.engine = entity;
        }
        tell_of_ends(&mut self.entity);
    }

    fn set_path(&mut self, entity: u64, path: PathId) {
        match &mut self.carrier {
            Carrier::Datagrams => {
                let remote = self.entity.remote(entity).clone();
                self.entity.remotes.entry(entity).or_insert(remote).path = Some(path);
            }
            Carrier::Ltp { ut, below } => {
                below.ltp.set_path(entity, path);
                ut.peers.insert(entity);
            }
        }
    }

    fn set_inactivity(&mut self, silence: Duration) {
        match &mut self.carrier {
            Carrier::Datagrams => {
                let config = &mut self.entity;
                let remotes = config.remotes.values_mut().chain([&mut config.default_remote]);
                remotes.for_each(|remote| remote.inactivity = cfdp::Timer::Fixed(silence));
            }
            // The entity's timers follow those of LTP.
            Carrier::Ltp { below, .. } => below.ltp.set_inactivity(silence),
        }
    }

    fn allow_catch_up(&mut self, least: Duration) {
        match &mut self.carrier {
            Carrier::Datagrams => self.entity.catch_up = least.max(self.entity.catch_up),
            Carrier::Ltp { below, .. } => below.ltp.allow_catch_up(least),
        }
    }

    fn prepare(&mut self, process: &Process) -> Result<(), SpecError> {
        if !self.has_width {
            // Random numbers must not collide: 2^32 of them.
            self.entity.sequence_width = Width::FOUR;
        }
        if let Carrier::Ltp { below, .. } = &mut self.carrier {
            return below.ltp.prepare(process);
        }
        let config = &mut self.entity;
        // The engines of profiles start at a fixed number in each run. Here a reused number would
        // get the result of the transaction that had it first.
        config.first_sequence = None;
        config.catch_up = process.catch_up;
        config.default_remote.unpaced_window = Some(process.unpaced_window);
        // What was received survives a silence, and the sender's command resumes.
        match process.role {
            ProcessRole::Client { .. } => {
                config.default_remote.progress_prompt = Some(process.reply_interval);
                config.faults.set(ConditionCode::InactivityDetected, FaultHandler::Suspend);
            }
            ProcessRole::Server { .. } => config.keep_silent = true,
        }
        config.indications.suspended = true;
        Ok(())
    }

    fn finish(&mut self, process: &Process) -> Result<Option<u64>, SpecError> {
        self.set_entity(self.entity.entity);
        if let Carrier::Ltp { below, .. } = &mut self.carrier {
            // A client keeps no session records.
            below.ltp.journal &= process.role.is_server();
            return below.ltp.finish(process);
        }
        let config = &mut self.entity;
        if process.rate_bps.is_some() {
            // A remote's rate would override the given rate of the path.
            config.default_remote.rate_bps = None;
            config.remotes.values_mut().for_each(|remote| remote.rate_bps = None);
        }
        let remote = process.remote.map(|remote| config.remote(remote));
        Ok(remote.unwrap_or(&config.default_remote).rate_bps)
    }

    fn peer_ports(&self) -> usize {
        match &self.carrier {
            Carrier::Datagrams => 0,
            Carrier::Ltp { below, .. } => below.ltp.peer_ports(),
        }
    }

    fn cfdp(&mut self) -> Option<&mut cfdp::Config> {
        Some(&mut self.entity)
    }
}
