//! Values of settings by their keys.

use std::fmt;
use std::path::Path;

use serde::{Serialize, Serializer};
use session::settings::{Base, Field, Peers, Setting, Settings, Visited, Visitor};
use toml::{Table, Value};

use super::read::{DEFAULT, REMOTES};
use super::tcp::TcpBuffers;

/// Values of settings by their keys. Secrets are neither shown nor written.
#[derive(Clone, Default, PartialEq)]
pub struct Values(pub(super) Table);

/// Settings of sizes of TCP's buffers.
const SIZES: [&str; 4] =
    ["send_buffer", "receive_buffer", "send_buffer_initial", "receive_buffer_initial"];

impl Values {
    /// The value at a path of keys.
    #[must_use]
    pub fn get(&self, path: &[&str]) -> Option<&Value> {
        let (last, tables) = path.split_last()?;
        let mut table = &self.0;
        for key in tables {
            table = table.get(*key)?.as_table()?;
        }
        table.get(*last)
    }

    /// Changes the value at a path of keys, and returns the previous one.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>) -> Option<Value> {
        let (last, tables) = path.split_last()?;
        let mut table = &mut self.0;
        for key in tables {
            let entry = table.entry(*key).or_insert_with(|| Value::Table(Table::new()));
            table = entry.as_table_mut()?;
        }
        table.insert((*last).to_owned(), value.into())
    }

    /// Removes the value at a path of keys.
    pub fn remove(&mut self, path: &[&str]) {
        let Some((last, tables)) = path.split_last() else { return };
        let mut table = &mut self.0;
        for key in tables {
            let Some(Value::Table(below)) = table.get_mut(*key) else { return };
            table = below;
        }
        table.remove(*last);
    }

    /// The values below a key, if there is a table.
    #[must_use]
    pub fn below(&self, key: &str) -> Option<Self> {
        self.0.get(key)?.as_table().cloned().map(Self)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Limits the growth of TCP's buffers in the table at a path, in place of sizes.
    pub(crate) fn limit_buffers(&mut self, path: &[&str], buffers: TcpBuffers) {
        let key = |key| [path, &[key]].concat();
        self.set(&key("buffers"), buffers.name());
        for size in SIZES {
            self.remove(&key(size));
        }
    }

    /// Finds the files that settings with the keys of `schema` name relative to `folder`.
    pub(super) fn place(&mut self, schema: &mut dyn Settings, folder: &Path) {
        // The visitor does not stop early.
        let _ = schema.visit(&mut Placer { table: &mut self.0, folder });
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        public(&self.0).fmt(f)
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        public(&self.0).serialize(serializer)
    }
}

/// The table without secrets.
fn public(table: &Table) -> Table {
    let entries = table.iter().filter(|(key, _)| *key != "secret");
    entries.map(|(key, value)| (key.clone(), public_value(value))).collect()
}

fn public_value(value: &Value) -> Value {
    match value {
        Value::Table(table) => public(table).into(),
        Value::Array(values) => Value::Array(values.iter().map(public_value).collect()),
        other => other.clone(),
    }
}

/// Adds the authentication keys of `given` to the tables of `all`.
pub(super) fn add_keys(all: &mut Table, given: &Table) {
    for (key, value) in given {
        if key == "authentication" {
            all.insert(key.clone(), value.clone());
        } else if let Value::Table(given) = value
            && let Some(Value::Table(all)) = all.get_mut(key)
        {
            add_keys(all, given);
        }
    }
}

/// Visitor that makes paths of files relative to a folder.
struct Placer<'a> {
    table: &'a mut Table,
    folder: &'a Path,
}

impl Placer<'_> {
    fn below(&mut self, key: &str, settings: &mut dyn Settings) -> Visited {
        let Some(Value::Table(table)) = self.table.get_mut(key) else { return Ok(()) };
        settings.visit(&mut Placer { table, folder: self.folder })
    }
}

impl Visitor for Placer<'_> {
    fn value(&mut self, field: &Field, setting: &mut dyn Setting) -> Visited {
        match (setting.kind().base, self.table.get_mut(field.key)) {
            (Some(Base::File), Some(Value::String(file))) => {
                *file = self.folder.join(&*file).to_string_lossy().into_owned();
            }
            (Some(Base::Keys), Some(Value::Table(keys))) => super::keys::place(keys, self.folder),
            _ => {}
        }
        Ok(())
    }

    fn table(&mut self, field: &Field, table: &mut dyn Settings) -> Visited {
        self.below(field.key, table)
    }

    fn peers(&mut self, peers: &mut dyn Peers) -> Visited {
        self.below(DEFAULT, peers.default())?;
        let Some(Value::Table(remotes)) = self.table.get_mut(REMOTES) else { return Ok(()) };
        let mut remotes = remotes.iter_mut().filter_map(|(_, remote)| remote.as_table_mut());
        let folder = self.folder;
        remotes.try_for_each(|table| peers.default().visit(&mut Placer { table, folder }))
    }
}
