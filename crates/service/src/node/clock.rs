//! Use of the machine's clock by a node.

use std::fmt;

use rt::node::WallClock;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Word for a clock that is used once it is synchronised.
const WHEN_SYNCHRONISED: &str = "when-synchronised";

/// Use of the machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockUse {
    /// `false`: bundles carry their age.
    No,
    /// `true`: from the start on.
    #[default]
    Yes,
    /// `"when-synchronised"`: as soon as the kernel reports it as synchronised.
    WhenSynchronised,
}

impl ClockUse {
    pub(super) const fn wall(self) -> WallClock {
        match self {
            Self::No => WallClock::Unused,
            Self::Yes => WallClock::Always,
            Self::WhenSynchronised => WallClock::WhenSynchronised,
        }
    }
}

impl Serialize for ClockUse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::No => serializer.serialize_bool(false),
            Self::Yes => serializer.serialize_bool(true),
            Self::WhenSynchronised => serializer.serialize_str(WHEN_SYNCHRONISED),
        }
    }
}

impl<'de> Deserialize<'de> for ClockUse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FlagOrWord)
    }
}

struct FlagOrWord;

impl de::Visitor<'_> for FlagOrWord {
    type Value = ClockUse;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "true, false or {WHEN_SYNCHRONISED:?}")
    }

    fn visit_bool<E: de::Error>(self, is_used: bool) -> Result<ClockUse, E> {
        Ok(if is_used { ClockUse::Yes } else { ClockUse::No })
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<ClockUse, E> {
        if word == WHEN_SYNCHRONISED {
            return Ok(ClockUse::WhenSynchronised);
        }
        Err(E::invalid_value(de::Unexpected::Str(word), &self))
    }
}
