//! Adapters: one file a protocol, which joins its engine to the [contract](crate::contract).

pub mod bundles;
pub mod cfdp;
pub mod cfdp_over_ltp;
pub mod layered_cfdp;
pub mod ltp;
pub mod norm;
pub mod over_tcp;
pub mod saratoga;

use crate::contract::Configuration;
use crate::mib::Class;
use crate::overlay::Overlay;
use crate::protocol::{Kind, Protocol};
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

/// Configuration of entity `entity` under `protocol`, changed by `settings`.
///
/// # Errors
///
/// The profile does not exist, or the settings are wrong.
pub fn configure(
    protocol: &Protocol,
    entity: u64,
    settings: Option<&Settings>,
) -> Result<Box<dyn Configuration>, SpecError> {
    let adapter = protocol.kind.adapter();
    let mut configuration = adapter.configuration(protocol, entity)?;
    if let Some(settings) = settings {
        configuration.apply(&settings.clone().interpreted(adapter)?)?;
    }
    configuration.set_entity(entity);
    configuration.check(protocol)?;
    Ok(configuration)
}

/// Checks that the profile of a protocol exists.
///
/// # Errors
///
/// It does not.
pub fn check_profile(protocol: &Protocol) -> Result<(), SpecError> {
    protocol.kind.adapter().configuration(protocol, 1).map(drop)
}

pub(crate) fn no_profile(of: &str, name: &str, known: &[&str]) -> SpecError {
    let near = crate::text::did_you_mean(name, known.iter().copied());
    let known = known.join(", ");
    SpecError::invalid(format!("{of} has no profile {name:?}{near} (profiles: {known})"))
}

/// Implements [`engine::Engine`] by the engine in a field, and the method `event`.
macro_rules! engine_in {
    ($type:ty, $field:ident $(, $layer:ident: $bound:ident)?) => {
        impl$(<$layer: $bound>)? engine::Engine for $type {
            type Indication = $crate::event::Event;

            fn handle_input(&mut self, now: engine::Time, input: engine::Input<'_>) {
                engine::Engine::handle_input(&mut self.$field, now, input);
            }

            fn handle_timeout(&mut self, now: engine::Time) {
                engine::Engine::handle_timeout(&mut self.$field, now);
            }

            fn poll_transmit(
                &mut self,
                now: engine::Time,
                tx: &mut engine::TxBuf,
            ) -> Option<engine::Transmit> {
                engine::Engine::poll_transmit(&mut self.$field, now, tx)
            }

            fn poll_effect(&mut self) -> Option<engine::Effect> {
                engine::Engine::poll_effect(&mut self.$field)
            }

            fn poll_indication(&mut self) -> Option<$crate::event::Event> {
                self.event()
            }

            fn poll_timeout(&self) -> Option<engine::Deadline> {
                engine::Engine::poll_timeout(&self.$field)
            }
        }
    };
}

use engine_in;

#[cfg(test)]
mod tests {
    use proto::{cfdp, ltp, norm, saratoga};

    use super::cfdp::CFDP_PROFILES;
    use super::ltp::LTP_PROFILES;
    use super::norm::NORM_PROFILES;
    use super::saratoga::SARATOGA_PROFILES;
    use crate::adapter::over_tcp::config::OverTcpConfig;

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
