//! The settings of a CFDP entity over LTP, and what it is told of the layer below whatever that is.

use std::path::Path;

use proto::ut;
use serde::{Deserialize, Serialize};

use super::form::{Form, table};
use super::{LtpSettings, Mib, some};
use crate::bundles::CfdpUser;
use crate::carried::CfdpLtpConfig;
use crate::quantity::Size;
use crate::text::SpecError;

/// Least octets of a PDU: the header, and what describes a file with names.
const PDU_MIN: u64 = 256;

/// Most octets of a PDU, whose data field has a length of 16 bits.
const PDU_MAX: u64 = 65_535;

/// What a user says of the layer below a CFDP entity; what is left out stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UtSettings {
    /// Octets of a PDU, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdu: Option<Size>,
    /// PDUs under way below to an entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Arrivals of which something is not safe yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<usize>,
    /// How often a PDU is handed down that failed below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Of bundles: the service of each node to which PDUs come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<u64>,
}

impl UtSettings {
    pub(crate) fn apply(&self, config: &mut ut::Config) -> Result<(), SpecError> {
        some("ut.window", self.window)?;
        some("ut.arrivals", self.arrivals)?;
        if let Some(pdu) = self.pdu {
            if !(PDU_MIN..=PDU_MAX).contains(&pdu.bytes()) {
                return Err(SpecError::invalid(format!(
                    "ut.pdu is {pdu}; a PDU has {PDU_MIN} to {PDU_MAX} octets"
                )));
            }
            config.pdu_max = pdu.value();
        }
        if self.attempts == Some(0) {
            return Err(SpecError::invalid("ut.attempts is 0; it must be at least 1"));
        }
        config.limits.window = self.window.unwrap_or(config.limits.window);
        config.limits.arrivals = self.arrivals.unwrap_or(config.limits.arrivals);
        config.attempts = self.attempts.unwrap_or(config.attempts);
        Ok(())
    }

    pub(crate) fn of(config: &ut::Config, service: Option<u64>) -> Self {
        Self {
            pdu: Form::of(&config.pdu_max),
            window: Some(config.limits.window),
            arrivals: Some(config.limits.arrivals),
            attempts: Some(config.attempts),
            service,
        }
    }
}

/// What of what an entity says is red.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Color {
    /// All.
    Red,
    /// All but file data.
    GreenData,
    /// Nothing.
    Green,
}

impl Form<ut::Color> for Color {
    fn of(value: &ut::Color) -> Option<Self> {
        Some(match value {
            ut::Color::Red => Self::Red,
            ut::Color::GreenData => Self::GreenData,
            ut::Color::Green => Self::Green,
        })
    }

    fn value(&self) -> ut::Color {
        match self {
            Self::Red => ut::Color::Red,
            Self::GreenData => ut::Color::GreenData,
            Self::Green => ut::Color::Green,
        }
    }
}

table! {
    /// What a user says about a CFDP entity over LTP; what is left out stays as it is.
    CfdpLtpSettings: ut::LtpConfig {
        /// What of what the entity says is red.
        color: Color,
    }
    also {
        /// PDUs below the entity.
        #[serde(skip_serializing_if = "Option::is_none")]
        ut: Option<UtSettings>,
        /// The entity.
        #[serde(skip_serializing_if = "Option::is_none")]
        cfdp: Option<Mib>,
        /// LTP below it.
        #[serde(skip_serializing_if = "Option::is_none")]
        ltp: Option<LtpSettings>,
    }
}

impl CfdpLtpSettings {
    /// Changes `config` to what is said here.
    ///
    /// # Errors
    ///
    /// When a value is out of its range.
    pub fn apply(&self, config: &mut CfdpLtpConfig) -> Result<(), SpecError> {
        self.apply_fields(&mut config.below);
        if let Some(ut) = &self.ut {
            if ut.service.is_some() {
                return Err(SpecError::invalid(
                    "ut.service is of bundles; CFDP is LTP's client service 3",
                ));
            }
            ut.apply(&mut config.ut)?;
        }
        if let Some(mib) = &self.cfdp {
            mib.apply(&mut config.cfdp).map_err(|error| error.below("cfdp"))?;
        }
        if let Some(ltp) = &self.ltp {
            ltp.apply(&mut config.below.ltp).map_err(|error| error.below("ltp"))?;
        }
        Ok(())
    }

    /// Everything that `config` says.
    #[must_use]
    pub fn of(config: &CfdpLtpConfig) -> Self {
        Self {
            ut: Some(UtSettings::of(&config.ut, None)),
            cfdp: Some(Mib::of(&config.cfdp)),
            ltp: Some(LtpSettings::of(&config.below.ltp)),
            ..Self::of_fields(&config.below)
        }
    }
}

/// What a user says about a CFDP entity that is an application of a bundle node; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CfdpUserSettings {
    /// PDUs below the entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ut: Option<UtSettings>,
    /// The entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cfdp: Option<Mib>,
}

impl CfdpUserSettings {
    /// Changes `told` to what a file says.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or a value is out of its range.
    pub fn apply_file(path: &Path, told: &mut CfdpUser) -> Result<(), SpecError> {
        let settings: Self = crate::text::read(path)?;
        settings.apply(told).map_err(|error| error.within(path))
    }

    pub(super) fn apply(&self, told: &mut CfdpUser) -> Result<(), SpecError> {
        if let Some(ut) = &self.ut {
            ut.apply(&mut told.ut)?;
            told.service = ut.service.unwrap_or(told.service);
        }
        self.cfdp
            .as_ref()
            .map_or(Ok(()), |mib| mib.apply(&mut told.cfdp).map_err(|error| error.below("cfdp")))
    }
}
