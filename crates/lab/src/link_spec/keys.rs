//! TOML tables of optional keys.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize as _, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};

/// A table of optional keys, declared by `keys!`.
pub(super) trait Keys: Default {
    /// Names of all keys, in order.
    fn names() -> Vec<&'static str>;

    /// Reads the value of `key`; returns `false` if it has no such key.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, table: &mut A) -> Result<bool, A::Error>;

    /// Writes the keys that are given.
    fn write<S: SerializeMap>(&self, table: &mut S) -> Result<(), S::Error>;

    /// Returns each key of `self`, or of `base` where it is missing.
    fn laid_over(self, base: &Self) -> Self;
}

/// Name of a key: the field's, or another.
macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $name:literal) => {
        $name
    };
}

/// Declares a struct of optional keys and its `Keys`. A group of keys declared elsewhere is placed
/// between two `..`.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        pub struct $struct:ident {
            $($(#[$doc:meta])* $field:ident $(= $name:literal)?: $type:ty,)*
            $(
                ..
                $(#[$group_doc:meta])* $group:ident: $group_type:ty,
                ..
                $($(#[$last_doc:meta])* $last:ident $(= $last_name:literal)?: $last_type:ty,)*
            )?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $struct {
            $($(#[$doc])* pub $field: Option<$type>,)*
            $(
                $(#[$group_doc])* pub $group: $group_type,
                $($(#[$last_doc])* pub $last: Option<$last_type>,)*
            )?
        }

        impl $crate::link_spec::keys::Keys for $struct {
            fn names() -> Vec<&'static str> {
                let names = vec![$(name!($field $($name)?)),*];
                $(
                    let last = vec![$(name!($last $($last_name)?)),*];
                    let names = [names, <$group_type>::names(), last].concat();
                )?
                names
            }

            fn read<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                key: &str,
                table: &mut A,
            ) -> Result<bool, A::Error> {
                $(if key == name!($field $($name)?) {
                    self.$field = table.next_value()?;
                    return Ok(true);
                })*
                $(
                    $(if key == name!($last $($last_name)?) {
                        self.$last = table.next_value()?;
                        return Ok(true);
                    })*
                    if self.$group.read(key, table)? {
                        return Ok(true);
                    }
                )?
                Ok(false)
            }

            fn write<S: serde::ser::SerializeMap>(&self, table: &mut S) -> Result<(), S::Error> {
                $(if let Some(value) = &self.$field {
                    table.serialize_entry(name!($field $($name)?), value)?;
                })*
                $(
                    self.$group.write(table)?;
                    $(if let Some(value) = &self.$last {
                        table.serialize_entry(name!($last $($last_name)?), value)?;
                    })*
                )?
                Ok(())
            }

            fn laid_over(self, base: &Self) -> Self {
                Self {
                    $($field: self.$field.or_else(|| base.$field.clone()),)*
                    $(
                        $group: self.$group.laid_over(&base.$group),
                        $($last: self.$last.or_else(|| base.$last.clone()),)*
                    )?
                }
            }
        }
    };
}

/// Writes a table.
pub(super) fn serialize<T: Keys, S: Serializer>(table: &T, into: S) -> Result<S::Ok, S::Error> {
    let mut map = into.serialize_map(None)?;
    table.write(&mut map)?;
    map.end()
}

/// Reads a table, whose keys are `names`; an unknown key is an error.
pub(super) fn deserialize<'de, T: Keys, D: Deserializer<'de>>(
    name: &'static str,
    names: &'static [&'static str],
    from: D,
) -> Result<T, D::Error> {
    from.deserialize_struct(name, names, Table { name, names, read: PhantomData })
}

struct Table<T> {
    name: &'static str,
    names: &'static [&'static str],
    read: PhantomData<T>,
}

impl<'de, T: Keys> Visitor<'de> for Table<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "struct {}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut table = T::default();
        while let Some(key) = map.next_key_seed(Key(self.names))? {
            table.read(key, &mut map)?;
        }
        Ok(table)
    }
}

/// A key among the known ones.
struct Key(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<&'static str, D::Error> {
        let key = String::deserialize(from)?;
        let known = self.0.iter().find(|name| **name == key);
        known.copied().ok_or_else(|| D::Error::unknown_field(&key, self.0))
    }
}
