//! Changes of a configuration, as users write them in TOML.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use proto::settings::{Base, Kind, Settings};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use super::{apply, read, walk, write};
use crate::text::SpecError;

/// Changes of the settings of a `C`; what is left out stays as it is.
pub struct Changes<C> {
    table: Table,
    of: PhantomData<fn() -> C>,
}

impl<C: Settings + Default> Changes<C> {
    /// Changes `config`.
    ///
    /// # Errors
    ///
    /// When a value is out of its range, or a file that it names cannot be read.
    pub fn apply(&self, config: &mut C) -> Result<(), SpecError> {
        apply::apply(&self.table, config, "").map_err(SpecError::invalid)
    }

    /// Changes `config` by the table at `path`, which messages name.
    ///
    /// # Errors
    ///
    /// As [`Changes::apply`].
    pub fn apply_at(&self, path: &str, config: &mut C) -> Result<(), SpecError> {
        apply::apply(&self.table, config, path).map_err(SpecError::invalid)
    }

    /// Changes `config` as the file at `path` says.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn apply_file(path: &Path, config: &mut C) -> Result<(), SpecError> {
        let mut changes: Self = crate::text::read(path)?;
        changes.place(path.parent().unwrap_or(Path::new("")));
        changes.apply(config).map_err(|error| error.within(path))
    }

    /// All settings of `config`, but keys: an engine does not give them away.
    #[must_use]
    pub fn of(config: &C) -> Self
    where
        C: Clone,
    {
        write::write(&mut config.clone()).into()
    }

    /// Finds the files that they name relative to `folder`.
    pub fn place(&mut self, folder: &Path) {
        walk::walk(
            &mut self.table,
            &mut C::default(),
            &mut |kind: &Kind, value: &mut Value| match (&kind.base, value) {
                (Some(Base::File), Value::String(file)) => {
                    *file = folder.join(&*file).to_string_lossy().into_owned();
                }
                (Some(Base::Keys), Value::Table(keys)) => super::keys::place(keys, folder),
                _ => {}
            },
        );
    }
}

impl<C> Changes<C> {
    /// The value at a path of keys.
    #[must_use]
    pub fn get(&self, path: &[&str]) -> Option<&Value> {
        let (last, tables) = path.split_last()?;
        let mut table = &self.table;
        for key in tables {
            table = table.get(*key)?.as_table()?;
        }
        table.get(*last)
    }

    /// Changes the value at a path of keys, and returns the one before.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>) -> Option<Value> {
        let (last, tables) = path.split_last()?;
        let mut table = &mut self.table;
        for key in tables {
            let entry = table.entry(*key).or_insert_with(|| Value::Table(Table::new()));
            table = entry.as_table_mut()?;
        }
        table.insert((*last).to_owned(), value.into())
    }

    /// Removes the value at a path of keys.
    pub fn remove(&mut self, path: &[&str]) {
        let Some((last, tables)) = path.split_last() else { return };
        let mut table = &mut self.table;
        for key in tables {
            let Some(Value::Table(below)) = table.get_mut(*key) else { return };
            table = below;
        }
        table.remove(*last);
    }

    /// The same with a value at a path of keys.
    #[must_use]
    pub fn with(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        self.set(path, value);
        self
    }

    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    fn shown(&self) -> Table {
        let mut table = self.table.clone();
        remove_secrets(&mut table);
        table
    }
}

fn remove_secrets(table: &mut Table) {
    table.remove("secret");
    for (_, value) in table.iter_mut() {
        match value {
            Value::Table(table) => remove_secrets(table),
            Value::Array(values) => {
                values.iter_mut().filter_map(Value::as_table_mut).for_each(remove_secrets);
            }
            _ => {}
        }
    }
}

impl<C> From<Table> for Changes<C> {
    fn from(table: Table) -> Self {
        Self { table, of: PhantomData }
    }
}

impl<C> Default for Changes<C> {
    fn default() -> Self {
        Table::new().into()
    }
}

impl<C> Clone for Changes<C> {
    fn clone(&self) -> Self {
        self.table.clone().into()
    }
}

impl<C> PartialEq for Changes<C> {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
    }
}

/// Without secrets.
impl<C> fmt::Debug for Changes<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown().fmt(f)
    }
}

/// Without secrets.
impl<C> Serialize for Changes<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shown().serialize(serializer)
    }
}

impl<'de, C: Settings + Default> Deserialize<'de> for Changes<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read::read(deserializer, &mut C::default()).map(Self::from)
    }
}
