//! Changes of a configuration, as users write them in TOML.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use session::settings::Settings;
use toml::{Table, Value};

use super::{Values, apply, read, write};
use crate::text::SpecError;

/// Changes of the settings of a `C`; missing keys stay unchanged.
pub struct Changes<C> {
    values: Values,
    of: PhantomData<fn() -> C>,
}

impl<C: Settings + Default> Changes<C> {
    /// Changes `config`.
    ///
    /// # Errors
    ///
    /// When a value is out of its range, or a file named by it cannot be read.
    pub fn apply(&self, config: &mut C) -> Result<(), SpecError> {
        apply::apply(&self.values.0, config, "").map_err(SpecError::invalid)
    }

    /// Changes `config` according to the file at `path`.
    ///
    /// # Errors
    ///
    /// Names the place in the file, and the remedy.
    pub fn apply_file(path: &Path, config: &mut C) -> Result<(), SpecError> {
        let mut changes: Self = crate::text::read(path)?;
        changes.place(path.parent().unwrap_or(Path::new("")));
        changes.apply(config).map_err(|error| error.within(path))
    }

    /// All settings of `config` except keys: an engine does not reveal them.
    #[must_use]
    pub fn from_config(config: &C) -> Self
    where
        C: Clone,
    {
        Values(write::write(&mut config.clone())).into()
    }

    /// Finds the files named in these changes relative to `folder`.
    pub fn place(&mut self, folder: &Path) {
        self.values.place(&mut C::default(), folder);
    }
}

impl<C> Changes<C> {
    /// Returns these changes with a value at a path of keys.
    #[must_use]
    pub fn with(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        self.set(path, value);
        self
    }

    pub(super) fn into_table(self) -> Table {
        self.values.0
    }
}

impl<C> Deref for Changes<C> {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}

impl<C> DerefMut for Changes<C> {
    fn deref_mut(&mut self) -> &mut Values {
        &mut self.values
    }
}

impl<C> From<Values> for Changes<C> {
    fn from(values: Values) -> Self {
        Self { values, of: PhantomData }
    }
}

impl<C> Default for Changes<C> {
    fn default() -> Self {
        Values::default().into()
    }
}

impl<C> Clone for Changes<C> {
    fn clone(&self) -> Self {
        self.values.clone().into()
    }
}

impl<C> PartialEq for Changes<C> {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl<C> fmt::Debug for Changes<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}

impl<C> Serialize for Changes<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.values.serialize(serializer)
    }
}

impl<'de, C: Settings + Default> Deserialize<'de> for Changes<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read::read(deserializer, &mut C::default()).map(|table| Values(table).into())
    }
}
