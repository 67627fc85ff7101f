//! Operations on a protocol before any engine runs it.

use super::{Configuration, Kind, Protocol};
use crate::mib::Class;
use crate::overlay::Overlay;
use crate::settings::{Schema, Settings};
use crate::text::SpecError;

/// Working files of a protocol in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spool {
    /// Beginning of their names.
    pub prefix: &'static str,
    /// Beginning of the keys of their records; the name of the file follows.
    pub record_prefix: &'static str,
}

impl Spool {
    /// Files whose records have their names for keys.
    #[must_use]
    pub const fn of(prefix: &'static str) -> Self {
        Self { prefix, record_prefix: "" }
    }
}

/// Operations on a protocol before any engine runs it.
pub trait Adapter: Schema {
    /// Working files, which are removed after a crash where no record is about them.
    fn spools(&self) -> &'static [Spool] {
        &[]
    }

    /// Whether a transfer that was interrupted is resumed by the same request.
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

    /// Transmission class towards an entity, as far as settings say it, in CFDP's words.
    fn class(&self, _settings: &Settings, _remote: Option<u64>) -> Option<Class> {
        None
    }

    /// Writes into the settings of a waypoint that `next` is the next entity on the way to `to`;
    /// returns the one that was before.
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

    /// Writes into the settings of a waypoint that it forwards what `from` sends, unless they say
    /// otherwise.
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
