//! Reading tables of settings: an error names the line, the key and, for a key that does not
//! exist, the nearest that does.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess};
use session::settings::form::OFF;
use session::settings::{
    Base, Field, Kind, Optional, Peers, Setting, Settings, Stop, Visited, Visitor,
};
use toml::{Table, Value};

use super::keys::Authentication;
use super::value;

/// Reads a table with the keys of `settings`. Values have the right kind;
/// [`apply`](super::apply::apply) checks bounds.
pub(super) fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
    settings: &mut dyn Settings,
) -> Result<Table, D::Error> {
    Seed { settings, path: "", off: false }.deserialize(deserializer).map(|value| match value {
        Value::Table(table) => table,
        _ => Table::new(),
    })
}

/// Table, or `off` where allowed.
struct Seed<'a> {
    settings: &'a mut dyn Settings,
    path: &'a str,
    off: bool,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.off { "a table, or \"off\"" } else { "a table" })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        match text {
            OFF if self.off => Ok(Value::String(text.to_owned())),
            OFF => {
                let table = if self.path.is_empty() { "this table" } else { self.path };
                let remedy = "leave it out, or write a table";
                Err(E::custom(format!("{table} cannot be \"off\"; {remedy}")))
            }
            _ => Err(E::invalid_type(de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let keys = keys(self.settings);
        let mut table = Table::new();
        while let Some(key) = map.next_key_seed(Key(&keys))? {
            setting(key, self.path, &mut map, self.settings, &mut table)?;
        }
        Ok(table.into())
    }
}

/// Reads the value of a key into the table of `settings` at `path`.
pub(super) fn setting<'de, A: MapAccess<'de>>(
    key: String,
    path: &str,
    map: &mut A,
    settings: &mut dyn Settings,
    table: &mut Table,
) -> Result<(), A::Error> {
    let mut at = At { key: &key, path: &below(path, &key), map, read: None };
    // The visitor stops at the key.
    let _ = settings.visit(&mut at);
    if let Some(value) = at.read {
        table.insert(key, value?);
    }
    Ok(())
}

/// The path of a key, or a message that begins with it, in the table at `path`.
pub(super) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Keys of a table.
pub(super) fn keys(settings: &mut dyn Settings) -> Vec<&'static str> {
    let mut names = Names(Vec::new());
    // The visitor does not stop early.
    let _ = settings.visit(&mut names);
    names.0
}

/// Keys of a table.
struct Names(Vec<&'static str>);

impl Names {
    fn push(&mut self, field: &Field) -> Visited {
        self.0.push(field.key);
        Ok(())
    }
}

impl Visitor for Names {
    fn value(&mut self, field: &Field, _: &mut dyn Setting) -> Visited {
        self.push(field)
    }

    fn table(&mut self, field: &Field, _: &mut dyn Settings) -> Visited {
        self.push(field)
    }

    fn peers(&mut self, _: &mut dyn Peers) -> Visited {
        self.0.extend([DEFAULT, REMOTES]);
        Ok(())
    }
}

/// Key of the settings of all peers.
pub(super) const DEFAULT: &str = "default";

/// Key of the settings of some peers.
pub(super) const REMOTES: &str = "remotes";

/// A key, one of these names.
pub(super) struct Key<'a>(pub(super) &'a [&'static str]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        let key = String::deserialize(deserializer)?;
        if self.0.contains(&&*key) {
            return Ok(key);
        }
        let expected = match self.0 {
            [] => "there are no fields".to_owned(),
            [one] => format!("expected `{one}`"),
            [one, other] => format!("expected `{one}` or `{other}`"),
            names => format!("expected one of `{}`", names.join("`, `")),
        };
        Err(de::Error::custom(format!("unknown field `{key}`, {expected}")))
    }
}

/// Reads the value of one key.
struct At<'a, 'de, A: MapAccess<'de>> {
    key: &'a str,
    path: &'a str,
    map: &'a mut A,
    read: Option<Result<Value, A::Error>>,
}

impl<'de, A: MapAccess<'de>> At<'_, 'de, A> {
    fn seed(&mut self, key: &str, seed: impl DeserializeSeed<'de, Value = Value>) -> Visited {
        if key != self.key {
            return Ok(());
        }
        self.read = Some(self.map.next_value_seed(seed));
        Err(Stop)
    }
}

impl<'de, A: MapAccess<'de>> Visitor for At<'_, 'de, A> {
    fn value(&mut self, field: &Field, setting: &mut dyn Setting) -> Visited {
        let path = self.path;
        // The kind is created for the right key only.
        if field.key != self.key {
            return Ok(());
        }
        self.seed(field.key, Leaf { kind: setting.kind(), path })
    }

    fn table(&mut self, field: &Field, settings: &mut dyn Settings) -> Visited {
        self.seed(field.key, Seed { settings, path: self.path, off: false })
    }

    fn optional(&mut self, field: &Field, table: &mut dyn Optional) -> Visited {
        self.seed(field.key, Seed { settings: table.on(), path: self.path, off: true })
    }

    fn absent(&mut self, field: &Field, settings: &mut dyn Settings, _: &str) -> Visited {
        self.table(field, settings)
    }

    fn absent_optional(&mut self, field: &Field, table: &mut dyn Optional, _: &str) -> Visited {
        self.optional(field, table)
    }

    fn peers(&mut self, peers: &mut dyn Peers) -> Visited {
        let path = self.path;
        self.seed(DEFAULT, Seed { settings: peers.default(), path, off: false })?;
        self.seed(REMOTES, Remotes { remote: peers.default(), path })
    }
}

/// Tables of peers, by their names.
struct Remotes<'a> {
    remote: &'a mut dyn Settings,
    path: &'a str,
}

impl<'de> DeserializeSeed<'de> for Remotes<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> de::Visitor<'de> for Remotes<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of peers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut table = Table::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = format!("{}.{name}", self.path);
            let seed = Seed { settings: &mut *self.remote, path: &path, off: false };
            table.insert(name, map.next_value_seed(seed)?);
        }
        Ok(table.into())
    }
}

/// A value of a kind.
struct Leaf<'a> {
    kind: Kind,
    path: &'a str,
}

impl<'de> DeserializeSeed<'de> for Leaf<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let given = Value::deserialize(deserializer)?;
        if let (Some(Base::Keys), Value::Table(keys)) = (&self.kind.base, &given) {
            // Key files are read when the keys are used.
            let keys = Authentication::deserialize(keys.clone());
            return keys.map(|_| given).map_err(|error| de::Error::custom(error.message()));
        }
        let value = value::read(&self.kind, &given).map_err(|error| {
            de::Error::custom(if error.starts_with('.') {
                format!("{}{error}", self.path)
            } else {
                error
            })
        })?;
        Ok(value::write(&value).unwrap_or(given))
    }
}
