//! How values of an engine's settings are written.

use std::fmt;
use std::time::Duration;

use proto::{ltp, norm, saratoga};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wire::saratoga::Width;

use crate::mib::Timer;
use crate::quantity::{Rate, Size, Span};

/// A form in which a value of type `T` is written.
pub(super) trait Form<T>: Sized {
    /// The form of a value; nothing where it is said by leaving it out.
    fn of(value: &T) -> Option<Self>;

    /// The value of a form.
    fn value(&self) -> T;
}

macro_rules! as_it_is {
    ($($type:ty),+) => {$(
        impl Form<$type> for $type {
            fn of(value: &$type) -> Option<Self> {
                Some(value.clone())
            }

            fn value(&self) -> $type {
                self.clone()
            }
        }
    )+};
}

as_it_is!(bool, u8, u16, u32, u64, usize, String);

impl Form<u64> for Size {
    fn of(value: &u64) -> Option<Self> {
        Some(Self(*value))
    }

    fn value(&self) -> u64 {
        self.bytes()
    }
}

impl Form<usize> for Size {
    fn of(value: &usize) -> Option<Self> {
        Some(Self(*value as u64))
    }

    fn value(&self) -> usize {
        usize::try_from(self.bytes()).unwrap_or(usize::MAX)
    }
}

impl Form<Duration> for Span {
    fn of(value: &Duration) -> Option<Self> {
        Some(Self(*value))
    }

    fn value(&self) -> Duration {
        self.duration()
    }
}

impl Form<ltp::Timer> for Timer {
    fn of(value: &ltp::Timer) -> Option<Self> {
        Some((*value).into())
    }

    fn value(&self) -> ltp::Timer {
        (*self).into()
    }
}

/// Without a rate, that of the path holds.
impl Form<Option<u64>> for Rate {
    fn of(value: &Option<u64>) -> Option<Self> {
        value.map(Self)
    }

    fn value(&self) -> Option<u64> {
        Some(self.bps())
    }
}

/// A setting, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch<F> {
    /// There is none.
    Off,
    /// This one.
    On(F),
}

impl<F> Switch<F> {
    /// The setting, if there is one.
    pub fn on(self) -> Option<F> {
        match self {
            Self::Off => None,
            Self::On(form) => Some(form),
        }
    }
}

impl<T, F: Form<T>> Form<Option<T>> for Switch<F> {
    fn of(value: &Option<T>) -> Option<Self> {
        match value {
            None => Some(Self::Off),
            Some(value) => F::of(value).map(Self::On),
        }
    }

    fn value(&self) -> Option<T> {
        match self {
            Self::Off => None,
            Self::On(form) => Some(form.value()),
        }
    }
}

const OFF: &str = "off";

impl<F: Serialize> Serialize for Switch<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str(OFF),
            Self::On(form) => form.serialize(serializer),
        }
    }
}

impl<'de, F: Deserialize<'de>> Deserialize<'de> for Switch<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnOrOff(std::marker::PhantomData))
    }
}

struct OnOrOff<F>(std::marker::PhantomData<F>);

impl<'de, F: Deserialize<'de>> Visitor<'de> for OnOrOff<F> {
    type Value = Switch<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a setting, or {OFF:?}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Switch<F>, E> {
        match text {
            OFF => Ok(Switch::Off),
            _ => F::deserialize(text.into_deserializer()).map(Switch::On),
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Switch<F>, E> {
        F::deserialize(value.into_deserializer()).map(Switch::On)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Switch<F>, E> {
        F::deserialize(value.into_deserializer()).map(Switch::On)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Switch<F>, A::Error> {
        F::deserialize(MapAccessDeserializer::new(map)).map(Switch::On)
    }
}

/// How wide a descriptor of Saratoga is, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits(pub Width);

const WIDTHS: [(u64, Width); 4] =
    [(16, Width::W16), (32, Width::W32), (64, Width::W64), (128, Width::W128)];

impl Form<Width> for Bits {
    fn of(value: &Width) -> Option<Self> {
        Some(Self(*value))
    }

    fn value(&self) -> Width {
        self.0
    }
}

impl Serialize for Bits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(8 * self.0.octets() as u64)
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = u64::deserialize(deserializer)?;
        let known = WIDTHS.into_iter().find(|(bits, _)| *bits == given);
        known.map(|(_, width)| Self(width)).ok_or_else(|| {
            de::Error::custom(format!("a descriptor has 16, 32, 64 or 128 bits, not {given}"))
        })
    }
}

/// The version of Saratoga.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub saratoga::Version);

impl Form<saratoga::Version> for Version {
    fn of(value: &saratoga::Version) -> Option<Self> {
        Some(Self(*value))
    }

    fn value(&self) -> saratoga::Version {
        self.0
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(match self.0 {
            saratoga::Version::V0 => 0,
            saratoga::Version::V1 => 1,
        })
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            0 => Ok(Self(saratoga::Version::V0)),
            1 => Ok(Self(saratoga::Version::V1)),
            other => Err(de::Error::custom(format!("version is 0 or 1, not {other}"))),
        }
    }
}

/// The checksum of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSum {
    /// None.
    None,
    /// CRC-32C.
    Crc32,
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
}

impl Form<saratoga::ChecksumKind> for FileSum {
    fn of(value: &saratoga::ChecksumKind) -> Option<Self> {
        Some(match value {
            saratoga::ChecksumKind::None => Self::None,
            saratoga::ChecksumKind::Crc32 => Self::Crc32,
            saratoga::ChecksumKind::Md5 => Self::Md5,
            saratoga::ChecksumKind::Sha1 => Self::Sha1,
        })
    }

    fn value(&self) -> saratoga::ChecksumKind {
        match self {
            Self::None => saratoga::ChecksumKind::None,
            Self::Crc32 => saratoga::ChecksumKind::Crc32,
            Self::Md5 => saratoga::ChecksumKind::Md5,
            Self::Sha1 => saratoga::ChecksumKind::Sha1,
        }
    }
}

/// What a sender heeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Heed {
    /// No congestion.
    Off,
    /// Congestion, by TFRC.
    Tfrc,
}

impl Form<saratoga::Congestion> for Heed {
    fn of(value: &saratoga::Congestion) -> Option<Self> {
        Some(match value {
            saratoga::Congestion::Off => Self::Off,
            saratoga::Congestion::Tfrc => Self::Tfrc,
        })
    }

    fn value(&self) -> saratoga::Congestion {
        match self {
            Self::Off => saratoga::Congestion::Off,
            Self::Tfrc => saratoga::Congestion::Tfrc,
        }
    }
}

/// The code of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Code {
    /// None: FEC id 0.
    None,
    /// Reed-Solomon over GF(2^8): FEC id 5.
    Rs8,
    /// The same as FEC id 129.
    #[serde(rename = "rs8-129")]
    Rs8Old,
    /// Reed-Solomon over GF(2^16): FEC id 2.
    Rs16,
}

impl Form<norm::Scheme> for Code {
    fn of(value: &norm::Scheme) -> Option<Self> {
        match value {
            norm::Scheme::NoCode => Some(Self::None),
            norm::Scheme::ReedSolomon8 => Some(Self::Rs8),
            norm::Scheme::SmallBlockSystematic => Some(Self::Rs8Old),
            norm::Scheme::ReedSolomonM => Some(Self::Rs16),
            norm::Scheme::Other(_) => None,
        }
    }

    fn value(&self) -> norm::Scheme {
        match self {
            Self::None => norm::Scheme::NoCode,
            Self::Rs8 => norm::Scheme::ReedSolomon8,
            Self::Rs8Old => norm::Scheme::SmallBlockSystematic,
            Self::Rs16 => norm::Scheme::ReedSolomonM,
        }
    }
}

/// How a NORM sender ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// With flushes.
    Flush,
    /// When all receivers acknowledged.
    Acknowledged,
}

impl Form<norm::EndGame> for End {
    fn of(value: &norm::EndGame) -> Option<Self> {
        Some(match value {
            norm::EndGame::Flush => Self::Flush,
            norm::EndGame::Acknowledged => Self::Acknowledged,
        })
    }

    fn value(&self) -> norm::EndGame {
        match self {
            Self::Flush => norm::EndGame::Flush,
            Self::Acknowledged => norm::EndGame::Acknowledged,
        }
    }
}

/// A number, or `auto`: what is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Estimate {
    /// It is said.
    Said(u32),
    /// It is estimated.
    Estimated(Auto),
}

/// The word for what is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    /// There is no other.
    Auto,
}

impl Form<Option<u32>> for Estimate {
    fn of(value: &Option<u32>) -> Option<Self> {
        Some(value.map_or(Self::Estimated(Auto::Auto), Self::Said))
    }

    fn value(&self) -> Option<u32> {
        match self {
            Self::Said(value) => Some(*value),
            Self::Estimated(Auto::Auto) => None,
        }
    }
}

/// With what a NORM receiver begins that comes late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// With the next object.
    Current,
    /// With the object under way.
    Object,
    /// With all that the sender still has.
    All,
}

impl Form<norm::SyncPolicy> for Sync {
    fn of(value: &norm::SyncPolicy) -> Option<Self> {
        Some(match value {
            norm::SyncPolicy::Current => Self::Current,
            norm::SyncPolicy::Object => Self::Object,
            norm::SyncPolicy::All => Self::All,
        })
    }

    fn value(&self) -> norm::SyncPolicy {
        match self {
            Self::Current => norm::SyncPolicy::Current,
            Self::Object => norm::SyncPolicy::Object,
            Self::All => norm::SyncPolicy::All,
        }
    }
}

/// What a NORM receiver asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asking {
    /// Everything.
    Normal,
    /// NORM_INFO.
    Info,
    /// Nothing.
    None,
}

impl Form<norm::Nacking> for Asking {
    fn of(value: &norm::Nacking) -> Option<Self> {
        Some(match value {
            norm::Nacking::Normal => Self::Normal,
            norm::Nacking::InfoOnly => Self::Info,
            norm::Nacking::None => Self::None,
        })
    }

    fn value(&self) -> norm::Nacking {
        match self {
            Self::Normal => norm::Nacking::Normal,
            Self::Info => norm::Nacking::InfoOnly,
            Self::None => norm::Nacking::None,
        }
    }
}

/// When a NORM receiver asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Boundary {
    /// At the end of a block.
    Block,
    /// At the end of an object.
    Object,
}

impl Form<norm::RepairBoundary> for Boundary {
    fn of(value: &norm::RepairBoundary) -> Option<Self> {
        Some(match value {
            norm::RepairBoundary::Block => Self::Block,
            norm::RepairBoundary::Object => Self::Object,
        })
    }

    fn value(&self) -> norm::RepairBoundary {
        match self {
            Self::Block => norm::RepairBoundary::Block,
            Self::Object => norm::RepairBoundary::Object,
        }
    }
}

/// Where a NORM receiver begins with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Join {
    /// At its beginning, if that is still to be had.
    Beginning,
    /// Where it is first heard of.
    Heard,
}

impl Form<norm::Join> for Join {
    fn of(value: &norm::Join) -> Option<Self> {
        Some(match value {
            norm::Join::Beginning => Self::Beginning,
            norm::Join::Heard => Self::Heard,
        })
    }

    fn value(&self) -> norm::Join {
        match self {
            Self::Beginning => norm::Join::Beginning,
            Self::Heard => norm::Join::Heard,
        }
    }
}

/// Declares a table: its keys with their forms, each of which stands for the field of that name of
/// an engine's settings, or of the part of them that follows `=>`, and its other entries. Generates
/// `of_fields`, the table of settings, and `apply_fields`, which changes settings to what a table
/// says; both leave out what else is in it.
macro_rules! table {
    (
        $(#[$about:meta])*
        $name:ident: $target:ty {
            $($(#[$doc:meta])* $field:ident: $form:ty $(=> $inner:ident)?,)+
        }
        $(also { $($(#[$more:meta])* $other:ident: $type:ty,)+ })?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$form>,)+
            $($($(#[$more])* pub $other: $type,)+)?
        }

        impl $name {
            fn of_fields(target: &$target) -> Self {
                Self {
                    $($field: $crate::settings::form::Form::of(&target.$($inner.)?$field),)+
                    $($($other: <$type>::default(),)+)?
                }
            }

            fn apply_fields(&self, target: &mut $target) {
                $(if let Some(form) = &self.$field {
                    target.$($inner.)?$field = $crate::settings::form::Form::value(form);
                })+
            }
        }
    };
}

pub(super) use table;
