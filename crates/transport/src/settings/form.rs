//! How values of an engine's settings are written.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quantity::{Size, Span};

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
