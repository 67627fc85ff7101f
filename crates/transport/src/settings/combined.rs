//! Tables with settings and other keys.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess};
use serde::forward_to_deserialize_any;
use session::settings::{Field, Peers, Setting, Settings, Stop, Visited, Visitor};
use toml::Table;

use super::read::{self, Key, below};
use super::{Changes, Values};

/// A table with the keys of `T`, and beside them settings of `C`. A table in both has the keys of
/// both, too.
#[derive(Clone, Debug)]
pub struct Combined<T, C> {
    /// The keys of `T`.
    pub own: T,
    /// The settings.
    pub settings: Changes<C>,
}

impl<'de, T: Deserialize<'de>, C: Settings + Default> Deserialize<'de> for Combined<T, C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = Table::new();
        let place = Place { settings: &mut C::default(), path: "", table: &mut table };
        let own = T::deserialize(Split { deserializer, place })?;
        Ok(Self { own, settings: Values(table).into() })
    }
}

/// Settings, and the table of those that were read; `path` is its own path.
struct Place<'a> {
    settings: &'a mut dyn Settings,
    path: &'a str,
    table: &'a mut Table,
}

/// Deserializer of a struct that takes the settings out of its table.
struct Split<'a, D> {
    deserializer: D,
    place: Place<'a>,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Split<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.deserializer.deserialize_any(visitor)
    }

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserializer.deserialize_any(Struct { place: self.place, fields, visitor })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Visitor of the struct.
struct Struct<'a, V> {
    place: Place<'a>,
    fields: &'static [&'static str],
    visitor: V,
}

impl<'de, V: de::Visitor<'de>> de::Visitor<'de> for Struct<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let Self { place, fields, visitor } = self;
        let settings = read::keys(place.settings);
        let others = settings.iter().filter(|key| !fields.contains(key));
        let keys = fields.iter().chain(others).copied().collect();
        visitor.visit_map(Fields { map, place, fields, keys, key: String::new() })
    }
}

/// Fields of the struct.
struct Fields<'a, A> {
    map: A,
    place: Place<'a>,
    fields: &'static [&'static str],
    /// Keys of the fields and of the settings.
    keys: Vec<&'static str>,
    /// Key of the next value.
    key: String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key_seed(Key(&self.keys))? {
            if self.fields.contains(&&*key) {
                self.key.clone_from(&key);
                let key: StringDeserializer<A::Error> = key.into_deserializer();
                return seed.deserialize(key).map(Some);
            }
            let Place { settings, path, table } = &mut self.place;
            read::setting(key, path, &mut self.map, *settings, table)?;
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let Place { settings, path, table } = &mut self.place;
        let path = below(path, &self.key);
        let mut inner = Table::new();
        let (map, table_at) = (&mut self.map, &mut inner);
        let (seed, read) = (Some(seed), None);
        let mut nested = Nested { key: &self.key, path: &path, table: table_at, map, seed, read };
        // The visitor stops at the key.
        let _ = settings.visit(&mut nested);
        let Nested { seed, read, .. } = nested;
        let value = match (seed, read) {
            (_, Some(read)) => read?,
            (seed, None) => self.map.next_value_seed(seed.expect("nothing was read"))?,
        };
        if !inner.is_empty() {
            table.insert(self.key.clone(), inner.into());
        }
        Ok(value)
    }
}

/// Reads the value of a field, a struct, if a table of settings has the same key.
struct Nested<'a, 'de, A: MapAccess<'de>, S: DeserializeSeed<'de>> {
    key: &'a str,
    path: &'a str,
    table: &'a mut Table,
    map: &'a mut A,
    seed: Option<S>,
    read: Option<Result<S::Value, A::Error>>,
}

impl<'de, A: MapAccess<'de>, S: DeserializeSeed<'de>> Visitor for Nested<'_, 'de, A, S> {
    fn value(&mut self, _: &Field, _: &mut dyn Setting) -> Visited {
        Ok(())
    }

    fn table(&mut self, field: &Field, settings: &mut dyn Settings) -> Visited {
        let Some(seed) = self.seed.take_if(|_| field.key == self.key) else { return Ok(()) };
        let place = Place { settings, path: self.path, table: self.table };
        self.read = Some(self.map.next_value_seed(InPlace { seed, place }));
        Err(Stop)
    }

    fn peers(&mut self, _: &mut dyn Peers) -> Visited {
        Ok(())
    }
}

/// Seed of a struct in a table with settings.
struct InPlace<'a, S> {
    seed: S,
    place: Place<'a>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for InPlace<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.seed.deserialize(Split { deserializer, place: self.place })
    }
}
