//! The settings of an engine as TOML, in the keys of the protocol it speaks.
//!
//! One file or table is for one protocol, and does not say which: whoever reads it knows. In a
//! scenario that is so once all of it is read, so a table may wait there to be interpreted.

mod apply;
pub mod changes;
pub mod keys;
mod read;
pub mod tcp;
#[cfg(test)]
mod tests;
mod value;
mod walk;
mod write;

use std::fmt;
use std::path::Path;

use proto::settings::form::{Leaf, Word, Words};
use proto::settings::{self, Bound, Value, Visited, Visitor, Wrong};
use proto::{cfdp, ltp, norm, saratoga};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::changes::Changes;
pub use self::keys::{Authentication, Key, KeyId, Secret, Suite};
use self::tcp::{TcpBuffers, TcpSettings};
use crate::adapter::Adapter;
use crate::adapter::saratoga::SaratogaConfig;
use crate::bundles::{BundlesConfig, CfdpUser};
use crate::carried::CfdpLtpConfig;
use crate::over_tcp::OverTcpConfig;
use crate::pep::PepConfig;
use crate::quantity::Span;
use crate::text::{self, SpecError};

/// Changes of a CFDP entity: its management information base.
///
/// ```toml
/// entity = 1
/// [default]                 # what holds for every remote entity
/// nak_mode = "deferred"
/// [remotes.2]               # and what differs for entity 2
/// ack_timer = "50 s"
/// ```
pub type Mib = Changes<cfdp::Config>;

/// Changes of an LTP engine.
pub type LtpSettings = Changes<ltp::Config>;

/// Changes of a NORM node.
pub type NormSettings = Changes<norm::Config>;

/// Changes of a Saratoga peer, and of what it knows of others.
pub type SaratogaSettings = Changes<SaratogaConfig>;

/// Changes of a CFDP entity over LTP.
pub type CfdpLtpSettings = Changes<CfdpLtpConfig>;

/// Changes of a CFDP entity that is an application of a bundle node.
pub type CfdpUserSettings = Changes<CfdpUser>;

/// Changes of a bundle node.
pub type BundlesSettings = Changes<BundlesConfig>;

/// Changes of a node over TCP: FTP, SCPS-FP, or a program that is modelled.
pub type OverTcpSettings = Changes<OverTcpConfig>;

/// Changes of a gateway that splits TCP connections.
pub type PepSettings = Changes<PepConfig>;

impl settings::Settings for SaratogaConfig {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let Self { config, remotes, .. } = self;
        saratoga::Named { config, remotes }.visit(visitor)
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.config.check()
    }
}

/// Settings of a transport as TOML; the adapter of its protocol knows the keys.
#[derive(Clone, Default)]
pub struct Settings {
    table: toml::Table,
    /// Protocol that they were read for; `None` while that is not known.
    adapter: Option<&'static dyn Adapter>,
}

/// Settings are the same if they say the same, whoever reads them.
impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
    }
}

/// Without values, which may be secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.table.keys()).finish()
    }
}

impl Settings {
    /// Settings that a structure holds.
    ///
    /// # Errors
    ///
    /// A number is too large for TOML.
    pub fn of(settings: &impl Serialize) -> Result<Self, SpecError> {
        let table = toml::Table::try_from(settings);
        let table = table.map_err(|error| SpecError::invalid(error.to_string()))?;
        Ok(Self { table, adapter: None })
    }

    /// Reads the table that `keys` lead to in `text`, which came from `origin`, for a protocol.
    ///
    /// # Errors
    ///
    /// Names the line, the key and, for a key that does not exist, the nearest that does.
    pub fn parse(
        text: &str,
        origin: &str,
        keys: &[&str],
        adapter: &'static dyn Adapter,
    ) -> Result<Self, SpecError> {
        adapter.parse(text, origin, keys)?;
        Ok(Self { table: text::parse_at(text, origin, keys)?, adapter: Some(adapter) })
    }

    /// These settings as those of a protocol.
    ///
    /// # Errors
    ///
    /// They are for another, or wrong.
    pub fn interpreted(self, adapter: &'static dyn Adapter) -> Result<Self, SpecError> {
        if let Some(other) = self.adapter.filter(|other| other.title() != adapter.title()) {
            return Err(SpecError::invalid(format!("these settings are for {}", other.title())));
        }
        adapter.check(&self)?;
        Ok(Self { adapter: Some(adapter), ..self })
    }

    /// The settings as a structure.
    ///
    /// # Errors
    ///
    /// A key does not exist, or a value is wrong.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T, SpecError> {
        let read = self.table.clone().try_into();
        read.map_err(|error| SpecError::invalid(text::message(&error)))
    }

    /// Whether there is a value of this key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The table below a key, if there is one.
    #[must_use]
    pub fn below(&self, key: &str) -> Option<Self> {
        let table = self.table.get(key)?.as_table()?.clone();
        Some(Self { table, adapter: None })
    }

    /// The table below a key, to change it.
    pub(crate) fn below_mut(&mut self, key: &str) -> Option<&mut toml::Table> {
        let table = || toml::Value::Table(toml::Table::new());
        self.table.entry(key).or_insert_with(table).as_table_mut()
    }

    /// The same settings with another table.
    pub(crate) fn replaced(&mut self, by: Self) {
        self.table = by.table;
    }

    /// The settings as TOML, without secrets.
    ///
    /// # Errors
    ///
    /// Never for settings that were read.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        toml::to_string(self).map_err(|error| SpecError::invalid(error.to_string()))
    }

    /// Settings of TCP's connections, if there are any.
    #[must_use]
    pub fn tcp(&self) -> Option<TcpSettings> {
        self.below(TCP)?.typed().ok()
    }

    /// Settings of a protocol with these settings of TCP's connections; `None` for a protocol
    /// without TCP.
    #[must_use]
    pub fn of_tcp(adapter: &'static dyn Adapter, tcp: &TcpSettings) -> Option<Self> {
        let tcp = Self::of(tcp).ok().filter(|_| adapter.has_tcp())?;
        let table = [(TCP.to_owned(), toml::Value::Table(tcp.table))].into_iter().collect();
        Some(Self { table, adapter: Some(adapter) })
    }

    /// Limits the growth of TCP's buffers, in place of what the settings said; nothing changes for
    /// protocols without TCP.
    pub fn limit_tcp_buffers(&mut self, buffers: TcpBuffers) {
        if !self.adapter.is_some_and(Adapter::has_tcp) {
            return;
        }
        let mut tcp = self.tcp().unwrap_or_default();
        tcp.limit_buffers(buffers);
        if let (Ok(tcp), Some(table)) = (Self::of(&tcp), self.below_mut(TCP)) {
            *table = tcp.table;
        }
    }

    /// Finds the files they name relative to `folder`, where the file that names them is.
    pub fn place(&mut self, folder: &Path) {
        if let Some(adapter) = self.adapter {
            adapter.place(&mut self.table, folder);
        }
    }

    /// All settings, with the keys that `given` has, and where it has them.
    pub fn add_keys_of(&mut self, given: &Self) {
        if let Some(adapter) = given.adapter {
            adapter.add_keys(&mut self.table, &given.table);
            self.adapter = Some(adapter);
        }
    }
}

/// Key of the settings of TCP's connections.
const TCP: &str = "tcp";

/// Key of a table with keys of authentication, and the one that is never written.
const AUTHENTICATION: &str = "authentication";
const SECRET: &str = "secret";

/// Adds tables of authentication keys to settings, where `given` has them.
pub(crate) fn add_keys(all: &mut toml::Table, given: &toml::Table) {
    for (key, value) in given {
        if key == AUTHENTICATION {
            all.insert(key.clone(), value.clone());
        } else if let toml::Value::Table(given) = value
            && let Some(all) = all.get_mut(key).and_then(toml::Value::as_table_mut)
        {
            add_keys(all, given);
        }
    }
}

/// Makes the paths of key files in a table of settings relative to `folder`.
pub(crate) fn place_keys(settings: &mut toml::Table, folder: &Path) {
    for (key, value) in settings.iter_mut() {
        match value.as_table_mut() {
            Some(table) if key == AUTHENTICATION => place_files(table, folder),
            Some(table) => place_keys(table, folder),
            None => {}
        }
    }
}

fn place_files(keys: &mut toml::Table, folder: &Path) {
    for (key, value) in keys.iter_mut() {
        if let toml::Value::String(file) = value
            && key == "file"
        {
            let path = folder.join(&*file);
            let path = std::path::absolute(&path).unwrap_or(path);
            *file = path.to_string_lossy().into_owned();
        } else if let toml::Value::Table(table) = value {
            place_files(table, folder);
        } else if let toml::Value::Array(keys) = value {
            let tables = keys.iter_mut().filter_map(toml::Value::as_table_mut);
            tables.for_each(|table| place_files(table, folder));
        }
    }
}

fn without_secrets(table: &mut toml::Table) {
    table.remove(SECRET);
    for (_, value) in table.iter_mut() {
        if let toml::Value::Table(table) = value {
            without_secrets(table);
        } else if let toml::Value::Array(values) = value {
            values.iter_mut().filter_map(toml::Value::as_table_mut).for_each(without_secrets);
        }
    }
}

/// Without secrets.
impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = self.table.clone();
        without_secrets(&mut table);
        table.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        toml::Table::deserialize(deserializer).map(|table| Self { table, adapter: None })
    }
}

/// Checks a value outside of tables of settings against a bound; messages begin with `key`.
///
/// # Errors
///
/// It is out of bounds.
pub fn check(key: &str, bound: Bound, value: &Value) -> Result<(), SpecError> {
    value::check(bound, value).map_err(|rest| SpecError::invalid(format!("{key}{rest}")))
}

/// Checks an interval at which packets are sent unprompted, if it is given.
///
/// # Errors
///
/// It is shorter than 1 ms.
pub fn check_interval(key: &str, given: Option<Span>) -> Result<(), SpecError> {
    let interval = |span: Span| check(key, Bound::Interval, &Value::Span(span.duration()));
    given.map_or(Ok(()), interval)
}

/// Reads a field of other tables in a form of settings.
///
/// # Errors
///
/// The value is not of the form.
pub fn read_as<'de, F: Leaf<T>, T: Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let given = toml::Value::deserialize(deserializer)?;
    let mut read = T::default();
    let set = value::read(&F::kind(), &given).and_then(|value| F::set(&mut read, value));
    set.map_err(serde::de::Error::custom).map(|()| read)
}

/// Writes a field of other tables in a form of settings.
///
/// # Errors
///
/// The serializer fails.
pub fn write_as<F: Leaf<T>, T, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    F::get(value).as_ref().and_then(value::write).serialize(serializer)
}

/// The value of an enum by its word in settings.
///
/// # Errors
///
/// Lists the words.
pub fn named<T: Words + PartialEq>(word: &str) -> Result<T, String> {
    let kind = <Word as Leaf<T>>::kind();
    value::read(&kind, &toml::Value::String(word.to_owned()))?;
    settings::form::value_of(word).ok_or_else(|| format!("no {word}"))
}
