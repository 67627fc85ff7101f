//! Operations on a protocol before any engine runs it.

use super::{Configuration, Kind, Protocol};
use crate::mib::Class;
use crate::overlay::Overlay;
use crate::settings::{Schema, Settings};
use crate::text::SpecError;

/// Working files of a protocol in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spool {
    /// Prefix of their names.
    pub prefix: &'static str,
    /// Prefix of the keys of their records; the name of the file follows.
    pub record_prefix: &'static str,
}

impl Spool {
    /// Files whose names are the keys of their records.
    #[must_use]
    pub const fn with_prefix(prefix: &'static str) -> Self {
        Self { prefix, record_prefix: "" }
    }
}

/// Operations on a protocol before any engine runs it.
pub trait Adapter: Schema {
    /// Working files, which are removed after a crash unless a record refers to them.
    fn spools(&self) -> &'static [Spool] {
        &[]
    }

    /// Prefixes of the keys of all its records, which no other protocol of a store has.
    fn record_prefixes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the same request resumes an interrupted transfer.
    fn resumes(&self, _kind: Kind) -> bool {
        false
    }

    /// Configuration of an entity under a protocol.
    ///
    /// # Errors
    ///
    /// The profile does not exist.
    fn configuration(
        &self,
        protocol: &Protocol,
        entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError>;

    /// Transmission class towards an entity, if settings set it, in CFDP's terms.
    fn class(&self, _settings: &Settings, _remote: Option<u64>) -> Option<Class> {
        None
    }

    /// Makes `next` the next entity towards `to` in the settings of a waypoint; returns the
    /// previous one.
    ///
    /// # Errors
    ///
    /// The settings are wrong.
    fn add_route(
        &self,
        _settings: &mut Settings,
        _to: u64,
        _next: u64,
    ) -> Result<Option<u64>, SpecError> {
        Ok(None)
    }

    /// Makes a waypoint forward transfers of `from`, unless its settings differ.
    ///
    /// # Errors
    ///
    /// The settings are wrong.
    fn permit(
        &self,
        _settings: &mut Settings,
        _from: u64,
        _overlay: Overlay,
    ) -> Result<(), SpecError> {
        Ok(())
    }
}
