//! Settings that have names or forms of their own.

use proto::cfdp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wire::cfdp::{ChecksumType, ConditionCode, FaultHandler, TransmissionMode};

use crate::quantity::{QuantityError, Span, Text};

/// Declares an enumeration of names that stand for values of another type.
macro_rules! named {
    ($(#[$about:meta])* $name:ident, $target:ty { $($(#[$doc:meta])* $variant:ident => $value:expr,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every one there is.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];
        }

        impl From<$name> for $target {
            fn from(name: $name) -> Self {
                match name {
                    $($name::$variant => $value,)+
                }
            }
        }
    };
}

named! {
    /// A fault (CCSDS 727.0-B-5 table 5-5).
    Condition, ConditionCode {
        /// Nobody acknowledged in time.
        AckLimit => ConditionCode::PositiveAckLimitReached,
        /// The receiver is too far behind.
        KeepAliveLimit => ConditionCode::KeepAliveLimitReached,
        /// The transmission mode cannot be used.
        InvalidMode => ConditionCode::InvalidTransmissionMode,
        /// The filestore refused.
        FilestoreRejection => ConditionCode::FilestoreRejection,
        /// The file does not match its checksum.
        ChecksumFailure => ConditionCode::FileChecksumFailure,
        /// Data beyond the end of the file.
        FileSizeError => ConditionCode::FileSizeError,
        /// Retransmission was asked for too often.
        NakLimit => ConditionCode::NakLimitReached,
        /// Nothing came for too long.
        Inactivity => ConditionCode::InactivityDetected,
        /// The file stayed incomplete.
        CheckLimit => ConditionCode::CheckLimitReached,
        /// The checksum type is not supported.
        UnsupportedChecksum => ConditionCode::UnsupportedChecksumType,
    }
}

named! {
    /// What to do about a fault.
    Handler, FaultHandler {
        /// Cancel the transaction.
        Cancel => FaultHandler::Cancel,
        /// Suspend it.
        Suspend => FaultHandler::Suspend,
        /// Go on.
        Ignore => FaultHandler::Ignore,
        /// Forget it at once.
        Abandon => FaultHandler::Abandon,
    }
}

named! {
    /// How a file's checksum is computed.
    Checksum, ChecksumType {
        /// Sum of 32-bit words.
        Modular => ChecksumType::Modular,
        /// CRC-32 of Proximity-1.
        Proximity1 => ChecksumType::Proximity1Crc32,
        /// CRC-32C.
        Crc32c => ChecksumType::Crc32c,
        /// CRC-32 of IEEE 802.3.
        Crc32 => ChecksumType::Crc32,
        /// None.
        Null => ChecksumType::Null,
    }
}

named! {
    /// Whose transactions another entity may look at or act on.
    Access, cfdp::Access {
        /// None.
        Nothing => cfdp::Access::Nothing,
        /// Those between it and this entity.
        Own => cfdp::Access::Own,
        /// All.
        All => cfdp::Access::All,
    }
}

impl From<cfdp::Access> for Access {
    fn from(access: cfdp::Access) -> Self {
        match access {
            cfdp::Access::Nothing => Self::Nothing,
            cfdp::Access::Own => Self::Own,
            cfdp::Access::All => Self::All,
        }
    }
}

/// A transmission class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Class 1.
    Unacknowledged,
    /// Class 2.
    Acknowledged,
}

impl From<Class> for TransmissionMode {
    fn from(class: Class) -> Self {
        match class {
            Class::Unacknowledged => Self::Unacknowledged,
            Class::Acknowledged => Self::Acknowledged,
        }
    }
}

/// The version bits of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BookVersion {
    /// Issues 1 to 4.
    Old,
    /// Issue 5.
    Current,
}

/// Reads and writes a two-valued setting as one of two numbers.
macro_rules! numbered {
    ($name:ident, $what:literal, $low:literal $low_variant:ident, $high:literal $high_variant:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u8(match self {
                    Self::$low_variant => $low,
                    Self::$high_variant => $high,
                })
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match u8::deserialize(deserializer)? {
                    $low => Ok(Self::$low_variant),
                    $high => Ok(Self::$high_variant),
                    other => Err(serde::de::Error::custom(format!(
                        concat!($what, " is ", $low, " or ", $high, ", not {}"),
                        other
                    ))),
                }
            }
        }
    };
}

numbered!(Class, "class", 1 Unacknowledged, 2 Acknowledged);
numbered!(BookVersion, "version", 0 Old, 1 Current);

/// A time, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// From light time and measurements.
    Auto,
    /// Always this long.
    Fixed(Span),
}

impl From<Timer> for cfdp::Timer {
    fn from(timer: Timer) -> Self {
        match timer {
            Timer::Auto => Self::Auto,
            Timer::Fixed(span) => Self::Fixed(span.duration()),
        }
    }
}

impl From<cfdp::Timer> for Timer {
    fn from(timer: cfdp::Timer) -> Self {
        match timer {
            cfdp::Timer::Auto => Self::Auto,
            cfdp::Timer::Fixed(duration) => Self::Fixed(Span(duration)),
        }
    }
}

impl std::str::FromStr for Timer {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Fixed),
        }
    }
}

impl Serialize for Timer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Timer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text::time_or_word("auto"))
    }
}

/// When missing data is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakMode {
    /// As soon as a gap shows.
    Immediate,
    /// When the end of the file was announced.
    Deferred,
    /// When the sender prompts for it.
    Prompted,
    /// At regular intervals.
    Asynchronous(Span),
}

impl From<NakMode> for cfdp::NakMode {
    fn from(mode: NakMode) -> Self {
        match mode {
            NakMode::Immediate => Self::Immediate,
            NakMode::Deferred => Self::Deferred,
            NakMode::Prompted => Self::Prompted,
            NakMode::Asynchronous(span) => Self::Asynchronous(span.duration()),
        }
    }
}

impl std::str::FromStr for NakMode {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text {
            "immediate" => Ok(Self::Immediate),
            "deferred" => Ok(Self::Deferred),
            "prompted" => Ok(Self::Prompted),
            _ => text.parse().map(Self::Asynchronous).map_err(|_| QuantityError::NotANumber {
                text: text.to_owned(),
                kind: "a NAK mode (immediate, deferred, prompted, or a time)",
                example: "deferred",
            }),
        }
    }
}

impl Serialize for NakMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Immediate => serializer.serialize_str("immediate"),
            Self::Deferred => serializer.serialize_str("deferred"),
            Self::Prompted => serializer.serialize_str("prompted"),
            Self::Asynchronous(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for NakMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text::time_or_word("deferred"))
    }
}
