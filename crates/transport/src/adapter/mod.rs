//! Adapters: one file per protocol, which joins its engine to the [contract](crate::contract).

pub mod bundles;
pub mod cfdp;
pub mod ltp;
pub mod norm;
pub mod over_tcp;
pub mod saratoga;

use std::time::Duration;

use crate::contract::{Configuration, Protocol};
use crate::settings::Settings;
use crate::text::SpecError;

/// Milliseconds from the beginning of 2000 to that of 2026, where a world begins: 9,497 days.
pub(crate) const EPOCH: u64 = 9_497 * 86_400_000;

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

/// Error about a profile that does not exist, with those that do.
#[must_use]
pub fn no_profile(of: &str, name: &str, known: &[&str]) -> SpecError {
    let near = crate::text::did_you_mean(name, known.iter().copied());
    let known = known.join(", ");
    SpecError::invalid(format!(
        "{of} has no profile {:?}{near} (profiles: {known})",
        wire::excerpt(name)
    ))
}

/// Silence of a peer after which it needs no more replies, for protocols that repeat the last
/// message until the peer confirms it; `is_confirmed`: it has.
fn repeated_silence(is_confirmed: bool) -> Option<Duration> {
    Some(if is_confirmed { Duration::ZERO } else { Duration::from_secs(5) })
}

/// Implements [`engine::Engine`] with the engine in a field, and the method `event`.
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

/// Implements [`engine::Engine`] for an enum of engines, each with the conversion of its
/// indications.
macro_rules! engine_of {
    ($type:ty, $indication:ty, { $($variant:ident: $convert:expr),+ $(,)? }) => {
        impl engine::Engine for $type {
            type Indication = $indication;

            fn handle_input(&mut self, now: engine::Time, input: engine::Input<'_>) {
                match self { $(Self::$variant(engine) => engine.handle_input(now, input)),+ }
            }

            fn handle_timeout(&mut self, now: engine::Time) {
                match self { $(Self::$variant(engine) => engine.handle_timeout(now)),+ }
            }

            fn poll_transmit(
                &mut self,
                now: engine::Time,
                tx: &mut engine::TxBuf,
            ) -> Option<engine::Transmit> {
                match self { $(Self::$variant(engine) => engine.poll_transmit(now, tx)),+ }
            }

            fn poll_effect(&mut self) -> Option<engine::Effect> {
                match self { $(Self::$variant(engine) => engine.poll_effect()),+ }
            }

            fn poll_indication(&mut self) -> Option<$indication> {
                match self { $(Self::$variant(engine) => engine.poll_indication().map($convert)),+ }
            }

            fn poll_timeout(&self) -> Option<engine::Deadline> {
                match self { $(Self::$variant(engine) => engine.poll_timeout()),+ }
            }
        }
    };
}

use engine_of;

#[cfg(test)]
mod tests {

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
