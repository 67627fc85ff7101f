//! The settings of an engine as TOML, in the keys of the protocol it speaks.
//!
//! One file or table is for one protocol, and does not say which: whoever reads it knows. In a
//! scenario that is so once all of it is read, so a table may wait there to be interpreted.

mod apply;
pub mod bundles;
pub mod carried;
pub mod changes;
pub mod form;
pub mod keys;
pub mod over_tcp;
pub mod pep;
mod read;
pub mod scps;
pub mod tcp;
#[cfg(test)]
mod tests;
mod value;
mod walk;
mod write;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use proto::settings::{Visited, Visitor};
use proto::{ltp, norm, saratoga};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::bundles::BundlesSettings;
pub use self::carried::{CfdpLtpSettings, CfdpUserSettings, UtSettings};
pub use self::changes::Changes;
pub use self::form::Switch;
pub use self::keys::{Authentication, Key, KeyId, Secret, Suite};
pub use self::over_tcp::OverTcpSettings;
pub use self::pep::PepSettings;
use self::tcp::{TcpBuffers, TcpSettings};
use crate::engines::SaratogaConfig;
use crate::mib::{Mib, Timer};
use crate::protocol::Family;
use crate::quantity::{Size, Span};
use crate::text::{self, SpecError};

/// Changes of an LTP engine.
pub type LtpSettings = Changes<ltp::Config>;

/// Changes of a NORM node.
pub type NormSettings = Changes<norm::Config>;

/// Changes of a Saratoga peer, and of what it knows of others.
pub type SaratogaSettings = Changes<SaratogaConfig>;

impl proto::settings::Settings for SaratogaConfig {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let Self { config, remotes, .. } = self;
        saratoga::Named { config, remotes }.visit(visitor)
    }

    fn check(&mut self) -> Result<(), String> {
        self.config.check()
    }
}

/// What a user says about an engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Settings {
    /// A table whose protocol is not known yet.
    Unread(Unread),
    /// The management information base of a CFDP entity.
    Cfdp(Box<Mib>),
    /// The settings of an LTP engine.
    Ltp(Box<LtpSettings>),
    /// The settings of a CFDP entity over LTP.
    CfdpLtp(Box<CfdpLtpSettings>),
    /// The settings of a Saratoga peer.
    Saratoga(Box<SaratogaSettings>),
    /// The settings of a NORM node.
    Norm(Box<NormSettings>),
    /// The settings of a node over TCP: FTP, or a program that is modelled.
    OverTcp(Box<OverTcpSettings>),
    /// The settings of a bundle node.
    Bundles(Box<BundlesSettings>),
}

/// A table whose protocol is not known yet.
#[derive(Clone, PartialEq)]
pub struct Unread(toml::Table);

/// Without what it holds, which may be secret.
impl fmt::Debug for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Settings {
    /// Reads the file at `path`, which is for `family`.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn read(path: &Path, family: Family) -> Result<Self, SpecError> {
        let text = text::read_text(path)?;
        let mut settings = Self::parse(&text, &path.display().to_string(), &[], family)?;
        settings.place(path.parent().unwrap_or(Path::new("")));
        Ok(settings)
    }

    /// Reads the table that `keys` lead to in `text`, which came from `origin`, for `family`.
    ///
    /// # Errors
    ///
    /// Names the line, the key and, for a key that does not exist, the nearest that does.
    pub fn parse(
        text: &str,
        origin: &str,
        keys: &[&str],
        family: Family,
    ) -> Result<Self, SpecError> {
        Ok(match family {
            Family::Cfdp => Self::Cfdp(text::parse_at(text, origin, keys)?),
            Family::Ltp => Self::Ltp(text::parse_at(text, origin, keys)?),
            Family::CfdpLtp => Self::CfdpLtp(text::parse_at(text, origin, keys)?),
            Family::Saratoga => Self::Saratoga(text::parse_at(text, origin, keys)?),
            Family::Norm => Self::Norm(text::parse_at(text, origin, keys)?),
            Family::OverTcp => Self::OverTcp(text::parse_at(text, origin, keys)?),
            Family::Bundles => Self::Bundles(text::parse_at(text, origin, keys)?),
        })
    }

    /// These settings as those of an engine of `family`.
    ///
    /// # Errors
    ///
    /// When they are for another, or wrong.
    pub fn interpreted(self, family: Family) -> Result<Self, SpecError> {
        match (self, family) {
            (Self::Unread(Unread(table)), Family::Cfdp) => Ok(Self::Cfdp(interpret(table)?)),
            (Self::Unread(Unread(table)), Family::Ltp) => Ok(Self::Ltp(interpret(table)?)),
            (Self::Unread(Unread(table)), Family::CfdpLtp) => Ok(Self::CfdpLtp(interpret(table)?)),
            (Self::Unread(Unread(table)), Family::Saratoga) => {
                Ok(Self::Saratoga(interpret(table)?))
            }
            (Self::Unread(Unread(table)), Family::Norm) => Ok(Self::Norm(interpret(table)?)),
            (Self::Unread(Unread(table)), Family::OverTcp) => Ok(Self::OverTcp(interpret(table)?)),
            (Self::Unread(Unread(table)), Family::Bundles) => Ok(Self::Bundles(interpret(table)?)),
            (settings @ Self::Cfdp(_), Family::Cfdp)
            | (settings @ Self::Ltp(_), Family::Ltp)
            | (settings @ Self::CfdpLtp(_), Family::CfdpLtp)
            | (settings @ Self::Saratoga(_), Family::Saratoga)
            | (settings @ Self::Norm(_), Family::Norm)
            | (settings @ Self::OverTcp(_), Family::OverTcp)
            | (settings @ Self::Bundles(_), Family::Bundles) => Ok(settings),
            (Self::Cfdp(_), _) => Err(foreign("CFDP")),
            (Self::Ltp(_), _) => Err(foreign("LTP")),
            (Self::CfdpLtp(_), _) => Err(foreign("CFDP over LTP")),
            (Self::Saratoga(_), _) => Err(foreign("Saratoga")),
            (Self::Norm(_), _) => Err(foreign("NORM")),
            (Self::OverTcp(_), _) => Err(foreign("FTP and programs over TCP")),
            (Self::Bundles(_), _) => Err(foreign("bundle nodes")),
        }
    }

    /// The settings as TOML, without secrets.
    ///
    /// # Errors
    ///
    /// Never for settings that were read.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        toml::to_string(self).map_err(|error| SpecError::invalid(error.to_string()))
    }

    /// The MIB, if these are settings of CFDP, over whatever.
    #[must_use]
    pub fn mib(&self) -> Option<&Mib> {
        match self {
            Self::Cfdp(mib) => Some(mib),
            Self::CfdpLtp(settings) => settings.cfdp.as_ref(),
            Self::Bundles(settings) => settings.cfdp.as_ref(),
            Self::Unread(_)
            | Self::Ltp(_)
            | Self::Saratoga(_)
            | Self::Norm(_)
            | Self::OverTcp(_) => None,
        }
    }

    /// The MIB, if these are settings of CFDP over UDP.
    #[must_use]
    pub fn cfdp(&self) -> Option<&Mib> {
        match self {
            Self::Cfdp(mib) => Some(mib),
            Self::Unread(_)
            | Self::Ltp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(_)
            | Self::Norm(_)
            | Self::OverTcp(_)
            | Self::Bundles(_) => None,
        }
    }

    /// The same, to change it.
    pub fn cfdp_mut(&mut self) -> Option<&mut Mib> {
        match self {
            Self::Cfdp(mib) => Some(mib),
            Self::Unread(_)
            | Self::Ltp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(_)
            | Self::Norm(_)
            | Self::OverTcp(_)
            | Self::Bundles(_) => None,
        }
    }

    /// The settings of TCP's connections, if these are settings of a node over TCP or of a bundle
    /// node.
    #[must_use]
    pub fn tcp(&self) -> Option<&TcpSettings> {
        match self {
            Self::OverTcp(settings) => settings.tcp.as_ref(),
            Self::Bundles(settings) => settings.tcp.as_ref(),
            Self::Unread(_)
            | Self::Cfdp(_)
            | Self::Ltp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(_)
            | Self::Norm(_) => None,
        }
    }

    /// Settings of `family` with these settings of TCP's connections; `None` for a family without
    /// TCP.
    #[must_use]
    pub fn of_tcp(family: Family, tcp: TcpSettings) -> Option<Self> {
        match family {
            Family::OverTcp => Some(OverTcpSettings::of_tcp(tcp).into()),
            Family::Bundles => {
                Some(BundlesSettings { tcp: Some(tcp), ..BundlesSettings::default() }.into())
            }
            Family::Cfdp | Family::Ltp | Family::CfdpLtp | Family::Saratoga | Family::Norm => None,
        }
    }

    /// Limits the growth of TCP's buffers, in place of what the settings said; nothing changes for
    /// protocols without TCP.
    pub fn limit_tcp_buffers(&mut self, buffers: TcpBuffers) {
        let tcp = match self {
            Self::OverTcp(settings) => &mut settings.tcp,
            Self::Bundles(settings) => &mut settings.tcp,
            Self::Unread(_)
            | Self::Cfdp(_)
            | Self::Ltp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(_)
            | Self::Norm(_) => return,
        };
        tcp.get_or_insert_default().limit_buffers(buffers);
    }

    /// The settings of a bundle node, if they are such, to change them.
    pub fn bundles_mut(&mut self) -> Option<&mut BundlesSettings> {
        match self {
            Self::Bundles(settings) => Some(settings),
            Self::Unread(_)
            | Self::Cfdp(_)
            | Self::Ltp(_)
            | Self::CfdpLtp(_)
            | Self::Saratoga(_)
            | Self::Norm(_)
            | Self::OverTcp(_) => None,
        }
    }

    /// Finds the files they name beside the file in `folder` that names them.
    pub fn place(&mut self, folder: &Path) {
        match self {
            Self::Ltp(settings) => settings.place(folder),
            Self::CfdpLtp(settings) => settings.place(folder),
            Self::Bundles(settings) => settings.place(folder),
            Self::Unread(_)
            | Self::Cfdp(_)
            | Self::Saratoga(_)
            | Self::Norm(_)
            | Self::OverTcp(_) => {}
        }
    }
}

fn interpret<T: DeserializeOwned>(table: toml::Table) -> Result<T, SpecError> {
    table.try_into().map_err(|error| SpecError::invalid(text::message(&error)))
}

fn foreign(protocol: &str) -> SpecError {
    SpecError::invalid(format!("these settings are for {protocol}"))
}

impl From<Mib> for Settings {
    fn from(mib: Mib) -> Self {
        Self::Cfdp(Box::new(mib))
    }
}

impl From<LtpSettings> for Settings {
    fn from(settings: LtpSettings) -> Self {
        Self::Ltp(Box::new(settings))
    }
}

impl From<CfdpLtpSettings> for Settings {
    fn from(settings: CfdpLtpSettings) -> Self {
        Self::CfdpLtp(Box::new(settings))
    }
}

impl From<SaratogaSettings> for Settings {
    fn from(settings: SaratogaSettings) -> Self {
        Self::Saratoga(Box::new(settings))
    }
}

impl From<NormSettings> for Settings {
    fn from(settings: NormSettings) -> Self {
        Self::Norm(Box::new(settings))
    }
}

impl From<BundlesSettings> for Settings {
    fn from(settings: BundlesSettings) -> Self {
        Self::Bundles(Box::new(settings))
    }
}

impl From<OverTcpSettings> for Settings {
    fn from(settings: OverTcpSettings) -> Self {
        Self::OverTcp(Box::new(settings))
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unread(Unread(table)) => table.serialize(serializer),
            Self::Cfdp(mib) => mib.serialize(serializer),
            Self::Ltp(settings) => settings.serialize(serializer),
            Self::CfdpLtp(settings) => settings.serialize(serializer),
            Self::Saratoga(settings) => settings.serialize(serializer),
            Self::Norm(settings) => settings.serialize(serializer),
            Self::OverTcp(settings) => settings.serialize(serializer),
            Self::Bundles(settings) => settings.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        toml::Table::deserialize(deserializer).map(|table| Self::Unread(Unread(table)))
    }
}

/// Checks the least value of a size.
///
/// # Errors
///
/// When it is less; the message names `key`.
pub fn at_least(key: &str, given: Option<Size>, least: u64) -> Result<(), SpecError> {
    match given {
        Some(size) if size.bytes() < least => {
            Err(SpecError::invalid(format!("{key} is {size}; it must be at least {}", Size(least))))
        }
        Some(_) | None => Ok(()),
    }
}

fn some(key: &str, given: Option<usize>) -> Result<(), SpecError> {
    match given {
        Some(0) => Err(SpecError::invalid(format!("{key} is 0; it must be at least 1"))),
        Some(_) | None => Ok(()),
    }
}

/// The least time between packets that are sent unasked: less fills a link with them.
const UNASKED_MIN: Span = Span(Duration::from_millis(1));

/// Checks an interval at which packets are sent unasked.
///
/// # Errors
///
/// When it is shorter than 1 ms.
pub fn not_often(key: &str, given: Option<Span>) -> Result<(), SpecError> {
    match given {
        Some(span) if span < UNASKED_MIN => Err(SpecError::invalid(format!(
            "{key} is {span}; it must be at least {UNASKED_MIN}, or be left out"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Checks a timer at which packets are sent unasked.
///
/// # Errors
///
/// As [`not_often`].
pub(crate) fn not_at_once(key: &str, given: Option<Timer>) -> Result<(), SpecError> {
    match given {
        Some(Timer::Fixed(span)) => not_often(key, Some(span)),
        Some(Timer::Auto) | None => Ok(()),
    }
}
