//! Settings, each declared in one place: name, type, unit, default, bound and documentation.
//!
//! The macro [`settings!`](crate::settings!) declares a struct of settings and its defaults. A
//! field with a form (`as Size`) is a setting that users see; one without is for drivers alone.
//! Everything else (reading and writing TOML, the manual's tables) is derived from the declaration
//! by a [`Visitor`].

mod declare;
pub mod form;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::authentication::Authentication;

/// End of a visit before all settings were visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop;

/// Result of a visit.
pub type Visited = Result<(), Stop>;

/// A table of settings.
pub trait Settings {
    /// Visits each setting in the order of the declaration.
    ///
    /// # Errors
    ///
    /// When the visitor stops.
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited;

    /// Checks several settings against each other, once all of a table are set. Settings that
    /// follow from others are adjusted.
    ///
    /// # Errors
    ///
    /// Message that begins with the key concerned.
    fn check(&mut self) -> Result<(), Wrong> {
        Ok(())
    }
}

/// Error of several settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// Text in which `{table}` is replaced by the path of the table, and each `{}` by a value.
    pub text: String,
    /// The values.
    pub values: Vec<Value>,
}

impl From<String> for Wrong {
    fn from(text: String) -> Self {
        Self { text, values: Vec::new() }
    }
}

impl From<&str> for Wrong {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Declaration of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Key of the setting in its table.
    pub key: &'static str,
    /// Lines of its documentation.
    pub doc: &'static [&'static str],
    /// Bound of its value.
    pub bound: Option<Bound>,
}

/// Bound of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Minimum number, or number of bytes.
    Least(u64),
    /// Greatest number.
    Most(u64),
    /// Minimum and maximum number.
    Range(u64, u64),
    /// Time of at least 1 ms: at shorter intervals, unprompted packets fill a link.
    Interval,
    /// Whole seconds, at least one.
    Seconds,
}

impl Bound {
    /// Minimum time between unprompted packets.
    pub const INTERVAL_MIN: Duration = Duration::from_millis(1);
}

/// Visits the settings of a table.
pub trait Visitor {
    /// Visits a value.
    ///
    /// # Errors
    ///
    /// The visitor stops.
    fn value(&mut self, field: &Field, setting: &mut dyn Setting) -> Visited;

    /// Visits a table in this table.
    ///
    /// # Errors
    ///
    /// The visitor stops.
    fn table(&mut self, field: &Field, table: &mut dyn Settings) -> Visited;

    /// Visits a table that may be `off`.
    ///
    /// # Errors
    ///
    /// The visitor stops.
    fn optional(&mut self, field: &Field, table: &mut dyn Optional) -> Visited {
        self.table(field, table.on())
    }

    /// Visits a table that has no effect here; `why` follows its key in the message to users that
    /// set it.
    ///
    /// # Errors
    ///
    /// The visitor stops.
    fn absent(&mut self, field: &Field, table: &mut dyn Settings, _why: &str) -> Visited {
        self.table(field, table)
    }

    /// Visits a table that may be `off` and has no effect here, as [`absent`](Self::absent).
    ///
    /// # Errors
    ///
    /// The visitor stops.
    fn absent_optional(&mut self, field: &Field, table: &mut dyn Optional, why: &str) -> Visited {
        self.absent(field, table.on(), why)
    }

    /// Visits settings of peers: `default` for all, and `remotes` for some.
    ///
    /// # Errors
    ///
    /// The visitor stops.
    fn peers(&mut self, peers: &mut dyn Peers) -> Visited;
}

/// A setting with a value.
pub trait Setting {
    /// Kind of its values.
    fn kind(&self) -> Kind;

    /// Value of the setting; `None` if it is equivalent to leaving the key out.
    fn get(&self) -> Option<Value>;

    /// Changes it.
    ///
    /// # Errors
    ///
    /// Rest of a message that begins with its key.
    fn set(&mut self, value: Value) -> Result<(), String>;
}

/// A table that may be `off`.
pub trait Optional {
    /// The table, switched on if it is off.
    fn on(&mut self) -> &mut dyn Settings;

    /// Switches it off.
    fn off(&mut self);

    /// Whether it is on.
    fn is_on(&self) -> bool;
}

/// Settings of peers.
pub trait Peers {
    /// Settings of peers without their own.
    fn default(&mut self) -> &mut dyn Settings;

    /// Visits the settings of each configured peer, with its name where it has one.
    ///
    /// # Errors
    ///
    /// The visitor stops.
    fn each(
        &mut self,
        visit: &mut dyn FnMut(Option<String>, &mut dyn Settings) -> Visited,
    ) -> Visited;

    /// Settings of a peer by name; a new peer starts with those of `default`.
    ///
    /// # Errors
    ///
    /// No peer can have this name.
    fn entry(&mut self, name: &str) -> Result<&mut dyn Settings, String>;
}

/// Settings of peers in a map.
#[derive(Debug)]
pub struct Remotes<'a, K, R> {
    /// Settings of all other peers.
    pub default: &'a mut R,
    /// Settings of configured peers.
    pub remotes: &'a mut BTreeMap<K, R>,
}

/// Name of a peer.
pub trait Name: Ord + Sized + ToString {
    /// Parses a name.
    ///
    /// # Errors
    ///
    /// Reason why the name is invalid.
    fn parse(text: &str) -> Result<Self, String>;
}

impl Name for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Name for u64 {
    fn parse(text: &str) -> Result<Self, String> {
        number(text, "a remote entity has a number")
    }
}

/// Parses a number used as a key of a table; `expected` describes valid keys.
fn number(text: &str, expected: &str) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|_| expected.to_owned())?;
    // Otherwise one entity could be named twice.
    let shortest = number.to_string();
    if shortest == text { Ok(number) } else { Err(format!("write it as {shortest}")) }
}

impl<K: Name, R: Settings + Clone> Peers for Remotes<'_, K, R> {
    fn default(&mut self) -> &mut dyn Settings {
        self.default
    }

    fn each(
        &mut self,
        visit: &mut dyn FnMut(Option<String>, &mut dyn Settings) -> Visited,
    ) -> Visited {
        let mut remotes = self.remotes.iter_mut();
        remotes.try_for_each(|(name, remote)| visit(Some(name.to_string()), remote))
    }

    fn entry(&mut self, name: &str) -> Result<&mut dyn Settings, String> {
        let entry = self.remotes.entry(K::parse(name)?);
        Ok(entry.or_insert_with(|| self.default.clone()))
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Yes or no.
    Flag(bool),
    /// A number without unit.
    Number(u64),
    /// Any text.
    Text(String),
    /// Bytes.
    Size(u64),
    /// A time.
    Span(Duration),
    /// Rate in bit/s.
    Rate(u64),
    /// One of the words of a setting.
    Word(&'static str),
    /// A value with a name, as in `{ raw = "x" }`.
    Named(&'static str, Box<Self>),
    /// Map of numbers.
    Numbers(BTreeMap<u64, u64>),
    /// Keys of LTP.
    Keys(Authentication),
}

/// Kind of the values of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Values besides words.
    pub base: Option<Base>,
    /// Words.
    pub words: Vec<&'static str>,
}

/// Kind of values other than words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Yes or no.
    Flag,
    /// A number without unit.
    Number {
        /// Minimum number.
        least: u64,
        /// Greatest number.
        most: u64,
        /// Type of the number in messages.
        name: &'static str,
    },
    /// One of these numbers; the error message begins with the text.
    OneOf(&'static [u64], &'static str),
    /// Any text.
    Text,
    /// Bytes.
    Size,
    /// A time.
    Span,
    /// Rate in bit/s.
    Rate,
    /// A value with a name.
    Named(&'static str, Box<Self>),
    /// Map of numbers; the text is the message about other keys.
    Numbers(&'static str),
    /// Keys of LTP.
    Keys,
    /// A file, relative to the one that names it.
    File,
}

impl From<Base> for Kind {
    fn from(base: Base) -> Self {
        Self { base: Some(base), words: Vec::new() }
    }
}

impl Kind {
    /// Returns this kind, or a word in its place.
    #[must_use]
    pub fn or(mut self, word: &'static str) -> Self {
        self.words.push(word);
        self
    }
}
