//! The settings of an engine as TOML, in the keys of the protocol it speaks.
//!
//! One file or table is for one protocol, and does not name it: the reader knows it. In a scenario
//! it is known only after the whole file was read, so a table may wait there to be interpreted.

mod apply;
pub mod changes;
mod combined;
pub mod keys;
mod read;
pub mod tcp;
#[cfg(test)]
mod tests;
mod value;
mod values;
mod write;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use session::settings::form::{Leaf, Word, Words};
use session::settings::{self, Bound, Value};

pub use self::changes::Changes;
pub use self::combined::Combined;
pub use self::keys::{Authentication, Key, KeyId, Secret, Suite};
use self::tcp::{TcpBuffers, TcpSettings};
pub use self::values::Values;
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

/// Changes of a router's settings.
pub type RouterSettings = Changes<routing::settings::Settings>;

/// Protocol whose settings are in tables of users.
pub trait Schema: Sync {
    /// Name in texts about its settings.
    fn title(&self) -> &'static str;

    /// Settings of the protocol, whose keys and kinds users' tables have.
    fn settings(&self) -> Box<dyn settings::Settings>;

    /// Whether TCP carries it, so that its settings have a table of TCP's.
    fn has_tcp(&self) -> bool {
        false
    }
}

/// Settings of a transport as TOML; the schema of its protocol has the keys.
#[derive(Clone, Default)]
pub struct Settings {
    values: Values,
    /// Protocol that they were read for; `None` while that is not known.
    schema: Option<&'static dyn Schema>,
}

impl Settings {
    /// All settings of a configuration, but keys of authentication.
    #[must_use]
    pub fn from_config<C: settings::Settings + Clone>(config: &C) -> Self {
        Self { values: Values(write::write(&mut config.clone())), schema: None }
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
        schema: &'static dyn Schema,
    ) -> Result<Self, SpecError> {
        let mut settings = schema.settings();
        let table = text::parse_at(text, origin, keys, |value| read::read(value, &mut *settings))?;
        let values = Values(table);
        Ok(Self { values, schema: Some(schema) })
    }

    /// These settings, interpreted for a protocol.
    ///
    /// # Errors
    ///
    /// The settings belong to another protocol, or are invalid.
    pub fn interpreted(self, schema: &'static dyn Schema) -> Result<Self, SpecError> {
        if let Some(other) = self.schema.filter(|other| other.title() != schema.title()) {
            return Err(SpecError::invalid(format!("these settings are for {}", other.title())));
        }
        let given = toml::Value::Table(self.values.0);
        let read: Result<_, toml::de::Error> = read::read(given, &mut *schema.settings());
        let table = read.map_err(|error| SpecError::invalid(text::message(&error)))?;
        Ok(Self { values: Values(table), schema: Some(schema) })
    }

    /// Changes a configuration of the protocol that they were read for.
    ///
    /// # Errors
    ///
    /// A value is out of its range, or a file that it names cannot be read.
    pub fn apply(&self, config: &mut dyn settings::Settings) -> Result<(), SpecError> {
        apply::apply(&self.values.0, config, "").map_err(SpecError::invalid)
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
        self.below(TCP).map(TcpSettings::from)
    }

    /// Settings of a protocol with these settings of TCP's connections; `None` for a protocol
    /// without TCP.
    #[must_use]
    pub fn of_tcp(schema: &'static dyn Schema, tcp: TcpSettings) -> Option<Self> {
        let mut settings = schema.has_tcp().then(Self::default)?;
        settings.set(&[TCP], tcp.into_table());
        Some(Self { schema: Some(schema), ..settings })
    }

    /// Limits the growth of TCP's buffers, in place of earlier settings; no effect for protocols
    /// without TCP.
    pub fn limit_tcp_buffers(&mut self, buffers: TcpBuffers) {
        if self.schema.is_some_and(Schema::has_tcp) {
            self.values.limit_buffers(&[TCP], buffers);
        }
    }

    /// Finds the files they name relative to `folder`, where the file that names them is.
    pub fn place(&mut self, folder: &Path) {
        if let Some(schema) = self.schema {
            self.values.place(&mut *schema.settings(), folder);
        }
    }

    /// All settings, with the authentication keys of `given` at their places.
    pub fn add_keys_of(&mut self, given: &Self) {
        values::add_keys(&mut self.values.0, &given.values.0);
        self.schema = given.schema;
    }
}

impl<C> From<Changes<C>> for Settings {
    fn from(changes: Changes<C>) -> Self {
        Self { values: Values(changes.into_table()), schema: None }
    }
}

impl Deref for Settings {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}

impl DerefMut for Settings {
    fn deref_mut(&mut self) -> &mut Values {
        &mut self.values
    }
}

/// Settings are equal if their keys and values are, for any reader.
impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.values.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = toml::Table::deserialize(deserializer)?;
        Ok(Self { values: Values(table), schema: None })
    }
}

/// Key of the settings of TCP's connections.
const TCP: &str = "tcp";

/// Checks a value outside of tables of settings against a bound; messages begin with `key`.
///
/// # Errors
///
/// The value is out of bounds.
pub fn check(key: &str, bound: Bound, value: &Value) -> Result<(), SpecError> {
    value::check(bound, value).map_err(|rest| SpecError::invalid(format!("{key}{rest}")))
}

/// Checks an interval at which packets are sent unprompted, if it is given.
///
/// # Errors
///
/// The interval is shorter than 1 ms.
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
